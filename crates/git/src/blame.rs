//! Which commit last changed each line of a file.
//!
//! As in git, lines are handed from a commit to the parents that have them too; what no parent has was changed by the
//! commit. A file that does not exist in a parent is searched for under another name. The work ends at a deadline, and
//! what was not found by then is left open.

use std::{
    collections::{BinaryHeap, HashMap, hash_map::Entry},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use gix::{
    ObjectId,
    diff::blob::{Algorithm, InternedInput, diff_with_slider_heuristics},
};
use model::{
    Oid,
    objects::{Blame, BlameRange},
};

use crate::{
    Repository, Result,
    changes::kind_bits,
    commits::{EntryAtPath, PathHistory},
    deadline::SoftDeadline,
    diff::empty_tree,
    history::{CommitMap, History, Node},
    limits::Buffer,
    repository::{gix_id, oid},
};

/// The time after which the remaining lines are left open.
const BLAME_TIMEOUT: Duration = Duration::from_secs(3);
/// Versions of a file that are larger are not compared, in bytes.
const MAX_TEXT_SIZE: u64 = 2 << 20;
/// The maximum number of parents that are compared, as in git.
const MAX_PARENTS: usize = 16;
/// The maximum size of the versions that are kept in memory, in bytes.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// Lines of the file, and where they are in a version of it.
#[derive(Clone, Copy, Debug)]
struct Lines {
    /// The first line in the file.
    start: u32,
    /// The first line in the version.
    original: u32,
    length: u32,
}

/// A version of the file, with the lines whose origin is searched for there.
struct Suspect {
    path: Arc<str>,
    blob: ObjectId,
    mode: u16,
    lines: Vec<Lines>,
}

struct BlameWalk<'a> {
    repository: &'a Repository,
    history: History<'a>,
    soft_deadline: SoftDeadline,
    /// Entries at the paths that the file had.
    paths: HashMap<Arc<str>, PathHistory<'a>>,
    suspects: CommitMap<Vec<Suspect>>,
    queue: BinaryHeap<(u32, i64, ObjectId)>,
    contents: HashMap<ObjectId, Arc<[u8]>>,
    content_bytes: usize,
    /// Lines with their commit and path.
    found: Vec<(Lines, Option<ObjectId>, Arc<str>)>,
}

impl Repository {
    /// Returns which commits in the history of `tip` last changed the lines of a file; `None` if there is no such file.
    pub fn blame(&self, tip: Oid, path: &str) -> Result<Option<Blame>> {
        self.blame_within(BLAME_TIMEOUT, tip, path)
    }

    pub(crate) fn blame_within(&self, time: Duration, tip: Oid, path: &str) -> Result<Option<Blame>> {
        let mut walk = BlameWalk {
            repository: self,
            history: self.history(),
            soft_deadline: SoftDeadline::within(time),
            paths: HashMap::new(),
            suspects: CommitMap::default(),
            queue: BinaryHeap::new(),
            contents: HashMap::new(),
            content_bytes: 0,
            found: Vec::new(),
        };
        let (tip, path) = (gix_id(tip), Arc::<str>::from(path));
        let Some((mode, blob)) = walk.entry(tip, &path)?.filter(|(mode, _)| is_file(*mode)) else { return Ok(None) };
        let Some(content) = walk.content(&blob)? else { return Ok(None) };
        let length = u32::try_from(line_count(&content)).unwrap_or(u32::MAX);
        if length > 0 {
            let lines = Lines { start: 0, original: 0, length };
            walk.push(tip, Suspect { path, blob, mode, lines: vec![lines] })?;
        }
        walk.run()?;
        walk.into_blame().map(Some)
    }
}

