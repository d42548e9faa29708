//! Background tasks: enqueued in the transaction of the change that causes them, run at least once.

use std::time::Duration;

use jiff::SignedDuration;
use model::{JobId, ProjectId, TaskId, Time, Upload, UserId, tasks::TaskRecord};
use store::repositories::RepositoryRecord;
use tracing::{error, info, warn};

use crate::{
    Ability, Caller, Error, Forge, ReadTx, Result, WriteTx,
    artifacts::{self, Artifact},
    avatars, blocking, branches, deliveries, imports, maintenance, nodes, stale_jobs, stored_files, system_events,
    traces, web_sessions,
};

/// A background task. A task may run more than once, so all of them are idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Deletes tokens that expired or were revoked a while ago, expired sessions, and nodes that are silent for a day.
    SweepTokens,
    /// Deletes expired memberships and shares.
    SweepMemberships,
    /// Removes abandoned uploads and unused avatars.
    SweepUploads,
    /// Removes expired and abandoned artifacts, and unused parts of traces.
    SweepArtifacts,
    /// Removes the files and rows of a deleted project.
    RemoveProject(ProjectId),
    /// Repacks the repository of a project.
    Housekeeping(ProjectId),
    /// Imports the repository of a project from a URL.
    Import(ProjectId),
    /// Deletes the merged branches of a project, with the rights of a user.
    DeleteMergedBranches {
        /// The id of the project.
        project: ProjectId,
        /// The id of the user.
        user: UserId,
    },
    /// Removes packs that no repository uses, and empties the trash of removed repositories.
    SweepPacks,
    /// Requeues or fails CI jobs that are stale.
    SweepStaleJobs,
    /// Moves the trace of a CI job from the database to the file store.
    ArchiveTrace(JobId),
    /// Gives up webhook deliveries that are too old, and deletes old delivery logs.
    SweepDeliveries,
}

/// How long a worker may run a task before another one may take it over.
const LEASE: SignedDuration = SignedDuration::from_mins(10);
/// The same for a sweep of stale jobs: after a kill, the jobs that lost their runner wait for it.
const STALE_JOBS_LEASE: SignedDuration = SignedDuration::from_mins(2);
/// How often a running task renews its lease while that lasts.
const RENEWALS_PER_LEASE: u32 = 3;
/// How often and for how long recording the outcome of a task is tried again while the database is unavailable.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RECORD_ATTEMPTS: u32 = 60;
/// The delay of housekeeping after a push, so that many pushes in a row cause one run.
pub(crate) const HOUSEKEEPING_DELAY: SignedDuration = SignedDuration::from_secs(30);
/// The delay of an import while too many others are running.
const IMPORT_DELAY: SignedDuration = SignedDuration::from_secs(15);
const SWEEP_PACKS_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// The maximum number of attempts before a task fails permanently.
const MAX_ATTEMPTS: i32 = 10;
const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(24);
const SWEEP_DELIVERIES_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// The delay of the removal of a project while an upload is in progress.
const UPLOAD_DELAY: SignedDuration = SignedDuration::from_mins(5);
/// The delay of the next attempt to archive a trace that was changed meanwhile.
const ARCHIVE_DELAY: SignedDuration = SignedDuration::from_secs(15);
/// The number of rows of a kind that are deleted in one transaction.
const ROW_BATCH: i64 = 1000;
/// The number of memberships or deploy keys that are deleted in one transaction, each with an event.
const EVENT_BATCH: i64 = 100;
/// How long an expired or revoked token stays visible to its owner.
const TOKEN_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

impl Task {
    /// The kind of [`Self::RemoveProject`].
    pub(crate) const REMOVE_PROJECT: &'static str = "remove_project";

