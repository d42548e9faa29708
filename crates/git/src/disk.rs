//! What makes a change on disk last.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Makes the entries of a folder last.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes what was written to a file last.
pub(crate) fn sync_file(file: &Path) -> io::Result<()> {
    File::open(file)?.sync_all()
}

/// Makes everything in a folder last, itself included.
pub(crate) fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            sync_file(&entry.path())?;
        }
    }
    sync_folder(folder)
}

/// Makes a folder and those above it, each known to its parent for good. Nothing to do if it is there.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make_folder(parent)?;
        match fs::create_dir(folder) {
            Ok(()) => sync_folder(parent)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes a file that may be gone already.
pub(crate) fn remove_if_there(file: &Path) -> io::Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}
