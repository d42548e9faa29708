//! Groups.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Change, Namespace, NamespaceId, NamespaceKind, Page, Role, Slice, Time, UserId, Visibility,
    groups::{GroupChanges, GroupFilter, NewGroup},
    text::fold_case,
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    namespaces::{self as tree, Row},
    page_ids::in_order,
    project_lists::counted_page,
    schema::{group_members, namespaces, projects},
    search::SearchTerm,
    times::to_micros,
};

const IS_GROUP: &str = "namespaces.kind = 'group'";

/// Returns the role of the viewer in a group, inherited from its ancestors if higher.
pub fn role_in(db: &mut Conn, viewer: &Viewer, group: NamespaceId) -> Result<Option<Role>> {
    let level: Option<i32> = on!(db, conn => viewer.level_in_group(group).get_result(conn))?;
    Ok(level.and_then(|level| Role::from_level(level.into())))
}

/// Returns whether the viewer can see a project in the group or shared with it.
pub fn has_visible_project(db: &mut Conn, viewer: &Viewer, group: NamespaceId) -> Result<bool> {
    let query =
        || Fragment::<Bool>::new("SELECT ").append(has_visible_project_sql(viewer, Fragment::new("").number(group)));
    Ok(on!(db, conn => query().get_result(conn))?)
}

/// The SQL condition of [`has_visible_project`].
fn has_visible_project_sql(viewer: &Viewer, group: Fragment<BigInt>) -> Fragment<Bool> {
    Fragment::new("(EXISTS (SELECT 1 FROM projects p WHERE p.namespace_id = ")
        .append(group.clone())
        .sql(" AND ")
        .append(viewer.sees())
        .sql(
            ") OR EXISTS (SELECT 1 FROM project_shares s JOIN projects p ON p.id = s.project_id \
             JOIN namespaces n ON n.id = p.namespace_id WHERE NOT n.share_with_group_lock AND s.group_id = ",
        )
        .append(group)
        .sql(" AND ")
        .append(viewer.unexpired("s"))
        .sql(" AND ")
        .append(viewer.sees())
        .sql("))")
}

/// The IDs of the groups that the viewer can see only because of a project in them or shared with them: the inverse of
/// [`has_visible_project`]. No project is more visible than its group, so of those in a group only the viewer's own count.
fn groups_with_visible_projects(viewer: &Viewer) -> Fragment<BigInt> {
    Fragment::new("SELECT c.namespace_id FROM (")
        .append(viewer.my_projects_with(", p.namespace_id AS namespace_id"))
        .sql(
            ") c UNION SELECT s.group_id FROM namespaces g CROSS JOIN project_shares s CROSS JOIN projects p \
             CROSS JOIN namespaces n WHERE g.kind = 'group' AND s.group_id = g.id AND p.id = s.project_id \
             AND n.id = p.namespace_id AND NOT n.share_with_group_lock AND g.visibility < ",
        )
        .number(viewer.visible_from.level())
        .sql(" AND ")
        .append(viewer.unexpired("s"))
        .sql(" AND ")
        .append(viewer.sees())
}

