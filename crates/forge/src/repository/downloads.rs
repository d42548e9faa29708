//! Bounds of what is downloaded: how many archives and large files are made at the same time, how long making one may take,
//! and how slowly a client may read it.

use std::{
    io::{self, Write},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use files::spool::{Follower, Producer};
use futures_util::{Stream, StreamExt as _};
use tokio::sync::Semaphore;

pub use git::MOST_ARCHIVE_BYTES;

/// How many archives are made at the same time for downloads, and as many for `git archive --remote`.
const ARCHIVES_AT_ONCE: usize = 2;
/// How many large files are unpacked at the same time.
const FILES_AT_ONCE: usize = 4;
/// How long a client waits for one of these slots before it is told to come back.
pub(crate) const SLOT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long making an archive or unpacking a file may take.
pub const MAKING_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How many bytes a second a client has to read, once it has kept the server waiting for [`GRACE`].
const SLOWEST_CLIENT: u64 = 4 << 10;
const GRACE: Duration = Duration::from_secs(60);

/// The slots for what is made for downloads.
pub(crate) struct Downloads {
    pub(crate) archives: Arc<Semaphore>,
    pub(crate) remote_archives: Arc<Semaphore>,
    pub(crate) files: Arc<Semaphore>,
}

impl Default for Downloads {
    fn default() -> Self {
        let slots = |count| Arc::new(Semaphore::new(count));
        Self {
            archives: slots(ARCHIVES_AT_ONCE),
            remote_archives: slots(ARCHIVES_AT_ONCE),
            files: slots(FILES_AT_ONCE),
        }
    }
}

/// Time that a client has kept the server waiting, and the bytes that it has taken in return.
#[derive(Default)]
struct Waited {
    time: Duration,
    bytes: u64,
}

impl Waited {
    /// Whether the client is slower than any may be.
    fn is_too_long(&self) -> bool {
        let owed = Duration::from_millis(self.bytes.saturating_mul(1000) / SLOWEST_CLIENT);
        self.time > GRACE.saturating_add(owed)
    }
}

/// Writes a download within a time limit, and at the pace of its slowest client where the disk has no room for it.
pub(crate) struct TimedWriter {
    producer: Producer,
    deadline: Instant,
    waited: Waited,
}

impl TimedWriter {
    pub(crate) fn new(producer: Producer, time: Duration) -> Self {
        Self { producer, deadline: Instant::now() + time, waited: Waited::default() }
    }

    pub(crate) fn into_inner(self) -> Producer {
        self.producer
    }
}

impl Write for TimedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let start = Instant::now();
        if start > self.deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long to make"));
        }
        let count = self.producer.write(bytes)?;
        self.waited.time += start.elapsed();
        self.waited.bytes += count as u64;
        if self.waited.is_too_long() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "its clients read too slowly"));
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.producer.flush()
    }
}

/// The bytes of a download, as a stream that fails for a client that reads too slowly.
pub struct Download {
    follower: Follower,
    waited: Waited,
    /// When the client was given something and has not come back yet.
    given_at: Option<Instant>,
}

impl Download {
    pub(crate) fn new(follower: Follower) -> Self {
        Self { follower, waited: Waited::default(), given_at: None }
    }

    /// How long it is, if it is finished.
    #[expect(clippy::len_without_is_empty, reason = "a length that is not known yet says nothing about emptiness")]
    pub fn len(&self) -> Option<u64> {
        self.follower.len()
    }
}

impl Stream for Download {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(given_at) = this.given_at.take() {
            this.waited.time += given_at.elapsed();
            if this.waited.is_too_long() {
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"))));
            }
        }
        let piece = ready!(this.follower.poll_next_unpin(context));
        if let Some(Ok(piece)) = &piece {
            this.waited.bytes += piece.len() as u64;
            this.given_at = Some(Instant::now());
        }
        Poll::Ready(piece)
    }
}

#[cfg(test)]
mod tests {
    use files::spool::{Seat, Spools};

    use super::*;

    #[test]
    fn a_client_is_too_slow_below_a_rate_once_it_had_time() {
        let check = |seconds, bytes, expected| {
            let waited = Waited { time: Duration::from_secs(seconds), bytes };
            assert_eq!(waited.is_too_long(), expected, "{seconds} {bytes}");
        };
        check(60, 0, false);
        check(61, 0, true);
        check(61, SLOWEST_CLIENT, false);
        check(62, SLOWEST_CLIENT, true);
        check(10_000, 10_000 * SLOWEST_CLIENT, false);
        check(10_000, u64::MAX, false);
    }

    #[tokio::test]
    async fn a_download_fails_that_takes_too_long_to_make() {
        let folder = tempfile::tempdir().expect("a folder");
        let spools = Spools::in_folder(folder.path(), 1 << 20).expect("spools");
        let Ok(Seat::First(producer, follower)) = spools.join(Some("key".to_owned())) else { panic!("the first") };
        let mut writer = TimedWriter::new(producer, Duration::from_secs(3600));
        writer.write_all(b"beginning").expect("in time");
        writer.deadline = Instant::now().checked_sub(Duration::from_secs(1)).expect("a moment");
        let error = writer.write_all(b"end").expect_err("too late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(writer);
        let pieces: Vec<_> = Download::new(follower).collect().await;
        assert_eq!(pieces[0].as_ref().expect("a piece"), "beginning");
        assert!(pieces.last().is_some_and(Result::is_err), "it is not taken for whole");
    }
}
