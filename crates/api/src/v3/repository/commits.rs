//! Commits of a repository.

use axum::extract::State;
use forge::{
    Forge,
    commits::{self, ActionText, CommitDetail, History, NewCommit},
};
use model::{Commit, Oid, Status, objects::FileDiff, page};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::repository_files::{self, read_author};
use crate::{
    extract::{Credentials, InProject, Revision},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, LocalStamp, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/repository/commits", "Lists commits, the newest first; pages count from 0", list)
        .post("/projects/{id}/repository/commits", "Makes a commit that changes several files", create)
        .get("/projects/{id}/repository/commits/{sha}", "Shows a commit", get)
        .get("/projects/{id}/repository/commits/{sha}/diff", "Shows what a commit changes", diff)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ListCommits>,
) -> Reply<Done<Vec<CommitJson>>> {
    let commits = commits::list(&forge, caller, project, given.map(|given| given.0)).await?;
    Ok(Done(commits.iter().map(CommitJson::from).collect()))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(name): Revision,
) -> Reply<Done<CommitDetailJson>> {
    let commit = forge.run_blocking(caller, move |tx| commits::get(tx, &project, &name)).await?;
    Ok(Done(commit.into()))
}

async fn diff(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(name): Revision,
) -> Reply<Done<Vec<CommitDiffJson>>> {
    let diffs = forge.run_blocking(caller, move |tx| commits::diff(tx, &project, &name)).await?;
    Ok(Done(diffs.into_iter().map(CommitDiffJson::from).collect()))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreateCommit>,
) -> Reply<Created<CommitDetailJson>> {
    let commit = commits::create(&forge, caller, project, given.map(|given| given.0)).await?;
    Ok(Created(commit.into()))
}

struct ListCommits(History);

impl FromParams for ListCommits {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let at = from.text("ref_name", "A branch, a tag or a commit; without it, the default branch");
        let path = from.text("path", "Only commits that touch this path");
        let since = from.text("since", "Only commits from this moment on, in ISO 8601");
        let until = from.text("until", "Only commits up to this moment, in ISO 8601");
        // Unlike everywhere else, because clients of the original count from 0 here.
        let number = from.integer_within("page", 0..=i64::from(i32::MAX), "Which page, counted from 0");
        let size = from.integer_within("per_page", 0..=i64::MAX, "Items on a page, 100 at most");
        let size = size.filter(|size| *size > 0).unwrap_or(page::DEFAULT_SIZE).min(page::MAX_SIZE);
        let limit = usize::try_from(size).unwrap_or_default();
        let skip = usize::try_from(number.unwrap_or_default()).unwrap_or(usize::MAX).saturating_mul(limit);
        Self(History { at, path, since, until, skip, limit })
    }
}

struct CreateCommit(NewCommit);

impl FromParams for CreateCommit {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let branch = from.required_text("branch_name", "The branch to which the commit is added");
        let message = from.filled_text("commit_message", "What the commit says");
        let actions = from.required_objects::<Action>("actions", "What it changes, in this order");
        let author = read_author(from);
        Self(NewCommit { branch, message, author, actions: actions.into_iter().map(|action| action.0).collect() })
    }
}

struct Action(ActionText);

impl FromParams for Action {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let action = from.required_text("action", "create, update, delete or move");
        let path = from.text("file_path", "The path of the file from the root");
        let previous_path = from.text("previous_path", "Where a file was that moves");
        let content = repository_files::read_content(from, false);
        Self(ActionText { action, path, previous_path, content })
    }
}

/// The newest commit of a branch or a tag.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TipJson {
    id: String,
    message: String,
    parent_ids: Vec<String>,
    authored_date: LocalStamp,
    author_name: String,
    author_email: String,
    committed_date: LocalStamp,
    committer_name: String,
    committer_email: String,
}

impl From<Commit> for TipJson {
    fn from(commit: Commit) -> Self {
        let Commit { id, parents, author, committer, message } = commit;
        Self {
            id: id.to_string(),
            message,
            parent_ids: ids(&parents),
            authored_date: LocalStamp::from(&author),
            author_name: author.name,
            author_email: author.email,
            committed_date: LocalStamp::from(&committer),
            committer_name: committer.name,
            committer_email: committer.email,
        }
    }
}

/// A commit in a list.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CommitJson {
    id: String,
    short_id: String,
    title: String,
    author_name: String,
    author_email: String,
    created_at: LocalStamp,
    message: String,
    committer_name: String,
    committer_email: String,
}

impl From<&Commit> for CommitJson {
    fn from(commit: &Commit) -> Self {
        Self {
            id: commit.id.to_string(),
            short_id: commit.short_id(),
            title: commit.title(),
            author_name: commit.author.name.clone(),
            author_email: commit.author.email.clone(),
            created_at: LocalStamp::from(&commit.committer),
            message: commit.message.clone(),
            committer_name: commit.committer.name.clone(),
            committer_email: commit.committer.email.clone(),
        }
    }
}

/// A commit in full.
#[derive(Serialize, JsonSchema)]
struct CommitDetailJson {
    #[serde(flatten)]
    commit: CommitJson,
    parent_ids: Vec<String>,
    committed_date: LocalStamp,
    authored_date: LocalStamp,
    stats: StatsJson,
    /// How its newest pipeline stands.
    status: Option<&'static str>,
}

impl From<CommitDetail> for CommitDetailJson {
    fn from(detail: CommitDetail) -> Self {
        let CommitDetail { commit, stats, status } = detail;
        let (additions, deletions) = (stats.additions, stats.deletions);
        Self {
            parent_ids: ids(&commit.parents),
            committed_date: LocalStamp::from(&commit.committer),
            authored_date: LocalStamp::from(&commit.author),
            stats: StatsJson { additions, deletions, total: additions + deletions },
            status: status.map(Status::word),
            commit: CommitJson::from(&commit),
        }
    }
}

/// How many lines a commit changes.
#[derive(Serialize, JsonSchema)]
struct StatsJson {
    additions: usize,
    deletions: usize,
    total: usize,
}

/// How a file differs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiffJson {
    old_path: String,
    new_path: String,
    a_mode: String,
    b_mode: String,
    diff: String,
    new_file: bool,
    renamed_file: bool,
    deleted_file: bool,
}

impl From<FileDiff> for DiffJson {
    fn from(file: FileDiff) -> Self {
        let mode = |mode: Option<u16>| format!("{:o}", mode.unwrap_or_default());
        Self {
            a_mode: mode(file.old_mode),
            b_mode: mode(file.new_mode),
            new_file: file.old_mode.is_none(),
            renamed_file: file.renamed,
            deleted_file: file.new_mode.is_none(),
            old_path: file.old_path,
            new_path: file.new_path,
            diff: file.diff,
        }
    }
}

/// How a file differs by one commit.
#[derive(Serialize, JsonSchema)]
struct CommitDiffJson {
    #[serde(flatten)]
    diff: DiffJson,
    too_large: bool,
}

impl From<FileDiff> for CommitDiffJson {
    fn from(file: FileDiff) -> Self {
        Self { too_large: file.too_large, diff: file.into() }
    }
}

/// The names of objects.
pub(crate) fn ids(objects: &[Oid]) -> Vec<String> {
    objects.iter().map(Oid::to_string).collect()
}
