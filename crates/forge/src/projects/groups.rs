//! Groups: what one can do with them.

use model::{
    Namespace, Page, Project, Role, Slice, Violations,
    groups::{GroupChanges, GroupFilter, NewGroup},
    projects::{ProjectFilter, ProjectOrder},
    text::fold,
};
use store::{members, project_lists::Scope, projects::Buried};

use crate::{Ability, Error, GroupAbility, GroupRef, ReadTx, Result, Unvalidated, WriteTx, projects, webhook_events};

/// A group with the projects that the caller sees in it.
pub struct GroupDetail {
    /// The group.
    pub group: Namespace,
    /// Those that live in it, newest first.
    pub projects: Vec<Project>,
    /// Those that are shared with it, newest first.
    pub shared_projects: Vec<Project>,
}

/// A page of groups: for administrators of all, for others of their own, or of all that they see.
pub fn list(
    tx: &mut ReadTx<'_>,
    filter: &Unvalidated<GroupFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Namespace>> {
    tx.may(Ability::Browse)?;
    let (filter, page) = (filter.get()?, *page.get()?);
    if projects::is_beyond(filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    let (viewer, everything) = (tx.viewer(), tx.actor().is_admin());
    Ok(store::groups::list(tx.db(), &viewer, everything, filter, page)?)
}

/// A page of the groups that the caller owns, newest membership first.
pub fn list_owned(tx: &mut ReadTx<'_>, page: &Unvalidated<Page>) -> Result<Slice<Namespace>> {
    tx.my_id(Ability::Browse)?;
    let (viewer, page) = (tx.viewer(), *page.get()?);
    Ok(store::groups::list_owned(tx.db(), &viewer, page)?)
}

/// One group with its projects.
pub fn get(tx: &mut ReadTx<'_>, group: &GroupRef) -> Result<GroupDetail> {
    let (group, role) = tx.open_group(group, GroupAbility::ReadGroup)?;
    detail(tx, group, role)
}

/// A page of the projects of a group, those shared with it included.
pub fn list_projects(
    tx: &mut ReadTx<'_>,
    group: &GroupRef,
    filter: &Unvalidated<ProjectFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Project>> {
    tx.may(Ability::Browse)?;
    let (filter, page) = (filter.get()?, *page.get()?);
    let (group, role) = tx.open_group(group, GroupAbility::ReadGroup)?;
    if projects::is_beyond(filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    let scope = Scope::OfGroup { group: group.id, own: true, shared: true, all: role.is_some() };
    let viewer = tx.viewer();
    Ok(store::project_lists::list(tx.db(), &viewer, scope, filter, page)?)
}

/// Adds a group; the caller becomes its owner.
pub fn create(tx: &mut WriteTx<'_>, new: &Unvalidated<NewGroup>) -> Result<Namespace> {
    let me = tx.my_id(Ability::Create)?;
    let new = new.get()?;
    if !tx.actor().user().is_some_and(|user| user.can_create_group && !user.external) {
        return Err(Error::Forbidden(None));
    }
    let mut violations = Violations::new();
    new.check(&mut violations);
    let place = Place { parent: None, full_path: Some(new.path.clone()), own: None };
    refuse_taken(tx, Some(&new.name), &place, violations)?;
    let now = tx.now();
    let id = store::groups::insert(tx.db(), new, None, now)?;
    members::put(tx.db(), members::Place::Group(id), me, Role::Owner, None, now)?;
    let group = find(tx, id)?;
    webhook_events::group_created(tx, &group)?;
    Ok(group)
}

/// Changes a group.
pub fn update(tx: &mut WriteTx<'_>, group: &GroupRef, changes: &Unvalidated<GroupChanges>) -> Result<GroupDetail> {
    tx.may(Ability::Browse)?;
    let changes = changes.get()?;
    let (group, role) = tx.open_group(group, GroupAbility::ChangeGroup)?;
    // As it is while this transaction lasts: projects that appear in it meanwhile wait.
    let group = store::namespaces::by_id_to_change(tx.db(), group.id)?.ok_or(Error::not_found("Group"))?;
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(visibility) = changes.visibility {
        let widest = store::groups::widest_project(tx.db(), group.id)?;
        let text = format!("{} is not allowed since there are projects with higher visibility.", visibility.as_str());
        violations.unless(widest.is_none_or(|widest| widest <= visibility), "visibility_level", text);
    }
    let full_path = changes.path.as_ref().map(|path| group.full_path_with(path));
    let place = Place { parent: group.parent_id, full_path, own: Some(group.id) };
    // Its own name is free to it, whoever else came to have it.
    let name = changes.name.as_deref().filter(|name| fold(name) != fold(&group.name));
    refuse_taken(tx, name, &place, violations)?;
    let now = tx.now();
    store::groups::update(tx.db(), &group, changes, now)?;
    let group = find(tx, group.id)?;
    detail(tx, group, role)
}

/// Removes a group with all projects inside; what they leave behind is cleaned up afterwards.
pub fn delete(tx: &mut WriteTx<'_>, group: &GroupRef) -> Result<Namespace> {
    let (group, _) = tx.open_group(group, GroupAbility::RemoveGroup)?;
    let group = store::namespaces::by_id_to_change(tx.db(), group.id)?.ok_or(Error::not_found("Group"))?;
    let groups = store::groups::with_all_below(tx.db(), group.id)?;
    projects::bury(tx, Buried::In(&groups))?;
    webhook_events::groups_leave(tx, &groups)?;
    store::groups::delete(tx.db(), &groups)?;
    Ok(group)
}

fn find(tx: &mut ReadTx<'_>, id: i64) -> Result<Namespace> {
    store::namespaces::by_id(tx.db(), id)?.ok_or(Error::not_found("Group"))
}

/// A group with those of its projects that the caller sees; who belongs to the group sees them all.
pub(crate) fn detail(tx: &mut ReadTx<'_>, group: Namespace, role: Option<Role>) -> Result<GroupDetail> {
    let (viewer, all) = (tx.viewer(), role.is_some());
    let newest = ProjectFilter { order: ProjectOrder::Id, ..ProjectFilter::default() };
    let mut part = |own: bool| {
        let scope = Scope::OfGroup { group: group.id, own, shared: !own, all };
        store::project_lists::list(tx.db(), &viewer, scope, &newest, Page::whole()).map(|slice| slice.items)
    };
    let (projects, shared_projects) = (part(true)?, part(false)?);
    Ok(GroupDetail { group, projects, shared_projects })
}

/// Where a group is or shall be.
struct Place {
    parent: Option<i64>,
    /// If it shall be another than now.
    full_path: Option<String>,
    own: Option<i64>,
}

/// Refuses a name that a neighbour has, or a path that another namespace has, in whatever case.
fn refuse_taken(tx: &mut WriteTx<'_>, name: Option<&str>, place: &Place, mut violations: Violations) -> Result<()> {
    const TAKEN: &str = "has already been taken";
    if let Some(name) = name {
        let taken = store::groups::is_name_taken(tx.db(), name, place.parent, place.own)?;
        violations.unless(!taken, "name", TAKEN);
    }
    if let Some(path) = &place.full_path {
        let holder = store::namespaces::by_full_path(tx.db(), path)?;
        violations.unless(holder.is_none_or(|holder| Some(holder.id) == place.own), "path", TAKEN);
    }
    Ok(violations.into_result()?)
}
