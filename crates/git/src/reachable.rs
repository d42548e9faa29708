//! Which objects can be reached from the refs that people see.
//!
//! Nothing is ever removed from a repository, so what a deleted branch or a forced push leaves behind is still on disk.
//! Asked for by its id it must not be found. To know what can be reached, the commits of all visible refs are walked once,
//! and their trees as far as somebody asks: those of the tips first, the rest of the history only for an object that is
//! not found there. If that takes long, git lists everything beside it: it has bitmaps of large repositories. What was found
//! out is kept as one bit for each object of a pack, and it grows with each push; only when a ref is removed or moved back
//! it has to be found out anew.
//!
//! The walk is done in small pieces by the threads that ask. Objects are read without the lock of the repository, which is
//! held for moments only; a thread that does not get it in time, or no place for a walk, answers [`Error::Busy`].

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
    Error, Refs, Repository, Result, child,
    deadline::Deadline,
    decode::Parts,
    limits::{Buffer, LONGEST_WAIT, Slots},
    marks::Marks,
    objects::DEEPEST_TAG,
    repository::{gix_id, oid},
};

/// How much one thread does before others who ask about the same repository get their turn: how many commits or trees it
/// reads, how many entries and bytes they may have, and how long that may take. The first one is always read.
const SLICE: usize = 256;
const SLICE_ENTRIES: usize = 64 << 10;
const SLICE_BYTES: usize = 4 << 20;
const SLICE_TIME: Duration = Duration::from_millis(100);
/// How many ids are looked up, and how many are marked, before the lock is given back for a moment.
const LOOKED_UP: usize = 256;
const MARKED: usize = 16 << 10;
/// How many commits of a commit-graph are walked at once. They are not read from packs.
const GRAPH_SLICE: usize = 16 << 10;
/// How many commits are read to find out whether a ref has moved forward.
const MOST_ANCESTORS: usize = 10_000;
/// How long one question may take. What was found out until then is kept, so asking again goes on from there.
const LONGEST: Duration = Duration::from_secs(20);
/// How long it may take if it is about one commit: that is asked by threads that many others wait for.
const LONGEST_FOR_COMMIT: Duration = Duration::from_secs(5);
/// How long trees are read here before git is asked to list everything, and how long that may take. It is done for one
/// repository at a time.
const PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_LIST: Duration = Duration::from_secs(30 * 60);
/// How long somebody goes on reading trees beside that before they only wait for it, and how often they look then. What is
/// in the newest commits is found here before git has listed all of the history.
const READING: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);
/// How often a thread tries to get a lock that another one holds before it sleeps, and how long it sleeps between tries.
const LOCK_TRIES: u32 = 64;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// About how many repositories something is kept, and how many bytes in all.
const MOST_KEPT: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
const MOST_BYTES: usize = 64 << 20;

/// The places for threads that read objects to find out what can be reached, in all repositories together.
static WALKS: Slots = Slots::new(4);

/// What is kept of all repositories. It outlives their handles, which go with each repack.
static KEPT: LazyLock<Mutex<Kept>> =
    LazyLock::new(|| Mutex::new(Kept { repositories: LruCache::new(MOST_KEPT), bytes: 0 }));

/// The repository of which git lists everything at this moment.
static LISTED: Mutex<Option<PathBuf>> = Mutex::new(None);

struct Kept {
    /// By the folder of the repository, with how many bytes it takes.
    repositories: LruCache<PathBuf, (Arc<Mutex<Reachable>>, usize)>,
    bytes: usize,
}

/// A set of ids.
type Ids = HashSet<ObjectId, Builder>;

/// What is known of one repository.
#[derive(Default)]
struct Reachable {
    generation: Generation,
    /// The refs that it is about.
    fingerprint: Option<[u8; 32]>,
    /// The commits that the refs lead to.
    tips: Arc<Ids>,
    /// Trees and blobs that refs lead to.
    contents: Ids,
    /// The objects that the refs themselves name, annotated tags among them.
    named: Ids,
    packs: Vec<Pack>,
    /// When the packs were listed.
    listed: Option<Marks>,
    /// Reachable objects that are in none of the packs.
    unpacked: Ids,
    /// Commits that are still to be read, the next one last.
    commits: Vec<ObjectId>,
    /// Walks over commits of a commit-graph that are not at their end.
    graph_walks: Vec<GraphWalk>,
    /// Trees of commits in the order in which these were found; they are read when all commits are known.
    roots: Vec<ObjectId>,
    /// Trees that are still to be read, the next one last.
    trees: Vec<ObjectId>,
    /// Commits of a commit-graph whose trees are still to be read, the next one last.
    graph_commits: Vec<(Arc<Graph>, Vec<Position>)>,
    /// All of `commits` and `trees`, and what is being read at this moment.
    queued: Ids,
    /// How many commits and how many trees are being read at this moment.
    reading: [usize; 2],
    /// Whether there are commits, and trees, that are too large to be read here; git lists what they lead to.
    unread: [bool; 2],
}

