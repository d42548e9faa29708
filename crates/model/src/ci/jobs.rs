//! Jobs of pipelines.

use crate::{
    JobId, ProjectId, Time,
    pipelines::{PipelineSummary, Status},
    runners::RunnerSummary,
    users::UserSummary,
};

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// A job that a runner runs.
    Runner,
    /// A commit status reported by an external service.
    External,
}

/// A job of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The ID.
    pub id: JobId,
    /// The project ID.
    pub project_id: ProjectId,
    /// The pipeline that it belongs to.
    pub pipeline: PipelineSummary,
    /// The kind of job.
    pub kind: JobKind,
    /// The name.
    pub name: String,
    /// The name of its stage.
    pub stage: String,
    /// The position of its stage.
    pub stage_index: i32,
    /// The status.
    pub status: Status,
    /// When it starts: `on_success`, `on_failure`, `always` or `manual`.
    pub when: String,
    /// Whether the pipeline continues if the job fails.
    pub allow_failure: bool,
    /// Whether a later job of the same name replaces it.
    pub retried: bool,
    /// The user who started it, unless deleted.
    pub user: Option<UserSummary>,
    /// The runner that it is or was assigned to.
    pub runner: Option<RunnerSummary>,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// The code coverage in percent.
    pub coverage: Option<f64>,
    /// The machine-readable reason of a failure.
    pub failure_reason: Option<String>,
    /// The archive of its artifacts, unless expired.
    pub artifacts: Option<ArtifactSummary>,
    /// When it was created.
    pub created_at: Time,
    /// When it became pending.
    pub queued_at: Option<Time>,
    /// When it started.
    pub started_at: Option<Time>,
    /// When it finished.
    pub finished_at: Option<Time>,
    /// When its trace and its artifacts were erased.
    pub erased_at: Option<Time>,
}

/// The summary of a file uploaded by a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactSummary {
    /// The file name.
    pub name: String,
    /// The size in bytes.
    pub size: i64,
    /// When it expires; `None` means never.
    pub expires_at: Option<Time>,
}
