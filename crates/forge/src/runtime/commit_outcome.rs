//! What becomes of a write, above all where there is no room for it: a database does not always say so.

use std::{sync::PoisonError, time::Instant};

use store::OpenError;

use crate::{Error, bridge::Shared};

/// What became of the transaction of a write.
pub(crate) enum Fate {
    /// It is durable.
    Stands,
    /// Nothing of it counts.
    Lost,
    /// Nothing of it counts, because there was no room for it; tells the log more.
    NoRoom(String),
}

impl Fate {
    pub(crate) fn stands(&self) -> bool {
        matches!(self, Self::Stands)
    }
}

impl Shared {
    /// What a failure of the database is about: not every failure for lack of room is told as such.
    pub(crate) fn judge(&self, error: Error) -> Error {
        let error = match error {
            Error::Store(error) if error.may_be_full() && self.room.is_full() => Error::from(error.into_full()),
            other => other,
        };
        if matches!(error, Error::NoRoom(_)) {
            self.note_full_database();
        }
        error
    }

    pub(crate) fn fate_of(&self, error: &store::Error) -> Fate {
        let no_room = error.is_full() || error.may_be_full() && self.room.is_full();
        if no_room {
            self.note_full_database();
        }
        if no_room { Fate::NoRoom(format!("database: {error}")) } else { Fate::Lost }
    }

    /// As [`Self::fate_of`], of a connection that could not be made.
    pub(crate) fn fate_of_opening(&self, error: &OpenError) -> Fate {
        if self.database.is_embedded() && self.room.is_full() {
            self.note_full_database();
            return Fate::NoRoom(error.to_string());
        }
        Fate::Lost
    }

    fn note_full_database(&self) {
        if self.database.is_embedded() {
            self.room.note_full();
        } else {
            *self.database_full.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }
}
