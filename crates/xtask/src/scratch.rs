//! Folders that are gone when they are no longer needed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Outcome, workspace};

/// A folder of our own, removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder beside the build, where there is a real disk.
    pub(crate) fn new(name: &str) -> Outcome<Self> {
        Self::beneath(&workspace::kept(), name)
    }

    /// Makes a folder beneath another. Runs at the same time get different ones.
    pub(crate) fn beneath(parent: &Path, name: &str) -> Outcome<Self> {
        sweep(parent, name);
        let path = parent.join(format!("{name}.{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|error| format!("cannot make the folder {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes what runs that were interrupted have left.
fn sweep(parent: &Path, name: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let owner = file_name.to_str().and_then(|text| text.strip_prefix(name)?.strip_prefix('.'));
        let is_gone = |owner: &str| Path::new("/proc/self").exists() && !Path::new("/proc").join(owner).exists();
        if owner.is_some_and(|owner| owner.parse::<u32>().is_ok() && is_gone(owner)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
