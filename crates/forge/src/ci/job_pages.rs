//! What the pages of jobs show. Visitors who are not signed in can see the jobs of public projects with public builds.

use model::{Job, JobId, Status, jobs::JobKind};

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result,
    artifacts::{self, Artifact},
    browse::InProject,
    jobs::{self, JobDetail},
    traces::{self, Trace},
};

/// The maximum number of attempts that the page of a job lists.
const MAX_ATTEMPTS: i64 = 20;

/// A job with its trace.
pub struct JobPage {
    /// The job with related data.
    pub detail: JobDetail,
    /// The trace.
    pub trace: Trace,
    /// The newest jobs of the same name in the pipeline, this one included.
    pub attempts: Vec<(JobId, Status)>,
    /// Whether the visitor may download the artifacts, and there are some.
    pub can_read_artifacts: bool,
    /// What the visitor may do with the job.
    pub actions: JobActions,
}

/// What a user may do with a job in its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobActions {
    /// Retry it.
    pub retry: bool,
    /// Cancel it.
    pub cancel: bool,
    /// Start it, because it is a manual job.
    pub play: bool,
    /// Erase its trace and its artifacts.
    pub erase: bool,
    /// Keep its artifacts from expiring.
    pub keep: bool,
}

/// Returns what a user may do with a job; `can_run` says whether the user may run pipelines.
pub(crate) fn actions(job: &Job, can_run: bool, has_trace: bool) -> JobActions {
    if !can_run || job.kind != JobKind::Runner {
        return JobActions::default();
    }
    let is_latest = !job.retried;
    let has_run = matches!(job.status, Status::Success | Status::Failed | Status::Canceled);
    JobActions {
        retry: is_latest && has_run,
        cancel: is_latest && job.status.is_cancelable(),
        play: is_latest && is_playable(job),
        erase: has_run && (has_trace || job.artifacts.is_some()),
        keep: job.artifacts.as_ref().is_some_and(|artifacts| artifacts.expires_at.is_some()),
    }
}

/// Returns whether a job waits for a user to start it.
pub fn is_playable(job: &Job) -> bool {
    job.when == "manual" && matches!(job.status, Status::Skipped | Status::Manual)
}

/// Returns a job with its trace.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: JobId) -> Result<InProject<JobPage>> {
    let project = tx.project(project, ProjectAbility::ViewJobs)?;
    let job = jobs::find(tx, &project, id)?;
    let trace = traces::open_of_job(tx, &project, id)?;
    let attempts = store::job_lists::attempts(tx.db(), job.pipeline.id, &job.name, MAX_ATTEMPTS)?;
    let can_read_artifacts = match artifacts::open_of_job(tx, &project, id) {
        Ok(_) => true,
        Err(Error::NotFound(_) | Error::Forbidden(_)) => false,
        Err(error) => return Err(error),
    };
    let actions = actions(&job, tx.can(&project, ProjectAbility::RunPipelines), trace.size > 0);
    let detail = jobs::detail(tx, &project, job)?;
    Ok(InProject { project, value: JobPage { detail, trace, attempts, can_read_artifacts, actions } })
}

/// Opens the trace of a job; also returns the status of the job.
pub fn open_trace(tx: &mut ReadTx<'_>, project: &ProjectRef, id: JobId) -> Result<(Trace, Status)> {
    let project = tx.project(project, ProjectAbility::ViewJobs)?;
    let job = jobs::find(tx, &project, id)?;
    Ok((traces::open_of_job(tx, &project, id)?, job.status))
}

/// Opens the artifacts of a job; also returns the job.
pub fn open_artifacts(tx: &mut ReadTx<'_>, project: &ProjectRef, id: JobId) -> Result<InProject<(Job, Artifact)>> {
    let project = tx.project(project, ProjectAbility::ViewJobs)?;
    let job = jobs::find(tx, &project, id)?;
    let artifact = artifacts::open_of_job(tx, &project, id)?;
    Ok(InProject { project, value: (job, artifact) })
}
