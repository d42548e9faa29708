//! Milestones of projects.

use axum::extract::State;
use forge::{Forge, milestones};
use jiff::civil::Date;
use model::{
    Change, Milestone,
    milestones::{MilestoneChanges, MilestoneFilter, NewMilestone},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::issues::IssueJson;
use crate::{
    extract::{Credentials, InProject, MilestoneNumber},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

/// Which milestones a word stands for: only those that are over, only those that are not, or all.
const STATES: [(&str, Option<bool>); 3] = [("active", Some(false)), ("closed", Some(true)), ("all", None)];
/// What a word does to a milestone: whether it is over then.
const STATE_EVENTS: [(&str, bool); 2] = [("close", true), ("activate", false)];

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/milestones", "Lists the milestones of a project", list)
        .post("/projects/{id}/milestones", "Adds a milestone to a project", create)
        .get("/projects/{id}/milestones/{milestone_id}", "Shows a milestone of a project", get)
        .put("/projects/{id}/milestones/{milestone_id}", "Changes a milestone of a project", update)
        .get("/projects/{id}/milestones/{milestone_id}/issues", "Lists the issues of a milestone", issues)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ListMilestones>,
    paging: Paging,
) -> Reply<Paged<MilestoneJson>> {
    let (filter, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| milestones::list(tx, &project, &filter, &page)).await?;
    Ok(paging.answer(found.map(MilestoneJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    MilestoneNumber(id): MilestoneNumber,
) -> Reply<Done<MilestoneJson>> {
    let milestone = forge.read(caller, move |tx| milestones::get(tx, &project, &id)).await?;
    Ok(Done(milestone.into()))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<CreateMilestone>,
) -> Reply<Created<MilestoneJson>> {
    let new = given.map(|given| given.0);
    let milestone = forge.write(caller, move |tx| milestones::create(tx, &project, &new)).await?;
    Ok(Created(milestone.into()))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    MilestoneNumber(id): MilestoneNumber,
    Params(given): Params<UpdateMilestone>,
) -> Reply<Done<MilestoneJson>> {
    let changes = given.map(|given| given.0);
    let milestone = forge.write(caller, move |tx| milestones::update(tx, &project, &id, &changes)).await?;
    Ok(Done(milestone.into()))
}

async fn issues(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    MilestoneNumber(id): MilestoneNumber,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let page = paging.page.clone();
    let found = forge.read(caller, move |tx| milestones::issues(tx, &project, &id, &page)).await?;
    Ok(paging.answer(found.map(|issue| IssueJson::new(issue, &site))))
}

struct ListMilestones(MilestoneFilter);

impl FromParams for ListMilestones {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let closed = from.choice("state", &STATES, "Only active ones or only closed ones; all if absent").flatten();
        Self(MilestoneFilter { closed, iids: from.integers("iid", "Only those with these numbers in the project") })
    }
}

struct CreateMilestone(NewMilestone);

impl FromParams for CreateMilestone {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let title = from.required_text("title", "What it is called; unique in the project");
        let description = from.text("description", "What it stands for").filter(|text| !text.is_empty());
        let due_on = from.day("due_date", "The last day");
        Self(NewMilestone { title, description, start_on: from.day("start_date", "The first day"), due_on })
    }
}

struct UpdateMilestone(MilestoneChanges);

impl FromParams for UpdateMilestone {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(MilestoneChanges {
            title: from.text("title", "What it is called; unique in the project"),
            description: Change::from_text(from.text("description", "What it stands for; empty takes it away")),
            due_on: from.day_change("due_date", "The last day; empty takes it away"),
            start_on: from.day_change("start_date", "The first day; empty takes it away"),
            closed: from.choice("state_event", &STATE_EVENTS, "Ends it or begins it again"),
        })
    }
}

/// A milestone as v3 clients know it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MilestoneJson {
    id: i64,
    iid: i64,
    project_id: i64,
    title: String,
    description: Option<String>,
    state: &'static str,
    created_at: Stamp,
    updated_at: Stamp,
    due_date: Option<String>,
    start_date: Option<String>,
}

impl From<Milestone> for MilestoneJson {
    fn from(milestone: Milestone) -> Self {
        let day = |day: Option<Date>| day.map(|day| day.to_string());
        Self {
            id: milestone.id,
            iid: milestone.iid,
            project_id: milestone.project,
            title: milestone.title,
            description: milestone.description,
            state: if milestone.closed { "closed" } else { "active" },
            created_at: Stamp(milestone.created_at),
            updated_at: Stamp(milestone.updated_at),
            due_date: day(milestone.due_on),
            start_date: day(milestone.start_on),
        }
    }
}
