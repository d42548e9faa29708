//! CI variables of projects.

use crate::tokens::Secret;

/// A variable that a project passes to its jobs.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Secret,
}
