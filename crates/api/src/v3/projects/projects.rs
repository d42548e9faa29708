//! Projects.

use axum::extract::State;
use forge::{
    Error, Forge, Unvalidated, forks,
    projects::{self, ProjectDetail, Which},
};
use jiff::civil::Date;
use model::{
    Namespace, Page, Project, Role, Share, Violations, Visibility,
    members::SharedGroup,
    projects::{Access, ForkSource, ProjectFilter},
    users::UserSummary,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::{
    project_params::{CreateProject, EditProject, ForkProject, ListProjects, OrderProjects, ShareProject},
    users::UserSummaryJson,
};
use crate::{
    App,
    error::ApiError,
    extract::{Credentials, GroupNumber, InProject, Query, UserNumber},
    paging::{Paged, Paging},
    params::Params,
    reply::{Created, Day, Done, NoContent, Recalled, Reply, Stamp, Written},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects", "Lists the projects to which the caller belongs", list_mine)
        .get("/projects/visible", "Lists the projects that the caller can see", list_visible)
        .get("/projects/owned", "Lists the projects that the caller owns", list_owned)
        .get("/projects/starred", "Lists the projects that the caller has starred", list_starred)
        .get("/projects/all", "Lists all projects; administrators only", list_all)
        .get("/projects/search/{query}", "Finds projects that the caller can see", search)
        .post("/projects", "Creates a project for the caller", create)
        .post("/projects/user/{user_id}", "Creates a project for a user; administrators only", create_for)
        .post("/projects/fork/{id}", "Copies a project into a namespace", fork)
        .also(&[409])
        .get("/projects/{id}", "Shows a project", get)
        .put("/projects/{id}", "Changes a project", update)
        .delete("/projects/{id}", "Removes a project with everything in it", delete)
        .post("/projects/{id}/star", "Stars a project", star)
        .also(&[304])
        .delete("/projects/{id}/star", "Takes a star back", unstar)
        .also(&[304])
        .post("/projects/{id}/archive", "Puts a project away", archive)
        .post("/projects/{id}/unarchive", "Takes a project out again", unarchive)
        // A stock client sends this method.
        .delete("/projects/{id}/unarchive", "Takes a project out again, as POST does", unarchive)
        .post("/projects/{id}/share", "Opens a project to a group", share)
        .also(&[409])
        .delete("/projects/{id}/share/{group_id}", "Closes a project to a group", unshare)
}

async fn list_mine(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(&forge, caller, Which::Mine, given, paging, &site).await
}

async fn list_visible(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(&forge, caller, Which::Visible, given, paging, &site).await
}

async fn list_owned(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(&forge, caller, Which::Owned, given, paging, &site).await
}

async fn list_starred(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(&forge, caller, Which::Starred, given, paging, &site).await
}

async fn list_all(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(&forge, caller, Which::All, given, paging, &site).await
}

async fn search(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Query(query): Query,
    Params(given): Params<OrderProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    let given = given.unless(|_| query.contains('\0').then(|| "query is invalid".to_owned()));
    let given = given.map(|OrderProjects(list)| ListProjects {
        filter: ProjectFilter { search: Some(query), ..list.filter },
        ..list
    });
    let simple = is_simple(&given);
    let page = paging.page.clone();
    let found = query_list(&forge, caller, Which::Visible, given, page).await?;
    Ok(paging.answer(found.map(|project| ListedProjectJson::new(project, &site, simple, false))))
}

async fn list(
    forge: &Forge,
    caller: forge::Caller,
    which: Which,
    given: Unvalidated<ListProjects>,
    paging: Paging,
    site: &Site,
) -> Reply<Paged<ListedProjectJson>> {
    let simple = is_simple(&given);
    // The original never showed them among the starred ones.
    let permissions = which != Which::Starred;
    let page = paging.page.clone();
    let found = query_list(forge, caller, which, given, page).await?;
    Ok(paging.answer(found.map(|project| ListedProjectJson::new(project, site, simple, permissions))))
}

fn is_simple(given: &Unvalidated<ListProjects>) -> bool {
    given.get().is_ok_and(|list| list.simple)
}

async fn query_list(
    forge: &Forge,
    caller: forge::Caller,
    which: Which,
    given: Unvalidated<ListProjects>,
    page: Unvalidated<Page>,
) -> Result<model::Slice<Project>, Error> {
    let filter = given.map(|list| list.filter);
    forge.read(caller, move |tx| projects::list(tx, which, &filter, &page)).await
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    site: Site,
) -> Reply<Recalled<ProjectJson>> {
    let subject = format!("project {project:?} at {}", site.root());
    let written = forge.read_cached(caller, subject, move |tx| {
        let detail = projects::get(tx, &project)?;
        let permissions = Some(PermissionsJson::from(detail.project.access));
        Ok(Written::new(&ProjectJson { permissions, ..ProjectJson::detailed(detail, &site) }))
    });
    Ok(written.await?.into())
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<CreateProject>,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let given = given.map(|given| given.0);
    let detail = forge.write(caller, move |tx| projects::create(tx, &given)).await?;
    Ok(Created(ProjectJson::detailed(detail, &site)))
}

async fn create_for(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    UserNumber(user): UserNumber,
    Params(given): Params<CreateProject>,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let given = given.map(|given| given.0);
    let made = forge.write(caller, move |tx| projects::create_for(tx, &user, &given)).await;
    let detail = made.map_err(|error| match error {
        // Under another status and in another shape than for oneself, as in the original.
        Error::LimitReached(text) => Error::from(Violations::one("limit_reached", text)),
        other => other,
    })?;
    Ok(Created(ProjectJson::detailed(detail, &site)))
}

async fn fork(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ForkProject>,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let required = app.dialect().names_namespace_of_forks();
    let given = given.map(|ForkProject(namespace)| namespace);
    let given = given.unless(|namespace| (required && namespace.is_none()).then(|| "namespace is missing".to_owned()));
    let detail = forks::create(&forge, caller, project, given).await?;
    Ok(Created(ProjectJson::detailed(detail, &site)))
}

async fn update(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<EditProject>,
    site: Site,
) -> Reply<Done<ProjectJson>> {
    let named = app.dialect().names_project_in_edits();
    let given = given.unless(|edit| (named && edit.changes.name.is_none()).then(|| "name is missing".to_owned()));
    let given = given.map(|edit| edit.into_edit(named));
    let detail = projects::edit(&forge, caller, project, given).await?;
    Ok(Done(ProjectJson::detailed(detail, &site)))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
) -> Reply<Done<bool>> {
    forge.write(caller, move |tx| projects::delete(tx, &project)).await?;
    Ok(Done(true))
}

async fn star(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let project = forge.write(caller, move |tx| projects::star(tx, &project)).await?;
    Ok(Created(ProjectJson::new(project, &site)))
}

async fn unstar(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    site: Site,
) -> Reply<Done<ProjectJson>> {
    let project = forge.write(caller, move |tx| projects::unstar(tx, &project)).await?;
    Ok(Done(ProjectJson::new(project, &site)))
}

async fn archive(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let project = forge.write(caller, move |tx| projects::set_archived(tx, &project, true)).await?;
    Ok(Created(ProjectJson::new(project, &site)))
}

async fn unarchive(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let project = forge.write(caller, move |tx| projects::set_archived(tx, &project, false)).await?;
    Ok(Created(ProjectJson::new(project, &site)))
}

async fn share(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ShareProject>,
) -> Reply<Created<ShareJson>> {
    let given = given.map(|given| given.0);
    let share = forge.write(caller, move |tx| projects::share(tx, &project, &given)).await?;
    Ok(Created(share.into()))
}

async fn unshare(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    GroupNumber(group): GroupNumber,
) -> Result<NoContent, ApiError> {
    forge.write(caller, move |tx| projects::unshare(tx, &project, &group)).await?;
    Ok(NoContent)
}

/// A project.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ProjectJson {
    id: i64,
    description: Option<String>,
    /// Null while the repository has no branch.
    default_branch: Option<String>,
    tag_list: Vec<String>,
    public: bool,
    archived: bool,
    #[schemars(with = "i32")]
    visibility_level: i32,
    ssh_url_to_repo: String,
    http_url_to_repo: String,
    web_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerJson>,
    name: String,
    name_with_namespace: String,
    path: String,
    path_with_namespace: String,
    container_registry_enabled: bool,
    issues_enabled: bool,
    merge_requests_enabled: bool,
    wiki_enabled: bool,
    builds_enabled: bool,
    snippets_enabled: bool,
    created_at: Stamp,
    last_activity_at: Stamp,
    shared_runners_enabled: bool,
    lfs_enabled: bool,
    creator_id: i64,
    namespace: NamespaceJson,
    avatar_url: Option<String>,
    star_count: i64,
    forks_count: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_issues_count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runners_token: Option<String>,
    public_builds: bool,
    shared_with_groups: Vec<SharedGroupJson>,
    only_allow_merge_if_build_succeeds: bool,
    only_allow_merge_if_all_discussions_are_resolved: bool,
    request_access_enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from_project: Option<SimpleProjectJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    import_status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    import_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<PermissionsJson>,
}

