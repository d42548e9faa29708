//! Backups in a folder that share what has not changed.
//!
//! ```text
//! gable-backups            says what this folder is
//! blobs/3f/3fa2…           content, named by its sum
//! snapshots/TIME.manifest  what lay where at that time
//! damaged/3fa2…            what was found not to be what was written
//! unfinished, fresh        there while somebody writes
//! ```

mod addition;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Write as _},
    path::{Path, PathBuf},
};

use git::FileCheck;
use jiff::{SignedDuration, Timestamp};

pub(super) use self::addition::Addition;
use super::{
    Sentence,
    manifest::{
        self, Hashing, Head, Line, Next, Seal, changed, cut, fault_of, refuse_faults, repository_path, unreadable,
    },
    progress::Progress,
    staging::{self, Staging, make_folders, make_owner_only},
};

const MARK: &str = "gable-backups";
const UNFINISHED: &str = "unfinished";
const FRESH: &str = "fresh";
const ENDING: &str = ".manifest";
const PARTIAL: &str = ".partial";
/// How far the clocks of several machines may be apart.
const APART: SignedDuration = SignedDuration::from_mins(5);

/// A folder of backups.
#[derive(Clone)]
pub(super) struct Folder(PathBuf);

/// One backup in it.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) head: Head,
    pub(super) seal: Seal,
}

/// The names of backups, the oldest first.
pub(super) struct Names {
    /// Those that were made by now.
    pub(super) past: Vec<String>,
    /// Those that a wrong clock has dated ahead. Which of them is new, nobody knows.
    pub(super) ahead: Vec<String>,
    /// Those to which somebody has given a name of their own.
    pub(super) named: Vec<String>,
}

/// How it stands with some content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Good,
    Bad,
    Missing,
}

impl Folder {
    /// A folder that holds backups.
    pub(super) fn open(path: &Path) -> Result<Self, Sentence> {
        if !path.join(MARK).is_file() {
            return Err(format!("{} is no folder of backups", path.display()));
        }
        Ok(Self(path.to_owned()))
    }

    /// A folder that holds backups from now on. One that holds something else is left alone.
    pub(super) fn make(path: &Path) -> Result<Self, Sentence> {
        let unusable = |error: io::Error| format!("cannot use {}: {error}", path.display());
        make_folders(path).map_err(unusable)?;
        if !path.join(MARK).is_file() {
            if fs::read_dir(path).map_err(unusable)?.any(|entry| entry.is_ok_and(|entry| !is_harmless(&entry))) {
                return Err(format!("{} holds something else; name an empty folder", path.display()));
            }
            for folder in ["blobs", "snapshots"] {
                make_folders(&path.join(folder)).map_err(unusable)?;
            }
            let mut mark = make_owner_only(&path.join(MARK)).map_err(unusable)?;
            writeln!(mark, "Backups of gable; see gable backup --folder.").map_err(unusable)?;
            mark.sync_all().and_then(|()| sync_folder(path)).map_err(unusable)?;
        }
        Ok(Self(path.to_owned()))
    }

