//! Which objects are reachable from visible refs.
//!
//! What a deleted branch or a forced push leaves behind stays on disk for a while, but must not be found by its id. To determine what is reachable, the commits of all visible refs are walked once,
//! and their trees on demand: those of the tips first, the rest of the history only for an object that is not found
//! there. If that takes long, `git rev-list` lists everything in the background: it uses the bitmaps of large
//! repositories. The result is cached as one bit per object of a pack and grows with each push; only when a ref is
//! deleted or moved back it has to be computed again.
//!
//! The walk is done in small slices by the threads that query it. Objects are read without the lock of the repository's
//! set, which is held for moments only; a thread that gets neither the lock nor a slot for a walk in time fails with
//! [`Error::Busy`].

use std::{
    collections::HashSet,
    ffi::OsString,
    fs,
    io::{self, Seek as _, Write as _},
    num::NonZeroUsize,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gix::{
    ObjectId,
    commitgraph::{Graph, Position},
    hashtable::hash::Builder,
    objs::{Kind, TreeRefIter},
    odb::pack,
};
use lru::LruCache;
use model::Oid;

use crate::{
    Error, Refs, Repository, Result,
    deadline::Deadline,
    decode::CommitParts,
    file_stamps::FileStamps,
    git_process,
    limits::{Buffer, Slots, WAIT_TIMEOUT},
    objects::MAX_TAG_DEPTH,
    repository::{gix_id, oid},
};

/// The size of a slice, after which other threads that query the same repository can continue: the number of commits or
/// trees, the number and size of their entries, and the time. The first object is always read.
const SLICE_OBJECTS: usize = 256;
const SLICE_ENTRIES: usize = 64 << 10;
const SLICE_BYTES: usize = 4 << 20;
const SLICE_TIME: Duration = Duration::from_millis(100);
/// The number of ids that are looked up, and that are marked, before the lock is released for a moment.
const LOOKUP_BATCH: usize = 256;
const MARK_BATCH: usize = 16 << 10;
/// The number of commits of a commit-graph that are walked at once. They are not read from packs.
const GRAPH_SLICE_COMMITS: usize = 16 << 10;
/// The maximum number of commits that are read to determine whether a ref has moved forward.
const MAX_ANCESTOR_READS: usize = 10_000;
/// The time limit of a query. The progress is kept, so a repeated query continues from there.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit of a query for one commit, on threads that many requests wait for.
const COMMIT_QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long trees are read before a listing by `git` is started, and the time limit of the listing. There is one
/// listing at a time.
const LISTING_DELAY: Duration = Duration::from_millis(500);
const LISTING_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How long a query continues to read trees during a listing before it only waits, and how often it checks then.
/// Objects of the newest commits are found by reading before the whole history is listed.
const WALK_DURING_LISTING: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a thread retries to get the lock before it sleeps, and how long it sleeps between retries.
const LOCK_SPINS: u32 = 64;
const LOCK_SLEEP: Duration = Duration::from_millis(1);
/// The maximum number of repositories in the cache, and their maximum total size in bytes.
const MAX_CACHED_REPOSITORIES: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
const MAX_CACHED_BYTES: usize = 64 << 20;

/// Limits the threads that read objects for queries, across all repositories.
static WALK_SLOTS: Slots = Slots::new(4);

/// The cache of all repositories. It outlives their handles, which are dropped with each repack.
static CACHE: LazyLock<Mutex<Cache>> =
    LazyLock::new(|| Mutex::new(Cache { repositories: LruCache::new(MAX_CACHED_REPOSITORIES), bytes: 0 }));

/// The repository whose objects `git` is listing.
static LISTING: Mutex<Option<PathBuf>> = Mutex::new(None);

struct Cache {
    /// By the folder of the repository, with the size in bytes.
    repositories: LruCache<PathBuf, (Arc<Mutex<ReachableSet>>, usize)>,
    bytes: usize,
}

/// A set of object ids.
type Ids = HashSet<ObjectId, Builder>;

/// The known reachable objects of one repository.
#[derive(Default)]
struct ReachableSet {
    generation: Generation,
    /// The refs that the set is computed for, and their generation.
    fingerprint: Option<[u8; 32]>,
    refs_generation: i64,
    /// The commits that the refs lead to.
    tips: Arc<Ids>,
    /// The trees and blobs that refs lead to.
    contents: Ids,
    /// The direct targets of the refs, including annotated tags.
    direct_targets: Ids,
    packs: Vec<Pack>,
    /// Detect changes of the list of packs.
    pack_stamps: Option<FileStamps>,
    /// Reachable objects that are in none of the packs.
    unpacked: Ids,
    /// Commits that are still to be read, the next one last.
    commits: Vec<ObjectId>,
    /// Unfinished walks over commits of a commit-graph.
    graph_walks: Vec<GraphWalk>,
    /// Root trees of commits in the order in which these were found; they are read once all commits are known.
    roots: Vec<ObjectId>,
    /// Trees that are still to be read, the next one last.
    trees: Vec<ObjectId>,
    /// Commits of a commit-graph whose trees are still to be read, the next one last.
    graph_commits: Vec<(Arc<Graph>, Vec<Position>)>,
    /// All of `commits` and `trees`, and the objects that are being read.
    queued: Ids,
    /// The number of commits and of trees that are being read.
    in_progress: [usize; 2],
    /// Whether there are commits, and trees, that are too large to be read here; the listing by `git` covers what they
    /// lead to.
    has_unreadable: [bool; 2],
}

/// Identifies a computation: a [`ReachableSet`] that is reset gets a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Generation(u64);

impl Default for Generation {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A walk over commits of a commit-graph.
struct GraphWalk {
    graph: Arc<Graph>,
    pending: Vec<Position>,
    found: Vec<Position>,
}

/// The objects of a pack, with one bit for each that is reachable.
struct Pack {
    name: OsString,
    index: pack::index::File,
    bits: Vec<u64>,
}

impl Pack {
    fn get(&self, at: u32) -> bool {
        self.bits[at as usize / 64] & 1 << (at % 64) != 0
    }

    /// Sets a bit; returns whether it was not set before.
    fn set(&mut self, at: u32) -> bool {
        let is_new = !self.get(at);
        self.bits[at as usize / 64] |= 1 << (at % 64);
        is_new
    }

    /// Marks the objects that are marked in one of these packs, too.
    fn copy_marks(&mut self, others: &[Self]) {
        let (own, all): (u64, u64) =
            (self.index.num_objects().into(), others.iter().map(|pack| u64::from(pack.index.num_objects())).sum());
        // A push adds a small pack beside large ones, and a repack a large one beside many small ones.
        if own * others.len() as u64 <= all {
            for at in 0..self.index.num_objects() {
                let id = self.index.oid_at_index(at);
                if others.iter().any(|pack| pack.index.lookup(id).is_some_and(|at| pack.get(at))) {
                    self.set(at);
                }
            }
        } else {
            for pack in others {
                for at in (0..pack.index.num_objects()).filter(|at| pack.get(*at)) {
                    if let Some(at) = self.index.lookup(pack.index.oid_at_index(at)) {
                        self.set(at);
                    }
                }
            }
        }
    }
}

impl Repository {
    /// Returns for each of these objects whether it is reachable from a visible ref. An object that does not exist is
    /// not.
    ///
    /// The first query of a repository walks its commits. A tree or a blob that is not in the newest commits may need a
    /// walk over all trees of the history; if that takes too long, the result is [`Error::Indexing`].
    pub fn which_are_reachable(&self, ids: &[Oid]) -> Result<Vec<bool>> {
        self.answers_with_timeout(QUERY_TIMEOUT, ids)
    }

    /// Like [`Self::which_are_reachable`] for commits, with a shorter time limit, for threads that many requests wait
    /// for.
    pub fn which_commits_are_reachable(&self, ids: &[Oid]) -> Result<Vec<bool>> {
        self.answers_with_timeout(COMMIT_QUERY_TIMEOUT, ids)
    }

    fn answers_with_timeout(&self, time: Duration, ids: &[Oid]) -> Result<Vec<bool>> {
        let mut answers = vec![false; ids.len()];
        self.classify(ids, &Deadline::within(time), |at, is_reachable| {
            answers[at] = is_reachable;
            ControlFlow::Continue(())
        })?;
        Ok(answers)
    }

    /// Returns one of these objects that is not reachable from a visible ref or does not exist; `None` if all are
    /// reachable. Stops at the first such object, and otherwise fails like [`Self::which_are_reachable`].
    pub fn first_unreachable(&self, ids: &[Oid]) -> Result<Option<Oid>> {
        let mut found = None;
        self.classify(ids, &Deadline::within(QUERY_TIMEOUT), |at, is_reachable| {
            if is_reachable {
                return ControlFlow::Continue(());
            }
            found = Some(ids[at]);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Returns whether an object is reachable from a visible ref.
    pub(crate) fn is_reachable(&self, id: Oid) -> Result<bool> {
        Ok(self.answers_with_timeout(COMMIT_QUERY_TIMEOUT, &[id])? == [true])
    }

    /// Determines for each object whether it is reachable, and calls `answer` with its index, in any order, until that
    /// returns `Break`.
    fn classify(
        &self,
        ids: &[Oid],
        deadline: &Deadline,
        mut answer: impl FnMut(usize, bool) -> ControlFlow<()>,
    ) -> Result<()> {
        let (start, refs) = (Instant::now(), self.refs());
        let shared = cached(self.path());
        drop(self.lock_for_refs(&shared, refs, deadline)?);
        self.record_size(&shared)?;
        // The objects that need a walk, and whether they are commits.
        let mut undecided: Vec<(bool, usize)> = Vec::new();
        let mut inner_tags = None;
        for (batch_number, batch) in ids.chunks(LOOKUP_BATCH).enumerate() {
            deadline.check()?;
            let known: Vec<bool> = {
                let state = self.lock_for_refs(&shared, refs, deadline)?;
                batch.iter().map(|id| state.is_known_reachable(&gix_id(*id))).collect()
            };
            for (position, (id, known)) in batch.iter().zip(known).enumerate() {
                let at = batch_number * LOOKUP_BATCH + position;
                // Looked up without the lock: it may be at the end of a long delta chain.
                let kind = if known { None } else { self.kind(&gix_id(*id))? };
                deadline.step()?;
                match kind {
                    Some(Kind::Tree | Kind::Blob) => undecided.push((false, at)),
                    Some(Kind::Commit) => undecided.push((true, at)),
                    Some(Kind::Tag) | None => {
                        let is_reachable = known
                            || kind.is_some() && {
                                let tags = match &inner_tags {
                                    Some(tags) => tags,
                                    None => inner_tags.insert(self.inner_tags(refs, deadline)?),
                                };
                                tags.contains(&gix_id(*id))
                            };
                        if answer(at, is_reachable).is_break() {
                            return Ok(());
                        }
                    }
                }
            }
        }
        // Taken from the end: commits first, because all of them are known long before all trees.
        undecided.sort_unstable_by_key(|(is_commit, at)| (*is_commit, std::cmp::Reverse(*at)));
        let mut shared = shared;
        while !undecided.is_empty() {
            let looked_up = {
                let state = self.lock_for_refs(&shared, refs, deadline)?;
                let (has_all_commits, is_complete) = (state.has_all_commits(), state.is_complete());
                let mut looked_up = 0;
                // Each is looked up until it is decided, and then the next one, so this stays linear.
                while looked_up < LOOKUP_BATCH
                    && let Some((is_commit, at)) = undecided.last().copied()
                {
                    let is_known_reachable = state.is_known_reachable(&gix_id(ids[at]));
                    let is_decided = is_known_reachable || is_complete || is_commit && has_all_commits;
                    if !is_decided {
                        break;
                    }
                    undecided.pop();
                    looked_up += 1;
                    if answer(at, is_known_reachable).is_break() {
                        return Ok(());
                    }
                }
                looked_up
            };
            match deadline.check() {
                Err(Error::Busy) => return Err(Error::Indexing),
                checked => checked?,
            }
            if looked_up == LOOKUP_BATCH || undecided.is_empty() {
                continue;
            }
            let waits_for_listing = start.elapsed() > WALK_DURING_LISTING && is_listing(self.path());
            if waits_for_listing || !self.read_more(&shared, deadline)? {
                // `git` lists everything, or other threads read the rest.
                thread::sleep(POLL_INTERVAL);
            }
            self.record_size(&shared)?;
            if !waits_for_listing && start.elapsed() > LISTING_DELAY {
                self.list_in_background(refs);
            }
            shared = cached(self.path());
        }
        Ok(())
    }

    /// Returns the intermediate tags in chains of annotated tags. There are few of them, so they are looked up only
    /// when a tag is queried that no ref points to.
    fn inner_tags(&self, refs: &Refs, deadline: &Deadline) -> Result<Ids> {
        let (mut found, mut buffer) = (Ids::default(), Vec::new());
        for reference in refs.iter().filter(|reference| reference.peeled.is_some()) {
            let (mut at, end) = (gix_id(reference.target), gix_id(reference.peeled_target()));
            for _ in 0..MAX_TAG_DEPTH {
                deadline.check()?;
                match self.tag_target(&at, &mut buffer)? {
                    Some(target) if target != end => at = target,
                    Some(_) | None => break,
                }
                found.insert(at);
            }
        }
        Ok(found)
    }

    /// Locks the set, updated to these refs. Other threads may have updated it to older or newer ones in the meantime.
    fn lock_for_refs<'a>(
        &self,
        shared: &'a Mutex<ReachableSet>,
        refs: &Refs,
        deadline: &Deadline,
    ) -> Result<MutexGuard<'a, ReachableSet>> {
        let fingerprint = refs.fingerprint();
        loop {
            self.follow_refs(shared, refs, deadline, true)?;
            let state = lock_in_time(shared)?;
            if state.is_for(refs, fingerprint) {
                return Ok(state);
            }
            drop(state);
            deadline.check()?;
        }
    }

    /// Records the current size of the repository's set.
    fn record_size(&self, shared: &Arc<Mutex<ReachableSet>>) -> Result<()> {
        let bytes = lock_in_time(shared)?.count_bytes();
        record_size(self.path(), shared, bytes);
        Ok(())
    }

    /// Updates the set to these refs. Objects are looked up without the lock.
    fn follow_refs(
        &self,
        shared: &Mutex<ReachableSet>,
        refs: &Refs,
        deadline: &Deadline,
        needs_slot: bool,
    ) -> Result<()> {
        let fingerprint = refs.fingerprint();
        loop {
            let known = {
                let mut state = lock_in_time(shared)?;
                state.list_packs(self)?;
                if state.is_for(refs, fingerprint) {
                    return Ok(());
                }
                Arc::clone(&state.tips)
            };
            let _slot = if needs_slot { Some(WALK_SLOTS.take()?) } else { None };
            let (mut direct_targets, mut tips, mut contents) = (Ids::default(), Ids::default(), Vec::new());
            for reference in refs.iter() {
                deadline.step()?;
                direct_targets.insert(gix_id(reference.target));
                let id = gix_id(reference.peeled_target());
                if tips.contains(&id) {
                    continue;
                }
                match if known.contains(&id) { Some(Kind::Commit) } else { self.kind(&id)? } {
                    Some(Kind::Commit) => drop(tips.insert(id)),
                    Some(kind @ (Kind::Tree | Kind::Blob)) => contents.push((id, kind)),
                    Some(Kind::Tag) | None => {}
                }
            }
            let dropped: Vec<Oid> = known.difference(&tips).map(|id| oid(id)).collect();
            let all: Vec<Oid> = tips.iter().map(|id| oid(id)).collect();
            let keeps_commits = dropped.is_empty()
                || self
                    .history()
                    .which_are_ancestors_bounded(&dropped, &all, MAX_ANCESTOR_READS)?
                    .is_some_and(|found| !found.contains(&false));
            let graph = self.commit_graph();
            let mut state = lock_in_time(shared)?;
            if !Arc::ptr_eq(&state.tips, &known) {
                // Another thread was faster, maybe with other refs.
                continue;
            }
            state.set_refs(RefTargets { direct_targets, tips, contents }, keeps_commits, graph.as_ref());
            state.fingerprint = Some(fingerprint);
            state.refs_generation = refs.generation;
            return Ok(());
        }
    }

    /// Reads a slice of commits or trees; returns whether there was anything to do.
    fn read_more(&self, shared: &Mutex<ReachableSet>, deadline: &Deadline) -> Result<bool> {
        let _slot = WALK_SLOTS.take()?;
        let mut state = lock_in_time(shared)?;
        if state.walk_graphs()? {
            return Ok(true);
        }
        let Some((kind, ids)) = state.next_slice() else { return Ok(state.finish_commits()) };
        let mut slice = Slice { shared, generation: state.generation, kind, remaining: ids };
        drop(state);
        match kind {
            SliceKind::Commits => self.read_commits(&mut slice, deadline)?,
            SliceKind::Trees => self.read_trees(&mut slice, deadline)?,
        }
        Ok(true)
    }

    fn read_commits(&self, slice: &mut Slice<'_>, deadline: &Deadline) -> Result<()> {
        let (start, graph) = (Instant::now(), self.commit_graph());
        let (mut buffer, mut entries) = (Vec::new(), 0);
        while let Some(id) = slice.remaining.last().copied() {
            deadline.step()?;
            // For a very large commit the start is enough, which names its tree and its parents.
            let commit = self.read_bounded(&id, Kind::Commit, &mut buffer)?;
            let commit = commit.ok_or_else(|| Error::corrupt(format!("the commit {id} is missing")))?;
            let CommitParts { tree, parents, .. } = CommitParts::parse(commit.data);
            // The author comes after all parents.
            let is_read = !commit.is_truncated || commit.data.windows(8).any(|bytes| bytes == b"\nauthor ");
            entries += 1 + parents.len();
            let goes_on = slice.done(|state| {
                state.mark(&id);
                state.has_unreadable[SliceKind::Commits as usize] |= !is_read;
                state.roots.extend(tree);
                for parent in parents {
                    state.queue_commit(graph.as_ref(), parent);
                }
            })?;
            if !goes_on || entries > SLICE_ENTRIES || start.elapsed() > SLICE_TIME {
                break;
            }
        }
        Ok(())
    }

    /// Reads trees and marks their entries.
    fn read_trees(&self, slice: &mut Slice<'_>, deadline: &Deadline) -> Result<()> {
        let start = Instant::now();
        let (mut buffer, mut entries, mut bytes) = (Buffer::default(), 0, 0);
        while let Some(id) = slice.remaining.last().copied() {
            deadline.step()?;
            let (data, is_read) = match self.tree_bytes(&id, &mut buffer) {
                Ok(data) => (data, true),
                // Its entries are found once `git` has listed everything.
                Err(Error::TooLarge(_)) => (&[][..], false),
                Err(error) => return Err(error),
            };
            bytes += data.len();
            let mut found = Vec::new();
            for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
                let entry = entry.map_err(Error::corrupt)?;
                if !entry.mode.is_commit() {
                    found.push((entry.mode.is_tree(), entry.oid.to_owned()));
                }
            }
            entries += found.len();
            let mut goes_on = true;
            let mut parts = found.chunks(MARK_BATCH).peekable();
            while let Some(part) = parts.next()
                && goes_on
                && parts.peek().is_some()
            {
                goes_on = slice.apply(|state| state.add_entries(part))?;
            }
            // The tree is marked together with its last entries, so that a tree is not marked before its content is.
            let rest = found.chunks(MARK_BATCH).next_back().unwrap_or_default();
            goes_on = goes_on
                && slice.done(|state| {
                    state.add_entries(rest);
                    state.mark(&id);
                    state.has_unreadable[SliceKind::Trees as usize] |= !is_read;
                })?;
            let is_enough = entries > SLICE_ENTRIES || bytes > SLICE_BYTES || start.elapsed() > SLICE_TIME;
            if !goes_on || is_enough {
                break;
            }
        }
        Ok(())
    }

    /// Starts a listing by `git` on a thread of its own, unless one is running.
    fn list_in_background(&self, refs: &Arc<Refs>) {
        let mut listing = lock(&LISTING);
        if listing.is_some() {
            return;
        }
        let (handle, refs) = (Arc::clone(&self.handle), Arc::clone(refs));
        let folder = self.guard.clone();
        let list = move || {
            // Resets the state even after a panic.
            let _guard = ListingGuard;
            let _folder = folder;
            let repository = Repository::new(handle, Arc::clone(&refs));
            match ReachableSet::list(&repository, &refs) {
                Ok(whole) => {
                    let (bytes, cached) = (whole.count_bytes(), cached(repository.path()));
                    *lock(&cached) = whole;
                    record_size(repository.path(), &cached, bytes);
                }
                Err(error) => {
                    tracing::warn!(path = %repository.path().display(), %error, "cannot list the reachable objects");
                }
            }
        };
        if thread::Builder::new().name("reachable".into()).spawn(list).is_ok() {
            *listing = Some(self.path().to_owned());
        }
    }

    /// Returns a function that checks which objects `git` lists as reachable.
    #[cfg(test)]
    pub(crate) fn list_reachable(&self) -> Result<impl Fn(&[Oid]) -> Vec<bool>> {
        let whole = ReachableSet::list(self, self.refs())?;
        assert!(whole.is_complete(), "nothing is left to be read");
        let is_there = move |id: &Oid| whole.direct_targets.contains(&gix_id(*id)) || whole.contains(&gix_id(*id));
        Ok(move |ids: &[Oid]| ids.iter().map(&is_there).collect())
    }
}

/// Clears [`LISTING`] when it is dropped.
struct ListingGuard;

impl Drop for ListingGuard {
    fn drop(&mut self) {
        *lock(&LISTING) = None;
    }
}

/// Returns whether `git` is listing the objects of the repository in this folder.
fn is_listing(path: &Path) -> bool {
    lock(&LISTING).as_deref() == Some(path)
}

/// Returns the cached set of the repository in a folder.
fn cached(path: &Path) -> Arc<Mutex<ReachableSet>> {
    let mut all = lock(&CACHE);
    if let Some((found, _)) = all.repositories.get(path) {
        return Arc::clone(found);
    }
    let created = Arc::default();
    let pushed = all.repositories.push(path.to_owned(), (Arc::clone(&created), 0));
    all.bytes -= pushed.map_or(0, |(_, (_, bytes))| bytes);
    created
}

/// Records the size of a set, and evicts the least recently used sets if the cache is too large.
fn record_size(path: &Path, set: &Arc<Mutex<ReachableSet>>, bytes: usize) {
    let mut all = lock(&CACHE);
    let all = &mut *all;
    if let Some((found, recorded)) = all.repositories.peek_mut(path)
        && Arc::ptr_eq(found, set)
    {
        all.bytes = all.bytes - *recorded + bytes;
        *recorded = bytes;
    }
    // The set that was just recorded stays, because it would be computed again and again.
    while all.bytes > MAX_CACHED_BYTES
        && all.repositories.len() > 1
        && let Some((_, (_, bytes))) = all.repositories.pop_lru()
    {
        all.bytes -= bytes;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a set; fails with [`Error::Busy`] if other threads hold the lock for too long.
fn lock_in_time(shared: &Mutex<ReachableSet>) -> Result<MutexGuard<'_, ReachableSet>> {
    let (start, mut attempts) = (Instant::now(), 0);
    loop {
        match shared.try_lock() {
            Ok(state) => return Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => {
                // The update was interrupted halfway.
                shared.clear_poison();
                let mut state = poisoned.into_inner();
                state.reset();
                return Ok(state);
            }
            Err(TryLockError::WouldBlock) if start.elapsed() >= WAIT_TIMEOUT => return Err(Error::Busy),
            // Almost always it is held for microseconds only.
            Err(TryLockError::WouldBlock) if attempts < LOCK_SPINS => thread::yield_now(),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_SLEEP),
        }
        attempts += 1;
    }
}

/// The kind of the objects in a slice.
#[derive(Clone, Copy)]
enum SliceKind {
    Commits,
    Trees,
}

/// Objects that a thread has taken to read. Those that it does not read, for whatever reason, are returned to the
/// queue.
struct Slice<'a> {
    shared: &'a Mutex<ReachableSet>,
    generation: Generation,
    kind: SliceKind,
    /// The objects still to be read, the next one last.
    remaining: Vec<ObjectId>,
}

impl Slice<'_> {
    /// Updates the set; returns whether the update is still wanted.
    fn apply(&self, update: impl FnOnce(&mut ReachableSet)) -> Result<bool> {
        let mut state = lock_in_time(self.shared)?;
        let is_wanted = state.generation == self.generation;
        if is_wanted {
            update(&mut state);
        }
        Ok(is_wanted)
    }

    /// Updates the set after the next object was read, which is removed from the slice; returns whether the update is
    /// still wanted.
    fn done(&mut self, update: impl FnOnce(&mut ReachableSet)) -> Result<bool> {
        let Some(id) = self.remaining.last().copied() else { return Ok(false) };
        let kind = self.kind;
        let is_wanted = self.apply(|state| {
            update(state);
            state.queued.remove(&id);
            state.in_progress[kind as usize] -= 1;
        })?;
        self.remaining.pop();
        Ok(is_wanted)
    }
}

