//! Commit statuses: what others found out about a commit.

use crate::{Oid, Time, users::UserSummary};

/// How far something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusState {
    /// Waits.
    Pending,
    /// Runs.
    Running,
    /// Went well.
    Success,
    /// Went wrong.
    Failed,
    /// Was called off.
    Canceled,
}

impl StatusState {
    /// Every state there is.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Success, Self::Failed, Self::Canceled];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// What a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing follows.
    pub fn is_finished(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Success | Self::Failed | Self::Canceled => true,
        }
    }
}

/// What somebody found out about a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatus {
    /// Number of the status.
    pub id: i64,
    /// The commit.
    pub sha: Oid,
    /// The branch or tag that it was found out for, as people say it.
    pub ref_name: String,
    /// What was looked at.
    pub name: String,
    /// How far it has come.
    pub state: StatusState,
    /// Where more is told.
    pub target_url: Option<String>,
    /// What there is to say in short.
    pub description: Option<String>,
    /// Whether it does not matter if it went wrong.
    pub allow_failure: bool,
    /// Who said so, as long as they are there.
    pub author: Option<UserSummary>,
    /// When it was first told.
    pub created_at: Time,
    /// When it began to run.
    pub started_at: Option<Time>,
    /// When it came to its end.
    pub finished_at: Option<Time>,
}

/// A status about to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStatus {
    /// The commit.
    pub sha: Oid,
    /// The branch or tag that it is told for, as people say it.
    pub ref_name: String,
    /// What was looked at.
    pub name: String,
    /// How far it has come.
    pub state: StatusState,
    /// Where more is told.
    pub target_url: Option<String>,
    /// What there is to say in short.
    pub description: Option<String>,
}

/// The stage to which all statuses belong that come from outside.
pub const EXTERNAL: &str = "external";

/// Which statuses of a commit are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusFilter {
    /// Only those of this branch or tag.
    pub ref_name: Option<String>,
    /// Only those of this stage.
    pub stage: Option<String>,
    /// Only those of this name.
    pub name: Option<String>,
    /// Not only the latest of each name, but all.
    pub all: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_known_by_their_words() {
        for state in StatusState::ALL {
            assert_eq!(StatusState::from_word(state.as_str()), Some(state));
        }
        assert_eq!(StatusState::from_word("skipped"), None);
    }
}
