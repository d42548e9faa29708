//! Single files of a repository: reading a file with its metadata, and changing it with a commit.

use git::FileEdit;
use model::Oid;

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectRef, Result, Unvalidated,
    commits::{self, Author, CommitRequest, UploadedContent, describe_refusal},
    contents::{RawFile, blob_at, open_blob},
};

/// The maximum size of a file embedded in JSON, in bytes; larger ones are only available raw.
const MAX_INLINE_FILE_BYTES: u64 = 32 << 20;

/// A file with its metadata.
pub struct FileDetail {
    /// The path from the root of the repository.
    pub path: String,
    /// The requested revision.
    pub revision: String,
    /// The blob.
    pub file: RawFile,
    /// The commit of the revision.
    pub commit: Oid,
    /// The last commit that changed the file.
    pub last_commit: Oid,
}

/// Parameters for reading a file.
#[derive(Clone, Debug)]
pub struct FileQuery {
    /// The path from the root of the repository.
    pub path: String,
    /// A branch, tag or commit.
    pub revision: String,
}

/// Parameters for changing a file.
#[derive(Clone, Debug)]
pub struct FileChange {
    /// The path from the root of the repository.
    pub path: String,
    /// The branch.
    pub branch: String,
    /// The commit message.
    pub message: String,
    /// The author of the commit.
    pub author: Author,
    /// The new content; `None` to delete the file.
    pub content: Option<UploadedContent>,
}

/// A file that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// The path from the root of the repository.
    pub path: String,
    /// The branch.
    pub branch: String,
}

/// Returns a file with its metadata.
pub fn get(cx: &mut BlockingContext<'_>, project: &ProjectRef, query: &Unvalidated<FileQuery>) -> Result<FileDetail> {
    let (project, repository) = cx.open_code(project)?;
    let query = query.validate()?;
    let no_commit = || Error::not_found("Commit");
    let no_file = || Error::not_found("File");
    let repository = repository.ok_or_else(no_commit)?;
    let commit = repository.resolve(&query.revision)?.ok_or_else(no_commit)?;
    let entry = blob_at(&repository, commit, &query.path)?.ok_or_else(no_file)?;
    let file = open_blob(project.id, &repository, entry.id)?.ok_or_else(no_file)?;
    if file.size > MAX_INLINE_FILE_BYTES {
        let max = MAX_INLINE_FILE_BYTES >> 20;
        return Err(Error::Refused(format!("files larger than {max} MB are only available from repository/blobs")));
    }
    let last_commit = repository.last_commit_of(commit, &entry.path)?.unwrap_or(commit);
    Ok(FileDetail { path: entry.path, revision: query.revision.clone(), file, commit, last_commit })
}

/// Creates a file.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
) -> Result<WrittenFile> {
    commit_edit(forge, caller, project, change, |path, content| FileEdit::Create { path, content }).await
}

/// Updates a file, or creates it if it does not exist.
pub async fn update(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
) -> Result<WrittenFile> {
    commit_edit(forge, caller, project, change, |path, content| FileEdit::Put { path, content }).await
}

/// Deletes a file.
pub async fn delete(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
) -> Result<WrittenFile> {
    commit_edit(forge, caller, project, change, |path, _| FileEdit::Delete { path }).await
}

async fn commit_edit(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    change: Unvalidated<FileChange>,
    edit: fn(String, Vec<u8>) -> FileEdit,
) -> Result<WrittenFile> {
    // Malformed parameters are reported after the permission check.
    let written =
        change.validate().map(|change| WrittenFile { path: change.path.clone(), branch: change.branch.clone() });
    let request = change.map(|change| {
        let FileChange { path, branch, message, author, content } = change;
        let content = content.map(UploadedContent::into_bytes).unwrap_or_default();
        let edits = Ok(vec![edit(path, content)]);
        CommitRequest { branch, start_branch: None, message, author, edits, expected: None }
    });
    commits::commit(forge, caller, project, request, describe_refusal).await?;
    written
}
