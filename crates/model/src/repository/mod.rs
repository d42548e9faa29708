//! Types of repositories.

pub mod commit_notes;
pub mod objects;
pub mod packs;
pub mod protections;
pub mod refs;
pub mod releases;
