//! The settings of a project.

pub(crate) mod ci;
pub(crate) mod general;
pub(crate) mod members;
pub(crate) mod navigation;
pub(crate) mod repository;
pub(crate) mod runners;
