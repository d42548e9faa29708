//! What is in a repository: folders, files, archives, differences, contributors.
//!
//! What may take long happens on the threads for heavy work. What is large goes through a spool, so that no thread of ours
//! waits for a slow client, and so that the second download of an archive costs nothing. Archives and large files are written
//! on threads of their own, few at a time and each within a time limit (`downloads.rs`).

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use bytes::Bytes;
use files::spool::{Follower, Seat};
use git::Repository;
use model::{
    Oid, Page, Project, Slice, StorageId,
    objects::{ArchiveFormat, Comparison, Contributor, EntryKind, TreeEntry},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};
use tracing::{debug, warn};

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    branches::{count, default_branch},
    downloads::{Download, MAKING_TIMEOUT, SLOT_TIMEOUT, TimedWriter},
};

/// How large a file is at most that is answered from memory.
const IN_MEMORY: u64 = 1 << 20;

/// Which folder somebody wants to see.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    /// Its path; without it, the root.
    pub path: Option<String>,
    /// A branch, a tag or a commit; without it, the default branch.
    pub at: Option<String>,
    /// Whether the folders below it are wanted as well.
    pub recursive: bool,
}

/// What lies in a folder: folders, then files, then submodules.
pub async fn tree(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    folder: Unvalidated<Folder>,
    page: Unvalidated<Page>,
) -> Result<Slice<TreeEntry>> {
    if folder.get().is_ok_and(|folder| folder.recursive) {
        return forge
            .run_blocking(caller, move |tx| {
                let (project, repository) = tx.open_code(&project)?;
                entries(&project, repository.as_ref(), folder.get()?, *page.get()?)
            })
            .await;
    }
    forge
        .read(caller, move |tx| {
            let (project, repository) = tx.open_code(&project)?;
            entries(&project, repository.as_ref(), folder.get()?, *page.get()?)
        })
        .await
}

fn entries(
    project: &Project,
    repository: Option<&Repository>,
    folder: &Folder,
    page: Page,
) -> Result<Slice<TreeEntry>> {
    let missing = || Error::not_found("Tree");
    let repository = repository.ok_or_else(missing)?;
    let commit = commit_at(project, repository, folder.at.as_deref())?.ok_or_else(missing)?;
    Ok(repository.tree(commit, folder.path.as_deref().unwrap_or_default(), folder.recursive, page)?)
}

/// A file as it is.
pub struct RawFile {
    /// The name of its content, which no other content has.
    pub id: Oid,
    /// How many bytes there are.
    pub size: u64,
    /// The bytes.
    pub content: Content,
}

/// The bytes of a file.
pub enum Content {
    /// All of them.
    Here(Vec<u8>),
    /// To be fetched by [`read_large`].
    Large(LargeFile),
}

/// A file that does not fit into memory well.
pub struct LargeFile {
    storage: StorageId,
    id: Oid,
}

/// The file at a path in a commit.
pub fn file(tx: &mut ReadTx<'_>, project: &ProjectRef, at: &str, path: &Unvalidated<String>) -> Result<RawFile> {
    let (project, repository) = tx.open_code(project)?;
    let path = path.get()?;
    let no_commit = || Error::not_found("Commit");
    let repository = repository.ok_or_else(no_commit)?;
    let commit = repository.resolve(at)?.ok_or_else(no_commit)?;
    let entry = blob_at(&repository, commit, path)?.ok_or_else(|| Error::not_found("File"))?;
    raw(&project.storage, &repository, entry.id)?.ok_or_else(|| Error::not_found("File"))
}

/// The file with this content, by its id or the beginning of it. To find out whether a branch or a tag leads to it may take
/// long.
pub fn blob(tx: &mut BlockingContext<'_>, project: &ProjectRef, id: &str) -> Result<RawFile> {
    let (project, repository) = tx.open_code(project)?;
    let missing = || Error::not_found("Blob");
    let repository = repository.ok_or_else(missing)?;
    let id = repository.find_blob(id)?.ok_or_else(missing)?;
    raw(&project.storage, &repository, id)?.ok_or_else(missing)
}

/// The file at a path; a folder or a submodule is none.
pub(crate) fn blob_at(repository: &Repository, commit: Oid, path: &str) -> Result<Option<TreeEntry>> {
    let entry = repository.entry(commit, path.trim_start_matches('/'))?;
    Ok(entry.filter(|entry| entry.kind == EntryKind::Blob))
}

/// The file with this content; large ones are fetched later.
pub(crate) fn raw(storage: &StorageId, repository: &Repository, id: Oid) -> Result<Option<RawFile>> {
    let Some(size) = repository.blob_size(id)? else { return Ok(None) };
    let content = if size <= IN_MEMORY {
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        repository.write_blob(id, &mut bytes)?;
        Content::Here(bytes)
    } else {
        Content::Large(LargeFile { storage: storage.clone(), id })
    };
    Ok(Some(RawFile { id, size, content }))
}

