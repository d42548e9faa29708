//! Variables that a project gives its builds.

use axum::extract::State;
use forge::{
    Forge,
    variables::{self, ShownVariable, VariableText},
};
use model::tokens::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    extract::{Credentials, InProject, VariableKey},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/variables", "Lists the variables of a project", list)
        .post("/projects/{id}/variables", "Adds a variable to a project", create)
        .get("/projects/{id}/variables/{key}", "Shows a variable of a project", get)
        .put("/projects/{id}/variables/{key}", "Gives a variable another value", update)
        .delete("/projects/{id}/variables/{key}", "Removes a variable from a project", delete)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<VariableJson>> {
    let page = paging.page.clone();
    let found = forge.read(caller, move |tx| variables::list(tx, &project, &page)).await?;
    Ok(paging.answer(found.map(VariableJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    VariableKey(key): VariableKey,
) -> Reply<Done<VariableJson>> {
    let variable = forge.read(caller, move |tx| variables::get(tx, &project, &key)).await?;
    Ok(Done(variable.into()))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreateVariable>,
) -> Reply<Created<VariableJson>> {
    let text = given.map(|given| given.0);
    let variable = forge.write(caller, move |tx| variables::create(tx, &project, &text)).await?;
    Ok(Created(variable.into()))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    VariableKey(key): VariableKey,
    Params(given): Params<UpdateVariable>,
) -> Reply<Done<VariableJson>> {
    let value = given.map(|given| given.0);
    let variable = forge.write(caller, move |tx| variables::update(tx, &project, &key, &value)).await?;
    Ok(Done(variable.into()))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    VariableKey(key): VariableKey,
) -> Reply<Done<VariableJson>> {
    let variable = forge.write(caller, move |tx| variables::delete(tx, &project, &key)).await?;
    Ok(Done(variable.into()))
}

struct CreateVariable(VariableText);

impl FromParams for CreateVariable {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let key = from.required_text("key", "Its name: letters, digits and underscores");
        let value = from.required_text("value", "What it holds");
        Self(VariableText { key, value: Secret::new(value) })
    }
}

struct UpdateVariable(Option<Secret>);

impl FromParams for UpdateVariable {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.text("value", "What it holds from now on").map(Secret::new))
    }
}

/// A variable of a project.
#[derive(Serialize, JsonSchema)]
struct VariableJson {
    key: String,
    /// Null if it was sealed with another instance key; a new value can be set.
    value: Option<String>,
}

impl From<ShownVariable> for VariableJson {
    fn from(ShownVariable { key, value }: ShownVariable) -> Self {
        Self { key, value: value.map(|value| value.reveal().to_owned()) }
    }
}
