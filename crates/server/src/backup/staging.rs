//! Where a backup is unpacked and looked at before anything of it counts.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
};

use super::{
    Sentence,
    manifest::{changed, unreadable},
};

/// What a backup may hold; anything else was not written by us.
const TOPS: [&str; 6] = ["database", "repositories", "files", "traces", "instance-key", "ssh-host-key"];

/// A folder in which files come to lie as they will.
pub(super) struct Staging(PathBuf);

impl Staging {
    pub(super) fn make(path: PathBuf) -> Result<Self, Sentence> {
        make_folders(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a new file.
    pub(super) fn write(&self, path: &str, content: &mut impl Read) -> Result<(), Sentence> {
        let target = self.place(path)?;
        let unwritable = |error: io::Error| format!("cannot write {}: {error}", target.display());
        if let Some(folder) = target.parent() {
            make_folders(folder).map_err(unwritable)?;
        }
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(changed()),
            opened => opened.map_err(unwritable)?,
        };
        // What cannot be read and what cannot be written are two troubles.
        let mut buffer = vec![0; 128 << 10];
        loop {
            match content.read(&mut buffer).map_err(unreadable)? {
                0 => return Ok(()),
                read => io::Write::write_all(&mut file, &buffer[..read]).map_err(unwritable)?,
            }
        }
    }

    /// Gives a file that is there a second name.
    pub(super) fn link(&self, target: &str, path: &str) -> Result<(), Sentence> {
        let (source, place) = (self.place(target)?, self.place(path)?);
        if !source.is_file() || place.exists() {
            return Err(changed());
        }
        let unwritable = |error: io::Error| format!("cannot write {}: {error}", place.display());
        if let Some(folder) = place.parent() {
            make_folders(folder).map_err(unwritable)?;
        }
        match fs::hard_link(&source, &place) {
            Ok(()) => Ok(()),
            // A file system may have a limit to names, or know only one.
            Err(_) => fs::copy(&source, &place).map(drop).map_err(unwritable),
        }
    }

    /// Removes what does not count.
    pub(super) fn remove(&self, path: &str) -> Result<(), Sentence> {
        let place = self.place(path)?;
        let removed = if place.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("cannot remove {}: {error}", place.display()))
            }
            _ => Ok(()),
        }
    }

    fn place(&self, path: &str) -> Result<PathBuf, Sentence> {
        check_path(path)?;
        Ok(self.0.join(path))
    }
}

/// Refuses a path that does not belong into a backup, or leads out of it.
pub(super) fn check_path(path: &str) -> Result<(), Sentence> {
    let mut parts = Path::new(path).components();
    let is_ours = matches!(parts.next(), Some(Component::Normal(top)) if TOPS.iter().any(|ours| top == *ours));
    if is_ours && parts.all(|part| matches!(part, Component::Normal(_))) { Ok(()) } else { Err(changed()) }
}

/// Makes a folder and those above it, which nobody else can look into.
pub(super) fn make_folders(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes a file anew that only its owner can read.
pub(super) fn make_owner_only(path: &Path) -> io::Result<File> {
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
        let staging = Staging::make(folder.path().join("in")).expect("made");
        for path in ["../x", "/x", "files/../../x", "repositories/../../x", "other", "", "gable.sqlite3"] {
            assert_eq!(staging.write(path, &mut &b"x"[..]), Err(changed()), "{path}");
            assert_eq!(staging.link("files/1", path), Err(changed()), "{path}");
        }
        staging.write("files/1", &mut &b"x"[..]).expect("written");
        assert_eq!(staging.write("files/1", &mut &b"y"[..]), Err(changed()), "a second time");
        assert_eq!(staging.link("files/2", "files/3"), Err(changed()), "of nothing");
        staging.link("files/1", "files/2").expect("linked");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
