//! The access rules of `forge::policy` in SQL, for lists.
//!
//! A role comes from membership in the project, in its group or one of the group's ancestors, or in a group that it is shared
//! with; expired memberships and shares do not count.

use diesel::sql_types::{BigInt, Bool, Integer, Nullable};
use model::{NamespaceId, Role, Time, UserId, Visibility};

use crate::{fragment::Fragment, times::to_micros};

/// At the end of an `EXISTS` query: makes PostgreSQL run it for each row, instead of reading all rows that any row could need
/// into a hash table.
const LOOK_UP_EACH: &str = " LIMIT 1 OFFSET 0";

/// The user for whom a query filters its results.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    /// The ID of the user; 0 for anonymous callers.
    pub user: UserId,
    /// The lowest visibility that the user can see without being a member.
    pub visible_from: Visibility,
    /// Whether the user is an administrator, who can see everything; lists of projects still apply the rules of ordinary users.
    pub admin: bool,
    /// The time at which expiry is tested.
    pub now: Time,
}

impl Viewer {
    /// Condition: a row of memberships or shares has not expired.
    pub(crate) fn unexpired(&self, table: &'static str) -> Fragment<Bool> {
        Fragment::new(format!("({table}.expires_at IS NULL OR {table}.expires_at > "))
            .number(to_micros(self.now))
            .sql(")")
    }

    /// Condition: a row of memberships is this user's and has not expired.
    pub(crate) fn own_rows(&self, table: &'static str) -> Fragment<Bool> {
        Fragment::new(format!("{table}.user_id = ")).number(self.user).sql(" AND ").append(self.unexpired(table))
    }

    /// The IDs of the groups of which this user is a member, descendants included.
    pub(crate) fn my_groups(&self) -> Fragment<BigInt> {
        self.my_groups_with_role(Role::Guest)
    }

    /// As [`Self::my_groups`], restricted to groups in which this user has at least `min_role`.
    pub(crate) fn my_groups_with_role(&self, min_role: Role) -> Fragment<BigInt> {
        // Guest is the lowest role, so the levels need not be compared.
        let at_least = match min_role {
            Role::Guest => String::new(),
            _ => format!("m.access_level >= {} AND ", min_role.level()),
        };
        Fragment::new(format!(
            "SELECT a.namespace_id AS id FROM group_members m \
             JOIN namespace_ancestors a ON a.ancestor_id = m.group_id WHERE {at_least}"
        ))
        .append(self.own_rows("m"))
    }

    /// The IDs of the projects in which this user has a role.
    pub(crate) fn my_projects(&self) -> Fragment<BigInt> {
        self.my_projects_with("")
    }

    /// As [`Self::my_projects`], with further columns of the projects, which saves a join.
    pub(crate) fn my_projects_with(&self, columns: &str) -> Fragment<BigInt> {
        self.my_projects_with_role(Role::Guest, columns)
    }

    /// As [`Self::my_projects_with`], restricted to projects in which this user has at least `min_role`.
    pub(crate) fn my_projects_with_role(&self, min_role: Role, columns: &str) -> Fragment<BigInt> {
        // Guest is the lowest role, so the levels need not be compared.
        let at_least = |column: &str| match min_role {
            Role::Guest => String::new(),
            _ => format!("{column} >= {} AND ", min_role.level()),
        };
        let (member, share) = (at_least("m.access_level"), at_least("s.group_access"));
        // SQLite does not reorder cross joins; memberships are few, projects are many.
        Fragment::new(format!(
            "SELECT p.id AS id{columns} FROM namespaces n CROSS JOIN projects p \
             WHERE p.namespace_id = n.id AND n.kind = 'user' AND n.owner_id = "
        ))
        .number(self.user)
        .sql(format!(
            " UNION SELECT p.id{columns} FROM project_members m CROSS JOIN projects p \
             WHERE p.id = m.project_id AND p.deleted_at IS NULL AND {member}"
        ))
        .append(self.own_rows("m"))
        .sql(format!(
            " UNION SELECT p.id{columns} FROM group_members m CROSS JOIN namespace_ancestors a CROSS JOIN projects p \
             WHERE a.ancestor_id = m.group_id AND p.namespace_id = a.namespace_id AND {member}"
        ))
        .append(self.own_rows("m"))
        .sql(format!(
            " UNION SELECT p.id{columns} FROM group_members m CROSS JOIN namespace_ancestors a \
             CROSS JOIN project_shares s CROSS JOIN projects p CROSS JOIN namespaces n \
             WHERE a.ancestor_id = m.group_id AND s.group_id = a.namespace_id AND p.id = s.project_id \
             AND n.id = p.namespace_id AND NOT n.share_with_group_lock AND {member}{share}"
        ))
        .append(self.own_rows("m"))
        .sql(" AND ")
        .append(self.unexpired("s"))
    }

