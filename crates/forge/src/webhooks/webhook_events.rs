//! What hooks of the instance are told: projects, groups, users, keys and memberships that come and go.
//!
//! Whoever makes or removes something says so here, in the same transaction. What goes is told while it is still there,
//! its parts before the whole. Nothing is looked up unless a hook wants to know, and then one statement finds all of a
//! kind, however many there are.

use std::collections::HashMap;

use model::{
    DeployKey, EventKind, Key, Namespace, Project, WebhookEvent,
    webhook_events::{GroupMember, KeyRecord, ProjectMember, ProjectRecord, SystemHappening},
};
use store::{
    members::{Ended, Membership, Place, Which},
    projects::Buried,
    users::Contact,
};

use crate::{Result, WriteTx, announcements};

/// Whether something comes or goes.
#[derive(Clone, Copy)]
enum Step {
    Came,
    Goes,
}

/// Whether any hook of the instance is there.
fn is_wanted(tx: &mut WriteTx<'_>) -> Result<bool> {
    announcements::is_wanted(tx, EventKind::System, None)
}

fn tell(tx: &mut WriteTx<'_>, happening: &SystemHappening<'_>) -> Result<()> {
    announcements::write_down(tx, EventKind::System, None, WebhookEvent::System(happening), None)
}

/// A project was made, with whoever belongs to it from the start.
pub(crate) fn project_created(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    let (projects, owners) = with_owners(tx, &[id])?;
    for project in &projects {
        tell(tx, &SystemHappening::ProjectCreated(record(project, &owners)))?;
    }
    let members = store::members::in_projects(tx.db(), Which::Of(&[id]))?;
    tell_of_project_members(tx, &projects, &members, Step::Came)
}

/// A project has another path than this one, in the same place.
pub(crate) fn project_renamed(tx: &mut WriteTx<'_>, id: i64, old_path: &str) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    let (projects, owners) = with_owners(tx, &[id])?;
    for project in projects.iter().filter(|project| project.full_path() != old_path) {
        tell(tx, &SystemHappening::ProjectRenamed { project: record(project, &owners), old_path })?;
    }
    Ok(())
}

/// A project has moved to another place.
pub(crate) fn project_transferred(tx: &mut WriteTx<'_>, id: i64, old_path: &str) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    let (projects, owners) = with_owners(tx, &[id])?;
    for project in &projects {
        tell(tx, &SystemHappening::ProjectTransferred { project: record(project, &owners), old_path })?;
    }
    Ok(())
}

/// Projects go, and with them whoever belongs to them.
pub(crate) fn projects_leave(tx: &mut WriteTx<'_>, which: Buried<'_>) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    let ids = store::projects::hold(tx.db(), which)?;
    let (projects, owners) = with_owners(tx, &ids)?;
    let members = store::members::in_projects(tx.db(), Which::Of(&ids))?;
    tell_of_project_members(tx, &projects, &members, Step::Goes)?;
    for project in &projects {
        tell(tx, &SystemHappening::ProjectDestroyed(record(project, &owners)))?;
    }
    Ok(())
}

/// Somebody became a member.
pub(crate) fn member_joined(tx: &mut WriteTx<'_>, place: Place, user: i64) -> Result<()> {
    tell_of_one(tx, place, user, Step::Came)
}

/// Somebody is about to be a member no longer, if they are one at all.
pub(crate) fn member_leaves(tx: &mut WriteTx<'_>, place: Place, user: i64) -> Result<()> {
    tell_of_one(tx, place, user, Step::Goes)
}

fn tell_of_one(tx: &mut WriteTx<'_>, place: Place, user: i64, step: Step) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    match place {
        Place::Project(id) => {
            let member = store::members::in_projects(tx.db(), Which::One(id, user))?;
            find_and_tell_of_projects(tx, &member, step)
        }
        Place::Group(id) => {
            let member = store::members::in_groups(tx.db(), Which::One(id, user))?;
            find_and_tell_of_groups(tx, &member, step)
        }
    }
}

/// Memberships have ended, because their day had come.
pub(crate) fn members_expired(tx: &mut WriteTx<'_>, ended: &Ended) -> Result<()> {
    if is_wanted(tx)? { tell_of_ended(tx, ended) } else { Ok(()) }
}

