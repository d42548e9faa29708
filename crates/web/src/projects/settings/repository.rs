//! The settings of a repository: protected branches and deploy keys.

use askama::Template;
use axum::{body::Body, response::Response};
use forge::{
    Unvalidated,
    branches::{self, ProtectionOptions},
    browse::InProject,
    deploy_keys,
    keys::UnparsedKey,
    ref_pages::{self, RepositorySettings},
};
use model::{DeployKey, DeployKeyId, Protection, PushLevel};

use super::navigation::{SettingsNavigation, SettingsPage};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    response, text,
};

const KEYS_PER_PAGE: i64 = 50;
/// The maximum number of branches to choose from; others can be typed.
const MAX_BRANCHES: usize = 100;

#[derive(Template)]
#[template(path = "projects/settings/repository.html")]
struct RepositoryTemplate {
    layout: Layout,
    head: ProjectHead,
    navigation: SettingsNavigation,
    rules: Vec<Protection>,
    branches: Vec<String>,
    keys: Vec<DeployKey>,
    available_keys: Vec<DeployKey>,
    fields: Fields,
    errors: FormErrors,
    pager: Pager,
}

impl RepositoryTemplate {
    fn key_url(&self, key: &DeployKey, action: &str) -> String {
        self.head.links.to(&format!("deploy_keys/{}/{action}", key.id))
    }
}

/// Shows the settings.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, Fields::default(), FormErrors::default()).await
}

/// Protects branches, or changes what developers may do in them.
pub(crate) async fn protect(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, pattern) = (cx.project(), fields.text("name"));
    let options = Unvalidated::valid(ProtectionOptions {
        developers_can_push: Some(fields.is_checked("developers_can_push")),
        developers_can_merge: Some(fields.is_checked("developers_can_merge")),
    });
    match cx.write(move |tx| branches::protect_pattern(tx, &project, &pattern, &options)).await {
        Ok(()) => Ok(back(&cx)),
        Err(error) => {
            let errors = FormErrors::of(error, &["name"])?;
            render(&cx, fields, errors).await
        }
    }
}

/// Removes a protection rule.
pub(crate) async fn unprotect(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, pattern) = (cx.project(), fields.text("name"));
    cx.write(move |tx| branches::unprotect_pattern(tx, &project, &pattern)).await?;
    Ok(back(&cx))
}

/// Adds a deploy key.
pub(crate) async fn add_key(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let project = cx.project();
    let key = Unvalidated::valid(UnparsedKey { title: fields.text("title"), key: fields.text("key") });
    match cx.write(move |tx| deploy_keys::create(tx, &project, &key)).await {
        Ok(_) => Ok(back(&cx)),
        Err(error) => {
            let errors = FormErrors::of(error, &["title", "key"])?;
            render(&cx, fields, errors).await
        }
    }
}

/// Enables a deploy key of another project.
pub(crate) async fn enable_key(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), key_id(&cx)?);
    cx.write(move |tx| deploy_keys::enable(tx, &project, &id)).await?;
    Ok(back(&cx))
}

/// Removes a deploy key from the project.
pub(crate) async fn disable_key(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), key_id(&cx)?);
    cx.write(move |tx| deploy_keys::disable(tx, &project, &id)).await?;
    Ok(back(&cx))
}

fn key_id(cx: &PageCx) -> Result<Unvalidated<DeployKeyId>, PageError> {
    Ok(Unvalidated::valid(DeployKeyId::new(cx.number("key")?)))
}

fn back(cx: &PageCx) -> Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).to("settings/repository"))
}

async fn render(cx: &PageCx, fields: Fields, errors: FormErrors) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, KEYS_PER_PAGE);
    let (viewer, found) = cx.read(move |tx| ref_pages::settings(tx, &project, MAX_BRANCHES, &page)).await?;
    let InProject { project, value: RepositorySettings { rules, branches, keys, available_keys } } = found;
    let url = ProjectLinks::new(&project.full_path()).to("settings/repository");
    let status = errors.status();
    let template = RepositoryTemplate {
        head: ProjectHead::new(&project, Tab::Settings, &viewer),
        navigation: SettingsNavigation::new(&project, &viewer, SettingsPage::Repository),
        layout: Layout::new(cx, viewer, format!("Repository settings · {}", project.full_path())),
        pager: Pager::of(&url.parse().unwrap_or_default(), &query, &keys),
        keys: keys.items,
        rules,
        branches,
        available_keys,
        fields,
        errors,
    };
    response::page_with_status(status, &template)
}
