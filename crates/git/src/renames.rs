//! Finds files that were moved, the way git does: the same contents first, then a file of the same name that is much
//! alike, then whatever is most alike.
//!
//! gix can do it as well, but by a measure of its own, and by comparing every pair line by line, which takes minutes
//! where many files were moved at once. Here each file is summed up once.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
    hash::{DefaultHasher, Hasher as _},
};

use gix::{ObjectId, bstr::BString};

use crate::{
    Error, Repository, Result,
    changes::{Change, Side, kind_bits},
    patience::Patience,
};

/// How much of the larger file has to be found in the other, in percent, for a file to count as moved.
const ALIKE: u64 = 50;
/// How much, if both have the same name and no other removed or added file has it.
const ALIKE_BY_NAME: u64 = 75;
/// Beyond as many pairs as this many files on either side make, contents are not compared.
const MOST_FILES: usize = 1000;
/// How many of the files that a file may have been are remembered.
const MOST_ORIGINS: usize = 4;
/// Files longer than this are not compared.
const LONGEST: u64 = 1024 * 1024;
/// How many pieces of files are remembered in all before contents are no longer compared.
const MOST_PIECES: usize = 400_000;
/// How many bytes are read in all before contents are no longer compared.
const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// The longest piece of a file that is summed up as one, if no line ends before.
const LONGEST_PIECE: usize = 64;

/// Pairs files that were removed with files that were added.
pub(crate) fn find(
    repository: &Repository,
    removed: Vec<Side>,
    added: Vec<Side>,
    patience: &Patience,
) -> Result<Vec<Change>> {
    let mut pairs = Pairs::new(removed, added);
    pairs.match_contents();
    let (origins, targets) = pairs.open();
    if !origins.is_empty() && !targets.is_empty() {
        let mut sketches = Sketches { repository, known: HashMap::new(), bytes: 0, pieces: 0 };
        pairs.match_names(&mut sketches)?;
        let (origins, targets) = pairs.open();
        if origins.len().saturating_mul(targets.len()) <= MOST_FILES * MOST_FILES {
            pairs.match_alike(&origins, &targets, &mut sketches, patience)?;
        }
    }
    Ok(pairs.into_changes())
}

struct Pairs {
    /// Sorted by path, as is `added`.
    removed: Vec<Side>,
    added: Vec<Side>,
    /// Which of the added files a removed one has become.
    became: Vec<Option<usize>>,
    /// Which of the removed files an added one has been.
    was: Vec<Option<usize>>,
}

impl Pairs {
    fn new(mut removed: Vec<Side>, mut added: Vec<Side>) -> Self {
        removed.sort_by(|a, b| a.path.cmp(&b.path));
        added.sort_by(|a, b| a.path.cmp(&b.path));
        let (became, was) = (vec![None; removed.len()], vec![None; added.len()]);
        Self { removed, added, became, was }
    }

    fn join(&mut self, origin: usize, target: usize) {
        self.became[origin] = Some(target);
        self.was[target] = Some(origin);
    }

    /// The files, by their places, that have not found each other and whose contents can be compared.
    fn open(&self) -> (Vec<usize>, Vec<usize>) {
        let open = |sides: &[Side], matched: &[Option<usize>]| {
            let is_open = |place: &usize| matched[*place].is_none() && is_file(&sides[*place]);
            (0..sides.len()).filter(is_open).collect()
        };
        (open(&self.removed, &self.became), open(&self.added, &self.was))
    }

    /// Joins files with the same contents; of several, that of the same name.
    fn match_contents(&mut self) {
        let mut by_id: HashMap<ObjectId, Vec<usize>> = HashMap::new();
        for (place, side) in self.removed.iter().enumerate() {
            by_id.entry(side.id).or_default().push(place);
        }
        for target in 0..self.added.len() {
            let Some(origins) = by_id.get_mut(&self.added[target].id) else { continue };
            let fits = |origin: usize| kind_bits(self.removed[origin].mode) == kind_bits(self.added[target].mode);
            let same_name = |origin: usize| name(&self.removed[origin]) == name(&self.added[target]);
            let place = origins.iter().position(|origin| fits(*origin) && same_name(*origin));
            let place = place.or_else(|| origins.iter().position(|origin| fits(*origin)));
            if let Some(place) = place {
                let origin = origins.remove(place);
                self.join(origin, target);
            }
        }
    }

    /// Joins files of one name that only one removed and one added file has, if they are much alike.
    fn match_names(&mut self, sketches: &mut Sketches<'_>) -> Result<()> {
        let (origins, targets) = self.open();
        let origins = unique_names(&self.removed, &origins);
        let targets = unique_names(&self.added, &targets);
        let mut found: Vec<_> = targets
            .iter()
            .filter_map(|(name, target)| Some((origins.get(name).copied().flatten()?, (*target)?)))
            .collect();
        found.sort_unstable();
        for (origin, target) in found {
            if sketches.likeness(&self.removed[origin], &self.added[target])? >= ALIKE_BY_NAME * 100 {
                self.join(origin, target);
            }
        }
        Ok(())
    }

