//! Assigns pending jobs to runners.
//!
//! The search for a job only reads, so a runner that finds none causes no write. A job is assigned in a transaction of its
//! own, and its payload is loaded afterwards. If that fails the job is requeued; if even that fails,
//! [`crate::stale_jobs`] requeues it later because its runner sends no update.

mod payload;

use std::{sync::Arc, time::Duration};

use ci::status;
use model::{
    JobId, Project, ProjectId, Runner, RunnerId, Site, Status,
    projects::TokenSeed,
    runners::RunnerInfo,
    tokens::{Digest, Secret},
};
use store::{job_queue::JobQueue, pipelines::NewPipelineState};
use tokio::time::{Instant, timeout};

pub use payload::{JobPayload, JobVariable};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx,
    job_notifier::JobNotifier,
    pipelines::{job_updates, pipeline_events},
    runners, traces,
};

/// How often a waiting runner searches again if a notification of another node may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The maximum number of jobs considered in each queue.
const MAX_CANDIDATES: i64 = 100;
/// The maximum number of queues considered.
const MAX_QUEUES: usize = 5;
/// The maximum number of jobs that fail during one request because their users may no longer run them.
const MAX_REFUSED: usize = 100;
/// The last line of the trace and the failure reason of such a job.
const NOT_ALLOWED: &str = "ERROR: job failed: the user who started it is blocked or removed, or may not run pipelines in \
                           this project any more";
const NOT_ALLOWED_REASON: &str = "user_not_allowed";

/// A request of a runner for a job.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The token of the runner.
    pub token: Secret,
    /// The details that the runner reports about itself.
    pub info: RunnerInfo,
    /// The cursor of its last request, which found no job.
    pub last_update: Option<String>,
    /// The address under which the runner reaches the server.
    pub site: Site,
}

/// The response to a [`JobRequest`].
pub enum JobResponse {
    /// A job, assigned to this runner only.
    Job(Box<JobPayload>),
    /// There is no job; a request with the cursor waits until that may have changed.
    NoJob {
        /// The cursor for the next request.
        cursor: String,
    },
    /// The runner is paused.
    Paused {
        /// The cursor for the next request.
        cursor: String,
    },
    /// There were jobs, but other runners took them first.
    Conflict,
}

/// Assigns a job to a runner. If the runner knows that there is none, waits for one.
pub async fn request(forge: &Forge, request: JobRequest) -> Result<JobResponse> {
    let JobRequest { token, info, last_update, site } = request;
    let digest = token.digest();
    let runner = forge.read_inline(Caller::anonymous(), move |tx| runners::authenticate(tx, &digest)).await?;
    runners::record_contact(forge, &runner, info);
    let notifier = &forge.shared().job_notifier;
    let cursor = notifier.cursor();
    let Some(last_update) = last_update else { return find_and_assign(forge, notifier, digest, &site).await };
    if last_update == cursor {
        if let Some(response) = wait(forge, notifier, &cursor, digest, &site).await? {
            return Ok(response);
        }
    } else if !forge.shared().database.is_single_node() && !notifier.is_own(&last_update) {
        // A cursor of another node. The search comes first, so that no job is missed; then the runner waits, also if its
        // requests are spread over the nodes.
        let cursor = match find_and_assign(forge, notifier, digest, &site).await? {
            JobResponse::NoJob { cursor } => cursor,
            response => return Ok(response),
        };
        if let Some(response) = wait(forge, notifier, &cursor, digest, &site).await? {
            return Ok(response);
        }
    }
    find_and_assign(forge, notifier, digest, &site).await
}

/// Waits for a notification or until the timeout. If other nodes may add jobs, also searches periodically and returns the
/// job that it finds.
async fn wait(
    forge: &Forge,
    notifier: &Arc<JobNotifier>,
    cursor: &str,
    token: Digest,
    site: &Site,
) -> Result<Option<JobResponse>> {
    let deadline = Instant::now() + notifier.wait_timeout();
    let single_node = forge.shared().database.is_single_node();
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let interval = if single_node { remaining } else { remaining.min(POLL_INTERVAL) };
        let notified = timeout(interval, notifier.changed_since(cursor)).await.is_ok();
        if notified || interval == remaining {
            return Ok(None);
        }
        if let JobResponse::Job(job) = find_and_assign(forge, notifier, token, site).await? {
            return Ok(Some(JobResponse::Job(job)));
        }
    }
}

/// Ends the waiting of all runners, because the server shuts down.
pub fn stop_waiting(forge: &Forge) {
    forge.shared().job_notifier.close();
}

/// Sets how long runners wait for a job.
pub fn set_wait_timeout(forge: &Forge, timeout: Duration) {
    forge.shared().job_notifier.set_wait_timeout(timeout);
}

