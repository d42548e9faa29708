//! Milestones of projects.

use forge::milestones;
use jiff::civil::Date;
use model::{
    Change, Milestone,
    milestones::{MilestoneChanges, MilestoneFilter, NewMilestone},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::ProjectCx,
    extract::MilestoneIdInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::issues::IssueJson,
};

/// The values of `state` and the filter on `closed` that they stand for.
const STATES: [(&str, Option<bool>); 3] = [("active", Some(false)), ("closed", Some(true)), ("all", None)];
/// The values of `state_event` and the value of `closed` that they set.
const STATE_EVENTS: [(&str, bool); 2] = [("close", true), ("activate", false)];

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Milestones)
        .get("/projects/{id}/milestones", "List the milestones of a project", list)
        .post("/projects/{id}/milestones", "Create a milestone", create)
        .get("/projects/{id}/milestones/{milestone_id}", "Get a milestone", get)
        .put("/projects/{id}/milestones/{milestone_id}", "Update a milestone", update)
        .get("/projects/{id}/milestones/{milestone_id}/issues", "List the issues of a milestone", issues)
}

async fn list(cx: ProjectCx, Params(params): Params<ListMilestones>, paging: Paging) -> Reply<Paged<MilestoneJson>> {
    let filter = params.map(|params| params.0);
    let reply = cx.read_list(move |tx, project| {
        let found = milestones::list(tx, project, &filter, &paging.page)?;
        Ok(paging.reply(found, MilestoneJson::from))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, MilestoneIdInPath(id): MilestoneIdInPath) -> Reply<OkJson<MilestoneJson>> {
    let milestone = cx.read(move |tx, project| milestones::get(tx, project, &id)).await?;
    Ok(OkJson(milestone.into()))
}

async fn create(cx: ProjectCx, Params(params): Params<CreateMilestone>) -> Reply<Created<MilestoneJson>> {
    let new = params.map(|params| params.0);
    let milestone = cx.write(move |tx, project| milestones::create(tx, project, &new)).await?;
    Ok(Created(milestone.into()))
}

async fn update(
    cx: ProjectCx,
    MilestoneIdInPath(id): MilestoneIdInPath,
    Params(params): Params<UpdateMilestone>,
) -> Reply<OkJson<MilestoneJson>> {
    let changes = params.map(|params| params.0);
    let milestone = cx.write(move |tx, project| milestones::update(tx, project, &id, &changes)).await?;
    Ok(OkJson(milestone.into()))
}

async fn issues(
    cx: ProjectCx,
    MilestoneIdInPath(id): MilestoneIdInPath,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let reply = cx.read_list(move |tx, project| {
        let found = milestones::issues(tx, project, &id, &paging.page)?;
        Ok(paging.reply(found, |issue| IssueJson::new(issue, &site)))
    });
    Ok(reply.await?)
}

struct ListMilestones(MilestoneFilter);

impl FromParams for ListMilestones {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let closed = from.choice("state", &STATES, "Only milestones in this state; default: all").flatten();
        Self(MilestoneFilter {
            closed,
            iids: from.ids("iid", "Only milestones with these numbers in the project (iid)"),
        })
    }
}

struct CreateMilestone(NewMilestone);

impl FromParams for CreateMilestone {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("title", "The title; unique within the project");
        let description = from.text("description", "The description").filter(|text| !text.is_empty());
        let due_on = from.date("due_date", "The due date");
        Self(NewMilestone { title, description, start_on: from.date("start_date", "The start date"), due_on })
    }
}

struct UpdateMilestone(MilestoneChanges);

impl FromParams for UpdateMilestone {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(MilestoneChanges {
            title: from.text("title", "The title; unique within the project"),
            description: Change::from_text(from.text("description", "The description; empty to remove it")),
            due_on: from.date_change("due_date", "The due date; empty to remove it"),
            start_on: from.date_change("start_date", "The start date; empty to remove it"),
            closed: from.choice("state_event", &STATE_EVENTS, "Whether to close or to reactivate the milestone"),
        })
    }
}

/// A milestone.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MilestoneJson {
    id: i64,
    iid: i64,
    project_id: i64,
    title: String,
    description: Option<String>,
    state: &'static str,
    created_at: TimestampJson,
    updated_at: TimestampJson,
    due_date: Option<String>,
    start_date: Option<String>,
}

impl From<Milestone> for MilestoneJson {
    fn from(milestone: Milestone) -> Self {
        let day = |day: Option<Date>| day.map(|day| day.to_string());
        Self {
            id: milestone.id.get(),
            iid: milestone.iid.get(),
            project_id: milestone.project.get(),
            title: milestone.title,
            description: milestone.description,
            state: if milestone.closed { "closed" } else { "active" },
            created_at: TimestampJson(milestone.created_at),
            updated_at: TimestampJson(milestone.updated_at),
            due_date: day(milestone.due_on),
            start_date: day(milestone.start_on),
        }
    }
}
