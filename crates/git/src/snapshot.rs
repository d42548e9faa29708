//! Reads all refs of a repository from disk, and notices when they have to be read again.

use std::{
    collections::{HashMap, VecDeque},
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use gix::{hash::Kind, refs::packed};
use model::{
    Oid, RefName,
    refs::{HIDDEN, RefKind},
};

use crate::{
    Error, Ref, Refs, Repository, Result,
    limits::{Reservation, UNRESERVED, in_words},
    marks::Marks,
    repository::{Handle, oid},
};

/// How long a loose ref may be; what is longer is none.
const LONGEST_FILE: u64 = 1024;
/// How long the list of packed refs may be: that of some hundred thousand.
const LONGEST_LIST: u64 = 32 << 20;
/// How long that list may become by pushes, in bytes. The rest is for refs that the service keeps for itself.
pub const MOST_LISTED: u64 = LONGEST_LIST / 4 * 3;
/// How many bytes the kept snapshots of all repositories may take together, without small ones.
pub(crate) const MOST_KEPT: usize = 64 << 20;
/// How many bytes a small snapshot takes at most.
const SMALL_SNAPSHOT: usize = 64 << 10;
/// How many symbolic refs may follow upon one another.
const DEEPEST_LINK: usize = 5;

/// Where the last snapshot is kept.
pub(crate) type SnapshotCell = Mutex<Option<Snapshot>>;

/// The refs at one moment, with the marks that tell whether that moment has passed.
pub(crate) struct Snapshot {
    refs: Arc<Refs>,
    marks: Marks,
}

/// Large snapshots that are kept, the oldest first, and how many bytes each takes.
static KEPT: Mutex<VecDeque<(Weak<Handle>, usize)>> = Mutex::new(VecDeque::new());

/// Notes that a handle keeps a snapshot, and forgets the oldest ones if all of them are too large together.
pub(crate) fn keep(handle: &Arc<Handle>, bytes: usize) {
    if bytes <= SMALL_SNAPSHOT {
        return;
    }
    let mut forgotten = Vec::new();
    {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(one, _)| one.strong_count() > 0 && !std::ptr::eq(one.as_ptr(), Arc::as_ptr(handle)));
        kept.push_back((Arc::downgrade(handle), bytes));
        let mut sum: usize = kept.iter().map(|(_, bytes)| bytes).sum();
        while sum > MOST_KEPT
            && kept.len() > 1
            && let Some((oldest, bytes)) = kept.pop_front()
        {
            sum -= bytes;
            forgotten.extend(oldest.upgrade());
        }
    }
    for handle in forgotten {
        *handle.refs() = None;
    }
}

/// About how many bytes refs take in memory.
fn count_bytes(refs: &Refs) -> usize {
    refs.iter().map(|one| std::mem::size_of::<Ref>() + one.name.as_str().len()).sum()
}

/// What a loose ref says.
enum Loose {
    Id(Oid),
    Link(String),
}

impl Repository {
    /// The refs as they are now.
    ///
    /// A snapshot is used as long as its marks stand: those of `HEAD`, `packed-refs` and every folder below `refs/`.
    /// That is enough, because a loose ref is renamed into its folder, which moves the time of the folder.
    pub fn refs(&self) -> Result<Arc<Refs>> {
        if let Some(snapshot) = &*self.handle.refs()
            && snapshot.marks.stand()
        {
            return Ok(Arc::clone(&snapshot.refs));
        }
        // One reader at a time, since there may be many refs; the others take what it has found, if that still stands.
        let _reading = self.handle.read_refs_alone();
        if let Some(snapshot) = &*self.handle.refs()
            && snapshot.marks.stand()
        {
            return Ok(Arc::clone(&snapshot.refs));
        }
        // After the lock: those who wait for the refs of one repository must not hold all reservations of the server.
        let packed = self.path().join("packed-refs");
        let _room = if size_of(&packed) > UNRESERVED as u64 { Some(Reservation::take()?) } else { None };
        let (refs, marks) = self.read_refs()?;
        let refs = Arc::new(refs);
        if marks.are_settled() {
            *self.handle.refs() = Some(Snapshot { refs: Arc::clone(&refs), marks });
            keep(&self.handle, count_bytes(&refs));
        } else {
            *self.handle.refs() = None;
        }
        Ok(refs)
    }

