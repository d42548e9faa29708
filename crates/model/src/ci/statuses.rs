//! Commit statuses.

use crate::{JobId, Oid, Status, Time, users::UserSummary};

/// The state that an external service reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusState {
    /// Waiting to run.
    Pending,
    /// Running.
    Running,
    /// Succeeded.
    Success,
    /// Failed.
    Failed,
    /// Canceled.
    Canceled,
}

impl StatusState {
    /// Returns the job status that corresponds to the state.
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

/// A status of a commit: a job, or a status reported by an external service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatus {
    /// The ID.
    pub id: JobId,
    /// The commit.
    pub sha: Oid,
    /// The short name of the branch or the tag.
    pub ref_name: String,
    /// The name of the check.
    pub name: String,
    /// The state.
    pub state: Status,
    /// The URL of a page with details.
    pub target_url: Option<String>,
    /// A short description.
    pub description: Option<String>,
    /// Whether a failure is tolerated.
    pub allow_failure: bool,
    /// The user who reported it, unless deleted.
    pub author: Option<UserSummary>,
    /// When it was first reported.
    pub created_at: Time,
    /// When it started.
    pub started_at: Option<Time>,
    /// When it finished.
    pub finished_at: Option<Time>,
}

/// An external status to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStatus {
    /// The commit.
    pub sha: Oid,
    /// The short name of the branch or the tag.
    pub ref_name: String,
    /// Whether the ref is a tag.
    pub tag: bool,
    /// The name of the check.
    pub name: String,
    /// The state.
    pub state: StatusState,
    /// The URL of a page with details.
    pub target_url: Option<String>,
    /// A short description.
    pub description: Option<String>,
}

/// Which statuses of a commit to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusFilter {
    /// Only statuses of this branch or tag.
    pub ref_name: Option<String>,
    /// Only statuses of this stage.
    pub stage: Option<String>,
    /// Only statuses of this name.
    pub name: Option<String>,
    /// All statuses, not only the latest of each name.
    pub all: bool,
}
