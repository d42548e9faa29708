//! A backup in one stream: a tar file whose last member is the manifest.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    rc::Rc,
};

use git::FileCheck;
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::{
    Sentence,
    capture::{Added, FileId, Opened, Sink, Source, open},
    manifest::{
        self, Hashing, Head, Line, Next, Seal, changed, cut, fault_of, hex, not_one, refuse_faults, repository_path,
        unreadable,
    },
    progress::Progress,
    staging::{self, Staging},
};

/// The first member: what it is.
const HEAD: &str = "gable-backup.json";
/// The last member: what it held.
const MANIFEST: &str = "manifest";
/// A tar file is made of blocks, and ends with two that are empty.
const BLOCK: u64 = 512;

/// A stream that is being written.
pub(super) struct Archive<W: Write> {
    tar: tar::Builder<Summed<W>>,
    manifest: Option<manifest::Writer<BufWriter<File>>>,
    /// Files with several names.
    seen: HashMap<FileId, Linked>,
}

/// A file with several names that was written under one of them.
struct Linked {
    path: String,
    /// How many names are to come.
    left: u64,
    fault: Option<String>,
}

/// Sums up what passes.
struct Summed<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o600);
    header.set_size(size);
    header.set_mtime(0);
    header
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        let tar = tar::Builder::new(Summed { inner: out, hash: Sha256::new() });
        Self { tar, manifest: None, seen: HashMap::new() }
    }

    /// What was written to, once it is finished.
    pub(super) fn into_inner(self) -> Result<W, Sentence> {
        Ok(self.tar.into_inner().map_err(unwritable)?.inner)
    }

    fn note(&mut self, line: &Line) -> Result<(), Sentence> {
        let manifest = self.manifest.as_mut().ok_or("a backup was not begun")?;
        manifest.add(line).map_err(unwritable)
    }

    fn append(&mut self, path: &str, size: u64, content: impl Read) -> Result<(), Sentence> {
        let mut content = Hashing::new(content);
        self.tar.append_data(&mut header(EntryType::Regular, size), path, &mut content).map_err(unwritable)?;
        if content.count != size {
            return Err(format!("{path} became shorter while it was read; try again"));
        }
        let sum = content.sum();
        self.note(&Line::File { sum, size, path: path.to_owned() })
    }
}

impl<W: Write> Sink for Archive<W> {
    fn begin(&mut self, head: &Head) -> Result<(), Sentence> {
        let spool = BufWriter::new(tempfile::tempfile().map_err(unwritable)?);
        self.manifest = Some(manifest::Writer::begin(spool, head).map_err(unwritable)?);
        let text = serde_json::to_string(head).map_err(|error| error.to_string())?;
        self.add_bytes(HEAD, format!("{text}\n").as_bytes())
    }

    fn enter(&mut self, _: &str) -> Result<(), Sentence> {
        Ok(())
    }

    fn is_unchanged(&self) -> bool {
        false
    }

    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<(), Sentence> {
        self.append(path, bytes.len() as u64, bytes)
    }

    fn add_file(&mut self, path: &str, source: Source<'_>) -> Result<Added, Sentence> {
        let lasts = source.lasts;
        let (mut content, data) = match open(source) {
            Opened::Content(content, data) => (content, data),
            Opened::Gone => return Ok(Added::Gone),
            Opened::Unreadable(fault) => return Ok(Added::Unreadable(fault)),
        };
        let has_links = lasts && data.nlink() > 1;
        let key = FileId::of(&data);
        if let Some(linked) = self.seen.get_mut(&key).filter(|_| has_links) {
            let (target, fault) = (linked.path.clone(), linked.fault.clone());
            linked.left -= 1;
            if linked.left == 0 {
                self.seen.remove(&key);
            }
            self.tar.append_link(&mut header(EntryType::Link, 0), path, &target).map_err(unwritable)?;
            self.note(&Line::Link { target, path: path.to_owned() })?;
            return Ok(Added::Copied { fault });
        }
        self.append(path, content.size, &mut content)?;
        let fault = content.finish();
        if has_links {
            let linked = Linked { path: path.to_owned(), left: data.nlink() - 1, fault: fault.clone() };
            self.seen.insert(key, linked);
        }
        Ok(Added::Copied { fault })
    }

