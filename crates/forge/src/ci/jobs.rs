//! Jobs of a project: list, show, cancel, retry and play them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use ci::{StatusEvent, progress};
use model::{Commit, Job, JobId, Oid, Page, Project, Slice, Status, User, UserId, jobs::JobKind};
use store::jobs::JobChanges;

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pipelines::state_machine::{self, LockedPipeline},
    stuck_jobs::AvailableRunners,
    traces,
};

/// A job with related data.
#[derive(Clone, Debug)]
pub struct JobDetail {
    /// The job.
    pub job: Job,
    /// The commit, unless it is no longer reachable.
    pub commit: Option<Commit>,
    /// The user who started it, unless deleted.
    pub user: Option<User>,
    /// How long it ran, or has been running, in seconds.
    pub duration: Option<f64>,
    /// Why no runner will take it, if it is pending.
    pub pending_reason: Option<String>,
}

/// Returns a page of the jobs of a project with one of these statuses (any if empty), newest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    scope: &Unvalidated<Vec<Status>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<JobDetail>> {
    let project = tx.project(project, ProjectAbility::ReadJobs)?;
    let (scope, page, now) = (scope.validate()?, *page.validate()?, tx.now());
    let Slice { items, total, page } = store::job_lists::list(tx.db(), project.id, scope, page, now)?;
    Ok(Slice { items: details(tx, &project, items)?, total, page })
}

/// Returns a page of the jobs of a commit with one of these statuses (any if empty), newest first.
pub fn of_commit(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    revision: &str,
    scope: &Unvalidated<Vec<Status>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<JobDetail>> {
    let project = tx.project(project, ProjectAbility::ReadJobs)?;
    let (scope, page, now) = (scope.validate()?, *page.validate()?, tx.now());
    let missing = || Error::not_found("Commit");
    let repository = tx.repository(&project)?.ok_or_else(missing)?;
    let sha = repository.resolve(revision)?.ok_or_else(missing)?;
    let Slice { items, total, page } = store::job_lists::of_commit(tx.db(), project.id, sha, scope, page, now)?;
    Ok(Slice { items: details(tx, &project, items)?, total, page })
}

/// Returns a job.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<JobId>) -> Result<JobDetail> {
    let project = tx.project(project, ProjectAbility::ReadJobs)?;
    let job = find(tx, &project, *id.validate()?)?;
    detail(tx, &project, job)
}

/// Cancels a job; has no effect on a job that has ended.
pub async fn cancel(forge: &Forge, caller: Caller, project: ProjectRef, id: Unvalidated<JobId>) -> Result<JobDetail> {
    let canceled = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&canceled);
    let detail = change_job(forge, caller, project, id, move |tx, project, mut pipeline, at, _| {
        if let Some(at) = at {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = CanceledJobs::running_among(tx, &pipeline, &[at]);
            state_machine::apply_event(tx, &mut pipeline, &[at], StatusEvent::Cancel, &JobChanges::default())?;
            state_machine::advance(tx, project, pipeline)?;
        }
        Ok(None)
    })
    .await?;
    let canceled = canceled.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(canceled) = canceled {
        canceled.close_traces(forge).await;
    }
    Ok(detail)
}

/// Running jobs that are being canceled.
pub(crate) struct CanceledJobs {
    jobs: Vec<JobId>,
    canceled_by: String,
}

impl CanceledJobs {
    /// Returns the running jobs at these positions before they are canceled; `None` if there are none.
    pub(crate) fn running_among(tx: &WriteTx<'_>, pipeline: &LockedPipeline, positions: &[usize]) -> Option<Self> {
        let running =
            positions.iter().filter_map(|at| pipeline.jobs.get(*at)).filter(|one| one.status == Status::Running);
        let jobs: Vec<JobId> = running.filter(|one| one.kind == JobKind::Runner).map(|one| one.id).collect();
        let canceled_by = tx.actor().user().map_or_else(|| "the server".to_owned(), |user| user.username.clone());
        (!jobs.is_empty()).then_some(Self { jobs, canceled_by })
    }

    /// Appends to their traces who canceled them.
    pub(crate) async fn close_traces(self, forge: &Forge) {
        for job in self.jobs {
            traces::append_last_line(forge, job, &format!("ERROR: job canceled by {}", self.canceled_by)).await;
        }
    }
}

/// Retries a job that has ended; returns the new job of the same name that replaces it.
pub async fn retry(forge: &Forge, caller: Caller, project: ProjectRef, id: Unvalidated<JobId>) -> Result<JobDetail> {
    change_job(forge, caller, project, id, |tx, project, mut pipeline, at, user| {
        let retried = at.and_then(|at| Some((at, progress::retry_one(&pipeline.states(), at)?)));
        let (at, retried) = retried.ok_or_else(|| Error::forbidden("Build is not retryable"))?;
        state_machine::retry_jobs(tx, &mut pipeline, project, &retried.recreated, Some(user), false)?;
        // Jobs of later stages run for this user, too, because the previous user may have left.
        let changes = JobChanges { user: Some(user), ..JobChanges::default() };
        state_machine::apply_event(tx, &mut pipeline, &retried.reopened, StatusEvent::Process, &changes)?;
        state_machine::apply_event(tx, &mut pipeline, &retried.enqueued, StatusEvent::Enqueue, &JobChanges::default())?;
        let new_id = pipeline.jobs[at].id;
        state_machine::advance(tx, project, pipeline)?;
        Ok(Some(new_id))
    })
    .await
}

