//! Members of projects and groups, and projects shared with groups.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer},
};
use jiff::civil::Date;
use model::{
    Member, NamespaceId, Page, Project, ProjectId, Role, Share, ShareId, Slice, Time, UserId,
    events::EventAction,
    members::{SharedGroup, date_from_micros, start_of_day},
    users::UserSummary,
};

use crate::{
    Conn, Result,
    conn::on,
    events::{self, NewEvent},
    fragment::Fragment,
    schema::{group_members, namespaces, project_members, project_shares, projects, users},
    search::SearchTerm,
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// The project or group that a membership belongs to, by ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberSource {
    /// A project.
    Project(ProjectId),
    /// A group.
    Group(NamespaceId),
}

/// A membership of a user in a project or a group, possibly expired; `S` is the kind of ID of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Membership<S> {
    /// The ID of the project or group.
    pub source: S,
    /// The ID of the user.
    pub user: UserId,
    /// The role of the user.
    pub role: Role,
    /// The time at which the membership was created.
    pub since: Time,
}

/// Selects memberships.
#[derive(Clone, Copy, Debug)]
pub enum MembershipSelector<'a, S> {
    /// All memberships of these projects or groups.
    OfSources(&'a [S]),
    /// All memberships of a user.
    OfUser(UserId),
    /// The membership in a project or group (first) of a user (second).
    One(S, UserId),
}

/// Memberships and shares that have ended.
#[derive(Debug, Default)]
pub struct EndedMemberships {
    /// Memberships of projects.
    pub in_projects: Vec<Membership<ProjectId>>,
    /// Memberships of groups.
    pub in_groups: Vec<Membership<NamespaceId>>,
    /// The number of shares of projects with groups.
    pub shares: usize,
}

impl EndedMemberships {
    /// Returns the total number.
    pub fn count(&self) -> usize {
        self.in_projects.len() + self.in_groups.len() + self.shares
    }
}

/// A search among members.
#[derive(Clone, Copy, Debug)]
pub struct MemberSearch<'a> {
    /// A part of the name or username, or an e-mail address.
    pub text: &'a str,
    /// Whether parts of addresses match; otherwise only whole ones do.
    pub partial_emails: bool,
}

type Row = (SummaryRow, i32, Option<i64>);

fn to_member((user, level, expires_at): Row) -> Member {
    Member { user: user.into(), role: to_role(level), expires_on: expires_at.map(date_from_micros) }
}

/// Converts a stored access level; an unknown one comes from a newer version and gets the lowest role.
fn to_role(level: i32) -> Role {
    Role::from_level(level.into()).unwrap_or(Role::Guest)
}

type MembershipRow = (i64, i64, i32, i64);

fn to_membership<S>((source, user, level, since): MembershipRow, to_source: fn(i64) -> S) -> Membership<S> {
    Membership { source: to_source(source), user: UserId::new(user), role: to_role(level), since: from_micros(since) }
}

fn to_expiry(day: Option<Date>) -> Option<i64> {
    day.map(start_of_day)
}

/// Runs a query on the members table of a source, which is `$members` inside the query.
macro_rules! with_member_table {
    ($source:expr, $members:ident, $source_id:ident, $id:ident => $query:expr) => {
        match $source {
            MemberSource::Project($id) => {
                use project_members::{self as $members, project_id as $source_id};
                $query
            }
            MemberSource::Group($id) => {
                use group_members::{self as $members, group_id as $source_id};
                $query
            }
        }
    };
}

/// Returns the order: newest membership first, or newest user first.
fn newest_first(source: MemberSource, by_user: bool) -> Fragment<BigInt> {
    Fragment::new(match (by_user, source) {
        (true, _) => "users.id DESC",
        (false, MemberSource::Project(_)) => "project_members.id DESC",
        (false, MemberSource::Group(_)) => "group_members.id DESC",
    })
}

