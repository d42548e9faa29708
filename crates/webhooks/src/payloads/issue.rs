//! The payload of issues.

use jiff::civil::Date;
use model::{Issue, IssueId, UserId, webhook_events::IssueEvent};
use serde::Serialize;

use super::{
    JsonPayloadRenderer,
    json::{self, ProjectJson, ProjectLinks, RepositoryJson, UserJson},
};

#[derive(Serialize)]
struct IssueEventJson<'a> {
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

/// An issue, in payloads about it and about comments on it.
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
    pub(super) fn new(issue: &'a Issue, updated_by: Option<UserId>, renderer: &JsonPayloadRenderer) -> Self {
        Self {
            id: issue.id.get(),
            title: &issue.title,
            assignee_id: issue.assignee.as_ref().map(|user| user.id.get()),
            author_id: issue.author.as_ref().map(|user| user.id.get()),
            project_id: issue.project.get(),
            created_at: renderer.format_time(issue.created_at),
            updated_at: renderer.format_time(issue.updated_at),
            position: 0,
            branch_name: None,
            description: issue.description.as_deref(),
            milestone_id: issue.milestone.as_ref().map(|milestone| milestone.id.get()),
            state: issue.state.as_str(),
            iid: issue.iid.get(),
            updated_by_id: updated_by.map(UserId::get),
            confidential: issue.confidential,
            deleted_at: None,
            due_date: issue.due_on.as_ref().map(Date::to_string),
            moved_to_id: issue.moved_to.map(IssueId::get),
            lock_version: None,
        }
    }
}

/// Returns the URL of an issue's page.
pub(super) fn url(links: &ProjectLinks<'_>, issue: &Issue) -> String {
    format!("{}/issues/{}", links.web_url, issue.iid)
}

pub(super) fn to_json(event: &IssueEvent<'_>, renderer: &JsonPayloadRenderer) -> String {
    let IssueEvent { project, user, issue, updated_by, action } = *event;
    let links = ProjectLinks::new(project, renderer);
    json::serialize(&IssueEventJson {
        object_kind: "issue",
        user: UserJson::new(user, renderer),
        project: links.project(),
        repository: links.repository(),
        object_attributes: AttributesJson {
            issue: IssueJson::new(issue, updated_by, renderer),
            url: url(&links, issue),
            action: action.as_str(),
        },
        assignee: issue.assignee.as_ref().map(|user| UserJson::new(user, renderer)),
    })
}
