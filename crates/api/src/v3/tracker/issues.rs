//! Issues of projects.

use axum::extract::State;
use forge::{
    Forge,
    issues::{self, IssueList},
};
use jiff::civil::Date;
use model::{
    Change, Issue,
    issues::{IssueChanges, IssueFilter, IssueOrder, NewIssue},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::{milestones::MilestoneJson, users::UserSummaryJson};
use crate::{
    extract::{Credentials, InGroup, InProject, IssueNumber},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/issues", "Lists the issues that the caller wrote", mine)
        .get("/groups/{id}/issues", "Lists the issues of a group's projects", of_group)
        .get("/projects/{id}/issues", "Lists the issues of a project", list)
        .get("/projects/{id}/issues/{issue_id}", "Shows an issue", get)
        .post("/projects/{id}/issues", "Writes an issue", create)
        .put("/projects/{id}/issues/{issue_id}", "Changes an issue", update)
        .delete("/projects/{id}/issues/{issue_id}", "Removes an issue", delete)
        .post("/projects/{id}/issues/{issue_id}/move", "Moves an issue to another project", move_to)
        .post("/projects/{id}/issues/{issue_id}/subscription", "Follows an issue", subscribe)
        .also(&[304])
        .delete("/projects/{id}/issues/{issue_id}/subscription", "Follows an issue no more", unsubscribe)
        .also(&[304])
}

async fn mine(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListMyIssues>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let (wanted, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| issues::mine(tx, &wanted, &page)).await?;
    Ok(paging.answer(found.map(|issue| IssueJson::new(issue, &site))))
}

async fn of_group(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    Params(given): Params<ListGroupIssues>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let (wanted, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| issues::of_group(tx, &group, &wanted, &page)).await?;
    Ok(paging.answer(found.map(|issue| IssueJson::new(issue, &site))))
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<ListIssues>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let (wanted, page) = (given.map(|given| given.0), paging.page.clone());
    let found = forge.read(caller, move |tx| issues::list(tx, &project, &wanted, &page)).await?;
    Ok(paging.answer(found.map(|issue| IssueJson::new(issue, &site))))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    site: Site,
) -> Reply<Done<IssueJson>> {
    let issue = forge.read(caller, move |tx| issues::get(tx, &project, &issue)).await?;
    Ok(Done(IssueJson::new(issue, &site)))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<WriteIssue>,
    site: Site,
) -> Reply<Created<IssueJson>> {
    let new = given.map(|given| given.0);
    let issue = forge.write(caller, move |tx| issues::create(tx, &project, &new)).await?;
    Ok(Created(IssueJson::new(issue, &site)))
}

async fn update(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    Params(given): Params<ChangeIssue>,
    site: Site,
) -> Reply<Done<IssueJson>> {
    let changes = given.map(|given| given.0);
    let issue = forge.write(caller, move |tx| issues::update(tx, &project, &issue, &changes)).await?;
    Ok(Done(IssueJson::new(issue, &site)))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    site: Site,
) -> Reply<Done<IssueJson>> {
    let issue = forge.write(caller, move |tx| issues::delete(tx, &project, &issue)).await?;
    Ok(Done(IssueJson::new(issue, &site)))
}

async fn move_to(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    Params(given): Params<MoveIssue>,
    site: Site,
) -> Reply<Created<IssueJson>> {
    let target = given.map(|given| given.0);
    let issue = forge.write(caller, move |tx| issues::move_to(tx, &project, &issue, &target)).await?;
    Ok(Created(IssueJson::new(issue, &site)))
}

async fn subscribe(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    site: Site,
) -> Reply<Created<IssueJson>> {
    let issue = forge.write(caller, move |tx| issues::set_subscribed(tx, &project, &issue, true)).await?;
    Ok(Created(IssueJson::new(issue, &site)))
}

async fn unsubscribe(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    IssueNumber(issue): IssueNumber,
    site: Site,
) -> Reply<Done<IssueJson>> {
    let issue = forge.write(caller, move |tx| issues::set_subscribed(tx, &project, &issue, false)).await?;
    Ok(Done(IssueJson::new(issue, &site)))
}

const STATES: [(&str, Option<bool>); 3] = [("opened", Some(false)), ("closed", Some(true)), ("all", None)];

/// What every list of issues can be asked for; without a state, those of `state` are wanted.
fn read_list(from: &mut ParamReader<'_>, state: Option<bool>) -> IssueList {
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let filter = IssueFilter {
        closed: from.choice("state", &STATES, "Only open or closed ones").unwrap_or(state),
        labels: from
            .words("labels", "Only those with labels of these titles, with commas between them")
            .unwrap_or_default(),
        all_labels: false,
        milestone: some(from.text("milestone", "Only those of the milestone with this title")),
        iids: Vec::new(),
        search: some(from.text("search", "Only those that have this in title or description")),
    };
    let order = IssueOrder {
        by_update: from
            .choice("order_by", &[("created_at", false), ("updated_at", true)], "By what they are ordered")
            .unwrap_or(false),
        ascending: from.choice("sort", &[("asc", true), ("desc", false)], "In which direction").unwrap_or(false),
    };
    IssueList { filter, order }
}

struct ListMyIssues(IssueList);

impl FromParams for ListMyIssues {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(read_list(from, None))
    }
}

