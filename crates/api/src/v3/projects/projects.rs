//! Projects.

use axum::extract::State;
use forge::{
    Error, Unvalidated, forks,
    projects::{self, ProjectDetail, ProjectListKind},
};
use jiff::civil::Date;
use model::{
    Namespace, Project, Role, Share, UserId, Violations, Visibility,
    members::SharedGroup,
    projects::{ForkSource, ProjectAccess, ProjectFilter},
    users::UserSummary,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::{CallerCx, ProjectCx},
    error::ApiError,
    extract::{GroupIdInPath, SearchTermInPath, UserIdInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::Params,
    reply::{CachedJson, Created, DateJson, NoContent, OkJson, Reply, SerializedJson, TimestampJson},
    routes::Routes,
    site::Site,
    v3::{
        project_params::{CreateProject, ForkProject, ListProjects, OrderProjects, ShareProject, UpdateProject},
        users::UserSummaryJson,
    },
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Projects)
        .get("/projects", "List the projects of which the current user is a member", list_mine)
        .get("/projects/visible", "List the projects that the current user can see", list_visible)
        .get("/projects/owned", "List the projects that the current user owns", list_owned)
        .get("/projects/starred", "List the projects that the current user has starred", list_starred)
        .get("/projects/all", "List all projects; administrators only", list_all)
        .get("/projects/search/{query}", "Search the projects that the current user can see", search)
        .post("/projects", "Create a project", create)
        .post("/projects/user/{user_id}", "Create a project for a user; administrators only", create_for)
        .post("/projects/fork/{id}", "Fork a project into a namespace", fork)
        .with_statuses(&[409])
        .get("/projects/{id}", "Get a project", get)
        .put("/projects/{id}", "Update a project", update)
        .delete("/projects/{id}", "Delete a project", delete)
        .post("/projects/{id}/star", "Star a project", star)
        .with_statuses(&[304])
        .delete("/projects/{id}/star", "Unstar a project", unstar)
        .with_statuses(&[304])
        .post("/projects/{id}/archive", "Archive a project", archive)
        .post("/projects/{id}/unarchive", "Unarchive a project", unarchive)
        // A stock client uses this method.
        .delete("/projects/{id}/unarchive", "Unarchive a project (same as POST)", unarchive)
        .post("/projects/{id}/share", "Share a project with a group", share)
        .with_statuses(&[409])
        .delete("/projects/{id}/share/{group_id}", "Stop sharing a project with a group", unshare)
}

async fn list_mine(
    cx: CallerCx,
    Params(params): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(cx, ProjectListKind::Mine, params, paging, site).await
}

async fn list_visible(
    cx: CallerCx,
    Params(params): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(cx, ProjectListKind::Visible, params, paging, site).await
}

async fn list_owned(
    cx: CallerCx,
    Params(params): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(cx, ProjectListKind::Owned, params, paging, site).await
}

async fn list_starred(
    cx: CallerCx,
    Params(params): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(cx, ProjectListKind::Starred, params, paging, site).await
}

async fn list_all(
    cx: CallerCx,
    Params(params): Params<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    list(cx, ProjectListKind::All, params, paging, site).await
}

async fn search(
    cx: CallerCx,
    SearchTermInPath(query): SearchTermInPath,
    Params(params): Params<OrderProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    let params = params.reject_if(|_| query.contains('\0').then(|| "query is invalid".to_owned()));
    let params = params.map(|OrderProjects(list)| ListProjects {
        filter: ProjectFilter { search: Some(query), ..list.filter },
        ..list
    });
    reply_with_list(cx, ProjectListKind::Visible, params, paging, site, false).await
}

async fn list(
    cx: CallerCx,
    kind: ProjectListKind,
    params: Unvalidated<ListProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    // GitLab 8.14 does not include permissions in the list of starred projects.
    let permissions = kind != ProjectListKind::Starred;
    reply_with_list(cx, kind, params, paging, site, permissions).await
}

async fn reply_with_list(
    cx: CallerCx,
    kind: ProjectListKind,
    params: Unvalidated<ListProjects>,
    paging: Paging,
    site: Site,
    permissions: bool,
) -> Reply<Paged<ListedProjectJson>> {
    let simple = params.validate().is_ok_and(|list| list.simple);
    let filter = params.map(|list| list.filter);
    let reply = cx.read_list(move |tx| {
        let found = projects::list(tx, kind, &filter, &paging.page)?;
        Ok(paging.reply(found, |project| ListedProjectJson::new(project, &site, simple, permissions)))
    });
    Ok(reply.await?)
}

async fn get(ProjectCx { forge, caller, project }: ProjectCx, site: Site) -> Reply<CachedJson<ProjectJson>> {
    let subject = format!("project {project:?} at {}", site.root());
    let json = forge.read_cached(caller, subject, move |tx| {
        let detail = projects::get(tx, &project)?;
        let permissions = Some(PermissionsJson::from(detail.project.access));
        Ok(SerializedJson::new(&ProjectJson { permissions, ..ProjectJson::detailed(detail, &site) }))
    });
    Ok(json.await?.into())
}

