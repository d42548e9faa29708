//! Updates refs: compare-and-swap, durably, all or none.
//!
//! gix and git do not sync every step of a ref update, so a power cut can leave an empty file in place of a branch.
//! Here each step is synced before the next one relies on it. The files and their locks are those of git, so `git`
//! processes can work on the repository at the same time.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use model::{Oid, RefChange, RefName, StorageId};

use crate::{
    Error, Quarantine, Repositories, Repository, Result, disk,
    housekeeping::{is_housekeeping_idle, lock_out_housekeeping},
};

/// How long to wait for a lock, or for a folder that is being removed; `git` processes hold locks for moments only.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// A lock older than this belongs to a process that no longer exists.
const STALE_LOCK_AGE: Duration = Duration::from_secs(60);

impl Repositories {
    /// Moves objects into the repository of a project and updates its refs. The repository is created if it does not
    /// exist. Nothing changes unless every ref has its expected old value. The caller must be the only one that does
    /// this for the project.
    pub fn apply(
        &self,
        storage: &StorageId,
        incoming: Option<&Quarantine>,
        changes: &[RefChange],
        head: Option<&RefName>,
    ) -> Result<()> {
        let repository = self.find_or_create(storage)?;
        if let Some(incoming) = incoming {
            incoming.move_into(repository.path())?;
            if repository.handle.is_outgrown()? {
                self.evict_handle(storage);
            }
        }
        let result = update_refs(&repository, changes, head);
        repository.invalidate_refs();
        result
    }

    /// Returns which of these changes were applied, to recover from a crash.
    pub fn which_were_applied(&self, storage: &StorageId, changes: &[RefChange]) -> Result<Vec<bool>> {
        let path = self.path_of(storage);
        let refs = changes.iter().map(|change| path.join(change.name.as_str()));
        let locks: Vec<PathBuf> =
            refs.chain([path.join("HEAD"), path.join("packed-refs")]).map(|file| lock_path(&file)).collect();
        if locks.iter().any(|lock| lock.exists()) {
            // The lock may be left over from a crash, or belong to a `git pack-refs` that has outlived its server,
            // which is waited for.
            let _housekeeping_lock = lock_out_housekeeping(&path)?;
            for lock in &locks {
                // Synced, because the lock must not reappear after a power cut: no one looks for it once the change is
                // settled.
                if let (true, Some(folder)) = (disk::remove_if_exists(lock)?, lock.parent()) {
                    sync_nearest(&path, folder)?;
                }
            }
        }
        let Some(repository) = self.find(storage)? else { return Ok(vec![false; changes.len()]) };
        repository.invalidate_refs();
        let packed = PackedRefs::read(repository.path())?;
        let was_applied = |change: &RefChange| Ok(packed.current(repository.path(), &change.name)? == change.new);
        changes.iter().map(was_applied).collect()
    }
}

/// The packed refs by name, as they are on disk.
struct PackedRefs(HashMap<String, Oid>);

impl PackedRefs {
    fn read(repository: &Path) -> io::Result<Self> {
        let pair = |line: &str| line.split_once(' ').and_then(|(id, name)| Some((name.to_owned(), id.parse().ok()?)));
        Ok(Self(read_packed_refs(repository)?.lines().filter_map(pair).collect()))
    }

