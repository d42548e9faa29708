//! Maintenance of repositories: packs are combined and indexed in the background, unreachable objects and unused packs
//! are removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use git::{PACK_EXTENSIONS, PackSize, Refs, Repack, Repositories, Unreachable};
use jiff::SignedDuration;
use model::{Oid, PackId, ProjectId, RepositoryId, StorageId};
use store::{
    packs::{NewPack, PackRecord, PackReplacement},
    repositories::{RepositoryRecord, RepositorySize},
};
use tracing::{info, warn};

use crate::{
    Caller, Error, Forge, ReadTx, Result, WriteTx, blocking, pushes,
    tasks::{self, Task},
};

/// The number of packs from which on maintenance does not wait for a pause between pushes. The time to find an object in a
/// pack that was just added grows with the square of the number of packs.
pub(crate) const MANY_PACKS: usize = 32;
/// How long a pack that was replaced stays in the folder of a repository: longer than any fetch that may use it.
const DEAD_PACK_GRACE: SignedDuration = SignedDuration::from_hours(24);
/// The age from which on a file that no row lists is left over from an interrupted push.
pub(crate) const UNLISTED_FILE_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of packs that are removed in one transaction.
const PACK_BATCH: i64 = 100;
/// The number of keys of files that are compared with the database at once.
const KEY_BATCH: usize = 500;
/// The folder of packs in the store of files.
pub(crate) const PACK_FOLDER: &str = "packs";

/// The time after which unreachable objects get a pack of their own. That writes all objects of a repository again, so it
/// is not done after each deletion of a branch.
const SEPARATE_AFTER: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How long a pack of unreachable objects is kept.
const KEEP_UNREACHABLE: SignedDuration = SignedDuration::from_hours(14 * 24);
/// How often a repack is repeated because another process has replaced packs meanwhile.
const MAX_ATTEMPTS: usize = 5;
/// The number of repositories that are listed at a time.
const LIST_BATCH: i64 = 500;
/// The number of repositories for which a sweep enqueues maintenance.
const MAX_DUE_REPOSITORIES: i64 = 100;

/// The refs and live packs of a repository.
struct RepositoryState {
    record: RepositoryRecord,
    storage: StorageId,
    refs: Arc<Refs>,
    packs: Vec<PackRecord>,
}

impl RepositoryState {
    /// Reads the state and makes sure that the folder has the packs.
    async fn load(forge: &Forge, project: ProjectId) -> Result<Option<Self>> {
        let load = move |tx: &mut ReadTx<'_>| {
            let Some(record) = store::repositories::find(tx.db(), project)? else { return Ok(None) };
            let Some(state) = Self::read(tx, record)? else { return Ok(None) };
            tx.open_repository(&state.record, &state.storage)?;
            Ok(Some(state))
        };
        forge.read(Caller::system(), load).await
    }

    /// Like [`Self::load`], in a new drop epoch: objects that are unreachable now stay so. Pushes that were inspected before
    /// are inspected again, and a push cannot refer to an unreachable object.
    async fn load_in_new_epoch(forge: &Forge, project: ProjectId) -> Result<Option<Self>> {
        let load = move |tx: &mut WriteTx<'_>| {
            let Some(record) = store::repositories::increase_drop_epoch(tx.db(), project)? else { return Ok(None) };
            Self::read(tx.read(), record)
        };
        let state = forge.write(Caller::system(), load).await?;
        // The folder has all packs of this state if it has those of a later one.
        Ok(if Self::load(forge, project).await?.is_some() { state } else { None })
    }

    /// Returns `None` if the project is being removed: its folder must not be created again.
    fn read(tx: &mut ReadTx<'_>, record: RepositoryRecord) -> Result<Option<Self>> {
        if store::projects::is_soft_deleted(tx.db(), record.project)? {
            return Ok(None);
        }
        let Some(storage) = store::projects::storage_of(tx.db(), record.project)? else { return Ok(None) };
        let refs = tx.refs_of(&record)?;
        let mut packs = store::packs::of_repository(tx.db(), record.id)?;
        packs.retain(|pack| pack.dead_since.is_none());
        Ok(Some(Self { record, storage, refs, packs }))
    }

    /// Leaves out packs that have only unreachable objects.
    fn without_unreachable_packs(mut self) -> Self {
        self.packs.retain(|pack| pack.unreachable_since.is_none());
        self
    }

    /// Returns the sizes of the packs, once for packs with the same content.
    fn sizes(&self) -> Vec<PackSize> {
        let objects = |pack: &PackRecord| u64::try_from(pack.objects).unwrap_or_default();
        let sizes: BTreeMap<Oid, u64> = self.packs.iter().map(|pack| (pack.checksum, objects(pack))).collect();
        sizes.into_iter().map(|(checksum, objects)| PackSize { checksum, objects }).collect()
    }

    /// Returns the ids of the packs with these checksums.
    fn ids(&self, checksums: &[Oid]) -> Vec<PackId> {
        self.packs.iter().filter(|pack| checksums.contains(&pack.checksum)).map(|pack| pack.id).collect()
    }

    fn total_bytes(&self) -> i64 {
        self.packs.iter().map(|pack| pack.bytes).sum()
    }
}

