//! SSH keys of users.

use axum::extract::State;
use forge::{
    Error, Forge,
    keys::{self, KeyText},
};
use model::Key;
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::users::FullUserJson;
use crate::{
    App,
    error::ApiError,
    extract::{Credentials, Numbers},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
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

async fn list_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    paging: Paging,
) -> Reply<Paged<KeyJson>> {
    let page = paging.of_short_list();
    let keys = forge.read(caller, move |tx| keys::list_own(tx, &page)).await?;
    Ok(paging.answer(keys.map(KeyJson::from)))
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([user]): Numbers<1>,
    paging: Paging,
) -> Reply<Paged<KeyJson>> {
    let page = paging.of_short_list();
    let keys = forge.read(caller, move |tx| keys::list(tx, user, &page)).await?;
    Ok(paging.answer(keys.map(KeyJson::from)))
}

async fn get_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<KeyJson>> {
    let key = forge.read_inline(caller, move |tx| keys::get_own(tx, id)).await?;
    Ok(Done(key.into()))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
    site: Site,
) -> Reply<Done<KeyWithUserJson>> {
    let (key, user) = forge.read_inline(caller, move |tx| keys::get(tx, id)).await?;
    Ok(Done(KeyWithUserJson { key: key.into(), user: FullUserJson::new(user, &site) }))
}

async fn create_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<CreateKey>,
) -> Reply<Created<KeyJson>> {
    let key = given.map(|given| given.0);
    let key = forge.write(caller, move |tx| keys::create_own(tx, &key)).await?;
    Ok(Created(key.into()))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([user]): Numbers<1>,
    Params(given): Params<CreateKey>,
) -> Reply<Created<KeyJson>> {
    let key = given.map(|given| given.0);
    let key = forge.write(caller, move |tx| keys::create(tx, user, &key)).await;
    let key = key.map_err(|error| match error {
        invalid @ Error::Invalid(_) => ApiError::Under(app.dialect().addition_to_user_refused(), invalid),
        other => other.into(),
    })?;
    Ok(Created(key.into()))
}

async fn delete_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<Option<KeyJson>>> {
    let key = forge.write(caller, move |tx| keys::delete_own(tx, id)).await?;
    Ok(Done(key.map(KeyJson::from)))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([user, id]): Numbers<2>,
) -> Reply<Done<KeyJson>> {
    let key = forge.write(caller, move |tx| keys::delete(tx, user, id)).await?;
    Ok(Done(key.into()))
}

pub(crate) struct CreateKey(pub(crate) KeyText);

impl FromParams for CreateKey {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("title", "What the key is called");
        let key = from.required_text("key", "Type, key material and comment on one line");
        Self(KeyText { title, key })
    }
}

/// An SSH key.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KeyJson {
    pub(crate) id: i64,
    pub(crate) title: String,
    pub(crate) key: String,
    pub(crate) created_at: Stamp,
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