    /// The IDs of the projects that this user owns.
    pub(crate) fn owned_projects(&self) -> Fragment<BigInt> {
        Fragment::new(
            "SELECT p.id AS id FROM namespaces n CROSS JOIN projects p \
             WHERE p.namespace_id = n.id AND n.kind = 'user' AND n.owner_id = ",
        )
        .number(self.user)
        .sql(
            " UNION SELECT p.id FROM group_members m CROSS JOIN namespace_ancestors a CROSS JOIN projects p \
             WHERE a.ancestor_id = m.group_id AND p.namespace_id = a.namespace_id AND m.access_level = 50 AND ",
        )
        .append(self.own_rows("m"))
    }

    /// Condition: this user has at least `min_role` in the project `p`. Looks up each project; [`Self::my_projects`] finds all
    /// of them.
    pub(crate) fn has_role(&self, min_role: Role) -> Fragment<Bool> {
        let at_least = |column: &str| match min_role {
            Role::Guest => String::new(),
            _ => format!("{column} >= {} AND ", min_role.level()),
        };
        let (member, share) = (at_least("m.access_level"), at_least("s.group_access"));
        Fragment::new("(p.namespace_id IN (")
            .append(self.namespaces(&member))
            .sql(format!(") OR EXISTS (SELECT 1 FROM project_members m WHERE m.project_id = p.id AND {member}"))
            .append(self.own_rows("m"))
            .sql(format!(
                "{LOOK_UP_EACH}) OR p.id IN (SELECT s.project_id FROM group_members m CROSS JOIN namespace_ancestors a \
                 CROSS JOIN project_shares s CROSS JOIN projects q CROSS JOIN namespaces n \
                 WHERE a.ancestor_id = m.group_id AND s.group_id = a.namespace_id AND q.id = s.project_id \
                 AND n.id = q.namespace_id AND NOT n.share_with_group_lock AND {member}{share}"
            ))
            .append(self.own_rows("m"))
            .sql(" AND ")
            .append(self.unexpired("s"))
            .sql("))")
    }

    /// Condition: this user has a role in the project `p`, looked up for each project.
    fn has_role_by_lookup(&self) -> Fragment<Bool> {
        Fragment::new(
            "(EXISTS (SELECT 1 FROM namespaces o WHERE o.id = p.namespace_id AND o.kind = 'user' AND o.owner_id = ",
        )
        .number(self.user)
        .sql(format!(
            "{LOOK_UP_EACH}) OR EXISTS (SELECT 1 FROM namespace_ancestors a CROSS JOIN group_members m \
             WHERE a.namespace_id = p.namespace_id AND m.group_id = a.ancestor_id AND "
        ))
        .append(self.own_rows("m"))
        .sql(format!("{LOOK_UP_EACH}) OR "))
        .append(self.is_member_of("p.id"))
        .sql(
            " OR EXISTS (SELECT 1 FROM project_shares s CROSS JOIN namespaces n CROSS JOIN namespace_ancestors a \
             CROSS JOIN group_members m WHERE s.project_id = p.id AND n.id = p.namespace_id \
             AND NOT n.share_with_group_lock AND a.namespace_id = s.group_id AND m.group_id = a.ancestor_id AND ",
        )
        .append(self.own_rows("m"))
        .sql(" AND ")
        .append(self.unexpired("s"))
        .sql(format!("{LOOK_UP_EACH}))"))
    }

    /// Condition: this user has a role in the project `p`. If `is_few` holds, it is looked up for each project; otherwise all
    /// projects with a role are found first.
    pub(crate) fn has_role_if(&self, is_few: &str) -> Fragment<Bool> {
        Fragment::new(format!("CASE WHEN {is_few} THEN "))
            .append(self.has_role_by_lookup())
            .sql(" ELSE ")
            .append(self.has_role(Role::Guest))
            .sql(" END")
    }

    /// Condition: this user has an unexpired membership in the project with the ID `id`.
    pub(crate) fn is_member_of(&self, id: &str) -> Fragment<Bool> {
        Fragment::new(format!("EXISTS (SELECT 1 FROM project_members m WHERE m.project_id = {id} AND "))
            .append(self.own_rows("m"))
            .sql(format!("{LOOK_UP_EACH})"))
    }

