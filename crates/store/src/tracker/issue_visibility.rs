//! Which issues of a project a user may see, as a value and in SQL.

use diesel::sql_types::Bool;
use model::{Issue, UserId, users::UserSummary};

use crate::fragment::Fragment;

/// What a user may see of the issues of one project.
#[derive(Clone, Copy, Debug)]
pub struct IssueVisibility {
    /// The id of the user; 0 for an anonymous visitor.
    pub user: UserId,
    /// Whether the user sees all confidential issues; otherwise only those that they wrote or are assigned to.
    pub confidential: bool,
}

impl IssueVisibility {
    /// Returns whether the user may see an issue.
    pub(crate) fn includes(&self, issue: &Issue) -> bool {
        let is_me = |user: &Option<UserSummary>| user.as_ref().is_some_and(|user| user.id == self.user);
        self.confidential || !issue.confidential || is_me(&issue.author) || is_me(&issue.assignee)
    }

    /// Returns the condition that the user may see the issue in `table`.
    pub(crate) fn filter(&self, table: &str) -> Fragment<Bool> {
        if self.confidential {
            return Fragment::new("TRUE");
        }
        Fragment::new(format!("(NOT {table}.confidential OR {table}.author_id = "))
            .number(self.user)
            .sql(format!(" OR {table}.assignee_id = "))
            .number(self.user)
            .sql(")")
    }
}
