//! Contents of a repository: trees, files, archives, comparisons, contributors.
//!
//! Long operations run on blocking threads. Large responses go through a spool, so that no thread waits for a slow client and
//! the next download of the same archive is served from disk. Archives and large files are written on separate threads, few at a
//! time and each within a time limit (`downloads.rs`).

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use bytes::Bytes;
use files::spool::{Follower, Joined};
use git::Repository;
use model::{
    Oid, Page, Project, ProjectId, Slice,
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
    downloads::{Download, GENERATION_TIMEOUT, SLOT_TIMEOUT, TimedWriter},
};

/// The maximum size of a file that is served from memory, in bytes.
const MAX_INLINE_BYTES: u64 = 1 << 20;

/// Parameters for listing a tree.
#[derive(Clone, Debug, Default)]
pub struct TreeQuery {
    /// The path of the folder; the root by default.
    pub path: Option<String>,
    /// A branch, tag or commit; the default branch by default.
    pub revision: Option<String>,
    /// Whether to include subfolders.
    pub recursive: bool,
}

/// Lists a folder: subfolders, then files, then submodules.
pub async fn tree(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    query: Unvalidated<TreeQuery>,
    page: Unvalidated<Page>,
) -> Result<Slice<TreeEntry>> {
    if query.validate().is_ok_and(|query| query.recursive) {
        return forge
            .run_blocking(caller, move |cx| {
                let (project, repository) = cx.open_code(&project)?;
                entries(&project, repository.as_ref(), query.validate()?, *page.validate()?)
            })
            .await;
    }
    forge
        .read(caller, move |tx| {
            let (project, repository) = tx.open_code(&project)?;
            entries(&project, repository.as_ref(), query.validate()?, *page.validate()?)
        })
        .await
}

fn entries(
    project: &Project,
    repository: Option<&Repository>,
    query: &TreeQuery,
    page: Page,
) -> Result<Slice<TreeEntry>> {
    let missing = || Error::not_found("Tree");
    let repository = repository.ok_or_else(missing)?;
    let commit = resolve_commit(project, repository, query.revision.as_deref())?.ok_or_else(missing)?;
    Ok(repository.tree(commit, query.path.as_deref().unwrap_or_default(), query.recursive, page)?)
}

/// A file with its raw content.
pub struct RawFile {
    /// The id of the blob.
    pub id: Oid,
    /// The size, in bytes.
    pub size: u64,
    /// The content.
    pub content: BlobContent,
}

/// The content of a blob.
pub enum BlobContent {
    /// The complete content.
    Inline(Vec<u8>),
    /// To be read with [`read_large_blob`].
    Large(LargeBlob),
}

/// A blob that is too large for memory.
pub struct LargeBlob {
    project: ProjectId,
    id: Oid,
}

/// Returns the file at a path in a commit.
pub fn file(tx: &mut ReadTx<'_>, project: &ProjectRef, revision: &str, path: &Unvalidated<String>) -> Result<RawFile> {
    let (project, repository) = tx.open_code(project)?;
    let path = path.validate()?;
    let no_commit = || Error::not_found("Commit");
    let repository = repository.ok_or_else(no_commit)?;
    let commit = repository.resolve(revision)?.ok_or_else(no_commit)?;
    let entry = blob_at(&repository, commit, path)?.ok_or_else(|| Error::not_found("File"))?;
    open_blob(project.id, &repository, entry.id)?.ok_or_else(|| Error::not_found("File"))
}

/// Returns a reachable blob by its id or an abbreviation of it. The reachability check may take long.
pub fn blob(cx: &mut BlockingContext<'_>, project: &ProjectRef, id: &str) -> Result<RawFile> {
    let (project, repository) = cx.open_code(project)?;
    let missing = || Error::not_found("Blob");
    let repository = repository.ok_or_else(missing)?;
    let id = repository.find_blob(id)?.ok_or_else(missing)?;
    open_blob(project.id, &repository, id)?.ok_or_else(missing)
}

/// Returns the file at a path; `None` for a folder or submodule.
pub(crate) fn blob_at(repository: &Repository, commit: Oid, path: &str) -> Result<Option<TreeEntry>> {
    let entry = repository.entry(commit, path.trim_start_matches('/'))?;
    Ok(entry.filter(|entry| entry.kind == EntryKind::Blob))
}

/// Returns a blob; the content of a large one is read later.
pub(crate) fn open_blob(project: ProjectId, repository: &Repository, id: Oid) -> Result<Option<RawFile>> {
    let Some(size) = repository.blob_size(id)? else { return Ok(None) };
    let content = if size <= MAX_INLINE_BYTES {
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        repository.write_blob(id, &mut bytes)?;
        BlobContent::Inline(bytes)
    } else {
        BlobContent::Large(LargeBlob { project, id })
    };
    Ok(Some(RawFile { id, size, content }))
}

