//! Reads all refs of a repository, and caches them until they change on disk.

use std::{
    collections::{HashMap, VecDeque},
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use gix::{hash::Kind, refs::packed};
use model::{
    Oid, RefName,
    refs::{HIDDEN_PREFIX, RefKind},
};

use crate::{
    Error, Ref, Refs, Repository, Result,
    file_stamps::FileStamps,
    limits::{MAX_UNRESERVED, Reservation, format_size},
    repository::{Handle, oid},
};

/// The maximum size of a loose ref; larger files are ignored.
const MAX_LOOSE_REF_SIZE: u64 = 1024;
/// The maximum size of `packed-refs`: some hundred thousand refs.
const MAX_PACKED_REFS_SIZE: u64 = 32 << 20;
/// The size up to which pushes may grow `packed-refs`, in bytes. The rest is for internal refs of the server.
pub const PACKED_REFS_PUSH_LIMIT: u64 = MAX_PACKED_REFS_SIZE / 4 * 3;
/// The maximum total size of the cached snapshots of all repositories, except for small ones.
pub(crate) const MAX_CACHED_BYTES: usize = 64 << 20;
/// The maximum size of a small snapshot.
const SMALL_SNAPSHOT_BYTES: usize = 64 << 10;
/// The maximum number of symbolic refs that may follow each other.
const MAX_SYMREF_DEPTH: usize = 5;

/// Holds the last snapshot.
pub(crate) type SnapshotCell = Mutex<Option<Snapshot>>;

/// The refs at one moment, with the stamps that detect a change.
pub(crate) struct Snapshot {
    refs: Arc<Refs>,
    stamps: FileStamps,
}

/// The large cached snapshots, oldest first, with their sizes.
static CACHED_SNAPSHOTS: Mutex<VecDeque<(Weak<Handle>, usize)>> = Mutex::new(VecDeque::new());

/// Registers the snapshot of a handle, and evicts the oldest ones if all of them together are too large.
pub(crate) fn register_cached(handle: &Arc<Handle>, bytes: usize) {
    if bytes <= SMALL_SNAPSHOT_BYTES {
        return;
    }
    let mut evicted = Vec::new();
    {
        let mut cached = CACHED_SNAPSHOTS.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|(other, _)| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), Arc::as_ptr(handle)));
        cached.push_back((Arc::downgrade(handle), bytes));
        let mut sum: usize = cached.iter().map(|(_, bytes)| bytes).sum();
        while sum > MAX_CACHED_BYTES
            && cached.len() > 1
            && let Some((oldest, bytes)) = cached.pop_front()
        {
            sum -= bytes;
            evicted.extend(oldest.upgrade());
        }
    }
    for handle in evicted {
        *handle.refs() = None;
    }
}

/// Returns the approximate size of refs in memory.
fn count_bytes(refs: &Refs) -> usize {
    refs.iter().map(|reference| size_of::<Ref>() + reference.name.as_str().len()).sum()
}

/// The content of a loose ref.
enum Loose {
    Id(Oid),
    Symbolic(String),
}

impl Repository {
    /// Returns the current refs.
    ///
    /// A cached snapshot is used while its stamps are current: those of `HEAD`, `packed-refs` and every folder below
    /// `refs/`. That is sufficient, because a loose ref is renamed into its folder, which updates the time of the
    /// folder.
    pub fn refs(&self) -> Result<Arc<Refs>> {
        if let Some(snapshot) = &*self.handle.refs()
            && snapshot.stamps.are_current()
        {
            return Ok(Arc::clone(&snapshot.refs));
        }
        // One reader at a time, because there may be many refs; the others use its result if it is still current.
        let _reading = self.handle.lock_ref_reading();
        if let Some(snapshot) = &*self.handle.refs()
            && snapshot.stamps.are_current()
        {
            return Ok(Arc::clone(&snapshot.refs));
        }
        // After the lock: requests that wait for the refs of one repository must not hold all reservations.
        let packed = self.path().join("packed-refs");
        let _reservation = if file_size(&packed) > MAX_UNRESERVED as u64 { Some(Reservation::take()?) } else { None };
        let (refs, stamps) = self.read_refs()?;
        let refs = Arc::new(refs);
        if stamps.are_reliable() {
            *self.handle.refs() = Some(Snapshot { refs: Arc::clone(&refs), stamps });
            register_cached(&self.handle, count_bytes(&refs));
        } else {
            *self.handle.refs() = None;
        }
        Ok(refs)
    }