    /// The names of all backups, the oldest first.
    pub(super) fn names(&self) -> Result<Vec<String>, Sentence> {
        let entries = fs::read_dir(self.snapshots()).map_err(|error| self.unusable(error))?;
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(ENDING).map(ToOwned::to_owned);
        let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The names of all backups, apart by whether their time has come.
    pub(super) fn names_by_time(&self) -> Result<Names, Sentence> {
        let latest = Timestamp::now() + APART;
        let (timed, named): (Vec<_>, Vec<_>) = self.names()?.into_iter().partition(|name| time_of(name).is_some());
        let (past, ahead) = timed.into_iter().partition(|name| time_of(name) <= Some(latest));
        Ok(Names { past, ahead, named })
    }

    /// The newest backup, or the one whose name begins like this. One of the future is the newest only if there is no
    /// other.
    pub(super) fn choose(&self, wanted: Option<&str>) -> Result<String, Sentence> {
        let Some(wanted) = wanted else {
            let newest = self.newest_first()?.into_iter().next();
            return newest.ok_or_else(|| format!("{} holds no backup yet", self.0.display()));
        };
        let mut fitting = self.names()?.into_iter().filter(|name| name.starts_with(wanted));
        match (fitting.next(), fitting.next()) {
            (Some(name), None) => Ok(name),
            (None, _) => Err(format!("there is no backup {wanted}; --list names those that there are")),
            (Some(one), Some(other)) => Err(format!("{wanted} may be {one} or {other}; say more of it")),
        }
    }

    /// What there is to say about a backup; its list is read and checked, not what is on it.
    pub(super) fn look(&self, name: &str) -> Result<Found, Sentence> {
        let mut manifest = self.manifest(name)?;
        let head = manifest.head.clone();
        loop {
            if let Next::End(seal) = manifest.next().map_err(|error| format!("{name}: {error}"))? {
                return Ok(Found { name: name.to_owned(), head, seal: *seal });
            }
        }
    }

    /// Reads a backup and puts everything where it belongs; everything is checked.
    pub(super) fn read(
        &self,
        name: &str,
        staging: &Staging,
        progress: &mut Progress,
    ) -> Result<(Head, Seal), Sentence> {
        // Objects that several repositories have are one file, as they were.
        let mut shared: HashMap<String, String> = HashMap::new();
        self.each_file(name, |sum, size, path| {
            // Nothing else may be linked: what has two names must never be written to.
            let lasts = path.starts_with("repositories/")
                && path.contains(".git/objects/")
                && git::copies::is_immutable(Path::new(&path));
            if let Some(target) = shared.get(&sum).filter(|_| lasts) {
                return staging.link(target, &path);
            }
            let blob = match File::open(self.blob(&sum)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(format!("{path} is missing: {}", changed()));
                }
                opened => opened.map_err(unreadable)?,
            };
            let mut content = Hashing::new(blob);
            staging.write(&path, &mut content)?;
            if content.count < size {
                return Err(format!("{path}: {}", cut()));
            }
            if content.count != size || content.sum() != sum {
                return Err(format!("{path}: {}", changed()));
            }
            progress.add(size);
            if lasts {
                shared.insert(sum, path);
            }
            Ok(())
        })
    }

    /// Reads all content of a backup. What is not what was written is moved aside, so that the next backup does not
    /// take it for good.
    pub(super) fn verify(&self, name: &str, progress: &mut Progress) -> Result<(Head, Seal), Sentence> {
        let mut lost: BTreeMap<String, (Content, u64, String)> = BTreeMap::new();
        let was_checked = self.manifest(name)?.head.verified;
        let mut faults = Vec::new();
        let (head, seal) = self.each_file(name, |sum, size, path| {
            staging::check_path(&path)?;
            match self.examine(&sum, size)? {
                Content::Good => progress.add(size),
                content => {
                    lost.entry(sum).or_insert((content, size, path));
                    return Ok(());
                }
            }
            if let Some(check) = repository_path(&path).map(FileCheck::of).filter(|_| !was_checked) {
                let blob = File::open(self.blob(&sum)).map_err(unreadable)?;
                faults.extend(fault_of(blob, check).map(|fault| (path, fault)));
            }
            Ok(())
        })?;
        seal.left_out.iter().try_for_each(|path| staging::check_path(path))?;
        let Some((_, (_, _, first))) = lost.first_key_value() else {
            return refuse_faults(&faults).map(|()| (head, seal));
        };
        let mut bad: Vec<(&str, u64)> = lost.iter().map(|(sum, (_, size, _))| (sum.as_str(), *size)).collect();
        bad.retain(|(sum, _)| lost[*sum].0 == Content::Bad);
        let aside = match self.set_aside(&bad) {
            Ok(()) if bad.is_empty() => "the next backup stores anew what is still there".to_owned(),
            Ok(()) => format!(
                "what is bad was moved to {}, and the next backup stores anew what is still there",
                self.damaged().display()
            ),
            Err(error) => {
                format!("what is bad could not be moved aside ({error}); verify it again before the next one")
            }
        };
        let count = lost.len();
        Err(format!(
            "the backup is damaged (files that are lost or not what was written: {count}, such as {first}); {aside}"
        ))
    }

