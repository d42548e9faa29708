//! Triggers: tokens with which others start pipelines.

use std::collections::BTreeMap;

use axum::extract::State;
use forge::{
    Forge,
    triggers::{self, Call, ShownTrigger, Started},
};
use model::tokens::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    extract::{Credentials, InProject, RefInPath, TriggerToken},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/triggers", "Lists the triggers of a project", list)
        .post("/projects/{id}/triggers", "Adds a trigger to a project", create)
        .get("/projects/{id}/triggers/{token}", "Shows a trigger of a project", get)
        .delete("/projects/{id}/triggers/{token}", "Removes a trigger from a project", delete)
        .post("/projects/{id}/trigger/builds", "Starts a pipeline for whoever shows the token of a trigger", start)
        .open()
        .post(
            "/projects/{id}/ref/{ref}/trigger/builds",
            "Starts a pipeline on this branch or tag for whoever shows the token of a trigger",
            start_on,
        )
        .open()
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<TriggerJson>> {
    let page = paging.page.clone();
    let found = forge.read(caller, move |tx| triggers::list(tx, &project, &page)).await?;
    Ok(paging.answer(found.map(TriggerJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    TriggerToken(token): TriggerToken,
) -> Reply<Done<TriggerJson>> {
    let trigger = forge.read(caller, move |tx| triggers::get(tx, &project, &token)).await?;
    Ok(Done(trigger.into()))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
) -> Reply<Created<TriggerJson>> {
    let trigger = forge.write(caller, move |tx| triggers::create(tx, &project)).await?;
    Ok(Created(trigger.into()))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    TriggerToken(token): TriggerToken,
) -> Reply<Done<TriggerJson>> {
    let trigger = forge.write(caller, move |tx| triggers::delete(tx, &project, &token)).await?;
    Ok(Done(trigger.into()))
}

async fn start(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<StartPipeline>,
) -> Reply<Created<StartedJson>> {
    let started = triggers::start(&forge, &caller, project, given.map(|given| given.0)).await?;
    Ok(Created(started.into()))
}

async fn start_on(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    RefInPath(ref_name): RefInPath,
    Params(given): Params<StartPipelineOn>,
) -> Reply<Created<StartedJson>> {
    let call = given.map(|given| Call { ref_name, ..given.0 });
    let started = triggers::start(&forge, &caller, project, call).await?;
    Ok(Created(started.into()))
}

struct StartPipeline(Call);

impl FromParams for StartPipeline {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let ref_name = from.required_text("ref", "The branch or the tag");
        let StartPipelineOn(call) = StartPipelineOn::read(from);
        Self(Call { ref_name, ..call })
    }
}

/// The same where the path says on which branch or tag.
struct StartPipelineOn(Call);

impl FromParams for StartPipelineOn {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let token = Secret::new(from.required_text("token", "The token of the trigger"));
        let variables = from.texts_by_name("variables", "What the builds shall know, as variables[KEY]=text");
        Self(Call { token, ref_name: String::new(), variables })
    }
}

/// A trigger of a project.
#[derive(Serialize, JsonSchema)]
struct TriggerJson {
    token: String,
    created_at: Stamp,
    updated_at: Stamp,
    /// Always null: what is removed is gone.
    deleted_at: Option<Stamp>,
    last_used: Option<Stamp>,
}

impl From<ShownTrigger> for TriggerJson {
    fn from(ShownTrigger { token, created_at, updated_at, last_used }: ShownTrigger) -> Self {
        Self {
            token: token.reveal().to_owned(),
            created_at: Stamp(created_at),
            updated_at: Stamp(updated_at),
            deleted_at: None,
            last_used: last_used.map(Stamp),
        }
    }
}

/// What a trigger has started.
#[derive(Serialize, JsonSchema)]
struct StartedJson {
    /// The number of the pipeline.
    id: i64,
    variables: BTreeMap<String, String>,
}

impl From<Started> for StartedJson {
    fn from(Started { pipeline, variables }: Started) -> Self {
        Self { id: pipeline, variables }
    }
}
