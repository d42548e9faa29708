//! Groups.

use forge::{
    Error,
    groups::{self, GroupDetail},
    projects,
};
use model::{
    Change, Namespace, Visibility,
    groups::{GroupChanges, GroupFilter, NewGroup},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::{CallerCx, GroupCx},
    error::ApiError,
    extract::OtherProjectInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply},
    routes::Routes,
    site::Site,
    v3::{
        project_params::{ListGroupProjects, VISIBILITY_LEVELS},
        projects::{ListedProjectJson, ProjectJson},
    },
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Groups)
        .get("/groups", "List the groups of the current user, or all groups for administrators", list)
        .get("/groups/owned", "List the groups that the current user owns", list_owned)
        .post("/groups", "Create a group owned by the current user", create)
        .get("/groups/{id}", "Get a group with its projects", get)
        .put("/groups/{id}", "Update a group", update)
        .delete("/groups/{id}", "Delete a group with all its projects", delete)
        .get("/groups/{id}/projects", "List the projects of a group", list_projects)
        .post("/groups/{id}/projects/{project_id}", "Transfer a project to a group; administrators only", transfer)
}

async fn list(cx: CallerCx, Params(params): Params<ListGroups>, paging: Paging, site: Site) -> Reply<Paged<GroupJson>> {
    let filter = params.map(|params| params.0);
    let reply = cx.read_list(move |tx| {
        let found = groups::list(tx, &filter, &paging.page)?;
        Ok(paging.reply(found, |group| GroupJson::new(group, &site)))
    });
    Ok(reply.await?)
}

async fn list_owned(cx: CallerCx, paging: Paging, site: Site) -> Reply<Paged<GroupJson>> {
    let reply = cx.read_list(move |tx| {
        let found = groups::list_owned(tx, &paging.page)?;
        Ok(paging.reply(found, |group| GroupJson::new(group, &site)))
    });
    Ok(reply.await?)
}

async fn get(cx: GroupCx, site: Site) -> Reply<OkJson<GroupDetailJson>> {
    let detail = cx.read(groups::get).await?;
    Ok(OkJson(GroupDetailJson::new(detail, &site)))
}

async fn list_projects(
    cx: GroupCx,
    Params(params): Params<ListGroupProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    let simple = params.validate().is_ok_and(|params| params.0.simple);
    let filter = params.map(|params| params.0.filter);
    let reply = cx.read_list(move |tx, group| {
        let found = groups::list_projects(tx, group, &filter, &paging.page)?;
        Ok(paging.reply(found, |project| ListedProjectJson::new(project, &site, simple, false)))
    });
    Ok(reply.await?)
}

async fn create(cx: CallerCx, Params(params): Params<CreateGroup>, site: Site) -> Reply<Created<GroupJson>> {
    let params = params.map(|params| params.0);
    let created = cx.write(move |tx| groups::create(tx, &params)).await;
    let group = created.map_err(|error| with_single_message("Failed to save group", error))?;
    Ok(Created(GroupJson::new(group, &site)))
}

async fn update(cx: GroupCx, Params(params): Params<UpdateGroup>, site: Site) -> Reply<OkJson<GroupDetailJson>> {
    let params = params.map(|params| params.0);
    let detail = cx.write(move |tx, group| groups::update(tx, group, &params)).await?;
    Ok(OkJson(GroupDetailJson::new(detail, &site)))
}

async fn delete(cx: GroupCx, site: Site) -> Reply<OkJson<GroupDetailJson>> {
    let group = cx.write(groups::delete).await?;
    let empty = GroupDetail { group, projects: Vec::new(), shared_projects: Vec::new() };
    Ok(OkJson(GroupDetailJson::new(empty, &site)))
}

async fn transfer(
    cx: GroupCx,
    OtherProjectInPath(project): OtherProjectInPath,
    site: Site,
) -> Reply<Created<GroupDetailJson>> {
    let transferred = cx.write(move |tx, group| projects::transfer(tx, group, &project)).await;
    let detail = transferred.map_err(|error| with_single_message("Failed to transfer project", error))?;
    Ok(Created(GroupDetailJson::new(detail, &site)))
}