    /// Moves content out of the way, of which nobody may make use.
    fn set_aside(&self, bad: &[(&str, u64)]) -> Result<(), Sentence> {
        if bad.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let unusable = |error| self.unusable(error);
        make_folders(&self.damaged()).map_err(unusable)?;
        for (sum, size) in bad {
            // Looked at again now that nobody else writes: a backup may have stored it anew meanwhile.
            if self.examine(sum, *size)? == Content::Bad {
                fs::rename(self.blob(sum), self.damaged().join(sum)).map_err(unusable)?;
            }
        }
        Ok(())
    }

    /// Reads the list of a backup to its end, and answers what it is of.
    fn each_file(
        &self,
        name: &str,
        mut each: impl FnMut(String, u64, String) -> Result<(), Sentence>,
    ) -> Result<(Head, Seal), Sentence> {
        let mut manifest = self.manifest(name)?;
        let head = manifest.head.clone();
        loop {
            match manifest.next()? {
                Next::End(seal) => return Ok((head, *seal)),
                Next::Line(Line::File { sum, size, path }) => each(sum, size, path)?,
                Next::Line(Line::Link { .. }) => return Err(changed()),
            }
        }
    }

    /// Removes content that no backup names. Whoever calls this is the only one who writes here.
    fn sweep(&self) -> Result<(), Sentence> {
        let mut used = HashSet::new();
        for name in self.names()? {
            let note = |sum, _, _| {
                used.insert(sum);
                Ok(())
            };
            // What cannot be read may name anything.
            self.each_file(&name, note).map_err(|_| {
                let file = self.list_of(&name);
                format!(
                    "content that no other backup needs stays, because {} cannot be read (--list says why); move it \
                     away if it cannot be mended",
                    file.display()
                )
            })?;
        }
        let unusable = |error| self.unusable(error);
        for folder in fs::read_dir(self.0.join("blobs")).map_err(unusable)? {
            let folder = folder.map_err(unusable)?.path();
            for blob in fs::read_dir(&folder).map_err(unusable)? {
                let blob = blob.map_err(unusable)?;
                if !blob.file_name().to_str().is_some_and(|name| used.contains(name)) {
                    fs::remove_file(blob.path()).map_err(unusable)?;
                }
            }
        }
        Ok(())
    }

    /// All names, those first that are likely to have most in common with what is now.
    fn newest_first(&self) -> Result<Vec<String>, Sentence> {
        let Names { past, ahead, named } = self.names_by_time()?;
        Ok(past.into_iter().rev().chain(ahead.into_iter().rev()).chain(named.into_iter().rev()).collect())
    }

    fn manifest(&self, name: &str) -> Result<manifest::Reader<BufReader<File>>, Sentence> {
        let path = self.list_of(name);
        let file = File::open(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        manifest::Reader::open(BufReader::new(file)).map_err(|error| format!("{name}: {error}"))
    }

    fn snapshots(&self) -> PathBuf {
        self.0.join("snapshots")
    }

    fn blob(&self, sum: &str) -> PathBuf {
        self.0.join("blobs").join(&sum[..2]).join(sum)
    }

    fn damaged(&self) -> PathBuf {
        self.0.join("damaged")
    }

    /// The file with the list of a backup.
    fn list_of(&self, name: &str) -> PathBuf {
        self.snapshots().join(format!("{name}{ENDING}"))
    }

    /// Whether there is content of that size under the sum; it is not read.
    fn seems_to_hold(&self, sum: &str, size: u64) -> bool {
        fs::metadata(self.blob(sum)).is_ok_and(|data| data.len() == size)
    }

    /// Reads content and holds it against its sum.
    fn examine(&self, sum: &str, size: u64) -> Result<Content, Sentence> {
        let blob = match File::open(self.blob(sum)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Missing),
            opened => opened.map_err(unreadable)?,
        };
        let mut content = Hashing::new(blob);
        // What a disk cannot give back is lost, too.
        let read = io::copy(&mut content, &mut io::sink());
        let is_good = read.is_ok() && content.count == size && content.sum() == sum;
        Ok(if is_good { Content::Good } else { Content::Bad })
    }