impl BlameWalk<'_> {
    fn run(&mut self) -> Result<()> {
        while let Some((_, _, id)) = self.queue.pop() {
            for suspect in self.suspects.remove(&id).unwrap_or_default() {
                if self.soft_deadline.has_passed() || crate::is_cancelled() {
                    let Suspect { path, lines, .. } = suspect;
                    self.found.extend(lines.into_iter().map(|lines| (lines, None, Arc::clone(&path))));
                } else {
                    self.pass_to_parents(id, suspect)?;
                }
            }
        }
        Ok(())
    }

    /// Hands the lines of a version to the parents that have them; the others were changed by the commit.
    fn pass_to_parents(&mut self, id: ObjectId, mut suspect: Suspect) -> Result<()> {
        let node = self.history.node(id)?;
        let parents: Vec<ObjectId> = node.parents.iter().take(MAX_PARENTS).copied().collect();
        let mut origins: Vec<Option<Suspect>> = Vec::with_capacity(parents.len());
        origins.resize_with(parents.len(), || None);
        for follows_renames in [false, true] {
            for (index, parent) in parents.iter().enumerate() {
                if origins[index].is_some() {
                    continue;
                }
                let origin = self.origin(&node, *parent, &suspect, follows_renames)?;
                match origin {
                    Some(mut origin) if origin.blob == suspect.blob => {
                        origin.lines = suspect.lines;
                        return self.push(*parent, origin);
                    }
                    Some(origin) if !origins.iter().flatten().any(|other| other.blob == origin.blob) => {
                        origins[index] = Some(origin);
                    }
                    _ => {}
                }
            }
        }
        let mut is_too_large = false;
        for (parent, origin) in parents.into_iter().zip(origins) {
            let Some(mut origin) = origin else { continue };
            if suspect.lines.is_empty() {
                break;
            }
            let (Some(old), Some(new)) = (self.content(&origin.blob)?, self.content(&suspect.blob)?) else {
                is_too_large = true;
                continue;
            };
            origin.lines = take_unchanged(&old, &new, &mut suspect.lines);
            if !origin.lines.is_empty() {
                self.push(parent, origin)?;
            }
        }
        let commit = (!is_too_large).then_some(id);
        self.found.extend(suspect.lines.into_iter().map(|lines| (lines, commit, Arc::clone(&suspect.path))));
        Ok(())
    }

    /// Returns the version of the file in a parent, without lines.
    fn origin(
        &mut self,
        node: &Node,
        parent: ObjectId,
        suspect: &Suspect,
        follows_renames: bool,
    ) -> Result<Option<Suspect>> {
        let same_path = self.entry(parent, &suspect.path)?;
        if let Some((mode, blob)) = same_path.filter(|(mode, _)| kind_bits(*mode) == kind_bits(suspect.mode)) {
            return Ok(Some(Suspect { path: Arc::clone(&suspect.path), blob, mode, lines: Vec::new() }));
        }
        if !follows_renames || same_path.is_some() {
            return Ok(None);
        }
        let old = self.history.node(parent)?.tree.unwrap_or_else(empty_tree);
        let new = node.tree.unwrap_or_else(empty_tree);
        let origin = self.repository.rename_origin(old, new, suspect.path.as_bytes(), &self.soft_deadline)?;
        Ok(origin.and_then(|origin| {
            let path = Arc::from(std::str::from_utf8(&origin.path).ok()?);
            Some(Suspect { path, blob: origin.id, mode: origin.mode, lines: Vec::new() })
        }))
    }

    fn push(&mut self, commit: ObjectId, suspect: Suspect) -> Result<()> {
        let suspects = match self.suspects.entry(commit) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let node = self.history.node(commit)?;
                self.queue.push((node.generation, node.seconds, commit));
                entry.insert(Vec::new())
            }
        };
        match suspects.iter_mut().find(|other| other.path == suspect.path) {
            Some(other) => {
                other.lines.extend(suspect.lines);
                other.lines.sort_unstable_by_key(|lines| lines.original);
            }
            None => suspects.push(suspect),
        }
        Ok(())
    }

    fn entry(&mut self, commit: ObjectId, path: &Arc<str>) -> Result<EntryAtPath> {
        let new = || PathHistory::new(self.repository, Some(path));
        self.paths.entry(Arc::clone(path)).or_insert_with(new).at(commit, &mut self.history)
    }

    /// Returns the content of a version; `None` if it is too large.
    fn content(&mut self, blob: &ObjectId) -> Result<Option<Arc<[u8]>>> {
        if let Some(content) = self.contents.get(blob) {
            return Ok(Some(Arc::clone(content)));
        }
        let size = self.repository.blob_size(oid(blob))?.unwrap_or(u64::MAX);
        if size > MAX_TEXT_SIZE {
            return Ok(None);
        }
        let content: Arc<[u8]> = self.repository.read_blob(blob, MAX_TEXT_SIZE, &mut Buffer::default())?.into();
        if self.content_bytes + content.len() > MAX_KEPT_BYTES {
            self.contents.clear();
            self.content_bytes = 0;
        }
        self.content_bytes += content.len();
        self.contents.insert(*blob, Arc::clone(&content));
        Ok(Some(content))
    }

    /// Sorts the lines and joins those that belong together.
    fn into_blame(mut self) -> Result<Blame> {
        self.found.sort_unstable_by_key(|(lines, ..)| lines.start);
        let mut blame = Blame::default();
        let mut indexes: CommitMap<usize> = CommitMap::default();
        let mut ids = Vec::new();
        for (lines, commit, path) in self.found {
            let commit = commit.map(|id| {
                *indexes.entry(id).or_insert_with(|| {
                    ids.push(id);
                    ids.len() - 1
                })
            });
            let (start, length) = (lines.start as usize, lines.length as usize);
            let original_start = lines.original as usize;
            if let Some(last) = blame.ranges.last_mut()
                && last.commit == commit
                && last.original_path == *path
                && (commit.is_none() || last.original_start + last.length == original_start)
            {
                last.length += length;
                continue;
            }
            blame.ranges.push(BlameRange { start, length, commit, original_start, original_path: path.to_string() });
        }
        blame.commits = self.repository.decode_commits(&ids)?;
        Ok(blame)
    }
}

