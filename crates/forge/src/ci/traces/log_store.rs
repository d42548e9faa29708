//! Where the bytes of traces are stored: in files of a folder, or in segments that several nodes can write.

use std::{io, ops::Range};

use bytes::Bytes;
use files::logs::{LogKey, Logs};
use futures_util::{TryStreamExt as _, stream::BoxStream};
use model::{JobId, ProjectId};
use store::job_runs::JobRun;

use super::segments;
use crate::{Caller, Error, Forge, ReadTx, Result, WriteTx};

/// The store of traces.
#[derive(Clone)]
pub enum LogStore {
    /// A file per trace, in a folder that one server uses.
    Folder(Logs),
    /// Segments in the database and in objects of the file store, for any number of nodes.
    Segments,
}

/// Bytes at the end of a trace, which start after the visible ones.
#[derive(Clone)]
pub(super) struct NewBytes {
    /// Where they start.
    pub(super) offset: u64,
    /// The masked bytes.
    pub(super) text: Bytes,
    /// The unmasked end of them, which is withheld from readers.
    pub(super) withheld: Vec<u8>,
}

impl NewBytes {
    /// Returns the bytes that readers can see.
    pub(super) fn visible(&self) -> &[u8] {
        &self.text[..self.text.len().saturating_sub(self.withheld.len())]
    }
}

/// Writes what must be stored before the transaction that records the new size of a trace: the files of a folder.
pub(super) async fn prepare(forge: &Forge, log_key: &LogKey, run: &JobRun, new: &NewBytes) -> Result<()> {
    let LogStore::Folder(logs) = &forge.shared().logs else { return Ok(()) };
    if run.trace_size == 0 {
        // The job may have been assigned before, to a runner that wrote a trace.
        logs.remove(std::slice::from_ref(log_key)).await?;
    }
    if !new.withheld.is_empty() {
        let size = new.offset + new.text.len() as u64;
        logs.write_sidecar(log_key, run.trace_size, size, new.withheld.clone()).await?;
    }
    Ok(logs.append(log_key, new.offset, new.text.clone()).await?)
}

/// Stores new bytes in the segments of a trace, in the transaction that has recorded the new size.
pub(super) fn record(tx: &mut WriteTx<'_>, run: &JobRun, new: &NewBytes) -> Result<()> {
    let shared = tx.shared();
    if matches!(shared.logs, LogStore::Folder(_)) {
        return Ok(());
    }
    if run.trace_held > 0 || !new.withheld.is_empty() {
        let encrypt = || shared.instance_key.encrypt(run.project, &new.withheld, &*shared.secrets);
        let withheld = (!new.withheld.is_empty()).then(encrypt);
        store::job_runs::set_withheld(tx.db(), run.job, withheld.as_deref())?;
    }
    segments::insert(tx, run.job, new.offset, new.visible())
}

/// Returns the withheld end of a trace; `None` if it is lost.
pub(super) async fn read_withheld(forge: &Forge, log_key: &LogKey, run: &JobRun) -> Result<Option<Vec<u8>>> {
    match &forge.shared().logs {
        LogStore::Folder(logs) => Ok(logs.read_sidecar(log_key, run.trace_size).await?),
        LogStore::Segments => {
            let run = run.clone();
            forge.read_inline(Caller::system(), move |tx| decrypt_withheld(tx, &run)).await
        }
    }
}

/// Returns the withheld end of a trace in segments; `None` if it is lost.
pub(super) fn decrypt_withheld(tx: &mut ReadTx<'_>, run: &JobRun) -> Result<Option<Vec<u8>>> {
    let encrypted = store::job_runs::withheld_of(tx.db(), run)?;
    Ok(encrypted.and_then(|encrypted| tx.shared().instance_key.decrypt(run.project, &encrypted)))
}

/// Removes the file with the withheld end of a trace; in segments it is removed by the transaction.
pub(super) async fn remove_withheld(forge: &Forge, log_key: &LogKey) -> Result<()> {
    match &forge.shared().logs {
        LogStore::Folder(logs) => Ok(logs.remove_sidecar(log_key).await?),
        LogStore::Segments => Ok(()),
    }
}

/// Reads a range of the visible bytes of a trace in chunks; `None` if the trace does not exist.
pub(super) async fn read(
    forge: &Forge,
    log_key: &LogKey,
    range: Range<u64>,
) -> Result<Option<BoxStream<'static, io::Result<Bytes>>>> {
    match &forge.shared().logs {
        LogStore::Folder(logs) => Ok(logs.read(log_key, range).await?),
        LogStore::Segments => Ok(Some(segments::read(forge, &forge.shared().files, JobId::new(log_key.number), range))),
    }
}

/// Reads a small range of the visible bytes of a trace into memory; the result is shorter if the trace is.
pub(super) async fn read_range(forge: &Forge, log_key: &LogKey, range: Range<u64>) -> Result<Vec<u8>> {
    match &forge.shared().logs {
        LogStore::Folder(logs) => Ok(logs.read_range(log_key, range).await?),
        LogStore::Segments => {
            let parts = segments::read(forge, &forge.shared().files, JobId::new(log_key.number), range);
            let parts: Vec<Bytes> = parts.try_collect().await.map_err(|error| Error::internal("traces", error))?;
            Ok(parts.concat())
        }
    }
}

/// Removes the files of a trace; the segments of a trace are deleted by the transaction that erases it.
pub(super) async fn remove(forge: &Forge, log_key: &LogKey) -> Result<()> {
    match &forge.shared().logs {
        LogStore::Folder(logs) => Ok(logs.remove(std::slice::from_ref(log_key)).await?),
        LogStore::Segments => Ok(()),
    }
}

/// Removes the traces of a deleted project.
pub(super) async fn remove_all_of_project(forge: &Forge, project: ProjectId) -> Result<()> {
    match &forge.shared().logs {
        LogStore::Folder(logs) => Ok(logs.remove_folder(forge.storage_of(project).await?.as_str()).await?),
        LogStore::Segments => segments::remove_all_of_project(forge, project).await,
    }
}
