//! Backup archives: a tar stream whose last member is the manifest.

use std::{
    cell::RefCell,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    rc::Rc,
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use git::FileCheck;
use model::text::hex;
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::{
    capture::{AddOutcome, Sink},
    manifest::{
        self, HashingReader, ManifestEntry, ManifestHeader, ManifestItem, ManifestSummary, corrupted, ensure_no_faults,
        find_fault, not_a_backup, read_error, repository_path, truncated,
    },
    progress::Progress,
    source::{FileSource, OpenedFile, open},
    staging::{self, Staging},
};

/// The first member of an archive: the header of the manifest.
const HEADER_FILE: &str = "gable-backup.json";
/// The last member of an archive.
const MANIFEST_FILE: &str = "manifest";
/// The size of a tar block; an archive ends with two blocks of zeros.
const BLOCK_SIZE: u64 = 512;

/// An archive that is being written.
pub(super) struct Archive<W: Write> {
    tar: tar::Builder<HashingWriter<W>>,
    manifest: Option<manifest::Writer<BufWriter<File>>>,
}

/// Computes the SHA-256 of what is written.
struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn tar_header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o600);
    header.set_size(size);
    header.set_mtime(0);
    header
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        let tar = tar::Builder::new(HashingWriter { inner: out, hash: Sha256::new() });
        Self { tar, manifest: None }
    }

    /// Returns the underlying writer of a finished archive.
    pub(super) fn into_inner(self) -> Result<W> {
        Ok(self.tar.into_inner().map_err(write_error)?.inner)
    }

    fn record(&mut self, line: &ManifestEntry) -> Result<()> {
        let manifest = self.manifest.as_mut().context("the backup was not started")?;
        manifest.add(line).map_err(write_error)
    }

    fn append(&mut self, path: &str, size: u64, content: impl Read) -> Result<()> {
        let mut content = HashingReader::new(content);
        self.tar.append_data(&mut tar_header(EntryType::Regular, size), path, &mut content).map_err(write_error)?;
        if content.count != size {
            bail!("{path} became shorter while it was read; run the backup again");
        }
        let sum = content.sum();
        self.record(&ManifestEntry::File { sum, size, path: path.to_owned() })
    }
}

impl<W: Write> Sink for Archive<W> {
    fn begin(&mut self, header: &ManifestHeader) -> Result<()> {
        let spool = BufWriter::new(tempfile::tempfile().map_err(write_error)?);
        self.manifest = Some(manifest::Writer::begin(spool, header).map_err(write_error)?);
        let text = serde_json::to_string(header)?;
        self.add_bytes(HEADER_FILE, format!("{text}\n").as_bytes())
    }

    fn enter(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn was_connected(&self, _: &str) -> bool {
        false
    }

    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.append(path, bytes.len() as u64, bytes)
    }

    fn add_file(&mut self, path: &str, source: FileSource<'_>) -> Result<AddOutcome> {
        let mut content = match open(source)? {
            OpenedFile::Content(content, _) => content,
            OpenedFile::Gone => return Ok(AddOutcome::Gone),
            OpenedFile::Unreadable(fault) => return Ok(AddOutcome::Unreadable(fault)),
        };
        self.append(path, content.size, &mut content)?;
        Ok(AddOutcome::Copied { size: content.size, fault: content.finish() })
    }

    fn finish(&mut self, summary: ManifestSummary) -> Result<ManifestSummary> {
        let manifest = self.manifest.take().context("the backup was not started")?;
        let stream = hex(&self.tar.get_ref().hash.clone().finalize());
        let (spool, summary) =
            manifest.finish(ManifestSummary { stream: Some(stream), ..summary }).map_err(write_error)?;
        let mut spool = spool.into_inner().map_err(|error| write_error(error.into_error()))?;
        let size = spool.stream_position().map_err(write_error)?;
        spool.seek(SeekFrom::Start(0)).map_err(write_error)?;
        self.tar.append_data(&mut tar_header(EntryType::Regular, size), MANIFEST_FILE, spool).map_err(write_error)?;
        self.tar.finish().map_err(write_error)?;
        self.tar.get_mut().flush().map_err(write_error)?;
        Ok(summary)
    }
}

fn write_error(error: io::Error) -> Error {
    Error::new(error).context("cannot write the backup")
}

