//! What the pages that create branches and tags, and the settings of a repository show.

use model::{DeployKey, Page, Protection, Slice};

use crate::{
    ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, branches::default_branch, browse::InProject, deploy_keys,
};

/// The maximum number of keys to choose from.
const MAX_AVAILABLE_KEYS: i64 = 50;

/// The revisions that a new branch or tag can start from.
pub struct RefChoices {
    /// The default branch; `None` if the repository is empty.
    pub default_branch: Option<String>,
    /// The names of branches and tags; the first of them if there are many.
    pub names: Vec<String>,
}

/// The settings of a repository.
pub struct RepositorySettings {
    /// The protection rules of branches, oldest first.
    pub rules: Vec<Protection>,
    /// The names of branches; the first of them if there are many.
    pub branches: Vec<String>,
    /// The deploy keys of the project, newest first.
    pub keys: Slice<DeployKey>,
    /// Deploy keys of other projects that the visitor can enable, newest first.
    pub available_keys: Vec<DeployKey>,
}

/// Returns what a new branch or tag can start from, in a project to which the visitor may push.
pub fn choices(tx: &mut ReadTx<'_>, project: &ProjectRef, max_names: usize) -> Result<InProject<RefChoices>> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let refs = tx.refs(&project)?;
    let default_branch = default_branch(&project, &refs).map(|branch| branch.name.short().to_owned());
    let names = refs.branches.iter().chain(&refs.tags).take(max_names);
    let names = names.map(|reference| reference.name.short().to_owned()).collect();
    Ok(InProject { project, value: RefChoices { default_branch, names } })
}

/// Returns the settings of a repository, with at most `max_names` names of branches.
pub fn settings(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    max_names: usize,
    page: &Unvalidated<Page>,
) -> Result<InProject<RepositorySettings>> {
    let found = tx.project(project, ProjectAbility::ProtectBranches)?;
    let keys = deploy_keys::list(tx, project, page)?;
    let rules = store::protections::of_project(tx.db(), found.id)?;
    let refs = tx.refs(&found)?;
    let branches = refs.branches.iter().take(max_names).map(|branch| branch.name.short().to_owned()).collect();
    let viewer = tx.viewer();
    let available_keys = store::deploy_keys::list_enableable(tx.db(), &viewer, found.id, MAX_AVAILABLE_KEYS)?;
    Ok(InProject { project: found, value: RepositorySettings { rules, branches, keys, available_keys } })
}
