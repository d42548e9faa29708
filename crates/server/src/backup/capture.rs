//! Captures a consistent state of the instance, then copies it while the server goes on.
//!
//! During the capture refs are frozen: a database snapshot is opened and all refs are recorded. Reachable objects are never
//! removed, stored files are never changed, and traces only grow, so all of those are copied afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, Metadata},
    io::{self, BufRead as _, BufReader, BufWriter, IntoInnerError, Read, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Error, Result, anyhow};
use git::{FileCheck, Repositories, backup};
use model::ProjectId;
use store::{
    Database,
    dump::{DumpedFile, ProjectRepository, Row, Snapshot, StoredFileKind, Table},
};

use super::{
    manifest::{DamagedFile, FORMAT, ManifestHeader, ManifestSummary},
    preflight,
    progress::Progress,
    rows::{MAX_BATCH_SIZE, RowBatch},
};
use crate::data_folder::PRIVATE_KEYS;

/// The maximum number of checks whether a missing file should exist, and the pause between them. A removed file
/// disappears shortly before its row.
const MAX_MISSING_CHECKS: u32 = 5;
const MISSING_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of damaged files that are reported one by one; the manifest lists all of them.
const MAX_REPORTED_DAMAGE: usize = 100;
/// The number of rows per query.
const PAGE_SIZE: usize = 1000;

/// The parts of an instance that a backup copies.
#[derive(Clone)]
pub(crate) struct BackupSource {
    pub(super) data: PathBuf,
    pub(super) database: Database,
    pub(super) repositories: Repositories,
}

/// The destination of a backup.
pub(super) trait Sink {
    /// Begins a backup.
    fn begin(&mut self, header: &ManifestHeader) -> Result<()>;

    /// Starts a group of files with a common path prefix; an earlier backup may contain some of them.
    fn enter(&mut self, group: &str) -> Result<()>;

    /// Adds a file with the given content.
    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()>;

    /// Returns whether the group since [`Self::enter`] is identical to the one in an earlier, verified backup.
    fn is_unchanged(&self) -> bool;

    /// Copies a file, or the beginning of one.
    fn add_file(&mut self, path: &str, source: FileSource<'_>) -> Result<AddOutcome>;

    /// Finishes the backup; everything is on disk afterwards.
    fn finish(&mut self, summary: ManifestSummary) -> Result<ManifestSummary>;
}

/// A file to copy.
pub(super) struct FileSource<'a> {
    pub(super) file: &'a Path,
    /// The number of bytes to copy; `None` copies the whole file.
    pub(super) size: Option<u64>,
    /// Whether the content under this path never changes.
    pub(super) immutable: bool,
    /// The creation time in microseconds since the epoch, if known; the file has not changed since.
    pub(super) created_at: Option<i64>,
    /// The check that its content has to pass.
    pub(super) check: Option<FileCheck>,
}

impl<'a> FileSource<'a> {
    /// The whole of a file that may change.
    fn whole(file: &'a Path) -> Self {
        Self { file, size: None, immutable: false, created_at: None, check: None }
    }
}

/// The outcome of copying a file.
pub(super) enum AddOutcome {
    /// The file does not exist, or is shorter than expected.
    Gone,
    /// The file cannot be opened.
    Unreadable(String),
    /// The file was copied. If it is damaged, so is the copy.
    Copied { fault: Option<String> },
}

/// The state of the instance at the time of the capture.
struct CapturedInstance {
    snapshot: Snapshot,
    refs: File,
    /// The number of repositories.
    repositories: u64,
    header: ManifestHeader,
}

