//! The last commit that changed each entry of a folder.
//!
//! An entry is followed from a commit to its first parent with the same entry, until there is none: this is the commit
//! that `git log -1 -- path` finds. All entries of a folder are followed together, so each folder is read once.

use std::{
    collections::{BinaryHeap, HashMap, hash_map::Entry},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use gix::{ObjectId, objs::Kind};
use lru::LruCache;
use model::{Oid, Time, objects::LastCommit};

use crate::{
    Error, Repository, Result,
    commits::PathHistory,
    deadline::SoftDeadline,
    decode::{self, text},
    history::{CommitMap, History},
    limits::Buffer,
    repository::{gix_id, oid},
    trees::kind_and_mode,
};

/// The time for a page that is waited for.
const SHORT_TIME: Duration = Duration::from_millis(20);
/// The time for the rest, after the page was sent.
const LONG_TIME: Duration = Duration::from_secs(10);
/// The maximum size of all cached folders, in bytes.
const MAX_CACHED_BYTES: usize = 8 << 20;

/// The commits that were found.
#[derive(Debug, Default)]
pub struct LastCommits {
    /// The commits by the name of the entry.
    pub by_name: HashMap<String, Arc<LastCommit>>,
    /// Whether [`Repository::complete_last_commits`] would find more.
    pub is_unfinished: bool,
}

impl Repository {
    /// Returns the last commits that changed these entries of a folder, as many as are found in a short time.
    pub fn last_commits(&self, tip: Oid, folder: &str, names: &[String]) -> Result<LastCommits> {
        self.last_commits_within(SHORT_TIME, tip, folder, names, true)
    }

    /// Finds the commits that [`Self::last_commits`] had no time for, and caches them.
    pub fn complete_last_commits(&self, tip: Oid, folder: &str, names: &[String]) -> Result<()> {
        let found = self.last_commits_within(LONG_TIME, tip, folder, names, true)?;
        if found.is_unfinished {
            // More time would not help, so it is not tried again.
            CACHE.lock().unwrap_or_else(PoisonError::into_inner).give_up(gix_id(tip), folder.trim_matches('/'));
        }
        Ok(())
    }

    pub(crate) fn last_commits_within(
        &self,
        time: Duration,
        tip: Oid,
        folder: &str,
        names: &[String],
        is_cached: bool,
    ) -> Result<LastCommits> {
        let soft_deadline = SoftDeadline::within(time);
        let (tip, folder) = (gix_id(tip), folder.trim_matches('/'));
        let mut history = self.history();
        let mut folders = PathHistory::new(self, Some(folder).filter(|folder| !folder.is_empty()));
        let Some(tree) = folder_tree(tip, &mut history, &mut folders)? else { return Ok(LastCommits::default()) };
        let mut walk = FolderWalk::new(self, &tree, names)?;
        let mut has_given_up = false;
        if is_cached && let Some(cached) = cached_folder(tip, folder) {
            has_given_up = cached.has_given_up;
            walk.take_known(&cached, (0..walk.entries.len()).collect());
        }
        let pending: Vec<usize> = (0..walk.entries.len()).filter(|index| walk.found[*index].is_none()).collect();
        let mut is_complete = pending.is_empty();
        if !is_complete && !has_given_up {
            is_complete = walk.follow(tip, pending, folder, (&mut history, &mut folders), is_cached, &soft_deadline)?;
            if is_cached {
                CACHE.lock().unwrap_or_else(PoisonError::into_inner).insert(tip, folder, &walk);
            }
        }
        let by_name = walk.entries.into_iter().zip(walk.found);
        let by_name = by_name.filter_map(|(entry, commit)| Some((text(&entry.name), commit?))).collect();
        Ok(LastCommits { by_name, is_unfinished: !is_complete && !has_given_up })
    }
}

/// An entry as it is in the tip, and in all commits that it is followed to.
struct FollowedEntry {
    name: Vec<u8>,
    mode: u16,
    id: ObjectId,
}

struct FolderWalk<'a> {
    repository: &'a Repository,
    entries: Vec<FollowedEntry>,
    indexes: HashMap<Vec<u8>, usize>,
    found: Vec<Option<Arc<LastCommit>>>,
    /// The commits that were decoded so far.
    commits: CommitMap<Arc<LastCommit>>,
    buffer: Buffer,
}

