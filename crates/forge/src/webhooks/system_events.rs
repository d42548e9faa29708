//! Events for system hooks: projects, groups, users, keys and memberships that are created or removed.
//!
//! Use cases call these functions in the transaction of the change. A removal is reported before the rows are deleted,
//! parts before the whole. Data is loaded only if a system hook exists, with one statement per kind.

use std::collections::HashMap;

use model::{
    DeployKey, EventKind, Key, Namespace, NamespaceId, Project, ProjectId, UserId, WebhookEvent,
    webhook_events::{GroupMember, KeyRecord, ProjectMember, ProjectRecord, SystemEvent},
};
use store::{
    members::{EndedMemberships, MemberSource, Membership, MembershipSelector},
    projects::DeletionScope,
    users::Contact,
};

use crate::{Result, WriteTx, outbox};

/// Whether something is added or removed.
#[derive(Clone, Copy)]
enum Transition {
    Added,
    Removed,
}

/// Returns whether any system hook exists.
fn has_system_hooks(tx: &mut WriteTx<'_>) -> Result<bool> {
    outbox::has_subscribers(tx.read(), EventKind::System, None)
}

fn enqueue(tx: &mut WriteTx<'_>, event: &SystemEvent<'_>) -> Result<()> {
    outbox::enqueue(tx, EventKind::System, None, WebhookEvent::System(event))
}

/// Reports a new project and its initial members.
pub(crate) fn project_created(tx: &mut WriteTx<'_>, id: ProjectId) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    let (projects, owners) = load_with_owners(tx, &[id])?;
    for project in &projects {
        enqueue(tx, &SystemEvent::ProjectCreated(project_record(project, &owners)))?;
    }
    let members = store::members::in_projects(tx.db(), MembershipSelector::OfSources(&[id]))?;
    enqueue_project_members(tx, &projects, &members, Transition::Added)
}

/// Reports a project whose path has changed within its namespace.
pub(crate) fn project_renamed(tx: &mut WriteTx<'_>, id: ProjectId, old_path: &str) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    let (projects, owners) = load_with_owners(tx, &[id])?;
    for project in projects.iter().filter(|project| project.full_path() != old_path) {
        enqueue(tx, &SystemEvent::ProjectRenamed { project: project_record(project, &owners), old_path })?;
    }
    Ok(())
}

/// Reports a project that was moved to another namespace.
pub(crate) fn project_transferred(tx: &mut WriteTx<'_>, id: ProjectId, old_path: &str) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    let (projects, owners) = load_with_owners(tx, &[id])?;
    for project in &projects {
        enqueue(tx, &SystemEvent::ProjectTransferred { project: project_record(project, &owners), old_path })?;
    }
    Ok(())
}

/// Reports projects, and their members, that are about to be removed.
pub(crate) fn projects_removed(tx: &mut WriteTx<'_>, scope: DeletionScope<'_>) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    let ids = store::projects::lock_for_deletion(tx.db(), scope)?;
    let (projects, owners) = load_with_owners(tx, &ids)?;
    let members = store::members::in_projects(tx.db(), MembershipSelector::OfSources(&ids))?;
    enqueue_project_members(tx, &projects, &members, Transition::Removed)?;
    for project in &projects {
        enqueue(tx, &SystemEvent::ProjectDestroyed(project_record(project, &owners)))?;
    }
    Ok(())
}

/// Reports a new member.
pub(crate) fn member_joined(tx: &mut WriteTx<'_>, source: MemberSource, user: UserId) -> Result<()> {
    enqueue_member(tx, source, user, Transition::Added)
}

/// Reports a member who is about to be removed; does nothing if the user is not a member.
pub(crate) fn member_removed(tx: &mut WriteTx<'_>, source: MemberSource, user: UserId) -> Result<()> {
    enqueue_member(tx, source, user, Transition::Removed)
}

fn enqueue_member(tx: &mut WriteTx<'_>, source: MemberSource, user: UserId, transition: Transition) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    match source {
        MemberSource::Project(id) => {
            let member = store::members::in_projects(tx.db(), MembershipSelector::One(id, user))?;
            load_and_enqueue_project_members(tx, &member, transition)
        }
        MemberSource::Group(id) => {
            let member = store::members::in_groups(tx.db(), MembershipSelector::One(id, user))?;
            enqueue_group_members(tx, &member, transition)
        }
    }
}

/// Reports expired memberships.
pub(crate) fn members_expired(tx: &mut WriteTx<'_>, ended: &EndedMemberships) -> Result<()> {
    if has_system_hooks(tx)? { enqueue_ended_memberships(tx, ended) } else { Ok(()) }
}

