//! Detects renamed files the way git does: identical contents first, then similar files with the same name, then the
//! most similar ones.
//!
//! gix can do this as well, but by a different measure, and by comparing every pair line by line, which takes minutes
//! if many files were renamed at once. Here each file is summarized once.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
    hash::{DefaultHasher, Hasher as _},
};

use gix::{ObjectId, bstr::BString};

use crate::{
    Error, Repository, Result,
    changes::{FileChange, FileVersion, kind_bits},
    deadline::SoftDeadline,
};

/// The minimum similarity of a renamed file: the percentage of the larger file that is found in the other one.
const MIN_SIMILARITY: u64 = 50;
/// The minimum similarity if both files have the same name, and no other removed or added file has it.
const MIN_SIMILARITY_SAME_NAME: u64 = 75;
/// Contents are not compared if there are more pairs than this many files on either side result in.
const MAX_FILES: usize = 1000;
/// The maximum number of candidates that are kept for each added file.
const MAX_ORIGINS: usize = 4;
/// Files larger than this are not compared.
const MAX_FILE_SIZE: u64 = 1024 * 1024;
/// The maximum number of chunks that are kept in total before contents are no longer compared.
const MAX_CHUNKS: usize = 400_000;
/// The maximum number of bytes that are read in total before contents are no longer compared.
const MAX_TOTAL_BYTES: u64 = 32 * 1024 * 1024;
/// The maximum length of a chunk, if no line ends before.
const MAX_CHUNK_LENGTH: usize = 64;

/// Pairs removed files with added files.
pub(crate) fn find(
    repository: &Repository,
    removed: Vec<FileVersion>,
    added: Vec<FileVersion>,
    soft_deadline: &SoftDeadline,
) -> Result<Vec<FileChange>> {
    let mut pairs = Pairs::new(removed, added);
    pairs.match_contents();
    let (origins, targets) = pairs.unmatched();
    if !origins.is_empty() && !targets.is_empty() {
        let mut sketches = Sketches { repository, by_id: HashMap::new(), bytes: 0, chunks: 0 };
        pairs.match_names(&mut sketches)?;
        let (origins, targets) = pairs.unmatched();
        if origins.len().saturating_mul(targets.len()) <= MAX_FILES * MAX_FILES {
            pairs.match_similar(&origins, &targets, &mut sketches, soft_deadline)?;
        }
    }
    Ok(pairs.into_changes())
}

struct Pairs {
    /// Sorted by path, as is `added`.
    removed: Vec<FileVersion>,
    added: Vec<FileVersion>,
    /// The added file of each removed one.
    target_of: Vec<Option<usize>>,
    /// The removed file of each added one.
    origin_of: Vec<Option<usize>>,
}

impl Pairs {
    fn new(mut removed: Vec<FileVersion>, mut added: Vec<FileVersion>) -> Self {
        removed.sort_by(|a, b| a.path.cmp(&b.path));
        added.sort_by(|a, b| a.path.cmp(&b.path));
        let (target_of, origin_of) = (vec![None; removed.len()], vec![None; added.len()]);
        Self { removed, added, target_of, origin_of }
    }

    fn pair(&mut self, origin: usize, target: usize) {
        self.target_of[origin] = Some(target);
        self.origin_of[target] = Some(origin);
    }

    /// Returns the indexes of the files that are not paired and whose contents can be compared.
    fn unmatched(&self) -> (Vec<usize>, Vec<usize>) {
        let unmatched = |versions: &[FileVersion], pairing: &[Option<usize>]| {
            let is_unmatched = |index: &usize| pairing[*index].is_none() && is_file(&versions[*index]);
            (0..versions.len()).filter(is_unmatched).collect()
        };
        (unmatched(&self.removed, &self.target_of), unmatched(&self.added, &self.origin_of))
    }

