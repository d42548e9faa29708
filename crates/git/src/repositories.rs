//! The folders of repositories, and the cache of open handles.
//!
//! ```text
//! repositories/
//!   3f/a2/3fa2….git   one per repository, named by a hash of the storage id of its project
//!   empty.git         used by git programs in place of repositories that were never written to, and to receive packs
//!   tmp/              quarantines and folders under construction; emptied at start
//!   trash/            folders to be deleted
//! ```
//!
//! A folder is a cache: hard links to the packs that the database lists, copies of packs that are in the database, indexes over
//! them, and refs for git programs.
//! It can be deleted and is built again when the repository is next opened; git programs that use it fail.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;
use model::{Oid, PackContent, RefName, StorageId};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{
    Error, Quarantine, Refs, Repository, Result, StagedPack, check_pack, disk, git_process, local_pack::MAX_SMALL_PACK,
    pack_writer::write_files, repository::Handle,
};

/// The maximum number of repositories that stay open.
const MAX_OPEN_HANDLES: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
/// The branch that `HEAD` of a new repository names until one is pushed.
const INITIAL_BRANCH: &str = "refs/heads/master";
/// The extensions of the files of a pack. The index comes last, because a pack becomes visible with its index.
pub const PACK_EXTENSIONS: [&str; 3] = ["pack", "rev", "idx"];

/// The folders of a repository.
pub(crate) const FOLDERS: [&str; 4] = ["objects/pack", "objects/info", "refs/heads", "refs/tags"];

const CONFIG: &str = "[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
\tcommitGraph = true
\tfsync = all
\thooksPath = /dev/null
[gc]
\tauto = 0
[maintenance]
\tauto = false
[transfer]
\tfsckObjects = true
\thideRefs = refs/gable
[uploadpack]
\tallowFilter = true
";

/// Where packs are stored.
pub trait PackSource {
    /// Makes a file of a pack available at a local path; returns `false` if it does not exist.
    fn fetch(&self, key: &str, extension: &str, to: &Path) -> io::Result<bool>;

    /// Returns the content of a pack that has no files; `None` if it does not exist.
    fn read(&self, key: &str) -> io::Result<Option<PackContent>>;
}

/// A pack that a repository consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackEntry {
    /// The key of its files in the store, without extension.
    pub key: String,
    /// The trailer of the pack.
    pub checksum: Oid,
    /// Whether it has files in the store; a small pack may have none.
    pub has_files: bool,
}

/// What happens to packs in the folder of a repository that are not in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPacks<'a> {
    /// They stay.
    Keep,
    /// They are removed, except for those with these trailers, which running reads may use. Missing ones are not added.
    RemoveExcept(&'a [Oid]),
}

/// All repositories of a forge; cheap to clone.
#[derive(Clone)]
pub struct Repositories(Arc<Inner>);

struct Inner {
    root: PathBuf,
    handles: Mutex<LruCache<StorageId, Arc<Handle>>>,
    /// Held while the folder of a repository changes, by a hash of its path.
    folder_locks: [Mutex<()>; 16],
    /// The number of guards of each folder that is in use.
    guards: Mutex<HashMap<PathBuf, usize>>,
}

/// Keeps the folder of a repository while something reads it, such as a git program: [`Repositories::remove_unused`] leaves it.
pub struct FolderGuard {
    repositories: Repositories,
    path: PathBuf,
}

impl Drop for FolderGuard {
    fn drop(&mut self) {
        let mut guards = self.repositories.guards();
        if let Some(count) = guards.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                guards.remove(&self.path);
            }
        }
    }
}

impl Repositories {
    /// Uses a folder that another process may own: nothing is created or removed.
    pub fn attach(root: &Path) -> Self {
        let handles = Mutex::new(LruCache::new(MAX_OPEN_HANDLES));
        Self(Arc::new(Inner {
            root: root.to_owned(),
            handles,
            folder_locks: Default::default(),
            guards: Mutex::default(),
        }))
    }

    /// Opens a folder, which is created if necessary. Unfinished work of an earlier process is deleted, so no other
    /// process may use the folder at the same time.
    pub fn open_folder(root: &Path) -> Result<Self> {
        disk::create_folder(root)?;
        let repositories = Self::attach(&root.canonicalize()?);
        let leftover = repositories.temp_root();
        if leftover.is_dir() {
            fs::rename(&leftover, repositories.trash_folder()?.join(format!("tmp-{}", std::process::id())))
                .or_else(|_| fs::remove_dir_all(&leftover))?;
        }
        disk::create_folder(&leftover)?;
        let empty_repository = repositories.empty_repository()?;
        if !is_complete(&empty_repository)? {
            repositories.create_folder_of(&empty_repository)?;
        }
        Ok(repositories)
    }