    fn kind(&self) -> &'static str {
        match self {
            Self::SweepTokens => "sweep_tokens",
            Self::SweepUploads => "sweep_uploads",
            Self::SweepArtifacts => "sweep_artifacts",
            Self::SweepMemberships => "sweep_memberships",
            Self::RemoveProject(_) => Self::REMOVE_PROJECT,
            Self::Housekeeping(_) => "keep_house",
            Self::Import(_) => "import",
            Self::DeleteMergedBranches { .. } => "delete_merged_branches",
            Self::SweepPacks => "sweep_packs",
            Self::SweepDeliveries => "sweep_deliveries",
            Self::SweepStaleJobs => "sweep_builds",
            Self::ArchiveTrace(_) => "archive_trace",
        }
    }

    /// Returns the id of the project that the task concerns.
    fn project(&self) -> Option<ProjectId> {
        match self {
            Self::RemoveProject(id) | Self::Housekeeping(id) | Self::Import(id) => Some(*id),
            Self::DeleteMergedBranches { project, .. } => Some(*project),
            _ => None,
        }
    }

    fn payload(&self) -> String {
        match self {
            Self::SweepTokens
            | Self::SweepMemberships
            | Self::SweepUploads
            | Self::SweepArtifacts
            | Self::SweepPacks
            | Self::SweepDeliveries
            | Self::SweepStaleJobs => String::new(),
            Self::RemoveProject(id) | Self::Housekeeping(id) | Self::Import(id) => id.to_string(),
            Self::DeleteMergedBranches { project, user } => format!("{project} {user}"),
            Self::ArchiveTrace(job) => job.to_string(),
        }
    }

    /// Returns the singleton name of a task of which only one may be pending.
    fn singleton(&self) -> Option<String> {
        match self {
            Self::SweepTokens
            | Self::SweepMemberships
            | Self::SweepUploads
            | Self::SweepArtifacts
            | Self::SweepPacks
            | Self::SweepDeliveries
            | Self::SweepStaleJobs => Some(self.kind().to_owned()),
            Self::Housekeeping(id) | Self::Import(id) => Some(format!("{} {id}", self.kind())),
            Self::DeleteMergedBranches { .. } | Self::ArchiveTrace(_) => {
                Some(format!("{} {}", self.kind(), self.payload()))
            }
            Self::RemoveProject(_) => None,
        }
    }

    fn decode(record: &TaskRecord) -> Option<Self> {
        let id = record.payload.parse();
        match record.kind.as_str() {
            "sweep_tokens" => Some(Self::SweepTokens),
            "sweep_uploads" => Some(Self::SweepUploads),
            "sweep_artifacts" => Some(Self::SweepArtifacts),
            "sweep_memberships" => Some(Self::SweepMemberships),
            Self::REMOVE_PROJECT => id.ok().map(Self::RemoveProject),
            "keep_house" => id.ok().map(Self::Housekeeping),
            "import" => id.ok().map(Self::Import),
            "delete_merged_branches" => {
                let (project, user) = record.payload.split_once(' ')?;
                Some(Self::DeleteMergedBranches { project: project.parse().ok()?, user: user.parse().ok()? })
            }
            "sweep_packs" => Some(Self::SweepPacks),
            "sweep_deliveries" => Some(Self::SweepDeliveries),
            "sweep_builds" => Some(Self::SweepStaleJobs),
            "archive_trace" => record.payload.parse().ok().map(Self::ArchiveTrace),
            _ => None,
        }
    }
}

/// Enqueues a task, in the transaction of the change that causes it.
pub fn enqueue(tx: &mut WriteTx<'_>, task: &Task, run_at: Time) -> Result<()> {
    let now = tx.now();
    let singleton = task.singleton();
    Ok(store::tasks::insert(tx.db(), task.kind(), &task.payload(), singleton.as_deref(), run_at, now)?)
}

/// Enqueues a singleton task to be run now, even if it is already pending for later.
pub(crate) fn enqueue_now(tx: &mut WriteTx<'_>, task: &Task) -> Result<()> {
    let now = tx.now();
    enqueue(tx, task, now)?;
    tx.notify_task_worker();
    match task.singleton() {
        Some(singleton) => Ok(store::tasks::expedite(tx.db(), &singleton, now)?),
        None => Ok(()),
    }
}

