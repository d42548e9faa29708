//! Issues of projects.

use forge::issues::{self, IssueListOptions};
use jiff::civil::Date;
use model::{
    Change, Issue, MilestoneId, ProjectId, UserId,
    issues::{IssueChanges, IssueFilter, IssueOrder, NewIssue},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::{CallerCx, GroupCx, ProjectCx},
    extract::IssueIdInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, OkJson, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::{milestones::MilestoneJson, users::UserSummaryJson},
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Issues)
        .get("/issues", "List the issues created by the current user", list_authored)
        .get("/groups/{id}/issues", "List the issues of the projects of a group", list_in_group)
        .get("/projects/{id}/issues", "List the issues of a project", list)
        .get("/projects/{id}/issues/{issue_id}", "Get an issue", get)
        .post("/projects/{id}/issues", "Create an issue", create)
        .put("/projects/{id}/issues/{issue_id}", "Update an issue", update)
        .delete("/projects/{id}/issues/{issue_id}", "Delete an issue", delete)
        .post("/projects/{id}/issues/{issue_id}/move", "Move an issue to another project", move_to)
        .post("/projects/{id}/issues/{issue_id}/subscription", "Subscribe to an issue", subscribe)
        .with_statuses(&[304])
        .delete("/projects/{id}/issues/{issue_id}/subscription", "Unsubscribe from an issue", unsubscribe)
        .with_statuses(&[304])
}

async fn list_authored(
    cx: CallerCx,
    Params(params): Params<ListMyIssues>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let options = params.map(|params| params.0);
    let reply = cx.read_list(move |tx| {
        let found = issues::list_authored(tx, &options, &paging.page)?;
        Ok(paging.reply(found, |issue| IssueJson::new(issue, &site)))
    });
    Ok(reply.await?)
}

async fn list_in_group(
    cx: GroupCx,
    Params(params): Params<ListGroupIssues>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let options = params.map(|params| params.0);
    let reply = cx.read_list(move |tx, group| {
        let found = issues::list_in_group(tx, group, &options, &paging.page)?;
        Ok(paging.reply(found, |issue| IssueJson::new(issue, &site)))
    });
    Ok(reply.await?)
}

async fn list(
    cx: ProjectCx,
    Params(params): Params<ListIssues>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<IssueJson>> {
    let options = params.map(|params| params.0);
    let reply = cx.read_list(move |tx, project| {
        let found = issues::list(tx, project, &options, &paging.page)?;
        Ok(paging.reply(found, |issue| IssueJson::new(issue, &site)))
    });
    Ok(reply.await?)
}

async fn get(cx: ProjectCx, IssueIdInPath(issue): IssueIdInPath, site: Site) -> Reply<OkJson<IssueJson>> {
    let issue = cx.read(move |tx, project| issues::get(tx, project, &issue)).await?;
    Ok(OkJson(IssueJson::new(issue, &site)))
}

async fn create(cx: ProjectCx, Params(params): Params<CreateIssue>, site: Site) -> Reply<Created<IssueJson>> {
    let new = params.map(|params| params.0);
    let issue = cx.write(move |tx, project| issues::create(tx, project, &new)).await?;
    Ok(Created(IssueJson::new(issue, &site)))
}

async fn update(
    cx: ProjectCx,
    IssueIdInPath(issue): IssueIdInPath,
    Params(params): Params<UpdateIssue>,
    site: Site,
) -> Reply<OkJson<IssueJson>> {
    let changes = params.map(|params| params.0);
    let issue = cx.write(move |tx, project| issues::update(tx, project, &issue, &changes)).await?;
    Ok(OkJson(IssueJson::new(issue, &site)))
}

async fn delete(cx: ProjectCx, IssueIdInPath(issue): IssueIdInPath, site: Site) -> Reply<OkJson<IssueJson>> {
    let issue = cx.write(move |tx, project| issues::delete(tx, project, &issue)).await?;
    Ok(OkJson(IssueJson::new(issue, &site)))
}

async fn move_to(
    cx: ProjectCx,
    IssueIdInPath(issue): IssueIdInPath,
    Params(params): Params<MoveIssue>,
    site: Site,
) -> Reply<Created<IssueJson>> {
    let target = params.map(|params| params.0);
    let issue = cx.write(move |tx, project| issues::move_to(tx, project, &issue, &target)).await?;
    Ok(Created(IssueJson::new(issue, &site)))
}

async fn subscribe(cx: ProjectCx, IssueIdInPath(issue): IssueIdInPath, site: Site) -> Reply<Created<IssueJson>> {
    let issue = cx.write(move |tx, project| issues::set_subscribed(tx, project, &issue, true)).await?;
    Ok(Created(IssueJson::new(issue, &site)))
}

async fn unsubscribe(cx: ProjectCx, IssueIdInPath(issue): IssueIdInPath, site: Site) -> Reply<OkJson<IssueJson>> {
    let issue = cx.write(move |tx, project| issues::set_subscribed(tx, project, &issue, false)).await?;
    Ok(OkJson(IssueJson::new(issue, &site)))
}

const STATES: [(&str, Option<bool>); 3] = [("opened", Some(false)), ("closed", Some(true)), ("all", None)];

/// Reads the parameters that all lists of issues share. As in GitLab 8.14, the list of a group has open issues by default,
/// and its issues must have all of the labels.
fn read_list_options(from: &mut ParamReader<'_>, is_group_list: bool) -> IssueListOptions {
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (default_state, state, labels) = if is_group_list {
        (
            Some(false),
            "Only issues in this state; default: opened",
            "Only issues with all of these labels, comma-separated",
        )
    } else {
        (None, "Only issues in this state; default: all", "Only issues with any of these labels, comma-separated")
    };
    let filter = IssueFilter {
        closed: from.choice("state", &STATES, state).unwrap_or(default_state),
        labels: from.comma_separated_list("labels", labels).unwrap_or_default(),
        all_labels: is_group_list,
        milestone: non_empty(from.text("milestone", "Only issues of the milestone with this title")),
        search: non_empty(from.text("search", "Only issues whose title or description contains this text")),
        ..IssueFilter::default()
    };
    let order = IssueOrder {
        by_update: from
            .choice(
                "order_by",
                &[("created_at", false), ("updated_at", true)],
                "The field to sort by; default: created_at",
            )
            .unwrap_or(false),
        ascending: from
            .choice("sort", &[("asc", true), ("desc", false)], "The sort direction; default: desc")
            .unwrap_or(false),
    };
    IssueListOptions { filter, order }
}

struct ListMyIssues(IssueListOptions);

impl FromParams for ListMyIssues {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(read_list_options(from, false))
    }
}

