//! Differences between trees, as they are shown.

use std::time::Duration;

use gix::ObjectId;
use model::{
    Oid,
    objects::{CommitStats, FileDiff},
    webhook_events::FileLists,
};

use crate::{
    Repository, Result,
    changes::{Change, Side},
    decode::text,
    history::Node,
    limits::Buffer,
    patch,
    patience::Patience,
    repository::gix_id,
};

/// How many files a page of differences shows.
const MOST_FILES: usize = 100;
/// How many lines.
const MOST_LINES: usize = 5000;
/// How many bytes.
const MOST_BYTES: usize = 512_000;
/// Texts longer than this are not compared; they are too large.
const LONGEST_TEXT: u64 = 2 * 1024 * 1024;
/// Texts of more lines than this are not compared, either.
const MOST_TEXT_LINES: usize = 100_000;
/// How much of a file is read to tell whether it is a text.
const BEGINNING: u64 = 8192;
/// Files longer than this are not even read; they count as binary, as with git, which draws its line higher.
const LONGEST_FILE: u64 = 32 * 1024 * 1024;
/// How many bytes of texts are shown in all; the rest is too large.
const MOST_TEXT: usize = 4 * 1024 * 1024;
/// How many files that differ are listed between two commits.
const MOST_LISTED: usize = 10_000;

/// What a page of differences has room for.
#[derive(Default)]
struct Room {
    files: usize,
    lines: usize,
    bytes: usize,
}

impl Room {
    /// Counts a file; `false` if a page has no room for it.
    fn take(&mut self, diff: &FileDiff) -> bool {
        self.files += 1;
        self.lines += diff.diff.bytes().filter(|byte| *byte == b'\n').count();
        self.bytes += diff.diff.len();
        self.files <= MOST_FILES && self.lines < MOST_LINES && self.bytes < MOST_BYTES
    }
}

/// The text of one file's difference, and its size.
#[derive(Default)]
struct Text {
    diff: String,
    too_large: bool,
    stats: CommitStats,
}

/// How long all lists of one push may take to make; whoever pushes waits for them.
const LISTING_TIME: Duration = Duration::from_secs(2);

/// How much there is still to be listed of what some commits did to files.
pub struct Listing {
    patience: Patience,
    bytes: usize,
}

impl Listing {
    /// Room for so many bytes of paths, and a little time.
    pub fn new(bytes: usize) -> Self {
        Self { patience: Patience::of(LISTING_TIME), bytes }
    }

    /// Takes room for a path; `false` if there is none left.
    fn take(&mut self, path: &str) -> bool {
        let left = self.bytes.checked_sub(path.len());
        self.bytes = left.unwrap_or_default();
        left.is_some()
    }
}

impl Repository {
    /// Which files a commit added, changed and removed against its first parent, as far as there is room and time. A file
    /// that was moved counts as added.
    pub fn file_lists(&self, id: Oid, listing: &mut Listing) -> Result<FileLists> {
        let mut lists = FileLists::default();
        if listing.patience.is_lost() || listing.bytes == 0 {
            return Ok(lists);
        }
        let (old, new) = self.trees_around(id)?;
        for change in self.changes(old, new, &listing.patience)?.list {
            let (list, side) = match change {
                Change::Removed(side) => (&mut lists.removed, side),
                Change::Changed(old, new) if old.path == new.path => (&mut lists.modified, new),
                Change::Added(side) | Change::Changed(_, side) => (&mut lists.added, side),
            };
            let path = text(&side.path);
            if !listing.take(&path) {
                break;
            }
            list.push(path);
        }
        Ok(lists)
    }

    /// How a commit differs from its first parent, or from nothing. Stops after as many files and lines as a page shows.
    pub fn commit_diff(&self, id: Oid) -> Result<Vec<FileDiff>> {
        let (old, new) = self.trees_around(id)?;
        let mut room = Room::default();
        let mut files = Vec::new();
        let patience = Patience::new();
        for change in self.changes(old, new, &patience)?.list.into_iter().take(MOST_FILES) {
            let (file, _) = self.file_diff(change, &patience)?;
            if !room.take(&file) {
                break;
            }
            files.push(file);
        }
        Ok(files)
    }

    /// How many lines a commit added and removed against its first parent.
    pub fn commit_stats(&self, id: Oid) -> Result<CommitStats> {
        let (old, new) = self.trees_around(id)?;
        let mut total = CommitStats::default();
        let patience = Patience::new();
        for change in self.changes(old, new, &patience)?.list {
            let (_, stats) = self.file_diff(change, &patience)?;
            total.additions += stats.additions;
            total.deletions += stats.deletions;
        }
        Ok(total)
    }

