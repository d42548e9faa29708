//! A new backup in a folder.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata},
    io::{self, BufReader, BufWriter, Read},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
};

use jiff::{SignedDuration, Timestamp};

use super::{Content, ENDING, FRESH, Folder, Found, Names, PARTIAL, UNFINISHED, sync_folder};
use crate::backup::{
    Sentence,
    capture::{Added, FileId, Opened, Sink, Source, open},
    manifest::{self, Damage, Hashing, Head, Line, Next, Seal},
    staging::{make_folders, make_owner_only},
};

/// How far apart the writing of a file and a backup have to be for the one to be before the other, whatever disks and clocks
/// round.
const WELL_BEFORE: SignedDuration = SignedDuration::from_secs(5);

/// A new backup in a folder. Until it is finished nobody sees it, and earlier ones stay as they are.
pub(in crate::backup) struct Addition {
    folder: Folder,
    _lock: File,
    earlier: Option<Earlier>,
    manifest: Option<(String, PathBuf, manifest::Writer<BufWriter<File>>)>,
    /// What of this group an earlier backup has, by path.
    known: HashMap<String, (u64, String)>,
    /// How much of that is in this backup, too.
    matched: usize,
    /// Whether something of this group is not what the earlier backup has.
    differs: bool,
    /// Files with several names, by what makes them the same: how many names are to come, the sum, what is wrong.
    seen: HashMap<FileId, (u64, String, Option<String>)>,
    /// How many bytes were written that were not there.
    pub(in crate::backup) added: u64,
    /// What somebody should look at, though the backup is good.
    pub(in crate::backup) warnings: Vec<Sentence>,
    /// Whether there is nothing here that no backup names.
    swept: bool,
    /// How often content was there and not what it should be, and where first.
    mended: (u64, String),
    /// Its name, once it is made.
    made: Option<String>,
}

impl Addition {
    pub(in crate::backup) fn new(folder: &Folder) -> Result<Self, Sentence> {
        let mut addition = Self {
            folder: folder.clone(),
            _lock: folder.lock()?,
            earlier: None,
            manifest: None,
            known: HashMap::new(),
            matched: 0,
            differs: false,
            seen: HashMap::new(),
            added: 0,
            warnings: Vec::new(),
            swept: true,
            mended: (0, String::new()),
            made: None,
        };
        addition.clear_partial()?;
        if folder.0.join(UNFINISHED).exists() {
            // What was interrupted may have left content that is not whole. Where it cannot be told apart it stays; it
            // does no harm, because content that no good list names is read before it counts.
            if let Err(problem) = folder.sweep() {
                addition.swept = false;
                addition.warn(problem);
            }
        }
        folder.note_unfinished()?;
        addition.warn_of_names_ahead()?;
        // One that is damaged is of no help, and no hindrance either.
        for name in folder.newest_first()? {
            if let Ok(Found { seal, .. }) = folder.look(&name) {
                let manifest = folder.manifest(&name)?;
                addition.earlier = Some(Earlier { manifest, damaged: seal.damaged, next: None, ended: false });
                break;
            }
        }
        Ok(addition)
    }

    /// Removes all but so many complete backups, the oldest first, and what only they used; answers how many. The one
    /// that was just made stays whatever the others are called; what cannot be read and what is of the future is left
    /// alone and does not count. One that lacks something or holds damage does not count either, and goes with those that
    /// are older than all that stay.
    pub(in crate::backup) fn keep(&mut self, most: usize) -> Result<usize, Sentence> {
        let folder = self.folder.clone();
        let made = self.made.clone().ok_or("a backup was not made")?;
        let mut others = folder.names_by_time()?.past;
        others.retain(|name| *name != made);
        // All are looked at before anything is removed.
        let mut readable = Vec::new();
        for name in others {
            match folder.look(&name) {
                Ok(found) => readable.push((name, found.seal.is_complete())),
                Err(_) => self
                    .warn(format!("the backup {name} cannot be read (--list says why); it does not count, and stays")),
            }
        }
        // The newest of those that count stay, and whatever came between them.
        let mut left = most.max(1) - 1;
        let kept = readable.iter().rev().take_while(|(_, is_complete)| {
            let stays = left > 0;
            left -= usize::from(stays && *is_complete);
            stays
        });
        let surplus = readable.len() - kept.count();
        if surplus == 0 {
            return Ok(0);
        }
        folder.note_unfinished()?;
        for (name, _) in &readable[..surplus] {
            fs::remove_file(folder.list_of(name)).map_err(|error| folder.unusable(error))?;
        }
        sync_folder(&folder.snapshots()).map_err(|error| folder.unusable(error))?;
        // If not now, then when the next backup begins.
        match folder.sweep() {
            Ok(()) => folder.note_finished()?,
            Err(problem) => self.warn(problem),
        }
        Ok(surplus)
    }

    fn warn(&mut self, sentence: Sentence) {
        if !self.warnings.contains(&sentence) {
            self.warnings.push(sentence);
        }
    }

