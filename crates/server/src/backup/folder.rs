//! Backup folders: snapshots that share unchanged files.
//!
//! ```text
//! gable-backups            marks a backup folder, and is its lock file
//! blobs/3f/3fa2…           file content, named by its SHA-256
//! snapshots/TIME.manifest  the list of files in a snapshot
//! damaged/3fa2…            blobs that failed verification
//! unfinished, fresh        exist while a backup is written
//! ```

mod new_snapshot;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use git::FileCheck;
use jiff::{SignedDuration, Timestamp};

pub(super) use self::new_snapshot::NewSnapshot;
use super::{
    manifest::{
        self, HashingReader, ManifestEntry, ManifestHeader, ManifestItem, ManifestSummary, corrupted, ensure_no_faults,
        find_fault, read_error, repository_path, truncated,
    },
    progress::Progress,
    staging::{self, Staging, create_folders, create_owner_only},
};
use crate::exit::message;

const MARKER: &str = "gable-backups";
const UNFINISHED_MARKER: &str = "unfinished";
const TEMPORARY_BLOB: &str = "fresh";
const MANIFEST_SUFFIX: &str = ".manifest";
const PARTIAL_SUFFIX: &str = ".partial";
/// The tolerated difference between the clocks of several machines.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A folder with snapshots.
#[derive(Clone)]
pub(super) struct BackupFolder(PathBuf);

/// The metadata of a snapshot.
pub(super) struct SnapshotInfo {
    pub(super) name: String,
    pub(super) header: ManifestHeader,
    pub(super) summary: ManifestSummary,
}

/// The names of snapshots, the oldest first.
pub(super) struct SnapshotNames {
    /// Snapshots up to the present.
    pub(super) past: Vec<String>,
    /// Snapshots dated in the future because of a wrong clock; their order is not reliable.
    pub(super) future: Vec<String>,
    /// Snapshots that were renamed to something that is not a time.
    pub(super) custom: Vec<String>,
}

/// The state of a blob.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlobState {
    Good,
    Bad,
    Missing,
}

