//! Who sees what, in SQL: the rule of `forge::policy` as lists apply it.
//!
//! A role comes from membership of the project, from membership of a group along the tree that it lives in, and from
//! groups it is shared with; what has expired counts for nothing.

use diesel::sql_types::{BigInt, Bool, Integer, Nullable};
use model::{Role, Time, Visibility};

use crate::{fragment::Fragment, times::to_micros};

/// Through whose eyes a list is seen.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    /// The number of the user; nobody has 0.
    pub user: i64,
    /// What is at least this visible, they see without belonging to it.
    pub open_from: Visibility,
    /// Whether nothing is hidden from them; their lists of projects show what others would see all the same.
    pub admin: bool,
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
        self.my_projects_with("")
    }

    /// The same with further columns of each, so that whoever needs those does not look the projects up once more.
    pub(crate) fn my_projects_with(&self, columns: &str) -> Fragment<BigInt> {
        self.my_projects_as(Role::Guest, columns)
    }

    /// Those of them in which this user is at least something.
    pub(crate) fn my_projects_as(&self, least: Role, columns: &str) -> Fragment<BigInt> {
        // Nobody is less than a guest: then the levels need not be looked at.
        let at_least = |column: &str| match least {
            Role::Guest => String::new(),
            _ => format!("{column} >= {} AND ", least.level()),
        };
        let (member, share) = (at_least("m.access_level"), at_least("s.group_access"));
        // On SQLite the order of a cross join stands: memberships are few, projects are many.
        Fragment::new(format!(
            "SELECT p.id AS id{columns} FROM namespaces n CROSS JOIN projects p \
             WHERE p.namespace_id = n.id AND n.kind = 'user' AND n.owner_id = "
        ))
        .number(self.user)
        .sql(format!(
            " UNION SELECT p.id{columns} FROM project_members m CROSS JOIN projects p \
             WHERE p.id = m.project_id AND p.deleted_at IS NULL AND {member}"
        ))
        .then(self.my_row("m"))
        .sql(format!(
            " UNION SELECT p.id{columns} FROM group_members m CROSS JOIN namespace_ancestors a CROSS JOIN projects p \
             WHERE a.ancestor_id = m.group_id AND p.namespace_id = a.namespace_id AND {member}"
        ))
        .then(self.my_row("m"))
        .sql(format!(
            " UNION SELECT p.id{columns} FROM group_members m CROSS JOIN namespace_ancestors a \
             CROSS JOIN project_shares s CROSS JOIN projects p CROSS JOIN namespaces n \
             WHERE a.ancestor_id = m.group_id AND s.group_id = a.namespace_id AND p.id = s.project_id \
             AND n.id = p.namespace_id AND NOT n.share_with_group_lock AND {member}{share}"
        ))
        .then(self.my_row("m"))
        .sql(" AND ")
        .then(self.live("s"))
    }

    /// The projects that this user owns, as [`Self::my_projects_with`] shows them.
    pub(crate) fn owned_projects_with(&self, columns: &str) -> Fragment<BigInt> {
        Fragment::new(format!(
            "SELECT p.id AS id{columns} FROM namespaces n CROSS JOIN projects p \
             WHERE p.namespace_id = n.id AND n.kind = 'user' AND n.owner_id = "
        ))
        .number(self.user)
        .sql(format!(
            " UNION SELECT p.id{columns} FROM group_members m CROSS JOIN namespace_ancestors a CROSS JOIN projects p \
             WHERE a.ancestor_id = m.group_id AND p.namespace_id = a.namespace_id AND m.access_level = 50 AND "
        ))
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

    /// Whether the project `p` is no secret to this user.
    pub(crate) fn knows(&self) -> Fragment<Bool> {
        if self.admin { Fragment::new("TRUE") } else { self.sees() }
    }

    /// Whether this user reads the code of the project `p`: what is open to them, or where they are more than a guest.
    pub(crate) fn reads_code(&self) -> Fragment<Bool> {
        if self.admin {
            return Fragment::new("TRUE");
        }
        Fragment::new("(p.visibility >= ")
            .number(self.open_from.level().into())
            .sql(" OR p.id IN (")
            .then(self.my_projects_as(Role::Reporter, ""))
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
