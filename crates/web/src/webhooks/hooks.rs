//! The webhooks of a project: the list, and one of them with its recent deliveries.

use askama::Template;
use axum::{body::Body, response::Response};
use forge::{
    Unvalidated,
    browse::InProject,
    hook_pages::{self, HookPage},
    hooks::{self, DeliveryLogEntry, HookFields, HookScope, SubscribedEventsPatch},
};
use model::{Hook, HookId, hooks::SubscribedEvents};

use super::deliveries;
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    projects::settings::navigation::{SettingsNavigation, SettingsPage},
    response, text,
};

const HOOKS_PER_PAGE: i64 = 50;
const DELIVERIES_PER_PAGE: i64 = 20;

/// The events to choose from, and their labels. Further ones exist in the API only, without effect.
const EVENTS: [(&str, &str); 7] = [
    ("push_events", "Pushes to branches"),
    ("tag_push_events", "Pushes of tags"),
    ("issues_events", "Issues"),
    ("confidential_issues_events", "Confidential issues, and their comments if comments are chosen too"),
    ("note_events", "Comments"),
    ("build_events", "Jobs"),
    ("pipeline_events", "Pipelines"),
];

#[derive(Template)]
#[template(path = "webhooks/list.html")]
struct HooksTemplate {
    layout: Layout,
    head: ProjectHead,
    navigation: SettingsNavigation,
    hooks: Vec<HookRow>,
    events: [(&'static str, &'static str); 7],
    fields: Fields,
    errors: FormErrors,
    pager: Pager,
}

struct HookRow {
    hook: Hook,
    events: String,
    edit_url: String,
    delete_url: String,
}

#[derive(Template)]
#[template(path = "webhooks/edit.html")]
struct HookTemplate {
    layout: Layout,
    head: ProjectHead,
    navigation: SettingsNavigation,
    hook: Hook,
    /// The URL of the page without its last segment.
    url: String,
    has_token: bool,
    events: [(&'static str, &'static str); 7],
    deliveries: Vec<DeliveryLogEntry>,
    fields: Fields,
    errors: FormErrors,
    pager: Pager,
}

/// Lists the hooks, with a form for a new one.
pub(crate) async fn list(cx: PageCx) -> PageResult {
    let fields = Fields::of([("push_events", "1".to_owned()), ("enable_ssl_verification", "1".to_owned())]);
    render_list(&cx, fields, FormErrors::default()).await
}

/// Creates a hook.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (scope, hook) = (scope(&cx), Unvalidated::valid(hook_fields(&fields)));
    match cx.write(move |tx| hooks::create(tx, &scope, &hook)).await {
        Ok(_) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to("hooks"))),
        Err(error) => {
            let errors = FormErrors::of(error, &["url", "token"])?;
            render_list(&cx, fields, errors).await
        }
    }
}

/// Shows a hook.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, None, FormErrors::default()).await
}

/// Changes a hook.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (scope, id, hook) = (scope(&cx), Unvalidated::valid(hook_id(&cx)?), Unvalidated::valid(hook_fields(&fields)));
    match cx.write(move |tx| hooks::update(tx, &scope, &id, &hook)).await {
        Ok(_) => back(&cx),
        Err(error) => {
            let errors = FormErrors::of(error, &["url", "token"])?;
            render(&cx, Some(fields), errors).await
        }
    }
}

/// Sends a sample event.
pub(crate) async fn test(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let id = Unvalidated::valid(hook_id(&cx)?);
    match hooks::test(cx.forge(), cx.caller(), scope(&cx), id, fields.text("trigger")).await {
        Ok(()) => back(&cx),
        Err(error) => {
            let errors = FormErrors::of(error, &[])?;
            render(&cx, None, errors).await
        }
    }
}

/// Deletes a hook with its deliveries.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (scope, id) = (scope(&cx), Unvalidated::valid(hook_id(&cx)?));
    cx.write(move |tx| hooks::delete(tx, &scope, &id)).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to("hooks")))
}

pub(super) fn scope(cx: &PageCx) -> HookScope {
    HookScope::Project(cx.project())
}

pub(super) fn hook_id(cx: &PageCx) -> Result<HookId, PageError> {
    cx.number("hook").map(HookId::new)
}

fn back(cx: &PageCx) -> Result<Response, PageError> {
    let path = format!("hooks/{}/edit", hook_id(cx)?);
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to(&path)))
}