/// A user was made.
pub(crate) fn user_created(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    match store::users::contacts(tx.db(), &[id])?.get(&id) {
        Some(user) => tell(tx, &SystemHappening::UserCreated(user.person())),
        None => Ok(()),
    }
}

/// A user goes, with their keys and memberships; their own projects are gone already.
pub(crate) fn user_leaves(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    let contacts = store::users::contacts(tx.db(), &[id])?;
    let Some(user) = contacts.get(&id).map(Contact::person) else { return Ok(()) };
    for key in store::keys::all_of(tx.db(), id)? {
        tell(tx, &SystemHappening::KeyDestroyed(user_key(&key, Some(user.username))))?;
    }
    let in_projects = store::members::in_projects(tx.db(), Which::User(id))?;
    let in_groups = store::members::in_groups(tx.db(), Which::User(id))?;
    tell_of_ended(tx, &Ended { in_projects, in_groups, shares: 0 })?;
    tell(tx, &SystemHappening::UserDestroyed(user))
}

/// Somebody has another key.
pub(crate) fn key_created(tx: &mut WriteTx<'_>, key: &Key) -> Result<()> {
    tell_of_key(tx, key, Step::Came)
}

/// A key of somebody goes.
pub(crate) fn key_leaves(tx: &mut WriteTx<'_>, key: &Key) -> Result<()> {
    tell_of_key(tx, key, Step::Goes)
}

fn tell_of_key(tx: &mut WriteTx<'_>, key: &Key, step: Step) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    let contacts = store::users::contacts(tx.db(), &[key.user_id])?;
    let username = contacts.get(&key.user_id).map(|user| user.person().username);
    let key = user_key(key, username);
    let happening = match step {
        Step::Came => SystemHappening::KeyCreated(key),
        Step::Goes => SystemHappening::KeyDestroyed(key),
    };
    tell(tx, &happening)
}

/// There is another key for machines.
pub(crate) fn deploy_key_created(tx: &mut WriteTx<'_>, key: &DeployKey) -> Result<()> {
    if is_wanted(tx)? { tell(tx, &SystemHappening::KeyCreated(machine_key(key))) } else { Ok(()) }
}

/// A key for machines is gone, if it is: it goes with the last project that it opens.
pub(crate) fn deploy_key_disabled(tx: &mut WriteTx<'_>, key: &DeployKey) -> Result<()> {
    if is_wanted(tx)? && store::deploy_keys::left_among(tx.db(), &[key.id])?.is_empty() {
        tell(tx, &SystemHappening::KeyDestroyed(machine_key(key)))?;
    }
    Ok(())
}

/// Takes from a project that was buried some of the keys that open nothing else, and tells of them; says how many. If
/// nobody wants to know, they go with the rest of the project.
pub(crate) fn forget_deploy_keys(tx: &mut WriteTx<'_>, project: i64, most: i64) -> Result<usize> {
    if !is_wanted(tx)? {
        return Ok(0);
    }
    let keys = store::deploy_keys::forget_some(tx.db(), project, most)?;
    for key in &keys {
        tell(tx, &SystemHappening::KeyDestroyed(machine_key(key)))?;
    }
    Ok(keys.len())
}

/// A group was made, with whoever belongs to it from the start.
pub(crate) fn group_created(tx: &mut WriteTx<'_>, group: &Namespace) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    tell(tx, &SystemHappening::GroupCreated(group))?;
    let members = store::members::in_groups(tx.db(), Which::Of(&[group.id]))?;
    find_and_tell_of_groups(tx, &members, Step::Came)
}

/// Groups go, the lowest first, and with them whoever belongs to them; their projects are gone already.
pub(crate) fn groups_leave(tx: &mut WriteTx<'_>, ids: &[i64]) -> Result<()> {
    if !is_wanted(tx)? {
        return Ok(());
    }
    let members = store::members::in_groups(tx.db(), Which::Of(ids))?;
    find_and_tell_of_groups(tx, &members, Step::Goes)?;
    for group in store::namespaces::among(tx.db(), ids)?.iter().rev() {
        tell(tx, &SystemHappening::GroupDestroyed(group))?;
    }
    Ok(())
}

