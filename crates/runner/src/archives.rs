//! Artifacts and caches as zip files: what is packed, and how far an archive of somebody else is believed.

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
use zip::{ZipArchive, ZipWriter, write::SimpleFileOptions};

use crate::{folders::Folder, globs::Globs, isolation::User};

/// How much an archive may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) entries: u64,
    /// Unpacked.
    pub(crate) bytes: u64,
}

/// How deep folders may lie in each other.
const DEEPEST: usize = 128;
/// How long the target of a link may be.
const LONGEST_TARGET: u64 = 4096;
/// How many of the files left out are named.
const MOST_NAMED: usize = 10;

/// What goes into an archive.
#[derive(Default)]
pub(crate) struct Selection {
    pub(crate) paths: Globs,
    pub(crate) exclude: Globs,
    /// Files that git does not know.
    pub(crate) untracked: BTreeSet<String>,
}

/// How the packing went.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    pub(crate) entries: u64,
    /// What was left out, and why.
    pub(crate) warnings: Vec<String>,
}

/// Packs what is chosen inside a folder; nothing is read through a link.
pub(crate) fn pack(
    root: &Path,
    chosen: &Selection,
    into: &mut File,
    most: Most,
    stop: &AtomicBool,
) -> Result<Packed, String> {
    let root = Folder::open(root).map_err(|error| format!("cannot read the project folder: {error}"))?;
    let mut packing = Packing { writer: ZipWriter::new(into), chosen, most, stop, bytes: 0, packed: Packed::default() };
    packing.folder(&root, &mut Vec::new())?;
    let Packing { writer, packed, .. } = packing;
    writer.finish().map_err(|error| format!("cannot write the archive: {error}"))?;
    Ok(packed)
}

struct Packing<'a> {
    writer: ZipWriter<&'a mut File>,
    chosen: &'a Selection,
    most: Most,
    stop: &'a AtomicBool,
    bytes: u64,
    packed: Packed,
}

impl Packing<'_> {
    fn folder(&mut self, folder: &Folder, path: &mut Vec<String>) -> Result<(), String> {
        if path.len() >= DEEPEST {
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
                return Err("it was stopped".to_owned());
            }
            // What git keeps for itself may hold more than the files of the project.
            if path.is_empty() && entry.name == ".git" {
                continue;
            }
            let Some(name) = entry.name.to_str().filter(|name| !name.contains('\\')) else {
                self.warn(format!("{}: a name that cannot be packed", entry.name.display()));
                continue;
            };
            path.push(name.to_owned());
            let outcome = self.entry(folder, &entry.name, entry.kind, path);
            path.pop();
            outcome?;
        }
        Ok(())
    }

    fn entry(&mut self, folder: &Folder, name: &OsStr, kind: FileType, path: &mut Vec<String>) -> Result<(), String> {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        let text = names.join("/");
        if kind == FileType::Directory {
            let below = format!("{text}/");
            let untracked = self.chosen.untracked.range(below.clone()..).next();
            if !self.chosen.paths.may_take_below(&names) && !untracked.is_some_and(|it| it.starts_with(&below)) {
                return Ok(());
            }
            return match folder.enter(name) {
                Ok(inner) => self.folder(&inner, path),
                Err(error) => {
                    self.warn(format!("{text}: {error}"));
                    Ok(())
                }
            };
        }
        let wanted = self.chosen.paths.take(&names) || self.chosen.untracked.contains(&text);
        if !wanted || self.chosen.exclude.take(&names) {
            return Ok(());
        }
        match kind {
            FileType::RegularFile => self.file(folder, name, &text),
            FileType::Symlink => self.link(folder, name, &text),
            _ => {
                self.warn(format!("{text}: neither a file nor a link"));
                Ok(())
            }
        }
    }

    fn file(&mut self, folder: &Folder, name: &OsStr, text: &str) -> Result<(), String> {
        let opened = folder.read(name).and_then(|file| file.metadata().map(|found| (file, found)));
        let (mut file, found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.warn(format!("{text}: {error}"));
                return Ok(());
            }
        };
        self.count(text)?;
        let options = SimpleFileOptions::default()
            .unix_permissions(found.permissions().mode() & 0o777)
            // The file may still grow; the room that this takes is nothing beside such a file.
            .large_file(found.len() > u64::from(u32::MAX) / 2);
        self.writer.start_file(text, options).map_err(|error| cannot_pack(text, &error))?;
        let left = self.most.bytes.saturating_sub(self.bytes);
        let copied = copy(&mut file, &mut self.writer, left, self.stop).map_err(|error| cannot_pack(text, &error))?;
        self.bytes += copied;
        Ok(())
    }

    fn link(&mut self, folder: &Folder, name: &OsStr, text: &str) -> Result<(), String> {
        let target = folder.target(name).ok().and_then(|target| target.into_string().ok());
        let Some(target) = target.filter(|target| stays_inside(text, target)) else {
            self.warn(format!("{text}: a link that leads out of the project"));
            return Ok(());
        };
        self.count(text)?;
        self.writer.add_symlink(text, target, SimpleFileOptions::default()).map_err(|error| cannot_pack(text, &error))
    }

    fn count(&mut self, text: &str) -> Result<(), String> {
        self.packed.entries += 1;
        if self.packed.entries > self.most.entries {
            return Err(cannot_pack(text, &format!("there are more than {} files", self.most.entries)));
        }
        Ok(())
    }

    fn warn(&mut self, warning: String) {
        match self.packed.warnings.len() {
            0..MOST_NAMED => self.packed.warnings.push(warning),
            MOST_NAMED => self.packed.warnings.push("and others".to_owned()),
            _ => {}
        }
    }
}