/// Tells whether what was known has been forgotten since: each [`Reachable`] that begins anew has another one.
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
    waiting: Vec<Position>,
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

    /// Sets a bit; says whether it was not set before.
    fn set(&mut self, at: u32) -> bool {
        let fresh = !self.get(at);
        self.bits[at as usize / 64] |= 1 << (at % 64);
        fresh
    }
}

impl Repository {
    /// Which of these objects can be reached from a visible ref, in the order given. What does not exist cannot.
    ///
    /// The first question about a repository walks its commits. A tree or a blob that is not in the newest commits may take
    /// a walk over all trees of the history; if that takes too long, the answer is [`Error::Indexing`].
    pub fn which_are_reachable(&self, ids: &[Oid]) -> Result<Vec<bool>> {
        self.answers_within(LONGEST, ids)
    }

    /// Which of these commits can be reached from a visible ref. As [`Self::which_are_reachable`], but fails earlier: for threads
    /// that many others wait for.
    pub fn which_commits_are_reachable(&self, ids: &[Oid]) -> Result<Vec<bool>> {
        self.answers_within(LONGEST_FOR_COMMIT, ids)
    }

    fn answers_within(&self, time: Duration, ids: &[Oid]) -> Result<Vec<bool>> {
        let mut answers = vec![false; ids.len()];
        self.decide(ids, &Deadline::within(time), |at, is_reachable| {
            answers[at] = is_reachable;
            ControlFlow::Continue(())
        })?;
        Ok(answers)
    }

