//! Archives of commits as tar and zip files.

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
    export_attributes::AttributeStack,
    format_substitution::FormatSubstitution,
    large_object::LargeObject,
    repository::gix_id,
    tree_walk::TreeWalk,
    trees::{WALK_TIMEOUT, kind_and_mode},
};

/// The maximum total size of the files in an archive before compression. A few small objects can form a tree with far
/// more: it can contain the same file a million times.
pub const MAX_ARCHIVE_BYTES: u64 = 8 << 30;
/// The maximum number of files whose sizes are looked up before an archive is started. All sizes are added up again
/// while the archive is written.
const MAX_SIZE_LOOKUPS: usize = 200_000;

/// The compression level that `git archive` uses.
const GZIP_LEVEL: u32 = 6;
/// The size from which on a zip entry needs the ZIP64 format.
const ZIP64_THRESHOLD: u64 = 0xffff_ffff;

impl Repository {
    /// Fails if the files of a commit are too many or too large for an archive, before any output is produced.
    pub fn check_archive(&self, commit: Oid) -> Result<()> {
        let Some(tree) = self.tree_of(commit)? else { return Ok(()) };
        self.check_entry_count(tree)?;
        self.check_sizes(tree)
    }

    /// Fails if the total size of the files below a tree exceeds the limit. Each tree is visited once, however often it
    /// occurs.
    fn check_sizes(&self, tree: ObjectId) -> Result<()> {
        let (mut trees, mut blobs) = (HashMap::new(), HashMap::new());
        let mut walk = TreeWalk::with_deadline(self, tree, Vec::new(), Deadline::within(WALK_TIMEOUT))?;
        // The trees on the path of the walk, with the total size of what was visited in them so far.
        let mut open = vec![(tree, 0_u64)];
        loop {
            let entry = walk.next()?;
            while open.len() > walk.depth()
                && let Some((id, size)) = open.pop()
            {
                let Some((_, above)) = open.last_mut() else { return Ok(()) };
                *above = above.saturating_add(size);
                check_total(*above)?;
                trees.insert(id, size);
            }
            let (Some(entry), Some((_, total))) = (entry, open.last_mut()) else { continue };
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
                    None if blobs.len() == MAX_SIZE_LOOKUPS => return Ok(()),
                    None => {
                        let size = self.header(&entry.id)?.map_or(0, |(_, size)| size);
                        blobs.insert(entry.id, size);
                        size
                    }
                },
            };
            *total = total.saturating_add(size);
            check_total(*total)?;
        }
    }

    /// Writes the files of a commit as an archive below one folder; the same commit results in the same bytes.
    ///
    /// Files with the attribute `export-ignore` are left out, and in files with `export-subst` the `$Format:…$`
    /// placeholders are expanded. Submodules are empty folders. Large files are written in chunks.
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
        let state = Rc::new(WriterState::default());
        let contents = ArchiveContents { repository: self, commit, tree, folder, state: &state };
        let writer = GuardedWriter { out, state: Rc::clone(&state) };
        match format {
            ArchiveFormat::Tar => {
                let mut tar = Tar::new(writer, commit, seconds)?;
                contents.write(&mut tar)?;
                tar.0.finish()?;
            }
            ArchiveFormat::TarGz => {
                let mut tar = Tar::new(GzEncoder::new(writer, Compression::new(GZIP_LEVEL)), commit, seconds)?;
                contents.write(&mut tar)?;
                tar.0.into_inner()?.finish()?;
            }
            ArchiveFormat::TarBz2 => {
                let encoder = BzEncoder::new(writer, bzip2::Compression::best());
                let mut tar = Tar::new(encoder, commit, seconds)?;
                contents.write(&mut tar)?;
                tar.0.into_inner()?.finish()?;
            }
            ArchiveFormat::Zip => {
                let mut zip = Zip::new(writer, commit, seconds)?;
                contents.write(&mut zip)?;
                zip.0.finish().map_err(io::Error::from)?;
            }
        }
        state.check()
    }
}