    /// How all files differ between two trees, and whether there is more than a page should show.
    pub(crate) fn diff(&self, old: ObjectId, new: ObjectId) -> Result<(Vec<FileDiff>, bool)> {
        let mut patience = Patience::new();
        let changes = self.changes(old, new, &patience)?;
        let mut room = Room::default();
        let mut overflows = changes.is_cut;
        overflows |= changes.list.len() > MOST_LISTED;
        let mut files = Vec::with_capacity(changes.list.len().min(MOST_LISTED));
        for change in changes.list.into_iter().take(MOST_LISTED) {
            let (file, _) = self.file_diff(change, &patience)?;
            overflows |= !room.take(&file);
            if room.bytes > MOST_TEXT {
                patience.lose();
            }
            files.push(file);
        }
        Ok((files, overflows))
    }

    /// The trees of a commit's first parent and of the commit itself.
    fn trees_around(&self, id: Oid) -> Result<(ObjectId, ObjectId)> {
        let mut history = self.history();
        let node = history.node(gix_id(id))?;
        let parent = node.parents.first().map(|parent| history.node(*parent)).transpose()?;
        let tree = |node: &Node| node.tree.unwrap_or_else(empty_tree);
        Ok((parent.map_or_else(empty_tree, |parent| tree(&parent)), tree(&node)))
    }

    fn file_diff(&self, change: Change, patience: &Patience) -> Result<(FileDiff, CommitStats)> {
        let (old, new) = match change {
            Change::Added(new) => (None, Some(new)),
            Change::Removed(old) => (Some(old), None),
            Change::Changed(old, new) => (Some(old), Some(new)),
        };
        let path =
            |side: Option<&Side>, other: Option<&Side>| side.or(other).map(|side| text(&side.path)).unwrap_or_default();
        let old_path = path(old.as_ref(), new.as_ref());
        let new_path = path(new.as_ref(), old.as_ref());
        let label = |side: Option<&Side>, prefix, path| side.map_or("/dev/null".into(), |_| patch::quote(prefix, path));
        let labels = (label(old.as_ref(), "a/", &old_path), label(new.as_ref(), "b/", &new_path));
        let found = self.text_diff(old.as_ref(), new.as_ref(), &labels, patience)?;
        let file = FileDiff {
            renamed: old_path != new_path,
            old_path,
            new_path,
            old_mode: old.map(|side| side.mode),
            new_mode: new.map(|side| side.mode),
            diff: found.diff,
            too_large: found.too_large,
        };
        Ok((file, found.stats))
    }

    fn text_diff(
        &self,
        old: Option<&Side>,
        new: Option<&Side>,
        labels: &(String, String),
        patience: &Patience,
    ) -> Result<Text> {
        if old.map(|side| side.id) == new.map(|side| side.id) {
            return Ok(Text::default());
        }
        let binary =
            || Text { diff: format!("Binary files {} and {} differ\n", labels.0, labels.1), ..Text::default() };
        let too_large = || Text { too_large: true, ..Text::default() };
        if patience.is_lost() {
            return Ok(too_large());
        }
        let (old_size, new_size) = (self.size_of(old)?, self.size_of(new)?);
        if old_size.max(new_size) > LONGEST_FILE {
            return Ok(binary());
        }
        // Of what is not compared anyway, the beginning is enough to tell a text.
        let most = if old_size.max(new_size) > LONGEST_TEXT { BEGINNING } else { u64::MAX };
        let (mut old_buffer, mut new_buffer) = (Buffer::default(), Buffer::default());
        let old = self.content_of(old, most, &mut old_buffer)?;
        let new = self.content_of(new, most, &mut new_buffer)?;
        if patch::is_binary(old) || patch::is_binary(new) {
            return Ok(binary());
        }
        let lines = |text: &[u8]| text.split(|byte| *byte == b'\n').count();
        if most == BEGINNING || lines(old).max(lines(new)) > MOST_TEXT_LINES {
            return Ok(too_large());
        }
        let patch = patch::compare(old, new);
        let stats = CommitStats { additions: patch.added, deletions: patch.removed };
        let Some(hunks) = patch.hunks else { return Ok(Text { stats, ..too_large() }) };
        if hunks.is_empty() {
            return Ok(Text::default());
        }
        let diff = format!("--- {}\n+++ {}\n{}", labels.0, labels.1, String::from_utf8_lossy(&hunks));
        Ok(Text { diff, too_large: false, stats })
    }

    fn size_of(&self, side: Option<&Side>) -> Result<u64> {
        match side.filter(|side| !is_submodule(side)) {
            Some(side) => Ok(self.header(&side.id)?.map_or(0, |(_, size)| size)),
            None => Ok(0),
        }
    }

    /// What is compared: the contents of a file, or a line that names the commit of a submodule.
    fn content_of<'a>(&self, side: Option<&Side>, most: u64, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        match side {
            Some(side) if is_submodule(side) => {
                buffer.bytes.extend_from_slice(format!("Subproject commit {}\n", side.id).as_bytes());
                Ok(&buffer.bytes)
            }
            Some(side) => self.read_blob(&side.id, most, buffer),
            None => Ok(&[]),
        }
    }
}

/// The tree that holds nothing.
pub(crate) fn empty_tree() -> ObjectId {
    ObjectId::empty_tree(gix::hash::Kind::Sha1)
}

fn is_submodule(side: &Side) -> bool {
    side.mode == 0o160_000
}