/// The bytes of a large file.
pub async fn read_large(forge: &Forge, file: LargeFile) -> Result<Download> {
    let LargeFile { storage, id } = file;
    let key = format!("blob {storage} {id}");
    let check = move |repository: &Repository| repository.check_blob(id);
    let slots = &forge.shared().downloads.files;
    follow(forge, slots, storage, key, check, move |repository, out| repository.write_blob(id, out)).await
}

/// An archive that can be made.
#[derive(Clone, Debug)]
pub struct Archive {
    /// What the file and the folder in it are called.
    pub name: String,
    /// The form.
    pub format: ArchiveFormat,
    /// The commit.
    pub commit: Oid,
    storage: StorageId,
}

/// The archive of a branch, a tag or a commit; without any of them, of the default branch.
pub fn archive(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    wish: &Unvalidated<(Option<String>, ArchiveFormat)>,
) -> Result<Archive> {
    let (project, repository) = tx.open_code(project)?;
    let (at, format) = wish.get()?;
    let missing = || Error::not_found("File");
    let repository = repository.ok_or_else(missing)?;
    let commit = commit_at(&project, &repository, at.as_deref())?.ok_or_else(missing)?;
    let refs = repository.refs()?;
    let default = || default_branch(&project, &refs).map(|branch| branch.name.short().to_owned());
    let at = given(at.as_deref()).map(ToOwned::to_owned).or_else(default).unwrap_or_default();
    // A folder inside another would surprise, and a quotation mark would end the name in a header.
    let at: String = at.chars().map(|c| if c.is_control() || "/\\\"".contains(c) { '-' } else { c }).collect();
    let name = format!("{}-{at}-{commit}", project.path);
    Ok(Archive { name, format: *format, commit, storage: project.storage })
}

/// The bytes of an archive, made now or a while ago.
pub async fn read_archive(forge: &Forge, archive: Archive) -> Result<Download> {
    let Archive { name, format, commit, storage } = archive;
    let key = format!("archive {storage} {commit} {} {name}", format.extension());
    let check = move |repository: &Repository| repository.check_archive(commit);
    let write = move |repository: &Repository, out: &mut TimedWriter| repository.archive(commit, format, &name, out);
    follow(forge, &forge.shared().downloads.archives, storage, key, check, write).await
}

/// What one commit has that another lacks. `None` if one of the two does not exist.
pub fn compare(
    tx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    range: &Unvalidated<(String, String)>,
) -> Result<Option<Comparison>> {
    let (_, repository) = tx.open_code(project)?;
    let (from, to) = range.get()?;
    let Some(repository) = repository else { return Ok(None) };
    match (repository.resolve(from.trim())?, repository.resolve(to.trim())?) {
        (Some(from), Some(to)) => Ok(Some(repository.compare(from, to)?)),
        _ => Ok(None),
    }
}

/// Who wrote the newest commits of the default branch.
pub fn contributors(
    tx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    page: &Unvalidated<Page>,
) -> Result<Slice<Contributor>> {
    let (project, repository) = tx.open_code(project)?;
    let page = *page.get()?;
    let missing = || Error::Absent("404 Not Found".into());
    let repository = repository.ok_or_else(missing)?;
    let tip = commit_at(&project, &repository, None)?.ok_or_else(missing)?;
    let all = repository.contributors(tip)?;
    Ok(Slice { items: page.cut(&all).to_vec(), total: count(all.len()), page })
}

/// The commit that a text names, or that of the default branch.
pub(crate) fn commit_at(project: &Project, repository: &Repository, text: Option<&str>) -> Result<Option<Oid>> {
    if let Some(text) = given(text) {
        return Ok(repository.resolve(text)?);
    }
    let refs = repository.refs()?;
    Ok(default_branch(project, &refs).map(|branch| branch.target))
}

/// A text, unless it is empty.
fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

impl ReadTx<'_> {
    /// The gate to the code of a project; without a repository if nothing was ever pushed.
    pub(crate) fn open_code(&mut self, project: &ProjectRef) -> Result<(Project, Option<Repository>)> {
        let project = self.open(project, ProjectAbility::DownloadCode)?;
        let repository = self.repository(&project)?;
        Ok((project, repository))
    }
}

impl BlockingContext<'_> {
    /// The gate to the code of a project; the database is let go of before the work begins.
    pub(crate) fn open_code(&mut self, project: &ProjectRef) -> Result<(Project, Option<Repository>)> {
        self.read(|tx| tx.open_code(project))
    }
}

