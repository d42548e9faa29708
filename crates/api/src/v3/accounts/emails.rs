//! E-mail addresses of users.

use axum::extract::State;
use forge::{Error, Forge, emails};
use model::Email;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    error::ApiError,
    extract::{Credentials, Numbers},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/user/emails", "Lists the caller's further addresses", list_own)
        .post("/user/emails", "Adds an address to the caller's", create_own)
        .get("/user/emails/{id}", "Shows one of the caller's further addresses", get_own)
        .delete("/user/emails/{id}", "Removes one of the caller's further addresses", delete_own)
        .get("/users/{uid}/emails", "Lists a user's further addresses; administrators only", list)
        .post("/users/{uid}/emails", "Adds an address to a user's; administrators only", create)
        .delete("/users/{uid}/emails/{id}", "Removes a further address of a user; administrators only", delete)
}

async fn list_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    paging: Paging,
) -> Reply<Paged<EmailJson>> {
    let page = paging.of_short_list();
    let emails = forge.read(caller, move |tx| emails::list_own(tx, &page)).await?;
    Ok(paging.answer(emails.map(EmailJson::from)))
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([user]): Numbers<1>,
    paging: Paging,
) -> Reply<Paged<EmailJson>> {
    let page = paging.of_short_list();
    let emails = forge.read(caller, move |tx| emails::list(tx, user, &page)).await?;
    Ok(paging.answer(emails.map(EmailJson::from)))
}

async fn get_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<EmailJson>> {
    let email = forge.read_inline(caller, move |tx| emails::get_own(tx, id)).await?;
    Ok(Done(email.into()))
}

async fn create_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<CreateEmail>,
) -> Reply<Created<EmailJson>> {
    let email = given.map(|given| given.email);
    let email = forge.write(caller, move |tx| emails::create_own(tx, &email)).await?;
    Ok(Created(email.into()))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([user]): Numbers<1>,
    Params(given): Params<CreateEmail>,
) -> Reply<Created<EmailJson>> {
    let email = given.map(|given| given.email);
    let email = forge.write(caller, move |tx| emails::create(tx, user, &email)).await;
    let email = email.map_err(|error| match error {
        invalid @ Error::Invalid(_) => ApiError::Under(app.dialect().addition_to_user_refused(), invalid),
        other => other.into(),
    })?;
    Ok(Created(email.into()))
}

async fn delete_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<Option<EmailJson>>> {
    let email = forge.write(caller, move |tx| emails::delete_own(tx, id)).await?;
    Ok(Done(email.map(EmailJson::from)))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([user, id]): Numbers<2>,
) -> Reply<Done<EmailJson>> {
    let email = forge.write(caller, move |tx| emails::delete(tx, user, id)).await?;
    Ok(Done(email.into()))
}

struct CreateEmail {
    email: String,
}

impl FromParams for CreateEmail {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self { email: from.required_text("email", "The address") }
    }
}

/// A further address.
#[derive(Serialize, JsonSchema)]
struct EmailJson {
    id: i64,
    email: String,
}

impl From<Email> for EmailJson {
    fn from(email: Email) -> Self {
        Self { id: email.id, email: email.email }
    }
}
