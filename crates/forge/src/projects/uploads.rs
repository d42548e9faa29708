//! Files that are sent to a project, to be linked from texts.

use std::{ops::Range, result::Result as StdResult};

use bytes::Bytes;
use files::{Content, WriteError};
use futures_util::Stream;
use model::{StorageId, Time, Upload, tokens::Secret, uploads::clean_name};
use store::Conn;
use tracing::warn;

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    stored_files::{self, KeptFile},
};

/// Why a file was not taken.
#[derive(Debug)]
pub enum Refusal<E> {
    /// It has more bytes than allowed.
    TooLarge,
    /// Where it came from, it ended early.
    Source(E),
    /// Anything else.
    Forge(Error),
}

impl<E> From<Error> for Refusal<E> {
    fn from(error: Error) -> Self {
        Self::Forge(error)
    }
}

/// Takes a file of at most so many bytes in, under a clean name.
pub async fn receive<E: Send + 'static>(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    name: Unvalidated<String>,
    content: impl Stream<Item = StdResult<Bytes, E>> + Send + 'static,
    most: u64,
) -> StdResult<Upload, Refusal<E>> {
    let forge = forge.clone();
    // On its own: whoever waits for it may go away, and what was begun has to be ended or undone.
    let task = tokio::spawn(async move {
        forge.require_room()?;
        let begun = forge.write(caller.clone(), move |tx| begin(tx, &project, &name)).await?;
        let storage = forge.storage_of(begun.project_id).await?;
        let ended = match forge.shared().files.write(&begun.key(&storage), most, content).await {
            Ok(size) => {
                let Upload { id, project_id, .. } = begun;
                forge.write(caller, move |tx| complete(tx, project_id, id, size)).await.map_err(Refusal::Forge)
            }
            Err(WriteError::TooLarge) => Err(Refusal::TooLarge),
            Err(WriteError::Source(error)) => Err(Refusal::Source(error)),
            Err(WriteError::Failed(error)) => Err(forge.noted(error).into()),
        };
        let project_id = begun.project_id;
        if ended.is_err()
            && let Err(error) = stored_files::remove(&forge, &[begun]).await
        {
            warn!(project.id = project_id, %error, "an upload could not be undone, it will be swept away later");
        }
        ended
    });
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("an upload: {error}")).into()))
}

fn begin(tx: &mut WriteTx<'_>, project: &ProjectRef, name: &Unvalidated<String>) -> Result<Upload> {
    let project = tx.open(project, ProjectAbility::UploadFile)?;
    let user = tx.actor().user().ok_or(Error::Unauthenticated)?.id;
    let name = clean_name(name.get()?);
    let (secret, now) = (fresh_secret(tx), tx.now());
    Ok(store::uploads::insert(tx.db(), project.id, user, &secret, &name, now)?)
}

/// The project is opened once more: it may have been closed or removed while the file came in.
fn complete(tx: &mut WriteTx<'_>, project: i64, id: i64, size: u64) -> Result<Upload> {
    tx.open(&ProjectRef::Id(project), ProjectAbility::UploadFile)?;
    store::uploads::complete(tx.db(), id, size)?.ok_or_else(|| Error::not_found("Upload"))
}

fn fresh_secret(tx: &ReadTx<'_>) -> Secret {
    let mut bytes = [0; 16];
    tx.shared().secrets.fill(&mut bytes);
    Secret::new(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// The file behind a URL, for whoever may see its project.
pub fn open(tx: &mut ReadTx<'_>, project: &ProjectRef, secret: &str, name: &str) -> Result<Upload> {
    let project = tx.open(project, ProjectAbility::DownloadUpload)?;
    let upload = store::uploads::by_secret(tx.db(), project.id, secret)?;
    upload.filter(|upload| upload.name == name).ok_or_else(|| Error::not_found("Upload"))
}

/// The bytes of a file, or a range of them.
pub async fn read(forge: &Forge, upload: &Upload, range: Option<Range<u64>>) -> Result<Content> {
    let storage = forge.storage_of(upload.project_id).await?;
    let content = forge.shared().files.read(&upload.key(&storage), range).await?;
    // Removed a moment ago.
    let content = content.ok_or_else(|| Error::not_found("Upload"))?;
    if Some(content.size) != upload.size {
        return Err(Error::Internal(format!("the file of upload {} has {} bytes", upload.id, content.size)));
    }
    Ok(content)
}

/// Removes what is left of uploads that were never ended, at the start of a server that has its data to itself: nobody
/// can still be sending them.
pub async fn sweep_at_start(forge: &Forge) -> Result<()> {
    stored_files::sweep_at_start::<Upload>(forge).await
}

/// Where the files of a project lie, among all that are kept.
pub fn folder(storage: &StorageId) -> String {
    format!("uploads/{storage}")
}

impl KeptFile for Upload {
    const NAME: &'static str = "uploads";

    fn id(&self) -> i64 {
        self.id
    }

    fn project(&self) -> i64 {
        self.project_id
    }

    fn folder(storage: &StorageId) -> String {
        folder(storage)
    }

    fn begun_before(db: &mut Conn, moment: Time, most: i64) -> store::Result<Vec<Self>> {
        store::uploads::begun_before(db, moment, most)
    }

    fn of_project(db: &mut Conn, project: i64, moment: Time, most: i64) -> store::Result<Vec<Self>> {
        store::uploads::of_project(db, project, moment, most)
    }

    fn exist_in(db: &mut Conn, project: i64) -> store::Result<bool> {
        store::uploads::exist_in(db, project)
    }

    fn delete(db: &mut Conn, ids: &[i64]) -> store::Result<()> {
        store::uploads::delete(db, ids)
    }
}