struct ListGroupIssues(IssueList);

impl FromParams for ListGroupIssues {
    fn read(from: &mut ParamReader<'_>) -> Self {
        // Those of a group are the open ones unless others are asked for, and have all of the labels; as the original.
        let mut list = read_list(from, Some(false));
        list.filter.all_labels = true;
        Self(list)
    }
}

struct ListIssues(IssueList);

impl FromParams for ListIssues {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let mut list = read_list(from, None);
        list.filter.iids = from.integers("iid", "Only those with these numbers in the project");
        Self(list)
    }
}

struct WriteIssue(NewIssue);

impl FromParams for WriteIssue {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(NewIssue {
            title: from.required_text("title", "What it is about, in short"),
            description: from.text("description", DESCRIPTION).filter(|text| !text.is_empty()),
            assignee: from.integer("assignee_id", ASSIGNEE).filter(|user| *user != 0),
            milestone: from.integer("milestone_id", MILESTONE).filter(|milestone| *milestone != 0),
            labels: from.words("labels", LABELS).unwrap_or_default(),
            due_on: from.day("due_date", DUE_DATE),
            confidential: from.flag("confidential", CONFIDENTIAL).unwrap_or(false),
            created_at: from.moment("created_at", "When it was written; only owners and administrators can say so"),
        })
    }
}

const DESCRIPTION: &str = "What it is about, at length";
const ASSIGNEE: &str = "Who works on it; 0 for nobody";
const MILESTONE: &str = "The milestone that it belongs to; 0 for none";
const LABELS: &str = "The titles of its labels, with commas between them; missing ones are made";
const DUE_DATE: &str = "The last day for it";
const CONFIDENTIAL: &str = "Whether only its author, whoever works on it, and members from reporter up see it";

struct ChangeIssue(IssueChanges);

impl FromParams for ChangeIssue {
    fn read(from: &mut ParamReader<'_>) -> Self {
        // Nobody has the number 0: it stands for none.
        let relation = |change| if change == Change::Set(0) { Change::Clear } else { change };
        let changes = IssueChanges {
            title: from.text("title", "What it is about, in short"),
            description: Change::from_text(from.text("description", DESCRIPTION)),
            assignee: relation(from.integer_change("assignee_id", ASSIGNEE)),
            milestone: relation(from.integer_change("milestone_id", MILESTONE)),
            labels: from.words("labels", LABELS),
            due_on: from.day_change("due_date", DUE_DATE),
            confidential: from.flag("confidential", CONFIDENTIAL),
            closed: from.choice("state_event", &[("close", true), ("reopen", false)], "Closes it, or opens it again"),
            updated_at: from.moment("updated_at", "When it was changed; only owners and administrators can say so"),
        };
        from.at_least_one_mentioned(&[
            "title",
            "description",
            "assignee_id",
            "milestone_id",
            "labels",
            "due_date",
            "confidential",
            "state_event",
            "updated_at",
        ]);
        Self(changes)
    }
}

struct MoveIssue(i64);

impl FromParams for MoveIssue {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_integer("to_project_id", "The project that it shall belong to"))
    }
}

/// An issue as v3 clients know it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct IssueJson {
    id: i64,
    iid: i64,
    project_id: i64,
    title: String,
    description: Option<String>,
    state: &'static str,
    created_at: Stamp,
    updated_at: Stamp,
    labels: Vec<String>,
    milestone: Option<MilestoneJson>,
    assignee: Option<UserSummaryJson>,
    author: Option<UserSummaryJson>,
    subscribed: bool,
    user_notes_count: i64,
    upvotes: i64,
    downvotes: i64,
    due_date: Option<String>,
    confidential: bool,
    web_url: String,
}

impl IssueJson {
    pub(crate) fn new(issue: Issue, site: &Site) -> Self {
        let user = |user| UserSummaryJson::new(user, site);
        Self {
            id: issue.id,
            iid: issue.iid,
            project_id: issue.project,
            web_url: format!("{}/issues/{}", site.page(&issue.project_path), issue.iid),
            title: issue.title,
            description: issue.description,
            state: issue.state.as_str(),
            created_at: Stamp(issue.created_at),
            updated_at: Stamp(issue.updated_at),
            labels: issue.labels,
            milestone: issue.milestone.map(Into::into),
            assignee: issue.assignee.map(user),
            author: issue.author.map(user),
            subscribed: issue.subscribed,
            user_notes_count: issue.user_notes,
            upvotes: 0,
            downvotes: 0,
            due_date: issue.due_on.map(|day: Date| day.to_string()),
            confidential: issue.confidential,
        }
    }
}