    /// Pairs files with the same contents; if there are several, the one with the same name.
    fn match_contents(&mut self) {
        let mut by_id: HashMap<ObjectId, Vec<usize>> = HashMap::new();
        for (index, version) in self.removed.iter().enumerate() {
            by_id.entry(version.id).or_default().push(index);
        }
        for target in 0..self.added.len() {
            let Some(origins) = by_id.get_mut(&self.added[target].id) else { continue };
            let same_kind = |origin: usize| kind_bits(self.removed[origin].mode) == kind_bits(self.added[target].mode);
            let same_name = |origin: usize| name(&self.removed[origin]) == name(&self.added[target]);
            let index = origins.iter().position(|origin| same_kind(*origin) && same_name(*origin));
            let index = index.or_else(|| origins.iter().position(|origin| same_kind(*origin)));
            if let Some(index) = index {
                let origin = origins.remove(index);
                self.pair(origin, target);
            }
        }
    }

    /// Pairs similar files with a name that only one removed and one added file has.
    fn match_names(&mut self, sketches: &mut Sketches<'_>) -> Result<()> {
        let (origins, targets) = self.unmatched();
        let origins = unique_names(&self.removed, &origins);
        let targets = unique_names(&self.added, &targets);
        let mut found: Vec<_> = targets
            .iter()
            .filter_map(|(name, target)| Some((origins.get(name).copied().flatten()?, (*target)?)))
            .collect();
        found.sort_unstable();
        for (origin, target) in found {
            if sketches.similarity(&self.removed[origin], &self.added[target])? >= MIN_SIMILARITY_SAME_NAME * 100 {
                self.pair(origin, target);
            }
        }
        Ok(())
    }

    /// Pairs the most similar files.
    fn match_similar(
        &mut self,
        origins: &[usize],
        targets: &[usize],
        sketches: &mut Sketches<'_>,
        soft_deadline: &SoftDeadline,
    ) -> Result<()> {
        let mut found = Vec::new();
        for target in targets {
            if soft_deadline.has_passed() {
                break;
            }
            let mut best = Vec::new();
            for origin in origins {
                let similarity = sketches.similarity(&self.removed[*origin], &self.added[*target])?;
                if similarity >= MIN_SIMILARITY * 100 {
                    let same_name = name(&self.removed[*origin]) == name(&self.added[*target]);
                    best.push(((similarity, same_name), *origin, *target));
                }
            }
            best.sort_by_key(|(score, ..)| Reverse(*score));
            best.truncate(MAX_ORIGINS);
            found.append(&mut best);
        }
        found.sort_by_key(|(score, ..)| Reverse(*score));
        for (_, origin, target) in found {
            if self.target_of[origin].is_none() && self.origin_of[target].is_none() {
                self.pair(origin, target);
            }
        }
        Ok(())
    }

    fn into_changes(self) -> Vec<FileChange> {
        let mut removed: Vec<_> = self.removed.into_iter().map(Some).collect();
        let mut changes = Vec::with_capacity(removed.len() + self.added.len());
        for (version, origin) in self.added.into_iter().zip(self.origin_of) {
            changes.push(match origin.and_then(|index| removed[index].take()) {
                Some(origin) => FileChange::Changed(origin, version),
                None => FileChange::Added(version),
            });
        }
        changes.extend(removed.into_iter().flatten().map(FileChange::Removed));
        changes
    }
}

/// Summaries of files, which allow fast comparisons.
struct Sketches<'a> {
    repository: &'a Repository,
    by_id: HashMap<ObjectId, Option<Sketch>>,
    bytes: u64,
    chunks: usize,
}

/// The number of bytes in chunks with each hash, sorted by hash.
struct Sketch {
    size: u64,
    chunks: Vec<(u64, u64)>,
}

