//! Limits of downloads: how many archives and large files are generated concurrently, for how long, and how slowly a client
//! may read.

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

pub use git::MAX_ARCHIVE_BYTES;

/// The maximum number of archives generated concurrently for downloads, and also for `git archive --remote`.
const MAX_ARCHIVES: usize = 2;
/// The maximum number of large files decompressed concurrently.
const MAX_LARGE_FILES: usize = 4;
/// How long a client waits for a slot before it is refused.
pub(crate) const SLOT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum duration of generating an archive or decompressing a file.
pub const GENERATION_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The minimum rate at which a client must read, after it has kept the server waiting for [`SLOW_CLIENT_GRACE`].
const MIN_BYTES_PER_SECOND: u64 = 4 << 10;
const SLOW_CLIENT_GRACE: Duration = Duration::from_secs(60);

/// The slots for generating downloads.
pub(crate) struct DownloadSlots {
    pub(crate) archives: Arc<Semaphore>,
    pub(crate) remote_archives: Arc<Semaphore>,
    pub(crate) files: Arc<Semaphore>,
}

impl Default for DownloadSlots {
    fn default() -> Self {
        let slots = |count| Arc::new(Semaphore::new(count));
        Self { archives: slots(MAX_ARCHIVES), remote_archives: slots(MAX_ARCHIVES), files: slots(MAX_LARGE_FILES) }
    }
}

/// The time a client has kept the server waiting, and the bytes it has read.
#[derive(Default)]
struct ClientPace {
    time: Duration,
    bytes: u64,
}

impl ClientPace {
    /// Returns whether the client reads too slowly.
    fn is_too_slow(&self) -> bool {
        let allowance = Duration::from_millis(self.bytes.saturating_mul(1000) / MIN_BYTES_PER_SECOND);
        self.time > SLOW_CLIENT_GRACE.saturating_add(allowance)
    }
}

/// Writes a download within a time limit; without disk space for a spool, at the pace of its slowest client.
pub(crate) struct TimedWriter {
    producer: Producer,
    deadline: Instant,
    pace: ClientPace,
}

impl TimedWriter {
    pub(crate) fn new(producer: Producer, time: Duration) -> Self {
        Self { producer, deadline: Instant::now() + time, pace: ClientPace::default() }
    }

    pub(crate) fn into_inner(self) -> Producer {
        self.producer
    }
}

impl Write for TimedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let start = Instant::now();
        if start > self.deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "generating the download timed out"));
        }
        let count = self.producer.write(bytes)?;
        self.pace.time += start.elapsed();
        self.pace.bytes += count as u64;
        if self.pace.is_too_slow() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the clients read too slowly"));
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
    pace: ClientPace,
    /// When the last chunk was handed out, while the client has not asked for the next.
    sent_at: Option<Instant>,
}

impl Download {
    pub(crate) fn new(follower: Follower) -> Self {
        Self { follower, pace: ClientPace::default(), sent_at: None }
    }

    /// Returns the length, if the download is finished.
    #[expect(clippy::len_without_is_empty, reason = "an unknown length says nothing about emptiness")]
    pub fn len(&self) -> Option<u64> {
        self.follower.len()
    }
}

impl Stream for Download {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(sent_at) = this.sent_at.take() {
            this.pace.time += sent_at.elapsed();
            if this.pace.is_too_slow() {
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"))));
            }
        }
        let chunk = ready!(this.follower.poll_next_unpin(context));
        if let Some(Ok(chunk)) = &chunk {
            this.pace.bytes += chunk.len() as u64;
            this.sent_at = Some(Instant::now());
        }
        Poll::Ready(chunk)
    }
}

#[cfg(test)]
mod tests {
    use files::spool::{Joined, Spools};

    use super::*;

    #[test]
    fn a_client_is_too_slow_below_the_minimum_rate_after_the_grace_period() {
        let check = |seconds, bytes, expected| {
            let pace = ClientPace { time: Duration::from_secs(seconds), bytes };
            assert_eq!(pace.is_too_slow(), expected, "{seconds} {bytes}");
        };
        check(60, 0, false);
        check(61, 0, true);
        check(61, MIN_BYTES_PER_SECOND, false);
        check(62, MIN_BYTES_PER_SECOND, true);
        check(10_000, 10_000 * MIN_BYTES_PER_SECOND, false);
        check(10_000, u64::MAX, false);
    }

    #[tokio::test]
    async fn a_download_fails_after_its_time_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let spools = Spools::open(folder.path(), 1 << 20).expect("spools");
        let Ok(Joined::New(producer, follower)) = spools.join(Some("key".to_owned())) else { panic!("the first") };
        let mut writer = TimedWriter::new(producer, Duration::from_secs(3600));
        writer.write_all(b"beginning").expect("in time");
        writer.deadline = Instant::now().checked_sub(Duration::from_secs(1)).expect("a moment");
        let error = writer.write_all(b"end").expect_err("too late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(writer);
        let chunks: Vec<_> = Download::new(follower).collect().await;
        assert_eq!(chunks[0].as_ref().expect("a piece"), "beginning");
        assert!(chunks.last().is_some_and(Result::is_err), "the download is not taken for complete");
    }
}
