//! Which issues of a project somebody sees, in SQL.

use diesel::sql_types::Bool;
use model::{Issue, users::UserSummary};

use crate::fragment::Fragment;

/// Through whose eyes the issues of one project are seen.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// The number of the user; nobody has 0.
    pub user: i64,
    /// Whether they see the confidential ones too; others see only those that they wrote or work on.
    pub confidential: bool,
}

impl Sight {
    /// Whether an issue is no secret to this user.
    pub(crate) fn shows(&self, issue: &Issue) -> bool {
        let is_me = |user: &Option<UserSummary>| user.as_ref().is_some_and(|user| user.id == self.user);
        self.confidential || !issue.confidential || is_me(&issue.author) || is_me(&issue.assignee)
    }

    /// Whether the issue in `table` is no secret to this user.
    pub(crate) fn sees(&self, table: &str) -> Fragment<Bool> {
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
