//! The outcome of write transactions, above all on a full disk, which a database does not always report as such.

use std::{sync::PoisonError, time::Instant};

use store::OpenError;

use crate::{Error, bridge::Shared};

/// The outcome of the transaction of a write.
pub(crate) enum CommitOutcome {
    /// The transaction is durable.
    Committed,
    /// The transaction was rolled back.
    RolledBack,
    /// The transaction was rolled back because the disk is full; the text is for the log.
    DiskFull(String),
}

impl CommitOutcome {
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self, Self::Committed)
    }
}

impl Shared {
    /// Turns a database error that was caused by a full disk into [`Error::DiskFull`], and records the full disk.
    pub(crate) fn detect_full_disk(&self, error: Error) -> Error {
        let error = match error {
            Error::Store(error) if error.may_be_full() && self.disk_space.is_full() => Error::from(error.into_full()),
            other => other,
        };
        if matches!(error, Error::DiskFull(_)) {
            self.record_full_database();
        }
        error
    }

    pub(crate) fn outcome_of_error(&self, error: &store::Error) -> CommitOutcome {
        let disk_full = error.is_full() || error.may_be_full() && self.disk_space.is_full();
        if disk_full {
            self.record_full_database();
        }
        if disk_full { CommitOutcome::DiskFull(format!("database: {error}")) } else { CommitOutcome::RolledBack }
    }

    /// As [`Self::outcome_of_error`], for a connection that could not be opened.
    pub(crate) fn outcome_of_open_error(&self, error: &OpenError) -> CommitOutcome {
        if self.database.is_in_data_folder() && self.disk_space.is_full() {
            self.record_full_database();
            return CommitOutcome::DiskFull(error.to_string());
        }
        CommitOutcome::RolledBack
    }

    fn record_full_database(&self) {
        if self.database.is_in_data_folder() {
            self.disk_space.mark_full();
        } else {
            *self.database_full_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }
}
