//! What happens when there is no room left: what is large is refused early, so that the database can go on, and those who
//! watch the service hear of it.

use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

pub use files::disk_space::{Room, Space, State};

use crate::{Error, Forge, Result};

/// For how long the service counts as degraded after its database had no room on a disk that we cannot look at.
const RECENT: Duration = Duration::from_secs(60);

/// How the service is doing for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is enough.
    Enough,
    /// What is large is refused.
    Low {
        /// How much is free, in bytes.
        free: u64,
        /// How much shall be.
        least: u64,
    },
    /// Nothing can be written.
    Full,
    /// The database server has no room.
    DatabaseFull,
}

impl Forge {
    /// How the service is doing for room. It may try to write something, so not for those who must not wait.
    pub fn standing(&self) -> Standing {
        let shared = self.shared();
        let noted = *shared.database_full.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.room.state() {
            State::Full => Standing::Full,
            _ if noted.is_some_and(|at| at.elapsed() < RECENT) => Standing::DatabaseFull,
            State::Low { free } => Standing::Low { free, least: shared.room.least() },
            State::Enough => Standing::Enough,
        }
    }

    /// How much room there is, if that can be told.
    pub fn space(&self) -> Option<Space> {
        self.shared().room.space().ok()
    }

    /// Notes that something could not be written for lack of room.
    pub fn note_no_room(&self) {
        self.shared().room.note_full();
    }

    /// Refuses what may be large while less is free than shall be.
    pub(crate) fn require_room(&self) -> Result<()> {
        let room = &self.shared().room;
        match room.shortage() {
            None => Ok(()),
            Some(free) => {
                let least = room.least();
                Err(Error::NoRoom(format!("{free} bytes are free, and {least} shall stay free (min-free-disk)")))
            }
        }
    }

    /// What a failure to keep a file comes to; if there was no room, that is noted.
    pub(crate) fn noted(&self, error: files::Error) -> Error {
        let error = Error::from(error);
        if matches!(error, Error::NoRoom(_)) {
            self.note_no_room();
        }
        error
    }

    /// Hands an answer on, and notes if there was no room.
    pub(crate) fn heed<T>(&self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::NoRoom(_))) {
            self.note_no_room();
        }
        result
    }
}

/// A moment of the database's trouble is over once a write has gone well.
pub(crate) fn forget(noted: &std::sync::Mutex<Option<Instant>>) {
    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.is_some() {
        *noted = None;
    }
}
