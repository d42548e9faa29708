//! The pack files of a repository, opened once and shared by all readers.
//!
//! gix reads most objects. These files serve what it does not offer: determining the kind and the size of an object in
//! a bounded number of steps, and reading large objects in chunks.

use std::{
    cell::RefCell,
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use gix::{
    hash::Kind as HashKind,
    objs::Kind,
    odb::pack::{
        data::{self, Entry, decode::header::ResolvedBase, entry::Header},
        index,
    },
};

use tracing::warn;

use crate::{Error, Repository, Result, file_stamps::FileStamps};

/// The maximum length of a delta chain; git creates at most 4095.
pub(crate) const MAX_DELTA_CHAIN: usize = 4096;

thread_local! {
    static INFLATE: RefCell<gix::zlib::Inflate> = RefCell::default();
}

#[cfg(test)]
thread_local! {
    /// The number of pack files that the current thread has opened.
    pub(crate) static OPENED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// The number of object headers that the current thread has looked up.
    pub(crate) static HEADERS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// Called for every object header that the current thread looks up.
    pub(crate) static ON_HEADER: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// A snapshot of all packs of a repository and of its alternates.
pub(crate) struct Packs {
    files: Vec<Arc<PackFile>>,
    /// The object folders: those of the alternates first, then its own.
    objects: Vec<PathBuf>,
    /// Detect changes of the list; `None` if it has to be read again.
    stamps: Option<FileStamps>,
}

/// One pack. Its data is opened when it is first needed.
pub(crate) struct PackFile {
    path: PathBuf,
    index: index::File,
    data: OnceLock<data::File>,
}

impl PackFile {
    fn open(path: PathBuf) -> Result<Self> {
        count_opened();
        let index = index::File::at(&path, HashKind::Sha1).map_err(Error::corrupt)?;
        Ok(Self { path, index, data: OnceLock::new() })
    }

    pub(crate) fn data(&self) -> Result<&data::File> {
        if let Some(data) = self.data.get() {
            return Ok(data);
        }
        count_opened();
        let data = data::File::at(self.path.with_extension("pack"), HashKind::Sha1).map_err(Error::corrupt)?;
        Ok(self.data.get_or_init(|| data))
    }

    pub(crate) fn entry(&self, offset: data::Offset) -> Result<Entry> {
        self.data()?.entry(offset).map_err(Error::corrupt)
    }

    /// Returns the base of a delta that is stored by offset.
    pub(crate) fn base(&self, entry: &Entry, distance: u64) -> Result<Entry> {
        self.entry(base_offset(entry, distance)?)
    }
}

/// Returns the offset of a base that is `distance` bytes before the delta.
pub(crate) fn base_offset(entry: &Entry, distance: u64) -> Result<data::Offset> {
    entry.checked_base_pack_offset(distance).ok_or_else(|| Error::corrupt("a delta has no base"))
}

/// Returns the size of the object that a delta results in; only the first bytes of the delta are inflated.
pub(crate) fn result_size(pack: &data::File, delta: &Entry) -> Result<u64> {
    // With a base outside the pack, gix does not follow the chain.
    let header = Header::RefDelta { base_id: HashKind::Sha1.null() };
    let delta = Entry { header, ..delta.clone() };
    let elsewhere = |_: &gix::oid| Ok(Some(ResolvedBase::OutOfPack { kind: Kind::Blob, num_deltas: None }));
    let found = INFLATE.with_borrow_mut(|inflate| pack.decode_header(delta, inflate, &elsewhere));
    Ok(found.map_err(Error::corrupt)?.object_size)
}

/// The error for an object whose delta chain is too long.
pub(crate) fn too_deep(id: &gix::oid) -> Error {
    Error::TooLarge(format!(
        "the object {id} is stored as a chain of more than {MAX_DELTA_CHAIN} deltas; shorten it with git repack -adf --depth=50"
    ))
}

impl Packs {
    /// Opens the packs of a repository; packs that are already open are reused.
    fn list(repository: &Path, existing: Option<&Self>) -> Result<Self> {
        let mut stamps = FileStamps::new();
        stamps.record(&repository.join("objects/info/alternates"))?;
        let objects = object_folders(repository)?;
        let existing: HashMap<&Path, &Arc<PackFile>> =
            existing.into_iter().flat_map(|existing| &existing.files).map(|file| (file.path.as_path(), file)).collect();
        let mut files = Vec::new();
        for folder in &objects {
            let folder = folder.join("pack");
            stamps.record(&folder)?;
            for path in indices(&folder)? {
                match existing.get(path.as_path()) {
                    Some(file) => files.push(Arc::clone(file)),
                    // It was removed since.
                    None => files.extend(PackFile::open(path).ok().map(Arc::new)),
                }
            }
        }
        Ok(Self { files, objects, stamps: stamps.are_reliable().then_some(stamps) })
    }

    fn is_current(&self) -> bool {
        self.stamps.as_ref().is_some_and(FileStamps::are_current)
    }

    /// Returns the packs that contain an object, with its offset in each of them.
    fn find<'a>(&'a self, id: &'a gix::oid) -> impl Iterator<Item = (&'a Arc<PackFile>, data::Offset)> + 'a {
        self.files.iter().filter_map(move |file| Some((file, file.index.pack_offset_at_index(file.index.lookup(id)?))))
    }

    /// Returns the object folders, including those of the alternates.
    pub(crate) fn objects(&self) -> &[PathBuf] {
        &self.objects
    }
}

