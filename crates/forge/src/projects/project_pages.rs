//! What the pages that create and administer projects show.

use model::{
    Namespace, Page, Project, Role, Slice,
    projects::{NamespaceRef, ProjectFilter, ProjectOrder},
};
use store::project_lists::ProjectListScope;

use super::projects;
use crate::{
    Ability, Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    branches::{self, default_branch},
    browse::InProject,
    namespaces,
};

/// The maximum number of namespaces to choose from.
const MAX_NAMESPACES: i64 = 200;

/// A project with what its general settings offer to choose from.
pub struct GeneralSettings {
    /// The project.
    pub project: Project,
    /// The current default branch.
    pub default_branch: Option<String>,
    /// The names of the branches; the first of them if there are many.
    pub branches: Vec<String>,
}

/// Returns the namespaces in which the visitor may create projects, the personal one first.
///
/// The one with the path `wanted` is among them if the visitor may create projects there, for administrators may do so everywhere.
pub fn target_namespaces(tx: &mut ReadTx<'_>, wanted: &str) -> Result<Vec<Namespace>> {
    tx.current_user_id(Ability::Create)?;
    let user = tx.actor().user().cloned().ok_or(Error::Unauthenticated)?;
    let viewer = tx.viewer();
    let mut found = store::namespaces::list_with_role(tx.db(), &viewer, Role::Master, MAX_NAMESPACES)?;
    if !wanted.is_empty()
        && found.iter().all(|namespace| namespace.full_path != wanted)
        && let Some(namespace) = namespaces::find(tx, &NamespaceRef::Path(wanted.to_owned()))?
        && tx.user_can_create_in(&namespace, &user)?
    {
        found.push(namespace);
    }
    Ok(found)
}

/// Returns a project that the visitor may fork, with the namespaces in which the fork can be created.
pub fn fork_targets(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<InProject<Vec<Namespace>>> {
    let project = branches::open(tx, project)?;
    let mut targets = target_namespaces(tx, "")?;
    targets.retain(|namespace| namespace.id != project.namespace.id);
    Ok(InProject { project, value: targets })
}

/// Lists the forks of a project that the visitor can see, most recently active first.
pub fn forks(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<InProject<Slice<Project>>> {
    let project = tx.project(project, ProjectAbility::ViewProject)?;
    let (viewer, page) = (tx.viewer(), *page.validate()?);
    let filter = ProjectFilter { order: ProjectOrder::LastActivityAt, ..ProjectFilter::default() };
    let scope = ProjectListScope::ForksOf(project.id);
    let value = store::project_lists::list(tx.db(), &viewer, scope, &filter, page)?;
    Ok(InProject { project, value })
}

/// Returns the general settings of a project, with at most `max_branches` names of branches.
pub fn general_settings(tx: &mut ReadTx<'_>, project: &ProjectRef, max_branches: usize) -> Result<GeneralSettings> {
    let project = tx.project(project, ProjectAbility::ChangeProject)?;
    let refs = tx.refs(&project)?;
    let default_branch = default_branch(&project, &refs).map(|branch| branch.name.short().to_owned());
    let branches = refs.branches.iter().take(max_branches).map(|branch| branch.name.short().to_owned()).collect();
    let project = projects::with_relations(tx, project)?;
    Ok(GeneralSettings { project, default_branch, branches })
}
