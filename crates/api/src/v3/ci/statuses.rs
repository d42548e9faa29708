//! What is known of commits: their jobs, and what others found out.

use axum::extract::State;
use forge::{
    Forge,
    statuses::{self, StatusText},
};
use model::{
    CommitStatus,
    statuses::{StatusFilter, StatusState},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::users::UserSummaryJson;
use crate::{
    extract::{Credentials, InProject, Revision},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Reply, Stamp},
    routes::Routes,
    site::Site,
};

const STATES: [(&str, StatusState); 5] = [
    ("pending", StatusState::Pending),
    ("running", StatusState::Running),
    ("success", StatusState::Success),
    ("failed", StatusState::Failed),
    ("canceled", StatusState::Canceled),
];

pub(crate) fn routes() -> Routes {
    Routes::new().get("/projects/{id}/repository/commits/{sha}/statuses", "Lists the statuses of a commit", list).post(
        "/projects/{id}/statuses/{sha}",
        "Tells the status of a commit",
        set,
    )
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(revision): Revision,
    Params(given): Params<ListStatuses>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<StatusJson>> {
    let (filter, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| statuses::list(tx, &project, &revision, &filter, &page)).await?;
    Ok(paging.answer(found.map(|status| StatusJson::new(status, &site))))
}

async fn set(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Revision(revision): Revision,
    Params(given): Params<SetStatus>,
    site: Site,
) -> Reply<Created<StatusJson>> {
    let status = statuses::set(&forge, caller, project, revision, given.map(|given| given.0)).await?;
    Ok(Created(StatusJson::new(status, &site)))
}

struct ListStatuses(StatusFilter);

impl FromParams for ListStatuses {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        Self(StatusFilter {
            ref_name: some(from.text("ref", "Only those of this branch or tag")),
            stage: some(from.text("stage", "Only those of this stage")),
            name: some(from.text("name", "Only those of this name")),
            all: from.flag("all", "All of them, and not only the latest of each name").unwrap_or(false),
        })
    }
}

struct SetStatus(StatusText);

impl FromParams for SetStatus {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        let state = from.required_choice("state", &STATES, "How far it has come");
        let ref_name =
            some(from.text("ref", "For which branch or tag; the first branch that has the commit if absent"));
        let name = some(from.text("name", "What was looked at"));
        let context = some(from.text("context", "The same as name"));
        Self(StatusText {
            state,
            ref_name,
            name: name.or(context).unwrap_or_else(|| "default".into()),
            target_url: some(from.text("target_url", "Where more is told")),
            description: some(from.text("description", "What there is to say in short")),
        })
    }
}

/// What is known of a commit: a job, or what somebody found out.
#[derive(Serialize, JsonSchema)]
struct StatusJson {
    id: i64,
    sha: String,
    #[serde(rename = "ref")]
    ref_name: String,
    #[schemars(with = "StateJson")]
    status: &'static str,
    name: String,
    target_url: Option<String>,
    description: Option<String>,
    created_at: Stamp,
    started_at: Option<Stamp>,
    finished_at: Option<Stamp>,
    allow_failure: bool,
    author: Option<UserSummaryJson>,
}

/// How far something has come.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the words for the document")]
enum StateJson {
    Created,
    Pending,
    Running,
    Success,
    Failed,
    Canceled,
    Skipped,
}

impl StatusJson {
    fn new(status: CommitStatus, site: &Site) -> Self {
        Self {
            id: status.id,
            sha: status.sha.to_string(),
            ref_name: status.ref_name,
            status: status.state.word(),
            name: status.name,
            target_url: status.target_url,
            description: status.description,
            created_at: Stamp(status.created_at),
            started_at: status.started_at.map(Stamp),
            finished_at: status.finished_at.map(Stamp),
            allow_failure: status.allow_failure,
            author: status.author.map(|author| UserSummaryJson::new(author, site)),
        }
    }
}
