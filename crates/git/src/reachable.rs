//! Which objects can be reached from the refs that people see.
//!
//! Nothing is ever removed from a repository, so what a deleted branch or a forced push leaves behind is still on disk.
//! Asked for by its id it must not be found. To know what can be reached, the commits of all visible refs are walked once,
//! and their trees as far as somebody asks: those of the tips first, the rest of the history only for an object that is
//! not found there. If that takes long, git lists everything beside it: it has bitmaps of large repositories. What was found
//! out is kept as one bit for each object of a pack, and it grows with each push; only when a ref is removed or moved back
//! it has to be found out anew.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs,
    io::{self, Seek as _, Write as _},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
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
    decode::Parts,
    marks::Marks,
    repository::{gix_id, oid},
};

/// How many trees are read before others who ask about the same repository get their turn.
const SLICE: usize = 256;
/// How long one question may take. What was found out until then is kept, so asking again goes on from there.
const LONGEST: Duration = Duration::from_secs(20);
/// How long trees are read here before git is asked to list everything, and how long that may take. It is done for one
/// repository at a time.
const PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_LIST: Duration = Duration::from_secs(30 * 60);
/// How long somebody goes on reading trees beside that before they only wait for it, and how often they look then. What is
/// in the newest commits is found here before git has listed all of the history.
const READING: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);
/// About how many repositories something is kept, and how many bytes in all.
const MOST_KEPT: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
const MOST_BYTES: usize = 64 << 20;

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
    /// The refs that it is about.
    fingerprint: Option<[u8; 32]>,
    /// The commits that the refs lead to.
    tips: Ids,
    /// Trees and blobs that refs lead to.
    contents: Ids,
    /// The objects that the refs themselves name, annotated tags among them.
    named: Ids,
    packs: Vec<Pack>,
    /// When the packs were listed.
    listed: Option<Marks>,
    /// Reachable objects that are in none of the packs.
    unpacked: Ids,
    /// Trees that are still to be read.
    trees: Vec<ObjectId>,
    /// Commits whose trees are still to be read, the next one last.
    commits: Vec<(Arc<Graph>, Vec<Position>)>,
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
        let refs = self.refs()?;
        let ids: Vec<ObjectId> = ids.iter().map(|id| gix_id(*id)).collect();
        let mut answers = vec![false; ids.len()];
        let mut undecided: Vec<usize> = Vec::new();
        let start = Instant::now();
        let mut first = true;
        loop {
            let kept = kept(self.path());
            let mut reachable = lock(&kept);
            reachable.follow(self, &refs)?;
            if std::mem::take(&mut first) {
                for (at, id) in ids.iter().enumerate() {
                    match reachable.answer(self, id)? {
                        Some(answer) => answers[at] = answer,
                        None => undecided.push(at),
                    }
                }
            } else {
                undecided.retain(|at| {
                    answers[*at] = reachable.contains(&ids[*at]);
                    !answers[*at]
                });
            }
            let waits = start.elapsed() > READING && is_listed(self.path());
            if undecided.is_empty() || reachable.is_complete() {
                undecided.clear();
            } else if !waits {
                if let Err(error) = reachable.read_trees(self, SLICE) {
                    // A tree was taken from those that wait and is not marked.
                    reachable.reset();
                    return Err(error);
                }
            }
            let bytes = reachable.count_bytes();
            drop(reachable);
            keep(self.path(), &kept, bytes);
            if undecided.is_empty() {
                return Ok(answers);
            }
            if start.elapsed() > LONGEST {
                return Err(Error::Indexing);
            }
            if waits {
                thread::sleep(PAUSE);
            } else if start.elapsed() > PATIENCE {
                self.list_beside(&refs);
            }
        }
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

    /// Whether an object can be reached from a visible ref.
    pub(crate) fn is_reachable(&self, id: Oid) -> Result<bool> {
        Ok(self.which_are_reachable(&[id])? == [true])
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
    while all.bytes > MOST_BYTES
        && let Some((_, (_, bytes))) = all.repositories.pop_lru()
    {
        all.bytes -= bytes;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reachable {
    /// All that can be reached from some refs, as git lists it.
    fn list(repository: &Repository, refs: &Refs) -> Result<Self> {
        let mut whole = Self::default();
        whole.follow(repository, refs)?;
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
        whole.trees.clear();
        whole.commits.clear();
        Ok(whole)
    }

    /// Makes this about the refs as they are now.
    fn follow(&mut self, repository: &Repository, refs: &Refs) -> Result<()> {
        self.list_packs(repository)?;
        let fingerprint = refs.fingerprint();
        if self.fingerprint == Some(fingerprint) {
            return Ok(());
        }
        match self.take_refs(repository, refs) {
            Ok(()) => self.fingerprint = Some(fingerprint),
            Err(error) => {
                // A commit may be marked whose past is not.
                self.reset();
                return Err(error);
            }
        }
        Ok(())
    }

    fn take_refs(&mut self, repository: &Repository, refs: &Refs) -> Result<()> {
        let (mut named, mut tips, mut contents) = (Ids::default(), Ids::default(), Ids::default());
        for one in refs.iter() {
            named.insert(gix_id(one.target));
            let id = gix_id(one.leads_to());
            let is_known = self.tips.contains(&id);
            match if is_known { Some(Kind::Commit) } else { repository.header(&id)?.map(|(kind, _)| kind) } {
                Some(Kind::Commit) => drop(tips.insert(id)),
                Some(Kind::Tree | Kind::Blob) => drop(contents.insert(id)),
                Some(Kind::Tag) | None => {}
            }
        }
        let left: Vec<Oid> = self.tips.difference(&tips).map(|id| oid(id)).collect();
        let all: Vec<Oid> = tips.iter().map(|id| oid(id)).collect();
        let loses_commits =
            !left.is_empty() && repository.history().which_are_ancestors_of(&left, &all)?.contains(&false);
        if loses_commits || !self.contents.is_subset(&contents) {
            self.reset();
        }
        let new: Vec<ObjectId> = tips.difference(&self.tips).copied().collect();
        (self.named, self.tips) = (named, tips);
        self.add_commits(repository, new)?;
        for id in contents.difference(&self.contents).copied().collect::<Vec<_>>() {
            match repository.header(&id)? {
                Some((Kind::Tree, _)) => self.trees.push(id),
                _ => drop(self.mark(&id)),
            }
        }
        self.contents = contents;
        Ok(())
    }

    /// Marks commits and their past; their trees are read later.
    fn add_commits(&mut self, repository: &Repository, starts: Vec<ObjectId>) -> Result<()> {
        let graph = repository.commit_graph();
        let mut buffer = Vec::new();
        let (mut waiting, mut places) = (starts, Vec::new());
        let mut roots = Vec::new();
        while let Some(id) = waiting.pop() {
            if let Some(place) = graph.as_deref().and_then(|graph| graph.lookup(id)) {
                // The commit-graph holds with every commit all of its past.
                places.push(place);
                continue;
            }
            if !self.mark(&id) {
                continue;
            }
            // Of a very large one the beginning, which names its tree and its parents.
            let commit = repository.start_of(&id, Kind::Commit, &mut buffer)?;
            let commit = commit.ok_or_else(|| Error::Broken(format!("the commit {id} is missing")))?;
            let parts = Parts::of(commit.data);
            roots.extend(parts.tree);
            waiting.extend(parts.parents);
        }
        let Some(graph) = graph else {
            self.add_roots(roots);
            return Ok(());
        };
        roots.extend(places.iter().map(|place| graph.commit_at(*place).root_tree_id().to_owned()));
        let mut found = Vec::new();
        while let Some(place) = places.pop() {
            let commit = graph.commit_at(place);
            if !self.mark(commit.id()) {
                continue;
            }
            found.push(place);
            for parent in commit.iter_parents() {
                places.push(parent.map_err(Error::broken)?);
            }
        }
        // Found from the tips on, and taken from the end.
        found.reverse();
        self.commits.push((graph, found));
        self.add_roots(roots);
        Ok(())
    }

    /// Adds trees of commits that came from the tips on, so that those of the tips are read first.
    fn add_roots(&mut self, roots: Vec<ObjectId>) {
        self.trees.extend(roots.into_iter().rev());
    }

    /// Whether an object is reachable; `None` if that takes reading more trees.
    fn answer(&self, repository: &Repository, id: &gix::oid) -> Result<Option<bool>> {
        if self.named.contains(id) || self.contains(id) {
            return Ok(Some(true));
        }
        Ok(match repository.header(id)? {
            Some((Kind::Tree | Kind::Blob, _)) if !self.is_complete() => None,
            // All commits are known.
            _ => Some(false),
        })
    }

    /// Whether all trees have been read.
    fn is_complete(&self) -> bool {
        self.trees.is_empty() && self.commits.is_empty()
    }

    /// Reads some trees and marks what is in them.
    fn read_trees(&mut self, repository: &Repository, most: usize) -> Result<()> {
        let mut buffer = Vec::new();
        for _ in 0..most {
            let Some(tree) = self.next_tree() else { return Ok(()) };
            if self.contains(&tree) {
                continue;
            }
            let data = match repository.tree_bytes(&tree, &mut buffer) {
                Ok(data) => data,
                // Its files are found once git has listed everything.
                Err(Error::TooLarge(_)) => {
                    self.mark(&tree);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
                let entry = entry.map_err(Error::broken)?;
                if entry.mode.is_commit() {
                    continue;
                }
                if !entry.mode.is_tree() {
                    self.mark(entry.oid);
                } else if !self.contains(entry.oid) {
                    self.trees.push(entry.oid.to_owned());
                }
            }
            // Last, so that a tree that could not be read is not taken for one whose content is known.
            self.mark(&tree);
        }
        Ok(())
    }

    fn next_tree(&mut self) -> Option<ObjectId> {
        if let Some(tree) = self.trees.pop() {
            return Some(tree);
        }
        while let Some((graph, places)) = self.commits.last_mut() {
            if let Some(place) = places.pop() {
                return Some(graph.commit_at(place).root_tree_id().to_owned());
            }
            self.commits.pop();
        }
        None
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
        packs.iter_mut().for_each(|pack| pack.bits.fill(0));
        *self = Self { packs, listed: self.listed.take(), ..Self::default() };
    }

    /// About how many bytes this takes, without the indexes of packs, which are mapped from their files.
    fn count_bytes(&self) -> usize {
        let ids = self.tips.len() + self.contents.len() + self.named.len() + self.unpacked.len();
        let bits: usize = self.packs.iter().map(|pack| pack.bits.len() * size_of::<u64>()).sum();
        let places: usize = self.commits.iter().map(|(_, places)| places.len() * size_of::<Position>()).sum();
        // A table is not full, and each place has a byte of its own.
        ids * 2 * (size_of::<ObjectId>() + 1) + self.trees.len() * size_of::<ObjectId>() + bits + places
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
