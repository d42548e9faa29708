//! Traces in segments. A chunk is a row that is inserted with the new size of the trace, so a node that was given up
//! changes nothing. Later the rows are archived: joined into an object of the file store that replaces them.

use std::{io, ops::Range, time::Duration};

use bytes::Bytes;
use files::{Files, WriteError};
use futures_util::{
    Stream, TryStreamExt as _,
    stream::{self, BoxStream},
};
use model::{JobId, ProjectId, StorageId, Time, TraceObjectId};
use store::trace_segments::{self, TraceObject, TracePart};
use tracing::{info, warn};

use super::LogStore;
use crate::{
    Caller, Error, Forge, ReadTx, Result, WriteTx,
    stored_files::{ABANDONED_AFTER, BATCH, random_storage},
    tasks::{self, Task},
};

/// How many bytes of a trace accumulate in the database before they are archived.
const ARCHIVE_BYTES: u64 = 1 << 20;
/// How many bytes are read from the database at a time.
const READ_BYTES: u64 = 256 << 10;
/// How long writing an object may take; less than the time after which it counts as abandoned.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Adds bytes to a trace; many of them are archived soon.
pub(super) fn insert(tx: &mut WriteTx<'_>, job: JobId, start: u64, bytes: &[u8]) -> Result<()> {
    trace_segments::insert(tx.db(), job, start, bytes)?;
    let end = start + bytes.len() as u64;
    if start / ARCHIVE_BYTES == end / ARCHIVE_BYTES {
        return Ok(());
    }
    tasks::enqueue_now(tx, &Task::ArchiveTrace(job))
}

/// Enqueues the archiving of the traces of jobs that have ended, in the transaction that ends them.
pub(crate) fn archive_ended(tx: &mut WriteTx<'_>, jobs: &[JobId]) -> Result<()> {
    if !matches!(tx.shared().logs, LogStore::Segments) || jobs.is_empty() {
        return Ok(());
    }
    let now = tx.now();
    for job in trace_segments::with_inline_bytes(tx.db(), jobs)? {
        tasks::enqueue(tx, &Task::ArchiveTrace(job), now)?;
    }
    Ok(())
}

/// The state of a stream that reads segments.
struct SegmentReader {
    forge: Forge,
    files: Files,
    job: JobId,
    /// The bytes that are still to be read.
    range: Range<u64>,
    /// The object that was missing in the last attempt.
    missing: Option<TraceObjectId>,
}

/// Reads a range of a trace. The stream ends early if the trace is shorter or was erased. Segments are looked up one after
/// the other, so it does not matter if they are archived meanwhile.
pub(super) fn read(
    forge: &Forge,
    files: &Files,
    job: JobId,
    range: Range<u64>,
) -> BoxStream<'static, io::Result<Bytes>> {
    let reader = SegmentReader { forge: forge.clone(), files: files.clone(), job, range, missing: None };
    Box::pin(stream::try_unfold(reader, SegmentReader::next).try_flatten())
}

impl SegmentReader {
    async fn next(mut self) -> io::Result<Option<(BoxStream<'static, io::Result<Bytes>>, Self)>> {
        loop {
            if self.range.is_empty() {
                return Ok(None);
            }
            let (job, offset) = (self.job, self.range.start);
            let found = move |tx: &mut ReadTx<'_>| Ok(trace_segments::part_at(tx.db(), job, offset, READ_BYTES)?);
            let part = self.forge.read(Caller::system(), found).await.map_err(io::Error::other)?;
            let wanted = self.range.end - offset;
            match part {
                None => return Ok(None),
                Some(TracePart::Bytes(bytes)) => {
                    let mut bytes = Bytes::from(bytes);
                    bytes.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
                    self.range.start += bytes.len() as u64;
                    return Ok(Some((Box::pin(stream::once(async { Ok(bytes) })), self)));
                }
                Some(TracePart::Object { object, range }) => {
                    let range = range.start..range.end.min(range.start + wanted);
                    let size = range.end - range.start;
                    if let Some(content) =
                        self.files.read(&object_key(&object), Some(range)).await.map_err(io::Error::other)?
                    {
                        (self.range.start, self.missing) = (offset + size, None);
                        return Ok(Some((content.bytes, self)));
                    }
                    // The trace may have been erased since the segment was found.
                    if self.missing == Some(object.id) {
                        let text = format!("the object {} of the trace of job {job} is missing", object_key(&object));
                        return Err(io::Error::new(io::ErrorKind::NotFound, text));
                    }
                    self.missing = Some(object.id);
                }
            }
        }
    }
}

/// Moves the bytes of a trace that are in the database to an object.
pub(crate) async fn archive(forge: &Forge, job: JobId) -> Result<()> {
    if !matches!(forge.shared().logs, LogStore::Segments) {
        return Ok(());
    }
    let find = move |tx: &mut ReadTx<'_>| {
        let Some(run) = store::job_runs::find(tx.db(), job)? else { return Ok(None) };
        Ok(trace_segments::inline_range(tx.db(), job)?.map(|range| (run, range)))
    };
    let Some((run, range)) = forge.read(Caller::system(), find).await? else { return Ok(()) };
    let files = &forge.shared().files;
    let (content, size) = (read(forge, files, job, range.clone()), range.end - range.start);
    let replace =
        move |tx: &mut WriteTx<'_>, object: &TraceObject| Ok(trace_segments::archive(tx.db(), &run, &range, object)?);
    if !store_object(forge, files, size, content, replace).await? {
        info!(build.id = job.get(), "the trace was changed while it was archived");
    }
    Ok(())
}

