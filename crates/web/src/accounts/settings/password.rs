//! The change of the password.

use askama::Template;
use axum::body::Body;
use forge::{
    Unvalidated,
    users::{self, OwnUserUpdate},
};
use model::users::UserChanges;

use super::{SettingsHead, current_password, done, frame, password_errors};
use crate::{
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    layout::Layout,
    response,
};

pub(crate) const PATH: &str = "/-/user_settings/password";

#[derive(Template)]
#[template(path = "accounts/settings/password.html")]
struct PasswordTemplate {
    layout: Layout,
    head: SettingsHead,
    username: String,
    form: Form,
}

/// Shows the form.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, &FormErrors::default()).await
}

async fn render(cx: &PageCx, errors: &FormErrors) -> PageResult {
    let (viewer, user) = cx.read(users::current).await?;
    let (layout, head) = frame(cx, viewer, PATH)?;
    let fields = vec![
        Field::password("current_password", "Current password", "current-password"),
        Field::password("password", "New password", "new-password").hint("8 to 128 characters."),
        Field::password("password_confirmation", "New password again", "new-password"),
    ];
    let template = PasswordTemplate { layout, head, username: user.username, form: Form::new(fields, errors) };
    response::page_with_status(errors.status(), &template)
}

/// Changes the password and ends all other sessions of the user.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let password = fields.get("password").to_owned();
    if password != fields.get("password_confirmation") {
        return render(&cx, &FormErrors::one("password_confirmation", "does not match the new password")).await;
    }
    let current_password = current_password(&cx, &fields)?;
    let update = OwnUserUpdate { changes: UserChanges::default(), password: Some(password), current_password };
    let update = Unvalidated::valid(update);
    let changed = match cx.run_blocking(move |cx| users::prepare_update_own(cx, &update)).await {
        Ok((_, prepared)) => cx.write(move |tx| users::update_own(tx, &prepared)).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Ok(done(PATH, "password")),
        Err(error) => render(&cx, &password_errors(&cx, error).await?).await,
    }
}
