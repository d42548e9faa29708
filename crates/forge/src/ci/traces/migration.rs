//! Moves traces between a folder and segments, job by job. A move can be interrupted and repeated: a job whose trace has
//! arrived with its full size is not moved again. The source stays as it is.

use std::{collections::VecDeque, io};

use bytes::Bytes;
use files::{
    Files,
    logs::{LogKey, Logs},
};
use futures_util::TryStreamExt as _;
use model::JobId;
use store::{
    job_runs::{self, JobRun},
    trace_segments::{self, TraceObject},
};

use super::{log_key, log_store, segments};
use crate::{Caller, Error, Forge, ReadTx, Result, WriteTx, instance_secrets};

/// The number of jobs that are listed at a time.
const BATCH: i64 = 1000;
/// How often the move of a trace is repeated if the trace changes meanwhile.
const MAX_ATTEMPTS: u32 = 5;
/// How many bytes are written to a file at a time.
const WRITE_BYTES: usize = 1 << 20;

/// The result of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedTraces {
    /// The number of traces that were moved, or had been moved before.
    pub jobs: u64,
    /// The number of bytes that were copied.
    pub copied: u64,
    /// The jobs whose trace is missing or too short in the source.
    pub missing: Vec<JobId>,
}

/// What happened to one trace.
enum Moved {
    /// It has arrived; holds the number of bytes that were copied.
    Complete(u64),
    /// The source does not have all of it.
    Missing,
    /// The job does not exist any more.
    Gone,
}

/// Prepares [`import_from_folder`] to a bucket. Segments of an import to another bucket are deleted: this one does not have
/// their objects.
pub async fn begin_import(forge: &Forge, bucket: &str) -> Result<()> {
    let find = |tx: &mut ReadTx<'_>| instance_secrets::find(tx, instance_secrets::TRACE_IMPORT_TARGET);
    if forge.read(Caller::system(), find).await?.as_deref() == Some(bucket.as_bytes()) {
        return Ok(());
    }
    forget_segments(forge).await?;
    let bucket = bucket.to_owned();
    let record = move |tx: &mut WriteTx<'_>| {
        instance_secrets::replace(tx, instance_secrets::TRACE_IMPORT_TARGET, bucket.as_bytes())
    };
    forge.write(Caller::system(), record).await
}

/// Copies the traces in a folder to segments, with their bytes in objects of `files`. A server may use the folder meanwhile;
/// a later run copies what was added.
pub async fn import_from_folder(forge: &Forge, folder: &Logs, files: &Files) -> Result<MovedTraces> {
    let mut moved = MovedTraces::default();
    let mut jobs = JobIterator::default();
    while let Some(job) = jobs.next(forge).await? {
        moved.add(job, import(forge, folder, files, job).await?);
    }
    Ok(moved)
}

/// Copies the traces in segments, with objects in `files`, to a folder. The folder has no traces other than those of an
/// interrupted run. A server may write traces meanwhile; a later run copies what was added.
pub async fn export_to_folder(forge: &Forge, files: &Files, folder: &Logs) -> Result<MovedTraces> {
    let mut moved = MovedTraces::default();
    let mut jobs = JobIterator::default();
    while let Some(job) = jobs.next(forge).await? {
        moved.add(job, export(forge, files, folder, job).await?);
    }
    Ok(moved)
}

/// Deletes all segments after they were copied to a folder that the server uses from now on. Their objects stay in the file
/// store that had them.
pub async fn forget_segments(forge: &Forge) -> Result<()> {
    let mut jobs = JobIterator::default();
    while let Some(job) = jobs.next(forge).await? {
        let forget = move |tx: &mut WriteTx<'_>| {
            job_runs::set_withheld(tx.db(), job, None)?;
            Ok(trace_segments::delete_all(tx.db(), job)?)
        };
        forge.write(Caller::system(), forget).await?;
    }
    Ok(())
}

impl MovedTraces {
    fn add(&mut self, job: JobId, moved: Moved) {
        match moved {
            Moved::Complete(bytes) => {
                self.jobs += 1;
                self.copied += bytes;
            }
            Moved::Missing => self.missing.push(job),
            Moved::Gone => {}
        }
    }
}

/// Lists the jobs that have a trace, in the order of their ids.
#[derive(Default)]
struct JobIterator {
    batch: VecDeque<JobId>,
    last: Option<JobId>,
}

impl JobIterator {
    async fn next(&mut self, forge: &Forge) -> Result<Option<JobId>> {
        if self.batch.is_empty() {
            let after = self.last.unwrap_or(JobId::new(0));
            let list = move |tx: &mut ReadTx<'_>| Ok(trace_segments::jobs_with_traces(tx.db(), after, BATCH)?);
            self.batch = forge.read(Caller::system(), list).await?.into();
            self.last = self.batch.back().copied();
        }
        Ok(self.batch.pop_front())
    }
}