    /// One of these objects that cannot be reached from a visible ref, or does not exist; `None` if all of them can. Ends
    /// with the first such object, and else as [`Self::which_are_reachable`].
    pub fn first_unreachable(&self, ids: &[Oid]) -> Result<Option<Oid>> {
        let mut found = None;
        self.decide(ids, &Deadline::within(LONGEST), |at, is_reachable| {
            if is_reachable {
                return ControlFlow::Continue(());
            }
            found = Some(ids[at]);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Whether an object can be reached from a visible ref.
    pub(crate) fn is_reachable(&self, id: Oid) -> Result<bool> {
        Ok(self.answers_within(LONGEST_FOR_COMMIT, &[id])? == [true])
    }

    /// Finds out for each object whether it can be reached, and calls `answer` with its place among the ids, in any order,
    /// until that breaks off.
    fn decide(
        &self,
        ids: &[Oid],
        deadline: &Deadline,
        mut answer: impl FnMut(usize, bool) -> ControlFlow<()>,
    ) -> Result<()> {
        let (start, mut refs) = (Instant::now(), self.refs()?);
        let shared = kept(self.path());
        drop(self.state_of(&shared, &refs, deadline)?);
        self.keep(&shared)?;
        // What takes a walk to be decided, and whether it is a commit.
        let mut undecided: Vec<(bool, usize)> = Vec::new();
        let mut inner_tags = None;
        for (number, some) in ids.chunks(LOOKED_UP).enumerate() {
            deadline.check()?;
            let known: Vec<bool> = {
                let state = self.state_of(&shared, &refs, deadline)?;
                some.iter().map(|id| state.is_known(&gix_id(*id))).collect()
            };
            for (place, (id, known)) in some.iter().zip(known).enumerate() {
                let at = number * LOOKED_UP + place;
                // Looked up without the lock: it may be at the end of a long chain of deltas.
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
                                    None => inner_tags.insert(self.inner_tags(&refs, deadline)?),
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
        // Taken from the end: commits first, since all of them are known long before all trees.
        undecided.sort_unstable_by_key(|(is_commit, at)| (*is_commit, std::cmp::Reverse(*at)));
        let mut shared = shared;
        while !undecided.is_empty() {
            // Always about the newest refs: questions about older ones would undo what is known about newer ones.
            refs = self.refs()?;
            let looked_up = {
                let state = self.state_of(&shared, &refs, deadline)?;
                let (knows_commits, is_complete) = (state.knows_commits(), state.is_complete());
                let mut looked_up = 0;
                // Each is looked up until it is decided, and then the next one, so this stays linear.
                while looked_up < LOOKED_UP
                    && let Some((is_commit, at)) = undecided.last().copied()
                {
                    let is_known = state.is_known(&gix_id(ids[at]));
                    let is_decided = is_known || is_complete || is_commit && knows_commits;
                    if !is_decided {
                        break;
                    }
                    undecided.pop();
                    looked_up += 1;
                    if answer(at, is_known).is_break() {
                        return Ok(());
                    }
                }
                looked_up
            };
            match deadline.check() {
                Err(Error::Busy) => return Err(Error::Indexing),
                checked => checked?,
            }
            if looked_up == LOOKED_UP || undecided.is_empty() {
                continue;
            }
            let waits = start.elapsed() > READING && is_listed(self.path());
            if waits || !self.read_more(&shared, deadline)? {
                // Git lists everything, or other threads read what is left.
                thread::sleep(PAUSE);
            }
            self.keep(&shared)?;
            if !waits && start.elapsed() > PATIENCE {
                self.list_beside(&refs);
            }
            shared = kept(self.path());
        }
        Ok(())
    }

    /// The tags that annotated tags lead to on the way to something else. There are few of them, so they are looked for only
    /// when somebody asks for a tag that no ref names.
    fn inner_tags(&self, refs: &Refs, deadline: &Deadline) -> Result<Ids> {
        let (mut found, mut buffer) = (Ids::default(), Vec::new());
        for one in refs.iter().filter(|one| one.peeled.is_some()) {
            let (mut at, end) = (gix_id(one.target), gix_id(one.leads_to()));
            for _ in 0..DEEPEST_TAG {
                deadline.check()?;
                match self.target_of_tag(&at, &mut buffer)? {
                    Some(target) if target != end => at = target,
                    Some(_) | None => break,
                }
                found.insert(at);
            }
        }
        Ok(found)
    }

    /// What is known about these refs. Others may have asked about older or newer ones since the last time.
    fn state_of<'a>(
        &self,
        shared: &'a Mutex<Reachable>,
        refs: &Refs,
        deadline: &Deadline,
    ) -> Result<MutexGuard<'a, Reachable>> {
        let fingerprint = refs.fingerprint();
        loop {
            self.follow(shared, refs, deadline, true)?;
            let state = lock_in_time(shared)?;
            if state.fingerprint == Some(fingerprint) {
                return Ok(state);
            }
            drop(state);
            deadline.check()?;
        }
    }

    /// Notes how much is kept of this repository.
    fn keep(&self, shared: &Arc<Mutex<Reachable>>) -> Result<()> {
        let bytes = lock_in_time(shared)?.count_bytes();
        keep(self.path(), shared, bytes);
        Ok(())
    }

    /// Makes what is known be about these refs. Objects are looked up without the lock.
    fn follow(&self, shared: &Mutex<Reachable>, refs: &Refs, deadline: &Deadline, takes_place: bool) -> Result<()> {
        let fingerprint = refs.fingerprint();
        loop {
            let known = {
                let mut state = lock_in_time(shared)?;
                state.list_packs(self)?;
                if state.fingerprint == Some(fingerprint) {
                    return Ok(());
                }
                Arc::clone(&state.tips)
            };
            let _place = if takes_place { Some(WALKS.take()?) } else { None };
            let (mut named, mut tips, mut contents) = (Ids::default(), Ids::default(), Vec::new());
            for one in refs.iter() {
                deadline.step()?;
                named.insert(gix_id(one.target));
                let id = gix_id(one.leads_to());
                if tips.contains(&id) {
                    continue;
                }
                match if known.contains(&id) { Some(Kind::Commit) } else { self.kind(&id)? } {
                    Some(Kind::Commit) => drop(tips.insert(id)),
                    Some(kind @ (Kind::Tree | Kind::Blob)) => contents.push((id, kind)),
                    Some(Kind::Tag) | None => {}
                }
            }
            let left: Vec<Oid> = known.difference(&tips).map(|id| oid(id)).collect();
            let all: Vec<Oid> = tips.iter().map(|id| oid(id)).collect();
            let keeps_commits = left.is_empty()
                || self
                    .history()
                    .ancestors_within(&left, &all, MOST_ANCESTORS)?
                    .is_some_and(|found| !found.contains(&false));
            let graph = self.commit_graph();
            let mut state = lock_in_time(shared)?;
            if !Arc::ptr_eq(&state.tips, &known) {
                // Another thread was faster, and maybe with other refs.
                continue;
            }
            state.take_refs(Targets { named, tips, contents }, keeps_commits, graph.as_ref());
            state.fingerprint = Some(fingerprint);
            return Ok(());
        }
    }

    /// Reads some commits or trees; says whether there was anything to do.
    fn read_more(&self, shared: &Mutex<Reachable>, deadline: &Deadline) -> Result<bool> {
        let _place = WALKS.take()?;
        let mut state = lock_in_time(shared)?;
        if state.walk_graphs()? {
            return Ok(true);
        }
        let Some((what, ids)) = state.take_slice() else { return Ok(state.finish_commits()) };
        let mut slice = Slice { shared, generation: state.generation, what, left: ids };
        drop(state);
        match what {
            What::Commits => self.read_commits(&mut slice, deadline)?,
            What::Trees => self.read_trees(&mut slice, deadline)?,
        }
        Ok(true)
    }

    fn read_commits(&self, slice: &mut Slice<'_>, deadline: &Deadline) -> Result<()> {
        let (start, graph) = (Instant::now(), self.commit_graph());
        let (mut buffer, mut entries) = (Vec::new(), 0);
        while let Some(id) = slice.left.last().copied() {
            deadline.step()?;
            // Of a very large one the beginning, which names its tree and its parents.
            let commit = self.start_of(&id, Kind::Commit, &mut buffer)?;
            let commit = commit.ok_or_else(|| Error::Broken(format!("the commit {id} is missing")))?;
            let Parts { tree, parents, .. } = Parts::of(commit.data);
            // The author comes after all parents.
            let is_read = !commit.is_cut || commit.data.windows(8).any(|bytes| bytes == b"\nauthor ");
            entries += 1 + parents.len();
            let goes_on = slice.done(|state| {
                state.mark(&id);
                state.unread[What::Commits as usize] |= !is_read;
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

    /// Reads trees and marks what is in them.
    fn read_trees(&self, slice: &mut Slice<'_>, deadline: &Deadline) -> Result<()> {
        let start = Instant::now();
        let (mut buffer, mut entries, mut bytes) = (Buffer::default(), 0, 0);
        while let Some(id) = slice.left.last().copied() {
            deadline.step()?;
            let (data, is_read) = match self.tree_bytes(&id, &mut buffer) {
                Ok(data) => (data, true),
                // Its files are found once git has listed everything.
                Err(Error::TooLarge(_)) => (&[][..], false),
                Err(error) => return Err(error),
            };
            bytes += data.len();
            let mut found = Vec::new();
            for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
                let entry = entry.map_err(Error::broken)?;
                if !entry.mode.is_commit() {
                    found.push((entry.mode.is_tree(), entry.oid.to_owned()));
                }
            }
            entries += found.len();
            let mut goes_on = true;
            let mut parts = found.chunks(MARKED).peekable();
            while let Some(part) = parts.next()
                && goes_on
                && parts.peek().is_some()
            {
                goes_on = slice.apply(|state| state.take_entries(part))?;
            }
            // The tree is marked with the last of its entries, so that one that could not be read is not taken for one whose
            // content is known.
            let rest = found.chunks(MARKED).next_back().unwrap_or_default();
            goes_on = goes_on
                && slice.done(|state| {
                    state.take_entries(rest);
                    state.mark(&id);
                    state.unread[What::Trees as usize] |= !is_read;
                })?;
            let is_enough = entries > SLICE_ENTRIES || bytes > SLICE_BYTES || start.elapsed() > SLICE_TIME;
            if !goes_on || is_enough {
                break;
            }
        }
        Ok(())
    }

    /// Lets git list everything on a thread of its own, unless it is busy with that.
    fn list_beside(&self, refs: &Arc<Refs>) {
        let mut listed = lock(&LISTED);
        if listed.is_some() {
            return;
        }
        let (handle, refs) = (Arc::clone(&self.handle), Arc::clone(refs));
        let list = move || {
            // Whatever happens, the next one gets its turn.
            let _turn = Turn;
            let repository = Repository::new(handle);
            match Reachable::list(&repository, &refs) {
                Ok(whole) => {
                    let (bytes, kept) = (whole.count_bytes(), kept(repository.path()));
                    *lock(&kept) = whole;
                    keep(repository.path(), &kept, bytes);
                }
                Err(error) => {
                    tracing::warn!(path = %repository.path().display(), %error, "what can be reached cannot be listed");
                }
            }
        };
        if thread::Builder::new().name("reachable".into()).spawn(list).is_ok() {
            *listed = Some(self.path().to_owned());
        }
    }

    /// What git lists as reachable, for tests: answers which of some objects are.
    #[cfg(test)]
    pub(crate) fn list_reachable(&self) -> Result<impl Fn(&[Oid]) -> Vec<bool>> {
        let whole = Reachable::list(self, &*self.refs()?)?;
        assert!(whole.is_complete(), "nothing is left to be read");
        let is_there = move |id: &Oid| whole.named.contains(&gix_id(*id)) || whole.contains(&gix_id(*id));
        Ok(move |ids: &[Oid]| ids.iter().map(&is_there).collect())
    }
}

/// The turn of a thread that lets git list everything; ends with its value.
struct Turn;

impl Drop for Turn {
    fn drop(&mut self) {
        *lock(&LISTED) = None;
    }
}

/// Whether git lists everything of the repository in this folder.
fn is_listed(path: &Path) -> bool {
    lock(&LISTED).as_deref() == Some(path)
}

/// What is known of the repository in a folder.
fn kept(path: &Path) -> Arc<Mutex<Reachable>> {
    let mut all = lock(&KEPT);
    if let Some((found, _)) = all.repositories.get(path) {
        return Arc::clone(found);
    }
    let fresh = Arc::default();
    let pushed = all.repositories.push(path.to_owned(), (Arc::clone(&fresh), 0));
    all.bytes -= pushed.map_or(0, |(_, (_, bytes))| bytes);
    fresh
}

/// Notes how much one repository takes, and lets go of those that nobody has asked about the longest if it is too much in
/// all.
fn keep(path: &Path, one: &Arc<Mutex<Reachable>>, bytes: usize) {
    let mut all = lock(&KEPT);
    let all = &mut *all;
    if let Some((found, noted)) = all.repositories.peek_mut(path)
        && Arc::ptr_eq(found, one)
    {
        all.bytes = all.bytes - *noted + bytes;
        *noted = bytes;
    }
    // Not what was just noted: it would be found out anew for ever.
    while all.bytes > MOST_BYTES
        && all.repositories.len() > 1
        && let Some((_, (_, bytes))) = all.repositories.pop_lru()
    {
        all.bytes -= bytes;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of what is known; [`Error::Busy`] if others hold it for too long.
fn lock_in_time(shared: &Mutex<Reachable>) -> Result<MutexGuard<'_, Reachable>> {
    let (start, mut tries) = (Instant::now(), 0);
    loop {
        match shared.try_lock() {
            Ok(state) => return Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => {
                // Whatever was being noted is noted by halves.
                shared.clear_poison();
                let mut state = poisoned.into_inner();
                state.reset();
                return Ok(state);
            }
            Err(TryLockError::WouldBlock) if start.elapsed() >= LONGEST_WAIT => return Err(Error::Busy),
            // Almost always it is held for microseconds.
            Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => thread::yield_now(),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
        }
        tries += 1;
    }
}

/// Commits or trees.
#[derive(Clone, Copy)]
enum What {
    Commits,
    Trees,
}

/// Objects that a thread has taken to read. Those that it does not read, for whatever reason, are given back.
struct Slice<'a> {
    shared: &'a Mutex<Reachable>,
    generation: Generation,
    what: What,
    /// What is still to be read, the next one last.
    left: Vec<ObjectId>,
}

impl Slice<'_> {
    /// Notes something that was found out; says whether that is still of use.
    fn apply(&self, note: impl FnOnce(&mut Reachable)) -> Result<bool> {
        let mut state = lock_in_time(self.shared)?;
        let is_wanted = state.generation == self.generation;
        if is_wanted {
            note(&mut state);
        }
        Ok(is_wanted)
    }

    /// Notes what was found out about the next object, which is thereby done; says whether that is still of use.
    fn done(&mut self, note: impl FnOnce(&mut Reachable)) -> Result<bool> {
        let Some(id) = self.left.last().copied() else { return Ok(false) };
        let what = self.what;
        let is_wanted = self.apply(|state| {
            note(state);
            state.queued.remove(&id);
            state.reading[what as usize] -= 1;
        })?;
        self.left.pop();
        Ok(is_wanted)
    }
}

impl Drop for Slice<'_> {
    fn drop(&mut self) {
        if self.left.is_empty() {
            return;
        }
        let mut state = lock(self.shared);
        if state.generation == self.generation {
            state.reading[self.what as usize] -= self.left.len();
            match self.what {
                What::Commits => state.commits.append(&mut self.left),
                What::Trees => state.trees.append(&mut self.left),
            }
        }
    }
}

/// What refs lead to.
struct Targets {
    named: Ids,
    tips: Ids,
    contents: Vec<(ObjectId, Kind)>,
}

impl Reachable {
    /// All that can be reached from some refs, as git lists it.
    fn list(repository: &Repository, refs: &Refs) -> Result<Self> {
        let whole = Mutex::new(Self::default());
        repository.follow(&whole, refs, &Deadline::within(LONGEST_LIST), false)?;
        let mut whole = whole.into_inner().unwrap_or_else(PoisonError::into_inner);
        // The ids and not the refs, which may have moved since.
        let mut starts = tempfile::tempfile()?;
        for id in whole.tips.iter().chain(&whole.contents) {
            writeln!(starts, "{id}")?;
        }
        starts.rewind()?;
        let mut command = child::git(repository.path());
        command.args(["rev-list", "--objects", "--use-bitmap-index", "--no-object-names", "--stdin"]).stdin(starts);
        child::each_line(command, LONGEST_LIST, |line| {
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

    /// Makes this about other refs. If commits may have been lost, everything is found out anew.
    fn take_refs(&mut self, targets: Targets, keeps_commits: bool, graph: Option<&Arc<Graph>>) {
        let Targets { named, tips, contents } = targets;
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
        (self.named, self.tips, self.contents) = (named, Arc::new(tips), ids);
    }

    /// Lets a commit be read, unless it is known or queued.
    fn queue_commit(&mut self, graph: Option<&Arc<Graph>>, id: ObjectId) {
        if self.contains(&id) {
            return;
        }
        if let Some((graph, place)) = graph.and_then(|graph| Some((graph, graph.lookup(id)?))) {
            // The commit-graph holds with every commit all of its past.
            self.roots.push(graph.commit_at(place).root_tree_id().to_owned());
            match self.graph_walks.last_mut().filter(|walk| Arc::ptr_eq(&walk.graph, graph)) {
                Some(walk) => walk.waiting.push(place),
                None => self.graph_walks.push(GraphWalk {
                    graph: Arc::clone(graph),
                    waiting: vec![place],
                    found: Vec::new(),
                }),
            }
        } else if self.queued.insert(id) {
            self.commits.push(id);
        }
    }

    /// Lets a tree be read, unless it is known or queued.
    fn queue_tree(&mut self, id: ObjectId) {
        if !self.contains(&id) && self.queued.insert(id) {
            self.trees.push(id);
        }
    }

    /// Takes in what a tree holds: for each entry whether it is a tree, and its id.
    fn take_entries(&mut self, entries: &[(bool, ObjectId)]) {
        for (is_tree, id) in entries {
            if *is_tree {
                self.queue_tree(*id);
            } else {
                self.mark(id);
            }
        }
    }

    /// Walks over some commits of a commit-graph; says whether there were any.
    fn walk_graphs(&mut self) -> Result<bool> {
        let Some(mut walk) = self.graph_walks.pop() else { return Ok(false) };
        let mut left = GRAPH_SLICE;
        while left > 0
            && let Some(place) = walk.waiting.pop()
        {
            left -= 1;
            let commit = walk.graph.commit_at(place);
            if !self.mark(commit.id()) {
                continue;
            }
            walk.found.push(place);
            for parent in commit.iter_parents() {
                left = left.saturating_sub(1);
                match parent {
                    Ok(parent) => walk.waiting.push(parent),
                    Err(error) => {
                        // A commit is marked whose past is not.
                        self.reset();
                        return Err(Error::broken(error));
                    }
                }
            }
        }
        if walk.waiting.is_empty() {
            // Found from the tips on, and taken from the end.
            walk.found.reverse();
            self.graph_commits.push((walk.graph, walk.found));
        } else {
            self.graph_walks.push(walk);
        }
        Ok(true)
    }

    /// The next objects to be read; `None` if there are none at this moment.
    fn take_slice(&mut self) -> Option<(What, Vec<ObjectId>)> {
        let (what, mut ids) = if self.commits.is_empty() {
            let start = self.trees.len().saturating_sub(SLICE);
            (What::Trees, self.trees.split_off(start))
        } else {
            let start = self.commits.len().saturating_sub(SLICE);
            (What::Commits, self.commits.split_off(start))
        };
        if ids.is_empty() && self.has_read_commits() && self.roots.is_empty() {
            ids = self.next_roots();
        }
        self.reading[what as usize] += ids.len();
        (!ids.is_empty()).then_some((what, ids))
    }

    /// Trees of commits in the commit-graph, as they are to be read, the next one last.
    fn next_roots(&mut self) -> Vec<ObjectId> {
        let (mut ids, mut looked_at) = (Vec::new(), 0);
        while ids.len() < SLICE
            && looked_at < GRAPH_SLICE
            && let Some((graph, places)) = self.graph_commits.last_mut()
        {
            let Some(place) = places.pop() else {
                self.graph_commits.pop();
                continue;
            };
            looked_at += 1;
            let tree = graph.commit_at(place).root_tree_id().to_owned();
            if !self.contains(&tree) && self.queued.insert(tree) {
                ids.push(tree);
            }
        }
        ids.reverse();
        ids
    }

    /// Once all commits are known, lets their trees be read, those of the tips first. Says whether this thread can
    /// go on.
    fn finish_commits(&mut self) -> bool {
        if self.has_read_commits() {
            for tree in std::mem::take(&mut self.roots).into_iter().rev() {
                self.queue_tree(tree);
            }
        }
        self.is_complete() || !(self.trees.is_empty() && self.graph_commits.is_empty())
    }

    /// Whether an object is known to be reachable.
    fn is_known(&self, id: &gix::oid) -> bool {
        self.named.contains(id) || self.contains(id)
    }

    /// Whether all commits have been found.
    fn knows_commits(&self) -> bool {
        self.has_read_commits() && !self.unread[What::Commits as usize]
    }

    /// Whether no commit is left to be read.
    fn has_read_commits(&self) -> bool {
        self.commits.is_empty() && self.graph_walks.is_empty() && self.reading[What::Commits as usize] == 0
    }

    /// Whether all trees have been read.
    fn is_complete(&self) -> bool {
        self.knows_commits()
            && self.roots.is_empty()
            && self.trees.is_empty()
            && self.graph_commits.is_empty()
            && self.reading[What::Trees as usize] == 0
            && !self.unread[What::Trees as usize]
    }

    fn contains(&self, id: &gix::oid) -> bool {
        match self.packs.iter().find_map(|pack| Some((pack, pack.index.lookup(id)?))) {
            Some((pack, at)) => pack.get(at),
            None => self.unpacked.contains(id),
        }
    }

    /// Marks an object as reachable; says whether it was not before.
    fn mark(&mut self, id: &gix::oid) -> bool {
        match self.packs.iter_mut().find_map(|pack| pack.index.lookup(id).map(|at| (pack, at))) {
            Some((pack, at)) => pack.set(at),
            None => self.unpacked.insert(id.to_owned()),
        }
    }

    /// Takes in which packs there are. What is marked in one that is gone lies elsewhere now, and stays marked.
    fn list_packs(&mut self, repository: &Repository) -> Result<()> {
        if self.listed.as_ref().is_some_and(Marks::stand) {
            return Ok(());
        }
        let folder = repository.path().join("objects/pack");
        let mut marks = Marks::new();
        marks.note(&folder)?;
        let names = index_names(&folder)?;
        let (stay, gone): (Vec<Pack>, Vec<Pack>) =
            std::mem::take(&mut self.packs).into_iter().partition(|pack| names.contains(&pack.name));
        self.packs = stay;
        let known: HashSet<OsString> = self.packs.iter().map(|pack| pack.name.clone()).collect();
        let mut changed = !gone.is_empty();
        for name in names.into_iter().filter(|name| !known.contains(name)) {
            // One that cannot be opened was removed since, or is found the next time.
            if let Ok(index) = pack::index::File::at(folder.join(&name), gix::hash::Kind::Sha1) {
                let bits = vec![0; (index.num_objects() as usize).div_ceil(64)];
                self.packs.push(Pack { name, index, bits });
                changed = true;
            }
        }
        if changed {
            // Most objects are in the largest packs, so these are looked at first.
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
        self.listed = marks.are_settled().then_some(marks);
        Ok(())
    }

    /// Forgets what is reachable, but not which packs there are.
    fn reset(&mut self) {
        let mut packs = std::mem::take(&mut self.packs);
        for pack in &mut packs {
            pack.bits.fill(0);
        }
        *self = Self { packs, listed: self.listed.take(), ..Self::default() };
    }

    /// About how many bytes this takes, without the indexes of packs, which are mapped from their files.
    fn count_bytes(&self) -> usize {
        let ids = self.tips.len() + self.contents.len() + self.named.len() + self.unpacked.len() + self.queued.len();
        let bits: usize = self.packs.iter().map(|pack| pack.bits.len() * size_of::<u64>()).sum();
        let walked = self.graph_walks.iter().map(|walk| walk.waiting.len() + walk.found.len()).sum::<usize>();
        let places = walked + self.graph_commits.iter().map(|(_, places)| places.len()).sum::<usize>();
        let listed = self.commits.len() + self.roots.len() + self.trees.len();
        // A table is not full, and each place has a byte of its own.
        ids * 2 * (size_of::<ObjectId>() + 1) + listed * size_of::<ObjectId>() + places * size_of::<Position>() + bits
    }
}

/// The names of the indexes in a folder of packs.
fn index_names(folder: &Path) -> Result<HashSet<OsString>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(error.into()),
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names.into_iter().filter(|name| Path::new(name).extension().is_some_and(|it| it == "idx")).collect())
}

/// Holds the lock of what is known of a repository while something else happens.
#[cfg(test)]
pub(crate) fn while_locked<T>(path: &Path, work: impl FnOnce() -> T) -> T {
    let shared = kept(path);
    let _held = lock(&shared);
    work()
}

/// Whether somebody holds the lock of what is known of a repository.
#[cfg(test)]
pub(crate) fn is_locked(path: &Path) -> bool {
    matches!(kept(path).try_lock(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;

    #[test]
    fn a_tree_is_queued_once_however_often_it_is_found() {
        let mut state = Reachable::default();
        let id = |number: u8| ObjectId::Sha1([number; 20]);
        for _ in 0..100 {
            state.take_entries(&[(true, id(1)), (true, id(2)), (false, id(3)), (true, id(1))]);
        }
        assert_eq!(state.trees, [id(1), id(2)]);
        let (_, slice) = state.take_slice().expect("something to read");
        assert_eq!(slice, [id(1), id(2)]);
        state.take_entries(&[(true, id(1))]);
        assert!(state.trees.is_empty(), "it is being read");
        assert!(!state.is_complete(), "what is being read is not known yet");
    }

    #[test]
    fn one_turn_reads_a_bounded_number_of_trees_and_gives_back_what_it_could_not_read() {
        let fixture = Fixture::new();
        // 1000 folders that differ, in one folder.
        let trees = fixture.small_trees(1000);
        let list: Vec<String> =
            trees.iter().enumerate().map(|(number, tree)| format!("040000 tree {tree}\tf{number}\n")).collect();
        let root = String::from_utf8(fixture.git_with(&["mktree"], list.concat().as_bytes())).expect("UTF-8");
        let root = ObjectId::from_hex(root.trim().as_bytes()).expect("an id");
        let repository = fixture.open_anew();
        let shared = Mutex::new(Reachable::default());
        lock(&shared).queue_tree(root);
        let deadline = Deadline::within(Duration::from_secs(3600));
        assert!(repository.read_more(&shared, &deadline).expect("read"));
        assert_eq!(lock(&shared).trees.len(), 1000);
        assert!(repository.read_more(&shared, &deadline).expect("read"));
        let left = lock(&shared).trees.len();
        assert!((1000 - SLICE..1000).contains(&left), "{left}");

        let passed = Deadline::within(Duration::ZERO);
        assert!(matches!(repository.read_more(&shared, &passed), Err(Error::Busy)));
        assert_eq!(lock(&shared).trees.len(), left);
        assert_eq!(lock(&shared).reading, [0, 0]);
        for _ in 0..1000 {
            repository.read_more(&shared, &deadline).expect("read");
        }
        let state = lock(&shared);
        assert!(state.is_complete() && state.contains(&root) && state.queued.is_empty());
    }
}
