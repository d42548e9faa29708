//! Trigger tokens.

use crate::{Time, TriggerId, projects::TokenSeed};

/// A token that starts pipelines.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// The ID.
    pub id: TriggerId,
    /// The seed that its token is derived from.
    pub seed: TokenSeed,
    /// When it was created.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// When it was last used.
    pub last_used: Option<Time>,
}
