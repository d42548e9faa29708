//! Forking of projects.

use model::{
    Namespace, NamespaceKind, Project, ProjectId, Violations,
    projects::{NamespaceRef, NewProject, ProjectFeatures},
};

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, namespaces,
    projects::{self, ProjectDetail},
    tasks::{self, Task},
};

/// Forks a project into a namespace, given by ID, path or name; `None` means the caller's personal one.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    source: ProjectRef,
    namespace: Unvalidated<Option<String>>,
) -> Result<ProjectDetail> {
    let fork = forge.write(caller.clone(), move |tx| insert_fork(tx, &source, &namespace)).await?;
    forge.read(caller, move |tx| projects::get(tx, &ProjectRef::Id(fork))).await
}

fn insert_fork(
    tx: &mut WriteTx<'_>,
    source: &ProjectRef,
    namespace: &Unvalidated<Option<String>>,
) -> Result<ProjectId> {
    let me = tx.current_user_id(Ability::Create)?;
    let namespace = namespace.validate()?.as_deref();
    let creator = store::users::by_id_for_update(tx.db(), me)?.ok_or(Error::Unauthenticated)?;
    let not_found = || Error::not_found("Target Namespace");
    let target = match namespace {
        None => store::namespaces::personal(tx.db(), me)?.ok_or_else(not_found)?,
        Some(name) => find_namespace(tx.read(), name)?.ok_or_else(not_found)?,
    };
    if !tx.read().user_can_create_in(&target, &creator)? {
        return Err(not_found());
    }
    let source = tx.project(source, ProjectAbility::ReadProject)?;
    if tx.authorize_project(&source, ProjectAbility::DownloadCode).is_err() {
        return Err(Error::Conflicting(Violations::one("forked_from_project_id", "is forbidden")));
    }
    let target = store::namespaces::by_id_for_update(tx.db(), target.id)?.ok_or_else(not_found)?;
    if target.kind == NamespaceKind::User && !creator.can_create_project() {
        let text = projects::limit_message(&creator);
        return Err(Error::Conflicting(add_base_message(Violations::one("limit_reached", text))));
    }
    let new = new_project_from(&source);
    let mut violations = Violations::new();
    projects::check_visibility(source.visibility, &target, &mut violations);
    projects::ensure_not_taken(tx, target.id, Some(&new.name), Some(&new.path_or_default()), None, violations)
        .map_err(|error| match error {
            Error::Invalid(violations) => Error::Conflicting(add_base_message(violations)),
            other => other,
        })?;
    let fork = projects::insert(tx, &new, &target, me, source.visibility)?;
    let now = tx.now();
    store::forks::insert(tx.db(), fork, source.id, now)?;
    if let Some(repository) = tx.read().find_repository(source.id)? {
        // The fork has the same refs and packs; no file is copied.
        store::repositories::copy(tx.db(), repository.id, fork, now)?;
        let default_branch = source.default_branch.as_deref();
        store::projects::set_default_branch(tx.db(), fork, default_branch, now)?;
        tasks::enqueue(tx, &Task::Housekeeping(fork), now + tasks::HOUSEKEEPING_DELAY)?;
    }
    Ok(fork)
}

/// Returns the fields that a fork takes over from its source; the rest are the defaults of a new project.
fn new_project_from(source: &Project) -> NewProject {
    NewProject {
        name: source.name.clone(),
        path: Some(source.path.clone()),
        description: source.description.clone(),
        visibility: Some(source.visibility),
        features: ProjectFeatures {
            builds_enabled: Some(source.features.builds_enabled),
            shared_runners_enabled: Some(source.features.shared_runners_enabled),
            ..ProjectFeatures::default()
        },
        ..NewProject::default()
    }
}

/// Adds the summary that clients of GitLab 8.14 parse.
fn add_base_message(mut violations: Violations) -> Violations {
    let text = format!("Unable to save project. Error: {}", violations.full_messages().join(", "));
    violations.add("base", text);
    violations
}

fn find_namespace(tx: &mut ReadTx<'_>, name: &str) -> Result<Option<Namespace>> {
    let reference = NamespaceRef::parse(name);
    match namespaces::find(tx, &reference)? {
        None if matches!(reference, NamespaceRef::Path(_)) && !model::text::has_control(name) => {
            Ok(store::namespaces::group_by_name(tx.db(), name)?)
        }
        found => Ok(found),
    }
}
