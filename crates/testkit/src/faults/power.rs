//! What a loss of power leaves of a folder.
//!
//! Each write since the last sync of its file is kept, lost or torn, whatever became of the others; of the changes of names
//! that were not synced, those up to some moment are kept.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::journal::{Entry, Kind, Step};

/// What is torn is torn between sectors of a disk.
const SECTOR: usize = 512;

/// What a sync promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// What POSIX promises and no more: to sync a file is not to sync its name, and folders know nothing of each other, so
    /// that a later change in one may be on disk where an earlier one in another is not.
    Strict,
    /// The same promises of a sync, but what was not synced gets to the disk in the order in which it happened. No file
    /// system in use does less, and the programs of git count on it when they remove what they have packed.
    Ordered,
    /// As a file system with one journal does it: whatever is synced, all earlier changes of names are on disk as well.
    Journaled,
}

/// What was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Writes that nothing is left of.
    pub writes: usize,
    /// Writes that something is left of.
    pub torn: usize,
    /// Changes of names that have not happened.
    pub names: usize,
}

/// A folder, also if another one has got its number since.
type Key = (u64, u32);

/// A file's changes that were not synced.
#[derive(Default)]
struct Pending {
    /// Made in this life and never synced, so nothing of it is on disk for sure.
    fresh: bool,
    changes: Vec<Change>,
}

enum Change {
    Write { from: usize, length: usize, size: usize, before: Vec<u8> },
    Truncate { to: usize, size: usize, before: Vec<u8> },
}

/// A change of names that was not synced.
struct Unsure {
    step: Step,
    /// The folder whose sync makes it last, the one it takes something away from, and itself if it is a folder.
    home: Key,
    from: Key,
    own: Key,
}

/// Makes of the folder what a loss of power could leave.
pub(super) fn lose(root: &Path, graves: &Path, entries: &[Entry], seed: u64, model: Model) -> Lost {
    let mut unsure = Unsynced::default();
    for entry in entries {
        unsure.follow(entry, model);
    }
    let mut chance = Chance(seed);
    let mut lost = Lost::default();
    lose_content(&[root, graves], &unsure.files, &mut chance, &mut lost);
    let undone = choose(unsure.steps, model, &mut chance);
    lost.names = undone.len();
    Tree::of(root, graves, &unsure.births).undo(undone);
    remove_shared_memory(root);
    lost
}

/// What could be lost.
#[derive(Default)]
struct Unsynced {
    files: BTreeMap<u64, Pending>,
    steps: Vec<Unsure>,
    /// How often a number was given to a new folder.
    births: HashMap<u64, u32>,
}

impl Unsynced {
    fn follow(&mut self, entry: &Entry, model: Model) {
        let number = |value: u64| usize::try_from(value).expect("a size");
        match entry {
            Entry::Write { file, from, length, size, before } => {
                let (from, length, size) = (number(*from), number(*length), number(*size));
                let change = Change::Write { from, length, size, before: before.clone() };
                self.files.entry(*file).or_default().changes.push(change);
            }
            Entry::Truncate { file, to, size, before } => {
                let change = Change::Truncate { to: number(*to), size: number(*size), before: before.clone() };
                self.files.entry(*file).or_default().changes.push(change);
            }
            Entry::Sync { file } => {
                self.files.remove(file);
                if model == Model::Journaled {
                    self.steps.clear();
                }
            }
            Entry::SyncFolder { folder } => {
                let key = self.key(*folder);
                self.steps.retain(|unsure| unsure.home != key && model != Model::Journaled);
            }
            Entry::SyncAll => {
                self.files.clear();
                self.steps.clear();
            }
            Entry::Step(step) => self.note(step),
        }
    }

    fn note(&mut self, step: &Step) {
        match step.kind {
            Kind::Create => drop(self.files.insert(step.file, Pending { fresh: true, changes: Vec::new() })),
            Kind::Mkdir => *self.births.entry(step.file).or_default() += 1,
            Kind::Rmdir | Kind::Unlink | Kind::Rename | Kind::Link => {}
        }
        let from = self.key(step.folder);
        let home = if step.kind == Kind::Rename { self.key(step.target) } else { from };
        self.steps.push(Unsure { step: step.clone(), home, from, own: self.key(step.file) });
    }

