//! Forking of projects.

use model::{
    Namespace, NamespaceKind, Project, ProjectId, Violations,
    projects::{NamespaceRef, NewProject, ProjectFeatures},
};
use tracing::warn;

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, blocking,
    namespaces,
    projects::{self, ProjectDetail},
    repository_locks::LockKind,
    tasks::{self, Task},
};

/// Forks a project into a namespace, given by ID, path or name; `None` means the caller's personal one.
///
/// The project exists at once; its repository is copied in the same request, or by a task if that is interrupted.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    source: ProjectRef,
    namespace: Unvalidated<Option<String>>,
) -> Result<ProjectDetail> {
    let fork = forge.write(caller.clone(), move |tx| insert_fork(tx, &source, &namespace)).await?;
    if let Err(error) = copy_repository(forge, fork).await {
        warn!(%error, project.id = fork.get(), "cannot copy the repository of a fork; retrying later");
    }
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
    // Copies the repository after a restart if the server stops before the request has done so.
    tasks::enqueue(tx, &Task::CopyRepository(fork), now + tasks::FORK_COPY_GRACE)?;
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

/// Copies the repository of a fork from its source, unless that was done, and cancels the task for it.
pub(crate) async fn copy_repository(forge: &Forge, fork: ProjectId) -> Result<()> {
    let _lock = forge.shared().repository_locks.acquire(fork, LockKind::Refs).await;
    copy_with_lock_held(forge, fork).await
}

/// Copies the repository of a fork before the first write to it, if that is still pending. A write that created the
/// repository first would leave the fork without its history. The caller holds the write lock of the fork.
pub(crate) async fn copy_before_first_write(forge: &Forge, project: ProjectId) -> Result<()> {
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    if blocking::spawn(move || Ok(repositories.exists(&storage))).await? {
        return Ok(());
    }
    let is_waiting = move |tx: &mut ReadTx<'_>| tasks::is_pending(tx, &Task::CopyRepository(project));
    if forge.read_inline(Caller::system(), is_waiting).await? {
        copy_with_lock_held(forge, project).await?;
    }
    Ok(())
}

async fn copy_with_lock_held(forge: &Forge, fork: ProjectId) -> Result<()> {
    let find_link = move |tx: &mut ReadTx<'_>| {
        // Nothing is copied for a fork that was deleted meanwhile: it would never be cleaned up.
        let deleted = store::projects::is_soft_deleted(tx.db(), fork)?;
        Ok(if deleted { None } else { store::forks::find(tx.db(), fork)? })
    };
    let link = forge.read(Caller::system(), find_link).await?;
    let mut default_branch = None;
    if let Some(link) = link {
        // Keeps the source from being repacked while its files are hard-linked. Pushes only add files.
        let _lock = forge.shared().repository_locks.acquire(link.source, LockKind::Housekeeping).await;
        let repositories = forge.shared().repositories.clone();
        let (source, target) = (forge.storage_of(link.source).await?, forge.storage_of(fork).await?);
        default_branch = blocking::spawn(move || {
            repositories.copy(&source, &target)?;
            Ok(repositories.find(&target)?.map(|repository| repository.default_branch()).transpose()?.flatten())
        })
        .await?;
    }
    forge
        .write(Caller::system(), move |tx| {
            let now = tx.now();
            if let Some(branch) = &default_branch {
                store::projects::set_default_branch(tx.db(), fork, Some(branch.short()), now)?;
            }
            tasks::cancel(tx, &Task::CopyRepository(fork))
        })
        .await
}
