//! Marks on disk by which a change of a file or a folder is noticed without reading it.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// How old a mark has to be before it can be trusted. The clock of a file system ticks in steps of some milliseconds,
/// so what changes twice within one step looks as if it had changed once.
const SETTLED: Duration = Duration::from_millis(50);

/// What a file or a folder looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    modified: Option<SystemTime>,
    size: u64,
    inode: u64,
}

/// The marks of several files and folders, some of which may not have been there.
#[derive(Debug)]
pub(crate) struct Marks {
    since: SystemTime,
    marks: Vec<(PathBuf, Option<Mark>)>,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self { since: SystemTime::now(), marks: Vec::new() }
    }

    /// Notes what a file or a folder looks like; to be called before it is read. Tells whether it is there.
    pub(crate) fn note(&mut self, path: &Path) -> io::Result<bool> {
        let mark = mark_of(path)?;
        self.marks.push((path.to_owned(), mark));
        Ok(mark.is_some())
    }

    /// Whether everything had stood still for a while when the marks were taken. If not, a later change can hide
    /// behind the same mark.
    pub(crate) fn are_settled(&self) -> bool {
        let settled = |modified: SystemTime| self.since.duration_since(modified).is_ok_and(|age| age >= SETTLED);
        self.marks.iter().filter_map(|(_, mark)| *mark).all(|mark| mark.modified.is_some_and(settled))
    }

    /// Whether everything still looks the same.
    pub(crate) fn stand(&self) -> bool {
        self.marks.iter().all(|(path, mark)| mark_of(path).is_ok_and(|now| now == *mark))
    }
}

fn mark_of(path: &Path) -> io::Result<Option<Mark>> {
    match fs::symlink_metadata(path) {
        Ok(it) => Ok(Some(Mark { modified: it.modified().ok(), size: it.size(), inode: it.ino() })),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_until_something_changes_and_are_trusted_once_they_are_old() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        let mut marks = Marks::new();
        assert!(!marks.note(&file).expect("a mark"), "there is no file yet");
        assert!(marks.stand() && marks.are_settled());
        fs::write(&file, "one").expect("written");
        assert!(!marks.stand());

        let mut marks = Marks::new();
        assert!(marks.note(&file).expect("a mark"));
        assert!(marks.stand(), "nothing has changed");
        assert!(!marks.are_settled(), "it was written just now");
        marks.since += SETTLED * 2;
        assert!(marks.are_settled());
        marks.since -= SETTLED * 100;
        assert!(!marks.are_settled(), "a time in the future is never trusted");
    }
}
