//! Files uploaded to a project for use in Markdown.

use std::{ops::Range, result::Result as StdResult};

use bytes::Bytes;
use files::Content;
use futures_util::Stream;
use model::{ProjectId, StorageId, Time, Upload, UploadId, tokens::Secret, uploads::clean_name};
use store::Conn;
use tracing::warn;

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    stored_files::{self, StoredFile},
};

/// Why an upload failed.
#[derive(Debug)]
pub enum UploadError<E> {
    /// The file is larger than allowed.
    TooLarge,
    /// Reading the content failed.
    Source(E),
    /// Anything else.
    Forge(Error),
}

impl<E> From<Error> for UploadError<E> {
    fn from(error: Error) -> Self {
        Self::Forge(error)
    }
}

/// Stores a file of at most `max_size` bytes under a sanitized name.
pub async fn receive<E: Send + 'static>(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    name: Unvalidated<String>,
    content: impl Stream<Item = StdResult<Bytes, E>> + Send + 'static,
    max_size: u64,
) -> StdResult<Upload, UploadError<E>> {
    let forge = forge.clone();
    // In its own task: if the client disconnects, the upload still has to be completed or rolled back.
    let task = tokio::spawn(async move {
        forge.require_free_space()?;
        let upload = forge.write(caller.clone(), move |tx| insert_pending(tx, &project, &name)).await?;
        let storage = forge.storage_of(upload.project_id).await?;
        let outcome = match stored_files::write(&forge, &upload.key(&storage), max_size, content).await {
            Ok(size) => {
                let pending = upload.clone();
                forge.write(caller, move |tx| complete(tx, &pending, size)).await.map_err(UploadError::Forge)
            }
            Err(error) => Err(error),
        };
        let project_id = upload.project_id;
        if outcome.as_ref().is_err_and(stored_files::is_certainly_unfinished)
            && let Err(error) = stored_files::remove(&forge, &[upload]).await
        {
            warn!(project.id = project_id.get(), %error, "cannot remove a failed upload; retrying later");
        }
        outcome
    });
    task.await.unwrap_or_else(|error| Err(Error::internal("upload task failed", error).into()))
}

fn insert_pending(tx: &mut WriteTx<'_>, project: &ProjectRef, name: &Unvalidated<String>) -> Result<Upload> {
    let project = tx.project(project, ProjectAbility::UploadFile)?;
    let user = tx.actor().user().ok_or(Error::Unauthenticated)?.id;
    let name = clean_name(name.validate()?);
    let (secret, now) = (random_secret(tx.read()), tx.now());
    Ok(store::uploads::insert(tx.db(), project.id, user, &secret, &name, now)?)
}

/// Checks the permission again: the project may have been archived or deleted during the upload.
fn complete(tx: &mut WriteTx<'_>, pending: &Upload, size: u64) -> Result<Upload> {
    tx.project(&ProjectRef::Id(pending.project_id), ProjectAbility::UploadFile)?;
    stored_files::check_not_abandoned(tx, pending.created_at)?;
    store::uploads::complete(tx.db(), pending.id, size)?.ok_or_else(|| Error::not_found("Upload"))
}

fn random_secret(tx: &ReadTx<'_>) -> Secret {
    let mut bytes = [0; 16];
    tx.shared().secrets.fill(&mut bytes);
    Secret::new(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// Returns the upload behind a URL, if the caller may see the project.
pub fn open(tx: &mut ReadTx<'_>, project: &ProjectRef, secret: &str, name: &str) -> Result<Upload> {
    let project = tx.project(project, ProjectAbility::DownloadUpload)?;
    let upload = store::uploads::by_secret(tx.db(), project.id, secret)?;
    upload.filter(|upload| upload.name == name).ok_or_else(|| Error::not_found("Upload"))
}

/// Reads the content of a file, or a range of it.
pub async fn read(forge: &Forge, upload: &Upload, range: Option<Range<u64>>) -> Result<Content> {
    let storage = forge.storage_of(upload.project_id).await?;
    let content = forge.shared().files.read(&upload.key(&storage), range).await?;
    // Deleted concurrently.
    let content = content.ok_or_else(|| Error::not_found("Upload"))?;
    if Some(content.size) != upload.size {
        let unexpected = format!("the file of upload {} has an unexpected size of {} bytes", upload.id, content.size);
        return Err(Error::Internal(unexpected.into()));
    }
    Ok(content)
}

/// Deletes unfinished uploads at startup of a server that is the only one on its data: no client can still be sending them.
pub async fn sweep_at_start(forge: &Forge) -> Result<()> {
    stored_files::sweep_at_start::<Upload>(forge).await
}

/// Returns the folder of the uploads of a project below the file storage.
pub fn folder(storage: &StorageId) -> String {
    format!("uploads/{storage}")
}

impl StoredFile for Upload {
    const NAME: &'static str = "uploads";
    type Id = UploadId;

    fn id(&self) -> UploadId {
        self.id
    }

    fn project(&self) -> ProjectId {
        self.project_id
    }

    fn folder(storage: &StorageId) -> String {
        folder(storage)
    }

    fn unfinished_before(db: &mut Conn, time: Time, limit: i64) -> store::Result<Vec<Self>> {
        store::uploads::unfinished_before(db, time, limit)
    }

    fn of_project(db: &mut Conn, project: ProjectId, time: Time, limit: i64) -> store::Result<Vec<Self>> {
        store::uploads::of_project(db, project, time, limit)
    }

    fn exist_in(db: &mut Conn, project: ProjectId) -> store::Result<bool> {
        store::uploads::exist_in(db, project)
    }

    fn delete(db: &mut Conn, ids: &[UploadId]) -> store::Result<()> {
        store::uploads::delete(db, ids)
    }
}
