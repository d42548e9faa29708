//! Copies a consistent state of the instance while the server goes on.
//!
//! A database snapshot is opened first; refs are rows like all others. Packs and stored files are never changed, and
//! traces only grow, so all of those are copied afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, IntoInnerError, Seek as _, SeekFrom, Write as _},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Error, Result, anyhow};
use model::{ProjectId, StorageId};
use store::dump::{DumpedFile, Row, Snapshot, StoredFileKind, Table};

use super::{
    manifest::{DamagedFile, FORMAT, ManifestHeader, ManifestSummary},
    preflight,
    progress::Progress,
    repositories::RepositoryList,
    rows::{MAX_BATCH_SIZE, RowBatch},
    source::{BackupSource, FileSource, StoredFiles},
};
use crate::data_folder::PRIVATE_KEYS;

/// The maximum number of checks whether a missing file should exist, and the pause between them. A removed file
/// disappears shortly before its row.
const MAX_MISSING_CHECKS: u32 = 5;
const MISSING_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of damaged files, and of missing ones, that are reported one by one; the manifest lists all of them.
const MAX_REPORTED_DAMAGE: usize = 100;
/// The number of unconverted repositories per query.
const UNCONVERTED_PAGE_SIZE: i64 = 1000;
/// The number of rows per query.
const PAGE_SIZE: usize = 1000;

/// Returns the repositories of an earlier version that are not converted, except for those that have a default branch, which
/// are known to be missing.
fn find_unconverted(source: &BackupSource, snapshot: &mut Snapshot) -> Result<Vec<DamagedFile>> {
    let repositories = git::Repositories::attach(&source.folder().join("repositories"));
    let (mut found, mut after) = (Vec::new(), ProjectId::new(0));
    loop {
        let rows = store::unconverted::list(snapshot.connection(), after, UNCONVERTED_PAGE_SIZE);
        let rows = rows.map_err(database_error)?;
        let Some(last) = rows.last() else { return Ok(found) };
        after = last.project;
        let has_folder =
            |storage: &str| StorageId::parse(storage).is_some_and(|storage| repositories.has_old_repository(&storage));
        let rows = rows.iter().filter(|row| row.default_branch.is_none() && has_folder(&row.storage));
        found.extend(rows.map(|row| DamagedFile {
            path: "repository".into(),
            fault: "an earlier version has written it; the next start of the server converts it".into(),
            projects: vec![row.project.get()],
        }));
    }
}

/// The destination of a backup.
pub(super) trait Sink {
    /// Begins a backup.
    fn begin(&mut self, header: &ManifestHeader) -> Result<()>;

    /// Starts a group of files with a common path prefix; an earlier backup may contain some of them.
    fn enter(&mut self, group: &str) -> Result<()>;

    /// Adds a file with the given content.
    fn add_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()>;

    /// Returns whether a repository with this digest lacked no object when an earlier backup was made.
    fn was_connected(&self, digest: &str) -> bool;

