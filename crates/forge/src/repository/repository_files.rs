//! Single files of a repository: reading one with what is known of it, and changing one by a commit.

use git::FileEdit;
use model::Oid;

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectRef, Result, Unvalidated,
    commits::{self, Author, Content, Wish, refusal_of_any},
    contents::{RawFile, blob_at, raw},
};

/// The largest file that is shown inside another text; larger ones are there as they are.
const LARGEST: u64 = 32 << 20;

/// A file with what is known of it.
pub struct FileDetail {
    /// The path from the root.
    pub path: String,
    /// What it was looked for in, as somebody typed it.
    pub at: String,
    /// The content: its name, its size and its bytes.
    pub file: RawFile,
    /// The commit in which it was looked for.
    pub commit: Oid,
    /// The last commit that touched it.
    pub last_commit: Oid,
}

/// Which file somebody wants to see.
#[derive(Clone, Debug)]
pub struct WantedFile {
    /// The path from the root.
    pub path: String,
    /// A branch, a tag or a commit.
    pub at: String,
}

/// A wish for a change of one file.
#[derive(Clone, Debug)]
pub struct FileChange {
    /// The path from the root.
    pub path: String,
    /// On which branch.
    pub branch: String,
    /// What the commit says.
    pub message: String,
    /// Who wrote it.
    pub author: Author,
    /// What is in the file from then on; nothing if it shall go.
    pub content: Option<Content>,
}

/// A file that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// The path from the root.
    pub path: String,
    /// On which branch.
    pub branch: String,
}

/// One file.
pub fn get(tx: &mut BlockingContext<'_>, project: &ProjectRef, wanted: &Unvalidated<WantedFile>) -> Result<FileDetail> {
    let (project, repository) = tx.open_code(project)?;
    let wanted = wanted.get()?;
    let no_commit = || Error::not_found("Commit");
    let no_file = || Error::not_found("File");
    let repository = repository.ok_or_else(no_commit)?;
    let commit = repository.resolve(&wanted.at)?.ok_or_else(no_commit)?;
    let entry = blob_at(&repository, commit, &wanted.path)?.ok_or_else(no_file)?;
    let file = raw(&project.storage, &repository, entry.id)?.ok_or_else(no_file)?;
    if file.size > LARGEST {
        let most = LARGEST >> 20;
        return Err(Error::Refused(format!("Files of more than {most} MB are only found under repository/blobs")));
    }
    let last_commit = repository.last_commit_of(commit, &entry.path)?.unwrap_or(commit);
    Ok(FileDetail { path: entry.path, at: wanted.at.clone(), file, commit, last_commit })
}

/// Adds a file.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
) -> Result<WrittenFile> {
    put(forge, caller, project, change, |path, content| FileEdit::Create { path, content }).await
}

/// Changes a file, or adds it if it is not there.
pub async fn update(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
) -> Result<WrittenFile> {
    put(forge, caller, project, change, |path, content| FileEdit::Put { path, content }).await
}

/// Removes a file.
pub async fn delete(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
) -> Result<WrittenFile> {
    put(forge, caller, project, change, |path, _| FileEdit::Delete { path }).await
}

async fn put(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
    edit: fn(String, Vec<u8>) -> FileEdit,
) -> Result<WrittenFile> {
    // What is malformed is told by the use case, after the gate.
    let written = change.get().map(|change| WrittenFile { path: change.path.clone(), branch: change.branch.clone() });
    let wish = change.map(|change| {
        let FileChange { path, branch, message, author, content } = change;
        let content = content.map(Content::into_bytes).unwrap_or_default();
        Wish { branch, message, author, edits: Ok(vec![edit(path, content)]) }
    });
    commits::commit(forge, caller, project, wish, refusal_of_any).await?;
    written
}
