//! One repository, open for reading.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gix::odb::store::init::Slots;

use crate::{
    Error, Result,
    contributors::Authors,
    history::GraphFile,
    limits::UNRESERVED,
    packs::{self, Packs},
    snapshot::{Snapshot, SnapshotCell},
};

/// How much memory a handle spends on objects that it has unpacked.
const OBJECT_CACHE: usize = 4 * 1024 * 1024;
/// How much on those that others are packed as differences from. Versions of a file or a folder lie next to each other in
/// a pack, so whoever goes through a history needs each of them again at once.
const BASE_CACHE: usize = 2 * 1024 * 1024;
/// How many packs may be added to a repository while a handle to it is open. gix reserves memory for each of them.
const SPARE_PACKS: usize = 96;
/// The largest number of packs that gix can have open.
const MOST_PACKS: usize = 32_767;

/// Objects of a pack that others are built from.
pub(crate) type Bases = gix::odb::pack::cache::lru::StaticLinkedList<64>;

/// What is shared by everybody who reads one repository.
pub(crate) struct Handle {
    pub(crate) path: PathBuf,
    pub(crate) gix: gix::ThreadSafeRepository,
    /// The refs as they were last read, and the marks on disk that tell whether they still stand.
    refs: SnapshotCell,
    /// Held while the refs are read.
    reading: Mutex<()>,
    /// The commit-graph that was last found, and the marks of its files.
    graph: Mutex<Option<GraphFile>>,
    /// Who wrote the commits that were last counted.
    authors: Mutex<Authors>,
    /// The packs as they were last listed.
    packs: Mutex<Option<Arc<Packs>>>,
    /// How many packs there were when the handle was opened.
    packs_at_open: usize,
}

/// One repository, open for reading on one thread.
pub struct Repository {
    pub(crate) handle: Arc<Handle>,
    pub(crate) gix: gix::Repository,
    /// The bases of blobs, which are read past the other caches.
    pub(crate) blob_bases: RefCell<Box<Bases>>,
    /// The packs, once they were needed.
    pub(crate) packs: RefCell<Option<Arc<Packs>>>,
}

impl Handle {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Nothing but the repository's own configuration counts: not the machine's, not the user's, no environment.
        let limit = format!("gitoxide.objects.allocLimit={UNRESERVED}");
        let packs_at_open = packs::count(path)?;
        let slots = (packs_at_open + SPARE_PACKS).min(MOST_PACKS);
        let slots = Slots::Given(u16::try_from(slots).expect("fits"));
        let options =
            gix::open::Options::isolated().open_path_as_is(true).object_store_slots(slots).config_overrides([limit]);
        let gix = gix::open_opts(path, options).map_err(Error::broken)?.into_sync();
        let path = path.to_owned();
        Ok(Self {
            path,
            gix,
            refs: Mutex::default(),
            reading: Mutex::default(),
            graph: Mutex::default(),
            authors: Mutex::default(),
            packs: Mutex::default(),
            packs_at_open,
        })
    }

    /// Whether so many packs were added that the handle has to be opened anew, while those who read with it can go on.
    pub(crate) fn is_outgrown(&self) -> Result<bool> {
        Ok(packs::count(&self.path)? >= self.packs_at_open + SPARE_PACKS / 2)
    }

    /// Lets the refs be read anew by whoever asks next.
    pub(crate) fn forget_refs(&self) {
        *self.refs() = None;
    }

    pub(crate) fn refs(&self) -> MutexGuard<'_, Option<Snapshot>> {
        self.refs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else reads the refs.
    pub(crate) fn read_refs_alone(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn graph(&self) -> MutexGuard<'_, Option<GraphFile>> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn authors(&self) -> MutexGuard<'_, Authors> {
        self.authors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn packs(&self) -> MutexGuard<'_, Option<Arc<Packs>>> {
        self.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Repository {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let mut gix = handle.gix.to_thread_local();
        gix.object_cache_size_if_unset(OBJECT_CACHE);
        gix.objects.set_pack_cache(|| Box::new(Bases::new(BASE_CACHE)));
        // A pushed `refs/replace/` must not change what other people read.
        gix.objects.ignore_replacements = true;
        let blob_bases = RefCell::new(Box::new(Bases::new(BASE_CACHE)));
        Self { handle, gix, blob_bases, packs: RefCell::new(None) }
    }

    /// The folder of the repository.
    pub fn path(&self) -> &Path {
        &self.handle.path
    }

    /// Lets the refs be read anew by whoever asks next. For those who have just moved one.
    pub fn forget_refs(&self) {
        self.handle.forget_refs();
    }
}

/// An object's name as the rest of the house knows it.
pub(crate) fn oid(id: &gix::oid) -> model::Oid {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(id.as_bytes());
    model::Oid(bytes)
}

/// An object's name as gix knows it.
pub(crate) fn gix_id(id: model::Oid) -> gix::ObjectId {
    gix::ObjectId::Sha1(id.0)
}
