//! Pushes: the only way to change refs, for git over HTTP and SSH and for the endpoints of branches, tags, files and commits.
//!
//! 1. The objects are in quarantine, checked and complete.
//! 2. The changes are inspected against the repository, under its lock (`inspect`).
//! 3. One transaction authorizes them and records an intent, with events, webhook events and pipelines (`authorize`).
//! 4. Objects are moved out of quarantine and refs are updated on disk ([`git::Repositories::apply`]).
//! 5. The intent is finished, and its events, webhook events and pipelines become visible.
//!
//! An interrupted push is recovered before the next one and at startup: if any of its refs was updated, it is completed,
//! otherwise discarded. So the effects of a push happen exactly once.

mod authorize;
mod inspect;
mod pipelines;
mod rejection;

use std::{sync::Arc, time::Duration};

use git::{Quarantine, Repositories, Repository};
use model::{Change, EventKind, IntentId, ProjectId, Protection, PushLevel, RefChange, RefName, StorageId};
use store::intents::{Intent, NewIntent};
use tracing::{error, info, warn};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx, blocking, forks, mentions, outbox,
    repository_locks::LockKind, tasks,
};

pub(crate) use inspect::choose_default_branch;
pub use rejection::RefRejection;

use authorize::{Authorization, authorize};
use inspect::{SentObjects, inspect};
use pipelines::{plan_pipelines, start_pipelines};

/// The interval at which a push checks whether refs are still frozen.
const REF_FREEZE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum number of refs changed in one push.
pub const MAX_CHANGES: usize = 10_000;

/// A push: ref changes with the objects they need.
pub struct Push {
    /// The ref changes.
    pub changes: Vec<RefChange>,
    /// The new objects, in quarantine.
    pub incoming: Option<Quarantine>,
    /// Whether either all changes are applied or none.
    pub atomic: bool,
    /// Push options sent by the client.
    pub options: Vec<String>,
}

/// The outcome of one ref change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefOutcome {
    /// The name of the ref.
    pub name: RefName,
    /// Why the change was rejected; `None` if it was applied.
    pub rejection: Option<RefRejection>,
}

/// The origin of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushSource {
    /// A push by git over HTTP or SSH.
    Git,
    /// An endpoint, which has additional rules.
    Api,
}

/// Creates a quarantine for a project; the caller must have checked that pushing is allowed.
pub fn create_quarantine(forge: &Forge, storage: &StorageId) -> Result<Quarantine> {
    forge.require_free_space()?;
    forge.record_if_disk_full(forge.shared().repositories.quarantine(storage).map_err(Error::from))
}

/// Applies a push durably; rejected changes are reported as outcomes.
///
/// A forbidden change rejects the whole push, as clients of GitLab expect; a stale one rejects the others only in an atomic
/// push.
pub async fn push(
    forge: &Forge,
    caller: Caller,
    project: ProjectId,
    push: Push,
    source: PushSource,
) -> Result<Vec<RefOutcome>> {
    let forge = forge.clone();
    // In its own task, so that it completes even if the client disconnects.
    let task =
        tokio::spawn(async move { forge.record_if_disk_full(run_push(&forge, caller, project, push, source).await) });
    task.await.unwrap_or_else(|error| Err(Error::internal("push task failed", error)))
}