/// Lists groups: all of them, those that the viewer can see, or those of which the viewer is a member.
pub fn list(db: &mut Conn, viewer: &Viewer, all: bool, filter: &GroupFilter, page: Page) -> Result<Slice<Namespace>> {
    let term = filter.search.as_deref().map(SearchTerm::new);
    let mut matching = Fragment::<Bool>::new(IS_GROUP);
    if !all {
        matching = matching.sql(" AND (namespaces.id IN (").append(viewer.my_groups()).sql(")");
        if filter.all_available {
            matching = matching
                .sql(" OR namespaces.visibility >= ")
                .number(viewer.visible_from.level())
                .sql(" OR namespaces.id IN (")
                .append(groups_with_visible_projects(viewer))
                .sql(")");
        }
        matching = matching.sql(")");
    }
    if let Some(term) = &term {
        matching = matching.sql(" AND ").append(term.in_namespace());
    }
    if !filter.skip.is_empty() {
        matching = matching.sql(" AND NOT namespaces.id").in_ids(&filter.skip);
    }
    let key = if filter.by_path { "path_key" } else { "name_key" };
    let order = if filter.descending { "f.sort_key DESC, f.id DESC" } else { "f.sort_key, f.id" };
    let found =
        Fragment::new(format!("SELECT namespaces.id AS id, namespaces.{key} AS sort_key FROM namespaces WHERE "))
            .append(matching);
    let (total, ids) = counted_page(db, page, found, Fragment::new("(SELECT count(*) FROM found)"), order)?;
    let rows: Vec<Row> = on!(db, conn => namespaces::table
        .filter(Fragment::<Bool>::new("namespaces.id").in_ids(&ids))
        .select(Row::as_select())
        .load(conn))?;
    let groups = rows.into_iter().map(Namespace::from).collect();
    Ok(Slice { items: in_order(&ids, groups, |group: &Namespace| group.id.get()), total: total.into(), page })
}

/// Lists the groups that the viewer owns, newest membership first.
pub fn list_owned(db: &mut Conn, viewer: &Viewer, page: Page) -> Result<Slice<Namespace>> {
    let is_owner = || {
        Fragment::<Bool>::new("group_members.access_level = 50 AND group_members.user_id = ")
            .number(viewer.user)
            .sql(" AND ")
            .append(viewer.unexpired("group_members"))
    };
    let total: i64 = on!(db, conn => group_members::table.filter(is_owner()).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => group_members::table
        .inner_join(namespaces::table.on(namespaces::id.eq(group_members::group_id)))
        .filter(is_owner())
        .order(group_members::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Namespace::from).collect(), total: total.into(), page })
}

/// Returns whether another namespace with the same parent has this name, ignoring case.
pub fn is_name_taken(
    db: &mut Conn,
    name: &str,
    parent: Option<NamespaceId>,
    except: Option<NamespaceId>,
) -> Result<bool> {
    let (parent, except) = (parent.map_or(0, NamespaceId::get), except.map_or(0, NamespaceId::get));
    let holder: Option<i64> = on!(db, conn => namespaces::table
        .filter(namespaces::kind.eq_any([NamespaceKind::User.as_str(), NamespaceKind::Group.as_str()]))
        .filter(Fragment::<Bool>::new("coalesce(namespaces.parent_id, 0) = ").number(parent))
        .filter(namespaces::name_key.eq(fold_case(name)))
        .filter(namespaces::id.ne(except))
        .select(namespaces::id)
        .first(conn)
        .optional())?;
    Ok(holder.is_some())
}