    /// Copies a file, or the beginning of one.
    fn add_file(&mut self, path: &str, source: FileSource<'_>) -> Result<AddOutcome>;

    /// Finishes the backup; everything is on disk afterwards.
    fn finish(&mut self, summary: ManifestSummary) -> Result<ManifestSummary>;
}

/// The outcome of copying a file.
pub(super) enum AddOutcome {
    /// The file does not exist, or is shorter than expected.
    Gone,
    /// The file cannot be opened.
    Unreadable(String),
    /// The file was copied. If it is damaged, so is the copy.
    Copied { size: u64, fault: Option<String> },
}

/// Copies the instance into a sink; setting `stop` aborts.
pub(super) fn copy(
    source: &BackupSource,
    sink: &mut dyn Sink,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<ManifestSummary> {
    let (instance, damaged_keys) = preflight::check(source)?;
    let mut snapshot = Snapshot::prepare(&source.database).map_err(database_error)?;
    snapshot.begin().map_err(database_error)?;
    sink.begin(&create_header(source, &mut snapshot, instance)?)?;
    let mut summary = ManifestSummary { damaged: damaged_keys, ..ManifestSummary::default() };
    let tables = snapshot.tables().map_err(database_error)?;
    progress.stage_with_steps("rows of the database", tables.len() as u64);
    for table in tables {
        let count = copy_rows(&mut snapshot, &table, sink, progress, stop)?;
        summary.rows.insert(table.name, count);
        progress.step();
    }
    summary.sequences = snapshot.sequences().map_err(database_error)?.into_iter().collect::<BTreeMap<_, _>>();
    let (stored_files, count) = list_stored_files(source, &mut snapshot)?;
    let repositories = RepositoryList::read(&mut snapshot, stop)?;
    let lost = snapshot.projects_without_repository().map_err(database_error)?;
    summary.damaged.extend(lost.into_iter().map(|project| DamagedFile {
        path: "repository".into(),
        fault: "the database has no refs of it; if an earlier version has written it, start the server once to convert it".into(),
        projects: vec![project.get()],
    }));
    summary.damaged.extend(find_unconverted(source, &mut snapshot)?);
    // A long-lived snapshot would keep the database from removing old rows.
    drop(snapshot);
    for name in PRIVATE_KEYS {
        let added = sink.add_file(name, FileSource::local(source.key_path(name)))?;
        summary.record(name, added);
    }
    let files = source.stored_files()?;
    progress.stage_with_steps("packs", repositories.pack_count);
    let mut faulty = repositories.copy_packs(&files, sink, progress, stop)?;
    progress.stage_with_steps("repositories", repositories.repository_count);
    repositories.check_links((&files, &source.database), sink, (&mut summary, &mut faulty), progress, stop)?;
    faulty.report(&source.database, &mut summary)?;
    progress.stage_with_steps("files and traces", count);
    copy_stored_files(&files, stored_files, sink, &mut summary, progress, stop)?;
    summary.missing.extend(find_missing(source, &summary.left_out, stop)?);
    summary.missing.sort_unstable();
    summary.damaged.sort_unstable();
    // `missing` is sorted, and may be long.
    for path in summary.left_out.iter().filter(|path| summary.missing.binary_search(path).is_err()) {
        progress.note(&format!("left out, because it was removed during the backup: {path}"));
    }
    for missing in summary.missing.iter().take(MAX_REPORTED_DAMAGE) {
        progress.warn(&format!("missing: {missing}"));
    }
    for damage in summary.damaged.iter().take(MAX_REPORTED_DAMAGE) {
        progress.warn(&format!("damaged: {damage}"));
    }
    sink.finish(summary)
}

impl ManifestSummary {
    /// Records what is wrong with a file.
    fn record(&mut self, path: &str, added: AddOutcome) {
        let fault = match added {
            AddOutcome::Gone => None,
            AddOutcome::Unreadable(fault) => Some(fault),
            AddOutcome::Copied { fault, .. } => fault,
        };
        self.damaged.extend(fault.map(|fault| DamagedFile { path: path.to_owned(), fault, projects: Vec::new() }));
    }
}

/// Returns the stored files that could not be copied although the database still refers to them. Otherwise a disk that is
/// not mounted would look like one whose files were removed.
fn find_missing(source: &BackupSource, left_out: &[String], stop: &AtomicBool) -> Result<Vec<String>> {
    let mut candidates: BTreeSet<String> = left_out.iter().cloned().collect();
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
        for_each_stored_file(source, &mut snapshot, |path, _| {
            if candidates.contains(&path) {
                referenced.insert(path);
            }
            Ok(())
        })?;
        candidates = referenced;
    }
    Ok(candidates.into_iter().collect())
}

/// Describes a backup of an open snapshot.
fn create_header(source: &BackupSource, snapshot: &mut Snapshot, instance: Option<String>) -> Result<ManifestHeader> {
    Ok(ManifestHeader {
        format: FORMAT,
        gable: env!("CARGO_PKG_VERSION").into(),
        engine: if source.database.is_sqlite() { "sqlite" } else { "postgres" }.into(),
        migrations: snapshot.migrations().map_err(database_error)?,
        taken_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        instance,
        verified: true,
        has_segments: source.is_in_bucket(),
    })
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
fn list_stored_files(source: &BackupSource, snapshot: &mut Snapshot) -> Result<(File, u64)> {
    let context = "cannot list the stored files";
    let mut list = BufWriter::new(tempfile::tempfile().context(context)?);
    let mut count = 0;
    for_each_stored_file(source, snapshot, |path, file| {
        count += 1;
        writeln!(list, "{} {} {path}", file.size, file.created_at.unwrap_or_default()).context(context)
    })?;
    Ok((list.into_inner().map_err(IntoInnerError::into_error).context(context)?, count))
}

/// Calls `visit` with the path and the row of every stored file.
fn for_each_stored_file(
    source: &BackupSource,
    snapshot: &mut Snapshot,
    mut visit: impl FnMut(String, &DumpedFile) -> Result<()>,
) -> Result<()> {
    for kind in source.kinds() {
        let mut after = 0;
        loop {
            let files = snapshot.files(kind, after, PAGE_SIZE).map_err(database_error)?;
            let Some(newest) = files.last() else { break };
            after = newest.id;
            for file in &files {
                let folder = match kind {
                    StoredFileKind::Uploads => forge::uploads::folder(&file.storage),
                    StoredFileKind::Avatars => forge::avatars::folder(&file.storage),
                    StoredFileKind::Artifacts => forge::artifacts::folder(&file.storage),
                    StoredFileKind::TraceObjects => forge::traces::folder(&file.storage),
                    StoredFileKind::Traces => file.storage.to_string(),
                };
                let root = if kind == StoredFileKind::Traces { "traces" } else { "files" };
                visit(format!("{root}/{folder}/{}", file.id), file)?;
            }
        }
    }
    Ok(())
}

fn copy_stored_files(
    files: &StoredFiles,
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
        let groups = ["files/uploads/", "files/avatars/", "files/artifacts/", "files/traces/", "traces/"];
        let entered = groups.into_iter().find(|one| path.starts_with(one));
        if let Some(entered) = entered.filter(|entered| *entered != group) {
            group = entered;
            sink.enter(group)?;
        }
        let is_trace = group == "traces/";
        let source = FileSource { size, immutable: !is_trace, created_at, ..FileSource::whole(files.place(path)) };
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
                let added = sink.add_file(&aside, FileSource::whole(files.place(&aside)))?;
                summary.record(&aside, added);
            }
        }
        progress.add(size.unwrap_or_default());
    }
    Ok(())
}

pub(super) fn check_stopped(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(anyhow!("the backup was cancelled")) } else { Ok(()) }
}

pub(super) fn database_error(error: impl std::fmt::Display) -> Error {
    anyhow!("cannot copy the database: {error}")
}
