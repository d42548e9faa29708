//! Simulates the effect of a power cut on a folder.
//!
//! Each write since the last sync of its file is kept, lost or torn, independently of the others; of the unsynced
//! changes of names, those up to some point are kept.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::journal::{Entry, NameChange, NameChangeKind};

/// The size of a disk sector; torn writes are torn at sector boundaries.
const SECTOR: usize = 512;

/// What a sync guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityModel {
    /// Only what POSIX guarantees: syncing a file does not sync its name, and folders are independent, so that a later
    /// change in one may be on disk while an earlier one in another is not.
    Strict,
    /// The same guarantees, but unsynced changes reach the disk in the order in which they happened. No file system in
    /// use does less.
    Ordered,
    /// A file system with a single journal: every sync also writes all earlier changes of names.
    Journaled,
}

/// The changes that a power cut has undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerLoss {
    /// Writes that were lost completely.
    pub lost_writes: usize,
    /// Writes that were lost in part.
    pub torn_writes: usize,
    /// Changes of names that were undone.
    pub lost_names: usize,
}

/// Identifies a folder: its inode, and how often that inode was reused for a new folder.
type Key = (u64, u32);

/// The unsynced changes of a file.
#[derive(Default)]
struct UnsyncedFile {
    /// Whether the file was created in this session and never synced, so that none of it is on disk for certain.
    created: bool,
    changes: Vec<ContentChange>,
}

enum ContentChange {
    Write { from: usize, length: usize, size: usize, before: Vec<u8> },
    Truncate { to: usize, size: usize, before: Vec<u8> },
}

/// An unsynced change of a name.
struct UnsyncedNameChange {
    change: NameChange,
    /// The folder whose sync makes the change durable.
    parent: Key,
    /// The folder that loses the name.
    from: Key,
    /// The renamed object, if it is a folder.
    own: Key,
}

/// Changes the folder to a state that a power cut could leave.
pub(super) fn apply(
    root: &Path,
    unlinked_folder: &Path,
    entries: &[Entry],
    seed: u64,
    model: DurabilityModel,
) -> PowerLoss {
    let mut unsynced = UnsyncedState::default();
    for entry in entries {
        unsynced.record(entry, model);
    }
    let mut rng = Rng(seed);
    let mut lost = PowerLoss::default();
    apply_content_loss(&[root, unlinked_folder], &unsynced.files, &mut rng, &mut lost);
    let undone = choose_lost_changes(unsynced.name_changes, model, &mut rng);
    lost.lost_names = undone.len();
    FolderTree::of(root, unlinked_folder, &unsynced.generations).undo(undone);
    remove_shared_memory(root);
    lost
}

/// Everything that a power cut could undo.
#[derive(Default)]
struct UnsyncedState {
    files: BTreeMap<u64, UnsyncedFile>,
    name_changes: Vec<UnsyncedNameChange>,
    /// How often an inode was given to a new folder.
    generations: HashMap<u64, u32>,
}

impl UnsyncedState {
    fn record(&mut self, entry: &Entry, model: DurabilityModel) {
        let number = |value: u64| usize::try_from(value).expect("a size");
        match entry {
            Entry::Write { file, from, length, size, before } => {
                let (from, length, size) = (number(*from), number(*length), number(*size));
                let change = ContentChange::Write { from, length, size, before: before.clone() };
                self.files.entry(*file).or_default().changes.push(change);
            }
            Entry::Truncate { file, to, size, before } => {
                let change = ContentChange::Truncate { to: number(*to), size: number(*size), before: before.clone() };
                self.files.entry(*file).or_default().changes.push(change);
            }
            Entry::Sync { file } => {
                self.files.remove(file);
                if model == DurabilityModel::Journaled {
                    self.name_changes.clear();
                }
            }
            Entry::SyncFolder { folder } => {
                let key = self.key(*folder);
                self.name_changes.retain(|unsynced| unsynced.parent != key && model != DurabilityModel::Journaled);
            }
            Entry::SyncAll => {
                self.files.clear();
                self.name_changes.clear();
            }
            Entry::NameChange(change) => self.record_name_change(change),
        }
    }

    fn record_name_change(&mut self, change: &NameChange) {
        match change.kind {
            NameChangeKind::Create => {
                drop(self.files.insert(change.file, UnsyncedFile { created: true, changes: Vec::new() }));
            }
            NameChangeKind::Mkdir => *self.generations.entry(change.file).or_default() += 1,
            NameChangeKind::Rmdir | NameChangeKind::Unlink | NameChangeKind::Rename | NameChangeKind::Link => {}
        }
        let from = self.key(change.folder);
        let parent = if change.kind == NameChangeKind::Rename { self.key(change.target) } else { from };
        self.name_changes.push(UnsyncedNameChange { change: change.clone(), parent, from, own: self.key(change.file) });
    }