    fn read_refs(&self) -> Result<(Refs, FileStamps)> {
        let mut stamps = FileStamps::new();
        let path = self.path();
        stamps.record(&path.join("HEAD"))?;
        let head = match read_loose(&path.join("HEAD"))? {
            Some(Loose::Symbolic(name)) => RefName::new(&name),
            Some(Loose::Id(_)) | None => None,
        };
        // Loose refs come first: `git pack-refs` writes the pack before it removes them, so none is missed.
        let mut found = Vec::new();
        let mut symrefs = HashMap::new();
        self.read_folder(&path.join("refs"), "refs", &mut stamps, &mut found, &mut symrefs)?;
        self.read_packed(&path.join("packed-refs"), &mut stamps, &mut found)?;

        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|later, earlier| later.name == earlier.name);
        resolve_symrefs(&mut found, &symrefs);
        let mut refs = Refs { head, ..Refs::default() };
        for reference in found {
            match reference.name.kind() {
                RefKind::Branch => refs.branches.push(reference),
                RefKind::Tag => refs.tags.push(reference),
                RefKind::Other => refs.others.push(reference),
            }
        }
        Ok((refs, stamps))
    }

    fn read_folder(
        &self,
        folder: &Path,
        name: &str,
        stamps: &mut FileStamps,
        found: &mut Vec<Ref>,
        symrefs: &mut HashMap<RefName, String>,
    ) -> Result<()> {
        if !stamps.record(folder)? {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(part) = entry.file_name().into_string() else { continue };
            let name = format!("{name}/{part}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if HIDDEN_PREFIX.strip_suffix('/') != Some(&name) {
                    self.read_folder(&entry.path(), &name, stamps, found, symrefs)?;
                }
            } else if kind.is_file()
                && let Some(name) = RefName::new(&name).filter(|name| !name.is_hidden())
            {
                match read_loose(&entry.path())? {
                    Some(Loose::Id(target)) => {
                        let peeled = self.peeled_of(&name, target)?;
                        found.push(Ref { name, target, peeled });
                    }
                    Some(Loose::Symbolic(to)) => drop(symrefs.insert(name, to)),
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn read_packed(&self, file: &Path, stamps: &mut FileStamps, found: &mut Vec<Ref>) -> Result<()> {
        if !stamps.record(file)? {
            return Ok(());
        }
        let size = file_size(file);
        if size > MAX_PACKED_REFS_SIZE {
            return Err(Error::TooLarge(format!(
                "the refs have {}; the limit is {}",
                format_size(size),
                format_size(MAX_PACKED_REFS_SIZE)
            )));
        }
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let header = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_peeled =
            header.starts_with(b"#") && header.split(|byte| *byte == b' ').any(|word| word == b"fully-peeled");
        let buffer = packed::Buffer::from_bytes(&bytes, Kind::Sha1).map_err(Error::corrupt)?;
        for packed in buffer.iter().map_err(Error::corrupt)?.filter_map(std::result::Result::ok) {
            let Ok(name) = std::str::from_utf8(packed.name.as_bstr()) else { continue };
            let Some(name) = RefName::new(name).filter(|name| !name.is_hidden()) else { continue };
            let target = oid(&packed.target());
            let peeled = match packed.object {
                Some(_) => Some(oid(&packed.object())),
                None if is_peeled => None,
                None => self.peeled_of(&name, target)?,
            };
            found.push(Ref { name, target, peeled });
        }
        Ok(())
    }

    /// Returns the peeled target of a tag; `None` if it is not an annotated tag, or invalid.
    fn peeled_of(&self, name: &RefName, target: Oid) -> Result<Option<Oid>> {
        // Branches always point to commits, so they are not looked up.
        if name.kind() == RefKind::Branch {
            return Ok(None);
        }
        match self.peel_tag(target) {
            // The tag may be valid; the next reader may succeed.
            Err(Error::Busy) => Err(Error::Busy),
            peeled => Ok(peeled.ok().flatten()),
        }
    }
}

/// Returns the size of a file; 0 if it does not exist.
fn file_size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// Reads a loose ref; `None` if it was removed meanwhile, or is invalid.
fn read_loose(file: &Path) -> Result<Option<Loose>> {
    let text = match fs::metadata(file)
        .and_then(|metadata| if metadata.len() > MAX_LOOSE_REF_SIZE { Ok(Vec::new()) } else { fs::read(file) })
    {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Ok(text) = std::str::from_utf8(&text) else { return Ok(None) };
    Ok(match text.strip_prefix("ref:") {
        Some(name) => Some(Loose::Symbolic(name.trim().to_owned())),
        None => text.trim_ascii_end().parse().ok().map(Loose::Id),
    })
}

/// Adds symbolic refs with their targets; those without a target are left out. `found` stays sorted.
fn resolve_symrefs(found: &mut Vec<Ref>, symrefs: &HashMap<RefName, String>) {
    if symrefs.is_empty() {
        return;
    }
    found.retain(|reference| !symrefs.contains_key(&reference.name));
    let mut resolved = Vec::new();
    for name in symrefs.keys() {
        let mut target = name.clone();
        for _ in 0..MAX_SYMREF_DEPTH {
            let Some(next) = symrefs.get(&target).and_then(|next| RefName::new(next)) else { break };
            target = next;
        }
        if let Ok(index) = found.binary_search_by(|reference| reference.name.cmp(&target)) {
            resolved.push(Ref { name: name.clone(), ..found[index].clone() });
        }
    }
    found.append(&mut resolved);
    found.sort_by(|a, b| a.name.cmp(&b.name));
}
