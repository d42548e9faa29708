//! Groups.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Change, Namespace, NamespaceKind, Page, Role, Slice, Time, Visibility,
    groups::{GroupChanges, GroupFilter, NewGroup},
    text::fold,
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    namespaces::{self as tree, Row},
    schema::{group_members, namespaces, projects},
    search::Term,
    times::to_micros,
};

const KIND: &str = "namespaces.kind = 'group'";

/// What the viewer is to a group, or to one above it.
pub fn role_in(db: &mut Conn, viewer: &Viewer, group: i64) -> Result<Option<Role>> {
    let level: Option<i32> = on!(db, conn => viewer.level_in(group).get_result(conn))?;
    Ok(level.and_then(|level| Role::from_level(level.into())))
}

/// Whether the viewer sees a project that lives in the group or is shared with it.
pub fn shows_a_project(db: &mut Conn, viewer: &Viewer, group: i64) -> Result<bool> {
    let query = || Fragment::<Bool>::new("SELECT ").then(touches(viewer, Fragment::new("").number(group)));
    Ok(on!(db, conn => query().get_result(conn))?)
}

/// Whether the viewer sees a project that lives in this group or is shared with it.
fn touches(viewer: &Viewer, group: Fragment<BigInt>) -> Fragment<Bool> {
    Fragment::new("(EXISTS (SELECT 1 FROM projects p WHERE p.namespace_id = ")
        .then(group.clone())
        .sql(" AND ")
        .then(viewer.sees())
        .sql(
            ") OR EXISTS (SELECT 1 FROM project_shares s JOIN projects p ON p.id = s.project_id \
             JOIN namespaces n ON n.id = p.namespace_id WHERE NOT n.share_with_group_lock AND s.group_id = ",
        )
        .then(group)
        .sql(" AND ")
        .then(viewer.live("s"))
        .sql(" AND ")
        .then(viewer.sees())
        .sql("))")
}

/// The numbers of the groups that the viewer sees only because of a project in them or shared with them: as [`touches`],
/// from the other end. No project is more visible than its group, so of those inside only the viewer's own count.
fn touched(viewer: &Viewer) -> Fragment<BigInt> {
    Fragment::new("SELECT c.namespace_id FROM (")
        .then(viewer.my_projects_with(", p.namespace_id AS namespace_id"))
        .sql(
            ") c UNION SELECT s.group_id FROM namespaces g CROSS JOIN project_shares s CROSS JOIN projects p \
             CROSS JOIN namespaces n WHERE g.kind = 'group' AND s.group_id = g.id AND p.id = s.project_id \
             AND n.id = p.namespace_id AND NOT n.share_with_group_lock AND g.visibility < ",
        )
        .number(viewer.open_from.level().into())
        .sql(" AND ")
        .then(viewer.live("s"))
        .sql(" AND ")
        .then(viewer.sees())
}

/// A page of groups: all of them, those that the viewer sees, or those to which they belong.
pub fn list(
    db: &mut Conn,
    viewer: &Viewer,
    everything: bool,
    filter: &GroupFilter,
    page: Page,
) -> Result<Slice<Namespace>> {
    let term = filter.search.as_deref().map(Term::new);
    let matching = || {
        let mut wanted = Fragment::<Bool>::new(KIND);
        if !everything {
            wanted = wanted.sql(" AND (namespaces.id IN (").then(viewer.my_groups()).sql(")");
            if filter.all_available {
                wanted = wanted
                    .sql(" OR namespaces.visibility >= ")
                    .number(viewer.open_from.level().into())
                    .sql(" OR namespaces.id IN (")
                    .then(touched(viewer))
                    .sql(")");
            }
            wanted = wanted.sql(")");
        }
        if let Some(term) = &term {
            wanted = wanted.sql(" AND ").then(term.in_namespace());
        }
        if !filter.skip.is_empty() {
            wanted = wanted.sql(" AND NOT namespaces.id").among(&filter.skip);
        }
        wanted
    };
    let order = match (filter.by_path, filter.descending) {
        (false, false) => "namespaces.name_key, namespaces.id",
        (false, true) => "namespaces.name_key DESC, namespaces.id DESC",
        (true, false) => "namespaces.path_key, namespaces.id",
        (true, true) => "namespaces.path_key DESC, namespaces.id DESC",
    };
    let total: i64 = on!(db, conn => namespaces::table.filter(matching()).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => namespaces::table
        .filter(matching())
        .order(Fragment::<BigInt>::new(order))
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Namespace::from).collect(), total, page })
}

