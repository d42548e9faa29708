//! Free disk space, and a probe that checks whether the disk still accepts writes.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The number of bytes that a probe writes.
const PROBE_SIZE: usize = 64 * 1024;
/// How long the result of a probe is reused.
const PROBE_TTL: Duration = Duration::from_secs(1);

/// The disk space of the file system that holds a folder; cheap to clone.
#[derive(Clone)]
pub struct DiskSpace(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// The number of bytes to keep free for writes that must not fail.
    min_free: u64,
    /// Set when a write failed for lack of space; cleared by a successful probe.
    was_full: AtomicBool,
    /// The time and the result of the last probe.
    last_probe: Mutex<Option<(Instant, bool)>>,
    next_probe: AtomicU64,
}

/// The total and free capacity of a file system, in bytes and in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes that this process can still write.
    pub free_bytes: u64,
    /// Total size in bytes.
    pub bytes: u64,
    /// Files that can still be created.
    pub free_files: u64,
    /// The maximum number of files; zero if the file system does not report it.
    pub files: u64,
}

/// Whether enough disk space is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace {
    /// At least the minimum is free.
    Enough,
    /// Less than the minimum is free; large writes are refused.
    Low {
        /// Free bytes.
        free: u64,
    },
    /// Nothing can be written.
    Full,
}

impl DiskSpace {
    /// Watches the file system of an existing folder. `min_free` bytes are to stay free; zero disables the minimum.
    pub fn new(folder: &Path, min_free: u64) -> Self {
        Self(Arc::new(Inner {
            folder: folder.to_owned(),
            min_free,
            was_full: AtomicBool::new(false),
            last_probe: Mutex::new(None),
            next_probe: AtomicU64::new(0),
        }))
    }

    /// Returns the number of bytes to keep free.
    pub fn min_free(&self) -> u64 {
        self.0.min_free
    }

    /// Returns the capacity of the file system.
    pub fn usage(&self) -> io::Result<DiskUsage> {
        let stats = rustix::fs::statvfs(&self.0.folder)?;
        Ok(DiskUsage {
            free_bytes: stats.f_bavail.saturating_mul(stats.f_frsize),
            bytes: stats.f_blocks.saturating_mul(stats.f_frsize),
            free_files: stats.f_favail,
            files: stats.f_files,
        })
    }

    /// Returns the number of free bytes if it is below the minimum. If it cannot be determined, there is enough.
    pub fn shortage(&self) -> Option<u64> {
        if self.0.min_free == 0 {
            return None;
        }
        self.usage().ok().map(|usage| usage.free_bytes).filter(|free| *free < self.0.min_free)
    }

    /// Records that a write failed for lack of space.
    pub fn mark_full(&self) {
        self.0.was_full.store(true, Ordering::Relaxed);
    }

    /// Returns whether enough space is free. After a failed write it probes the disk, because an exhausted quota does
    /// not show in the capacity.
    pub fn free_space(&self) -> FreeSpace {
        if self.0.was_full.load(Ordering::Relaxed) {
            if self.is_full() {
                return FreeSpace::Full;
            }
            self.0.was_full.store(false, Ordering::Relaxed);
        }
        self.shortage().map_or(FreeSpace::Enough, |free| FreeSpace::Low { free })
    }

    /// Returns whether nothing can be written, by a probe that runs at most once a second.
    pub fn is_full(&self) -> bool {
        let mut last_probe = self.0.last_probe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, full)) = *last_probe
            && at.elapsed() < PROBE_TTL
        {
            return full;
        }
        let full = self.probe().is_err_and(|error| is_full(&error));
        *last_probe = Some((Instant::now(), full));
        full
    }

    fn probe(&self) -> io::Result<()> {
        let next_probe = self.0.next_probe.fetch_add(1, Ordering::Relaxed);
        let path = self.0.folder.join(format!("probe-{}-{next_probe}.new", std::process::id()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|mut file| {
            file.write_all(&vec![0; PROBE_SIZE])?;
            // Some file systems report a full disk only now.
            file.sync_data()
        });
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => written.and(Err(error)),
            _ => written,
        }
    }
}

/// Returns whether an operation failed because the disk or a quota is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_low_below_the_minimum() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(DiskSpace::new(folder.path(), 0).free_space(), FreeSpace::Enough);
        let demanding = DiskSpace::new(folder.path(), u64::MAX);
        let free = demanding.shortage().expect("no disk is that large");
        assert!(matches!(demanding.free_space(), FreeSpace::Low { .. }), "{free}");
        let usage = demanding.usage().expect("asked");
        assert!(usage.bytes >= usage.free_bytes && usage.bytes > 0, "{usage:?}");
    }

    #[test]
    fn a_successful_probe_clears_the_full_state_and_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk_space = DiskSpace::new(folder.path(), 0);
        disk_space.mark_full();
        assert_eq!(disk_space.free_space(), FreeSpace::Enough);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