impl<'a> FolderWalk<'a> {
    fn new(repository: &'a Repository, tree: &gix::oid, names: &[String]) -> Result<Self> {
        let wanted: std::collections::HashSet<&str> = names.iter().map(String::as_str).collect();
        let mut buffer = Buffer::default();
        let mut entries = Vec::with_capacity(names.len());
        for entry in repository.read_tree(tree, &mut buffer)? {
            let entry = entry.map_err(Error::corrupt)?;
            if wanted.contains(&*String::from_utf8_lossy(entry.filename)) {
                let (_, mode) = kind_and_mode(entry.mode);
                entries.push(FollowedEntry { name: entry.filename.to_vec(), mode, id: entry.oid.to_owned() });
            }
        }
        let indexes = entries.iter().enumerate().map(|(index, entry)| (entry.name.clone(), index)).collect();
        let found = vec![None; entries.len()];
        Ok(Self { repository, entries, indexes, found, commits: CommitMap::default(), buffer })
    }

    /// Takes over what is known about some entries; returns the others.
    fn take_known(&mut self, cached: &CachedFolder, mut pending: Vec<usize>) -> Vec<usize> {
        pending.retain(|index| {
            self.found[*index] = cached.commits.get(&self.entries[*index].name).cloned();
            self.found[*index].is_none()
        });
        pending
    }

    /// Follows entries from a commit on; returns whether all were followed to their end before the deadline.
    fn follow(
        &mut self,
        tip: ObjectId,
        pending: Vec<usize>,
        folder: &str,
        (history, folders): (&mut History<'_>, &mut PathHistory<'_>),
        is_cached: bool,
        soft_deadline: &SoftDeadline,
    ) -> Result<bool> {
        let mut groups: CommitMap<Vec<usize>> = CommitMap::default();
        groups.insert(tip, pending);
        // Children come before their parents, so that entries that meet again are followed together.
        let mut queue = BinaryHeap::from([(0, 0, tip)]);
        while let Some((_, _, id)) = queue.pop() {
            let Some(mut pending) = groups.remove(&id) else { continue };
            if soft_deadline.has_passed() {
                return Ok(false);
            }
            if is_cached
                && id != tip
                && let Some(cached) = cached_folder(id, folder)
            {
                pending = self.take_known(&cached, pending);
            }
            let node = history.node(id)?;
            let own = folder_tree(id, history, folders)?;
            for parent in &node.parents {
                if pending.is_empty() {
                    break;
                }
                let same = match folder_tree(*parent, history, folders)? {
                    Some(tree) if Some(tree) == own => std::mem::take(&mut pending),
                    Some(tree) => self.take_same(&tree, &mut pending)?,
                    None => Vec::new(),
                };
                if same.is_empty() {
                    continue;
                }
                let node = history.node(*parent)?;
                match groups.entry(*parent) {
                    Entry::Occupied(mut group) => group.get_mut().extend(same),
                    Entry::Vacant(group) => {
                        group.insert(same);
                        queue.push((node.generation, node.seconds, *parent));
                    }
                }
            }
            if !pending.is_empty() {
                let commit = self.commit(id)?;
                for index in pending {
                    self.found[index] = Some(Arc::clone(&commit));
                }
            }
        }
        Ok(true)
    }

    /// Removes the entries that are the same in a tree from the pending ones, and returns them.
    fn take_same(&mut self, tree: &gix::oid, pending: &mut Vec<usize>) -> Result<Vec<usize>> {
        let mut is_same = vec![false; self.entries.len()];
        for entry in self.repository.read_tree(tree, &mut self.buffer)? {
            let entry = entry.map_err(Error::corrupt)?;
            let Some(index) = self.indexes.get::<[u8]>(entry.filename) else { continue };
            let followed = &self.entries[*index];
            is_same[*index] = entry.oid == followed.id && kind_and_mode(entry.mode).1 == followed.mode;
        }
        let same = pending.iter().copied().filter(|index| is_same[*index]).collect();
        pending.retain(|index| !is_same[*index]);
        Ok(same)
    }

