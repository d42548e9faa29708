//! The profile and the username.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Unvalidated,
    avatars::AvatarTarget,
    users::{self, OwnUserUpdate},
};
use model::{
    Change,
    users::{MAX_TEXT_LENGTH, UserChanges},
};

use super::{SettingsHead, done, frame};
use crate::{
    avatars::{self, AvatarSection},
    context::PageCx,
    error::PageResult,
    fields::{Field, Form},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    response,
};

pub(crate) const PATH: &str = "/-/user_settings/profile";

#[derive(Template)]
#[template(path = "accounts/settings/profile.html")]
struct ProfileTemplate {
    layout: Layout,
    head: SettingsHead,
    avatar: AvatarSection,
    profile: Form,
    username: Form,
}

/// A form as it was typed, with the messages about it.
type Refused = (Fields, FormErrors);

/// Shows the forms.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, None, None).await
}

async fn render(cx: &PageCx, profile: Option<Refused>, username: Option<Refused>) -> PageResult {
    render_with_avatar(cx, profile, username, &FormErrors::default()).await
}

async fn render_with_avatar(
    cx: &PageCx,
    profile: Option<Refused>,
    username: Option<Refused>,
    avatar_errors: &FormErrors,
) -> PageResult {
    let (viewer, user) = cx.read(users::current).await?;
    let is_refused = profile.is_some() || username.is_some() || !avatar_errors.is_empty();
    let (typed, errors) = profile.unwrap_or_default();
    let field = |name: &'static str, label: &'static str, stored: &str| {
        let value = typed.find(name).unwrap_or(stored).to_owned();
        Field::text(name, label).value(value).max_length(MAX_TEXT_LENGTH)
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let stored = &user.profile;
    let profile = Form::new(
        vec![
            field("name", "Name", &user.name).required().autocomplete("name"),
            field("bio", "About you", &text(&stored.bio)),
            field("organization", "Organization", &text(&stored.organization)).autocomplete("organization"),
            field("location", "Location", &text(&stored.location)),
            field("website_url", "Website", &stored.website_url)
                .autocomplete("url")
                .hint("Shown as a link if it starts with https:// or http://."),
            field("skype", "Skype", &stored.skype),
            field("linkedin", "LinkedIn", &stored.linkedin),
            field("twitter", "Twitter", &stored.twitter),
        ],
        &errors,
    );
    let (typed, errors) = username.unwrap_or_default();
    let name = typed.find("username").unwrap_or(&user.username).to_owned();
    let username = Field::text("username", "Username").value(name).required().max_length(MAX_TEXT_LENGTH);
    let hint = "The addresses of your page and of your personal projects change with it; the old ones stop working.";
    let (layout, head) = frame(cx, viewer, PATH)?;
    let image = Some(user.avatar_path());
    let template = ProfileTemplate {
        avatar: AvatarSection::new(format!("{PATH}/avatar"), image, user.avatar.is_some(), avatar_errors),
        layout,
        head,
        profile,
        username: Form::new(vec![username.hint(hint).autocomplete("username")], &errors),
    };
    let status = if is_refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    response::page_with_status(status, &template)
}

/// Changes the profile.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let text = |name: &str| Change::from_text(Some(fields.text(name)));
    let changes = UserChanges {
        name: Change::Set(fields.text("name")),
        bio: text("bio"),
        location: text("location"),
        skype: text("skype"),
        linkedin: text("linkedin"),
        twitter: text("twitter"),
        website_url: text("website_url"),
        organization: text("organization"),
        ..UserChanges::default()
    };
    match apply(&cx, changes).await {
        Ok(()) => Ok(done(PATH, "profile")),
        Err(error) => render(&cx, Some((fields, FormErrors::by_field(error)?)), None).await,
    }
}

/// Changes or removes the avatar.
pub(crate) async fn set_avatar(cx: PageCx, body: Body) -> PageResult {
    let errors = avatars::change(&cx, body, AvatarTarget::OwnAccount).await?;
    if errors.is_empty() { Ok(done(PATH, "avatar")) } else { render_with_avatar(&cx, None, None, &errors).await }
}

/// Changes the username.
pub(crate) async fn rename(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let changes = UserChanges { username: Change::Set(fields.text("username")), ..UserChanges::default() };
    match apply(&cx, changes).await {
        Ok(()) => Ok(done(PATH, "username")),
        Err(error) => render(&cx, None, Some((fields, FormErrors::by_field(error)?))).await,
    }
}

async fn apply(cx: &PageCx, changes: UserChanges) -> forge::Result<()> {
    let update = Unvalidated::valid(OwnUserUpdate { changes, password: None, current_password: None });
    let (_, prepared) = cx.run_blocking(move |cx| users::prepare_update_own(cx, &update)).await?;
    cx.write(move |tx| users::update_own(tx, &prepared)).await.map(drop)
}