/// Starts a manual job.
pub async fn play(forge: &Forge, caller: Caller, project: ProjectRef, id: Unvalidated<JobId>) -> Result<JobDetail> {
    change_job(forge, caller, project, id, |tx, project, mut pipeline, at, user| {
        let played = at.and_then(|at| Some((at, progress::play(&pipeline.states(), at)?)));
        // The message of GitLab 8.14, which puts the reason where the name of a parameter belongs.
        let unplayable = || Error::Refused("400 (Bad request) \"Unplayable Build\" not given".into());
        let (at, reopened) = played.ok_or_else(unplayable)?;
        let changes = JobChanges { user: Some(user), ..JobChanges::default() };
        state_machine::apply_event(tx, &mut pipeline, &[at], StatusEvent::Enqueue, &changes)?;
        state_machine::apply_event(tx, &mut pipeline, &reopened, StatusEvent::Process, &changes)?;
        state_machine::advance(tx, project, pipeline)?;
        Ok(None)
    })
    .await
}

/// Changes a job while its pipeline is locked, and returns its details afterwards. `change` gets the position of the job
/// among the latest jobs, if it is one of them, and the ID of the user; it returns the ID of a job that replaces it.
async fn change_job(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    id: Unvalidated<JobId>,
    change: impl Fn(&mut WriteTx<'_>, &Project, LockedPipeline, Option<usize>, UserId) -> Result<Option<JobId>>
    + Send
    + 'static,
) -> Result<JobDetail> {
    let done = forge.write(caller.clone(), move |tx| {
        let project = tx.project(&project, ProjectAbility::RunPipelines)?;
        let user = tx.user_id()?;
        let job = find(tx.read(), &project, *id.validate()?)?;
        let pipeline = state_machine::lock(tx, job.pipeline.id)?;
        let at = pipeline.position(job.id);
        let replacement = change(tx, &project, pipeline, at, user)?;
        find(tx.read(), &project, replacement.unwrap_or(job.id))
    });
    let job = done.await?;
    // The commit is loaded separately, so that other writers do not wait for the repository.
    let load = move |tx: &mut ReadTx<'_>| {
        let project = tx.project(&ProjectRef::Id(job.project_id), ProjectAbility::ReadJobs)?;
        detail(tx, &project, job.clone())
    };
    forge.read(caller, load).await
}

pub(crate) fn find(tx: &mut ReadTx<'_>, project: &Project, id: JobId) -> Result<Job> {
    let now = tx.now();
    let found = store::job_lists::find(tx.db(), project.id, id, now)?;
    found.ok_or(Error::NotFound(None))
}

pub(crate) fn detail(tx: &mut ReadTx<'_>, project: &Project, job: Job) -> Result<JobDetail> {
    let mut all = details(tx, project, vec![job])?;
    all.pop().ok_or_else(|| Error::Internal("the details of a job are missing".into()))
}

/// Loads the data related to jobs: all users with one statement, and each commit once.
fn details(tx: &mut ReadTx<'_>, project: &Project, jobs: Vec<Job>) -> Result<Vec<JobDetail>> {
    let commits = reachable_commits(tx, project, jobs.iter().map(|job| job.pipeline.sha))?;
    let users: HashSet<UserId> = jobs.iter().filter_map(|job| Some(job.user.as_ref()?.id)).collect();
    let users = store::job_lists::users_of(tx.db(), &users.into_iter().collect::<Vec<_>>())?;
    let now = tx.now();
    let is_pending = |job: &Job| job.status == Status::Pending;
    let runners = if jobs.iter().any(is_pending) { Some(AvailableRunners::of(tx, project)?) } else { None };
    let detail = |job: Job| JobDetail {
        pending_reason: runners
            .as_ref()
            .filter(|_| is_pending(&job))
            .and_then(|runners| runners.stuck_reason(&job.tags)),
        commit: commits.get(&job.pipeline.sha).cloned(),
        user: job.user.as_ref().and_then(|user| users.get(&user.id).cloned()),
        duration: job.started_at.map(|start| job.finished_at.unwrap_or(now).duration_since(start).as_secs_f64()),
        job,
    };
    Ok(jobs.into_iter().map(detail).collect())
}

/// Returns those of the commits that are reachable; none while reachability is unknown.
pub(crate) fn reachable_commits(
    tx: &mut ReadTx<'_>,
    project: &Project,
    shas: impl IntoIterator<Item = Oid>,
) -> Result<HashMap<Oid, Commit>> {
    let mut commits = HashMap::new();
    let shas: HashSet<Oid> = shas.into_iter().collect();
    if shas.is_empty() {
        return Ok(commits);
    }
    let Some(repository) = tx.repository(project)? else { return Ok(commits) };
    let shas: Vec<Oid> = shas.into_iter().collect();
    let reachable = match repository.which_commits_are_reachable(&shas) {
        Err(git::Error::Busy | git::Error::Indexing) => return Ok(commits),
        reachable => reachable?,
    };
    for (sha, _) in shas.into_iter().zip(reachable).filter(|(_, reachable)| *reachable) {
        if let Some(commit) = repository.commit(sha)? {
            commits.insert(sha, commit);
        }
    }
    Ok(commits)
}
