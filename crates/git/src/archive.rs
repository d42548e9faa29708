//! A commit as one file.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::OsStr,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    rc::Rc,
};

use bzip2::write::BzEncoder;
use flate2::{Compression, write::GzEncoder};
use gix::ObjectId;
use model::{
    Oid,
    objects::{ArchiveFormat, EntryKind},
};
use zip::{
    ZipWriter,
    write::{SimpleFileOptions, StreamWriter},
};

use crate::{
    Error, Repository, Result,
    deadline::Deadline,
    diff::empty_tree,
    export::Exports,
    large::LargeObject,
    repository::gix_id,
    substitutes::Substitutes,
    tree_walk::TreeWalk,
    trees::{LONGEST_WALK, kind_and_mode},
};

/// How many bytes the files of an archive may have together before they are packed. A few small objects can make up a tree
/// with far more: one file can be in it a million times.
pub const MOST_ARCHIVE_BYTES: u64 = 8 << 30;
/// Of how many different files the size is looked up before an archive is begun. The sizes of all files are added up again
/// while they are written.
const MOST_LOOKUPS: usize = 200_000;

/// The same as git's own archives.
const LEVEL: u32 = 6;
/// The longest file that a zip entry of the short form holds.
const LONG_ZIP_ENTRY: u64 = 0xffff_ffff;

impl Repository {
    /// Fails if a commit has too many or too large files for an archive, before one is begun.
    pub fn check_archive(&self, commit: Oid) -> Result<()> {
        let Some(tree) = self.tree_of(commit)? else { return Ok(()) };
        self.check_entries(tree)?;
        self.check_sizes(tree)
    }

    /// Fails if the files below a tree are larger together than those of an archive may be. Each tree is visited once, however
    /// often it is in others.
    fn check_sizes(&self, tree: ObjectId) -> Result<()> {
        let (mut trees, mut blobs) = (HashMap::new(), HashMap::new());
        let mut walk = TreeWalk::until(self, tree, Vec::new(), Deadline::within(LONGEST_WALK))?;
        // The trees that the walk is in, and the sizes of what was visited in them so far.
        let mut open = vec![(tree, 0_u64)];
        loop {
            let entry = walk.next()?;
            while open.len() > walk.depth()
                && let Some((id, size)) = open.pop()
            {
                let Some((_, above)) = open.last_mut() else { return Ok(()) };
                *above = above.saturating_add(size);
                check_sum(*above)?;
                trees.insert(id, size);
            }
            let (Some(entry), Some((_, sum))) = (entry, open.last_mut()) else { continue };
            let size = match kind_and_mode(entry.mode).0 {
                EntryKind::Submodule => 0,
                EntryKind::Tree => {
                    let Some(size) = trees.get(&entry.id) else {
                        walk.enter(entry.id)?;
                        open.push((entry.id, 0));
                        continue;
                    };
                    *size
                }
                EntryKind::Blob => match blobs.get(&entry.id) {
                    Some(size) => *size,
                    None if blobs.len() == MOST_LOOKUPS => return Ok(()),
                    None => {
                        let size = self.header(&entry.id)?.map_or(0, |(_, size)| size);
                        blobs.insert(entry.id, size);
                        size
                    }
                },
            };
            *sum = sum.saturating_add(size);
            check_sum(*sum)?;
        }
    }

    /// Writes the files of a commit as an archive, all below one folder; the same commit gives the same bytes.
    ///
    /// What `.gitattributes` mark `export-ignore` is left out, and what they mark `export-subst` has its `$Format:…$`
    /// filled in. Submodules are empty folders. Large files are written in pieces.
    pub fn archive(
        &self,
        commit: Oid,
        format: ArchiveFormat,
        folder: &str,
        out: &mut (dyn Write + Send),
    ) -> Result<()> {
        let node = self.history().node(gix_id(commit))?;
        let tree = node.tree.unwrap_or_else(empty_tree);
        let seconds = u64::try_from(node.seconds).unwrap_or(0);
        let state = Rc::new(ValveState::default());
        let contents = Contents { repository: self, commit, tree, folder, state: &state };
        let valve = Valve { out, state: Rc::clone(&state) };
        match format {
            ArchiveFormat::Tar => {
                let mut tar = Tar::new(valve, commit, seconds)?;
                contents.write(&mut tar)?;
                tar.0.finish()?;
            }
            ArchiveFormat::TarGz => {
                let mut tar = Tar::new(GzEncoder::new(valve, Compression::new(LEVEL)), commit, seconds)?;
                contents.write(&mut tar)?;
                tar.0.into_inner()?.finish()?;
            }
            ArchiveFormat::TarBz2 => {
                let encoder = BzEncoder::new(valve, bzip2::Compression::best());
                let mut tar = Tar::new(encoder, commit, seconds)?;
                contents.write(&mut tar)?;
                tar.0.into_inner()?.finish()?;
            }
            ArchiveFormat::Zip => {
                let mut zip = Zip::new(valve, commit, seconds)?;
                contents.write(&mut zip)?;
                zip.0.finish().map_err(io::Error::from)?;
            }
        }
        state.check()
    }
}

