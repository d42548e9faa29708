//! What a database can answer instead of rows.

use std::fmt;

use diesel::result::{DatabaseErrorKind, Error as DieselError};

/// The answer of a database call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a database call did not succeed, as far as the caller can do something about it.
#[derive(Debug)]
pub enum Error {
    /// Somebody else was faster: run the whole transaction again.
    Retry(String),
    /// The connection is gone: make a new one.
    Disconnected(String),
    /// Anything else.
    Failed(String),
}

impl Error {
    /// Whether running the transaction again can help.
    pub fn is_retry(&self) -> bool {
        matches!(self, Self::Retry(_))
    }

    /// Whether the connection is of no more use.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        let text = error.to_string();
        match error {
            // A rule that is checked before it is broken can only break by a race: the next run sees the winner.
            DieselError::DatabaseError(
                DatabaseErrorKind::UniqueViolation
                | DatabaseErrorKind::ForeignKeyViolation
                | DatabaseErrorKind::SerializationFailure,
                _,
            ) => Self::Retry(text),
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, info)
                if info.message().contains("deadlock detected") =>
            {
                Self::Retry(text)
            }
            DieselError::DatabaseError(
                DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection,
                _,
            )
            | DieselError::BrokenTransactionManager => Self::Disconnected(text),
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, info)
                if info.message().starts_with("terminating connection")
                    || info.message().contains("the database system is") =>
            {
                Self::Disconnected(text)
            }
            _ => Self::Failed(text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(text) | Self::Disconnected(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
