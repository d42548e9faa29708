//! What visitors of the web interface can see of projects, groups and users, also without signing in.

use model::{
    Namespace, NamespaceKind, Page, Project, Role, Slice,
    projects::{ProjectFilter, ProjectOrder},
};
use store::project_lists::ProjectListScope;

use crate::{
    Ability, Error, GroupAbility, GroupRef, ReadTx, Result, Unvalidated,
    projects::{self, ProjectListKind},
    user_pages::{self, UserPage},
};

/// The page of a user or a group, which share one set of paths.
pub enum NamespacePage {
    /// A user.
    User(Box<UserPage>),
    /// A group.
    Group(Box<GroupPage>),
}

/// A group with those of its projects that the visitor can see.
pub struct GroupPage {
    /// The group.
    pub group: Namespace,
    /// The role of the visitor in the group.
    pub role: Option<Role>,
    /// The projects in the group, most recently active first.
    pub projects: Slice<Project>,
}

/// Lists the projects that the visitor can see.
pub fn projects(
    tx: &mut ReadTx<'_>,
    filter: &Unvalidated<ProjectFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Project>> {
    tx.authorize(Ability::ViewPages)?;
    projects::list_authorized(tx, ProjectListKind::Visible, filter.validate()?, *page.validate()?)
}

/// Returns the page of the user or the group with this path.
pub fn namespace(tx: &mut ReadTx<'_>, path: &str, page: &Unvalidated<Page>) -> Result<NamespacePage> {
    tx.authorize(Ability::ViewPages)?;
    let page = *page.validate()?;
    let found = store::namespaces::by_full_path(tx.db(), path)?.ok_or(Error::NotFound(None))?;
    match found.kind {
        NamespaceKind::User => Ok(NamespacePage::User(Box::new(user_pages::get(tx, &found, page)?))),
        NamespaceKind::Group => Ok(NamespacePage::Group(Box::new(group_page(tx, &GroupRef::Id(found.id), page)?))),
    }
}

/// Returns the page of the group with this path.
pub fn group(tx: &mut ReadTx<'_>, path: &str, page: &Unvalidated<Page>) -> Result<GroupPage> {
    tx.authorize(Ability::ViewPages)?;
    let page = *page.validate()?;
    group_page(tx, &GroupRef::Path(path.to_owned()), page)
}

fn group_page(tx: &mut ReadTx<'_>, group: &GroupRef, page: Page) -> Result<GroupPage> {
    let (group, role) = tx.group(group, GroupAbility::ViewGroup)?;
    let projects = list_in(tx, &group, role.is_some(), page)?;
    Ok(GroupPage { group, role, projects })
}

fn list_in(tx: &mut ReadTx<'_>, namespace: &Namespace, all: bool, page: Page) -> Result<Slice<Project>> {
    let viewer = tx.viewer();
    let scope = ProjectListScope::OfGroup { group: namespace.id, own: true, shared: false, all };
    let filter = ProjectFilter { order: ProjectOrder::LastActivityAt, ..ProjectFilter::default() };
    Ok(store::project_lists::list(tx.db(), &viewer, scope, &filter, page)?)
}
