//! Commit statuses: jobs, and statuses reported by external services.

use forge::statuses::{self, StatusReport};
use model::{
    CommitStatus,
    statuses::{StatusFilter, StatusState},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::RevisionInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::users::UserSummaryJson,
};

const STATES: [(&str, StatusState); 5] = [
    ("pending", StatusState::Pending),
    ("running", StatusState::Running),
    ("success", StatusState::Success),
    ("failed", StatusState::Failed),
    ("canceled", StatusState::Canceled),
];

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::CommitStatuses)
        .get("/projects/{id}/repository/commits/{sha}/statuses", "List the statuses of a commit", list)
        .post("/projects/{id}/statuses/{sha}", "Set the status of a commit", set)
}

async fn list(
    cx: ProjectCx,
    RevisionInPath(revision): RevisionInPath,
    Params(params): Params<ListStatuses>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<StatusJson>> {
    let filter = params.map(|params| params.0);
    let reply = cx.read(move |tx, project| {
        let found = statuses::list(tx, project, &revision, &filter, &paging.page)?;
        Ok(paging.reply(found, |status| StatusJson::new(status, &site)))
    });
    Ok(reply.await?)
}

async fn set(
    ProjectCx { forge, caller, project }: ProjectCx,
    RevisionInPath(revision): RevisionInPath,
    Params(params): Params<SetStatus>,
    site: Site,
) -> Reply<Created<StatusJson>> {
    let status = statuses::set(&forge, caller, project, revision, params.map(|params| params.0)).await?;
    Ok(Created(StatusJson::new(status, &site)))
}

struct ListStatuses(StatusFilter);

impl FromParams for ListStatuses {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        Self(StatusFilter {
            ref_name: non_empty(from.text("ref", "Only statuses of this branch or tag")),
            stage: non_empty(from.text("stage", "Only statuses of this stage")),
            name: non_empty(from.text("name", "Only statuses with this name")),
            all: from
                .flag("all", "Whether to list all statuses instead of only the newest of each name; default: false")
                .unwrap_or(false),
        })
    }
}

struct SetStatus(StatusReport);

impl FromParams for SetStatus {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        let state = from.required_choice("state", &STATES, "The state of the check");
        let ref_name =
            non_empty(from.text("ref", "The branch or the tag; default: the first branch that contains the commit"));
        let name = non_empty(from.text("name", "The name of the check; default: \"default\""));
        let context = non_empty(from.text("context", "Alias of name, which takes precedence"));
        Self(StatusReport {
            state,
            ref_name,
            name: name.or(context).unwrap_or_else(|| "default".into()),
            target_url: non_empty(from.text("target_url", "The URL of a page with details")),
            description: non_empty(from.text("description", "A short description")),
        })
    }
}

/// A status of a commit: a build, or a status reported by an external service.
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
    created_at: TimestampJson,
    started_at: Option<TimestampJson>,
    finished_at: Option<TimestampJson>,
    allow_failure: bool,
    author: Option<UserSummaryJson>,
}

/// The state of a check.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the values in the OpenAPI document")]
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
            id: status.id.get(),
            sha: status.sha.to_string(),
            ref_name: status.ref_name,
            status: status.state.as_str(),
            name: status.name,
            target_url: status.target_url,
            description: status.description,
            created_at: TimestampJson(status.created_at),
            started_at: status.started_at.map(TimestampJson),
            finished_at: status.finished_at.map(TimestampJson),
            allow_failure: status.allow_failure,
            author: status.author.map(|author| UserSummaryJson::new(author, site)),
        }
    }
}
