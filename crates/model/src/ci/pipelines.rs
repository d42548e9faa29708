//! Pipelines.

use crate::{Oid, PipelineId, ProjectId, Time, users::UserSummary};

/// The state of a job or a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Waiting for earlier stages or needed jobs.
    Created,
    /// Waiting for a runner.
    Pending,
    /// Assigned to a runner.
    Running,
    /// Succeeded.
    Success,
    /// Failed.
    Failed,
    /// Canceled by a user.
    Canceled,
    /// Not run, because its conditions were not met.
    Skipped,
    /// Waiting for a user to start it. No job enters this state, because clients of v3 do not know it: manual jobs are
    /// skipped and stay playable. The state machine handles it nevertheless.
    Manual,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Pending,
        Self::Running,
        Self::Success,
        Self::Failed,
        Self::Canceled,
        Self::Skipped,
        Self::Manual,
    ];

    /// Returns the name used by the API and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Skipped => "skipped",
            Self::Manual => "manual",
        }
    }

    /// Parses the name of a status.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Returns whether a job with this status has ended; it may still be retried.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::Canceled | Self::Skipped)
    }

    /// Returns whether a job with this status can be canceled.
    pub fn is_cancelable(self) -> bool {
        matches!(self, Self::Created | Self::Pending | Self::Running | Self::Manual)
    }
}

/// What started a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A push.
    Push,
    /// A call of the API.
    Api,
    /// A trigger token.
    Trigger,
    /// A commit status reported by an external service.
    External,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 4] = [Self::Push, Self::Api, Self::Trigger, Self::External];

    /// Returns the name used in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Api => "api",
            Self::Trigger => "trigger",
            Self::External => "external",
        }
    }

    /// Parses the name of a source.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == name)
    }
}

/// The jobs of a commit, run in stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The ID.
    pub id: PipelineId,
    /// The project ID.
    pub project_id: ProjectId,
    /// The short name of the branch or the tag.
    pub ref_name: String,
    /// Whether the ref is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: Oid,
    /// The previous commit of the ref, as reported to clients; `None` is shown as forty zeros.
    pub before_sha: Option<Oid>,
    /// What started the pipeline.
    pub source: Source,
    /// The status.
    pub status: Status,
    /// The error in the CI file.
    pub yaml_errors: Option<String>,
    /// The stages in order.
    pub stages: Vec<String>,
    /// The user who started it, unless deleted.
    pub user: Option<UserSummary>,
    /// When it was created.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// When its first job started.
    pub started_at: Option<Time>,
    /// When it last finished.
    pub finished_at: Option<Time>,
    /// For how many seconds at least one of its jobs was running.
    pub duration: Option<i64>,
    /// The average code coverage of its jobs, in percent.
    pub coverage: Option<f64>,
}

/// Which pipelines of a project to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PipelineScope {
    /// All pipelines.
    #[default]
    All,
    /// Pending and running pipelines.
    Running,
    /// The newest pipeline of each existing branch.
    Branches,
    /// The newest pipeline of each existing tag.
    Tags,
}

/// Which pipelines of a project to list, by status and ref.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineFilter {
    /// Only pending and running pipelines.
    pub only_running: bool,
    /// Only pipelines with this status.
    pub status: Option<Status>,
    /// Only pipelines of this branch or tag.
    pub ref_name: Option<String>,
}

/// The summary of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSummary {
    /// The ID.
    pub id: PipelineId,
    /// The commit.
    pub sha: Oid,
    /// The short name of the branch or the tag.
    pub ref_name: String,
    /// Whether the ref is a tag.
    pub tag: bool,
    /// The status.
    pub status: Status,
}

/// The name and the position of the stage of external commit statuses, after all other stages.
pub const EXTERNAL_STAGE: (&str, i32) = ("external", 1_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("waiting"), None);
        for source in Source::ALL {
            assert_eq!(Source::parse(source.as_str()), Some(source));
        }
    }
}