impl Drop for Slice<'_> {
    fn drop(&mut self) {
        if self.remaining.is_empty() {
            return;
        }
        let mut state = lock(self.shared);
        if state.generation == self.generation {
            state.in_progress[self.kind as usize] -= self.remaining.len();
            match self.kind {
                SliceKind::Commits => state.commits.append(&mut self.remaining),
                SliceKind::Trees => state.trees.append(&mut self.remaining),
            }
        }
    }
}

/// The objects that refs lead to.
struct RefTargets {
    direct_targets: Ids,
    tips: Ids,
    contents: Vec<(ObjectId, Kind)>,
}

impl ReachableSet {
    /// Returns whether the set is computed for these refs, or for newer ones: a query for older refs would undo the
    /// progress for the newer ones.
    fn is_for(&self, refs: &Refs, fingerprint: [u8; 32]) -> bool {
        self.fingerprint == Some(fingerprint) || self.fingerprint.is_some() && self.refs_generation > refs.generation
    }

    /// Lists everything that is reachable from some refs with `git rev-list`.
    fn list(repository: &Repository, refs: &Refs) -> Result<Self> {
        let whole = Mutex::new(Self::default());
        repository.follow_refs(&whole, refs, &Deadline::within(LISTING_TIMEOUT), false)?;
        let mut whole = whole.into_inner().unwrap_or_else(PoisonError::into_inner);
        // The ids and not the refs, which may have moved since.
        let mut starts = tempfile::tempfile()?;
        for id in whole.tips.iter().chain(&whole.contents) {
            writeln!(starts, "{id}")?;
        }
        starts.rewind()?;
        let mut command = git_process::git_command(repository.path());
        command.args(["rev-list", "--objects", "--use-bitmap-index", "--no-object-names", "--stdin"]).stdin(starts);
        git_process::for_each_line(command, LISTING_TIMEOUT, |line| {
            if let Ok(id) = ObjectId::from_hex(line) {
                whole.mark(&id);
            }
        })?;
        whole.commits.clear();
        whole.graph_walks.clear();
        whole.roots.clear();
        whole.trees.clear();
        whole.graph_commits.clear();
        whole.queued.clear();
        Ok(whole)
    }