impl ProjectJson {
    /// A project without what only some callers or routes show.
    pub(crate) fn new(project: Project, site: &Site) -> Self {
        let names = Names::new(&project, site);
        let switches = project.switches.offered();
        let import_status = project.import.as_ref().map(|import| import.state.as_str());
        let import_error = project.import.and_then(|import| import.error);
        Self {
            id: project.id,
            description: project.description,
            default_branch: project.default_branch,
            tag_list: Vec::new(),
            public: project.visibility == Visibility::Public,
            archived: project.archived,
            visibility_level: project.visibility.level(),
            ssh_url_to_repo: site.ssh_url(&names.full_path),
            http_url_to_repo: names.http_url(),
            web_url: names.web_url,
            owner: project.owner.map(|owner| OwnerJson::new(owner, site)),
            name: project.name,
            name_with_namespace: names.full_name,
            path: project.path,
            path_with_namespace: names.full_path,
            container_registry_enabled: switches.container_registry_enabled,
            issues_enabled: switches.issues_enabled,
            merge_requests_enabled: switches.merge_requests_enabled,
            wiki_enabled: switches.wiki_enabled,
            builds_enabled: switches.builds_enabled,
            snippets_enabled: switches.snippets_enabled,
            created_at: Stamp(project.created_at),
            last_activity_at: Stamp(project.last_activity_at),
            shared_runners_enabled: switches.shared_runners_enabled,
            // There is no LFS yet.
            lfs_enabled: false,
            creator_id: project.creator_id,
            namespace: NamespaceJson::from(project.namespace),
            avatar_url: None,
            star_count: project.star_count,
            forks_count: project.forks_count,
            open_issues_count: switches.issues_enabled.then_some(project.open_issues),
            runners_token: None,
            public_builds: switches.public_builds,
            shared_with_groups: project.shared_with.into_iter().map(SharedGroupJson::from).collect(),
            only_allow_merge_if_build_succeeds: switches.only_allow_merge_if_build_succeeds,
            only_allow_merge_if_all_discussions_are_resolved: switches.only_allow_merge_if_all_discussions_are_resolved,
            request_access_enabled: switches.request_access_enabled,
            import_status,
            import_error,
            forked_from_project: project.forked_from.map(|source| SimpleProjectJson::of_source(source, site)),
            permissions: None,
        }
    }