struct ListGroupIssues(IssueListOptions);

impl FromParams for ListGroupIssues {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(read_list_options(from, true))
    }
}

struct ListIssues(IssueListOptions);

impl FromParams for ListIssues {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let mut list = read_list_options(from, false);
        list.filter.iids = from.ids("iid", "Only issues with these numbers in the project (iid)");
        Self(list)
    }
}

struct CreateIssue(NewIssue);

impl FromParams for CreateIssue {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(NewIssue {
            title: from.required_text("title", "The title"),
            description: from.text("description", DESCRIPTION).filter(|text| !text.is_empty()),
            assignee: from.id("assignee_id", ASSIGNEE).filter(|user: &UserId| user.get() != 0),
            milestone: from.id("milestone_id", MILESTONE).filter(|milestone: &MilestoneId| milestone.get() != 0),
            labels: from.comma_separated_list("labels", LABELS).unwrap_or_default(),
            due_on: from.date("due_date", DUE_DATE),
            confidential: from.flag("confidential", CONFIDENTIAL).unwrap_or(false),
            created_at: from.timestamp(
                "created_at",
                "The time of creation, in ISO 8601; ignored unless set by an owner or an administrator; default: now",
            ),
        })
    }
}

const DESCRIPTION: &str = "The description";
const ASSIGNEE: &str = "The ID of the assignee; 0 for none";
const MILESTONE: &str = "The ID of the milestone; 0 for none";
const LABELS: &str = "The titles of the labels, comma-separated; missing labels are created";
const DUE_DATE: &str = "The due date; empty for none";
const CONFIDENTIAL: &str =
    "Whether the issue is visible only to its author, its assignee, and members from reporter up; initially false";

struct UpdateIssue(IssueChanges);

impl FromParams for UpdateIssue {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let changes = IssueChanges {
            title: from.text("title", "The title"),
            description: Change::from_text(from.text("description", DESCRIPTION)),
            assignee: from.id_change("assignee_id", ASSIGNEE),
            milestone: from.id_change("milestone_id", MILESTONE),
            labels: from.comma_separated_list("labels", LABELS),
            due_on: from.date_change("due_date", DUE_DATE),
            confidential: from.flag("confidential", CONFIDENTIAL),
            closed: from.choice(
                "state_event",
                &[("close", true), ("reopen", false)],
                "Whether to close or to reopen the issue",
            ),
            updated_at: from.timestamp(
                "updated_at",
                "The time of the change, in ISO 8601; ignored unless set by an owner or an administrator; default: now",
            ),
        };
        from.at_least_one_sent(&[
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

struct MoveIssue(ProjectId);

impl FromParams for MoveIssue {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_id("to_project_id", "The ID of the target project"))
    }
}

/// An issue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct IssueJson {
    id: i64,
    iid: i64,
    project_id: i64,
    title: String,
    description: Option<String>,
    state: &'static str,
    created_at: TimestampJson,
    updated_at: TimestampJson,
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
            id: issue.id.get(),
            iid: issue.iid.get(),
            project_id: issue.project.get(),
            web_url: format!("{}/issues/{}", site.page(&issue.project_path), issue.iid),
            title: issue.title,
            description: issue.description,
            state: issue.state.as_str(),
            created_at: TimestampJson(issue.created_at),
            updated_at: TimestampJson(issue.updated_at),
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
