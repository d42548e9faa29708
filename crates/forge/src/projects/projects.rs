//! Projects.

use jiff::civil::Date;
use model::{
    Namespace, NamespaceId, NamespaceKind, Page, Project, ProjectId, RefName, Role, Share, Slice, User, UserId,
    Violations, Visibility,
    events::EventAction,
    projects::{NewProject, ProjectChanges, ProjectFilter, TokenSeed},
    tokens::Secret,
};
use store::{
    events::NewEvent,
    members::MemberSource,
    project_lists::ProjectListScope,
    projects::{DeletionScope, ProjectKey},
};

use crate::{
    Ability, Caller, Error, Forge, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    WriteTx, fork_links,
    groups::{self, GroupDetail},
    imports, namespaces,
    outbound_addresses::Destination,
    system_events,
    tasks::Task,
    users,
};

const TAKEN: &str = "has already been taken";

/// The maximum length of a search text; no searched field is longer.
const MAX_SEARCH_LENGTH: usize = 2000;

/// Which projects to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectListKind {
    /// Projects of which the caller is a member.
    Mine,
    /// Projects that the caller can see.
    Visible,
    /// Projects that the caller owns.
    Owned,
    /// Projects that the caller has starred.
    Starred,
    /// All projects, for administrators.
    All,
}

/// A project with its runners token.
pub struct ProjectDetail {
    /// The project.
    pub project: Project,
    /// The token that registers runners, if the caller may see it.
    pub runners_token: Option<Secret>,
}

/// A request to share a project with a group.
#[derive(Clone, Copy, Debug)]
pub struct NewShare {
    /// The ID of the group.
    pub group_id: NamespaceId,
    /// The maximum access level of the group's members as sent, not necessarily that of a role.
    pub group_access: i64,
    /// The first day on which the share is no longer valid.
    pub expires_on: Option<Date>,
}

/// A request to change a project.
#[derive(Clone, Debug)]
pub struct ProjectUpdate {
    /// The fields to change.
    pub changes: ProjectChanges,
    /// Whether callers who may not rename the project may send its current name.
    pub unchanged_name_allowed: bool,
    /// The new default branch.
    pub default_branch: Option<String>,
    /// The URL to import the repository from; allowed only while the repository is empty.
    pub import_url: Option<String>,
}