    fn key(&self, folder: u64) -> Key {
        (folder, self.births.get(&folder).copied().unwrap_or_default())
    }
}

/// Those changes of names that have not happened: the last few, of all or in each folder.
fn choose(steps: Vec<Unsure>, model: Model, chance: &mut Chance) -> Vec<Unsure> {
    let mut counts: BTreeMap<Key, usize> = BTreeMap::new();
    let home = |unsure: &Unsure| if model == Model::Strict { unsure.home } else { (0, 0) };
    for unsure in &steps {
        *counts.entry(home(unsure)).or_default() += 1;
    }
    for kept in counts.values_mut() {
        *kept = match chance.below(4) {
            0 => 0,
            1 => *kept,
            _ => chance.below(*kept + 1),
        };
    }
    let mut undone = Vec::new();
    for unsure in steps {
        match counts.get_mut(&home(&unsure)) {
            Some(kept @ 1..) => *kept -= 1,
            _ => undone.push(unsure),
        }
    }
    undone
}

fn lose_content(folders: &[&Path], files: &BTreeMap<u64, Pending>, chance: &mut Chance, lost: &mut Lost) {
    let mut places = HashMap::new();
    for folder in folders {
        walk(folder, &mut |path, data| {
            if data.is_file() {
                places.insert(data.ino(), path.to_owned());
            }
        });
    }
    for (file, pending) in files {
        // What is nowhere any more was removed for good, or had no name in the first place.
        let Some(place) = places.get(file) else { continue };
        let bytes = fs::read(place).expect("a file");
        let left = remains(bytes, pending, chance, lost);
        fs::write(place, left).expect("a file can be written");
    }
}

/// What is left of a file.
fn remains(mut bytes: Vec<u8>, pending: &Pending, chance: &mut Chance, lost: &mut Lost) -> Vec<u8> {
    // Back to what is on disk for sure; what was written is seen on the way.
    let mut written: Vec<(usize, Vec<u8>)> = Vec::new();
    for change in pending.changes.iter().rev() {
        let (place, size, before) = match change {
            Change::Write { from, length, size, before } => {
                let end = (from + length).min(bytes.len());
                written.push((*from, bytes.get(*from..end).unwrap_or_default().to_vec()));
                (*from, *size, before)
            }
            Change::Truncate { to, size, before } => {
                written.push((*to, Vec::new()));
                (*to, *size, before)
            }
        };
        bytes.resize(size, 0);
        if let Some(part) = bytes.get_mut(place..place + before.len()) {
            part.copy_from_slice(before);
        }
    }
    let whole = chance.below(4);
    let fate = |chance: &mut Chance| match whole {
        0 => Fate::Lost,
        1 => Fate::Kept,
        _ => [Fate::Kept, Fate::Kept, Fate::Lost, Fate::Torn][chance.below(4)],
    };
    if pending.fresh {
        // What the library has not seen, since it was written by the C library itself, is not on disk either.
        let unseen = std::mem::take(&mut bytes);
        if !unseen.is_empty() {
            write(&mut bytes, 0, &unseen, fate(chance), chance, lost);
        }
    }
    for (change, (place, new)) in pending.changes.iter().zip(written.iter().rev()) {
        let fate = fate(chance);
        match change {
            Change::Write { .. } => write(&mut bytes, *place, new, fate, chance, lost),
            Change::Truncate { .. } if fate == Fate::Lost => lost.writes += 1,
            Change::Truncate { to, .. } => bytes.resize(*to, 0),
        }
    }
    bytes
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

/// Writes, or half writes, or does not.
fn write(bytes: &mut Vec<u8>, place: usize, new: &[u8], fate: Fate, chance: &mut Chance, lost: &mut Lost) {
    let end = place + new.len();
    // The length may be on disk where the content is not.
    let grows = fate == Fate::Kept || chance.below(3) == 0;
    if grows && bytes.len() < end {
        bytes.resize(end, 0);
    }
    let from_the_front = chance.below(2) == 0;
    let up_to = chance.below(new.len() / SECTOR + 1) * SECTOR;
    match fate {
        Fate::Kept => {}
        Fate::Lost => lost.writes += 1,
        Fate::Torn => lost.torn += 1,
    }
    let mut at = place;
    while at < end && fate != Fate::Lost {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        let arrives = if from_the_front { at - place < up_to } else { chance.below(2) == 0 };
        if fate == Fate::Kept || arrives {
            if bytes.len() < next {
                bytes.resize(next, 0);
            }
            bytes[at..next].copy_from_slice(&new[at - place..next - place]);
        }
        at = next;
    }
}

/// The folders as they are while changes are taken back.
struct Tree<'a> {
    graves: &'a Path,
    places: HashMap<Key, PathBuf>,
}

