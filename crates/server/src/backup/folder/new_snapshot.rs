//! Adds a snapshot to a backup folder.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, Metadata},
    io::{self, BufReader, BufWriter, Read},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail};
use jiff::{SignedDuration, Timestamp};

use super::{
    BackupFolder, BlobState, MANIFEST_SUFFIX, PARTIAL_SUFFIX, SnapshotInfo, SnapshotNames, TEMPORARY_BLOB,
    UNFINISHED_MARKER, sync_folder,
};
use crate::{
    backup::{
        capture::{AddOutcome, Sink},
        manifest::{self, DamagedFile, HashingReader, ManifestEntry, ManifestHeader, ManifestItem, ManifestSummary},
        source::{FileSource, OpenedFile, open},
        staging::{create_folders, create_owner_only},
    },
    exit::message,
};

/// The minimum time between the last change of a file and a backup for the file to count as older, to allow for rounded
/// timestamps.
const TIMESTAMP_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// A snapshot that is being written. It becomes visible when it is finished; earlier ones are not changed.
pub(in crate::backup) struct NewSnapshot {
    folder: BackupFolder,
    _lock: File,
    previous: Option<PreviousSnapshot>,
    manifest: Option<(String, PathBuf, manifest::Writer<BufWriter<File>>)>,
    /// The size and checksum of each file that the previous snapshot has in this group, by path.
    previous_files: HashMap<String, (u64, String)>,
    /// The number of bytes that no earlier snapshot had.
    pub(in crate::backup) bytes_added: u64,
    /// Problems for the operator that do not invalidate the snapshot.
    pub(in crate::backup) warnings: Vec<String>,
    /// Whether unreferenced blobs of an interrupted backup were removed.
    is_swept: bool,
    /// The number of damaged blobs that were replaced, and the path of the first.
    replaced_blobs: (u64, String),
    /// The name of the snapshot, once it is finished.
    finished_name: Option<String>,
}

impl NewSnapshot {
    pub(in crate::backup) fn new(folder: &BackupFolder) -> Result<Self> {
        let mut new_snapshot = Self {
            folder: folder.clone(),
            _lock: folder.lock()?,
            previous: None,
            manifest: None,
            previous_files: HashMap::new(),
            bytes_added: 0,
            warnings: Vec::new(),
            is_swept: true,
            replaced_blobs: (0, String::new()),
            finished_name: None,
        };
        new_snapshot.remove_partial_manifests()?;
        if folder.0.join(UNFINISHED_MARKER).exists() {
            // An interrupted backup may have left incomplete blobs. If they cannot be removed they do no harm, because
            // existing blobs are verified before they are reused.
            if let Err(error) = folder.sweep() {
                new_snapshot.is_swept = false;
                new_snapshot.warn(message(&error));
            }
        }
        folder.mark_unfinished()?;
        new_snapshot.warn_about_future_snapshots()?;
        // Unreadable snapshots are skipped.
        for name in folder.newest_first()? {
            if let Ok(SnapshotInfo { summary, .. }) = folder.read_info(&name) {
                let manifest = folder.manifest(&name)?;
                let ManifestSummary { damaged, connected, .. } = summary;
                new_snapshot.previous =
                    Some(PreviousSnapshot { manifest, damaged, connected, next: None, ended: false });
                break;
            }
        }
        Ok(new_snapshot)
    }

