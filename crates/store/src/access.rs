//! Who sees what, in SQL: the rule of `forge::policy` as lists apply it.
//!
//! A role comes from membership of the project, from membership of a group along the tree that it lives in, and from
//! groups it is shared with; what has expired counts for nothing.

use diesel::sql_types::{BigInt, Bool, Integer, Nullable};
use model::{Time, Visibility};

use crate::{fragment::Fragment, times::to_micros};

/// Through whose eyes a list is seen.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    /// The number of the user; nobody has 0.
    pub user: i64,
    /// What is at least this visible, they see without belonging to it.
    pub open_from: Visibility,
    /// When they look.
    pub now: Time,
}

impl Viewer {
    /// Whether a row of memberships or shares still counts.
    pub(crate) fn live(&self, table: &'static str) -> Fragment<Bool> {
        Fragment::new(format!("({table}.expires_at IS NULL OR {table}.expires_at > "))
            .number(to_micros(self.now))
            .sql(")")
    }

    /// A live row of memberships of this user.
    fn my_row(&self, table: &'static str) -> Fragment<Bool> {
        Fragment::new(format!("{table}.user_id = ")).number(self.user).sql(" AND ").then(self.live(table))
    }

    /// The numbers of the groups to which this user belongs, those below included.
    pub(crate) fn my_groups(&self) -> Fragment<BigInt> {
        Fragment::new(
            "SELECT a.namespace_id AS id FROM group_members m \
             JOIN namespace_ancestors a ON a.ancestor_id = m.group_id WHERE ",
        )
        .then(self.my_row("m"))
    }

    /// The numbers of the projects to which this user belongs in any way.
    pub(crate) fn my_projects(&self) -> Fragment<BigInt> {
        Fragment::new(
            "SELECT p.id AS id FROM namespaces n JOIN projects p ON p.namespace_id = n.id \
             WHERE n.kind = 'user' AND n.owner_id = ",
        )
        .number(self.user)
        .sql(" UNION SELECT m.project_id FROM project_members m WHERE ")
        .then(self.my_row("m"))
        .sql(
            " UNION SELECT p.id FROM group_members m JOIN namespace_ancestors a ON a.ancestor_id = m.group_id \
             JOIN projects p ON p.namespace_id = a.namespace_id WHERE ",
        )
        .then(self.my_row("m"))
        .sql(
            " UNION SELECT s.project_id FROM group_members m JOIN namespace_ancestors a ON a.ancestor_id = m.group_id \
             JOIN project_shares s ON s.group_id = a.namespace_id JOIN projects p ON p.id = s.project_id \
             JOIN namespaces n ON n.id = p.namespace_id WHERE NOT n.share_with_group_lock AND ",
        )
        .then(self.my_row("m"))
        .sql(" AND ")
        .then(self.live("s"))
    }

    /// The numbers of the projects that this user owns.
    pub(crate) fn owned_projects(&self) -> Fragment<BigInt> {
        Fragment::new(
            "SELECT p.id AS id FROM namespaces n JOIN projects p ON p.namespace_id = n.id \
             WHERE n.kind = 'user' AND n.owner_id = ",
        )
        .number(self.user)
        .sql(
            " UNION SELECT p.id FROM group_members m JOIN namespace_ancestors a ON a.ancestor_id = m.group_id \
             JOIN projects p ON p.namespace_id = a.namespace_id WHERE m.access_level = 50 AND ",
        )
        .then(self.my_row("m"))
    }

    /// Whether this user sees the project `p`.
    pub(crate) fn sees(&self) -> Fragment<Bool> {
        Fragment::new("(p.visibility >= ")
            .number(self.open_from.level().into())
            .sql(" OR p.id IN (")
            .then(self.my_projects())
            .sql("))")
    }

    /// The level that membership of the project gives.
    pub(crate) fn direct_level(&self) -> Fragment<Nullable<Integer>> {
        Fragment::new("(SELECT m.access_level FROM project_members m WHERE m.project_id = projects.id AND ")
            .then(self.my_row("m"))
            .sql(")")
    }

    /// The level that membership of the project's group gives, or of one above it.
    pub(crate) fn group_level(&self) -> Fragment<Nullable<Integer>> {
        Fragment::new(
            "(SELECT max(m.access_level) FROM namespace_ancestors a \
             JOIN group_members m ON m.group_id = a.ancestor_id WHERE a.namespace_id = projects.namespace_id AND ",
        )
        .then(self.my_row("m"))
        .sql(")")
    }

    /// The level that shares give: the lesser of the share's and of the role in the group.
    pub(crate) fn share_level(&self) -> Fragment<Nullable<Integer>> {
        Fragment::new(
            "(SELECT max(CASE WHEN m.access_level < s.group_access THEN m.access_level ELSE s.group_access END) \
             FROM project_shares s JOIN namespace_ancestors a ON a.namespace_id = s.group_id \
             JOIN group_members m ON m.group_id = a.ancestor_id \
             WHERE s.project_id = projects.id AND NOT namespaces.share_with_group_lock AND ",
        )
        .then(self.my_row("m"))
        .sql(" AND ")
        .then(self.live("s"))
        .sql(")")
    }

    /// The level that membership of a group gives, or of one above it.
    pub(crate) fn level_in(&self, group: i64) -> Fragment<Nullable<Integer>> {
        Fragment::new(
            "SELECT max(m.access_level) FROM namespace_ancestors a \
             JOIN group_members m ON m.group_id = a.ancestor_id WHERE a.namespace_id = ",
        )
        .number(group)
        .sql(" AND ")
        .then(self.my_row("m"))
    }
}