/// Lists projects.
pub fn list(
    tx: &mut ReadTx<'_>,
    kind: ProjectListKind,
    filter: &Unvalidated<ProjectFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Project>> {
    tx.authorize(Ability::Browse)?;
    let (filter, page) = (filter.validate()?, *page.validate()?);
    if kind == ProjectListKind::All {
        tx.authorize(Ability::AdministerProjects)?;
    }
    list_authorized(tx, kind, filter, page)
}

/// Lists projects for a caller who may see a list of this kind.
pub(crate) fn list_authorized(
    tx: &mut ReadTx<'_>,
    kind: ProjectListKind,
    filter: &ProjectFilter,
    page: Page,
) -> Result<Slice<Project>> {
    let scope = match kind {
        ProjectListKind::Mine => ProjectListScope::Mine,
        ProjectListKind::Visible => ProjectListScope::Visible,
        ProjectListKind::Owned => ProjectListScope::Owned,
        ProjectListKind::Starred => ProjectListScope::Starred,
        ProjectListKind::All => ProjectListScope::All,
    };
    if cannot_match(filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    let viewer = tx.viewer();
    Ok(store::project_lists::list(tx.db(), &viewer, scope, filter, page)?)
}

/// Returns whether a search text is longer than any searched field, or contains the separator of the indexed fields.
pub(crate) fn cannot_match(search: Option<&str>) -> bool {
    search.is_some_and(|search| search.chars().count() > MAX_SEARCH_LENGTH || search.contains('\u{1}'))
}

/// Returns a project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<ProjectDetail> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    detail(tx, project)
}

/// Creates a project for the caller.
pub fn create(tx: &mut WriteTx<'_>, new: &Unvalidated<NewProject>) -> Result<ProjectDetail> {
    let me = tx.current_user_id(Ability::Create)?;
    create_in_namespace(tx, me, new.validate()?)
}

/// Creates a project for another user.
pub fn create_for(
    tx: &mut WriteTx<'_>,
    user: &Unvalidated<UserId>,
    new: &Unvalidated<NewProject>,
) -> Result<ProjectDetail> {
    tx.authorize(Ability::Create)?;
    let (user, new) = (*user.validate()?, new.validate()?);
    tx.authorize(Ability::AdministerProjects)?;
    users::find(tx.read(), user)?;
    create_in_namespace(tx, user, new)
}

fn create_in_namespace(tx: &mut WriteTx<'_>, creator: UserId, new: &NewProject) -> Result<ProjectDetail> {
    // Locked, so that of two projects created concurrently the second counts the first.
    let creator = store::users::by_id_for_update(tx.db(), creator)?.ok_or(Error::not_found("User"))?;
    let namespace = lock_target_namespace(tx, new, &creator)?;
    if namespace.kind == NamespaceKind::User && !creator.can_create_project() {
        return Err(Error::LimitReached(limit_message(&creator)));
    }
    let mut violations = Violations::new();
    new.check(&mut violations);
    let visibility = new.visibility.unwrap_or(Visibility::Private);
    check_visibility(visibility, &namespace, &mut violations);
    let allow_local = tx.shared().allow_local_network;
    let import = new.import_url.as_deref().and_then(|url| imports::parse_url(url, allow_local, &mut violations));
    ensure_not_taken(tx, namespace.id, Some(&new.name), Some(&new.path_or_default()), None, violations)?;
    let id = insert(tx, new, &namespace, creator.id, visibility)?;
    if let Some(import) = import {
        imports::schedule(tx, id, &import)?;
    }
    let project = reload(tx, id)?;
    detail(tx.read(), project)
}

/// Inserts a project, its event and its webhook event; the namespace is locked and the name is free.
pub(crate) fn insert(
    tx: &mut WriteTx<'_>,
    new: &NewProject,
    namespace: &Namespace,
    creator: UserId,
    visibility: Visibility,
) -> Result<ProjectId> {
    let mut seed = vec![0; 16];
    tx.shared().secrets.fill(&mut seed);
    let now = tx.now();
    let id = store::projects::insert(tx.db(), new, namespace.id, creator, visibility, &TokenSeed(seed), now)?;
    if namespace.kind == NamespaceKind::User {
        store::members::upsert(tx.db(), MemberSource::Project(id), creator, Role::Master, None, now)?;
    }
    let event = NewEvent { project: id, author: creator, action: EventAction::Created, target: None, now };
    store::events::insert(tx.db(), &event)?;
    system_events::project_created(tx, id)?;
    Ok(id)
}

/// Returns and locks the target namespace of a new project, if its creator may create projects there.
fn lock_target_namespace(tx: &mut WriteTx<'_>, new: &NewProject, creator: &User) -> Result<Namespace> {
    let invalid = || Violations::one("namespace", "is not valid");
    let namespace = match &new.namespace {
        None => store::namespaces::personal(tx.db(), creator.id)?.ok_or_else(invalid)?,
        Some(reference) => {
            let namespace = namespaces::find(tx.read(), reference)?.ok_or_else(invalid)?;
            if !tx.read().user_can_create_in(&namespace, creator)? {
                return Err(invalid().into());
            }
            namespace
        }
    };
    // Locked, so that neither its visibility nor the names in it change until the project is inserted.
    Ok(store::namespaces::by_id_for_update(tx.db(), namespace.id)?.ok_or_else(invalid)?)
}

pub(crate) fn limit_message(user: &User) -> String {
    match user.projects_limit {
        0 => "Personal project creation is not allowed. Please contact your administrator with questions".into(),
        limit => {
            format!("Your project limit is {limit} projects! Please contact your administrator to increase it")
        }
    }
}

pub(crate) fn check_visibility(visibility: Visibility, namespace: &Namespace, violations: &mut Violations) {
    let (wanted_visibility, group_visibility) = (visibility.as_str(), namespace.visibility.as_str());
    let text = format!("{wanted_visibility} is not allowed in a {group_visibility} group.");
    violations.require(visibility <= namespace.visibility, "visibility_level", text);
}

/// Fails if another project in the namespace has the name or the path, ignoring case.
pub(crate) fn ensure_not_taken(
    tx: &mut WriteTx<'_>,
    namespace: NamespaceId,
    name: Option<&str>,
    path: Option<&str>,
    own_id: Option<ProjectId>,
    mut violations: Violations,
) -> Result<()> {
    let taken = find_taken(tx, namespace, name, path, own_id)?;
    violations.require(!taken.name && !taken.wiki, "name", TAKEN);
    violations.require(!taken.path, "path", TAKEN);
    Ok(violations.into_result()?)
}

/// Which fields another project in the namespace already has.
struct Taken {
    name: bool,
    path: bool,
    /// Whether the path collides with the wiki of another project, which has the suffix `.wiki`.
    wiki: bool,
}

fn find_taken(
    tx: &mut WriteTx<'_>,
    namespace: NamespaceId,
    name: Option<&str>,
    path: Option<&str>,
    own_id: Option<ProjectId>,
) -> Result<Taken> {
    // The empty text never matches.
    let (name, path) = (name.unwrap_or_default(), path.unwrap_or_default());
    let (name, same_path) = store::projects::find_taken(tx.db(), namespace, name, path, own_id)?;
    let wiki_path = match strip_wiki_suffix(path) {
        Some(project) => project.to_owned(),
        None => format!("{path}.wiki"),
    };
    let wiki = !path.is_empty() && store::projects::find_taken(tx.db(), namespace, "", &wiki_path, own_id)?.1;
    Ok(Taken { name, path: same_path, wiki })
}

fn strip_wiki_suffix(path: &str) -> Option<&str> {
    const SUFFIX: &str = ".wiki";
    let at = path.len().checked_sub(SUFFIX.len())?;
    let suffix = path.get(at..)?;
    suffix.eq_ignore_ascii_case(SUFFIX).then(|| &path[..at])
}

/// Changes a project; only owners may change its name and visibility.
pub async fn update(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    update: Unvalidated<ProjectUpdate>,
) -> Result<ProjectDetail> {
    forge.write(caller, move |tx| update_in_transaction(tx, &project, &update)).await
}

fn update_in_transaction(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    update: &Unvalidated<ProjectUpdate>,
) -> Result<ProjectDetail> {
    let (project, update) = tx.project_with(project, ProjectAbility::ChangeProject, || update.validate())?;
    let ProjectUpdate { changes, unchanged_name_allowed, default_branch, import_url } = update;
    let (namespace, project) = lock_with_namespace(tx, &project)?;
    let renames = match &changes.name {
        None => false,
        Some(name) => !unchanged_name_allowed || *name != project.name,
    };
    if renames || changes.visibility.is_some() {
        tx.authorize_project(&project, ProjectAbility::ChangeNameOrVisibility)?;
    }
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(visibility) = changes.visibility {
        check_visibility(visibility, &namespace, &mut violations);
        fork_links::check_visibility(tx, &project, visibility, &mut violations)?;
    }
    let branch = default_branch
        .as_deref()
        .map(|name| validate_default_branch(tx, &project, name, &mut violations))
        .transpose()?;
    let import = import_url.as_deref().map(|url| validate_import(tx, &project, url, &mut violations)).transpose()?;
    let (name, path) = (changes.name.as_deref(), changes.path.as_deref());
    ensure_not_taken(tx, namespace.id, name, path, Some(project.id), violations)?;
    let now = tx.now();
    store::projects::update(tx.db(), &project, changes, now)?;
    if changes.features.builds_enabled.is_some() || changes.features.shared_runners_enabled.is_some() {
        // Waiting jobs may now match runners that they did not match before.
        tx.notify_runners();
    }
    fork_links::lower_fork_visibility(tx, &project, changes.visibility.unwrap_or(project.visibility))?;
    if path.is_some_and(|path| path != project.path) {
        system_events::project_renamed(tx, project.id, &project.full_path())?;
    }
    if let Some(import) = import.flatten() {
        // A previous import, if any, has failed.
        store::imports::delete(tx.db(), project.id)?;
        imports::schedule(tx, project.id, &import)?;
    }
    if let Some(branch) = branch.flatten() {
        // `HEAD` is part of the refs.
        let repository = store::repositories::begin_update(tx.db(), project.id, now)?;
        if store::repositories::find_ref(tx.db(), repository.id, &branch)?.is_none() {
            // It was deleted since it was validated.
            return Err(Error::Busy);
        }
        store::projects::set_default_branch(tx.db(), project.id, Some(branch.short()), now)?;
    }
    let project = reload(tx, project.id)?;
    detail(tx.read(), project)
}

/// Returns the new default branch, or `None` if it does not change or the repository is empty.
fn validate_default_branch(
    tx: &mut WriteTx<'_>,
    project: &Project,
    name: &str,
    violations: &mut Violations,
) -> Result<Option<RefName>> {
    let refs = tx.read().refs(project)?;
    if refs.branches.is_empty() || project.default_branch.as_deref() == Some(name) {
        return Ok(None);
    }
    let found = RefName::branch(name).filter(|name| refs.find(name).is_some());
    violations.require(found.is_some(), "default_branch", "does not exist");
    Ok(found)
}

fn validate_import(
    tx: &mut WriteTx<'_>,
    project: &Project,
    url: &str,
    violations: &mut Violations,
) -> Result<Option<Destination>> {
    let can_start = imports::can_start(tx.read(), project)?;
    violations.require(can_start, "import_url", "can only be given while the repository is empty");
    let allow_local = tx.shared().allow_local_network;
    Ok(imports::parse_url(url, allow_local, violations))
}

/// Locks a project and its namespace, and returns their current state.
fn lock_with_namespace(tx: &mut WriteTx<'_>, project: &Project) -> Result<(Namespace, Project)> {
    let not_found = || Error::not_found("Project");
    let namespace = store::namespaces::by_id_for_update(tx.db(), project.namespace.id)?.ok_or_else(not_found)?;
    if !store::projects::lock(tx.db(), project.id)? {
        return Err(not_found());
    }
    let project = reload(tx, project.id)?;
    // Transferred concurrently; a retry finds it in its new namespace.
    if project.namespace.id == namespace.id { Ok((namespace, project)) } else { Err(not_found()) }
}

/// Archives or unarchives a project; has no effect if it already is.
pub fn set_archived(tx: &mut WriteTx<'_>, project: &ProjectRef, archived: bool) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::ArchiveProject)?;
    if project.archived != archived {
        let now = tx.now();
        store::projects::set_archived(tx.db(), project.id, archived, now)?;
        tx.notify_runners();
    }
    reload_with_relations(tx, project.id)
}

/// Stars a project; returns [`Error::Unchanged`] if it is already starred.
pub fn star(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::StarProject)?;
    let (me, now) = (tx.user_id()?, tx.now());
    if !store::projects::star(tx.db(), project.id, me, now)? {
        return Err(Error::Unchanged);
    }
    reload_with_relations(tx, project.id)
}

