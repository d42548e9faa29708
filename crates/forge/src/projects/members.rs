//! Members of projects and groups.

use jiff::civil::Date;
use model::{
    Change, Member, NamespaceKind, Page, ProjectId, Role, Slice, UserId, Violations, events::EventAction,
    members::NewMember,
};
use store::{
    events::NewEvent,
    members::{MemberSearch, MemberSource},
};

use crate::{
    Error, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, projects,
    system_events,
};

/// A reference to the project or group that a membership belongs to.
#[derive(Clone, Debug)]
pub enum MemberSourceRef {
    /// A project.
    Project(ProjectRef),
    /// A group.
    Group(GroupRef),
}

/// Changes to a membership.
#[derive(Clone, Debug)]
pub struct MemberChanges {
    /// The access level as sent, not necessarily that of a role.
    pub access_level: i64,
    /// The first day on which the membership is no longer valid.
    pub expires_on: Change<Date>,
}

/// The outcome of removing a member.
pub enum MemberRemoval {
    /// The member was removed.
    Removed(Member),
    /// The user was not a member of the project, which is not an error.
    NotAMember,
}

/// Lists the members of a project or group, newest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    source: &MemberSourceRef,
    search: &Unvalidated<Option<String>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Member>> {
    let params = || Ok((search.validate()?.as_deref(), *page.validate()?));
    let (source, (search, page)) = open_for_reading(tx, source, params)?;
    if projects::cannot_match(search) {
        return Ok(Slice::empty(page));
    }
    // Other users see no addresses, so they must not be able to guess them through the search either.
    let (now, partial_emails) = (tx.now(), tx.actor().is_admin());
    let search = search.map(|text| MemberSearch { text, partial_emails });
    Ok(store::members::list(tx.db(), source, search.as_ref(), page, now)?)
}

/// Returns one member of a project or group.
pub fn get(tx: &mut ReadTx<'_>, source: &MemberSourceRef, user: &Unvalidated<UserId>) -> Result<Member> {
    let (source, user) = open_for_reading(tx, source, || user.validate().copied())?;
    find(tx, source, user)?.ok_or(Error::NoSuchRow)
}

/// Adds a member. An existing member of a project is returned unchanged; an existing member of a group is a conflict.
pub fn create(tx: &mut WriteTx<'_>, source: &MemberSourceRef, new: &Unvalidated<NewMember>) -> Result<Member> {
    let (source, new) = open_for_administration(tx, source, || new.validate().copied())?;
    lock_source(tx, source)?;
    match (find(tx.read(), source, new.user_id)?, source) {
        (Some(_), MemberSource::Group(_)) => return Err(Error::Taken("Member already exists".into())),
        (Some(member), MemberSource::Project(_)) => return Ok(member),
        (None, _) => {}
    }
    let user = store::users::by_id(tx.db(), new.user_id)?;
    let user = user.ok_or_else(|| Violations::one("user", "can't be blank"))?;
    let role = role_for(source, new.access_level)?;
    let now = tx.now();
    // An expired membership may still be stored; the user joins anew.
    system_events::member_removed(tx, source, user.id)?;
    if store::members::delete(tx.db(), source, user.id)? {
        record_event(tx, source, user.id, EventAction::Expired)?;
    }
    store::members::upsert(tx.db(), source, user.id, role, new.expires_on, now)?;
    record_event(tx, source, user.id, EventAction::Joined)?;
    system_events::member_joined(tx, source, user.id)?;
    Ok(Member { user: user.into(), role, expires_on: new.expires_on })
}

/// Changes the role or the expiry of a member.
pub fn update(
    tx: &mut WriteTx<'_>,
    source: &MemberSourceRef,
    user: &Unvalidated<UserId>,
    changes: &Unvalidated<MemberChanges>,
) -> Result<Member> {
    let params = || Ok((*user.validate()?, changes.validate()?));
    let (source, (user, changes)) = open_for_administration(tx, source, params)?;
    lock_source(tx, source)?;
    let member = find(tx.read(), source, user)?.ok_or(Error::NoSuchRow)?;
    let role = role_for(source, changes.access_level)?;
    let expires_on = match changes.expires_on {
        Change::Keep => member.expires_on,
        Change::Clear => None,
        Change::Set(day) => Some(day),
    };
    // The owner of a personal project does not depend on the membership.
    if matches!(source, MemberSource::Group(_)) && (role < Role::Owner || expires_on.is_some()) {
        ensure_owner_remains(tx, source, &member)?;
    }
    let now = tx.now();
    store::members::upsert(tx.db(), source, user, role, expires_on, now)?;
    Ok(Member { role, expires_on, ..member })
}

/// Removes a member; users may remove themselves.
pub fn delete(tx: &mut WriteTx<'_>, source_ref: &MemberSourceRef, user: &Unvalidated<UserId>) -> Result<MemberRemoval> {
    let (source, user) = open_for_reading(tx.read(), source_ref, || user.validate().copied())?;
    lock_source(tx, source)?;
    let member = find(tx.read(), source, user)?;
    let own_id = tx.actor().user().map(|user| user.id);
    match (source, member) {
        (MemberSource::Project(_), None) => Ok(MemberRemoval::NotAMember),
        (MemberSource::Group(_), None) => {
            open_for_administration(tx, source_ref, || Ok(()))?;
            Err(Error::not_found(format!("Member: user_id:{user}")))
        }
        (_, Some(member)) => {
            if own_id != Some(user) {
                open_for_administration(tx, source_ref, || Ok(()))?;
            }
            ensure_owner_remains(tx, source, &member)?;
            system_events::member_removed(tx, source, user)?;
            store::members::delete(tx.db(), source, user)?;
            record_event(tx, source, user, EventAction::Left)?;
            Ok(MemberRemoval::Removed(member))
        }
    }
}