    fn commit(&mut self, id: ObjectId) -> Result<Arc<LastCommit>> {
        if let Some(commit) = self.commits.get(&id) {
            return Ok(Arc::clone(commit));
        }
        let mut buffer = Vec::new();
        let found = self.repository.read_bounded(&id, Kind::Commit, &mut buffer)?;
        let found = found.ok_or_else(|| Error::corrupt(format!("the commit {id} is missing")))?;
        let commit = decode::commit(&id, found);
        let time = Time::from_second(commit.committer.seconds).unwrap_or(Time::UNIX_EPOCH);
        let commit = Arc::new(LastCommit { id: oid(&id), title: commit.title(), time });
        self.commits.insert(id, Arc::clone(&commit));
        Ok(commit)
    }
}

/// Returns the tree of the folder in a commit; `None` if there is no such folder.
fn folder_tree(commit: ObjectId, history: &mut History<'_>, folders: &mut PathHistory<'_>) -> Result<Option<ObjectId>> {
    if folders.is_root() {
        return Ok(history.node(commit)?.tree);
    }
    let entry = folders.at(commit, history)?;
    Ok(entry.and_then(|(mode, id)| (mode == 0o040_000).then_some(id)))
}

/// The cache serves all repositories: the id of a commit is the digest of its history, so it means the same in all of
/// them.
static CACHE: LazyLock<Mutex<FolderCache>> =
    LazyLock::new(|| Mutex::new(FolderCache { folders: LruCache::unbounded(), bytes: 0 }));

struct FolderCache {
    folders: LruCache<(ObjectId, Box<str>), (Arc<CachedFolder>, usize)>,
    bytes: usize,
}

#[derive(Clone, Default)]
struct CachedFolder {
    commits: HashMap<Vec<u8>, Arc<LastCommit>>,
    /// Whether the commits that are missing were not found in the longest time that is spent on them.
    has_given_up: bool,
}

fn cached_folder(commit: ObjectId, folder: &str) -> Option<Arc<CachedFolder>> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    cache.folders.get(&(commit, folder.into())).map(|(cached, _)| Arc::clone(cached))
}

impl FolderCache {
    fn insert(&mut self, tip: ObjectId, folder: &str, walk: &FolderWalk<'_>) {
        let mut cached = self.take(tip, folder);
        for (entry, commit) in walk.entries.iter().zip(&walk.found) {
            if let Some(commit) = commit {
                cached.commits.insert(entry.name.clone(), Arc::clone(commit));
            }
        }
        self.put(tip, folder, cached);
    }

    fn give_up(&mut self, tip: ObjectId, folder: &str) {
        let cached = self.take(tip, folder);
        self.put(tip, folder, CachedFolder { has_given_up: true, ..cached });
    }

    fn take(&mut self, tip: ObjectId, folder: &str) -> CachedFolder {
        let Some((cached, bytes)) = self.folders.pop(&(tip, folder.into())) else { return CachedFolder::default() };
        self.bytes -= bytes;
        Arc::unwrap_or_clone(cached)
    }

    fn put(&mut self, tip: ObjectId, folder: &str, cached: CachedFolder) {
        // Counts the title with each entry: in the worst case each entry has its own commit.
        let size = |(name, commit): (&Vec<u8>, &Arc<LastCommit>)| name.len() + commit.title.len() + 160;
        let bytes = cached.commits.iter().map(size).sum::<usize>() + folder.len() + 200;
        if bytes > MAX_CACHED_BYTES / 4 {
            return;
        }
        self.bytes += bytes;
        self.folders.put((tip, folder.into()), (Arc::new(cached), bytes));
        while self.bytes > MAX_CACHED_BYTES
            && let Some((_, (_, removed))) = self.folders.pop_lru()
        {
            self.bytes -= removed;
        }
    }
}