/// Deletes a pending singleton task whose work is already done.
pub(crate) fn cancel(tx: &mut WriteTx<'_>, task: &Task) -> Result<()> {
    match task.singleton() {
        Some(singleton) => Ok(store::tasks::delete_singleton(tx.db(), &singleton)?),
        None => Ok(()),
    }
}

/// Waits until a transaction has added a task that is to be run now.
pub async fn wait_for_wakeup(forge: &Forge) {
    forge.shared().task_notify.notified().await;
}

/// Ends all leases at startup of a single-node server: the workers that held them are gone.
pub async fn release_leases_at_start(forge: &Forge) -> Result<()> {
    if !forge.shared().database.is_single_node() {
        return Ok(());
    }
    forge.write(Caller::system(), |tx| Ok(store::tasks::release_all(tx.db())?)).await
}

/// Enqueues the recurring tasks, unless they are already pending.
pub async fn enqueue_recurring(forge: &Forge) -> Result<()> {
    forge
        .write(Caller::system(), |tx| {
            let now = tx.now();
            enqueue(tx, &Task::SweepTokens, now)?;
            enqueue(tx, &Task::SweepMemberships, now)?;
            enqueue(tx, &Task::SweepUploads, now)?;
            enqueue(tx, &Task::SweepArtifacts, now)?;
            enqueue(tx, &Task::SweepDeliveries, now)?;
            enqueue(tx, &Task::SweepStaleJobs, now)?;
            enqueue(tx, &Task::SweepPacks, now + SWEEP_PACKS_EVERY)
        })
        .await
}

/// Runs the task that has been due for longest; returns `false` if none is due.
pub async fn run_next(forge: &Forge) -> Result<bool> {
    match claim(forge).await? {
        Some(record) => run_claimed(forge, record).await.map(|()| true),
        None => Ok(false),
    }
}

/// Claims the task that has been due for longest; returns `None` if none is due.
pub async fn claim(forge: &Forge) -> Result<Option<TaskRecord>> {
    if !forge.read(Caller::system(), is_due).await? {
        return Ok(None);
    }
    forge
        .write(Caller::system(), |tx| {
            let now = tx.now();
            let record = store::tasks::claim(tx.db(), now, now + LEASE)?;
            if let Some(record) = &record
                && lease_of(record) != LEASE
            {
                store::tasks::renew(tx.db(), record.id, now + lease_of(record))?;
            }
            Ok(record)
        })
        .await
}

/// Runs a claimed task and records its outcome.
pub async fn run_claimed(forge: &Forge, record: TaskRecord) -> Result<()> {
    let (id, kind, attempts) = (record.id, record.kind.clone(), record.attempts);
    let project = Task::decode(&record).and_then(|task| task.project());
    match run_with_lease(forge, record).await {
        Ok(()) => {
            info!(task.id = id.get(), task.kind = kind, project.id = project.map(ProjectId::get), "task done");
            metrics::counter!("gable_tasks_total", "kind" => kind, "outcome" => "done").increment(1);
        }
        Err(failure) => {
            let text = failure.to_string();
            if matches!(failure, Error::DiskFull(_)) {
                forge.record_disk_full();
            }
            // Not the fault of the task: it is retried until there is space, or the database is back.
            let is_outage = matches!(failure, Error::DiskFull(_) | Error::Unavailable(_));
            let dead = attempts >= MAX_ATTEMPTS && !is_outage;
            let outcome = if dead { "dead" } else { "failed" };
            if dead {
                error!(
                    task.id = id.get(),
                    task.kind = kind,
                    project.id = project.map(ProjectId::get),
                    error = text,
                    "task failed permanently after {attempts} attempts; `gable admin task retry {id}` retries it"
                );
            } else {
                warn!(
                    task.id = id.get(),
                    task.kind = kind,
                    project.id = project.map(ProjectId::get),
                    attempts,
                    error = text,
                    "task failed; it will be retried"
                );
            }
            metrics::counter!("gable_tasks_total", "kind" => kind, "outcome" => outcome).increment(1);
            let record = move |tx: &mut WriteTx<'_>| {
                let now = tx.now();
                if dead {
                    return Ok(store::tasks::mark_dead(tx.db(), id, &text, now)?);
                }
                if is_outage {
                    store::tasks::refund_attempt(tx.db(), id)?;
                }
                Ok(store::tasks::fail(tx.db(), id, &text, now + retry_delay(attempts))?)
            };
            let mut recorded = forge.write(Caller::system(), record.clone()).await;
            // During an outage of the database; otherwise the task would wait until its lease ends.
            for _ in 0..MAX_RECORD_ATTEMPTS {
                if !matches!(recorded, Err(Error::Unavailable(_))) {
                    break;
                }
                tokio::time::sleep(RECORD_INTERVAL).await;
                recorded = forge.write(Caller::system(), record.clone()).await;
            }
            recorded?;
        }
    }
    Ok(())
}

