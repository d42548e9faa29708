//! Namespaces: personal ones and groups.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{Namespace, NamespaceId, NamespaceKind, Page, Role, Slice, Time, UserId, Visibility, text::fold_case};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    count_up_to::CountUpTo,
    fragment::Fragment,
    schema::{lower, namespaces},
    search::SearchTerm,
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = namespaces)]
pub(crate) struct Row {
    id: i64,
    parent_id: Option<i64>,
    kind: String,
    owner_id: Option<i64>,
    name: String,
    path: String,
    full_path: String,
    description: String,
    avatar: Option<String>,
    visibility: i32,
    share_with_group_lock: bool,
    request_access_enabled: bool,
    lfs_enabled: Option<bool>,
    created_at: i64,
    updated_at: i64,
}

impl From<Row> for Namespace {
    fn from(row: Row) -> Self {
        let Row {
            id,
            parent_id,
            kind,
            owner_id,
            name,
            path,
            full_path,
            description,
            avatar,
            visibility,
            share_with_group_lock,
            request_access_enabled,
            lfs_enabled,
            created_at,
            updated_at,
        } = row;
        Self {
            id: NamespaceId::new(id),
            parent_id: parent_id.map(NamespaceId::new),
            kind: NamespaceKind::parse(&kind),
            owner_id: owner_id.map(UserId::new),
            name,
            path,
            full_path,
            description,
            avatar,
            visibility: to_visibility(visibility),
            share_with_group_lock,
            request_access_enabled,
            lfs_enabled,
            created_at: from_micros(created_at),
            updated_at: from_micros(updated_at),
        }
    }
}

/// Converts a stored level; an unknown one comes from a newer version and counts as private.
pub(crate) fn to_visibility(level: i32) -> Visibility {
    Visibility::from_level(level.into()).unwrap_or(Visibility::Private)
}

/// Returns those of the namespaces that exist, ordered by ID.
pub fn by_ids(db: &mut Conn, ids: &[NamespaceId]) -> Result<Vec<Namespace>> {
    let rows: Vec<Row> = on!(db, conn => namespaces::table
        .filter(Fragment::<Bool>::new("namespaces.id").in_ids(ids))
        .order(namespaces::id)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Namespace::from).collect())
}

/// Returns a namespace.
pub fn by_id(db: &mut Conn, id: NamespaceId) -> Result<Option<Namespace>> {
    let row: Option<Row> =
        on!(db, conn => namespaces::table.find(id.get()).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Namespace::from))
}

/// Returns a namespace and locks the row until the transaction ends; SQLite has a single writer and needs no lock.
pub fn by_id_for_update(db: &mut Conn, id: NamespaceId) -> Result<Option<Namespace>> {
    let row: Option<Row> = match db {
        Conn::Sqlite(conn) => namespaces::table.find(id.get()).select(Row::as_select()).first(conn).optional()?,
        Conn::Pg(conn) => {
            namespaces::table.find(id.get()).select(Row::as_select()).for_update().first(conn).optional()?
        }
    };
    Ok(row.map(Namespace::from))
}

/// Returns the namespace with a full path, ignoring case.
pub fn by_full_path(db: &mut Conn, full_path: &str) -> Result<Option<Namespace>> {
    let row: Option<Row> = on!(db, conn => namespaces::table
        .filter(lower(namespaces::full_path).eq(full_path.to_lowercase()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Namespace::from))
}

/// Returns the first group with a name, ignoring case.
pub fn group_by_name(db: &mut Conn, name: &str) -> Result<Option<Namespace>> {
    let row: Option<Row> = on!(db, conn => namespaces::table
        .filter(namespaces::kind.eq(NamespaceKind::Group.as_str()))
        .filter(namespaces::name_key.eq(fold_case(name)))
        .order(namespaces::id)
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Namespace::from))
}

