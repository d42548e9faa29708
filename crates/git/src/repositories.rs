//! Where repositories lie, and the warm handles to them.
//!
//! ```text
//! repositories/
//!   3f/a2/3fa2….git   one for each project to which something was written, named by a hash of its storage id
//!   empty.git         what a project is read from to which nothing was ever written
//!   tmp/              what is being built or taken in; nothing in it survives a start
//!   trash/            what is being removed
//!   refs.…            locks, see `standstill.rs`
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
    Quarantine, Refs, Repository, Result, child, disk, fork, housekeeping::wait_for_house, repository::Handle,
};

/// How many repositories stay open.
const HANDLES: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
/// The branch that a new repository names until one is pushed.
const FIRST_BRANCH: &str = "refs/heads/master";

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

/// All repositories of a forge: cheap to clone.
#[derive(Clone)]
pub struct Repositories(Arc<Inner>);

struct Inner {
    root: PathBuf,
    handles: Mutex<LruCache<StorageId, Arc<Handle>>>,
}

impl Repositories {
    /// Repositories in a folder that another process may have for itself: nothing is made or removed.
    pub fn beside(root: &Path) -> Self {
        let handles = Mutex::new(LruCache::new(HANDLES));
        Self(Arc::new(Inner { root: root.to_owned(), handles }))
    }

    /// Repositories in a folder, which is made if need be. Whatever an earlier start was building is thrown away, so
    /// nobody else may use the folder at the same time.
    pub fn in_folder(root: &Path) -> Result<Self> {
        disk::make_folder(root)?;
        let repositories = Self::beside(&root.canonicalize()?);
        let unfinished = repositories.tmp();
        if unfinished.is_dir() {
            fs::rename(&unfinished, repositories.trash_folder()?.join(format!("tmp-{}", std::process::id())))
                .or_else(|_| fs::remove_dir_all(&unfinished))?;
        }
        disk::make_folder(&unfinished)?;
        let empty = repositories.empty();
        if !empty.join("HEAD").exists() {
            repositories.put_in_place(repositories.blank()?, &empty)?;
        }
        Ok(repositories)
    }

    /// The repository of a project; `None` if nothing was ever written to it.
    pub fn find(&self, storage: &StorageId) -> Result<Option<Repository>> {
        if let Some(handle) = self.handles().get(storage) {
            return Ok(Some(Repository::new(Arc::clone(handle))));
        }
        let path = self.path_of(storage);
        if !path.join("HEAD").exists() {
            return Ok(None);
        }
        // Opened outside the lock, since it takes the disk; of two that do so at once the later one stays.
        let handle = Arc::new(Handle::open(&path)?);
        self.handles().put(storage.clone(), Arc::clone(&handle));
        Ok(Some(Repository::new(handle)))
    }

    /// The program that sends a client what it asks for, on standard input and output.
    pub fn upload_pack(&self, storage: &StorageId, protocol: Option<&str>, stateless: bool) -> Command {
        child::upload_pack(&self.folder_of(storage), protocol, stateless)
    }

    /// The program that sends a client an archive, on standard input and output.
    pub fn upload_archive(&self, storage: &StorageId) -> Command {
        child::upload_archive(&self.folder_of(storage))
    }

    /// The folder from which a project is read, also if nothing was ever written to it.
    fn folder_of(&self, storage: &StorageId) -> PathBuf {
        let path = self.path_of(storage);
        if path.join("HEAD").exists() { path } else { self.empty() }
    }

    /// The repository of a project, made if there is none: built beside, synced, and then moved into its place.
    pub fn find_or_make(&self, storage: &StorageId) -> Result<Repository> {
        if let Some(found) = self.find(storage)? {
            return Ok(found);
        }
        self.put_in_place(self.blank()?, &self.path_of(storage))?;
        self.find(storage)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }

    /// A place for what is to come into the repository of a project.
    pub fn quarantine(&self, storage: &StorageId) -> Result<Quarantine> {
        Quarantine::make(self.folder_to_build_in("in-")?, self.path_of(storage).join("objects"))
    }

    /// Makes the repository of a project out of another one: the refs are those that can be seen, and the objects are those
    /// that they lead to, where possible as the same files. It appears whole or not at all; nothing happens if the project
    /// has a repository already. Others may push to the source meanwhile.
    pub fn copy(&self, from: &StorageId, to: &StorageId) -> Result<()> {
        let Some(source) = self.find(from)? else { return Ok(()) };
        if self.path_of(to).exists() {
            return Ok(());
        }
        let build = self.blank()?;
        let target = build.path();
        let _kept = wait_for_house(source.path())?;
        let refs = source.refs()?;
        fork::copy_objects(&source, &refs, target)?;
        write_refs(target, &refs, refs.head.as_ref())?;
        self.put_in_place(build, &self.path_of(to))
    }