/// Reports violations as a single message, as GitLab 8.14 does for these routes, instead of an object of fields.
fn with_single_message(prefix: &'static str, error: Error) -> ApiError {
    match error {
        Error::Invalid(violations) => ApiError::ValidationText(prefix, violations),
        other => other.into(),
    }
}

struct ListGroups(GroupFilter);

impl FromParams for ListGroups {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(GroupFilter {
            skip: from.ids("skip_groups", "The IDs of groups to exclude"),
            all_available: from
                .flag("all_available", "Whether to list all groups that the current user can see; default: false")
                .unwrap_or(false),
            search: from
                .text("search", "Only groups whose name or path contains this text")
                .filter(|text| !text.is_empty()),
            by_path: from
                .choice("order_by", &[("name", false), ("path", true)], "The field to sort by; default: name")
                .unwrap_or(false),
            descending: from
                .choice("sort", &[("asc", false), ("desc", true)], "The sort direction; default: asc")
                .unwrap_or(false),
        })
    }
}

struct CreateGroup(NewGroup);

impl FromParams for CreateGroup {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("name", "The display name");
        let path = from.required_text("path", "The path in URLs");
        let settings = GroupSettings::read(from);
        Self(NewGroup {
            name,
            path,
            description: settings.description.unwrap_or_default(),
            visibility: settings.visibility.unwrap_or(Visibility::Public),
            lfs_enabled: settings.lfs_enabled,
            request_access_enabled: settings.request_access_enabled.unwrap_or(false),
        })
    }
}

struct UpdateGroup(GroupChanges);

impl FromParams for UpdateGroup {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.text("name", "The display name");
        let path = from.text("path", "The path in URLs");
        let settings = GroupSettings::read(from);
        from.at_least_one(&[
            "name",
            "path",
            "description",
            "visibility_level",
            "lfs_enabled",
            "request_access_enabled",
        ]);
        Self(GroupChanges {
            name,
            path,
            description: Change::from_text(settings.description),
            visibility: settings.visibility,
            lfs_enabled: settings.lfs_enabled,
            request_access_enabled: settings.request_access_enabled,
        })
    }
}

/// The parameters that creation and updates share.
struct GroupSettings {
    description: Option<String>,
    visibility: Option<Visibility>,
    lfs_enabled: Option<bool>,
    request_access_enabled: Option<bool>,
}

impl GroupSettings {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            description: from.text("description", "The description"),
            visibility: from.integer_choice(
                "visibility_level",
                &VISIBILITY_LEVELS,
                "The visibility: 0 private, 10 internal, 20 public; initially 20",
            ),
            lfs_enabled: from.flag("lfs_enabled", "Stored without effect: Gable has no Git LFS"),
            request_access_enabled: from
                .flag("request_access_enabled", "Stored without effect: Gable has no access requests"),
        }
    }
}

/// A group.
#[derive(Serialize, JsonSchema)]
struct GroupJson {
    id: i64,
    name: String,
    path: String,
    description: String,
    visibility_level: i32,
    lfs_enabled: bool,
    avatar_url: Option<String>,
    web_url: String,
    request_access_enabled: bool,
}

impl GroupJson {
    fn new(group: Namespace, site: &Site) -> Self {
        Self {
            id: group.id.get(),
            avatar_url: group.avatar_path().map(|path| site.url(&path)),
            web_url: site.group_page(&group.full_path),
            name: group.name,
            path: group.path,
            description: group.description,
            visibility_level: group.visibility.level(),
            // Git LFS is not implemented yet.
            lfs_enabled: false,
            request_access_enabled: group.request_access_enabled,
        }
    }
}

/// A group with its projects.
#[derive(Serialize, JsonSchema)]
struct GroupDetailJson {
    #[serde(flatten)]
    group: GroupJson,
    projects: Vec<ProjectJson>,
    shared_projects: Vec<ProjectJson>,
}

impl GroupDetailJson {
    fn new(detail: GroupDetail, site: &Site) -> Self {
        let to_json =
            |projects: Vec<model::Project>| projects.into_iter().map(|project| ProjectJson::new(project, site));
        Self {
            group: GroupJson::new(detail.group, site),
            projects: to_json(detail.projects).collect(),
            shared_projects: to_json(detail.shared_projects).collect(),
        }
    }
}