    /// Keeps everybody else from writing here, for as long as it is held.
    fn lock(&self) -> Result<File, Sentence> {
        let mark = OpenOptions::new().append(true).open(self.0.join(MARK)).map_err(|error| self.unusable(error))?;
        mark.try_lock().map_err(|_| format!("another backup writes to {}", self.0.display()))?;
        Ok(mark)
    }

    /// Notes that content may be left that no backup names, until it was swept.
    fn note_unfinished(&self) -> Result<(), Sentence> {
        let noted = make_owner_only(&self.0.join(UNFINISHED)).and_then(|file| file.sync_all());
        noted.and_then(|()| sync_folder(&self.0)).map_err(|error| self.unusable(error))
    }

    fn note_finished(&self) -> Result<(), Sentence> {
        let removed = fs::remove_file(self.0.join(UNFINISHED)).and_then(|()| sync_folder(&self.0));
        removed.map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: io::Error) -> Sentence {
        format!("cannot use the folder of backups {}: {error}", self.0.display())
    }
}

/// The time that the name of a backup tells.
pub(super) fn time_of(name: &str) -> Option<Timestamp> {
    let (day, time) = name.split_once('T')?;
    format!("{day}T{}", time.replace('-', ":")).parse().ok()
}

/// What a file system itself puts into its topmost folder.
fn is_harmless(entry: &fs::DirEntry) -> bool {
    entry.file_name() == "lost+found"
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::capture::Sink as _;

    #[test]
    fn the_name_of_a_backup_tells_its_time() {
        assert_eq!(time_of("2026-11-15T22-54-31.123Z"), "2026-11-15T22:54:31.123Z".parse().ok());
        assert_eq!(time_of("nonsense"), None);
    }

    /// A folder with one backup of some files.
    fn backed_up(place: &Path, files: &[(&str, &str)]) -> (Folder, String) {
        let folder = Folder::make(place).expect("made");
        let mut addition = Addition::new(&folder).expect("begun");
        let head = Head {
            format: manifest::FORMAT,
            gable: "1".into(),
            engine: "sqlite".into(),
            migrations: Vec::new(),
            taken_at: "2026-01-01T00:00:00.000Z".into(),
            instance: None,
            verified: true,
        };
        addition.begin(&head).expect("begun");
        for (path, content) in files {
            addition.add_bytes(path, content.as_bytes()).expect("added");
        }
        addition.finish(Seal::default()).expect("finished");
        let name = folder.choose(None).expect("a backup");
        (folder, name)
    }

    #[test]
    fn only_what_never_changes_is_one_file_after_a_restore() {
        let place = tempfile::tempdir().expect("a folder");
        let object = |letter: &str| format!("repositories/a/{letter}.git/objects/12/{}", "3".repeat(38));
        let (one, two) = (object("b"), object("c"));
        let (trace, head) = ("traces/1/1", "repositories/a/c.git/HEAD");
        let files = [(one.as_str(), "same"), (two.as_str(), "same"), (head, "same"), (trace, "same")];
        let (folder, name) = backed_up(&place.path().join("backups"), &files);
        let staging = Staging::make(place.path().join("in")).expect("made");
        folder.read(&name, &staging, &mut Progress::new(true)).expect("read");
        let names_of = |path: &str| {
            let data = fs::metadata(staging.path().join(path)).expect("a file");
            std::os::unix::fs::MetadataExt::nlink(&data)
        };
        assert_eq!([one.as_str(), &two, head, trace].map(names_of), [2, 2, 1, 1]);
    }

    #[test]
    fn what_a_restore_would_refuse_is_not_whole() {
        for path in ["../x", "/x", "files/../../x", "other"] {
            let place = tempfile::tempdir().expect("a folder");
            let (folder, name) = backed_up(place.path(), &[(path, "x")]);
            assert_eq!(folder.verify(&name, &mut Progress::new(true)).err(), Some(changed()), "{path}");
        }
    }
}
