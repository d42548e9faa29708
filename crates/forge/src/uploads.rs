//! Files that are sent to a project, to be linked from texts.
//!
//! The row comes before the file and goes after it, so that no file is ever without a row: whatever was not ended or
//! undone is found by its row and swept away later.

use std::{ops::Range, result::Result as StdResult};

use bytes::Bytes;
use files::{Content, WriteError};
use futures_util::Stream;
use jiff::SignedDuration;
use model::{Time, Upload, tokens::Secret, uploads::clean_name};
use tracing::{info, warn};

use crate::{Caller, Error, Forge, Given, ProjectAbility, ProjectRef, Reader, Result, Writer};

/// How old an upload must be to count as given up; whoever sends one has less time than that.
const GIVEN_UP_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// How often those that were given up are removed.
pub(crate) const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How many are removed at once.
const BATCH: i64 = 200;

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
    name: Given<String>,
    content: impl Stream<Item = StdResult<Bytes, E>> + Send + 'static,
    most: u64,
) -> StdResult<Upload, Refusal<E>> {
    let forge = forge.clone();
    // On its own: whoever waits for it may go away, and what was begun has to be ended or undone.
    let task = tokio::spawn(async move {
        forge.require_room()?;
        let begun = forge.write(caller.clone(), move |it| begin(it, &project, &name)).await?;
        let ended = match forge.shared().files.write(&key(&begun), most, content).await {
            Ok(size) => {
                let Upload { id, project_id, .. } = begun;
                forge.write(caller, move |it| complete(it, project_id, id, size)).await.map_err(Refusal::Forge)
            }
            Err(WriteError::TooLarge) => Err(Refusal::TooLarge),
            Err(WriteError::Source(error)) => Err(Refusal::Source(error)),
            Err(WriteError::Failed(error)) => Err(forge.noted(error).into()),
        };
        if ended.is_err()
            && let Err(error) = remove(&forge, &[begun]).await
        {
            warn!(%error, "an upload could not be undone, it will be swept away later");
        }
        ended
    });
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("an upload: {error}")).into()))
}

fn begin(it: &mut Writer<'_>, project: &ProjectRef, name: &Given<String>) -> Result<Upload> {
    let project = it.open(project, ProjectAbility::UploadFile)?;
    let user = it.actor().user().ok_or(Error::Unauthenticated)?.id;
    let name = clean_name(name.get()?);
    let (secret, now) = (fresh_secret(it), it.now());
    Ok(store::uploads::insert(it.db(), project.id, user, &secret, &name, now)?)
}

/// The project is opened once more: it may have been closed or removed while the file came in.
fn complete(it: &mut Writer<'_>, project: i64, id: i64, size: u64) -> Result<Upload> {
    it.open(&ProjectRef::Id(project), ProjectAbility::UploadFile)?;
    store::uploads::complete(it.db(), id, size)?.ok_or_else(|| Error::not_found("Upload"))
}

fn fresh_secret(it: &Reader<'_>) -> Secret {
    let mut bytes = [0; 16];
    it.shared().secrets.fill(&mut bytes);
    Secret::new(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// The file behind a URL, for whoever may see its project.
pub fn open(it: &mut Reader<'_>, project: &ProjectRef, secret: &str, name: &str) -> Result<Upload> {
    let project = it.open(project, ProjectAbility::DownloadUpload)?;
    let upload = store::uploads::by_secret(it.db(), project.id, secret)?;
    upload.filter(|upload| upload.name == name).ok_or_else(|| Error::not_found("Upload"))
}

/// The bytes of a file, or a range of them.
pub async fn read(forge: &Forge, upload: &Upload, range: Option<Range<u64>>) -> Result<Content> {
    let content = forge.shared().files.read(&key(upload), range).await?;
    // Removed a moment ago.
    let content = content.ok_or_else(|| Error::not_found("Upload"))?;
    if Some(content.size) != upload.size {
        return Err(Error::Internal(format!("the file of upload {} has {} bytes", upload.id, content.size)));
    }
    Ok(content)
}

/// Removes all files of a project that is being removed; `false` while somebody still sends one.
pub async fn remove_all_of_project(forge: &Forge, project: i64) -> Result<bool> {
    let moment = forge.now() - GIVEN_UP_AFTER;
    loop {
        let some = forge
            .read(Caller::system(), move |it| Ok(store::uploads::of_project(it.db(), project, moment, BATCH)?))
            .await?;
        if some.is_empty() {
            break;
        }
        remove(forge, &some).await?;
    }
    if forge.read(Caller::system(), move |it| Ok(store::uploads::exist_in(it.db(), project)?)).await? {
        return Ok(false);
    }
    if let Err(error) = forge.shared().files.remove_folder(&folder(project)).await {
        warn!(project.id = project, %error, "the folder of a removed project stays");
    }
    Ok(true)
}

/// Removes what is left of uploads that were never ended, at the start of a server that has its data to itself: nobody
/// can still be sending them.
pub async fn sweep_at_start(forge: &Forge) -> Result<()> {
    if forge.shared().database.is_embedded() { sweep_begun_before(forge, Time::MAX).await } else { Ok(()) }
}

/// Removes what is left of uploads that were given up.
pub(crate) async fn sweep(forge: &Forge) -> Result<()> {
    sweep_begun_before(forge, forge.now() - GIVEN_UP_AFTER).await
}

async fn sweep_begun_before(forge: &Forge, moment: Time) -> Result<()> {
    loop {
        let some =
            forge.read(Caller::system(), move |it| Ok(store::uploads::begun_before(it.db(), moment, BATCH)?)).await?;
        if some.is_empty() {
            return Ok(());
        }
        remove(forge, &some).await?;
        info!(removed = some.len(), "removed what was left of uploads that were given up");
    }
}

/// Removes uploads, whole or not: first the files, then the rows.
async fn remove(forge: &Forge, uploads: &[Upload]) -> Result<()> {
    let keys: Vec<String> = uploads.iter().map(key).collect();
    forge.shared().files.remove(&keys).await?;
    let ids: Vec<i64> = uploads.iter().map(|upload| upload.id).collect();
    forge.write(Caller::system(), move |it| Ok(store::uploads::delete(it.db(), &ids)?)).await
}

/// Where the bytes are: numbers only, so that no name that somebody chose ever reaches a file system.
fn key(upload: &Upload) -> String {
    format!("{}/{}", folder(upload.project_id), upload.id)
}

/// Where the files of a project lie, among all that are kept.
pub fn folder(project: i64) -> String {
    format!("uploads/{project}")
}
