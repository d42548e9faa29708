//! Commits: reading the history, and adding to it.

use std::sync::Arc;

use git::{EditRefusal, FileEdit, LogQuery, Repository};
use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::Offset,
};
use model::{
    Commit, Oid, RefChange, RefName, Status,
    objects::{CommitStats, FileDiff, Signature},
};

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    branches::{self, default_branch, passed},
    contents::commit_at,
    pushes::{self, Push, Via},
};

/// As far into the history as a list may go on a thread for short reads.
const NEAR: usize = 1000;
const NOTHING: &str = "No files to update.";

/// Which commits somebody wants to see.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// A branch, a tag or a commit; without it, the default branch.
    pub at: Option<String>,
    /// Only what touches this path.
    pub path: Option<String>,
    /// Only from this moment on, as somebody typed it.
    pub since: Option<String>,
    /// Only up to this moment, as somebody typed it.
    pub until: Option<String>,
    /// How many are left out at the start.
    pub skip: usize,
    /// How many are shown at most.
    pub limit: usize,
}

/// A commit with what it changed, in numbers, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitDetail {
    /// The commit.
    pub commit: Commit,
    /// Lines added and removed.
    pub stats: CommitStats,
    /// How its newest pipeline stands.
    pub status: Option<Status>,
}

/// The newest commits first. A name that leads nowhere has none.
pub async fn list(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    history: Unvalidated<History>,
) -> Result<Vec<Commit>> {
    let is_short = |history: &History| {
        history.path.is_none() && history.since.is_none() && history.until.is_none() && history.skip <= NEAR
    };
    if history.get().is_ok_and(is_short) {
        return forge.read(caller, move |tx| log(tx, &project, &history)?.run()).await;
    }
    forge.run_blocking(caller, move |tx| tx.read(|tx| log(tx, &project, &history))?.run()).await
}

/// A question to a history.
struct Log(Option<(Repository, Oid, LogQuery)>);

impl Log {
    fn run(self) -> Result<Vec<Commit>> {
        let Some((repository, tip, query)) = self.0 else { return Ok(Vec::new()) };
        Ok(repository.log(tip, &query)?)
    }
}

fn log(tx: &mut ReadTx<'_>, project: &ProjectRef, history: &Unvalidated<History>) -> Result<Log> {
    let project = branches::open(tx, project)?;
    let history = history.get()?;
    let query = LogQuery {
        path: history.path.as_deref().map(|path| path.trim_matches('/').to_owned()).filter(|path| !path.is_empty()),
        since: moment("since", history.since.as_deref())?,
        until: moment("until", history.until.as_deref())?,
        skip: history.skip,
        limit: history.limit,
    };
    let Some(repository) = tx.repository(&project)? else { return Ok(Log(None)) };
    let tip = commit_at(&project, &repository, history.at.as_deref())?;
    Ok(Log(tip.map(|tip| (repository, tip, query))))
}

/// A moment in seconds: with a zone, or in UTC, or the beginning of a day.
fn moment(name: &str, text: Option<&str>) -> Result<Option<i64>> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    let in_utc = |moment: DateTime| Offset::UTC.to_timestamp(moment).ok();
    let read = text
        .parse::<Timestamp>()
        .ok()
        .or_else(|| text.parse::<DateTime>().ok().and_then(in_utc))
        .or_else(|| text.parse::<Date>().ok().and_then(|day| in_utc(day.at(0, 0, 0, 0))));
    let fault = || format!("\"{name}\" must be a timestamp in ISO 8601 format: YYYY-MM-DDTHH:MM:SSZ");
    read.map(|moment| Some(moment.as_second())).ok_or_else(|| Error::Refused(fault()))
}

