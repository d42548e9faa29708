//! Folders of a commit.

use std::{collections::HashMap, ops::Range, time::Duration};

use gix::{
    ObjectId,
    objs::tree::{EntryKind as GitKind, EntryMode, EntryRef},
};
use model::{
    Oid, Page, Slice,
    objects::{EntryKind, TreeEntry},
};

use crate::{
    Error, Repository, Result,
    deadline::Deadline,
    decode::text,
    limits::{Buffer, LONGEST_PATH},
    repository::oid,
    tree_walk::{MOST_ENTRIES, TreeWalk},
};

/// How many different folders are counted for one answer.
const MOST_FOLDERS: usize = 250_000;
/// How many bytes of paths are told at once.
const MOST_PATHS: usize = 8 << 20;
/// How long everything below a folder may take to be counted, and again to be listed.
pub(crate) const LONGEST_WALK: Duration = Duration::from_secs(20);

/// What lies at a path of a tree.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) mode: u16,
    pub(crate) kind: EntryKind,
    pub(crate) id: ObjectId,
}

impl Repository {
    /// A page of a folder: folders first, then files, then submodules. A path that is no folder has no entries.
    pub fn tree(&self, commit: Oid, path: &str, recursive: bool, page: Page) -> Result<Slice<TreeEntry>> {
        let path = path.trim_matches('/');
        let folder = match self.tree_of(commit)? {
            Some(root) if path.is_empty() => Some(root),
            Some(root) => self.lookup(root, path)?.filter(|found| found.kind == EntryKind::Tree).map(|found| found.id),
            None => None,
        };
        let Some(folder) = folder else { return Ok(Slice::empty(page)) };
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        if recursive { self.whole_tree(folder, prefix, page) } else { self.flat_tree(folder, &prefix, page) }
    }

    /// What lies at a path.
    pub fn entry(&self, commit: Oid, path: &str) -> Result<Option<TreeEntry>> {
        let path = path.trim_start_matches('/');
        let Some(root) = self.tree_of(commit)? else { return Ok(None) };
        let found = self.lookup(root, path)?;
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Ok(found.map(|Found { mode, kind, id }| TreeEntry { id: oid(&id), name, path: path.to_owned(), kind, mode }))
    }

    /// The paths of all files of a commit; `None` if there are more files and folders than `most`.
    pub fn file_paths(&self, commit: Oid, most: usize) -> Result<Option<Vec<String>>> {
        let Some(root) = self.tree_of(commit)? else { return Ok(Some(Vec::new())) };
        let mut walk = TreeWalk::until(self, root, Vec::new(), Deadline::within(LONGEST_WALK))?;
        let mut paths = Vec::new();
        let (mut seen, mut bytes) = (0, 0);
        while let Some(entry) = walk.next()? {
            seen += 1;
            bytes += walk.path().len();
            if seen > most || bytes > MOST_PATHS {
                return Ok(None);
            }
            match kind_and_mode(entry.mode).0 {
                EntryKind::Tree => walk.enter(entry.id)?,
                EntryKind::Blob => paths.push(text(walk.path())),
                EntryKind::Submodule => {}
            }
        }
        Ok(Some(paths))
    }