/// Returns whether a trace has bytes to archive: any after the end of its job, and many before. Locks the pipeline, so that
/// a transaction that ends the job concurrently enqueues another task.
pub(crate) fn needs_archiving(tx: &mut WriteTx<'_>, job: JobId) -> Result<bool> {
    let is_segmented = matches!(tx.shared().logs, LogStore::Segments);
    let Some(parents) = store::jobs::parents_of(tx.db(), job)?.filter(|_| is_segmented) else { return Ok(false) };
    store::pipelines::lock_row(tx.db(), parents.pipeline)?;
    let Some(run) = store::job_runs::find(tx.db(), job)? else { return Ok(false) };
    let range = trace_segments::inline_range(tx.db(), job)?;
    Ok(range.is_some_and(|range| run.status.is_done() || range.end - range.start >= ARCHIVE_BYTES))
}

/// Writes an object of this size, and then runs the transaction that makes a segment use it. If that returns `false` or
/// fails, the object is removed again.
pub(super) async fn store_object(
    forge: &Forge,
    files: &Files,
    size: u64,
    content: impl Stream<Item = io::Result<Bytes>> + Send,
    mut attach: impl FnMut(&mut WriteTx<'_>, &TraceObject) -> Result<bool> + Send + 'static,
) -> Result<bool> {
    let insert = |tx: &mut WriteTx<'_>| {
        let (storage, now) = (random_storage(tx.read()), tx.now());
        Ok(trace_segments::insert_object(tx.db(), &storage, now)?)
    };
    let object = forge.write(Caller::system(), insert).await?;
    let written = match tokio::time::timeout(WRITE_TIMEOUT, files.write(&object_key(&object), size, content)).await {
        Ok(Ok(written)) => Ok(written == size),
        // The trace was changed while it was read.
        Ok(Err(WriteError::TooLarge)) => Ok(false),
        Ok(Err(WriteError::Source(error))) => Err(Error::internal("cannot read a trace", error)),
        Ok(Err(WriteError::Failed(error))) => Err(forge.file_error(error)),
        Err(_) => Err(Error::Internal("writing a part of a trace took too long".into())),
    };
    let outcome = match written {
        Ok(true) => {
            let object = object.clone();
            // If a commit fails, its outcome may be unknown: the sweep removes the object if no segment uses it.
            forge.write(Caller::system(), move |tx| attach(tx, &object)).await?
        }
        Ok(false) => false,
        Err(error) => {
            if let Err(error) = remove_objects(forge, files, &[object]).await {
                warn!(%error, "cannot remove a part of a trace; retrying later");
            }
            return Err(error);
        }
    };
    if !outcome {
        remove_objects(forge, files, &[object]).await?;
    }
    Ok(outcome)
}

/// Removes all objects of the traces of a deleted project; its other segments are deleted with its jobs.
pub(super) async fn remove_all_of_project(forge: &Forge, project: ProjectId) -> Result<()> {
    let delete_some = move |tx: &mut WriteTx<'_>| {
        let jobs = trace_segments::jobs_with_objects(tx.db(), project, BATCH)?;
        for job in &jobs {
            trace_segments::delete_all(tx.db(), *job)?;
        }
        Ok(!jobs.is_empty())
    };
    while forge.write(Caller::system(), delete_some).await? {}
    sweep(forge).await
}

/// Removes unused objects.
pub(crate) async fn sweep(forge: &Forge) -> Result<()> {
    sweep_before(forge, forge.now() - ABANDONED_AFTER).await
}

/// Removes unused and unfinished objects at startup of a server that is the only one on its data.
pub async fn sweep_at_start(forge: &Forge) -> Result<()> {
    if forge.shared().database.is_single_node() { sweep_before(forge, Time::MAX).await } else { Ok(()) }
}

async fn sweep_before(forge: &Forge, time: Time) -> Result<()> {
    while let batch @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(trace_segments::unused_objects(tx.db(), time, BATCH)?)).await?
    {
        remove_objects(forge, &forge.shared().files, batch).await?;
        info!(removed = batch.len(), "removed unused parts of traces");
    }
    Ok(())
}

/// Removes unused objects, then their rows.
async fn remove_objects(forge: &Forge, files: &Files, objects: &[TraceObject]) -> Result<()> {
    files.remove(&objects.iter().map(object_key).collect::<Vec<_>>()).await?;
    for object in objects {
        if let Err(error) = files.remove_folder(&folder(&object.storage)).await {
            warn!(%error, "cannot remove the folder of a part of a trace");
        }
    }
    let ids: Vec<TraceObjectId> = objects.iter().map(|object| object.id).collect();
    forge.write(Caller::system(), move |tx| Ok(trace_segments::delete_objects(tx.db(), &ids)?)).await
}

/// Returns the folder of an object below the file storage. Each has its own, whose name is random.
pub fn folder(storage: &StorageId) -> String {
    format!("traces/{storage}")
}

fn object_key(object: &TraceObject) -> String {
    format!("{}/{}", folder(&object.storage), object.id)
}
