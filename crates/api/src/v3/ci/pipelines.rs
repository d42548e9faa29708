//! Pipelines of a project.

use axum::extract::State;
use forge::pipelines::{self, Retried};
use model::{Oid, Pipeline, Status, pipelines::PipelineScope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::ProjectCx,
    extract::PipelineIdInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::users::UserSummaryJson,
};

const SCOPES: [(&str, PipelineScope); 3] =
    [("running", PipelineScope::Running), ("branches", PipelineScope::Branches), ("tags", PipelineScope::Tags)];

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Pipelines)
        .get("/projects/{id}/pipelines", "List the pipelines of a project, newest first", list)
        .get("/projects/{id}/pipelines/{pipeline_id}", "Get a pipeline", get)
        .post("/projects/{id}/pipeline", "Start a pipeline for a branch or a tag", create)
        .post(
            "/projects/{id}/pipelines/{pipeline_id}/retry",
            "Retry the failed and canceled builds of a pipeline",
            retry,
        )
        .post("/projects/{id}/pipelines/{pipeline_id}/cancel", "Cancel the builds of a pipeline", cancel)
}

async fn list(
    cx: ProjectCx,
    Params(params): Params<ListPipelines>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<PipelineJson>> {
    let scope = params.map(|params| params.0);
    let reply = cx.read_list(move |tx, project| {
        let found = pipelines::list(tx, project, &scope, &paging.page)?;
        Ok(paging.reply(found, |pipeline| PipelineJson::new(pipeline, &site)))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, PipelineIdInPath(id): PipelineIdInPath, site: Site) -> Reply<OkJson<PipelineJson>> {
    let pipeline = cx.read(move |tx, project| pipelines::get(tx, project, &id)).await?;
    Ok(OkJson(PipelineJson::new(pipeline, &site)))
}

async fn create(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<CreatePipeline>,
    site: Site,
) -> Reply<Created<PipelineJson>> {
    let pipeline = pipelines::create(&forge, caller, project, params.map(|params| params.0)).await?;
    Ok(Created(PipelineJson::new(pipeline, &site)))
}

async fn retry(
    State(app): State<App>,
    cx: ProjectCx,
    PipelineIdInPath(id): PipelineIdInPath,
    site: Site,
) -> Reply<Created<PipelineJson>> {
    let Retried { mut pipeline, any_retried } = cx.write(move |tx, project| pipelines::retry(tx, project, &id)).await?;
    if any_retried && app.dialect().reports_retried_pipelines_as_pending() {
        pipeline.status = Status::Pending;
    }
    Ok(Created(PipelineJson::new(pipeline, &site)))
}

async fn cancel(
    ProjectCx { forge, caller, project }: ProjectCx,
    PipelineIdInPath(id): PipelineIdInPath,
    site: Site,
) -> Reply<OkJson<PipelineJson>> {
    let pipeline = pipelines::cancel(&forge, caller, project, id).await?;
    Ok(OkJson(PipelineJson::new(pipeline, &site)))
}

struct ListPipelines(PipelineScope);

impl FromParams for ListPipelines {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let scope = from.choice(
            "scope",
            &SCOPES,
            "Only pending and running pipelines, or only the newest one of each branch or tag; default: all",
        );
        Self(scope.unwrap_or_default())
    }
}

struct CreatePipeline(String);

impl FromParams for CreatePipeline {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_text(
            "ref",
            "The full or short name of the branch or tag; a short name refers to the branch if both exist",
        ))
    }
}

/// A pipeline.
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
    created_at: TimestampJson,
    updated_at: TimestampJson,
    started_at: Option<TimestampJson>,
    finished_at: Option<TimestampJson>,
    /// Always null, as in GitLab.
    committed_at: Option<TimestampJson>,
    duration: Option<i64>,
    coverage: Option<String>,
}

/// The status of a pipeline.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the values in the OpenAPI document")]
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
            id: pipeline.id.get(),
            sha: pipeline.sha.to_string(),
            ref_name: pipeline.ref_name,
            status: pipeline.status.as_str(),
            before_sha: pipeline.before_sha.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string()),
            tag: pipeline.tag,
            yaml_errors: pipeline.yaml_errors,
            user: pipeline.user.map(|user| UserSummaryJson::new(user, site)),
            created_at: TimestampJson(pipeline.created_at),
            updated_at: TimestampJson(pipeline.updated_at),
            started_at: pipeline.started_at.map(TimestampJson),
            finished_at: pipeline.finished_at.map(TimestampJson),
            committed_at: None,
            duration: pipeline.duration,
            coverage: pipeline.coverage.map(|share| format!("{share:.2}")),
        }
    }
}
