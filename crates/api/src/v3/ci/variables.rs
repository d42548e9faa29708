//! CI variables of projects.

use forge::variables::{self, DecryptedVariable, NewVariable};
use model::tokens::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::VariableKeyInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Variables)
        .get("/projects/{id}/variables", "List the variables of a project", list)
        .post("/projects/{id}/variables", "Create a variable", create)
        .get("/projects/{id}/variables/{key}", "Get a variable", get)
        .put("/projects/{id}/variables/{key}", "Update a variable", update)
        .delete("/projects/{id}/variables/{key}", "Delete a variable", delete)
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<VariableJson>> {
    let reply = cx.read_list(move |tx, project| {
        let found = variables::list(tx, project, &paging.page)?;
        Ok(paging.reply(found, VariableJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, VariableKeyInPath(key): VariableKeyInPath) -> Reply<OkJson<VariableJson>> {
    let variable = cx.read(move |tx, project| variables::get(tx, project, &key)).await?;
    Ok(OkJson(variable.into()))
}

async fn create(cx: ProjectCx, Params(params): Params<CreateVariable>) -> Reply<Created<VariableJson>> {
    let text = params.map(|params| params.0);
    let variable = cx.write(move |tx, project| variables::create(tx, project, &text)).await?;
    Ok(Created(variable.into()))
}

async fn update(
    cx: ProjectCx,
    VariableKeyInPath(key): VariableKeyInPath,
    Params(params): Params<UpdateVariable>,
) -> Reply<OkJson<VariableJson>> {
    let value = params.map(|params| params.0);
    let variable = cx.write(move |tx, project| variables::update(tx, project, &key, &value)).await?;
    Ok(OkJson(variable.into()))
}

async fn delete(cx: ProjectCx, VariableKeyInPath(key): VariableKeyInPath) -> Reply<OkJson<VariableJson>> {
    let variable = cx.write(move |tx, project| variables::delete(tx, project, &key)).await?;
    Ok(OkJson(variable.into()))
}

struct CreateVariable(NewVariable);

impl FromParams for CreateVariable {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let key = from.required_text("key", "The key: letters, digits and underscores");
        let value = from.required_text("value", "The value");
        Self(NewVariable { key, value: Secret::new(value) })
    }
}

struct UpdateVariable(Option<Secret>);

impl FromParams for UpdateVariable {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.text("value", "The new value; default: the current value").map(Secret::new))
    }
}

/// A variable of a project.
#[derive(Serialize, JsonSchema)]
struct VariableJson {
    key: String,
    /// Null if the value was encrypted with another instance key; a new value can be set.
    value: Option<String>,
}

impl From<DecryptedVariable> for VariableJson {
    fn from(DecryptedVariable { key, value }: DecryptedVariable) -> Self {
        Self { key, value: value.map(|value| value.reveal().to_owned()) }
    }
}
