//! Files that are read while they are still being written: made once, followed by everybody who asks meanwhile, and kept
//! for those who ask later, as long as there is room.
//!
//! It is a cache: nothing survives a restart, nothing is synced, and what was not finished is never taken for whole.

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use lru::LruCache;
use tokio::{sync::watch, task::spawn_blocking};

/// However small the cache, so much may be under way at once, in bytes; beyond four times the cache nothing grows.
const GROWING_AT_LEAST: u64 = 8 << 30;
/// How much a follower reads at a time.
const PIECE: u64 = 256 * 1024;

/// The spools of one folder; cheap to clone.
#[derive(Clone)]
pub struct Spools(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    most_bytes: u64,
    /// How much all files hold together that are still being written.
    growing_bytes: AtomicU64,
    index: Mutex<Index>,
}

/// What is there under which key. Whoever joins, gives up or finishes does so under its lock.
struct Index {
    growing: HashMap<String, Arc<Spool>>,
    kept: LruCache<String, Kept>,
    /// How much all kept files hold together.
    kept_bytes: u64,
    /// The number of the next file.
    next: u64,
}

/// A file that is whole.
struct Kept {
    path: PathBuf,
    len: u64,
}

/// A file that is being written.
struct Spool {
    key: Option<String>,
    path: PathBuf,
    file: Arc<File>,
    progress: watch::Sender<Progress>,
}

/// How far a file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Growing(u64),
    Finished(u64),
    Failed(u64),
}

/// Where somebody who asks for a key finds themselves.
pub enum Seat {
    /// Nobody has made it yet: the file is theirs to write, and to follow.
    First(Producer, Follower),
    /// It is whole already, or somebody is at it.
    Another(Follower),
}

/// Writes a spool. Every write reaches the followers at once, so small ones are better collected first.
///
/// A write fails with [`io::ErrorKind::BrokenPipe`] when nobody follows any more. Dropped without
/// [`finish`](Self::finish), the file has failed: its followers hear of it, and the key is free again.
pub struct Producer {
    spools: Spools,
    spool: Arc<Spool>,
    written: u64,
    finished: bool,
}

/// Reads a spool from its first byte to its last, as a stream of pieces of up to 256 KiB.
///
/// An error after the last piece tells that the file was not finished.
pub struct Follower {
    progress: watch::Receiver<Progress>,
    pieces: BoxStream<'static, io::Result<Bytes>>,
}

impl Spools {
    /// Spools in a folder, which is made if need be and emptied of its files; finished ones are kept up to so many bytes.
    pub fn in_folder(folder: &Path, most_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self::beside(&folder.canonicalize()?, most_bytes))
    }

    /// Spools in a folder that another process has for itself: nothing is made or removed until somebody joins.
    pub fn beside(folder: &Path, most_bytes: u64) -> Self {
        let index = Index { growing: HashMap::new(), kept: LruCache::unbounded(), kept_bytes: 0, next: 0 };
        Self(Arc::new(Inner {
            folder: folder.to_owned(),
            most_bytes,
            growing_bytes: AtomicU64::new(0),
            index: Mutex::new(index),
        }))
    }

    /// Joins whoever is at this key, or is the first; without a key the file is shared with nobody and never kept.
    pub fn join(&self, key: Option<String>) -> io::Result<Seat> {
        let mut index = self.index();
        if let Some(key) = &key {
            if let Some(spool) = index.growing.get(key) {
                return Ok(Seat::Another(Follower::of(Arc::clone(&spool.file), spool.progress.subscribe())));
            }
            if let Some(follower) = index.follow_kept(key) {
                return Ok(Seat::Another(follower));
            }
        }
        // Another process may have spools in the same folder.
        let path = self.0.folder.join(format!("{}-{}", std::process::id(), index.next));
        index.next += 1;
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        if key.is_none() {
            // Nobody else will ever open it, so it goes with its last reader, whatever happens.
            fs::remove_file(&path)?;
        }
        let (progress, watched) = watch::channel(Progress::Growing(0));
        let spool = Arc::new(Spool { key, path, file: Arc::new(file), progress });
        if let Some(key) = &spool.key {
            index.growing.insert(key.clone(), Arc::clone(&spool));
        }
        drop(index);
        let follower = Follower::of(Arc::clone(&spool.file), watched);
        Ok(Seat::First(Producer { spools: self.clone(), spool, written: 0, finished: false }, follower))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the key of a spool that nobody follows, unless somebody has just joined; tells whether nobody has.
    fn desert(&self, spool: &Spool) -> bool {
        let mut index = self.index();
        let deserted = spool.progress.receiver_count() == 0;
        if deserted {
            index.forget(spool);
        }
        deserted
    }
}

