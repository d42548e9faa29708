//! Activity events of users and projects.

use forge::events::{self, Activity};
use model::{
    Event, Oid, Project, UserId,
    events::{EventAction, EventTarget, PushCommit, PushData},
    users::UserSummary,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::{CallerCx, ProjectCx},
    extract::IdsInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    reply::{Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::{notes::NoteJson, users::UserSummaryJson},
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Events).get("/users/{id}/events", "List the events of a user, newest first", of_user).get(
        "/projects/{id}/events",
        "List the events of a project, newest first",
        of_project,
    )
}

async fn of_user(
    cx: CallerCx,
    IdsInPath(user): IdsInPath<UserId>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<EventJson>> {
    let reply = cx.read_list(move |tx| {
        let activity = events::of_user(tx, user, &paging.page)?;
        Ok(to_reply(&paging, activity, &site))
    });
    Ok(reply.await?)
}

async fn of_project(cx: ProjectCx, paging: Paging, site: Site) -> Reply<Paged<EventJson>> {
    let reply = cx.read_list(move |tx, project| {
        let activity = events::of_project(tx, project, &paging.page)?;
        Ok(to_reply(&paging, activity, &site))
    });
    Ok(reply.await?)
}

fn to_reply(paging: &Paging, activity: Activity, site: &Site) -> Paged<EventJson> {
    let Activity { events, projects } = activity;
    paging.reply(events, |event| {
        let project = projects.get(&event.project);
        EventJson::new(event, project, site)
    })
}

/// An activity event.
#[derive(Serialize, JsonSchema)]
struct EventJson {
    title: Option<String>,
    project_id: i64,
    action_name: &'static str,
    target_id: Option<i64>,
    target_type: Option<&'static str>,
    target_title: Option<String>,
    author_id: i64,
    author: UserSummaryJson,
    author_username: String,
    data: Option<PushJson>,
    created_at: TimestampJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<NoteJson>,
}

impl EventJson {
    fn new(event: Event, project: Option<&Project>, site: &Site) -> Self {
        let Event { id: _, project: project_id, author, action, target, title, note, commit_note, push, created_at } =
            event;
        let note = note.map(|note| NoteJson::new(note, site));
        let imported = project.is_some_and(|project| project.import.is_some());
        Self {
            title: None,
            project_id: project_id.get(),
            action_name: action_name(action, target, push.as_ref(), imported),
            target_id: target.map(EventTarget::number),
            target_type: target_type(action, target),
            target_title: title,
            author_id: author.id.get(),
            author_username: author.username.clone(),
            data: push.zip(project).map(|(push, project)| PushJson::new(push, &author, project, site)),
            author: UserSummaryJson::new(author, site),
            created_at: TimestampJson(created_at),
            note: note.or_else(|| commit_note.map(|note| NoteJson::on_commit(note, site))),
        }
    }
}

/// Returns the type of the target. A deleted milestone no longer has a target; nothing else has `Destroyed` events.
fn target_type(action: EventAction, target: Option<EventTarget>) -> Option<&'static str> {
    target.map(EventTarget::kind).or((action == EventAction::Destroyed).then_some("Milestone"))
}

fn action_name(
    action: EventAction,
    target: Option<EventTarget>,
    push: Option<&PushData>,
    imported: bool,
) -> &'static str {
    match action {
        EventAction::Created if target.is_some() => "opened",
        EventAction::Created if imported => "imported",
        EventAction::Created => "created",
        EventAction::Updated => "updated",
        EventAction::Closed => "closed",
        // The contract has no separate name for reopening.
        EventAction::Reopened => "opened",
        EventAction::Pushed => match push {
            Some(PushData { before: None, .. }) => "pushed new",
            Some(PushData { after: None, .. }) => "deleted",
            _ => "pushed to",
        },
        EventAction::Commented => "commented on",
        EventAction::Merged => "accepted",
        EventAction::Joined => "joined",
        EventAction::Left => "left",
        EventAction::Destroyed => "destroyed",
        EventAction::Expired => "removed due to membership expiration from",
    }
}

