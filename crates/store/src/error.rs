//! What a database can answer instead of rows.

use std::fmt;

use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error as DieselError};

/// The answer of a database call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a database call did not succeed, as far as the caller can do something about it.
#[derive(Debug)]
pub enum Error {
    /// Somebody else was faster: run the whole transaction again.
    Retry(String),
    /// The connection is gone: make a new one.
    Disconnected(String),
    /// There is no room left where the database lies.
    Full(String),
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

    /// Whether there is no room left where the database lies.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// The same trouble, of which it is known by now that it comes from lack of room.
    #[must_use]
    pub fn into_full(self) -> Self {
        Self::Full(self.to_string())
    }

    /// Whether it may be for lack of room: SQLite does not tell why a file beside the database could not be made or grown.
    pub fn may_be_full(&self) -> bool {
        let unclear = ["disk I/O error", "unable to open database file"];
        self.is_full() || matches!(self, Self::Failed(text) if unclear.iter().any(|words| text.contains(words)))
    }
}

/// What the engines say when there is no room: SQLite of itself, PostgreSQL (53100) with the words of its system. The number
/// does not come through to us.
const FULL: [&str; 4] =
    ["database or disk is full", "No space left on device", "Disk quota exceeded", "Check free disk space"];

fn says_full(info: &(dyn DatabaseErrorInformation + Send + Sync)) -> bool {
    let says = |text: &str| FULL.iter().any(|words| text.contains(words));
    says(info.message()) || info.hint().is_some_and(says)
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
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, info) if says_full(&*info) => Self::Full(text),
            _ => Self::Failed(text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(text) | Self::Disconnected(text) | Self::Full(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Error {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(text.to_owned())).into()
    }

    #[test]
    fn lack_of_room_is_told_from_other_trouble() {
        assert!(said("database or disk is full").is_full());
        assert!(said("could not extend file \"base/5/16\": No space left on device").is_full());
        let unclear = said("disk I/O error");
        assert!(!unclear.is_full() && unclear.may_be_full());
        let other = said("no such table: x");
        assert!(!other.is_full() && !other.may_be_full());
    }
}
