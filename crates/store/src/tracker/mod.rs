//! The statements of the issue tracker.

pub mod boards;
pub mod issue_lists;
pub mod issues;
pub mod labels;
pub mod mentions;
pub mod milestones;
pub mod notes;
pub(crate) mod sight;
