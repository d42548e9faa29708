//! The email addresses of the user.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Unvalidated, emails,
    users::{self, OwnUserUpdate},
};
use model::{Change, Email, EmailId, Page, users::UserChanges};

use super::{SettingsHead, current_password, done, frame, password_errors};
use crate::{
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    paging::Pager,
    response, text,
};

pub(crate) const PATH: &str = "/-/user_settings/emails";

const EMAILS_PER_PAGE: i64 = 100;

#[derive(Template)]
#[template(path = "accounts/settings/emails.html")]
struct EmailsTemplate {
    layout: Layout,
    head: SettingsHead,
    primary: String,
    emails: Vec<Email>,
    pager: Pager,
    addition: Form,
    change: Form,
}

/// A form as it was typed, with the messages about it.
type Refused = (Fields, FormErrors);

/// Shows the addresses.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, None, None).await
}

async fn render(cx: &PageCx, addition: Option<Refused>, change: Option<Refused>) -> PageResult {
    let page = match cx.method {
        axum::http::Method::POST => Unvalidated::valid(Page { number: 1, size: EMAILS_PER_PAGE }),
        _ => crate::paging::requested(&cx.query(), EMAILS_PER_PAGE),
    };
    let (viewer, (user, found)) =
        cx.read(move |tx| emails::list_own(tx, &page).and_then(|found| Ok((users::current(tx)?, found)))).await?;
    let is_refused = addition.is_some() || change.is_some();
    let (layout, head) = frame(cx, viewer, PATH)?;
    let address = |name, label, (typed, _): &Refused| {
        let field = Field::input(name, label, "email").value(typed.get(name)).required().autocomplete("email");
        field.max_length(model::emails::MAX_LENGTH)
    };
    let (addition, change) = (addition.unwrap_or_default(), change.unwrap_or_default());
    let new_address = address("email", "New address", &addition);
    let primary = address("primary_email", "New primary address", &change)
        .hint("One of your addresses, or another one, which then replaces the current primary address.");
    let template = EmailsTemplate {
        layout,
        head,
        primary: user.email,
        pager: Pager::of(&cx.uri, &cx.query(), &found),
        emails: found.items,
        addition: Form::new(vec![new_address], &addition.1),
        change: Form::new(
            vec![primary, Field::password("current_password", "Current password", "current-password")],
            &change.1,
        ),
    };
    let status = if is_refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    response::page_with_status(status, &template)
}

/// Adds an address.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let email = Unvalidated::valid(fields.get("email").to_owned());
    match cx.write(move |tx| emails::create_own(tx, &email)).await {
        Ok(_) => Ok(done(PATH, "email-added")),
        Err(error) => render(&cx, Some((fields, FormErrors::by_field(error)?)), None).await,
    }
}

/// Changes the primary address, which needs the password.
pub(crate) async fn make_primary(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let current_password = current_password(&cx, &fields)?;
    let changes = UserChanges { email: Change::Set(fields.get("primary_email").to_owned()), ..UserChanges::default() };
    let update = Unvalidated::valid(OwnUserUpdate { changes, password: None, current_password });
    let changed = match cx.run_blocking(move |cx| users::prepare_update_own(cx, &update)).await {
        Ok((_, prepared)) => cx.write(move |tx| users::update_own(tx, &prepared)).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Ok(done(PATH, "email-primary")),
        Err(error) => {
            let errors = password_errors(&cx, error).await?.renamed("email", "primary_email");
            render(&cx, None, Some((fields, errors))).await
        }
    }
}

/// Removes an address.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let id = EmailId::new(cx.number("id")?);
    let deleted = cx.write(move |tx| emails::delete_own(tx, id)).await?;
    deleted.map(|_| done(PATH, "email-removed")).ok_or(StatusCode::NOT_FOUND.into())
}
