//! Administration of runners.

use forge::runners::{self, RunnerChanges, RunnerDetail};
use model::{Runner, RunnerId, runners::RunnerScope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::{CallerCx, ProjectCx},
    extract::{ProjectRunnerIdInPath, RunnerIdInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Runners)
        .get("/runners", "List the runners of the projects in which the current user is a master", list)
        .get("/runners/all", "List all runners; administrators only", list_all)
        .get("/runners/{id}", "Get a runner", get)
        .put("/runners/{id}", "Update a runner", update)
        .delete("/runners/{id}", "Delete a runner", delete)
        .get("/projects/{id}/runners", "List the runners of a project and the shared runners", list_of_project)
        .post("/projects/{id}/runners", "Enable a runner for a project", enable)
        .with_statuses(&[409])
        .delete("/projects/{id}/runners/{runner_id}", "Disable a runner for a project", disable)
}

const STATE_SCOPES: [(&str, RunnerScope); 3] =
    [("active", RunnerScope::Active), ("paused", RunnerScope::Paused), ("online", RunnerScope::Online)];
const ALL_SCOPES: [(&str, RunnerScope); 5] = [
    STATE_SCOPES[0],
    STATE_SCOPES[1],
    STATE_SCOPES[2],
    ("specific", RunnerScope::Specific),
    ("shared", RunnerScope::Shared),
];

struct StateScope(Option<RunnerScope>);

impl FromParams for StateScope {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.choice("scope", &STATE_SCOPES, "Only runners with this status"))
    }
}

struct AnyScope(Option<RunnerScope>);

impl FromParams for AnyScope {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.choice("scope", &ALL_SCOPES, "Only runners with this status or of this type"))
    }
}

struct UpdateRunner(RunnerChanges);

impl FromParams for UpdateRunner {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let changes = RunnerChanges {
            description: from.text("description", "The description"),
            active: from.flag("active", "Whether the runner takes builds"),
            tags: from.comma_separated_list("tag_list", "The tags, comma-separated"),
            run_untagged: from.flag("run_untagged", "Whether the runner takes builds without tags"),
            locked: from.flag("locked", "Whether the runner cannot be enabled for further projects"),
        };
        from.at_least_one(&["description", "active", "tag_list", "run_untagged", "locked"]);
        Self(changes)
    }
}

struct EnableRunner(RunnerId);

impl FromParams for EnableRunner {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_id("runner_id", "The ID of the runner"))
    }
}

async fn list(cx: CallerCx, Params(scope): Params<StateScope>, paging: Paging) -> Reply<Paged<RunnerJson>> {
    let scope = scope.map(|scope| scope.0);
    let reply = cx.read_list(move |tx| {
        let found = runners::list_mine(tx, &scope, &paging.page)?;
        Ok(paging.reply(found, RunnerJson::from))
    });
    Ok(reply.await?)
}

async fn list_all(cx: CallerCx, Params(scope): Params<AnyScope>, paging: Paging) -> Reply<Paged<RunnerJson>> {
    let scope = scope.map(|scope| scope.0);
    let reply = cx.read_list(move |tx| {
        let found = runners::list_all(tx, &scope, &paging.page)?;
        Ok(paging.reply(found, RunnerJson::from))
    });
    Ok(reply.await?)
}

async fn list_of_project(cx: ProjectCx, Params(scope): Params<AnyScope>, paging: Paging) -> Reply<Paged<RunnerJson>> {
    let scope = scope.map(|scope| scope.0);
    let reply = cx.read_list(move |tx, project| {
        let found = runners::list_of_project(tx, project, &scope, &paging.page)?;
        Ok(paging.reply(found, RunnerJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: CallerCx, RunnerIdInPath(id): RunnerIdInPath) -> Reply<OkJson<RunnerDetailJson>> {
    let found = cx.read(move |tx| runners::get(tx, &id)).await?;
    Ok(OkJson(found.into()))
}

async fn update(
    cx: CallerCx,
    RunnerIdInPath(id): RunnerIdInPath,
    Params(changes): Params<UpdateRunner>,
) -> Reply<OkJson<RunnerDetailJson>> {
    let changes = changes.map(|changes| changes.0);
    let runner = cx.write(move |tx| runners::update(tx, &id, &changes)).await?;
    Ok(OkJson(runner.into()))
}

async fn delete(cx: CallerCx, RunnerIdInPath(id): RunnerIdInPath) -> Reply<OkJson<RunnerJson>> {
    let deleted = cx.write(move |tx| runners::delete(tx, &id)).await?;
    Ok(OkJson(deleted.into()))
}

async fn enable(cx: ProjectCx, Params(params): Params<EnableRunner>) -> Reply<Created<RunnerJson>> {
    let id = params.map(|params| params.0);
    let runner = cx.write(move |tx, project| runners::enable(tx, project, &id)).await?;
    Ok(Created(runner.into()))
}

async fn disable(cx: ProjectCx, ProjectRunnerIdInPath(id): ProjectRunnerIdInPath) -> Reply<OkJson<RunnerJson>> {
    let runner = cx.write(move |tx, project| runners::disable(tx, project, &id)).await?;
    Ok(OkJson(runner.into()))
}

/// The summary of a runner.
#[derive(Serialize, JsonSchema)]
struct RunnerJson {
    id: i64,
    description: String,
    active: bool,
    is_shared: bool,
    name: Option<String>,
}

impl From<Runner> for RunnerJson {
    fn from(runner: Runner) -> Self {
        let Runner { id, description, active, is_shared, info, .. } = runner;
        Self { id: id.get(), description, active, is_shared, name: info.name }
    }
}

/// A runner.
#[derive(Serialize, JsonSchema)]
struct RunnerDetailJson {
    id: i64,
    description: String,
    active: bool,
    is_shared: bool,
    name: Option<String>,
    tag_list: Vec<String>,
    run_untagged: bool,
    locked: bool,
    version: Option<String>,
    revision: Option<String>,
    platform: Option<String>,
    architecture: Option<String>,
    contacted_at: Option<TimestampJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    projects: Vec<RunnerProjectJson>,
}

/// A project that a runner is enabled for.
#[derive(Serialize, JsonSchema)]
struct RunnerProjectJson {
    id: i64,
    name: String,
    name_with_namespace: String,
    path: String,
    path_with_namespace: String,
}

impl From<RunnerDetail> for RunnerDetailJson {
    fn from(RunnerDetail { runner, token, projects }: RunnerDetail) -> Self {
        let project = |project: model::Project| RunnerProjectJson {
            id: project.id.get(),
            name_with_namespace: format!("{} / {}", project.namespace.name, project.name),
            path_with_namespace: project.full_path(),
            name: project.name,
            path: project.path,
        };
        Self {
            id: runner.id.get(),
            description: runner.description,
            active: runner.active,
            is_shared: runner.is_shared,
            name: runner.info.name,
            tag_list: runner.tags,
            run_untagged: runner.run_untagged,
            locked: runner.locked,
            version: runner.info.version,
            revision: runner.info.revision,
            platform: runner.info.platform,
            architecture: runner.info.architecture,
            contacted_at: runner.contacted_at.map(TimestampJson),
            token: token.map(|token| token.reveal().to_owned()),
            projects: projects.into_iter().map(project).collect(),
        }
    }
}