/// Returns how long a worker may run a task until it has to renew the lease.
fn lease_of(record: &TaskRecord) -> SignedDuration {
    match Task::decode(record) {
        Some(Task::SweepStaleJobs) => STALE_JOBS_LEASE,
        _ => LEASE,
    }
}

/// Runs a task and renews its lease meanwhile.
async fn run_with_lease(forge: &Forge, record: TaskRecord) -> Result<()> {
    let (id, lease) = (record.id, lease_of(&record));
    let interval = lease.unsigned_abs() / RENEWALS_PER_LEASE;
    let mut running = std::pin::pin!(run(forge, record));
    loop {
        if let Ok(result) = tokio::time::timeout(interval, &mut running).await {
            return result;
        }
        let renew = move |tx: &mut WriteTx<'_>| {
            let until = tx.now() + lease;
            Ok(store::tasks::renew(tx.db(), id, until)?)
        };
        forge.write(Caller::system(), renew).await?;
    }
}

/// Returns whether a task is due; checked before claiming, because an idle server should not write.
fn is_due(tx: &mut ReadTx<'_>) -> Result<bool> {
    let now = tx.now();
    Ok(store::tasks::is_due(tx.db(), now)?)
}

/// Returns the delay after the n-th failure: 2 s, 4 s, 8 s … at most an hour.
fn retry_delay(attempts: i32) -> SignedDuration {
    let exponent = u32::try_from(attempts.clamp(1, 12)).unwrap_or(1);
    SignedDuration::from_secs(2_i64.pow(exponent)).min(SignedDuration::from_hours(1))
}

/// Runs a task. Work that only changes the database is done in the transaction that deletes the task.
async fn run(forge: &Forge, record: TaskRecord) -> Result<()> {
    // Attempts are counted before they run, so that a task that crashes its worker fails permanently, too.
    if record.attempts > MAX_ATTEMPTS {
        return Err(Error::Internal("every worker that ran it crashed".into()));
    }
    let task = Task::decode(&record).ok_or_else(|| Error::internal("unknown kind of task", record.kind.as_str()))?;
    let id = record.id;
    match task {
        Task::SweepTokens => forge.write(Caller::system(), move |tx| sweep_tokens(tx, id)).await,
        Task::SweepMemberships => sweep_memberships(forge, id).await,
        Task::SweepUploads => {
            stored_files::sweep::<Upload>(forge).await?;
            avatars::sweep(forge).await?;
            forge.write(Caller::system(), move |tx| reschedule(tx, id, stored_files::SWEEP_EVERY)).await
        }
        Task::SweepArtifacts => {
            artifacts::sweep(forge).await?;
            traces::sweep(forge).await?;
            forge.write(Caller::system(), move |tx| reschedule(tx, id, stored_files::SWEEP_EVERY)).await
        }
        Task::RemoveProject(project) => remove_project(forge, project, id).await,
        Task::Housekeeping(project) => run_housekeeping(forge, project, id).await,
        Task::Import(project) => {
            if imports::run(forge, project).await? {
                return Ok(());
            }
            forge.write(Caller::system(), move |tx| reschedule(tx, id, IMPORT_DELAY)).await
        }
        Task::DeleteMergedBranches { project, user } => delete_merged_branches(forge, project, user, id).await,
        Task::SweepPacks => {
            empty_trash(forge).await?;
            maintenance::sweep_packs(forge).await?;
            forge.write(Caller::system(), move |tx| reschedule(tx, id, SWEEP_PACKS_EVERY)).await
        }
        Task::SweepDeliveries => {
            deliveries::sweep(forge).await?;
            forge.write(Caller::system(), move |tx| reschedule(tx, id, SWEEP_DELIVERIES_EVERY)).await
        }
        Task::SweepStaleJobs => {
            stale_jobs::sweep(forge).await?;
            let interval = stale_jobs::sweep_interval(forge);
            forge.write(Caller::system(), move |tx| reschedule(tx, id, interval)).await
        }
        Task::ArchiveTrace(job) => {
            traces::archive(forge, job).await?;
            let finish = move |tx: &mut WriteTx<'_>| {
                // A transaction could not enqueue another task meanwhile.
                if traces::needs_archiving(tx, job)? {
                    return reschedule(tx, id, ARCHIVE_DELAY);
                }
                Ok(store::tasks::delete(tx.db(), id)?)
            };
            forge.write(Caller::system(), finish).await
        }
    }
}

