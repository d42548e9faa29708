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
    limits::{Buffer, MAX_PATH_LENGTH},
    repository::oid,
    tree_walk::{MAX_ENTRIES, TreeWalk},
};

/// The maximum number of different folders that are counted for one response.
const MAX_FOLDERS: usize = 250_000;
/// The maximum number of bytes of paths in one response.
const MAX_PATH_BYTES: usize = 8 << 20;
/// The time limit for counting everything below a folder, and again for listing it.
pub(crate) const WALK_TIMEOUT: Duration = Duration::from_secs(20);

/// The entry at a path of a tree.
#[derive(Clone, Copy)]
pub(crate) struct PathEntry {
    pub(crate) mode: u16,
    pub(crate) kind: EntryKind,
    pub(crate) id: ObjectId,
}

impl Repository {
    /// Returns a page of a folder: folders first, then files, then submodules. A path that is not a folder has no
    /// entries.
    pub fn tree(&self, commit: Oid, path: &str, recursive: bool, page: Page) -> Result<Slice<TreeEntry>> {
        let path = path.trim_matches('/');
        let folder = match self.tree_of(commit)? {
            Some(root) if path.is_empty() => Some(root),
            Some(root) => self.lookup(root, path)?.filter(|found| found.kind == EntryKind::Tree).map(|found| found.id),
            None => None,
        };
        let Some(folder) = folder else { return Ok(Slice::empty(page)) };
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        if recursive { self.recursive_tree(folder, prefix, page) } else { self.list_folder(folder, &prefix, page) }
    }

    /// Returns the entry at a path.
    pub fn entry(&self, commit: Oid, path: &str) -> Result<Option<TreeEntry>> {
        let path = path.trim_start_matches('/');
        let Some(root) = self.tree_of(commit)? else { return Ok(None) };
        let found = self.lookup(root, path)?;
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Ok(found.map(|PathEntry { mode, kind, id }| TreeEntry {
            id: oid(&id),
            name,
            path: path.to_owned(),
            kind,
            mode,
        }))
    }