    /// Takes the repository of a project away: it is gone at once, and its files go with [`Self::empty_trash`].
    pub fn remove(&self, storage: &StorageId) -> Result<()> {
        let path = self.path_of(storage);
        self.forget(storage);
        if path.exists() {
            let trash = self.trash_folder()?;
            let place = trash.join(storage.as_str());
            if place.exists() {
                fs::remove_dir_all(&place)?;
            }
            fs::rename(&path, &place)?;
            if let Some(parent) = path.parent() {
                disk::sync_folder(parent)?;
            }
        }
        Ok(())
    }

    /// Removes what was taken away.
    pub fn empty_trash(&self) -> Result<()> {
        for entry in fs::read_dir(self.trash_folder()?)? {
            match fs::remove_dir_all(entry?.path()) {
                // Somebody else is at it, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Lets go of the warm handle of a project, so that the next reader sees the disk as it is.
    pub(crate) fn forget(&self, storage: &StorageId) {
        self.handles().pop(storage);
    }

    /// Where the repository of a project lies or would lie, below the folder of all.
    pub fn place_of(&self, storage: &StorageId) -> String {
        let path = self.path_of(storage);
        path.strip_prefix(&self.0.root).unwrap_or(&path).display().to_string()
    }

    /// Where the repository of a project lies or would lie. A rename or a transfer of the project moves nothing.
    pub(crate) fn path_of(&self, storage: &StorageId) -> PathBuf {
        let digest = Sha256::digest(storage.as_str());
        let name: String = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).collect();
        self.0.root.join(&name[..2]).join(&name[2..4]).join(format!("{name}.git"))
    }

    /// A fresh folder in which something is built; gone with its value.
    pub(crate) fn folder_to_build_in(&self, prefix: &str) -> Result<TempDir> {
        Ok(tempfile::Builder::new().prefix(prefix).tempdir_in(self.tmp())?)
    }

    /// A repository without anything in it, beside the others.
    pub(crate) fn blank(&self) -> Result<TempDir> {
        let build = self.folder_to_build_in("new-")?;
        let path = build.path();
        for folder in ["objects/pack", "objects/info", "refs/heads", "refs/tags"] {
            fs::create_dir_all(path.join(folder))?;
        }
        fs::write(path.join("config"), CONFIG)?;
        fs::write(path.join("HEAD"), format!("ref: {FIRST_BRANCH}\n"))?;
        Ok(build)
    }

    pub(crate) fn put_in_place(&self, build: TempDir, place: &Path) -> Result<()> {
        disk::sync_tree(build.path())?;
        let parent = place.parent().unwrap_or(&self.0.root);
        disk::make_folder(parent)?;
        let fresh = build.keep();
        match fs::rename(&fresh, place) {
            Ok(()) => {}
            // Somebody was faster; theirs stays.
            Err(_) if place.join("HEAD").exists() => fs::remove_dir_all(&fresh)?,
            Err(error) => {
                let _ = fs::remove_dir_all(&fresh);
                return Err(error.into());
            }
        }
        Ok(disk::sync_folder(parent)?)
    }

    fn handles(&self) -> MutexGuard<'_, LruCache<StorageId, Arc<Handle>>> {
        self.0.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder in which they lie, for whoever looks after it.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    fn tmp(&self) -> PathBuf {
        self.0.root.join("tmp")
    }

    fn empty(&self) -> PathBuf {
        self.0.root.join("empty.git")
    }

    fn trash_folder(&self) -> Result<PathBuf> {
        let trash = self.0.root.join("trash");
        disk::make_folder(&trash)?;
        Ok(trash)
    }
}

/// Gives a repository that is being built its refs.
pub(crate) fn write_refs(build: &Path, refs: &Refs, head: Option<&RefName>) -> io::Result<()> {
    let mut packed = String::from("# pack-refs with: peeled fully-peeled sorted \n");
    for one in refs.iter() {
        packed += &format!("{} {}\n", one.target, one.name);
        if let Some(peeled) = one.peeled {
            packed += &format!("^{peeled}\n");
        }
    }
    fs::write(build.join("packed-refs"), packed)?;
    if let Some(head) = head {
        fs::write(build.join("HEAD"), format!("ref: {head}\n"))?;
    }
    Ok(())
}

fn hex_digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or('0')
}
