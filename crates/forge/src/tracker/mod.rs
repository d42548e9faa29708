//! Use cases of the issue tracker.

pub mod boards;
pub mod issue_pages;
pub mod issues;
pub mod labels;
pub(crate) mod mentions;
pub mod milestones;
pub mod notes;
pub mod references;
