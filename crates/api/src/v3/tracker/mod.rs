//! Endpoints of the issue tracker.

pub(crate) mod boards;
pub(crate) mod issues;
pub(crate) mod labels;
pub(crate) mod markdown;
pub(crate) mod milestones;
pub(crate) mod notes;
