//! Local copies of objects, such as packs. A copy is linked where it is needed, so that several repositories share it. All of
//! them may be deleted at any time.

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::SystemTime,
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use super::{Bucket, HashingWriter};
use crate::{Error, folder::optional, private_folder};

/// The number of objects that one call fetches at the same time.
const MAX_CONCURRENT_FETCHES: usize = 4;

/// The local copies of a node.
pub(super) struct Cache {
    folder: PathBuf,
    /// Held while an object is fetched, by key, so that it is fetched once.
    fetching: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// A local copy.
struct Copy {
    path: PathBuf,
    size: u64,
    /// Whether it is linked somewhere else, so that removing it here would not free its space.
    is_linked: bool,
    fetched_at: SystemTime,
}

impl Cache {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        private_folder::create(folder)?;
        Ok(Self { folder: folder.to_owned(), fetching: Mutex::default() })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    fn lock_of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        fetching.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = fetching.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        fetching.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// Returns all copies, those of interrupted fetches included.
    fn copies(&self) -> io::Result<Vec<Copy>> {
        let (mut copies, mut folders) = (Vec::new(), vec![self.folder.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in optional(fs::read_dir(folder))?.into_iter().flatten() {
                let path = entry?.path();
                // `None` if it was removed meanwhile.
                let Some(metadata) = optional(path.symlink_metadata())? else { continue };
                if metadata.is_dir() {
                    folders.push(path);
                } else {
                    let (size, is_linked) = (metadata.len(), metadata.nlink() > 1);
                    copies.push(Copy { path, size, is_linked, fetched_at: metadata.modified()? });
                }
            }
        }
        Ok(copies)
    }
}

/// The names of copies that are not complete start with this.
const TEMPORARY_PREFIX: &str = "fetching-";

impl Bucket {
    /// Returns whether there is a local copy of a key.
    pub fn is_cached(&self, key: &str) -> bool {
        self.0.cache.path(key).exists()
    }

    /// Makes local copies of keys; each is fetched once, however many callers want it. Keys that do not exist are ignored.
    pub async fn fetch_to_cache(&self, keys: Vec<String>) -> Result<(), Error> {
        let this = self.clone();
        self.run(async move {
            let fetches = stream::iter(keys).map(|key| {
                let this = this.clone();
                async move { this.fetch_one(&key).await }
            });
            fetches.buffer_unordered(MAX_CONCURRENT_FETCHES).try_collect::<Vec<bool>>().await.map(drop)
        })
        .await
    }

    /// See [`crate::Files::fetch_file`].
    pub(crate) fn fetch_file(&self, key: &str, to: &Path) -> Result<bool, Error> {
        if to.try_exists()? {
            return Ok(true);
        }
        // A copy may be removed before it is linked, if the cache is full.
        for _ in 0..3 {
            match fs::hard_link(self.0.cache.path(key), to) {
                Ok(()) => return Ok(true),
                // A concurrent call was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            let (this, key) = (self.clone(), key.to_owned());
            if !self.wait(async move { this.fetch_one(&key).await })? {
                return Ok(false);
            }
        }
        Err(io::Error::other(format!("the local copy of {key} was removed")).into())
    }

    /// Makes a local copy of a key, unless there is one; returns `false` if the key does not exist.
    async fn fetch_one(&self, key: &str) -> Result<bool, Error> {
        let lock = self.0.cache.lock_of(key);
        let _fetching = lock.lock().await;
        let (location, path) = (self.location(key)?, self.0.cache.path(key));
        if path.try_exists()? {
            return Ok(true);
        }
        let folder = path.parent().unwrap_or(&path).to_owned();
        let file = spawn_blocking(move || {
            private_folder::create(&folder)?;
            NamedTempFile::with_prefix_in(TEMPORARY_PREFIX, folder)
        });
        let file = file.await??;
        if !self.download(&location, key, HashingWriter::new(file.reopen()?)).await? {
            return Ok(false);
        }
        let persist = spawn_blocking(move || {
            file.as_file().set_permissions(Permissions::from_mode(0o444))?;
            // Synced before it gets its name, so that a power cut leaves no incomplete file.
            file.as_file().sync_all()?;
            file.persist(path).map(drop).map_err(|error| error.error)
        });
        persist.await??;
        Ok(true)
    }

    /// Removes what interrupted fetches have left. No other process may be using the cache. Blocking.
    pub fn remove_unfinished_fetches(&self) -> Result<(), Error> {
        for copy in self.0.cache.copies()? {
            if copy.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY_PREFIX)) {
                optional(fs::remove_file(copy.path))?;
            }
        }
        Ok(())
    }

    /// Removes local copies that are linked nowhere, oldest first, until all of them have at most `max_bytes`; returns how
    /// many bytes are left. Blocking.
    pub fn shrink_cache(&self, max_bytes: u64) -> Result<u64, Error> {
        let mut copies = self.0.cache.copies()?;
        let mut bytes: u64 = copies.iter().map(|copy| copy.size).sum();
        copies.retain(|copy| !copy.is_linked);
        copies.sort_by_key(|copy| copy.fetched_at);
        for copy in copies {
            if bytes <= max_bytes {
                break;
            }
            optional(fs::remove_file(&copy.path))?;
            bytes -= copy.size;
        }
        Ok(bytes)
    }
}
