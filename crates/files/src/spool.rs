//! Files that are read while they are still being written: produced once, followed by every concurrent request, and
//! cached for later ones.
//!
//! The cache does not survive a restart, nothing is synced, and an unfinished file is never mistaken for a complete
//! one. When the disk is full, cached files are evicted; if that is not enough, the rest of a file is passed to its
//! followers in memory.

mod tail;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, IoSliceMut, Write},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures_util::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use lru::LruCache;
use rustix::io::ReadWriteFlags;
use tokio::{sync::watch, task::spawn_blocking};

use self::tail::{Reader, Tail};
use crate::{
    disk_space::{self, DiskSpace},
    private_folder,
};

/// The minimum limit for all files in progress together, in bytes. The limit is four times the size of the cache if
/// that is more.
const MIN_GROWING_LIMIT: u64 = 8 << 30;
/// The number of bytes that a follower reads at a time.
const CHUNK_SIZE: u64 = 64 * 1024;
/// The number of bytes written between two checks of the free disk space.
const SPACE_CHECK_INTERVAL: u64 = 4 << 20;

/// The spools of one folder; cheap to clone.
#[derive(Clone)]
pub struct Spools(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    max_bytes: u64,
    /// The size of all files that are still being written.
    growing_bytes: AtomicU64,
    index: Mutex<Index>,
    disk_space: OnceLock<DiskSpace>,
}

/// The spools by key. Joining, abandoning and finishing a spool happen under its lock.
struct Index {
    growing: HashMap<String, Arc<Spool>>,
    cached: LruCache<String, CachedFile>,
    /// The size of all cached files.
    cached_bytes: u64,
    /// The number of the next file.
    next: u64,
}

/// A finished file.
struct CachedFile {
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

/// Where the bytes of a spool are stored.
#[derive(Clone)]
struct Source {
    /// `None` if not even an empty file could be created.
    file: Option<Arc<File>>,
    tail: Arc<Tail>,
}

/// How many bytes of a file are available, and whether more will follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Growing(u64),
    Finished(u64),
    Failed(u64),
}

/// The result of [`Spools::join`].
pub enum Joined {
    /// The key is new: the caller produces the file, and can follow it.
    New(Producer, Follower),
    /// The file is finished, or another producer is writing it.
    Existing(Follower),
}

/// Writes a spool. Every write wakes all followers, so small writes should be buffered.
///
/// A write fails with [`io::ErrorKind::BrokenPipe`] when no follower is left. If it is dropped without
/// [`finish`](Self::finish), the file has failed: its followers get an error, and the key is free again.
pub struct Producer {
    spools: Spools,
    spool: Arc<Spool>,
    written: u64,
    /// The number of written bytes that are on disk.
    on_disk: u64,
    /// The value of `written` at which the free disk space is checked again.
    next_space_check: u64,
    finished: bool,
}

/// Reads a spool from start to end, as a stream of chunks of up to 64 KiB.
///
/// An error after the last chunk means that the file was not finished.
pub struct Follower {
    progress: watch::Receiver<Progress>,
    chunks: BoxStream<'static, io::Result<Bytes>>,
}

impl Spools {
    /// Opens spools in a folder, which is created if necessary and emptied of files. Finished files are cached up to
    /// `max_bytes`.
    pub fn open(folder: &Path, max_bytes: u64) -> io::Result<Self> {
        private_folder::create(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self::attach(&folder.canonicalize()?, max_bytes))
    }

    /// Uses a folder that another process owns: nothing is created or removed before the first [`join`](Self::join).
    pub fn attach(folder: &Path, max_bytes: u64) -> Self {
        let index = Index { growing: HashMap::new(), cached: LruCache::unbounded(), cached_bytes: 0, next: 0 };
        Self(Arc::new(Inner {
            folder: folder.to_owned(),
            max_bytes,
            growing_bytes: AtomicU64::new(0),
            index: Mutex::new(index),
            disk_space: OnceLock::new(),
        }))
    }

    /// Keeps the minimum of disk space free.
    #[must_use]
    pub fn with_disk_space(self, disk_space: DiskSpace) -> Self {
        let _ = self.0.disk_space.set(disk_space);
        self
    }

