//! Use cases of the issue tracker.

pub mod board_pages;
pub mod boards;
pub mod issue_pages;
pub mod issues;
pub mod label_pages;
pub mod labels;
pub(crate) mod mentions;
pub mod milestone_pages;
pub mod milestones;
pub mod notes;
pub mod references;