    /// Updates the set to other refs. If commits may have become unreachable, it is computed again.
    fn set_refs(&mut self, targets: RefTargets, keeps_commits: bool, graph: Option<&Arc<Graph>>) {
        let RefTargets { direct_targets, tips, contents } = targets;
        let ids: Ids = contents.iter().map(|(id, _)| *id).collect();
        if !keeps_commits || !self.contents.is_subset(&ids) {
            self.reset();
        }
        for id in tips.difference(&Arc::clone(&self.tips)) {
            self.queue_commit(graph, *id);
        }
        for (id, kind) in contents {
            if self.contents.contains(&id) {
                continue;
            }
            match kind {
                Kind::Tree => self.queue_tree(id),
                _ => drop(self.mark(&id)),
            }
        }
        (self.direct_targets, self.tips, self.contents) = (direct_targets, Arc::new(tips), ids);
    }

    /// Queues a commit to be read, unless it is known or queued.
    fn queue_commit(&mut self, graph: Option<&Arc<Graph>>, id: ObjectId) {
        if self.contains(&id) {
            return;
        }
        if let Some((graph, position)) = graph.and_then(|graph| Some((graph, graph.lookup(id)?))) {
            // The commit-graph contains all ancestors of its commits.
            self.roots.push(graph.commit_at(position).root_tree_id().to_owned());
            match self.graph_walks.last_mut().filter(|walk| Arc::ptr_eq(&walk.graph, graph)) {
                Some(walk) => walk.pending.push(position),
                None => self.graph_walks.push(GraphWalk {
                    graph: Arc::clone(graph),
                    pending: vec![position],
                    found: Vec::new(),
                }),
            }
        } else if self.queued.insert(id) {
            self.commits.push(id);
        }
    }