/// Lists the members of a project or group, newest membership first; with a search newest user first.
pub fn list(
    db: &mut Conn,
    source: MemberSource,
    search: Option<&MemberSearch<'_>>,
    page: Page,
    now: Time,
) -> Result<Slice<Member>> {
    let term = search.map(|search| SearchTerm::new(search.text));
    let partial_emails = search.is_some_and(|search| search.partial_emails);
    with_member_table!(source, members, source_id, id => {
        let matching = || {
            let unexpired = members::expires_at.is_null().or(members::expires_at.gt(to_micros(now)));
            members::table
                .inner_join(users::table)
                .filter(source_id.eq(id.get()))
                .filter(unexpired)
                .filter(term.as_ref().map_or_else(|| Fragment::new("TRUE"), |term| term.in_user(partial_emails)))
        };
        let total: i64 = on!(db, conn => matching().count().get_result(conn))?;
        let rows: Vec<Row> = on!(db, conn => matching()
            .order(newest_first(source, term.is_some()))
            .limit(page.size)
            .offset(page.offset())
            .select((SummaryRow::as_select(), members::access_level, members::expires_at))
            .load(conn))?;
        Ok(Slice { items: rows.into_iter().map(to_member).collect(), total: total.into(), page })
    })
}

/// Returns active users with a role in a project, by username: its owner, its members, those of its group and the group's
/// ancestors, and those of the groups that it is shared with.
pub fn with_role(db: &mut Conn, project: &Project, limit: i64, now: Time) -> Result<Vec<UserSummary>> {
    let now = to_micros(now);
    let unexpired = |query: Fragment<Bool>, table: &str| {
        query.sql(format!(" AND ({table}.expires_at IS NULL OR {table}.expires_at > ")).number(now).sql(")")
    };
    let condition = || {
        let owner =
            Fragment::<Bool>::new("users.id IN (SELECT n.owner_id FROM namespaces n WHERE n.kind = 'user' AND n.id = ")
                .number(project.namespace.id)
                .sql(" UNION SELECT m.user_id FROM project_members m WHERE m.project_id = ")
                .number(project.id);
        let of_group = unexpired(owner, "m")
            .sql(
                " UNION SELECT m.user_id FROM namespace_ancestors a CROSS JOIN group_members m \
                 WHERE m.group_id = a.ancestor_id AND a.namespace_id = ",
            )
            .number(project.namespace.id);
        let of_shares = unexpired(of_group, "m")
            .sql(
                " UNION SELECT m.user_id FROM project_shares s CROSS JOIN projects p CROSS JOIN namespaces n \
                 CROSS JOIN namespace_ancestors a CROSS JOIN group_members m WHERE p.id = s.project_id \
                 AND n.id = p.namespace_id AND NOT n.share_with_group_lock AND a.namespace_id = s.group_id \
                 AND m.group_id = a.ancestor_id AND s.project_id = ",
            )
            .number(project.id);
        unexpired(unexpired(of_shares, "m"), "s").sql(")")
    };
    let rows: Vec<SummaryRow> = on!(db, conn => users::table
        .filter(users::state.eq("active"))
        .filter(condition())
        .order(users::username)
        .limit(limit)
        .select(SummaryRow::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Into::into).collect())
}

/// Returns one member of a project or group.
pub fn get(db: &mut Conn, source: MemberSource, user: UserId, now: Time) -> Result<Option<Member>> {
    with_member_table!(source, members, source_id, id => {
        let row: Option<Row> = on!(db, conn => members::table
            .inner_join(users::table)
            .filter(source_id.eq(id.get()))
            .filter(members::user_id.eq(user.get()))
            .filter(members::expires_at.is_null().or(members::expires_at.gt(to_micros(now))))
            .select((SummaryRow::as_select(), members::access_level, members::expires_at))
            .first(conn)
            .optional())?;
        Ok(row.map(to_member))
    })
}

/// Adds a member, or changes the role and expiry of an existing one.
pub fn upsert(
    db: &mut Conn,
    source: MemberSource,
    user: UserId,
    role: Role,
    expires_on: Option<Date>,
    now: Time,
) -> Result<()> {
    with_member_table!(source, members, source_id, id => {
        on!(db, conn => diesel::insert_into(members::table)
            .values((
                source_id.eq(id.get()),
                members::user_id.eq(user.get()),
                members::access_level.eq(role.level()),
                members::expires_at.eq(to_expiry(expires_on)),
                members::created_at.eq(to_micros(now)),
            ))
            .on_conflict((source_id, members::user_id))
            .do_update()
            .set((
                members::access_level.eq(role.level()),
                members::expires_at.eq(to_expiry(expires_on)),
            ))
            .execute(conn))?;
        Ok(())
    })
}

