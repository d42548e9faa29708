//! Errors of operations on repositories.

use std::{error::Error as StdError, io, time::Duration};

/// The result of an operation on a repository.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a repository failed. The text of an error includes that of its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An I/O operation failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A repository, or a pack sent for one, is invalid; says what is wrong.
    #[error("{0}")]
    Corrupt(#[source] Box<dyn StdError + Send + Sync>),
    /// A file of a pack is not in the store, or a small pack is not in the database; names the file or the pack.
    #[error("the pack file {0} is missing; restore it from a backup")]
    MissingPack(String),
    /// A `git` process could not be started.
    #[error("cannot start git: {0}")]
    GitNotStarted(#[source] io::Error),
    /// A `git` process failed; holds its error output.
    #[error("{0}")]
    GitFailed(String),
    /// A `git` process was killed or ran out of memory before it finished; holds its error output.
    #[error("{0}")]
    GitInterrupted(String),
    /// A `git` process was killed because its result is no longer wanted.
    #[error("cancelled")]
    Cancelled,
    /// A `git` process was killed at its deadline.
    #[error("timed out")]
    DeadlineExceeded,
    /// A `git` process was killed because it ran longer than this.
    #[error("timed out after {} seconds", .0.as_secs())]
    TimedOut(Duration),
    /// A fetch was aborted because the repository exceeds the size limit.
    #[error("the repository is too large")]
    FetchTooLarge,
    /// A fetch was aborted because the other server made no progress.
    #[error("the other side is too slow")]
    FetchTooSlow,
    /// Whether an object is reachable is still being determined.
    #[error("the history is still being indexed, try again in a moment")]
    Indexing,
    /// An object, or the effort of reading it, exceeds a limit; names the object and the limit.
    #[error("{0}")]
    TooLarge(String),
    /// Too many requests read large objects or the same repository at the same time, or the work takes too long.
    #[error("too many requests read this repository or large objects, try again in a moment")]
    Busy,
}

impl Error {
    /// Returns whether the disk or a quota is full.
    pub fn is_full(&self) -> bool {
        // `git` processes report it only as text; they run in the C locale.
        let mentions_full_disk =
            |text: &str| text.contains("No space left on device") || text.contains("Disk quota exceeded");
        match self {
            Self::Io(error) | Self::GitNotStarted(error) => is_full(error),
            Self::GitFailed(text) | Self::GitInterrupted(text) => mentions_full_disk(text),
            Self::Corrupt(error) => {
                causes(&**error).any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_full))
            }
            Self::MissingPack(_)
            | Self::Cancelled
            | Self::DeadlineExceeded
            | Self::TimedOut(_)
            | Self::FetchTooLarge
            | Self::FetchTooSlow
            | Self::Indexing
            | Self::TooLarge(_)
            | Self::Busy => false,
        }
    }

    /// Converts the error of a write; if an I/O error caused it, that error is returned.
    pub(crate) fn from_write(error: impl StdError + Send + Sync + 'static) -> Self {
        let io = causes(&error).find_map(|cause| cause.downcast_ref::<io::Error>());
        // The I/O error belongs to the other one, and cannot be taken out of it or cloned.
        match io.map(|io| io::Error::new(io.kind(), io.to_string())) {
            Some(io) => Self::Io(io),
            None => Self::corrupt(error),
        }
    }

    /// Converts the error of a read: a limit was exceeded, or the repository is corrupt.
    pub(crate) fn from_read(error: impl StdError + Send + Sync + 'static) -> Self {
        let known = causes(&error).find_map(|cause| match cause.downcast_ref::<Self>() {
            Some(Self::TooLarge(text)) => Some(Self::TooLarge(text.clone())),
            Some(Self::Busy) => Some(Self::Busy),
            _ => None,
        });
        if let Some(known) = known {
            return known;
        }
        if gix::error::classify(&error).is_resource_exhausted() {
            return Self::TooLarge(format!("an object is larger than allowed: {error}"));
        }
        Self::corrupt(error)
    }

    /// Something in the repository is invalid.
    pub(crate) fn corrupt(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Corrupt(cause.into())
    }
}

/// Returns an error and its causes.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let errors = std::iter::successors(Some(error), |error| (*error).source());
    // An error of gix wraps another one that `source` does not return.
    let wrapped = |error: &'a (dyn StdError + 'static)| {
        error.downcast_ref::<gix::error::Error>().into_iter().flat_map(gix::error::Error::iter_errors)
    };
    errors.flat_map(move |error| std::iter::once(error).chain(wrapped(error)))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Error;

    #[test]
    fn a_full_disk_is_found_in_every_error_of_a_write() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let message = || gix::error::Message::new("cannot write the object");
        let unwrapped = gix::error::Error::from_error(full());
        let with_context = gix::error::ErrorExt::and_raise(full(), message());
        for error in [unwrapped, with_context] {
            assert!(Error::from_write(error).is_full());
        }
        let corrupt = Error::corrupt(gix::error::Error::from_error(full()));
        assert!(corrupt.is_full());
        assert!(!Error::from_write(gix::error::Error::from_error(message())).is_full());
    }
}