/// The result of maintenance that was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepackReport {
    /// The size of the packs before, in bytes.
    pub bytes_before: i64,
    /// The size of the packs afterwards, in bytes.
    pub bytes_after: i64,
    /// Projects that may have the same objects, such as forks; they keep them.
    pub related_projects: Vec<ProjectId>,
}

/// Whether new packs were listed in place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepackOutcome {
    /// They were, or there was nothing to replace.
    Done,
    /// Another process has replaced packs meanwhile; nothing was changed.
    Outdated,
}

/// What maintenance has done in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintained {
    /// The generation of the repository before.
    pub generation: i64,
    /// Whether the packs were indexed.
    pub is_indexed: bool,
}

/// Combines and indexes the packs of a repository, and moves objects that were unreachable for a while to a pack of their
/// own. Many packs are combined only: more are about to come, and to index a large repository takes long. Pushes may
/// continue meanwhile. Returns `None` if there is no repository.
pub async fn run(forge: &Forge, project: ProjectId) -> Result<Option<Maintained>> {
    let _lock = forge.shared().repository_locks.acquire(project).await;
    let Some(state) = RepositoryState::load(forge, project).await? else { return Ok(None) };
    let record = state.record;
    let is_indexed = state.packs.len() < MANY_PACKS;
    if record.unreachable_since.is_some_and(|since| since + SEPARATE_AFTER <= forge.now()) {
        // If another process was faster, the next run continues.
        separate_unreachable(forge, project).await?;
    } else {
        let state = state.without_unreachable_packs();
        let combine = |repositories: &Repositories, state: &RepositoryState| {
            repositories.combine_packs(&state.storage, &state.sizes())
        };
        repack(forge, state, combine, |_, _| Ok(())).await?;
    }
    if is_indexed {
        index(forge, project).await?;
    }
    Ok(Some(Maintained { generation: record.generation, is_indexed }))
}

/// Lists the sizes of all repositories.
pub async fn list(forge: &Forge) -> Result<Vec<RepositorySize>> {
    let mut sizes: Vec<RepositorySize> = Vec::new();
    loop {
        let after = sizes.last().map_or(RepositoryId::new(0), |size| size.id);
        let list = move |tx: &mut ReadTx<'_>| Ok(store::repositories::sizes(tx.db(), after, LIST_BATCH)?);
        let batch = forge.read(Caller::system(), list).await?;
        if batch.is_empty() {
            return Ok(sizes);
        }
        sizes.extend(batch);
    }
}

/// Writes all reachable objects of a repository into one pack and moves the others to a pack of their own. `None` if the
/// project has no repository.
pub async fn collect_garbage(forge: &Forge, project: ProjectId) -> Result<Option<RepackReport>> {
    let _lock = forge.shared().repository_locks.acquire(project).await;
    let Some(before) = RepositoryState::load(forge, project).await? else { return Ok(None) };
    let related_projects = find_related_projects(forge, before.record).await?;
    for _ in 0..MAX_ATTEMPTS {
        if separate_unreachable(forge, project).await? == RepackOutcome::Done {
            return finish(forge, &before, related_projects).await;
        }
    }
    Err(Error::Busy)
}

/// Writes all reachable objects of a repository into one pack and removes the others at once. A fetch that is running may
/// fail. `None` if the project has no repository.
pub async fn prune(forge: &Forge, project: ProjectId) -> Result<Option<RepackReport>> {
    let _lock = forge.shared().repository_locks.acquire(project).await;
    let Some(before) = RepositoryState::load(forge, project).await? else { return Ok(None) };
    let related_projects = find_related_projects(forge, before.record).await?;
    for _ in 0..MAX_ATTEMPTS {
        let Some(state) = RepositoryState::load_in_new_epoch(forge, project).await? else { return Ok(None) };
        let drop_unreachable = |repositories: &Repositories, state: &RepositoryState| {
            repositories.repack_reachable(&state.storage, &state.refs, &state.sizes(), Unreachable::Drop)
        };
        let forget_replaced = |tx: &mut WriteTx<'_>, record: &RepositoryRecord| {
            finish_separation(tx, record)?;
            store::packs::forget_dead_packs_of(tx.db(), record.id)?;
            // The server removes them from its folder when it sees another epoch.
            store::repositories::increase_pack_epoch(tx.db(), record.id)?;
            Ok(())
        };
        let repository = state.record.id;
        if repack(forge, state, drop_unreachable, forget_replaced).await? == RepackOutcome::Done {
            unlink_forgotten_packs(forge, repository).await?;
            delete_unused_packs(forge).await?;
            return finish(forge, &before, related_projects).await;
        }
    }
    Err(Error::Busy)
}