    fn warn_of_names_ahead(&mut self) -> Result<(), Sentence> {
        let Names { ahead, .. } = self.folder.names_by_time()?;
        if !ahead.is_empty() {
            self.warn(format!(
                "backups of the future ({}) do not count and are not removed until then; if the clock is right, move \
                 their lists in {} away",
                ahead.join(", "),
                self.folder.snapshots().display()
            ));
        }
        Ok(())
    }

    /// Removes the lists of backups that were interrupted.
    fn clear_partial(&self) -> Result<(), Sentence> {
        let unusable = |error| self.folder.unusable(error);
        for entry in fs::read_dir(self.folder.snapshots()).map_err(unusable)? {
            let path = entry.map_err(unusable)?.path();
            if path.to_str().is_some_and(|path| path.ends_with(PARTIAL)) {
                fs::remove_file(path).map_err(unusable)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, sum: String, size: u64, path: &str) -> Result<(), Sentence> {
        let (_, _, manifest) = self.manifest.as_mut().ok_or("a backup was not begun")?;
        match self.known.get(path) {
            Some(known) if *known == (size, sum.clone()) => self.matched += 1,
            _ => self.differs = true,
        }
        let line = Line::File { sum, size, path: path.to_owned() };
        manifest.add(&line).map_err(|error| self.folder.unusable(error))
    }

    /// Keeps content under its sum, unless it is there; answers the sum.
    fn store(&mut self, content: impl Read, size: u64, path: &str) -> Result<String, Sentence> {
        let folder = self.folder.clone();
        let unusable = |error| folder.unusable(error);
        let mut content = Hashing::new(content);
        let fresh = folder.0.join(FRESH);
        let mut file = make_owner_only(&fresh).map_err(unusable)?;
        io::copy(&mut content, &mut file).map_err(|error| format!("{path} cannot be copied: {error}"))?;
        if content.count != size {
            return Err(format!("{path} became shorter while it was read; try again"));
        }
        let sum = content.sum();
        let blob = folder.blob(&sum);
        // What is there is read as well: all later backups would share its damage.
        match folder.examine(&sum, size)? {
            Content::Good => return Ok(sum),
            Content::Missing => {}
            Content::Bad => {
                if self.mended.0 == 0 {
                    path.clone_into(&mut self.mended.1);
                }
                self.mended.0 += 1;
            }
        }
        if let Some(above) = blob.parent() {
            make_folders(above).map_err(unusable)?;
        }
        fs::rename(&fresh, &blob).map_err(unusable)?;
        self.added += size;
        Ok(sum)
    }
}

impl Sink for Addition {
    fn begin(&mut self, head: &Head) -> Result<(), Sentence> {
        if let Some(Earlier { manifest, .. }) = &self.earlier
            && let (Some(theirs), Some(ours)) = (&manifest.head.instance, &head.instance)
            && theirs != ours
        {
            let folder = self.folder.0.display();
            return Err(format!("{folder} holds backups of another instance; name another folder"));
        }
        let name = head.taken_at.replace(':', "-");
        let path = self.folder.snapshots().join(format!("{name}{PARTIAL}"));
        let file = make_owner_only(&path).map_err(|error| self.folder.unusable(error))?;
        let writer =
            manifest::Writer::begin(BufWriter::new(file), head).map_err(|error| self.folder.unusable(error))?;
        self.manifest = Some((name, path, writer));
        Ok(())
    }

    fn enter(&mut self, group: &str) -> Result<(), Sentence> {
        (self.matched, self.differs) = (0, false);
        self.known = match &mut self.earlier {
            Some(earlier) => earlier.group(group)?,
            None => HashMap::new(),
        };
        Ok(())
    }

    fn is_unchanged(&self) -> bool {
        !self.differs && !self.known.is_empty() && self.matched == self.known.len()
    }

    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<(), Sentence> {
        let size = bytes.len() as u64;
        let sum = self.store(bytes, size, path)?;
        self.note(sum, size, path)
    }

    fn add_file(&mut self, path: &str, source: Source<'_>) -> Result<Added, Sentence> {
        let (lasts, created_at) = (source.lasts, source.created_at);
        let (mut content, data) = match open(source) {
            Opened::Content(content, data) => (content, data),
            Opened::Gone => return Ok(Added::Gone),
            Opened::Unreadable(fault) => return Ok(Added::Unreadable(fault)),
        };
        let size = content.size;
        if !lasts {
            let sum = self.store(&mut content, size, path)?;
            self.note(sum, size, path)?;
            return Ok(Added::Copied { fault: content.finish() });
        }
        // What an earlier backup has under this name and in this size, and what nobody has touched since, need not be
        // read again: it was checked then.
        let is_same = self.earlier.as_ref().is_some_and(|one| one.is_after(&data)) && content.fault.is_none();
        let known = self.known.get(path).filter(|(known, _)| is_same && *known == size);
        if let Some((_, sum)) = known.filter(|(_, sum)| self.folder.seems_to_hold(sum, size)) {
            let sum = sum.clone();
            self.note(sum, size, path)?;
            return Ok(Added::Copied { fault: None });
        }
        let key = FileId::of(&data);
        let (sum, fault) = if let Some((left, sum, fault)) = self.seen.get_mut(&key) {
            let found = (sum.clone(), fault.clone());
            *left -= 1;
            if *left == 0 {
                self.seen.remove(&key);
            }
            found
        } else {
            let sum = self.store(&mut content, size, path)?;
            let fault = content.finish();
            if data.nlink() > 1 {
                self.seen.insert(key, (data.nlink() - 1, sum.clone(), fault.clone()));
            }
            (sum, fault)
        };
        let changed = self.earlier.as_ref().zip(self.known.get(path)).and_then(|(earlier, (known_size, known))| {
            let same_file = *known_size == size && created_at.is_some_and(|moment| earlier.is_after_micros(moment));
            let taken_at = &earlier.manifest.head.taken_at;
            (same_file && *known != sum).then(|| format!("it is not what it was in the backup of {taken_at}"))
        });
        self.note(sum, size, path)?;
        Ok(Added::Copied { fault: fault.or(changed) })
    }

    fn finish(&mut self, seal: Seal) -> Result<Seal, Sentence> {
        let folder = self.folder.clone();
        let unusable = |error| folder.unusable(error);
        let (name, path, manifest) = self.manifest.take().ok_or("a backup was not begun")?;
        let (out, seal) = manifest.finish(seal).map_err(unusable)?;
        let file = out.into_inner().map_err(|error| unusable(error.into_error()))?;
        // All content is on disk before anything names it; one call for all of it, since there may be very much.
        rustix::fs::syncfs(&file).map_err(|error| unusable(error.into()))?;
        file.sync_all().map_err(unusable)?;
        let place = self.folder.snapshots().join(format!("{name}{ENDING}"));
        fs::rename(&path, &place).and_then(|()| sync_folder(&folder.snapshots())).map_err(unusable)?;
        let _ = fs::remove_file(folder.0.join(FRESH));
        self.made = Some(name);
        if self.swept {
            folder.note_finished()?;
        }
        if let (1.., first) = &self.mended {
            let count = self.mended.0;
            self.warn(format!("damaged files of earlier backups are stored anew: {count}, such as {first}"));
        }
        Ok(seal)
    }
}

impl Drop for Addition {
    fn drop(&mut self) {
        if let Some((_, path, _)) = &self.manifest {
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(self.folder.0.join(FRESH));
        }
    }
}

/// The newest earlier backup, read along with the new one: both name things in the same order.
struct Earlier {
    manifest: manifest::Reader<BufReader<File>>,
    /// What it holds that was damaged.
    damaged: Vec<Damage>,
    next: Option<(u64, String, String)>,
    ended: bool,
}

impl Earlier {
    /// Whether it was taken well after a file was last written to or put into its place.
    fn is_after(&self, data: &Metadata) -> bool {
        let touched = data.mtime().max(data.ctime()).saturating_add(1);
        Timestamp::from_second(touched).is_ok_and(|touched| self.since(touched) > Some(WELL_BEFORE))
    }

    /// Whether it was taken after a moment.
    fn is_after_micros(&self, moment: i64) -> bool {
        Timestamp::from_microsecond(moment).is_ok_and(|moment| self.since(moment) > Some(SignedDuration::ZERO))
    }

    fn since(&self, moment: Timestamp) -> Option<SignedDuration> {
        let taken: Timestamp = self.manifest.head.taken_at.parse().ok()?;
        Some(taken.duration_since(moment))
    }

    /// What it has of a group, and what was good when it was made.
    fn group(&mut self, group: &str) -> Result<HashMap<String, (u64, String)>, Sentence> {
        let mut found = HashMap::new();
        let wanted = rank(group);
        loop {
            if self.next.is_none() && !self.ended {
                match self.manifest.next()? {
                    Next::Line(Line::File { sum, size, path }) => self.next = Some((size, sum, path)),
                    Next::Line(Line::Link { .. }) => continue,
                    Next::End(_) => self.ended = true,
                }
            }
            match self.next.take() {
                Some(next) if rank(&next.2) > wanted => {
                    self.next = Some(next);
                    return Ok(found);
                }
                Some((size, sum, path)) => {
                    if path.starts_with(group) && self.was_good(group, &path) {
                        found.insert(path, (size, sum));
                    }
                }
                None => return Ok(found),
            }
        }
    }

    /// Whether a file was checked and found good; in a repository that means all of it.
    fn was_good(&self, group: &str, path: &str) -> bool {
        let is_repository = group.starts_with("repositories/");
        let is_about =
            |damage: &Damage| damage.path == path || is_repository && format!("{}/", damage.path).starts_with(group);
        self.manifest.head.verified && !self.damaged.iter().any(is_about)
    }
}

/// The order in which things are copied: repositories by where they lie, then files, each kind for itself.
fn rank(path: &str) -> (usize, &str) {
    let place = |rest: &str| rest.find(".git/").unwrap_or(rest.len());
    if let Some(rest) = path.strip_prefix("repositories/") {
        return (1, &rest[..place(rest)]);
    }
    let later = ["files/uploads/", "files/artifacts/", "traces/"];
    (later.iter().position(|start| path.starts_with(start)).map_or(0, |at| at + 2), "")
}