/// Runs maintenance in one repository; pushes may continue meanwhile, and enqueue it again.
async fn run_housekeeping(forge: &Forge, project: ProjectId, task: TaskId) -> Result<()> {
    let maintained = maintenance::run(forge, project).await?;
    forge
        .write(Caller::system(), move |tx| {
            let found = store::repositories::find(tx.db(), project)?;
            let is_unfinished = |found: &RepositoryRecord| {
                // A push meanwhile could not enqueue another task.
                maintained.is_some_and(|done| !done.is_indexed || done.generation < found.generation)
            };
            match found.filter(is_unfinished) {
                Some(_) => reschedule(tx, task, HOUSEKEEPING_DELAY),
                None => Ok(store::tasks::delete(tx.db(), task)?),
            }
        })
        .await
}

/// Deletes merged branches on behalf of a user; does nothing if the user has lost the right to do so.
async fn delete_merged_branches(forge: &Forge, project: ProjectId, user: UserId, task: TaskId) -> Result<()> {
    match branches::delete_merged_now(forge, Caller::on_behalf_of(user), project).await {
        Ok(()) | Err(Error::Unauthenticated | Error::Forbidden(_) | Error::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    forge.write(Caller::system(), move |tx| Ok(store::tasks::delete(tx.db(), task)?)).await
}

/// Removes the repository of a deleted project from the disk.
async fn remove_repository(forge: &Forge, project: ProjectId) -> Result<()> {
    let _lock = forge.shared().repository_locks.acquire(project).await;
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    blocking::spawn(move || Ok(repositories.remove(&storage)?)).await?;
    empty_trash(forge).await
}

/// Deletes the files of removed repositories; also runs at startup and periodically, because a removal may be interrupted.
pub async fn empty_trash(forge: &Forge) -> Result<()> {
    let repositories = forge.shared().repositories.clone();
    blocking::spawn(move || Ok(repositories.empty_trash()?)).await
}

/// Removes the files and then the rows of a deleted project, and finally the task.
async fn remove_project(forge: &Forge, project: ProjectId, task: TaskId) -> Result<()> {
    let is_deleted =
        forge.read(Caller::system(), move |tx| Ok(store::projects::is_soft_deleted(tx.db(), project)?)).await?;
    if !is_deleted {
        // It was purged already; nothing of a live project is ever removed here.
        return forge.write(Caller::system(), move |tx| Ok(store::tasks::delete(tx.db(), task)?)).await;
    }
    traces::remove_all_of_project(forge, project).await?;
    let no_uploads = stored_files::remove_all_of_project::<Upload>(forge, project).await?;
    if !stored_files::remove_all_of_project::<Artifact>(forge, project).await? || !no_uploads {
        // An upload that began before the removal is still running; that is not a failure.
        return forge.write(Caller::system(), move |tx| reschedule(tx, task, UPLOAD_DELAY)).await;
    }
    remove_repository(forge, project).await?;
    let purge_batch =
        move |tx: &mut WriteTx<'_>| match system_events::remove_unused_deploy_keys(tx, project, EVENT_BATCH)? {
            0 => Ok(store::projects::purge_batch(tx.db(), project, ROW_BATCH)?),
            keys => Ok(keys),
        };
    while forge.write(Caller::system(), purge_batch).await? > 0 {}
    // A read that was running may have created it again.
    remove_repository(forge, project).await?;
    forge
        .write(Caller::system(), move |tx| {
            store::projects::purge(tx.db(), project)?;
            Ok(store::tasks::delete(tx.db(), task)?)
        })
        .await?;
    // Its avatar has no owner any more.
    avatars::sweep(forge).await
}

/// Deletes expired memberships in small transactions, so that other writes are not delayed, and reschedules the task.
async fn sweep_memberships(forge: &Forge, task: TaskId) -> Result<()> {
    let delete_batch = |tx: &mut WriteTx<'_>| {
        let now = tx.now();
        let expired = store::members::delete_expired(tx.db(), now, EVENT_BATCH)?;
        system_events::members_expired(tx, &expired)?;
        Ok(expired.count())
    };
    let mut deleted = 0;
    loop {
        match forge.write(Caller::system(), delete_batch).await? {
            0 => break,
            more => deleted += more,
        }
    }
    if deleted > 0 {
        info!(deleted, "deleted expired memberships and shares");
    }
    forge.write(Caller::system(), move |tx| reschedule(tx, task, SWEEP_EVERY)).await
}

