//! Converts the repositories of versions that kept refs in files: refs become rows, and packs get keys in the store of files.
//!
//! A migration has listed the projects of that time. One transaction per project inserts its repository, finishes its
//! interrupted pushes and takes it off the list, so an interrupted run continues at the next start. A repository that
//! cannot be converted stays on the list: it can neither be read nor written, and the next start tries again.
//!
//! The folders of repositories are only read, and removed afterwards.

mod interrupted_pushes;

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt as _, stream};
use git::{OldRepository, Peeled, Ref, Repositories};
use model::{Commit, ProjectId, RefName, StorageId};
use store::{
    Conn,
    intents::Intent,
    packs::NewPack,
    repositories::RefUpdate,
    unconverted::{self, UnconvertedRow},
};
use tracing::{error, warn};

use self::interrupted_pushes::{PushOutcome, complete};
use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx, blocking, pushes,
    tasks::{self, Task},
};

/// The number of projects that are listed at a time.
const BATCH: i64 = 1000;
/// How often a conversion that needs too much memory beside others is retried, and the time between two attempts.
const MAX_BUSY_ATTEMPTS: usize = 1000;
const BUSY_DELAY: Duration = Duration::from_millis(100);
/// The number of repositories that are converted at the same time, so that they share commits.
const CONCURRENT_CONVERSIONS: usize = 8;

/// What a run has done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UpgradeReport {
    /// The number of repositories that were converted.
    pub converted: usize,
    /// The number of forks that got their repository from their source.
    pub copied_forks: usize,
    /// The number of interrupted pushes that were completed.
    pub completed_pushes: usize,
    /// The number of interrupted pushes that had changed nothing and were discarded.
    pub discarded_pushes: usize,
    /// The projects whose repositories cannot be converted; the log says why.
    pub failed: Vec<ProjectId>,
}

impl UpgradeReport {
    fn add(&mut self, other: Self) {
        self.converted += other.converted;
        self.copied_forks += other.copied_forks;
        self.completed_pushes += other.completed_pushes;
        self.discarded_pushes += other.discarded_pushes;
        self.failed.extend(other.failed);
    }
}

/// Converts all repositories that are not converted yet. `progress` is called with the number of projects that are done, and
/// the number of all. No request may be served meanwhile.
pub async fn run(forge: &Forge, progress: impl Fn(usize, usize)) -> Result<UpgradeReport> {
    let rows = forge.read(Caller::system(), |tx| Ok(list_all(tx.db())?)).await?;
    let total = rows.len();
    let (forks, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_copy_pending);
    let (mut report, mut done) = (UpgradeReport::default(), 0);
    let mut add = |converted: UpgradeReport| {
        report.add(converted);
        done += 1;
        progress(done, total);
    };
    let mut conversions =
        stream::iter(others).map(|row| try_convert(forge, row)).buffer_unordered(CONCURRENT_CONVERSIONS);
    while let Some(converted) = conversions.next().await {
        add(converted?);
    }
    drop(conversions);
    // The source of a fork is an older project, which may itself be one of them.
    for row in forks {
        add(try_convert(forge, row).await?);
    }
    Ok(report)
}

/// Describes what [`run`] would do, one item per line; empty if there is nothing to do.
pub fn describe(db: &mut Conn, repositories: &Repositories) -> store::Result<Vec<String>> {
    let (mut folders, mut forks, mut missing) = (0, 0, Vec::new());
    for row in list_all(db)? {
        if StorageId::parse(&row.storage).is_some_and(|storage| repositories.has_old_repository(&storage)) {
            folders += 1;
        } else if row.is_copy_pending {
            forks += 1;
        } else if row.default_branch.is_some() {
            missing.push(row.project);
        }
    }
    let pushes = store::intents::count(db)?;
    let counted = [
        (folders, "repositories of an earlier version to convert"),
        (forks, "forks to copy from their sources"),
        (pushes, "interrupted pushes to complete or discard"),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}"));
    let missing = missing.into_iter().map(|project| format!("the repository of project {project} is missing"));
    Ok(counted.chain(missing).collect())
}