fn tell_of_ended(tx: &mut WriteTx<'_>, ended: &Ended) -> Result<()> {
    find_and_tell_of_projects(tx, &ended.in_projects, Step::Goes)?;
    find_and_tell_of_groups(tx, &ended.in_groups, Step::Goes)
}

/// Tells of memberships of projects. Of a project that was buried everybody had left before.
fn find_and_tell_of_projects(tx: &mut WriteTx<'_>, memberships: &[Membership], step: Step) -> Result<()> {
    let (ids, viewer) = (places(memberships), tx.viewer());
    let projects = store::projects::among(tx.db(), &viewer, &ids)?;
    tell_of_project_members(tx, &projects, memberships, step)
}

fn tell_of_project_members(
    tx: &mut WriteTx<'_>,
    projects: &[Project],
    memberships: &[Membership],
    step: Step,
) -> Result<()> {
    let people = people(tx, memberships)?;
    let projects: HashMap<i64, &Project> = projects.iter().map(|project| (project.id, project)).collect();
    for Membership { place, user, role, since } in memberships {
        let Some((project, user)) = projects.get(place).copied().zip(people.get(user)) else { continue };
        let (user, role, created_at) = (user.person(), *role, *since);
        let member = ProjectMember { project, user, role, created_at, updated_at: created_at };
        let happening = match step {
            Step::Came => SystemHappening::MemberJoinedProject(member),
            Step::Goes => SystemHappening::MemberLeftProject(member),
        };
        tell(tx, &happening)?;
    }
    Ok(())
}

fn find_and_tell_of_groups(tx: &mut WriteTx<'_>, memberships: &[Membership], step: Step) -> Result<()> {
    if memberships.is_empty() {
        return Ok(());
    }
    let groups = store::namespaces::among(tx.db(), &places(memberships))?;
    let groups: HashMap<i64, &Namespace> = groups.iter().map(|group| (group.id, group)).collect();
    let people = people(tx, memberships)?;
    for Membership { place, user, role, since } in memberships {
        let Some((group, user)) = groups.get(place).copied().zip(people.get(user)) else { continue };
        let (user, role, created_at) = (user.person(), *role, *since);
        let member = GroupMember { group, user, role, created_at, updated_at: created_at };
        let happening = match step {
            Step::Came => SystemHappening::MemberJoinedGroup(member),
            Step::Goes => SystemHappening::MemberLeftGroup(member),
        };
        tell(tx, &happening)?;
    }
    Ok(())
}

fn places(memberships: &[Membership]) -> Vec<i64> {
    distinct(memberships.iter().map(|membership| membership.place))
}

fn people(tx: &mut WriteTx<'_>, memberships: &[Membership]) -> Result<HashMap<i64, Contact>> {
    let ids = distinct(memberships.iter().map(|membership| membership.user));
    Ok(store::users::contacts(tx.db(), &ids)?)
}

fn distinct(ids: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut ids: Vec<i64> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Projects in the order of their numbers, with those to whom they belong.
fn with_owners(tx: &mut WriteTx<'_>, ids: &[i64]) -> Result<(Vec<Project>, HashMap<i64, Contact>)> {
    let viewer = tx.viewer();
    let mut projects = store::projects::among(tx.db(), &viewer, ids)?;
    projects.sort_unstable_by_key(|project| project.id);
    let owners = distinct(projects.iter().filter_map(|project| project.namespace.owner_id));
    Ok((projects, store::users::contacts(tx.db(), &owners)?))
}

fn record<'a>(project: &'a Project, owners: &'a HashMap<i64, Contact>) -> ProjectRecord<'a> {
    let owner = project.namespace.owner_id.and_then(|id| owners.get(&id)).map(Contact::person);
    ProjectRecord {
        project,
        owner_name: owner.map_or(&project.namespace.name, |owner| owner.name),
        owner_email: owner.map_or("", |owner| owner.email),
    }
}

fn user_key<'a>(key: &'a Key, username: Option<&'a str>) -> KeyRecord<'a> {
    let Key { id, key, created_at, .. } = key;
    KeyRecord { id: *id, key, username, created_at: *created_at, updated_at: *created_at }
}

fn machine_key(key: &DeployKey) -> KeyRecord<'_> {
    let DeployKey { id, key, created_at, .. } = key;
    KeyRecord { id: *id, key, username: None, created_at: *created_at, updated_at: *created_at }
}
