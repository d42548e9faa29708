//! The payload of pushes to branches and tags.

use model::{
    Oid,
    webhook_events::{ChangedPaths, PushEvent},
};
use serde::Serialize;

use super::{
    JsonPayloadRenderer,
    json::{self, CommitJson, ProjectJson, ProjectLinks, RepositoryJson},
};

#[derive(Serialize)]
struct PushJson<'a> {
    object_kind: &'static str,
    event_name: &'static str,
    before: String,
    after: String,
    #[serde(rename = "ref")]
    ref_name: &'a str,
    checkout_sha: Option<String>,
    message: Option<&'a str>,
    user_id: i64,
    user_name: &'a str,
    user_username: &'a str,
    user_email: &'a str,
    user_avatar: String,
    project_id: i64,
    project: ProjectJson<'a>,
    commits: Vec<CommitJson<'a>>,
    total_commits_count: i64,
    repository: RepositoryJson<'a>,
}

pub(super) fn to_json(event: &PushEvent<'_>, renderer: &JsonPayloadRenderer) -> String {
    let PushEvent { project, user, data, message, files, for_system_hook } = *event;
    let links = ProjectLinks::new(project, renderer);
    let is_tag = data.ref_name.starts_with("refs/tags/");
    let kind = if is_tag { "tag_push" } else { "push" };
    let format_oid = |oid: Option<Oid>| oid.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string());
    // A tag may point to a tag object. The push lists the commit that it resolves to, if any.
    let commit = if is_tag { data.commits.last().map(|commit| commit.id) } else { data.after };
    let no_files = ChangedPaths::default();
    let files = files.iter().chain(std::iter::repeat(&no_files));
    let commits = if for_system_hook { &[] } else { data.commits.as_slice() };
    json::serialize(&PushJson {
        object_kind: kind,
        event_name: kind,
        before: format_oid(data.before),
        after: format_oid(data.after),
        ref_name: &data.ref_name,
        checkout_sha: data.after.and(commit).map(|oid| oid.to_string()),
        message: if is_tag && for_system_hook { Some("") } else { message.filter(|_| is_tag) },
        user_id: user.id.get(),
        user_name: &user.name,
        user_username: &user.username,
        user_email: &user.email,
        user_avatar: renderer.site.url(&user.avatar_path()),
        project_id: project.id.get(),
        project: links.project(),
        commits: commits
            .iter()
            .zip(files)
            .map(|(commit, files)| CommitJson::from_push(commit, files, &links))
            .collect(),
        total_commits_count: if for_system_hook { 0 } else { data.total_commits },
        repository: links.repository_with_urls(),
    })
}
