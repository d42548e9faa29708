//! E-mail addresses of users.

use axum::extract::State;
use forge::{Error, Forge, emails};
use model::Email;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    error::ApiError,
    extract::{Numbers, Showing},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply},
    routes::Routes,
};

pub(super) fn routes() -> Routes {
    Routes::new()
        .get("/user/emails", "Lists the caller's further addresses", list_own)
        .post("/user/emails", "Adds an address to the caller's", create_own)
        .get("/user/emails/{id}", "Shows one of the caller's further addresses", get_own)
        .delete("/user/emails/{id}", "Removes one of the caller's further addresses", delete_own)
        .get("/users/{uid}/emails", "Lists a user's further addresses; administrators only", list)
        .post("/users/{uid}/emails", "Adds an address to a user's; administrators only", create)
        .delete("/users/{uid}/emails/{id}", "Removes a further address of a user; administrators only", delete)
}

async fn list_own(State(forge): State<Forge>, Showing(caller): Showing, paging: Paging) -> Reply<Paged<EmailJson>> {
    let page = paging.of_short_list();
    let emails = forge.read(caller, move |it| emails::list_own(it, &page)).await?;
    Ok(paging.answer(emails.map(EmailJson::from)))
}

async fn list(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([user]): Numbers<1>,
    paging: Paging,
) -> Reply<Paged<EmailJson>> {
    let page = paging.of_short_list();
    let emails = forge.read(caller, move |it| emails::list(it, user, &page)).await?;
    Ok(paging.answer(emails.map(EmailJson::from)))
}

async fn get_own(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<EmailJson>> {
    let email = forge.peek(caller, move |it| emails::get_own(it, id)).await?;
    Ok(Done(email.into()))
}

async fn create_own(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Params(given): Params<CreateEmail>,
) -> Reply<Created<EmailJson>> {
    let email = given.map(|given| given.email);
    let email = forge.write(caller, move |it| emails::create_own(it, &email)).await?;
    Ok(Created(email.into()))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([user]): Numbers<1>,
    Params(given): Params<CreateEmail>,
) -> Reply<Created<EmailJson>> {
    let email = given.map(|given| given.email);
    let email = forge.write(caller, move |it| emails::create(it, user, &email)).await;
    let email = email.map_err(|error| match error {
        invalid @ Error::Invalid(_) => ApiError::Under(app.dialect().addition_to_user_refused(), invalid),
        other => other.into(),
    })?;
    Ok(Created(email.into()))
}

async fn delete_own(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<Option<EmailJson>>> {
    let email = forge.write(caller, move |it| emails::delete_own(it, id)).await?;
    Ok(Done(email.map(EmailJson::from)))
}

async fn delete(
    State(forge): State<Forge>,
    Showing(caller): Showing,
    Numbers([user, id]): Numbers<2>,
) -> Reply<Done<EmailJson>> {
    let email = forge.write(caller, move |it| emails::delete(it, user, id)).await?;
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