async fn run_push(
    forge: &Forge,
    caller: Caller,
    project: ProjectId,
    push: Push,
    source: PushSource,
) -> Result<Vec<RefOutcome>> {
    // The project may have been deleted while the objects were received.
    let prefer_access_error = async |error: Error| {
        let open = move |tx: &mut ReadTx<'_>| tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode).map(drop);
        forge.read(caller.clone(), open).await.err().unwrap_or(error)
    };
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    // Expensive checks run before the lock is taken.
    let checking = move || {
        // Must precede any reading of the objects.
        push.incoming.as_ref().map_or(Ok(()), Quarantine::check_sizes)?;
        Ok((SentObjects::check(&repositories, &storage, &push)?, push))
    };
    let (sent, push) = match blocking::spawn(checking).await {
        Ok(checked) => checked,
        Err(error) => return Err(prefer_access_error(error).await),
    };
    let _lock = forge.shared().repository_locks.acquire(project, LockKind::Refs).await;
    recover_project(forge, project).await?;
    forks::copy_before_first_write(forge, project).await?;
    let has_webhooks =
        forge.read_inline(Caller::system(), move |tx: &mut ReadTx<'_>| has_push_webhooks(tx, project)).await?;
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    let inspecting = move || Ok((inspect(&repositories, &storage, &push, sent, has_webhooks)?, push));
    let (inspected, push) = match blocking::spawn(inspecting).await {
        Ok(inspected) => inspected,
        Err(error) => return Err(prefer_access_error(error).await),
    };
    let (inspected, push) = plan_pipelines(forge, project, inspected, push).await?;
    let inspected = Arc::new(inspected);
    let depth = caller.hook_depth();
    let _update_guard = begin_ref_update(forge).await?;
    let authorization = {
        let inspected = Arc::clone(&inspected);
        let atomic = push.atomic;
        forge.write(caller, move |tx| authorize(tx, project, &inspected, atomic, source)).await?
    };
    let Authorization { outcomes, intent } = authorization;
    let Some(intent) = intent else { return Ok(outcomes) };
    let rejection = match apply_intent(forge, intent, push.incoming, depth).await {
        Ok(()) => return Ok(outcomes),
        Err(Error::RefRejected(rejection)) => rejection,
        Err(Error::Refused(text)) => RefRejection::LimitExceeded(text),
        Err(error) => return Err(error),
    };
    Ok(outcomes.into_iter().map(|one| RefOutcome { rejection: Some(rejection.clone()), ..one }).collect())
}

/// Opens the objects of the repository together with those in quarantine; `None` if there are neither.
fn open_objects(repositories: &Repositories, storage: &StorageId, push: &Push) -> Result<Option<Repository>> {
    Ok(match &push.incoming {
        Some(incoming) => Some(incoming.repository()?),
        None => repositories.find(storage)?,
    })
}

/// Returns the protection of the first default branch, which is protected from the start.
fn default_protection(head: &RefName) -> Protection {
    Protection { name: head.short().to_owned(), push: PushLevel::Masters, merge: PushLevel::Masters }
}

/// Returns whether webhooks of a project need the changed paths of commits.
fn has_push_webhooks(tx: &mut ReadTx<'_>, project: ProjectId) -> Result<bool> {
    Ok(outbox::has_subscribers(tx, EventKind::Push, Some(project))?
        || outbox::has_subscribers(tx, EventKind::TagPush, Some(project))?)
}

/// Steps 4 and 5: applies a recorded intent.
async fn apply_intent(forge: &Forge, intent: Intent, incoming: Option<Quarantine>, depth: i32) -> Result<()> {
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(intent.project).await?);
    let (applied, intent) = blocking::spawn(move || {
        let applied = repositories.apply(&storage, incoming.as_ref(), &intent.changes, new_head(&intent).as_ref());
        Ok((applied, intent))
    })
    .await?;
    match applied {
        Ok(()) => {
            let (id, project) = (intent.id, intent.project);
            let system = Caller::system().with_hook_depth(depth);
            if let Err(error) = forge.write(system, move |tx| finish(tx, &intent)).await {
                // The refs are updated and the intent is recorded, so recovery will finish it.
                error!(
                    %error,
                    intent = id.get(),
                    project.id = project.get(),
                    "push applied but not finished; it will be recovered"
                );
            }
            Ok(())
        }
        Err(cause) => {
            warn!(error = %cause, project.id = intent.project.get(), "cannot update refs");
            // If some refs were updated before the failure, recovery completes the others.
            if recover_during_update(forge, intent.project).await?.contains(&intent.id) {
                return Ok(());
            }
            match cause {
                git::Error::RefChanged(_) => Err(RefRejection::Stale.into()),
                other => Err(other.into()),
            }
        }
    }
}

/// Waits until refs are not frozen; while the guard is held, a backup waits until the update is recorded.
pub(crate) async fn begin_ref_update(forge: &Forge) -> Result<git::RefUpdateGuard> {
    loop {
        let repositories = forge.shared().repositories.clone();
        if let Some(guard) = blocking::spawn(move || Ok(repositories.try_begin_ref_update()?)).await? {
            return Ok(guard);
        }
        tokio::time::sleep(REF_FREEZE_POLL_INTERVAL).await;
    }
}

/// Records the intent to change the default branch.
pub(crate) fn record_default_branch_intent(tx: &mut WriteTx<'_>, project: ProjectId, branch: &RefName) -> Result<()> {
    let (now, user) = (tx.now(), tx.actor().user().map(|user| user.id));
    let default_branch = Change::Set(branch.short().to_owned());
    store::intents::insert(tx.db(), &NewIntent { project, user, changes: &[], default_branch, protection: None, now })?;
    Ok(())
}