/// Computes the SHA-256 of what was read except the last block, which may be the header of the manifest.
struct TrailingHashReader<R> {
    inner: R,
    sum: Rc<RefCell<(Sha256, Vec<u8>)>>,
}

impl<R: Read> Read for TrailingHashReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let (hash, last) = &mut *self.sum.borrow_mut();
        last.extend_from_slice(&buffer[..read]);
        let beyond = last.len().saturating_sub(usize::try_from(BLOCK_SIZE).unwrap_or_default());
        hash.update(&last[..beyond]);
        last.drain(..beyond);
        Ok(read)
    }
}

/// Verifies an archive and unpacks it into `staging`, if given. Every byte must be as written.
pub(super) fn read(
    from: impl Read,
    staging: Option<&Staging>,
    progress: &mut Progress,
) -> Result<(ManifestHeader, ManifestSummary)> {
    let sum = Rc::new(RefCell::new((Sha256::new(), Vec::new())));
    let mut archive = tar::Archive::new(TrailingHashReader { inner: from, sum: Rc::clone(&sum) });
    let mut entries = BufWriter::new(tempfile::tempfile().map_err(write_error)?);
    let mut has_header = false;
    let mut was_verified = true;
    let mut faults = Vec::new();
    let mut found = None;
    for entry in archive.entries().map_err(read_error)? {
        let mut entry = entry.map_err(|error| if has_header { read_error(error) } else { not_a_backup() })?;
        let path = entry.path().ok().and_then(|path| path.to_str().map(ToOwned::to_owned)).ok_or_else(corrupted)?;
        let size = entry.size();
        if !has_header && path != HEADER_FILE {
            return Err(not_a_backup());
        }
        if path == MANIFEST_FILE {
            let stream = hex(&sum.borrow().0.clone().finalize());
            let mut expected = tar_header(EntryType::Regular, size);
            expected.set_path(MANIFEST_FILE).map_err(write_error)?;
            expected.set_cksum();
            if entry.header().as_bytes() != expected.as_bytes() {
                return Err(corrupted());
            }
            let entries = entries.into_inner().map_err(|error| write_error(error.into_error()))?;
            found = Some((compare(&mut entry, entries, &stream)?, size));
            break;
        }
        // Also without staging: a path that a restore refuses must fail verification.
        if has_header {
            staging::check_path(&path)?;
        }
        let line = match entry.header().entry_type() {
            EntryType::Regular => {
                let mut content = HashingReader::new(&mut entry);
                let check =
                    repository_path(&path).map(FileCheck::for_path).filter(|_| !was_verified && staging.is_none());
                if let Some(check) = check {
                    faults.extend(find_fault(&mut content, check).map(|fault| (path.clone(), fault)));
                } else if has_header {
                    store_or_discard(&path, &mut content, staging)?;
                } else {
                    // The header shows whether this version can read the archive.
                    let mut text = String::new();
                    (&mut content).take(1 << 20).read_to_string(&mut text).map_err(read_error)?;
                    was_verified = manifest::parse_header(&text)?.verified;
                    has_header = true;
                }
                if content.count != size {
                    return Err(truncated());
                }
                ManifestEntry::File { sum: content.sum(), size, path }
            }
            EntryType::Link => {
                let target = entry.link_name().ok().flatten().ok_or_else(corrupted)?;
                let target = target.to_str().ok_or_else(corrupted)?.to_owned();
                staging::check_path(&target)?;
                if let Some(staging) = staging {
                    staging.link(&target, &path)?;
                }
                ManifestEntry::Link { target, path }
            }
            _ => return Err(corrupted()),
        };
        progress.add(size);
        writeln!(entries, "{line}").map_err(write_error)?;
    }
    let ((header, summary), size) = found.ok_or_else(truncated)?;
    check_end(archive.into_inner(), size)?;
    summary.left_out.iter().try_for_each(|path| staging::check_path(path))?;
    ensure_no_faults(&faults)?;
    Ok((header, summary))
}

fn store_or_discard(path: &str, content: &mut impl Read, staging: Option<&Staging>) -> Result<()> {
    match staging {
        Some(staging) => staging.write(path, content),
        None => io::copy(content, &mut io::sink()).map(drop).map_err(read_error),
    }
}

