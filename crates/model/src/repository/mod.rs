//! Types of repositories.

pub mod commit_notes;
pub mod objects;
pub mod protections;
pub mod refs;
pub mod releases;
