//! Stores whole local files, such as git packs, and makes stored files available as local ones.
//!
//! A file is linked instead of copied where the file system allows it. Stored files are read-only, so that they are not
//! modified through another link.

#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, Permissions, ReadDir},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{MutexGuard, PoisonError},
    time::SystemTime,
};

use super::{Folder, optional, remove_unfinished, sync_ancestors, sync_folder, unfinished_path};
use crate::{Error, FileEntry, location};

/// The mode of stored files.
const READ_ONLY: u32 = 0o444;

/// The function that links a file, normally [`fs::hard_link`].
pub(crate) type HardLink = fn(&Path, &Path) -> io::Result<()>;

impl Folder {
    /// See [`crate::Files::store_files`].
    pub(crate) fn store_files(&self, files: &[(impl AsRef<str>, impl AsRef<Path>)]) -> Result<(), Error> {
        let mut placed = Vec::with_capacity(files.len());
        let stored = self.place_files(files, &mut placed);
        if stored.is_err() {
            // The first one is the last to be removed, so that callers can find the others by it.
            for path in placed.iter().rev() {
                // The first error is the one to report.
                let _ = fs::remove_file(path);
            }
        }
        stored
    }

    /// See [`crate::Files::fetch_file`].
    pub(crate) fn fetch_file(&self, key: &str, to: &Path) -> Result<bool, Error> {
        let path = self.path_of(key)?;
        if to.try_exists()? {
            return Ok(true);
        }
        match self.link_or_copy(&path, to) {
            Ok(()) => Ok(true),
            // A concurrent call was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
            // If the key exists, the folder of `to` is missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.try_exists()? => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// See [`crate::Files::list`].
    pub(crate) fn list(&self, folder: &str, each: &mut dyn FnMut(FileEntry) -> Result<(), Error>) -> Result<(), Error> {
        let open_folder = |path: &Path| optional(fs::read_dir(path));
        // One open folder per level, because a folder may have too many files to hold their names in memory.
        let mut folders: Vec<ReadDir> = open_folder(&self.path_of(folder)?)?.into_iter().collect();
        while let Some(deepest) = folders.last_mut() {
            let Some(entry) = deepest.next().transpose()? else {
                folders.pop();
                continue;
            };
            let path = entry.path();
            // `None` if it was removed meanwhile.
            let Some(metadata) = optional(entry.metadata())? else { continue };
            if metadata.is_dir() {
                folders.extend(open_folder(&path)?);
            } else if metadata.is_file()
                && let Some(key) = self.key(&path)
            {
                each(FileEntry { key: key.to_owned(), size: metadata.len(), modified: metadata.modified()? })?;
            }
        }
        Ok(())
    }

    /// Returns the size of a key; `None` if it does not exist.
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>, Error> {
        Ok(optional(fs::metadata(self.path_of(key)?))?.map(|metadata| metadata.len()))
    }

    /// See [`crate::Files::remove`].
    pub(crate) fn remove_files(&self, keys: &[String]) -> Result<(), Error> {
        for key in keys {
            let path = self.path_of(key)?;
            optional(fs::remove_file(&path))?;
            remove_unfinished(&path)?;
        }
        Ok(sync_ancestors(&self.path, keys)?)
    }

    /// Returns the folders that are known to be on disk.
    pub(crate) fn durable_folders(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.durable_folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of a key.
    fn path_of(&self, key: &str) -> Result<PathBuf, Error> {
        Ok(self.path.join(String::from(location(key)?)))
    }

    /// Returns the key of a path; `None` for an unfinished write.
    fn key<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let key = path.strip_prefix(&self.path).ok()?.to_str()?;
        (!is_unfinished(key)).then_some(key)
    }

    /// Stores files under new keys, and adds their paths to `placed` even if a later one fails.
    fn place_files(
        &self,
        files: &[(impl AsRef<str>, impl AsRef<Path>)],
        placed: &mut Vec<PathBuf>,
    ) -> Result<(), Error> {
        for (key, file) in files {
            placed.push(self.place_file(key.as_ref(), file.as_ref())?);
        }
        Ok(sync_parents(placed)?)
    }

    /// Stores a file under a new key and returns its path, whose folder is not synced yet.
    fn place_file(&self, key: &str, file: &Path) -> Result<PathBuf, Error> {
        let path = self.path_of(key)?;
        self.create_folder(path.parent().unwrap_or(&path))?;
        finalize(&File::open(file)?)?;
        match self.link_or_copy(file, &path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::AlreadyExists(key.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a folder with its parents, if necessary; it is on disk on return.
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if self.durable_folders().contains(folder) && folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        // A folder that existed may have been created by a concurrent call or a crashed process and not be synced yet.
        let parents = folder.ancestors().skip(1).take_while(|parent| parent.starts_with(&self.path));
        for parent in parents {
            sync_folder(parent)?;
        }
        self.durable_folders().insert(folder.to_owned());
        Ok(())
    }

    /// Links a finalized file, or copies it if that is not possible. Fails if `to` exists.
    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.hard_link)(from, to) {
            Err(error) if forbids_links(&error) => copy(from, to),
            linked => linked,
        }
    }
}

/// Returns whether a file could not be linked for a reason that does not concern copies: the target is on another file
/// system, the file system has no links, or the file has too many.
fn forbids_links(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}

/// Copies a file to a path that must not exist. The copy is on disk before it gets its name.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let (mut target, temporary) = create_temporary(to)?;
    let copied =
        io::copy(&mut source, &mut target).and_then(|_| finalize(&target)).and_then(|()| rename_to_new(&temporary, to));
    if copied.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    copied
}

/// Renames a file unless the new name exists. It may replace the file of a concurrent call, as documented for
/// [`crate::Files::store_file`].
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    if to.try_exists()? { Err(io::ErrorKind::AlreadyExists.into()) } else { fs::rename(from, to) }
}

/// Creates a temporary file next to a path; returns it with its own path.
fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 1;
    loop {
        let temporary = unfinished_path(path, number);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return Ok((created?, temporary)),
        }
    }
}

/// Makes a file read-only, records the current time as that of its modification, and syncs it.
fn finalize(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(READ_ONLY))?;
    file.set_modified(SystemTime::now())?;
    file.sync_all()
}

/// Returns whether a key is the name of an unfinished write; see [`unfinished_path`].
fn is_unfinished(key: &str) -> bool {
    key.rsplit_once('#').is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Syncs the folders of files.
fn sync_parents(paths: &[PathBuf]) -> io::Result<()> {
    let folders: HashSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    folders.into_iter().try_for_each(sync_folder)
}
