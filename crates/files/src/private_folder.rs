//! Folders that no other user of the machine can enter.

use std::{fs::DirBuilder, io, os::unix::fs::DirBuilderExt as _, path::Path};

/// Creates a folder and its missing ancestors, for this user only. The cache of a node may be deleted while it serves, so any
/// write may have to create it again.
pub(crate) fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
