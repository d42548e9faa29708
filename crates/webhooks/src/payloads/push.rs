//! Changes of branches and tags.

use model::{
    Oid,
    webhook_events::{FileLists, Pushed},
};
use serde::Serialize;

use super::{
    Clerk,
    shared::{self, CommitJson, Place, ProjectJson, RepositoryJson},
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

pub(super) fn to_json(pushed: &Pushed<'_>, clerk: &Clerk) -> String {
    let Pushed { project, user, data, message, files, to_system } = *pushed;
    let place = Place::new(project, clerk);
    let is_tag = data.ref_name.starts_with("refs/tags/");
    let kind = if is_tag { "tag_push" } else { "push" };
    let digits = |oid: Option<Oid>| oid.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string());
    // A tag may point to an object of its own; the commit that it leads to, if to one at all, is the one that came with it.
    let commit = if is_tag { data.commits.last().map(|commit| commit.id) } else { data.after };
    let untold = FileLists::default();
    let files = files.iter().chain(std::iter::repeat(&untold));
    let commits = if to_system { &[] } else { data.commits.as_slice() };
    shared::text(&PushJson {
        object_kind: kind,
        event_name: kind,
        before: digits(data.before),
        after: digits(data.after),
        ref_name: &data.ref_name,
        checkout_sha: data.after.and(commit).map(|oid| oid.to_string()),
        message: if is_tag && to_system { Some("") } else { message.filter(|_| is_tag) },
        user_id: user.id,
        user_name: &user.name,
        user_username: &user.username,
        user_email: &user.email,
        user_avatar: clerk.site.identicon(&user.username),
        project_id: project.id,
        project: place.project(),
        commits: commits.iter().zip(files).map(|(commit, files)| CommitJson::pushed(commit, files, &place)).collect(),
        total_commits_count: if to_system { 0 } else { data.total_commits },
        repository: place.wide_repository(),
    })
}
