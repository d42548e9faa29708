//! Durable changes on disk.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

/// Syncs the entries of a folder.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Syncs the content of a file.
pub(crate) fn sync_file(file: &Path) -> io::Result<()> {
    File::open(file)?.sync_all()
}

/// Syncs a folder and everything in it.
pub(crate) fn sync_recursively(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_recursively(&entry.path())?;
        } else {
            sync_file(&entry.path())?;
        }
    }
    sync_folder(folder)
}

/// Creates a folder and its missing ancestors, and syncs their parents.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        create_folder(parent)?;
        // Only this user may read repositories, also if the data folder or the cache was deleted and is created again.
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => sync_folder(parent)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes a file; returns whether it existed.
pub(crate) fn remove_if_exists(file: &Path) -> io::Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}
