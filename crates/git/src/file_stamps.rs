//! Detects changes of files and folders by their metadata, without reading them.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// The minimum age of a stamp that can be trusted. File system clocks have a resolution of some milliseconds, so two
/// changes within one tick look like one.
const MIN_STAMP_AGE: Duration = Duration::from_millis(50);

/// The metadata of a file or a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    size: u64,
    inode: u64,
}

/// The stamps of several files and folders, some of which may not exist.
#[derive(Debug)]
pub(crate) struct FileStamps {
    taken_at: SystemTime,
    stamps: Vec<(PathBuf, Option<FileStamp>)>,
}

impl FileStamps {
    pub(crate) fn new() -> Self {
        Self { taken_at: SystemTime::now(), stamps: Vec::new() }
    }

    /// Records the stamp of a file or a folder; called before it is read. Returns whether it exists.
    pub(crate) fn record(&mut self, path: &Path) -> io::Result<bool> {
        let stamp = stamp_of(path)?;
        self.stamps.push((path.to_owned(), stamp));
        Ok(stamp.is_some())
    }

    /// Returns whether all stamps were old enough when they were taken. If not, a later change can result in the same
    /// stamp.
    pub(crate) fn are_reliable(&self) -> bool {
        let is_old =
            |modified: SystemTime| self.taken_at.duration_since(modified).is_ok_and(|age| age >= MIN_STAMP_AGE);
        self.stamps.iter().filter_map(|(_, stamp)| *stamp).all(|stamp| stamp.modified.is_some_and(is_old))
    }

    /// Returns whether nothing has changed since.
    pub(crate) fn are_current(&self) -> bool {
        self.stamps.iter().all(|(path, stamp)| stamp_of(path).is_ok_and(|now| now == *stamp))
    }
}

fn stamp_of(path: &Path) -> io::Result<Option<FileStamp>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => {
            Ok(Some(FileStamp { modified: metadata.modified().ok(), size: metadata.size(), inode: metadata.ino() }))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_current_until_something_changes_and_reliable_once_they_are_old() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        let mut stamps = FileStamps::new();
        assert!(!stamps.record(&file).expect("a stamp"), "there is no file yet");
        assert!(stamps.are_current() && stamps.are_reliable());
        fs::write(&file, "one").expect("written");
        assert!(!stamps.are_current());

        let mut stamps = FileStamps::new();
        assert!(stamps.record(&file).expect("a stamp"));
        assert!(stamps.are_current(), "nothing has changed");
        assert!(!stamps.are_reliable(), "it was written just now");
        stamps.taken_at += MIN_STAMP_AGE * 2;
        assert!(stamps.are_reliable());
        stamps.taken_at -= MIN_STAMP_AGE * 100;
        assert!(!stamps.are_reliable(), "a time in the future is never trusted");
    }
}
