//! Forks: projects that begin as a copy of another one's repository.

use model::{
    Namespace, NamespaceKind, Project, Violations,
    projects::{NamespaceRef, NewProject, Switches},
};
use tracing::warn;

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, namespaces,
    projects::{self, ProjectDetail},
    pushes::blocking,
    repository_locks::Turn,
    tasks::{self, Task},
};

/// Copies a project into a namespace, which is given by number, path or name; `None` is the caller's own.
///
/// The project is there at once; its repository follows in the same request, or by a job if that is interrupted.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    source: ProjectRef,
    namespace: Unvalidated<Option<String>>,
) -> Result<ProjectDetail> {
    let fork = forge.write(caller.clone(), move |tx| begin(tx, &source, &namespace)).await?;
    if let Err(error) = copy_repository(forge, fork).await {
        warn!(%error, project.id = fork, "the repository of a fork could not be copied, it will be tried again");
    }
    forge.read(caller, move |tx| projects::get(tx, &ProjectRef::Id(fork))).await
}

fn begin(tx: &mut WriteTx<'_>, source: &ProjectRef, namespace: &Unvalidated<Option<String>>) -> Result<i64> {
    let me = tx.my_id(Ability::Create)?;
    let namespace = namespace.get()?.as_deref();
    let creator = store::users::by_id_to_change(tx.db(), me)?.ok_or(Error::Unauthenticated)?;
    let no_target = || Error::not_found("Target Namespace");
    let target = match namespace {
        None => store::namespaces::personal(tx.db(), me)?.ok_or_else(no_target)?,
        Some(name) => find_namespace(tx, name)?.ok_or_else(no_target)?,
    };
    if !tx.may_create_in(&target, &creator)? {
        return Err(no_target());
    }
    let source = tx.open(source, ProjectAbility::ReadProject)?;
    if tx.may_to(&source, ProjectAbility::DownloadCode).is_err() {
        return Err(Error::Conflicting(Violations::one("forked_from_project_id", "is forbidden")));
    }
    let target = store::namespaces::by_id_to_change(tx.db(), target.id)?.ok_or_else(no_target)?;
    if target.kind == NamespaceKind::User && !creator.can_create_project() {
        let text = projects::limit_text(&creator);
        return Err(Error::Conflicting(with_base(Violations::one("limit_reached", text))));
    }
    let new = as_new(&source);
    let mut violations = Violations::new();
    projects::check_visibility(source.visibility, &target, &mut violations);
    projects::refuse_taken(tx, target.id, Some(&new.name), Some(&new.chosen_path()), None, violations).map_err(
        |error| match error {
            Error::Invalid(violations) => Error::Conflicting(with_base(violations)),
            other => other,
        },
    )?;
    let fork = projects::insert(tx, &new, &target, me, source.visibility)?;
    let now = tx.now();
    store::forks::insert(tx.db(), fork, source.id, now)?;
    // Should this server die before it has copied the repository, the next one does.
    tasks::enqueue(tx, &Task::CopyRepository(fork), now + tasks::COPY_PATIENCE)?;
    Ok(fork)
}

/// What a fork takes over; everything else begins as in a new project.
fn as_new(source: &Project) -> NewProject {
    NewProject {
        name: source.name.clone(),
        path: Some(source.path.clone()),
        description: source.description.clone(),
        visibility: Some(source.visibility),
        switches: Switches {
            builds_enabled: Some(source.switches.builds_enabled),
            shared_runners_enabled: Some(source.switches.shared_runners_enabled),
            ..Switches::default()
        },
        ..NewProject::default()
    }
}

/// Clients of the original read this sentence.
fn with_base(mut violations: Violations) -> Violations {
    let text = format!("Unable to save project. Error: {}", violations.in_words().join(", "));
    violations.add("base", text);
    violations
}

fn find_namespace(tx: &mut ReadTx<'_>, name: &str) -> Result<Option<Namespace>> {
    let named = NamespaceRef::parse(name);
    match namespaces::find(tx, &named)? {
        None if matches!(named, NamespaceRef::Path(_)) && !model::text::has_control(name) => {
            Ok(store::namespaces::group_by_name(tx.db(), name)?)
        }
        found => Ok(found),
    }
}

/// Copies the repository of a fork from its source, unless that was done; and forgets the job that would do it.
pub(crate) async fn copy_repository(forge: &Forge, fork: i64) -> Result<()> {
    let _turn = forge.shared().turns.take(fork, Turn::Write).await;
    copy_while_writing(forge, fork).await
}

/// Copies the repository of a fork if that is still to be done, before the first write to it. A write that created the
/// repository first would leave the fork without its history. The caller holds the turn to write to the fork.
pub(crate) async fn copy_before_first_write(forge: &Forge, project: i64) -> Result<()> {
    let (repositories, storage) = (forge.shared().repositories.clone(), forge.storage_of(project).await?);
    if blocking(move || Ok(repositories.exists(&storage))).await? {
        return Ok(());
    }
    let is_waiting = move |tx: &mut ReadTx<'_>| tasks::is_waiting(tx, &Task::CopyRepository(project));
    if forge.read_inline(Caller::system(), is_waiting).await? {
        copy_while_writing(forge, project).await?;
    }
    Ok(())
}

async fn copy_while_writing(forge: &Forge, fork: i64) -> Result<()> {
    let find = move |tx: &mut ReadTx<'_>| {
        // Of one that was removed meanwhile nothing is copied: it would stay for ever.
        let gone = store::projects::is_buried(tx.db(), fork)?;
        Ok(if gone { None } else { store::forks::find(tx.db(), fork)? })
    };
    let link = forge.read(Caller::system(), find).await?;
    let mut default_branch = None;
    if let Some(link) = link {
        // Nobody packs the source anew while its files are being linked. Pushes to it only add files.
        let _kept = forge.shared().turns.take(link.source, Turn::KeepHouse).await;
        let repositories = forge.shared().repositories.clone();
        let (source, target) = (forge.storage_of(link.source).await?, forge.storage_of(fork).await?);
        default_branch = blocking(move || {
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
            tasks::forget(tx, &Task::CopyRepository(fork))
        })
        .await
}
