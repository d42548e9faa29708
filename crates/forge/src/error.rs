//! Errors of use cases, independent of any protocol.

use std::error::Error as StdError;

use model::Violations;

use crate::pushes::RefRejection;

/// The result of a use case.
pub type Result<T> = std::result::Result<T, Error>;

/// The cause of an error.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// Why a use case failed. The text of an error includes that of its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller is not signed in.
    #[error("not signed in")]
    Unauthenticated,
    /// The actor lacks the permission; with a reason to show, if there is one.
    #[error("{}", .0.as_deref().unwrap_or("not allowed"))]
    Forbidden(Option<String>),
    /// The object does not exist, or the actor may not see it; with its noun, such as `Project`, if the reply names it.
    #[error("{}", .0.as_ref().map_or_else(|| "not found".to_owned(), |what| format!("{what} not found")))]
    NotFound(Option<String>),
    /// The object does not exist. Holds the complete message.
    #[error("{0}")]
    NotFoundMessage(String),
    /// The object must not be changed or removed by anyone. Holds the message.
    #[error("{0}")]
    Protected(String),
    /// A row inside an existing object does not exist.
    #[error("not found")]
    NoSuchRow,
    /// The request would not change anything.
    #[error("nothing to change")]
    Unchanged,
    /// The parameters are malformed; one message for each fault.
    #[error("{}", .0.join(", "))]
    Malformed(Vec<String>),
    /// The record violates validation rules.
    #[error("{0}")]
    Invalid(Violations),
    /// The record violates validation rules because of existing records.
    #[error("{0}")]
    Conflicting(Violations),
    /// The token was revoked before.
    #[error("token already revoked")]
    AlreadyRevoked,
    /// A unique value is already taken. Holds the message.
    #[error("{0}")]
    Taken(String),
    /// The current state does not allow it. Holds the message.
    #[error("{0}")]
    Refused(String),
    /// A push of one ref was rejected.
    #[error("{0}")]
    RefRejected(#[from] RefRejection),
    /// A value has no meaning here. Holds the message.
    #[error("{0}")]
    Unprocessable(String),
    /// A limit is reached. Holds the message.
    #[error("{0}")]
    LimitReached(String),
    /// Too many requests are queued.
    #[error("too many requests are queued")]
    Busy,
    /// The database or the store cannot be reached, or the outcome of a write is unknown; the cause is for the log only. The client may
    /// try again.
    #[error("unavailable: {0}")]
    Unavailable(#[source] Cause),
    /// A disk is full; the cause is for the log only.
    #[error("disk full: {0}")]
    DiskFull(#[source] Cause),
    /// The database failed.
    #[error("database: {0}")]
    Store(#[source] store::Error),
    /// A repository could not be read or written.
    #[error("git: {0}")]
    Git(#[source] git::Error),
    /// A stored file could not be read or written.
    #[error("files: {0}")]
    Files(#[source] files::Error),
    /// A bug or a fault of the server; the cause is for the log only.
    #[error("{0}")]
    Internal(#[source] Cause),
}

/// The message to clients when a disk is full.
pub const DISK_FULL_MESSAGE: &str = "The disk of the server is full; its operator has to free space.";

/// The time after which a client may try again while something is unavailable.
pub const UNAVAILABLE_RETRY_SECONDS: u32 = 5;

impl Error {
    /// Creates a [`Self::NotFound`] for a noun.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound(Some(what.into()))
    }

    /// Creates a [`Self::Forbidden`] with a reason.
    pub fn forbidden(reason: &str) -> Self {
        Self::Forbidden(Some(reason.to_owned()))
    }

    /// Creates a [`Self::Internal`] that says what failed, and why.
    pub fn internal(what: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Internal(Box::new(Failure { what: what.into(), cause: cause.into() }))
    }
}

/// What failed, and why.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
struct Failure {
    what: String,
    #[source]
    cause: Cause,
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        if error.is_full() { Self::DiskFull(Box::new(Self::Store(error))) } else { Self::Store(error) }
    }
}

impl From<git::Error> for Error {
    fn from(error: git::Error) -> Self {
        match error {
            // The text is meant for the client.
            git::Error::TooLarge(text) => Self::Refused(text),
            git::Error::Busy | git::Error::Indexing => Self::Busy,
            error if error.is_full() => Self::DiskFull(Box::new(Self::Git(error))),
            error => Self::Git(error),
        }
    }
}

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        if error.is_full() {
            Self::DiskFull(Box::new(Self::Files(error)))
        } else if error.is_unavailable() {
            Self::Unavailable(Box::new(Self::Files(error)))
        } else {
            Self::Files(error)
        }
    }
}

impl From<Violations> for Error {
    fn from(violations: Violations) -> Self {
        Self::Invalid(violations)
    }
}
