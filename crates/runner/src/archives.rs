//! Artifacts and caches as zip archives. Archives from elsewhere are not trusted.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    io::{self, Read, Seek as _, SeekFrom, Write},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::FileType;
use tokio::task::JoinError;
use zip::{ZipArchive, ZipWriter, result::ZipError, write::SimpleFileOptions};

use crate::{folder_handle::FolderHandle, globs::Globs, isolation::User};

/// The limits of an archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArchiveLimits {
    pub(crate) entries: u64,
    /// The unpacked size.
    pub(crate) bytes: u64,
}

/// The maximum nesting depth of folders.
const MAX_DEPTH: usize = 128;
/// The maximum length of a link target in bytes.
const MAX_LINK_TARGET_BYTES: u64 = 4096;
/// The maximum number of warnings.
const MAX_WARNINGS: usize = 10;

/// Why an archive cannot be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("interrupted")]
    Interrupted,
    #[error("cannot read the project folder: {0}")]
    ReadFolder(#[source] io::Error),
    #[error("cannot open the project folder: {0}")]
    OpenFolder(#[source] io::Error),
    #[error("cannot write the archive: {0}")]
    Write(#[source] ZipError),
    #[error("cannot pack {path}: {source}")]
    PackEntry { path: String, source: EntryError },
    #[error("cannot read the archive: {0}")]
    Read(#[source] io::Error),
    #[error("not a zip archive")]
    NotAnArchive,
    #[error("not a zip archive: {0}")]
    InvalidArchive(#[source] ZipError),
    #[error("the archive contains more than {0} files")]
    TooManyFiles(u64),
    #[error("the archive is corrupt: {0}")]
    Corrupt(#[source] ZipError),
    #[error("the archive contains the path {0:?}, which points outside the project")]
    PathOutside(String),
    #[error("the archive contains the link {0:?}, which points outside the project")]
    LinkOutside(String),
    #[error("the archive contains the path {0:?}, which belongs to git")]
    GitPath(String),
    #[error("cannot unpack {path:?}: {source}")]
    UnpackEntry { path: String, source: EntryError },
    #[error(transparent)]
    Panicked(#[from] JoinError),
}

/// Why a file cannot be added to an archive or extracted from one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Zip(#[from] ZipError),
    #[error("there are more than {0} files")]
    TooManyFiles(u64),
    #[error("the files are too large in total")]
    TooLarge,
    #[error("interrupted")]
    Interrupted,
}

/// The files to pack.
#[derive(Default)]
pub(crate) struct FileSelection {
    pub(crate) paths: Globs,
    pub(crate) exclude: Globs,
    /// Files that git does not track.
    pub(crate) untracked: BTreeSet<String>,
}

/// The result of packing.
#[derive(Debug, Default)]
pub(crate) struct PackSummary {
    pub(crate) entries: u64,
    /// The skipped files, with reasons.
    pub(crate) warnings: Vec<String>,
}

/// Packs the selected files of a folder, without following links.
pub(crate) fn pack(
    root: &Path,
    selection: &FileSelection,
    into: &mut File,
    limits: ArchiveLimits,
    stop: &AtomicBool,
) -> Result<PackSummary, ArchiveError> {
    let root = FolderHandle::open(root).map_err(ArchiveError::ReadFolder)?;
    let mut packer =
        Packer { writer: ZipWriter::new(into), selection, limits, stop, bytes: 0, packed: PackSummary::default() };
    packer.add_folder(&root, &mut Vec::new())?;
    let Packer { writer, packed, .. } = packer;
    writer.finish().map_err(ArchiveError::Write)?;
    Ok(packed)
}

struct Packer<'a> {
    writer: ZipWriter<&'a mut File>,
    selection: &'a FileSelection,
    limits: ArchiveLimits,
    stop: &'a AtomicBool,
    bytes: u64,
    packed: PackSummary,
}

impl Packer<'_> {
    fn add_folder(&mut self, folder: &FolderHandle, path: &mut Vec<String>) -> Result<(), ArchiveError> {
        if path.len() >= MAX_DEPTH {
            self.warn(format!("{}: too deep", path.join("/")));
            return Ok(());
        }
        let entries = match folder.entries() {
            Ok(entries) => entries,
            Err(error) => {
                self.warn(format!("{}: {error}", path.join("/")));
                return Ok(());
            }
        };
        for entry in entries {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ArchiveError::Interrupted);
            }
            // `.git` may contain more than the files of the project.
            if path.is_empty() && entry.name == ".git" {
                continue;
            }
            let Some(name) = entry.name.to_str().filter(|name| !name.contains('\\')) else {
                self.warn(format!("{}: the name is not valid UTF-8 or contains a backslash", entry.name.display()));
                continue;
            };
            path.push(name.to_owned());
            let outcome = self.add_entry(folder, &entry.name, entry.kind, path);
            path.pop();
            outcome?;
        }
        Ok(())
    }

    fn add_entry(
        &mut self,
        folder: &FolderHandle,
        name: &OsStr,
        kind: FileType,
        path: &mut Vec<String>,
    ) -> Result<(), ArchiveError> {
        let path_text = path.join("/");
        if kind == FileType::Directory {
            let below = format!("{path_text}/");
            let untracked = self.selection.untracked.range(below.clone()..).next();
            let has_untracked = untracked.is_some_and(|path| path.starts_with(&below));
            if !has_untracked && !self.selection.paths.may_match_below(&path_text) {
                return Ok(());
            }
            return match folder.open_subfolder(name) {
                Ok(inner) => self.add_folder(&inner, path),
                Err(error) => {
                    self.warn(format!("{path_text}: {error}"));
                    Ok(())
                }
            };
        }
        let selected = self.selection.paths.matches(&path_text) || self.selection.untracked.contains(&path_text);
        if !selected || self.selection.exclude.matches(&path_text) {
            return Ok(());
        }
        let added = match kind {
            FileType::RegularFile => self.add_file(folder, name, &path_text),
            FileType::Symlink => self.add_link(folder, name, &path_text),
            _ => {
                self.warn(format!("{path_text}: not a file or a link"));
                Ok(())
            }
        };
        added.map_err(|source| ArchiveError::PackEntry { path: path_text, source })
    }

    fn add_file(&mut self, folder: &FolderHandle, name: &OsStr, path_text: &str) -> Result<(), EntryError> {
        let opened = folder.open_file(name).and_then(|file| file.metadata().map(|found| (file, found)));
        let (mut file, found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.warn(format!("{path_text}: {error}"));
                return Ok(());
            }
        };
        self.count_entry()?;
        let options = SimpleFileOptions::default()
            .unix_permissions(found.permissions().mode() & 0o777)
            // The file may still grow; the overhead is negligible for such a file.
            .large_file(found.len() > u64::from(u32::MAX) / 2);
        self.writer.start_file(path_text, options)?;
        let left = self.limits.bytes.saturating_sub(self.bytes);
        self.bytes += copy(&mut file, &mut self.writer, left, self.stop)?;
        Ok(())
    }

    fn add_link(&mut self, folder: &FolderHandle, name: &OsStr, path_text: &str) -> Result<(), EntryError> {
        let target = folder.read_link(name).ok().and_then(|target| target.into_string().ok());
        let Some(target) = target.filter(|target| stays_inside(path_text, target)) else {
            self.warn(format!("{path_text}: the link points outside the project"));
            return Ok(());
        };
        self.count_entry()?;
        Ok(self.writer.add_symlink(path_text, target, SimpleFileOptions::default())?)
    }

    fn count_entry(&mut self) -> Result<(), EntryError> {
        self.packed.entries += 1;
        if self.packed.entries > self.limits.entries {
            Err(EntryError::TooManyFiles(self.limits.entries))
        } else {
            Ok(())
        }
    }

    fn warn(&mut self, warning: String) {
        match self.packed.warnings.len() {
            0..MAX_WARNINGS => self.packed.warnings.push(warning),
            MAX_WARNINGS => self.packed.warnings.push("and others".to_owned()),
            _ => {}
        }
    }
}