/// One commit, by its name or that of a branch or a tag.
pub fn get(tx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<CommitDetail> {
    detail(tx, project, name)
}

/// How a commit differs from the one before it.
pub fn diff(tx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<Vec<FileDiff>> {
    let (repository, id) = find(tx, project, name)?;
    Ok(repository.commit_diff(id)?)
}

fn find(tx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<(Repository, Oid)> {
    let missing = || Error::not_found("Commit");
    let repository = tx.read(|tx| {
        let project = branches::open(tx, project)?;
        tx.repository(&project)
    })?;
    let repository = repository.ok_or_else(missing)?;
    let id = repository.resolve(name)?.ok_or_else(missing)?;
    Ok((repository, id))
}

fn detail(tx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str) -> Result<CommitDetail> {
    let (repository, id) = find(tx, project, name)?;
    let commit = repository.commit(id)?.ok_or_else(|| Error::not_found("Commit"))?;
    let status = tx.read(|tx| {
        let project = branches::open(tx, project)?;
        Ok(store::pipelines::status_of_commit(tx.db(), project.id, id)?)
    })?;
    Ok(CommitDetail { commit, stats: repository.commit_stats(id)?, status })
}

/// The content of a file as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text, whose lines end in the way of Unix.
    Text(String),
    /// Anything, as it is.
    Bytes(Vec<u8>),
}

impl Content {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.replace("\r\n", "\n").into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Who is said to have written a commit, if both are told.
#[derive(Clone, Debug, Default)]
pub struct Author {
    /// The name.
    pub name: Option<String>,
    /// The address.
    pub email: Option<String>,
}

/// One of the changes of a commit, as somebody typed it.
#[derive(Clone, Debug, Default)]
pub struct ActionText {
    /// What shall be done: `create`, `update`, `delete` or `move`.
    pub action: String,
    /// To which file.
    pub path: Option<String>,
    /// Where a file was that moves.
    pub previous_path: Option<String>,
    /// What is in it from then on.
    pub content: Option<Content>,
}

/// A wish for a commit of several changes.
#[derive(Clone, Debug)]
pub struct NewCommit {
    /// On which branch.
    pub branch: String,
    /// What it says.
    pub message: String,
    /// Who wrote it.
    pub author: Author,
    /// What it changes.
    pub actions: Vec<ActionText>,
}

/// Adds a commit of all changes to a branch, or nothing.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    new: Unvalidated<NewCommit>,
) -> Result<CommitDetail> {
    let wish = new.map(|new| {
        let NewCommit { branch, message, author, actions } = new;
        Wish { branch, message, author, edits: actions.into_iter().map(plan).collect() }
    });
    let (project, id) = commit(forge, caller.clone(), project, wish, refusal_of_many).await?;
    forge.run_blocking(caller, move |tx| detail(tx, &ProjectRef::Id(project), &id.to_string())).await
}

/// The edit that a text means, or why it means none.
fn plan(text: ActionText) -> std::result::Result<FileEdit, String> {
    let ActionText { action, path, previous_path, content } = text;
    let content = content.map(Content::into_bytes);
    let Some(path) = path.filter(|path| !path.is_empty()) else { return Err("You must specify a file_path.".into()) };
    // Empty is a content; none at all is most likely forgotten, and would empty the file.
    let needed = |content: Option<Vec<u8>>| content.ok_or_else(|| format!("You must supply the content of `{path}`."));
    match (action.as_str(), previous_path.filter(|path| !path.is_empty())) {
        ("create", _) => Ok(FileEdit::Create { content: needed(content)?, path }),
        ("update", _) => Ok(FileEdit::Update { content: needed(content)?, path }),
        ("delete", _) => Ok(FileEdit::Delete { path }),
        ("move", Some(from)) => Ok(FileEdit::Move { from, path, content }),
        ("move", None) => Err(format!("You must supply the original file path when moving file `{path}`.")),
        (other, _) => Err(format!("Unknown action type `{other}`.")),
    }
}

/// A commit that shall be made.
pub(crate) struct Wish {
    pub(crate) branch: String,
    pub(crate) message: String,
    pub(crate) author: Author,
    /// What it changes, or why that cannot be meant.
    pub(crate) edits: std::result::Result<Vec<FileEdit>, String>,
}

/// What is known of a commit before it is made.
struct Judged {
    project: i64,
    branch: RefName,
    parent: Option<Oid>,
    author: Signature,
    committer: Signature,
}

/// Adds a commit to a branch, which is made if it is the first one of all.
pub(crate) async fn commit(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    wish: Unvalidated<Wish>,
    tell: fn(EditRefusal) -> String,
) -> Result<(i64, Oid)> {
    // Shared, because it may hold large files.
    let wish = Arc::new(wish);
    let asked = Arc::clone(&wish);
    let judged = forge.read(caller.clone(), move |tx| judge(tx, &project, &asked)).await?;
    let Judged { project, branch, parent, author, committer } = judged;
    let (inside, storage) = (forge.clone(), forge.storage_of(project).await?);
    let (incoming, id) = pushes::blocking(move || {
        let wish = wish.get()?;
        let edits = wish.edits.clone().map_err(Error::Refused)?;
        let incoming = pushes::incoming(&inside, &storage)?;
        let built = incoming.commit(parent, edits, &wish.message, &author, &committer)?;
        Ok((incoming, built.map_err(|refusal| Error::Refused(tell(refusal)))?))
    })
    .await?;
    let short = branch.short().to_owned();
    let changes = vec![RefChange { name: branch, old: parent, new: Some(id) }];
    let push = Push { changes, incoming: Some(incoming), atomic: true, options: Vec::new() };
    passed(pushes::push(forge, caller, project, push, Via::Api).await?).map_err(|error| match error {
        Error::Refused(text) if text == pushes::NO_PROTECTED_PUSH => {
            Error::Refused("You are not allowed to push into this branch".into())
        }
        Error::Refused(text) if text == pushes::STALE => {
            Error::Refused(format!("Could not update branch {short}. Please refresh and try again."))
        }
        other => other,
    })?;
    Ok((project, id))
}

fn judge(tx: &mut ReadTx<'_>, project: &ProjectRef, wish: &Unvalidated<Wish>) -> Result<Judged> {
    let project = tx.open(project, ProjectAbility::PushCode)?;
    let wish = wish.get()?;
    let refused = |text: &str| Err(Error::Refused(text.to_owned()));
    match &wish.edits {
        Ok(edits) if edits.is_empty() => return refused(NOTHING),
        Ok(_) => {}
        Err(text) => return refused(text),
    }
    let committer = tx.signature()?;
    let author = match (wish.author.name.as_deref().and_then(clean), wish.author.email.as_deref().and_then(clean)) {
        (Some(name), Some(email)) => Signature { name, email, ..committer.clone() },
        _ => committer.clone(),
    };
    let refs = tx.repository(&project)?.map(|repository| repository.refs()).transpose()?;
    let branch = RefName::branch(&wish.branch);
    let found = |name: &RefName| refs.as_ref().and_then(|refs| refs.find(name)).map(|branch| branch.target);
    let is_empty = refs.as_ref().is_none_or(|refs| default_branch(&project, refs).is_none());
    match branch.map(|name| (found(&name), name)) {
        Some((Some(tip), branch)) => Ok(Judged { project: project.id, branch, parent: Some(tip), author, committer }),
        Some((None, branch)) if is_empty && branch.looks_like_an_id() => refused("Branch name is invalid"),
        Some((None, branch)) if is_empty => Ok(Judged { project: project.id, branch, parent: None, author, committer }),
        None if is_empty => refused("Branch name is invalid"),
        _ => refused("You can only create or edit files when you are on a branch"),
    }
}

/// A name or an address as git can keep it; `None` if nothing is left of it.
fn clean(text: &str) -> Option<String> {
    let kept: String = text.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
    Some(kept.trim().to_owned()).filter(|kept| !kept.is_empty())
}

impl ReadTx<'_> {
    /// Who is asking, as the author of something that happens now.
    pub(crate) fn signature(&self) -> Result<Signature> {
        let user = self.actor().user().ok_or(Error::Unauthenticated)?;
        let name = clean(&user.name).unwrap_or_else(|| user.username.clone());
        let email = clean(&user.email).unwrap_or_default();
        Ok(Signature { name, email, seconds: self.now().as_second(), offset: 0 })
    }
}

fn refusal_of_many(refusal: EditRefusal) -> String {
    match refusal {
        EditRefusal::Exists(path) => {
            format!("Your changes could not be committed because a file with the name `{path}` already exists.")
        }
        refusal => refusal_of_any(refusal),
    }
}

/// What is told of a refused edit wherever it was asked for.
pub(crate) fn refusal_of_any(refusal: EditRefusal) -> String {
    match refusal {
        EditRefusal::Exists(_) => {
            "Your changes could not be committed because a file with the same name already exists".into()
        }
        EditRefusal::TargetExists(path) => format!("Move destination `{path}` already exists."),
        EditRefusal::Missing(path, done) => format!("File to be {done} `{path}` does not exist."),
        EditRefusal::Empty => NOTHING.into(),
        EditRefusal::Traversal(_) => {
            "Your changes could not be committed, because the file name cannot include directory traversal.".into()
        }
        EditRefusal::BadPath(_) => {
            "Your changes could not be committed, because the file name is not one that a repository may hold.".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_a_zone_or_is_in_utc() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(moment("since", Some(text)).ok(), expected.map(Some), "{text}");
        };
        check("2016-11-22T10:15:30Z", Some(1_479_809_730));
        check("2016-11-22T11:15:30+01:00", Some(1_479_809_730));
        check("2016-11-22T10:15:30", Some(1_479_809_730));
        check("2016-11-22", Some(1_479_772_800));
        for bad in ["yesterday", "22.11.2016", "2016-13-01", "1479809730", "2016-11-22T10:15:30+99:00"] {
            check(bad, None);
        }
        assert_eq!(moment("since", Some(" ")).ok(), Some(None));
        let told = moment("until", Some("x")).map_err(|error| error.to_string());
        assert_eq!(told, Err("\"until\" must be a timestamp in ISO 8601 format: YYYY-MM-DDTHH:MM:SSZ".into()));
    }

    #[test]
    fn lesson_05_a_name_cannot_forge_a_header_of_a_commit() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(clean(text).as_deref(), expected, "{text:?}");
        check("Ann", Some("Ann"));
        check(" Ann <root@x>\nparent 00\0", Some("Ann root@xparent 00"));
        check("<>\n", None);
        check("Ä. B", Some("Ä. B"));
    }
}
