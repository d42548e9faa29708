//! Work in the background: written with the change that causes it, done at least once.

use std::time::Duration;

use jiff::SignedDuration;
use model::{Time, Upload, tasks::TaskRecord};
use tracing::{error, info, warn};

use crate::{
    Ability, Caller, Error, Forge, ReadTx, Result, WriteTx,
    artifacts::{self, Artifact},
    branches, deliveries, forks, imports,
    pushes::{self, blocking},
    repository_locks::Turn,
    stale_jobs, stored_files, traces, webhook_events,
};

/// A kind of background work. Every kind may run twice, so each is written to bear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Forgets tokens that have opened nothing for a while.
    SweepTokens,
    /// Forgets memberships and shares that have expired.
    SweepMemberships,
    /// Removes what is left of uploads that were given up.
    SweepUploads,
    /// Removes what jobs left behind, once it has expired or was given up.
    SweepArtifacts,
    /// Removes what a project has left behind.
    RemoveProject(i64),
    /// Packs the repository of a project, and what else keeps it quick.
    KeepHouse(i64),
    /// Gives a fork the repository of its source.
    CopyRepository(i64),
    /// Fetches the repository of a project from elsewhere.
    Import(i64),
    /// Removes the branches of a project that are merged, with the rights of a user.
    DeleteMergedBranches {
        /// Which project.
        project: i64,
        /// Who asked for it.
        user: i64,
    },
    /// Completes or forgets pushes that were interrupted.
    SettlePushes,
    /// Takes back or lets fail jobs of pipelines that are stuck.
    SweepBuilds,
    /// Gives up messages to hooks that have waited for too long, and forgets how old ones went.
    SweepDeliveries,
}

/// How long a worker may hold a job before another takes it over, and how often one that works on renews that.
const LEASE: SignedDuration = SignedDuration::from_mins(10);
const RENEW_EVERY: Duration = Duration::from_secs(180);
/// How long a repository is left alone after a push, so that many pushes in a row cost one round of housekeeping.
pub(crate) const HOUSEKEEPING_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// How long the request that makes a fork has for its repository before a worker takes over.
pub(crate) const COPY_PATIENCE: SignedDuration = SignedDuration::from_mins(2);
/// How long an import waits while others are under way.
const IMPORT_PAUSE: SignedDuration = SignedDuration::from_secs(15);
const SETTLE_EVERY: SignedDuration = SignedDuration::from_mins(10);
/// How often a job is tried before it is given up.
const ATTEMPTS: i32 = 10;
const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(24);
const SWEEP_DELIVERIES_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How long the removal of a project waits for an upload that is under way.
const UPLOAD_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// How many rows of a kind are removed in one transaction.
const REMOVED_AT_ONCE: i64 = 1000;
/// How many memberships are ended in one transaction, and how many keys removed, each with an event.
const ENDED_AT_ONCE: i64 = 100;
/// How long a dead token stays visible to its owner.
const TOKENS_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

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
            Self::KeepHouse(_) => "keep_house",
            Self::CopyRepository(_) => "copy_repository",
            Self::Import(_) => "import",
            Self::DeleteMergedBranches { .. } => "delete_merged_branches",
            Self::SettlePushes => "settle_pushes",
            Self::SweepDeliveries => "sweep_deliveries",
            Self::SweepBuilds => "sweep_builds",
        }
    }

    /// The project that it is about, if it is about one.
    fn project(&self) -> Option<i64> {
        match self {
            Self::RemoveProject(id) | Self::KeepHouse(id) | Self::CopyRepository(id) | Self::Import(id) => Some(*id),
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
            | Self::SettlePushes
            | Self::SweepDeliveries
            | Self::SweepBuilds => String::new(),
            Self::RemoveProject(id) | Self::KeepHouse(id) | Self::CopyRepository(id) | Self::Import(id) => {
                id.to_string()
            }
            Self::DeleteMergedBranches { project, user } => format!("{project} {user}"),
        }
    }

    /// The name that only one waiting job has, if a second one makes no sense while the first one waits.
    fn singleton(&self) -> Option<String> {
        match self {
            Self::SweepTokens
            | Self::SweepMemberships
            | Self::SweepUploads
            | Self::SweepArtifacts
            | Self::SettlePushes
            | Self::SweepDeliveries
            | Self::SweepBuilds => Some(self.kind().to_owned()),
            Self::KeepHouse(id) | Self::CopyRepository(id) | Self::Import(id) => Some(format!("{} {id}", self.kind())),
            Self::DeleteMergedBranches { .. } => Some(format!("{} {}", self.kind(), self.payload())),
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
            "keep_house" => id.ok().map(Self::KeepHouse),
            "copy_repository" => id.ok().map(Self::CopyRepository),
            "import" => id.ok().map(Self::Import),
            "delete_merged_branches" => {
                let (project, user) = record.payload.split_once(' ')?;
                Some(Self::DeleteMergedBranches { project: project.parse().ok()?, user: user.parse().ok()? })
            }
            "settle_pushes" => Some(Self::SettlePushes),
            "sweep_deliveries" => Some(Self::SweepDeliveries),
            "sweep_builds" => Some(Self::SweepBuilds),
            _ => None,
        }
    }
}

