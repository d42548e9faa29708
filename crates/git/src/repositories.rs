//! The layout of the repositories folder, and the cache of open handles.
//!
//! ```text
//! repositories/
//!   3f/a2/3fa2….git   one per project that was written to, named by a hash of its storage id
//!   empty.git         read in place of repositories that were never written to
//!   tmp/              repositories and quarantines under construction; emptied at start
//!   trash/            repositories to be deleted
//!   refs.…            locks, see `ref_freeze.rs`
//! ```

use std::{
    fs, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;
use model::{RefName, StorageId};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{
    Quarantine, Refs, Repository, Result, disk, fork, git_process, housekeeping::lock_out_housekeeping,
    repository::Handle,
};

/// The maximum number of repositories that stay open.
const MAX_OPEN_HANDLES: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
/// The branch that `HEAD` of a new repository names until one is pushed.
const INITIAL_BRANCH: &str = "refs/heads/master";

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

/// All repositories of a forge; cheap to clone.
#[derive(Clone)]
pub struct Repositories(Arc<Inner>);

struct Inner {
    root: PathBuf,
    handles: Mutex<LruCache<StorageId, Arc<Handle>>>,
}

impl Repositories {
    /// Uses a folder that another process may own: nothing is created or removed.
    pub fn attach(root: &Path) -> Self {
        let handles = Mutex::new(LruCache::new(MAX_OPEN_HANDLES));
        Self(Arc::new(Inner { root: root.to_owned(), handles }))
    }

    /// Opens a folder, which is created if necessary. Unfinished work of an earlier process is deleted, so no other
    /// process may use the folder at the same time.
    pub fn open(root: &Path) -> Result<Self> {
        disk::create_folder(root)?;
        let repositories = Self::attach(&root.canonicalize()?);
        let leftover = repositories.temp_root();
        if leftover.is_dir() {
            fs::rename(&leftover, repositories.trash_folder()?.join(format!("tmp-{}", std::process::id())))
                .or_else(|_| fs::remove_dir_all(&leftover))?;
        }
        disk::create_folder(&leftover)?;
        let empty_repository = repositories.empty_repository();
        if !empty_repository.join("HEAD").exists() {
            repositories.install(repositories.create_blank()?, &empty_repository)?;
        }
        Ok(repositories)
    }

    /// Returns the repository of a project; `None` if it was never written to.
    pub fn find(&self, storage: &StorageId) -> Result<Option<Repository>> {
        if let Some(handle) = self.handles().get(storage) {
            return Ok(Some(Repository::new(Arc::clone(handle))));
        }
        let path = self.path_of(storage);
        if !path.join("HEAD").exists() {
            return Ok(None);
        }
        // Opened outside the lock, because it reads from disk; if two threads do so at once, the later handle stays.
        let handle = Arc::new(Handle::open(&path)?);
        self.handles().put(storage.clone(), Arc::clone(&handle));
        Ok(Some(Repository::new(handle)))
    }

    /// Returns the `git upload-pack` process for a client, which talks on standard input and output.
    pub fn upload_pack(&self, storage: &StorageId, protocol: Option<&str>, stateless: bool) -> Command {
        git_process::upload_pack(&self.folder_of(storage), protocol, stateless)
    }

    /// Returns the `git upload-archive` process for a client, which talks on standard input and output.
    pub fn upload_archive(&self, storage: &StorageId) -> Command {
        git_process::upload_archive(&self.folder_of(storage))
    }

    /// Returns the folder that a project is read from, even if it was never written to.
    fn folder_of(&self, storage: &StorageId) -> PathBuf {
        let path = self.path_of(storage);
        if path.join("HEAD").exists() { path } else { self.empty_repository() }
    }

    /// Returns the repository of a project. If there is none, it is built in `tmp`, synced and moved into place.
    pub fn find_or_create(&self, storage: &StorageId) -> Result<Repository> {
        if let Some(found) = self.find(storage)? {
            return Ok(found);
        }
        self.install(self.create_blank()?, &self.path_of(storage))?;
        self.find(storage)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }

    /// Creates a quarantine for objects on their way into the repository of a project.
    pub fn quarantine(&self, storage: &StorageId) -> Result<Quarantine> {
        Quarantine::create(self.temp_folder("in-")?, self.path_of(storage).join("objects"))
    }

    /// Creates the repository of a project as a copy of another one, with its visible refs and the objects reachable
    /// from them; pack files are hard-linked if possible. The copy appears atomically; nothing happens if the target
    /// exists. Others may push to the source at the same time.
    pub fn copy(&self, from: &StorageId, to: &StorageId) -> Result<()> {
        let Some(source) = self.find(from)? else { return Ok(()) };
        if self.path_of(to).exists() {
            return Ok(());
        }
        let build = self.create_blank()?;
        let target = build.path();
        let _housekeeping_lock = lock_out_housekeeping(source.path())?;
        let refs = source.refs()?;
        fork::copy_objects(&source, &refs, target)?;
        write_refs(target, &refs, refs.head.as_ref())?;
        self.install(build, &self.path_of(to))
    }

    /// Removes the repository of a project. It disappears at once; its files are deleted by [`Self::empty_trash`].
    pub fn remove(&self, storage: &StorageId) -> Result<()> {
        let path = self.path_of(storage);
        self.evict_handle(storage);
        if path.exists() {
            let trash = self.trash_folder()?;
            let target_path = trash.join(storage.as_str());
            if target_path.exists() {
                fs::remove_dir_all(&target_path)?;
            }
            fs::rename(&path, &target_path)?;
            if let Some(parent) = path.parent() {
                disk::sync_folder(parent)?;
            }
        }
        Ok(())
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

    /// Returns the path of a project's repository relative to the folder of all repositories, whether or not it exists.
    pub fn relative_path(&self, storage: &StorageId) -> String {
        let path = self.path_of(storage);
        path.strip_prefix(&self.0.root).unwrap_or(&path).display().to_string()
    }

    /// Returns the path of a project's repository, whether or not it exists. It does not depend on the name of the
    /// project.
    pub(crate) fn path_of(&self, storage: &StorageId) -> PathBuf {
        let digest = Sha256::digest(storage.as_str());
        let name = model::text::hex(&digest);
        self.0.root.join(&name[..2]).join(&name[2..4]).join(format!("{name}.git"))
    }

    /// Creates a temporary folder, which is deleted when the value is dropped.
    pub(crate) fn temp_folder(&self, prefix: &str) -> Result<TempDir> {
        Ok(tempfile::Builder::new().prefix(prefix).tempdir_in(self.temp_root())?)
    }

    /// Creates an empty repository in a temporary folder.
    pub(crate) fn create_blank(&self) -> Result<TempDir> {
        let build = self.temp_folder("new-")?;
        let path = build.path();
        for folder in ["objects/pack", "objects/info", "refs/heads", "refs/tags"] {
            fs::create_dir_all(path.join(folder))?;
        }
        fs::write(path.join("config"), CONFIG)?;
        fs::write(path.join("HEAD"), format!("ref: {INITIAL_BRANCH}\n"))?;
        Ok(build)
    }

    pub(crate) fn install(&self, build: TempDir, target_path: &Path) -> Result<()> {
        disk::sync_recursively(build.path())?;
        let parent = target_path.parent().unwrap_or(&self.0.root);
        disk::create_folder(parent)?;
        let temp_path = build.keep();
        match fs::rename(&temp_path, target_path) {
            Ok(()) => {}
            // Another thread was faster; its repository stays.
            Err(_) if target_path.join("HEAD").exists() => fs::remove_dir_all(&temp_path)?,
            Err(error) => {
                let _ = fs::remove_dir_all(&temp_path);
                return Err(error.into());
            }
        }
        Ok(disk::sync_folder(parent)?)
    }

    fn handles(&self) -> MutexGuard<'_, LruCache<StorageId, Arc<Handle>>> {
        self.0.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the folder of all repositories.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    fn temp_root(&self) -> PathBuf {
        self.0.root.join("tmp")
    }

    fn empty_repository(&self) -> PathBuf {
        self.0.root.join("empty.git")
    }

    fn trash_folder(&self) -> Result<PathBuf> {
        let trash = self.0.root.join("trash");
        disk::create_folder(&trash)?;
        Ok(trash)
    }
}

/// Writes the refs of a repository under construction.
pub(crate) fn write_refs(build: &Path, refs: &Refs, head: Option<&RefName>) -> io::Result<()> {
    let mut packed = String::from("# pack-refs with: peeled fully-peeled sorted \n");
    for reference in refs.iter() {
        packed += &format!("{} {}\n", reference.target, reference.name);
        if let Some(peeled) = reference.peeled {
            packed += &format!("^{peeled}\n");
        }
    }
    fs::write(build.join("packed-refs"), packed)?;
    if let Some(head) = head {
        fs::write(build.join("HEAD"), format!("ref: {head}\n"))?;
    }
    Ok(())
}