    /// Queues a tree to be read, unless it is known or queued.
    fn queue_tree(&mut self, id: ObjectId) {
        if !self.contains(&id) && self.queued.insert(id) {
            self.trees.push(id);
        }
    }

    /// Adds the entries of a tree: whether each is a tree, and its id.
    fn add_entries(&mut self, entries: &[(bool, ObjectId)]) {
        for (is_tree, id) in entries {
            if *is_tree {
                self.queue_tree(*id);
            } else {
                self.mark(id);
            }
        }
    }

    /// Continues a walk over a commit-graph; returns whether there was one.
    fn walk_graphs(&mut self) -> Result<bool> {
        let Some(mut walk) = self.graph_walks.pop() else { return Ok(false) };
        let mut remaining = GRAPH_SLICE_COMMITS;
        while remaining > 0
            && let Some(position) = walk.pending.pop()
        {
            remaining -= 1;
            let commit = walk.graph.commit_at(position);
            if !self.mark(commit.id()) {
                continue;
            }
            walk.found.push(position);
            for parent in commit.iter_parents() {
                remaining = remaining.saturating_sub(1);
                match parent {
                    Ok(parent) => walk.pending.push(parent),
                    Err(error) => {
                        // The commit is marked, but its ancestors are not.
                        self.reset();
                        return Err(Error::corrupt(error));
                    }
                }
            }
        }
        if walk.pending.is_empty() {
            // Found from the tips on, and taken from the end.
            walk.found.reverse();
            self.graph_commits.push((walk.graph, walk.found));
        } else {
            self.graph_walks.push(walk);
        }
        Ok(true)
    }

