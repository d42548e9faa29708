//! Forks: projects that begin as a copy of another one's repository.

use model::{
    Namespace, NamespaceKind, Project, Violations,
    projects::{NamespaceRef, NewProject, Switches},
};
use tracing::warn;

use crate::{
    Ability, Caller, Error, Forge, Given, ProjectAbility, ProjectRef, Reader, Result, Writer,
    jobs::{self, Job},
    namespaces,
    projects::{self, ProjectDetail},
    pushes::blocking,
    turns::Turn,
};

/// Copies a project into a namespace, which is given by number, path or name; `None` is the caller's own.
///
/// The project is there at once; its repository follows in the same request, or by a job if that is interrupted.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    source: ProjectRef,
    namespace: Given<Option<String>>,
) -> Result<ProjectDetail> {
    let fork = forge.write(caller.clone(), move |it| begin(it, &source, &namespace)).await?;
    if let Err(error) = copy_repository(forge, fork).await {
        warn!(%error, project.id = fork, "the repository of a fork could not be copied, it will be tried again");
    }
    forge.read(caller, move |it| projects::get(it, &ProjectRef::Id(fork))).await
}

fn begin(it: &mut Writer<'_>, source: &ProjectRef, namespace: &Given<Option<String>>) -> Result<i64> {
    let me = it.my_id(Ability::Create)?;
    let namespace = namespace.get()?.as_deref();
    let creator = store::users::by_id_to_change(it.db(), me)?.ok_or(Error::Unauthenticated)?;
    let no_target = || Error::not_found("Target Namespace");
    let target = match namespace {
        None => store::namespaces::personal(it.db(), me)?.ok_or_else(no_target)?,
        Some(name) => find_namespace(it, name)?.ok_or_else(no_target)?,
    };
    if !it.may_create_in(&target, &creator)? {
        return Err(no_target());
    }
    let source = it.open(source, ProjectAbility::ReadProject)?;
    if it.may_to(&source, ProjectAbility::DownloadCode).is_err() {
        return Err(Error::Conflicting(Violations::one("forked_from_project_id", "is forbidden")));
    }
    let target = store::namespaces::by_id_to_change(it.db(), target.id)?.ok_or_else(no_target)?;
    if target.kind == NamespaceKind::User && !creator.can_create_project() {
        let text = projects::limit_text(&creator);
        return Err(Error::Conflicting(with_base(Violations::one("limit_reached", text))));
    }
    let new = as_new(&source);
    let mut violations = Violations::new();
    projects::check_visibility(source.visibility, &target, &mut violations);
    projects::refuse_taken(it, target.id, Some(&new.name), Some(&new.chosen_path()), None, violations).map_err(
        |error| match error {
            Error::Invalid(violations) => Error::Conflicting(with_base(violations)),
            other => other,
        },
    )?;
    let fork = projects::insert(it, &new, &target, me, source.visibility)?;
    let now = it.now();
    store::forks::insert(it.db(), fork, source.id, now)?;
    // Should this server die before it has copied the repository, the next one does.
    jobs::enqueue(it, &Job::CopyRepository(fork), now + jobs::COPY_PATIENCE)?;
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

fn find_namespace(it: &mut Reader<'_>, name: &str) -> Result<Option<Namespace>> {
    let named = NamespaceRef::parse(name);
    match namespaces::find(it, &named)? {
        None if matches!(named, NamespaceRef::Path(_)) && !model::text::has_control(name) => {
            Ok(store::namespaces::group_by_name(it.db(), name)?)
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
    let is_waiting = move |it: &mut Reader<'_>| jobs::is_waiting(it, &Job::CopyRepository(project));
    if forge.peek(Caller::system(), is_waiting).await? {
        copy_while_writing(forge, project).await?;
    }
    Ok(())
}

async fn copy_while_writing(forge: &Forge, fork: i64) -> Result<()> {
    let find = move |it: &mut Reader<'_>| {
        // Of one that was removed meanwhile nothing is copied: it would stay for ever.
        let gone = store::projects::is_buried(it.db(), fork)?;
        Ok(if gone { None } else { store::forks::find(it.db(), fork)? })
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
        .write(Caller::system(), move |it| {
            let now = it.now();
            if let Some(branch) = &default_branch {
                store::projects::set_default_branch(it.db(), fork, Some(branch.short()), now)?;
            }
            jobs::forget(it, &Job::CopyRepository(fork))
        })
        .await
}