/// Unstars a project; returns [`Error::Unchanged`] if it is not starred.
pub fn unstar(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::StarProject)?;
    let (me, now) = (tx.user_id()?, tx.now());
    if !store::projects::unstar(tx.db(), project.id, me, now)? {
        return Err(Error::Unchanged);
    }
    reload_with_relations(tx, project.id)
}

/// Shares a project with a group.
pub fn share(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewShare>) -> Result<Share> {
    let (project, new) = tx.project_with(project, ProjectAbility::ShareProject, || new.validate())?;
    let (group, _) = tx.group(&GroupRef::Id(new.group_id), GroupAbility::ReadGroup)?;
    let (_, project) = lock_with_namespace(tx, &project)?;
    if project.namespace.share_with_group_lock {
        return Err(Error::Refused("The project sharing with group is disabled".into()));
    }
    let conflict = |text: &str| Error::Taken(text.into());
    let role = Role::from_level(new.group_access).filter(|role| *role <= Role::Master);
    let role = role.ok_or_else(|| conflict("Group access is not included in the list"))?;
    let now = tx.now();
    if store::members::find_share(tx.db(), project.id, group.id, now)?.is_some() {
        return Err(conflict("Group already shared with this group"));
    }
    if project.namespace.id == group.id {
        return Err(conflict("Project cannot be shared with the project it is in."));
    }
    Ok(store::members::insert_share(tx.db(), project.id, group.id, role, new.expires_on, now)?)
}