    fn key(&self, folder: u64) -> Key {
        (folder, self.generations.get(&folder).copied().unwrap_or_default())
    }
}

/// Chooses the changes of names to undo: the last few, overall or in each folder.
fn choose_lost_changes(
    name_changes: Vec<UnsyncedNameChange>,
    model: DurabilityModel,
    rng: &mut Rng,
) -> Vec<UnsyncedNameChange> {
    let mut counts: BTreeMap<Key, usize> = BTreeMap::new();
    let parent =
        |unsynced: &UnsyncedNameChange| if model == DurabilityModel::Strict { unsynced.parent } else { (0, 0) };
    for unsynced in &name_changes {
        *counts.entry(parent(unsynced)).or_default() += 1;
    }
    for kept in counts.values_mut() {
        *kept = match rng.next_below(4) {
            0 => 0,
            1 => *kept,
            _ => rng.next_below(*kept + 1),
        };
    }
    let mut undone = Vec::new();
    for unsynced in name_changes {
        match counts.get_mut(&parent(&unsynced)) {
            Some(kept @ 1..) => *kept -= 1,
            _ => undone.push(unsynced),
        }
    }
    undone
}

fn apply_content_loss(folders: &[&Path], files: &BTreeMap<u64, UnsyncedFile>, rng: &mut Rng, lost: &mut PowerLoss) {
    let mut paths = HashMap::new();
    for folder in folders {
        walk(folder, &mut |path, data| {
            if data.is_file() {
                paths.insert(data.ino(), path.to_owned());
            }
        });
    }
    for (file, pending) in files {
        // A file that is not found was removed durably, or never had a name.
        let Some(path) = paths.get(file) else { continue };
        let bytes = fs::read(path).expect("a file");
        let content = content_after_loss(bytes, pending, rng, lost);
        fs::write(path, content).expect("a file can be written");
    }
}

/// Returns the content of a file after the power cut.
fn content_after_loss(mut bytes: Vec<u8>, pending: &UnsyncedFile, rng: &mut Rng, lost: &mut PowerLoss) -> Vec<u8> {
    // Undoes all writes to reach the durable content, and collects what they wrote.
    let mut written: Vec<(usize, Vec<u8>)> = Vec::new();
    for change in pending.changes.iter().rev() {
        let (offset, size, before) = match change {
            ContentChange::Write { from, length, size, before } => {
                let end = (from + length).min(bytes.len());
                written.push((*from, bytes.get(*from..end).unwrap_or_default().to_vec()));
                (*from, *size, before)
            }
            ContentChange::Truncate { to, size, before } => {
                written.push((*to, Vec::new()));
                (*to, *size, before)
            }
        };
        bytes.resize(size, 0);
        if let Some(part) = bytes.get_mut(offset..offset + before.len()) {
            part.copy_from_slice(before);
        }
    }
    let for_all = rng.next_below(4);
    let outcome = |rng: &mut Rng| match for_all {
        0 => WriteOutcome::Lost,
        1 => WriteOutcome::Kept,
        _ => [WriteOutcome::Kept, WriteOutcome::Kept, WriteOutcome::Lost, WriteOutcome::Torn][rng.next_below(4)],
    };
    if pending.created {
        // Bytes written by libc itself bypass the journal and are not durable either.
        let unseen = std::mem::take(&mut bytes);
        if !unseen.is_empty() {
            write(&mut bytes, 0, &unseen, outcome(rng), rng, lost);
        }
    }
    for (change, (offset, new)) in pending.changes.iter().zip(written.iter().rev()) {
        let outcome = outcome(rng);
        match change {
            ContentChange::Write { .. } => write(&mut bytes, *offset, new, outcome, rng, lost),
            ContentChange::Truncate { .. } if outcome == WriteOutcome::Lost => lost.lost_writes += 1,
            ContentChange::Truncate { to, .. } => bytes.resize(*to, 0),
        }
    }
    bytes
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    Kept,
    Lost,
    Torn,
}

