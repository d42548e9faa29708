//! The pack files of a repository, opened once and shared by all reads.
//!
//! gix reads most objects. What it does not offer happens on these files: finding the kind and the size of an object with a
//! bounded number of steps, and reading large objects in pieces.

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

use crate::{Error, Repository, Result, marks::Marks};

/// How many deltas may build upon one another; git makes 4095 at most.
pub(crate) const LONGEST_CHAIN: usize = 4096;

thread_local! {
    static INFLATE: RefCell<gix::zlib::Inflate> = RefCell::default();
}

#[cfg(test)]
thread_local! {
    /// How many files of packs the current thread has opened.
    pub(crate) static OPENED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// How many kinds of objects the current thread has looked up.
    pub(crate) static HEADERS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// Called whenever the current thread looks up the kind of an object.
    pub(crate) static ON_HEADER: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// All packs of a repository and of those that it borrows objects from, as they were at one moment.
pub(crate) struct Packs {
    files: Vec<Arc<PackFile>>,
    /// The folders of objects: those of other repositories first, then its own.
    objects: Vec<PathBuf>,
    /// Tell whether the list is still right; `None` if it has to be made anew.
    marks: Option<Marks>,
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
        let index = index::File::at(&path, HashKind::Sha1).map_err(Error::broken)?;
        Ok(Self { path, index, data: OnceLock::new() })
    }

    pub(crate) fn data(&self) -> Result<&data::File> {
        if let Some(data) = self.data.get() {
            return Ok(data);
        }
        count_opened();
        let data = data::File::at(self.path.with_extension("pack"), HashKind::Sha1).map_err(Error::broken)?;
        Ok(self.data.get_or_init(|| data))
    }

    pub(crate) fn entry(&self, offset: data::Offset) -> Result<Entry> {
        self.data()?.entry(offset).map_err(Error::broken)
    }

    /// The entry that an entry stored as a difference by offset builds upon.
    pub(crate) fn base(&self, entry: &Entry, distance: u64) -> Result<Entry> {
        self.entry(base_offset(entry, distance)?)
    }
}

/// Where the base of a delta begins that is `distance` bytes before the delta.
pub(crate) fn base_offset(entry: &Entry, distance: u64) -> Result<data::Offset> {
    entry.checked_base_pack_offset(distance).ok_or_else(|| Error::Broken("a delta without a base".into()))
}

/// The size of the object that a delta makes; only the first bytes of the delta are inflated.
pub(crate) fn result_size(pack: &data::File, delta: &Entry) -> Result<u64> {
    // With a base that is said to be elsewhere, gix follows the chain no further.
    let header = Header::RefDelta { base_id: HashKind::Sha1.null() };
    let delta = Entry { header, ..delta.clone() };
    let elsewhere = |_: &gix::oid| Ok(Some(ResolvedBase::OutOfPack { kind: Kind::Blob, num_deltas: None }));
    let found = INFLATE.with_borrow_mut(|inflate| pack.decode_header(delta, inflate, &elsewhere));
    Ok(found.map_err(Error::broken)?.object_size)
}

/// What is said of an object that builds upon too many others.
pub(crate) fn too_deep(id: &gix::oid) -> Error {
    Error::TooLarge(format!(
        "the object {id} is stored as a chain of more than {LONGEST_CHAIN} deltas; shorten it with git repack -adf --depth=50"
    ))
}

impl Packs {
    /// Opens the packs of a repository, or takes over those that are open already.
    fn list(repository: &Path, known: Option<&Self>) -> Result<Self> {
        let mut marks = Marks::new();
        marks.note(&repository.join("objects/info/alternates"))?;
        let objects = object_folders(repository)?;
        let known: HashMap<&Path, &Arc<PackFile>> =
            known.into_iter().flat_map(|known| &known.files).map(|file| (file.path.as_path(), file)).collect();
        let mut files = Vec::new();
        for folder in &objects {
            let folder = folder.join("pack");
            marks.note(&folder)?;
            for path in indices(&folder)? {
                match known.get(path.as_path()) {
                    Some(file) => files.push(Arc::clone(file)),
                    // One that cannot be opened was removed since.
                    None => files.extend(PackFile::open(path).ok().map(Arc::new)),
                }
            }
        }
        Ok(Self { files, objects, marks: marks.are_settled().then_some(marks) })
    }