/// Copies the instance into a sink; setting `stop` aborts.
pub(super) fn copy(
    source: &BackupSource,
    sink: &mut dyn Sink,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<ManifestSummary> {
    let (instance, damaged_keys) = preflight::check(source)?;
    let CapturedInstance { mut snapshot, refs, repositories, header } = capture(source, instance)?;
    sink.begin(&header)?;
    let mut summary = ManifestSummary { damaged: damaged_keys, ..ManifestSummary::default() };
    let tables = snapshot.tables().map_err(database_error)?;
    progress.stage_with_steps("rows of the database", tables.len() as u64);
    for table in tables {
        let count = copy_rows(&mut snapshot, &table, sink, progress, stop)?;
        summary.rows.insert(table.name, count);
        progress.step();
    }
    summary.sequences = snapshot.sequences().map_err(database_error)?.into_iter().collect::<BTreeMap<_, _>>();
    let (stored_files, count) = list_stored_files(&mut snapshot)?;
    let mut expected = BTreeMap::new();
    for_each_repository(source, &mut snapshot, |project, path| {
        expected.insert(path, project.default_branch);
    })?;
    // A long-lived snapshot would keep the database from removing old rows.
    drop(snapshot);
    for name in PRIVATE_KEYS {
        let file = source.data.join(name);
        let added = sink.add_file(name, FileSource::whole(&file))?;
        summary.record(name, added);
    }
    progress.stage_with_steps("repositories", repositories);
    copy_repositories(source, refs, sink, (&mut summary, &mut expected), progress, stop)?;
    progress.stage_with_steps("files and traces", count);
    copy_stored_files(&source.data, stored_files, sink, &mut summary, progress, stop)?;
    summary.missing.extend(find_missing(source, &summary.left_out, &expected, stop)?);
    summary.missing.sort_unstable();
    assign_projects(source, &mut summary.damaged)?;
    // `missing` is sorted, and may be long.
    for path in summary.left_out.iter().filter(|path| summary.missing.binary_search(path).is_err()) {
        progress.note(&format!("left out, because it was removed during the backup: {path}"));
    }
    for damage in summary.damaged.iter().take(MAX_REPORTED_DAMAGE) {
        progress.warn(&format!("damaged: {damage}"));
    }
    sink.finish(summary)
}

impl ManifestSummary {
    /// Records what is wrong with a file; returns whether it was copied.
    fn record(&mut self, path: &str, added: AddOutcome) -> bool {
        let (fault, copied) = match added {
            AddOutcome::Gone => return false,
            AddOutcome::Unreadable(fault) => (Some(fault), false),
            AddOutcome::Copied { fault } => (fault, true),
        };
        self.damaged.extend(fault.map(|fault| DamagedFile { path: path.to_owned(), fault, project: None }));
        copied
    }
}

/// Sets the project of each damaged repository.
fn assign_projects(source: &BackupSource, damaged: &mut [DamagedFile]) -> Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    damaged.sort_unstable();
    let mut snapshot = Snapshot::prepare(&source.database).map_err(database_error)?;
    snapshot.begin().map_err(database_error)?;
    for_each_repository(source, &mut snapshot, |project, path| {
        let first = damaged.partition_point(|damage| *damage.path < *path);
        for damage in damaged[first..].iter_mut().take_while(|damage| damage.path.starts_with(&path)) {
            damage.project = Some(project.id.get());
        }
    })
}