    /// Returns the paths of all files of a commit; `None` if there are more than `max_entries` files and folders.
    pub fn file_paths(&self, commit: Oid, max_entries: usize) -> Result<Option<Vec<String>>> {
        let Some(root) = self.tree_of(commit)? else { return Ok(Some(Vec::new())) };
        let mut walk = TreeWalk::with_deadline(self, root, Vec::new(), Deadline::within(WALK_TIMEOUT))?;
        let mut paths = Vec::new();
        let (mut counted, mut bytes) = (0, 0);
        while let Some(entry) = walk.next()? {
            counted += 1;
            bytes += walk.path().len();
            if counted > max_entries || bytes > MAX_PATH_BYTES {
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

    /// Returns the entry at a path below a tree.
    pub(crate) fn lookup(&self, tree: ObjectId, path: &str) -> Result<Option<PathEntry>> {
        let mut buffer = Buffer::default();
        let mut at = tree;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            let mut found = None;
            for entry in self.read_tree(&at, &mut buffer)? {
                let entry = entry.map_err(Error::corrupt)?;
                if entry.filename == part.as_bytes() {
                    let (kind, mode) = kind_and_mode(entry.mode);
                    found = Some(PathEntry { mode, kind, id: entry.oid.to_owned() });
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

    fn list_folder(&self, folder: ObjectId, prefix: &str, page: Page) -> Result<Slice<TreeEntry>> {
        let mut buffer = Buffer::default();
        let mut grouped_page = GroupedPage::new(page);
        for entry in self.read_tree(&folder, &mut buffer)? {
            let entry = entry.map_err(Error::corrupt)?;
            if entry.filename.len() > MAX_PATH_LENGTH {
                return Err(Error::TooLarge(format!(
                    "a name in the tree {folder} has more than {MAX_PATH_LENGTH} bytes"
                )));
            }
            grouped_page.push(kind_and_mode(entry.mode).0, || entry);
        }
        Ok(grouped_page.page().map(|EntryRef { mode, filename, oid: id }| {
            let (kind, mode) = kind_and_mode(mode);
            let name = text(filename);
            let path = format!("{prefix}{name}");
            TreeEntry { id: oid(id), name, path, kind, mode }
        }))
    }

    /// Returns a page of everything below a folder. Each folder is counted once, however often it occurs, and only
    /// folders with entries on the page are entered; so trees that contain each other repeatedly cost no more than
    /// others.
    fn recursive_tree(&self, folder: ObjectId, prefix: String, page: Page) -> Result<Slice<TreeEntry>> {
        let (total, counts) = self.count_below(folder)?;
        let ranges = PageRanges::new(page, total);
        let mut walk = TreeWalk::with_deadline(self, folder, prefix.into_bytes(), Deadline::within(WALK_TIMEOUT))?;
        let mut counted = Counts::default();
        let mut items = [Vec::new(), Vec::new(), Vec::new()];
        while !ranges.are_passed(&counted)
            && let Some(entry) = walk.next()?
        {
            let (kind, mode) = kind_and_mode(entry.mode);
            if ranges.0[kind as usize].contains(&counted[kind as usize]) {
                items[kind as usize].push(TreeEntry {
                    id: oid(&entry.id),
                    name: text(walk.name()),
                    path: text(walk.path()),
                    kind,
                    mode,
                });
            }
            counted[kind as usize] += 1;
            if kind == EntryKind::Tree {
                let below = counts.get(&entry.id).copied().unwrap_or_default();
                if ranges.overlap(&counted, &below) {
                    walk.enter(entry.id)?;
                } else {
                    add(&mut counted, &below);
                }
            }
        }
        let total = total.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        Ok(Slice { items: items.into_iter().flatten().collect(), total: total.into(), page })
    }

    /// Fails if there are more entries below a tree than a walk may visit.
    pub(crate) fn check_entry_count(&self, tree: ObjectId) -> Result<()> {
        let (counts, _) = self.count_below(tree)?;
        if counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)) > MAX_ENTRIES as u64 {
            return Err(Error::TooLarge(format!("there are more than {MAX_ENTRIES} files and folders")));
        }
        Ok(())
    }

    /// Returns the number of entries of each kind below a tree, and below each of its subtrees.
    fn count_below(&self, tree: ObjectId) -> Result<(Counts, HashMap<ObjectId, Counts>)> {
        let mut known: HashMap<ObjectId, Counts> = HashMap::new();
        let mut walk = TreeWalk::with_deadline(self, tree, Vec::new(), Deadline::within(WALK_TIMEOUT))?;
        // The folders on the path of the walk, with what was counted in them so far.
        let mut open_folders = vec![(tree, Counts::default())];
        loop {
            let entry = walk.next()?;
            while open_folders.len() > walk.depth()
                && let Some((id, counts)) = open_folders.pop()
            {
                let Some((_, parent)) = open_folders.last_mut() else { return Ok((counts, known)) };
                add(parent, &counts);
                known.insert(id, counts);
                if known.len() > MAX_FOLDERS {
                    return Err(Error::TooLarge(format!("there are more than {MAX_FOLDERS} different folders")));
                }
            }
            let (Some(entry), Some((_, counts))) = (entry, open_folders.last_mut()) else { continue };
            let kind = kind_and_mode(entry.mode).0;
            counts[kind as usize] = counts[kind as usize].saturating_add(1);
            if kind == EntryKind::Tree {
                if let Some(below) = known.get(&entry.id) {
                    add(counts, below);
                } else {
                    walk.enter(entry.id)?;
                    open_folders.push((entry.id, Counts::default()));
                }
            }
        }
    }
}

/// The number of folders, files and submodules.
type Counts = [u64; 3];

fn add(counts: &mut Counts, more: &Counts) {
    for (count, more) in counts.iter_mut().zip(more) {
        *count = count.saturating_add(*more);
    }
}

/// The ranges of folders, files and submodules that are on a page.
struct PageRanges([Range<u64>; 3]);

impl PageRanges {
    fn new(page: Page, total: Counts) -> Self {
        let mut start = u64::try_from(page.offset()).unwrap_or(u64::MAX);
        let mut remaining = u64::try_from(page.size).unwrap_or_default();
        Self(total.map(|count| {
            let first = start.min(count);
            let shown = remaining.min(count - first);
            start -= first;
            remaining -= shown;
            first..first + shown
        }))
    }

    /// Returns whether the page is complete.
    fn are_passed(&self, counted: &Counts) -> bool {
        self.0.iter().zip(counted).all(|(ranges, counted)| ranges.is_empty() || *counted >= ranges.end)
    }

    /// Returns whether some of the next entries are on the page.
    fn overlap(&self, counted: &Counts, next: &Counts) -> bool {
        let is_among = |(ranges, (counted, next)): (&Range<u64>, (&u64, &u64))| {
            !ranges.is_empty() && *counted < ranges.end && counted.saturating_add(*next) > ranges.start
        };
        self.0.iter().zip(counted.iter().zip(next)).any(is_among)
    }
}

/// Returns the kind of an entry, and its mode in canonical form.
pub(crate) fn kind_and_mode(mode: EntryMode) -> (EntryKind, u16) {
    let kind = match mode.kind() {
        GitKind::Tree => EntryKind::Tree,
        GitKind::Blob | GitKind::BlobExecutable | GitKind::Link => EntryKind::Blob,
        GitKind::Commit => EntryKind::Submodule,
    };
    (kind, EntryMode::from(mode.kind()).value())
}

/// A page of a list that arrives ungrouped and is shown grouped by kind. Of each kind only as many entries are kept as
/// the page could need if it started with them, so that the first pages of a large folder cost little.
struct GroupedPage<T> {
    page: Page,
    start: usize,
    end: usize,
    items_by_kind: [Vec<T>; 3],
    counted: [usize; 3],
}

impl<T> GroupedPage<T> {
    fn new(page: Page) -> Self {
        let start = usize::try_from(page.offset()).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(page.size).unwrap_or(0));
        Self { page, start, end, items_by_kind: [Vec::new(), Vec::new(), Vec::new()], counted: [0; 3] }
    }

    fn push(&mut self, kind: EntryKind, make: impl FnOnce() -> T) {
        let kind_index = kind as usize;
        if self.counted[kind_index] < self.end {
            self.items_by_kind[kind_index].push(make());
        }
        self.counted[kind_index] += 1;
    }

    fn page(self) -> Slice<T> {
        let total = i64::try_from(self.counted.iter().sum::<usize>()).unwrap_or(i64::MAX);
        let size = self.end - self.start;
        let items = self.items_by_kind.into_iter().flatten().skip(self.start).take(size).collect();
        Slice { items, total: total.into(), page: self.page }
    }
}