    fn detailed(detail: ProjectDetail, site: &Site) -> Self {
        let runners_token = detail.runners_token.map(|token| token.reveal().to_owned());
        Self { runners_token, ..Self::new(detail.project, site) }
    }
}

/// What is put together from a project and its namespace.
struct Names {
    full_path: String,
    full_name: String,
    web_url: String,
}

impl Names {
    fn new(project: &Project, site: &Site) -> Self {
        let full_path = project.full_path();
        // A personal namespace is called like its owner, not like its path.
        let place = project.owner.as_ref().map_or(&project.namespace.name, |owner| &owner.name);
        Self { full_name: format!("{place} / {}", project.name), web_url: site.page(&full_path), full_path }
    }

    fn http_url(&self) -> String {
        format!("{}.git", self.web_url)
    }
}

/// Number, URLs, name and path of a project.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SimpleProjectJson {
    id: i64,
    http_url_to_repo: String,
    web_url: String,
    name: String,
    name_with_namespace: String,
    path: String,
    path_with_namespace: String,
}

impl SimpleProjectJson {
    /// The project that another one was forked from.
    fn of_source(source: ForkSource, site: &Site) -> Self {
        let full_path = source.full_path();
        let web_url = site.page(&full_path);
        Self {
            id: source.id,
            http_url_to_repo: format!("{web_url}.git"),
            web_url,
            name_with_namespace: format!("{} / {}", source.namespace_name, source.name),
            name: source.name,
            path: source.path,
            path_with_namespace: full_path,
        }
    }
}

