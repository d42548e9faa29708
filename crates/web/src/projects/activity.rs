//! The activities in a project, and activities as sentences with links.

use std::collections::HashMap;

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    Error,
    browse::InProject,
    deleted_refs,
    events::{self, ActivityPage},
};
use model::{
    Event, EventId, IssueId, IssueIid, Oid, RefName, Time,
    events::{EventAction, EventTarget, PushData},
    users::UserSummary,
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    paging::{self, Pager},
    response, text,
};

const EVENTS_PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "projects/activity.html")]
struct ActivityTemplate {
    layout: Layout,
    head: ProjectHead,
    events: Vec<ListedEvent>,
    /// Whether the events name their authors.
    has_authors: bool,
    /// Why a branch or a tag was not restored.
    error: Option<String>,
    pager: Pager,
}

/// Shows the events of a project, newest first.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, None).await
}

/// Restores the branch or tag that an event deleted.
pub(crate) async fn restore(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let event = EventId::new(cx.number("id")?);
    match deleted_refs::restore(cx.forge(), cx.caller(), cx.project(), event).await {
        Ok(name) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).tree(name.short(), ""))),
        Err(error @ (Error::Refused(_) | Error::RefRejected(_) | Error::Protected(_))) => {
            render(&cx, Some(error.to_string())).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn render(cx: &PageCx, error: Option<String>) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, EVENTS_PER_PAGE);
    let (viewer, found) = cx.read_list(move |tx| events::page_of_project(tx, &project, &page)).await?;
    let InProject { project, value: page } = found;
    let status = if error.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let template = ActivityTemplate {
        head: ProjectHead::new(&project, Tab::Code, &viewer),
        layout: Layout::new(cx, viewer, format!("Activity · {}", project.full_path())),
        pager: Pager::of(&cx.uri, &query, &page.activity.events),
        events: ListedEvent::list(&page),
        has_authors: true,
        error,
    };
    response::page_with_status(status, &template)
}

/// An activity in a list.
pub(crate) struct ListedEvent {
    pub(crate) author: UserSummary,
    /// What the user did, such as `opened issue`.
    pub(crate) action: String,
    /// The text of the object and its URL, if it still has a page.
    pub(crate) object: Option<(String, Option<String>)>,
    /// The abbreviated IDs of the commits of a push, and the URL of their page, if they have one.
    pub(crate) commits: Option<(String, Option<String>)>,
    /// The URL that restores the branch or tag that was deleted.
    pub(crate) restore_url: Option<String>,
    /// The title of the object.
    pub(crate) title: Option<String>,
    pub(crate) project: String,
    pub(crate) project_url: String,
    pub(crate) at: Time,
}

impl ListedEvent {
    /// Converts the activities of a page.
    pub(crate) fn list(page: &ActivityPage) -> Vec<Self> {
        let describe = |event: &Event| {
            let project = page.activity.projects.get(&event.project)?.full_path();
            let project_links = ProjectLinks::new(&project);
            let is_missing =
                |push: &PushData| RefName::new(&push.ref_name).is_some_and(|name| page.missing_refs.contains(&name));
            let restore_url =
                event.push.as_ref().filter(|push| push.after.is_none() && page.can_restore && is_missing(push));
            let (action, object) = match &event.push {
                Some(push) => describe_push(push, &project_links, is_missing(push)),
                None => describe_event(event, &project_links, &page.issue_iids),
            };
            Some(Self {
                author: event.author.clone(),
                action,
                object,
                commits: event.push.as_ref().and_then(|push| pushed_commits(push, &project_links, is_missing(push))),
                restore_url: restore_url.map(|_| project_links.to(&format!("activity/{}/restore", event.id))),
                title: event.title.clone(),
                project_url: links::page(&project),
                project,
                at: event.created_at,
            })
        };
        page.activity.events.items.iter().filter_map(describe).collect()
    }
}

type Object = Option<(String, Option<String>)>;

fn describe_push(push: &PushData, links: &ProjectLinks, is_missing: bool) -> (String, Object) {
    let (kind, name) = match push.ref_name.strip_prefix("refs/tags/") {
        Some(tag) => ("tag", tag),
        None => ("branch", push.ref_name.strip_prefix("refs/heads/").unwrap_or(&push.ref_name)),
    };
    let url = (push.after.is_some() && !is_missing).then(|| links.commits(name, ""));
    let action = match (push.before, push.after, push.total_commits) {
        (_, None, _) => format!("deleted {kind}"),
        (None, ..) => format!("pushed new {kind}"),
        (.., 1) => format!("pushed 1 commit to {kind}"),
        (.., count) => format!("pushed {count} commits to {kind}"),
    };
    (action, Some((name.to_owned(), url)))
}

/// Returns the difference that was pushed, or the target of a deleted or new ref. There is no link if the ref is missing, because
/// its commits may not be reachable and have no page then, and none to tag objects.
fn pushed_commits(push: &PushData, links: &ProjectLinks, is_missing: bool) -> Option<(String, Option<String>)> {
    let short = |id: Oid| id.to_string().chars().take(8).collect::<String>();
    let (text, url) = match (push.before, push.after) {
        (Some(before), Some(after)) => {
            let text = format!("{}...{}", short(before), short(after));
            (text, links.compare(&before.to_string(), &after.to_string()))
        }
        (Some(id), None) | (None, Some(id)) => (short(id), links.commit(&id.to_string())),
        (None, None) => return None,
    };
    let has_page = push.after.is_some() && !is_missing && push.ref_name.starts_with("refs/heads/");
    Some((text, has_page.then_some(url)))
}

fn describe_event(event: &Event, links: &ProjectLinks, iids: &HashMap<IssueId, IssueIid>) -> (String, Object) {
    let verb = match event.action {
        EventAction::Created if matches!(event.target, Some(EventTarget::Issue(_))) => "opened",
        EventAction::Created => "created",
        EventAction::Updated => "updated",
        EventAction::Closed => "closed",
        EventAction::Reopened => "reopened",
        EventAction::Pushed => "pushed to",
        EventAction::Commented => "commented on",
        EventAction::Merged => "merged",
        EventAction::Joined => "joined",
        EventAction::Left => "left",
        EventAction::Destroyed => "deleted",
        EventAction::Expired => "lost the expired membership of",
    };
    let issue = |id: &IssueId, anchor: String| {
        let iid = iids.get(id)?;
        Some((format!("#{iid}"), Some(format!("{}{anchor}", links.issue(iid)))))
    };
    let (noun, object) = match &event.target {
        None => ("project", None),
        Some(EventTarget::Issue(id)) => ("issue", issue(id, String::new())),
        Some(EventTarget::Note { issue: id, note }) => ("issue", issue(id, format!("#note_{note}"))),
        Some(EventTarget::Milestone(_)) => ("milestone", None),
        Some(EventTarget::CommitNote(_)) => {
            let commit = event.commit_note.as_ref().map(|note| note.commit.to_string());
            let object = commit.map(|id| (id.chars().take(8).collect(), Some(links.commit(&id))));
            ("commit", object)
        }
    };
    (format!("{verb} {noun}"), object)
}