/// Unpacks an archive into a folder. Rejects paths outside the folder and archives over the limits.
pub(crate) fn unpack(
    mut file: File,
    into: &Path,
    owner: Option<&User>,
    limits: ArchiveLimits,
    stop: &AtomicBool,
) -> Result<u64, ArchiveError> {
    let declared = declared_entries(&mut file).map_err(ArchiveError::Read)?;
    if declared.ok_or(ArchiveError::NotAnArchive)? > limits.entries {
        return Err(ArchiveError::TooManyFiles(limits.entries));
    }
    let root = FolderHandle::open(into).map_err(ArchiveError::OpenFolder)?;
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(ArchiveError::InvalidArchive)?;
    if archive.len() as u64 > limits.entries {
        return Err(ArchiveError::TooManyFiles(limits.entries));
    }
    let mut bytes = 0;
    let mut unpacked = 0;
    for index in 0..archive.len() {
        if stop.load(Ordering::Relaxed) {
            return Err(ArchiveError::Interrupted);
        }
        let mut entry = archive.by_index(index).map_err(ArchiveError::Corrupt)?;
        let name = entry.name().map_err(ArchiveError::Corrupt)?.into_owned();
        let is_folder = name.ends_with('/');
        let names = relative_components(&name).ok_or_else(|| ArchiveError::PathOutside(name.clone()))?;
        let fail = |source| ArchiveError::UnpackEntry { path: name.clone(), source };
        let io_error = |error: io::Error| fail(error.into());
        let Some((last, above)) = names.split_last() else { continue };
        // Files in `.git` could make git run programs.
        if names[0].eq_ignore_ascii_case(".git") {
            return Err(ArchiveError::GitPath(name));
        }
        let mut folder = None;
        for part in above {
            let parent = folder.as_ref().unwrap_or(&root);
            folder = Some(parent.create_subfolder(OsStr::new(part), owner).map_err(io_error)?);
        }
        let folder = folder.as_ref().unwrap_or(&root);
        let last = OsStr::new(last);
        let mode = entry.unix_mode().unwrap_or(0o644);
        if is_folder {
            folder.create_subfolder(last, owner).map_err(io_error)?;
        } else if FileType::from_raw_mode(mode) == FileType::Symlink {
            let mut target = Vec::new();
            entry.by_ref().take(MAX_LINK_TARGET_BYTES).read_to_end(&mut target).map_err(io_error)?;
            let target = OsStr::from_bytes(&target);
            if !target.to_str().is_some_and(|target| stays_inside(&name, target)) {
                return Err(ArchiveError::LinkOutside(name));
            }
            folder.create_link(last, target, owner).map_err(io_error)?;
        } else {
            let mut file = folder.create_file(last, mode, owner).map_err(io_error)?;
            bytes += copy(&mut entry, &mut file, limits.bytes - bytes, stop).map_err(fail)?;
        }
        unpacked += 1;
    }
    Ok(unpacked)
}