    /// Returns the next objects to read; `None` if there are none at the moment.
    fn next_slice(&mut self) -> Option<(SliceKind, Vec<ObjectId>)> {
        let (kind, mut ids) = if self.commits.is_empty() {
            let start = self.trees.len().saturating_sub(SLICE_OBJECTS);
            (SliceKind::Trees, self.trees.split_off(start))
        } else {
            let start = self.commits.len().saturating_sub(SLICE_OBJECTS);
            (SliceKind::Commits, self.commits.split_off(start))
        };
        if ids.is_empty() && self.has_read_commits() && self.roots.is_empty() {
            ids = self.next_roots();
        }
        self.in_progress[kind as usize] += ids.len();
        (!ids.is_empty()).then_some((kind, ids))
    }

    /// Returns the next root trees of commits in the commit-graph, the next one last.
    fn next_roots(&mut self) -> Vec<ObjectId> {
        let (mut ids, mut visited) = (Vec::new(), 0);
        while ids.len() < SLICE_OBJECTS
            && visited < GRAPH_SLICE_COMMITS
            && let Some((graph, positions)) = self.graph_commits.last_mut()
        {
            let Some(position) = positions.pop() else {
                self.graph_commits.pop();
                continue;
            };
            visited += 1;
            let tree = graph.commit_at(position).root_tree_id().to_owned();
            if !self.contains(&tree) && self.queued.insert(tree) {
                ids.push(tree);
            }
        }
        ids.reverse();
        ids
    }

