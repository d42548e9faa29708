//! What can go wrong with a repository.

use std::{fmt, io};

/// The answer of an operation on a repository.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a repository failed.
#[derive(Debug)]
pub enum Error {
    /// The disk did not play along.
    Io(io::Error),
    /// A repository, or what was sent for one, is not as it has to be; tells what.
    Broken(String),
    /// A ref is not what it was taken for; tells which.
    Moved(String),
    /// A program of git failed; tells what it said.
    Child(String),
    /// A program of git could not be started, or was ended before it was done; tells why.
    Unfinished(String),
    /// Whether an object can be reached is still being found out.
    Indexing,
    /// An object, or what it would take to read it, is larger than allowed; names it and the limit.
    TooLarge(String),
    /// Too many others read large objects or the same repository at the same time, or the work takes too long.
    Busy,
}

impl Error {
    /// Whether there is no room left to write to.
    pub fn is_full(&self) -> bool {
        // Programs of git talk in the C locale.
        let says_so = |text: &str| text.contains("No space left on device") || text.contains("Disk quota exceeded");
        match self {
            Self::Io(error) => is_full(error),
            Self::Child(text) | Self::Unfinished(text) | Self::Broken(text) => says_so(text),
            Self::Moved(_) | Self::Indexing | Self::TooLarge(_) | Self::Busy => false,
        }
    }

    /// Something could not be written; if the disk did not play along, that is what counts.
    pub(crate) fn of_write(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(one) = cause {
            if let Some(io) = one.downcast_ref::<io::Error>() {
                return Self::Io(io::Error::new(io.kind(), io.to_string()));
            }
            cause = one.source();
        }
        Self::broken(error)
    }

    /// Something could not be read: it is larger than allowed, or it is not as it has to be.
    pub(crate) fn of_read(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        let own = causes.find_map(|cause| match cause.downcast_ref::<Self>() {
            Some(Self::TooLarge(text)) => Some(Self::TooLarge(text.clone())),
            Some(Self::Busy) => Some(Self::Busy),
            _ => None,
        });
        if let Some(own) = own {
            return own;
        }
        if gix::error::classify(error).is_resource_exhausted() {
            return Self::TooLarge(format!("an object is larger than allowed: {error}"));
        }
        Self::broken(error)
    }

    /// Something in the repository is not as it has to be.
    pub(crate) fn broken(error: impl fmt::Display) -> Self {
        Self::Broken(error.to_string())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Broken(text) | Self::Child(text) | Self::Unfinished(text) | Self::TooLarge(text) => f.write_str(text),
            Self::Indexing => f.write_str("the history is still being indexed, try again in a moment"),
            Self::Busy => f.write_str("too many requests read this repository or large objects, try again in a moment"),
            Self::Moved(name) => write!(f, "{name} has changed meanwhile"),
        }
    }
}

impl std::error::Error for Error {}
