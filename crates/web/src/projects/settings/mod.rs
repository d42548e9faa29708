//! The settings of a project.

pub(crate) mod general;
pub(crate) mod members;
pub(crate) mod navigation;
pub(crate) mod repository;