async fn import(forge: &Forge, folder: &Logs, files: &Files, job: JobId) -> Result<Moved> {
    let mut copied = 0;
    for _ in 0..MAX_ATTEMPTS {
        let find =
            move |tx: &mut ReadTx<'_>| Ok((job_runs::find(tx.db(), job)?, trace_segments::end_of(tx.db(), job)?));
        let (Some(run), stored) = forge.read(Caller::system(), find).await? else { return Ok(Moved::Gone) };
        let (key, visible) = (log_key(forge, &run).await?, run.visible());
        if visible > 0 && folder.size(&key).await?.is_none_or(|size| size < visible) {
            return Ok(Moved::Missing);
        }
        if stored > visible {
            // The trace was replaced since the last run.
            forge.write(Caller::system(), move |tx| Ok(trace_segments::delete_all(tx.db(), job)?)).await?;
            continue;
        }
        if stored < visible {
            let Some(content) = folder.read(&key, stored..visible).await? else { continue };
            let (before, range) = (run.clone(), stored..visible);
            let append = move |tx: &mut WriteTx<'_>, object: &TraceObject| {
                Ok(trace_segments::append_object(tx.db(), &before, &range, object)?)
            };
            if !segments::store_object(forge, files, visible - stored, content, append).await? {
                continue;
            }
            copied += visible - stored;
        }
        let withheld = read_sidecar(folder, &key, &run).await?;
        if forge.write(Caller::system(), move |tx| import_withheld(tx, &run, withheld.as_deref())).await? {
            return Ok(Moved::Complete(copied));
        }
    }
    Err(Error::Internal(format!("the trace of job {job} changes too often to be moved").into()))
}

/// Returns the withheld end of a trace in a folder; `None` if there is none, or if it is lost.
async fn read_sidecar(folder: &Logs, key: &LogKey, run: &JobRun) -> Result<Option<Vec<u8>>> {
    if run.trace_held == 0 {
        return Ok(None);
    }
    let found = folder.read_sidecar(key, run.trace_size).await?;
    Ok(found.filter(|found| found.len() as u64 == run.trace_held))
}

/// Stores the withheld end of a trace; returns `false` if the trace has changed meanwhile.
fn import_withheld(tx: &mut WriteTx<'_>, run: &JobRun, withheld: Option<&[u8]>) -> Result<bool> {
    let found = job_runs::find(tx.db(), run.job)?;
    let is_same = |found: &JobRun| {
        (&found.token, found.trace_size, found.trace_held) == (&run.token, run.trace_size, run.trace_held)
    };
    if !found.as_ref().is_some_and(is_same) {
        return Ok(false);
    }
    let shared = tx.shared();
    let encrypted = withheld.map(|bytes| shared.instance_key.encrypt(run.project, bytes, &*shared.secrets));
    job_runs::set_withheld(tx.db(), run.job, encrypted.as_deref())?;
    Ok(true)
}

async fn export(forge: &Forge, files: &Files, folder: &Logs, job: JobId) -> Result<Moved> {
    let find = move |tx: &mut ReadTx<'_>| {
        let Some(run) = job_runs::find(tx.db(), job)? else { return Ok(None) };
        let withheld = log_store::decrypt_withheld(tx, &run)?;
        Ok(Some((run, withheld)))
    };
    let Some((run, withheld)) = forge.read(Caller::system(), find).await? else { return Ok(Moved::Gone) };
    let key = log_key(forge, &run).await?;
    if run.trace_held == 0 && folder.size(&key).await? == Some(run.trace_size) {
        return Ok(Moved::Complete(0));
    }
    let mut writer = FileWriter { folder, key: &key, size: 0, buffer: Vec::new() };
    let mut content = segments::read(forge, files, job, 0..run.visible());
    loop {
        match content.try_next().await {
            Ok(Some(bytes)) => writer.write(&bytes).await?,
            Ok(None) => break,
            // An object is missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(Error::internal("cannot read a trace", error)),
        }
    }
    let copied = writer.size + writer.buffer.len() as u64;
    if copied < run.visible() {
        folder.remove(&[key]).await?;
        return Ok(Moved::Missing);
    }
    // The file has the withheld end masked, and beside it unmasked.
    writer.write(&vec![b'x'; usize::try_from(run.trace_held).unwrap_or_default()]).await?;
    writer.flush().await?;
    if let Some(withheld) = withheld.filter(|_| run.trace_held > 0) {
        folder.write_sidecar(&key, 0, run.trace_size, withheld).await?;
    }
    Ok(Moved::Complete(copied))
}

/// Writes a new file of a folder in large pieces, each of which is synced.
struct FileWriter<'a> {
    folder: &'a Logs,
    key: &'a LogKey,
    /// The number of bytes in the file.
    size: u64,
    buffer: Vec<u8>,
}

impl FileWriter<'_> {
    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let length = bytes.len() as u64;
        self.folder.append(self.key, self.size, bytes).await?;
        self.size += length;
        Ok(())
    }
}
