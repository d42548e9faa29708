//! Domain types of administration.

pub mod tasks;