/// Compares the manifest with the members of the archive.
fn compare(manifest: &mut impl Read, mut entries: File, stream: &str) -> Result<(ManifestHeader, ManifestSummary)> {
    entries.seek(SeekFrom::Start(0)).map_err(write_error)?;
    let mut entries = BufReader::new(entries).lines();
    let mut manifest = manifest::Reader::open(BufReader::new(manifest))?;
    loop {
        match manifest.next()? {
            ManifestItem::Entry(line) => match entries.next().transpose().map_err(write_error)? {
                Some(found) if found == line.to_string() => {}
                _ => bail!("{}: {}", line.path(), corrupted()),
            },
            ManifestItem::End(summary) => {
                if entries.next().is_some() || summary.stream.as_deref() != Some(stream) {
                    return Err(corrupted());
                }
                return Ok((manifest.header.clone(), *summary));
            }
        }
    }
}

/// Checks that only the end of a tar archive follows the manifest.
fn check_end(mut rest: impl Read, manifest: u64) -> Result<()> {
    let expected = manifest.next_multiple_of(BLOCK_SIZE) - manifest + 2 * BLOCK_SIZE;
    let mut end = Vec::new();
    (&mut rest).take(expected + 1).read_to_end(&mut end).map_err(read_error)?;
    if (end.len() as u64) < expected {
        return Err(truncated());
    }
    if end.len() as u64 > expected || end.iter().any(|byte| *byte != 0) { Err(corrupted()) } else { Ok(()) }
}

/// A file that is renamed to its final name when it is complete.
pub(super) struct PartialFile {
    path: PathBuf,
    partial: PathBuf,
    finished: bool,
}

impl PartialFile {
    /// Creates the `.partial` file. An existing file is refused without `force`.
    pub(super) fn create(path: &Path, force: bool) -> Result<(Self, File)> {
        if !force && path.exists() {
            bail!("{} already exists; choose another name, or add --force", path.display());
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let context = || format!("cannot write {}", partial.display());
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&partial);
        let file = file.with_context(context)?;
        file.try_lock().map_err(|_| anyhow!("another backup is writing to {}", partial.display()))?;
        // The file may be left from an interrupted backup, with other permissions.
        file.set_permissions(Permissions::from_mode(0o600)).and_then(|()| file.set_len(0)).with_context(context)?;
        Ok((Self { path: path.to_owned(), partial, finished: false }, file))
    }

    /// Gives the file its final name, durably.
    pub(super) fn finish(mut self, file: &File) -> Result<()> {
        let context = || format!("cannot write {}", self.path.display());
        file.sync_all().with_context(context)?;
        fs::rename(&self.partial, &self.path).with_context(context)?;
        self.finished = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(context)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verifies an archive with one file under a path that the writer itself would refuse.
    fn refusal(path: &str, summary: ManifestSummary) -> Option<String> {
        let header = ManifestHeader {
            format: manifest::FORMAT,
            gable: "1".into(),
            engine: "sqlite".into(),
            migrations: Vec::new(),
            taken_at: "now".into(),
            instance: None,
            verified: true,
            has_segments: false,
        };
        let mut archive = Archive::new(Vec::new());
        archive.begin(&header).expect("begun");
        let mut file_header = tar_header(EntryType::Regular, 1);
        file_header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        file_header.set_cksum();
        archive.tar.append(&file_header, &b"x"[..]).expect("added");
        let sum = hex(&Sha256::digest(b"x"));
        archive.record(&ManifestEntry::File { sum, size: 1, path: path.to_owned() }).expect("noted");
        archive.finish(summary).expect("finished");
        let bytes = archive.into_inner().expect("written");
        read(&bytes[..], None, &mut Progress::new(true)).err().map(|error| error.to_string())
    }

    #[test]
    fn paths_that_a_restore_refuses_fail_verification() {
        let expected = Some(corrupted().to_string());
        assert_eq!(refusal("files/uploads/1/1", ManifestSummary::default()), None);
        for path in ["../x", "/x", "files/../../x", "other", "gable.sqlite3"] {
            assert_eq!(refusal(path, ManifestSummary::default()), expected, "{path}");
            let summary = ManifestSummary { left_out: vec![path.to_owned()], ..ManifestSummary::default() };
            assert_eq!(refusal("files/uploads/1/1", summary), expected, "left out: {path}");
        }
    }
}