    /// Once all commits are known, queues their trees, those of the tips first. Returns whether this thread can
    /// continue.
    fn finish_commits(&mut self) -> bool {
        if self.has_read_commits() {
            for tree in std::mem::take(&mut self.roots).into_iter().rev() {
                self.queue_tree(tree);
            }
        }
        self.is_complete() || !(self.trees.is_empty() && self.graph_commits.is_empty())
    }

    /// Returns whether an object is known to be reachable.
    fn is_known_reachable(&self, id: &gix::oid) -> bool {
        self.direct_targets.contains(id) || self.contains(id)
    }

    /// Returns whether all reachable commits are known.
    fn has_all_commits(&self) -> bool {
        self.has_read_commits() && !self.has_unreadable[SliceKind::Commits as usize]
    }

    /// Returns whether no commit is left to be read.
    fn has_read_commits(&self) -> bool {
        self.commits.is_empty() && self.graph_walks.is_empty() && self.in_progress[SliceKind::Commits as usize] == 0
    }

    /// Returns whether all trees were read.
    fn is_complete(&self) -> bool {
        self.has_all_commits()
            && self.roots.is_empty()
            && self.trees.is_empty()
            && self.graph_commits.is_empty()
            && self.in_progress[SliceKind::Trees as usize] == 0
            && !self.has_unreadable[SliceKind::Trees as usize]
    }