/// Fails if this total size of files exceeds the limit.
fn check_total(bytes: u64) -> Result<()> {
    if bytes <= MAX_ARCHIVE_BYTES {
        return Ok(());
    }
    let max_gigabytes = MAX_ARCHIVE_BYTES >> 30;
    Err(Error::TooLarge(format!(
        "the files have more than {max_gigabytes} GB together, which is too much for an archive"
    )))
}

/// Discards all output once the archive has failed, and keeps the write error. The encoders properly close an abandoned
/// archive when they are dropped, so an incomplete one would look complete; and they panic or print if that fails.
struct GuardedWriter<'a> {
    out: &'a mut dyn Write,
    state: Rc<WriterState>,
}

#[derive(Default)]
struct WriterState {
    is_closed: Cell<bool>,
    error: Cell<Option<io::Error>>,
}

impl WriterState {
    /// Fails with the error of an earlier write.
    fn check(&self) -> Result<()> {
        self.error.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl GuardedWriter<'_> {
    fn forward(&mut self, forward: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if !self.state.is_closed.get()
            && let Err(error) = forward(self.out)
        {
            self.state.is_closed.set(true);
            self.state.error.set(Some(error));
        }
    }
}

impl Write for GuardedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.forward(|out| out.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.forward(|out| out.flush());
        Ok(())
    }
}

/// The content of an archive.
struct ArchiveContents<'a> {
    repository: &'a Repository,
    commit: Oid,
    tree: ObjectId,
    folder: &'a str,
    state: &'a WriterState,
}

/// An archive format. Paths of folders end in a slash.
trait ArchiveWriter {
    fn folder(&mut self, path: &[u8]) -> Result<()>;
    fn file(&mut self, path: &[u8], executable: bool, size: u64, data: &mut dyn Read) -> Result<()>;
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()>;
}

