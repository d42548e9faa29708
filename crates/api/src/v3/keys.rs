//! SSH keys of users.

use axum::extract::State;
use forge::{
    Error, Forge,
    keys::{self, KeyText},
};
use model::Key;
use schemars::JsonSchema;
use serde::Serialize;

use super::users::FullUserJson;
use crate::{
    App,
    error::ApiError,
    extract::{Numbers, Showing},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(super) fn routes() -> Routes {
    Routes::new()
        .get("/user/keys", "Lists the caller's SSH keys", list_own)
        .post("/user/keys", "Adds an SSH key to the caller's", create_own)
        .get("/user/keys/{id}", "Shows one of the caller's SSH keys", get_own)
        .delete("/user/keys/{id}", "Removes one of the caller's SSH keys", delete_own)
        .get("/users/{uid}/keys", "Lists a user's SSH keys; administrators only", list)
        .post("/users/{uid}/keys", "Adds an SSH key to a user's; administrators only", create)
        .delete("/users/{uid}/keys/{id}", "Removes an SSH key of a user; administrators only", delete)
        .get("/keys/{id}", "Shows an SSH key and whose it is; administrators only", get)
}

async fn list_own(State(forge): State<Forge>, Showing(caller): Showing, paging: Paging) -> Reply<Paged<KeyJson>> {
    let page = paging.of_short_list();
    let keys = forge.read(caller, move |it| keys::list_own(it, &page)).await?;
    Ok(paging.answer(keys.map(KeyJson::from)))
}

async fn list(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([user]): Numbers<1>,
    paging: Paging,
) -> Reply<Paged<KeyJson>> {
    let page = paging.of_short_list();
    let keys = forge.read(caller, move |it| keys::list(it, user, &page)).await?;
    Ok(paging.answer(keys.map(KeyJson::from)))
}

async fn get_own(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<KeyJson>> {
    let key = forge.peek(caller, move |it| keys::get_own(it, id)).await?;
    Ok(Done(key.into()))
}

async fn get(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([id]): Numbers<1>,
    site: Site,
) -> Reply<Done<KeyWithUserJson>> {
    let (key, user) = forge.peek(caller, move |it| keys::get(it, id)).await?;
    Ok(Done(KeyWithUserJson { key: key.into(), user: FullUserJson::new(user, &site) }))
}

async fn create_own(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Params(given): Params<CreateKey>,
) -> Reply<Created<KeyJson>> {
    let key = given.map(|given| given.0);
    let key = forge.write(caller, move |it| keys::create_own(it, &key)).await?;
    Ok(Created(key.into()))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([user]): Numbers<1>,
    Params(given): Params<CreateKey>,
) -> Reply<Created<KeyJson>> {
    let key = given.map(|given| given.0);
    let key = forge.write(caller, move |it| keys::create(it, user, &key)).await;
    let key = key.map_err(|error| match error {
        invalid @ Error::Invalid(_) => ApiError::Under(app.dialect().addition_to_user_refused(), invalid),
        other => other.into(),
    })?;
    Ok(Created(key.into()))
}

async fn delete_own(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<Option<KeyJson>>> {
    let key = forge.write(caller, move |it| keys::delete_own(it, id)).await?;
    Ok(Done(key.map(KeyJson::from)))
}

async fn delete(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([user, id]): Numbers<2>,
) -> Reply<Done<KeyJson>> {
    let key = forge.write(caller, move |it| keys::delete(it, user, id)).await?;
    Ok(Done(key.into()))
}

pub(super) struct CreateKey(pub(super) KeyText);

impl FromParams for CreateKey {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("title", "What the key is called");
        let key = from.required_text("key", "Type, key material and comment on one line");
        Self(KeyText { title, key })
    }
}

/// An SSH key.
#[derive(Serialize, JsonSchema)]
pub(super) struct KeyJson {
    pub(super) id: i64,
    pub(super) title: String,
    pub(super) key: String,
    pub(super) created_at: Stamp,
}

impl From<Key> for KeyJson {
    fn from(key: Key) -> Self {
        Self { id: key.id, title: key.title, key: key.key, created_at: Stamp(key.created_at) }
    }
}

/// An SSH key and whose it is.
#[derive(Serialize, JsonSchema)]
struct KeyWithUserJson {
    #[serde(flatten)]
    key: KeyJson,
    user: FullUserJson,
}