    /// Condition: this user owns the project `p`.
    pub(crate) fn owns(&self) -> Fragment<Bool> {
        Fragment::new("p.namespace_id IN (").append(self.owned_namespaces()).sql(")")
    }

    /// The IDs of the namespaces in which this user has a role: the personal one, and groups.
    pub(crate) fn my_namespaces(&self) -> Fragment<BigInt> {
        self.namespaces("")
    }

    /// The IDs of the namespaces that this user owns.
    pub(crate) fn owned_namespaces(&self) -> Fragment<BigInt> {
        self.namespaces("m.access_level = 50 AND ")
    }

    fn namespaces(&self, members: &str) -> Fragment<BigInt> {
        Fragment::new("SELECT o.id AS id FROM namespaces o WHERE o.kind = 'user' AND o.owner_id = ")
            .number(self.user)
            .sql(format!(
                " UNION SELECT a.namespace_id FROM group_members m \
                 JOIN namespace_ancestors a ON a.ancestor_id = m.group_id WHERE {members}"
            ))
            .append(self.own_rows("m"))
    }

    /// Condition: this user can see the project `p` by visibility or role.
    pub(crate) fn sees(&self) -> Fragment<Bool> {
        self.sees_or(self.has_role(Role::Guest))
    }

    /// As [`Self::sees`], with the role determined by [`Self::has_role_if`].
    pub(crate) fn sees_if(&self, is_few: &str) -> Fragment<Bool> {
        self.sees_or(self.has_role_if(is_few))
    }

    fn sees_or(&self, has_role: Fragment<Bool>) -> Fragment<Bool> {
        let visible = Fragment::new("(p.visibility >= ").number(self.visible_from.level());
        if self.user == UserId::ANONYMOUS {
            return visible.sql(")");
        }
        visible.sql(" OR ").append(has_role).sql(")")
    }

    /// Condition: this user can see the project `p`, as an administrator or under [`Self::sees`].
    pub(crate) fn may_see(&self) -> Fragment<Bool> {
        if self.admin { Fragment::new("TRUE") } else { self.sees() }
    }

    /// Condition: this user can read the code of the project `p`: it is visible without a role, or the role is above guest.
    pub(crate) fn can_read_code(&self) -> Fragment<Bool> {
        if self.admin {
            return Fragment::new("TRUE");
        }
        let visible = Fragment::new("(p.visibility >= ").number(self.visible_from.level());
        visible.sql(" OR ").append(self.has_role(Role::Reporter)).sql(")")
    }

    /// The access level from membership in the project.
    pub(crate) fn direct_level(&self) -> Fragment<Nullable<Integer>> {
        Fragment::new("(SELECT m.access_level FROM project_members m WHERE m.project_id = projects.id AND ")
            .append(self.own_rows("m"))
            .sql(")")
    }

    /// The access level from membership in the project's group or one of its ancestors.
    pub(crate) fn group_level(&self) -> Fragment<Nullable<Integer>> {
        Fragment::new(
            // SQLite does not reorder cross joins: a group has few ancestors, a user may be in many groups.
            "(SELECT max(m.access_level) FROM namespace_ancestors a CROSS JOIN group_members m \
             WHERE m.group_id = a.ancestor_id AND a.namespace_id = projects.namespace_id AND ",
        )
        .append(self.own_rows("m"))
        .sql(")")
    }

    /// The access level from shares: the lower of the share's level and the user's level in the group.
    pub(crate) fn share_level(&self) -> Fragment<Nullable<Integer>> {
        Fragment::new(
            "(SELECT max(CASE WHEN m.access_level < s.group_access THEN m.access_level ELSE s.group_access END) \
             FROM project_shares s CROSS JOIN namespace_ancestors a CROSS JOIN group_members m \
             WHERE a.namespace_id = s.group_id AND m.group_id = a.ancestor_id \
             AND s.project_id = projects.id AND NOT namespaces.share_with_group_lock AND ",
        )
        .append(self.own_rows("m"))
        .sql(" AND ")
        .append(self.unexpired("s"))
        .sql(")")
    }

    /// The access level from membership in a group or one of its ancestors.
    pub(crate) fn level_in_group(&self, group: NamespaceId) -> Fragment<Nullable<Integer>> {
        Fragment::new(
            "SELECT max(m.access_level) FROM namespace_ancestors a CROSS JOIN group_members m \
             WHERE m.group_id = a.ancestor_id AND a.namespace_id = ",
        )
        .number(group)
        .sql(" AND ")
        .append(self.own_rows("m"))
    }
}