/// Reports a new user.
pub(crate) fn user_created(tx: &mut WriteTx<'_>, id: UserId) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    match store::users::contacts(tx.db(), &[id])?.get(&id) {
        Some(user) => enqueue(tx, &SystemEvent::UserCreated(user.user_record())),
        None => Ok(()),
    }
}

/// Reports a user, with their keys and memberships, who is about to be removed; their projects are gone already.
pub(crate) fn user_removed(tx: &mut WriteTx<'_>, id: UserId) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    let contacts = store::users::contacts(tx.db(), &[id])?;
    let Some(user) = contacts.get(&id).map(Contact::user_record) else { return Ok(()) };
    for key in store::keys::all_of(tx.db(), id)? {
        enqueue(tx, &SystemEvent::KeyDestroyed(user_key_record(&key, Some(user.username))))?;
    }
    let in_projects = store::members::in_projects(tx.db(), MembershipSelector::OfUser(id))?;
    let in_groups = store::members::in_groups(tx.db(), MembershipSelector::OfUser(id))?;
    enqueue_ended_memberships(tx, &EndedMemberships { in_projects, in_groups, shares: 0 })?;
    enqueue(tx, &SystemEvent::UserDestroyed(user))
}

/// Reports a new SSH key.
pub(crate) fn key_created(tx: &mut WriteTx<'_>, key: &Key) -> Result<()> {
    enqueue_key(tx, key, Transition::Added)
}

/// Reports an SSH key that is about to be removed.
pub(crate) fn key_removed(tx: &mut WriteTx<'_>, key: &Key) -> Result<()> {
    enqueue_key(tx, key, Transition::Removed)
}

fn enqueue_key(tx: &mut WriteTx<'_>, key: &Key, transition: Transition) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    let contacts = store::users::contacts(tx.db(), &[key.user_id])?;
    let username = contacts.get(&key.user_id).map(|user| user.user_record().username);
    let key = user_key_record(key, username);
    let event = match transition {
        Transition::Added => SystemEvent::KeyCreated(key),
        Transition::Removed => SystemEvent::KeyDestroyed(key),
    };
    enqueue(tx, &event)
}

/// Reports a new deploy key.
pub(crate) fn deploy_key_created(tx: &mut WriteTx<'_>, key: &DeployKey) -> Result<()> {
    if has_system_hooks(tx)? { enqueue(tx, &SystemEvent::KeyCreated(deploy_key_record(key))) } else { Ok(()) }
}

/// Reports a deploy key that was disabled in its last project, and is thereby removed.
pub(crate) fn deploy_key_disabled(tx: &mut WriteTx<'_>, key: &DeployKey) -> Result<()> {
    if has_system_hooks(tx)? && store::deploy_keys::existing_ids(tx.db(), &[key.id])?.is_empty() {
        enqueue(tx, &SystemEvent::KeyDestroyed(deploy_key_record(key)))?;
    }
    Ok(())
}

/// Removes a batch of deploy keys that only a deleted project uses, and reports them; returns their number. Without
/// system hooks the keys are removed together with the project.
pub(crate) fn remove_unused_deploy_keys(tx: &mut WriteTx<'_>, project: ProjectId, limit: i64) -> Result<usize> {
    if !has_system_hooks(tx)? {
        return Ok(0);
    }
    let keys = store::deploy_keys::delete_exclusive_batch(tx.db(), project, limit)?;
    for key in &keys {
        enqueue(tx, &SystemEvent::KeyDestroyed(deploy_key_record(key)))?;
    }
    Ok(keys.len())
}

/// Reports a new group and its initial members.
pub(crate) fn group_created(tx: &mut WriteTx<'_>, group: &Namespace) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    enqueue(tx, &SystemEvent::GroupCreated(group))?;
    let members = store::members::in_groups(tx.db(), MembershipSelector::OfSources(&[group.id]))?;
    enqueue_group_members(tx, &members, Transition::Added)
}

/// Reports groups, subgroups first, and their members that are about to be removed; their projects are gone already.
pub(crate) fn groups_removed(tx: &mut WriteTx<'_>, ids: &[NamespaceId]) -> Result<()> {
    if !has_system_hooks(tx)? {
        return Ok(());
    }
    let members = store::members::in_groups(tx.db(), MembershipSelector::OfSources(ids))?;
    enqueue_group_members(tx, &members, Transition::Removed)?;
    for group in store::namespaces::by_ids(tx.db(), ids)?.iter().rev() {
        enqueue(tx, &SystemEvent::GroupDestroyed(group))?;
    }
    Ok(())
}

