//! Memberships of projects and groups, and projects opened to groups.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer},
};
use jiff::civil::Date;
use model::{
    Member, Page, Role, Share, Slice, Time,
    events::Action,
    members::{SharedGroup, day_from, start_of},
};

use crate::{
    Conn, Result,
    conn::on,
    events::{self, NewEvent},
    fragment::Fragment,
    schema::{group_members, namespaces, project_members, project_shares, projects, users},
    search::Term,
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// What somebody belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A project.
    Project(i64),
    /// A group.
    Group(i64),
}

/// That somebody belongs to something, or did until a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Membership {
    /// The number of what they belong to.
    pub place: i64,
    /// The number of who it is.
    pub user: i64,
    /// As what.
    pub role: Role,
    /// Since when.
    pub since: Time,
}

/// Which memberships are meant.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// All of these places.
    Of(&'a [i64]),
    /// All of a user.
    User(i64),
    /// That of a user in a place.
    One(i64, i64),
}

/// What ended because its day had come.
#[derive(Debug, Default)]
pub struct Ended {
    /// Memberships of projects.
    pub in_projects: Vec<Membership>,
    /// Memberships of groups.
    pub in_groups: Vec<Membership>,
    /// How many shares.
    pub shares: usize,
}

impl Ended {
    /// How much it is in all.
    pub fn count(&self) -> usize {
        self.in_projects.len() + self.in_groups.len() + self.shares
    }
}

/// Whom somebody looks for among the members.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// A part of name or username, or the address.
    pub text: &'a str,
    /// Whether a part of the address will do.
    pub parts_of_addresses: bool,
}

type Row = (SummaryRow, i32, Option<i64>);

fn to_member((user, level, expires_at): Row) -> Member {
    Member { user: user.into(), role: to_role(level), expires_on: expires_at.map(day_from) }
}

/// What is stored as a number; an unknown one can only come from a newer version, and then it gives least.
fn to_role(level: i32) -> Role {
    Role::from_level(level.into()).unwrap_or(Role::Guest)
}

fn to_membership((place, user, level, since): (i64, i64, i32, i64)) -> Membership {
    Membership { place, user, role: to_role(level), since: from_micros(since) }
}

fn to_expiry(day: Option<Date>) -> Option<i64> {
    day.map(start_of)
}

/// Runs a query on the table of memberships that a place has; `$members` is that table inside.
macro_rules! in_place {
    ($place:expr, $members:ident, $place_id:ident, $id:ident => $query:expr) => {
        match $place {
            Place::Project($id) => {
                use project_members::{self as $members, project_id as $place_id};
                $query
            }
            Place::Group($id) => {
                use group_members::{self as $members, group_id as $place_id};
                $query
            }
        }
    };
}

/// Newest membership first, or the newest user.
fn newest_first(place: Place, by_user: bool) -> Fragment<BigInt> {
    Fragment::new(match (by_user, place) {
        (true, _) => "users.id DESC",
        (false, Place::Project(_)) => "project_members.id DESC",
        (false, Place::Group(_)) => "group_members.id DESC",
    })
}

/// A page of the members of a place, newest membership first; with a search the newest user.
pub fn list(db: &mut Conn, place: Place, search: Option<&Search<'_>>, page: Page, now: Time) -> Result<Slice<Member>> {
    let term = search.map(|search| Term::new(search.text));
    let parts = search.is_some_and(|search| search.parts_of_addresses);
    in_place!(place, members, place_id, id => {
        let matching = || {
            let live = members::expires_at.is_null().or(members::expires_at.gt(to_micros(now)));
            members::table
                .inner_join(users::table)
                .filter(place_id.eq(id))
                .filter(live)
                .filter(term.as_ref().map_or_else(|| Fragment::new("TRUE"), |term| term.in_user(parts)))
        };
        let total = on!(db, conn => matching().count().get_result(conn))?;
        let rows: Vec<Row> = on!(db, conn => matching()
            .order(newest_first(place, term.is_some()))
            .limit(page.size)
            .offset(page.offset())
            .select((SummaryRow::as_select(), members::access_level, members::expires_at))
            .load(conn))?;
        Ok(Slice { items: rows.into_iter().map(to_member).collect(), total, page })
    })
}

