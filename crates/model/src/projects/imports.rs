//! Imports of repositories from other servers.

use std::fmt;

use crate::{ProjectId, Time};

/// The state of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// No import was requested.
    None,
    /// Waiting to start.
    Scheduled,
    /// Running.
    Started,
    /// Completed.
    Finished,
    /// Failed.
    Failed,
}

impl ImportState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::None, Self::Scheduled, Self::Started, Self::Finished, Self::Failed];

    /// The name used in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Scheduled => "scheduled",
            Self::Started => "started",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }

    /// Parses the stored name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// The status of an import as the project shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportStatus {
    /// The state.
    pub state: ImportState,
    /// Why it failed.
    pub error: Option<String>,
}

/// An import of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The ID of the project that receives the repository.
    pub project: ProjectId,
    /// The state, and the error of a failed import.
    pub status: ImportStatus,
    /// The source URL without credentials.
    pub url: String,
    /// The credentials for the source, until the import ends.
    pub credentials: Option<EncryptedCredentials>,
    /// The time at which it started.
    pub started_at: Option<Time>,
    /// The time at which it ended.
    pub finished_at: Option<Time>,
}

/// Credentials encrypted with the instance key; hidden in `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptedCredentials(pub Vec<u8>);

impl fmt::Debug for EncryptedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_a_round_trip_through_their_names() {
        for state in ImportState::ALL {
            assert_eq!(ImportState::parse(state.as_str()), Some(state));
        }
        assert_eq!(ImportState::parse(""), None);
    }
}