/// Writes a job down, in the transaction of the change that causes it.
pub fn enqueue(tx: &mut WriteTx<'_>, task: &Task, run_at: Time) -> Result<()> {
    let now = tx.now();
    let singleton = task.singleton();
    Ok(store::tasks::insert(tx.db(), task.kind(), &task.payload(), singleton.as_deref(), run_at, now)?)
}

/// Forgets a job that only one of may wait: what it is for has been done.
pub(crate) fn forget(tx: &mut WriteTx<'_>, task: &Task) -> Result<()> {
    match task.singleton() {
        Some(singleton) => Ok(store::tasks::delete_singleton(tx.db(), &singleton)?),
        None => Ok(()),
    }
}

/// Whether a job that only one of may wait is still to be done.
pub(crate) fn is_waiting(tx: &mut ReadTx<'_>, task: &Task) -> Result<bool> {
    match task.singleton() {
        Some(singleton) => Ok(store::tasks::is_waiting(tx.db(), &singleton)?),
        None => Ok(false),
    }
}

/// Takes up what a server before this one was in the middle of, at the start of one that has its data to itself: whoever
/// holds a lease on a job is no more.
pub async fn take_up(forge: &Forge) -> Result<()> {
    if !forge.shared().database.is_embedded() {
        return Ok(());
    }
    forge.write(Caller::system(), |tx| Ok(store::tasks::release_all(tx.db())?)).await
}

/// Writes down the jobs that come back by themselves, unless they wait already.
pub async fn enqueue_recurring(forge: &Forge) -> Result<()> {
    forge
        .write(Caller::system(), |tx| {
            let now = tx.now();
            enqueue(tx, &Task::SweepTokens, now)?;
            enqueue(tx, &Task::SweepMemberships, now)?;
            enqueue(tx, &Task::SweepUploads, now)?;
            enqueue(tx, &Task::SweepArtifacts, now)?;
            enqueue(tx, &Task::SweepDeliveries, now)?;
            enqueue(tx, &Task::SweepBuilds, now)?;
            enqueue(tx, &Task::SettlePushes, now + SETTLE_EVERY)
        })
        .await
}

/// Does the job that has been due for longest; `false` if none is due.
pub async fn work_once(forge: &Forge) -> Result<bool> {
    match claim(forge).await? {
        Some(record) => perform(forge, record).await.map(|()| true),
        None => Ok(false),
    }
}

/// Takes the job that has been due for longest; `None` if none is due.
pub async fn claim(forge: &Forge) -> Result<Option<TaskRecord>> {
    if !forge.read(Caller::system(), is_due).await? {
        return Ok(None);
    }
    forge
        .write(Caller::system(), |tx| {
            let now = tx.now();
            Ok(store::tasks::claim(tx.db(), now, now + LEASE)?)
        })
        .await
}

/// Does a job that was taken, and notes how it went.
pub async fn perform(forge: &Forge, record: TaskRecord) -> Result<()> {
    let (id, kind, attempts) = (record.id, record.kind.clone(), record.attempts);
    let project = Task::decode(&record).and_then(|task| task.project());
    match run_with_lease(forge, record).await {
        Ok(()) => {
            info!(task.id = id, task.kind = kind, project.id = project, "job done");
            metrics::counter!("gable_jobs_total", "kind" => kind, "outcome" => "done").increment(1);
        }
        Err(failure) => {
            let text = failure.to_string();
            // Lack of room is not the job's fault: it waits until there is some.
            let no_room = matches!(failure, Error::NoRoom(_));
            if no_room {
                forge.note_no_room();
            }
            let dead = attempts >= ATTEMPTS && !no_room;
            let outcome = if dead { "dead" } else { "failed" };
            if dead {
                error!(
                    task.id = id,
                    task.kind = kind,
                    project.id = project,
                    error = text,
                    "job given up after {attempts} attempts; `gable admin job retry {id}` tries it again"
                );
            } else {
                warn!(
                    task.id = id,
                    task.kind = kind,
                    project.id = project,
                    attempts,
                    error = text,
                    "job failed, it will be tried again"
                );
            }
            metrics::counter!("gable_jobs_total", "kind" => kind, "outcome" => outcome).increment(1);
            forge
                .write(Caller::system(), move |tx| {
                    let now = tx.now();
                    if dead {
                        return Ok(store::tasks::bury(tx.db(), id, &text, now)?);
                    }
                    if no_room {
                        store::tasks::uncount(tx.db(), id)?;
                    }
                    Ok(store::tasks::fail(tx.db(), id, &text, now + back_off(attempts))?)
                })
                .await?;
        }
    }
    Ok(())
}