    /// Creates an empty folder of repositories inside the temporary folder of this one, in which a command can work beside a
    /// server. It is deleted with the second value.
    pub fn temporary(&self) -> Result<(Self, TempDir)> {
        disk::create_folder(&self.temp_root())?;
        let folder = self.temp_folder("command-")?;
        Ok((Self::open_folder(folder.path())?, folder))
    }

    /// Opens the repository of a project with these refs. Its packs must have been linked by [`Self::link_packs`].
    pub fn open(&self, storage: &StorageId, refs: Arc<Refs>) -> Result<Repository> {
        let guard = self.guard(storage);
        Ok(Repository::new(self.handle(storage)?, refs).with_guard(guard))
    }

    /// Marks the folder of a repository as in use until the value is dropped, whether or not it exists.
    pub fn guard(&self, storage: &StorageId) -> FolderGuard {
        let path = self.path_of(storage);
        *self.guards().entry(path.clone()).or_default() += 1;
        FolderGuard { repositories: self.clone(), path }
    }

    fn guards(&self) -> MutexGuard<'_, HashMap<PathBuf, usize>> {
        self.0.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, storage: &StorageId) -> Result<Arc<Handle>> {
        if let Some(handle) = self.handles().get(storage) {
            return Ok(Arc::clone(handle));
        }
        // Opened outside the lock, because it reads from disk; if two threads do so at once, the later handle stays.
        let handle = Arc::new(Handle::open(&self.path_of(storage))?);
        self.handles().put(storage.clone(), Arc::clone(&handle));
        Ok(handle)
    }

    /// Returns the handle of a repository, or of an empty one if its folder does not exist.
    pub(crate) fn handle_or_empty(&self, storage: &StorageId) -> Result<Arc<Handle>> {
        if self.has_folder(storage) {
            self.handle(storage)
        } else {
            Ok(Handle::open(&self.empty_repository()?)?.into())
        }
    }

    /// Returns whether the folder of a repository exists.
    pub fn has_folder(&self, storage: &StorageId) -> bool {
        self.path_of(storage).join("HEAD").exists()
    }

    /// Returns whether the folder of a repository contains a pack.
    pub fn has_pack(&self, storage: &StorageId, checksum: Oid) -> bool {
        self.path_of(storage).join("objects/pack").join(format!("{}.pack", pack_name(checksum))).exists()
    }

    /// Makes the folder of a repository contain the files of these packs. The folder is created if necessary. A missing
    /// pack is an error that names it.
    pub fn link_packs(
        &self,
        storage: &StorageId,
        packs: &[PackEntry],
        source: &dyn PackSource,
        others: OtherPacks<'_>,
    ) -> Result<()> {
        let path = self.path_of(storage);
        let _lock = self.lock_folder(&path);
        if !self.has_folder(storage) {
            // It was deleted by hand.
            self.evict_handle(storage);
        }
        let is_open = self.handles().peek(storage).is_some();
        // What is written to a folder is not synced, so a power cut may have damaged one that is not open yet.
        if !is_open && !is_complete(&path)? {
            self.create_folder_of(&path)?;
        }
        let folder = path.join("objects/pack");
        if !is_open {
            remove_damaged_copies(&folder)?;
        }
        let present = pack_names(&folder)?;
        let mut added = 0;
        for pack in packs {
            if !present.contains(&pack_name(pack.checksum)) {
                link_pack(&folder, &self.temp_root(), pack, source)?;
                added += 1;
            }
        }
        if !is_open {
            remove_invalid_index(&folder)?;
        }
        let unlisted: Vec<&String> = match others {
            OtherPacks::RemoveExcept(kept) => {
                let kept = packs.iter().map(|pack| pack.checksum).chain(kept.iter().copied());
                let kept: HashSet<String> = kept.map(pack_name).collect();
                present.iter().filter(|name| !kept.contains(*name)).collect()
            }
            OtherPacks::Keep => Vec::new(),
        };
        if !unlisted.is_empty() {
            unlink_packs(&path, &unlisted)?;
        }
        if !unlisted.is_empty() || added > 0 && self.handles().peek(storage).is_some_and(|open| open.is_outgrown()) {
            self.evict_handle(storage);
        }
        Ok(())
    }

    /// Creates the folder of a repository without packs, unless it exists.
    pub(crate) fn create_folder_if_missing(&self, storage: &StorageId) -> Result<()> {
        if self.has_folder(storage) {
            return Ok(());
        }
        let path = self.path_of(storage);
        let _lock = self.lock_folder(&path);
        if self.has_folder(storage) { Ok(()) } else { self.create_folder_of(&path) }
    }

    /// Moves a pack into the folder of a repository.
    pub(crate) fn install_pack(&self, storage: &StorageId, pack: StagedPack) -> Result<()> {
        let path = self.path_of(storage);
        let _lock = self.lock_folder(&path);
        pack.install(&path.join("objects/pack"))?;
        if self.handles().peek(storage).is_some_and(|open| open.is_outgrown()) {
            self.evict_handle(storage);
        }
        Ok(())
    }

    /// Writes `packed-refs` and `HEAD` for git programs, unless they were written for this generation or a newer one.
    /// They are not synced: after a restart they are written again.
    pub fn write_refs(&self, storage: &StorageId, refs: &Refs) -> Result<()> {
        let handle = self.handle(storage)?;
        if handle.has_refs_of(refs.generation) {
            return Ok(());
        }
        let path = self.path_of(storage);
        let _lock = self.lock_folder(&path);
        if !handle.has_refs_of(refs.generation) {
            remove_loose_refs(&path)?;
            write_ref_files(&path, refs)?;
            handle.record_refs_of(refs.generation);
        }
        Ok(())
    }

    /// Returns the `git upload-pack` process for a client, which talks on standard input and output.
    pub fn upload_pack(&self, storage: &StorageId, protocol: Option<&str>, stateless: bool) -> Result<Command> {
        Ok(git_process::upload_pack(&self.folder_of(storage)?, protocol, stateless))
    }

    /// Returns the `git upload-archive` process for a client, which talks on standard input and output.
    pub fn upload_archive(&self, storage: &StorageId) -> Result<Command> {
        Ok(git_process::upload_archive(&self.folder_of(storage)?))
    }

    /// Returns the folder that a project is read from, even if it was never written to.
    fn folder_of(&self, storage: &StorageId) -> Result<PathBuf> {
        if self.has_folder(storage) { Ok(self.path_of(storage)) } else { self.empty_repository() }
    }

    /// Creates a quarantine for objects on their way into the repository of a project.
    pub fn quarantine(&self, storage: &StorageId) -> Quarantine {
        Quarantine::new(self.clone(), storage.clone())
    }

    /// Removes the folder of a repository. It disappears at once; its files are deleted by [`Self::empty_trash`].
    pub fn remove(&self, storage: &StorageId) -> Result<()> {
        let path = self.path_of(storage);
        let _lock = self.lock_folder(&path);
        self.evict_handle(storage);
        if path.exists() {
            let target_path = self.trash_folder()?.join(storage.as_str());
            if target_path.exists() {
                fs::remove_dir_all(&target_path)?;
            }
            fs::rename(&path, &target_path)?;
        }
        Ok(())
    }

    /// Removes the folder of a repository like [`Self::remove`], unless it is in use; returns whether it is gone.
    pub fn remove_unused(&self, path: &Path) -> Result<bool> {
        let _lock = self.lock_folder(path);
        // Held until the folder is gone: who gets a guard later finds none, and creates it again.
        let guards = self.guards();
        if guards.contains_key(path) {
            return Ok(false);
        }
        let mut handles = self.handles();
        let opened = handles.iter().find(|(_, handle)| handle.path == path).map(|(storage, _)| storage.clone());
        if let Some(storage) = opened {
            handles.pop(&storage);
        }
        if path.exists() {
            let target = self.trash_folder()?.join(path.file_name().unwrap_or_default());
            match fs::remove_dir_all(&target) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => fs::rename(path, &target)?,
            }
        }
        Ok(true)
    }

    /// Returns the paths of all folders of repositories, those that were changed last first.
    pub fn folders(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for first in subfolders(&self.0.root)? {
            for second in subfolders(&first)? {
                for entry in fs::read_dir(second)? {
                    let path = entry?.path();
                    // Others may be removed at the same time.
                    if let Ok(modified) = path.metadata().and_then(|metadata| metadata.modified()) {
                        found.push((modified, path));
                    }
                }
            }
        }
        found.sort_by(|one, other| other.cmp(one));
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// Deletes the files of removed repositories.
    pub fn empty_trash(&self) -> Result<()> {
        for entry in fs::read_dir(self.trash_folder()?)? {
            match fs::remove_dir_all(entry?.path()) {
                // Another thread is deleting it, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Drops the cached handle of a project, so that the next reader sees the current state of the disk.
    pub(crate) fn evict_handle(&self, storage: &StorageId) {
        self.handles().pop(storage);
    }

    /// Returns the path of a project's repository, whether or not it exists. It does not depend on the name of the
    /// project.
    pub fn path_of(&self, storage: &StorageId) -> PathBuf {
        let digest = Sha256::digest(storage.as_str());
        let name = model::text::hex(&digest);
        self.0.root.join(&name[..2]).join(&name[2..4]).join(format!("{name}.git"))
    }

    /// Creates a temporary folder, which is deleted when the value is dropped.
    pub(crate) fn temp_folder(&self, prefix: &str) -> Result<TempDir> {
        let create = || tempfile::Builder::new().prefix(prefix).tempdir_in(self.temp_root());
        match create() {
            // The folder of repositories was deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk::create_folder(&self.temp_root())?;
                Ok(create()?)
            }
            created => Ok(created?),
        }
    }

    /// Creates an empty repository in a temporary folder.
    pub(crate) fn create_blank(&self) -> Result<TempDir> {
        let build = self.temp_folder("new-")?;
        create_skeleton(build.path())?;
        Ok(build)
    }

    /// Creates the folder of a repository without packs; it appears as a whole.
    fn create_folder_of(&self, path: &Path) -> Result<()> {
        let build = self.create_blank()?;
        fs::create_dir_all(path.parent().unwrap_or(&self.0.root))?;
        if path.exists() {
            // Damaged by a crash, or written by an earlier version.
            let trash = tempfile::Builder::new().prefix("replaced-").tempdir_in(self.trash_folder()?)?;
            fs::rename(path, trash.keep().join("repository"))?;
        }
        fs::rename(build.path(), path)?;
        // It was renamed, so there is nothing to delete.
        let _ = build.keep();
        Ok(())
    }

    pub(crate) fn lock_folder(&self, path: &Path) -> MutexGuard<'_, ()> {
        let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
        let index = usize::from(digest[0]) % self.0.folder_locks.len();
        self.0.folder_locks[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, LruCache<StorageId, Arc<Handle>>> {
        self.0.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the folder of all repositories.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    pub(crate) fn temp_root(&self) -> PathBuf {
        self.0.root.join("tmp")
    }

    /// Returns the path of the empty repository, which is created if necessary.
    pub(crate) fn empty_repository(&self) -> Result<PathBuf> {
        let path = self.0.root.join("empty.git");
        if !path.join("HEAD").exists() {
            let _lock = self.lock_folder(&path);
            if !path.join("HEAD").exists() {
                self.create_folder_of(&path)?;
            }
        }
        Ok(path)
    }

    fn trash_folder(&self) -> Result<PathBuf> {
        let trash = self.0.root.join("trash");
        disk::create_folder(&trash)?;
        Ok(trash)
    }
}

/// Returns the folders with names of two characters; the other ones have longer names.
fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().len() == 2 {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn create_skeleton(path: &Path) -> io::Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(path.join(folder))?;
    }
    fs::write(path.join("config"), CONFIG)?;
    fs::write(path.join("HEAD"), format!("ref: {INITIAL_BRANCH}\n"))
}

/// Returns the name of the files of a pack, without extension.
pub(crate) fn pack_name(checksum: Oid) -> String {
    format!("pack-{checksum}")
}

/// Removes the index over all packs if one of them is missing: a power cut can undo a removal.
fn remove_invalid_index(folder: &Path) -> io::Result<()> {
    if indexed_packs(folder).is_none_or(|names| !names.iter().all(|name| folder.join(name).exists())) {
        disk::remove_if_exists(&folder.join("multi-pack-index"))?;
    }
    Ok(())
}

/// Returns the names of the indexes of the packs that the index over all packs has; `None` if there is none, or it cannot be
/// read.
fn indexed_packs(folder: &Path) -> Option<Vec<PathBuf>> {
    let index = gix::odb::pack::multi_index::File::at(folder.join("multi-pack-index"), None).ok()?;
    Some(index.index_names().to_vec())
}

/// Returns whether the folder of a repository has everything that is not a pack or an index, and no objects outside of packs,
/// which earlier versions wrote.
fn is_complete(path: &Path) -> io::Result<bool> {
    let read = |name: &str| match fs::read_to_string(path.join(name)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => Ok(String::new()),
        read => read,
    };
    let is_branch = |head: &str| head.strip_prefix("ref: ").and_then(|head| head.strip_suffix('\n')).is_some();
    if read("config")? != CONFIG || !is_branch(&read("HEAD")?) || !FOLDERS.iter().all(|name| path.join(name).is_dir()) {
        return Ok(false);
    }
    for entry in fs::read_dir(path.join("objects"))? {
        let name = entry?.file_name();
        if name != "pack" && name != "info" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the names of the packs in a folder that have a pack file and an index, without extension.
fn pack_names(folder: &Path) -> io::Result<HashSet<String>> {
    let (mut indexes, mut packs) = (HashSet::new(), HashSet::new());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("idx") => indexes.insert(name.to_owned()),
            Some("pack") => packs.insert(name.to_owned()),
            _ => false,
        };
    }
    indexes.retain(|name| packs.contains(name));
    Ok(indexes)
}

/// Removes small packs that do not match their checksums: copies of packs in the database are not synced, so a power cut may
/// have damaged them. Larger packs are links to files of the store, which are synced, or synced copies.
fn remove_damaged_copies(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let checksum = path.file_stem().and_then(|name| name.to_str()?.strip_prefix("pack-")?.parse::<Oid>().ok());
        let (Some(checksum), true) = (checksum, path.extension().is_some_and(|found| found == "pack")) else {
            continue;
        };
        if path.metadata()?.len() > MAX_SMALL_PACK {
            continue;
        }
        let read = |extension| fs::read(path.with_extension(extension)).ok();
        let content = read("pack").zip(read("idx")).map(|(pack, index)| PackContent { pack, index });
        if content.is_none_or(|content| check_pack(checksum, &content).is_err()) {
            for extension in PACK_EXTENSIONS.iter().rev() {
                disk::remove_if_exists(&path.with_extension(extension))?;
            }
        }
    }
    Ok(())
}

/// Makes the files of a pack available in a folder.
pub(crate) fn link_pack(folder: &Path, temp_folder: &Path, pack: &PackEntry, source: &dyn PackSource) -> Result<()> {
    let name = pack_name(pack.checksum);
    if !pack.has_files {
        let content = source.read(&pack.key)?.ok_or_else(|| Error::MissingPack(pack.key.clone()))?;
        // The folder of repositories may have been deleted.
        fs::create_dir_all(temp_folder)?;
        return write_files(folder, temp_folder, pack.checksum, &content);
    }
    for extension in PACK_EXTENSIONS {
        let found = source.fetch(&pack.key, extension, &folder.join(format!("{name}.{extension}")))?;
        if !found && extension != "rev" {
            return Err(Error::MissingPack(format!("{}.{extension}", pack.key)));
        }
    }
    Ok(())
}

/// Removes packs from the folder of a repository, after the index over all packs if it has one of them.
fn unlink_packs(repository: &Path, names: &[&String]) -> io::Result<()> {
    let folder = repository.join("objects/pack");
    let removed: Vec<PathBuf> = names.iter().map(|name| PathBuf::from(format!("{name}.idx"))).collect();
    if indexed_packs(&folder).is_none_or(|indexed| indexed.iter().any(|name| removed.contains(name))) {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"multi-pack-index")) {
                disk::remove_if_exists(&path)?;
            }
        }
    }
    for name in names {
        for extension in PACK_EXTENSIONS.iter().rev() {
            disk::remove_if_exists(&folder.join(format!("{name}.{extension}")))?;
        }
    }
    Ok(())
}