/// Reads a large blob.
pub async fn read_large_blob(forge: &Forge, file: LargeBlob) -> Result<Download> {
    let LargeBlob { project, id } = file;
    let key = format!("blob {project} {id}");
    let check = move |repository: &Repository| repository.check_blob(id);
    let slots = &forge.shared().downloads.files;
    download(forge, slots, project, key, check, move |repository, out| repository.write_blob(id, out)).await
}

/// An archive to generate.
#[derive(Clone, Debug)]
pub struct Archive {
    /// The name of the file and of its top folder.
    pub name: String,
    /// The format.
    pub format: ArchiveFormat,
    /// The commit.
    pub commit: Oid,
    project: ProjectId,
}

/// Returns the archive of a branch, tag or commit; by default, of the default branch.
pub fn archive(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    options: &Unvalidated<(Option<String>, ArchiveFormat)>,
) -> Result<Archive> {
    let (project, repository) = tx.open_code(project)?;
    let (revision, format) = options.validate()?;
    let missing = || Error::not_found("File");
    let repository = repository.ok_or_else(missing)?;
    let commit = resolve_commit(&project, &repository, revision.as_deref())?.ok_or_else(missing)?;
    let refs = repository.refs();
    let default = || default_branch(&project, refs).map(|branch| branch.name.short().to_owned());
    let revision = non_empty(revision.as_deref()).map(ToOwned::to_owned).or_else(default).unwrap_or_default();
    // A slash would nest folders, and a quotation mark would end the name in a header.
    let revision: String =
        revision.chars().map(|c| if c.is_control() || "/\\\"".contains(c) { '-' } else { c }).collect();
    let name = format!("{}-{revision}-{commit}", project.path);
    Ok(Archive { name, format: *format, commit, project: project.id })
}

/// Reads an archive, generating it unless it is cached.
pub async fn read_archive(forge: &Forge, archive: Archive) -> Result<Download> {
    let Archive { name, format, commit, project } = archive;
    let key = format!("archive {project} {commit} {} {name}", format.extension());
    let check = move |repository: &Repository| repository.check_archive(commit);
    let write = move |repository: &Repository, out: &mut TimedWriter| repository.archive(commit, format, &name, out);
    download(forge, &forge.shared().downloads.archives, project, key, check, write).await
}

/// Compares two commits; `None` if one of them does not exist.
pub fn compare(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    range: &Unvalidated<(String, String)>,
) -> Result<Option<Comparison>> {
    let (_, repository) = cx.open_code(project)?;
    let (from, to) = range.validate()?;
    let Some(repository) = repository else { return Ok(None) };
    match (repository.resolve(from.trim())?, repository.resolve(to.trim())?) {
        (Some(from), Some(to)) => Ok(Some(repository.compare(from, to)?)),
        _ => Ok(None),
    }
}

/// Lists the authors of the newest commits of the default branch.
pub fn contributors(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    page: &Unvalidated<Page>,
) -> Result<Slice<Contributor>> {
    let (project, repository) = cx.open_code(project)?;
    let page = *page.validate()?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let tip = resolve_commit(&project, &repository, None)?.ok_or_else(missing)?;
    let all = repository.contributors(tip)?;
    Ok(Slice { items: page.slice(&all).to_vec(), total: count(all.len()).into(), page })
}

/// Resolves a revision to a commit; without one, the default branch.
pub(crate) fn resolve_commit(project: &Project, repository: &Repository, text: Option<&str>) -> Result<Option<Oid>> {
    if let Some(text) = non_empty(text) {
        return Ok(repository.resolve(text)?);
    }
    let refs = repository.refs();
    Ok(default_branch(project, refs).map(|branch| branch.target))
}

/// Returns the text unless it is empty.
fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

impl ReadTx<'_> {
    /// Opens a project for reading its code; the repository is `None` if nothing was ever pushed.
    pub(crate) fn open_code(&mut self, project: &ProjectRef) -> Result<(Project, Option<Repository>)> {
        let project = self.project(project, ProjectAbility::DownloadCode)?;
        let repository = self.repository(&project)?;
        Ok((project, repository))
    }
}

impl BlockingContext<'_> {
    /// Opens a project for reading its code; the transaction ends before the work begins.
    pub(crate) fn open_code(&mut self, project: &ProjectRef) -> Result<(Project, Option<Repository>)> {
        self.read(|tx| tx.open_code(project))
    }
}

/// Writes a response to a spool, so that it does not stay in memory until the client has read it.
pub async fn spool_response(forge: &Forge, answer: Bytes) -> Result<Follower> {
    let (mut producer, follower) = match forge.shared().spools.join(None).map_err(spool_error)? {
        Joined::New(producer, follower) => (producer, follower),
        Joined::Existing(follower) => return Ok(follower),
    };
    let written = tokio::task::spawn_blocking(move || {
        producer.write_all(&answer)?;
        producer.finish()
    });
    written.await.map_err(io::Error::other).flatten().map_err(spool_error)?;
    Ok(follower)
}