async fn find_and_assign(
    forge: &Forge,
    notifier: &Arc<JobNotifier>,
    token: Digest,
    site: &Site,
) -> Result<JobResponse> {
    let (mut attempts, mut refused) = (0, 0);
    while attempts < 2 && refused < MAX_REFUSED {
        // Read before the search, so that a job added meanwhile changes the cursor and the runner does not wait.
        let cursor = notifier.cursor();
        let (runner, jobs) = forge.read(Caller::anonymous(), move |tx| find_candidates(tx, &token)).await?;
        if !runner.active {
            // The jobs that this request claimed before are still available to others.
            if attempts + refused > 0 {
                notifier.notify();
            }
            return Ok(JobResponse::Paused { cursor });
        }
        // Jobs claimed by others count as taken; a dropped claim notifies again.
        let Some(claim) = notifier.claim(&jobs) else { return Ok(JobResponse::NoJob { cursor }) };
        let (claimed, id) = (claim.jobs().to_vec(), runner.id);
        let (job, outcome) = forge.write(Caller::system(), move |tx| assign_first(tx, id, &claimed)).await?;
        claim.complete();
        match outcome {
            AssignOutcome::Assigned(token) => return load_payload(forge, job, runner, token, site.clone()).await,
            AssignOutcome::Refused => {
                traces::append_last_line(forge, job, NOT_ALLOWED).await;
                refused += 1;
            }
            AssignOutcome::Unavailable => attempts += 1,
        }
    }
    Ok(JobResponse::Conflict)
}

/// Loads the payload of an assigned job. On failure, the job is requeued.
async fn load_payload(forge: &Forge, job: JobId, runner: Runner, token: Secret, site: Site) -> Result<JobResponse> {
    let load = move |tx: &mut ReadTx<'_>| payload::load(tx, job, &runner, &token, &site);
    match forge.read(Caller::anonymous(), load).await {
        Ok(payload) => Ok(JobResponse::Job(Box::new(payload))),
        Err(error) => {
            forge.write(Caller::system(), move |tx| requeue_unacknowledged(tx, job).map(drop)).await?;
            Err(error)
        }
    }
}

/// Returns the runner with a token, and the jobs that it could take with their projects, best first.
fn find_candidates(tx: &mut ReadTx<'_>, token: &Digest) -> Result<(Runner, Vec<(JobId, ProjectId)>)> {
    let runner = runners::authenticate(tx, token)?;
    if !runner.active {
        return Ok((runner, Vec::new()));
    }
    let mut queues = store::job_queue::queues_for_runner(tx.db(), &runner.summary())?;
    queues.retain(|queue| runner.accepts_tags(&queue.tags));
    if runner.is_shared {
        sort_by_load(tx, &mut queues)?;
    }
    let mut jobs = Vec::new();
    for queue in queues.iter().take(MAX_QUEUES) {
        let pending = store::job_queue::pending_in(tx.db(), queue, MAX_CANDIDATES)?;
        jobs.extend(pending.into_iter().map(|job| (job, queue.project)));
    }
    if !runner.is_shared {
        jobs.sort_unstable();
    }
    Ok((runner, jobs))
}

/// Sorts queues by the number of jobs that shared runners run for the project, so that large projects do not starve others.
fn sort_by_load(tx: &mut ReadTx<'_>, queues: &mut [JobQueue]) -> Result<()> {
    if queues.len() < 2 {
        return Ok(());
    }
    let projects: Vec<ProjectId> = queues.iter().map(|queue| queue.project).collect();
    let running = store::runners::count_running_on_shared(tx.db(), &projects)?;
    let notifier = &tx.shared().job_notifier;
    queues.sort_by_cached_key(|queue| {
        let found = running.iter().find(|(project, _)| *project == queue.project);
        let running = found.map_or(0, |(_, count)| usize::try_from(*count).unwrap_or_default());
        (running + notifier.claimed_in(queue.project), queue.oldest_job)
    });
    Ok(())
}

/// The outcome of assigning a job to a runner.
pub enum AssignOutcome {
    /// The job is assigned; holds its token.
    Assigned(Secret),
    /// The job is no longer pending, or the project has no CI any more.
    Unavailable,
    /// The job failed because its user may no longer run it. The caller appends that to its trace.
    Refused,
}

/// Assigns the first job that is still available. Stops at one that is refused.
fn assign_first(tx: &mut WriteTx<'_>, runner: RunnerId, jobs: &[JobId]) -> Result<(JobId, AssignOutcome)> {
    // Locked, so that the runner is not paused between this check and the assignment.
    let Some(runner) = store::runners::lock_row(tx.db(), runner)?.filter(|runner| runner.active) else {
        return Ok((JobId::new(0), AssignOutcome::Unavailable));
    };
    for job in jobs {
        if is_eligible(tx, &runner, *job)? {
            match assign(tx, *job, runner.id)? {
                AssignOutcome::Unavailable => {}
                outcome => return Ok((*job, outcome)),
            }
        }
    }
    Ok((JobId::new(0), AssignOutcome::Unavailable))
}

/// Checks again, in the transaction of the assignment, whether a runner may take a job.
fn is_eligible(tx: &mut WriteTx<'_>, runner: &Runner, job: JobId) -> Result<bool> {
    let Some(parents) = store::jobs::parents_of(tx.db(), job)? else { return Ok(false) };
    if !runner.is_shared {
        return Ok(store::runners::is_enabled_for(tx.db(), runner.id, parents.project)?);
    }
    Ok(store::runners::uses_shared(tx.db(), parents.project)?)
}

