//! Backups in a folder that share what has not changed.
//!
//! ```text
//! gable-backups            says what this folder is
//! blobs/3f/3fa2…           content, named by its sum
//! snapshots/TIME.manifest  what lay where at that time
//! unfinished, fresh        there while somebody writes
//! ```

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Write as _},
    path::{Path, PathBuf},
};

use super::{
    Sentence,
    capture::{Sink, open},
    manifest::{self, Hashing, Head, Line, Next, Seal, changed, cut, unreadable},
    progress::Progress,
    staging::{Staging, make_folders, make_owner_only},
};

const MARK: &str = "gable-backups";
const UNFINISHED: &str = "unfinished";
const FRESH: &str = "fresh";
const ENDING: &str = ".manifest";

/// A folder of backups.
#[derive(Clone)]
pub(super) struct Folder(PathBuf);

/// One backup in it.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) head: Head,
    pub(super) seal: Seal,
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

    /// The newest backup, or the one whose name begins like this.
    pub(super) fn choose(&self, wanted: Option<&str>) -> Result<String, Sentence> {
        let names = self.names()?;
        let Some(wanted) = wanted else {
            return names.last().cloned().ok_or_else(|| format!("{} holds no backup yet", self.0.display()));
        };
        let mut fitting = names.into_iter().filter(|name| name.starts_with(wanted));
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

    /// Reads a backup and puts everything where it belongs, if there is such a place; everything is checked.
    pub(super) fn read(
        &self,
        name: &str,
        staging: Option<&Staging>,
        progress: &mut Progress,
    ) -> Result<(Head, Seal), Sentence> {
        let mut manifest = self.manifest(name)?;
        let head = manifest.head.clone();
        // Objects that several repositories have are one file, as they were.
        let mut shared: HashMap<String, String> = HashMap::new();
        loop {
            let (sum, size, path) = match manifest.next()? {
                Next::End(seal) => return Ok((head, *seal)),
                Next::Line(Line::File { sum, size, path }) => (sum, size, path),
                Next::Line(Line::Link { .. }) => return Err(changed()),
            };
            let is_object = path.starts_with("repositories/") && path.contains(".git/objects/");
            if let (Some(target), Some(staging)) = (shared.get(&sum), staging) {
                staging.link(target, &path)?;
                continue;
            }
            let blob = match File::open(self.blob(&sum)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(format!("{path} is missing: {}", changed()));
                }
                opened => opened.map_err(unreadable)?,
            };
            let mut content = Hashing::new(blob);
            match staging {
                Some(staging) => staging.write(&path, &mut content)?,
                None => drop(io::copy(&mut content, &mut io::sink()).map_err(unreadable)?),
            }
            if content.count < size {
                return Err(format!("{path}: {}", cut()));
            }
            if content.count != size || content.sum() != sum {
                return Err(format!("{path}: {}", changed()));
            }
            progress.add(size);
            if is_object && git::copies::is_immutable(Path::new(&path)) {
                shared.insert(sum, path);
            }
        }
    }

    /// Removes all but so many backups, the oldest first, and what only they used; answers how many.
    pub(super) fn keep(&self, most: usize) -> Result<usize, Sentence> {
        let names = self.names()?;
        let surplus = names.len().saturating_sub(most.max(1));
        if surplus == 0 {
            return Ok(0);
        }
        for name in &names[..surplus] {
            fs::remove_file(self.snapshots().join(format!("{name}{ENDING}"))).map_err(|error| self.unusable(error))?;
        }
        sync_folder(&self.snapshots()).map_err(|error| self.unusable(error))?;
        self.sweep()?;
        Ok(surplus)
    }

    /// Removes content that no backup names. Whoever calls this is the only one who writes here.
    fn sweep(&self) -> Result<(), Sentence> {
        let mut used = HashSet::new();
        for name in self.names()? {
            let mut manifest = self.manifest(&name)?;
            loop {
                match manifest.next() {
                    Ok(Next::Line(Line::File { sum, .. })) => drop(used.insert(sum)),
                    Ok(Next::Line(Line::Link { .. })) => {}
                    Ok(Next::End(_)) => break,
                    // What cannot be read may name anything.
                    Err(error) => return Err(format!("nothing old is removed, because of {name}: {error}")),
                }
            }
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

    fn manifest(&self, name: &str) -> Result<manifest::Reader<BufReader<File>>, Sentence> {
        let path = self.snapshots().join(format!("{name}{ENDING}"));
        let file = File::open(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        manifest::Reader::open(BufReader::new(file)).map_err(|error| format!("{name}: {error}"))
    }

    fn snapshots(&self) -> PathBuf {
        self.0.join("snapshots")
    }

    fn blob(&self, sum: &str) -> PathBuf {
        self.0.join("blobs").join(&sum[..2]).join(sum)
    }

    fn holds(&self, sum: &str, size: u64) -> bool {
        fs::metadata(self.blob(sum)).is_ok_and(|data| data.len() == size)
    }

    fn unusable(&self, error: io::Error) -> Sentence {
        format!("cannot use the folder of backups {}: {error}", self.0.display())
    }
}

/// A new backup in a folder. Until it is finished nobody sees it, and earlier ones stay as they are.
pub(super) struct Addition {
    folder: Folder,
    _lock: File,
    earlier: Option<Earlier>,
    manifest: Option<(String, PathBuf, manifest::Writer<BufWriter<File>>)>,
    /// What of this group an earlier backup has, by path.
    known: HashMap<String, (u64, String)>,
    /// Files with several names, by what makes them the same.
    seen: HashMap<(u64, u64), (u64, String)>,
    /// How many bytes were written that were not there.
    pub(super) added: u64,
}

impl Addition {
    pub(super) fn new(folder: &Folder) -> Result<Self, Sentence> {
        let unusable = |error| folder.unusable(error);
        let mark = OpenOptions::new().append(true).open(folder.0.join(MARK)).map_err(unusable)?;
        mark.try_lock().map_err(|_| format!("another backup writes to {}", folder.0.display()))?;
        if folder.0.join(UNFINISHED).exists() {
            // What was interrupted may have left content that is not whole, and must not be taken for good.
            folder.sweep()?;
        }
        let unfinished = make_owner_only(&folder.0.join(UNFINISHED)).map_err(unusable)?;
        unfinished.sync_all().and_then(|()| sync_folder(&folder.0)).map_err(unusable)?;
        let earlier = match folder.names()?.last() {
            // One that is damaged is of no help, and no hindrance either.
            Some(name) if folder.look(name).is_ok() => {
                Some(Earlier { manifest: folder.manifest(name)?, next: None, ended: false })
            }
            _ => None,
        };
        let (known, seen) = (HashMap::new(), HashMap::new());
        Ok(Self { folder: folder.clone(), _lock: mark, earlier, manifest: None, known, seen, added: 0 })
    }

    fn note(&mut self, sum: String, size: u64, path: &str) -> Result<(), Sentence> {
        let (_, _, manifest) = self.manifest.as_mut().ok_or("a backup was not begun")?;
        let line = Line::File { sum, size, path: path.to_owned() };
        manifest.add(&line).map_err(|error| self.folder.unusable(error))
    }

    /// Keeps content under its sum, unless it is there; answers the sum.
    fn keep(&mut self, content: impl Read, size: u64, path: &str) -> Result<String, Sentence> {
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
        if folder.holds(&sum, size) {
            return Ok(sum);
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
        let name = head.taken_at.replace(':', "-");
        let path = self.folder.snapshots().join(format!("{name}.partial"));
        let file = make_owner_only(&path).map_err(|error| self.folder.unusable(error))?;
        let writer =
            manifest::Writer::begin(BufWriter::new(file), head).map_err(|error| self.folder.unusable(error))?;
        self.manifest = Some((name, path, writer));
        Ok(())
    }

    fn enter(&mut self, group: &str) -> Result<(), Sentence> {
        self.known = match &mut self.earlier {
            Some(earlier) => earlier.group(group)?,
            None => HashMap::new(),
        };
        Ok(())
    }

    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<(), Sentence> {
        let size = bytes.len() as u64;
        let sum = self.keep(bytes, size, path)?;
        self.note(sum, size, path)
    }

    fn add_file(&mut self, path: &str, file: &Path, size: Option<u64>, lasts: bool) -> Result<bool, Sentence> {
        use std::os::unix::fs::MetadataExt as _;
        let Some((content, size)) = open(file, size)? else { return Ok(false) };
        if !lasts {
            let sum = self.keep(content, size, path)?;
            return self.note(sum, size, path).map(|()| true);
        }
        // What an earlier backup has under this name and in this size need not be read again.
        let known = self.known.get(path).filter(|(known, _)| *known == size);
        if let Some((_, sum)) = known.filter(|(_, sum)| self.folder.holds(sum, size)) {
            let sum = sum.clone();
            return self.note(sum, size, path).map(|()| true);
        }
        let data = content.get_ref().metadata().map_err(|error| format!("{path} cannot be copied: {error}"))?;
        let key = (data.dev(), data.ino());
        let sum = if let Some((left, sum)) = self.seen.get_mut(&key) {
            let sum = sum.clone();
            *left -= 1;
            if *left == 0 {
                self.seen.remove(&key);
            }
            sum
        } else {
            let sum = self.keep(content, size, path)?;
            if data.nlink() > 1 {
                self.seen.insert(key, (data.nlink() - 1, sum.clone()));
            }
            sum
        };
        self.note(sum, size, path).map(|()| true)
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
        fs::remove_file(folder.0.join(UNFINISHED)).and_then(|()| sync_folder(&folder.0)).map_err(unusable)?;
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
    next: Option<(u64, String, String)>,
    ended: bool,
}

impl Earlier {
    /// What it has of a group.
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
                    if path.starts_with(group) {
                        found.insert(path, (size, sum));
                    }
                }
                None => return Ok(found),
            }
        }
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

/// What a file system itself puts into its topmost folder.
fn is_harmless(entry: &fs::DirEntry) -> bool {
    entry.file_name() == "lost+found"
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