/// Completes the recorded intents of a repository.
pub(crate) async fn recover(forge: &Forge, project: ProjectId) -> Result<()> {
    let _lock = forge.shared().repository_locks.acquire(project, LockKind::Refs).await;
    recover_project(forge, project).await
}

/// Returns the new target of HEAD, if it changes.
fn new_head(intent: &Intent) -> Option<RefName> {
    intent.default_branch.set().and_then(|branch| RefName::branch(branch))
}

/// Step 5: makes the effects of an applied intent visible and removes it.
fn finish(tx: &mut WriteTx<'_>, intent: &Intent) -> Result<()> {
    if !store::intents::lock_row(tx.db(), intent.id)? {
        // Already finished concurrently.
        return Ok(());
    }
    mentions::apply(tx, intent.id)?;
    let now = tx.now();
    let moved: Vec<RefName> = intent.changes.iter().map(|change| change.name.clone()).collect();
    start_pipelines(tx, intent, &moved)?;
    store::intents::finish(tx.db(), intent, &moved, now)?;
    tx.notify_dispatcher();
    tasks::enqueue(tx, &tasks::Task::Housekeeping(intent.project), now + tasks::HOUSEKEEPING_DELAY)
}

/// Completes or discards interrupted pushes of a repository. The caller must hold its lock.
async fn recover_project(forge: &Forge, project: ProjectId) -> Result<()> {
    if pending_of(forge, project).await?.is_empty() {
        return Ok(());
    }
    let _update_guard = begin_ref_update(forge).await?;
    recover_during_update(forge, project).await.map(drop)
}

async fn pending_of(forge: &Forge, project: ProjectId) -> Result<Vec<Intent>> {
    let find = move |tx: &mut ReadTx<'_>| Ok(store::intents::pending_of(tx.db(), project)?);
    forge.read_inline(Caller::system(), find).await
}

/// As [`recover_project`], with the ref update guard held; returns the completed intents.
async fn recover_during_update(forge: &Forge, project: ProjectId) -> Result<Vec<IntentId>> {
    let mut completed = Vec::new();
    for intent in pending_of(forge, project).await? {
        let id = intent.id;
        if recover_intent(forge, intent).await? {
            completed.push(id);
        }
    }
    Ok(completed)
}

async fn recover_intent(forge: &Forge, intent: Intent) -> Result<bool> {
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(intent.project).await?);
    let (applied, intent) = blocking::spawn(move || {
        let applied = repositories.which_were_applied(&storage, &intent.changes)?;
        // An intent without ref changes only sets the default branch, which must still exist.
        let complete = if applied.is_empty() {
            let repository = repositories.find(&storage)?;
            let refs = repository.map(|repository| repository.refs()).transpose()?;
            new_head(&intent).is_some_and(|head| refs.is_some_and(|refs| refs.find(&head).is_some()))
        } else {
            applied.contains(&true)
        };
        if !complete {
            return Ok((false, intent));
        }
        // Objects are moved before refs, so only the remaining refs are missing.
        let rest: Vec<RefChange> = intent
            .changes
            .iter()
            .zip(&applied)
            .filter(|(_, applied)| !**applied)
            .map(|(change, _)| change.clone())
            .collect();
        repositories.apply(&storage, None, &rest, new_head(&intent).as_ref())?;
        Ok((true, intent))
    })
    .await?;
    info!(
        intent = intent.id.get(),
        project.id = intent.project.get(),
        completed = applied,
        "recovered an interrupted push"
    );
    forge
        .write(Caller::system(), move |tx| {
            if applied { finish(tx, &intent) } else { Ok(store::intents::delete(tx.db(), intent.id)?) }
        })
        .await?;
    Ok(applied)
}

/// Recovers all interrupted pushes; runs at startup and periodically.
pub async fn recover_interrupted_pushes(forge: &Forge) -> Result<()> {
    const BATCH_SIZE: i64 = 100;
    let mut after = IntentId::new(0);
    loop {
        let pending =
            forge.read(Caller::system(), move |tx| Ok(store::intents::pending(tx.db(), after, BATCH_SIZE)?)).await?;
        let Some(last) = pending.last() else { return Ok(()) };
        after = last.id;
        for Intent { project, .. } in pending {
            let _lock = forge.shared().repository_locks.acquire(project, LockKind::Refs).await;
            if let Err(error) = recover_project(forge, project).await {
                error!(%error, project.id = project.get(), "cannot recover an interrupted push");
            }
        }
    }
}