impl<'a> Tree<'a> {
    fn of(root: &Path, graves: &'a Path, births: &HashMap<u64, u32>) -> Self {
        let mut places = HashMap::new();
        walk(root, &mut |path, data| {
            if data.is_dir() {
                let birth = births.get(&data.ino()).copied().unwrap_or_default();
                places.insert((data.ino(), birth), path.to_owned());
            }
        });
        Self { graves, places }
    }

    /// Takes changes back, the last one first.
    fn undo(mut self, steps: Vec<Unsure>) {
        for unsure in steps.into_iter().rev() {
            let step = &unsure.step;
            // A folder that is no more has taken everything in it along.
            let Some(home) = self.places.get(&unsure.home).cloned() else { continue };
            match step.kind {
                Kind::Create | Kind::Link => {
                    let path = home.join(&step.name);
                    if number_of(&path) == Some(step.file) {
                        fs::remove_file(path).expect("a file can be removed");
                    }
                }
                Kind::Unlink => self.raise(step.grave, &home.join(&step.name)),
                Kind::Mkdir => {
                    let path = home.join(&step.name);
                    if self.places.get(&unsure.own) == Some(&path) {
                        self.remove_folder(&path);
                    }
                }
                Kind::Rmdir => {
                    let path = home.join(&step.name);
                    if number_of(&path).is_none() {
                        fs::create_dir(&path).expect("a folder can be made");
                        self.places.insert(unsure.own, path);
                    }
                }
                Kind::Rename => {
                    let path = home.join(&step.new_name);
                    let old = self.places.get(&unsure.from).map(|folder| folder.join(&step.name));
                    self.move_back(&path, old.as_deref(), &unsure);
                    self.raise(step.grave, &path);
                }
            }
        }
    }

    fn move_back(&mut self, path: &Path, old: Option<&Path>, unsure: &Unsure) {
        let is_folder = self.places.get(&unsure.own).is_some_and(|place| place == path);
        if !is_folder && number_of(path) != Some(unsure.step.file) {
            return;
        }
        match old.filter(|old| number_of(old).is_none()) {
            Some(old) => {
                fs::rename(path, old).expect("it can be moved back");
                for place in self.places.values_mut() {
                    if let Ok(rest) = place.strip_prefix(path) {
                        *place = old.components().chain(rest.components()).collect();
                    }
                }
            }
            None if is_folder => self.remove_folder(path),
            None => fs::remove_file(path).expect("a file can be removed"),
        }
    }

    fn remove_folder(&mut self, path: &Path) {
        fs::remove_dir_all(path).expect("a folder can be removed");
        self.places.retain(|_, place| !place.starts_with(path));
    }

    /// Gives a file back its name, unless there is something else.
    fn raise(&self, grave: u64, path: &Path) {
        if grave > 0 && number_of(path).is_none() {
            fs::hard_link(self.graves.join(grave.to_string()), path).expect("a file can be linked");
        }
    }
}

fn number_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|data| data.ino())
}

/// The memory that SQLite shares between processes lies in a file that is made anew after each start of the machine.
fn remove_shared_memory(root: &Path) {
    let mut found = Vec::new();
    walk(root, &mut |path, _| {
        if path.to_string_lossy().ends_with("-shm") {
            found.push(path.to_owned());
        }
    });
    for path in found {
        fs::remove_file(path).expect("a file can be removed");
    }
}

fn walk(path: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) {
    let Ok(data) = fs::symlink_metadata(path) else { return };
    visit(path, &data);
    if data.is_dir() {
        for entry in fs::read_dir(path).expect("a folder").flatten() {
            walk(&entry.path(), visit);
        }
    }
}

/// Numbers that look like chance and can be had again.
struct Chance(u64);

impl Chance {
    /// A number below another one.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or_default()
    }
}