/// Removes the loose refs that git programs or earlier versions have written: they would hide packed ones.
fn remove_loose_refs(repository: &Path) -> io::Result<()> {
    let refs = repository.join("refs");
    if !is_without_files(&refs)? {
        fs::remove_dir_all(&refs)?;
        for folder in ["heads", "tags"] {
            fs::create_dir_all(refs.join(folder))?;
        }
    }
    Ok(())
}

fn is_without_files(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || !is_without_files(&entry.path())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes refs for git programs, unless they are already there: that would need disk space. A concurrent reader sees the old or
/// the new ones.
pub(crate) fn write_ref_files(repository: &Path, refs: &Refs) -> io::Result<()> {
    let mut packed = String::from("# pack-refs with: peeled fully-peeled sorted \n");
    for reference in refs.iter() {
        packed += &format!("{} {}\n", reference.target, reference.name);
        if let Some(peeled) = reference.peeled {
            packed += &format!("^{peeled}\n");
        }
    }
    let head = refs.head.as_ref().map_or(INITIAL_BRANCH, RefName::as_str);
    for (name, content) in [("packed-refs", packed), ("HEAD", format!("ref: {head}\n"))] {
        if fs::read(repository.join(name)).is_ok_and(|existing| existing == content.as_bytes()) {
            continue;
        }
        let new = repository.join(format!("{name}.new"));
        fs::write(&new, content)?;
        fs::rename(&new, repository.join(name))?;
    }
    Ok(())
}