    /// Removes the oldest snapshots so that `max` complete ones remain, and the blobs that only they used; returns the
    /// number of removed snapshots. The new snapshot is always kept. Unreadable snapshots and those dated in the future
    /// are kept and not counted. Incomplete ones are not counted, and are removed if they are older than all kept ones.
    pub(in crate::backup) fn prune(&mut self, max: usize) -> Result<usize> {
        let folder = self.folder.clone();
        let finished_name = self.finished_name.clone().context("the backup is not finished")?;
        let mut others = folder.classify_names()?.past;
        others.retain(|name| *name != finished_name);
        // All manifests are read before anything is removed.
        let mut readable = Vec::new();
        for name in others {
            match folder.read_info(&name) {
                Ok(info) => readable.push((name, info.summary.is_complete())),
                Err(_) => self.warn(format!("cannot read the backup {name} (see --list); it is ignored and kept")),
            }
        }
        // The newest complete ones are kept, and everything between them.
        let mut remaining = max.max(1) - 1;
        let kept = readable.iter().rev().take_while(|(_, is_complete)| {
            let is_kept = remaining > 0;
            remaining -= usize::from(is_kept && *is_complete);
            is_kept
        });
        let surplus = readable.len() - kept.count();
        if surplus == 0 {
            return Ok(0);
        }
        folder.mark_unfinished()?;
        for (name, _) in &readable[..surplus] {
            fs::remove_file(folder.manifest_path(name)).map_err(|error| folder.unusable(error))?;
        }
        sync_folder(&folder.snapshots()).map_err(|error| folder.unusable(error))?;
        // If this fails, the next backup removes the blobs.
        match folder.sweep() {
            Ok(()) => folder.clear_unfinished()?,
            Err(error) => self.warn(message(&error)),
        }
        Ok(surplus)
    }

    fn warn(&mut self, message: String) {
        if !self.warnings.contains(&message) {
            self.warnings.push(message);
        }
    }

    fn warn_about_future_snapshots(&mut self) -> Result<()> {
        let SnapshotNames { future, .. } = self.folder.classify_names()?;
        if !future.is_empty() {
            self.warn(format!(
                "backups dated in the future ({}) are ignored and not removed; if the clock is right, move their \
                 manifests in {} away",
                future.join(", "),
                self.folder.snapshots().display()
            ));
        }
        Ok(())
    }

