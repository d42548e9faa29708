//! Keeping repositories quick: few packs, a graph of the commits, packed refs. Nothing here is in the way of a reader
//! or a push, and nothing is ever thrown away: an object that nobody reaches costs room, a missing one costs trust.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    process::Stdio,
};

use model::StorageId;

use crate::{Repositories, Result, child, disk};

/// So many refs lie about as files before they are packed.
const LOOSE_REFS: usize = 64;
/// So many packs, and so many folders with loose objects, before they are put together.
const PACKS: usize = 8;
const LOOSE_FOLDERS: usize = 32;

/// The name of the file that is locked while a repository is packed anew.
const LOCK: &str = "house.lock";

impl Repositories {
    /// Does for the repository of a project what is due; says whether it did. If somebody else is at it, nothing is done:
    /// most likely a program that outlived a server that was killed.
    pub fn keep_house(&self, storage: &StorageId) -> Result<bool> {
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
        if count_files(&path.join("refs"), LOOSE_REFS) >= LOOSE_REFS {
            run(&path, &lock, &["pack-refs", "--all"])?;
            // Git removes what it has packed without making sure that the pack's name lasts.
            disk::sync_folder(&path)?;
        }
        // With bitmaps a clone need not look at every object, also if it all came in one pack. They are about everything that
        // can be reached, so loose objects are packed with the rest.
        let is_new = || count_packs(&path) > 0 && is_behind(&path.join("objects/pack"));
        if count_packs(&path) >= PACKS || count_loose_folders(&path) >= LOOSE_FOLDERS || is_new() {
            run(&path, &lock, &["repack", "-d", "-q", "--geometric=2", "--write-midx", "--write-bitmap-index"])?;
            disk::sync_folder(&path.join("objects/pack"))?;
        }
        run(&path, &lock, &["commit-graph", "write", "--reachable", "--changed-paths", "--split", "--no-progress"])?;
        let graphs = path.join("objects/info/commit-graphs");
        if graphs.is_dir() {
            // Git syncs the graphs, but not the list of them.
            disk::sync_tree(&graphs)?;
        }
        // Packs and graphs that a warm handle knows may be gone.
        self.forget(storage);
        Ok(true)
    }
}

/// Waits until nobody packs a repository anew; nobody does for as long as the answer is kept. Several may keep one.
pub(crate) fn wait_for_house(repository: &Path) -> io::Result<File> {
    let lock = lock_file(repository)?;
    lock.lock_shared()?;
    Ok(lock)
}

/// Whether nobody packs a repository anew at this moment.
pub(crate) fn nobody_keeps_house(repository: &Path) -> bool {
    lock_file(repository).is_ok_and(|lock| lock.try_lock_shared().is_ok())
}

fn lock_file(repository: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).open(repository.join(LOCK))
}

/// Runs a program that has the lock as its input, which it never reads. So the lock lasts for as long as the program
/// does, even if it outlives us.
fn run(repository: &Path, lock: &File, arguments: &[&str]) -> Result<()> {
    let mut command = child::git(repository);
    command.args(arguments).stdin(Stdio::from(lock.try_clone()?));
    child::run(command)
}

/// How many files a folder and those below it hold; no use in counting beyond `most`.
fn count_files(folder: &Path, most: usize) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if count >= most {
            break;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        count += if is_folder { count_files(&entry.path(), most) } else { 1 };
    }
    count
}

/// Whether there is a pack that the index over all packs does not know.
fn is_behind(packs: &Path) -> bool {
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