    fn is_current(&self) -> bool {
        self.marks.as_ref().is_some_and(Marks::stand)
    }

    /// The packs that hold an object, with where it begins in each of them.
    fn find<'a>(&'a self, id: &'a gix::oid) -> impl Iterator<Item = (&'a Arc<PackFile>, data::Offset)> + 'a {
        self.files.iter().filter_map(move |file| Some((file, file.index.pack_offset_at_index(file.index.lookup(id)?))))
    }

    /// The folders of objects, also of repositories that objects are borrowed from.
    pub(crate) fn objects(&self) -> &[PathBuf] {
        &self.objects
    }
}

impl Repository {
    /// The packs as they were when this value first needed them, or when they were last listed anew.
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

    /// Lists the packs anew, for a reader that has not found what has to be there: a repack may have moved it.
    pub(crate) fn refresh_packs(&self) -> Result<Arc<Packs>> {
        let known = self.handle.packs().clone();
        let packs = Arc::new(Packs::list(self.path(), known.as_deref())?);
        *self.handle.packs() = Some(Arc::clone(&packs));
        self.packs.replace(Some(Arc::clone(&packs)));
        Ok(packs)
    }

    /// Finds an object in the packs; `None` if it is in none of them. The packs are listed anew once if the object is in a
    /// pack that has gone.
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

    /// What an object is; `None` if there is none of this name. Takes a bounded number of steps.
    pub(crate) fn kind(&self, id: &gix::oid) -> Result<Option<Kind>> {
        count_header();
        match self.find_packed(id) {
            Ok(Some((pack, entry))) => self.base_kind(id, pack, entry).map(Some),
            Ok(None) | Err(_) => Ok(self.header_elsewhere(id)?.map(|header| header.kind())),
        }
    }

    /// What an object is and how long, without reading all of it. Takes a bounded number of steps.
    pub(crate) fn header(&self, id: &gix::oid) -> Result<Option<(Kind, u64)>> {
        count_header();
        let Ok(Some((pack, entry))) = self.find_packed(id) else {
            return Ok(self.header_elsewhere(id)?.map(|header| (header.kind(), header.size())));
        };
        let size = if entry.header.is_delta() { result_size(pack.data()?, &entry)? } else { entry.decompressed_size };
        Ok(Some((self.base_kind(id, pack, entry)?, size)))
    }

    /// The header of an object that is not packed, or in a pack that has just come or that can be mapped only once.
    fn header_elsewhere(&self, id: &gix::oid) -> Result<Option<gix::odb::find::Header>> {
        self.gix.try_find_header(id).map_err(Error::broken)
    }

    /// The kind of what the first delta of a chain builds upon, which is that of all objects of the chain.
    fn base_kind(&self, id: &gix::oid, mut pack: Arc<PackFile>, mut entry: Entry) -> Result<Kind> {
        for _ in 0..=LONGEST_CHAIN {
            if let Some(kind) = entry.header.as_kind() {
                return Ok(kind);
            }
            match entry.header {
                Header::OfsDelta { base_distance } => entry = pack.base(&entry, base_distance)?,
                Header::RefDelta { base_id } => {
                    let Some(found) = self.find_packed(&base_id)? else {
                        let missing = || Error::Broken(format!("the object {base_id} is missing"));
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

/// How many packs a repository has, with those of repositories that it borrows objects from.
pub(crate) fn count(repository: &Path) -> Result<usize> {
    object_folders(repository)?.iter().map(|folder| Ok(indices(&folder.join("pack"))?.len())).sum()
}

/// The folders of objects of a repository: those of other repositories first, then its own.
fn object_folders(repository: &Path) -> Result<Vec<PathBuf>> {
    let own = repository.join("objects");
    let mut folders = alternates(&own)?;
    folders.push(own);
    Ok(folders)
}

/// The folders of objects that a repository borrows from.
fn alternates(objects: &Path) -> Result<Vec<PathBuf>> {
    let text = match fs::read(objects.join("info/alternates")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(|line| objects.join(OsStr::from_bytes(line))).collect())
}

/// The indices of all packs in a folder.
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