/// Fails if so many bytes are too many for the files of an archive.
fn check_sum(bytes: u64) -> Result<()> {
    if bytes <= MOST_ARCHIVE_BYTES {
        return Ok(());
    }
    let most = MOST_ARCHIVE_BYTES >> 30;
    Err(Error::TooLarge(format!("the files have more than {most} GB together, which is too much for an archive")))
}

/// Lets nothing out any more once the archive has failed, and keeps why it could not be written. Whoever packs closes
/// properly what is given up, so that half an archive would look as if it were whole; and complains aloud if that fails.
struct Valve<'a> {
    out: &'a mut dyn Write,
    state: Rc<ValveState>,
}

#[derive(Default)]
struct ValveState {
    is_shut: Cell<bool>,
    error: Cell<Option<io::Error>>,
}

impl ValveState {
    /// Whether all was written so far.
    fn check(&self) -> Result<()> {
        self.error.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Valve<'_> {
    fn pass(&mut self, pass: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if !self.state.is_shut.get()
            && let Err(error) = pass(self.out)
        {
            self.state.is_shut.set(true);
            self.state.error.set(Some(error));
        }
    }
}

impl Write for Valve<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass(|out| out.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass(|out| out.flush());
        Ok(())
    }
}

/// What goes into an archive.
struct Contents<'a> {
    repository: &'a Repository,
    commit: Oid,
    tree: ObjectId,
    folder: &'a str,
    state: &'a ValveState,
}

/// A kind of archive. Paths of folders end in a slash.
trait Archive {
    fn folder(&mut self, path: &[u8]) -> Result<()>;
    fn file(&mut self, path: &[u8], executable: bool, size: u64, data: &mut dyn Read) -> Result<()>;
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()>;
}

impl Contents<'_> {
    fn write(&self, archive: &mut impl Archive) -> Result<()> {
        let written = self.write_entries(archive);
        self.state.is_shut.set(self.state.is_shut.get() || written.is_err());
        written
    }

    fn write_entries(&self, archive: &mut impl Archive) -> Result<()> {
        let prefix = format!("{}/", self.folder).into_bytes();
        let depth = prefix.len();
        archive.folder(&prefix)?;
        let mut walk = TreeWalk::new(self.repository, self.tree, prefix)?;
        let mut exports = Exports::new()?;
        exports.enter(self.repository, walk.folder(), b"")?;
        let mut substitutes = None;
        let mut buffer = Vec::new();
        let mut sum = 0_u64;
        let mut count = |size: u64| {
            sum = sum.saturating_add(size);
            check_sum(sum)
        };
        while let Some(entry) = walk.next()? {
            exports.leave(walk.depth());
            self.state.check()?;
            let (kind, mode) = kind_and_mode(entry.mode);
            let export = exports.of(&walk.path()[depth..], kind == EntryKind::Tree);
            if export.is_ignored || !is_safe(walk.name()) {
                continue;
            }
            if kind == EntryKind::Tree {
                walk.enter(entry.id)?;
                archive.folder(walk.path())?;
                exports.enter(self.repository, walk.folder(), &walk.path()[depth..])?;
                continue;
            }
            if kind == EntryKind::Submodule {
                archive.folder(&[walk.path(), b"/"].concat())?;
                continue;
            }
            let (is_link, executable) = (mode == 0o120_000, mode == 0o100_755);
            match self.repository.blob(&entry.id, &mut buffer) {
                Ok(None) => return Err(Error::Broken(format!("the blob {} is missing", entry.id))),
                Ok(Some(blob)) if is_link => archive.link(walk.path(), blob)?,
                Ok(Some(blob)) if export.is_substituted => {
                    let substitutes = match &mut substitutes {
                        Some(known) => known,
                        none => none.insert(Substitutes::of(self.repository, self.commit)?),
                    };
                    let filled = substitutes.fill_in(blob);
                    count(filled.len() as u64)?;
                    archive.file(walk.path(), executable, filled.len() as u64, &mut &filled[..])?;
                }
                Ok(Some(mut blob)) => {
                    count(blob.len() as u64)?;
                    archive.file(walk.path(), executable, blob.len() as u64, &mut blob)?;
                }
                // No link leads to a path of that length.
                Err(Error::TooLarge(_)) if is_link => {}
                Err(Error::TooLarge(_)) => {
                    let blob = self.repository.large_blob(&entry.id)?;
                    let size = blob.size;
                    count(size)?;
                    let mut blob = Wanted { data: blob, state: self.state };
                    archive.file(walk.path(), executable, size, &mut blob)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file that is read for as long as somebody takes the archive.
struct Wanted<'a> {
    data: LargeObject,
    state: &'a ValveState,
}

impl Read for Wanted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.state.is_shut.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.data.read(into)
    }
}

/// Whether a name stays where it is put, whoever unpacks it. Git takes no trees with such names in; this is for those
/// that got in by other ways.
fn is_safe(name: &[u8]) -> bool {
    let climbs = |part: &[u8]| matches!(part, b"" | b"." | b"..");
    !name.split(|byte| matches!(byte, b'/' | b'\\')).any(climbs)
        && !name.contains(&b'/')
        && !name.contains(&0)
        && !name.eq_ignore_ascii_case(b".git")
}

struct Tar<W: Write>(tar::Builder<W>, u64);

impl<W: Write> Tar<W> {
    fn new(out: W, commit: Oid, seconds: u64) -> Result<Self> {
        let mut tar = Self(tar::Builder::new(out), seconds);
        // Where git puts the commit: `git get-tar-commit-id` finds it there.
        let comment = format!("52 comment={commit}\n");
        let mut header = tar.header(tar::EntryType::XGlobalHeader, 0o666, comment.len() as u64);
        header.set_path("pax_global_header")?;
        header.set_cksum();
        tar.0.append(&header, comment.as_bytes())?;
        Ok(tar)
    }

    fn header(&self, kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(self.1);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root").and_then(|()| header.set_groupname("root")).expect("the name is short");
        header
    }

    fn append(
        &mut self,
        mut header: tar::Header,
        path: &[u8],
        target: Option<&[u8]>,
        data: &mut dyn Read,
    ) -> Result<()> {
        let mut long = Vec::new();
        if header.set_path(Path::new(OsStr::from_bytes(path))).is_err() {
            long.push(("path", path));
            header.set_path("long")?;
        }
        if let Some(target) = target
            && header.set_link_name_literal(target).is_err()
        {
            long.push(("linkpath", target));
            header.set_link_name("long")?;
        }
        self.0.append_pax_extensions(long)?;
        header.set_cksum();
        Ok(self.0.append(&header, data)?)
    }
}

impl<W: Write> Archive for Tar<W> {
    fn folder(&mut self, path: &[u8]) -> Result<()> {
        self.append(self.header(tar::EntryType::Directory, 0o775, 0), path, None, &mut io::empty())
    }

    fn file(&mut self, path: &[u8], executable: bool, size: u64, data: &mut dyn Read) -> Result<()> {
        let mode = if executable { 0o775 } else { 0o664 };
        self.append(self.header(tar::EntryType::Regular, mode, size), path, None, data)
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        self.append(self.header(tar::EntryType::Symlink, 0o777, 0), path, Some(target), &mut io::empty())
    }
}

struct Zip<'a>(ZipWriter<StreamWriter<Valve<'a>>>, SimpleFileOptions);