    /// Joins the spool of a key, or starts it. Without a key the file is neither shared nor cached.
    pub fn join(&self, key: Option<String>) -> io::Result<Joined> {
        let mut index = self.index();
        if let Some(key) = &key {
            if let Some(spool) = index.growing.get(key) {
                return Ok(Joined::Existing(Follower::new(spool.source.clone(), spool.progress.subscribe())));
            }
            if let Some(follower) = index.follow_cached(key) {
                return Ok(Joined::Existing(follower));
            }
        }
        // Another process may have spools in the same folder.
        let path = self.0.folder.join(format!("{}-{}", std::process::id(), index.next));
        index.next += 1;
        let create_file = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let created = match create_file() {
            // The folder is a cache, which may be deleted at any time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_folder::create(&self.0.folder).and_then(|()| create_file())
            }
            created => created,
        };
        let (key, file) = match created {
            Ok(file) => (key, Some(file)),
            // A full cache is no reason to refuse; without a file the spool cannot be shared, so it has no key.
            Err(error) if disk_space::is_full(&error) => {
                index.evict_all();
                create_file().map_or((None, None), |file| (key, Some(file)))
            }
            Err(error) => return Err(error),
        };
        if key.is_none() && file.is_some() {
            // No one else opens this file, so it is unlinked now and disappears with its last reader.
            fs::remove_file(&path)?;
        }
        let (progress, receiver) = watch::channel(Progress::Growing(0));
        let source = Source { file: file.map(Arc::new), tail: Arc::default() };
        if source.file.is_none() {
            source.tail.start_at(0);
        }
        let spool = Arc::new(Spool { key, path, source, progress });
        if let Some(key) = &spool.key {
            index.growing.insert(key.clone(), Arc::clone(&spool));
        }
        drop(index);
        let follower = Follower::new(spool.source.clone(), receiver);
        let producer =
            Producer { spools: self.clone(), spool, written: 0, on_disk: 0, next_space_check: 0, finished: false };
        Ok(Joined::New(producer, follower))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the key of a spool without followers, unless one has just joined; returns whether there is none.
    fn discard_if_unfollowed(&self, spool: &Spool) -> bool {
        let mut index = self.index();
        let abandoned = spool.progress.receiver_count() == 0;
        if abandoned {
            index.discard(spool);
        }
        abandoned
    }
}

impl Index {
    fn follow_cached(&mut self, key: &str) -> Option<Follower> {
        let cached = self.cached.get(key)?;
        let Ok(file) = File::open(&cached.path) else {
            // The file was removed from outside; it is produced again.
            let cached = self.cached.pop(key)?;
            self.cached_bytes -= cached.len;
            return None;
        };
        let (_, progress) = watch::channel(Progress::Finished(cached.len));
        Some(Follower::new(Source { file: Some(Arc::new(file)), tail: Arc::default() }, progress))
    }

    /// Removes a spool from the index if it is still there; its followers continue to read the open file.
    fn discard(&mut self, spool: &Spool) {
        if self.remove_growing(spool).is_some() {
            remove(&spool.path);
        }
    }

    /// Removes a spool from the growing ones and returns its key; `None` if it has none, or another spool uses the key
    /// by now.
    fn remove_growing<'a>(&mut self, spool: &'a Spool) -> Option<&'a String> {
        let key = spool.key.as_ref()?;
        let found = self.growing.get(key)?;
        (found.path == spool.path).then(|| self.growing.remove(key))?;
        Some(key)
    }

    fn add_to_cache(&mut self, spool: &Spool, len: u64, max_bytes: u64) {
        if len > max_bytes {
            return self.discard(spool);
        }
        let Some(key) = self.remove_growing(spool) else { return };
        self.cached.put(key.clone(), CachedFile { path: spool.path.clone(), len });
        self.cached_bytes += len;
        while self.cached_bytes > max_bytes
            && let Some((_, oldest)) = self.cached.pop_lru()
        {
            self.cached_bytes -= oldest.len;
            remove(&oldest.path);
        }
    }
}

impl Index {
    /// Removes all cached files; their readers continue to read the open files.
    fn evict_all(&mut self) {
        while let Some((_, cached)) = self.cached.pop_lru() {
            self.cached_bytes -= cached.len;
            remove(&cached.path);
        }
    }
}

/// Removes a file of the cache. If that fails, the next start removes it.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

impl Producer {
    /// Marks the file as finished, and caches it if there is space.
    pub fn finish(mut self) -> io::Result<()> {
        self.finished = true;
        self.spools.index().add_to_cache(&self.spool, self.written, self.spools.0.max_bytes);
        self.spool.progress.send_replace(Progress::Finished(self.written));
        Ok(())
    }

    /// Marks the file as finished without caching it.
    pub fn finish_uncached(mut self) {
        self.finished = true;
        self.spools.index().discard(&self.spool);
        self.spool.progress.send_replace(Progress::Finished(self.written));
    }

    /// Returns the number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns a function that checks whether no follower is left, for a producer that works for long before it writes.
    pub fn abandonment_check(&self) -> impl Fn() -> bool + Send + 'static {
        let spool = Arc::clone(&self.spool);
        move || spool.progress.receiver_count() == 0
    }

    /// Waits until no follower is left, for a producer that has nothing to write for a while.
    pub fn abandoned(&self) -> impl Future<Output = ()> + Send + use<> {
        let (spools, spool) = (self.spools.clone(), Arc::clone(&self.spool));
        async move {
            loop {
                spool.progress.closed().await;
                if spools.discard_if_unfollowed(&spool) {
                    return;
                }
            }
        }
    }
}