impl ArchiveContents<'_> {
    fn write(&self, archive: &mut impl ArchiveWriter) -> Result<()> {
        let written = self.write_entries(archive);
        self.state.is_closed.set(self.state.is_closed.get() || written.is_err());
        written
    }

    fn write_entries(&self, archive: &mut impl ArchiveWriter) -> Result<()> {
        let prefix = format!("{}/", self.folder).into_bytes();
        let depth = prefix.len();
        archive.folder(&prefix)?;
        let mut walk = TreeWalk::new(self.repository, self.tree, prefix)?;
        let mut attributes = AttributeStack::new()?;
        attributes.enter(self.repository, walk.folder(), b"")?;
        let mut substitution = None;
        let mut buffer = Vec::new();
        let mut total = 0_u64;
        let mut count = |size: u64| {
            total = total.saturating_add(size);
            check_total(total)
        };
        while let Some(entry) = walk.next()? {
            attributes.leave(walk.depth());
            self.state.check()?;
            let (kind, mode) = kind_and_mode(entry.mode);
            let entry_attributes = attributes.attributes_of(&walk.path()[depth..], kind == EntryKind::Tree);
            if entry_attributes.is_ignored || !is_safe_name(walk.name()) {
                continue;
            }
            if kind == EntryKind::Tree {
                walk.enter(entry.id)?;
                archive.folder(walk.path())?;
                attributes.enter(self.repository, walk.folder(), &walk.path()[depth..])?;
                continue;
            }
            if kind == EntryKind::Submodule {
                archive.folder(&[walk.path(), b"/"].concat())?;
                continue;
            }
            let (is_link, executable) = (mode == 0o120_000, mode == 0o100_755);
            match self.repository.blob(&entry.id, &mut buffer) {
                Ok(None) => return Err(Error::corrupt(format!("the blob {} is missing", entry.id))),
                Ok(Some(blob)) if is_link => archive.link(walk.path(), blob)?,
                Ok(Some(blob)) if entry_attributes.is_substituted => {
                    let substitution = match &mut substitution {
                        Some(known) => known,
                        none => none.insert(FormatSubstitution::new(self.repository, self.commit)?),
                    };
                    let filled = substitution.apply(blob);
                    count(filled.len() as u64)?;
                    archive.file(walk.path(), executable, filled.len() as u64, &mut &filled[..])?;
                }
                Ok(Some(mut blob)) => {
                    count(blob.len() as u64)?;
                    archive.file(walk.path(), executable, blob.len() as u64, &mut blob)?;
                }
                // No symbolic link can have a target of that length.
                Err(Error::TooLarge(_)) if is_link => {}
                Err(Error::TooLarge(_)) => {
                    let blob = self.repository.open_large_blob(&entry.id)?;
                    let size = blob.size;
                    count(size)?;
                    let mut blob = CancellableBlob { data: blob, state: self.state };
                    archive.file(walk.path(), executable, size, &mut blob)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A blob that stops being read once the output has failed.
struct CancellableBlob<'a> {
    data: LargeObject,
    state: &'a WriterState,
}

impl Read for CancellableBlob<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.state.is_closed.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.data.read(buf)
    }
}

/// Returns whether a name cannot lead out of the folder it is extracted to. `git index-pack` refuses trees with unsafe
/// names; this is for trees that arrived in other ways.
fn is_safe_name(name: &[u8]) -> bool {
    let is_traversal = |part: &[u8]| matches!(part, b"" | b"." | b"..");
    !name.split(|byte| matches!(byte, b'/' | b'\\')).any(is_traversal)
        && !name.contains(&b'/')
        && !name.contains(&0)
        && !name.eq_ignore_ascii_case(b".git")
}

struct Tar<W: Write>(tar::Builder<W>, u64);

impl<W: Write> Tar<W> {
    fn new(out: W, commit: Oid, seconds: u64) -> Result<Self> {
        let mut tar = Self(tar::Builder::new(out), seconds);
        // The place where `git get-tar-commit-id` finds the commit.
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
        let mut pax_extensions = Vec::new();
        if header.set_path(Path::new(OsStr::from_bytes(path))).is_err() {
            pax_extensions.push(("path", path));
            header.set_path("long")?;
        }
        if let Some(target) = target
            && header.set_link_name_literal(target).is_err()
        {
            pax_extensions.push(("linkpath", target));
            header.set_link_name("long")?;
        }
        self.0.append_pax_extensions(pax_extensions)?;
        header.set_cksum();
        Ok(self.0.append(&header, data)?)
    }
}

impl<W: Write> ArchiveWriter for Tar<W> {
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

struct Zip<'a>(ZipWriter<StreamWriter<GuardedWriter<'a>>>, SimpleFileOptions);

impl<'a> Zip<'a> {
    fn new(out: GuardedWriter<'a>, commit: Oid, seconds: u64) -> Result<Self> {
        let mut zip = ZipWriter::new_stream(out);
        // The place where `git archive` puts the commit.
        zip.set_comment(commit.to_string()).map_err(io::Error::from)?;
        Ok(Self(zip, SimpleFileOptions::default().last_modified_time(zip_time(seconds))))
    }

    fn start(&mut self, path: &[u8], mode: u32, size: u64) -> Result<()> {
        let large = size >= ZIP64_THRESHOLD;
        let options = self.1.external_attributes(mode << 16).large_file(large).name(path);
        Ok(self.0.start_file_with_options(options).map_err(io::Error::from)?)
    }
}

impl ArchiveWriter for Zip<'_> {
    fn folder(&mut self, path: &[u8]) -> Result<()> {
        // A folder exists by the files in it, so one whose name is not UTF-8 needs no entry of its own.
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

/// Converts a time to that of a zip entry: from 1980 on, with a resolution of two seconds.
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
