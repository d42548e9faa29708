//! SSH keys of users.

use axum::extract::State;
use forge::{
    Error,
    keys::{self, UnparsedKey},
};
use model::{Key, KeyId, UserId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::CallerCx,
    error::ApiError,
    extract::IdsInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::users::FullUserJson,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::SshKeys)
        .get("/user/keys", "List the SSH keys of the current user", list_own)
        .post("/user/keys", "Add an SSH key to the current user", create_own)
        .get("/user/keys/{id}", "Get an SSH key of the current user", get_own)
        .delete("/user/keys/{id}", "Delete an SSH key of the current user", delete_own)
        .get("/users/{uid}/keys", "List the SSH keys of a user; administrators only", list)
        .post("/users/{uid}/keys", "Add an SSH key to a user; administrators only", create)
        .delete("/users/{uid}/keys/{id}", "Delete an SSH key of a user; administrators only", delete)
        .get("/keys/{id}", "Get an SSH key with its user; administrators only", get)
}

async fn list_own(cx: CallerCx, paging: Paging) -> Reply<Paged<KeyJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx| {
        let found = keys::list_own(tx, &page)?;
        Ok(paging.reply(found, KeyJson::from))
    });
    Ok(reply.await?)
}

async fn list(cx: CallerCx, IdsInPath(user): IdsInPath<UserId>, paging: Paging) -> Reply<Paged<KeyJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx| {
        let found = keys::list(tx, user, &page)?;
        Ok(paging.reply(found, KeyJson::from))
    });
    Ok(reply.await?)
}

async fn get_own(cx: CallerCx, IdsInPath(id): IdsInPath<KeyId>) -> Reply<OkJson<KeyJson>> {
    let key = cx.read_inline(move |tx| keys::get_own(tx, id)).await?;
    Ok(OkJson(key.into()))
}

async fn get(cx: CallerCx, IdsInPath(id): IdsInPath<KeyId>, site: Site) -> Reply<OkJson<KeyWithUserJson>> {
    let (key, user) = cx.read_inline(move |tx| keys::get(tx, id)).await?;
    Ok(OkJson(KeyWithUserJson { key: key.into(), user: FullUserJson::new(user, &site) }))
}

async fn create_own(cx: CallerCx, Params(params): Params<CreateKey>) -> Reply<Created<KeyJson>> {
    let key = params.map(|params| params.0);
    let key = cx.write(move |tx| keys::create_own(tx, &key)).await?;
    Ok(Created(key.into()))
}

async fn create(
    State(app): State<App>,
    cx: CallerCx,
    IdsInPath(user): IdsInPath<UserId>,
    Params(params): Params<CreateKey>,
) -> Reply<Created<KeyJson>> {
    let key = params.map(|params| params.0);
    let key = cx.write(move |tx| keys::create(tx, user, &key)).await;
    let key = key.map_err(|error| match error {
        invalid @ Error::Invalid(_) => ApiError::OverrideStatus(app.dialect().user_addition_refused_status(), invalid),
        other => other.into(),
    })?;
    Ok(Created(key.into()))
}

async fn delete_own(cx: CallerCx, IdsInPath(id): IdsInPath<KeyId>) -> Reply<OkJson<Option<KeyJson>>> {
    let key = cx.write(move |tx| keys::delete_own(tx, id)).await?;
    Ok(OkJson(key.map(KeyJson::from)))
}

async fn delete(cx: CallerCx, IdsInPath((user, id)): IdsInPath<(UserId, KeyId)>) -> Reply<OkJson<KeyJson>> {
    let key = cx.write(move |tx| keys::delete(tx, user, id)).await?;
    Ok(OkJson(key.into()))
}

pub(crate) struct CreateKey(pub(crate) UnparsedKey);

impl FromParams for CreateKey {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("title", "The title of the key");
        let key = from.required_text("key", "The public key on one line: type, key data and comment");
        Self(UnparsedKey { title, key })
    }
}

/// An SSH key.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KeyJson {
    pub(crate) id: i64,
    pub(crate) title: String,
    pub(crate) key: String,
    pub(crate) created_at: TimestampJson,
}

impl From<Key> for KeyJson {
    fn from(key: Key) -> Self {
        Self { id: key.id.get(), title: key.title, key: key.key, created_at: TimestampJson(key.created_at) }
    }
}

/// An SSH key with its user.
#[derive(Serialize, JsonSchema)]
struct KeyWithUserJson {
    #[serde(flatten)]
    key: KeyJson,
    user: FullUserJson,
}