/// Returns the components of a relative path without `..`.
fn relative_components(path: &str) -> Option<Vec<&str>> {
    if path.starts_with('/') || path.contains(['\\', '\0']) {
        return None;
    }
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    (!names.contains(&"..") && names.len() <= MAX_DEPTH).then_some(names)
}

/// Returns whether a link at this path stays inside the folder.
fn stays_inside(path: &str, target: &str) -> bool {
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return false;
    }
    let mut depth = path.split('/').filter(|name| !name.is_empty() && *name != ".").count().saturating_sub(1);
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

/// Copies at most this many bytes.
fn copy(from: &mut impl Read, to: &mut impl Write, max_bytes: u64, stop: &AtomicBool) -> Result<u64, EntryError> {
    let mut buffer = vec![0; 64 << 10];
    let mut copied = 0;
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(copied);
        }
        copied += count as u64;
        if copied > max_bytes {
            return Err(EntryError::TooLarge);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(EntryError::Interrupted);
        }
        to.write_all(&buffer[..count])?;
    }
}

/// Returns the number of entries that an archive declares, before they are read into memory; `None` if it is not an
/// archive.
///
/// The end record must be at the very end: a trailing comment could contain another one, and readers would disagree.
fn declared_entries(file: &mut File) -> io::Result<Option<u64>> {
    const END: usize = 22;
    const LOCATOR: usize = 20;
    let length = file.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub((END + LOCATOR) as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take((END + LOCATOR) as u64).read_to_end(&mut tail)?;
    file.rewind()?;
    let Some((before, end)) = tail.len().checked_sub(END).map(|place| tail.split_at(place)) else { return Ok(None) };
    if !end.starts_with(b"PK\x05\x06") || end[20..] != [0, 0] {
        return Ok(None);
    }
    let small = u16::from_le_bytes([end[10], end[11]]);
    let Some(place) = before.strip_prefix(b"PK\x06\x07").and_then(|it| it.get(4..12)?.try_into().ok()) else {
        return Ok(Some(small.into()));
    };
    let mut large = [0; 40];
    file.seek(SeekFrom::Start(u64::from_le_bytes(place)))?;
    let read = file.read_exact(&mut large);
    file.rewind()?;
    if read.is_err() || !large.starts_with(b"PK\x06\x06") {
        return Ok(None);
    }
    let large = large[32..].try_into().map_or(u64::MAX, u64::from_le_bytes);
    Ok(Some(large.max(small.into())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEST_LIMITS: ArchiveLimits = ArchiveLimits { entries: 1000, bytes: 1 << 20 };

    fn archive(entries: &[(&str, &str, u32)]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        let mut writer = ZipWriter::new(&mut file);
        for (name, content, mode) in entries {
            let options = SimpleFileOptions::default().unix_permissions(*mode);
            if *mode & 0o170_000 == 0o120_000 {
                writer.add_symlink(*name, *content, SimpleFileOptions::default()).expect("linked");
            } else {
                writer.start_file(*name, options).expect("begun");
                writer.write_all(content.as_bytes()).expect("written");
            }
        }
        writer.finish().expect("finished");
        file
    }

    fn unpack_error(entries: &[(&str, &str, u32)]) -> String {
        let outer = tempfile::tempdir().expect("a folder");
        let folder = outer.path().join("project");
        fs::create_dir(&folder).expect("made");
        let error =
            unpack(archive(entries), &folder, None, TEST_LIMITS, &AtomicBool::new(false)).expect_err("rejected");
        let beside: Vec<_> = fs::read_dir(outer.path()).expect("read").collect();
        assert_eq!(beside.len(), 1, "{error}");
        error.to_string()
    }

    fn selection(patterns: &[&str], exclude: &[&str]) -> FileSelection {
        let globs = |patterns: &[&str]| Globs::new(patterns.iter().copied(), "/nowhere").0;
        FileSelection { paths: globs(patterns), exclude: globs(exclude), untracked: BTreeSet::new() }
    }

    #[test]
    fn paths_outside_the_folder_are_rejected() {
        assert!(unpack_error(&[("../x", "x", 0o644)]).contains("points outside"));
        assert!(unpack_error(&[("/tmp/x", "x", 0o644)]).contains("points outside"));
        assert!(unpack_error(&[("a/../../x", "x", 0o644)]).contains("points outside"));
        assert!(unpack_error(&[("a", "../x", 0o120_777)]).contains("points outside"));
        assert!(unpack_error(&[("a", "/etc/passwd", 0o120_777)]).contains("points outside"));
        assert!(unpack_error(&[(".git/hooks/x", "x", 0o755)]).contains("belongs to git"));
        // Through a link of the archive itself, even one that stays inside.
        assert!(unpack_error(&[("b", "a", 0o120_777), ("b/x", "x", 0o644)]).contains("cannot unpack"));
    }

    #[test]
    fn zip_bombs_are_rejected_before_they_are_unpacked() {
        let zeros = "0".repeat(2 << 20);
        assert!(unpack_error(&[("a", &zeros, 0o644)]).contains("too large"));
        let names: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
        let many: Vec<(&str, &str, u32)> = names.iter().map(|name| (name.as_str(), "", 0o644)).collect();
        assert!(unpack_error(&many).contains("more than 1000 files"));
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"not an archive").expect("written");
        let folder = tempfile::tempdir().expect("a folder");
        let error = unpack(file, folder.path(), None, TEST_LIMITS, &AtomicBool::new(false)).expect_err("rejected");
        assert_eq!(error.to_string(), "not a zip archive");
    }

    #[test]
    fn the_declared_number_of_entries_is_read() {
        let count = |mut file: File| declared_entries(&mut file).expect("read");
        assert_eq!(count(archive(&[("a", "", 0o644), ("b", "", 0o644)])), Some(2));
        let names: Vec<String> = (0..70_000).map(|number| number.to_string()).collect();
        let many: Vec<(&str, &str, u32)> = names.iter().map(|name| (name.as_str(), "", 0o644)).collect();
        assert_eq!(count(archive(&many)), Some(70_000));
        let mut followed = archive(&[("a", "", 0o644)]);
        followed.seek(SeekFrom::End(0)).and_then(|_| followed.write_all(b"more")).expect("written");
        assert_eq!(count(followed), None);
        assert_eq!(count(tempfile::tempfile().expect("a file")), None);
    }

    #[test]
    fn packed_files_are_unpacked_with_their_modes_and_links() {
        let from = tempfile::tempdir().expect("a folder");
        let at = |name: &str| from.path().join(name);
        fs::create_dir_all(at("out/deep")).expect("made");
        fs::create_dir_all(at(".git")).expect("made");
        fs::write(at(".git/config"), "secret").expect("written");
        fs::write(at("out/run"), "#!/bin/sh\n").expect("written");
        fs::set_permissions(at("out/run"), fs::Permissions::from_mode(0o4755)).expect("set");
        fs::write(at("out/deep/a.txt"), "a").expect("written");
        fs::write(at("out/deep/b.log"), "b").expect("written");
        fs::write(at("other"), "o").expect("written");
        std::os::unix::fs::symlink("deep/a.txt", at("out/link")).expect("linked");
        std::os::unix::fs::symlink("/etc/passwd", at("out/passwd")).expect("linked");
        std::os::unix::fs::symlink("/etc", at("out/etc")).expect("linked");
        let mut file = tempfile::tempfile().expect("a file");
        let stop = AtomicBool::new(false);
        let selection = selection(&["out", ".git", "out/etc/passwd"], &["**/*.log"]);
        let packed = pack(from.path(), &selection, &mut file, TEST_LIMITS, &stop).expect("packed");
        assert_eq!(packed.entries, 3);
        assert_eq!(
            packed.warnings,
            ["out/etc: the link points outside the project", "out/passwd: the link points outside the project"]
        );
        let into = tempfile::tempdir().expect("a folder");
        assert_eq!(unpack(file, into.path(), None, TEST_LIMITS, &stop).expect("unpacked"), 3);
        let at = |name: &str| into.path().join(name);
        assert_eq!(fs::read_to_string(at("out/link")).expect("read"), "a");
        assert_eq!(fs::metadata(at("out/run")).expect("there").permissions().mode() & 0o7777, 0o755);
        assert!(!at("out/deep/b.log").exists() && !at("other").exists() && !at(".git").exists());
    }

    #[test]
    fn links_of_the_project_are_not_followed() {
        let (inside, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).expect("linked");
        let stop = AtomicBool::new(false);
        let error =
            unpack(archive(&[("out/x", "x", 0o644)]), inside.path(), None, TEST_LIMITS, &stop).expect_err("rejected");
        assert!(matches!(error, ArchiveError::UnpackEntry { .. }), "{error}");
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }
}