impl Sketches<'_> {
    /// Returns the percentage of the larger file that is found in the other one, in hundredths.
    fn similarity(&mut self, old: &FileVersion, new: &FileVersion) -> Result<u64> {
        self.load(&old.id)?;
        self.load(&new.id)?;
        let (Some(Some(old)), Some(Some(new))) = (self.by_id.get(&old.id), self.by_id.get(&new.id)) else {
            return Ok(0);
        };
        let larger_size = old.size.max(new.size);
        // Nothing is similar to an empty file, or to a much larger one.
        if old.size.min(new.size) * 100 < larger_size * MIN_SIMILARITY || larger_size == 0 {
            return Ok(0);
        }
        Ok(old.common_bytes(new) * 10_000 / larger_size)
    }

    fn load(&mut self, id: &ObjectId) -> Result<()> {
        if self.by_id.contains_key(id) {
            return Ok(());
        }
        let size = self.repository.blob_size(crate::repository::oid(id))?.unwrap_or(u64::MAX);
        let mut sketch = None;
        if size <= MAX_FILE_SIZE && self.bytes + size <= MAX_TOTAL_BYTES && self.chunks < MAX_CHUNKS {
            self.bytes += size;
            let mut buffer = Vec::new();
            let blob = match self.repository.blob(id, &mut buffer) {
                Err(Error::TooLarge(_)) => None,
                blob => blob?,
            };
            let max_chunks = MAX_CHUNKS - self.chunks;
            sketch = blob.filter(|data| max_chunk_count(data) <= max_chunks).map(Sketch::of);
            self.chunks += sketch.as_ref().map_or(0, |sketch| sketch.chunks.len());
        }
        self.by_id.insert(*id, sketch);
        Ok(())
    }
}

/// Returns the maximum number of chunks of a file.
fn max_chunk_count(data: &[u8]) -> usize {
    data.split(|byte| *byte == b'\n').count() + data.len() / MAX_CHUNK_LENGTH
}

impl Sketch {
    fn of(data: &[u8]) -> Self {
        let is_text = !crate::patch::is_binary(data);
        let mut chunks = Vec::new();
        for line in data.split_inclusive(|byte| *byte == b'\n') {
            for chunk in line.chunks(MAX_CHUNK_LENGTH) {
                // The kind of line ending makes no difference.
                let chunk = match chunk.strip_suffix(b"\r\n") {
                    Some(chunk) if is_text => (hash(&[chunk, b"\n"]), chunk.len() + 1),
                    _ => (hash(&[chunk]), chunk.len()),
                };
                chunks.push((chunk.0, chunk.1 as u64));
            }
        }
        chunks.sort_unstable();
        chunks.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            earlier.1 += if same { later.1 } else { 0 };
            same
        });
        chunks.shrink_to_fit();
        Self { size: data.len() as u64, chunks }
    }

    /// Returns the number of bytes in chunks that are in both files.
    fn common_bytes(&self, other: &Self) -> u64 {
        let (mut own_chunks, mut other_chunks) = (self.chunks.iter().peekable(), other.chunks.iter().peekable());
        let mut bytes = 0;
        while let (Some(a), Some(b)) = (own_chunks.peek(), other_chunks.peek()) {
            match a.0.cmp(&b.0) {
                Ordering::Less => drop(own_chunks.next()),
                Ordering::Greater => drop(other_chunks.next()),
                Ordering::Equal => {
                    bytes += a.1.min(b.1);
                    own_chunks.next();
                    other_chunks.next();
                }
            }
        }
        bytes
    }
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write(part);
    }
    hasher.finish()
}

fn name(version: &FileVersion) -> &[u8] {
    version.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&version.path)
}

fn is_file(version: &FileVersion) -> bool {
    kind_bits(version.mode) == 0o100_000
}

/// Returns the files by name; `None` for a name that several files have.
fn unique_names(versions: &[FileVersion], indexes: &[usize]) -> HashMap<BString, Option<usize>> {
    let mut names = HashMap::new();
    for index in indexes {
        names.entry(name(&versions[*index]).into()).and_modify(|slot| *slot = None).or_insert(Some(*index));
    }
    names
}