/// Opens a project or group whose members the caller may see, and validates the parameters of the request.
fn open_for_reading<P>(
    tx: &mut ReadTx<'_>,
    source: &MemberSourceRef,
    params: impl FnOnce() -> Result<P>,
) -> Result<(MemberSource, P)> {
    open(tx, source, ProjectAbility::ReadProject, GroupAbility::ReadGroup, params)
}

/// Opens a project or group whose members the caller may change, and validates the parameters of the request.
fn open_for_administration<P>(
    tx: &mut WriteTx<'_>,
    source: &MemberSourceRef,
    params: impl FnOnce() -> Result<P>,
) -> Result<(MemberSource, P)> {
    open(tx.read(), source, ProjectAbility::AdministerMembers, GroupAbility::AdministerMembers, params)
}

fn open<P>(
    tx: &mut ReadTx<'_>,
    source: &MemberSourceRef,
    in_project: ProjectAbility,
    in_group: GroupAbility,
    params: impl FnOnce() -> Result<P>,
) -> Result<(MemberSource, P)> {
    Ok(match source {
        MemberSourceRef::Project(project) => {
            let (project, params) = tx.project_with(project, in_project, params)?;
            (MemberSource::Project(project.id), params)
        }
        MemberSourceRef::Group(group) => {
            let (group, _, params) = tx.group_with(group, in_group, params)?;
            (MemberSource::Group(group.id), params)
        }
    })
}

/// Locks the row of a project or group, so that concurrent transactions cannot change its members.
fn lock_source(tx: &mut WriteTx<'_>, source: MemberSource) -> Result<()> {
    let (found, resource) = match source {
        MemberSource::Project(project) => (store::projects::lock(tx.db(), project)?, "Project"),
        MemberSource::Group(group) => (store::namespaces::by_id_for_update(tx.db(), group)?.is_some(), "Group"),
    };
    if found { Ok(()) } else { Err(Error::not_found(resource)) }
}

fn find(tx: &mut ReadTx<'_>, source: MemberSource, user: UserId) -> Result<Option<Member>> {
    let now = tx.now();
    Ok(store::members::get(tx.db(), source, user, now)?)
}

/// Returns the role with an access level, if members of such a source can have it.
fn role_for(source: MemberSource, level: i64) -> Result<Role> {
    let highest = match source {
        MemberSource::Project(_) => Role::Master,
        MemberSource::Group(_) => Role::Owner,
    };
    let role = Role::from_level(level).filter(|role| *role <= highest);
    role.ok_or_else(|| Error::Unprocessable("Access level is not known".into()))
}

/// Fails if removing the member would leave a group without a permanent owner, or a personal project without its owner.
fn ensure_owner_remains(tx: &mut WriteTx<'_>, source: MemberSource, member: &Member) -> Result<()> {
    if may_be_removed(tx.read(), source, member)? { Ok(()) } else { Err(Error::Forbidden(None)) }
}

/// Returns whether a group has a permanent owner, and a personal project its owner, without the member.
pub(crate) fn may_be_removed(tx: &mut ReadTx<'_>, source: MemberSource, member: &Member) -> Result<bool> {
    Ok(match source {
        MemberSource::Group(group) => {
            member.role < Role::Owner || store::groups::has_other_owner(tx.db(), group, member.user.id)?
        }
        MemberSource::Project(project) => !is_personal_project_of(tx, project, member.user.id)?,
    })
}

/// Returns whether a project is in the personal namespace of a user.
fn is_personal_project_of(tx: &mut ReadTx<'_>, project: ProjectId, user: UserId) -> Result<bool> {
    let viewer = tx.viewer();
    let project = store::projects::find(tx.db(), &viewer, store::projects::ProjectKey::Id(project))?;
    let is_personal = |project: model::Project| {
        project.namespace.kind == NamespaceKind::User && project.namespace.owner_id == Some(user)
    };
    Ok(project.is_some_and(is_personal))
}

/// Records that a user joined or left a project, in the user's name. Groups have no events, and the owner of a personal
/// project gets none.
fn record_event(tx: &mut WriteTx<'_>, source: MemberSource, author: UserId, action: EventAction) -> Result<()> {
    let MemberSource::Project(project) = source else { return Ok(()) };
    if is_personal_project_of(tx.read(), project, author)? {
        return Ok(());
    }
    let now = tx.now();
    let event = NewEvent { project, author, action, target: None, now };
    store::events::insert(tx.db(), &event)?;
    Ok(())
}

/// Fails if the user is the only owner of a group.
pub(crate) fn ensure_groups_keep_owner(tx: &mut WriteTx<'_>, user: UserId) -> Result<()> {
    // Locked, so that the two owners of a group cannot be deleted concurrently.
    for group in store::groups::owned_by(tx.db(), user)? {
        lock_source(tx, MemberSource::Group(group))?;
    }
    if store::groups::solely_owned_by(tx.db(), user)?.is_empty() {
        return Ok(());
    }
    let text = "You must transfer ownership or delete groups before you can remove user";
    Err(Error::Taken(text.into()))
}