/// Runs a job, and says again and again that somebody is at it.
async fn run_with_lease(forge: &Forge, record: TaskRecord) -> Result<()> {
    let id = record.id;
    let mut running = std::pin::pin!(run(forge, record));
    loop {
        if let Ok(result) = tokio::time::timeout(RENEW_EVERY, &mut running).await {
            return result;
        }
        let renew = move |tx: &mut WriteTx<'_>| {
            let until = tx.now() + LEASE;
            Ok(store::tasks::renew(tx.db(), id, until)?)
        };
        forge.write(Caller::system(), renew).await?;
    }
}

/// Whether a job is due; asked first, because an idle server should not write.
fn is_due(tx: &mut ReadTx<'_>) -> Result<bool> {
    let now = tx.now();
    Ok(store::tasks::is_due(tx.db(), now)?)
}

/// How long a job waits after its n-th failure: 2 s, 4 s, 8 s … at most an hour.
fn back_off(attempts: i32) -> SignedDuration {
    let exponent = u32::try_from(attempts.clamp(1, 12)).unwrap_or(1);
    SignedDuration::from_secs(2_i64.pow(exponent)).min(SignedDuration::from_hours(1))
}

/// Runs a job. Work that only touches the database is done in the transaction that removes the job.
async fn run(forge: &Forge, record: TaskRecord) -> Result<()> {
    // Counted before it runs: a job that takes its worker down with it is given up like any other.
    if record.attempts > ATTEMPTS {
        return Err(Error::Internal("every worker that took it died".into()));
    }
    let task = Task::decode(&record).ok_or_else(|| Error::Internal(format!("unknown kind of job: {}", record.kind)))?;
    let id = record.id;
    match task {
        Task::SweepTokens => forge.write(Caller::system(), move |tx| sweep_tokens(tx, id)).await,
        Task::SweepMemberships => sweep_memberships(forge, id).await,
        Task::SweepUploads => {
            stored_files::sweep::<Upload>(forge).await?;
            forge.write(Caller::system(), move |tx| come_back(tx, id, stored_files::SWEEP_EVERY)).await
        }
        Task::SweepArtifacts => {
            artifacts::sweep(forge).await?;
            forge.write(Caller::system(), move |tx| come_back(tx, id, stored_files::SWEEP_EVERY)).await
        }
        Task::RemoveProject(project) => remove_project(forge, project, id).await,
        Task::KeepHouse(project) => keep_house(forge, project, id).await,
        Task::CopyRepository(project) => forks::copy_repository(forge, project).await,
        Task::Import(project) => {
            if imports::run(forge, project).await? {
                return Ok(());
            }
            forge.write(Caller::system(), move |tx| come_back(tx, id, IMPORT_PAUSE)).await
        }
        Task::DeleteMergedBranches { project, user } => delete_merged_branches(forge, project, user, id).await,
        Task::SettlePushes => {
            pushes::settle_all(forge).await?;
            forge.write(Caller::system(), move |tx| come_back(tx, id, SETTLE_EVERY)).await
        }
        Task::SweepDeliveries => {
            deliveries::sweep(forge).await?;
            forge.write(Caller::system(), move |tx| come_back(tx, id, SWEEP_DELIVERIES_EVERY)).await
        }
        Task::SweepBuilds => {
            stale_jobs::sweep(forge).await?;
            let pause = stale_jobs::pause(forge);
            forge.write(Caller::system(), move |tx| come_back(tx, id, pause)).await
        }
    }
}

/// Keeps the house of one repository; a push that comes meanwhile has its own turn, and its own round afterwards.
async fn keep_house(forge: &Forge, project: i64, task: i64) -> Result<()> {
    let _turn = forge.shared().turns.take(project, Turn::KeepHouse).await;
    let kept = match forge.find_storage(project).await? {
        Some(storage) => {
            let repositories = forge.shared().repositories.clone();
            blocking(move || Ok(repositories.keep_house(&storage)?)).await?
        }
        // The project is gone.
        None => true,
    };
    let done = move |tx: &mut WriteTx<'_>| {
        if kept { Ok(store::tasks::delete(tx.db(), task)?) } else { come_back(tx, task, HOUSEKEEPING_PAUSE) }
    };
    forge.write(Caller::system(), done).await
}