    /// Returns the target of a ref on disk.
    fn current(&self, repository: &Path, name: &RefName) -> Result<Option<Oid>> {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        match fs::read_to_string(repository.join(name.as_str())) {
            Ok(text) => {
                text.trim_end().parse().map(Some).map_err(|_| Error::corrupt(format!("{name} is not a valid ref")))
            }
            Err(error) if matches!(error.kind(), NotFound | IsADirectory | NotADirectory) => {
                Ok(self.0.get(name.as_str()).copied())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn read_packed_refs(repository: &Path) -> io::Result<String> {
    match fs::read_to_string(repository.join("packed-refs")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// A lock file, which is removed when the value is dropped unless it replaced the file it locks.
struct RefLock {
    path: PathBuf,
    owned: bool,
}

impl Drop for RefLock {
    fn drop(&mut self) {
        if self.owned {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn lock_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl RefLock {
    /// Locks a file and writes its new content to the lock file, durably. The folder is created if it does not exist.
    fn acquire(repository: &Path, file: &Path, content: &[u8]) -> Result<Self> {
        let path = lock_path(file);
        let start = Instant::now();
        let mut created_folders = false;
        loop {
            match fs::OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut opened) => {
                    let lock = Self { path, owned: true };
                    if created_folders {
                        // The folders are not empty any more, so they will not be removed.
                        sync_ancestors(repository, file)?;
                    }
                    opened.write_all(content)?;
                    opened.sync_all()?;
                    return Ok(lock);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if is_stale(repository, &path) {
                        disk::remove_if_exists(&path)?;
                    } else if start.elapsed() > LOCK_TIMEOUT {
                        return Err(Error::RefChanged(format!("{} is locked; it", file.display())));
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                // `git pack-refs` removes folders that it leaves empty, even one that was just created here.
                Err(error) if error.kind() == io::ErrorKind::NotFound && start.elapsed() < LOCK_TIMEOUT => {
                    let folder = file.parent().filter(|folder| *folder != repository).ok_or(error)?;
                    create_ref_folder(folder)?;
                    created_folders = true;
                }
                // A ref with this name is in the way.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    return Err(Error::RefChanged(file.display().to_string()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Replaces the file with the content of the lock file.
    fn replace(mut self, file: &Path) -> io::Result<()> {
        fs::rename(&self.path, file)?;
        self.owned = false;
        Ok(())
    }
}

/// Returns whether a lock is old and its owner is gone: only the server and its housekeeping take locks.
fn is_stale(repository: &Path, lock: &Path) -> bool {
    let age = fs::metadata(lock).and_then(|data| data.modified()).map(|time| SystemTime::now().duration_since(time));
    age.is_ok_and(|age| age.is_ok_and(|age| age > STALE_LOCK_AGE)) && is_housekeeping_idle(repository)
}

fn update_refs(repository: &Repository, changes: &[RefChange], head: Option<&RefName>) -> Result<()> {
    let root = repository.path();
    let mut locks = Vec::with_capacity(changes.len());
    let mut folders = BTreeSet::new();
    for change in changes {
        let file = root.join(change.name.as_str());
        folders.extend(file.parent().map(Path::to_owned));
        let content = change.new.map(|new| format!("{new}\n")).unwrap_or_default();
        let lock = RefLock::acquire(root, &file, content.as_bytes())?;
        locks.push((change, file, lock));
    }
    // Read once all refs are locked: from now on none of them can be packed.
    let packed = PackedRefs::read(root)?;
    for change in changes {
        if packed.current(root, &change.name)? != change.old {
            return Err(Error::RefChanged(change.name.to_string()));
        }
    }
    let head =
        head.map(|head| RefLock::acquire(root, &root.join("HEAD"), format!("ref: {head}\n").as_bytes())).transpose()?;
    // From here on only I/O can fail, and a recovery can tell how far the update got.
    let removed: BTreeSet<&str> =
        changes.iter().filter(|change| change.new.is_none()).map(|change| change.name.as_str()).collect();
    // Held until the loose files are gone, too: a concurrent `git pack-refs` would restore the refs that it has read.
    let packed_lock = remove_packed(root, &removed)?;
    for (change, file, lock) in locks {
        if change.new.is_some() {
            remove_empty_folders_at(&file)?;
            lock.replace(&file)?;
        } else {
            disk::remove_if_exists(&file)?;
        }
    }
    if let Some(lock) = head {
        lock.replace(&root.join("HEAD"))?;
        folders.insert(root.to_owned());
    }
    if packed_lock.is_some() {
        // The removal of the lock is synced, too: if it reappeared after a power cut, it would block the next removal.
        drop(packed_lock);
        folders.insert(root.to_owned());
    }
    for folder in &folders {
        sync_nearest(root, folder)?;
    }
    for change in changes.iter().filter(|change| change.new.is_none()) {
        remove_empty_ancestors(root, &change.name);
    }
    Ok(())
}

/// Creates the folder of a ref; a file in the way is a ref with that name. It is no error if the folder is removed
/// again concurrently.
fn create_ref_folder(folder: &Path) -> Result<()> {
    use io::ErrorKind::{AlreadyExists, NotADirectory, NotFound};
    match fs::create_dir_all(folder) {
        Ok(()) => Ok(()),
        Err(error) => match error.kind() {
            NotADirectory => Err(Error::RefChanged(folder.display().to_string())),
            AlreadyExists if folder.is_file() => Err(Error::RefChanged(folder.display().to_string())),
            AlreadyExists | NotFound => Ok(()),
            _ => Err(error.into()),
        },
    }
}

/// Syncs the folders that contain a file of a repository.
fn sync_ancestors(repository: &Path, file: &Path) -> io::Result<()> {
    let mut folders = file.ancestors().skip(2).take_while(|folder| folder.starts_with(repository));
    folders.try_for_each(disk::sync_folder)
}

/// Syncs a folder. If it was removed because it was empty, its nearest existing ancestor is synced.
fn sync_nearest(root: &Path, folder: &Path) -> io::Result<()> {
    match disk::sync_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder != root => match folder.parent() {
            Some(above) => sync_nearest(root, above),
            None => Err(error),
        },
        synced => synced,
    }
}

/// Removes folders without refs that are in the way of a new ref.
fn remove_empty_folders_at(file: &Path) -> io::Result<()> {
    if !file.is_dir() {
        return Ok(());
    }
    // `git pack-refs` may remove it at the same time.
    let ignore_missing = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
    let entries = match fs::read_dir(file) {
        Ok(entries) => entries,
        Err(error) => return ignore_missing(error),
    };
    for entry in entries {
        remove_empty_folders_at(&entry?.path())?;
    }
    fs::remove_dir(file).or_else(ignore_missing)
}

/// Removes refs from `packed-refs`. No refs can be packed while the result is held.
fn remove_packed(root: &Path, removed: &BTreeSet<&str>) -> Result<Option<RefLock>> {
    if removed.is_empty() {
        return Ok(None);
    }
    let name_of = |line: &str| line.split_once(' ').map(|(_, name)| name.to_owned());
    let file = root.join("packed-refs");
    let lock = RefLock::acquire(root, &file, b"")?;
    let all = read_packed_refs(root)?;
    if !all.lines().any(|line| name_of(line).is_some_and(|name| removed.contains(&*name))) {
        return Ok(Some(lock));
    }
    let mut remaining = String::new();
    let mut dropping = false;
    for line in all.lines() {
        // A line with the peeled target of a tag belongs to the line before it.
        if !line.starts_with('^') {
            dropping = !line.starts_with('#') && name_of(line).is_some_and(|name| removed.contains(&*name));
        }
        if !dropping {
            remaining += line;
            remaining.push('\n');
        }
    }
    // A file besides the lock, as git does it, so that the lock remains.
    let fresh = root.join("packed-refs.new");
    let mut file_out = fs::File::create(&fresh)?;
    file_out.write_all(remaining.as_bytes())?;
    file_out.sync_all()?;
    fs::rename(&fresh, &file)?;
    disk::sync_folder(root)?;
    Ok(Some(lock))
}

/// Removes folders without refs, except for the first two levels.
fn remove_empty_ancestors(root: &Path, name: &RefName) {
    let mut path = name.as_str();
    while let Some((above, _)) = path.rsplit_once('/') {
        if above.matches('/').count() < 2 || fs::remove_dir(root.join(above)).is_err() {
            return;
        }
        path = above;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_lock_creates_the_folder_of_its_file() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("refs/heads/a/b/c");
        let lock = RefLock::acquire(root.path(), &file, b"x").expect("a lock");
        assert_eq!(fs::read(lock_path(&file)).expect("a file"), b"x");
        drop(lock);
        // A repository that does not exist is not created.
        let missing = root.path().join("gone");
        assert!(RefLock::acquire(&missing, &missing.join("HEAD"), b"x").is_err());
        assert!(!missing.exists());
    }

    #[test]
    fn the_nearest_ancestor_of_a_removed_folder_is_synced() {
        let root = tempfile::tempdir().expect("a folder");
        sync_nearest(root.path(), &root.path().join("refs/heads/a")).expect("synced");
        let missing = root.path().join("gone");
        assert_eq!(sync_nearest(&missing, &missing).expect_err("not found").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn refs_are_updated_while_empty_folders_are_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::open(root.path()).expect("repositories");
        let storage = StorageId::parse("1").expect("a storage id");
        let path = repositories.find_or_create(&storage).expect("created").path().to_owned();
        let done = AtomicBool::new(false);
        let tip: Oid = "1".repeat(40).parse().expect("an id");
        let name = RefName::new("refs/heads/a/b/c").expect("a name");
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for folder in ["refs/heads/a/b", "refs/heads/a"] {
                        let _ = fs::remove_dir(path.join(folder));
                    }
                }
            });
            let moved: Result<()> = (0..200).try_for_each(|round| {
                let (old, new) = if round % 2 == 0 { (None, Some(tip)) } else { (Some(tip), None) };
                repositories.apply(&storage, None, &[RefChange { name: name.clone(), old, new }], None)
            });
            done.store(true, Ordering::Relaxed);
            moved.expect("every change");
        });
        assert!(!path.join("refs/heads/a/b/c").exists());
    }
}
