//! The tree of paths.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{Namespace, NamespaceKind, Page, Slice, Time, Visibility, text::fold};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    schema::{lower, namespaces},
    search::Term,
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
            visibility,
            share_with_group_lock,
            request_access_enabled,
            lfs_enabled,
            created_at,
            updated_at,
        } = row;
        Self {
            id,
            parent_id,
            kind: NamespaceKind::from_word(&kind),
            owner_id,
            name,
            path,
            full_path,
            description,
            visibility: to_visibility(visibility),
            share_with_group_lock,
            request_access_enabled,
            lfs_enabled,
            created_at: from_micros(created_at),
            updated_at: from_micros(updated_at),
        }
    }
}

/// What is stored as a number; an unknown one can only come from a newer version, and then nothing is shown.
pub(crate) fn to_visibility(level: i32) -> Visibility {
    Visibility::from_level(level.into()).unwrap_or(Visibility::Private)
}

/// Those of these namespaces that are there, in the order of their numbers.
pub fn among(db: &mut Conn, ids: &[i64]) -> Result<Vec<Namespace>> {
    let rows: Vec<Row> = on!(db, conn => namespaces::table
        .filter(Fragment::<Bool>::new("namespaces.id").among(ids))
        .order(namespaces::id)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Namespace::from).collect())
}

/// One namespace.
pub fn by_id(db: &mut Conn, id: i64) -> Result<Option<Namespace>> {
    let row: Option<Row> = on!(db, conn => namespaces::table.find(id).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Namespace::from))
}

/// One namespace as it is while the transaction lasts: on PostgreSQL nobody else changes or removes it meanwhile.
pub fn by_id_to_change(db: &mut Conn, id: i64) -> Result<Option<Namespace>> {
    let row: Option<Row> = match db {
        Conn::Sqlite(conn) => namespaces::table.find(id).select(Row::as_select()).first(conn).optional()?,
        Conn::Pg(conn) => namespaces::table.find(id).select(Row::as_select()).for_update().first(conn).optional()?,
    };
    Ok(row.map(Namespace::from))
}

/// One namespace by its full path, in whatever case.
pub fn by_full_path(db: &mut Conn, full_path: &str) -> Result<Option<Namespace>> {
    let row: Option<Row> = on!(db, conn => namespaces::table
        .filter(lower(namespaces::full_path).eq(full_path.to_lowercase()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Namespace::from))
}

/// The first group of this name, in whatever case.
pub fn group_by_name(db: &mut Conn, name: &str) -> Result<Option<Namespace>> {
    let row: Option<Row> = on!(db, conn => namespaces::table
        .filter(namespaces::kind.eq(NamespaceKind::Group.as_str()))
        .filter(namespaces::name_key.eq(fold(name)))
        .order(namespaces::id)
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Namespace::from))
}

/// The personal namespace of a user.
pub fn personal(db: &mut Conn, user: i64) -> Result<Option<Namespace>> {
    let row: Option<Row> = on!(db, conn => namespaces::table
        .filter(namespaces::kind.eq(NamespaceKind::User.as_str()))
        .filter(namespaces::owner_id.eq(user))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Namespace::from))
}

/// A page of namespaces, newest first: all of them, or those of the viewer and of the groups to which they belong.
pub fn list(
    db: &mut Conn,
    viewer: &Viewer,
    everything: bool,
    search: Option<&Term>,
    page: Page,
) -> Result<Slice<Namespace>> {
    let matching = || {
        let mut wanted = Fragment::<Bool>::new("TRUE");
        if !everything {
            wanted = wanted
                .sql(" AND (namespaces.id IN (SELECT id FROM namespaces WHERE kind = 'user' AND owner_id = ")
                .number(viewer.user)
                .sql(") OR namespaces.id IN (")
                .then(viewer.my_groups())
                .sql("))");
        }
        if let Some(term) = search {
            wanted = wanted.sql(" AND ").then(term.in_namespace());
        }
        wanted
    };
    let total: i64 = on!(db, conn => namespaces::table.filter(matching()).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => namespaces::table
        .filter(matching())
        .order(namespaces::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Namespace::from).collect(), total, page })
}

/// Whether a full path is in use, in whatever case, by anybody but the given owner.
pub fn is_taken(db: &mut Conn, full_path: &str, except_owner: Option<i64>) -> Result<bool> {
    let owner: Option<Option<i64>> = on!(db, conn => namespaces::table
        .filter(lower(namespaces::full_path).eq(full_path.to_lowercase()))
        .select(namespaces::owner_id)
        .first(conn)
        .optional())?;
    Ok(owner.is_some_and(|owner| owner.is_none() || owner != except_owner))
}

/// Adds the personal namespace of a user.
pub fn insert_personal(db: &mut Conn, user: i64, path: &str, now: Time) -> Result<i64> {
    Ok(on!(db, conn => diesel::insert_into(namespaces::table)
        .values((
            namespaces::kind.eq(NamespaceKind::User.as_str()),
            namespaces::owner_id.eq(user),
            namespaces::name.eq(path),
            namespaces::path.eq(path),
            namespaces::full_path.eq(path),
            namespaces::name_key.eq(fold(path)),
            namespaces::path_key.eq(fold(path)),
            namespaces::created_at.eq(to_micros(now)),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .returning(namespaces::id)
        .get_result(conn))?)
}

/// Renames the personal namespace of a user.
pub fn rename_personal(db: &mut Conn, user: i64, path: &str, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(namespaces::table)
        .filter(namespaces::owner_id.eq(user))
        .filter(namespaces::kind.eq(NamespaceKind::User.as_str()))
        .set((
            namespaces::name.eq(path),
            namespaces::path.eq(path),
            namespaces::full_path.eq(path),
            namespaces::name_key.eq(fold(path)),
            namespaces::path_key.eq(fold(path)),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// The numbers of the namespaces below one, itself not counted.
pub(crate) fn below(db: &mut Conn, id: i64) -> Result<Vec<i64>> {
    let query = || {
        Fragment::<BigInt>::new("SELECT namespace_id FROM namespace_ancestors WHERE ancestor_id = ")
            .number(id)
            .sql(" AND namespace_id <> ")
            .number(id)
    };
    Ok(on!(db, conn => query().load(conn))?)
}