    /// Joins the files that are most alike.
    fn match_alike(
        &mut self,
        origins: &[usize],
        targets: &[usize],
        sketches: &mut Sketches<'_>,
        patience: &Patience,
    ) -> Result<()> {
        let mut found = Vec::new();
        for target in targets {
            if patience.is_lost() {
                break;
            }
            let mut best = Vec::new();
            for origin in origins {
                let likeness = sketches.likeness(&self.removed[*origin], &self.added[*target])?;
                if likeness >= ALIKE * 100 {
                    let same_name = name(&self.removed[*origin]) == name(&self.added[*target]);
                    best.push(((likeness, same_name), *origin, *target));
                }
            }
            best.sort_by_key(|(score, ..)| Reverse(*score));
            best.truncate(MOST_ORIGINS);
            found.append(&mut best);
        }
        found.sort_by_key(|(score, ..)| Reverse(*score));
        for (_, origin, target) in found {
            if self.became[origin].is_none() && self.was[target].is_none() {
                self.join(origin, target);
            }
        }
        Ok(())
    }

    fn into_changes(self) -> Vec<Change> {
        let mut removed: Vec<_> = self.removed.into_iter().map(Some).collect();
        let mut changes = Vec::with_capacity(removed.len() + self.added.len());
        for (side, was) in self.added.into_iter().zip(self.was) {
            changes.push(match was.and_then(|origin| removed[origin].take()) {
                Some(origin) => Change::Changed(origin, side),
                None => Change::Added(side),
            });
        }
        changes.extend(removed.into_iter().flatten().map(Change::Removed));
        changes
    }
}

/// What is in files, summed up so that two of them are quickly compared.
struct Sketches<'a> {
    repository: &'a Repository,
    known: HashMap<ObjectId, Option<Sketch>>,
    bytes: u64,
    pieces: usize,
}

/// How many bytes of a file are in pieces of which kind, sorted by kind.
struct Sketch {
    size: u64,
    pieces: Vec<(u64, u64)>,
}

impl Sketches<'_> {
    /// How much of the larger file is found in the other, in hundredths of a percent.
    fn likeness(&mut self, old: &Side, new: &Side) -> Result<u64> {
        self.learn(&old.id)?;
        self.learn(&new.id)?;
        let (Some(Some(old)), Some(Some(new))) = (self.known.get(&old.id), self.known.get(&new.id)) else {
            return Ok(0);
        };
        let largest = old.size.max(new.size);
        // Nothing is like an empty file, and no file can be alike that is much longer or shorter.
        if old.size.min(new.size) * 100 < largest * ALIKE || largest == 0 {
            return Ok(0);
        }
        Ok(old.in_common(new) * 10_000 / largest)
    }

    fn learn(&mut self, id: &ObjectId) -> Result<()> {
        if self.known.contains_key(id) {
            return Ok(());
        }
        let size = self.repository.blob_size(crate::repository::oid(id))?.unwrap_or(u64::MAX);
        let mut sketch = None;
        if size <= LONGEST && self.bytes + size <= MOST_BYTES && self.pieces < MOST_PIECES {
            self.bytes += size;
            let mut buffer = Vec::new();
            let blob = match self.repository.blob(id, &mut buffer) {
                Err(Error::TooLarge(_)) => None,
                blob => blob?,
            };
            let most = MOST_PIECES - self.pieces;
            sketch = blob.filter(|data| count_pieces(data) <= most).map(Sketch::of);
            self.pieces += sketch.as_ref().map_or(0, |sketch| sketch.pieces.len());
        }
        self.known.insert(*id, sketch);
        Ok(())
    }
}

/// How many pieces a file has at most.
fn count_pieces(data: &[u8]) -> usize {
    data.split(|byte| *byte == b'\n').count() + data.len() / LONGEST_PIECE
}

impl Sketch {
    fn of(data: &[u8]) -> Self {
        let is_text = !crate::patch::is_binary(data);
        let mut pieces = Vec::new();
        for line in data.split_inclusive(|byte| *byte == b'\n') {
            for piece in line.chunks(LONGEST_PIECE) {
                // How lines end makes no difference.
                let piece = match piece.strip_suffix(b"\r\n") {
                    Some(piece) if is_text => (hash(&[piece, b"\n"]), piece.len() + 1),
                    _ => (hash(&[piece]), piece.len()),
                };
                pieces.push((piece.0, piece.1 as u64));
            }
        }
        pieces.sort_unstable();
        pieces.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            earlier.1 += if same { later.1 } else { 0 };
            same
        });
        pieces.shrink_to_fit();
        Self { size: data.len() as u64, pieces }
    }

    /// How many bytes are in both.
    fn in_common(&self, other: &Self) -> u64 {
        let (mut mine, mut theirs) = (self.pieces.iter().peekable(), other.pieces.iter().peekable());
        let mut bytes = 0;
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            match a.0.cmp(&b.0) {
                Ordering::Less => drop(mine.next()),
                Ordering::Greater => drop(theirs.next()),
                Ordering::Equal => {
                    bytes += a.1.min(b.1);
                    mine.next();
                    theirs.next();
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

fn name(side: &Side) -> &[u8] {
    side.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&side.path)
}

fn is_file(side: &Side) -> bool {
    kind_bits(side.mode) == 0o100_000
}

/// The files by their names; `None` for a name that several have.
fn unique_names(sides: &[Side], places: &[usize]) -> HashMap<BString, Option<usize>> {
    let mut names = HashMap::new();
    for place in places {
        names.entry(name(&sides[*place]).into()).and_modify(|it| *it = None).or_insert(Some(*place));
    }
    names
}
