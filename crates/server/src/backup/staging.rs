//! The folder into which a backup is unpacked and verified before it is moved into place.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow};

use super::manifest::{corrupted, read_error};
use crate::data_folder::{INSTANCE_KEY, SSH_HOST_KEY};

/// The only top-level names in a backup.
const TOP_LEVEL_NAMES: [&str; 6] = ["database", "repositories", "files", "traces", INSTANCE_KEY, SSH_HOST_KEY];

/// A folder with the layout of a data folder.
pub(super) struct Staging(PathBuf);

impl Staging {
    pub(super) fn create(path: PathBuf) -> Result<Self> {
        create_folders(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a new file.
    pub(super) fn write(&self, path: &str, content: &mut impl Read) -> Result<()> {
        let target = self.resolve(path)?;
        let context = || format!("cannot write {}", target.display());
        if let Some(folder) = target.parent() {
            create_folders(folder).with_context(context)?;
        }
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(corrupted()),
            opened => opened.with_context(context)?,
        };
        // Not `io::copy`: read and write errors are reported differently.
        let mut buffer = vec![0; 128 << 10];
        loop {
            match content.read(&mut buffer).map_err(read_error)? {
                0 => return Ok(()),
                read => io::Write::write_all(&mut file, &buffer[..read]).with_context(context)?,
            }
        }
    }

    /// Hard-links an existing file, or copies it where that is not possible.
    pub(super) fn link(&self, target: &str, path: &str) -> Result<()> {
        let (source, destination) = (self.resolve(target)?, self.resolve(path)?);
        if !source.is_file() || destination.exists() {
            return Err(corrupted());
        }
        let context = || format!("cannot write {}", destination.display());
        if let Some(folder) = destination.parent() {
            create_folders(folder).with_context(context)?;
        }
        match fs::hard_link(&source, &destination) {
            Ok(()) => Ok(()),
            // The file system may not support hard links, or limit their number.
            Err(_) => fs::copy(&source, &destination).map(drop).with_context(context),
        }
    }

    /// Removes a file or folder that is not part of the backup.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        let destination = self.resolve(path)?;
        let removed =
            if destination.is_dir() { fs::remove_dir_all(&destination) } else { fs::remove_file(&destination) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(anyhow!("cannot remove {}: {error}", destination.display()))
            }
            _ => Ok(()),
        }
    }

    fn resolve(&self, path: &str) -> Result<PathBuf> {
        check_path(path)?;
        Ok(self.0.join(path))
    }
}

/// Returns an error if a path does not belong in a backup or leads out of it.
pub(super) fn check_path(path: &str) -> Result<()> {
    let mut parts = Path::new(path).components();
    let is_known =
        matches!(parts.next(), Some(Component::Normal(top)) if TOP_LEVEL_NAMES.iter().any(|name| top == *name));
    if is_known && parts.all(|part| matches!(part, Component::Normal(_))) { Ok(()) } else { Err(corrupted()) }
}

/// Creates a folder and its parents with mode 0700.
pub(super) fn create_folders(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates or truncates a file with mode 0600.
pub(super) fn create_owner_only(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_of_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let staging = Staging::create(folder.path().join("in")).expect("made");
        let check_refused = |result: Result<()>, what: &str| {
            assert_eq!(result.expect_err(what).to_string(), corrupted().to_string(), "{what}");
        };
        for path in ["../x", "/x", "files/../../x", "repositories/../../x", "other", "", "gable.sqlite3"] {
            check_refused(staging.write(path, &mut &b"x"[..]), path);
            check_refused(staging.link("files/1", path), path);
        }
        staging.write("files/1", &mut &b"x"[..]).expect("written");
        check_refused(staging.write("files/1", &mut &b"y"[..]), "a second time");
        check_refused(staging.link("files/2", "files/3"), "of nothing");
        staging.link("files/1", "files/2").expect("linked");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
