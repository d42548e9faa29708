//! Diffs between trees.

use std::time::Duration;

use gix::ObjectId;
use model::{
    Oid,
    objects::{CommitStats, FileDiff},
    webhook_events::ChangedPaths,
};

use crate::{
    Repository, Result,
    changes::{FileChange, FileVersion},
    deadline::SoftDeadline,
    decode::text,
    history::Node,
    limits::Buffer,
    patch::{self, Whitespace},
    repository::gix_id,
};

/// The maximum number of files in a page of diffs.
const MAX_PAGE_FILES: usize = 100;
/// The maximum number of lines in a page of diffs.
const MAX_PAGE_LINES: usize = 5000;
/// The maximum number of bytes in a page of diffs.
const MAX_PAGE_BYTES: usize = 512_000;
/// Texts larger than this are not compared and are marked as too large.
const MAX_TEXT_SIZE: u64 = 2 * 1024 * 1024;
/// Texts with more lines than this are not compared, either.
const MAX_TEXT_LINES: usize = 100_000;
/// The number of bytes that are read to determine whether a file is binary.
const BINARY_CHECK_BYTES: u64 = 8192;
/// Files larger than this are not read and count as binary, as in git, whose limit is higher.
const MAX_FILE_SIZE: u64 = 32 * 1024 * 1024;
/// The maximum total size of the diffs in a comparison; the remaining files are marked as too large.
const MAX_TOTAL_TEXT: usize = 4 * 1024 * 1024;
/// The maximum number of files in a comparison.
const MAX_LISTED_FILES: usize = 10_000;

/// Tracks the size of a page of diffs.
#[derive(Default)]
struct PageBudget {
    files: usize,
    lines: usize,
    bytes: usize,
}

impl PageBudget {
    /// Counts a file; returns `false` if it does not fit on the page.
    fn take(&mut self, diff: &FileDiff) -> bool {
        self.files += 1;
        self.lines += diff.diff.bytes().filter(|byte| *byte == b'\n').count();
        self.bytes += diff.diff.len();
        self.files <= MAX_PAGE_FILES && self.lines < MAX_PAGE_LINES && self.bytes < MAX_PAGE_BYTES
    }
}

/// The diff of one file, with its line counts.
#[derive(Default)]
struct TextDiff {
    diff: String,
    too_large: bool,
    stats: CommitStats,
}

/// The time after which the rest of a diff is left out. Almost all diffs take milliseconds, but some files are crafted to
/// take long.
const DIFF_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for all file lists of one push, which the client waits for.
const FILE_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Limits the file lists of one push in size and time.
pub struct FileListBudget {
    soft_deadline: SoftDeadline,
    bytes: usize,
}

impl FileListBudget {
    /// Allows this many bytes of paths.
    pub fn new(bytes: usize) -> Self {
        Self { soft_deadline: SoftDeadline::within(FILE_LIST_TIMEOUT), bytes }
    }

    /// Counts a path; returns `false` if it exceeds the limit.
    fn take(&mut self, path: &str) -> bool {
        let left = self.bytes.checked_sub(path.len());
        self.bytes = left.unwrap_or_default();
        left.is_some()
    }
}

impl Repository {
    /// Returns which files a commit added, modified and removed relative to its first parent, until the budget is used
    /// up. A renamed file counts as added.
    pub fn file_lists(&self, id: Oid, budget: &mut FileListBudget) -> Result<ChangedPaths> {
        let mut lists = ChangedPaths::default();
        if budget.soft_deadline.has_passed() || budget.bytes == 0 {
            return Ok(lists);
        }
        let (old, new) = self.parent_and_own_tree(id)?;
        for change in self.changes(old, new, &budget.soft_deadline)?.list {
            let (list, version) = match change {
                FileChange::Removed(version) => (&mut lists.removed, version),
                FileChange::Changed(old, new) if old.path == new.path => (&mut lists.modified, new),
                FileChange::Added(version) | FileChange::Changed(_, version) => (&mut lists.added, version),
            };
            let path = text(&version.path);
            if !budget.take(&path) {
                break;
            }
            list.push(path);
        }
        Ok(lists)
    }

