//! Statements of repositories.

pub mod commit_notes;
pub mod intents;
pub mod protections;
pub mod releases;
