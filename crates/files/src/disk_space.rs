//! How much room there is on the disk, and whether something can still be written to it.

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

/// How much is written to find out whether something can be.
const TRIAL: usize = 64 * 1024;
/// How long the outcome of a trial counts.
const TRIAL_LASTS: Duration = Duration::from_secs(1);

/// The room around a folder; cheap to clone.
#[derive(Clone)]
pub struct Room(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// How much shall stay free for what must not fail.
    least: u64,
    /// Whether something could not be written, and no trial has gone well since.
    was_full: AtomicBool,
    /// When the last trial was made, and how it went.
    tried: Mutex<Option<(Instant, bool)>>,
    number: AtomicU64,
}

/// How much there is and how much is free; of files as of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this process may still write.
    pub free_bytes: u64,
    /// Bytes altogether.
    pub bytes: u64,
    /// Files that may still be made.
    pub free_files: u64,
    /// Files altogether; zero where the file system does not count them.
    pub files: u64,
}

/// Whether there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is.
    Enough,
    /// Less is free than shall be: what is large is refused.
    Low {
        /// How much is free, in bytes.
        free: u64,
    },
    /// Nothing can be written.
    Full,
}

impl Room {
    /// The room around a folder that is there; so many bytes of it shall stay free, none if zero.
    pub fn around(folder: &Path, least: u64) -> Self {
        Self(Arc::new(Inner {
            folder: folder.to_owned(),
            least,
            was_full: AtomicBool::new(false),
            tried: Mutex::new(None),
            number: AtomicU64::new(0),
        }))
    }

    /// How much shall stay free.
    pub fn least(&self) -> u64 {
        self.0.least
    }

    /// How much there is.
    pub fn space(&self) -> io::Result<Space> {
        let found = rustix::fs::statvfs(&self.0.folder)?;
        Ok(Space {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_files: found.f_favail,
            files: found.f_files,
        })
    }

    /// How much is free, if that is less than shall be. Where nobody can tell, there is enough.
    pub fn shortage(&self) -> Option<u64> {
        if self.0.least == 0 {
            return None;
        }
        self.space().ok().map(|space| space.free_bytes).filter(|free| *free < self.0.least)
    }

    /// Notes that something could not be written.
    pub fn note_full(&self) {
        self.0.was_full.store(true, Ordering::Relaxed);
    }

    /// Whether there is room now. If something could not be written a while ago, that is tried again: quotas show nowhere
    /// else.
    pub fn state(&self) -> State {
        if self.0.was_full.load(Ordering::Relaxed) {
            if self.is_full() {
                return State::Full;
            }
            self.0.was_full.store(false, Ordering::Relaxed);
        }
        self.shortage().map_or(State::Enough, |free| State::Low { free })
    }

    /// Whether nothing can be written, by a trial that is not made too often.
    pub fn is_full(&self) -> bool {
        let mut tried = self.0.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, full)) = *tried
            && at.elapsed() < TRIAL_LASTS
        {
            return full;
        }
        let full = self.try_to_write().is_err_and(|error| is_full(&error));
        *tried = Some((Instant::now(), full));
        full
    }

    fn try_to_write(&self) -> io::Result<()> {
        let number = self.0.number.fetch_add(1, Ordering::Relaxed);
        let path = self.0.folder.join(format!("room-{}-{number}.new", std::process::id()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|mut file| {
            file.write_all(&vec![0; TRIAL])?;
            // Some file systems find out no sooner.
            file.sync_data()
        });
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => written.and(Err(error)),
            _ => written,
        }
    }
}

/// Whether an operation failed because there is no room left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_until_less_is_free_than_shall_be() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Room::around(folder.path(), 0).state(), State::Enough);
        let demanding = Room::around(folder.path(), u64::MAX);
        let free = demanding.shortage().expect("no disk is that large");
        assert!(matches!(demanding.state(), State::Low { .. }), "{free}");
        let space = demanding.space().expect("asked");
        assert!(space.bytes >= space.free_bytes && space.bytes > 0, "{space:?}");
    }

    #[test]
    fn a_trial_that_goes_well_ends_the_alarm_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let room = Room::around(folder.path(), 0);
        room.note_full();
        assert_eq!(room.state(), State::Enough);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
