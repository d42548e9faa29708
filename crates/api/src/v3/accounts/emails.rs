//! Email addresses of users.

use axum::extract::State;
use forge::{Error, emails};
use model::{Email, EmailId, UserId};
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
    reply::{Created, OkJson, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Emails)
        .get("/user/emails", "List the secondary email addresses of the current user", list_own)
        .post("/user/emails", "Add an email address to the current user", create_own)
        .get("/user/emails/{id}", "Get a secondary email address of the current user", get_own)
        .delete("/user/emails/{id}", "Delete a secondary email address of the current user", delete_own)
        .get("/users/{uid}/emails", "List the secondary email addresses of a user; administrators only", list)
        .post("/users/{uid}/emails", "Add an email address to a user; administrators only", create)
        .delete("/users/{uid}/emails/{id}", "Delete a secondary email address of a user; administrators only", delete)
}

async fn list_own(cx: CallerCx, paging: Paging) -> Reply<Paged<EmailJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx| {
        let found = emails::list_own(tx, &page)?;
        Ok(paging.reply(found, EmailJson::from))
    });
    Ok(reply.await?)
}

async fn list(cx: CallerCx, IdsInPath(user): IdsInPath<UserId>, paging: Paging) -> Reply<Paged<EmailJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx| {
        let found = emails::list(tx, user, &page)?;
        Ok(paging.reply(found, EmailJson::from))
    });
    Ok(reply.await?)
}

async fn get_own(cx: CallerCx, IdsInPath(id): IdsInPath<EmailId>) -> Reply<OkJson<EmailJson>> {
    let email = cx.read_inline(move |tx| emails::get_own(tx, id)).await?;
    Ok(OkJson(email.into()))
}

async fn create_own(cx: CallerCx, Params(params): Params<CreateEmail>) -> Reply<Created<EmailJson>> {
    let email = params.map(|params| params.email);
    let email = cx.write(move |tx| emails::create_own(tx, &email)).await?;
    Ok(Created(email.into()))
}

async fn create(
    State(app): State<App>,
    cx: CallerCx,
    IdsInPath(user): IdsInPath<UserId>,
    Params(params): Params<CreateEmail>,
) -> Reply<Created<EmailJson>> {
    let email = params.map(|params| params.email);
    let email = cx.write(move |tx| emails::create(tx, user, &email)).await;
    let email = email.map_err(|error| match error {
        invalid @ Error::Invalid(_) => ApiError::OverrideStatus(app.dialect().user_addition_refused_status(), invalid),
        other => other.into(),
    })?;
    Ok(Created(email.into()))
}

async fn delete_own(cx: CallerCx, IdsInPath(id): IdsInPath<EmailId>) -> Reply<OkJson<Option<EmailJson>>> {
    let email = cx.write(move |tx| emails::delete_own(tx, id)).await?;
    Ok(OkJson(email.map(EmailJson::from)))
}

async fn delete(cx: CallerCx, IdsInPath((user, id)): IdsInPath<(UserId, EmailId)>) -> Reply<OkJson<EmailJson>> {
    let email = cx.write(move |tx| emails::delete(tx, user, id)).await?;
    Ok(OkJson(email.into()))
}

struct CreateEmail {
    email: String,
}

impl FromParams for CreateEmail {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self { email: from.required_text("email", "The email address") }
    }
}

/// A secondary email address.
#[derive(Serialize, JsonSchema)]
struct EmailJson {
    id: i64,
    email: String,
}

impl From<Email> for EmailJson {
    fn from(email: Email) -> Self {
        Self { id: email.id.get(), email: email.email }
    }
}
