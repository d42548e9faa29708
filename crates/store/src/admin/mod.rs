//! The statements of administration.

pub mod checks;
pub mod copies;
pub mod instance;
pub mod tasks;
