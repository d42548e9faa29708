//! Issues of projects.

use jiff::civil::Date;

use crate::{Change, IssueId, IssueIid, Milestone, MilestoneId, ProjectId, Time, UserId, users::UserSummary};

/// The maximum length of a title, in characters.
pub const MAX_TITLE_LENGTH: usize = 255;

/// The state of an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueState {
    /// Open, and never closed before.
    Opened,
    /// Open again after having been closed.
    Reopened,
    /// Closed.
    Closed,
}

impl IssueState {
    /// Returns the name used by the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Reopened => "reopened",
            Self::Closed => "closed",
        }
    }
}

/// An issue of a project, as seen by one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The issue id, unique on the server.
    pub id: IssueId,
    /// The number within the project.
    pub iid: IssueIid,
    /// The project id.
    pub project: ProjectId,
    /// The full path of the project.
    pub project_path: String,
    /// The title.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// The state.
    pub state: IssueState,
    /// Whether the issue is visible only to its author, its assignee and members from reporter up.
    pub confidential: bool,
    /// The author; `None` if the account was deleted.
    pub author: Option<UserSummary>,
    /// The assignee.
    pub assignee: Option<UserSummary>,
    /// The milestone.
    pub milestone: Option<Milestone>,
    /// The titles of the labels, in alphabetical order.
    pub labels: Vec<String>,
    /// The due date.
    pub due_on: Option<Date>,
    /// The id of the issue that replaced this one in another project.
    pub moved_to: Option<IssueId>,
    /// The number of notes, system notes excluded.
    pub user_notes: i64,
    /// Whether the user is subscribed.
    pub subscribed: bool,
    /// The time of creation.
    pub created_at: Time,
    /// The time of the last change.
    pub updated_at: Time,
}

/// An issue to create.
#[derive(Clone, Debug)]
pub struct NewIssue {
    /// The title.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// The assignee.
    pub assignee: Option<UserId>,
    /// The milestone.
    pub milestone: Option<MilestoneId>,
    /// The titles of the labels.
    pub labels: Vec<String>,
    /// The due date.
    pub due_on: Option<Date>,
    /// Whether the issue is visible only to its author, its assignee and members from reporter up.
    pub confidential: bool,
    /// The time of creation, if the issue is imported.
    pub created_at: Option<Time>,
}

/// The fields of an issue to change.
#[derive(Clone, Debug, Default)]
pub struct IssueChanges {
    /// The title.
    pub title: Option<String>,
    /// The description.
    pub description: Change<String>,
    /// The assignee.
    pub assignee: Change<UserId>,
    /// The milestone.
    pub milestone: Change<MilestoneId>,
    /// The titles of the labels that replace the present ones.
    pub labels: Option<Vec<String>>,
    /// The due date.
    pub due_on: Change<Date>,
    /// Whether the issue is visible only to its author, its assignee and members from reporter up.
    pub confidential: Option<bool>,
    /// Whether to close or reopen the issue.
    pub closed: Option<bool>,
    /// The time of the change, if it is imported.
    pub updated_at: Option<Time>,
}

impl IssueChanges {
    /// Returns whether any field but `closed` is sent, even with the present value.
    pub fn is_edit(&self) -> bool {
        let Self { title, description, assignee, milestone, labels, due_on, confidential, closed: _, updated_at } =
            self;
        title.is_some()
            || *description != Change::Keep
            || *assignee != Change::Keep
            || *milestone != Change::Keep
            || labels.is_some()
            || *due_on != Change::Keep
            || confidential.is_some()
            || updated_at.is_some()
    }
}

/// Conditions on the issues to list.
#[derive(Clone, Debug, Default)]
pub struct IssueFilter {
    /// Only closed, or only open issues.
    pub closed: Option<bool>,
    /// Only issues with these label titles; empty for any.
    pub labels: Vec<String>,
    /// Whether an issue must have all of `labels`, or at least one.
    pub all_labels: bool,
    /// Only issues of the milestone with this title.
    pub milestone: Option<String>,
    /// Only issues without a milestone.
    pub without_milestone: bool,
    /// Only issues that this user wrote.
    pub author: Option<UserId>,
    /// Only issues with this assignee, or without one.
    pub assignee: Option<AssigneeFilter>,
    /// Only issues with these iids; empty for any.
    pub iids: Vec<IssueIid>,
    /// Only issues with this text in the title or the description.
    pub search: Option<String>,
}

/// A condition on the assignee of an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssigneeFilter {
    /// The issue has no assignee.
    Nobody,
    /// The issue is assigned to this user.
    User(UserId),
}

/// The sort order of a list of issues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IssueOrder {
    /// Whether to sort by the time of the last change instead of the time of creation.
    pub by_update: bool,
    /// Whether the oldest comes first.
    pub ascending: bool,
}