/// One member of a place.
pub fn get(db: &mut Conn, place: Place, user: i64, now: Time) -> Result<Option<Member>> {
    in_place!(place, members, place_id, id => {
        let row: Option<Row> = on!(db, conn => members::table
            .inner_join(users::table)
            .filter(place_id.eq(id))
            .filter(members::user_id.eq(user))
            .filter(members::expires_at.is_null().or(members::expires_at.gt(to_micros(now))))
            .select((SummaryRow::as_select(), members::access_level, members::expires_at))
            .first(conn)
            .optional())?;
        Ok(row.map(to_member))
    })
}

/// Makes somebody a member of a place, or changes as what.
pub fn put(db: &mut Conn, place: Place, user: i64, role: Role, expires_on: Option<Date>, now: Time) -> Result<()> {
    in_place!(place, members, place_id, id => {
        on!(db, conn => diesel::insert_into(members::table)
            .values((
                place_id.eq(id),
                members::user_id.eq(user),
                members::access_level.eq(role.level()),
                members::expires_at.eq(to_expiry(expires_on)),
                members::created_at.eq(to_micros(now)),
            ))
            .on_conflict((place_id, members::user_id))
            .do_update()
            .set((
                members::access_level.eq(role.level()),
                members::expires_at.eq(to_expiry(expires_on)),
            ))
            .execute(conn))?;
        Ok(())
    })
}

/// Ends a membership; says whether there was one, be it one that counted no more.
pub fn delete(db: &mut Conn, place: Place, user: i64) -> Result<bool> {
    in_place!(place, members, place_id, id => {
        let removed = on!(db, conn => diesel::delete(members::table)
            .filter(place_id.eq(id))
            .filter(members::user_id.eq(user))
            .execute(conn))?;
        Ok(removed > 0)
    })
}

/// Memberships of projects, be they ones that count no more, oldest first. On PostgreSQL nobody else ends or changes
/// them while the transaction lasts.
pub fn in_projects(db: &mut Conn, which: Which<'_>) -> Result<Vec<Membership>> {
    held(db, "project_members", "project_id", which)
}

/// The same of groups.
pub fn in_groups(db: &mut Conn, which: Which<'_>) -> Result<Vec<Membership>> {
    held(db, "group_members", "group_id", which)
}

fn held(db: &mut Conn, table: &str, place: &str, which: Which<'_>) -> Result<Vec<Membership>> {
    let query = || {
        let all = Fragment::<(BigInt, BigInt, Integer, BigInt)>::new(format!(
            "SELECT {place}, user_id, access_level, created_at FROM {table} WHERE "
        ));
        let meant = match which {
            Which::Of(places) => all.sql(place.to_owned()).among(places),
            Which::User(user) => all.sql("user_id = ").number(user),
            Which::One(id, user) => all.sql(format!("{place} = ")).number(id).sql(" AND user_id = ").number(user),
        };
        meant.sql(" ORDER BY id").either("", " FOR UPDATE")
    };
    let rows: Vec<(i64, i64, i32, i64)> = on!(db, conn => query().load(conn))?;
    Ok(rows.into_iter().map(to_membership).collect())
}

/// Forgets some of the memberships and shares that count no more, of each kind this many at most; says which. Of
/// each project that is still there it is told whose membership has ended, unless it is theirs anyway.
pub fn delete_expired(db: &mut Conn, now: Time, most: i64) -> Result<Ended> {
    let in_groups = end_memberships(db, "group_members", "group_id", now, most)?;
    let shares = on!(db, conn => expired::<BigInt>("project_shares", now, most).execute(conn))?;
    let in_projects = end_memberships(db, "project_members", "project_id", now, most)?;
    let places: Vec<i64> = in_projects.iter().map(|ended| ended.place).collect();
    // One that was buried lives nowhere.
    let owners: Vec<(i64, Option<i64>)> = on!(db, conn => projects::table
        .inner_join(namespaces::table)
        .filter(Fragment::<Bool>::new("projects.id").among(&places))
        .select((projects::id, namespaces::owner_id))
        .load(conn))?;
    let owners: HashMap<i64, Option<i64>> = owners.into_iter().collect();
    for Membership { place: project, user: author, .. } in &in_projects {
        if owners.get(project).is_none_or(|owner| *owner == Some(*author)) {
            continue;
        }
        let (project, author) = (*project, *author);
        let event = NewEvent { project, author, action: Action::Expired, target: None, push: None, intent: None, now };
        events::insert(db, &event)?;
    }
    Ok(Ended { in_projects, in_groups, shares })
}

