//! One user, as administrators see and change them.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Unvalidated, WriteTx,
    users::{self, UserUpdate},
};
use model::{
    Change, User, UserId, UserState,
    users::{MAX_TEXT_LENGTH, UserChanges},
};

use super::{AdminHead, done, enter, form, frame, users::PATH};
use crate::{
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    links, response, text,
};

#[derive(Template)]
#[template(path = "admin/user.html")]
struct UserTemplate {
    layout: Layout,
    head: AdminHead,
    user: User,
    url: String,
    is_own: bool,
    /// A refusal that belongs to no field of a form.
    refusal: Option<String>,
    form: Form,
    deletion: Form,
}

/// The forms of the page as they were typed, with the messages about them.
#[derive(Default)]
struct Refused {
    fields: Option<Fields>,
    errors: FormErrors,
    deletion_errors: FormErrors,
    refusal: Option<String>,
}

/// Shows a user.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, Refused::default(), StatusCode::OK).await
}

async fn render(cx: &PageCx, refused: Refused, status: StatusCode) -> PageResult {
    enter(cx).await?;
    let username = cx.params.get("username").to_owned();
    let (viewer, user) = cx.read(move |tx| users::id_of(tx, &username).and_then(|id| users::get(tx, id))).await?;
    let typed =
        |name: &str, stored: String| refused.fields.as_ref().map_or(stored, |fields| fields.get(name).to_owned());
    let is_checked =
        |name: &str, stored: bool| refused.fields.as_ref().map_or(stored, |fields| fields.get(name) == "1");
    let fields = vec![
        Field::text("name", "Name").value(typed("name", user.name.clone())).required().max_length(MAX_TEXT_LENGTH),
        Field::text("username", "Username")
            .value(typed("username", user.username.clone()))
            .required()
            .max_length(MAX_TEXT_LENGTH),
        Field::input("email", "Email address", "email").value(typed("email", user.email.clone())).required(),
        Field::input("projects_limit", "Maximum number of personal projects", "number")
            .value(typed("projects_limit", user.projects_limit.to_string()))
            .required(),
        Field::checkbox("admin", "Administrator", is_checked("admin", user.admin)),
        Field::checkbox(
            "external",
            "External: sees no internal projects, creates none",
            is_checked("external", user.external),
        ),
        Field::checkbox("can_create_group", "May create groups", is_checked("can_create_group", user.can_create_group)),
        Field::input("password", "New password", "password")
            .autocomplete("new-password")
            .hint("Empty keeps the password. A new one ends all sessions of the user."),
    ];
    let confirmation = Field::text("confirmation", "Type the username to confirm").required().autocomplete("off");
    let is_own = viewer.user().is_some_and(|viewer| viewer.id == user.id);
    let (layout, head) = frame(cx, viewer, PATH, &user.username)?;
    let template = UserTemplate {
        layout,
        head,
        url: user_path(&user.username),
        is_own,
        user,
        refusal: refused.refusal,
        form: Form::new(fields, &refused.errors),
        deletion: Form::new(vec![confirmation], &refused.deletion_errors),
    };
    response::page_with_status(status, &template)
}

fn user_path(username: &str) -> String {
    format!("{PATH}/{}", links::encode_path(username))
}

/// Returns the ID of the user in the path.
async fn id(cx: &PageCx) -> forge::Result<UserId> {
    let username = cx.params.get("username").to_owned();
    cx.read(move |tx| users::id_of(tx, &username)).await.map(|(_, id)| id)
}

/// Changes a user.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let fields = form(&cx, body).await?;
    let id = id(&cx).await?;
    let refuse = async |fields: Fields, errors: FormErrors| {
        let refused = Refused { fields: Some(fields), errors, ..Refused::default() };
        render(&cx, refused, StatusCode::UNPROCESSABLE_ENTITY).await
    };
    let Ok(projects_limit) = fields.get("projects_limit").trim().parse() else {
        return refuse(fields, FormErrors::one("projects_limit", "is not a number")).await;
    };
    let text = |name: &str| Change::Set(fields.text(name));
    let flag = |name: &str| Change::Set(fields.get(name) == "1");
    let changes = UserChanges {
        name: text("name"),
        username: text("username"),
        email: text("email"),
        admin: flag("admin"),
        external: flag("external"),
        can_create_group: flag("can_create_group"),
        projects_limit: Change::Set(projects_limit),
        ..UserChanges::default()
    };
    let password = Some(fields.get("password").to_owned()).filter(|password| !password.is_empty());
    let update = Unvalidated::valid(UserUpdate { changes, password });
    let changed = match cx.run_blocking(move |cx| users::prepare_update(cx, id, &update)).await {
        Ok((_, prepared)) => cx.write(move |tx| users::update(tx, id, &prepared)).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(user) => Ok(done(&user_path(&user.username), "saved")),
        Err(error) => refuse(fields, FormErrors::by_field(error)?).await,
    }
}

/// Blocks a user.
pub(crate) async fn block(cx: PageCx, body: Body) -> PageResult {
    change_state(&cx, body, users::block, "blocked").await
}

/// Unblocks a user.
pub(crate) async fn unblock(cx: PageCx, body: Body) -> PageResult {
    change_state(&cx, body, users::unblock, "unblocked").await
}

async fn change_state(
    cx: &PageCx,
    body: Body,
    change: fn(&mut WriteTx<'_>, UserId) -> forge::Result<()>,
    what: &str,
) -> PageResult {
    form(cx, body).await?;
    let id = id(cx).await?;
    match cx.write(move |tx| change(tx, id)).await {
        Ok(()) => Ok(done(&user_path(cx.params.get("username")), what)),
        Err(error) => {
            let refusal = FormErrors::of(error, &[])?.others().first().cloned();
            render(cx, Refused { refusal, ..Refused::default() }, StatusCode::UNPROCESSABLE_ENTITY).await
        }
    }
}

/// Deletes a user with their personal projects, if the username was typed.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = form(&cx, body).await?;
    let id = id(&cx).await?;
    let refuse = async |deletion_errors: FormErrors| {
        let refused = Refused { deletion_errors, ..Refused::default() };
        render(&cx, refused, StatusCode::UNPROCESSABLE_ENTITY).await
    };
    if fields.get("confirmation").trim() != cx.params.get("username") {
        return refuse(FormErrors::one("confirmation", "is not the username")).await;
    }
    match cx.write(move |tx| users::delete(tx, id)).await {
        Ok(_) => Ok(done(PATH, "deleted")),
        Err(error) => refuse(FormErrors::by_field(error)?).await,
    }
}
