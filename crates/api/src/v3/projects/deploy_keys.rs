//! Keys that open projects to machines.

use axum::extract::State;
use forge::{Forge, deploy_keys};
use model::DeployKey;

use crate::v3::keys::{CreateKey, KeyJson};
use crate::{
    extract::{Credentials, InProject, KeyNumber},
    paging::{Paged, Paging},
    params::Params,
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
};

/// Both names of the resource: clients of the original use the one, its older clients the other.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/deploy_keys", "Lists the deploy keys of a project", list)
        .post("/projects/{id}/deploy_keys", "Adds a deploy key to a project", create)
        .get("/projects/{id}/deploy_keys/{key_id}", "Shows a deploy key of a project", get)
        .delete("/projects/{id}/deploy_keys/{key_id}", "Takes a deploy key from a project", disable)
        .post("/projects/{id}/deploy_keys/{key_id}/enable", "Lets a deploy key open another project", enable)
        .delete("/projects/{id}/deploy_keys/{key_id}/disable", "Takes a deploy key from a project", disable)
        .get("/projects/{id}/keys", "Lists the deploy keys of a project, by the older name", list)
        .post("/projects/{id}/keys", "Adds a deploy key to a project, by the older name", create)
        .get("/projects/{id}/keys/{key_id}", "Shows a deploy key of a project, by the older name", get)
        .delete("/projects/{id}/keys/{key_id}", "Takes a deploy key from a project, by the older name", disable)
        .post(
            "/projects/{id}/keys/{key_id}/enable",
            "Lets a deploy key open another project, by the older name",
            enable,
        )
        .delete("/projects/{id}/keys/{key_id}/disable", "Takes a deploy key from a project, by the older name", disable)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<KeyJson>> {
    let page = paging.of_short_list();
    let keys = forge.read(caller, move |tx| deploy_keys::list(tx, &project, &page)).await?;
    Ok(paging.answer(keys.map(KeyJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    KeyNumber(id): KeyNumber,
) -> Reply<Done<KeyJson>> {
    let key = forge.read(caller, move |tx| deploy_keys::get(tx, &project, &id)).await?;
    Ok(Done(key.into()))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreateKey>,
) -> Reply<Created<KeyJson>> {
    let key = given.map(|given| given.0);
    let key = forge.write(caller, move |tx| deploy_keys::create(tx, &project, &key)).await?;
    Ok(Created(key.into()))
}

async fn enable(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    KeyNumber(id): KeyNumber,
) -> Reply<Created<KeyJson>> {
    let key = forge.write(caller, move |tx| deploy_keys::enable(tx, &project, &id)).await?;
    Ok(Created(key.into()))
}

async fn disable(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    KeyNumber(id): KeyNumber,
) -> Reply<Done<KeyJson>> {
    let key = forge.write(caller, move |tx| deploy_keys::disable(tx, &project, &id)).await?;
    Ok(Done(key.into()))
}

impl From<DeployKey> for KeyJson {
    fn from(key: DeployKey) -> Self {
        Self { id: key.id, title: key.title, key: key.key, created_at: Stamp(key.created_at) }
    }
}