/// Ends some of the memberships that have expired; says which, in the order of the places.
fn end_memberships(db: &mut Conn, table: &str, place: &str, now: Time, most: i64) -> Result<Vec<Membership>> {
    let ending = || {
        expired::<(BigInt, BigInt, Integer, BigInt)>(table, now, most)
            .sql(format!(" RETURNING {place}, user_id, access_level, created_at"))
    };
    let rows: Vec<(i64, i64, i32, i64)> = on!(db, conn => ending().load(conn))?;
    let mut ended: Vec<Membership> = rows.into_iter().map(to_membership).collect();
    ended.sort_unstable();
    Ok(ended)
}

/// Removes some of the rows of a table that have expired. Asked twice, because on PostgreSQL somebody may have renewed
/// one since it was chosen.
fn expired<ST>(table: &str, now: Time, most: i64) -> Fragment<ST> {
    Fragment::new(format!("DELETE FROM {table} WHERE expires_at <= "))
        .number(to_micros(now))
        .sql(format!(" AND id IN (SELECT id FROM {table} WHERE expires_at <= "))
        .number(to_micros(now))
        .sql(" LIMIT ")
        .number(most)
        .sql(")")
}

/// The share of a project with a group, if it counts.
pub fn find_share(db: &mut Conn, project: i64, group: i64, now: Time) -> Result<Option<Share>> {
    let row: Option<(i64, i32, Option<i64>)> = on!(db, conn => project_shares::table
        .filter(project_shares::project_id.eq(project))
        .filter(project_shares::group_id.eq(group))
        .filter(project_shares::expires_at.is_null().or(project_shares::expires_at.gt(to_micros(now))))
        .select((project_shares::id, project_shares::group_access, project_shares::expires_at))
        .first(conn)
        .optional())?;
    Ok(row.map(|(id, level, expires_at)| Share {
        id,
        project_id: project,
        group_id: group,
        role: to_role(level),
        expires_on: expires_at.map(day_from),
    }))
}

/// Opens a project to a group; an expired share gives way.
pub fn insert_share(
    db: &mut Conn,
    project: i64,
    group: i64,
    role: Role,
    expires_on: Option<Date>,
    now: Time,
) -> Result<Share> {
    delete_share(db, project, group)?;
    let id = on!(db, conn => diesel::insert_into(project_shares::table)
        .values((
            project_shares::project_id.eq(project),
            project_shares::group_id.eq(group),
            project_shares::group_access.eq(role.level()),
            project_shares::expires_at.eq(to_expiry(expires_on)),
            project_shares::created_at.eq(to_micros(now)),
        ))
        .returning(project_shares::id)
        .get_result(conn))?;
    Ok(Share { id, project_id: project, group_id: group, role, expires_on })
}

/// Closes a project to a group.
pub fn delete_share(db: &mut Conn, project: i64, group: i64) -> Result<()> {
    on!(db, conn => diesel::delete(project_shares::table)
        .filter(project_shares::project_id.eq(project))
        .filter(project_shares::group_id.eq(group))
        .execute(conn))?;
    Ok(())
}

/// The groups that each of the projects is shared with, oldest share first.
pub(crate) fn shares_of(db: &mut Conn, projects: &[i64], now: Time) -> Result<HashMap<i64, Vec<SharedGroup>>> {
    let rows: Vec<(i64, i64, String, i32)> = on!(db, conn => project_shares::table
        .inner_join(namespaces::table)
        .filter(Fragment::<Bool>::new("project_shares.project_id").among(projects))
        .filter(project_shares::expires_at.is_null().or(project_shares::expires_at.gt(to_micros(now))))
        .order(project_shares::id)
        .select((
            project_shares::project_id,
            project_shares::group_id,
            namespaces::name,
            project_shares::group_access,
        ))
        .load(conn))?;
    let mut shares: HashMap<i64, Vec<SharedGroup>> = HashMap::new();
    for (project, group_id, group_name, level) in rows {
        shares.entry(project).or_default().push(SharedGroup { group_id, group_name, role: to_role(level) });
    }
    Ok(shares)
}