/// Ends the sharing of a project with a group.
pub fn unshare(tx: &mut WriteTx<'_>, project: &ProjectRef, group: &Unvalidated<NamespaceId>) -> Result<()> {
    let (project, group) = tx.project_with(project, ProjectAbility::ShareProject, || group.validate().copied())?;
    let now = tx.now();
    let share = store::members::find_share(tx.db(), project.id, group, now)?;
    let share = share.ok_or(Error::not_found("Group Link"))?;
    Ok(store::members::delete_share(tx.db(), project.id, share.group_id)?)
}

/// Transfers a project to a group; its ID and contents stay the same.
pub fn transfer(tx: &mut WriteTx<'_>, group: &GroupRef, project: &ProjectRef) -> Result<GroupDetail> {
    tx.authorize(Ability::AdministerProjects)?;
    let (group, role) = tx.group(group, GroupAbility::CreateProjects)?;
    let project = tx.project(project, ProjectAbility::RemoveProject)?;
    let group = store::namespaces::by_id_for_update(tx.db(), group.id)?.ok_or(Error::not_found("Group"))?;
    if !store::projects::lock(tx.db(), project.id)? {
        return Err(Error::not_found("Project"));
    }
    let project = reload(tx, project.id)?;
    let invalid = |text: &str| Error::from(Violations::one("new_namespace", text));
    if project.namespace.id == group.id {
        return Err(invalid("is invalid"));
    }
    let taken = find_taken(tx, group.id, Some(&project.name), Some(&project.path), None)?;
    if taken.path || taken.wiki {
        return Err(invalid("Project with same path in target namespace already exists"));
    }
    if taken.name {
        return Err(invalid("Project with same name in target namespace already exists"));
    }
    let now = tx.now();
    store::projects::transfer(tx.db(), project.id, group.id, project.visibility.min(group.visibility), now)?;
    // A project is not shared with its own group.
    store::members::delete_share(tx.db(), project.id, group.id)?;
    system_events::project_transferred(tx, project.id, &project.full_path())?;
    groups::detail(tx.read(), group, role)
}

