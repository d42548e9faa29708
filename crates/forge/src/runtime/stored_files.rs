//! Files with a row in the database: what uploads and artifacts have in common.
//!
//! The row is inserted before the file is written and deleted after the file, so that every file has a row: unfinished
//! writes and removals are found by their rows and swept later.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Display,
    result::Result as StdResult,
    time::Duration,
};

use bytes::Bytes;
use files::WriteError;
use futures_util::Stream;
use jiff::SignedDuration;
use model::{ProjectId, StorageId, Time};
use store::Conn;
use tracing::{info, warn};

use crate::{Caller, Error, Forge, ReadTx, Result, WriteTx, uploads::UploadError};

/// The age at which an unfinished file counts as abandoned.
pub(crate) const ABANDONED_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// How long an upload may take until its row is completed. Bodies of requests have a shorter limit. The difference to
/// [`ABANDONED_AFTER`] is enough for a commit, so the sweep never removes a file that is completed at the same time.
const MAX_UPLOAD_DURATION: Duration = Duration::from_secs(55 * 60);
/// How often abandoned and expired files are removed.
pub(crate) const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// The number of files that are removed at once.
pub(crate) const BATCH: i64 = 200;

/// A kind of files that have rows.
pub(crate) trait StoredFile: Send + Sync + Sized + 'static {
    /// The plural name of the kind, for the log.
    const NAME: &'static str;
    /// The id of a row.
    type Id: Copy + Display + Send + Sync + 'static;

    /// Returns the id of the row.
    fn id(&self) -> Self::Id;
    /// Returns the id of the project.
    fn project(&self) -> ProjectId;
    /// Returns the key of the file; names chosen by users never reach the file system.
    fn key(&self, storage: &StorageId) -> String {
        format!("{}/{}", Self::folder(storage), self.id())
    }
    /// Returns the folder of the files of a project.
    fn folder(storage: &StorageId) -> String;
    /// Returns up to `limit` unfinished files that were begun before `time`.
    fn unfinished_before(db: &mut Conn, time: Time, limit: i64) -> store::Result<Vec<Self>>;
    /// Returns up to `limit` files of a project, without unfinished ones that were begun after `time`.
    fn of_project(db: &mut Conn, project: ProjectId, time: Time, limit: i64) -> store::Result<Vec<Self>>;
    /// Returns whether a project has any such files.
    fn exist_in(db: &mut Conn, project: ProjectId) -> store::Result<bool>;
    /// Deletes rows.
    fn delete(db: &mut Conn, ids: &[Self::Id]) -> store::Result<()>;
}

/// Writes the file of a row that was inserted a moment ago.
pub(crate) async fn write<E>(
    forge: &Forge,
    key: &str,
    max_size: u64,
    content: impl Stream<Item = StdResult<Bytes, E>> + Send,
) -> StdResult<u64, UploadError<E>> {
    match tokio::time::timeout(MAX_UPLOAD_DURATION, forge.shared().files.write(key, max_size, content)).await {
        Ok(Ok(size)) => Ok(size),
        Ok(Err(WriteError::TooLarge)) => Err(UploadError::TooLarge),
        Ok(Err(WriteError::Source(error))) => Err(UploadError::Source(error)),
        Ok(Err(WriteError::Failed(error))) => Err(forge.file_error(error).into()),
        Err(_) => Err(took_too_long().into()),
    }
}

/// Fails if the sweep may be about to remove a file whose row was inserted at this time. Checked by the transaction that
/// completes the row.
pub(crate) fn check_not_abandoned(tx: &WriteTx<'_>, begun_at: Time) -> Result<()> {
    let deadline = begun_at + SignedDuration::try_from(MAX_UPLOAD_DURATION).unwrap_or(ABANDONED_AFTER);
    if tx.now() <= deadline { Ok(()) } else { Err(took_too_long()) }
}

fn took_too_long() -> Error {
    Error::Unavailable("storing a file took too long".into())
}

/// Returns whether the row of a file that could not be stored is certainly unfinished, and stays so. Otherwise, such as when
/// the outcome of the commit is unknown, the sweep finds out.
pub(crate) fn is_certainly_unfinished<E>(error: &UploadError<E>) -> bool {
    !matches!(error, UploadError::Forge(Error::Unavailable(_) | Error::Store(_) | Error::Internal(_)))
}

/// Removes all files of one kind of a project that is being removed; returns `false` while an upload is in progress.
pub(crate) async fn remove_all_of_project<F: StoredFile>(forge: &Forge, project: ProjectId) -> Result<bool> {
    let time = forge.now() - ABANDONED_AFTER;
    while let batch @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(F::of_project(tx.db(), project, time, BATCH)?)).await?
    {
        remove(forge, batch).await?;
    }
    if forge.read(Caller::system(), move |tx| Ok(F::exist_in(tx.db(), project)?)).await? {
        return Ok(false);
    }
    let storage = forge.storage_of(project).await?;
    if let Err(error) = forge.shared().files.remove_folder(&F::folder(&storage)).await {
        warn!(project.id = project.get(), %error, "cannot remove the folder of a removed project");
    }
    Ok(true)
}

/// Removes all unfinished files at startup of a single-node server, when no upload can be in progress.
pub(crate) async fn sweep_at_start<F: StoredFile>(forge: &Forge) -> Result<()> {
    if forge.shared().database.is_single_node() { sweep_unfinished_before::<F>(forge, Time::MAX).await } else { Ok(()) }
}

/// Removes abandoned files.
pub(crate) async fn sweep<F: StoredFile>(forge: &Forge) -> Result<()> {
    sweep_unfinished_before::<F>(forge, forge.now() - ABANDONED_AFTER).await
}

async fn sweep_unfinished_before<F: StoredFile>(forge: &Forge, time: Time) -> Result<()> {
    while let batch @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(F::unfinished_before(tx.db(), time, BATCH)?)).await?
    {
        remove(forge, batch).await?;
        info!(removed = batch.len(), "removed abandoned {}", F::NAME);
    }
    Ok(())
}

/// Removes files, finished or not: first the files, then their rows.
pub(crate) async fn remove<F: StoredFile>(forge: &Forge, batch: &[F]) -> Result<()> {
    let mut keys = Vec::with_capacity(batch.len());
    let mut storage_ids: HashMap<ProjectId, Option<StorageId>> = HashMap::new();
    for file in batch {
        let storage = match storage_ids.entry(file.project()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(forge.find_storage(file.project()).await?),
        };
        // The files of a removed project were removed with it.
        keys.extend(storage.as_ref().map(|storage| file.key(storage)));
    }
    forge.shared().files.remove(&keys).await?;
    let ids: Vec<F::Id> = batch.iter().map(F::id).collect();
    forge.write(Caller::system(), move |tx| Ok(F::delete(tx.db(), &ids)?)).await
}

/// Returns a new random storage id, for a file that is in a folder of its own.
pub(crate) fn random_storage(tx: &ReadTx<'_>) -> StorageId {
    let mut bytes = [0; 16];
    tx.shared().secrets.fill(&mut bytes);
    StorageId::parse(&format!("{:032x}", u128::from_be_bytes(bytes))).expect("hexadecimal digits")
}
