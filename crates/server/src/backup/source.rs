//! The parts of an instance that a backup copies, from a data folder or from a bucket.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use files::{Files, bucket::Bucket};
use git::FileCheck;
use store::{Database, dump::StoredFileKind};

use crate::data_folder::{DataFolder, INSTANCE_KEY};

/// The folder of the store of files in a data folder and in a backup.
pub(super) const STORE: &str = "files/";

/// The instance that a backup copies.
#[derive(Clone)]
pub(crate) struct BackupSource {
    folder: DataFolder,
    pub(super) database: Database,
}

impl BackupSource {
    pub(crate) fn new(folder: DataFolder, database: Database) -> Self {
        Self { folder, database }
    }

    /// Returns the data folder, or the cache folder of a node.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns whether the files are in a bucket. Then traces consist of segments.
    pub(super) fn is_in_bucket(&self) -> bool {
        self.folder.shared().is_some()
    }

    /// Returns the path of a file with a private key.
    pub(super) fn key_path(&self, name: &str) -> PathBuf {
        match self.folder.shared() {
            Some(shared) if name == INSTANCE_KEY => shared.key_file.clone(),
            _ => self.folder.path().join(name),
        }
    }

    /// Returns the kinds of files that the instance has.
    pub(super) fn kinds(&self) -> impl Iterator<Item = StoredFileKind> + use<> {
        let unused = if self.is_in_bucket() { StoredFileKind::Traces } else { StoredFileKind::TraceObjects };
        StoredFileKind::ALL.into_iter().filter(move |kind| *kind != unused)
    }

    /// Opens the stored files; those of a bucket are listed.
    pub(super) fn stored_files(&self) -> Result<StoredFiles> {
        if !self.is_in_bucket() {
            return Ok(StoredFiles::Folder(self.folder.path().to_owned()));
        }
        let files = self.folder.files()?;
        let mut sizes = HashMap::new();
        let listed = files.list("", &mut |entry| {
            sizes.insert(entry.key, entry.size);
            Ok(())
        });
        listed.context("cannot list the objects of the store")?;
        Ok(StoredFiles::Bucket { files, sizes })
    }
}

/// The stored files of an instance. Their paths are those in a data folder.
pub(super) enum StoredFiles {
    /// In a data folder.
    Folder(PathBuf),
    /// In a bucket; with the sizes of the objects that were there at the beginning.
    Bucket { files: Files, sizes: HashMap<String, u64> },
}

impl StoredFiles {
    /// Returns the place of a file.
    pub(super) fn place(&self, path: &str) -> FilePlace<'_> {
        match self {
            Self::Folder(data) => FilePlace::Local(data.join(path)),
            Self::Bucket { files, sizes } => {
                let key = path.strip_prefix(STORE).unwrap_or(path);
                FilePlace::Object { files, key: key.to_owned(), listed_size: sizes.get(key).copied() }
            }
        }
    }

    /// Returns the path of a pack without extension. One in a bucket is copied to `copy` with its index.
    pub(super) fn local_pack(&self, key: &str, copy: &Path) -> Result<PathBuf> {
        let files = match self {
            Self::Folder(data) => return Ok(data.join(format!("{STORE}{key}"))),
            Self::Bucket { files, .. } => files,
        };
        for extension in ["pack", "idx"] {
            let path = copy.with_extension(extension);
            let file = File::create_new(&path).context("cannot write a temporary file")?;
            let found = bucket(files)?.copy_to(&format!("{key}.{extension}"), &file);
            if !found.with_context(|| format!("cannot read {key}.{extension}"))? {
                // Found to be missing later.
                fs::remove_file(&path).context("cannot remove a temporary file")?;
            }
        }
        Ok(copy.to_owned())
    }
}

fn bucket(files: &Files) -> io::Result<&Bucket> {
    files.bucket().ok_or_else(|| io::Error::other("the files are not in a bucket"))
}

/// Where a file is.
pub(super) enum FilePlace<'a> {
    /// A file on this machine.
    Local(PathBuf),
    /// An object of a bucket.
    Object {
        files: &'a Files,
        key: String,
        /// Its size, if it existed when the bucket was listed.
        listed_size: Option<u64>,
    },
}

