//! Runners, as people see and steer them.

use axum::extract::State;
use forge::{
    Forge,
    runners::{self, RunnerChanges, RunnerDetail},
};
use model::{Runner, runners::RunnerScope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    extract::{Credentials, InProject, ProjectRunnerNumber, RunnerNumber},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/runners", "Lists the runners of projects of which the caller is a master", list)
        .get("/runners/all", "Lists all runners", list_all)
        .get("/runners/{id}", "Shows a runner", get)
        .put("/runners/{id}", "Changes a runner", update)
        .delete("/runners/{id}", "Removes a runner", delete)
        .get("/projects/{id}/runners", "Lists the runners of a project and the shared ones", list_of_project)
        .post("/projects/{id}/runners", "Lets a runner build another project", enable)
        .also(&[409])
        .delete("/projects/{id}/runners/{runner_id}", "Lets a runner no longer build a project", disable)
}

const OF_STATE: [(&str, RunnerScope); 3] =
    [("active", RunnerScope::Active), ("paused", RunnerScope::Paused), ("online", RunnerScope::Online)];
const OF_ANY_KIND: [(&str, RunnerScope); 5] =
    [OF_STATE[0], OF_STATE[1], OF_STATE[2], ("specific", RunnerScope::Specific), ("shared", RunnerScope::Shared)];

struct StateScope(Option<RunnerScope>);

impl FromParams for StateScope {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.choice("scope", &OF_STATE, "Which ones"))
    }
}

struct AnyScope(Option<RunnerScope>);

impl FromParams for AnyScope {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.choice("scope", &OF_ANY_KIND, "Which ones"))
    }
}

struct UpdateRunner(RunnerChanges);

impl FromParams for UpdateRunner {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let changes = RunnerChanges {
            description: from.text("description", "What its owner calls it"),
            active: from.flag("active", "Whether it takes builds"),
            tags: from.words("tag_list", "What it has to offer"),
            run_untagged: from.flag("run_untagged", "Whether it takes builds without tags"),
            locked: from.flag("locked", "Whether it joins no further projects"),
        };
        from.at_least_one(&["description", "active", "tag_list", "run_untagged", "locked"]);
        Self(changes)
    }
}

struct EnableRunner(i64);

impl FromParams for EnableRunner {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_integer("runner_id", "Number of the runner"))
    }
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(scope): Params<StateScope>,
    paging: Paging,
) -> Reply<Paged<RunnerJson>> {
    let (scope, page) = (scope.map(|scope| scope.0), paging.page.clone());
    let found = forge.read(caller, move |tx| runners::list_mine(tx, &scope, &page)).await?;
    Ok(paging.answer(found.map(RunnerJson::from)))
}

async fn list_all(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(scope): Params<AnyScope>,
    paging: Paging,
) -> Reply<Paged<RunnerJson>> {
    let (scope, page) = (scope.map(|scope| scope.0), paging.page.clone());
    let found = forge.read(caller, move |tx| runners::list_all(tx, &scope, &page)).await?;
    Ok(paging.answer(found.map(RunnerJson::from)))
}

async fn list_of_project(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(scope): Params<AnyScope>,
    paging: Paging,
) -> Reply<Paged<RunnerJson>> {
    let (scope, page) = (scope.map(|scope| scope.0), paging.page.clone());
    let found = forge.read(caller, move |tx| runners::list_of_project(tx, &project, &scope, &page)).await?;
    Ok(paging.answer(found.map(RunnerJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    RunnerNumber(id): RunnerNumber,
) -> Reply<Done<RunnerDetailJson>> {
    let found = forge.read(caller, move |tx| runners::get(tx, &id)).await?;
    Ok(Done(found.into()))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    RunnerNumber(id): RunnerNumber,
    Params(changes): Params<UpdateRunner>,
) -> Reply<Done<RunnerDetailJson>> {
    let changes = changes.map(|changes| changes.0);
    let runner = forge.write(caller, move |tx| runners::update(tx, &id, &changes)).await?;
    Ok(Done(runner.into()))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    RunnerNumber(id): RunnerNumber,
) -> Reply<Done<RunnerJson>> {
    let gone = forge.write(caller, move |tx| runners::delete(tx, &id)).await?;
    Ok(Done(gone.into()))
}

async fn enable(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<EnableRunner>,
) -> Reply<Created<RunnerJson>> {
    let id = given.map(|given| given.0);
    let runner = forge.write(caller, move |tx| runners::enable(tx, &project, &id)).await?;
    Ok(Created(runner.into()))
}

async fn disable(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    ProjectRunnerNumber(id): ProjectRunnerNumber,
) -> Reply<Done<RunnerJson>> {
    let runner = forge.write(caller, move |tx| runners::disable(tx, &project, &id)).await?;
    Ok(Done(runner.into()))
}

/// A runner in short.
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
        Self { id, description, active, is_shared, name: info.name }
    }
}

/// A runner with everything that there is to know about it.
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
    contacted_at: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    projects: Vec<RunnerProjectJson>,
}

/// A project that a runner builds.
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
            id: project.id,
            name_with_namespace: format!("{} / {}", project.namespace.name, project.name),
            path_with_namespace: project.full_path(),
            name: project.name,
            path: project.path,
        };
        Self {
            id: runner.id,
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
            contacted_at: runner.contacted_at.map(Stamp),
            token: token.map(|token| token.reveal().to_owned()),
            projects: projects.into_iter().map(project).collect(),
        }
    }
}
