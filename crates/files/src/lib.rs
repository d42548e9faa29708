//! Files by key, in a folder or in an S3 bucket. Knows no users, no SQL and no HTTP.
//!
//! Writes are durable before they are acknowledged. An unfinished write leaves nothing behind except after a crash;
//! removing its key removes the remains.

pub mod bucket;
mod copy;
pub mod disk_space;
mod folder;
pub mod logs;
mod private_folder;
pub mod spool;

use std::{
    error::Error as StdError,
    io,
    ops::Range,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use futures_util::{Stream, stream::BoxStream};
use object_store::path::Path as Location;
use tokio::task::JoinError;

pub use self::copy::Difference;
use self::{
    bucket::{Bucket, BucketError},
    folder::{Folder, optional, read_chunks, sync_folder},
};

/// A store of files; cheap to clone.
#[derive(Clone)]
pub struct Files(Store);

#[derive(Clone)]
enum Store {
    Folder(Folder),
    Bucket(Bucket),
}

/// The content of a key.
pub struct Content {
    /// The size of the whole file, whatever range was requested.
    pub size: u64,
    /// The requested bytes, read on demand.
    pub bytes: BoxStream<'static, io::Result<Bytes>>,
}

/// A stored file as listed by [`Files::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// The time at which it was stored.
    pub modified: SystemTime,
}

