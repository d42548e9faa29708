//! Issues: what there is to do.

use jiff::civil::Date;

use crate::{Change, Milestone, Time, users::UserSummary};

/// How long a title may be.
pub const LONGEST_TITLE: usize = 255;

/// How an issue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueState {
    /// Not done yet.
    Opened,
    /// Was thought to be done once.
    Reopened,
    /// Done, or given up.
    Closed,
}

impl IssueState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Reopened => "reopened",
            Self::Closed => "closed",
        }
    }
}

/// An issue of a project, as one user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Number of the issue.
    pub id: i64,
    /// The same, counted in the project.
    pub iid: i64,
    /// The project that it belongs to.
    pub project: i64,
    /// The full path of that project.
    pub project_path: String,
    /// What it is about, in short.
    pub title: String,
    /// What it is about, at length.
    pub description: Option<String>,
    /// How it stands.
    pub state: IssueState,
    /// Whether only some may see it.
    pub confidential: bool,
    /// Who wrote it; `None` if they are gone.
    pub author: Option<UserSummary>,
    /// Who works on it.
    pub assignee: Option<UserSummary>,
    /// The milestone that it belongs to.
    pub milestone: Option<Milestone>,
    /// The titles of its labels, in alphabetical order.
    pub labels: Vec<String>,
    /// The last day for it.
    pub due_on: Option<Date>,
    /// What it became in another project.
    pub moved_to: Option<i64>,
    /// How many notes people wrote.
    pub user_notes: i64,
    /// Whether the user follows it.
    pub subscribed: bool,
    /// When it was written.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
}

/// An issue that is about to be written.
#[derive(Clone, Debug)]
pub struct NewIssue {
    /// What it is about, in short.
    pub title: String,
    /// What it is about, at length.
    pub description: Option<String>,
    /// Who shall work on it.
    pub assignee: Option<i64>,
    /// The milestone that it shall belong to.
    pub milestone: Option<i64>,
    /// The titles of its labels.
    pub labels: Vec<String>,
    /// The last day for it.
    pub due_on: Option<Date>,
    /// Whether only some may see it.
    pub confidential: bool,
    /// When it was written, if somebody brings it from elsewhere.
    pub created_at: Option<Time>,
}

/// What an edit changes about an issue.
#[derive(Clone, Debug, Default)]
pub struct IssueChanges {
    /// What it is about, in short.
    pub title: Option<String>,
    /// What it is about, at length.
    pub description: Change<String>,
    /// Who shall work on it.
    pub assignee: Change<i64>,
    /// The milestone that it shall belong to.
    pub milestone: Change<i64>,
    /// The titles of all its labels.
    pub labels: Option<Vec<String>>,
    /// The last day for it.
    pub due_on: Change<Date>,
    /// Whether only some may see it.
    pub confidential: Option<bool>,
    /// Whether it shall be closed.
    pub closed: Option<bool>,
    /// When it was changed, if somebody brings it from elsewhere.
    pub updated_at: Option<Time>,
}

impl IssueChanges {
    /// Whether it says anything but that the issue shall be closed or opened again, be it what holds already.
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

/// Which issues are wanted.
#[derive(Clone, Debug, Default)]
pub struct IssueFilter {
    /// Only closed ones, or only open ones.
    pub closed: Option<bool>,
    /// Only those with labels of these titles; all if there are none.
    pub labels: Vec<String>,
    /// Whether they need all of the labels, or any.
    pub all_labels: bool,
    /// Only those that belong to the milestone of this title.
    pub milestone: Option<String>,
    /// Only those with these numbers in their project; all if there are none.
    pub iids: Vec<i64>,
    /// Only those that have this in title or description.
    pub search: Option<String>,
}

/// In which order issues are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IssueOrder {
    /// By when they were changed, and not by when they were written.
    pub by_update: bool,
    /// The oldest first.
    pub ascending: bool,
}