impl Index {
    fn follow_kept(&mut self, key: &str) -> Option<Follower> {
        let kept = self.kept.get(key)?;
        let Ok(file) = File::open(&kept.path) else {
            // Somebody has tidied up: it is made anew.
            let kept = self.kept.pop(key)?;
            self.kept_bytes -= kept.len;
            return None;
        };
        let (_, progress) = watch::channel(Progress::Finished(kept.len));
        Some(Follower::of(Arc::new(file), progress))
    }

    /// Takes a spool off the index, if it is still there; who follows it goes on reading the open file.
    fn forget(&mut self, spool: &Spool) {
        if self.take(spool).is_some() {
            remove(&spool.path);
        }
    }

    /// Takes a spool out of those that grow and tells its key; `None` if it has none or another spool has it by now.
    fn take<'a>(&mut self, spool: &'a Spool) -> Option<&'a String> {
        let key = spool.key.as_ref()?;
        let found = self.growing.get(key)?;
        (found.path == spool.path).then(|| self.growing.remove(key))?;
        Some(key)
    }

    fn keep(&mut self, spool: &Spool, len: u64, most_bytes: u64) {
        if len > most_bytes {
            return self.forget(spool);
        }
        let Some(key) = self.take(spool) else { return };
        self.kept.put(key.clone(), Kept { path: spool.path.clone(), len });
        self.kept_bytes += len;
        while self.kept_bytes > most_bytes
            && let Some((_, oldest)) = self.kept.pop_lru()
        {
            self.kept_bytes -= oldest.len;
            remove(&oldest.path);
        }
    }
}

/// Removes a file of the cache. One that stays behind is removed at the next start.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

impl Producer {
    /// Tells everybody that the file is whole, and keeps it if there is room.
    pub fn finish(mut self) -> io::Result<()> {
        self.finished = true;
        self.spools.index().keep(&self.spool, self.written, self.spools.0.most_bytes);
        self.spool.progress.send_replace(Progress::Finished(self.written));
        Ok(())
    }

    /// Waits until nobody follows any more, for a producer that has nothing to write for a while.
    pub fn deserted(&self) -> impl Future<Output = ()> + Send + use<> {
        let (spools, spool) = (self.spools.clone(), Arc::clone(&self.spool));
        async move {
            loop {
                spool.progress.closed().await;
                if spools.desert(&spool) {
                    return;
                }
            }
        }
    }
}

impl Write for Producer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.spool.progress.receiver_count() == 0 && self.spools.desert(&self.spool) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let inner = &self.spools.0;
        if inner.growing_bytes.load(Ordering::Relaxed) > inner.most_bytes.saturating_mul(4).max(GROWING_AT_LEAST) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let written = self.spool.file.write_at(bytes, self.written)?;
        self.written += written as u64;
        inner.growing_bytes.fetch_add(written as u64, Ordering::Relaxed);
        self.spool.progress.send_replace(Progress::Growing(self.written));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.spools.0.growing_bytes.fetch_sub(self.written, Ordering::Relaxed);
        if !self.finished {
            self.spools.index().forget(&self.spool);
            self.spool.progress.send_replace(Progress::Failed(self.written));
        }
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("written", &self.written).finish_non_exhaustive()
    }
}

impl Follower {
    /// How long the file is, once it is finished.
    #[expect(clippy::len_without_is_empty, reason = "a length that is not known yet says nothing about emptiness")]
    pub fn len(&self) -> Option<u64> {
        match *self.progress.borrow() {
            Progress::Finished(len) => Some(len),
            Progress::Growing(_) | Progress::Failed(_) => None,
        }
    }

