//! The use cases of administration.

pub mod doctor;
pub mod first_start;
pub mod instance_key;
pub mod tasks;