/// A page of the groups of which the viewer is an owner, newest membership first.
pub fn list_owned(db: &mut Conn, viewer: &Viewer, page: Page) -> Result<Slice<Namespace>> {
    let owning = || {
        Fragment::<Bool>::new("group_members.access_level = 50 AND group_members.user_id = ")
            .number(viewer.user)
            .sql(" AND ")
            .then(viewer.live("group_members"))
    };
    let total: i64 = on!(db, conn => group_members::table.filter(owning()).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => group_members::table
        .inner_join(namespaces::table.on(namespaces::id.eq(group_members::group_id)))
        .filter(owning())
        .order(group_members::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Namespace::from).collect(), total, page })
}

/// Whether another namespace below the same parent has this name, in whatever case.
pub fn is_name_taken(db: &mut Conn, name: &str, parent: Option<i64>, except: Option<i64>) -> Result<bool> {
    let holder: Option<i64> = on!(db, conn => namespaces::table
        .filter(namespaces::kind.eq_any([NamespaceKind::User.as_str(), NamespaceKind::Group.as_str()]))
        .filter(Fragment::<Bool>::new("coalesce(namespaces.parent_id, 0) = ").number(parent.unwrap_or_default()))
        .filter(namespaces::name_key.eq(fold(name)))
        .filter(namespaces::id.ne(except.unwrap_or_default()))
        .select(namespaces::id)
        .first(conn)
        .optional())?;
    Ok(holder.is_some())
}