impl Repository {
    /// Returns the packs as they were when this value first needed them or last refreshed them.
    pub(crate) fn packs(&self) -> Result<Arc<Packs>> {
        if let Some(packs) = &*self.packs.borrow() {
            return Ok(Arc::clone(packs));
        }
        let current = self.handle.packs().clone().filter(|packs| packs.is_current());
        match current {
            Some(packs) => {
                self.packs.replace(Some(Arc::clone(&packs)));
                Ok(packs)
            }
            None => self.refresh_packs(),
        }
    }

    /// Lists the packs again, for a reader that misses an object: a repack may have moved it.
    pub(crate) fn refresh_packs(&self) -> Result<Arc<Packs>> {
        let existing = self.handle.packs().clone();
        let packs = Arc::new(Packs::list(self.path(), existing.as_deref())?);
        *self.handle.packs() = Some(Arc::clone(&packs));
        self.packs.replace(Some(Arc::clone(&packs)));
        Ok(packs)
    }

    /// Finds an object in the packs; `None` if it is in none of them. The packs are listed again once if the object is
    /// in a pack that was removed.
    pub(crate) fn find_packed(&self, id: &gix::oid) -> Result<Option<(Arc<PackFile>, Entry)>> {
        let mut packs = self.packs()?;
        for attempt in 0..2 {
            let mut failure = None;
            for (pack, offset) in packs.find(id) {
                match pack.entry(offset) {
                    Ok(entry) => return Ok(Some((Arc::clone(pack), entry))),
                    Err(error) => failure = Some(error),
                }
            }
            match failure {
                None => return Ok(None),
                Some(_) if attempt == 0 => packs = self.refresh_packs()?,
                Some(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the kind of an object in a bounded number of steps; `None` if it does not exist.
    pub(crate) fn kind(&self, id: &gix::oid) -> Result<Option<Kind>> {
        count_header();
        match self.find_packed(id) {
            Ok(Some((pack, entry))) => self.base_kind(id, pack, entry).map(Some),
            Ok(None) | Err(_) => match self.header_elsewhere(id)? {
                Some(header) => Ok(Some(header.kind())),
                None => match self.find_in_new_pack(id)? {
                    Some((pack, entry)) => self.base_kind(id, pack, entry).map(Some),
                    None => Ok(None),
                },
            },
        }
    }

    /// Finds an object in a pack that was added since the packs were listed; every push adds one.
    pub(crate) fn find_in_new_pack(&self, id: &gix::oid) -> Result<Option<(Arc<PackFile>, Entry)>> {
        self.refresh_packs()?;
        let found = self.find_packed(id)?;
        if found.is_some() {
            warn!(object = %id, repository = %self.path().display(), "found an object only after listing the packs again");
        }
        Ok(found)
    }

    /// Returns the kind and the size of an object in a bounded number of steps, without reading all of it.
    pub(crate) fn header(&self, id: &gix::oid) -> Result<Option<(Kind, u64)>> {
        count_header();
        let Ok(Some((pack, entry))) = self.find_packed(id) else {
            return Ok(self.header_elsewhere(id)?.map(|header| (header.kind(), header.size())));
        };
        let size = if entry.header.is_delta() { result_size(pack.data()?, &entry)? } else { entry.decompressed_size };
        Ok(Some((self.base_kind(id, pack, entry)?, size)))
    }

    /// Returns the header of an object that is loose, in a new pack, or in a pack that can be mapped only once.
    fn header_elsewhere(&self, id: &gix::oid) -> Result<Option<gix::odb::find::Header>> {
        self.gix.try_find_header(id).map_err(Error::corrupt)
    }

    /// Returns the kind of the object that a delta chain starts from, which is that of all objects of the chain.
    fn base_kind(&self, id: &gix::oid, mut pack: Arc<PackFile>, mut entry: Entry) -> Result<Kind> {
        for _ in 0..=MAX_DELTA_CHAIN {
            if let Some(kind) = entry.header.as_kind() {
                return Ok(kind);
            }
            match entry.header {
                Header::OfsDelta { base_distance } => entry = pack.base(&entry, base_distance)?,
                Header::RefDelta { base_id } => {
                    let Some(found) = self.find_packed(&base_id)? else {
                        let missing = || Error::corrupt(format!("the object {base_id} is missing"));
                        return Ok(self.header_elsewhere(&base_id)?.ok_or_else(missing)?.kind());
                    };
                    (pack, entry) = found;
                }
                Header::Commit | Header::Tree | Header::Blob | Header::Tag => {}
            }
        }
        Err(too_deep(id))
    }
}

fn count_opened() {
    #[cfg(test)]
    OPENED.set(OPENED.get() + 1);
}

fn count_header() {
    #[cfg(test)]
    {
        HEADERS.set(HEADERS.get() + 1);
        ON_HEADER.with_borrow(|hook| {
            if let Some(hook) = hook {
                hook();
            }
        });
    }
}

/// Returns the number of packs of a repository and its alternates.
pub(crate) fn count(repository: &Path) -> Result<usize> {
    object_folders(repository)?.iter().map(|folder| Ok(indices(&folder.join("pack"))?.len())).sum()
}

/// Returns the object folders of a repository: those of the alternates first, then its own.
fn object_folders(repository: &Path) -> Result<Vec<PathBuf>> {
    let own = repository.join("objects");
    let mut folders = alternates(&own)?;
    folders.push(own);
    Ok(folders)
}

/// Returns the object folders of the alternates of a repository.
fn alternates(objects: &Path) -> Result<Vec<PathBuf>> {
    let text = match fs::read(objects.join("info/alternates")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(|line| objects.join(OsStr::from_bytes(line))).collect())
}

/// Returns the paths of the indexes of all packs in a folder.
pub(crate) fn indices(packs: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(packs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "idx") {
            found.push(path);
        }
    }
    Ok(found)
}