/// The data of a push, without the pusher's email address, which other users must not see.
#[derive(Serialize, JsonSchema)]
struct PushJson {
    object_kind: &'static str,
    event_name: &'static str,
    before: String,
    after: String,
    #[serde(rename = "ref")]
    ref_name: String,
    checkout_sha: Option<String>,
    user_id: i64,
    user_name: String,
    user_username: String,
    user_avatar: String,
    project_id: i64,
    project: PushedProjectJson,
    commits: Vec<PushCommitJson>,
    total_commits_count: i64,
    repository: RepositoryJson,
}

/// The project that was pushed to; some fields have an old and a new name.
#[derive(Serialize, JsonSchema)]
struct PushedProjectJson {
    name: String,
    description: Option<String>,
    web_url: String,
    avatar_url: Option<String>,
    git_ssh_url: String,
    git_http_url: String,
    namespace: String,
    visibility_level: i32,
    path_with_namespace: String,
    default_branch: Option<String>,
    homepage: String,
    url: String,
    ssh_url: String,
    http_url: String,
}

/// The repository that was pushed to.
#[derive(Serialize, JsonSchema)]
struct RepositoryJson {
    name: String,
    url: String,
    description: Option<String>,
    homepage: String,
    git_http_url: String,
    git_ssh_url: String,
    visibility_level: i32,
}

/// A pushed commit.
#[derive(Serialize, JsonSchema)]
struct PushCommitJson {
    id: String,
    message: String,
    timestamp: String,
    url: String,
    author: AuthorJson,
}

/// The author of a commit.
#[derive(Serialize, JsonSchema)]
struct AuthorJson {
    name: String,
    email: String,
}

impl PushJson {
    fn new(push: PushData, author: &UserSummary, project: &Project, site: &Site) -> Self {
        let PushData { ref_name, before, after, commits, total_commits } = push;
        let digits = |oid: Option<Oid>| oid.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string());
        let is_tag = ref_name.starts_with("refs/tags/");
        let kind = if is_tag { "tag_push" } else { "push" };
        // A tag may point to a tag object; its commit, if it has one, is the last of the pushed commits.
        let commit = if is_tag { commits.last().map(|commit| commit.id) } else { after };
        let project_json = PushedProjectJson::new(project, site);
        let commit_json = |commit| PushCommitJson::new(commit, &project_json.web_url);
        Self {
            object_kind: kind,
            event_name: kind,
            before: digits(before),
            after: digits(after),
            ref_name,
            checkout_sha: after.and(commit).map(|oid| oid.to_string()),
            user_id: author.id.get(),
            user_name: author.name.clone(),
            user_username: author.username.clone(),
            user_avatar: site.url(&author.avatar_path()),
            project_id: project.id.get(),
            commits: commits.into_iter().map(commit_json).collect(),
            total_commits_count: total_commits,
            repository: RepositoryJson::from(&project_json),
            project: project_json,
        }
    }
}

impl PushedProjectJson {
    fn new(project: &Project, site: &Site) -> Self {
        let full_path = project.full_path();
        let (web_url, ssh_url) = (site.page(&full_path), site.ssh_url(&full_path));
        let http_url = format!("{web_url}.git");
        Self {
            name: project.name.clone(),
            description: project.description.clone(),
            avatar_url: project.avatar_path().map(|path| site.url(&path)),
            git_ssh_url: ssh_url.clone(),
            git_http_url: http_url.clone(),
            namespace: project.namespace.name.clone(),
            visibility_level: project.visibility.level(),
            path_with_namespace: full_path,
            default_branch: project.default_branch.clone(),
            homepage: web_url.clone(),
            web_url,
            url: if ssh_url.is_empty() { http_url.clone() } else { ssh_url.clone() },
            ssh_url,
            http_url,
        }
    }
}

impl From<&PushedProjectJson> for RepositoryJson {
    fn from(project: &PushedProjectJson) -> Self {
        Self {
            name: project.name.clone(),
            url: project.url.clone(),
            description: project.description.clone(),
            homepage: project.web_url.clone(),
            git_http_url: project.http_url.clone(),
            git_ssh_url: project.ssh_url.clone(),
            visibility_level: project.visibility_level,
        }
    }
}

impl PushCommitJson {
    fn new(commit: PushCommit, project_url: &str) -> Self {
        let PushCommit { id, message, author } = commit;
        Self {
            id: id.to_string(),
            message,
            timestamp: author.timestamp(),
            url: format!("{project_url}/commit/{id}"),
            author: AuthorJson { name: author.name, email: author.email },
        }
    }
}