/// Adds a group, at the root of the tree or below another.
pub fn insert(db: &mut Conn, new: &NewGroup, parent: Option<&Namespace>, now: Time) -> Result<i64> {
    let full_path = parent.map_or_else(|| new.path.clone(), |parent| format!("{}/{}", parent.full_path, new.path));
    Ok(on!(db, conn => diesel::insert_into(namespaces::table)
        .values((
            namespaces::kind.eq(NamespaceKind::Group.as_str()),
            namespaces::parent_id.eq(parent.map(|parent| parent.id)),
            namespaces::name.eq(&new.name),
            namespaces::path.eq(&new.path),
            namespaces::full_path.eq(&full_path),
            namespaces::name_key.eq(fold(&new.name)),
            namespaces::path_key.eq(fold(&new.path)),
            namespaces::description.eq(&new.description),
            namespaces::visibility.eq(new.visibility.level()),
            namespaces::lfs_enabled.eq(new.lfs_enabled),
            namespaces::request_access_enabled.eq(new.request_access_enabled),
            namespaces::created_at.eq(to_micros(now)),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .returning(namespaces::id)
        .get_result(conn))?)
}

#[derive(AsChangeset)]
#[diesel(table_name = namespaces)]
struct Update<'a> {
    name: Option<&'a str>,
    name_key: Option<String>,
    path: Option<&'a str>,
    path_key: Option<String>,
    full_path: Option<String>,
    description: Option<&'a str>,
    visibility: Option<i32>,
    lfs_enabled: Option<bool>,
    request_access_enabled: Option<bool>,
    updated_at: i64,
}

/// Changes a group; what lies below it follows a new path.
pub fn update(db: &mut Conn, group: &Namespace, changes: &GroupChanges, now: Time) -> Result<()> {
    let full_path = changes.path.as_ref().map(|path| group.full_path_with(path));
    let update = Update {
        name: changes.name.as_deref(),
        name_key: changes.name.as_deref().map(fold),
        path: changes.path.as_deref(),
        path_key: changes.path.as_deref().map(fold),
        full_path: full_path.clone(),
        description: match &changes.description {
            Change::Keep => None,
            Change::Clear => Some(""),
            Change::Set(text) => Some(text),
        },
        visibility: changes.visibility.map(Visibility::level),
        lfs_enabled: changes.lfs_enabled,
        request_access_enabled: changes.request_access_enabled,
        updated_at: to_micros(now),
    };
    on!(db, conn => diesel::update(namespaces::table.find(group.id)).set(&update).execute(conn))?;
    if let Some(full_path) = full_path.filter(|path| *path != group.full_path) {
        for id in tree::below(db, group.id)? {
            let Some(child) = tree::by_id(db, id)? else { continue };
            let rest = child.full_path.strip_prefix(&group.full_path).unwrap_or_default();
            on!(db, conn => diesel::update(namespaces::table.find(id))
                .set(namespaces::full_path.eq(format!("{full_path}{rest}")))
                .execute(conn))?;
        }
    }
    Ok(())
}

/// The farthest that a project of the group can be seen.
pub fn widest_project(db: &mut Conn, group: i64) -> Result<Option<Visibility>> {
    let level: Option<i32> = on!(db, conn => projects::table
        .filter(projects::namespace_id.eq(group))
        .select(diesel::dsl::max(projects::visibility))
        .first(conn))?;
    Ok(level.map(tree::to_visibility))
}

/// The group and the groups below it.
pub fn with_all_below(db: &mut Conn, group: i64) -> Result<Vec<i64>> {
    let mut ids = tree::below(db, group)?;
    ids.push(group);
    Ok(ids)
}

/// Removes groups with their memberships and shares, the lowest first; their projects are gone already.
pub fn delete(db: &mut Conn, ids: &[i64]) -> Result<()> {
    // Ids grow downwards: a group is made after the one it lives in.
    let mut ids = ids.to_vec();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    for id in ids {
        on!(db, conn => diesel::delete(namespaces::table.find(id)).execute(conn))?;
    }
    Ok(())
}

/// The groups of which a user is an owner, in the order in which they are locked.
pub fn owned_by(db: &mut Conn, user: i64) -> Result<Vec<i64>> {
    Ok(on!(db, conn => group_members::table
        .filter(group_members::user_id.eq(user))
        .filter(group_members::access_level.eq(Role::Owner.level()))
        .order(group_members::group_id)
        .select(group_members::group_id)
        .load(conn))?)
}

/// The groups of which a user is the only owner who stays.
pub fn solely_owned_by(db: &mut Conn, user: i64) -> Result<Vec<i64>> {
    let query = || {
        Fragment::<BigInt>::new("SELECT m.group_id FROM group_members m WHERE m.access_level = 50 AND m.user_id = ")
            .number(user)
            .sql(
                " AND NOT EXISTS (SELECT 1 FROM group_members o WHERE o.group_id = m.group_id \
                 AND o.access_level = 50 AND o.expires_at IS NULL AND o.user_id <> m.user_id) ORDER BY m.group_id",
            )
    };
    Ok(on!(db, conn => query().load(conn))?)
}

/// Whether a group has an owner who stays, other than this user.
pub fn has_other_owner(db: &mut Conn, group: i64, user: i64) -> Result<bool> {
    let other: Option<i64> = on!(db, conn => group_members::table
        .filter(group_members::group_id.eq(group))
        .filter(group_members::access_level.eq(Role::Owner.level()))
        .filter(group_members::expires_at.is_null())
        .filter(group_members::user_id.ne(user))
        .select(group_members::user_id)
        .first(conn)
        .optional())?;
    Ok(other.is_some())
}