/// A project in a list.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ListedProjectJson {
    Full(Box<ProjectJson>),
    Simple(SimpleProjectJson),
}

impl ListedProjectJson {
    pub(crate) fn new(project: Project, site: &Site, simple: bool, permissions: bool) -> Self {
        if simple {
            let names = Names::new(&project, site);
            return Self::Simple(SimpleProjectJson {
                id: project.id,
                http_url_to_repo: names.http_url(),
                web_url: names.web_url,
                name: project.name,
                name_with_namespace: names.full_name,
                path: project.path,
                path_with_namespace: names.full_path,
            });
        }
        let access = permissions.then(|| PermissionsJson::from(project.access));
        Self::Full(Box::new(ProjectJson { permissions: access, ..ProjectJson::new(project, site) }))
    }
}

/// To whom a personal project belongs.
#[derive(Serialize, JsonSchema)]
struct OwnerJson {
    #[serde(flatten)]
    user: UserSummaryJson,
    created_at: Stamp,
}

impl OwnerJson {
    fn new(owner: UserSummary, site: &Site) -> Self {
        Self { created_at: Stamp(owner.created_at), user: UserSummaryJson::new(owner, site) }
    }
}

/// Where a project lives.
#[derive(Serialize, JsonSchema)]
struct NamespaceJson {
    id: i64,
    name: String,
    path: String,
    owner_id: Option<i64>,
    created_at: Stamp,
    updated_at: Stamp,
    description: String,
    avatar: AvatarJson,
    share_with_group_lock: bool,
    visibility_level: i32,
    request_access_enabled: bool,
    deleted_at: Option<Stamp>,
    lfs_enabled: Option<bool>,
    kind: &'static str,
}

/// The picture of a namespace.
#[derive(Serialize, JsonSchema)]
struct AvatarJson {
    url: Option<String>,
}

impl From<Namespace> for NamespaceJson {
    fn from(namespace: Namespace) -> Self {
        Self {
            id: namespace.id,
            name: namespace.name,
            path: namespace.path,
            owner_id: namespace.owner_id,
            created_at: Stamp(namespace.created_at),
            updated_at: Stamp(namespace.updated_at),
            description: namespace.description,
            avatar: AvatarJson { url: None },
            share_with_group_lock: namespace.share_with_group_lock,
            visibility_level: namespace.visibility.level(),
            request_access_enabled: namespace.request_access_enabled,
            deleted_at: None,
            lfs_enabled: namespace.lfs_enabled.map(|_| false),
            kind: namespace.kind.as_str(),
        }
    }
}

/// A group that a project is shared with.
#[derive(Serialize, JsonSchema)]
struct SharedGroupJson {
    group_id: i64,
    group_name: String,
    group_access_level: i32,
}

impl From<SharedGroup> for SharedGroupJson {
    fn from(shared: SharedGroup) -> Self {
        let SharedGroup { group_id, group_name, role } = shared;
        Self { group_id, group_name, group_access_level: role.level() }
    }
}

/// What the caller is to a project by membership; shares do not show here.
#[derive(Serialize, JsonSchema)]
struct PermissionsJson {
    project_access: Option<AccessJson>,
    group_access: Option<AccessJson>,
}

/// One membership.
#[derive(Serialize, JsonSchema)]
struct AccessJson {
    access_level: i32,
    notification_level: i32,
}

/// As the notifications are set for everything; there is no other setting yet.
const NOTIFIED_AS_EVERYWHERE: i32 = 3;

impl From<Access> for PermissionsJson {
    fn from(access: Access) -> Self {
        let shown = |role: Option<Role>| {
            role.map(|role| AccessJson { access_level: role.level(), notification_level: NOTIFIED_AS_EVERYWHERE })
        };
        Self { project_access: shown(access.project), group_access: shown(access.group) }
    }
}

/// A project opened to a group.
#[derive(Serialize, JsonSchema)]
struct ShareJson {
    id: i64,
    project_id: i64,
    group_id: i64,
    group_access: i32,
    expires_at: Option<Day>,
}

impl From<Share> for ShareJson {
    fn from(share: Share) -> Self {
        let Share { id, project_id, group_id, role, expires_on } = share;
        let day: Option<Date> = expires_on;
        Self { id, project_id, group_id, group_access: role.level(), expires_at: day.map(Day) }
    }
}