/// Returns the settings in a form. An empty token keeps the stored one, because it is not shown again.
fn hook_fields(fields: &Fields) -> HookFields {
    let token = fields.text("token");
    let token = if fields.is_checked("remove_token") {
        Some(String::new())
    } else {
        Some(token).filter(|token| !token.is_empty())
    };
    let is_checked = |name: &str| Some(fields.is_checked(name));
    HookFields {
        url: fields.text("url"),
        token,
        verify_tls: is_checked("enable_ssl_verification"),
        events: SubscribedEventsPatch {
            push: is_checked("push_events"),
            tag_push: is_checked("tag_push_events"),
            issues: is_checked("issues_events"),
            confidential_issues: is_checked("confidential_issues_events"),
            note: is_checked("note_events"),
            build: is_checked("build_events"),
            pipeline: is_checked("pipeline_events"),
            merge_requests: None,
            wiki_page: None,
        },
    }
}

/// Returns whether each of [`EVENTS`] is subscribed.
fn flags(events: &SubscribedEvents) -> [bool; 7] {
    let SubscribedEvents { push, tag_push, issues, confidential_issues, note, build, pipeline, .. } = *events;
    [push, tag_push, issues, confidential_issues, note, build, pipeline]
}

async fn render_list(cx: &PageCx, fields: Fields, errors: FormErrors) -> PageResult {
    const NAMES: [&str; 7] = ["pushes", "tags", "issues", "confidential issues", "comments", "jobs", "pipelines"];
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, HOOKS_PER_PAGE);
    let (viewer, found) = cx.read(move |tx| hook_pages::list(tx, &project, &page)).await?;
    let InProject { project, value: hooks } = found;
    let pager = Pager::of(&cx.uri, &query, &hooks);
    let links = ProjectLinks::new(&project.full_path());
    let rows = hooks.items.into_iter().map(|hook| {
        let subscribed = NAMES.iter().zip(flags(&hook.events)).filter(|(_, is_subscribed)| *is_subscribed);
        HookRow {
            events: subscribed.map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            edit_url: links.to(&format!("hooks/{}/edit", hook.id)),
            delete_url: links.to(&format!("hooks/{}/delete", hook.id)),
            hook,
        }
    });
    let status = errors.status();
    let template = HooksTemplate {
        head: ProjectHead::new(&project, Tab::Settings, &viewer),
        navigation: SettingsNavigation::new(&project, &viewer, SettingsPage::Webhooks),
        layout: Layout::new(cx, viewer, format!("Webhooks · {}", project.full_path())),
        hooks: rows.collect(),
        events: EVENTS,
        fields,
        errors,
        pager,
    };
    response::page_with_status(status, &template)
}

async fn render(cx: &PageCx, typed: Option<Fields>, errors: FormErrors) -> PageResult {
    let (project, id, query) = (cx.project(), hook_id(cx)?, cx.query());
    let page = paging::requested(&query, DELIVERIES_PER_PAGE);
    let (viewer, found) = cx.read(move |tx| hook_pages::get(tx, &project, id, &page)).await?;
    let InProject { project, value: HookPage { hook, has_token, deliveries } } = found;
    let url = ProjectLinks::new(&project.full_path()).to(&format!("hooks/{id}"));
    let status = errors.status();
    let template = HookTemplate {
        head: ProjectHead::new(&project, Tab::Settings, &viewer),
        navigation: SettingsNavigation::new(&project, &viewer, SettingsPage::Webhooks),
        layout: Layout::new(cx, viewer, format!("Webhook · {}", project.full_path())),
        pager: Pager::of(&format!("{url}/edit").parse().unwrap_or_default(), &query, &deliveries),
        deliveries: deliveries.items,
        fields: typed.unwrap_or_else(|| stored_fields(&hook)),
        events: EVENTS,
        has_token,
        hook,
        url,
        errors,
    };
    response::page_with_status(status, &template)
}

/// Returns the current settings as the fields of the form. The token is not among them.
fn stored_fields(hook: &Hook) -> Fields {
    let flag = |flag: bool| if flag { "1".to_owned() } else { String::new() };
    let events = EVENTS.iter().zip(flags(&hook.events)).map(|((name, _), is_subscribed)| (*name, flag(is_subscribed)));
    let others = [("url", hook.url.clone()), ("enable_ssl_verification", flag(hook.verify_tls))];
    Fields::of(others.into_iter().chain(events))
}
