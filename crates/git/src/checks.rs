//! Integrity checks of repositories, and a search for repositories without a project.

use std::{
    collections::HashSet,
    fs::{self, FileType},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use gix::{
    objs::Kind,
    odb::{
        memory::Storage,
        pack::{Bundle, data, data::entry::Header},
    },
};
use model::StorageId;

use crate::{
    Error, PackEntry, PackSource, Refs, Repositories, Repository, Result, git_process,
    limits::{MAX_COMMIT_SIZE, MAX_TREE_SIZE},
    local_pack::MAX_SMALL_PACK,
    objects::too_large,
    packs::{MAX_DELTA_CHAIN, base_offset, indices, result_size, too_deep},
    quarantine::MAX_BYTES_IN_MEMORY,
    repositories::{link_pack, write_ref_files},
    repository::{BASE_CACHE_BYTES, DeltaBaseCache, Handle, gix_id},
};

/// The maximum number of faults reported per repository.
const MAX_FAULTS: usize = 10;

/// Entries of the repositories folder that should not be there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnexpectedEntries {
    /// Repositories without a project, and symbolic links that no project uses.
    pub orphans: Vec<PathBuf>,
    /// Symbolic links in place of folders that contain repositories of projects.
    pub symlinks: Vec<PathBuf>,
    /// Unfinished work and repositories to be deleted; the next start removes them.
    pub leftovers: Vec<PathBuf>,
}

impl Repositories {
    /// Returns the faults of a repository with these refs and packs as text. Always checks that the target of every ref
    /// exists; a deep check also verifies all objects reachable from the refs. The packs are read from a temporary
    /// folder, so that the check neither disturbs a server nor relies on a cache.
    pub fn check(&self, refs: &Refs, packs: &[PackEntry], source: &dyn PackSource, deep: bool) -> Result<Vec<String>> {
        fs::create_dir_all(self.temp_root())?;
        let folder = self.create_blank()?;
        for pack in packs {
            link_pack(&folder.path().join("objects/pack"), &self.temp_root(), pack, source)?;
        }
        let repository = Repository::new(Handle::open(folder.path())?.into(), Arc::default());
        let mut faults = Vec::new();
        for reference in refs.iter() {
            if repository.gix.find_header(gix_id(reference.target)).is_err() {
                faults.push(format!("{} points to {}, which does not exist", reference.name, reference.target));
            }
        }
        if deep && faults.is_empty() {
            write_ref_files(folder.path(), refs)?;
            faults = fsck(folder.path())?;
        }
        faults.truncate(MAX_FAULTS);
        Ok(faults)
    }

    /// Finds the entries that belong to none of these projects. Symbolic links are not followed.
    pub fn find_unexpected_entries(&self, projects: impl IntoIterator<Item = StorageId>) -> Result<UnexpectedEntries> {
        let known: HashSet<PathBuf> = projects.into_iter().map(|storage| self.path_of(&storage)).collect();
        let root = self.root();
        let (mut unexpected, mut links) = (UnexpectedEntries::default(), Vec::new());
        for outer in shard_folders(root, &mut links)? {
            for inner in shard_folders(&outer, &mut links)? {
                let found = entries(&inner)?.into_iter().filter(|(_, kind)| kind.is_dir() || kind.is_symlink());
                unexpected.orphans.extend(found.map(|(path, _)| path).filter(|path| !known.contains(path)));
            }
        }
        for link in links {
            let in_use = known.iter().any(|path| path.starts_with(&link));
            if in_use { &mut unexpected.symlinks } else { &mut unexpected.orphans }.push(link);
        }
        for folder in ["tmp", "trash"] {
            unexpected.leftovers.extend(entries(&root.join(folder))?.into_iter().map(|(path, _)| path));
        }
        Ok(unexpected)
    }
}

/// Fails with [`Error::TooLarge`] if a pack in a folder contains a commit, a tag or a tree that exceeds its size
/// limit, or a delta chain that is too long. Run on received packs before they become visible. No object is unpacked,
/// and the run time is linear in the number of objects.
pub(crate) fn check_packed_sizes(packs: &Path) -> Result<()> {
    for index in indices(packs)? {
        PackCheck::open(&index)?.run()?;
    }
    Ok(())
}

/// Returns all objects of small packs that `git index-pack` has checked; `None` if the packs or their objects are too large
/// to be kept in memory.
pub(crate) fn unpack_small(packs: &Path) -> Result<Option<Storage>> {
    let (mut objects, mut bytes) = (Storage::default(), 0);
    for index in indices(packs)? {
        if index.with_extension("pack").metadata()?.len() > MAX_SMALL_PACK {
            return Ok(None);
        }
        let mut check = PackCheck::open(&index)?;
        for position in 0..check.bundle.index.num_objects() {
            let entry = check.entry(position)?;
            bytes += entry.decompressed_size;
            if entry.header.is_delta() {
                bytes += result_size(&check.bundle.pack, &entry)?;
            }
            if bytes > MAX_BYTES_IN_MEMORY {
                return Ok(None);
            }
        }
        let (mut inflate, mut bases) = (gix::zlib::Inflate::default(), DeltaBaseCache::new(BASE_CACHE_BYTES));
        // A base usually comes before the deltas that build upon it.
        for position in check.by_offset.iter().copied() {
            let mut content = Vec::new();
            let found = check.bundle.get_object_by_index(position, &mut content, &mut inflate, &mut bases);
            let kind = found.map_err(Error::corrupt)?.0.kind;
            objects.insert(check.bundle.index.oid_at_index(position).to_owned(), (kind, content));
        }
    }
    Ok(Some(objects))
}