    fn contains(&self, id: &gix::oid) -> bool {
        match self.packs.iter().find_map(|pack| Some((pack, pack.index.lookup(id)?))) {
            Some((pack, at)) => pack.get(at),
            None => self.unpacked.contains(id),
        }
    }

    /// Marks an object as reachable; returns whether it was not marked before.
    fn mark(&mut self, id: &gix::oid) -> bool {
        match self.packs.iter_mut().find_map(|pack| pack.index.lookup(id).map(|at| (pack, at))) {
            Some((pack, at)) => pack.set(at),
            None => self.unpacked.insert(id.to_owned()),
        }
    }

    /// Updates the list of packs. Objects marked in a removed pack are stored elsewhere now, and stay marked.
    fn list_packs(&mut self, repository: &Repository) -> Result<()> {
        if self.pack_stamps.as_ref().is_some_and(FileStamps::are_current) {
            return Ok(());
        }
        let folder = repository.path().join("objects/pack");
        let mut stamps = FileStamps::new();
        stamps.record(&folder)?;
        let names = index_names(&folder)?;
        let (stay, gone): (Vec<Pack>, Vec<Pack>) =
            std::mem::take(&mut self.packs).into_iter().partition(|pack| names.contains(&pack.name));
        self.packs = stay;
        let known: HashSet<OsString> = self.packs.iter().map(|pack| pack.name.clone()).collect();
        let mut changed = !gone.is_empty();
        let mut added = Vec::new();
        for name in names.into_iter().filter(|name| !known.contains(name)) {
            // It was removed since, or can be opened the next time.
            if let Ok(index) = pack::index::File::at(folder.join(&name), gix::hash::Kind::Sha1) {
                let bits = vec![0; (index.num_objects() as usize).div_ceil(64)];
                let mut pack = Pack { name, index, bits };
                // A pack that was replaced by this one may stay for a while, and this one is searched first.
                pack.copy_marks(&self.packs);
                added.push(pack);
                changed = true;
            }
        }
        if changed {
            self.packs.append(&mut added);
            // Most objects are in the largest packs, so these are searched first.
            self.packs.sort_by_key(|pack| std::cmp::Reverse(pack.index.num_objects()));
            for id in std::mem::take(&mut self.unpacked) {
                self.mark(&id);
            }
            for pack in gone {
                for at in (0..pack.index.num_objects()).filter(|at| pack.get(*at)) {
                    self.mark(pack.index.oid_at_index(at));
                }
            }
        }
        self.pack_stamps = stamps.are_reliable().then_some(stamps);
        Ok(())
    }

