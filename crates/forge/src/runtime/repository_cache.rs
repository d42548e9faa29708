//! Opens repositories: refs and the list of packs come from the database, objects from a folder on disk.
//!
//! Both are cached by the generation of the repository, which grows with every change.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use files::Files;
use git::{OtherPacks, PACK_EXTENSIONS, PackEntry, PackSource, Ref, Refs, Repositories, Repository};
use lru::LruCache;
use model::{Oid, PackContent, RefName, RepositoryId, StorageId};
use store::{Conn, packs::PackRecord, repositories::RepositoryRecord};

use crate::{Error, Result};

/// The maximum number of repositories whose state is cached.
const MAX_CACHED_REPOSITORIES: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// The maximum total size of the cached refs in bytes. The refs of one repository are always cached.
const MAX_CACHED_BYTES: usize = 64 << 20;
/// How often the packs of a repository are listed again because one of them was replaced meanwhile.
const MAX_LINK_ATTEMPTS: usize = 5;

/// The cached refs of repositories, and which packs are linked in their folders.
pub(crate) struct RepositoryCache {
    refs: Mutex<RefsCache>,
    /// The versions of the lists of packs that were linked in the folders.
    linked: Mutex<LruCache<RepositoryId, LinkedPacks>>,
    /// Held while packs are linked, by repository: the older of two lists must not be linked last.
    linking: [Mutex<()>; 16],
    /// When the folders of repositories were last used, by nodes whose files are in a bucket; `None` if not since the start.
    used: Mutex<LruCache<PathBuf, Option<Instant>>>,
}

struct RefsCache {
    entries: LruCache<RepositoryId, CachedRefs>,
    bytes: usize,
}

struct CachedRefs {
    refs: Arc<Refs>,
    bytes: usize,
}

/// Identifies a list of packs: it changes with the refs, or when packs are replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PackVersion {
    generation: i64,
    pack_epoch: i64,
}

/// The packs that are linked in the folder of a repository.
#[derive(Clone, Copy)]
struct LinkedPacks {
    version: PackVersion,
    /// Whether the folder has no others.
    is_checked: bool,
}

/// Gets packs from the store of files, and small ones from the database.
pub(crate) struct StoredPacks<'a> {
    files: &'a Files,
    small: SmallPacks<'a>,
}

/// Where small packs are read from.
enum SmallPacks<'a> {
    /// The connection, and the error of a failed query.
    Database(RefCell<(&'a mut Conn, Option<store::Error>)>),
    /// The contents of all small packs of a repository, by key.
    Loaded(HashMap<String, PackContent>),
}

impl<'a> StoredPacks<'a> {
    fn new(files: &'a Files, db: &'a mut Conn) -> Self {
        Self { files, small: SmallPacks::Database(RefCell::new((db, None))) }
    }

    /// Returns the error that git reported, or the one of the database that caused it.
    fn find_cause(self, error: git::Error) -> Error {
        match self.small {
            SmallPacks::Database(database) => database.into_inner().1.map_or_else(|| error.into(), Error::from),
            SmallPacks::Loaded(_) => error.into(),
        }
    }

    /// Reads files only; the contents of small packs were loaded before.
    pub(crate) fn with_contents(files: &'a Files, contents: HashMap<String, PackContent>) -> Self {
        Self { files, small: SmallPacks::Loaded(contents) }
    }
}

impl PackSource for StoredPacks<'_> {
    fn fetch(&self, key: &str, extension: &str, to: &Path) -> io::Result<bool> {
        self.files.fetch_file(&format!("{key}.{extension}"), to).map_err(|error| match error {
            files::Error::Io(error) => error,
            error => io::Error::other(error),
        })
    }

    fn read(&self, key: &str) -> io::Result<Option<PackContent>> {
        match &self.small {
            SmallPacks::Database(database) => {
                let (db, failure) = &mut *database.borrow_mut();
                store::packs::content(db, key).map_err(|error| {
                    *failure = Some(error);
                    io::Error::other("the database failed")
                })
            }
            SmallPacks::Loaded(contents) => Ok(contents.get(key).cloned()),
        }
    }
}

/// Files of packs that are in the bucket and not in the cache of this node.
#[derive(Debug, thiserror::Error)]
#[error("{} packs are not cached yet", required.len() / 2)]
pub(crate) struct PacksNotCached {
    /// The keys of all files.
    pub(crate) files: Vec<String>,
    /// The keys of those without which a pack cannot be read.
    pub(crate) required: Vec<String>,
}

impl PacksNotCached {
    /// Returns the files that are missing, if this is why a read failed.
    pub(crate) fn in_error(error: &Error) -> Option<&Self> {
        match error {
            Error::Unavailable(cause) => cause.downcast_ref(),
            _ => None,
        }
    }
}