/// Removes branches for somebody who asked for it a while ago; if they may no more, nothing is to be done.
async fn delete_merged_branches(forge: &Forge, project: i64, user: i64, task: i64) -> Result<()> {
    match branches::delete_merged_now(forge, Caller::on_behalf_of(user), project).await {
        Ok(()) | Err(Error::Unauthenticated | Error::Forbidden(_) | Error::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    forge.write(Caller::system(), move |tx| Ok(store::tasks::delete(tx.db(), task)?)).await
}

/// Takes the repository of a project that is gone off the disk.
async fn remove_repository(forge: &Forge, project: i64) -> Result<()> {
    let _kept = forge.shared().turns.take(project, Turn::KeepHouse).await;
    let _written = forge.shared().turns.take(project, Turn::Write).await;
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    blocking(move || {
        repositories.remove(&storage)?;
        Ok(repositories.empty_trash()?)
    })
    .await
}

/// Removes the files and then the rows of a project that is gone already, and the job with them.
async fn remove_project(forge: &Forge, project: i64, task: i64) -> Result<()> {
    let buried = forge.read(Caller::system(), move |tx| Ok(store::projects::is_buried(tx.db(), project)?)).await?;
    if !buried {
        // Gone already; and of a project that lives nothing is ever removed here.
        return forge.write(Caller::system(), move |tx| Ok(store::tasks::delete(tx.db(), task)?)).await;
    }
    traces::remove_all_of_project(forge, project).await?;
    let no_uploads = stored_files::remove_all_of_project::<Upload>(forge, project).await?;
    if !stored_files::remove_all_of_project::<Artifact>(forge, project).await? || !no_uploads {
        // Somebody began before it was removed; that is no failure, however long it takes.
        return forge.write(Caller::system(), move |tx| come_back(tx, task, UPLOAD_PAUSE)).await;
    }
    remove_repository(forge, project).await?;
    let shrink = move |tx: &mut WriteTx<'_>| match webhook_events::forget_deploy_keys(tx, project, ENDED_AT_ONCE)? {
        0 => Ok(store::projects::shrink_buried(tx.db(), project, REMOVED_AT_ONCE)?),
        keys => Ok(keys),
    };
    while forge.write(Caller::system(), shrink).await? > 0 {}
    forge
        .write(Caller::system(), move |tx| {
            store::projects::delete_buried(tx.db(), project)?;
            Ok(store::tasks::delete(tx.db(), task)?)
        })
        .await
}

/// Forgets what has expired, in small steps because others want to write, too, and lets the job wait for tomorrow.
async fn sweep_memberships(forge: &Forge, task: i64) -> Result<()> {
    let some = |tx: &mut WriteTx<'_>| {
        let now = tx.now();
        let ended = store::members::delete_expired(tx.db(), now, ENDED_AT_ONCE)?;
        webhook_events::members_expired(tx, &ended)?;
        Ok(ended.count())
    };
    let mut forgotten = 0;
    loop {
        match forge.write(Caller::system(), some).await? {
            0 => break,
            more => forgotten += more,
        }
    }
    if forgotten > 0 {
        info!(forgotten, "forgot memberships and shares that had expired");
    }
    forge.write(Caller::system(), move |tx| come_back(tx, task, SWEEP_EVERY)).await
}

/// Forgets dead tokens and lets the job wait for tomorrow.
fn sweep_tokens(tx: &mut WriteTx<'_>, task: i64) -> Result<()> {
    let now = tx.now();
    let forgotten = store::tokens::delete_stale(tx.db(), now - TOKENS_KEPT)?;
    if forgotten > 0 {
        info!(forgotten, "forgot tokens that opened nothing any more");
    }
    come_back(tx, task, SWEEP_EVERY)
}

/// Lets a job that is done for now wait for its next round.
fn come_back(tx: &mut WriteTx<'_>, task: i64, pause: SignedDuration) -> Result<()> {
    let next = tx.now() + pause;
    Ok(store::tasks::reschedule(tx.db(), task, next)?)
}

/// The jobs that wait and those that were given up.
pub fn list(tx: &mut ReadTx<'_>) -> Result<Vec<TaskRecord>> {
    tx.may(Ability::Operate)?;
    Ok(store::tasks::list(tx.db(), 1000)?)
}

/// How many jobs wait, and how many were given up.
pub fn count(tx: &mut ReadTx<'_>) -> Result<(i64, i64)> {
    tx.may(Ability::Operate)?;
    Ok(store::tasks::count(tx.db())?)
}

/// Brings back a job that was given up.
pub fn retry(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    tx.may(Ability::Operate)?;
    let now = tx.now();
    if store::tasks::revive(tx.db(), id, now)? { Ok(()) } else { Err(Error::not_found("Dead job")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_an_hour() {
        assert_eq!(back_off(1), SignedDuration::from_secs(2));
        assert_eq!(back_off(5), SignedDuration::from_secs(32));
        assert_eq!(back_off(100), SignedDuration::from_hours(1));
    }
}
