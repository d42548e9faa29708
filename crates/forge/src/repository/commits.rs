//! Commits: reading the history, and creating commits.

use std::sync::Arc;

use git::{EditError, FileEdit, LogQuery, Repository};
use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::Offset,
};
use model::{
    Commit, Oid, ProjectId, RefChange, RefName, Status, Violations,
    objects::{CommitStats, FileDiff, Signature},
};

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, blocking,
    branches::{self, conflicts_with_any, default_branch, require_accepted},
    contents::resolve_commit,
    pushes::{self, Push, PushSource, RefRejection},
};

/// The maximum number of skipped commits for a list on a thread for short reads.
const MAX_INLINE_SKIP: usize = 1000;
const NO_CHANGES: &str = "No files to update.";

/// Parameters for listing commits.
#[derive(Clone, Debug, Default)]
pub struct CommitFilter {
    /// A branch, tag or commit; the default branch by default.
    pub revision: Option<String>,
    /// Only commits that change this path.
    pub path: Option<String>,
    /// Only commits from this time on, unparsed.
    pub since: Option<String>,
    /// Only commits up to this time, unparsed.
    pub until: Option<String>,
    /// The number of commits to skip.
    pub skip: usize,
    /// The maximum number of commits.
    pub limit: usize,
}

/// A commit with its statistics and pipeline status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitDetail {
    /// The commit.
    pub commit: Commit,
    /// Lines added and removed.
    pub stats: CommitStats,
    /// The status of its newest pipeline.
    pub status: Option<Status>,
}

/// Lists commits, newest first; empty for an unknown revision.
pub async fn list(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    filter: Unvalidated<CommitFilter>,
) -> Result<Vec<Commit>> {
    let is_short = |filter: &CommitFilter| {
        filter.path.is_none() && filter.since.is_none() && filter.until.is_none() && filter.skip <= MAX_INLINE_SKIP
    };
    if filter.validate().is_ok_and(is_short) {
        return forge.read(caller, move |tx| log(tx, &project, &filter)?.run()).await;
    }
    forge.run_blocking(caller, move |cx| cx.read(|tx| log(tx, &project, &filter))?.run()).await
}

/// A log query with the repository to run it on.
struct CommitLog(Option<(Repository, Oid, LogQuery)>);

impl CommitLog {
    fn run(self) -> Result<Vec<Commit>> {
        let Some((repository, tip, query)) = self.0 else { return Ok(Vec::new()) };
        Ok(repository.log(tip, &query)?)
    }
}

fn log(tx: &mut ReadTx<'_>, project: &ProjectRef, filter: &Unvalidated<CommitFilter>) -> Result<CommitLog> {
    let project = branches::open(tx, project)?;
    let filter = filter.validate()?;
    let query = LogQuery {
        path: filter.path.as_deref().map(|path| path.trim_matches('/').to_owned()).filter(|path| !path.is_empty()),
        since: parse_timestamp("since", filter.since.as_deref())?,
        until: parse_timestamp("until", filter.until.as_deref())?,
        skip: filter.skip,
        limit: filter.limit,
    };
    let Some(repository) = tx.repository(&project)? else { return Ok(CommitLog(None)) };
    let tip = resolve_commit(&project, &repository, filter.revision.as_deref())?;
    Ok(CommitLog(tip.map(|tip| (repository, tip, query))))
}

/// Parses a timestamp with a zone, a date and time in UTC, or a date; returns Unix seconds.
fn parse_timestamp(name: &str, text: Option<&str>) -> Result<Option<i64>> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    let in_utc = |local: DateTime| Offset::UTC.to_timestamp(local).ok();
    let read = text
        .parse::<Timestamp>()
        .ok()
        .or_else(|| text.parse::<DateTime>().ok().and_then(in_utc))
        .or_else(|| text.parse::<Date>().ok().and_then(|day| in_utc(day.at(0, 0, 0, 0))));
    let message = || format!("\"{name}\" must be a timestamp in ISO 8601 format: YYYY-MM-DDTHH:MM:SSZ");
    read.map(|timestamp| Some(timestamp.as_second())).ok_or_else(|| Error::Refused(message()))
}