    fn of(file: Arc<File>, progress: watch::Receiver<Progress>) -> Self {
        let start = (file, progress.clone(), 0);
        let pieces = stream::unfold(Some(start), |state| async {
            let (file, mut progress, at) = state?;
            let known =
                match progress.wait_for(|progress| !matches!(progress, Progress::Growing(len) if *len <= at)).await {
                    Ok(known) => *known,
                    // The producer always says how it ended before it goes.
                    Err(_) => Progress::Failed(at),
                };
            let (Progress::Growing(len) | Progress::Finished(len) | Progress::Failed(len)) = known;
            if at < len {
                return Some(match read(Arc::clone(&file), at, (len - at).min(PIECE)).await {
                    Ok(piece) => {
                        let next = at + piece.len() as u64;
                        (Ok(piece), Some((file, progress, next)))
                    }
                    Err(error) => (Err(error), None),
                });
            }
            match known {
                Progress::Finished(_) => None,
                _ => Some((Err(io::Error::other("what was being written has not come to its end")), None)),
            }
        });
        Self { progress, pieces: pieces.boxed() }
    }
}

impl Stream for Follower {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.poll_next_unpin(context)
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("progress", &*self.progress.borrow()).finish_non_exhaustive()
    }
}

async fn read(file: Arc<File>, at: u64, len: u64) -> io::Result<Bytes> {
    let read = spawn_blocking(move || {
        let mut piece = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut piece, at)?;
        Ok(piece.into())
    });
    read.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::{FutureExt as _, TryStreamExt as _};

    use super::*;

    const KEY: &str = "key";

    fn spools(most_bytes: u64) -> (tempfile::TempDir, Spools) {
        let folder = tempfile::tempdir().expect("a folder");
        let spools = Spools::in_folder(folder.path(), most_bytes).expect("spools");
        (folder, spools)
    }

    fn first(spools: &Spools, key: Option<&str>) -> (Producer, Follower) {
        match spools.join(key.map(str::to_owned)).expect("a seat") {
            Seat::First(producer, follower) => (producer, follower),
            Seat::Another(_) => panic!("somebody was here before"),
        }
    }

    fn another(spools: &Spools, key: &str) -> Follower {
        match spools.join(Some(key.to_owned())).expect("a seat") {
            Seat::First(..) => panic!("nobody was here before"),
            Seat::Another(follower) => follower,
        }
    }

    async fn all(follower: Follower) -> io::Result<Vec<u8>> {
        follower.map_ok(|piece| piece.to_vec()).try_concat().await
    }

    async fn made(spools: &Spools, key: &str, content: &[u8]) {
        let (mut producer, follower) = first(spools, Some(key));
        producer.write_all(content).expect("written");
        producer.finish().expect("finished");
        assert_eq!(all(follower).await.expect("whole"), content);
    }

    fn files(folder: &tempfile::TempDir) -> usize {
        fs::read_dir(folder.path()).expect("a folder").count()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_followers_who_join_at_any_time_all_read_the_same() {
        let (_folder, spools) = spools(u64::MAX);
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let (mut producer, follower) = first(&spools, Some(KEY));
        let mut followers = vec![tokio::spawn(all(follower))];
        // Pieces of all lengths, so that followers stop at all places.
        for (number, piece) in content.chunks(7_919).enumerate() {
            producer.write_all(piece).expect("written");
            if number % 10 == 0 {
                followers.push(tokio::spawn(all(another(&spools, KEY))));
                tokio::task::yield_now().await;
            }
        }
        producer.finish().expect("finished");
        let late = another(&spools, KEY);
        assert_eq!(late.len(), Some(3_000_000));
        followers.push(tokio::spawn(all(late)));
        for follower in followers {
            assert!(follower.await.expect("no panic").expect("whole") == content);
        }
    }

    #[tokio::test]
    async fn a_follower_gets_what_is_there_before_the_end_is_known() {
        let (_folder, spools) = spools(100);
        let (mut producer, mut follower) = first(&spools, Some(KEY));
        producer.write_all(b"hello").expect("written");
        assert_eq!(follower.len(), None);
        assert_eq!(follower.next().await.expect("a piece").expect("read"), "hello");
        assert!(follower.next().now_or_never().is_none());
        producer.finish().expect("finished");
        assert!(follower.next().await.is_none());
        assert_eq!(follower.len(), Some(5));
    }

    #[tokio::test]
    async fn a_producer_that_fails_fails_its_followers_and_frees_the_key() {
        let (folder, spools) = spools(100);
        let (mut producer, mut follower) = first(&spools, Some(KEY));
        let mut waiting = another(&spools, KEY);
        producer.write_all(b"half").expect("written");
        drop(producer);
        for follower in [&mut follower, &mut waiting] {
            assert_eq!(follower.next().await.expect("a piece").expect("read"), "half");
            let error = follower.next().await.expect("an answer").expect_err("not whole");
            assert_eq!(error.to_string(), "what was being written has not come to its end");
            assert!(follower.next().await.is_none());
            assert_eq!(follower.len(), None);
        }
        assert_eq!(files(&folder), 0);
        made(&spools, KEY, b"whole").await;
    }

    #[tokio::test]
    async fn a_producer_learns_that_the_last_follower_has_gone() {
        let (folder, spools) = spools(100);
        let (mut producer, follower) = first(&spools, Some(KEY));
        let other = another(&spools, KEY);
        drop(follower);
        producer.write_all(b"still heard").expect("written");
        let mut deserted = Box::pin(producer.deserted());
        assert!(deserted.as_mut().now_or_never().is_none());
        drop(other);
        tokio::time::timeout(Duration::from_secs(10), deserted).await.expect("told");
        let error = producer.write_all(b"in vain").expect_err("nobody follows");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        // The key is free before the producer has gone, and its going takes nothing from the next.
        let (mut next, follower) = first(&spools, Some(KEY));
        drop(producer);
        let other = another(&spools, KEY);
        next.write_all(b"anew").expect("written");
        next.finish().expect("finished");
        assert_eq!(
            (all(follower).await.expect("whole"), all(other).await.expect("whole")),
            (b"anew".into(), b"anew".into())
        );
        assert_eq!(files(&folder), 1);
    }

    #[tokio::test]
    async fn what_was_used_least_lately_makes_room_even_while_it_is_read() {
        let (folder, spools) = spools(10);
        made(&spools, "a", b"aaaa").await;
        made(&spools, "b", b"bbbb").await;
        let reading = another(&spools, "b");
        assert_eq!(all(another(&spools, "a")).await.expect("whole"), b"aaaa");
        made(&spools, "c", b"cccc").await;
        assert_eq!(files(&folder), 2);
        assert_eq!(all(reading).await.expect("whole"), b"bbbb");
        assert_eq!(all(another(&spools, "a")).await.expect("whole"), b"aaaa");
        assert_eq!(all(another(&spools, "c")).await.expect("whole"), b"cccc");
        made(&spools, "b", b"bb").await;
    }

    #[tokio::test]
    async fn what_is_larger_than_all_the_room_is_served_but_not_kept() {
        let (folder, spools) = spools(10);
        made(&spools, "small", b"small").await;
        made(&spools, "large", b"larger than ten").await;
        assert_eq!(files(&folder), 1);
        made(&spools, "large", b"larger than ten").await;
        assert_eq!(all(another(&spools, "small")).await.expect("whole"), b"small");
    }

    #[tokio::test]
    async fn without_a_key_nothing_is_shared_and_nothing_stays() {
        let (folder, spools) = spools(100);
        let (mut one, follower) = first(&spools, None);
        let (_two, _) = first(&spools, None);
        one.write_all(b"mine").expect("written");
        one.finish().expect("finished");
        assert_eq!(files(&folder), 0);
        assert_eq!(all(follower).await.expect("whole"), b"mine");
    }

    #[tokio::test]
    async fn nothing_survives_a_restart() {
        let (folder, spools) = spools(100);
        made(&spools, KEY, b"old").await;
        let (_producer, _follower) = first(&spools, Some("half"));
        assert_eq!(files(&folder), 2);
        let spools = Spools::in_folder(folder.path(), 100).expect("spools");
        assert_eq!(files(&folder), 0);
        made(&spools, KEY, b"new").await;
    }

    #[tokio::test]
    async fn a_file_that_somebody_removed_is_made_anew() {
        let (folder, spools) = spools(6);
        made(&spools, KEY, b"once").await;
        for entry in fs::read_dir(folder.path()).expect("a folder") {
            fs::remove_file(entry.expect("an entry").path()).expect("removed");
        }
        made(&spools, KEY, b"twice").await;
        assert_eq!(all(another(&spools, KEY)).await.expect("whole"), b"twice");
    }
}
