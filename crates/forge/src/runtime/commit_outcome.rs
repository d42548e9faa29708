//! The outcome of write transactions: on a full disk, which a database does not always report as such, and if the connection
//! is lost during the commit.

use std::{
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use store::{OpenError, ServerState, TransactionId, TransactionStatus};
use tracing::{error, warn};

use crate::{Error, bridge::Shared};

/// The outcome of the transaction of a write.
pub(crate) enum CommitOutcome {
    /// The transaction is durable.
    Committed,
    /// The transaction was rolled back.
    RolledBack,
    /// The transaction was rolled back because the disk is full; the text is for the log.
    DiskFull(String),
    /// The database could not be reached, and nothing was committed; the text is for the log.
    Unavailable(String),
    /// The connection was lost during the commit, and the database could not be asked for the outcome; the text is for the
    /// log.
    Unknown(String),
}

/// How long the database is asked for the outcome of a commit.
const RESOLUTION_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay between two attempts to ask.
const RESOLUTION_INTERVAL: Duration = Duration::from_millis(50);

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
        match error {
            _ if disk_full => CommitOutcome::DiskFull(format!("database: {error}")),
            _ if error.is_disconnected() => CommitOutcome::Unavailable(format!("database: {error}")),
            _ => CommitOutcome::RolledBack,
        }
    }

    /// As [`Self::outcome_of_error`], for a connection that could not be opened.
    pub(crate) fn outcome_of_open_error(&self, error: &OpenError) -> CommitOutcome {
        if self.database.is_in_data_folder() && self.disk_space.is_full() {
            self.record_full_database();
            return CommitOutcome::DiskFull(error.to_string());
        }
        if self.database.is_sqlite() {
            return CommitOutcome::RolledBack;
        }
        CommitOutcome::Unavailable(error.to_string())
    }

    /// Finds out what became of a transaction whose connection was lost during the commit: committed, rolled back or
    /// unknown.
    pub(crate) fn resolve_commit(&self, id: &TransactionId, server: &ServerState) -> CommitOutcome {
        let deadline = Instant::now() + RESOLUTION_TIMEOUT;
        let mut reason = String::new();
        while Instant::now() < deadline {
            match self.transaction_status(id, server) {
                Ok(TransactionStatus::Committed) => {
                    warn!(transaction = %id, "lost the database connection during a commit; it was committed");
                    return CommitOutcome::Committed;
                }
                Ok(TransactionStatus::Aborted) => {
                    warn!(transaction = %id, "lost the database connection during a commit; it was rolled back");
                    return CommitOutcome::RolledBack;
                }
                Ok(TransactionStatus::Unknown) => {
                    "the database server was restarted or replaced".clone_into(&mut reason);
                    break;
                }
                Ok(TransactionStatus::InProgress) => "the transaction is still in progress".clone_into(&mut reason),
                Err(error) => reason = error,
            }
            thread::sleep(RESOLUTION_INTERVAL);
        }
        error!(transaction = %id, reason, "lost the database connection during a commit; its outcome is unknown");
        CommitOutcome::Unknown(format!("the outcome of the transaction is unknown: {reason}"))
    }

    /// Asks for the status of a transaction on a new connection.
    fn transaction_status(&self, id: &TransactionId, server: &ServerState) -> Result<TransactionStatus, String> {
        let mut db = self.database.connect_writer().map_err(|error| error.to_string())?;
        if db.server_state().map_err(|error| error.to_string())?.as_ref() != Some(server) {
            return Ok(TransactionStatus::Unknown);
        }
        db.transaction_status(id).map_err(|error| error.to_string())
    }

    fn record_full_database(&self) {
        if self.database.is_in_data_folder() {
            self.disk_space.mark_full();
        } else {
            *self.database_full_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }
}
