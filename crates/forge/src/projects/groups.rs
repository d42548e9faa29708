//! Groups.

use model::{
    Namespace, NamespaceId, Page, Project, Role, Slice, User, Violations,
    groups::{GroupChanges, GroupFilter, NewGroup},
    projects::{ProjectFilter, ProjectOrder},
    text::fold_case,
};
use store::{members, project_lists::ProjectListScope, projects::DeletionScope};

use crate::{Ability, Error, GroupAbility, GroupRef, ReadTx, Result, Unvalidated, WriteTx, projects, system_events};

/// A group with those of its projects that the caller may see.
pub struct GroupDetail {
    /// The group.
    pub group: Namespace,
    /// The projects in the group, newest first.
    pub projects: Vec<Project>,
    /// The projects shared with the group, newest first.
    pub shared_projects: Vec<Project>,
}

/// Lists groups: for administrators all of them, for others their own or all visible ones.
pub fn list(
    tx: &mut ReadTx<'_>,
    filter: &Unvalidated<GroupFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Namespace>> {
    tx.authorize(Ability::Browse)?;
    let (filter, page) = (filter.validate()?, *page.validate()?);
    if projects::cannot_match(filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    let (viewer, all) = (tx.viewer(), tx.actor().is_admin());
    Ok(store::groups::list(tx.db(), &viewer, all, filter, page)?)
}

/// Lists the groups that the caller owns, newest membership first.
pub fn list_owned(tx: &mut ReadTx<'_>, page: &Unvalidated<Page>) -> Result<Slice<Namespace>> {
    tx.current_user_id(Ability::Browse)?;
    let (viewer, page) = (tx.viewer(), *page.validate()?);
    Ok(store::groups::list_owned(tx.db(), &viewer, page)?)
}

/// Returns a group with its projects.
pub fn get(tx: &mut ReadTx<'_>, group: &GroupRef) -> Result<GroupDetail> {
    let (group, role) = tx.group(group, GroupAbility::ReadGroup)?;
    detail(tx, group, role)
}

/// Lists the projects of a group, including those shared with it.
pub fn list_projects(
    tx: &mut ReadTx<'_>,
    group: &GroupRef,
    filter: &Unvalidated<ProjectFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Project>> {
    let params = || Ok((filter.validate()?, *page.validate()?));
    let (group, role, (filter, page)) = tx.group_with(group, GroupAbility::ReadGroup, params)?;
    if projects::cannot_match(filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    let scope = ProjectListScope::OfGroup { group: group.id, own: true, shared: true, all: role.is_some() };
    let viewer = tx.viewer();
    Ok(store::project_lists::list(tx.db(), &viewer, scope, filter, page)?)
}

/// Returns whether a user may create groups.
pub fn may_be_created_by(user: &User) -> bool {
    user.can_create_group && !user.external
}

/// Creates a group; the caller becomes its owner.
pub fn create(tx: &mut WriteTx<'_>, new: &Unvalidated<NewGroup>) -> Result<Namespace> {
    let me = tx.current_user_id(Ability::Create)?;
    let new = new.validate()?;
    if !tx.actor().user().is_some_and(may_be_created_by) {
        return Err(Error::Forbidden(None));
    }
    let mut violations = Violations::new();
    new.check(&mut violations);
    let location = GroupLocation { parent: None, full_path: Some(new.path.clone()), own_id: None };
    ensure_not_taken(tx, Some(&new.name), &location, violations)?;
    let now = tx.now();
    let id = store::groups::insert(tx.db(), new, None, now)?;
    members::upsert(tx.db(), members::MemberSource::Group(id), me, Role::Owner, None, now)?;
    let group = find(tx.read(), id)?;
    system_events::group_created(tx, &group)?;
    Ok(group)
}

/// Changes a group.
pub fn update(tx: &mut WriteTx<'_>, group: &GroupRef, changes: &Unvalidated<GroupChanges>) -> Result<GroupDetail> {
    let (group, role, changes) = tx.group_with(group, GroupAbility::ChangeGroup, || changes.validate())?;
    // Locked, so that no project is added to the group until the transaction ends.
    let group = store::namespaces::by_id_for_update(tx.db(), group.id)?.ok_or(Error::not_found("Group"))?;
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(visibility) = changes.visibility {
        let highest = store::groups::max_project_visibility(tx.db(), group.id)?;
        let text = format!("{} is not allowed since there are projects with higher visibility.", visibility.as_str());
        violations.require(highest.is_none_or(|highest| highest <= visibility), "visibility_level", text);
    }
    let full_path = changes.path.as_ref().map(|path| group.full_path_with(path));
    let location = GroupLocation { parent: group.parent_id, full_path, own_id: Some(group.id) };
    // A group may keep its own name even if another group has it too.
    let name = changes.name.as_deref().filter(|name| fold_case(name) != fold_case(&group.name));
    ensure_not_taken(tx, name, &location, violations)?;
    let now = tx.now();
    store::groups::update(tx.db(), &group, changes, now)?;
    let group = find(tx.read(), group.id)?;
    detail(tx.read(), group, role)
}

/// Deletes a group with its subgroups and projects; their data is cleaned up by background tasks.
pub fn delete(tx: &mut WriteTx<'_>, group: &GroupRef) -> Result<Namespace> {
    let (group, _) = tx.group(group, GroupAbility::RemoveGroup)?;
    let group = store::namespaces::by_id_for_update(tx.db(), group.id)?.ok_or(Error::not_found("Group"))?;
    let groups = store::groups::with_descendants(tx.db(), group.id)?;
    projects::soft_delete(tx, DeletionScope::InNamespaces(&groups))?;
    system_events::groups_removed(tx, &groups)?;
    store::groups::delete(tx.db(), &groups)?;
    Ok(group)
}

fn find(tx: &mut ReadTx<'_>, id: NamespaceId) -> Result<Namespace> {
    store::namespaces::by_id(tx.db(), id)?.ok_or(Error::not_found("Group"))
}

/// Returns a group with those of its projects that the caller may see; members of the group see all.
pub(crate) fn detail(tx: &mut ReadTx<'_>, group: Namespace, role: Option<Role>) -> Result<GroupDetail> {
    let (viewer, all) = (tx.viewer(), role.is_some());
    let by_id_desc = ProjectFilter { order: ProjectOrder::Id, ..ProjectFilter::default() };
    let mut list_part = |own: bool| {
        let scope = ProjectListScope::OfGroup { group: group.id, own, shared: !own, all };
        store::project_lists::list(tx.db(), &viewer, scope, &by_id_desc, Page::whole()).map(|slice| slice.items)
    };
    let (projects, shared_projects) = (list_part(true)?, list_part(false)?);
    Ok(GroupDetail { group, projects, shared_projects })
}

/// The location of a group in the tree of namespaces.
struct GroupLocation {
    parent: Option<NamespaceId>,
    /// The new full path, if it changes.
    full_path: Option<String>,
    own_id: Option<NamespaceId>,
}

/// Fails if a sibling has the name, or another namespace has the path, ignoring case.
fn ensure_not_taken(
    tx: &mut WriteTx<'_>,
    name: Option<&str>,
    location: &GroupLocation,
    mut violations: Violations,
) -> Result<()> {
    const TAKEN: &str = "has already been taken";
    if let Some(name) = name {
        let taken = store::groups::is_name_taken(tx.db(), name, location.parent, location.own_id)?;
        violations.require(!taken, "name", TAKEN);
    }
    if let Some(path) = &location.full_path {
        let holder = store::namespaces::by_full_path(tx.db(), path)?;
        violations.require(holder.is_none_or(|holder| Some(holder.id) == location.own_id), "path", TAKEN);
    }
    Ok(violations.into_result()?)
}
