//! Temporary folders.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::workspace;

/// A folder that is removed on drop.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a folder in the cache folder, which is on a real disk.
    pub(crate) fn new(name: &str) -> Result<Self> {
        Self::new_in(&workspace::cache_folder(), name)
    }

    /// Creates a folder in another, with a name that is unique to this process.
    pub(crate) fn new_in(parent: &Path, name: &str) -> Result<Self> {
        remove_abandoned(parent, name);
        let path = parent.join(format!("{name}.{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).with_context(|| format!("cannot create the folder {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders of interrupted runs.
fn remove_abandoned(parent: &Path, name: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let owner = file_name.to_str().and_then(|text| text.strip_prefix(name)?.strip_prefix('.'));
        let is_gone = |owner: &str| Path::new("/proc/self").exists() && !Path::new("/proc").join(owner).exists();
        if owner.is_some_and(|owner| owner.parse::<u32>().is_ok() && is_gone(owner)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