/// Makes the server index the packs, and returns the report.
async fn finish(
    forge: &Forge,
    before: &RepositoryState,
    related_projects: Vec<ProjectId>,
) -> Result<Option<RepackReport>> {
    let project = before.record.project;
    let enqueue = move |tx: &mut WriteTx<'_>| tasks::enqueue_now(tx, &Task::Housekeeping(project));
    forge.write(Caller::system(), enqueue).await?;
    let after = RepositoryState::load(forge, project).await?;
    Ok(after.map(|after| RepackReport {
        bytes_before: before.total_bytes(),
        bytes_after: after.total_bytes(),
        related_projects,
    }))
}

/// Returns the projects that may have objects of a repository.
async fn find_related_projects(forge: &Forge, record: RepositoryRecord) -> Result<Vec<ProjectId>> {
    forge.read(Caller::system(), move |tx| Ok(store::packs::related_projects(tx.db(), &record)?)).await
}

/// Moves unreachable objects to a pack of their own.
async fn separate_unreachable(forge: &Forge, project: ProjectId) -> Result<RepackOutcome> {
    let Some(state) = RepositoryState::load_in_new_epoch(forge, project).await? else {
        return Ok(RepackOutcome::Done);
    };
    let separate = |repositories: &Repositories, state: &RepositoryState| {
        repositories.repack_reachable(&state.storage, &state.refs, &state.sizes(), Unreachable::Separate)
    };
    repack(forge, state.without_unreachable_packs(), separate, finish_separation).await
}

/// Records that objects which were unreachable in the generation of a record need not be separated again.
fn finish_separation(tx: &mut WriteTx<'_>, record: &RepositoryRecord) -> Result<()> {
    let now = tx.now();
    Ok(store::repositories::finish_separation(tx.db(), record.id, record.generation, now)?)
}

/// Builds new packs, stores them, and lists them in place of the old ones in one transaction, which calls `then`.
async fn repack(
    forge: &Forge,
    state: RepositoryState,
    build: impl FnOnce(&Repositories, &RepositoryState) -> git::Result<Option<Repack>> + Send + 'static,
    then: impl Fn(&mut WriteTx<'_>, &RepositoryRecord) -> Result<()> + Send + 'static,
) -> Result<RepackOutcome> {
    forge.require_free_space()?;
    let (handle, record) = (forge.clone(), state.record);
    let building = move || {
        let Some(repack) = build(&handle.shared().repositories, &state)? else {
            return Ok((Vec::new(), Vec::new()));
        };
        let mut packs = pushes::store_packs(&handle, &repack.packs)?;
        match pushes::store_packs(&handle, &repack.unreachable) {
            Ok(unreachable) => {
                packs.extend(unreachable.into_iter().map(|pack| NewPack { is_unreachable: true, ..pack }));
            }
            Err(error) => {
                pushes::discard_packs(&handle, &packs);
                return Err(error);
            }
        }
        Ok((state.ids(&repack.replaced), packs))
    };
    let (old, new) = blocking::spawn(building).await?;
    let stored = new.clone();
    let (combined, created, pack_epoch) = (old.len(), new.len(), record.pack_epoch);
    let replacement = PackReplacement { pack_epoch, old, new };
    let replace = move |tx: &mut WriteTx<'_>| {
        let now = tx.now();
        let has_changes = !replacement.old.is_empty() || !replacement.new.is_empty();
        if has_changes && !store::packs::replace_packs(tx.db(), record.id, &replacement, now)? {
            return Ok(RepackOutcome::Outdated);
        }
        then(tx, &record)?;
        Ok(RepackOutcome::Done)
    };
    let outcome = forge.write(Caller::system(), replace).await;
    if matches!(outcome, Ok(RepackOutcome::Outdated) | Err(Error::DiskFull(_))) {
        let handle = forge.clone();
        blocking::spawn(move || {
            pushes::discard_packs(&handle, &stored);
            Ok(())
        })
        .await?;
    }
    let outcome = outcome?;
    if created > 0 {
        let replaced = outcome == RepackOutcome::Done;
        info!(project.id = record.project.get(), packs = combined, new_packs = created, replaced, "repacked");
    }
    Ok(outcome)
}

/// Builds the indexes over all packs of a repository, and writes the refs for people who look at the folder with git.
async fn index(forge: &Forge, project: ProjectId) -> Result<()> {
    let Some(state) = RepositoryState::load(forge, project).await? else { return Ok(()) };
    let repositories = forge.shared().repositories.clone();
    blocking::spawn(move || {
        repositories.build_indexes(&state.storage, &state.refs, &state.sizes())?;
        Ok(repositories.write_refs(&state.storage, &state.refs)?)
    })
    .await
}