    fn read_refs(&self) -> Result<(Refs, Marks)> {
        let mut marks = Marks::new();
        let path = self.path();
        marks.note(&path.join("HEAD"))?;
        let head = match read_loose(&path.join("HEAD"))? {
            Some(Loose::Link(name)) => RefName::new(&name),
            Some(Loose::Id(_)) | None => None,
        };
        // Loose refs come first: whoever packs them writes the pack before removing them, so none can be missed.
        let mut found = Vec::new();
        let mut links = HashMap::new();
        self.read_folder(&path.join("refs"), "refs", &mut marks, &mut found, &mut links)?;
        self.read_packed(&path.join("packed-refs"), &mut marks, &mut found)?;

        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|later, earlier| later.name == earlier.name);
        follow_links(&mut found, &links);
        let mut refs = Refs { head, ..Refs::default() };
        for found in found {
            match found.name.kind() {
                RefKind::Branch => refs.branches.push(found),
                RefKind::Tag => refs.tags.push(found),
                RefKind::Other => refs.others.push(found),
            }
        }
        Ok((refs, marks))
    }

    fn read_folder(
        &self,
        folder: &Path,
        name: &str,
        marks: &mut Marks,
        found: &mut Vec<Ref>,
        links: &mut HashMap<RefName, String>,
    ) -> Result<()> {
        if !marks.note(folder)? {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(part) = entry.file_name().into_string() else { continue };
            let name = format!("{name}/{part}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if HIDDEN.strip_suffix('/') != Some(&name) {
                    self.read_folder(&entry.path(), &name, marks, found, links)?;
                }
            } else if kind.is_file()
                && let Some(name) = RefName::new(&name).filter(|name| !name.is_hidden())
            {
                match read_loose(&entry.path())? {
                    Some(Loose::Id(target)) => {
                        let peeled = self.peeled_of(&name, target)?;
                        found.push(Ref { name, target, peeled });
                    }
                    Some(Loose::Link(to)) => drop(links.insert(name, to)),
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn read_packed(&self, file: &Path, marks: &mut Marks, found: &mut Vec<Ref>) -> Result<()> {
        if !marks.note(file)? {
            return Ok(());
        }
        let size = size_of(file);
        if size > LONGEST_LIST {
            return Err(Error::TooLarge(format!(
                "the refs take {}; the limit is {}",
                in_words(size),
                in_words(LONGEST_LIST)
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
        let buffer = packed::Buffer::from_bytes(&bytes, Kind::Sha1).map_err(Error::broken)?;
        for packed in buffer.iter().map_err(Error::broken)?.filter_map(std::result::Result::ok) {
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

    /// What a tag leads to; `None` if it is no annotated tag, or broken.
    fn peeled_of(&self, name: &RefName, target: Oid) -> Result<Option<Oid>> {
        // Git lets nothing but commits be branches, so they are not looked up.
        if name.kind() == RefKind::Branch {
            return Ok(None);
        }
        match self.peel_tag(target) {
            // It is not broken, and the next reader may find out.
            Err(Error::Busy) => Err(Error::Busy),
            peeled => Ok(peeled.ok().flatten()),
        }
    }
}

/// How long a file is; 0 if there is none.
fn size_of(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |it| it.len())
}

/// Reads a loose ref; `None` if it is gone meanwhile, or broken.
fn read_loose(file: &Path) -> Result<Option<Loose>> {
    let text = match fs::metadata(file)
        .and_then(|it| if it.len() > LONGEST_FILE { Ok(Vec::new()) } else { fs::read(file) })
    {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Ok(text) = std::str::from_utf8(&text) else { return Ok(None) };
    Ok(match text.strip_prefix("ref:") {
        Some(name) => Some(Loose::Link(name.trim().to_owned())),
        None => text.trim_ascii_end().parse().ok().map(Loose::Id),
    })
}

/// Adds the symbolic refs with what they lead to; those that lead nowhere are left out. `found` stays sorted.
fn follow_links(found: &mut Vec<Ref>, links: &HashMap<RefName, String>) {
    if links.is_empty() {
        return;
    }
    found.retain(|it| !links.contains_key(&it.name));
    let mut resolved = Vec::new();
    for name in links.keys() {
        let mut at = name.clone();
        for _ in 0..DEEPEST_LINK {
            let Some(next) = links.get(&at).and_then(|next| RefName::new(next)) else { break };
            at = next;
        }
        if let Ok(place) = found.binary_search_by(|it| it.name.cmp(&at)) {
            resolved.push(Ref { name: name.clone(), ..found[place].clone() });
        }
    }
    found.append(&mut resolved);
    found.sort_by(|a, b| a.name.cmp(&b.name));
}
