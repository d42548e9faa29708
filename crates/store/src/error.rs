//! Errors of database calls.

use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error as DieselError};

/// The result of a database call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a database call failed, by what the caller can do about it. The text is that of the cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A concurrent transaction interfered: run the whole transaction again.
    #[error("{0}")]
    Retry(#[source] DieselError),
    /// The connection was lost: open a new one.
    #[error("{0}")]
    Disconnected(#[source] DieselError),
    /// The disk of the database is full.
    #[error("{0}")]
    DiskFull(#[source] DieselError),
    /// Anything else.
    #[error("{0}")]
    Failed(#[source] DieselError),
}

impl Error {
    /// Returns whether the transaction should be run again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Retry(_))
    }

    /// Returns whether the connection was lost.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }

    /// Returns whether the disk of the database is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::DiskFull(_))
    }

    /// Converts an error whose cause turned out to be a full disk.
    #[must_use]
    pub fn into_full(self) -> Self {
        let (Self::Retry(cause) | Self::Disconnected(cause) | Self::DiskFull(cause) | Self::Failed(cause)) = self;
        Self::DiskFull(cause)
    }

    /// Returns whether a full disk may be the cause: SQLite does not report why it could not create or extend a file
    /// beside the database. Diesel passes the messages of SQLite on, but not its result codes.
    pub fn may_be_full(&self) -> bool {
        let ambiguous = ["disk I/O error", "unable to open database file"];
        let is_ambiguous = |text: &str| ambiguous.iter().any(|phrase| text.contains(phrase));
        self.is_full() || matches!(self, Self::Failed(cause) if is_ambiguous(&cause.to_string()))
    }
}

/// Messages of a full disk: of SQLite itself, and of the operating system below PostgreSQL. They are compared because
/// [`DatabaseErrorInformation`] has neither SQLSTATE codes, such as 53100 for a full disk, nor result codes of SQLite.
const DISK_FULL_MESSAGES: [&str; 4] =
    ["database or disk is full", "No space left on device", "Disk quota exceeded", "Check free disk space"];

/// Messages of a PostgreSQL server that starts, stops or is a standby.
const DISCONNECTION_MESSAGES: [&str; 4] =
    ["terminating connection", "the database system is", "during recovery", "recovery is in progress"];

fn reports_full_disk(info: &(dyn DatabaseErrorInformation + Send + Sync)) -> bool {
    let matches = |text: &str| DISK_FULL_MESSAGES.iter().any(|message| text.contains(message));
    matches(info.message()) || info.hint().is_some_and(matches)
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        match &error {
            // Constraints are checked before each write, so a violation is a lost race: the next run sees the winner.
            DieselError::DatabaseError(
                DatabaseErrorKind::UniqueViolation
                | DatabaseErrorKind::ForeignKeyViolation
                | DatabaseErrorKind::SerializationFailure,
                _,
            ) => Self::Retry(error),
            DieselError::DatabaseError(
                DatabaseErrorKind::UnableToSendCommand
                | DatabaseErrorKind::ClosedConnection
                // The server has become a standby: another one is to be found.
                | DatabaseErrorKind::ReadOnlyTransaction,
                _,
            )
            | DieselError::BrokenTransactionManager => Self::Disconnected(error),
            // Diesel has no kind for these; their messages are those of PostgreSQL and SQLite.
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, info) => {
                let message = info.message();
                if message.contains("deadlock detected") {
                    Self::Retry(error)
                } else if DISCONNECTION_MESSAGES.iter().any(|text| message.contains(text)) {
                    Self::Disconnected(error)
                } else if reports_full_disk(&**info) {
                    Self::DiskFull(error)
                } else {
                    Self::Failed(error)
                }
            }
            _ => Self::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database_error(text: &str) -> Error {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(text.to_owned())).into()
    }

    #[test]
    fn a_server_that_stops_or_is_a_standby_is_left() {
        for message in [
            "terminating connection due to administrator command",
            "the database system is shutting down",
            "cannot assign TransactionIds during recovery",
            "recovery is in progress",
        ] {
            assert!(database_error(message).is_disconnected(), "{message}");
        }
        assert!(!database_error("division by zero").is_disconnected());
    }

    #[test]
    fn a_full_disk_is_distinguished_from_other_errors() {
        assert!(database_error("database or disk is full").is_full());
        assert!(database_error("could not extend file \"base/5/16\": No space left on device").is_full());
        let ambiguous = database_error("disk I/O error");
        assert!(!ambiguous.is_full() && ambiguous.may_be_full());
        let other = database_error("no such table: x");
        assert!(!other.is_full() && !other.may_be_full());
    }
}
