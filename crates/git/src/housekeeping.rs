//! Keeps repositories fast: few packs, a commit-graph, packed refs. Readers and pushes are not blocked, and no object
//! is ever deleted: an unreachable object costs disk space, a missing one is data loss.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    process::Stdio,
};

use model::StorageId;

use crate::{Repositories, Result, disk, git_process};

/// The number of loose refs from which on they are packed.
const MAX_LOOSE_REFS: usize = 64;
/// The number of packs, and of folders with loose objects, from which on they are repacked.
const MAX_PACKS: usize = 8;
const MAX_LOOSE_FOLDERS: usize = 32;

/// The name of the file that is locked during housekeeping.
const LOCK_FILE: &str = "house.lock";

impl Repositories {
    /// Runs the housekeeping that is due for the repository of a project; returns whether it ran. It does not run while
    /// another process does it, such as one that has outlived a killed server.
    pub fn run_housekeeping(&self, storage: &StorageId) -> Result<bool> {
        let path = self.path_of(storage);
        if !path.join("HEAD").exists() {
            return Ok(true);
        }
        let lock = lock_file(&path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        if count_files(&path.join("refs"), MAX_LOOSE_REFS) >= MAX_LOOSE_REFS {
            run_git(&path, &lock, &["pack-refs", "--all"])?;
            // Git removes the loose refs without syncing the new name of `packed-refs`.
            disk::sync_folder(&path)?;
        }
        // With bitmaps a clone need not visit every object, even if all came in one pack. They cover everything that is
        // reachable, so loose objects are packed, too.
        let has_unindexed_packs = || count_packs(&path) > 0 && is_multi_pack_index_outdated(&path.join("objects/pack"));
        if count_packs(&path) >= MAX_PACKS || count_loose_folders(&path) >= MAX_LOOSE_FOLDERS || has_unindexed_packs() {
            run_git(&path, &lock, &["repack", "-d", "-q", "--geometric=2", "--write-midx", "--write-bitmap-index"])?;
            disk::sync_folder(&path.join("objects/pack"))?;
        }
        run_git(
            &path,
            &lock,
            &["commit-graph", "write", "--reachable", "--changed-paths", "--split", "--no-progress"],
        )?;
        let graphs = path.join("objects/info/commit-graphs");
        if graphs.is_dir() {
            // Git syncs the graphs, but not the list of them.
            disk::sync_recursively(&graphs)?;
        }
        // Packs and graphs that an open handle uses may be gone.
        self.evict_handle(storage);
        Ok(true)
    }
}

/// Waits until no housekeeping runs in a repository; none starts while the result is held. It is a shared lock.
pub(crate) fn lock_out_housekeeping(repository: &Path) -> io::Result<File> {
    let lock = lock_file(repository)?;
    lock.lock_shared()?;
    Ok(lock)
}

/// Returns whether no housekeeping runs in a repository at the moment.
pub(crate) fn is_housekeeping_idle(repository: &Path) -> bool {
    lock_file(repository).is_ok_and(|lock| lock.try_lock_shared().is_ok())
}

fn lock_file(repository: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).open(repository.join(LOCK_FILE))
}

/// Runs a process with the lock file as its standard input, which it never reads. So the lock is held as long as the
/// process runs, even if it outlives the server.
fn run_git(repository: &Path, lock: &File, arguments: &[&str]) -> Result<()> {
    let mut command = git_process::git_command(repository);
    command.args(arguments).stdin(Stdio::from(lock.try_clone()?));
    git_process::run(command)
}

/// Counts the files in a folder and below it, up to about `limit`.
fn count_files(folder: &Path, limit: usize) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if count >= limit {
            break;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        count += if is_folder { count_files(&entry.path(), limit) } else { 1 };
    }
    count
}

/// Returns whether there is a pack that is not in the multi-pack-index.
fn is_multi_pack_index_outdated(packs: &Path) -> bool {
    let time = |file: &Path| fs::metadata(file).and_then(|data| data.modified()).ok();
    let index = time(&packs.join("multi-pack-index"));
    let entries = fs::read_dir(packs).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut packs = entries.filter(|file| file.extension().is_some_and(|extension| extension == "pack"));
    packs.any(|pack| time(&pack) > index)
}

fn count_packs(repository: &Path) -> usize {
    let entries = fs::read_dir(repository.join("objects/pack")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack")).count()
}

fn count_loose_folders(repository: &Path) -> usize {
    let entries = fs::read_dir(repository.join("objects")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().len() == 2).count()
}