    /// Returns the diff of a commit against its first parent, or against the empty tree; truncated to one page.
    pub fn commit_diff(&self, id: Oid) -> Result<Vec<FileDiff>> {
        let (old, new) = self.parent_and_own_tree(id)?;
        let mut budget = PageBudget::default();
        let mut files = Vec::new();
        let soft_deadline = SoftDeadline::within(DIFF_TIMEOUT);
        for change in self.changes(old, new, &soft_deadline)?.list.into_iter().take(MAX_PAGE_FILES) {
            let (file, _) = self.file_diff(change, &soft_deadline, Whitespace::Significant)?;
            if !budget.take(&file) {
                break;
            }
            files.push(file);
        }
        Ok(files)
    }

    /// Returns the number of lines that a commit added and removed relative to its first parent.
    pub fn commit_stats(&self, id: Oid) -> Result<CommitStats> {
        let (old, new) = self.parent_and_own_tree(id)?;
        let mut total = CommitStats::default();
        let soft_deadline = SoftDeadline::within(DIFF_TIMEOUT);
        for change in self.changes(old, new, &soft_deadline)?.list {
            let (_, stats) = self.file_diff(change, &soft_deadline, Whitespace::Significant)?;
            total.additions += stats.additions;
            total.deletions += stats.deletions;
        }
        Ok(total)
    }

    /// Returns the diff of a commit against its first parent, with all files, the total number of changed lines, and
    /// whether it is larger than one page.
    pub fn whole_commit_diff(&self, id: Oid, whitespace: Whitespace) -> Result<(Vec<FileDiff>, CommitStats, bool)> {
        let (old, new) = self.parent_and_own_tree(id)?;
        self.diff(old, new, whitespace)
    }

    /// Returns the diff between two trees, the total number of changed lines, and whether it is larger than one page.
    pub(crate) fn diff(
        &self,
        old: ObjectId,
        new: ObjectId,
        whitespace: Whitespace,
    ) -> Result<(Vec<FileDiff>, CommitStats, bool)> {
        let mut soft_deadline = SoftDeadline::within(DIFF_TIMEOUT);
        let changes = self.changes(old, new, &soft_deadline)?;
        let mut budget = PageBudget::default();
        let mut total = CommitStats::default();
        let mut is_truncated = changes.is_truncated;
        is_truncated |= changes.list.len() > MAX_LISTED_FILES;
        let mut files = Vec::with_capacity(changes.list.len().min(MAX_LISTED_FILES));
        for change in changes.list.into_iter().take(MAX_LISTED_FILES) {
            let (file, stats) = self.file_diff(change, &soft_deadline, whitespace)?;
            total.additions += stats.additions;
            total.deletions += stats.deletions;
            is_truncated |= !budget.take(&file);
            if budget.bytes > MAX_TOTAL_TEXT {
                soft_deadline.expire();
            }
            files.push(file);
        }
        Ok((files, total, is_truncated))
    }

    /// Returns the tree of a commit's first parent and that of the commit.
    fn parent_and_own_tree(&self, id: Oid) -> Result<(ObjectId, ObjectId)> {
        let mut history = self.history();
        let node = history.node(gix_id(id))?;
        let parent = node.parents.first().map(|parent| history.node(*parent)).transpose()?;
        let tree = |node: &Node| node.tree.unwrap_or_else(empty_tree);
        Ok((parent.map_or_else(empty_tree, |parent| tree(&parent)), tree(&node)))
    }

