//! Commits of a repository.

use forge::commits::{self, CommitAction, CommitDetail, CommitFilter, NewCommit};
use model::{Commit, Oid, Status, objects::FileDiff, page};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::RevisionInPath,
    openapi::Tag,
    params::{FromParams, ParamReader, Params},
    reply::{Created, LocalTimestampJson, OkJson, Reply},
    routes::Routes,
    v3::repository_files::{self, read_author},
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Commits)
        .get(
            "/projects/{id}/repository/commits",
            "List the commits of a branch or a tag, newest first; page numbers start at 0",
            list,
        )
        .post("/projects/{id}/repository/commits", "Create a commit that changes several files", create)
        .get("/projects/{id}/repository/commits/{sha}", "Get a commit", get)
        .get("/projects/{id}/repository/commits/{sha}/diff", "Get the diff of a commit", diff)
}

async fn list(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<ListCommits>,
) -> Reply<OkJson<Vec<CommitJson>>> {
    let commits = commits::list(&forge, caller, project, params.map(|params| params.0)).await?;
    Ok(OkJson(commits.iter().map(CommitJson::from).collect()))
}

async fn get(cx: ProjectCx, RevisionInPath(name): RevisionInPath) -> Reply<OkJson<CommitDetailJson>> {
    let commit = cx.run_blocking(move |cx, project| commits::get(cx, project, &name)).await?;
    Ok(OkJson(commit.into()))
}

async fn diff(cx: ProjectCx, RevisionInPath(name): RevisionInPath) -> Reply<OkJson<Vec<CommitDiffJson>>> {
    let diffs = cx.run_blocking(move |cx, project| commits::diff(cx, project, &name)).await?;
    Ok(OkJson(diffs.into_iter().map(CommitDiffJson::from).collect()))
}

async fn create(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<CreateCommit>,
) -> Reply<Created<CommitDetailJson>> {
    let commit = commits::create(&forge, caller, project, params.map(|params| params.0)).await?;
    Ok(Created(commit.into()))
}

struct ListCommits(CommitFilter);

impl FromParams for ListCommits {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let revision = from.text("ref_name", "The branch, tag or commit; default: the default branch");
        let path = from.text("path", "Only commits that change this path");
        let since = from.text("since", "Only commits at or after this time, in ISO 8601");
        let until = from.text("until", "Only commits at or before this time, in ISO 8601");
        // Unlike other endpoints: clients of GitLab count pages from 0 here.
        let number = from.integer_within("page", 0..=i64::from(i32::MAX), "The page number, starting at 0; default: 0");
        let size =
            from.integer_within("per_page", 0..=i64::MAX, "The number of items per page, at most 100; default: 20");
        let size = size.filter(|size| *size > 0).unwrap_or(page::DEFAULT_SIZE).min(page::MAX_SIZE);
        let limit = usize::try_from(size).unwrap_or_default();
        let skip = usize::try_from(number.unwrap_or_default()).unwrap_or(usize::MAX).saturating_mul(limit);
        Self(CommitFilter { revision, path, since, until, skip, limit })
    }
}

struct CreateCommit(NewCommit);

impl FromParams for CreateCommit {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let branch = from.required_text("branch_name", "The branch to commit to");
        let message = from.required_nonblank_text("commit_message", "The commit message");
        let actions = from.required_objects::<Action>("actions", "The changes, in order");
        let author = read_author(from);
        Self(NewCommit { branch, message, author, actions: actions.into_iter().map(|action| action.0).collect() })
    }
}

struct Action(CommitAction);

impl FromParams for Action {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let action = from.required_text("action", "The kind of change: create, update, delete or move");
        let path = from.text("file_path", "The path of the file");
        let previous_path = from.text("previous_path", "The old path of a moved file");
        let content = repository_files::read_content(from, false);
        Self(CommitAction { action, path, previous_path, content })
    }
}

/// The newest commit of a branch or a tag.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TipJson {
    id: String,
    message: String,
    parent_ids: Vec<String>,
    authored_date: LocalTimestampJson,
    author_name: String,
    author_email: String,
    committed_date: LocalTimestampJson,
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
            authored_date: LocalTimestampJson::from(&author),
            author_name: author.name,
            author_email: author.email,
            committed_date: LocalTimestampJson::from(&committer),
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
    created_at: LocalTimestampJson,
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
            created_at: LocalTimestampJson::from(&commit.committer),
            message: commit.message.clone(),
            committer_name: commit.committer.name.clone(),
            committer_email: commit.committer.email.clone(),
        }
    }
}

/// A commit with all its fields.
#[derive(Serialize, JsonSchema)]
struct CommitDetailJson {
    #[serde(flatten)]
    commit: CommitJson,
    parent_ids: Vec<String>,
    committed_date: LocalTimestampJson,
    authored_date: LocalTimestampJson,
    stats: StatsJson,
    /// The status of the newest pipeline of the commit.
    status: Option<&'static str>,
}

impl From<CommitDetail> for CommitDetailJson {
    fn from(detail: CommitDetail) -> Self {
        let CommitDetail { commit, stats, status } = detail;
        let (additions, deletions) = (stats.additions, stats.deletions);
        Self {
            parent_ids: ids(&commit.parents),
            committed_date: LocalTimestampJson::from(&commit.committer),
            authored_date: LocalTimestampJson::from(&commit.author),
            stats: StatsJson { additions, deletions, total: additions + deletions },
            status: status.map(Status::as_str),
            commit: CommitJson::from(&commit),
        }
    }
}

/// The numbers of changed lines.
#[derive(Serialize, JsonSchema)]
struct StatsJson {
    additions: usize,
    deletions: usize,
    total: usize,
}

/// The diff of a file.
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

/// The diff of a file in a commit.
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

/// Formats object IDs.
pub(crate) fn ids(objects: &[Oid]) -> Vec<String> {
    objects.iter().map(Oid::to_string).collect()
}