impl Producer {
    /// Writes to the disk; `None` from the moment on at which the disk is full.
    fn write_to_disk(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let has_disk_space = self.has_disk_space();
        let source = &self.spool.source;
        let Some(file) = source.file.as_ref().filter(|_| source.tail.start().is_none()) else { return Ok(None) };
        let inner = &self.spools.0;
        let limit = inner.max_bytes.saturating_mul(4).max(MIN_GROWING_LIMIT);
        let fits = inner.growing_bytes.load(Ordering::Relaxed) <= limit && has_disk_space;
        let write = || file.write_at(bytes, self.written);
        let written = if fits { write() } else { Err(io::ErrorKind::StorageFull.into()) };
        let written = match written {
            Err(error) if fits && disk_space::is_full(&error) => {
                self.spools.index().evict_all();
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
                // Discarded first, so that no follower joins whose beginning of the file would be missing.
                self.spools.index().discard(&self.spool);
                source.tail.start_at(self.written);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether the minimum of disk space is free, evicting the cache if it is not. Checked every
    /// [`SPACE_CHECK_INTERVAL`] bytes.
    fn has_disk_space(&mut self) -> bool {
        let Some(disk_space) = self.spools.0.disk_space.get().filter(|_| self.written >= self.next_space_check) else {
            return true;
        };
        self.next_space_check = self.written + SPACE_CHECK_INTERVAL;
        let is_short = || disk_space.shortage().is_some();
        if is_short() {
            self.spools.index().evict_all();
        }
        !is_short()
    }
}

impl Write for Producer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.spool.progress.receiver_count() == 0 && self.spools.discard_if_unfollowed(&self.spool) {
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
            self.spools.index().discard(&self.spool);
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
    /// Returns the length of the file once it is finished.
    #[expect(clippy::len_without_is_empty, reason = "an unknown length says nothing about emptiness")]
    pub fn len(&self) -> Option<u64> {
        match *self.progress.borrow() {
            Progress::Finished(len) => Some(len),
            Progress::Growing(_) | Progress::Failed(_) => None,
        }
    }

    /// Waits until there is something to read; `false` if the file fails before that.
    pub fn wait_for_start(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut progress = self.progress.clone();
        async move {
            let started = progress.wait_for(|progress| *progress != Progress::Growing(0)).await;
            matches!(started.as_deref(), Ok(Progress::Growing(_) | Progress::Finished(_)))
        }
    }

    fn new(source: Source, progress: watch::Receiver<Progress>) -> Self {
        let reader = source.tail.reader();
        let start = (source, reader, progress.clone(), 0, Bytes::new());
        let chunks = stream::unfold(Some(start), |state| async {
            let (source, reader, mut progress, at, last): (Source, Reader, _, u64, Bytes) = state?;
            reader.advance_to(at);
            let known =
                match progress.wait_for(|progress| !matches!(progress, Progress::Growing(len) if *len <= at)).await {
                    Ok(known) => *known,
                    // The producer always reports its outcome before it is dropped.
                    Err(_) => Progress::Failed(at),
                };
            let (Progress::Growing(len) | Progress::Finished(len) | Progress::Failed(len)) = known;
            if at < len {
                return Some(match read(&source, at, (len - at).min(CHUNK_SIZE), last).await {
                    Ok(chunk) => {
                        let next = at + chunk.len() as u64;
                        (Ok(chunk.clone()), Some((source, reader, progress, next, chunk)))
                    }
                    Err(error) => (Err(error), None),
                });
            }
            match known {
                Progress::Finished(_) => None,
                _ => Some((Err(io::Error::other("the spool ended before it was finished")), None)),
            }
        });
        Self { progress, chunks: chunks.boxed() }
    }
}

impl Stream for Follower {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.chunks.poll_next_unpin(context)
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("progress", &*self.progress.borrow()).finish_non_exhaustive()
    }
}

/// Reads up to `len` bytes. The memory of the last chunk is used again if the client has already received that chunk.
async fn read(source: &Source, at: u64, len: u64, last: Bytes) -> io::Result<Bytes> {
    let on_disk = source.tail.start().unwrap_or(u64::MAX);
    let Some(file) = source.file.as_ref().filter(|_| at < on_disk) else {
        return source.tail.read(at).ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
    };
    let mut chunk = last.try_into_mut().unwrap_or_default();
    chunk.resize(usize::try_from(len.min(on_disk - at)).map_err(io::Error::other)?, 0);
    if let Some(count) = read_from_page_cache(file, &mut chunk, at) {
        chunk.truncate(count);
        return Ok(chunk.freeze());
    }
    let file = Arc::clone(file);
    let read = spawn_blocking(move || {
        file.read_exact_at(&mut chunk, at)?;
        Ok(chunk.freeze())
    });
    read.await.map_err(io::Error::other)?
}

/// Reads what the kernel has in memory, which takes less time than the way to another thread and back; `None` if that
/// is nothing, or if the file system cannot tell.
fn read_from_page_cache(file: &File, chunk: &mut BytesMut, at: u64) -> Option<usize> {
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(chunk)], at, ReadWriteFlags::NOWAIT);
    read.ok().filter(|count| *count > 0)
}
