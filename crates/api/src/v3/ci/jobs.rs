//! Jobs of a project. Version 3 calls jobs builds, in its routes and its JSON.

use forge::jobs::{self, JobDetail};
use model::{Job, Status, runners::RunnerSummary};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::{BuildIdInPath, RevisionInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::{commits::CommitJson, users::UserJson},
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Builds)
        .get("/projects/{id}/builds", "List the builds of a project, newest first", list)
        .get("/projects/{id}/repository/commits/{sha}/builds", "List the builds of a commit, newest first", of_commit)
        .get("/projects/{id}/builds/{build_id}", "Get a build", get)
        .post("/projects/{id}/builds/{build_id}/cancel", "Cancel a build", cancel)
        .post("/projects/{id}/builds/{build_id}/retry", "Retry a build", retry)
        .post("/projects/{id}/builds/{build_id}/play", "Start a manual build", play)
}

async fn list(
    cx: ProjectCx,
    Params(params): Params<ListBuilds>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<BuildJson>> {
    let scope = params.map(|params| params.0);
    let reply = cx.read_list(move |tx, project| {
        let found = jobs::list(tx, project, &scope, &paging.page)?;
        Ok(paging.reply(found, |job| BuildJson::new(job, &site)))
    });
    Ok(reply.await?)
}

async fn of_commit(
    cx: ProjectCx,
    RevisionInPath(revision): RevisionInPath,
    Params(params): Params<ListBuilds>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<BuildJson>> {
    let scope = params.map(|params| params.0);
    let reply = cx.read(move |tx, project| {
        let found = jobs::of_commit(tx, project, &revision, &scope, &paging.page)?;
        Ok(paging.reply(found, |job| BuildJson::new(job, &site)))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, BuildIdInPath(id): BuildIdInPath, site: Site) -> Reply<OkJson<BuildJson>> {
    let job = cx.read(move |tx, project| jobs::get(tx, project, &id)).await?;
    Ok(OkJson(BuildJson::new(job, &site)))
}

async fn cancel(
    ProjectCx { forge, caller, project }: ProjectCx,
    BuildIdInPath(id): BuildIdInPath,
    site: Site,
) -> Reply<Created<BuildJson>> {
    let job = jobs::cancel(&forge, caller, project, id).await?;
    Ok(Created(BuildJson::new(job, &site)))
}

async fn retry(
    ProjectCx { forge, caller, project }: ProjectCx,
    BuildIdInPath(id): BuildIdInPath,
    site: Site,
) -> Reply<Created<BuildJson>> {
    let job = jobs::retry(&forge, caller, project, id).await?;
    Ok(Created(BuildJson::new(job, &site)))
}

async fn play(
    ProjectCx { forge, caller, project }: ProjectCx,
    BuildIdInPath(id): BuildIdInPath,
    site: Site,
) -> Reply<OkJson<BuildJson>> {
    let job = jobs::play(&forge, caller, project, id).await?;
    Ok(OkJson(BuildJson::new(job, &site)))
}

struct ListBuilds(Vec<Status>);

impl FromParams for ListBuilds {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let statuses = Status::ALL.map(|status| (status.as_str(), status));
        Self(from.choices("scope", &statuses, "Only builds with this status; scope[] for several"))
    }
}

/// A build.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BuildJson {
    id: i64,
    #[schemars(with = "StatusJson")]
    status: &'static str,
    stage: String,
    name: String,
    #[serde(rename = "ref")]
    ref_name: String,
    tag: bool,
    coverage: Option<f64>,
    allow_failure: bool,
    failure_reason: Option<String>,
    created_at: TimestampJson,
    started_at: Option<TimestampJson>,
    finished_at: Option<TimestampJson>,
    /// The duration in seconds; up to now while the build is running.
    duration: Option<f64>,
    user: Option<UserJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts_file: Option<ArtifactsFileJson>,
    artifacts_expire_at: Option<TimestampJson>,
    erased_at: Option<TimestampJson>,
    /// Null if the commit no longer exists.
    commit: Option<CommitJson>,
    runner: Option<RunnerJson>,
    /// True if the build is pending and no runner can take it; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    stuck: Option<bool>,
    /// Why no runner can take the build; absent unless it is stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_reason: Option<String>,
    pipeline: PipelineSummaryJson,
}

/// The status of a build or a pipeline.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the values in the OpenAPI document")]
enum StatusJson {
    Created,
    Pending,
    Running,
    Success,
    Failed,
    Canceled,
    Skipped,
    Manual,
}

impl BuildJson {
    pub(crate) fn new(detail: JobDetail, site: &Site) -> Self {
        let JobDetail { job, commit, user, duration, pending_reason } = detail;
        let Job { id, pipeline, name, stage, status, allow_failure, coverage, failure_reason, .. } = job;
        let expires_at = job.artifacts.as_ref().and_then(|file| file.expires_at);
        Self {
            id: id.get(),
            status: status.as_str(),
            stage,
            name,
            ref_name: pipeline.ref_name.clone(),
            tag: pipeline.tag,
            coverage,
            allow_failure,
            failure_reason,
            created_at: TimestampJson(job.created_at),
            started_at: job.started_at.map(TimestampJson),
            finished_at: job.finished_at.map(TimestampJson),
            duration,
            user: user.map(|user| UserJson::new(user, site)),
            artifacts_file: job.artifacts.map(|file| ArtifactsFileJson { filename: file.name, size: file.size }),
            artifacts_expire_at: expires_at.map(TimestampJson),
            erased_at: job.erased_at.map(TimestampJson),
            commit: commit.as_ref().map(CommitJson::from),
            runner: job.runner.map(RunnerJson::from),
            stuck: pending_reason.is_some().then_some(true),
            pending_reason,
            pipeline: PipelineSummaryJson {
                id: pipeline.id.get(),
                sha: pipeline.sha.to_string(),
                ref_name: pipeline.ref_name,
                status: pipeline.status.as_str(),
            },
        }
    }
}

/// The artifacts of a build.
#[derive(Serialize, JsonSchema)]
struct ArtifactsFileJson {
    filename: String,
    /// The size in bytes.
    size: i64,
}

/// The runner of a build.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BuildRunnerJson")]
struct RunnerJson {
    id: i64,
    description: String,
    active: bool,
    is_shared: bool,
    name: Option<String>,
}

impl From<RunnerSummary> for RunnerJson {
    fn from(RunnerSummary { id, description, active, is_shared, name }: RunnerSummary) -> Self {
        Self { id: id.get(), description, active, is_shared, name }
    }
}

/// The summary of a pipeline.
#[derive(Serialize, JsonSchema)]
struct PipelineSummaryJson {
    id: i64,
    sha: String,
    #[serde(rename = "ref")]
    ref_name: String,
    #[schemars(with = "StatusJson")]
    status: &'static str,
}
