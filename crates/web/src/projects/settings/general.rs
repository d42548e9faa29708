//! The general settings of a project: its name, visibility and features, archiving, transfer and deletion.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Ability, Error, GroupRef, ProjectAbility, Unvalidated,
    avatars::AvatarTarget,
    fork_links,
    project_pages::{self, GeneralSettings},
    projects::{self, ProjectUpdate},
};
use model::{
    Change,
    projects::{ProjectChanges, ProjectFeatures},
};

use super::navigation::{SettingsNavigation, SettingsPage};
use crate::{
    avatars::{self, AvatarSection},
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    projects::new::visibility,
    response, text,
};

/// The maximum number of branches to choose the default branch from; others can be typed.
const MAX_BRANCHES: usize = 100;
const FIELDS: [&str; 5] = ["name", "path", "description", "default_branch", "visibility_level"];

#[derive(Template)]
#[template(path = "projects/settings/general.html")]
struct GeneralTemplate {
    layout: Layout,
    head: ProjectHead,
    navigation: SettingsNavigation,
    full_path: String,
    branches: Vec<String>,
    fork_source: Option<String>,
    fields: Fields,
    errors: FormErrors,
    avatar: AvatarSection,
    can_rename: bool,
    can_archive: bool,
    can_unlink: bool,
    can_transfer: bool,
    can_delete: bool,
}

/// Shows the settings.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, None, FormErrors::default()).await
}

/// Leads from the address that older versions of GitLab have.
pub(crate) async fn redirect(cx: PageCx) -> PageResult {
    Ok(response::moved(&ProjectLinks::new(&cx.params.subject).to("settings/general")))
}

/// Changes the settings.
pub(crate) async fn save(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let optional = |name: &str| Some(fields.text(name)).filter(|text| !text.is_empty());
    // Only owners have the fields for the name and the visibility.
    let name = fields.has("name").then(|| fields.text("name"));
    let changes = ProjectChanges {
        name,
        path: Some(fields.text("path")),
        description: Change::from_text(Some(fields.text("description"))),
        visibility: visibility(&fields),
        features: ProjectFeatures {
            issues_enabled: Some(fields.is_checked("issues_enabled")),
            builds_enabled: Some(fields.is_checked("builds_enabled")),
            shared_runners_enabled: Some(fields.is_checked("shared_runners_enabled")),
            public_builds: Some(fields.is_checked("public_builds")),
            ..ProjectFeatures::default()
        },
        lfs_enabled: None,
    };
    let update = Unvalidated::valid(ProjectUpdate {
        changes,
        unchanged_name_allowed: true,
        default_branch: optional("default_branch"),
        import_url: None,
    });
    match projects::update(cx.forge(), cx.caller(), cx.project(), update).await {
        Ok(detail) => Ok(response::redirect(&ProjectLinks::new(&detail.project.full_path()).to("settings/general"))),
        Err(error) => {
            let errors = FormErrors::of(error, &FIELDS)?;
            render(&cx, Some(fields), errors).await
        }
    }
}

/// Archives or unarchives the project.
pub(crate) async fn archive(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, archived) = (cx.project(), fields.is_checked("archived"));
    cx.write(move |tx| projects::set_archived(tx, &project, archived)).await?;
    Ok(back(&cx))
}

/// Removes the relation to the project that this one was forked from.
pub(crate) async fn unlink_fork(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let project = cx.project();
    cx.write(move |tx| fork_links::delete(tx, &project)).await?;
    Ok(back(&cx))
}

/// Moves the project to a group.
pub(crate) async fn transfer(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, group) = (cx.project(), fields.text("new_namespace"));
    let target = GroupRef::Path(group);
    match cx.write(move |tx| projects::transfer(tx, &target, &project)).await {
        Ok(detail) => {
            let path = cx.params.subject.rsplit('/').next().unwrap_or_default();
            let moved = format!("{}/{path}", detail.group.full_path);
            Ok(response::redirect(&ProjectLinks::new(&moved).to("settings/general")))
        }
        Err(Error::NotFound(Some(what))) if what == "Group" => {
            render(&cx, Some(fields), FormErrors::sentence("new_namespace", "There is no such group")).await
        }
        Err(error) => {
            let errors = FormErrors::of(error, &["new_namespace"])?;
            render(&cx, Some(fields), errors).await
        }
    }
}

/// Deletes the project, if its path was typed.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let project = cx.project();
    if !fields.text("confirmation").eq_ignore_ascii_case(&cx.params.subject) {
        let errors = FormErrors::sentence("confirmation", "This is not the path of the project");
        return render(&cx, Some(fields), errors).await;
    }
    cx.write(move |tx| projects::delete(tx, &project)).await?;
    let namespace = cx.params.subject.rsplit_once('/').map(|(namespace, _)| namespace).unwrap_or_default();
    Ok(response::redirect(&links::page(namespace)))
}

fn back(cx: &PageCx) -> axum::response::Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).to("settings/general"))
}

/// Changes or removes the avatar.
pub(crate) async fn set_avatar(cx: PageCx, body: Body) -> PageResult {
    let errors = avatars::change(&cx, body, AvatarTarget::Project(cx.project())).await?;
    if errors.is_empty() {
        return Ok(back(&cx));
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
    let project = cx.project();
    let (viewer, settings) = cx.read(move |tx| project_pages::general_settings(tx, &project, MAX_BRANCHES)).await?;
    // The fields of another form on the page were submitted if these are missing.
    let fields = typed.filter(|fields| fields.has("path")).unwrap_or_else(|| stored_fields(&settings));
    let GeneralSettings { project, branches, .. } = settings;
    let can = |ability: ProjectAbility| viewer.can_in(&project, ability);
    let status = if avatar_errors.is_empty() { errors.status() } else { StatusCode::UNPROCESSABLE_ENTITY };
    let head = ProjectHead::new(&project, Tab::Settings, &viewer);
    let action = head.links.to("settings/general/avatar");
    let template = GeneralTemplate {
        navigation: SettingsNavigation::new(&project, &viewer, SettingsPage::General),
        can_rename: can(ProjectAbility::ChangeNameOrVisibility),
        can_archive: can(ProjectAbility::ArchiveProject),
        can_unlink: can(ProjectAbility::UnlinkFork) && project.fork_of.is_some(),
        can_transfer: viewer.can(Ability::AdministerProjects),
        can_delete: can(ProjectAbility::RemoveProject),
        full_path: project.full_path(),
        fork_source: project.forked_from.as_ref().map(model::projects::ForkSource::full_path),
        avatar: AvatarSection::new(action, project.avatar_path(), project.avatar.is_some(), avatar_errors),
        layout: Layout::new(cx, viewer, format!("General settings · {}", project.full_path())),
        head,
        branches,
        fields,
        errors,
    };
    response::page_with_status(status, &template)
}

/// Returns the current settings as the fields of the form.
fn stored_fields(settings: &GeneralSettings) -> Fields {
    let GeneralSettings { project, default_branch, .. } = settings;
    let flag = |flag: bool| if flag { "1".to_owned() } else { String::new() };
    let features = &project.features;
    Fields::of([
        ("name", project.name.clone()),
        ("path", project.path.clone()),
        ("description", project.description.clone().unwrap_or_default()),
        ("default_branch", default_branch.clone().unwrap_or_default()),
        ("visibility_level", project.visibility.level().to_string()),
        ("issues_enabled", flag(features.issues_enabled)),
        ("builds_enabled", flag(features.builds_enabled)),
        ("shared_runners_enabled", flag(features.shared_runners_enabled)),
        ("public_builds", flag(features.public_builds)),
    ])
}