    /// What lies at a path below a tree.
    pub(crate) fn lookup(&self, tree: ObjectId, path: &str) -> Result<Option<Found>> {
        let mut buffer = Buffer::default();
        let mut at = tree;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            let mut found = None;
            for entry in self.read_tree(&at, &mut buffer)? {
                let entry = entry.map_err(Error::broken)?;
                if entry.filename == part.as_bytes() {
                    let (kind, mode) = kind_and_mode(entry.mode);
                    found = Some(Found { mode, kind, id: entry.oid.to_owned() });
                    break;
                }
            }
            let Some(found) = found else { return Ok(None) };
            if parts.peek().is_none() {
                return Ok(Some(found));
            }
            if found.kind != EntryKind::Tree {
                return Ok(None);
            }
            at = found.id;
        }
        Ok(None)
    }

    fn flat_tree(&self, folder: ObjectId, prefix: &str, page: Page) -> Result<Slice<TreeEntry>> {
        let mut buffer = Buffer::default();
        let mut grouped = Grouped::new(page);
        for entry in self.read_tree(&folder, &mut buffer)? {
            let entry = entry.map_err(Error::broken)?;
            if entry.filename.len() > LONGEST_PATH {
                return Err(Error::TooLarge(format!("a name in the tree {folder} has more than {LONGEST_PATH} bytes")));
            }
            grouped.offer(kind_and_mode(entry.mode).0, || entry);
        }
        Ok(grouped.page().map(|EntryRef { mode, filename, oid: id }| {
            let (kind, mode) = kind_and_mode(mode);
            let name = text(filename);
            let path = format!("{prefix}{name}");
            TreeEntry { id: oid(id), name, path, kind, mode }
        }))
    }

    /// A page of everything below a folder. Each folder is counted once, however often it is there, and only those are
    /// entered that have something to show; so a few trees that hold one another many times over cost no more than others.
    fn whole_tree(&self, folder: ObjectId, prefix: String, page: Page) -> Result<Slice<TreeEntry>> {
        let (total, counts) = self.count_below(folder)?;
        let wanted = Wanted::new(page, total);
        let mut walk = TreeWalk::until(self, folder, prefix.into_bytes(), Deadline::within(LONGEST_WALK))?;
        let mut seen = Counts::default();
        let mut items = [Vec::new(), Vec::new(), Vec::new()];
        while !wanted.is_passed(&seen)
            && let Some(entry) = walk.next()?
        {
            let (kind, mode) = kind_and_mode(entry.mode);
            if wanted.0[kind as usize].contains(&seen[kind as usize]) {
                items[kind as usize].push(TreeEntry {
                    id: oid(&entry.id),
                    name: text(walk.name()),
                    path: text(walk.path()),
                    kind,
                    mode,
                });
            }
            seen[kind as usize] += 1;
            if kind == EntryKind::Tree {
                let below = counts.get(&entry.id).copied().unwrap_or_default();
                if wanted.has_some_of(&seen, &below) {
                    walk.enter(entry.id)?;
                } else {
                    add(&mut seen, &below);
                }
            }
        }
        let total = total.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        Ok(Slice { items: items.into_iter().flatten().collect(), total, page })
    }

    /// Fails if there are more entries below a tree than a walk over all of them visits.
    pub(crate) fn check_entries(&self, tree: ObjectId) -> Result<()> {
        let (counts, _) = self.count_below(tree)?;
        if counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)) > MOST_ENTRIES as u64 {
            return Err(Error::TooLarge(format!("there are more than {MOST_ENTRIES} files and folders")));
        }
        Ok(())
    }

    /// How many entries of each kind there are below a tree, and below each of the trees in it.
    fn count_below(&self, tree: ObjectId) -> Result<(Counts, HashMap<ObjectId, Counts>)> {
        let mut known: HashMap<ObjectId, Counts> = HashMap::new();
        let mut walk = TreeWalk::until(self, tree, Vec::new(), Deadline::within(LONGEST_WALK))?;
        // The folders that the walk is in, and what was counted in them so far.
        let mut open = vec![(tree, Counts::default())];
        loop {
            let entry = walk.next()?;
            while open.len() > walk.depth()
                && let Some((id, counts)) = open.pop()
            {
                let Some((_, above)) = open.last_mut() else { return Ok((counts, known)) };
                add(above, &counts);
                known.insert(id, counts);
                if known.len() > MOST_FOLDERS {
                    return Err(Error::TooLarge(format!("there are more than {MOST_FOLDERS} different folders")));
                }
            }
            let (Some(entry), Some((_, counts))) = (entry, open.last_mut()) else { continue };
            let kind = kind_and_mode(entry.mode).0;
            counts[kind as usize] = counts[kind as usize].saturating_add(1);
            if kind == EntryKind::Tree {
                if let Some(below) = known.get(&entry.id) {
                    add(counts, below);
                } else {
                    walk.enter(entry.id)?;
                    open.push((entry.id, Counts::default()));
                }
            }
        }
    }
}

/// How many folders, files and submodules.
type Counts = [u64; 3];

fn add(counts: &mut Counts, more: &Counts) {
    for (count, more) in counts.iter_mut().zip(more) {
        *count = count.saturating_add(*more);
    }
}

/// Which of the folders, files and submodules a page shows.
struct Wanted([Range<u64>; 3]);

impl Wanted {
    fn new(page: Page, total: Counts) -> Self {
        let mut start = u64::try_from(page.offset()).unwrap_or(u64::MAX);
        let mut left = u64::try_from(page.size).unwrap_or_default();
        Self(total.map(|count| {
            let first = start.min(count);
            let shown = left.min(count - first);
            start -= first;
            left -= shown;
            first..first + shown
        }))
    }

    /// Whether nothing is wanted any more.
    fn is_passed(&self, seen: &Counts) -> bool {
        self.0.iter().zip(seen).all(|(wanted, seen)| wanted.is_empty() || *seen >= wanted.end)
    }

    /// Whether something is wanted of those that come next.
    fn has_some_of(&self, seen: &Counts, next: &Counts) -> bool {
        let is_among = |(wanted, (seen, next)): (&Range<u64>, (&u64, &u64))| {
            !wanted.is_empty() && *seen < wanted.end && seen.saturating_add(*next) > wanted.start
        };
        self.0.iter().zip(seen.iter().zip(next)).any(is_among)
    }
}

/// What an entry is, and its mode without the bits that git does not care for.
pub(crate) fn kind_and_mode(mode: EntryMode) -> (EntryKind, u16) {
    let kind = match mode.kind() {
        GitKind::Tree => EntryKind::Tree,
        GitKind::Blob | GitKind::BlobExecutable | GitKind::Link => EntryKind::Blob,
        GitKind::Commit => EntryKind::Submodule,
    };
    (kind, EntryMode::from(mode.kind()).value())
}

/// A page of a list that comes ungrouped and is shown by kinds. Of each kind only as many are kept as the page could
/// need if it began with them, so that the first pages of a large folder cost little.
struct Grouped<T> {
    page: Page,
    start: usize,
    end: usize,
    kept: [Vec<T>; 3],
    seen: [usize; 3],
}

impl<T> Grouped<T> {
    fn new(page: Page) -> Self {
        let start = usize::try_from(page.offset()).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(page.size).unwrap_or(0));
        Self { page, start, end, kept: [Vec::new(), Vec::new(), Vec::new()], seen: [0; 3] }
    }

    fn offer(&mut self, kind: EntryKind, make: impl FnOnce() -> T) {
        let place = kind as usize;
        if self.seen[place] < self.end {
            self.kept[place].push(make());
        }
        self.seen[place] += 1;
    }

    fn page(self) -> Slice<T> {
        let total = i64::try_from(self.seen.iter().sum::<usize>()).unwrap_or(i64::MAX);
        let size = self.end - self.start;
        let items = self.kept.into_iter().flatten().skip(self.start).take(size).collect();
        Slice { items, total, page: self.page }
    }
}
