//! Files that are read while they are still being written: made once, followed by everybody who asks meanwhile, and kept
//! for those who ask later, as long as there is room.
//!
//! It is a cache: nothing survives a restart, nothing is synced, and what was not finished is never taken for whole. When
//! the disk is full, what is kept makes room; if that is not enough, the rest of a file goes to its followers past the disk.

mod tail;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
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

use self::tail::{Reader, Tail};
use crate::disk_space::{self, Room};

/// However small the cache, so much may be under way at once, in bytes; beyond four times the cache nothing grows.
const GROWING_AT_LEAST: u64 = 8 << 30;
/// How much a follower reads at a time.
const PIECE: u64 = 64 * 1024;
/// How much is written between two looks at how much room there is, in bytes.
const LOOK_EVERY: u64 = 4 << 20;

/// The spools of one folder; cheap to clone.
#[derive(Clone)]
pub struct Spools(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    most_bytes: u64,
    /// How much all files hold together that are still being written.
    growing_bytes: AtomicU64,
    index: Mutex<Index>,
    room: OnceLock<Room>,
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
    source: Source,
    progress: watch::Sender<Progress>,
}

/// Where the bytes of a spool are.
#[derive(Clone)]
struct Source {
    /// Nothing where not even an empty file could be made.
    file: Option<Arc<File>>,
    tail: Arc<Tail>,
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
    /// How much of that is on the disk.
    on_disk: u64,
    /// How much is to be written before it is looked again how much room there is.
    next_look: u64,
    finished: bool,
}

