//! Which project was forked from which, and what follows from it.

use model::{Project, Violations, Visibility, projects::ForkLink};

use crate::{Ability, Error, ProjectAbility, ProjectRef, Result, WriteTx};

/// Notes that a project was forked from another one.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, source: &ProjectRef) -> Result<ForkLink> {
    tx.may(Ability::AdministerProjects)?;
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    let source = tx.open(source, ProjectAbility::ReadProject)?;
    if store::forks::find(tx.db(), project.id)?.is_some() {
        return Err(Error::Taken("Project already forked".into()));
    }
    if project.id == source.id {
        return Err(Error::Taken("A project cannot be a fork of itself".into()));
    }
    let now = tx.now();
    Ok(store::forks::insert(tx.db(), project.id, source.id, now)?)
}

/// Forgets from where a project was forked; `None` if it was not.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<Option<ForkLink>> {
    let project = tx.open(project, ProjectAbility::UnlinkFork)?;
    let link = store::forks::find(tx.db(), project.id)?;
    store::forks::delete(tx.db(), project.id)?;
    Ok(link)
}

/// Notes that a fork cannot be seen further than what it was forked from.
pub(crate) fn check_visibility(
    tx: &mut WriteTx<'_>,
    project: &Project,
    wanted: Visibility,
    violations: &mut Violations,
) -> Result<()> {
    if project.fork_of.is_some() {
        let source = store::forks::source_visibility(tx.db(), project.id)?;
        let text = format!("{} is not allowed since the fork source project has lower visibility.", wanted.as_str());
        violations.unless(source.is_none_or(|source| wanted <= source), "visibility_level", text);
    }
    Ok(())
}

/// Lets forks of a project be seen no further than the project itself is from now on.
pub(crate) fn lower(tx: &mut WriteTx<'_>, project: &Project, visibility: Visibility) -> Result<()> {
    if visibility < project.visibility && project.forks_count > 0 {
        let now = tx.now();
        store::forks::lower(tx.db(), project.id, visibility, now)?;
    }
    Ok(())
}