/// Returns the files of packs that have to be fetched from a bucket first.
fn find_uncached(
    (repositories, files): (&Repositories, &Files),
    storage: &StorageId,
    packs: &[PackEntry],
) -> Option<PacksNotCached> {
    let bucket = files.bucket()?;
    let is_missing = |pack: &&PackEntry| {
        let is_cached = |extension| bucket.is_cached(&format!("{}.{extension}", pack.key));
        pack.has_files && !repositories.has_pack(storage, pack.checksum) && !(is_cached("pack") && is_cached("idx"))
    };
    let missing: Vec<&PackEntry> = packs.iter().filter(is_missing).collect();
    let keys = |extensions: &[&str]| -> Vec<String> {
        missing.iter().flat_map(|pack| extensions.iter().map(move |end| format!("{}.{end}", pack.key))).collect()
    };
    (!missing.is_empty()).then(|| PacksNotCached { files: keys(&PACK_EXTENSIONS), required: keys(&["pack", "idx"]) })
}

/// Returns what a repository needs to know about a pack.
pub(crate) fn pack_entry(pack: PackRecord) -> PackEntry {
    PackEntry { key: pack.key, checksum: pack.checksum, has_files: pack.has_files }
}

impl RepositoryCache {
    pub(crate) fn new() -> Self {
        let refs = RefsCache { entries: LruCache::new(MAX_CACHED_REPOSITORIES), bytes: 0 };
        let linked = Mutex::new(LruCache::new(MAX_CACHED_REPOSITORIES));
        Self { refs: Mutex::new(refs), linked, linking: Default::default(), used: Mutex::new(LruCache::unbounded()) }
    }

    /// Returns the refs of a repository. Those that a write transaction sees are not cached: it may be rolled back, and
    /// another one then uses the same generation.
    pub(crate) fn refs(&self, db: &mut Conn, repository: &RepositoryRecord, is_writing: bool) -> Result<Arc<Refs>> {
        if let Some(cached) = lock(&self.refs).entries.get(&repository.id)
            && cached.refs.generation == repository.generation
        {
            return Ok(Arc::clone(&cached.refs));
        }
        let found = store::repositories::refs(db, repository.id)?.ok_or_else(|| Error::not_found("Project"))?;
        let head = found.default_branch.as_deref().and_then(RefName::branch);
        let refs =
            found.refs.into_iter().map(|found| Ref { name: found.name, target: found.target, peeled: found.peeled });
        // A repository without a default branch has one as soon as something is pushed to it.
        let head = head.or_else(|| RefName::branch("master"));
        let refs = Arc::new(Refs::from_sorted(found.generation, head, refs));
        if !is_writing {
            lock(&self.refs).insert(repository.id, Arc::clone(&refs));
        }
        Ok(refs)
    }

    /// Updates the cached refs after a transaction that has changed only these refs was committed, so that the next reader
    /// need not read all of them.
    pub(crate) fn apply_changes(&self, repository: RepositoryId, generation: i64, changes: &[(RefName, Option<Ref>)]) {
        let cached = lock(&self.refs).entries.peek(&repository).map(|cached| Arc::clone(&cached.refs));
        if let Some(cached) = cached.filter(|cached| cached.generation + 1 == generation) {
            let refs = cached.with_changes(changes);
            lock(&self.refs).insert(repository, Arc::new(refs));
        }
    }

    /// Makes sure that the folder of a repository contains its packs, and those of a generation of its refs that was read
    /// later.
    pub(crate) fn link_packs(
        &self,
        db: &mut Conn,
        (repositories, files): (&Repositories, &Files),
        (repository, refs_generation): (&RepositoryRecord, i64),
        storage: &StorageId,
        is_writing: bool,
    ) -> Result<()> {
        if files.bucket().is_some() {
            self.record_use(repositories.path_of(storage));
        }
        let generation = repository.generation.max(refs_generation);
        let wanted = PackVersion { generation, pack_epoch: repository.pack_epoch };
        let is_linked = || {
            let linked = lock(&self.linked).get(&repository.id).copied();
            linked.is_some_and(|linked| linked.is_checked && linked.version.includes(wanted))
                && repositories.has_folder(storage)
        };
        if is_linked() {
            return Ok(());
        }
        let stripe = repository.id.get().unsigned_abs() % self.linking.len() as u64;
        let _linking = lock(&self.linking[usize::try_from(stripe).unwrap_or_default()]);
        if is_linked() {
            return Ok(());
        }
        for _ in 1..MAX_LINK_ATTEMPTS {
            match self.link_listed_packs(db, (repositories, files), repository.id, storage, is_writing) {
                // Outside of a snapshot, a small pack may be replaced after the packs were listed.
                Err(Error::Git(git::Error::MissingPack(_))) => {}
                result => return result,
            }
        }
        self.link_listed_packs(db, (repositories, files), repository.id, storage, is_writing)
    }