    /// Removes the manifests of interrupted backups.
    fn remove_partial_manifests(&self) -> Result<()> {
        let unusable = |error| self.folder.unusable(error);
        for entry in fs::read_dir(self.folder.snapshots()).map_err(unusable)? {
            let path = entry.map_err(unusable)?.path();
            if path.to_str().is_some_and(|path| path.ends_with(PARTIAL_SUFFIX)) {
                fs::remove_file(path).map_err(unusable)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, sum: String, size: u64, path: &str) -> Result<()> {
        let (_, _, manifest) = self.manifest.as_mut().context("the backup was not started")?;
        let entry = ManifestEntry::File { sum, size, path: path.to_owned() };
        manifest.add(&entry).map_err(|error| self.folder.unusable(error))
    }

    /// Returns the checksum of a file of this size in the previous snapshot, if its content is there.
    fn previous_sum(&self, path: &str, size: u64) -> Option<String> {
        let (_, sum) = self.previous_files.get(path).filter(|(previous_size, _)| *previous_size == size)?;
        self.folder.has_blob_of_size(sum, size).then(|| sum.clone())
    }

    /// Stores content under its checksum, unless it exists already; returns the checksum.
    fn store(&mut self, content: impl Read, size: u64, path: &str) -> Result<String> {
        let folder = self.folder.clone();
        let unusable = |error| folder.unusable(error);
        let mut content = HashingReader::new(content);
        let temporary = folder.0.join(TEMPORARY_BLOB);
        let mut file = create_owner_only(&temporary).map_err(unusable)?;
        io::copy(&mut content, &mut file).with_context(|| format!("cannot copy {path}"))?;
        if content.count != size {
            bail!("{path} became shorter while it was read; run the backup again");
        }
        let sum = content.sum();
        let blob = folder.blob(&sum);
        // An existing blob is verified: all later snapshots would share its damage.
        match folder.check_blob(&sum, size)? {
            BlobState::Good => return Ok(sum),
            BlobState::Missing => {}
            BlobState::Bad => {
                if self.replaced_blobs.0 == 0 {
                    path.clone_into(&mut self.replaced_blobs.1);
                }
                self.replaced_blobs.0 += 1;
            }
        }
        if let Some(parent) = blob.parent() {
            create_folders(parent).map_err(unusable)?;
        }
        fs::rename(&temporary, &blob).map_err(unusable)?;
        self.bytes_added += size;
        Ok(sum)
    }
}

impl Sink for NewSnapshot {
    fn begin(&mut self, header: &ManifestHeader) -> Result<()> {
        if let Some(PreviousSnapshot { manifest, .. }) = &self.previous
            && let (Some(theirs), Some(ours)) = (&manifest.header.instance, &header.instance)
            && theirs != ours
        {
            let folder = self.folder.0.display();
            bail!("{folder} contains backups of another instance; choose another folder");
        }
        let name = header.taken_at.replace(':', "-");
        let path = self.folder.snapshots().join(format!("{name}{PARTIAL_SUFFIX}"));
        let file = create_owner_only(&path).map_err(|error| self.folder.unusable(error))?;
        let writer =
            manifest::Writer::begin(BufWriter::new(file), header).map_err(|error| self.folder.unusable(error))?;
        self.manifest = Some((name, path, writer));
        Ok(())
    }

    fn enter(&mut self, group: &str) -> Result<()> {
        self.previous_files = match &mut self.previous {
            Some(previous) => previous.read_group(group)?,
            None => HashMap::new(),
        };
        Ok(())
    }

    fn was_connected(&self, digest: &str) -> bool {
        self.previous.as_ref().is_some_and(|previous| previous.connected.contains(digest))
    }

    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let size = bytes.len() as u64;
        let sum = self.store(bytes, size, path)?;
        self.record(sum, size, path)
    }

    fn add_file(&mut self, path: &str, source: FileSource<'_>) -> Result<AddOutcome> {
        let (immutable, is_linked, created_at) = (source.immutable, source.is_linked, source.created_at);
        // An object with the same key and size as in the previous snapshot was verified then and is not read again.
        if let Some(size) = source.unchanged_object_size()
            && let Some(sum) = self.previous_sum(path, size)
        {
            self.record(sum, size, path)?;
            return Ok(AddOutcome::Copied { size, fault: None });
        }
        let (mut content, data) = match open(source)? {
            OpenedFile::Content(content, data) => (content, data),
            OpenedFile::Gone => return Ok(AddOutcome::Gone),
            OpenedFile::Unreadable(fault) => return Ok(AddOutcome::Unreadable(fault)),
        };
        let size = content.size;
        if !immutable {
            let sum = self.store(&mut content, size, path)?;
            self.record(sum, size, path)?;
            return Ok(AddOutcome::Copied { size, fault: content.finish() });
        }
        // A file with the same path and size that was not touched since the previous snapshot was verified then and is not
        // read again.
        let is_same = data.is_some_and(|data| {
            self.previous.as_ref().is_some_and(|previous| previous.is_after(&data, is_linked))
                && content.fault.is_none()
        });
        if let Some(sum) = self.previous_sum(path, size).filter(|_| is_same) {
            self.record(sum, size, path)?;
            return Ok(AddOutcome::Copied { size, fault: None });
        }
        let sum = self.store(&mut content, size, path)?;
        let fault = content.finish();
        let modified = self.previous.as_ref().zip(self.previous_files.get(path)).and_then(
            |(previous, (previous_size, previous_sum))| {
                let same_file =
                    *previous_size == size && created_at.is_some_and(|micros| previous.is_after_timestamp(micros));
                let taken_at = &previous.manifest.header.taken_at;
                (same_file && *previous_sum != sum)
                    .then(|| format!("the content differs from the backup of {taken_at}"))
            },
        );
        self.record(sum, size, path)?;
        Ok(AddOutcome::Copied { size, fault: fault.or(modified) })
    }

    fn finish(&mut self, summary: ManifestSummary) -> Result<ManifestSummary> {
        let folder = self.folder.clone();
        let unusable = |error| folder.unusable(error);
        let (name, path, manifest) = self.manifest.take().context("the backup was not started")?;
        let (out, summary) = manifest.finish(summary).map_err(unusable)?;
        let file = out.into_inner().map_err(|error| unusable(error.into_error()))?;
        // All blobs are on disk before a manifest refers to them; one call is faster than one per file.
        rustix::fs::syncfs(&file).map_err(|error| unusable(error.into()))?;
        file.sync_all().map_err(unusable)?;
        let final_path = self.folder.snapshots().join(format!("{name}{MANIFEST_SUFFIX}"));
        fs::rename(&path, &final_path).and_then(|()| sync_folder(&folder.snapshots())).map_err(unusable)?;
        let _ = fs::remove_file(folder.0.join(TEMPORARY_BLOB));
        self.finished_name = Some(name);
        if self.is_swept {
            folder.clear_unfinished()?;
        }
        if let (1.., first) = &self.replaced_blobs {
            let count = self.replaced_blobs.0;
            self.warn(format!("replaced {count} damaged files of earlier backups, such as {first}"));
        }
        Ok(summary)
    }
}

impl Drop for NewSnapshot {
    fn drop(&mut self) {
        if let Some((_, path, _)) = &self.manifest {
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(self.folder.0.join(TEMPORARY_BLOB));
        }
    }
}

/// The previous snapshot. Its manifest is read in parallel with the new one: both list files in the same order.
struct PreviousSnapshot {
    manifest: manifest::Reader<BufReader<File>>,
    /// The files that were damaged when it was made.
    damaged: Vec<DamagedFile>,
    /// Digests of the repositories that lacked no object when it was made.
    connected: BTreeSet<String>,
    next: Option<(u64, String, String)>,
    ended: bool,
}

impl PreviousSnapshot {
    /// Returns whether it was taken after the last change of a file, with some tolerance. A new hard link changes the
    /// ctime of a file, but not its content.
    fn is_after(&self, data: &Metadata, is_linked: bool) -> bool {
        let touched = if is_linked { data.mtime() } else { data.mtime().max(data.ctime()) }.saturating_add(1);
        Timestamp::from_second(touched).is_ok_and(|touched| self.elapsed_since(touched) > Some(TIMESTAMP_TOLERANCE))
    }