/// Inserts a group, at the root or below another group.
pub fn insert(db: &mut Conn, new: &NewGroup, parent: Option<&Namespace>, now: Time) -> Result<NamespaceId> {
    let full_path = parent.map_or_else(|| new.path.clone(), |parent| format!("{}/{}", parent.full_path, new.path));
    let id = on!(db, conn => diesel::insert_into(namespaces::table)
        .values((
            namespaces::kind.eq(NamespaceKind::Group.as_str()),
            namespaces::parent_id.eq(parent.map(|parent| parent.id.get())),
            namespaces::name.eq(&new.name),
            namespaces::path.eq(&new.path),
            namespaces::full_path.eq(&full_path),
            namespaces::name_key.eq(fold_case(&new.name)),
            namespaces::path_key.eq(fold_case(&new.path)),
            namespaces::description.eq(&new.description),
            namespaces::visibility.eq(new.visibility.level()),
            namespaces::lfs_enabled.eq(new.lfs_enabled),
            namespaces::request_access_enabled.eq(new.request_access_enabled),
            namespaces::created_at.eq(to_micros(now)),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .returning(namespaces::id)
        .get_result(conn))?;
    Ok(NamespaceId::new(id))
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

/// Updates a group; a new path also changes the full paths of its descendants.
pub fn update(db: &mut Conn, group: &Namespace, changes: &GroupChanges, now: Time) -> Result<()> {
    let full_path = changes.path.as_ref().map(|path| group.full_path_with(path));
    let update = Update {
        name: changes.name.as_deref(),
        name_key: changes.name.as_deref().map(fold_case),
        path: changes.path.as_deref(),
        path_key: changes.path.as_deref().map(fold_case),
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
    on!(db, conn => diesel::update(namespaces::table.find(group.id.get())).set(&update).execute(conn))?;
    if let Some(full_path) = full_path.filter(|path| *path != group.full_path) {
        for id in tree::descendants(db, group.id)? {
            let Some(child) = tree::by_id(db, id)? else { continue };
            let rest = child.full_path.strip_prefix(&group.full_path).unwrap_or_default();
            on!(db, conn => diesel::update(namespaces::table.find(id.get()))
                .set(namespaces::full_path.eq(format!("{full_path}{rest}")))
                .execute(conn))?;
        }
    }
    Ok(())
}

/// Returns the highest visibility of the projects in a group.
pub fn max_project_visibility(db: &mut Conn, group: NamespaceId) -> Result<Option<Visibility>> {
    let level: Option<i32> = on!(db, conn => projects::table
        .filter(projects::namespace_id.eq(group.get()))
        .select(diesel::dsl::max(projects::visibility))
        .first(conn))?;
    Ok(level.map(tree::to_visibility))
}

/// Returns the IDs of a group and its descendants.
pub fn with_descendants(db: &mut Conn, group: NamespaceId) -> Result<Vec<NamespaceId>> {
    let mut ids = tree::descendants(db, group)?;
    ids.push(group);
    Ok(ids)
}

/// Deletes groups with their memberships and shares, descendants first; their projects are already deleted.
pub fn delete(db: &mut Conn, ids: &[NamespaceId]) -> Result<()> {
    // IDs grow downwards: a group is created after its parent.
    let mut ids = ids.to_vec();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    for id in ids {
        on!(db, conn => diesel::delete(namespaces::table.find(id.get())).execute(conn))?;
    }
    Ok(())
}

/// Returns the groups that a user owns, in locking order.
pub fn owned_by(db: &mut Conn, user: UserId) -> Result<Vec<NamespaceId>> {
    let ids: Vec<i64> = on!(db, conn => group_members::table
        .filter(group_members::user_id.eq(user.get()))
        .filter(group_members::access_level.eq(Role::Owner.level()))
        .order(group_members::group_id)
        .select(group_members::group_id)
        .load(conn))?;
    Ok(ids.into_iter().map(NamespaceId::new).collect())
}

/// Returns the groups of which a user is the only owner whose membership does not expire.
pub fn solely_owned_by(db: &mut Conn, user: UserId) -> Result<Vec<NamespaceId>> {
    let query = || {
        Fragment::<BigInt>::new("SELECT m.group_id FROM group_members m WHERE m.access_level = 50 AND m.user_id = ")
            .number(user)
            .sql(
                " AND NOT EXISTS (SELECT 1 FROM group_members o WHERE o.group_id = m.group_id \
                 AND o.access_level = 50 AND o.expires_at IS NULL AND o.user_id <> m.user_id) ORDER BY m.group_id",
            )
    };
    let ids: Vec<i64> = on!(db, conn => query().load(conn))?;
    Ok(ids.into_iter().map(NamespaceId::new).collect())
}

/// Returns whether a group has another owner than this user whose membership does not expire.
pub fn has_other_owner(db: &mut Conn, group: NamespaceId, user: UserId) -> Result<bool> {
    let other: Option<i64> = on!(db, conn => group_members::table
        .filter(group_members::group_id.eq(group.get()))
        .filter(group_members::access_level.eq(Role::Owner.level()))
        .filter(group_members::expires_at.is_null())
        .filter(group_members::user_id.ne(user.get()))
        .select(group_members::user_id)
        .first(conn)
        .optional())?;
    Ok(other.is_some())
}