    fn finish(&mut self, seal: Seal) -> Result<Seal, Sentence> {
        let manifest = self.manifest.take().ok_or("a backup was not begun")?;
        let stream = hex(&self.tar.get_ref().hash.clone().finalize());
        let (spool, seal) = manifest.finish(Seal { stream: Some(stream), ..seal }).map_err(unwritable)?;
        let mut spool = spool.into_inner().map_err(|error| unwritable(error.into_error()))?;
        let size = spool.stream_position().map_err(unwritable)?;
        spool.seek(SeekFrom::Start(0)).map_err(unwritable)?;
        self.tar.append_data(&mut header(EntryType::Regular, size), MANIFEST, spool).map_err(unwritable)?;
        self.tar.finish().map_err(unwritable)?;
        self.tar.get_mut().flush().map_err(unwritable)?;
        Ok(seal)
    }
}

fn unwritable(error: io::Error) -> Sentence {
    format!("the backup cannot be written: {error}")
}

/// Sums up what was read, apart from the last block: that may be the one with which the manifest begins.
struct Lagging<R> {
    inner: R,
    sum: Rc<RefCell<(Sha256, Vec<u8>)>>,
}

impl<R: Read> Read for Lagging<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let (hash, last) = &mut *self.sum.borrow_mut();
        last.extend_from_slice(&buffer[..read]);
        let beyond = last.len().saturating_sub(usize::try_from(BLOCK).unwrap_or_default());
        hash.update(&last[..beyond]);
        last.drain(..beyond);
        Ok(read)
    }
}

/// Reads a stream from its beginning to its end and puts everything where it belongs, if there is such a place. Only
/// what is exactly as it was written is good.
pub(super) fn read(
    from: impl Read,
    staging: Option<&Staging>,
    progress: &mut Progress,
) -> Result<(Head, Seal), Sentence> {
    let sum = Rc::new(RefCell::new((Sha256::new(), Vec::new())));
    let mut archive = tar::Archive::new(Lagging { inner: from, sum: Rc::clone(&sum) });
    let mut noted = BufWriter::new(tempfile::tempfile().map_err(unwritable)?);
    let mut begun = false;
    let mut was_checked = true;
    let mut faults = Vec::new();
    let mut found = None;
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(|error| if begun { unreadable(error) } else { not_one() })?;
        let path = entry.path().ok().and_then(|path| path.to_str().map(ToOwned::to_owned)).ok_or_else(changed)?;
        let size = entry.size();
        if !begun && path != HEAD {
            return Err(not_one());
        }
        if path == MANIFEST {
            let stream = hex(&sum.borrow().0.clone().finalize());
            let mut expected = header(EntryType::Regular, size);
            expected.set_path(MANIFEST).map_err(unwritable)?;
            expected.set_cksum();
            if entry.header().as_bytes() != expected.as_bytes() {
                return Err(changed());
            }
            let noted = noted.into_inner().map_err(|error| unwritable(error.into_error()))?;
            found = Some((compare(&mut entry, noted, &stream)?, size));
            break;
        }
        // Also where nothing is written: what a restore would refuse is not whole.
        if begun {
            staging::check_path(&path)?;
        }
        let line = match entry.header().entry_type() {
            EntryType::Regular => {
                let mut content = Hashing::new(&mut entry);
                let check = repository_path(&path).map(FileCheck::of).filter(|_| !was_checked && staging.is_none());
                if let Some(check) = check {
                    faults.extend(fault_of(&mut content, check).map(|fault| (path.clone(), fault)));
                } else if begun {
                    take(&path, &mut content, staging)?;
                } else {
                    // A small one, and first of all it says whether it can be read here.
                    let mut text = String::new();
                    (&mut content).take(1 << 20).read_to_string(&mut text).map_err(unreadable)?;
                    was_checked = manifest::read_head(&text)?.verified;
                    begun = true;
                }
                if content.count != size {
                    return Err(cut());
                }
                Line::File { sum: content.sum(), size, path }
            }
            EntryType::Link => {
                let target = entry.link_name().ok().flatten().ok_or_else(changed)?;
                let target = target.to_str().ok_or_else(changed)?.to_owned();
                staging::check_path(&target)?;
                if let Some(staging) = staging {
                    staging.link(&target, &path)?;
                }
                Line::Link { target, path }
            }
            _ => return Err(changed()),
        };
        progress.add(size);
        writeln!(noted, "{line}").map_err(unwritable)?;
    }
    let ((head, seal), size) = found.ok_or_else(cut)?;
    check_end(archive.into_inner(), size)?;
    seal.left_out.iter().try_for_each(|path| staging::check_path(path))?;
    refuse_faults(&faults)?;
    Ok((head, seal))
}

