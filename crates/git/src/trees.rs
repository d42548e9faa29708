//! Folders of a commit.

use gix::{
    ObjectId,
    objs::tree::{EntryKind as GitKind, EntryMode, EntryRef},
};
use model::{
    Oid, Page, Slice,
    repository::{EntryKind, TreeEntry},
};

use crate::{Error, Repository, Result, decode::text, repository::oid, tree_walk::TreeWalk};

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
        let mut walk = TreeWalk::new(self, root, Vec::new())?;
        let mut paths = Vec::new();
        let mut seen = 0;
        while let Some(entry) = walk.next()? {
            seen += 1;
            if seen > most {
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
        let mut buffer = Vec::new();
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
        let mut buffer = Vec::new();
        let mut grouped = Grouped::new(page);
        for entry in self.read_tree(&folder, &mut buffer)? {
            let entry = entry.map_err(Error::broken)?;
            grouped.offer(kind_and_mode(entry.mode).0, || entry);
        }
        Ok(grouped.page().map(|EntryRef { mode, filename, oid: id }| {
            let (kind, mode) = kind_and_mode(mode);
            let name = text(filename);
            let path = format!("{prefix}{name}");
            TreeEntry { id: oid(id), name, path, kind, mode }
        }))
    }

    fn whole_tree(&self, folder: ObjectId, prefix: String, page: Page) -> Result<Slice<TreeEntry>> {
        let mut walk = TreeWalk::new(self, folder, prefix.into_bytes())?;
        let mut grouped = Grouped::new(page);
        while let Some(entry) = walk.next()? {
            let (kind, mode) = kind_and_mode(entry.mode);
            grouped.offer(kind, || TreeEntry {
                id: oid(&entry.id),
                name: text(walk.name()),
                path: text(walk.path()),
                kind,
                mode,
            });
            if kind == EntryKind::Tree {
                walk.enter(entry.id)?;
            }
        }
        Ok(grouped.page())
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