/// Deletes a project: it disappears at once, and a background task cleans up its data.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<()> {
    let project = tx.project(project, ProjectAbility::RemoveProject)?;
    soft_delete(tx, DeletionScope::One(project.id))
}

/// Marks projects as deleted and enqueues a task for each to delete its data.
pub(crate) fn soft_delete(tx: &mut WriteTx<'_>, projects: DeletionScope<'_>) -> Result<()> {
    system_events::projects_removed(tx, projects)?;
    let now = tx.now();
    Ok(store::projects::soft_delete(tx.db(), projects, Task::REMOVE_PROJECT, now)?)
}

/// Loads a project as the caller sees it after a change.
fn reload(tx: &mut WriteTx<'_>, id: ProjectId) -> Result<Project> {
    let viewer = tx.read().viewer();
    store::projects::find(tx.db(), &viewer, ProjectKey::Id(id))?.ok_or(Error::not_found("Project"))
}

fn reload_with_relations(tx: &mut WriteTx<'_>, id: ProjectId) -> Result<Project> {
    let project = reload(tx, id)?;
    with_relations(tx.read(), project)
}

pub(crate) fn with_relations(tx: &mut ReadTx<'_>, project: Project) -> Result<Project> {
    let (viewer, mut projects) = (tx.viewer(), [project]);
    store::projects::with_relations(tx.db(), &viewer, &mut projects)?;
    let [project] = projects;
    Ok(project)
}

fn detail(tx: &mut ReadTx<'_>, project: Project) -> Result<ProjectDetail> {
    let project = with_relations(tx, project)?;
    let may_read_token = tx.authorize_project(&project, ProjectAbility::ReadRunnersToken).is_ok();
    let key = &tx.shared().instance_key;
    let runners_token = may_read_token.then(|| key.runners_token(project.id, &project.runners_seed));
    Ok(ProjectDetail { project, runners_token })
}