/// Applies a write according to its outcome.
fn write(bytes: &mut Vec<u8>, offset: usize, new: &[u8], outcome: WriteOutcome, rng: &mut Rng, lost: &mut PowerLoss) {
    let end = offset + new.len();
    // The length may be on disk where the content is not.
    let grows = outcome == WriteOutcome::Kept || rng.next_below(3) == 0;
    if grows && bytes.len() < end {
        bytes.resize(end, 0);
    }
    let is_prefix = rng.next_below(2) == 0;
    let prefix_length = rng.next_below(new.len() / SECTOR + 1) * SECTOR;
    match outcome {
        WriteOutcome::Kept => {}
        WriteOutcome::Lost => lost.lost_writes += 1,
        WriteOutcome::Torn => lost.torn_writes += 1,
    }
    let mut at = offset;
    while at < end && outcome != WriteOutcome::Lost {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        let arrives = if is_prefix { at - offset < prefix_length } else { rng.next_below(2) == 0 };
        if outcome == WriteOutcome::Kept || arrives {
            if bytes.len() < next {
                bytes.resize(next, 0);
            }
            bytes[at..next].copy_from_slice(&new[at - offset..next - offset]);
        }
        at = next;
    }
}

/// The current paths of folders while changes are undone.
struct FolderTree<'a> {
    unlinked_folder: &'a Path,
    paths: HashMap<Key, PathBuf>,
}

impl<'a> FolderTree<'a> {
    fn of(root: &Path, unlinked_folder: &'a Path, generations: &HashMap<u64, u32>) -> Self {
        let mut paths = HashMap::new();
        walk(root, &mut |path, data| {
            if data.is_dir() {
                let generation = generations.get(&data.ino()).copied().unwrap_or_default();
                paths.insert((data.ino(), generation), path.to_owned());
            }
        });
        Self { unlinked_folder, paths }
    }

    /// Undoes changes, the last one first.
    fn undo(mut self, name_changes: Vec<UnsyncedNameChange>) {
        for unsynced in name_changes.into_iter().rev() {
            let change = &unsynced.change;
            // A folder that no longer exists has lost its entries with it.
            let Some(parent) = self.paths.get(&unsynced.parent).cloned() else { continue };
            match change.kind {
                NameChangeKind::Create | NameChangeKind::Link => {
                    let path = parent.join(&change.name);
                    if inode_of(&path) == Some(change.file) {
                        fs::remove_file(path).expect("a file can be removed");
                    }
                }
                NameChangeKind::Unlink => self.restore_unlinked(change.unlinked, &parent.join(&change.name)),
                NameChangeKind::Mkdir => {
                    let path = parent.join(&change.name);
                    if self.paths.get(&unsynced.own) == Some(&path) {
                        self.remove_folder(&path);
                    }
                }
                NameChangeKind::Rmdir => {
                    let path = parent.join(&change.name);
                    if inode_of(&path).is_none() {
                        fs::create_dir(&path).expect("a folder can be made");
                        self.paths.insert(unsynced.own, path);
                    }
                }
                NameChangeKind::Rename => {
                    let path = parent.join(&change.new_name);
                    let old = self.paths.get(&unsynced.from).map(|folder| folder.join(&change.name));
                    self.move_back(&path, old.as_deref(), &unsynced);
                    self.restore_unlinked(change.unlinked, &path);
                }
            }
        }
    }

    fn move_back(&mut self, path: &Path, old: Option<&Path>, unsynced: &UnsyncedNameChange) {
        let is_folder = self.paths.get(&unsynced.own).is_some_and(|current| current == path);
        if !is_folder && inode_of(path) != Some(unsynced.change.file) {
            return;
        }
        match old.filter(|old| inode_of(old).is_none()) {
            Some(old) => {
                fs::rename(path, old).expect("it can be moved back");
                for current in self.paths.values_mut() {
                    if let Ok(rest) = current.strip_prefix(path) {
                        *current = old.components().chain(rest.components()).collect();
                    }
                }
            }
            None if is_folder => self.remove_folder(path),
            None => fs::remove_file(path).expect("a file can be removed"),
        }
    }

    fn remove_folder(&mut self, path: &Path) {
        fs::remove_dir_all(path).expect("a folder can be removed");
        self.paths.retain(|_, current| !current.starts_with(path));
    }

    /// Restores the name of an unlinked file, unless the name is taken.
    fn restore_unlinked(&self, unlinked: u64, path: &Path) {
        if unlinked > 0 && inode_of(path).is_none() {
            fs::hard_link(self.unlinked_folder.join(unlinked.to_string()), path).expect("a file can be linked");
        }
    }
}

fn inode_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|data| data.ino())
}

/// Removes SQLite's shared memory files, which do not survive a restart of the machine.
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

/// A reproducible pseudo-random number generator (splitmix64).
struct Rng(u64);

impl Rng {
    /// Returns a number below the limit.
    fn next_below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or_default()
    }
}