    /// Returns whether it was taken after a time in microseconds since the epoch.
    fn is_after_timestamp(&self, micros: i64) -> bool {
        Timestamp::from_microsecond(micros).is_ok_and(|time| self.elapsed_since(time) > Some(SignedDuration::ZERO))
    }

    fn elapsed_since(&self, time: Timestamp) -> Option<SignedDuration> {
        let taken: Timestamp = self.manifest.header.taken_at.parse().ok()?;
        Some(taken.duration_since(time))
    }

    /// Returns the files of a group that were intact when it was made, with size and checksum.
    fn read_group(&mut self, group: &str) -> Result<HashMap<String, (u64, String)>> {
        let mut found = HashMap::new();
        let wanted = sort_key(group);
        loop {
            if self.next.is_none() && !self.ended {
                match self.manifest.next()? {
                    ManifestItem::Entry(ManifestEntry::File { sum, size, path }) => self.next = Some((size, sum, path)),
                    ManifestItem::Entry(ManifestEntry::Link { .. }) => continue,
                    ManifestItem::End(_) => self.ended = true,
                }
            }
            match self.next.take() {
                Some(next) if sort_key(&next.2) > wanted => {
                    self.next = Some(next);
                    return Ok(found);
                }
                Some((size, sum, path)) => {
                    if path.starts_with(group) && self.was_intact(&path) {
                        found.insert(path, (size, sum));
                    }
                }
                None => return Ok(found),
            }
        }
    }

    /// Returns whether a file was verified and intact.
    fn was_intact(&self, path: &str) -> bool {
        self.manifest.header.verified && !self.damaged.iter().any(|damage| damage.path == path)
    }
}

/// The order of files in a manifest: rows and keys, then packs by folder, uploads, avatars, artifacts and traces.
fn sort_key(path: &str) -> (usize, &str) {
    let later = ["files/packs/", "files/uploads/", "files/avatars/", "files/artifacts/", "files/traces/", "traces/"];
    let group = later.iter().enumerate().find_map(|(at, start)| Some((at, path.strip_prefix(start)?)));
    match group {
        Some((0, rest)) => (1, rest.split('/').next().unwrap_or_default()),
        Some((at, _)) => (at + 1, ""),
        None => (0, ""),
    }
}
