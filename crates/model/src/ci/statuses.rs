//! Commit statuses: what others found out about a commit.

use crate::{Oid, Status, Time, users::UserSummary};

/// How far something has come, as others tell it.
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
    /// The state that a build has then.
    pub fn status(self) -> Status {
        match self {
            Self::Pending => Status::Pending,
            Self::Running => Status::Running,
            Self::Success => Status::Success,
            Self::Failed => Status::Failed,
            Self::Canceled => Status::Canceled,
        }
    }
}

/// What is known of a commit: a job, or what somebody found out.
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
    pub state: Status,
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
    /// Whether that is a tag.
    pub tag: bool,
    /// What was looked at.
    pub name: String,
    /// How far it has come.
    pub state: StatusState,
    /// Where more is told.
    pub target_url: Option<String>,
    /// What there is to say in short.
    pub description: Option<String>,
}

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