fn list_all(db: &mut Conn) -> store::Result<Vec<UnconvertedRow>> {
    let mut rows: Vec<UnconvertedRow> = Vec::new();
    loop {
        let batch = unconverted::list(db, rows.last().map_or(ProjectId::new(0), |row| row.project), BATCH)?;
        if batch.is_empty() {
            return Ok(rows);
        }
        rows.extend(batch);
    }
}

/// Converts the repository of a project. A failure that concerns only this repository is logged and reported.
async fn try_convert(forge: &Forge, row: UnconvertedRow) -> Result<UpgradeReport> {
    let project = row.project;
    let mut attempts = 0;
    let converted = loop {
        match convert(forge, row.clone()).await {
            // Too many others read large lists of refs at the same time.
            Err(Error::Busy) if attempts < MAX_BUSY_ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(BUSY_DELAY).await;
            }
            converted => break converted,
        }
    };
    match converted {
        // The other repositories would fail for the same reason.
        Err(error @ (Error::DiskFull(_) | Error::Unavailable(_) | Error::Store(_))) => Err(error),
        Err(error) => {
            error!(%error, project.id = project.get(), "cannot convert the repository of project {project}; it cannot be used");
            Ok(UpgradeReport { failed: vec![project], ..UpgradeReport::default() })
        }
        converted => converted,
    }
}

async fn convert(forge: &Forge, row: UnconvertedRow) -> Result<UpgradeReport> {
    let project = row.project;
    let load = move |tx: &mut ReadTx<'_>| {
        let is_converted = store::repositories::find(tx.db(), project)?.is_some();
        Ok((is_converted, store::intents::pending_of(tx.db(), project)?))
    };
    let (is_converted, intents) = forge.read(Caller::system(), load).await?;
    if is_converted {
        forge.write(Caller::system(), move |tx| Ok(unconverted::delete(tx.db(), project)?)).await?;
        return Ok(UpgradeReport::default());
    }
    let handle = forge.clone();
    let storage =
        StorageId::parse(&row.storage).ok_or_else(|| Error::internal("invalid storage id", row.storage.as_str()))?;
    let folder = storage.clone();
    let prepared = blocking::spawn(move || PreparedRepository::read(&handle, project, &storage, intents)).await?;
    let has_folder = prepared.is_some();
    let insert = move |tx: &mut WriteTx<'_>| match &prepared {
        Some(prepared) => insert(tx, &row, prepared),
        None => finish_without_folder(tx, &row),
    };
    let report = forge.write(Caller::system(), insert).await?;
    if has_folder {
        // The packs are stored, and loose objects and refs are not read any more.
        let repositories = forge.shared().repositories.clone();
        blocking::spawn(move || Ok(repositories.remove(&folder)?)).await?;
    }
    Ok(report)
}

/// A repository whose packs are stored, with the refs that it has once its interrupted pushes are finished.
struct PreparedRepository {
    refs: BTreeMap<RefName, Ref>,
    head: Option<RefName>,
    packs: Vec<NewPack>,
    interrupted_pushes: Vec<(Intent, PushOutcome)>,
    /// The commits of interrupted pushes, for their pipelines: the repository cannot be opened before it is inserted.
    commits: Vec<Commit>,
}

impl PreparedRepository {
    /// Reads the folder of a repository and stores its packs; `None` if there is no folder.
    fn read(forge: &Forge, project: ProjectId, storage: &StorageId, intents: Vec<Intent>) -> Result<Option<Self>> {
        let Some(old) = forge.shared().repositories.read_old_repository(storage)? else { return Ok(None) };
        let OldRepository { repository, packs, damaged_objects } = old;
        if !damaged_objects.is_empty() {
            warn!(
                project.id = project.get(),
                objects = damaged_objects.len(),
                example = %damaged_objects[0],
                "left out loose objects that are damaged"
            );
        }
        let mut refs: BTreeMap<RefName, Ref> =
            repository.refs().iter().map(|reference| (reference.name.clone(), reference.clone())).collect();
        let head = repository.refs().head.clone();
        let mut interrupted_pushes = Vec::new();
        let mut commits = Vec::new();
        for intent in intents {
            let outcome = PushOutcome::determine(&intent, &mut refs, &repository)?;
            for target in intent.changes.iter().filter_map(|change| change.new) {
                if let Some(Peeled::Commit(id)) = repository.peel(target)? {
                    commits.extend(repository.commit(id)?);
                }
            }
            interrupted_pushes.push((intent, outcome));
        }
        let packs = pushes::store_packs(forge, &packs)?;
        Ok(Some(Self { refs, head, packs, interrupted_pushes, commits }))
    }
}

