//! Moving refs: compared, swapped and on disk, or not at all.
//!
//! gix and git write refs without syncing them in every step, so a loss of power may leave an empty file where a branch
//! was. Here each step is synced before the next one relies on it. The files and their locks are those of git, so that
//! its own programs can work beside us.

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
    housekeeping::{nobody_keeps_house, wait_for_house},
};

/// How long somebody else may hold a lock, or remove the folder of a ref, before we give up; git's own programs do so for
/// moments.
const PATIENCE: Duration = Duration::from_secs(5);
/// A lock that nobody gave back for so long belongs to a program that is no more.
const ABANDONED: Duration = Duration::from_secs(60);

impl Repositories {
    /// Moves objects in and refs on, in the repository of a project, which is made if there is none. Every ref is what
    /// it was taken for, or nothing moves. Whoever calls this is the only one who does so for this project.
    pub fn apply(
        &self,
        storage: &StorageId,
        incoming: Option<&Quarantine>,
        changes: &[RefChange],
        head: Option<&RefName>,
    ) -> Result<()> {
        let repository = self.find_or_make(storage)?;
        if let Some(incoming) = incoming {
            incoming.move_into(repository.path())?;
            if repository.handle.is_outgrown()? {
                self.forget(storage);
            }
        }
        let result = move_refs(&repository, changes, head);
        repository.forget_refs();
        result
    }

    /// Which of these changes have happened; for whoever finds them written down after a crash.
    pub fn which_happened(&self, storage: &StorageId, changes: &[RefChange]) -> Result<Vec<bool>> {
        let path = self.path_of(storage);
        let refs = changes.iter().map(|change| path.join(change.name.as_str()));
        let locks: Vec<PathBuf> =
            refs.chain([path.join("HEAD"), path.join("packed-refs")]).map(|file| lock_of(&file)).collect();
        if locks.iter().any(|lock| lock.exists()) {
            // A lock that was left behind is what a crash leaves. It may also be that of a program that packs refs and
            // has outlived its server; that one is waited for.
            let _kept = wait_for_house(&path)?;
            for lock in &locks {
                // Nobody looks for it once the change is settled, so it must not come back with the next loss of power.
                if let (true, Some(folder)) = (disk::remove_if_there(lock)?, lock.parent()) {
                    sync_what_is_left(&path, folder)?;
                }
            }
        }
        let Some(repository) = self.find(storage)? else { return Ok(vec![false; changes.len()]) };
        repository.forget_refs();
        let packed = Packed::read(repository.path())?;
        let happened = |change: &RefChange| Ok(packed.current(repository.path(), &change.name)? == change.new);
        changes.iter().map(happened).collect()
    }
}

/// The packed refs by name, as they are on disk.
struct Packed(HashMap<String, Oid>);

impl Packed {
    fn read(repository: &Path) -> io::Result<Self> {
        let pair = |line: &str| line.split_once(' ').and_then(|(id, name)| Some((name.to_owned(), id.parse().ok()?)));
        Ok(Self(packed(repository)?.lines().filter_map(pair).collect()))
    }