fn cannot_pack(text: &str, error: &dyn std::fmt::Display) -> String {
    format!("cannot pack {text}: {error}")
}

/// Unpacks an archive into a folder. What leads outside is refused, and so is what is larger than it should be.
pub(crate) fn unpack(
    mut file: File,
    into: &Path,
    owner: Option<&User>,
    most: Most,
    stop: &AtomicBool,
) -> Result<u64, String> {
    let announced = announced_entries(&mut file).map_err(|error| format!("cannot read the archive: {error}"))?;
    if announced.ok_or("it is no archive")? > most.entries {
        return Err(format!("the archive holds more than {} files", most.entries));
    }
    let root = Folder::open(into).map_err(|error| format!("cannot open the project folder: {error}"))?;
    let mut archive =
        ZipArchive::new(io::BufReader::new(file)).map_err(|error| format!("it is no archive: {error}"))?;
    if archive.len() as u64 > most.entries {
        return Err(format!("the archive holds more than {} files", most.entries));
    }
    let mut bytes = 0;
    let mut unpacked = 0;
    for index in 0..archive.len() {
        if stop.load(Ordering::Relaxed) {
            return Err("it was stopped".to_owned());
        }
        let mut entry = archive.by_index(index).map_err(|error| format!("the archive is broken: {error}"))?;
        let name = entry.name().map_err(|error| format!("the archive is broken: {error}"))?.into_owned();
        let is_folder = name.ends_with('/');
        let names =
            plain_names(&name).ok_or_else(|| format!("the archive holds the path {name:?}, which leads outside"))?;
        let wrong = |error: &dyn std::fmt::Display| format!("cannot unpack {name:?}: {error}");
        let Some((last, above)) = names.split_last() else { continue };
        // What git keeps for itself would decide which programs it starts.
        if names[0].eq_ignore_ascii_case(".git") {
            return Err(format!("the archive holds the path {name:?}, which belongs to git"));
        }
        let mut folder = None;
        for part in above {
            let next = folder.as_ref().unwrap_or(&root).make(OsStr::new(part), owner).map_err(|error| wrong(&error))?;
            folder = Some(next);
        }
        let folder = folder.as_ref().unwrap_or(&root);
        let last = OsStr::new(last);
        let mode = entry.unix_mode().unwrap_or(0o644);
        if is_folder {
            folder.make(last, owner).map_err(|error| wrong(&error))?;
        } else if FileType::from_raw_mode(mode) == FileType::Symlink {
            let mut target = Vec::new();
            entry.by_ref().take(LONGEST_TARGET).read_to_end(&mut target).map_err(|error| wrong(&error))?;
            let target = OsStr::from_bytes(&target);
            if !target.to_str().is_some_and(|target| stays_inside(&name, target)) {
                return Err(format!("the archive holds the link {name:?}, which leads outside"));
            }
            folder.link(last, target, owner).map_err(|error| wrong(&error))?;
        } else {
            let mut file = folder.create(last, mode, owner).map_err(|error| wrong(&error))?;
            bytes += copy(&mut entry, &mut file, most.bytes - bytes, stop).map_err(|error| wrong(&error))?;
        }
        unpacked += 1;
    }
    Ok(unpacked)
}

/// The names of a path that stays where it is.
fn plain_names(path: &str) -> Option<Vec<&str>> {
    if path.starts_with('/') || path.contains(['\\', '\0']) {
        return None;
    }
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    (!names.contains(&"..") && names.len() <= DEEPEST).then_some(names)
}

/// Whether a link at this path leads to something inside.
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

