//! Projects: what one can do with them.

use jiff::civil::Date;
use model::{
    Namespace, NamespaceKind, Page, Project, RefName, Role, Share, Slice, User, Violations, Visibility,
    events::Action,
    projects::{NewProject, ProjectChanges, ProjectFilter, Seed},
    tokens::Secret,
};
use store::{
    events::NewEvent,
    members::Place,
    project_lists::Scope,
    projects::{Buried, Key},
};

use crate::{
    Ability, Caller, Error, Forge, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    WriteTx, fork_links,
    groups::{self, GroupDetail},
    imports, namespaces,
    outgoing::Destination,
    pushes,
    tasks::Task,
    users, webhook_events,
};

const TAKEN: &str = "has already been taken";

/// Nothing that is searched is longer, so a longer text is nowhere.
const LONGEST_SEARCH: usize = 2000;

/// Which projects a caller wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those to which they belong.
    Mine,
    /// Those that they can see.
    Visible,
    /// Those that they own.
    Owned,
    /// Those that they have starred.
    Starred,
    /// All, for administrators.
    All,
}

/// A project as the answer to something done to it.
pub struct ProjectDetail {
    /// The project.
    pub project: Project,
    /// The token with which runners join it, for those who may know.
    pub runners_token: Option<Secret>,
}

/// A wish to open a project to a group.
#[derive(Clone, Copy, Debug)]
pub struct NewShare {
    /// Which group.
    pub group_id: i64,
    /// The most that its members may be, in numbers; not all of them are roles.
    pub group_access: i64,
    /// The first day on which it counts no more.
    pub expires_on: Option<Date>,
}

/// An edit as somebody asks for it.
#[derive(Clone, Debug)]
pub struct Edit {
    /// What shall change.
    pub changes: ProjectChanges,
    /// Whether somebody who may not rename the project may still send the name it has.
    pub own_name_is_no_change: bool,
    /// The branch that people get who ask for none.
    pub default_branch: Option<String>,
    /// From where the repository shall come, if there is none yet.
    pub import_url: Option<String>,
}

