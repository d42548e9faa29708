//! Access to folders that a job can modify at the same time: one path component at a time, never through a link.

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
pub(crate) struct FolderHandle(OwnedFd);

/// An entry of a folder.
pub(crate) struct FolderEntry {
    pub(crate) name: OsString,
    pub(crate) kind: FileType,
}

impl FolderHandle {
    /// Opens a folder whose path is trusted.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self(fd))
    }

    /// Opens a subfolder.
    pub(crate) fn open_subfolder(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Opens a subfolder, creating it if it does not exist.
    pub(crate) fn create_subfolder(&self, name: &OsStr, owner: Option<&User>) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let created = self.open_subfolder(name)?;
                set_owner(&created.0, owner)?;
                Ok(created)
            }
            Err(Errno::EXIST) => self.open_subfolder(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file, replacing an existing one.
    pub(crate) fn create_file(&self, name: &OsStr, mode: u32, owner: Option<&User>) -> io::Result<File> {
        self.unlink(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o600))?;
        set_owner(&fd, owner)?;
        // Set-user-id and similar bits are never restored.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o777))?;
        Ok(File::from(fd))
    }

    /// Creates a link, replacing an existing file.
    pub(crate) fn create_link(&self, name: &OsStr, target: &OsStr, owner: Option<&User>) -> io::Result<()> {
        self.unlink(name)?;
        rustix::fs::symlinkat(target, &self.0, name)?;
        if let Some(user) = owner {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            rustix::fs::chownat(&self.0, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Opens a regular file for reading.
    pub(crate) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        // Opening a pipe would block otherwise.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
    }

    /// Returns the target of a link.
    pub(crate) fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(OsString::from_vec(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes()))
    }

    /// Returns the entries, sorted by name.
    pub(crate) fn entries(&self) -> io::Result<Vec<FolderEntry>> {
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
            entries.push(FolderEntry { name, kind });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn set_owner(fd: &OwnedFd, owner: Option<&User>) -> io::Result<()> {
    if let Some(user) = owner {
        rustix::fs::fchown(fd, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
    }
    Ok(())
}

/// Removes a folder with its content, including folders without write permission and files still being written.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
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
        make_writable(path);
    }
    outcome
}

/// Makes folders writable for their owner; ignores errors.
fn make_writable(path: &Path) {
    let mut pending = vec![path.to_owned()];
    while let Some(folder) = pending.pop() {
        // Links are not followed.
        if !fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        if let Ok(entries) = fs::read_dir(&folder) {
            let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            pending.extend(folders.map(|entry| entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_never_followed() {
        let (inside, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::write(outside.path().join("secret"), "s").expect("written");
        std::os::unix::fs::symlink(outside.path(), inside.path().join("way")).expect("linked");
        std::os::unix::fs::symlink(outside.path().join("secret"), inside.path().join("file")).expect("linked");
        let folder = FolderHandle::open(inside.path()).expect("opened");
        assert!(folder.open_subfolder(OsStr::new("way")).is_err());
        assert!(folder.create_subfolder(OsStr::new("way"), None).is_err());
        assert!(folder.open_file(OsStr::new("file")).is_err());
        // Writing replaces the link and leaves its target alone.
        io::Write::write_all(&mut folder.create_file(OsStr::new("file"), 0o644, None).expect("made"), b"x")
            .expect("written");
        assert_eq!(fs::read_to_string(outside.path().join("secret")).expect("read"), "s");
    }

    #[test]
    fn a_folder_without_permissions_is_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let deep = root.path().join("a/b/c");
        fs::create_dir_all(&deep).expect("made");
        fs::write(deep.join("x"), "x").expect("written");
        fs::set_permissions(root.path().join("a/b"), fs::Permissions::from_mode(0o000)).expect("locked");
        remove_all(&root.path().join("a")).expect("removed");
        assert!(!root.path().join("a").exists());
    }
}