impl<'a> Zip<'a> {
    fn new(out: Valve<'a>, commit: Oid, seconds: u64) -> Result<Self> {
        let mut zip = ZipWriter::new_stream(out);
        // The same place as with git.
        zip.set_comment(commit.to_string()).map_err(io::Error::from)?;
        Ok(Self(zip, SimpleFileOptions::default().last_modified_time(zip_time(seconds))))
    }

    fn start(&mut self, path: &[u8], mode: u32, size: u64) -> Result<()> {
        let large = size >= LONG_ZIP_ENTRY;
        let options = self.1.external_attributes(mode << 16).large_file(large).name(path);
        Ok(self.0.start_file_with_options(options).map_err(io::Error::from)?)
    }
}

impl Archive for Zip<'_> {
    fn folder(&mut self, path: &[u8]) -> Result<()> {
        // A folder is known by what is in it; one whose name is no text needs no entry of its own.
        match std::str::from_utf8(path) {
            Ok(path) => Ok(self.0.add_directory(path, self.1.unix_permissions(0o755)).map_err(io::Error::from)?),
            Err(_) => Ok(()),
        }
    }

    fn file(&mut self, path: &[u8], executable: bool, size: u64, data: &mut dyn Read) -> Result<()> {
        self.start(path, if executable { 0o100_755 } else { 0o100_644 }, size)?;
        io::copy(data, &mut self.0)?;
        Ok(())
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        self.start(path, 0o120_777, target.len() as u64)?;
        Ok(self.0.write_all(target)?)
    }
}

/// A time as a zip file knows it: from 1980 on, in steps of two seconds.
fn zip_time(seconds: u64) -> zip::DateTime {
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    let time = time.map(|time| jiff::tz::Offset::UTC.to_datetime(time));
    let time = time.and_then(|time| {
        let part = |part: i8| u8::try_from(part).ok();
        let (month, day) = (part(time.month())?, part(time.day())?);
        let (hour, minute, second) = (part(time.hour())?, part(time.minute())?, part(time.second())?);
        zip::DateTime::from_date_and_time(u16::try_from(time.year()).ok()?, month, day, hour, minute, second).ok()
    });
    time.unwrap_or_default()
}
