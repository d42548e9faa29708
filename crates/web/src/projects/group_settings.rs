//! The settings of a group.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Unvalidated,
    avatars::AvatarTarget,
    group_pages::{self, InGroup},
    groups,
};
use model::{Change, Namespace, groups::GroupChanges};

use super::{
    group_head::{GroupHead, GroupTab},
    new::visibility,
};
use crate::{
    avatars::{self, AvatarSection},
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    links, response, text,
};

#[derive(Template)]
#[template(path = "projects/group_settings.html")]
struct GroupSettingsTemplate {
    layout: Layout,
    head: GroupHead,
    fields: Fields,
    errors: FormErrors,
    avatar: AvatarSection,
}

/// Shows the settings.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, None, FormErrors::default()).await
}

/// Changes the settings.
pub(crate) async fn save(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let group = cx.group();
    let description = fields.text("description");
    let changes = Unvalidated::valid(GroupChanges {
        name: Some(fields.text("name")),
        path: Some(fields.text("path")),
        description: if description.is_empty() { Change::Clear } else { Change::Set(description) },
        visibility: visibility(&fields),
        lfs_enabled: None,
        request_access_enabled: None,
    });
    match cx.write(move |tx| groups::update(tx, &group, &changes)).await {
        Ok(detail) => Ok(response::redirect(&links::in_group(&detail.group.full_path, "edit"))),
        Err(error) => {
            let errors = FormErrors::of(error, &["name", "path", "description", "visibility_level"])?;
            render(&cx, Some(fields), errors).await
        }
    }
}

/// Deletes the group with its projects, if its path was typed.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    if !fields.text("confirmation").eq_ignore_ascii_case(&cx.params.subject) {
        return render(&cx, None, FormErrors::sentence("confirmation", "This is not the path of the group")).await;
    }
    let group = cx.group();
    cx.write(move |tx| groups::delete(tx, &group)).await?;
    Ok(response::redirect("/dashboard"))
}

/// Changes or removes the avatar.
pub(crate) async fn set_avatar(cx: PageCx, body: Body) -> PageResult {
    let errors = avatars::change(&cx, body, AvatarTarget::Group(cx.group())).await?;
    if errors.is_empty() {
        return Ok(response::redirect(&links::in_group(&cx.params.subject, "edit")));
    }
    render_with_avatar(&cx, None, FormErrors::default(), &errors).await
}

async fn render(cx: &PageCx, typed: Option<Fields>, errors: FormErrors) -> PageResult {
    render_with_avatar(cx, typed, errors, &FormErrors::default()).await
}

async fn render_with_avatar(
    cx: &PageCx,
    typed: Option<Fields>,
    errors: FormErrors,
    avatar_errors: &FormErrors,
) -> PageResult {
    let group = cx.group();
    let (viewer, InGroup { group, role, .. }) = cx.read(move |tx| group_pages::settings(tx, &group)).await?;
    let status = if avatar_errors.is_empty() { errors.status() } else { StatusCode::UNPROCESSABLE_ENTITY };
    let head = GroupHead::new(&group, role, viewer.user().is_some(), GroupTab::Settings);
    let template = GroupSettingsTemplate {
        avatar: AvatarSection::new(head.to("avatar"), group.avatar_path(), group.avatar.is_some(), avatar_errors),
        head,
        layout: Layout::new(cx, viewer, format!("Settings · {}", group.full_path)),
        fields: typed.unwrap_or_else(|| stored_fields(&group)),
        errors,
    };
    response::page_with_status(status, &template)
}

/// Returns the current settings as the fields of the form.
fn stored_fields(group: &Namespace) -> Fields {
    Fields::of([
        ("name", group.name.clone()),
        ("path", group.path.clone()),
        ("description", group.description.clone()),
        ("visibility_level", group.visibility.level().to_string()),
    ])
}
