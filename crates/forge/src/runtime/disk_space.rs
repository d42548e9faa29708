//! Low disk space: large uploads are refused early with 507 (Insufficient Storage), so that the database can still write, and
//! monitoring reports it.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

pub use files::disk_space::{DiskSpace, DiskUsage, FreeSpace};

use crate::{Error, Forge, Result};

/// How long the server reports a full disk of the database server, which cannot be probed, after a failed write.
const DATABASE_FULL_PERIOD: Duration = Duration::from_secs(60);

/// Whether the disks have enough space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskStatus {
    /// There is enough space.
    Enough,
    /// Large uploads are refused.
    Low {
        /// The number of free bytes.
        free: u64,
        /// The number of bytes that should be free.
        min_free: u64,
    },
    /// Nothing can be written.
    Full,
    /// The disk of the database server is full.
    DatabaseFull,
}

impl Forge {
    /// Fails if the files are in a bucket that does not answer.
    pub async fn ping_store(&self) -> Result<()> {
        match self.shared().files.bucket() {
            Some(bucket) => Ok(bucket.ping().await?),
            None => Ok(()),
        }
    }

    /// Returns whether the files are in a bucket that other nodes may use as well.
    pub fn has_shared_files(&self) -> bool {
        self.shared().files.bucket().is_some()
    }

    /// Returns the state of the disks. It may block, because it may probe the disk with a write.
    pub fn disk_status(&self) -> DiskStatus {
        let shared = self.shared();
        let database_full_at = *shared.database_full_at.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.disk_space.free_space() {
            FreeSpace::Full => DiskStatus::Full,
            _ if database_full_at.is_some_and(|at| at.elapsed() < DATABASE_FULL_PERIOD) => DiskStatus::DatabaseFull,
            FreeSpace::Low { free } => DiskStatus::Low { free, min_free: shared.disk_space.min_free() },
            FreeSpace::Enough => DiskStatus::Enough,
        }
    }

    /// Returns the usage of the disk, if it is known.
    pub fn disk_usage(&self) -> Option<DiskUsage> {
        self.shared().disk_space.usage().ok()
    }

    /// Records that a write failed because the disk is full.
    pub fn record_disk_full(&self) {
        self.shared().disk_space.mark_full();
    }

    /// Refuses a potentially large write while too little space is free.
    pub(crate) fn require_free_space(&self) -> Result<()> {
        let disk_space = &self.shared().disk_space;
        match disk_space.shortage() {
            None => Ok(()),
            Some(free) => {
                let min_free = disk_space.min_free();
                let shortage = format!("{free} bytes are free, less than the {min_free} of min-free-disk");
                Err(Error::DiskFull(shortage.into()))
            }
        }
    }

    /// Converts the error of a file operation and records a full disk.
    pub(crate) fn file_error(&self, error: files::Error) -> Error {
        let error = Error::from(error);
        if matches!(error, Error::DiskFull(_)) {
            self.record_disk_full();
        }
        error
    }

    /// Returns a result unchanged and records a full disk.
    pub(crate) fn record_if_disk_full<T>(&self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::DiskFull(_))) {
            self.record_disk_full();
        }
        result
    }
}

/// Clears the record of a full database server after a successful commit.
pub(crate) fn clear_database_full(database_full_at: &Mutex<Option<Instant>>) {
    let mut database_full_at = database_full_at.lock().unwrap_or_else(PoisonError::into_inner);
    if database_full_at.is_some() {
        *database_full_at = None;
    }
}
