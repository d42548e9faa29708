//! Groups.

use axum::extract::State;
use forge::{
    Error, Forge,
    groups::{self, GroupDetail},
    projects,
};
use model::{
    Change, Namespace, Visibility,
    groups::{GroupChanges, GroupFilter, NewGroup},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::{
    project_params::{LEVELS, ListGroupProjects},
    projects::{ListedProjectJson, ProjectJson},
};
use crate::{
    error::ApiError,
    extract::{Credentials, InGroup, OtherProject},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/groups", "Lists groups: all for administrators, their own for others", list)
        .get("/groups/owned", "Lists the groups that the caller owns", list_owned)
        .post("/groups", "Creates a group that the caller owns", create)
        .get("/groups/{id}", "Shows a group with its projects", get)
        .put("/groups/{id}", "Changes a group", update)
        .delete("/groups/{id}", "Removes a group with all projects inside", delete)
        .get("/groups/{id}/projects", "Lists the projects of a group", list_projects)
        .post("/groups/{id}/projects/{project_id}", "Moves a project into a group; administrators only", transfer)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListGroups>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<GroupJson>> {
    let (filter, page) = (given.map(|given| given.0), paging.page.clone());
    let groups = forge.read(caller, move |tx| groups::list(tx, &filter, &page)).await?;
    Ok(paging.answer(groups.map(|group| GroupJson::new(group, &site))))
}

async fn list_owned(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    paging: Paging,
    site: Site,
) -> Reply<Paged<GroupJson>> {
    let page = paging.page.clone();
    let groups = forge.read(caller, move |tx| groups::list_owned(tx, &page)).await?;
    Ok(paging.answer(groups.map(|group| GroupJson::new(group, &site))))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    site: Site,
) -> Reply<Done<GroupDetailJson>> {
    let detail = forge.read(caller, move |tx| groups::get(tx, &group)).await?;
    Ok(Done(GroupDetailJson::new(detail, &site)))
}

async fn list_projects(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    Params(given): Params<ListGroupProjects>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedProjectJson>> {
    let simple = given.get().is_ok_and(|given| given.0.simple);
    let (filter, page) = (given.map(|given| given.0.filter), paging.page.clone());
    let found = forge.read(caller, move |tx| groups::list_projects(tx, &group, &filter, &page)).await?;
    Ok(paging.answer(found.map(|project| ListedProjectJson::new(project, &site, simple, false))))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<CreateGroup>,
    site: Site,
) -> Reply<Created<GroupJson>> {
    let given = given.map(|given| given.0);
    let made = forge.write(caller, move |tx| groups::create(tx, &given)).await;
    let group = made.map_err(|error| spelled("Failed to save group", error))?;
    Ok(Created(GroupJson::new(group, &site)))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    Params(given): Params<EditGroup>,
    site: Site,
) -> Reply<Done<GroupDetailJson>> {
    let given = given.map(|given| given.0);
    let detail = forge.write(caller, move |tx| groups::update(tx, &group, &given)).await?;
    Ok(Done(GroupDetailJson::new(detail, &site)))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    site: Site,
) -> Reply<Done<GroupDetailJson>> {
    let group = forge.write(caller, move |tx| groups::delete(tx, &group)).await?;
    let empty = GroupDetail { group, projects: Vec::new(), shared_projects: Vec::new() };
    Ok(Done(GroupDetailJson::new(empty, &site)))
}

async fn transfer(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    OtherProject(project): OtherProject,
    site: Site,
) -> Reply<Created<GroupDetailJson>> {
    let moved = forge.write(caller, move |tx| projects::transfer(tx, &group, &project)).await;
    let detail = moved.map_err(|error| spelled("Failed to transfer project", error))?;
    Ok(Created(GroupDetailJson::new(detail, &site)))
}

/// What is wrong with a record in one text: here the original has no object of fields.
fn spelled(beginning: &'static str, error: Error) -> ApiError {
    match error {
        Error::Invalid(violations) => ApiError::Spelled(beginning, violations),
        other => other.into(),
    }
}

struct ListGroups(GroupFilter);

impl FromParams for ListGroups {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(GroupFilter {
            skip: from.integers("skip_groups", "Numbers of groups to leave out"),
            all_available: from.flag("all_available", "All groups that the caller can see").unwrap_or(false),
            search: from.text("search", "A part of name or path").filter(|text| !text.is_empty()),
            by_path: from
                .choice("order_by", &[("name", false), ("path", true)], "What they are sorted by; name")
                .unwrap_or(false),
            descending: from.choice("sort", &[("asc", false), ("desc", true)], "Which way; asc").unwrap_or(false),
        })
    }
}

struct CreateGroup(NewGroup);

impl FromParams for CreateGroup {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("name", "The name people read");
        let path = from.required_text("path", "The path in URLs");
        let common = Common::read(from);
        Self(NewGroup {
            name,
            path,
            description: common.description.unwrap_or_default(),
            visibility: common.visibility.unwrap_or(Visibility::Public),
            lfs_enabled: common.lfs_enabled,
            request_access_enabled: common.request_access_enabled.unwrap_or(false),
        })
    }
}

struct EditGroup(GroupChanges);

impl FromParams for EditGroup {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.text("name", "The name people read");
        let path = from.text("path", "The path in URLs");
        let common = Common::read(from);
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
            description: Change::from_text(common.description),
            visibility: common.visibility,
            lfs_enabled: common.lfs_enabled,
            request_access_enabled: common.request_access_enabled,
        })
    }
}

/// What creation and edits both read.
struct Common {
    description: Option<String>,
    visibility: Option<Visibility>,
    lfs_enabled: Option<bool>,
    request_access_enabled: Option<bool>,
}

impl Common {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            description: from.text("description", "What it is about"),
            visibility: from.number_choice("visibility_level", &LEVELS, "How far it can be seen"),
            lfs_enabled: from.flag("lfs_enabled", "Whether large files are kept apart"),
            request_access_enabled: from.flag("request_access_enabled", "Whether people may ask to be let in"),
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
            id: group.id,
            web_url: site.group_page(&group.full_path),
            name: group.name,
            path: group.path,
            description: group.description,
            visibility_level: group.visibility.level(),
            // There is no LFS yet.
            lfs_enabled: false,
            avatar_url: None,
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
        let shown = |projects: Vec<model::Project>| projects.into_iter().map(|project| ProjectJson::new(project, site));
        Self {
            group: GroupJson::new(detail.group, site),
            projects: shown(detail.projects).collect(),
            shared_projects: shown(detail.shared_projects).collect(),
        }
    }
}
