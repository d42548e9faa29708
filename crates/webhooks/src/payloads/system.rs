//! The payloads of system hooks.

use model::{
    Namespace, Role, Time,
    webhook_events::{GroupMember, KeyRecord, ProjectMember, ProjectRecord, SystemEvent, UserRecord},
};
use serde::Serialize;

use super::json::{self, iso8601};

/// Returns the constant payload that tests a system hook. It resembles that of a new project.
pub fn test_to_json() -> String {
    json::serialize(&TestJson {
        event_name: "project_create",
        name: "Ruby",
        path: "ruby",
        project_id: 1,
        owner_name: "Someone",
        owner_email: "someone@example.com",
    })
}

#[derive(Serialize)]
struct TestJson {
    event_name: &'static str,
    name: &'static str,
    path: &'static str,
    project_id: i64,
    owner_name: &'static str,
    owner_email: &'static str,
}

pub(super) fn to_json(event: &SystemEvent<'_>) -> String {
    use SystemEvent as Event;
    match *event {
        Event::ProjectCreated(record) => project("project_create", record, None),
        Event::ProjectDestroyed(record) => project("project_destroy", record, None),
        Event::ProjectRenamed { project: record, old_path } => project("project_rename", record, Some(old_path)),
        Event::ProjectTransferred { project: record, old_path } => project("project_transfer", record, Some(old_path)),
        Event::MemberJoinedProject(member) => project_member("user_add_to_team", member),
        Event::MemberLeftProject(member) => project_member("user_remove_from_team", member),
        Event::UserCreated(record) => user("user_create", record),
        Event::UserDestroyed(record) => user("user_destroy", record),
        Event::KeyCreated(record) => key("key_create", record),
        Event::KeyDestroyed(record) => key("key_destroy", record),
        Event::GroupCreated(namespace) => group("group_create", namespace),
        Event::GroupDestroyed(namespace) => group("group_destroy", namespace),
        Event::MemberJoinedGroup(member) => group_member("user_add_to_group", member),
        Event::MemberLeftGroup(member) => group_member("user_remove_from_group", member),
    }
}

/// The first fields of every payload.
#[derive(Serialize)]
struct HeadJson {
    event_name: &'static str,
    created_at: String,
    updated_at: String,
}

impl HeadJson {
    fn new(event_name: &'static str, created_at: Time, updated_at: Time) -> Self {
        Self { event_name, created_at: iso8601(created_at), updated_at: iso8601(updated_at) }
    }
}

#[derive(Serialize)]
struct ProjectRecordJson<'a> {
    #[serde(flatten)]
    head: HeadJson,
    name: &'a str,
    path: &'a str,
    path_with_namespace: String,
    project_id: i64,
    owner_name: &'a str,
    owner_email: &'a str,
    project_visibility: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path_with_namespace: Option<&'a str>,
}

fn project(event: &'static str, record: ProjectRecord<'_>, old_path: Option<&str>) -> String {
    let ProjectRecord { project, owner_name, owner_email } = record;
    json::serialize(&ProjectRecordJson {
        head: HeadJson::new(event, project.created_at, project.updated_at),
        name: &project.name,
        path: &project.path,
        path_with_namespace: project.full_path(),
        project_id: project.id.get(),
        owner_name,
        owner_email,
        project_visibility: project.visibility.as_str(),
        old_path_with_namespace: old_path,
    })
}

/// The role appears under two keys: the one that GitLab sends and the one that it documents.
#[derive(Serialize)]
struct ProjectMemberJson<'a> {
    #[serde(flatten)]
    head: HeadJson,
    project_name: &'a str,
    project_path: &'a str,
    project_path_with_namespace: String,
    project_id: i64,
    user_username: &'a str,
    user_name: &'a str,
    user_email: &'a str,
    user_id: i64,
    access_level: &'static str,
    project_access: &'static str,
    project_visibility: &'static str,
}

fn project_member(event: &'static str, member: ProjectMember<'_>) -> String {
    let ProjectMember { project, user, role, created_at, updated_at } = member;
    json::serialize(&ProjectMemberJson {
        head: HeadJson::new(event, created_at, updated_at),
        project_name: &project.name,
        project_path: &project.path,
        project_path_with_namespace: project.full_path(),
        project_id: project.id.get(),
        user_username: user.username,
        user_name: user.name,
        user_email: user.email,
        user_id: user.id.get(),
        access_level: role_name(role),
        project_access: role_name(role),
        project_visibility: project.visibility.as_str(),
    })
}

#[derive(Serialize)]
struct UserRecordJson<'a> {
    #[serde(flatten)]
    head: HeadJson,
    name: &'a str,
    email: &'a str,
    user_id: i64,
    username: &'a str,
}

fn user(event: &'static str, record: UserRecord<'_>) -> String {
    let UserRecord { id, username, name, email, created_at, updated_at } = record;
    let head = HeadJson::new(event, created_at, updated_at);
    json::serialize(&UserRecordJson { head, name, email, user_id: id.get(), username })
}

#[derive(Serialize)]
struct KeyJson<'a> {
    #[serde(flatten)]
    head: HeadJson,
    id: i64,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<&'a str>,
}

fn key(event: &'static str, record: KeyRecord<'_>) -> String {
    let KeyRecord { id, key, username, created_at, updated_at } = record;
    json::serialize(&KeyJson { head: HeadJson::new(event, created_at, updated_at), id, key, username })
}

/// A group has no single owner; the fields are null.
#[derive(Serialize)]
struct GroupJson<'a> {
    #[serde(flatten)]
    head: HeadJson,
    name: &'a str,
    path: &'a str,
    group_id: i64,
    owner_name: Option<&'a str>,
    owner_email: Option<&'a str>,
}

fn group(event: &'static str, group: &Namespace) -> String {
    json::serialize(&GroupJson {
        head: HeadJson::new(event, group.created_at, group.updated_at),
        name: &group.name,
        path: &group.path,
        group_id: group.id.get(),
        owner_name: None,
        owner_email: None,
    })
}

#[derive(Serialize)]
struct GroupMemberJson<'a> {
    #[serde(flatten)]
    head: HeadJson,
    group_name: &'a str,
    group_path: &'a str,
    group_id: i64,
    user_username: &'a str,
    user_name: &'a str,
    user_email: &'a str,
    user_id: i64,
    group_access: &'static str,
}

fn group_member(event: &'static str, member: GroupMember<'_>) -> String {
    let GroupMember { group, user, role, created_at, updated_at } = member;
    json::serialize(&GroupMemberJson {
        head: HeadJson::new(event, created_at, updated_at),
        group_name: &group.name,
        group_path: &group.path,
        group_id: group.id.get(),
        user_username: user.username,
        user_name: user.name,
        user_email: user.email,
        user_id: user.id.get(),
        group_access: role_name(role),
    })
}

/// System hooks receive the names of roles, project hooks their numbers.
fn role_name(role: Role) -> &'static str {
    match role {
        Role::Guest => "Guest",
        Role::Reporter => "Reporter",
        Role::Developer => "Developer",
        Role::Master => "Master",
        Role::Owner => "Owner",
    }
}
