//! Pages of the issue tracker.

pub(crate) mod issue;
pub(crate) mod issues;
pub(crate) mod new_issue;
