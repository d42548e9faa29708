//! Builds, as people see and steer them.

use axum::extract::State;
use forge::{
    Forge,
    builds::{self, BuildDetail},
};
use model::{Build, Status, runners::RunnerSummary};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::{commits::CommitJson, users::UserJson};
use crate::{
    extract::{BuildNumber, Credentials, InProject, Revision},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/builds", "Lists the builds of a project, newest first", list)
        .get("/projects/{id}/repository/commits/{sha}/builds", "Lists the builds of a commit, newest first", of_commit)
        .get("/projects/{id}/builds/{build_id}", "Shows a build", get)
        .post("/projects/{id}/builds/{build_id}/cancel", "Stops a build", cancel)
        .post("/projects/{id}/builds/{build_id}/retry", "Tries a build again", retry)
        .post("/projects/{id}/builds/{build_id}/play", "Starts a build that waits for somebody", play)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ListBuilds>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<BuildJson>> {
    let (scope, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| builds::list(tx, &project, &scope, &page)).await?;
    Ok(paging.answer(found.map(|build| BuildJson::new(build, &site))))
}

async fn of_commit(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(revision): Revision,
    Params(given): Params<ListBuilds>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<BuildJson>> {
    let (scope, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| builds::of_commit(tx, &project, &revision, &scope, &page)).await?;
    Ok(paging.answer(found.map(|build| BuildJson::new(build, &site))))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(id): BuildNumber,
    site: Site,
) -> Reply<Done<BuildJson>> {
    let build = forge.read(caller, move |tx| builds::get(tx, &project, &id)).await?;
    Ok(Done(BuildJson::new(build, &site)))
}

async fn cancel(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(id): BuildNumber,
    site: Site,
) -> Reply<Created<BuildJson>> {
    let build = builds::cancel(&forge, caller, project, id).await?;
    Ok(Created(BuildJson::new(build, &site)))
}

async fn retry(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(id): BuildNumber,
    site: Site,
) -> Reply<Created<BuildJson>> {
    let build = builds::retry(&forge, caller, project, id).await?;
    Ok(Created(BuildJson::new(build, &site)))
}

async fn play(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(id): BuildNumber,
    site: Site,
) -> Reply<Done<BuildJson>> {
    let build = builds::play(&forge, caller, project, id).await?;
    Ok(Done(BuildJson::new(build, &site)))
}

struct ListBuilds(Vec<Status>);

impl FromParams for ListBuilds {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let states = Status::ALL.map(|status| (status.word(), status));
        Self(from.choices("scope", &states, "Only those in this state; several states as scope[]"))
    }
}

/// A build with what it was made of.
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
    created_at: Stamp,
    started_at: Option<Stamp>,
    finished_at: Option<Stamp>,
    /// In seconds; up to now while it runs.
    duration: Option<f64>,
    user: Option<UserJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts_file: Option<ArtifactsFileJson>,
    artifacts_expire_at: Option<Stamp>,
    erased_at: Option<Stamp>,
    /// Null if the commit is not there any more.
    commit: Option<CommitJson>,
    runner: Option<RunnerJson>,
    /// True if it waits and no runner will take it as things are; left out else.
    #[serde(skip_serializing_if = "Option::is_none")]
    stuck: Option<bool>,
    /// Why no runner will take it; left out unless it is stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_reason: Option<String>,
    pipeline: PipelineSummaryJson,
}

/// The state of a build or a pipeline.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the words for the document")]
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
    pub(crate) fn new(detail: BuildDetail, site: &Site) -> Self {
        let BuildDetail { build, commit, user, duration, pending_reason } = detail;
        let Build { id, pipeline, name, stage, status, allow_failure, coverage, failure_reason, .. } = build;
        let expires_at = build.artifacts.as_ref().and_then(|file| file.expires_at);
        Self {
            id,
            status: status.word(),
            stage,
            name,
            ref_name: pipeline.ref_name.clone(),
            tag: pipeline.tag,
            coverage,
            allow_failure,
            failure_reason,
            created_at: Stamp(build.created_at),
            started_at: build.started_at.map(Stamp),
            finished_at: build.finished_at.map(Stamp),
            duration,
            user: user.map(|user| UserJson::new(user, site)),
            artifacts_file: build.artifacts.map(|file| ArtifactsFileJson { filename: file.name, size: file.size }),
            artifacts_expire_at: expires_at.map(Stamp),
            erased_at: build.erased_at.map(Stamp),
            commit: commit.as_ref().map(CommitJson::from),
            runner: build.runner.map(RunnerJson::from),
            stuck: pending_reason.is_some().then_some(true),
            pending_reason,
            pipeline: PipelineSummaryJson {
                id: pipeline.id,
                sha: pipeline.sha.to_string(),
                ref_name: pipeline.ref_name,
                status: pipeline.status.word(),
            },
        }
    }
}

/// What a build left behind.
#[derive(Serialize, JsonSchema)]
struct ArtifactsFileJson {
    filename: String,
    /// In bytes.
    size: i64,
}

/// Who runs a build.
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
        Self { id, description, active, is_shared, name }
    }
}

/// A pipeline in short.
#[derive(Serialize, JsonSchema)]
struct PipelineSummaryJson {
    id: i64,
    sha: String,
    #[serde(rename = "ref")]
    ref_name: String,
    #[schemars(with = "StatusJson")]
    status: &'static str,
}