    /// Forgets which objects are reachable, but not the list of packs.
    fn reset(&mut self) {
        let mut packs = std::mem::take(&mut self.packs);
        for pack in &mut packs {
            pack.bits.fill(0);
        }
        *self = Self { packs, pack_stamps: self.pack_stamps.take(), ..Self::default() };
    }

    /// Returns the approximate size in memory, without the indexes of packs, which are memory-mapped.
    fn count_bytes(&self) -> usize {
        let ids =
            self.tips.len() + self.contents.len() + self.direct_targets.len() + self.unpacked.len() + self.queued.len();
        let bits: usize = self.packs.iter().map(|pack| pack.bits.len() * size_of::<u64>()).sum();
        let walked = self.graph_walks.iter().map(|walk| walk.pending.len() + walk.found.len()).sum::<usize>();
        let positions = walked + self.graph_commits.iter().map(|(_, positions)| positions.len()).sum::<usize>();
        let queued_ids = self.commits.len() + self.roots.len() + self.trees.len();
        // A hash table is partly empty, and has one control byte per slot.
        ids * 2 * (size_of::<ObjectId>() + 1)
            + queued_ids * size_of::<ObjectId>()
            + positions * size_of::<Position>()
            + bits
    }
}

/// Returns the names of the indexes in a folder of packs.
fn index_names(folder: &Path) -> Result<HashSet<OsString>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(error.into()),
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names
        .into_iter()
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "idx"))
        .collect())
}

/// Holds the lock of a repository's set while `work` runs.
#[cfg(test)]
pub(crate) fn while_locked<T>(path: &Path, work: impl FnOnce() -> T) -> T {
    let shared = cached(path);
    let _held = lock(&shared);
    work()
}

/// Returns whether the lock of a repository's set is held.
#[cfg(test)]
pub(crate) fn is_locked(path: &Path) -> bool {
    matches!(cached(path).try_lock(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;

    #[test]
    fn a_tree_is_queued_once_however_often_it_is_found() {
        let mut state = ReachableSet::default();
        let id = |number: u8| ObjectId::Sha1([number; 20]);
        for _ in 0..100 {
            state.add_entries(&[(true, id(1)), (true, id(2)), (false, id(3)), (true, id(1))]);
        }
        assert_eq!(state.trees, [id(1), id(2)]);
        let (_, slice) = state.next_slice().expect("something to read");
        assert_eq!(slice, [id(1), id(2)]);
        state.add_entries(&[(true, id(1))]);
        assert!(state.trees.is_empty(), "it is being read");
        assert!(!state.is_complete(), "what is being read is not known yet");
    }

    #[test]
    fn a_slice_reads_a_bounded_number_of_trees_and_returns_unread_ones_to_the_queue() {
        let fixture = Fixture::new();
        // 1000 different folders, in one folder.
        let trees = fixture.small_trees(1000);
        let list: Vec<String> =
            trees.iter().enumerate().map(|(number, tree)| format!("040000 tree {tree}\tf{number}\n")).collect();
        let root = String::from_utf8(fixture.git_with(&["mktree"], list.concat().as_bytes())).expect("UTF-8");
        let root = ObjectId::from_hex(root.trim().as_bytes()).expect("an id");
        let repository = fixture.reopen();
        let shared = Mutex::new(ReachableSet::default());
        lock(&shared).queue_tree(root);
        let deadline = Deadline::within(Duration::from_secs(3600));
        assert!(repository.read_more(&shared, &deadline).expect("read"));
        assert_eq!(lock(&shared).trees.len(), 1000);
        assert!(repository.read_more(&shared, &deadline).expect("read"));
        let remaining = lock(&shared).trees.len();
        assert!((1000 - SLICE_OBJECTS..1000).contains(&remaining), "{remaining}");

        let passed = Deadline::within(Duration::ZERO);
        assert!(matches!(repository.read_more(&shared, &passed), Err(Error::Busy)));
        assert_eq!(lock(&shared).trees.len(), remaining);
        assert_eq!(lock(&shared).in_progress, [0, 0]);
        for _ in 0..1000 {
            repository.read_more(&shared, &deadline).expect("read");
        }
        let state = lock(&shared);
        assert!(state.is_complete() && state.contains(&root) && state.queued.is_empty());
    }
}