async fn create(cx: CallerCx, Params(params): Params<CreateProject>, site: Site) -> Reply<Created<ProjectJson>> {
    let params = params.map(|params| params.0);
    let detail = cx.write(move |tx| projects::create(tx, &params)).await?;
    Ok(Created(ProjectJson::detailed(detail, &site)))
}

async fn create_for(
    cx: CallerCx,
    UserIdInPath(user): UserIdInPath,
    Params(params): Params<CreateProject>,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let params = params.map(|params| params.0);
    let created = cx.write(move |tx| projects::create_for(tx, &user, &params)).await;
    let detail = created.map_err(|error| match error {
        // Another status and shape than for the current user, as in GitLab 8.14.
        Error::LimitReached(text) => Error::from(Violations::one("limit_reached", text)),
        other => other,
    })?;
    Ok(Created(ProjectJson::detailed(detail, &site)))
}

async fn fork(
    State(app): State<App>,
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<ForkProject>,
    site: Site,
) -> Reply<Created<ProjectJson>> {
    let namespace_required = app.dialect().requires_fork_namespace();
    let params = params.map(|ForkProject(namespace)| namespace);
    let params = params
        .reject_if(|namespace| (namespace_required && namespace.is_none()).then(|| "namespace is missing".to_owned()));
    let detail = forks::create(&forge, caller, project, params).await?;
    Ok(Created(ProjectJson::detailed(detail, &site)))
}

async fn update(
    State(app): State<App>,
    ProjectCx { forge, caller, project }: ProjectCx,
    Params(params): Params<UpdateProject>,
    site: Site,
) -> Reply<OkJson<ProjectJson>> {
    let name_required = app.dialect().requires_name_in_project_edits();
    let params = params.reject_if(|update_params| {
        (name_required && update_params.changes.name.is_none()).then(|| "name is missing".to_owned())
    });
    let params = params.map(|update_params| update_params.into_update(name_required));
    let detail = projects::update(&forge, caller, project, params).await?;
    Ok(OkJson(ProjectJson::detailed(detail, &site)))
}

async fn delete(cx: ProjectCx) -> Reply<OkJson<bool>> {
    cx.write(projects::delete).await?;
    Ok(OkJson(true))
}

async fn star(cx: ProjectCx, site: Site) -> Reply<Created<ProjectJson>> {
    let project = cx.write(projects::star).await?;
    Ok(Created(ProjectJson::new(project, &site)))
}

async fn unstar(cx: ProjectCx, site: Site) -> Reply<OkJson<ProjectJson>> {
    let project = cx.write(projects::unstar).await?;
    Ok(OkJson(ProjectJson::new(project, &site)))
}

async fn archive(cx: ProjectCx, site: Site) -> Reply<Created<ProjectJson>> {
    let project = cx.write(move |tx, project| projects::set_archived(tx, project, true)).await?;
    Ok(Created(ProjectJson::new(project, &site)))
}

async fn unarchive(cx: ProjectCx, site: Site) -> Reply<Created<ProjectJson>> {
    let project = cx.write(move |tx, project| projects::set_archived(tx, project, false)).await?;
    Ok(Created(ProjectJson::new(project, &site)))
}

async fn share(cx: ProjectCx, Params(params): Params<ShareProject>) -> Reply<Created<ShareJson>> {
    let params = params.map(|params| params.0);
    let share = cx.write(move |tx, project| projects::share(tx, project, &params)).await?;
    Ok(Created(share.into()))
}