/// Returns the personal namespace of a user.
pub fn personal(db: &mut Conn, user: UserId) -> Result<Option<Namespace>> {
    let row: Option<Row> = on!(db, conn => namespaces::table
        .filter(namespaces::kind.eq(NamespaceKind::User.as_str()))
        .filter(namespaces::owner_id.eq(user.get()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Namespace::from))
}

/// Lists namespaces, newest first: all of them, or the viewer's own and those of the viewer's groups.
pub fn list(
    db: &mut Conn,
    viewer: &Viewer,
    all: bool,
    search: Option<&SearchTerm>,
    page: Page,
) -> Result<Slice<Namespace>> {
    let matching = || {
        let mut condition = Fragment::<Bool>::new("TRUE");
        if !all {
            condition = condition
                .sql(" AND (namespaces.id IN (SELECT id FROM namespaces WHERE kind = 'user' AND owner_id = ")
                .number(viewer.user)
                .sql(") OR namespaces.id IN (")
                .append(viewer.my_groups())
                .sql("))");
        }
        if let Some(term) = search {
            condition = condition.sql(" AND ").append(term.in_namespace());
        }
        condition
    };
    let all_matching = || namespaces::table.filter(matching()).select(namespaces::id);
    let total = on!(db, conn => CountUpTo::of_list(all_matching(), page).total(conn))?;
    let rows: Vec<Row> = on!(db, conn => namespaces::table
        .filter(matching())
        .order(namespaces::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Namespace::from).collect(), total, page })
}

/// Returns the namespaces in which the viewer may create projects, at most `limit`: the personal one, then the groups in which
/// the viewer has at least `min_role`, by path.
pub fn list_with_role(db: &mut Conn, viewer: &Viewer, min_role: Role, limit: i64) -> Result<Vec<Namespace>> {
    let matching = || {
        Fragment::<Bool>::new("namespaces.id IN (SELECT id FROM namespaces WHERE kind = 'user' AND owner_id = ")
            .number(viewer.user)
            .sql(") OR namespaces.id IN (")
            .append(viewer.my_groups_with_role(min_role))
            .sql(")")
    };
    let rows: Vec<Row> = on!(db, conn => namespaces::table
        .filter(matching())
        // `user` sorts after `group`.
        .order((namespaces::kind.desc(), namespaces::full_path))
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Namespace::from).collect())
}

/// Returns whether a full path is in use, ignoring case, except by the given owner.
pub fn is_taken(db: &mut Conn, full_path: &str, except_owner: Option<UserId>) -> Result<bool> {
    let owner: Option<Option<i64>> = on!(db, conn => namespaces::table
        .filter(lower(namespaces::full_path).eq(full_path.to_lowercase()))
        .select(namespaces::owner_id)
        .first(conn)
        .optional())?;
    Ok(owner.is_some_and(|owner| owner.is_none() || owner.map(UserId::new) != except_owner))
}

/// Inserts the personal namespace of a user.
pub fn insert_personal(db: &mut Conn, user: UserId, path: &str, now: Time) -> Result<NamespaceId> {
    let id = on!(db, conn => diesel::insert_into(namespaces::table)
        .values((
            namespaces::kind.eq(NamespaceKind::User.as_str()),
            namespaces::owner_id.eq(user.get()),
            namespaces::name.eq(path),
            namespaces::path.eq(path),
            namespaces::full_path.eq(path),
            namespaces::name_key.eq(fold_case(path)),
            namespaces::path_key.eq(fold_case(path)),
            namespaces::created_at.eq(to_micros(now)),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .returning(namespaces::id)
        .get_result(conn))?;
    Ok(NamespaceId::new(id))
}

/// Renames the personal namespace of a user.
pub fn rename_personal(db: &mut Conn, user: UserId, path: &str, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(namespaces::table)
        .filter(namespaces::owner_id.eq(user.get()))
        .filter(namespaces::kind.eq(NamespaceKind::User.as_str()))
        .set((
            namespaces::name.eq(path),
            namespaces::path.eq(path),
            namespaces::full_path.eq(path),
            namespaces::name_key.eq(fold_case(path)),
            namespaces::path_key.eq(fold_case(path)),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Returns the IDs of the descendants of a namespace, without itself.
pub(crate) fn descendants(db: &mut Conn, id: NamespaceId) -> Result<Vec<NamespaceId>> {
    let query = || {
        Fragment::<BigInt>::new("SELECT namespace_id FROM namespace_ancestors WHERE ancestor_id = ")
            .number(id)
            .sql(" AND namespace_id <> ")
            .number(id)
    };
    let ids: Vec<i64> = on!(db, conn => query().load(conn))?;
    Ok(ids.into_iter().map(NamespaceId::new).collect())
}