/// Removes packs that were replaced or whose repositories were removed, packs of objects that were unreachable for long, and
/// files that no row lists. Enqueues the maintenance of repositories with unreachable objects.
pub(crate) async fn sweep_packs(forge: &Forge) -> Result<()> {
    let enqueue_due = |tx: &mut WriteTx<'_>| {
        let now = tx.now();
        store::packs::expire_unreachable_packs(tx.db(), now - KEEP_UNREACHABLE, now)?;
        let due = store::repositories::with_unreachable_objects(tx.db(), now - SEPARATE_AFTER, MAX_DUE_REPOSITORIES)?;
        due.into_iter().try_for_each(|project| tasks::enqueue(tx, &Task::Housekeeping(project), now))
    };
    forge.write(Caller::system(), enqueue_due).await?;
    loop {
        let forget = |tx: &mut WriteTx<'_>| {
            let before = tx.now() - DEAD_PACK_GRACE;
            Ok(store::packs::forget_dead_packs(tx.db(), before, PACK_BATCH)?)
        };
        let repositories: BTreeSet<RepositoryId> = forge.write(Caller::system(), forget).await?.into_iter().collect();
        if repositories.is_empty() {
            break;
        }
        for repository in repositories {
            if let Err(error) = unlink_forgotten_packs(forge, repository).await {
                // Others are not affected.
                warn!(%error, repository.id = repository.get(), "cannot remove replaced packs from a folder");
            }
        }
    }
    delete_unused_packs(forge).await?;
    remove_unlisted_files(forge).await
}

/// Removes the packs from the folder of a repository that it no longer has.
async fn unlink_forgotten_packs(forge: &Forge, repository: RepositoryId) -> Result<()> {
    forge.shared().repository_cache.forget_links(repository);
    let open = move |tx: &mut ReadTx<'_>| {
        let Some(record) = store::repositories::by_id(tx.db(), repository)? else { return Ok(()) };
        match RepositoryState::read(tx, record)? {
            Some(state) if tx.shared().repositories.has_folder(&state.storage) => {
                tx.open_repository(&state.record, &state.storage).map(drop)
            }
            Some(_) | None => Ok(()),
        }
    };
    forge.read(Caller::system(), open).await
}

/// Deletes packs that no repository has.
async fn delete_unused_packs(forge: &Forge) -> Result<()> {
    loop {
        let delete = |tx: &mut WriteTx<'_>| Ok(store::packs::delete_unused_packs(tx.db(), PACK_BATCH)?);
        let keys = forge.write(Caller::system(), delete).await?;
        if keys.is_empty() {
            return Ok(());
        }
        pushes::remove_packs(forge, keys).await?;
    }
}

/// Removes the files of packs that no row lists.
async fn remove_unlisted_files(forge: &Forge) -> Result<()> {
    let files = forge.shared().files.clone();
    let now = time_of_files(forge);
    let keys = blocking::spawn(move || {
        let (mut old, mut young) = (BTreeSet::new(), BTreeSet::new());
        files.list(PACK_FOLDER, &mut |entry| {
            // Each file is considered: an interrupted push or removal can leave any of them.
            let pack = entry.key.rsplit_once('.').filter(|(_, extension)| PACK_EXTENSIONS.contains(extension));
            if let Some((key, _)) = pack {
                let is_old = now.duration_since(entry.modified).is_ok_and(|age| age > UNLISTED_FILE_AGE);
                if is_old {
                    old.insert(key.to_owned())
                } else {
                    young.insert(key.to_owned())
                };
            }
            Ok(())
        })?;
        old.retain(|key| !young.contains(key));
        Ok::<_, Error>(old.into_iter().collect::<Vec<_>>())
    });
    for batch in keys.await?.chunks(KEY_BATCH) {
        let keys = batch.to_vec();
        let known = forge.read(Caller::system(), move |tx| Ok(store::packs::known_keys(tx.db(), &keys)?)).await?;
        let unlisted: Vec<String> = batch.iter().filter(|key| !known.contains(key)).cloned().collect();
        if !unlisted.is_empty() {
            info!(files = unlisted.len(), "removing packs that no repository lists");
            pushes::remove_packs(forge, unlisted).await?;
        }
    }
    Ok(())
}

/// Returns the time to compare with the times of stored files: the earlier one of the clock of the forge and that of this
/// machine.
///
/// The times in a bucket are those of another machine, which the clock of the database is compared with; those in a folder
/// are of this machine. If one of the two clocks is fast, no file of a push in progress looks old; if one is slow, files
/// only stay longer.
pub(crate) fn time_of_files(forge: &Forge) -> SystemTime {
    SystemTime::now().min(forge.now().into())
}