/// Deletes expired and revoked tokens, expired sessions and silent nodes, and reschedules the task.
fn sweep_tokens(tx: &mut WriteTx<'_>, task: TaskId) -> Result<()> {
    let now = tx.now();
    let deleted = store::tokens::delete_stale(tx.db(), now - TOKEN_RETENTION)?;
    if deleted > 0 {
        info!(deleted, "deleted expired and revoked tokens");
    }
    let deleted = web_sessions::delete_expired(tx)?;
    if deleted > 0 {
        info!(deleted, "deleted expired sessions");
    }
    let deleted = nodes::delete_silent(tx)?;
    if deleted > 0 {
        info!(deleted, "deleted nodes that were not heard of for a day");
    }
    reschedule(tx, task, SWEEP_EVERY)
}

/// Schedules the next run of a task.
fn reschedule(tx: &mut WriteTx<'_>, task: TaskId, delay: SignedDuration) -> Result<()> {
    let next = tx.now() + delay;
    Ok(store::tasks::reschedule(tx.db(), task, next)?)
}

/// Lists pending tasks and those that failed permanently.
pub fn list(tx: &mut ReadTx<'_>) -> Result<Vec<TaskRecord>> {
    tx.authorize(Ability::ManageServer)?;
    Ok(store::tasks::list(tx.db(), 1000)?)
}

/// Returns the numbers of pending tasks and of those that failed permanently.
pub fn count(tx: &mut ReadTx<'_>) -> Result<(i64, i64)> {
    tx.authorize(Ability::ManageServer)?;
    Ok(store::tasks::count(tx.db())?)
}

/// Makes a task that failed permanently pending again.
pub fn retry(tx: &mut WriteTx<'_>, id: TaskId) -> Result<()> {
    tx.authorize(Ability::ManageServer)?;
    let now = tx.now();
    if store::tasks::retry_dead(tx.db(), id, now)? { Ok(()) } else { Err(Error::not_found("Dead task")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_grow_up_to_an_hour() {
        assert_eq!(retry_delay(1), SignedDuration::from_secs(2));
        assert_eq!(retry_delay(5), SignedDuration::from_secs(32));
        assert_eq!(retry_delay(100), SignedDuration::from_hours(1));
    }
}