/// Deletes a membership; returns whether there was one, expired or not.
pub fn delete(db: &mut Conn, source: MemberSource, user: UserId) -> Result<bool> {
    with_member_table!(source, members, source_id, id => {
        let removed = on!(db, conn => diesel::delete(members::table)
            .filter(source_id.eq(id.get()))
            .filter(members::user_id.eq(user.get()))
            .execute(conn))?;
        Ok(removed > 0)
    })
}

/// Returns and locks memberships of projects, expired ones included, oldest first.
pub fn in_projects(db: &mut Conn, selector: MembershipSelector<'_, ProjectId>) -> Result<Vec<Membership<ProjectId>>> {
    locked_memberships(db, "project_members", "project_id", selector, ProjectId::new)
}

/// Returns and locks memberships of groups, expired ones included, oldest first.
pub fn in_groups(db: &mut Conn, selector: MembershipSelector<'_, NamespaceId>) -> Result<Vec<Membership<NamespaceId>>> {
    locked_memberships(db, "group_members", "group_id", selector, NamespaceId::new)
}

fn locked_memberships<S: Copy + Into<i64>>(
    db: &mut Conn,
    table: &str,
    source_column: &str,
    selector: MembershipSelector<'_, S>,
    to_source: fn(i64) -> S,
) -> Result<Vec<Membership<S>>> {
    let query = || {
        let all = Fragment::<(BigInt, BigInt, Integer, BigInt)>::new(format!(
            "SELECT {source_column}, user_id, access_level, created_at FROM {table} WHERE "
        ));
        let filtered = match selector {
            MembershipSelector::OfSources(ids) => all.sql(source_column.to_owned()).in_ids(ids),
            MembershipSelector::OfUser(user) => all.sql("user_id = ").number(user),
            MembershipSelector::One(id, user) => {
                all.sql(format!("{source_column} = ")).number(id).sql(" AND user_id = ").number(user)
            }
        };
        filtered.sql(" ORDER BY id").per_engine("", " FOR UPDATE")
    };
    let rows: Vec<MembershipRow> = on!(db, conn => query().load(conn))?;
    Ok(rows.into_iter().map(|row| to_membership(row, to_source)).collect())
}

/// Deletes and returns expired memberships and shares, at most `limit` of each kind. Records an event for each membership of
/// a project, unless the project is deleted or the user owns it.
pub fn delete_expired(db: &mut Conn, now: Time, limit: i64) -> Result<EndedMemberships> {
    let in_groups = delete_expired_memberships(db, "group_members", "group_id", now, limit, NamespaceId::new)?;
    let shares = on!(db, conn => delete_expired_rows::<BigInt>("project_shares", now, limit).execute(conn))?;
    let in_projects = delete_expired_memberships(db, "project_members", "project_id", now, limit, ProjectId::new)?;
    let project_ids: Vec<ProjectId> = in_projects.iter().map(|membership| membership.source).collect();
    // Deleted projects have no namespace.
    let owners: Vec<(i64, Option<i64>)> = on!(db, conn => projects::table
        .inner_join(namespaces::table)
        .filter(Fragment::<Bool>::new("projects.id").in_ids(&project_ids))
        .select((projects::id, namespaces::owner_id))
        .load(conn))?;
    let owners: HashMap<ProjectId, Option<UserId>> =
        owners.into_iter().map(|(project, owner)| (ProjectId::new(project), owner.map(UserId::new))).collect();
    for Membership { source: project, user: author, .. } in &in_projects {
        if owners.get(project).is_none_or(|owner| *owner == Some(*author)) {
            continue;
        }
        let (project, author) = (*project, *author);
        let event = NewEvent { project, author, action: EventAction::Expired, target: None, now };
        events::insert(db, &event)?;
    }
    Ok(EndedMemberships { in_projects, in_groups, shares })
}