/// Removes the lines that are the same in the old version, and returns them with their numbers in it.
fn take_unchanged(old: &[u8], new: &[u8], lines: &mut Vec<Lines>) -> Vec<Lines> {
    let input = InternedInput::new(old, new);
    let diff = diff_with_slider_heuristics(Algorithm::Myers, &input);
    let end = u32::try_from(input.after.len()).unwrap_or(u32::MAX);
    // The unchanged lines of the new version, and the distance to those of the old one.
    let mut unchanged: Vec<(Range<u32>, i64)> = Vec::new();
    let (mut at, mut offset) = (0, 0_i64);
    for hunk in diff.hunks() {
        unchanged.push((at..hunk.after.start, offset));
        at = hunk.after.end;
        offset = i64::from(hunk.before.end) - i64::from(hunk.after.end);
    }
    unchanged.push((at..end, offset));
    lines.sort_unstable_by_key(|lines| lines.original);
    let (mut kept, mut passed) = (Vec::new(), Vec::new());
    let mut first = 0;
    for piece in lines.drain(..) {
        let piece_end = piece.original + piece.length;
        let part = |range: Range<u32>| Lines {
            start: piece.start + (range.start - piece.original),
            original: range.start,
            length: range.end - range.start,
        };
        while first < unchanged.len() && unchanged[first].0.end <= piece.original {
            first += 1;
        }
        let mut at = piece.original;
        for (range, offset) in &unchanged[first..] {
            if range.start >= piece_end {
                break;
            }
            let same = range.start.max(at)..range.end.min(piece_end);
            if same.is_empty() {
                continue;
            }
            if at < same.start {
                kept.push(part(at..same.start));
            }
            let original = u32::try_from(i64::from(same.start) + offset).unwrap_or_default();
            passed.push(Lines { original, ..part(same.clone()) });
            at = same.end;
        }
        if at < piece_end {
            kept.push(part(at..piece_end));
        }
    }
    *lines = kept;
    passed
}

fn line_count(text: &[u8]) -> usize {
    text.split_inclusive(|byte| *byte == b'\n').count()
}

/// Returns whether a mode is that of a file or a symbolic link.
fn is_file(mode: u16) -> bool {
    matches!(kind_bits(mode), 0o100_000 | 0o120_000)
}
