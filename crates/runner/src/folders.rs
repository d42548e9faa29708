//! A way through folders that belong to a job: name by name and never through a link, whatever the job does meanwhile.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::PermissionsExt as _,
        },
    },
    path::Path,
    thread,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid},
    io::Errno,
};

use crate::isolation::User;

/// An open folder.
pub(crate) struct Folder(OwnedFd);

/// Something in a folder.
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) kind: FileType,
}

impl Folder {
    /// A folder; the way to it is trusted.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self(fd))
    }

    /// A folder in this one.
    pub(crate) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
    }

    /// A folder in this one, which is made if it is not there.
    pub(crate) fn make(&self, name: &OsStr, owner: Option<&User>) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let made = self.enter(name)?;
                give(&made.0, owner)?;
                Ok(made)
            }
            Err(Errno::EXIST) => self.enter(name),
            Err(error) => Err(error.into()),
        }
    }

    /// A new file in the place of whatever was there.
    pub(crate) fn create(&self, name: &OsStr, mode: u32, owner: Option<&User>) -> io::Result<File> {
        self.clear(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o600))?;
        give(&fd, owner)?;
        // Rights to become somebody else are never restored.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o777))?;
        Ok(File::from(fd))
    }

    /// A new link in the place of whatever was there.
    pub(crate) fn link(&self, name: &OsStr, target: &OsStr, owner: Option<&User>) -> io::Result<()> {
        self.clear(name)?;
        rustix::fs::symlinkat(target, &self.0, name)?;
        if let Some(user) = owner {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            rustix::fs::chownat(&self.0, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// An ordinary file, to read.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        // A pipe would keep whoever opens it waiting.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no ordinary file")) }
    }

    /// Where a link leads.
    pub(crate) fn target(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(OsString::from_vec(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes()))
    }

    /// What is in it, by name.
    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let found = rustix::fs::statat(&self.0, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(found.st_mode)
                }
                known => known,
            };
            entries.push(Entry { name, kind });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn clear(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn give(fd: &OwnedFd, owner: Option<&User>) -> io::Result<()> {
    if let Some(user) = owner {
        rustix::fs::fchown(fd, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
    }
    Ok(())
}

/// Removes a folder with everything in it, also what its owner has locked, and what is still being written.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let mut outcome = Ok(());
    for attempt in 0..5 {
        outcome = match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        if outcome.is_ok() {
            break;
        }
        if attempt > 0 {
            thread::sleep(Duration::from_millis(100));
        }
        unlock(path);
    }
    outcome
}

/// Makes folders writable for their owner; best effort.
fn unlock(path: &Path) {
    let mut open = vec![path.to_owned()];
    while let Some(folder) = open.pop() {
        // What is a link is not followed: its target is none of ours.
        if !fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        if let Ok(entries) = fs::read_dir(&folder) {
            let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            open.extend(folders.map(|entry| entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_never_entered_nor_read_through() {
        let (inside, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::write(outside.path().join("secret"), "s").expect("written");
        std::os::unix::fs::symlink(outside.path(), inside.path().join("way")).expect("linked");
        std::os::unix::fs::symlink(outside.path().join("secret"), inside.path().join("file")).expect("linked");
        let folder = Folder::open(inside.path()).expect("opened");
        assert!(folder.enter(OsStr::new("way")).is_err());
        assert!(folder.make(OsStr::new("way"), None).is_err());
        assert!(folder.read(OsStr::new("file")).is_err());
        // Writing puts a file in the place of the link and leaves its target alone.
        io::Write::write_all(&mut folder.create(OsStr::new("file"), 0o644, None).expect("made"), b"x")
            .expect("written");
        assert_eq!(fs::read_to_string(outside.path().join("secret")).expect("read"), "s");
    }

    #[test]
    fn a_locked_folder_is_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let deep = root.path().join("a/b/c");
        fs::create_dir_all(&deep).expect("made");
        fs::write(deep.join("x"), "x").expect("written");
        fs::set_permissions(root.path().join("a/b"), fs::Permissions::from_mode(0o000)).expect("locked");
        remove(&root.path().join("a")).expect("removed");
        assert!(!root.path().join("a").exists());
    }
}
