//! The files that differ between two trees.

use std::{collections::VecDeque, ops::ControlFlow};

use gix::{
    ObjectId,
    bstr::{BStr, BString, ByteVec as _},
    diff::tree::{
        self, Visit,
        visit::{Action, Change as RawChange},
    },
    objs::tree::EntryMode,
};

use model::Oid;

use crate::{
    Error, Repository, Result,
    deadline::SoftDeadline,
    decode::text,
    limits::{Buffer, MAX_PATH_LENGTH},
    objects::TreeFinder,
    renames,
    trees::kind_and_mode,
};

/// The maximum number of entries that are compared; beyond it the list is truncated. A few trees that contain each
/// other repeatedly stand for more files than there is time to compare.
const MAX_ENTRIES: usize = 100_000;

/// The maximum number of bytes of paths before the list is truncated.
const MAX_PATH_BYTES: usize = 8 << 20;

/// One version of a file: where it is and what it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(crate) path: BString,
    pub(crate) mode: u16,
    pub(crate) id: ObjectId,
}

/// How a file differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileChange {
    Added(FileVersion),
    Removed(FileVersion),
    /// Changed, and renamed if the paths differ.
    Changed(FileVersion, FileVersion),
}

impl FileChange {
    /// The path by which changes are sorted.
    fn path(&self) -> &BString {
        match self {
            Self::Added(version) | Self::Removed(version) | Self::Changed(_, version) => &version.path,
        }
    }
}

/// The files that differ, sorted by path in byte order.
pub(crate) struct Changes {
    pub(crate) list: Vec<FileChange>,
    /// Whether there are more files than were compared.
    pub(crate) is_truncated: bool,
}

impl Repository {
    /// Returns the paths of all files that differ between two commits, including those of deleted files; `None` if
    /// there are too many.
    pub fn changed_paths(&self, from: Oid, to: Oid) -> Result<Option<Vec<String>>> {
        let (Some(old), Some(new)) = (self.tree_of(from)?, self.tree_of(to)?) else { return Ok(None) };
        let (mut old_buffer, mut new_buffer) = (Buffer::default(), Buffer::default());
        let old = self.read_tree(&old, &mut old_buffer)?;
        let new = self.read_tree(&new, &mut new_buffer)?;
        let mut collector = Collector::default();
        match gix::diff::tree(old, new, tree::State::default(), TreeFinder::of(self), &mut collector) {
            Ok(()) => {}
            Err(tree::Error::Cancelled) => return Ok(None),
            Err(error) => return Err(Error::from_read(error)),
        }
        let Collector { removed, added, changed, .. } = collector;
        let changed = changed.iter().map(FileChange::path);
        let mut paths: Vec<String> =
            removed.iter().chain(&added).map(|version| &version.path).chain(changed).map(|path| text(path)).collect();
        paths.sort_unstable();
        paths.dedup();
        Ok(Some(paths))
    }

    /// Returns how files differ between two trees, with renames detected.
    pub(crate) fn changes(&self, old: ObjectId, new: ObjectId, soft_deadline: &SoftDeadline) -> Result<Changes> {
        let (mut old_buffer, mut new_buffer) = (Buffer::default(), Buffer::default());
        let old = self.read_tree(&old, &mut old_buffer)?;
        let new = self.read_tree(&new, &mut new_buffer)?;
        let mut collector = Collector::default();
        let is_truncated = match gix::diff::tree(old, new, tree::State::default(), TreeFinder::of(self), &mut collector)
        {
            Ok(()) => false,
            Err(tree::Error::Cancelled) => true,
            Err(error) => return Err(Error::from_read(error)),
        };
        let Collector { removed, added, changed: mut list, .. } = collector;
        list.append(&mut renames::find(self, removed, added, soft_deadline)?);
        // A file that changed its type was removed before it was added.
        list.sort_by(|a, b| {
            a.path()
                .cmp(b.path())
                .then_with(|| matches!(a, FileChange::Added(_)).cmp(&matches!(b, FileChange::Added(_))))
        });
        Ok(Changes { list, is_truncated })
    }
}

