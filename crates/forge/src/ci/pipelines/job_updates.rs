//! Updates of jobs sent by runners, and how jobs end: coverage, allowed failures and automatic retries.

use ci::{AllowFailure, JobSpec, StatusEvent};
use model::{JobId, Project, Status};
use store::{job_runs::JobRun, jobs::JobChanges};

use super::state_machine::{self, LockedPipeline};
use crate::{
    Caller, Forge, ProjectAbility, ProjectRef, Result, Unvalidated, WriteTx,
    traces::{self, FinishedTrace, JobCredentials},
    wakeups::TraceChange,
};

/// An update sent by a runner.
#[derive(Clone, Debug)]
pub struct JobUpdate {
    /// The state of the job.
    pub state: ReportedState,
    /// The full trace, from runners that send all of it each time.
    pub trace: Option<String>,
}

/// The state of a job as reported by its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportedState {
    /// Running.
    Running,
    /// Succeeded.
    Success,
    /// Failed.
    Failed {
        /// The machine-readable reason.
        reason: String,
        /// The exit code of the script.
        exit_code: Option<i64>,
    },
}

/// The outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Applied; holds the new status.
    Applied(Status),
    /// Ignored, because the job is not running.
    NotRunning {
        /// The status of the job.
        status: Status,
        /// Whether the job was erased.
        erased: bool,
    },
}

/// Applies an update sent by a runner.
pub async fn update(
    forge: &Forge,
    job: JobId,
    credentials: JobCredentials,
    update: Unvalidated<JobUpdate>,
) -> Result<UpdateOutcome> {
    let presented = credentials.clone();
    let run = forge.read_inline(Caller::system(), move |tx| traces::find_authorized(tx, job, &presented)).await?;
    let JobUpdate { state, trace } = update.validate()?.clone();
    if run.status != Status::Running {
        return Ok(not_running(&run));
    }
    if let Some(full_trace) = trace {
        traces::append_missing(forge, job, full_trace).await?;
    }
    if state == ReportedState::Running {
        let keep_alive = move |tx: &mut WriteTx<'_>| {
            let (run, now) = (traces::find_authorized(tx.read(), job, &credentials)?, tx.now());
            if run.status != Status::Running {
                return Ok(not_running(&run));
            }
            store::job_runs::touch(tx.db(), job, now)?;
            Ok(UpdateOutcome::Applied(run.status))
        };
        return forge.write(Caller::system(), keep_alive).await;
    }
    let finished = traces::finish(forge, job).await?;
    let end = move |tx: &mut WriteTx<'_>| end(tx, job, &credentials, &state, &finished);
    let outcome = forge.write(Caller::system(), end).await?;
    traces::remove_withheld(forge, &run).await;
    traces::notify_ended(forge, job);
    Ok(outcome)
}

fn end(
    tx: &mut WriteTx<'_>,
    job: JobId,
    credentials: &JobCredentials,
    state: &ReportedState,
    finished: &FinishedTrace,
) -> Result<UpdateOutcome> {
    let run = traces::find_authorized(tx.read(), job, credentials)?;
    // Checked again under the lock, because the job may be canceled concurrently.
    store::pipelines::lock_row(tx.db(), run.pipeline)?;
    let run = traces::find_authorized(tx.read(), job, credentials)?;
    if run.status != Status::Running {
        return Ok(not_running(&run));
    }
    traces::release_withheld(tx, &run, finished)?;
    tx.notify_followers(job, TraceChange::Ended);
    if let Some(coverage) = finished.coverage {
        store::job_runs::set_coverage(tx.db(), job, coverage)?;
    }
    match state {
        ReportedState::Running => Ok(UpdateOutcome::Applied(Status::Running)),
        ReportedState::Success => succeed(tx, job).map(|_| UpdateOutcome::Applied(Status::Success)),
        ReportedState::Failed { reason, exit_code } => {
            fail(tx, job, reason, *exit_code).map(|_| UpdateOutcome::Applied(Status::Failed))
        }
    }
}

fn not_running(run: &JobRun) -> UpdateOutcome {
    UpdateOutcome::NotRunning { status: run.status, erased: run.erased }
}

/// Marks a running job as successful; returns whether it was running. The caller checks permissions.
pub(crate) fn succeed(tx: &mut WriteTx<'_>, job: JobId) -> Result<bool> {
    let Some((project, mut locked, at)) = lock_job(tx, job)? else { return Ok(false) };
    if locked.jobs[at].status != Status::Running {
        return Ok(false);
    }
    state_machine::apply_event(tx, &mut locked, &[at], StatusEvent::Succeed, &JobChanges::default())?;
    state_machine::advance(tx, &project, locked)?;
    Ok(true)
}

/// Marks a running or pending job as failed; returns whether it was running or pending. Retries it if its specification
/// says so. The caller checks permissions.
pub(crate) fn fail(tx: &mut WriteTx<'_>, job: JobId, reason: &str, exit_code: Option<i64>) -> Result<bool> {
    fail_job(tx, job, reason, exit_code, true)
}

/// Marks a pending job as failed, without a retry.
pub(crate) fn fail_pending(tx: &mut WriteTx<'_>, job: JobId, reason: &str) -> Result<bool> {
    fail_job(tx, job, reason, None, false)
}

fn fail_job(tx: &mut WriteTx<'_>, job: JobId, reason: &str, exit_code: Option<i64>, may_retry: bool) -> Result<bool> {
    let Some((project, mut locked, at)) = lock_job(tx, job)? else { return Ok(false) };
    match locked.jobs[at].status {
        Status::Pending => {}
        Status::Running if may_retry => {}
        _ => return Ok(false),
    }
    let attempts = store::job_runs::find(tx.db(), job)?.map_or(0, |run| run.attempt);
    let spec = store::job_runs::spec_of(tx.db(), job)?.and_then(|spec| JobSpec::from_json(&spec)).unwrap_or_default();
    let is_retried =
        may_retry && spec.retry.allows(usize::try_from(attempts).unwrap_or_default() + 1, reason, exit_code);
    // The failure of a retried job is ignored.
    let depends_on_exit_code = matches!(spec.allow_failure, AllowFailure::ExitCodes(_)) && !is_retried;
    let changes = JobChanges {
        failure_reason: Some(reason),
        allow_failure: depends_on_exit_code.then(|| spec.allow_failure.tolerates(exit_code)),
        user: None,
    };
    state_machine::apply_event(tx, &mut locked, &[at], StatusEvent::Drop, &changes)?;
    if is_retried {
        state_machine::retry_jobs(tx, &mut locked, &project, &[at], None, true)?;
        // Its requirements were met before, even if it is a manual job.
        state_machine::apply_event(tx, &mut locked, &[at], StatusEvent::Enqueue, &JobChanges::default())?;
    }
    state_machine::advance(tx, &project, locked)?;
    Ok(true)
}

/// Locks the pipeline of a job; returns `None` if the job does not exist or was replaced by a later one.
fn lock_job(tx: &mut WriteTx<'_>, job: JobId) -> Result<Option<(Project, LockedPipeline, usize)>> {
    let Some(parents) = store::jobs::parents_of(tx.db(), job)? else { return Ok(None) };
    let project = tx.read().project_as_system(&ProjectRef::Id(parents.project), ProjectAbility::ReadProject)?;
    let locked = state_machine::lock(tx, parents.pipeline)?;
    Ok(locked.position(job).map(|at| (project, locked, at)))
}