fn take(path: &str, content: &mut impl Read, staging: Option<&Staging>) -> Result<(), Sentence> {
    match staging {
        Some(staging) => staging.write(path, content),
        None => io::copy(content, &mut io::sink()).map(drop).map_err(unreadable),
    }
}

/// Holds the manifest against what was found.
fn compare(manifest: &mut impl Read, mut noted: File, stream: &str) -> Result<(Head, Seal), Sentence> {
    noted.seek(SeekFrom::Start(0)).map_err(unwritable)?;
    let mut noted = BufReader::new(noted).lines();
    let mut manifest = manifest::Reader::open(BufReader::new(manifest))?;
    loop {
        match manifest.next()? {
            Next::Line(line) => match noted.next().transpose().map_err(unwritable)? {
                Some(found) if found == line.to_string() => {}
                _ => return Err(format!("{}: {}", line.path(), changed())),
            },
            Next::End(seal) => {
                if noted.next().is_some() || seal.stream.as_deref() != Some(stream) {
                    return Err(changed());
                }
                return Ok((manifest.head.clone(), *seal));
            }
        }
    }
}

/// Nothing but what a tar file ends with may follow the manifest.
fn check_end(mut rest: impl Read, manifest: u64) -> Result<(), Sentence> {
    let expected = manifest.next_multiple_of(BLOCK) - manifest + 2 * BLOCK;
    let mut end = Vec::new();
    (&mut rest).take(expected + 1).read_to_end(&mut end).map_err(unreadable)?;
    if (end.len() as u64) < expected {
        return Err(cut());
    }
    if end.len() as u64 > expected || end.iter().any(|byte| *byte != 0) { Err(changed()) } else { Ok(()) }
}

/// A file that gets its name when it is whole.
pub(super) struct Target {
    path: PathBuf,
    partial: PathBuf,
    whole: bool,
}

impl Target {
    /// Makes the file beside; one that is there is not written over, unless told to.
    pub(super) fn make(path: &Path, force: bool) -> Result<(Self, File), Sentence> {
        if !force && path.exists() {
            return Err(format!("{} is there already; choose another name, or add --force", path.display()));
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let unwritable = |error: io::Error| format!("cannot write {}: {error}", partial.display());
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&partial);
        let file = file.map_err(unwritable)?;
        file.try_lock().map_err(|_| format!("another backup writes to {}", partial.display()))?;
        // What an interrupted one left, which may have been readable to others.
        file.set_permissions(Permissions::from_mode(0o600)).and_then(|()| file.set_len(0)).map_err(unwritable)?;
        Ok((Self { path: path.to_owned(), partial, whole: false }, file))
    }

    /// Gives it its name, for good.
    pub(super) fn finish(mut self, file: &File) -> Result<(), Sentence> {
        let failed = |error: io::Error| format!("cannot write {}: {error}", self.path.display());
        file.sync_all().map_err(failed)?;
        fs::rename(&self.partial, &self.path).map_err(failed)?;
        self.whole = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.whole {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of an archive with one file under a path that the writer itself would not take.
    fn verify(path: &str, seal: Seal) -> Result<(), Sentence> {
        let head = Head {
            format: manifest::FORMAT,
            gable: "1".into(),
            engine: "sqlite".into(),
            migrations: Vec::new(),
            taken_at: "now".into(),
            instance: None,
            verified: true,
        };
        let mut archive = Archive::new(Vec::new());
        archive.begin(&head).expect("begun");
        let mut header = header(EntryType::Regular, 1);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        archive.tar.append(&header, &b"x"[..]).expect("added");
        let sum = hex(&Sha256::digest(b"x"));
        archive.note(&Line::File { sum, size: 1, path: path.to_owned() }).expect("noted");
        archive.finish(seal).expect("finished");
        let bytes = archive.into_inner().expect("written");
        read(&bytes[..], None, &mut Progress::new(true)).map(drop)
    }

    #[test]
    fn what_a_restore_would_refuse_is_not_whole() {
        assert_eq!(verify("files/uploads/1/1", Seal::default()), Ok(()));
        for path in ["../x", "/x", "files/../../x", "other", "gable.sqlite3"] {
            assert_eq!(verify(path, Seal::default()), Err(changed()), "{path}");
            let seal = Seal { left_out: vec![path.to_owned()], ..Seal::default() };
            assert_eq!(verify("files/uploads/1/1", seal), Err(changed()), "left out: {path}");
        }
    }
}
