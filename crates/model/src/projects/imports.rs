//! Repositories that come from elsewhere.

use std::fmt;

use crate::Time;

/// How far an import has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// There is nothing to do.
    None,
    /// Waits for its turn.
    Scheduled,
    /// Under way.
    Started,
    /// All is here.
    Finished,
    /// Given up.
    Failed,
}

impl ImportState {
    /// Every state there is.
    pub const ALL: [Self; 5] = [Self::None, Self::Scheduled, Self::Started, Self::Finished, Self::Failed];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Scheduled => "scheduled",
            Self::Started => "started",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }

    /// What a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What a project tells about its import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportStatus {
    /// How far it has come.
    pub state: ImportState,
    /// Why it was given up.
    pub error: Option<String>,
}

/// An import with all that it takes to do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The project that gets the repository.
    pub project: i64,
    /// How far it has come, and why it was given up.
    pub status: ImportStatus,
    /// From where, without what lets somebody in.
    pub url: String,
    /// What lets somebody in, as long as it is needed.
    pub credentials: Option<Sealed>,
    /// When it began.
    pub started_at: Option<Time>,
    /// When it came to its end.
    pub finished_at: Option<Time>,
}

/// Bytes that only the forge can read; they do not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(pub Vec<u8>);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_known_by_their_words() {
        for state in ImportState::ALL {
            assert_eq!(ImportState::from_word(state.as_str()), Some(state));
        }
        assert_eq!(ImportState::from_word(""), None);
    }
}
