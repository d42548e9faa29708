//! Pushes: the only way to change refs, for git over HTTP and SSH and for the endpoints of branches, tags, files and commits.
//!
//! 1. The objects are in quarantine, checked and complete.
//! 2. The changes are inspected against the repository (`inspect`), and their pipelines planned (`pipelines`).
//! 3. The objects are packed. Small packs are stored in the database with the transaction; the files of others are stored
//!    now, durably. No row lists them yet.
//! 4. One transaction authorizes the changes (`authorize`), updates the refs, adds the packs, and records everything
//!    that follows: events, webhook events, pipelines, closed issues, the default branch (`apply`).
//!
//! Its commit is the acknowledgement. A push that is interrupted before leaves files that no row lists, which a task
//! removes. Pushes to different refs do not wait for each other: the transaction compares each ref with its old target.

mod apply;
mod authorize;
mod inspect;
mod pipelines;
mod rejection;

use std::{path::Path, sync::Arc};

use git::{LocalPack, Quarantine, Repository, StagedPack};
use model::{EventKind, ProjectId, Protection, PushLevel, RefChange, RefName, StorageId};
use store::packs::NewPack;
use tracing::warn;

use crate::{Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, blocking, outbox};

pub(crate) use inspect::choose_default_branch;
pub use rejection::RefRejection;

use apply::{AppliedPush, ApplyOutcome, apply};
use inspect::{SentObjects, inspect};
use pipelines::plan_pipelines;

/// How often a push is inspected because the repository has changed in a way that the inspection depends on.
const MAX_ATTEMPTS: usize = 5;

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

/// Creates a quarantine for a project. The caller must have checked that pushing is allowed, and opened the repository:
/// its folder has the objects that new ones build upon.
pub fn create_quarantine(forge: &Forge, storage: &StorageId) -> Result<Quarantine> {
    forge.require_free_space()?;
    Ok(forge.shared().repositories.quarantine(storage))
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
    let push = Arc::new(push);
    let outcomes = apply_push(forge, caller, project, &push, source).await;
    // Removing the quarantine takes time, which the client need not wait for.
    blocking::spawn_detached(move || drop(push));
    outcomes
}

/// Inspects a push and applies it; again, if the repository has changed meanwhile.
async fn apply_push(
    forge: &Forge,
    caller: Caller,
    project: ProjectId,
    push: &Arc<Push>,
    source: PushSource,
) -> Result<Vec<RefOutcome>> {
    // The project may have been deleted while the objects were received.
    let prefer_access_error = async |error: Error| {
        let open = move |tx: &mut ReadTx<'_>| tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode).map(drop);
        forge.read(caller.clone(), open).await.err().unwrap_or(error)
    };
    let mut packs: Option<PackedObjects> = None;
    for _ in 0..MAX_ATTEMPTS {
        let target = forge.read(Caller::system(), move |tx| PushTarget::load(tx, project)).await?;
        let drop_epoch = target.drop_epoch;
        let inspected = {
            let push = Arc::clone(push);
            let inspecting = move || {
                // Must precede any reading of the objects.
                push.incoming.as_ref().map_or(Ok(()), Quarantine::check_sizes)?;
                let sent = SentObjects::check(target.repository.as_ref(), &push)?;
                inspect(target, &push, sent)
            };
            match blocking::spawn(inspecting).await {
                Ok(inspected) => inspected,
                Err(error) => return Err(prefer_access_error(error).await),
            }
        };
        let inspected = Arc::new(plan_pipelines(forge, project, inspected, push).await?);
        if packs.is_none() {
            packs = Some(PackedObjects::prepare(forge, Arc::clone(push)).await?);
        }
        let new_packs = packs.as_ref().map(|packs| packs.rows.clone()).unwrap_or_default();
        let atomic = push.atomic;
        let applying = {
            let inspected = Arc::clone(&inspected);
            move |tx: &mut crate::WriteTx<'_>| apply(tx, project, &inspected, drop_epoch, &new_packs, atomic, source)
        };
        match forge.write(caller.clone(), applying).await {
            Ok(ApplyOutcome::Applied(AppliedPush { outcomes, repository, changes })) => {
                if let Some(changes) = changes {
                    forge.shared().repository_cache.apply_changes(repository.id, repository.generation, &changes);
                }
                if let Some(packs) = packs {
                    packs.install(Arc::clone(push)).await;
                }
                return Ok(outcomes);
            }
            Ok(ApplyOutcome::Rejected(outcomes)) => {
                // Nothing lists the packs.
                if let Some(packs) = packs {
                    packs.discard(forge).await;
                }
                return Ok(outcomes);
            }
            Ok(ApplyOutcome::Outdated) => {}
            // The transaction was rolled back, because either all changes are applied or none.
            Err(Error::RefRejected(rejection)) => {
                if let Some(packs) = packs {
                    packs.discard(forge).await;
                }
                let reject =
                    |one: &RefChange| RefOutcome { name: one.name.clone(), rejection: Some(rejection.clone()) };
                return Ok(push.changes.iter().map(reject).collect());
            }
            // The packs may be listed: whether the transaction was committed is not always known.
            Err(error) => return Err(error),
        }
    }
    Err(Error::Busy)
}

