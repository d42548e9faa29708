//! Pipelines of a project.

use axum::extract::State;
use forge::{
    Forge,
    pipelines::{self, Retried},
};
use model::{Oid, Pipeline, Status, pipelines::PipelineScope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::users::UserSummaryJson;
use crate::{
    App,
    extract::{Credentials, InProject, PipelineNumber},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

const SCOPES: [(&str, PipelineScope); 3] =
    [("running", PipelineScope::Running), ("branches", PipelineScope::Branches), ("tags", PipelineScope::Tags)];

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/pipelines", "Lists the pipelines of a project, the newest first", list)
        .get("/projects/{id}/pipelines/{pipeline_id}", "Shows a pipeline", get)
        .post("/projects/{id}/pipeline", "Starts a pipeline for a branch or a tag", create)
        .post("/projects/{id}/pipelines/{pipeline_id}/retry", "Tries again what failed or was canceled", retry)
        .post("/projects/{id}/pipelines/{pipeline_id}/cancel", "Cancels what has not ended", cancel)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ListPipelines>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<PipelineJson>> {
    let (scope, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| pipelines::list(tx, &project, &scope, &page)).await?;
    Ok(paging.answer(found.map(|pipeline| PipelineJson::new(pipeline, &site))))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    PipelineNumber(id): PipelineNumber,
    site: Site,
) -> Reply<Done<PipelineJson>> {
    let pipeline = forge.read(caller, move |tx| pipelines::get(tx, &project, &id)).await?;
    Ok(Done(PipelineJson::new(pipeline, &site)))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreatePipeline>,
    site: Site,
) -> Reply<Created<PipelineJson>> {
    let pipeline = pipelines::create(&forge, caller, project, given.map(|given| given.0)).await?;
    Ok(Created(PipelineJson::new(pipeline, &site)))
}

async fn retry(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    PipelineNumber(id): PipelineNumber,
    site: Site,
) -> Reply<Created<PipelineJson>> {
    let Retried { mut pipeline, again } = forge.write(caller, move |tx| pipelines::retry(tx, &project, &id)).await?;
    if again && app.dialect().calls_retried_pipelines_pending() {
        pipeline.status = Status::Pending;
    }
    Ok(Created(PipelineJson::new(pipeline, &site)))
}

async fn cancel(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    PipelineNumber(id): PipelineNumber,
    site: Site,
) -> Reply<Done<PipelineJson>> {
    let pipeline = pipelines::cancel(&forge, caller, project, id).await?;
    Ok(Done(PipelineJson::new(pipeline, &site)))
}

struct ListPipelines(PipelineScope);

impl FromParams for ListPipelines {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let scope = from.choice("scope", &SCOPES, "Those that wait or run, or the newest of each branch or each tag");
        Self(scope.unwrap_or_default())
    }
}

struct CreatePipeline(String);

impl FromParams for CreatePipeline {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text("ref", "The branch or the tag; its full name, or of a branch and a tag the branch"))
    }
}

/// What is made of a commit.
#[derive(Serialize, JsonSchema)]
struct PipelineJson {
    id: i64,
    sha: String,
    #[serde(rename = "ref")]
    ref_name: String,
    #[schemars(with = "StateJson")]
    status: &'static str,
    before_sha: String,
    tag: bool,
    yaml_errors: Option<String>,
    user: Option<UserSummaryJson>,
    created_at: Stamp,
    updated_at: Stamp,
    started_at: Option<Stamp>,
    finished_at: Option<Stamp>,
    /// Always null, as with the original.
    committed_at: Option<Stamp>,
    duration: Option<i64>,
    coverage: Option<String>,
}

/// How a pipeline stands.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the words for the document")]
enum StateJson {
    Created,
    Pending,
    Running,
    Success,
    Failed,
    Canceled,
    Skipped,
}

impl PipelineJson {
    fn new(pipeline: Pipeline, site: &Site) -> Self {
        Self {
            id: pipeline.id,
            sha: pipeline.sha.to_string(),
            ref_name: pipeline.ref_name,
            status: pipeline.status.word(),
            before_sha: pipeline.before_sha.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string()),
            tag: pipeline.tag,
            yaml_errors: pipeline.yaml_errors,
            user: pipeline.user.map(|user| UserSummaryJson::new(user, site)),
            created_at: Stamp(pipeline.created_at),
            updated_at: Stamp(pipeline.updated_at),
            started_at: pipeline.started_at.map(Stamp),
            finished_at: pipeline.finished_at.map(Stamp),
            committed_at: None,
            duration: pipeline.duration,
            coverage: pipeline.coverage.map(|share| format!("{share:.2}")),
        }
    }
}
