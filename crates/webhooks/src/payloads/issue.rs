//! What happened to issues.

use jiff::civil::Date;
use model::{Issue, webhook_events::IssueHappening};
use serde::Serialize;

use super::{
    Clerk,
    shared::{self, Place, ProjectJson, RepositoryJson, UserJson},
};

#[derive(Serialize)]
struct IssueHappeningJson<'a> {
    object_kind: &'static str,
    user: UserJson<'a>,
    project: ProjectJson<'a>,
    repository: RepositoryJson<'a>,
    object_attributes: AttributesJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<UserJson<'a>>,
}

#[derive(Serialize)]
struct AttributesJson<'a> {
    #[serde(flatten)]
    issue: IssueJson<'a>,
    url: String,
    action: &'static str,
}

/// An issue, as a payload about it and one about a comment on it show it.
#[derive(Serialize)]
pub(super) struct IssueJson<'a> {
    id: i64,
    title: &'a str,
    assignee_id: Option<i64>,
    author_id: Option<i64>,
    project_id: i64,
    created_at: String,
    updated_at: String,
    position: i32,
    branch_name: Option<&'a str>,
    description: Option<&'a str>,
    milestone_id: Option<i64>,
    state: &'static str,
    iid: i64,
    updated_by_id: Option<i64>,
    confidential: bool,
    deleted_at: Option<String>,
    due_date: Option<String>,
    moved_to_id: Option<i64>,
    lock_version: Option<i64>,
}

impl<'a> IssueJson<'a> {
    pub(super) fn new(issue: &'a Issue, updated_by: Option<i64>, clerk: &Clerk) -> Self {
        Self {
            id: issue.id,
            title: &issue.title,
            assignee_id: issue.assignee.as_ref().map(|user| user.id),
            author_id: issue.author.as_ref().map(|user| user.id),
            project_id: issue.project,
            created_at: clerk.moment(issue.created_at),
            updated_at: clerk.moment(issue.updated_at),
            position: 0,
            branch_name: None,
            description: issue.description.as_deref(),
            milestone_id: issue.milestone.as_ref().map(|milestone| milestone.id),
            state: issue.state.as_str(),
            iid: issue.iid,
            updated_by_id: updated_by,
            confidential: issue.confidential,
            deleted_at: None,
            due_date: issue.due_on.as_ref().map(Date::to_string),
            moved_to_id: issue.moved_to,
            lock_version: None,
        }
    }
}

/// The page of an issue.
pub(super) fn url(place: &Place<'_>, issue: &Issue) -> String {
    format!("{}/issues/{}", place.web_url, issue.iid)
}

pub(super) fn to_json(happening: &IssueHappening<'_>, clerk: &Clerk) -> String {
    let IssueHappening { project, user, issue, updated_by, action } = *happening;
    let place = Place::new(project, clerk);
    shared::text(&IssueHappeningJson {
        object_kind: "issue",
        user: UserJson::new(user, clerk),
        project: place.project(),
        repository: place.repository(),
        object_attributes: AttributesJson {
            issue: IssueJson::new(issue, updated_by, clerk),
            url: url(&place, issue),
            action: action.as_str(),
        },
        assignee: issue.assignee.as_ref().map(|user| UserJson::new(user, clerk)),
    })
}