/// Assigns a pending job to a runner, or fails it if its user may no longer run it. The caller checks that the runner may
/// take the job.
pub fn assign(tx: &mut WriteTx<'_>, job: JobId, runner: RunnerId) -> Result<AssignOutcome> {
    let now = tx.now();
    let Some(parents) = store::jobs::parents_of(tx.db(), job)? else { return Ok(AssignOutcome::Unavailable) };
    // Archived projects run no jobs.
    let project = match tx.read().project_as_system(&ProjectRef::Id(parents.project), ProjectAbility::RunPipelines) {
        Err(Error::NotFound(_) | Error::Forbidden(_)) => return Ok(AssignOutcome::Unavailable),
        project => project?,
    };
    // Every transaction locks the pipeline first, which prevents deadlocks.
    if !store::pipelines::lock_row(tx.db(), parents.pipeline)? {
        return Ok(AssignOutcome::Unavailable);
    }
    if !may_start(tx, job, &project)? {
        let failed = job_updates::fail_pending(tx, job, NOT_ALLOWED_REASON)?;
        return Ok(if failed { AssignOutcome::Refused } else { AssignOutcome::Unavailable });
    }
    if !store::jobs::assign(tx.db(), job, runner, now)? {
        return Ok(AssignOutcome::Unavailable);
    }
    let was_assigned = store::job_queue::was_assigned(tx.db(), job)?;
    let (seed, token) = new_job_token(tx);
    let secrets = traces::encrypt_secrets(tx.read(), project.id, parents.pipeline)?;
    store::job_runs::start(tx.db(), job, (&seed, &token.digest()), secrets.as_deref(), now)?;
    // The start of one job does not affect the others, so they are not loaded.
    let Some(mut pipeline) = store::pipelines::by_id_without_coverage(tx.db(), parents.pipeline)? else {
        return Ok(AssignOutcome::Unavailable);
    };
    let after = status::next_pipeline_status(pipeline.status, Status::Running);
    let changes = after != pipeline.status;
    // A pipeline that was canceled before it started and then retried already has the status `running`.
    if changes || pipeline.started_at.is_none() {
        let started_at = pipeline.started_at.is_none().then_some(now);
        let state = NewPipelineState { status: after, started_at, finished_at: None, duration: None, now };
        store::pipelines::set_state(tx.db(), pipeline.id, &state)?;
        (pipeline.status, pipeline.started_at) = (after, pipeline.started_at.or(started_at));
    }
    if !was_assigned {
        pipeline_events::record_job_events(tx, &project, &pipeline, &[job])?;
    }
    if changes {
        pipeline_events::record_pipeline_event(tx, &project, &pipeline)?;
    }
    Ok(AssignOutcome::Assigned(token))
}

/// Returns whether a job may start: its user may still run pipelines in the project, or a trigger started it. Checked again
/// at the start because the job receives the secret variables of the project.
fn may_start(tx: &mut WriteTx<'_>, job: JobId, project: &Project) -> Result<bool> {
    let Some(initiator) = store::job_queue::initiator_of(tx.db(), job)? else { return Ok(false) };
    match initiator.user {
        Some(user) => tx.read().user_can(user, project.id, ProjectAbility::RunPipelines),
        None => Ok(initiator.triggered),
    }
}

/// Requeues a job if its runner has sent no update; returns whether it was requeued. Its token is replaced. Webhooks are
/// not notified, because the job never ran.
pub(crate) fn requeue_unacknowledged(tx: &mut WriteTx<'_>, job: JobId) -> Result<bool> {
    requeue(tx, job, true)
}

/// Requeues all jobs of a runner that was terminated.
pub(crate) fn requeue_all_of_runner(tx: &mut WriteTx<'_>, runner: RunnerId) -> Result<usize> {
    let mut requeued = 0;
    for job in store::job_queue::running_on(tx.db(), runner)? {
        requeued += usize::from(requeue(tx, job, false)?);
    }
    Ok(requeued)
}

fn requeue(tx: &mut WriteTx<'_>, job: JobId, only_unacknowledged: bool) -> Result<bool> {
    let Some(parents) = store::jobs::parents_of(tx.db(), job)? else { return Ok(false) };
    let (seed, token) = new_job_token(tx);
    let locked = store::pipelines::lock_row(tx.db(), parents.pipeline)?;
    let requeued = locked && store::job_queue::requeue(tx.db(), job, only_unacknowledged, (&seed, &token.digest()))?;
    if requeued {
        tx.notify_runners();
    }
    Ok(requeued)
}

pub(crate) fn new_job_token(tx: &WriteTx<'_>) -> (TokenSeed, Secret) {
    let mut bytes = vec![0; 16];
    tx.shared().secrets.fill(&mut bytes);
    let seed = TokenSeed(bytes);
    let token = tx.shared().instance_key.job_token(&seed);
    (seed, token)
}
