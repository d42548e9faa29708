//! What can go wrong, without a word about how it is told.

use std::fmt;

use model::Violations;

/// The answer of a use case.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a use case did not happen.
#[derive(Debug)]
pub enum Error {
    /// Nobody is signed in, and somebody has to be.
    Unauthenticated,
    /// The actor may see it but not do this; the reason if it is worth telling.
    Forbidden(Option<String>),
    /// There is no such thing, or the actor may not know of it. Holds what was looked for.
    NotFound(String),
    /// There is no such thing; tells so in its own words.
    Absent(String),
    /// It must stay as it is, whoever wants it otherwise; tells why.
    Kept(String),
    /// There is no such row in a thing that is there.
    NoSuchRow,
    /// Everything is as asked for already.
    Unchanged,
    /// The request itself is not well formed; one text for each fault.
    Malformed(Vec<String>),
    /// The record would break its own rules.
    Invalid(Violations),
    /// The record would break its own rules, because of what is there already.
    Conflicting(Violations),
    /// Somebody else has it already.
    Taken(String),
    /// It cannot be done as things are; tells why.
    Refused(String),
    /// A value has no meaning here; tells which.
    Unprocessable(String),
    /// The caller has as many as they may have; tells how many that is.
    LimitReached(String),
    /// Too many requests are waiting.
    Busy,
    /// There is no room left to write to; tells the log where.
    NoRoom(String),
    /// The database did not play along.
    Store(store::Error),
    /// A fault of ours; told to the log, not to the caller.
    Internal(String),
}

/// What people are told when there is no room left.
pub const NO_ROOM: &str = "The disk of the server is full; whoever operates it has to make room.";

impl Error {
    /// There is no such thing.
    pub fn not_found(what: &str) -> Self {
        Self::NotFound(what.to_owned())
    }

    /// Not allowed, for a reason worth telling.
    pub fn forbidden(reason: &str) -> Self {
        Self::Forbidden(Some(reason.to_owned()))
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        if error.is_full() { Self::NoRoom(format!("database: {error}")) } else { Self::Store(error) }
    }
}

impl From<git::Error> for Error {
    fn from(error: git::Error) -> Self {
        match error {
            // Whoever pushed it, or asks for it, can be told.
            git::Error::TooLarge(text) => return Self::Refused(text),
            git::Error::Busy | git::Error::Indexing => return Self::Busy,
            _ => {}
        }
        let text = format!("git: {error}");
        if error.is_full() { Self::NoRoom(text) } else { Self::Internal(text) }
    }
}

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        let text = format!("files: {error}");
        if error.is_full() { Self::NoRoom(text) } else { Self::Internal(text) }
    }
}

impl From<Violations> for Error {
    fn from(violations: Violations) -> Self {
        Self::Invalid(violations)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthenticated => f.write_str("nobody is signed in"),
            Self::Forbidden(None) => f.write_str("not allowed"),
            Self::Forbidden(Some(reason)) => f.write_str(reason),
            Self::NotFound(what) => write!(f, "{what} not found"),
            Self::NoSuchRow => f.write_str("not found"),
            Self::Unchanged => f.write_str("nothing to change"),
            Self::Malformed(faults) => f.write_str(&faults.join(", ")),
            Self::Invalid(violations) | Self::Conflicting(violations) => violations.fmt(f),
            Self::Busy => f.write_str("too many requests are waiting"),
            Self::Store(error) => write!(f, "database: {error}"),
            Self::NoRoom(text) => write!(f, "no room left: {text}"),
            Self::Taken(text)
            | Self::Absent(text)
            | Self::Kept(text)
            | Self::Refused(text)
            | Self::Unprocessable(text)
            | Self::LimitReached(text)
            | Self::Internal(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
