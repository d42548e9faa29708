//! Trigger tokens, which start pipelines.

use std::collections::BTreeMap;

use forge::triggers::{self, TriggerDetail, TriggerPipeline, TriggeredPipeline};
use model::tokens::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::{RefInPath, TriggerTokenInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Triggers)
        .get("/projects/{id}/triggers", "List the triggers of a project", list)
        .post("/projects/{id}/triggers", "Create a trigger", create)
        .get("/projects/{id}/triggers/{token}", "Get a trigger", get)
        .delete("/projects/{id}/triggers/{token}", "Delete a trigger", delete)
        .post("/projects/{id}/trigger/builds", "Start a pipeline with a trigger token", start)
        .allow_anonymous()
        .post(
            "/projects/{id}/ref/{ref}/trigger/builds",
            "Start a pipeline for the branch or tag in the path with a trigger token",
            start_on_ref,
        )
        .allow_anonymous()
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<TriggerJson>> {
    let reply = cx.read_list(move |tx, project| {
        let found = triggers::list(tx, project, &paging.page)?;
        Ok(paging.reply(found, TriggerJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, TriggerTokenInPath(token): TriggerTokenInPath) -> Reply<OkJson<TriggerJson>> {
    let trigger = cx.read(move |tx, project| triggers::get(tx, project, &token)).await?;
    Ok(OkJson(trigger.into()))
}

async fn create(cx: ProjectCx) -> Reply<Created<TriggerJson>> {
    let trigger = cx.write(triggers::create).await?;
    Ok(Created(trigger.into()))
}

async fn delete(cx: ProjectCx, TriggerTokenInPath(token): TriggerTokenInPath) -> Reply<OkJson<TriggerJson>> {
    let trigger = cx.write(move |tx, project| triggers::delete(tx, project, &token)).await?;
    Ok(OkJson(trigger.into()))
}

async fn start(
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<TriggerPipelineParams>,
) -> Reply<Created<StartedJson>> {
    let started = triggers::start(&forge, &caller, project, params.map(|params| params.0)).await?;
    Ok(Created(started.into()))
}

async fn start_on_ref(
    ProjectCx { forge, caller, project }: ProjectCx,
    RefInPath(ref_name): RefInPath,
    Params(params): Params<TriggerPipelineOnRef>,
) -> Reply<Created<StartedJson>> {
    let params = params.map(|params| TriggerPipeline { ref_name, ..params.0 });
    let started = triggers::start(&forge, &caller, project, params).await?;
    Ok(Created(started.into()))
}

struct TriggerPipelineParams(TriggerPipeline);

impl FromParams for TriggerPipelineParams {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let ref_name = from.required_text("ref", "The branch or the tag");
        let TriggerPipelineOnRef(params) = TriggerPipelineOnRef::read(from);
        Self(TriggerPipeline { ref_name, ..params })
    }
}

/// The parameters without the branch or tag, which is part of the path.
struct TriggerPipelineOnRef(TriggerPipeline);

impl FromParams for TriggerPipelineOnRef {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let token = Secret::new(from.required_text("token", "The token of the trigger"));
        let variables = from.string_map("variables", "The variables of the builds, as variables[KEY]=value");
        Self(TriggerPipeline { token, ref_name: String::new(), variables })
    }
}

/// A trigger of a project.
#[derive(Serialize, JsonSchema)]
struct TriggerJson {
    token: String,
    created_at: TimestampJson,
    updated_at: TimestampJson,
    /// Always null: deleted triggers are not kept.
    deleted_at: Option<TimestampJson>,
    last_used: Option<TimestampJson>,
}

impl From<TriggerDetail> for TriggerJson {
    fn from(TriggerDetail { id: _, token, created_at, updated_at, last_used }: TriggerDetail) -> Self {
        Self {
            token: token.reveal().to_owned(),
            created_at: TimestampJson(created_at),
            updated_at: TimestampJson(updated_at),
            deleted_at: None,
            last_used: last_used.map(TimestampJson),
        }
    }
}

/// A pipeline started by a trigger.
#[derive(Serialize, JsonSchema)]
struct StartedJson {
    /// The ID of the pipeline.
    id: i64,
    variables: BTreeMap<String, String>,
}

impl From<TriggeredPipeline> for StartedJson {
    fn from(TriggeredPipeline { pipeline, variables }: TriggeredPipeline) -> Self {
        Self { id: pipeline.get(), variables }
    }
}