    /// Makes the folder of a repository contain the packs that the database lists.
    fn link_listed_packs(
        &self,
        db: &mut Conn,
        (repositories, files): (&Repositories, &Files),
        repository: RepositoryId,
        storage: &StorageId,
        is_writing: bool,
    ) -> Result<()> {
        // Read before the list, which therefore is not older.
        let current = store::repositories::by_id(db, repository)?.ok_or_else(|| Error::not_found("Project"))?;
        let version = PackVersion { generation: current.generation, pack_epoch: current.pack_epoch };
        let (live, dead): (Vec<PackRecord>, Vec<PackRecord>) =
            store::packs::of_repository(db, repository)?.into_iter().partition(|pack| pack.dead_since.is_none());
        let live: Vec<PackEntry> = live.into_iter().map(pack_entry).collect();
        let dead: Vec<Oid> = dead.into_iter().map(|pack| pack.checksum).collect();
        let linked = lock(&self.linked).get(&repository).copied();
        // A transaction with an older snapshot must not remove what others use, and one that writes may be rolled back.
        let is_newest = !is_writing && linked.is_none_or(|linked| version.includes(linked.version));
        let others = if is_newest { OtherPacks::RemoveExcept(&dead) } else { OtherPacks::Keep };
        // A transaction must not wait for the network. The bridge fetches the packs and runs it again.
        if let Some(missing) = find_uncached((repositories, files), storage, &live) {
            return Err(Error::Unavailable(Box::new(missing)));
        }
        let source = StoredPacks::new(files, db);
        repositories.link_packs(storage, &live, &source, others).map_err(|error| source.find_cause(error))?;
        if is_newest {
            lock(&self.linked).put(repository, LinkedPacks { version, is_checked: true });
        }
        Ok(())
    }

    /// Makes the next opening of a repository compare its folder with the list of packs.
    pub(crate) fn forget_links(&self, repository: RepositoryId) {
        if let Some(linked) = lock(&self.linked).get_mut(&repository) {
            linked.is_checked = false;
        }
    }

    /// Records that the folder of a repository is used now.
    pub(crate) fn record_use(&self, folder: PathBuf) {
        lock(&self.used).put(folder, Some(Instant::now()));
    }

    /// Adds folders that earlier processes have left, in the order in which they were used, the last one first.
    pub(crate) fn add_unused(&self, folders: Vec<PathBuf>) {
        let mut used = lock(&self.used);
        for folder in folders {
            if !used.contains(&folder) {
                used.put(folder.clone(), None);
                used.demote(&folder);
            }
        }
    }

    /// Forgets the folder that was not used for longest, if that is at least `idle` ago, and returns it.
    pub(crate) fn take_idle(&self, idle: Duration) -> Option<PathBuf> {
        let mut used = lock(&self.used);
        used.peek_lru().filter(|(_, last)| last.is_none_or(|last| last.elapsed() >= idle))?;
        used.pop_lru().map(|(folder, _)| folder)
    }

    /// Opens a repository.
    pub(crate) fn open(
        &self,
        db: &mut Conn,
        stores: (&Repositories, &Files),
        repository: &RepositoryRecord,
        storage: &StorageId,
        is_writing: bool,
    ) -> Result<Repository> {
        let refs = self.refs(db, repository, is_writing)?;
        // Held until the repository has its own.
        let _guard = stores.0.guard(storage);
        self.link_packs(db, stores, (repository, refs.generation), storage, is_writing)?;
        Ok(stores.0.open(storage, refs)?)
    }
}

impl PackVersion {
    /// Returns whether a folder with this version has all objects of another one: those of packs that were replaced are in
    /// other packs.
    fn includes(self, other: Self) -> bool {
        self.generation >= other.generation && self.pack_epoch >= other.pack_epoch
    }
}

impl RefsCache {
    fn insert(&mut self, repository: RepositoryId, refs: Arc<Refs>) {
        if self.entries.peek(&repository).is_some_and(|cached| cached.refs.generation > refs.generation) {
            // A reader with an older snapshot must not replace newer refs.
            return;
        }
        let bytes = refs.count_bytes();
        self.bytes += bytes;
        if let Some((_, replaced)) = self.entries.push(repository, CachedRefs { refs, bytes }) {
            self.bytes -= replaced.bytes;
        }
        while self.bytes > MAX_CACHED_BYTES
            && self.entries.len() > 1
            && let Some((_, evicted)) = self.entries.pop_lru()
        {
            self.bytes -= evicted.bytes;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