    fn file_diff(
        &self,
        change: FileChange,
        soft_deadline: &SoftDeadline,
        whitespace: Whitespace,
    ) -> Result<(FileDiff, CommitStats)> {
        let (old, new) = match change {
            FileChange::Added(new) => (None, Some(new)),
            FileChange::Removed(old) => (Some(old), None),
            FileChange::Changed(old, new) => (Some(old), Some(new)),
        };
        let path = |version: Option<&FileVersion>, other: Option<&FileVersion>| {
            version.or(other).map(|version| text(&version.path)).unwrap_or_default()
        };
        let old_path = path(old.as_ref(), new.as_ref());
        let new_path = path(new.as_ref(), old.as_ref());
        let label = |version: Option<&FileVersion>, prefix, path| {
            version.map_or("/dev/null".into(), |_| patch::quote(prefix, path))
        };
        let labels = (label(old.as_ref(), "a/", &old_path), label(new.as_ref(), "b/", &new_path));
        let found = self.text_diff(old.as_ref(), new.as_ref(), &labels, soft_deadline, whitespace)?;
        let file = FileDiff {
            renamed: old_path != new_path,
            old_path,
            new_path,
            old_mode: old.map(|version| version.mode),
            new_mode: new.map(|version| version.mode),
            diff: found.diff,
            too_large: found.too_large,
        };
        Ok((file, found.stats))
    }

    fn text_diff(
        &self,
        old: Option<&FileVersion>,
        new: Option<&FileVersion>,
        labels: &(String, String),
        soft_deadline: &SoftDeadline,
        whitespace: Whitespace,
    ) -> Result<TextDiff> {
        if old.map(|version| version.id) == new.map(|version| version.id) {
            return Ok(TextDiff::default());
        }
        let binary =
            || TextDiff { diff: format!("Binary files {} and {} differ\n", labels.0, labels.1), ..TextDiff::default() };
        let too_large = || TextDiff { too_large: true, ..TextDiff::default() };
        if soft_deadline.has_passed() {
            return Ok(too_large());
        }
        let (old_size, new_size) = (self.size_of(old)?, self.size_of(new)?);
        if old_size.max(new_size) > MAX_FILE_SIZE {
            return Ok(binary());
        }
        // Files that are not compared are read only to detect binary ones.
        let max_bytes = if old_size.max(new_size) > MAX_TEXT_SIZE { BINARY_CHECK_BYTES } else { u64::MAX };
        let (mut old_buffer, mut new_buffer) = (Buffer::default(), Buffer::default());
        let old = self.content_of(old, max_bytes, &mut old_buffer)?;
        let new = self.content_of(new, max_bytes, &mut new_buffer)?;
        if patch::is_binary(old) || patch::is_binary(new) {
            return Ok(binary());
        }
        let lines = |text: &[u8]| text.split(|byte| *byte == b'\n').count();
        if max_bytes == BINARY_CHECK_BYTES || lines(old).max(lines(new)) > MAX_TEXT_LINES {
            return Ok(too_large());
        }
        let patch = patch::compare(old, new, whitespace);
        let stats = CommitStats { additions: patch.added, deletions: patch.removed };
        let Some(hunks) = patch.hunks else { return Ok(TextDiff { stats, ..too_large() }) };
        if hunks.is_empty() {
            return Ok(TextDiff::default());
        }
        let diff = format!("--- {}\n+++ {}\n{}", labels.0, labels.1, String::from_utf8_lossy(&hunks));
        Ok(TextDiff { diff, too_large: false, stats })
    }

    fn size_of(&self, version: Option<&FileVersion>) -> Result<u64> {
        match version.filter(|version| !is_submodule(version)) {
            Some(version) => Ok(self.header(&version.id)?.map_or(0, |(_, size)| size)),
            None => Ok(0),
        }
    }

    /// Returns the text to compare: the content of a file, or a line that names the commit of a submodule.
    fn content_of<'a>(
        &self,
        version: Option<&FileVersion>,
        max_bytes: u64,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8]> {
        match version {
            Some(version) if is_submodule(version) => {
                buffer.bytes.extend_from_slice(format!("Subproject commit {}\n", version.id).as_bytes());
                Ok(&buffer.bytes)
            }
            Some(version) => self.read_blob(&version.id, max_bytes, buffer),
            None => Ok(&[]),
        }
    }
}

/// Returns the id of the empty tree.
pub(crate) fn empty_tree() -> ObjectId {
    ObjectId::empty_tree(gix::hash::Kind::Sha1)
}

fn is_submodule(version: &FileVersion) -> bool {
    version.mode == 0o160_000
}