impl Repository {
    /// Returns the file of an old tree that became a new file at a path by being renamed.
    pub(crate) fn rename_origin(
        &self,
        old: ObjectId,
        new: ObjectId,
        path: &[u8],
        soft_deadline: &SoftDeadline,
    ) -> Result<Option<FileVersion>> {
        let (mut old_buffer, mut new_buffer) = (Buffer::default(), Buffer::default());
        let old = self.read_tree(&old, &mut old_buffer)?;
        let new = self.read_tree(&new, &mut new_buffer)?;
        let mut collector = Collector::default();
        match gix::diff::tree(old, new, tree::State::default(), TreeFinder::of(self), &mut collector) {
            // Too many files differ to find the one that was renamed.
            Err(tree::Error::Cancelled) => return Ok(None),
            found => found.map_err(Error::from_read)?,
        }
        let Collector { removed, added, .. } = collector;
        let added: Vec<FileVersion> = added.into_iter().filter(|version| version.path == path).collect();
        if added.is_empty() {
            return Ok(None);
        }
        let changes = renames::find(self, removed, added, soft_deadline)?;
        Ok(changes.into_iter().find_map(|change| match change {
            FileChange::Changed(old, new) if new.path == path => Some(old),
            _ => None,
        }))
    }
}

/// Collects the differences while trees are walked, folder by folder.
#[derive(Default)]
struct Collector {
    removed: Vec<FileVersion>,
    added: Vec<FileVersion>,
    changed: Vec<FileChange>,
    visited: usize,
    /// The total length of all paths.
    path_bytes: usize,
    path: BString,
    /// Paths of folders that are still to be visited.
    folders: VecDeque<BString>,
}

impl Collector {
    fn version(&self, mode: u16, id: ObjectId) -> FileVersion {
        FileVersion { path: self.path.clone(), mode, id }
    }
}

impl Visit for Collector {
    fn pop_front_tracked_path_and_set_current(&mut self) {
        self.path = self.folders.pop_front().unwrap_or_default();
    }

    fn push_back_tracked_path_component(&mut self, component: &BStr) {
        self.push_path_component(component);
        self.folders.push_back(self.path.clone());
    }

    fn push_path_component(&mut self, component: &BStr) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.push_str(component);
    }

    fn pop_path_component(&mut self) {
        let end = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.path.truncate(end);
    }

    fn visit(&mut self, change: RawChange) -> Action {
        self.visited += 1;
        if self.visited > MAX_ENTRIES {
            return ControlFlow::Break(());
        }
        self.path_bytes += self.path.len();
        if self.path_bytes > MAX_PATH_BYTES || self.path.len() > MAX_PATH_LENGTH {
            return ControlFlow::Break(());
        }
        let canonical = |mode: EntryMode| (!mode.is_tree()).then(|| kind_and_mode(mode).1);
        match change {
            RawChange::Addition { entry_mode, oid, .. } => {
                self.added.extend(canonical(entry_mode).map(|mode| self.version(mode, oid)));
            }
            RawChange::Deletion { entry_mode, oid, .. } => {
                self.removed.extend(canonical(entry_mode).map(|mode| self.version(mode, oid)));
            }
            RawChange::Modification { previous_entry_mode, previous_oid, entry_mode, oid } => {
                let (Some(old), Some(new)) = (canonical(previous_entry_mode), canonical(entry_mode)) else {
                    return ControlFlow::Continue(());
                };
                let (before, after) = (self.version(old, previous_oid), self.version(new, oid));
                if kind_bits(old) != kind_bits(new) {
                    self.changed.extend([FileChange::Removed(before), FileChange::Added(after)]);
                } else if before != after {
                    self.changed.push(FileChange::Changed(before, after));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The part of a mode that distinguishes files, links and submodules.
pub(crate) fn kind_bits(mode: u16) -> u16 {
    mode & 0o170_000
}