/// Deletes some expired memberships and returns them, ordered by source.
fn delete_expired_memberships<S: Ord>(
    db: &mut Conn,
    table: &str,
    source_column: &str,
    now: Time,
    limit: i64,
    to_source: fn(i64) -> S,
) -> Result<Vec<Membership<S>>> {
    let delete = || {
        delete_expired_rows::<(BigInt, BigInt, Integer, BigInt)>(table, now, limit)
            .sql(format!(" RETURNING {source_column}, user_id, access_level, created_at"))
    };
    let rows: Vec<MembershipRow> = on!(db, conn => delete().load(conn))?;
    let mut deleted: Vec<Membership<S>> = rows.into_iter().map(|row| to_membership(row, to_source)).collect();
    deleted.sort_unstable();
    Ok(deleted)
}

/// Deletes some expired rows of a table. Tests the expiry twice, because on PostgreSQL a row may be renewed after the
/// subquery has selected it.
fn delete_expired_rows<ST>(table: &str, now: Time, limit: i64) -> Fragment<ST> {
    Fragment::new(format!("DELETE FROM {table} WHERE expires_at <= "))
        .number(to_micros(now))
        .sql(format!(" AND id IN (SELECT id FROM {table} WHERE expires_at <= "))
        .number(to_micros(now))
        .sql(" LIMIT ")
        .number(limit)
        .sql(")")
}

/// Returns the share of a project with a group, unless it has expired.
pub fn find_share(db: &mut Conn, project: ProjectId, group: NamespaceId, now: Time) -> Result<Option<Share>> {
    let row: Option<(i64, i32, Option<i64>)> = on!(db, conn => project_shares::table
        .filter(project_shares::project_id.eq(project.get()))
        .filter(project_shares::group_id.eq(group.get()))
        .filter(project_shares::expires_at.is_null().or(project_shares::expires_at.gt(to_micros(now))))
        .select((project_shares::id, project_shares::group_access, project_shares::expires_at))
        .first(conn)
        .optional())?;
    Ok(row.map(|(id, level, expires_at)| Share {
        id: ShareId::new(id),
        project_id: project,
        group_id: group,
        role: to_role(level),
        expires_on: expires_at.map(date_from_micros),
    }))
}

/// Shares a project with a group; replaces an expired share.
pub fn insert_share(
    db: &mut Conn,
    project: ProjectId,
    group: NamespaceId,
    role: Role,
    expires_on: Option<Date>,
    now: Time,
) -> Result<Share> {
    delete_share(db, project, group)?;
    let id = on!(db, conn => diesel::insert_into(project_shares::table)
        .values((
            project_shares::project_id.eq(project.get()),
            project_shares::group_id.eq(group.get()),
            project_shares::group_access.eq(role.level()),
            project_shares::expires_at.eq(to_expiry(expires_on)),
            project_shares::created_at.eq(to_micros(now)),
        ))
        .returning(project_shares::id)
        .get_result(conn))?;
    Ok(Share { id: ShareId::new(id), project_id: project, group_id: group, role, expires_on })
}

/// Ends the share of a project with a group.
pub fn delete_share(db: &mut Conn, project: ProjectId, group: NamespaceId) -> Result<()> {
    on!(db, conn => diesel::delete(project_shares::table)
        .filter(project_shares::project_id.eq(project.get()))
        .filter(project_shares::group_id.eq(group.get()))
        .execute(conn))?;
    Ok(())
}

/// Returns the groups that each project is shared with, oldest share first.
pub(crate) fn shares_of(
    db: &mut Conn,
    projects: &[ProjectId],
    now: Time,
) -> Result<HashMap<ProjectId, Vec<SharedGroup>>> {
    if projects.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(i64, i64, String, i32)> = on!(db, conn => project_shares::table
        .inner_join(namespaces::table)
        .filter(Fragment::<Bool>::new("project_shares.project_id").in_ids(projects))
        .filter(project_shares::expires_at.is_null().or(project_shares::expires_at.gt(to_micros(now))))
        .order(project_shares::id)
        .select((
            project_shares::project_id,
            project_shares::group_id,
            namespaces::name,
            project_shares::group_access,
        ))
        .load(conn))?;
    let mut shares: HashMap<ProjectId, Vec<SharedGroup>> = HashMap::new();
    for (project, group_id, group_name, level) in rows {
        let group = SharedGroup { group_id: NamespaceId::new(group_id), group_name, role: to_role(level) };
        shares.entry(ProjectId::new(project)).or_default().push(group);
    }
    Ok(shares)
}
