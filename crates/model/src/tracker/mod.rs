//! Types and rules of the issue tracker.

pub mod boards;
pub mod issues;
pub mod labels;
pub mod milestones;
pub mod notes;
pub mod references;
pub mod text_references;