async fn unshare(cx: ProjectCx, GroupIdInPath(group): GroupIdInPath) -> Result<NoContent, ApiError> {
    cx.write(move |tx, project| projects::unshare(tx, project, &group)).await?;
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
    created_at: TimestampJson,
    last_activity_at: TimestampJson,
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
    /// Creates a project without the fields that only some callers or routes get.
    pub(crate) fn new(project: Project, site: &Site) -> Self {
        let names = DerivedNames::new(&project, site);
        let features = project.features.supported();
        let avatar_url = project.avatar_path().map(|path| site.url(&path));
        let import_status = project.import.as_ref().map(|import| import.state.as_str());
        let import_error = project.import.and_then(|import| import.error);
        Self {
            id: project.id.get(),
            avatar_url,
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
            container_registry_enabled: features.container_registry_enabled,
            issues_enabled: features.issues_enabled,
            merge_requests_enabled: features.merge_requests_enabled,
            wiki_enabled: features.wiki_enabled,
            builds_enabled: features.builds_enabled,
            snippets_enabled: features.snippets_enabled,
            created_at: TimestampJson(project.created_at),
            last_activity_at: TimestampJson(project.last_activity_at),
            shared_runners_enabled: features.shared_runners_enabled,
            // Git LFS is not implemented yet.
            lfs_enabled: false,
            creator_id: project.creator_id.get(),
            namespace: NamespaceJson::from(project.namespace),
            star_count: project.star_count,
            forks_count: project.forks_count,
            open_issues_count: features.issues_enabled.then_some(project.open_issues),
            runners_token: None,
            public_builds: features.public_builds,
            shared_with_groups: project.shared_with.into_iter().map(SharedGroupJson::from).collect(),
            only_allow_merge_if_build_succeeds: features.only_allow_merge_if_build_succeeds,
            only_allow_merge_if_all_discussions_are_resolved: features.only_allow_merge_if_all_discussions_are_resolved,
            request_access_enabled: features.request_access_enabled,
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

/// Names and URLs derived from a project and its namespace.
struct DerivedNames {
    full_path: String,
    full_name: String,
    web_url: String,
}

impl DerivedNames {
    fn new(project: &Project, site: &Site) -> Self {
        let full_path = project.full_path();
        // A personal namespace is shown by the name of its owner, not by its path.
        let namespace_name = project.owner.as_ref().map_or(&project.namespace.name, |owner| &owner.name);
        Self {
            full_name: [namespace_name.as_str(), " / ", &project.name].concat(),
            web_url: site.page(&full_path),
            full_path,
        }
    }

    fn http_url(&self) -> String {
        [self.web_url.as_str(), ".git"].concat()
    }
}

/// The ID, URLs, name and path of a project.
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
    /// Creates the summary of a fork source.
    fn of_source(source: ForkSource, site: &Site) -> Self {
        let full_path = source.full_path();
        let web_url = site.page(&full_path);
        Self {
            id: source.id.get(),
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
            let names = DerivedNames::new(&project, site);
            return Self::Simple(SimpleProjectJson {
                id: project.id.get(),
                http_url_to_repo: names.http_url(),
                web_url: names.web_url,
                name: project.name,
                name_with_namespace: names.full_name,
                path: project.path,
                path_with_namespace: names.full_path,
            });
        }
        let access = permissions.then(|| PermissionsJson::from(project.access));
        let mut json = Box::new(ProjectJson::new(project, site));
        json.permissions = access;
        Self::Full(json)
    }
}

/// The owner of a personal project.
#[derive(Serialize, JsonSchema)]
struct OwnerJson {
    #[serde(flatten)]
    user: UserSummaryJson,
    created_at: TimestampJson,
}

impl OwnerJson {
    fn new(owner: UserSummary, site: &Site) -> Self {
        Self { created_at: TimestampJson(owner.created_at), user: UserSummaryJson::new(owner, site) }
    }
}

/// The namespace of a project.
#[derive(Serialize, JsonSchema)]
struct NamespaceJson {
    id: i64,
    name: String,
    path: String,
    owner_id: Option<i64>,
    created_at: TimestampJson,
    updated_at: TimestampJson,
    description: String,
    avatar: AvatarJson,
    share_with_group_lock: bool,
    visibility_level: i32,
    request_access_enabled: bool,
    deleted_at: Option<TimestampJson>,
    lfs_enabled: Option<bool>,
    kind: &'static str,
}

/// The avatar of a namespace.
#[derive(Serialize, JsonSchema)]
struct AvatarJson {
    /// The path of the uploaded avatar of a group, as in GitLab 8.14.
    url: Option<String>,
}

impl From<Namespace> for NamespaceJson {
    fn from(namespace: Namespace) -> Self {
        Self {
            id: namespace.id.get(),
            avatar: AvatarJson { url: namespace.avatar_path() },
            name: namespace.name,
            path: namespace.path,
            owner_id: namespace.owner_id.map(UserId::get),
            created_at: TimestampJson(namespace.created_at),
            updated_at: TimestampJson(namespace.updated_at),
            description: namespace.description,
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
        Self { group_id: group_id.get(), group_name, group_access_level: role.level() }
    }
}

/// The access of the caller by membership in the project and in its group; shares are not included.
#[derive(Serialize, JsonSchema)]
struct PermissionsJson {
    project_access: Option<AccessJson>,
    group_access: Option<AccessJson>,
}

/// A membership of the caller.
#[derive(Serialize, JsonSchema)]
struct AccessJson {
    access_level: i32,
    notification_level: i32,
}

/// The notification level that follows the global setting; there is no other yet.
const GLOBAL_NOTIFICATION_LEVEL: i32 = 3;

impl From<ProjectAccess> for PermissionsJson {
    fn from(access: ProjectAccess) -> Self {
        let to_json = |role: Option<Role>| {
            role.map(|role| AccessJson { access_level: role.level(), notification_level: GLOBAL_NOTIFICATION_LEVEL })
        };
        Self { project_access: to_json(access.project), group_access: to_json(access.group) }
    }
}

/// A project shared with a group.
#[derive(Serialize, JsonSchema)]
struct ShareJson {
    id: i64,
    project_id: i64,
    group_id: i64,
    group_access: i32,
    expires_at: Option<DateJson>,
}

impl From<Share> for ShareJson {
    fn from(share: Share) -> Self {
        let Share { id, project_id, group_id, role, expires_on } = share;
        let day: Option<Date> = expires_on;
        Self {
            id: id.get(),
            project_id: project_id.get(),
            group_id: group_id.get(),
            group_access: role.level(),
            expires_at: day.map(DateJson),
        }
    }
}