fn enqueue_ended_memberships(tx: &mut WriteTx<'_>, ended: &EndedMemberships) -> Result<()> {
    load_and_enqueue_project_members(tx, &ended.in_projects, Transition::Removed)?;
    enqueue_group_members(tx, &ended.in_groups, Transition::Removed)
}

/// Reports project memberships. Members of deleted projects were reported with the project.
fn load_and_enqueue_project_members(
    tx: &mut WriteTx<'_>,
    memberships: &[Membership<ProjectId>],
    transition: Transition,
) -> Result<()> {
    let (ids, viewer) = (resource_ids(memberships), tx.read().viewer());
    let projects = store::projects::by_ids(tx.db(), &viewer, &ids)?;
    enqueue_project_members(tx, &projects, memberships, transition)
}

fn enqueue_project_members(
    tx: &mut WriteTx<'_>,
    projects: &[Project],
    memberships: &[Membership<ProjectId>],
    transition: Transition,
) -> Result<()> {
    let users = load_users(tx, memberships)?;
    let projects: HashMap<ProjectId, &Project> = projects.iter().map(|project| (project.id, project)).collect();
    for Membership { source, user, role, since } in memberships {
        let Some((project, user)) = projects.get(source).copied().zip(users.get(user)) else { continue };
        let (user, role, created_at) = (user.user_record(), *role, *since);
        let member = ProjectMember { project, user, role, created_at, updated_at: created_at };
        let event = match transition {
            Transition::Added => SystemEvent::MemberJoinedProject(member),
            Transition::Removed => SystemEvent::MemberLeftProject(member),
        };
        enqueue(tx, &event)?;
    }
    Ok(())
}

fn enqueue_group_members(
    tx: &mut WriteTx<'_>,
    memberships: &[Membership<NamespaceId>],
    transition: Transition,
) -> Result<()> {
    if memberships.is_empty() {
        return Ok(());
    }
    let groups = store::namespaces::by_ids(tx.db(), &resource_ids(memberships))?;
    let groups: HashMap<NamespaceId, &Namespace> = groups.iter().map(|group| (group.id, group)).collect();
    let users = load_users(tx, memberships)?;
    for Membership { source, user, role, since } in memberships {
        let Some((group, user)) = groups.get(source).copied().zip(users.get(user)) else { continue };
        let (user, role, created_at) = (user.user_record(), *role, *since);
        let member = GroupMember { group, user, role, created_at, updated_at: created_at };
        let event = match transition {
            Transition::Added => SystemEvent::MemberJoinedGroup(member),
            Transition::Removed => SystemEvent::MemberLeftGroup(member),
        };
        enqueue(tx, &event)?;
    }
    Ok(())
}

fn resource_ids<S: Copy + Ord>(memberships: &[Membership<S>]) -> Vec<S> {
    distinct(memberships.iter().map(|membership| membership.source))
}

fn load_users<S>(tx: &mut WriteTx<'_>, memberships: &[Membership<S>]) -> Result<HashMap<UserId, Contact>> {
    let ids = distinct(memberships.iter().map(|membership| membership.user));
    Ok(store::users::contacts(tx.db(), &ids)?)
}

fn distinct<T: Ord>(ids: impl Iterator<Item = T>) -> Vec<T> {
    let mut ids: Vec<T> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns projects ordered by id, with the contacts of their owners.
fn load_with_owners(tx: &mut WriteTx<'_>, ids: &[ProjectId]) -> Result<(Vec<Project>, HashMap<UserId, Contact>)> {
    let viewer = tx.read().viewer();
    let mut projects = store::projects::by_ids(tx.db(), &viewer, ids)?;
    projects.sort_unstable_by_key(|project| project.id);
    let owners = distinct(projects.iter().filter_map(|project| project.namespace.owner_id));
    Ok((projects, store::users::contacts(tx.db(), &owners)?))
}

fn project_record<'a>(project: &'a Project, owners: &'a HashMap<UserId, Contact>) -> ProjectRecord<'a> {
    let owner = project.namespace.owner_id.and_then(|id| owners.get(&id)).map(Contact::user_record);
    ProjectRecord {
        project,
        owner_name: owner.map_or(&project.namespace.name, |owner| owner.name),
        owner_email: owner.map_or("", |owner| owner.email),
    }
}

fn user_key_record<'a>(key: &'a Key, username: Option<&'a str>) -> KeyRecord<'a> {
    let Key { id, key, created_at, .. } = key;
    KeyRecord { id: id.get(), key, username, created_at: *created_at, updated_at: *created_at }
}

fn deploy_key_record(key: &DeployKey) -> KeyRecord<'_> {
    let DeployKey { id, key, created_at, .. } = key;
    KeyRecord { id: id.get(), key, username: None, created_at: *created_at, updated_at: *created_at }
}