/// Returns the paths that could not be copied although the database still refers to them. Otherwise a disk that is not
/// mounted would look like one whose files were removed.
fn find_missing(
    source: &BackupSource,
    left_out: &[String],
    expected: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<Vec<String>> {
    let mut candidates: BTreeSet<String> = left_out.iter().chain(expected.keys()).cloned().collect();
    for attempt in 0..MAX_MISSING_CHECKS {
        if candidates.is_empty() {
            break;
        }
        if attempt > 0 {
            check_stopped(stop)?;
            thread::sleep(MISSING_CHECK_INTERVAL);
        }
        let mut snapshot = Snapshot::prepare(&source.database).map_err(database_error)?;
        snapshot.begin().map_err(database_error)?;
        let mut referenced = BTreeSet::new();
        let mut reference = |path: String| {
            if candidates.contains(&path) {
                referenced.insert(path);
            }
        };
        for_each_repository(source, &mut snapshot, |_, path| reference(path))?;
        for_each_stored_file(&mut snapshot, |path, _| {
            reference(path);
            Ok(())
        })?;
        candidates = referenced;
    }
    Ok(candidates.into_iter().collect())
}

/// Calls `visit` with every project that has a repository according to the database, and the path of the repository.
fn for_each_repository(
    source: &BackupSource,
    snapshot: &mut Snapshot,
    mut visit: impl FnMut(ProjectRepository, String),
) -> Result<()> {
    let mut after = ProjectId::new(0);
    loop {
        let projects = snapshot.project_repositories(after, PAGE_SIZE).map_err(database_error)?;
        let Some(newest) = projects.last() else { return Ok(()) };
        after = newest.id;
        for project in projects {
            let path = format!("repositories/{}", source.repositories.relative_path(&project.storage));
            visit(project, path);
        }
    }
}

fn capture(source: &BackupSource, instance: Option<String>) -> Result<CapturedInstance> {
    let mut snapshot = Snapshot::prepare(&source.database).map_err(database_error)?;
    let mut refs = BufWriter::new(tempfile::tempfile().context("cannot create a temporary file")?);
    let context = "cannot read the repositories";
    // A folder that was never served has no repositories and no refs to freeze.
    let ref_freeze = if source.data.join("repositories").is_dir() {
        Some(source.repositories.freeze_refs().context(context)?)
    } else {
        None
    };
    // The database first: the refs read afterwards include every change that its rows record.
    snapshot.begin().map_err(database_error)?;
    let repositories = source.repositories.write_all_refs(&mut refs).context(context)?;
    let taken_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    drop(ref_freeze);
    let refs = refs.into_inner().context("cannot record the refs")?;
    let header = ManifestHeader {
        format: FORMAT,
        gable: env!("CARGO_PKG_VERSION").into(),
        engine: if source.database.is_sqlite() { "sqlite" } else { "postgres" }.into(),
        migrations: snapshot.migrations().map_err(database_error)?,
        taken_at,
        instance,
        verified: true,
    };
    Ok(CapturedInstance { snapshot, refs, repositories, header })
}

/// Copies the rows of a table in batches; returns the number of rows.
fn copy_rows(
    snapshot: &mut Snapshot,
    table: &Table,
    sink: &mut dyn Sink,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut pages = TablePages::new(table);
    let (mut count, mut batches, mut batch) = (0, 0, None);
    loop {
        let rows = pages.next(snapshot)?;
        let at_end = rows.is_empty();
        let mut filled = at_end;
        for row in &rows {
            let current = match &mut batch {
                Some(current) => current,
                None => batch.insert(RowBatch::new(&table.columns)?),
            };
            count += 1;
            filled |= current.add(row)? >= MAX_BATCH_SIZE;
        }
        if let Some(full) = batch.take_if(|_| filled) {
            check_stopped(stop)?;
            let bytes = full.finish()?;
            sink.add_bytes(&format!("database/{}/{batches:06}.gz", table.name), &bytes)?;
            progress.add(bytes.len() as u64);
            batches += 1;
        }
        if at_end {
            break;
        }
    }
    Ok(count)
}

/// Reads a table in pages of limited size.
pub(super) struct TablePages<'a> {
    table: &'a Table,
    last: Option<Row>,
    page_size: usize,
}

impl<'a> TablePages<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        Self { table, last: None, page_size: 64 }
    }

    /// Returns the next rows; empty at the end.
    pub(super) fn next(&mut self, snapshot: &mut Snapshot) -> Result<Vec<Row>> {
        const MAX_PAGE_BYTES: usize = 1 << 20;
        let rows = snapshot.rows(self.table, self.last.as_ref(), self.page_size).map_err(database_error)?;
        self.last = rows.last().cloned().or(self.last.take());
        // Row sizes differ by orders of magnitude between tables.
        let size: usize = rows.iter().flatten().map(size_of).sum();
        self.page_size =
            if size > MAX_PAGE_BYTES { (self.page_size / 4).max(1) } else { (self.page_size * 2).min(1024) };
        Ok(rows)
    }
}

fn size_of(value: &store::dump::Value) -> usize {
    match value {
        store::dump::Value::Text(text) => text.len(),
        store::dump::Value::Bytes(bytes) => bytes.len(),
        _ => 8,
    }
}

/// Writes the list of stored files to a temporary file, because it may be long; returns it with their number.
fn list_stored_files(snapshot: &mut Snapshot) -> Result<(File, u64)> {
    let context = "cannot list the stored files";
    let mut list = BufWriter::new(tempfile::tempfile().context(context)?);
    let mut count = 0;
    for_each_stored_file(snapshot, |path, file| {
        count += 1;
        writeln!(list, "{} {} {path}", file.size, file.created_at.unwrap_or_default()).context(context)
    })?;
    Ok((list.into_inner().map_err(IntoInnerError::into_error).context(context)?, count))
}