/// Why an operation on the store failed. The text of an error includes that of its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder of the store cannot be used.
    #[error("cannot use the folder {}: {source}", path.display())]
    UnusableFolder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// An I/O operation failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The folder failed.
    #[error("{0}")]
    Store(#[from] object_store::Error),
    /// The bucket failed, or answered with something unexpected.
    #[error("{0}")]
    Bucket(#[from] BucketError),
    /// A key is not allowed.
    #[error("{0}")]
    InvalidKey(#[from] object_store::path::Error),
    /// A key that must be new exists.
    #[error("the key {0} already exists")]
    AlreadyExists(String),
    /// A file did not have the same size while it was copied.
    #[error("the size of {0} changed while it was copied")]
    ChangedMeanwhile(String),
    /// Work on another thread panicked or was cancelled.
    #[error("{0}")]
    Task(#[from] JoinError),
}

/// Why a write failed. Nothing of it is stored.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The content exceeds the allowed size.
    #[error("the content is too large")]
    TooLarge,
    /// The source of the content failed.
    #[error("{0}")]
    Source(E),
    /// The store failed.
    #[error("{0}")]
    Failed(#[source] Error),
}

impl Files {
    /// Opens the store in a folder, which is created if it does not exist.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self(Store::Folder(Folder::open(path)?)))
    }

    /// Returns the store in a bucket.
    pub fn in_bucket(bucket: Bucket) -> Self {
        Self(Store::Bucket(bucket))
    }

    /// Writes a stream of at most `max_size` bytes; returns its size once it is durable.
    pub async fn write<E>(
        &self,
        key: &str,
        max_size: u64,
        content: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<u64, WriteError<E>> {
        match &self.0 {
            Store::Folder(folder) => folder.write(key, max_size, content).await,
            Store::Bucket(bucket) => bucket.write(key, max_size, content).await,
        }
    }

    /// Reads a key or a range of it; `None` if the key does not exist.
    pub async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Content>, Error> {
        match &self.0 {
            Store::Folder(folder) => folder.read(key, range).await,
            Store::Bucket(bucket) => bucket.read(key, range).await,
        }
    }

    /// Removes keys and what crashes have left of writing them; keys that do not exist are ignored.
    ///
    /// The folders stay, because another write may be about to use them; see [`Self::remove_folder`].
    pub async fn remove(&self, keys: &[String]) -> Result<(), Error> {
        match &self.0 {
            Store::Folder(folder) => folder.remove(keys).await,
            Store::Bucket(bucket) => bucket.remove(keys).await,
        }
    }

    /// Removes an empty folder of keys. No write to it may be in progress.
    pub async fn remove_folder(&self, folder: &str) -> Result<(), Error> {
        match &self.0 {
            Store::Folder(store) => store.remove_folder(folder).await,
            // A bucket has no folders.
            Store::Bucket(_) => Ok(()),
        }
    }

    /// Stores a local file under a new key; it is durable on return. Blocking.
    ///
    /// The local file stays, but it becomes read-only and must not be modified any more, because it may be linked to
    /// the stored one. In a folder an existing key is refused with [`Error::AlreadyExists`], but this is no lock: two
    /// concurrent calls with the same key may both succeed. In a bucket it is replaced.
    pub fn store_file(&self, key: &str, file: &Path) -> Result<(), Error> {
        self.store_files(&[(key, file)])
    }

    /// Stores local files like [`Self::store_file`]: in a folder with fewer syncs if their keys share a folder, in a
    /// bucket all at once. Blocking.
    ///
    /// If one fails, the others are removed again.
    pub fn store_files(&self, files: &[(impl AsRef<str>, impl AsRef<Path>)]) -> Result<(), Error> {
        match &self.0 {
            Store::Folder(folder) => folder.store_files(files),
            Store::Bucket(bucket) => bucket.store_files(files),
        }
    }

    /// Makes a stored file available as the local file `to`, which must not be modified; returns `false` if the key
    /// does not exist. Blocking.
    ///
    /// If `to` exists, it is assumed to have the content of the key. A power cut can remove a new file, but not leave
    /// an incomplete one.
    pub fn fetch_file(&self, key: &str, to: &Path) -> Result<bool, Error> {
        match &self.0 {
            Store::Folder(folder) => folder.fetch_file(key, to),
            Store::Bucket(bucket) => bucket.fetch_file(key, to),
        }
    }

    /// Calls `each` for every key in a folder and below it, in no particular order, until it returns an error. An empty
    /// `folder` lists the whole store. Blocking.
    ///
    /// Keys that are stored or removed meanwhile may be missing. Unfinished writes are not listed.
    pub fn list(&self, folder: &str, each: &mut dyn FnMut(FileEntry) -> Result<(), Error>) -> Result<(), Error> {
        match &self.0 {
            Store::Folder(store) => store.list(folder, each),
            Store::Bucket(bucket) => bucket.list(folder, each),
        }
    }

    /// Returns the size of a key; `None` if it does not exist. Blocking.
    pub fn size(&self, key: &str) -> Result<Option<u64>, Error> {
        match &self.0 {
            Store::Folder(folder) => folder.size(key),
            Store::Bucket(bucket) => bucket.size(key),
        }
    }

    /// Removes keys like [`Self::remove`]. Blocking.
    pub fn remove_files(&self, keys: &[String]) -> Result<(), Error> {
        match &self.0 {
            Store::Folder(folder) => folder.remove_files(keys),
            Store::Bucket(bucket) => bucket.remove_files(keys),
        }
    }

    /// Returns the folder of the store; `None` if it is in a bucket.
    pub fn folder(&self) -> Option<&Path> {
        match &self.0 {
            Store::Folder(folder) => Some(folder.path()),
            Store::Bucket(_) => None,
        }
    }

    /// Returns the bucket of the store; `None` if it is in a folder.
    pub fn bucket(&self) -> Option<&Bucket> {
        match &self.0 {
            Store::Folder(_) => None,
            Store::Bucket(bucket) => Some(bucket),
        }
    }
}

/// Converts a key to a location in the store. Keys come from the server, so one that needs escaping is a bug.
fn location(key: &str) -> Result<Location, Error> {
    Ok(Location::parse(key)?)
}

impl Error {
    fn unusable_folder(path: &Path, error: impl StdError + Send + Sync + 'static) -> Self {
        Self::UnusableFolder { path: path.to_owned(), source: Box::new(error) }
    }

    /// Returns whether the disk is full.
    pub fn is_full(&self) -> bool {
        let mut causes = std::iter::successors(self.source(), |error| (*error).source());
        causes.any(|cause| cause.downcast_ref().is_some_and(disk_space::is_full))
    }

    /// Returns whether a file does not have the content that was stored.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Bucket(BucketError::Damaged { .. }))
    }

    /// Returns whether the store cannot be reached or refuses to work for now, so that the request may be repeated.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Bucket(error) if error.is_unavailable())
    }
}
