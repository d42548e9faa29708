//! Forms that create, change and delete a file with a commit.

use git::FileEdit;
use model::{Oid, RefName, Violations, objects::TreeEntry};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    branches::default_branch,
    browse::{InProject, RevisionKind, locate},
    commits::{self, Author, CommitRequest, describe_refusal},
    contents::{self, BlobContent},
};

/// Where a new file is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFilePlace {
    /// The branch.
    pub branch: String,
    /// The path of the folder; empty for the root.
    pub folder: String,
}

/// A file as a form shows it.
pub struct EditableFile {
    /// The branch.
    pub branch: String,
    /// The path.
    pub path: String,
    /// The file; `None` if it does not exist, or exists no longer.
    pub current: Option<CurrentFile>,
}

/// The current version of a file.
pub struct CurrentFile {
    /// The path, the mode and the blob.
    pub entry: TreeEntry,
    /// The content; `None` if it is large.
    pub content: Option<Vec<u8>>,
}

/// What is done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Creates it.
    Create(Vec<u8>),
    /// Changes it or its path.
    Change {
        /// The path that it had when the form was opened.
        previous_path: String,
        /// The blob that it had when the form was opened.
        previous_blob: Oid,
        /// The new content; `None` keeps it.
        content: Option<Vec<u8>>,
    },
    /// Deletes it.
    Delete {
        /// The blob that it had when the form was opened.
        previous_blob: Oid,
    },
}

/// A submitted form.
#[derive(Clone, Debug)]
pub struct SaveFile {
    /// The branch that the form was opened with.
    pub start_branch: String,
    /// The branch to commit to; created from the other one if it does not exist.
    pub branch: String,
    /// The path.
    pub path: String,
    /// The action.
    pub action: FileAction,
    /// The commit message.
    pub message: String,
}

/// Returns where a new file is created. In an empty repository, the location is the name of the first branch.
pub fn open_for_creation(tx: &mut ReadTx<'_>, project: &ProjectRef, location: &str) -> Result<InProject<NewFilePlace>> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let missing = || Error::NotFound(None);
    let repository = tx.repository(&project)?;
    let has_code = repository.as_ref().is_some_and(|found| default_branch(&project, found.refs()).is_some());
    let place = match repository {
        Some(repository) if has_code => {
            let (revision, folder) = locate(&repository, location)?.ok_or_else(missing)?;
            let is_folder = folder.is_empty()
                || repository
                    .entry(revision.commit, &folder)?
                    .is_some_and(|entry| entry.kind == model::objects::EntryKind::Tree);
            let is_valid = revision.kind == RevisionKind::Branch && is_folder;
            is_valid.then_some(NewFilePlace { branch: revision.name, folder }).ok_or_else(missing)?
        }
        _ => {
            let branch = RefName::branch(location).filter(|name| !name.looks_like_oid()).ok_or_else(missing)?;
            NewFilePlace { branch: branch.short().to_owned(), folder: String::new() }
        }
    };
    Ok(InProject { project, value: place })
}

/// Returns a file of a branch for a form that changes it.
pub fn open_for_editing(tx: &mut ReadTx<'_>, project: &ProjectRef, location: &str) -> Result<InProject<EditableFile>> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let missing = || Error::NotFound(None);
    let repository = tx.repository(&project)?.ok_or_else(missing)?;
    let (revision, path) = locate(&repository, location)?.ok_or_else(missing)?;
    if revision.kind != RevisionKind::Branch || path.is_empty() {
        return Err(missing());
    }
    let current = match contents::blob_at(&repository, revision.commit, &path)? {
        Some(entry) => {
            let file = contents::open_blob(project.id, &repository, entry.id)?.ok_or_else(missing)?;
            let content = match file.content {
                BlobContent::Inline(bytes) => Some(bytes),
                BlobContent::Large(_) => None,
            };
            Some(CurrentFile { entry, content })
        }
        None => None,
    };
    Ok(InProject { project, value: EditableFile { branch: revision.name, path, current } })
}

/// Commits a submitted form. Fails with [`Error::Conflicting`] if the file was changed since the form was opened.
pub async fn save(forge: &Forge, caller: Caller, project: ProjectRef, save: SaveFile) -> Result<()> {
    let SaveFile { start_branch, branch, path, action, message } = save;
    let mut violations = Violations::new();
    violations.require(!path.trim_matches('/').is_empty(), "path", "can't be blank");
    violations.require(!message.trim().is_empty(), "message", "can't be blank");
    violations.require(RefName::branch(&branch).is_some_and(|name| !name.looks_like_oid()), "branch", "is invalid");
    let (edit, expected) = match action {
        FileAction::Create(content) => (FileEdit::Create { path, content }, None),
        FileAction::Delete { previous_blob } => (FileEdit::Delete { path: path.clone() }, Some((path, previous_blob))),
        FileAction::Change { previous_path, previous_blob, content } if previous_path != path => {
            (FileEdit::Move { from: previous_path.clone(), path, content }, Some((previous_path, previous_blob)))
        }
        FileAction::Change { previous_path, previous_blob, content } => {
            violations.require(content.is_some(), "content", "can't be blank");
            let content = content.unwrap_or_default();
            (FileEdit::Update { path, content }, Some((previous_path, previous_blob)))
        }
    };
    let request = CommitRequest {
        branch,
        start_branch: Some(start_branch),
        message,
        author: Author::default(),
        edits: Ok(vec![edit]),
        expected,
    };
    // Whether the form is complete is said after the permission was checked.
    let check_project = project.clone();
    let check = move |tx: &mut ReadTx<'_>| tx.project(&check_project, ProjectAbility::PushCode).map(drop);
    forge.read(caller.clone(), check).await?;
    violations.into_result()?;
    commits::commit(forge, caller, project, Unvalidated::valid(request), describe_refusal).await?;
    Ok(())
}