/// Reads a spool from its first byte to its last, as a stream of pieces of up to 64 KiB.
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
            room: OnceLock::new(),
        }))
    }

    /// Leaves so much room on the disk as shall stay free.
    #[must_use]
    pub fn mindful_of(self, room: Room) -> Self {
        let _ = self.0.room.set(room);
        self
    }

    /// Joins whoever is at this key, or is the first; without a key the file is shared with nobody and never kept.
    pub fn join(&self, key: Option<String>) -> io::Result<Seat> {
        let mut index = self.index();
        if let Some(key) = &key {
            if let Some(spool) = index.growing.get(key) {
                return Ok(Seat::Another(Follower::of(spool.source.clone(), spool.progress.subscribe())));
            }
            if let Some(follower) = index.follow_kept(key) {
                return Ok(Seat::Another(follower));
            }
        }
        // Another process may have spools in the same folder.
        let path = self.0.folder.join(format!("{}-{}", std::process::id(), index.next));
        index.next += 1;
        let made = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let (key, file) = match made() {
            Ok(file) => (key, Some(file)),
            // Past the disk, and so for nobody else: a cache is no reason to refuse.
            Err(error) if disk_space::is_full(&error) => {
                index.give_way();
                made().map_or((None, None), |file| (key, Some(file)))
            }
            Err(error) => return Err(error),
        };
        if key.is_none() && file.is_some() {
            // Nobody else will ever open it, so it goes with its last reader, whatever happens.
            fs::remove_file(&path)?;
        }
        let (progress, watched) = watch::channel(Progress::Growing(0));
        let source = Source { file: file.map(Arc::new), tail: Arc::default() };
        if source.file.is_none() {
            source.tail.begin(0);
        }
        let spool = Arc::new(Spool { key, path, source, progress });
        if let Some(key) = &spool.key {
            index.growing.insert(key.clone(), Arc::clone(&spool));
        }
        drop(index);
        let follower = Follower::of(spool.source.clone(), watched);
        let producer = Producer { spools: self.clone(), spool, written: 0, on_disk: 0, next_look: 0, finished: false };
        Ok(Seat::First(producer, follower))
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
        Some(Follower::of(Source { file: Some(Arc::new(file)), tail: Arc::default() }, progress))
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

impl Index {
    /// Removes everything that is kept; who reads it goes on reading the open file.
    fn give_way(&mut self) {
        while let Some((_, kept)) = self.kept.pop_lru() {
            self.kept_bytes -= kept.len;
            remove(&kept.path);
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

    /// Tells everybody that the file is whole, and keeps it for nobody who asks later.
    pub fn finish_unkept(mut self) {
        self.finished = true;
        self.spools.index().forget(&self.spool);
        self.spool.progress.send_replace(Progress::Finished(self.written));
    }

    /// How many bytes were written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Tells whether nobody follows at the moment, for a producer that works for long before it writes.
    pub fn watch_followers(&self) -> impl Fn() -> bool + Send + 'static {
        let spool = Arc::clone(&self.spool);
        move || spool.progress.receiver_count() == 0
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

impl Producer {
    /// Writes to the disk, if there is room; `None` from the moment on at which there is none.
    fn write_to_disk(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let leaves_room = self.leaves_room();
        let source = &self.spool.source;
        let Some(file) = source.file.as_ref().filter(|_| source.tail.start().is_none()) else { return Ok(None) };
        let inner = &self.spools.0;
        let most = inner.most_bytes.saturating_mul(4).max(GROWING_AT_LEAST);
        let fits = inner.growing_bytes.load(Ordering::Relaxed) <= most && leaves_room;
        let write = || file.write_at(bytes, self.written);
        let written = if fits { write() } else { Err(io::ErrorKind::StorageFull.into()) };
        let written = match written {
            Err(error) if fits && disk_space::is_full(&error) => {
                self.spools.index().give_way();
                write()
            }
            written => written,
        };
        match written {
            Ok(written) => {
                self.on_disk += written as u64;
                inner.growing_bytes.fetch_add(written as u64, Ordering::Relaxed);
                Ok(Some(written))
            }
            Err(error) if disk_space::is_full(&error) => {
                // First nobody can join any more, since the beginning of what comes is not kept.
                self.spools.index().forget(&self.spool);
                source.tail.begin(self.written);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether there is as much room as shall stay free, looked at now and then; what is kept gives way first.
    fn leaves_room(&mut self) -> bool {
        let Some(room) = self.spools.0.room.get().filter(|_| self.written >= self.next_look) else { return true };
        self.next_look = self.written + LOOK_EVERY;
        let is_short = || room.shortage().is_some();
        if is_short() {
            self.spools.index().give_way();
        }
        !is_short()
    }
}

impl Write for Producer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.spool.progress.receiver_count() == 0 && self.spools.desert(&self.spool) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = if let Some(written) = self.write_to_disk(bytes)? {
            written
        } else {
            self.spool.source.tail.push(self.written, bytes)?;
            bytes.len()
        };
        self.written += written as u64;
        self.spool.progress.send_replace(Progress::Growing(self.written));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.spools.0.growing_bytes.fetch_sub(self.on_disk, Ordering::Relaxed);
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

    /// Waits until there is something to read; `false` if the file has failed before that.
    pub fn begins(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut progress = self.progress.clone();
        async move {
            let begun = progress.wait_for(|progress| *progress != Progress::Growing(0)).await;
            matches!(begun.as_deref(), Ok(Progress::Growing(_) | Progress::Finished(_)))
        }
    }

    fn of(source: Source, progress: watch::Receiver<Progress>) -> Self {
        let reader = source.tail.reader();
        let start = (source, reader, progress.clone(), 0);
        let pieces = stream::unfold(Some(start), |state| async {
            let (source, reader, mut progress, at): (Source, Reader, _, u64) = state?;
            reader.moved_to(at);
            let known =
                match progress.wait_for(|progress| !matches!(progress, Progress::Growing(len) if *len <= at)).await {
                    Ok(known) => *known,
                    // The producer always says how it ended before it goes.
                    Err(_) => Progress::Failed(at),
                };
            let (Progress::Growing(len) | Progress::Finished(len) | Progress::Failed(len)) = known;
            if at < len {
                return Some(match read(&source, at, (len - at).min(PIECE)).await {
                    Ok(piece) => {
                        let next = at + piece.len() as u64;
                        (Ok(piece), Some((source, reader, progress, next)))
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

async fn read(source: &Source, at: u64, len: u64) -> io::Result<Bytes> {
    let on_disk = source.tail.start().unwrap_or(u64::MAX);
    let Some(file) = source.file.as_ref().filter(|_| at < on_disk) else {
        return source.tail.read(at).ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
    };
    let (file, len) = (Arc::clone(file), len.min(on_disk - at));
    let read = spawn_blocking(move || {
        let mut piece = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut piece, at)?;
        Ok(piece.into())
    });
    read.await.map_err(io::Error::other)?
}