/// Returns a commit by its id, a branch or a tag.
pub fn get(cx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<CommitDetail> {
    detail(cx, project, name)
}

/// Returns the diff of a commit against its first parent.
pub fn diff(cx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<Vec<FileDiff>> {
    let (repository, id) = find(cx, project, name)?;
    Ok(repository.commit_diff(id)?)
}

fn find(cx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<(Repository, Oid)> {
    let missing = || Error::not_found("Commit");
    let repository = cx.read(|tx| {
        let project = branches::open(tx, project)?;
        tx.repository(&project)
    })?;
    let repository = repository.ok_or_else(missing)?;
    let id = repository.resolve(name)?.ok_or_else(missing)?;
    Ok((repository, id))
}

fn detail(cx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<CommitDetail> {
    let (repository, id) = find(cx, project, name)?;
    let commit = repository.commit(id)?.ok_or_else(|| Error::not_found("Commit"))?;
    let status = cx.read(|tx| {
        let project = branches::open(tx, project)?;
        Ok(store::pipelines::status_of_commit(tx.db(), project.id, id)?)
    })?;
    Ok(CommitDetail { commit, stats: repository.commit_stats(id)?, status })
}

/// The content of a file as sent by the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadedContent {
    /// Text; line endings are converted to LF.
    Text(String),
    /// Bytes, stored unchanged.
    Bytes(Vec<u8>),
}

impl UploadedContent {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.replace("\r\n", "\n").into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The author of a commit; used only if both fields are set.
#[derive(Clone, Debug, Default)]
pub struct Author {
    /// The name.
    pub name: Option<String>,
    /// The email address.
    pub email: Option<String>,
}

/// One unvalidated action of a new commit.
#[derive(Clone, Debug, Default)]
pub struct CommitAction {
    /// The kind: `create`, `update`, `delete` or `move`.
    pub action: String,
    /// The path of the file.
    pub path: Option<String>,
    /// The old path of a moved file.
    pub previous_path: Option<String>,
    /// The new content.
    pub content: Option<UploadedContent>,
}

/// Parameters of a new commit.
#[derive(Clone, Debug)]
pub struct NewCommit {
    /// The branch.
    pub branch: String,
    /// The message.
    pub message: String,
    /// The author.
    pub author: Author,
    /// The changes.
    pub actions: Vec<CommitAction>,
}

/// Creates a commit with all actions on a branch.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    new: Unvalidated<NewCommit>,
) -> Result<CommitDetail> {
    let request = new.map(|new| {
        let NewCommit { branch, message, author, actions } = new;
        let edits = actions.into_iter().map(parse_action).collect();
        CommitRequest { branch, start_branch: None, message, author, edits, expected: None }
    });
    let (project, id) = commit(forge, caller.clone(), project, request, describe_refusal_with_path).await?;
    forge.run_blocking(caller, move |cx| detail(cx, &ProjectRef::Id(project), &id.to_string())).await
}

/// Why an action of a new commit is invalid; the text is shown to the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidAction {
    /// The action has no path.
    #[error("You must specify a file_path.")]
    MissingPath,
    /// The new content of this file is missing.
    #[error("You must supply the content of `{0}`.")]
    MissingContent(String),
    /// The old path of this moved file is missing.
    #[error("You must supply the original file path when moving file `{0}`.")]
    MissingPreviousPath(String),
    /// There is no such kind of action.
    #[error("Unknown action type `{0}`.")]
    UnknownKind(String),
}

impl From<InvalidAction> for Error {
    fn from(invalid: InvalidAction) -> Self {
        Self::Refused(invalid.to_string())
    }
}

/// Parses an action into an edit.
fn parse_action(action: CommitAction) -> std::result::Result<FileEdit, InvalidAction> {
    let CommitAction { action, path, previous_path, content } = action;
    let content = content.map(UploadedContent::into_bytes);
    let path = path.filter(|path| !path.is_empty()).ok_or(InvalidAction::MissingPath)?;
    // Missing content is most likely a mistake and would empty the file; empty content is allowed.
    let needed = |content: Option<Vec<u8>>| content.ok_or_else(|| InvalidAction::MissingContent(path.clone()));
    match (action.as_str(), previous_path.filter(|path| !path.is_empty())) {
        ("create", _) => Ok(FileEdit::Create { content: needed(content)?, path }),
        ("update", _) => Ok(FileEdit::Update { content: needed(content)?, path }),
        ("delete", _) => Ok(FileEdit::Delete { path }),
        ("move", Some(from)) => Ok(FileEdit::Move { from, path, content }),
        ("move", None) => Err(InvalidAction::MissingPreviousPath(path)),
        _ => Err(InvalidAction::UnknownKind(action)),
    }
}

/// A commit to create.
pub(crate) struct CommitRequest {
    pub(crate) branch: String,
    /// The branch from which the other one is created if it does not exist.
    pub(crate) start_branch: Option<String>,
    pub(crate) message: String,
    pub(crate) author: Author,
    /// The edits, or why they are invalid.
    pub(crate) edits: std::result::Result<Vec<FileEdit>, InvalidAction>,
    /// A path and the blob that must be there before the edits.
    pub(crate) expected: Option<(String, Oid)>,
}

/// A new commit whose parameters were checked.
struct CheckedCommit {
    project: ProjectId,
    branch: RefName,
    /// The commit that the branch points to; `None` if it is created.
    tip: Option<Oid>,
    parent: Option<Oid>,
    author: Signature,
    committer: Signature,
}

/// Creates a commit on a branch; in an empty repository the branch is created.
pub(crate) async fn commit(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    request: Unvalidated<CommitRequest>,
    describe: fn(EditError) -> String,
) -> Result<(ProjectId, Oid)> {
    // Shared, because it may contain large files.
    let request = Arc::new(request);
    let shared_request = Arc::clone(&request);
    let checked = forge.read(caller.clone(), move |tx| check(tx, &project, &shared_request)).await?;
    let CheckedCommit { project, branch, tip, parent, author, committer } = checked;
    let (forge_handle, storage) = (forge.clone(), forge.storage_of(project).await?);
    let (incoming, id) = blocking::spawn(move || {
        let request = request.validate()?;
        let edits = request.edits.clone()?;
        let incoming = pushes::create_quarantine(&forge_handle, &storage)?;
        let built = incoming.commit(parent, edits, &request.message, &author, &committer).map_err(Error::from);
        let built = forge_handle.record_if_disk_full(built)?;
        Ok((incoming, built.map_err(|refusal| Error::Refused(describe(refusal)))?))
    })
    .await?;
    let short = branch.short().to_owned();
    let changes = vec![RefChange { name: branch, old: tip, new: Some(id) }];
    let push = Push { changes, incoming: Some(incoming), atomic: true, options: Vec::new() };
    require_accepted(pushes::push(forge, caller, project, push, PushSource::Api).await?).map_err(
        |error| match error {
            Error::RefRejected(RefRejection::ProtectedBranch) => {
                Error::Refused("You are not allowed to push into this branch".into())
            }
            Error::RefRejected(RefRejection::Stale) => {
                Error::Refused(format!("Could not update branch {short}. Please refresh and try again."))
            }
            other => other,
        },
    )?;
    Ok((project, id))
}

fn check(tx: &mut ReadTx<'_>, project: &ProjectRef, request: &Unvalidated<CommitRequest>) -> Result<CheckedCommit> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let request = request.validate()?;
    let refused = |text: &str| Err(Error::Refused(text.to_owned()));
    match &request.edits {
        Ok(edits) if edits.is_empty() => return refused(NO_CHANGES),
        Ok(_) => {}
        Err(invalid) => return Err(invalid.clone().into()),
    }
    let committer = tx.signature()?;
    let author = match (
        request.author.name.as_deref().and_then(clean_identity),
        request.author.email.as_deref().and_then(clean_identity),
    ) {
        (Some(name), Some(email)) => Signature { name, email, ..committer.clone() },
        _ => committer.clone(),
    };
    // Opened, so that its folder has the parent of the new commit.
    let repository = tx.repository(&project)?;
    let refs = repository.as_ref().map(|repository| Arc::clone(repository.refs())).unwrap_or_default();
    let branch = RefName::branch(&request.branch);
    let found = |name: &RefName| refs.find(name).map(|branch| branch.target);
    let is_empty = default_branch(&project, &refs).is_none();
    let start = request.start_branch.as_deref().and_then(RefName::branch).and_then(|name| found(&name));
    let (branch, tip, parent) = match branch.map(|name| (found(&name), name)) {
        Some((Some(tip), branch)) => (branch, Some(tip), Some(tip)),
        Some((None, branch)) if is_empty && branch.looks_like_oid() => return refused("Branch name is invalid"),
        Some((None, branch)) if is_empty => (branch, None, None),
        Some((None, branch)) if start.is_some() => {
            if branch.looks_like_oid() || conflicts_with_any(&refs.branches, &branch) {
                return refused("Branch name is invalid");
            }
            (branch, None, start)
        }
        None if is_empty => return refused("Branch name is invalid"),
        _ => return refused("You can only create or edit files when you are on a branch"),
    };
    if let Some((path, blob)) = &request.expected {
        let current = match (&repository, parent) {
            (Some(repository), Some(parent)) => repository.entry(parent, path)?.map(|entry| entry.id),
            _ => None,
        };
        if current != Some(*blob) {
            let mut violations = Violations::new();
            violations.add("content", "was changed by someone else");
            return Err(Error::Conflicting(violations));
        }
    }
    Ok(CheckedCommit { project: project.id, branch, tip, parent, author, committer })
}

/// Removes characters that git does not allow in names and addresses; `None` if nothing is left.
fn clean_identity(text: &str) -> Option<String> {
    let cleaned: String = text.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
    Some(cleaned.trim().to_owned()).filter(|cleaned| !cleaned.is_empty())
}

impl ReadTx<'_> {
    /// Returns the signature of the current user at the current time.
    pub(crate) fn signature(&self) -> Result<Signature> {
        let user = self.actor().user().ok_or(Error::Unauthenticated)?;
        let name = clean_identity(&user.name).unwrap_or_else(|| user.username.clone());
        let email = clean_identity(&user.email).unwrap_or_default();
        Ok(Signature { name, email, seconds: self.now().as_second(), offset: 0 })
    }
}

fn describe_refusal_with_path(refusal: EditError) -> String {
    match refusal {
        EditError::Exists(path) => {
            format!("Your changes could not be committed because a file with the name `{path}` already exists.")
        }
        refusal => describe_refusal(refusal),
    }
}

/// Describes a refused edit.
pub(crate) fn describe_refusal(refusal: EditError) -> String {
    match refusal {
        EditError::Exists(_) => {
            "Your changes could not be committed because a file with the same name already exists".into()
        }
        EditError::TargetExists(path) => format!("Move destination `{path}` already exists."),
        EditError::Missing(path, done) => format!("File to be {done} `{path}` does not exist."),
        EditError::Empty => NO_CHANGES.into(),
        EditError::Traversal(_) => {
            "Your changes could not be committed, because the file name cannot include directory traversal.".into()
        }
        EditError::BadPath(_) => {
            "Your changes could not be committed, because the file name is not one that a repository may hold.".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_has_a_zone_or_is_in_utc() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(parse_timestamp("since", Some(text)).ok(), expected.map(Some), "{text}");
        };
        check("2016-11-22T10:15:30Z", Some(1_479_809_730));
        check("2016-11-22T11:15:30+01:00", Some(1_479_809_730));
        check("2016-11-22T10:15:30", Some(1_479_809_730));
        check("2016-11-22", Some(1_479_772_800));
        for bad in ["yesterday", "22.11.2016", "2016-13-01", "1479809730", "2016-11-22T10:15:30+99:00"] {
            check(bad, None);
        }
        assert_eq!(parse_timestamp("since", Some(" ")).ok(), Some(None));
        let error = parse_timestamp("until", Some("x")).map_err(|error| error.to_string());
        assert_eq!(error, Err("\"until\" must be a timestamp in ISO 8601 format: YYYY-MM-DDTHH:MM:SSZ".into()));
    }

    #[test]
    fn a_name_cannot_forge_a_header_of_a_commit() {
        let check =
            |text: &str, expected: Option<&str>| assert_eq!(clean_identity(text).as_deref(), expected, "{text:?}");
        check("Ann", Some("Ann"));
        check(" Ann <root@x>\nparent 00\0", Some("Ann root@xparent 00"));
        check("<>\n", None);
        check("Ä. B", Some("Ä. B"));
    }
}
