//! Activities of users as sentences with links.

use std::collections::HashMap;

use forge::events::Activity;
use model::{
    Event, IssueId, IssueIid, Time,
    events::{EventAction, EventTarget, PushData},
};

use crate::links::{self, ProjectLinks};

/// An activity in a list.
pub(crate) struct ListedEvent {
    /// What the user did, such as `opened issue`.
    pub(crate) action: String,
    /// The text of the object and its URL, if it still has a page.
    pub(crate) object: Option<(String, Option<String>)>,
    /// The title of the object.
    pub(crate) title: Option<String>,
    pub(crate) project: String,
    pub(crate) project_url: String,
    pub(crate) at: Time,
}

impl ListedEvent {
    /// Converts the activities of a page.
    pub(crate) fn list(activity: &Activity, iids: &HashMap<IssueId, IssueIid>) -> Vec<Self> {
        let describe = |event: &Event| {
            let project = activity.projects.get(&event.project)?.full_path();
            let project_links = ProjectLinks::new(&project);
            let (action, object) = match &event.push {
                Some(push) => describe_push(push, &project_links),
                None => describe_event(event, &project_links, iids),
            };
            Some(Self {
                action,
                object,
                title: event.title.clone(),
                project_url: links::page(&project),
                project,
                at: event.created_at,
            })
        };
        activity.events.items.iter().filter_map(describe).collect()
    }
}

type Object = Option<(String, Option<String>)>;

fn describe_push(push: &PushData, links: &ProjectLinks) -> (String, Object) {
    let (kind, name) = match push.ref_name.strip_prefix("refs/tags/") {
        Some(tag) => ("tag", tag),
        None => ("branch", push.ref_name.strip_prefix("refs/heads/").unwrap_or(&push.ref_name)),
    };
    let url = push.after.is_some().then(|| links.commits(name, ""));
    let action = match (push.before, push.after, push.total_commits) {
        (_, None, _) => format!("deleted {kind}"),
        (None, ..) => format!("pushed new {kind}"),
        (.., 1) => format!("pushed 1 commit to {kind}"),
        (.., count) => format!("pushed {count} commits to {kind}"),
    };
    (action, Some((name.to_owned(), url)))
}

fn describe_event(event: &Event, links: &ProjectLinks, iids: &HashMap<IssueId, IssueIid>) -> (String, Object) {
    let verb = match event.action {
        EventAction::Created if event.target.is_some() => "opened",
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