/// What a push is inspected against.
struct PushTarget {
    repository: Option<Repository>,
    drop_epoch: i64,
    has_webhooks: bool,
}

impl PushTarget {
    fn load(tx: &mut ReadTx<'_>, project: ProjectId) -> Result<Self> {
        let has_webhooks = has_push_webhooks(tx, project)?;
        let project = tx.project(&ProjectRef::Id(project), ProjectAbility::ReadProject)?;
        // Read first: objects that are dropped meanwhile change the epoch.
        let record = store::repositories::find(tx.db(), project.id)?;
        let repository = tx.repository(&project)?;
        Ok(Self { repository, drop_epoch: record.map_or(0, |record| record.drop_epoch), has_webhooks })
    }
}

/// The packs of a push. Those that are not small are in the store of files.
struct PackedObjects {
    rows: Arc<[NewPack]>,
    /// Copies of the small packs for the folder of the repository.
    staged: Vec<StagedPack>,
}

impl PackedObjects {
    /// Packs the objects of a push, and stores packs that are not small durably.
    async fn prepare(forge: &Forge, push: Arc<Push>) -> Result<Self> {
        let handle = forge.clone();
        let storing = move || {
            let (mut rows, mut staged, mut large) = (Vec::new(), Vec::new(), Vec::new());
            let Some(incoming) = &push.incoming else { return Ok((rows, staged)) };
            for pack in incoming.packs()? {
                match pack.small_content()? {
                    Some(content) => {
                        staged.push(incoming.stage(&pack)?);
                        rows.push(NewPack { content: Some(content), ..new_row(&handle, &pack) });
                    }
                    None => large.push(pack),
                }
            }
            rows.extend(store_packs(&handle, &large)?);
            Ok((rows, staged))
        };
        let (rows, staged) = blocking::spawn(storing).await?;
        Ok(Self { rows: rows.into(), staged })
    }

    /// Makes the small packs of an accepted push visible in the folder of the repository.
    async fn install(self, push: Arc<Push>) {
        if self.staged.is_empty() {
            return;
        }
        let install = move || {
            if let Some(incoming) = &push.incoming {
                self.staged.into_iter().try_for_each(|pack| incoming.install(pack))?;
            }
            Ok(())
        };
        if let Err(error) = blocking::spawn(install).await {
            // The next reader gets them from the database.
            warn!(%error, "cannot install the packs of a push in the folder of the repository");
        }
    }

    /// Removes the files of packs that are not listed.
    async fn discard(self, forge: &Forge) {
        let with_files = self.rows.iter().filter(|pack| pack.content.is_none());
        let keys: Vec<String> = with_files.map(|pack| pack.key.clone()).collect();
        if !keys.is_empty()
            && let Err(error) = remove_packs(forge, keys).await
        {
            // A task removes them later.
            warn!(%error, "cannot remove the packs of a rejected push");
        }
    }
}

/// Returns the row of a pack with a new key.
fn new_row(forge: &Forge, pack: &LocalPack) -> NewPack {
    let mut random = [0; 8];
    forge.shared().secrets.fill(&mut random);
    let checksum = pack.checksum.to_string();
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    NewPack {
        key: format!("packs/{}/{checksum}-{}", &checksum[..2], model::text::hex(&random)),
        content: None,
        checksum: pack.checksum,
        bytes: count(pack.bytes),
        objects: count(pack.objects),
        is_unreachable: false,
    }
}

/// Stores the files of packs under new keys, durably; returns their rows. Blocking.
pub(crate) fn store_packs(forge: &Forge, packs: &[LocalPack]) -> Result<Vec<NewPack>> {
    let mut rows = Vec::with_capacity(packs.len());
    for pack in packs {
        let row = new_row(forge, pack);
        let files: Vec<(String, &Path)> =
            pack.files().map(|(extension, path)| (format!("{}.{extension}", row.key), path)).collect();
        if let Err(error) = forge.shared().files.store_files(&files) {
            discard_packs(forge, &rows);
            return Err(error.into());
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Removes packs that were stored and cannot be listed any more. Blocking. A task removes what is left.
pub(crate) fn discard_packs(forge: &Forge, packs: &[NewPack]) {
    for pack in packs {
        if let Err(error) = forge.shared().files.remove_files(&file_names(&pack.key)) {
            warn!(%error, pack = pack.key, "cannot remove a pack that no repository lists");
        }
    }
}

/// Returns the names of the files of a pack in the order of their removal, the reverse of that in which they are added.
fn file_names(key: &str) -> Vec<String> {
    git::PACK_EXTENSIONS.iter().rev().map(|extension| format!("{key}.{extension}")).collect()
}

/// Removes the files of packs that no row lists.
pub(crate) async fn remove_packs(forge: &Forge, keys: Vec<String>) -> Result<()> {
    let files = forge.shared().files.clone();
    blocking::spawn(move || {
        let names: Vec<String> = keys.iter().flat_map(|key| file_names(key)).collect();
        Ok(files.remove_files(&names)?)
    })
    .await
}

/// Opens the objects of the repository together with those in quarantine; `None` if there are neither.
fn open_objects(repository: Option<Repository>, push: &Push) -> Result<Option<Repository>> {
    match &push.incoming {
        Some(incoming) => Ok(Some(incoming.repository()?)),
        None => Ok(repository),
    }
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
