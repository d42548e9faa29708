//! Fork relations between projects, and the visibility rules that follow from them.

use model::{Project, Violations, Visibility, projects::ForkLink};

use crate::{Ability, Error, ProjectAbility, ProjectRef, Result, WriteTx};

/// Marks a project as a fork of another one.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, source: &ProjectRef) -> Result<ForkLink> {
    tx.authorize(Ability::AdministerProjects)?;
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let source = tx.project(source, ProjectAbility::ReadProject)?;
    if store::forks::find(tx.db(), project.id)?.is_some() {
        return Err(Error::Taken("Project already forked".into()));
    }
    if project.id == source.id {
        return Err(Error::Taken("A project cannot be a fork of itself".into()));
    }
    let now = tx.now();
    Ok(store::forks::insert(tx.db(), project.id, source.id, now)?)
}

/// Removes the fork relation of a project; returns `None` if it is not a fork.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<Option<ForkLink>> {
    let project = tx.project(project, ProjectAbility::UnlinkFork)?;
    let link = store::forks::find(tx.db(), project.id)?;
    store::forks::delete(tx.db(), project.id)?;
    Ok(link)
}

/// Adds a violation if a fork would be more visible than its source.
pub(crate) fn check_visibility(
    tx: &mut WriteTx<'_>,
    project: &Project,
    wanted: Visibility,
    violations: &mut Violations,
) -> Result<()> {
    if project.fork_of.is_some() {
        let source = store::forks::lock_source_visibility(tx.db(), project.id)?;
        let text = format!("{} is not allowed since the fork source project has lower visibility.", wanted.as_str());
        violations.require(source.is_none_or(|source| wanted <= source), "visibility_level", text);
    }
    Ok(())
}

/// Lowers the visibility of the forks of a project to its new visibility.
pub(crate) fn lower_fork_visibility(tx: &mut WriteTx<'_>, project: &Project, visibility: Visibility) -> Result<()> {
    if visibility < project.visibility && project.forks_count > 0 {
        let now = tx.now();
        store::forks::lower_visibility(tx.db(), project.id, visibility, now)?;
    }
    Ok(())
}
