//! Which files differ between two trees.

use std::{collections::VecDeque, ops::ControlFlow};

use gix::{
    ObjectId,
    bstr::{BStr, BString, ByteVec as _},
    diff::tree::{
        self, Visit,
        visit::{Action, Change as Raw},
    },
    objs::tree::EntryMode,
};

use model::Oid;

use crate::{
    Error, Repository, Result,
    decode::text,
    limits::{Buffer, LONGEST_PATH},
    objects::Trees,
    patience::Patience,
    renames,
    trees::kind_and_mode,
};

/// How many entries that differ are looked at. Beyond that the list is cut: a few trees that hold one another several
/// times over make up for more files than there is time to look at.
const MOST_ENTRIES: usize = 100_000;

/// How many bytes of paths are collected before the list is cut.
const MOST_PATHS: usize = 8 << 20;

/// One side of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) path: BString,
    pub(crate) mode: u16,
    pub(crate) id: ObjectId,
}

/// How a file differs: it was added, removed, changed or moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added(Side),
    Removed(Side),
    /// Changed, and moved if the paths differ.
    Changed(Side, Side),
}

impl Change {
    /// The path by which changes are ordered.
    fn path(&self) -> &BString {
        match self {
            Self::Added(side) | Self::Removed(side) | Self::Changed(_, side) => &side.path,
        }
    }
}

/// The files that differ, in byte order of their paths.
pub(crate) struct Changes {
    pub(crate) list: Vec<Change>,
    /// Whether there are more than were looked at.
    pub(crate) is_cut: bool,
}

impl Repository {
    /// The paths of all files that differ between two commits, those of files that are gone too; `None` if there are more
    /// than anybody looks at.
    pub fn changed_paths(&self, from: Oid, to: Oid) -> Result<Option<Vec<String>>> {
        let (Some(old), Some(new)) = (self.tree_of(from)?, self.tree_of(to)?) else { return Ok(None) };
        let (mut old_buffer, mut new_buffer) = (Buffer::default(), Buffer::default());
        let old = self.read_tree(&old, &mut old_buffer)?;
        let new = self.read_tree(&new, &mut new_buffer)?;
        let mut collector = Collector::default();
        match gix::diff::tree(old, new, tree::State::default(), Trees::of(self), &mut collector) {
            Ok(()) => {}
            Err(tree::Error::Cancelled) => return Ok(None),
            Err(error) => return Err(Error::of_read(&error)),
        }
        let Collector { removed, added, changed, .. } = collector;
        let changed = changed.iter().map(Change::path);
        let mut paths: Vec<String> =
            removed.iter().chain(&added).map(|side| &side.path).chain(changed).map(|path| text(path)).collect();
        paths.sort_unstable();
        paths.dedup();
        Ok(Some(paths))
    }

    /// How files differ between two trees, with those that were moved found.
    pub(crate) fn changes(&self, old: ObjectId, new: ObjectId, patience: &Patience) -> Result<Changes> {
        let (mut old_buffer, mut new_buffer) = (Buffer::default(), Buffer::default());
        let old = self.read_tree(&old, &mut old_buffer)?;
        let new = self.read_tree(&new, &mut new_buffer)?;
        let mut collector = Collector::default();
        let is_cut = match gix::diff::tree(old, new, tree::State::default(), Trees::of(self), &mut collector) {
            Ok(()) => false,
            Err(tree::Error::Cancelled) => true,
            Err(error) => return Err(Error::of_read(&error)),
        };
        let Collector { removed, added, changed: mut list, .. } = collector;
        list.append(&mut renames::find(self, removed, added, patience)?);
        // A file that became something else was removed before it was added.
        list.sort_by(|a, b| {
            a.path().cmp(b.path()).then_with(|| matches!(a, Change::Added(_)).cmp(&matches!(b, Change::Added(_))))
        });
        Ok(Changes { list, is_cut })
    }
}

/// Takes in what differs while trees are walked, folder by folder.
#[derive(Default)]
struct Collector {
    removed: Vec<Side>,
    added: Vec<Side>,
    changed: Vec<Change>,
    seen: usize,
    /// How long all paths are together.
    bytes: usize,
    path: BString,
    /// Paths of folders that are yet to be walked.
    folders: VecDeque<BString>,
}

impl Collector {
    fn side(&self, mode: u16, id: ObjectId) -> Side {
        Side { path: self.path.clone(), mode, id }
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

    fn visit(&mut self, change: Raw) -> Action {
        self.seen += 1;
        if self.seen > MOST_ENTRIES {
            return ControlFlow::Break(());
        }
        self.bytes += self.path.len();
        if self.bytes > MOST_PATHS || self.path.len() > LONGEST_PATH {
            return ControlFlow::Break(());
        }
        let canonical = |mode: EntryMode| (!mode.is_tree()).then(|| kind_and_mode(mode).1);
        match change {
            Raw::Addition { entry_mode, oid, .. } => {
                self.added.extend(canonical(entry_mode).map(|mode| self.side(mode, oid)));
            }
            Raw::Deletion { entry_mode, oid, .. } => {
                self.removed.extend(canonical(entry_mode).map(|mode| self.side(mode, oid)));
            }
            Raw::Modification { previous_entry_mode, previous_oid, entry_mode, oid } => {
                let (Some(old), Some(new)) = (canonical(previous_entry_mode), canonical(entry_mode)) else {
                    return ControlFlow::Continue(());
                };
                let (before, after) = (self.side(old, previous_oid), self.side(new, oid));
                if kind_bits(old) != kind_bits(new) {
                    self.changed.extend([Change::Removed(before), Change::Added(after)]);
                } else if before != after {
                    self.changed.push(Change::Changed(before, after));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The part of a mode that tells a file from a link and from a submodule.
pub(crate) fn kind_bits(mode: u16) -> u16 {
    mode & 0o170_000
}
