//! What of a spool did not fit on the disk: the last few pieces in memory, until everybody who follows has them.
//!
//! A cache must not be a reason why something cannot be read. When the disk is full, the bytes go on to those who wait for
//! them, at the pace of the slowest.

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

/// How much is held in memory for those who are slower than the producer, in bytes.
const HELD: usize = 1 << 20;
/// How long somebody may take to read on before the rest is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether those who read have gone away.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The end of a spool that is not on the disk.
#[derive(Default)]
pub(super) struct Tail {
    inner: Mutex<Inner>,
    moved_on: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Where it begins; nowhere while everything fits on the disk.
    from: Option<u64>,
    pieces: VecDeque<(u64, Bytes)>,
    held: usize,
    readers: Vec<Weak<AtomicU64>>,
}

/// How far somebody has read.
pub(super) struct Reader {
    tail: Weak<Tail>,
    at: Arc<AtomicU64>,
}

impl Tail {
    /// A place for somebody who reads from the beginning.
    pub(super) fn reader(self: &Arc<Self>) -> Reader {
        let at = Arc::new(AtomicU64::new(0));
        self.inner().readers.push(Arc::downgrade(&at));
        Reader { tail: Arc::downgrade(self), at }
    }

    /// Where the tail begins, if there is one.
    pub(super) fn start(&self) -> Option<u64> {
        self.inner().from
    }

    /// Whatever comes from here on is not on the disk.
    pub(super) fn begin(&self, at: u64) {
        self.inner().from = Some(at);
    }

    /// Adds bytes once there is room in memory, which those who read make.
    pub(super) fn push(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let start = Instant::now();
        let mut inner = self.inner();
        loop {
            let Some(slowest) = inner.slowest() else { return Err(io::ErrorKind::BrokenPipe.into()) };
            inner.forget_before(slowest);
            if inner.held < HELD {
                inner.held += bytes.len();
                inner.pieces.push_back((at, Bytes::copy_from_slice(bytes)));
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = self.moved_on.wait_timeout(inner, LOOK_EVERY);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The bytes from a place on, as far as they are in one piece.
    pub(super) fn read(&self, at: u64) -> Option<Bytes> {
        let inner = self.inner();
        let (start, piece) = inner.pieces.iter().rfind(|(start, _)| *start <= at)?;
        let skipped = usize::try_from(at - start).ok().filter(|skipped| *skipped < piece.len())?;
        Some(piece.slice(skipped..))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// How far the slowest of those who read has come; `None` if nobody does.
    fn slowest(&mut self) -> Option<u64> {
        self.readers.retain(|reader| reader.strong_count() > 0);
        self.readers.iter().filter_map(Weak::upgrade).map(|at| at.load(Ordering::Relaxed)).min()
    }

    fn forget_before(&mut self, at: u64) {
        while let Some((start, piece)) = self.pieces.front()
            && start + piece.len() as u64 <= at
        {
            self.held -= piece.len();
            self.pieces.pop_front();
        }
    }
}

impl Reader {
    /// Notes how far it has come.
    pub(super) fn moved_to(&self, at: u64) {
        self.at.store(at, Ordering::Relaxed);
        if let Some(tail) = self.tail.upgrade() {
            tail.moved_on.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_producer_waits_for_the_slowest_and_forgets_what_all_have() {
        let tail = Arc::new(Tail::default());
        let (fast, slow) = (tail.reader(), tail.reader());
        tail.begin(0);
        tail.push(0, &vec![1; HELD]).expect("room");
        fast.moved_to(HELD as u64);
        let pushed = {
            let tail = Arc::clone(&tail);
            thread::spawn(move || tail.push(HELD as u64, b"more"))
        };
        assert!(tail.read(0).is_some(), "somebody has still to read it");
        slow.moved_to(HELD as u64);
        pushed.join().expect("no panic").expect("there is room now");
        assert_eq!(tail.read(HELD as u64 + 1).as_deref(), Some(&b"ore"[..]));
        assert_eq!(tail.read(0), None);
        drop((fast, slow));
        let error = tail.push(HELD as u64 + 4, b"in vain").expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
