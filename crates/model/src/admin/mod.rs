//! Domain types of administration.

pub mod nodes;
pub mod tasks;