/// Inserts a repository with everything that follows from its interrupted pushes.
fn insert(tx: &mut WriteTx<'_>, row: &UnconvertedRow, prepared: &PreparedRepository) -> Result<UpgradeReport> {
    let now = tx.now();
    prepared.commits.iter().for_each(|commit| tx.remember_commit(commit.clone()));
    let repository = store::repositories::begin_update(tx.db(), row.project, now)?;
    for pack in &prepared.packs {
        store::packs::add_pack(tx.db(), repository.id, pack, now)?;
    }
    let updates: Vec<RefUpdate<'_>> = prepared
        .refs
        .iter()
        .map(|(name, reference)| RefUpdate { name, old: None, new: Some(reference.target), peeled: reference.peeled })
        .collect();
    store::repositories::update_refs(tx.db(), repository.id, &updates)?;
    // Earlier versions kept unreachable objects forever.
    store::repositories::record_unreachable_objects(tx.db(), repository.id, now)?;
    tasks::enqueue(tx, &Task::Housekeeping(row.project), now + tasks::HOUSEKEEPING_DELAY)?;
    let head = prepared.head.as_ref().filter(|head| prepared.refs.contains_key(head));
    if let (None, Some(head)) = (&row.default_branch, head) {
        store::projects::set_default_branch(tx.db(), row.project, Some(head.short()), now)?;
    }
    let mut report = UpgradeReport { converted: 1, ..UpgradeReport::default() };
    for (intent, outcome) in &prepared.interrupted_pushes {
        match outcome {
            PushOutcome::Completed { moved } => {
                complete(tx, intent, moved)?;
                report.completed_pushes += 1;
            }
            PushOutcome::Discarded => {
                store::intents::delete(tx.db(), intent.id)?;
                report.discarded_pushes += 1;
            }
        }
    }
    unconverted::delete(tx.db(), row.project)?;
    Ok(report)
}

/// Finishes a project without a folder: nothing was pushed to it yet, or it is a fork that was not copied yet.
fn finish_without_folder(tx: &mut WriteTx<'_>, row: &UnconvertedRow) -> Result<UpgradeReport> {
    let mut report = UpgradeReport::default();
    let link = if row.is_copy_pending { store::forks::find(tx.db(), row.project)? } else { None };
    if let Some(link) = link {
        // Fails if the source is not converted.
        if let Some(source) = tx.read().find_repository(link.source)? {
            let now = tx.now();
            store::repositories::copy(tx.db(), source.id, row.project, now)?;
            let source = tx.project(&ProjectRef::Id(link.source), ProjectAbility::ReadProject)?;
            store::projects::set_default_branch(tx.db(), row.project, source.default_branch.as_deref(), now)?;
            report.copied_forks = 1;
        }
    } else if row.default_branch.is_some() {
        let path = StorageId::parse(&row.storage).map(|storage| tx.shared().repositories.path_of(&storage));
        let cause = path.map(|path| format!("{} does not exist", path.display())).unwrap_or_default();
        return Err(Error::internal("the folder of the repository is missing", cause));
    }
    for intent in store::intents::pending_of(tx.db(), row.project)? {
        store::intents::delete(tx.db(), intent.id)?;
        report.discarded_pushes += 1;
    }
    unconverted::delete(tx.db(), row.project)?;
    Ok(report)
}