impl BackupFolder {
    /// Opens an existing backup folder.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if !path.join(MARKER).is_file() {
            bail!("{} is not a backup folder", path.display());
        }
        Ok(Self(path.to_owned()))
    }

    /// Opens or creates a backup folder. A folder with other files is refused.
    pub(super) fn open_or_create(path: &Path) -> Result<Self> {
        let context = || format!("cannot use {}", path.display());
        create_folders(path).with_context(context)?;
        if !path.join(MARKER).is_file() {
            if fs::read_dir(path)
                .with_context(context)?
                .any(|entry| entry.is_ok_and(|entry| !is_lost_and_found(&entry)))
            {
                bail!("{} contains other files; choose an empty folder", path.display());
            }
            for folder in ["blobs", "snapshots"] {
                create_folders(&path.join(folder)).with_context(context)?;
            }
            let mut marker = create_owner_only(&path.join(MARKER)).with_context(context)?;
            writeln!(marker, "Backups of gable; see gable backup --folder.").with_context(context)?;
            marker.sync_all().and_then(|()| sync_folder(path)).with_context(context)?;
        }
        Ok(Self(path.to_owned()))
    }

    /// Returns the names of all snapshots, the oldest first.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.snapshots()).map_err(|error| self.unusable(error))?;
        let name =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(MANIFEST_SUFFIX).map(ToOwned::to_owned);
        let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the names of all snapshots, classified by their date.
    pub(super) fn classify_names(&self) -> Result<SnapshotNames> {
        let latest = Timestamp::now() + MAX_CLOCK_SKEW;
        let (timed, custom): (Vec<_>, Vec<_>) = self.names()?.into_iter().partition(|name| parse_time(name).is_some());
        let (past, future) = timed.into_iter().partition(|name| parse_time(name) <= Some(latest));
        Ok(SnapshotNames { past, future, custom })
    }

    /// Returns the newest snapshot, or the one whose name starts with `prefix`. One dated in the future is chosen only if
    /// there is no other.
    pub(super) fn select(&self, prefix: Option<&str>) -> Result<String> {
        let Some(prefix) = prefix else {
            let newest = self.newest_first()?.into_iter().next();
            return newest.with_context(|| format!("{} contains no backup", self.0.display()));
        };
        let mut matching = self.names()?.into_iter().filter(|name| name.starts_with(prefix));
        match (matching.next(), matching.next()) {
            (Some(name), None) => Ok(name),
            (None, _) => Err(anyhow!("no backup starts with {prefix}; see --list")),
            (Some(one), Some(other)) => Err(anyhow!("{prefix} is ambiguous: {one} or {other}")),
        }
    }

    /// Reads and verifies the manifest of a snapshot, but not the files.
    pub(super) fn read_info(&self, name: &str) -> Result<SnapshotInfo> {
        let mut manifest = self.manifest(name)?;
        let header = manifest.header.clone();
        loop {
            if let ManifestItem::End(summary) = manifest.next().with_context(|| name.to_string())? {
                return Ok(SnapshotInfo { name: name.to_owned(), header, summary: *summary });
            }
        }
    }

    /// Unpacks a snapshot into `staging` and verifies every file.
    pub(super) fn read(
        &self,
        name: &str,
        staging: &Staging,
        progress: &mut Progress,
    ) -> Result<(ManifestHeader, ManifestSummary)> {
        // Format 1: objects that several repositories share are hard-linked, as in the original.
        let mut shared: HashMap<String, String> = HashMap::new();
        self.each_file(name, |sum, size, path| {
            // Only immutable files may be hard-linked.
            let immutable = path.starts_with("repositories/")
                && path.contains(".git/objects/")
                && git::backup::is_immutable(Path::new(&path));
            if let Some(target) = shared.get(&sum).filter(|_| immutable) {
                return staging.link(target, &path);
            }
            let blob = match File::open(self.blob(&sum)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    bail!("{path} is missing: {}", corrupted());
                }
                opened => opened.map_err(read_error)?,
            };
            let mut content = HashingReader::new(blob);
            staging.write(&path, &mut content)?;
            if content.count < size {
                bail!("{path}: {}", truncated());
            }
            if content.count != size || content.sum() != sum {
                bail!("{path}: {}", corrupted());
            }
            progress.add(size);
            if immutable {
                shared.insert(sum, path);
            }
            Ok(())
        })
    }

    /// Verifies all files of a snapshot. Corrupted blobs are moved to `damaged/`, so that the next backup does not reuse
    /// them.
    pub(super) fn verify(&self, name: &str, progress: &mut Progress) -> Result<(ManifestHeader, ManifestSummary)> {
        let mut defective: BTreeMap<String, (BlobState, u64, String)> = BTreeMap::new();
        let was_verified = self.manifest(name)?.header.verified;
        let mut faults = Vec::new();
        let (header, summary) = self.each_file(name, |sum, size, path| {
            staging::check_path(&path)?;
            match self.check_blob(&sum, size)? {
                BlobState::Good => progress.add(size),
                state => {
                    defective.entry(sum).or_insert((state, size, path));
                    return Ok(());
                }
            }
            if let Some(check) = repository_path(&path).map(FileCheck::for_path).filter(|_| !was_verified) {
                let blob = File::open(self.blob(&sum)).map_err(read_error)?;
                faults.extend(find_fault(blob, check).map(|fault| (path, fault)));
            }
            Ok(())
        })?;
        summary.left_out.iter().try_for_each(|path| staging::check_path(path))?;
        let Some((_, (_, _, first))) = defective.first_key_value() else {
            return ensure_no_faults(&faults).map(|()| (header, summary));
        };
        let mut bad: Vec<(&str, u64)> = defective.iter().map(|(sum, (_, size, _))| (sum.as_str(), *size)).collect();
        bad.retain(|(sum, _)| defective[*sum].0 == BlobState::Bad);
        let consequence = match self.move_damaged(&bad) {
            Ok(()) if bad.is_empty() => "the next backup stores them again if they still exist".to_owned(),
            Ok(()) => format!(
                "corrupted files were moved to {}, and the next backup stores them again if they still exist",
                self.damaged().display()
            ),
            Err(error) => {
                let reason = message(&error);
                format!("corrupted files could not be moved away ({reason}); verify again before the next backup")
            }
        };
        let count = defective.len();
        Err(anyhow!("the backup is damaged ({count} files are missing or corrupted, such as {first}); {consequence}"))
    }

    /// Moves corrupted blobs to `damaged/`.
    fn move_damaged(&self, bad: &[(&str, u64)]) -> Result<()> {
        if bad.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let unusable = |error| self.unusable(error);
        create_folders(&self.damaged()).map_err(unusable)?;
        for (sum, size) in bad {
            // Checked again under the lock: a backup may have stored it again in the meantime.
            if self.check_blob(sum, *size)? == BlobState::Bad {
                fs::rename(self.blob(sum), self.damaged().join(sum)).map_err(unusable)?;
            }
        }
        Ok(())
    }

    /// Calls `each` with the checksum, size and path of every file in a snapshot.
    fn each_file(
        &self,
        name: &str,
        mut each: impl FnMut(String, u64, String) -> Result<()>,
    ) -> Result<(ManifestHeader, ManifestSummary)> {
        let mut manifest = self.manifest(name)?;
        let header = manifest.header.clone();
        loop {
            match manifest.next()? {
                ManifestItem::End(summary) => return Ok((header, *summary)),
                ManifestItem::Entry(ManifestEntry::File { sum, size, path }) => each(sum, size, path)?,
                ManifestItem::Entry(ManifestEntry::Link { .. }) => return Err(corrupted()),
            }
        }
    }

    /// Removes blobs that no snapshot refers to. The caller holds the lock.
    fn sweep(&self) -> Result<()> {
        let mut used = HashSet::new();
        for name in self.names()? {
            let mark_used = |sum, _, _| {
                used.insert(sum);
                Ok(())
            };
            // An unreadable manifest may refer to any blob.
            self.each_file(&name, mark_used).map_err(|_| {
                let file = self.manifest_path(&name);
                anyhow!(
                    "unused content is kept, because {} cannot be read (see --list); move that file away if it cannot \
                     be repaired",
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

    /// Returns all names, the newest first; those dated in the future and those with other names come last.
    fn newest_first(&self) -> Result<Vec<String>> {
        let SnapshotNames { past, future, custom } = self.classify_names()?;
        Ok(past.into_iter().rev().chain(future.into_iter().rev()).chain(custom.into_iter().rev()).collect())
    }

    fn manifest(&self, name: &str) -> Result<manifest::Reader<BufReader<File>>> {
        let path = self.manifest_path(name);
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        manifest::Reader::open(BufReader::new(file)).with_context(|| name.to_string())
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

    /// Returns the path of the manifest of a snapshot.
    fn manifest_path(&self, name: &str) -> PathBuf {
        self.snapshots().join(format!("{name}{MANIFEST_SUFFIX}"))
    }

    /// Returns whether there is a blob of that size; its content is not verified.
    fn has_blob_of_size(&self, sum: &str, size: u64) -> bool {
        fs::metadata(self.blob(sum)).is_ok_and(|data| data.len() == size)
    }

    /// Reads a blob and compares it with its checksum.
    fn check_blob(&self, sum: &str, size: u64) -> Result<BlobState> {
        let blob = match File::open(self.blob(sum)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BlobState::Missing),
            opened => opened.map_err(read_error)?,
        };
        let mut content = HashingReader::new(blob);
        // A blob that cannot be read counts as corrupted.
        let read = io::copy(&mut content, &mut io::sink());
        let is_good = read.is_ok() && content.count == size && content.sum() == sum;
        Ok(if is_good { BlobState::Good } else { BlobState::Bad })
    }

    /// Locks the folder for writing.
    fn lock(&self) -> Result<File> {
        let marker = OpenOptions::new().append(true).open(self.0.join(MARKER)).map_err(|error| self.unusable(error))?;
        marker.try_lock().map_err(|_| anyhow!("another backup is writing to {}", self.0.display()))?;
        Ok(marker)
    }

    /// Records that there may be unreferenced blobs, until the next sweep.
    fn mark_unfinished(&self) -> Result<()> {
        let created = create_owner_only(&self.0.join(UNFINISHED_MARKER)).and_then(|file| file.sync_all());
        created.and_then(|()| sync_folder(&self.0)).map_err(|error| self.unusable(error))
    }

    fn clear_unfinished(&self) -> Result<()> {
        let removed = fs::remove_file(self.0.join(UNFINISHED_MARKER)).and_then(|()| sync_folder(&self.0));
        removed.map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: io::Error) -> Error {
        Error::new(error).context(format!("cannot use the backup folder {}", self.0.display()))
    }
}

/// Parses the time in the name of a snapshot.
pub(super) fn parse_time(name: &str) -> Option<Timestamp> {
    let (day, time) = name.split_once('T')?;
    format!("{day}T{}", time.replace('-', ":")).parse().ok()
}

/// Whether this is the folder that a file system has at its root.
fn is_lost_and_found(entry: &fs::DirEntry) -> bool {
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
    fn the_name_of_a_snapshot_is_its_time() {
        assert_eq!(parse_time("2026-11-15T22-54-31.123Z"), "2026-11-15T22:54:31.123Z".parse().ok());
        assert_eq!(parse_time("nonsense"), None);
    }

    /// Returns a backup folder with one snapshot of some files.
    fn folder_with_backup(path: &Path, files: &[(&str, &str)]) -> (BackupFolder, String) {
        let folder = BackupFolder::open_or_create(path).expect("made");
        let mut new_snapshot = NewSnapshot::new(&folder).expect("begun");
        let header = ManifestHeader {
            format: manifest::FORMAT,
            gable: "1".into(),
            engine: "sqlite".into(),
            migrations: Vec::new(),
            taken_at: "2026-01-01T00:00:00.000Z".into(),
            instance: None,
            verified: true,
            has_segments: false,
        };
        new_snapshot.begin(&header).expect("begun");
        for (path, content) in files {
            new_snapshot.add_bytes(path, content.as_bytes()).expect("added");
        }
        new_snapshot.finish(ManifestSummary::default()).expect("finished");
        let name = folder.select(None).expect("a backup");
        (folder, name)
    }

    #[test]
    fn only_immutable_files_are_hard_linked_after_a_restore() {
        let temporary = tempfile::tempdir().expect("a folder");
        let object = |letter: &str| format!("repositories/a/{letter}.git/objects/12/{}", "3".repeat(38));
        let (one, two) = (object("b"), object("c"));
        let (trace, head) = ("traces/1/1", "repositories/a/c.git/HEAD");
        let files = [(one.as_str(), "same"), (two.as_str(), "same"), (head, "same"), (trace, "same")];
        let (folder, name) = folder_with_backup(&temporary.path().join("backups"), &files);
        let staging = Staging::create(temporary.path().join("in")).expect("made");
        folder.read(&name, &staging, &mut Progress::new(true)).expect("read");
        let names_of = |path: &str| {
            let data = fs::metadata(staging.path().join(path)).expect("a file");
            std::os::unix::fs::MetadataExt::nlink(&data)
        };
        assert_eq!([one.as_str(), &two, head, trace].map(names_of), [2, 2, 1, 1]);
    }

    #[test]
    fn paths_that_a_restore_refuses_fail_verification() {
        for path in ["../x", "/x", "files/../../x", "other"] {
            let temporary = tempfile::tempdir().expect("a folder");
            let (folder, name) = folder_with_backup(temporary.path(), &[(path, "x")]);
            let refused = folder.verify(&name, &mut Progress::new(true)).expect_err("refused");
            assert_eq!(refused.to_string(), corrupted().to_string(), "{path}");
        }
    }
}