/// A file to copy.
pub(super) struct FileSource<'a> {
    pub(super) place: FilePlace<'a>,
    /// The number of bytes to copy; `None` copies the whole file.
    pub(super) size: Option<u64>,
    /// Whether the content under this path never changes.
    pub(super) immutable: bool,
    /// Whether the server creates and removes hard links to the file.
    pub(super) is_linked: bool,
    /// The creation time in microseconds since the epoch, if known; the file has not changed since.
    pub(super) created_at: Option<i64>,
    /// The check that its content has to pass.
    pub(super) check: Option<FileCheck>,
}

impl<'a> FileSource<'a> {
    /// The whole of a file that may change.
    pub(super) fn whole(place: FilePlace<'a>) -> Self {
        Self { place, size: None, immutable: false, is_linked: false, created_at: None, check: None }
    }

    /// The whole of a local file that may change.
    pub(super) fn local(file: PathBuf) -> Self {
        Self::whole(FilePlace::Local(file))
    }

    /// Returns the size of an object that never changes, if it existed when the bucket was listed and has the expected size.
    pub(super) fn unchanged_object_size(&self) -> Option<u64> {
        let FilePlace::Object { listed_size: Some(listed), .. } = self.place else { return None };
        (self.immutable && self.size.is_none_or(|size| size == listed)).then_some(listed)
    }
}

/// The outcome of opening a file.
pub(super) enum OpenedFile {
    /// The content, and the metadata of a local file.
    Content(Box<FileContent>, Option<Metadata>),
    /// The file does not exist, or is shorter than expected.
    Gone,
    Unreadable(String),
}

/// Opens a file for copying. An object is copied to a temporary file first. Fails if the store cannot be reached.
pub(super) fn open(source: FileSource<'_>) -> Result<OpenedFile> {
    let (file, data, is_local) = match &source.place {
        FilePlace::Local(path) => {
            let opened = File::open(path).and_then(|file| {
                let data = file.metadata()?;
                if data.is_file() { Ok((file, data)) } else { Err(io::Error::other("not a regular file")) }
            });
            match opened {
                Ok((file, data)) => (file, data, true),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return Ok(OpenedFile::Gone);
                }
                Err(error) => return Ok(OpenedFile::Unreadable(error.to_string())),
            }
        }
        FilePlace::Object { files, key, .. } => {
            let bucket = bucket(files)?;
            let mut file = bucket.temporary_file().context("cannot create a temporary file")?;
            match bucket.copy_to(key, &file) {
                Ok(true) => {}
                Ok(false) => return Ok(OpenedFile::Gone),
                Err(error) if error.is_damaged() => return Ok(OpenedFile::Unreadable(error.to_string())),
                Err(error) => return Err(error).with_context(|| format!("cannot read {key}")),
            }
            io::Seek::rewind(&mut file).context("cannot read a temporary file")?;
            let data = file.metadata().context("cannot read a temporary file")?;
            (file, data, false)
        }
    };
    let size = source.size.unwrap_or(data.len());
    if size > data.len() {
        return Ok(OpenedFile::Gone);
    }
    let grown = source.immutable && size < data.len();
    let fault = grown.then(|| format!("has {} bytes instead of {size}", data.len()));
    let content = Box::new(FileContent { file, size, remaining: size, check: source.check, fault });
    Ok(OpenedFile::Content(content, is_local.then_some(data)))
}

/// The content of a file, checked while it is read. Bytes that cannot be read are replaced by zeros, because the size is
/// already written to the stream; the fault is recorded.
pub(super) struct FileContent {
    file: File,
    pub(super) size: u64,
    remaining: u64,
    check: Option<FileCheck>,
    pub(super) fault: Option<String>,
}

impl FileContent {
    /// Returns what is wrong with the content that was read.
    pub(super) fn finish(self) -> Option<String> {
        self.fault.or_else(|| self.check.and_then(|check| check.finish().err()).map(|fault| fault.to_string()))
    }
}

impl Read for FileContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..wanted];
        let read = match self.file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "unexpected end of file")),
            read => read,
        };
        let read = read.unwrap_or_else(|error| {
            let offset = self.size - self.remaining;
            self.fault.get_or_insert(format!("cannot be read from byte {offset} on: {error}"));
            buffer.fill(0);
            wanted
        });
        if let Some(check) = &mut self.check {
            check.update(&buffer[..read]);
        }
        self.remaining -= read as u64;
        Ok(read)
    }
}