/// Copies no more than this.
fn copy(from: &mut impl Read, to: &mut impl Write, most: u64, stop: &AtomicBool) -> io::Result<u64> {
    let mut piece = vec![0; 64 << 10];
    let mut copied = 0;
    loop {
        let count = from.read(&mut piece)?;
        if count == 0 {
            return Ok(copied);
        }
        copied += count as u64;
        if copied > most {
            return Err(io::Error::other("all files together are too large"));
        }
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("it was stopped"));
        }
        to.write_all(&piece[..count])?;
    }
}

/// How many entries an archive says that it has, read before all of them are taken into memory. `None`: it is none.
///
/// The end has to be the very end: a comment behind it could hold another one, and it would depend on the reader which
/// of them counts.
fn announced_entries(file: &mut File) -> io::Result<Option<u64>> {
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

    const MOST: Most = Most { entries: 1000, bytes: 1 << 20 };

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

    fn refused(entries: &[(&str, &str, u32)]) -> String {
        let outer = tempfile::tempdir().expect("a folder");
        let folder = outer.path().join("project");
        fs::create_dir(&folder).expect("made");
        let error = unpack(archive(entries), &folder, None, MOST, &AtomicBool::new(false)).expect_err("refused");
        let beside: Vec<_> = fs::read_dir(outer.path()).expect("read").collect();
        assert_eq!(beside.len(), 1, "{error}");
        error
    }

    fn everything(patterns: &[&str], exclude: &[&str]) -> Selection {
        let globs = |patterns: &[&str]| Globs::new(patterns.iter().copied(), "/nowhere").0;
        Selection { paths: globs(patterns), exclude: globs(exclude), untracked: BTreeSet::new() }
    }

    #[test]
    fn what_leads_outside_is_refused() {
        assert!(refused(&[("../x", "x", 0o644)]).contains("leads outside"));
        assert!(refused(&[("/tmp/x", "x", 0o644)]).contains("leads outside"));
        assert!(refused(&[("a/../../x", "x", 0o644)]).contains("leads outside"));
        assert!(refused(&[("a", "../x", 0o120_777)]).contains("leads outside"));
        assert!(refused(&[("a", "/etc/passwd", 0o120_777)]).contains("leads outside"));
        assert!(refused(&[(".git/hooks/x", "x", 0o755)]).contains("belongs to git"));
        // Through a link of the archive itself, even one that leads inside.
        assert!(refused(&[("b", "a", 0o120_777), ("b/x", "x", 0o644)]).contains("cannot unpack"));
    }

    #[test]
    fn bombs_are_refused_before_they_are_unpacked_whole() {
        let zeros = "0".repeat(2 << 20);
        assert!(refused(&[("a", &zeros, 0o644)]).contains("too large"));
        let names: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
        let many: Vec<(&str, &str, u32)> = names.iter().map(|name| (name.as_str(), "", 0o644)).collect();
        assert!(refused(&many).contains("more than 1000 files"));
        let mut text = tempfile::tempfile().expect("a file");
        text.write_all(b"no archive at all").expect("written");
        let folder = tempfile::tempdir().expect("a folder");
        let error = unpack(text, folder.path(), None, MOST, &AtomicBool::new(false)).expect_err("refused");
        assert!(error.contains("no archive"), "{error}");
    }

    #[test]
    fn the_number_of_entries_is_known_before_they_are_read() {
        let count = |mut file: File| announced_entries(&mut file).expect("read");
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
    fn what_was_packed_comes_out_again_with_its_modes_and_links() {
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
        let chosen = everything(&["out", ".git", "out/etc/passwd"], &["**/*.log"]);
        let packed = pack(from.path(), &chosen, &mut file, MOST, &stop).expect("packed");
        assert_eq!(packed.entries, 3);
        assert_eq!(
            packed.warnings,
            ["out/etc: a link that leads out of the project", "out/passwd: a link that leads out of the project"]
        );
        let into = tempfile::tempdir().expect("a folder");
        assert_eq!(unpack(file, into.path(), None, MOST, &stop).expect("unpacked"), 3);
        let at = |name: &str| into.path().join(name);
        assert_eq!(fs::read_to_string(at("out/link")).expect("read"), "a");
        assert_eq!(fs::metadata(at("out/run")).expect("there").permissions().mode() & 0o7777, 0o755);
        assert!(!at("out/deep/b.log").exists() && !at("other").exists() && !at(".git").exists());
    }

    #[test]
    fn a_link_of_the_project_is_not_written_through() {
        let (inside, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).expect("linked");
        let stop = AtomicBool::new(false);
        let error = unpack(archive(&[("out/x", "x", 0o644)]), inside.path(), None, MOST, &stop).expect_err("refused");
        assert!(error.contains("cannot unpack"), "{error}");
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }
}