/// A page of projects.
pub fn list(
    tx: &mut ReadTx<'_>,
    which: Which,
    filter: &Unvalidated<ProjectFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Project>> {
    tx.may(Ability::Browse)?;
    let (filter, page) = (filter.get()?, *page.get()?);
    let scope = match which {
        Which::Mine => Scope::Mine,
        Which::Visible => Scope::Visible,
        Which::Owned => Scope::Owned,
        Which::Starred => Scope::Starred,
        Which::All => {
            tx.may(Ability::AdministerProjects)?;
            Scope::All
        }
    };
    if is_beyond(filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    let viewer = tx.viewer();
    Ok(store::project_lists::list(tx.db(), &viewer, scope, filter, page)?)
}

/// Whether a text is longer than anything that is searched, or holds what separates its parts.
pub(crate) fn is_beyond(search: Option<&str>) -> bool {
    search.is_some_and(|search| search.chars().count() > LONGEST_SEARCH || search.contains('\u{1}'))
}

/// One project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<ProjectDetail> {
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    in_full(tx, project)
}

/// Adds a project that belongs to the caller.
pub fn create(tx: &mut WriteTx<'_>, new: &Unvalidated<NewProject>) -> Result<ProjectDetail> {
    let me = tx.my_id(Ability::Create)?;
    make(tx, me, new.get()?)
}

/// Adds a project that belongs to another user.
pub fn create_for(
    tx: &mut WriteTx<'_>,
    user: &Unvalidated<i64>,
    new: &Unvalidated<NewProject>,
) -> Result<ProjectDetail> {
    tx.may(Ability::Create)?;
    let (user, new) = (*user.get()?, new.get()?);
    tx.may(Ability::AdministerProjects)?;
    users::find(tx, user)?;
    make(tx, user, new)
}

fn make(tx: &mut WriteTx<'_>, creator: i64, new: &NewProject) -> Result<ProjectDetail> {
    // As they are while this transaction lasts: of two that are made at once, the second counts the first.
    let creator = store::users::by_id_to_change(tx.db(), creator)?.ok_or(Error::not_found("User"))?;
    let namespace = place_for(tx, new, &creator)?;
    if namespace.kind == NamespaceKind::User && !creator.can_create_project() {
        return Err(Error::LimitReached(limit_text(&creator)));
    }
    let mut violations = Violations::new();
    new.check(&mut violations);
    let visibility = new.visibility.unwrap_or(Visibility::Private);
    check_visibility(visibility, &namespace, &mut violations);
    let allow_local = tx.shared().allow_local_network;
    let import = new.import_url.as_deref().and_then(|url| imports::check(url, allow_local, &mut violations));
    refuse_taken(tx, namespace.id, Some(&new.name), Some(&new.chosen_path()), None, violations)?;
    let id = insert(tx, new, &namespace, creator.id, visibility)?;
    if let Some(import) = import {
        imports::schedule(tx, id, &import)?;
    }
    let project = reload(tx, id)?;
    in_full(tx, project)
}

/// Adds a project whose place is held and whose name is free, and tells so.
pub(crate) fn insert(
    tx: &mut WriteTx<'_>,
    new: &NewProject,
    namespace: &Namespace,
    creator: i64,
    visibility: Visibility,
) -> Result<i64> {
    let mut seed = vec![0; 16];
    tx.shared().secrets.fill(&mut seed);
    let now = tx.now();
    let id = store::projects::insert(tx.db(), new, namespace.id, creator, visibility, &Seed(seed), now)?;
    if namespace.kind == NamespaceKind::User {
        store::members::put(tx.db(), Place::Project(id), creator, Role::Master, None, now)?;
    }
    let event =
        NewEvent { project: id, author: creator, action: Action::Created, target: None, push: None, intent: None, now };
    store::events::insert(tx.db(), &event)?;
    webhook_events::project_created(tx, id)?;
    Ok(id)
}

/// Where a new project goes, if its creator may put it there.
fn place_for(tx: &mut WriteTx<'_>, new: &NewProject, creator: &User) -> Result<Namespace> {
    let refused = || Violations::one("namespace", "is not valid");
    let namespace = match &new.namespace {
        None => store::namespaces::personal(tx.db(), creator.id)?.ok_or_else(refused)?,
        Some(named) => {
            let namespace = namespaces::find(tx, named)?.ok_or_else(refused)?;
            if !tx.may_create_in(&namespace, creator)? {
                return Err(refused().into());
            }
            namespace
        }
    };
    // Locked, so that its visibility and its names are what they are until the project is there.
    Ok(store::namespaces::by_id_to_change(tx.db(), namespace.id)?.ok_or_else(refused)?)
}

pub(crate) fn limit_text(user: &User) -> String {
    match user.projects_limit {
        0 => "Personal project creation is not allowed. Please contact your administrator with questions".into(),
        limit => {
            format!("Your project limit is {limit} projects! Please contact your administrator to increase it")
        }
    }
}

pub(crate) fn check_visibility(visibility: Visibility, namespace: &Namespace, violations: &mut Violations) {
    let (wanted, there) = (visibility.as_str(), namespace.visibility.as_str());
    let text = format!("{wanted} is not allowed in a {there} group.");
    violations.unless(visibility <= namespace.visibility, "visibility_level", text);
}

/// Refuses a name or a path that another project of the namespace has, in whatever case.
pub(crate) fn refuse_taken(
    tx: &mut WriteTx<'_>,
    namespace: i64,
    name: Option<&str>,
    path: Option<&str>,
    own: Option<i64>,
    mut violations: Violations,
) -> Result<()> {
    let taken = what_is_taken(tx, namespace, name, path, own)?;
    violations.unless(!taken.name && !taken.wiki, "name", TAKEN);
    violations.unless(!taken.path, "path", TAKEN);
    Ok(violations.into_result()?)
}

/// What another project of a namespace has already.
struct Taken {
    name: bool,
    path: bool,
    /// A wiki lives beside its project, under the path with this ending.
    wiki: bool,
}

fn what_is_taken(
    tx: &mut WriteTx<'_>,
    namespace: i64,
    name: Option<&str>,
    path: Option<&str>,
    own: Option<i64>,
) -> Result<Taken> {
    // Nothing is called the empty text.
    let (name, path) = (name.unwrap_or_default(), path.unwrap_or_default());
    let (name, same_path) = store::projects::taken(tx.db(), namespace, name, path, own)?;
    let beside = match strip_wiki(path) {
        Some(project) => project.to_owned(),
        None => format!("{path}.wiki"),
    };
    let wiki = !path.is_empty() && store::projects::taken(tx.db(), namespace, "", &beside, own)?.1;
    Ok(Taken { name, path: same_path, wiki })
}

fn strip_wiki(path: &str) -> Option<&str> {
    const ENDING: &str = ".wiki";
    let at = path.len().checked_sub(ENDING.len())?;
    let ending = path.get(at..)?;
    ending.eq_ignore_ascii_case(ENDING).then(|| &path[..at])
}

/// Changes a project; what shows outside, its name and visibility, is for owners.
pub async fn edit(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    edit: Unvalidated<Edit>,
) -> Result<ProjectDetail> {
    let changed = forge.write(caller.clone(), move |tx| update(tx, &project, &edit)).await?;
    let Updated::Moving(id) = changed else { return changed.into_detail() };
    pushes::catch_up(forge, id).await?;
    forge.read(caller, move |tx| get(tx, &ProjectRef::Id(id))).await
}

/// What came of an edit.
enum Updated {
    Done(Box<ProjectDetail>),
    /// Its repository has to follow.
    Moving(i64),
}

impl Updated {
    fn into_detail(self) -> Result<ProjectDetail> {
        match self {
            Self::Done(detail) => Ok(*detail),
            Self::Moving(_) => Err(Error::Internal("an edit was left half done".into())),
        }
    }
}

fn update(tx: &mut WriteTx<'_>, project: &ProjectRef, edit: &Unvalidated<Edit>) -> Result<Updated> {
    tx.may(Ability::Browse)?;
    let Edit { changes, own_name_is_no_change, default_branch, import_url } = edit.get()?;
    let project = tx.open(project, ProjectAbility::ChangeProject)?;
    let (namespace, project) = hold(tx, &project)?;
    let renames = match &changes.name {
        None => false,
        Some(name) => !own_name_is_no_change || *name != project.name,
    };
    if renames || changes.visibility.is_some() {
        tx.may_to(&project, ProjectAbility::PresentProject)?;
    }
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(visibility) = changes.visibility {
        check_visibility(visibility, &namespace, &mut violations);
        fork_links::check_visibility(tx, &project, visibility, &mut violations)?;
    }
    let branch = default_branch.as_deref().map(|name| new_default(tx, &project, name, &mut violations)).transpose()?;
    let import = import_url.as_deref().map(|url| new_import(tx, &project, url, &mut violations)).transpose()?;
    let (name, path) = (changes.name.as_deref(), changes.path.as_deref());
    refuse_taken(tx, namespace.id, name, path, Some(project.id), violations)?;
    let now = tx.now();
    store::projects::update(tx.db(), &project, changes, now)?;
    if changes.switches.builds_enabled.is_some() || changes.switches.shared_runners_enabled.is_some() {
        // Jobs may find runners now that they did not find before.
        tx.call_runners();
    }
    fork_links::lower(tx, &project, changes.visibility.unwrap_or(project.visibility))?;
    if path.is_some_and(|path| path != project.path) {
        webhook_events::project_renamed(tx, project.id, &project.full_path())?;
    }
    if let Some(import) = import.flatten() {
        // An earlier one has failed, or there was none.
        store::imports::delete(tx.db(), project.id)?;
        imports::schedule(tx, project.id, &import)?;
    }
    if let Some(branch) = branch.flatten() {
        pushes::intend_default(tx, project.id, &branch)?;
        return Ok(Updated::Moving(project.id));
    }
    let project = reload(tx, project.id)?;
    Ok(Updated::Done(Box::new(in_full(tx, project)?)))
}

/// The branch that shall be the default, if that changes anything; while there is no branch at all, nothing does.
fn new_default(
    tx: &mut WriteTx<'_>,
    project: &Project,
    name: &str,
    violations: &mut Violations,
) -> Result<Option<RefName>> {
    let Some(repository) = tx.repository(project)? else { return Ok(None) };
    let refs = repository.refs()?;
    if refs.branches.is_empty() || project.default_branch.as_deref() == Some(name) {
        return Ok(None);
    }
    let found = RefName::branch(name).filter(|name| refs.find(name).is_some());
    violations.unless(found.is_some(), "default_branch", "does not exist");
    Ok(found)
}

fn new_import(
    tx: &mut WriteTx<'_>,
    project: &Project,
    url: &str,
    violations: &mut Violations,
) -> Result<Option<Destination>> {
    let may = imports::may_begin(tx, project)?;
    violations.unless(may, "import_url", "can only be given while the repository is empty");
    let allow_local = tx.shared().allow_local_network;
    Ok(imports::check(url, allow_local, violations))
}

/// A project and its namespace as they are while this transaction lasts.
fn hold(tx: &mut WriteTx<'_>, project: &Project) -> Result<(Namespace, Project)> {
    let gone = || Error::not_found("Project");
    let namespace = store::namespaces::by_id_to_change(tx.db(), project.namespace.id)?.ok_or_else(gone)?;
    if !store::projects::lock(tx.db(), project.id)? {
        return Err(gone());
    }
    let project = reload(tx, project.id)?;
    // Moved away a moment ago; whoever asks again finds it in its new place.
    if project.namespace.id == namespace.id { Ok((namespace, project)) } else { Err(gone()) }
}

/// Puts a project away, or takes it out again; either may be so already.
pub fn set_archived(tx: &mut WriteTx<'_>, project: &ProjectRef, archived: bool) -> Result<Project> {
    let project = tx.open(project, ProjectAbility::ArchiveProject)?;
    if project.archived != archived {
        let now = tx.now();
        store::projects::set_archived(tx.db(), project.id, archived, now)?;
        tx.call_runners();
    }
    reload_with_relations(tx, project.id)
}

/// Stars a project; [`Error::Unchanged`] if it is starred already.
pub fn star(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.open(project, ProjectAbility::StarProject)?;
    let (me, now) = (tx.my_id(Ability::Browse)?, tx.now());
    if !store::projects::star(tx.db(), project.id, me, now)? {
        return Err(Error::Unchanged);
    }
    reload_with_relations(tx, project.id)
}

/// Takes a star back; [`Error::Unchanged`] if there is none.
pub fn unstar(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.open(project, ProjectAbility::StarProject)?;
    let (me, now) = (tx.my_id(Ability::Browse)?, tx.now());
    if !store::projects::unstar(tx.db(), project.id, me, now)? {
        return Err(Error::Unchanged);
    }
    reload_with_relations(tx, project.id)
}

/// Opens a project to the members of a group.
pub fn share(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewShare>) -> Result<Share> {
    tx.may(Ability::Browse)?;
    let new = *new.get()?;
    let project = tx.open(project, ProjectAbility::ShareProject)?;
    let (group, _) = tx.open_group(&GroupRef::Id(new.group_id), GroupAbility::ReadGroup)?;
    let (_, project) = hold(tx, &project)?;
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

/// Closes a project to the members of a group.
pub fn unshare(tx: &mut WriteTx<'_>, project: &ProjectRef, group: &Unvalidated<i64>) -> Result<()> {
    tx.may(Ability::Browse)?;
    let group = *group.get()?;
    let project = tx.open(project, ProjectAbility::ShareProject)?;
    let now = tx.now();
    let share = store::members::find_share(tx.db(), project.id, group, now)?;
    let share = share.ok_or(Error::not_found("Group Link"))?;
    Ok(store::members::delete_share(tx.db(), project.id, share.group_id)?)
}

/// Moves a project into a group; it keeps its number and everything that hangs on it.
pub fn transfer(tx: &mut WriteTx<'_>, group: &GroupRef, project: &ProjectRef) -> Result<GroupDetail> {
    tx.may(Ability::AdministerProjects)?;
    let (group, role) = tx.open_group(group, GroupAbility::CreateProjects)?;
    let project = tx.open(project, ProjectAbility::RemoveProject)?;
    let group = store::namespaces::by_id_to_change(tx.db(), group.id)?.ok_or(Error::not_found("Group"))?;
    if !store::projects::lock(tx.db(), project.id)? {
        return Err(Error::not_found("Project"));
    }
    let project = reload(tx, project.id)?;
    let refused = |text: &str| Error::from(Violations::one("new_namespace", text));
    if project.namespace.id == group.id {
        return Err(refused("is invalid"));
    }
    let taken = what_is_taken(tx, group.id, Some(&project.name), Some(&project.path), None)?;
    if taken.path || taken.wiki {
        return Err(refused("Project with same path in target namespace already exists"));
    }
    if taken.name {
        return Err(refused("Project with same name in target namespace already exists"));
    }
    let now = tx.now();
    store::projects::transfer(tx.db(), project.id, group.id, project.visibility.min(group.visibility), now)?;
    // Open to the group it now lives in, it would be open twice.
    store::members::delete_share(tx.db(), project.id, group.id)?;
    webhook_events::project_transferred(tx, project.id, &project.full_path())?;
    groups::detail(tx, group, role)
}

/// Removes a project: it is gone at once, and what it leaves behind is cleaned up afterwards.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<()> {
    let project = tx.open(project, ProjectAbility::RemoveProject)?;
    bury(tx, Buried::One(project.id))
}

/// Takes projects out of their places and leaves the rest to jobs.
pub(crate) fn bury(tx: &mut WriteTx<'_>, projects: Buried<'_>) -> Result<()> {
    webhook_events::projects_leave(tx, projects)?;
    let now = tx.now();
    Ok(store::projects::bury(tx.db(), projects, Task::REMOVE_PROJECT, now)?)
}

/// A project just changed, as the caller now sees it.
fn reload(tx: &mut WriteTx<'_>, id: i64) -> Result<Project> {
    let viewer = tx.viewer();
    store::projects::find(tx.db(), &viewer, Key::Id(id))?.ok_or(Error::not_found("Project"))
}

fn reload_with_relations(tx: &mut WriteTx<'_>, id: i64) -> Result<Project> {
    let project = reload(tx, id)?;
    with_relations(tx, project)
}

fn with_relations(tx: &mut ReadTx<'_>, project: Project) -> Result<Project> {
    let (viewer, mut projects) = (tx.viewer(), [project]);
    store::projects::with_relations(tx.db(), &viewer, &mut projects)?;
    let [project] = projects;
    Ok(project)
}

fn in_full(tx: &mut ReadTx<'_>, project: Project) -> Result<ProjectDetail> {
    let project = with_relations(tx, project)?;
    let may_know = tx.may_to(&project, ProjectAbility::ReadRunnersToken).is_ok();
    let key = &tx.shared().instance_key;
    let runners_token = may_know.then(|| key.runners_token(project.id, &project.runners_seed));
    Ok(ProjectDetail { project, runners_token })
}