fn spool_error(error: io::Error) -> Error {
    Error::internal("cannot write a spool", error)
}

/// The maximum number of attempts to join or start a download.
const MAX_ATTEMPTS: usize = 3;

/// Streams a large object by its cache key. The first client starts the generation, in a slot and if the check allows it; others
/// follow the same spool. The generation is cancelled when no client follows it.
async fn download(
    forge: &Forge,
    slots: &Arc<Semaphore>,
    project: ProjectId,
    key: String,
    check: impl Fn(&Repository) -> git::Result<()> + Clone + Send + 'static,
    write: impl FnOnce(&Repository, &mut TimedWriter) -> git::Result<()> + Send + 'static,
) -> Result<Download> {
    for _ in 0..MAX_ATTEMPTS {
        let joined = forge.shared().spools.join(Some(key.clone())).map_err(spool_error)?;
        let (producer, follower) = match joined {
            Joined::Existing(follower) => {
                if follower.wait_for_start().await {
                    return Ok(Download::new(follower));
                }
                // The first client was refused or disconnected; this one is refused for the same reason, or retries.
                let check = check.clone();
                let checking =
                    forge.run_blocking(Caller::system(), move |cx| match cx.read(|tx| tx.repository_of(project))? {
                        Some(repository) => Ok(check(&repository)?),
                        None => Ok(()),
                    });
                checking.await?;
                continue;
            }
            Joined::New(producer, follower) => (producer, follower),
        };
        let (started, start_result) = oneshot::channel();
        let slots = Arc::clone(slots);
        let forge = forge.clone();
        // In its own task: other clients may follow after the first has disconnected.
        tokio::spawn(async move {
            let slot = tokio::select! {
                slot = acquire_slot(slots) => slot,
                () = producer.abandoned() => return,
            };
            let slot = match slot {
                Ok(slot) => slot,
                Err(error) => {
                    drop(producer);
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let found = forge.read(Caller::system(), move |tx| tx.repository_of(project)).await;
            let written = tokio::task::spawn_blocking(move || {
                // The check may take long; cancelled when all clients have disconnected.
                let is_abandoned = producer.abandonment_check();
                let checked = found.and_then(|found| match found {
                    Some(repository) => {
                        git::with_cancellation(is_abandoned, || check(&repository))?;
                        Ok(Some(repository))
                    }
                    None => Ok(None),
                });
                let repository = match checked {
                    Ok(Some(repository)) => repository,
                    refused => {
                        // Dropped first, so that no client joins a download that will not come.
                        drop(producer);
                        let _ = started.send(refused.and(Err(Error::Busy)));
                        return Ok(());
                    }
                };
                let _ = started.send(Ok(()));
                let mut out = TimedWriter::new(producer, GENERATION_TIMEOUT);
                write(&repository, &mut out).and_then(|()| Ok(out.into_inner().finish()?))
            });
            match written.await {
                Ok(Ok(())) => {}
                Ok(Err(git::Error::Io(error))) if error.kind() == io::ErrorKind::BrokenPipe => {
                    debug!(project.id = project.get(), "download abandoned");
                }
                Ok(Err(error)) => warn!(project.id = project.get(), %error, "cannot generate a download"),
                Err(error) => warn!(project.id = project.get(), %error, "cannot generate a download"),
            }
            drop(slot);
        });
        // Nothing was sent yet, so a refusal can still be reported.
        start_result.await.map_err(|_| Error::Busy)??;
        return Ok(Download::new(follower));
    }
    Err(Error::Busy)
}

/// A slot for generating an archive; released when dropped.
pub struct ArchiveSlot(#[expect(dead_code, reason = "held until dropped")] OwnedSemaphorePermit);

/// Waits for a slot for a downloaded archive.
pub async fn download_slot(forge: &Forge) -> Result<ArchiveSlot> {
    acquire_slot(Arc::clone(&forge.shared().downloads.archives)).await.map(ArchiveSlot)
}

/// Waits for a slot for `git archive --remote`. These slots are separate, because a slow client holds one until it has read
/// everything.
pub async fn remote_archive_slot(forge: &Forge) -> Result<ArchiveSlot> {
    acquire_slot(Arc::clone(&forge.shared().downloads.remote_archives)).await.map(ArchiveSlot)
}

async fn acquire_slot(slots: Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    match timeout(SLOT_TIMEOUT, slots.acquire_owned()).await {
        Ok(Ok(slot)) => Ok(slot),
        _ => Err(Error::Busy),
    }
}
