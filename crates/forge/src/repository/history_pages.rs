//! What pages show of the history of folders and files: the last commit of each entry, and that of each line.

use std::{collections::HashMap, sync::Arc};

use git::Repository;
use model::{
    Oid, Project, ProjectId,
    objects::{Activity, Blame, LastCommit, TreeEntry},
};
use tokio::sync::Semaphore;

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectRef, Result,
    browse::{File, Folder, InProject, Revision, locate},
    contents::{self, BlobContent},
};

/// The maximum size of a file whose lines are attributed, in bytes.
pub const MAX_BLAME_BYTES: u64 = 512 << 10;

/// The maximum number of files and folders that are searched by name.
const MAX_SEARCHED_FILES: usize = 100_000;
/// The maximum number of found files that are listed.
const MAX_FOUND_FILES: usize = 200;

/// Limits how many folders are completed at the same time; the others are completed when they are visited again.
static COMPLETIONS: Semaphore = Semaphore::const_new(1);

/// The last commits of the entries of a folder, as far as they are known.
#[derive(Debug, Default)]
pub struct FolderHistory {
    /// The commits by the name of the entry.
    pub by_name: HashMap<String, Arc<LastCommit>>,
    /// What remains to be found, for [`complete_later`].
    pub unfinished: Option<UnfinishedFolder>,
}

/// A folder with entries whose last commits take longer to find than a page may wait.
#[derive(Clone, Debug)]
pub struct UnfinishedFolder {
    project: ProjectId,
    commit: Oid,
    path: String,
    names: Vec<String>,
}

/// Returns the last commits of the entries on a page, as many as are found in a short time.
pub fn last_commits(cx: &mut BlockingContext<'_>, project: ProjectId, folder: &Folder) -> Result<FolderHistory> {
    let names = folder.entries.items.iter().map(|entry| entry.name.clone()).collect();
    find_last_commits(cx, project, folder.revision.commit, folder.path.clone(), names)
}

/// Returns the last commit of a file, as the only entry of its folder, if it is found in a short time.
pub fn last_commit(cx: &mut BlockingContext<'_>, project: ProjectId, file: &File) -> Result<FolderHistory> {
    let folder = file.entry.path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    find_last_commits(cx, project, file.revision.commit, folder, vec![file.entry.name.clone()])
}

fn find_last_commits(
    cx: &mut BlockingContext<'_>,
    project: ProjectId,
    commit: Oid,
    path: String,
    names: Vec<String>,
) -> Result<FolderHistory> {
    let (_, repository) = cx.open_code(&ProjectRef::Id(project))?;
    let Some(repository) = repository else { return Ok(FolderHistory::default()) };
    let found = repository.last_commits(commit, &path, &names)?;
    let unfinished = found.is_unfinished.then_some(UnfinishedFolder { project, commit, path, names });
    Ok(FolderHistory { by_name: found.by_name, unfinished })
}

/// Finds the remaining last commits of a folder in the background, so that the next visitor sees them.
pub fn complete_later(forge: &Forge, caller: Caller, folder: UnfinishedFolder) {
    let forge = forge.clone();
    tokio::spawn(async move {
        let Ok(_permit) = COMPLETIONS.try_acquire() else { return };
        let completed = forge.run_blocking(caller, move |cx| {
            let (_, repository) = cx.open_code(&ProjectRef::Id(folder.project))?;
            let Some(repository) = repository else { return Ok(()) };
            Ok(repository.complete_last_commits(folder.commit, &folder.path, &folder.names)?)
        });
        if let Err(error) = completed.await {
            tracing::debug!(%error, "cannot find the last commits of a folder");
        }
    });
}

/// A file with the commit that last changed each of its lines.
pub struct BlamePage {
    /// The revision.
    pub revision: Revision,
    /// The path and the mode of the file.
    pub entry: TreeEntry,
    /// The size, in bytes.
    pub size: u64,
    /// The content and the commits; `None` if the file is too large.
    pub blame: Option<(Vec<u8>, Blame)>,
}

/// Returns the commits that last changed the lines of a file. The work ends after a few seconds; the commits of the
/// remaining lines are then unknown.
pub fn blame(cx: &mut BlockingContext<'_>, project: &ProjectRef, location: &str) -> Result<InProject<BlamePage>> {
    let (project, repository) = cx.open_code(project)?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let (revision, path) = locate(&repository, location)?.ok_or_else(missing)?;
    let entry = contents::blob_at(&repository, revision.commit, &path)?.ok_or_else(missing)?;
    let file = contents::open_blob(project.id, &repository, entry.id)?.ok_or_else(missing)?;
    let blame = match file.content {
        BlobContent::Inline(bytes) if file.size <= MAX_BLAME_BYTES => {
            repository.blame(revision.commit, &path)?.map(|blame| (bytes, blame))
        }
        BlobContent::Inline(_) | BlobContent::Large(_) => None,
    };
    Ok(InProject { project, value: BlamePage { revision, entry, size: file.size, blame } })
}

/// The files whose paths contain a text.
pub struct FoundFiles {
    /// The revision.
    pub revision: Revision,
    /// The first paths, sorted.
    pub paths: Vec<String>,
    /// The number of all paths that were found; `None` if there are too many files to search.
    pub total: Option<usize>,
}

/// Finds the files of a revision whose paths contain all words of a text, in any case.
pub fn find_files(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    location: &str,
    text: &str,
) -> Result<InProject<FoundFiles>> {
    let (project, repository, revision) = open_revision(cx, project, location)?;
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let mut found = repository.file_paths(revision.commit, MAX_SEARCHED_FILES)?;
    let total = found.as_mut().map(|paths| {
        paths.retain(|path| {
            let path = path.to_lowercase();
            words.iter().all(|word| path.contains(word))
        });
        paths.len()
    });
    let mut paths = found.unwrap_or_default();
    paths.truncate(MAX_FOUND_FILES);
    Ok(InProject { project, value: FoundFiles { revision, paths, total } })
}

/// Returns how many commits of a revision were made when and by whom.
pub fn activity(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    location: &str,
) -> Result<InProject<(Revision, Arc<Activity>)>> {
    let (project, repository, revision) = open_revision(cx, project, location)?;
    let activity = repository.activity(revision.commit)?;
    Ok(InProject { project, value: (revision, activity) })
}

/// Opens the repository at a location that names a revision and no path.
fn open_revision(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    location: &str,
) -> Result<(Project, Repository, Revision)> {
    let (project, repository) = cx.open_code(project)?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let (revision, path) = locate(&repository, location)?.ok_or_else(missing)?;
    if path.is_empty() { Ok((project, repository, revision)) } else { Err(missing()) }
}
