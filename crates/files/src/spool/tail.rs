//! The end of a spool that did not fit on the disk: the last chunks, in memory until all followers have read them.
//!
//! A full disk must not make a spool unreadable, so the bytes are passed on at the speed of the slowest follower.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

/// The maximum number of bytes buffered for followers that are slower than the producer.
const MAX_BUFFERED: usize = 1 << 20;
/// How long the slowest follower may stall before the producer fails.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the producer checks whether its followers are gone.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The end of a spool that is not on the disk.
#[derive(Default)]
pub(super) struct Tail {
    inner: Mutex<Inner>,
    advanced: Condvar,
}

#[derive(Default)]
struct Inner {
    /// The offset at which it starts; `None` while everything fits on the disk.
    start: Option<u64>,
    chunks: VecDeque<(u64, Bytes)>,
    buffered: usize,
    readers: Vec<Weak<AtomicU64>>,
}

/// The position of a follower.
pub(super) struct Reader {
    tail: Weak<Tail>,
    at: Arc<AtomicU64>,
}

impl Tail {
    /// Registers a follower that reads from the start.
    pub(super) fn reader(self: &Arc<Self>) -> Reader {
        let at = Arc::new(AtomicU64::new(0));
        self.inner().readers.push(Arc::downgrade(&at));
        Reader { tail: Arc::downgrade(self), at }
    }

    /// Returns the offset at which the tail starts, if there is one.
    pub(super) fn start(&self) -> Option<u64> {
        self.inner().start
    }

    /// Starts the tail: bytes from this offset on are not on the disk.
    pub(super) fn start_at(&self, at: u64) {
        self.inner().start = Some(at);
    }

    /// Adds bytes once the followers have made space in the buffer.
    pub(super) fn push(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let start = Instant::now();
        let mut inner = self.inner();
        loop {
            let Some(slowest) = inner.slowest() else { return Err(io::ErrorKind::BrokenPipe.into()) };
            inner.drop_before(slowest);
            if inner.buffered < MAX_BUFFERED {
                inner.buffered += bytes.len();
                inner.chunks.push_back((at, Bytes::copy_from_slice(bytes)));
                return Ok(());
            }
            if start.elapsed() > READ_TIMEOUT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = self.advanced.wait_timeout(inner, POLL_INTERVAL);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the rest of the chunk that contains this offset.
    pub(super) fn read(&self, at: u64) -> Option<Bytes> {
        let inner = self.inner();
        let (start, chunk) = inner.chunks.iter().rfind(|(start, _)| *start <= at)?;
        let skipped = usize::try_from(at - start).ok().filter(|skipped| *skipped < chunk.len())?;
        Some(chunk.slice(skipped..))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Returns the position of the slowest follower; `None` if there is none.
    fn slowest(&mut self) -> Option<u64> {
        self.readers.retain(|reader| reader.strong_count() > 0);
        self.readers.iter().filter_map(Weak::upgrade).map(|at| at.load(Ordering::Relaxed)).min()
    }

    fn drop_before(&mut self, at: u64) {
        while let Some((start, chunk)) = self.chunks.front()
            && start + chunk.len() as u64 <= at
        {
            self.buffered -= chunk.len();
            self.chunks.pop_front();
        }
    }
}

impl Reader {
    /// Records the position of the follower.
    pub(super) fn advance_to(&self, at: u64) {
        self.at.store(at, Ordering::Relaxed);
        if let Some(tail) = self.tail.upgrade() {
            tail.advanced.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_producer_waits_for_the_slowest_follower_and_drops_what_all_have_read() {
        let tail = Arc::new(Tail::default());
        let (fast, slow) = (tail.reader(), tail.reader());
        tail.start_at(0);
        tail.push(0, &vec![1; MAX_BUFFERED]).expect("space");
        fast.advance_to(MAX_BUFFERED as u64);
        let pushed = {
            let tail = Arc::clone(&tail);
            thread::spawn(move || tail.push(MAX_BUFFERED as u64, b"more"))
        };
        assert!(tail.read(0).is_some(), "a follower has still to read it");
        slow.advance_to(MAX_BUFFERED as u64);
        pushed.join().expect("no panic").expect("there is space now");
        assert_eq!(tail.read(MAX_BUFFERED as u64 + 1).as_deref(), Some(&b"ore"[..]));
        assert_eq!(tail.read(0), None);
        drop((fast, slow));
        let error = tail.push(MAX_BUFFERED as u64 + 4, b"in vain").expect_err("no follower is left");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
