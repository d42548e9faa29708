//! Deploy keys of projects.

use forge::deploy_keys;
use model::DeployKey;

use crate::{
    context::ProjectCx,
    extract::KeyIdInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::Params,
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    v3::keys::{CreateKey, KeyJson},
};

/// Routes under both names of the resource: GitLab 8.14 has the first, its older clients use the second.
pub(crate) fn routes() -> Routes {
    Routes::new(Tag::DeployKeys)
        .get("/projects/{id}/deploy_keys", "List the deploy keys of a project", list)
        .post("/projects/{id}/deploy_keys", "Add a deploy key to a project", create)
        .get("/projects/{id}/deploy_keys/{key_id}", "Get a deploy key of a project", get)
        .delete("/projects/{id}/deploy_keys/{key_id}", "Remove a deploy key from a project", disable)
        .post(
            "/projects/{id}/deploy_keys/{key_id}/enable",
            "Enable a deploy key of another project for a project",
            enable,
        )
        .delete("/projects/{id}/deploy_keys/{key_id}/disable", "Disable a deploy key of a project", disable)
        .get("/projects/{id}/keys", "List the deploy keys of a project (older path)", list)
        .post("/projects/{id}/keys", "Add a deploy key to a project (older path)", create)
        .get("/projects/{id}/keys/{key_id}", "Get a deploy key of a project (older path)", get)
        .delete("/projects/{id}/keys/{key_id}", "Remove a deploy key from a project (older path)", disable)
        .post(
            "/projects/{id}/keys/{key_id}/enable",
            "Enable a deploy key of another project for a project (older path)",
            enable,
        )
        .delete("/projects/{id}/keys/{key_id}/disable", "Disable a deploy key of a project (older path)", disable)
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<KeyJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx, project| {
        let found = deploy_keys::list(tx, project, &page)?;
        Ok(paging.reply(found, KeyJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, KeyIdInPath(id): KeyIdInPath) -> Reply<OkJson<KeyJson>> {
    let key = cx.read(move |tx, project| deploy_keys::get(tx, project, &id)).await?;
    Ok(OkJson(key.into()))
}

async fn create(cx: ProjectCx, Params(params): Params<CreateKey>) -> Reply<Created<KeyJson>> {
    let key = params.map(|params| params.0);
    let key = cx.write(move |tx, project| deploy_keys::create(tx, project, &key)).await?;
    Ok(Created(key.into()))
}

async fn enable(cx: ProjectCx, KeyIdInPath(id): KeyIdInPath) -> Reply<Created<KeyJson>> {
    let key = cx.write(move |tx, project| deploy_keys::enable(tx, project, &id)).await?;
    Ok(Created(key.into()))
}

async fn disable(cx: ProjectCx, KeyIdInPath(id): KeyIdInPath) -> Reply<OkJson<KeyJson>> {
    let key = cx.write(move |tx, project| deploy_keys::disable(tx, project, &id)).await?;
    Ok(OkJson(key.into()))
}

impl From<DeployKey> for KeyJson {
    fn from(key: DeployKey) -> Self {
        Self { id: key.id.get(), title: key.title, key: key.key, created_at: TimestampJson(key.created_at) }
    }
}