/// Calls `visit` with the path and the row of every stored file.
fn for_each_stored_file(
    snapshot: &mut Snapshot,
    mut visit: impl FnMut(String, &DumpedFile) -> Result<()>,
) -> Result<()> {
    for kind in [StoredFileKind::Uploads, StoredFileKind::Artifacts, StoredFileKind::Traces] {
        let mut after = 0;
        loop {
            let files = snapshot.files(kind, after, PAGE_SIZE).map_err(database_error)?;
            let Some(newest) = files.last() else { break };
            after = newest.id;
            for file in &files {
                let folder = match kind {
                    StoredFileKind::Uploads => forge::uploads::folder(&file.storage),
                    StoredFileKind::Artifacts => forge::artifacts::folder(&file.storage),
                    StoredFileKind::Traces => file.storage.to_string(),
                };
                let root = if kind == StoredFileKind::Traces { "traces" } else { "files" };
                visit(format!("{root}/{folder}/{}", file.id), file)?;
            }
        }
    }
    Ok(())
}

fn copy_repositories(
    source: &BackupSource,
    mut refs: File,
    sink: &mut dyn Sink,
    (summary, expected): (&mut ManifestSummary, &mut BTreeMap<String, String>),
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<()> {
    let context = "cannot read the recorded refs";
    refs.seek(SeekFrom::Start(0)).context(context)?;
    let mut refs = BufReader::new(refs);
    while let Some(mut noted) = backup::read_refs(&mut refs).context(context)? {
        progress.step();
        check_stopped(stop)?;
        let root = format!("repositories/{}", noted.repository);
        sink.enter(&format!("{root}/"))?;
        // A damaged repository does not prevent the others from being copied.
        let objects = match source.repositories.object_files_to_copy(&noted.repository) {
            Ok(Some(objects)) => objects,
            Ok(None) => {
                summary.left_out.push(root);
                continue;
            }
            Err(error) => {
                summary.damaged.push(DamagedFile { path: root.clone(), fault: error.to_string(), project: None });
                summary.left_out.push(root);
                continue;
            }
        };
        let damaged_before = summary.damaged.len();
        let mut complete = true;
        for path in &objects.files {
            check_stopped(stop)?;
            let name = path.to_str().with_context(|| format!("{root} contains a file whose name is not UTF-8"))?;
            let file = source.repositories.file_path(&noted.repository, path);
            let check = Some(FileCheck::for_path(name));
            let source = FileSource { immutable: backup::is_immutable(path), check, ..FileSource::whole(&file) };
            match sink.add_file(&format!("{root}/{name}"), source)? {
                AddOutcome::Gone => {
                    complete = false;
                    break;
                }
                added => drop(summary.record(&format!("{root}/{name}"), added)),
            }
            progress.add(file.metadata().map_or(0, |data| data.len()));
        }
        // Refs come last: a folder without refs is not a repository.
        if !complete {
            summary.left_out.push(root);
            continue;
        }
        let tips = noted.tips();
        if let Some(branch) = expected.get(&root).filter(|branch| !noted.has_branch(branch)) {
            noted.faults.push(format!("refs/heads/{branch}: the default branch is missing"));
        }
        let faults = objects.faults.iter().chain(&noted.faults);
        let damage = |text: &String| {
            let (name, fault) = text.split_once(": ").unwrap_or(("", text));
            DamagedFile { path: format!("{root}/{name}"), fault: fault.to_owned(), project: None }
        };
        summary.damaged.extend(faults.map(damage));
        for (name, content) in noted.files {
            sink.add_bytes(&format!("{root}/{name}"), &content)?;
        }
        // Missing objects are found by following all links; that is skipped if damage was found already.
        if summary.damaged.len() == damaged_before && !sink.is_unchanged() {
            let missing = source.repositories.find_missing_object(&noted.repository, &tips, stop);
            check_stopped(stop)?;
            let missing = missing.with_context(|| format!("cannot check {root}"))?;
            summary.damaged.extend(missing.map(|fault| DamagedFile { path: root.clone(), fault, project: None }));
        }
        expected.remove(&root);
        summary.repositories += 1;
    }
    Ok(())
}

fn copy_stored_files(
    data: &Path,
    mut list: File,
    sink: &mut dyn Sink,
    summary: &mut ManifestSummary,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<()> {
    let context = "cannot read the list of stored files";
    list.seek(SeekFrom::Start(0)).context(context)?;
    let mut group = "";
    for line in BufReader::new(list).lines() {
        check_stopped(stop)?;
        progress.step();
        let line = line.context(context)?;
        let mut parts = line.splitn(3, ' ');
        let (Some(size), Some(created_at), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (size, created_at) = (size.parse().ok(), created_at.parse().ok().filter(|micros| *micros > 0));
        let entered = ["files/uploads/", "files/artifacts/", "traces/"].into_iter().find(|one| path.starts_with(one));
        if let Some(entered) = entered.filter(|entered| *entered != group) {
            group = entered;
            sink.enter(group)?;
        }
        let is_trace = group == "traces/";
        let file = data.join(path);
        let source = FileSource { size, immutable: !is_trace, created_at, ..FileSource::whole(&file) };
        let added = sink.add_file(path, source)?;
        if matches!(added, AddOutcome::Gone) {
            summary.left_out.push(path.to_owned());
            continue;
        }
        summary.record(path, added);
        if is_trace {
            // The buffered end of a trace that is still growing; it records itself where it belongs.
            for ending in ["aside-0", "aside-1"] {
                let aside = format!("{path}.{ending}");
                let added = sink.add_file(&aside, FileSource::whole(&data.join(&aside)))?;
                summary.record(&aside, added);
            }
        }
        progress.add(size.unwrap_or_default());
    }
    Ok(())
}

/// Identifies a file across hard links. Inode numbers are reused after a removal, so the times and the size are included.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct FileId([i64; 4], [u64; 3]);

impl FileId {
    pub(super) fn of(data: &Metadata) -> Self {
        let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
        Self(times, [data.dev(), data.ino(), data.len()])
    }
}

/// The outcome of opening a file.
pub(super) enum OpenedFile {
    Content(Box<FileContent>, Metadata),
    /// The file does not exist, or is shorter than expected.
    Gone,
    Unreadable(String),
}

/// Opens a file for copying.
pub(super) fn open(source: FileSource<'_>) -> OpenedFile {
    let opened = File::open(source.file).and_then(|file| {
        let data = file.metadata()?;
        if data.is_file() { Ok((file, data)) } else { Err(io::Error::other("not a regular file")) }
    });
    let (file, data) = match opened {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return OpenedFile::Gone;
        }
        Err(error) => return OpenedFile::Unreadable(error.to_string()),
    };
    let size = source.size.unwrap_or(data.len());
    if size > data.len() {
        return OpenedFile::Gone;
    }
    let grown = source.immutable && size < data.len();
    let fault = grown.then(|| format!("has {} bytes instead of {size}", data.len()));
    OpenedFile::Content(Box::new(FileContent { file, size, remaining: size, check: source.check, fault }), data)
}

/// The content of a file, checked while it is read. Bytes that cannot be read are replaced by zeros, because the size is
/// already written to the stream; the fault is recorded.
pub(super) struct FileContent {
    file: File,
    pub(super) size: u64,
    remaining: u64,
    check: Option<FileCheck>,
    pub(super) fault: Option<String>,
}

impl FileContent {
    /// Returns what is wrong with the content that was read.
    pub(super) fn finish(self) -> Option<String> {
        self.fault.or_else(|| self.check.and_then(|check| check.finish().err()).map(|fault| fault.to_string()))
    }
}

impl Read for FileContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..wanted];
        let read = match self.file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "unexpected end of file")),
            read => read,
        };
        let read = read.unwrap_or_else(|error| {
            let offset = self.size - self.remaining;
            self.fault.get_or_insert(format!("cannot be read from byte {offset} on: {error}"));
            buffer.fill(0);
            wanted
        });
        if let Some(check) = &mut self.check {
            check.update(&buffer[..read]);
        }
        self.remaining -= read as u64;
        Ok(read)
    }
}

fn check_stopped(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(anyhow!("the backup was cancelled")) } else { Ok(()) }
}

pub(super) fn database_error(error: impl std::fmt::Display) -> Error {
    anyhow!("cannot copy the database: {error}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_reused_inode_is_another_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::write(&one, "some").expect("written");
        fs::hard_link(&one, &two).expect("linked");
        let id = |path: &Path| FileId::of(&path.metadata().expect("a file"));
        let before = id(&one);
        assert!(before == id(&two));
        // The inode stays the same, as when a new file reuses the one of a removed file.
        fs::write(&one, "other").expect("written");
        assert!(before != id(&one));
    }
}