/// Puts an answer on the disk that would otherwise wait in memory until the client has taken all of it.
pub async fn set_aside(forge: &Forge, answer: Bytes) -> Result<Follower> {
    let failed = |error: io::Error| Error::Internal(format!("a spool: {error}"));
    let (mut producer, follower) = match forge.shared().spools.join(None).map_err(failed)? {
        Seat::First(producer, follower) => (producer, follower),
        Seat::Another(follower) => return Ok(follower),
    };
    let written = tokio::task::spawn_blocking(move || {
        producer.write_all(&answer)?;
        producer.finish()
    });
    written.await.map_err(io::Error::other).flatten().map_err(failed)?;
    Ok(follower)
}

/// How often somebody who waits for a download of somebody else tries again when that one has failed.
const ATTEMPTS: usize = 3;

/// The bytes of something large by its key. The first client that asks has it written, in a slot and if the check lets it
/// begin; everybody follows what is there. If nobody follows any more, the writing ends.
async fn follow(
    forge: &Forge,
    slots: &Arc<Semaphore>,
    storage: StorageId,
    key: String,
    check: impl Fn(&Repository) -> git::Result<()> + Clone + Send + 'static,
    write: impl FnOnce(&Repository, &mut TimedWriter) -> git::Result<()> + Send + 'static,
) -> Result<Download> {
    let repositories = forge.shared().repositories.clone();
    for _ in 0..ATTEMPTS {
        let seat = forge.shared().spools.join(Some(key.clone()));
        let (producer, follower) = match seat.map_err(|error| Error::Internal(format!("a spool: {error}")))? {
            Seat::Another(follower) => {
                if follower.begins().await {
                    return Ok(Download::new(follower));
                }
                // The client that came first was refused or is gone; this one is refused for the same reason, or tries again.
                let (repositories, storage, check) = (repositories.clone(), storage.clone(), check.clone());
                let checking = forge.run_blocking(Caller::system(), move |_| match repositories.find(&storage)? {
                    Some(repository) => Ok(check(&repository)?),
                    None => Ok(()),
                });
                checking.await?;
                continue;
            }
            Seat::First(producer, follower) => (producer, follower),
        };
        let (begun, beginning) = oneshot::channel();
        let slots = Arc::clone(slots);
        // On its own: others may follow it when the client that came first is gone.
        tokio::spawn(async move {
            let slot = tokio::select! {
                slot = slot_of(slots) => slot,
                () = producer.deserted() => return,
            };
            let slot = match slot {
                Ok(slot) => slot,
                Err(error) => {
                    drop(producer);
                    let _ = begun.send(Err(error));
                    return;
                }
            };
            let named = storage.clone();
            let written = tokio::task::spawn_blocking(move || {
                let found = repositories.find(&storage);
                // The check may take a while, and perhaps nobody waits for it any more.
                let is_deserted = producer.watch_followers();
                let checked = found.and_then(|found| match found {
                    Some(repository) => {
                        git::with_cancellation(is_deserted, || check(&repository)).map(|()| Some(repository))
                    }
                    None => Ok(None),
                });
                let repository = match checked {
                    Ok(Some(repository)) => repository,
                    refused => {
                        // First nobody else can join what will not come.
                        drop(producer);
                        let _ = begun.send(refused.map_err(Error::from).and(Err(Error::Busy)));
                        return Ok(());
                    }
                };
                let _ = begun.send(Ok(()));
                let mut out = TimedWriter::new(producer, MAKING_TIMEOUT);
                write(&repository, &mut out).and_then(|()| Ok(out.into_inner().finish()?))
            });
            match written.await {
                Ok(Ok(())) => {}
                Ok(Err(git::Error::Io(error))) if error.kind() == io::ErrorKind::BrokenPipe => {
                    debug!(storage = %named, "nobody waits for a download any more");
                }
                Ok(Err(error)) => warn!(storage = %named, %error, "a download could not be made"),
                Err(error) => warn!(storage = %named, %error, "a download could not be made"),
            }
            drop(slot);
        });
        // Nothing was sent yet, so the client can be told if it is refused.
        beginning.await.map_err(|_| Error::Busy)??;
        return Ok(Download::new(follower));
    }
    Err(Error::Busy)
}

/// A slot in which an archive may be made; free again when it is dropped.
pub struct ArchiveSlot(#[expect(dead_code, reason = "held, not looked at")] OwnedSemaphorePermit);

/// Waits for one of the slots for archives that are downloaded.
pub async fn download_slot(forge: &Forge) -> Result<ArchiveSlot> {
    slot_of(Arc::clone(&forge.shared().downloads.archives)).await.map(ArchiveSlot)
}

/// Waits for one of the slots for archives that git makes and sends over SSH. They are apart from the others, because a slow
/// client holds one until it has read everything.
pub async fn remote_archive_slot(forge: &Forge) -> Result<ArchiveSlot> {
    slot_of(Arc::clone(&forge.shared().downloads.remote_archives)).await.map(ArchiveSlot)
}

async fn slot_of(slots: Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    match timeout(SLOT_TIMEOUT, slots.acquire_owned()).await {
        Ok(Ok(slot)) => Ok(slot),
        _ => Err(Error::Busy),
    }
}
