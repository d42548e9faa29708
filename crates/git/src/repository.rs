//! One repository, open for reading.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use gix::odb::{memory::Storage, store::init::Slots};

use crate::{
    Error, FolderGuard, Refs, Result,
    contributors::ContributorCache,
    history::GraphFile,
    limits::MAX_UNRESERVED,
    packs::{self, Packs},
};

/// The memory that a handle spends on unpacked objects, in bytes.
const OBJECT_CACHE_BYTES: usize = 4 * 1024 * 1024;
/// The memory for the bases of deltas, in bytes. Versions of a file or a folder are neighbours in a pack, so a walk
/// over a history needs each base again soon.
pub(crate) const BASE_CACHE_BYTES: usize = 2 * 1024 * 1024;
/// How many packs can be added to a repository while a handle is open. gix reserves memory for each of them.
const SPARE_PACKS: usize = 96;
/// The maximum number of packs that gix can have open.
const MAX_PACKS: usize = 32_767;

/// A cache of objects that deltas in a pack build upon.
pub(crate) type DeltaBaseCache = gix::odb::pack::cache::lru::StaticLinkedList<64>;

/// The state that all readers of one repository share.
pub(crate) struct Handle {
    pub(crate) path: PathBuf,
    pub(crate) gix: gix::ThreadSafeRepository,
    /// The last commit-graph, with the stamps of its files.
    graph: Mutex<Option<GraphFile>>,
    /// The result of the last count of contributors.
    contributor_cache: Mutex<ContributorCache>,
    /// The packs as they were last listed.
    packs: Mutex<Option<Arc<Packs>>>,
    /// The number of packs when the handle was opened.
    packs_at_open: usize,
    /// The generation of the refs that were written for git programs; -1 if none were written since the start.
    written_refs: AtomicI64,
}

/// One repository, open for reading on one thread.
pub struct Repository {
    pub(crate) handle: Arc<Handle>,
    pub(crate) gix: gix::Repository,
    refs: Arc<Refs>,
    /// Objects that only this value has.
    pub(crate) new_objects: Storage,
    /// The bases of blobs, which bypass the other caches.
    pub(crate) blob_bases: RefCell<Box<DeltaBaseCache>>,
    /// The packs, once they are needed.
    pub(crate) packs: RefCell<Option<Arc<Packs>>>,
    /// Keeps the folder, unless it is a temporary one.
    pub(crate) guard: Option<Arc<FolderGuard>>,
}

impl Handle {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Only the repository's own configuration applies: not the machine's, not the user's, no environment.
        let limit = format!("gitoxide.objects.allocLimit={MAX_UNRESERVED}");
        let packs_at_open = packs::count(path)?;
        let slots = (packs_at_open + SPARE_PACKS).min(MAX_PACKS);
        let slots = Slots::Given(u16::try_from(slots).expect("fits"));
        let options =
            gix::open::Options::isolated().open_path_as_is(true).object_store_slots(slots).config_overrides([limit]);
        let gix = gix::open_opts(path, options).map_err(Error::corrupt)?.into_sync();
        let path = path.to_owned();
        Ok(Self {
            path,
            gix,
            graph: Mutex::default(),
            contributor_cache: Mutex::default(),
            packs: Mutex::default(),
            packs_at_open,
            written_refs: AtomicI64::new(-1),
        })
    }

    /// Returns whether so many packs were added that the handle has to be reopened. Current readers can continue to use
    /// it.
    pub(crate) fn is_outgrown(&self) -> bool {
        packs::count(&self.path).is_ok_and(|count| count >= self.packs_at_open + SPARE_PACKS / 2)
    }

    /// Returns whether the refs for git programs were written for this generation or a newer one.
    pub(crate) fn has_refs_of(&self, generation: i64) -> bool {
        self.written_refs.load(Ordering::Acquire) >= generation
    }

    /// Records that the refs for git programs were written.
    pub(crate) fn record_refs_of(&self, generation: i64) {
        self.written_refs.store(generation, Ordering::Release);
    }

    pub(crate) fn graph(&self) -> MutexGuard<'_, Option<GraphFile>> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contributor_cache(&self) -> MutexGuard<'_, ContributorCache> {
        self.contributor_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn packs(&self) -> MutexGuard<'_, Option<Arc<Packs>>> {
        self.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Repository {
    pub(crate) fn new(handle: Arc<Handle>, refs: Arc<Refs>) -> Self {
        let mut gix = handle.gix.to_thread_local();
        gix.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        gix.objects.set_pack_cache(|| Box::new(DeltaBaseCache::new(BASE_CACHE_BYTES)));
        // A pushed `refs/replace/` must not change what other users read.
        gix.objects.ignore_replacements = true;
        let blob_bases = RefCell::new(Box::new(DeltaBaseCache::new(BASE_CACHE_BYTES)));
        let packs = RefCell::new(None);
        Self { handle, gix, refs, new_objects: Storage::default(), blob_bases, packs, guard: None }
    }

    /// Keeps the folder of the repository as long as this value.
    pub(crate) fn with_guard(self, guard: FolderGuard) -> Self {
        Self { guard: Some(Arc::new(guard)), ..self }
    }

    /// Opens a repository without refs, and with objects that are not stored yet. Nothing is reachable in it.
    pub(crate) fn with_new_objects(handle: Arc<Handle>, new_objects: Storage) -> Self {
        let mut repository = Self::new(handle, Arc::default());
        repository.gix.objects.set_object_memory(new_objects.clone());
        Self { new_objects, ..repository }
    }

    /// Returns the refs that the repository was opened with.
    pub fn refs(&self) -> &Arc<Refs> {
        &self.refs
    }

    /// Returns the folder of the repository.
    pub fn path(&self) -> &Path {
        &self.handle.path
    }
}

/// Converts an object id of gix.
pub(crate) fn oid(id: &gix::oid) -> model::Oid {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(id.as_bytes());
    model::Oid(bytes)
}

/// Converts an object id to that of gix.
pub(crate) fn gix_id(id: model::Oid) -> gix::ObjectId {
    gix::ObjectId::Sha1(id.0)
}
