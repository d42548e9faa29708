//! Activity of users and projects.

use axum::extract::State;
use forge::{
    Forge,
    events::{self, Activity},
};
use model::{
    Event, Oid, Project,
    events::{Action, PushCommit, PushData, Target},
    users::UserSummary,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::{notes::NoteJson, users::UserSummaryJson};
use crate::{
    extract::{Credentials, InProject, Numbers},
    paging::{Paged, Paging},
    reply::{Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new().get("/users/{id}/events", "Lists what a user did, newest first", of_user).get(
        "/projects/{id}/events",
        "Lists what happened in a project, newest first",
        of_project,
    )
}

async fn of_user(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([user]): Numbers<1>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<EventJson>> {
    let page = paging.page.clone();
    let activity = forge.read(caller, move |tx| events::of_user(tx, user, &page)).await?;
    Ok(answer(paging, activity, &site))
}

async fn of_project(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
    site: Site,
) -> Reply<Paged<EventJson>> {
    let page = paging.page.clone();
    let activity = forge.read(caller, move |tx| events::of_project(tx, &project, &page)).await?;
    Ok(answer(paging, activity, &site))
}

fn answer(paging: Paging, activity: Activity, site: &Site) -> Paged<EventJson> {
    let Activity { events, projects } = activity;
    paging.answer(events.map(|event| {
        let project = projects.get(&event.project);
        EventJson::new(event, project, site)
    }))
}

/// Something that happened, as the contract shows it.
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
    created_at: Stamp,
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
            project_id,
            action_name: action_name(action, target, push.as_ref(), imported),
            target_id: target.map(Target::id),
            target_type: target_type(action, target),
            target_title: title,
            author_id: author.id,
            author_username: author.username.clone(),
            data: push.zip(project).map(|(push, project)| PushJson::new(push, &author, project, site)),
            author: UserSummaryJson::new(author, site),
            created_at: Stamp(created_at),
            note: note.or_else(|| commit_note.map(|note| NoteJson::on_commit(note, site))),
        }
    }
}

/// What a milestone was is told when it is gone, too: nothing else is ever destroyed.
fn target_type(action: Action, target: Option<Target>) -> Option<&'static str> {
    target.map(Target::kind).or((action == Action::Destroyed).then_some("Milestone"))
}

fn action_name(action: Action, target: Option<Target>, push: Option<&PushData>, imported: bool) -> &'static str {
    match action {
        Action::Created if target.is_some() => "opened",
        Action::Created if imported => "imported",
        Action::Created => "created",
        Action::Updated => "updated",
        Action::Closed => "closed",
        // To open again has no word of its own.
        Action::Reopened => "opened",
        Action::Pushed => match push {
            Some(PushData { before: None, .. }) => "pushed new",
            Some(PushData { after: None, .. }) => "deleted",
            _ => "pushed to",
        },
        Action::Commented => "commented on",
        Action::Merged => "accepted",
        Action::Joined => "joined",
        Action::Left => "left",
        Action::Destroyed => "destroyed",
        Action::Expired => "removed due to membership expiration from",
    }
}

/// What was pushed. The address of whoever pushed is not in it: users do not see each other's.
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

/// The project that was pushed to; some of it under two names, an old and a new one.
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

/// A commit that came with a push.
#[derive(Serialize, JsonSchema)]
struct PushCommitJson {
    id: String,
    message: String,
    timestamp: String,
    url: String,
    author: AuthorJson,
}

/// Who wrote a commit.
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
        // A tag may point to an object of its own; the commit that it leads to, if to one at all, is the one that came with it.
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
            user_id: author.id,
            user_name: author.name.clone(),
            user_username: author.username.clone(),
            user_avatar: site.identicon(&author.username),
            project_id: project.id,
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
            avatar_url: None,
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