/// A check of one pack.
pub(crate) struct PackCheck {
    bundle: Bundle,
    /// The positions of the objects in the index, in the order of their offsets in the pack.
    by_offset: Vec<u32>,
    /// The resolved objects, by their position in the index.
    known: Vec<Option<Resolved>>,
    /// The number of pack entries that were read.
    entries_read: usize,
}

/// The kind of an object, and the length of its delta chain.
#[derive(Clone, Copy)]
struct Resolved {
    kind: Kind,
    depth: u16,
}

impl PackCheck {
    pub(crate) fn open(index: &Path) -> Result<Self> {
        let bundle = Bundle::at(index, gix::hash::Kind::Sha1).map_err(Error::corrupt)?;
        let count = bundle.index.num_objects();
        let mut by_offset: Vec<u32> = (0..count).collect();
        by_offset.sort_unstable_by_key(|position| bundle.index.pack_offset_at_index(*position));
        Ok(Self { known: vec![None; by_offset.len()], bundle, by_offset, entries_read: 0 })
    }

    /// Checks every object; returns the number of pack entries that were read.
    pub(crate) fn run(mut self) -> Result<usize> {
        for at in 0..self.by_offset.len() {
            let position = self.by_offset[at];
            let kind = self.resolve(position)?.kind;
            if kind == Kind::Blob {
                continue;
            }
            let entry = self.entry(position)?;
            let size =
                if entry.header.is_delta() { result_size(&self.bundle.pack, &entry)? } else { entry.decompressed_size };
            check_size(kind, self.bundle.index.oid_at_index(position), size)?;
        }
        Ok(self.entries_read)
    }

    /// Determines the kind of an object. Every object of the delta chain is remembered, so none is read twice.
    fn resolve(&mut self, position: u32) -> Result<Resolved> {
        let (mut at, mut chain) = (position, Vec::new());
        let mut found = loop {
            if let Some(known) = self.known[at as usize] {
                break known;
            }
            let entry = self.entry(at)?;
            if let Some(kind) = entry.header.as_kind() {
                let base_entry = Resolved { kind, depth: 0 };
                self.known[at as usize] = Some(base_entry);
                break base_entry;
            }
            chain.push(at);
            if chain.len() > MAX_DELTA_CHAIN {
                return Err(self.too_deep(position));
            }
            at = self.base_of(&entry)?;
        };
        while let Some(delta) = chain.pop() {
            if usize::from(found.depth) >= MAX_DELTA_CHAIN {
                return Err(self.too_deep(delta));
            }
            found.depth += 1;
            self.known[delta as usize] = Some(found);
        }
        Ok(found)
    }

    fn entry(&mut self, position: u32) -> Result<data::Entry> {
        self.entries_read += 1;
        self.bundle.pack.entry(self.bundle.index.pack_offset_at_index(position)).map_err(Error::corrupt)
    }

    /// Returns the base of a delta. A received pack contains it.
    fn base_of(&self, delta: &data::Entry) -> Result<u32> {
        let index = &self.bundle.index;
        let found = match delta.header {
            Header::OfsDelta { base_distance } => {
                let offset = base_offset(delta, base_distance)?;
                let position =
                    self.by_offset.binary_search_by_key(&offset, |position| index.pack_offset_at_index(*position));
                position.ok().map(|at| self.by_offset[at])
            }
            Header::RefDelta { base_id } => index.lookup(base_id),
            Header::Commit | Header::Tree | Header::Blob | Header::Tag => None,
        };
        found.ok_or_else(|| Error::corrupt("the pack does not hold the base of a delta"))
    }

    fn too_deep(&self, position: u32) -> Error {
        too_deep(self.bundle.index.oid_at_index(position))
    }
}

/// Fails if an object of this kind exceeds its size limit.
pub(crate) fn check_size(kind: Kind, id: &gix::oid, size: u64) -> Result<()> {
    let limit = match kind {
        Kind::Commit | Kind::Tag => MAX_COMMIT_SIZE,
        Kind::Tree => MAX_TREE_SIZE,
        Kind::Blob => return Ok(()),
    };
    if size > limit { Err(too_large(kind, id, size, limit)) } else { Ok(()) }
}

/// Returns whether a folder is one of those that repositories are distributed over.
fn is_shard(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the folders that repositories are distributed over; symbolic links are collected separately.
fn shard_folders(folder: &Path, links: &mut Vec<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let found = entries(folder)?.into_iter().filter(|(path, _)| is_shard(path));
    let (linked, others): (Vec<_>, Vec<_>) = found.partition(|(_, kind)| kind.is_symlink());
    links.extend(linked.into_iter().map(|(path, _)| path));
    Ok(others.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(path, _)| path).collect())
}

/// Returns the sorted entries of a folder with their types; symbolic links are not followed.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, FileType)>> {
    let mut found: Vec<_> = match fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// Runs `git fsck`; its messages are returned as they are, since they contain nothing but object ids.
fn fsck(repository: &Path) -> Result<Vec<String>> {
    let mut command = git_process::git_command(repository);
    for ignored in git_process::IGNORED_FSCK_ERRORS.split(',') {
        command.arg("-c").arg(format!("fsck.{ignored}"));
    }
    command.args(["fsck", "--full", "--no-dangling", "--no-progress"]).stdin(Stdio::null());
    let output = command.output().map_err(Error::GitNotStarted)?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let output_text = [output.stdout, output.stderr].concat();
    let mut faults: Vec<String> =
        String::from_utf8_lossy(&output_text).lines().take(MAX_FAULTS).map(|line| line.trim().to_owned()).collect();
    faults.retain(|line| !line.is_empty());
    if faults.is_empty() {
        faults.push(format!("git fsck exited with {}", output.status));
    }
    Ok(faults)
}
