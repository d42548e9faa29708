//! Reads refs from the files of a repository: one that was just fetched, or that an earlier version of Gable wrote.
//! The refs of all other repositories are in the database.

use std::{collections::HashMap, fs, io, path::Path};

use gix::{hash::Kind, refs::packed};
use model::{
    Oid, RefName,
    refs::{HIDDEN_PREFIX, RefKind},
};

use crate::{
    Error, Ref, Refs, Repository, Result,
    limits::{MAX_UNRESERVED, Reservation, format_size},
    repository::oid,
};

/// The maximum size of a loose ref.
const MAX_LOOSE_REF_SIZE: u64 = 1024;
/// The maximum size of `packed-refs`: some hundred thousand refs.
const MAX_PACKED_REFS_SIZE: u64 = 32 << 20;
/// The size up to which pushes may grow `packed-refs`, in bytes.
pub const PACKED_REFS_PUSH_LIMIT: u64 = MAX_PACKED_REFS_SIZE / 4 * 3;
/// The maximum number of symbolic refs that may follow each other.
const MAX_SYMREF_DEPTH: usize = 5;

/// The content of a loose ref.
enum Loose {
    Id(Oid),
    Symbolic(String),
}

impl Repository {
    /// Reads the refs from the files of the repository. Names that Gable does not allow are left out; files that are not
    /// valid are an error.
    pub(crate) fn read_ref_files(&self) -> Result<Refs> {
        let packed = self.path().join("packed-refs");
        let _reservation = if file_size(&packed) > MAX_UNRESERVED as u64 { Some(Reservation::take()?) } else { None };
        let path = self.path();
        let head = match read_loose(&path.join("HEAD"))? {
            Loose::Symbolic(name) => RefName::new(&name),
            Loose::Id(_) => None,
        };
        // Loose refs come first: `git pack-refs` writes the pack before it removes them, so none is missed.
        let mut found = Vec::new();
        let mut symrefs = HashMap::new();
        self.read_folder(&path.join("refs"), "refs", &mut found, &mut symrefs)?;
        self.read_packed(&packed, &mut found)?;

        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|later, earlier| later.name == earlier.name);
        resolve_symrefs(&mut found, &symrefs);
        Ok(Refs::from_sorted(0, head, found))
    }

    fn read_folder(
        &self,
        folder: &Path,
        name: &str,
        found: &mut Vec<Ref>,
        symrefs: &mut HashMap<RefName, String>,
    ) -> Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(part) = entry.file_name().into_string() else { continue };
            let name = format!("{name}/{part}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if HIDDEN_PREFIX.strip_suffix('/') != Some(&name) {
                    self.read_folder(&entry.path(), &name, found, symrefs)?;
                }
            } else if kind.is_file()
                && let Some(name) = RefName::new(&name).filter(|name| !name.is_hidden())
            {
                match read_loose(&entry.path())? {
                    Loose::Id(target) => {
                        let peeled = self.peeled_of(&name, target)?;
                        found.push(Ref { name, target, peeled });
                    }
                    Loose::Symbolic(to) => drop(symrefs.insert(name, to)),
                }
            }
        }
        Ok(())
    }

    fn read_packed(&self, file: &Path, found: &mut Vec<Ref>) -> Result<()> {
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
        for packed in buffer.iter().map_err(Error::corrupt)? {
            let packed = packed.map_err(Error::corrupt)?;
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

/// Reads a loose ref; an invalid one is an error.
fn read_loose(file: &Path) -> Result<Loose> {
    let invalid = || Error::corrupt(format!("{} is not a valid ref", file.display()));
    if file_size(file) > MAX_LOOSE_REF_SIZE {
        return Err(invalid());
    }
    let bytes = fs::read(file)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid())?;
    match text.strip_prefix("ref:") {
        Some(name) => Ok(Loose::Symbolic(name.trim().to_owned())),
        None => text.trim_ascii_end().parse().map(Loose::Id).map_err(|_| invalid()),
    }
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