    /// What a ref points to on disk.
    fn current(&self, repository: &Path, name: &RefName) -> Result<Option<Oid>> {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        match fs::read_to_string(repository.join(name.as_str())) {
            Ok(text) => text.trim_end().parse().map(Some).map_err(|_| Error::broken(format!("{name} is no ref"))),
            Err(error) if matches!(error.kind(), NotFound | IsADirectory | NotADirectory) => {
                Ok(self.0.get(name.as_str()).copied())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn packed(repository: &Path) -> io::Result<String> {
    match fs::read_to_string(repository.join("packed-refs")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// A lock that goes with its value unless it was put in the place of what it locks.
struct Lock {
    path: PathBuf,
    held: bool,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.held {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn lock_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl Lock {
    /// Locks a file and writes what it shall hold, durably; in a folder that is made if it is not there.
    fn take(repository: &Path, file: &Path, content: &[u8]) -> Result<Self> {
        let path = lock_of(file);
        let start = Instant::now();
        let mut made_folders = false;
        loop {
            match fs::OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut opened) => {
                    let lock = Self { path, held: true };
                    if made_folders {
                        // From now on the folders are not empty, so they stay.
                        sync_above(repository, file)?;
                    }
                    opened.write_all(content)?;
                    opened.sync_all()?;
                    return Ok(lock);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if is_abandoned(repository, &path) {
                        disk::remove_if_there(&path)?;
                    } else if start.elapsed() > PATIENCE {
                        return Err(Error::Moved(format!("{} is locked, it", file.display())));
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                // Whoever packs refs removes the folders that they leave empty, also one that was just made for us.
                Err(error) if error.kind() == io::ErrorKind::NotFound && start.elapsed() < PATIENCE => {
                    let folder = file.parent().filter(|folder| *folder != repository).ok_or(error)?;
                    make_ref_folder(folder)?;
                    made_folders = true;
                }
                // A file is in the way: a ref of that name.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    return Err(Error::Moved(file.display().to_string()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Puts what was written in the place of the file.
    fn replace(mut self, file: &Path) -> io::Result<()> {
        fs::rename(&self.path, file)?;
        self.held = false;
        Ok(())
    }
}

/// Whether a lock is old and nobody is there who could have it: beside us only housekeeping takes locks.
fn is_abandoned(repository: &Path, lock: &Path) -> bool {
    let age = fs::metadata(lock).and_then(|data| data.modified()).map(|time| SystemTime::now().duration_since(time));
    age.is_ok_and(|age| age.is_ok_and(|age| age > ABANDONED)) && nobody_keeps_house(repository)
}

fn move_refs(repository: &Repository, changes: &[RefChange], head: Option<&RefName>) -> Result<()> {
    let root = repository.path();
    let mut locks = Vec::with_capacity(changes.len());
    let mut folders = BTreeSet::new();
    for change in changes {
        let file = root.join(change.name.as_str());
        folders.extend(file.parent().map(Path::to_owned));
        let content = change.new.map(|new| format!("{new}\n")).unwrap_or_default();
        let lock = Lock::take(root, &file, content.as_bytes())?;
        locks.push((change, file, lock));
    }
    // Read once all are locked: from now on nobody packs one of them away.
    let packed = Packed::read(root)?;
    for change in changes {
        if packed.current(root, &change.name)? != change.old {
            return Err(Error::Moved(change.name.to_string()));
        }
    }
    let head =
        head.map(|head| Lock::take(root, &root.join("HEAD"), format!("ref: {head}\n").as_bytes())).transpose()?;
    // From here on nothing but the disk can fail, and whoever comes after a crash can tell how far it went.
    let removed: BTreeSet<&str> =
        changes.iter().filter(|change| change.new.is_none()).map(|change| change.name.as_str()).collect();
    // Held until the loose files are gone, too: whoever packs refs meanwhile would bring back what it has read.
    let packed_lock = forget_packed(root, &removed)?;
    for (change, file, lock) in locks {
        if change.new.is_some() {
            make_room(&file)?;
            lock.replace(&file)?;
        } else {
            disk::remove_if_there(&file)?;
        }
    }
    if let Some(lock) = head {
        lock.replace(&root.join("HEAD"))?;
        folders.insert(root.to_owned());
    }
    if packed_lock.is_some() {
        // That the lock is gone lasts, too: left behind by a loss of power, it would be in the way of the next removal.
        drop(packed_lock);
        folders.insert(root.to_owned());
    }
    for folder in &folders {
        sync_what_is_left(root, folder)?;
    }
    for change in changes.iter().filter(|change| change.new.is_none()) {
        remove_empty_folders(root, &change.name);
    }
    Ok(())
}

/// Makes the folder of a ref; a file in the way is a ref of that name. That somebody removes it meanwhile is no error.
fn make_ref_folder(folder: &Path) -> Result<()> {
    use io::ErrorKind::{AlreadyExists, NotADirectory, NotFound};
    match fs::create_dir_all(folder) {
        Ok(()) => Ok(()),
        Err(error) => match error.kind() {
            NotADirectory => Err(Error::Moved(folder.display().to_string())),
            AlreadyExists if folder.is_file() => Err(Error::Moved(folder.display().to_string())),
            AlreadyExists | NotFound => Ok(()),
            _ => Err(error.into()),
        },
    }
}

/// Makes the folders last in which a file of a repository is.
fn sync_above(repository: &Path, file: &Path) -> io::Result<()> {
    let mut folders = file.ancestors().skip(2).take_while(|folder| folder.starts_with(repository));
    folders.try_for_each(disk::sync_folder)
}

/// Makes the entries of a folder last. If it was removed because nothing was left in it, that it is gone shall last.
fn sync_what_is_left(root: &Path, folder: &Path) -> io::Result<()> {
    match disk::sync_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder != root => match folder.parent() {
            Some(above) => sync_what_is_left(root, above),
            None => Err(error),
        },
        synced => synced,
    }
}

/// Removes folders without refs that stand where a ref shall be.
fn make_room(file: &Path) -> io::Result<()> {
    if !file.is_dir() {
        return Ok(());
    }
    // Whoever packs refs may have removed it meanwhile.
    let gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
    let entries = match fs::read_dir(file) {
        Ok(entries) => entries,
        Err(error) => return gone(error),
    };
    for entry in entries {
        make_room(&entry?.path())?;
    }
    fs::remove_dir(file).or_else(gone)
}

/// Takes refs out of the packed ones. Nobody packs refs for as long as the answer is kept.
fn forget_packed(root: &Path, removed: &BTreeSet<&str>) -> Result<Option<Lock>> {
    if removed.is_empty() {
        return Ok(None);
    }
    let name_of = |line: &str| line.split_once(' ').map(|(_, name)| name.to_owned());
    let file = root.join("packed-refs");
    let lock = Lock::take(root, &file, b"")?;
    let all = packed(root)?;
    if !all.lines().any(|line| name_of(line).is_some_and(|name| removed.contains(&*name))) {
        return Ok(Some(lock));
    }
    let mut kept = String::new();
    let mut dropping = false;
    for line in all.lines() {
        // A line with what a tag leads to belongs to the line before it.
        if !line.starts_with('^') {
            dropping = !line.starts_with('#') && name_of(line).is_some_and(|name| removed.contains(&*name));
        }
        if !dropping {
            kept += line;
            kept.push('\n');
        }
    }
    // Beside the lock, as git does it, so that the lock lasts.
    let fresh = root.join("packed-refs.new");
    let mut written = fs::File::create(&fresh)?;
    written.write_all(kept.as_bytes())?;
    written.sync_all()?;
    fs::rename(&fresh, &file)?;
    disk::sync_folder(root)?;
    Ok(Some(lock))
}

/// Removes folders that hold no refs any more, up to the first two levels.
fn remove_empty_folders(root: &Path, name: &RefName) {
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
    fn a_lock_makes_the_folder_anew_that_somebody_has_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("refs/heads/a/b/c");
        let lock = Lock::take(root.path(), &file, b"x").expect("a lock");
        assert_eq!(fs::read(lock_of(&file)).expect("a file"), b"x");
        drop(lock);
        // A repository that is gone is not made anew.
        let gone = root.path().join("gone");
        assert!(Lock::take(&gone, &gone.join("HEAD"), b"x").is_err());
        assert!(!gone.exists());
    }

    #[test]
    fn of_a_folder_that_is_gone_the_nearest_one_above_is_synced() {
        let root = tempfile::tempdir().expect("a folder");
        sync_what_is_left(root.path(), &root.path().join("refs/heads/a")).expect("synced");
        let gone = root.path().join("gone");
        assert_eq!(sync_what_is_left(&gone, &gone).expect_err("nothing there").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn refs_move_while_somebody_removes_empty_folders() {
        let root = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::in_folder(root.path()).expect("a place");
        let storage = StorageId::parse("1").expect("a storage id");
        let path = repositories.find_or_make(&storage).expect("made").path().to_owned();
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
