//! SQL statements of the issue tracker.

pub mod boards;
pub mod issue_lists;
pub(crate) mod issue_visibility;
pub mod issues;
pub mod labels;
pub mod mentions;
pub mod milestones;
pub mod notes;
