//! SSH keys of users.

use diesel::{prelude::*, sql_types::Integer};
use model::{Key, KeyId, Page, Slice, Time, User, UserId, keys::NewKey};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{deploy_keys, keys},
    times::{from_micros, to_micros},
    users,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = keys)]
struct Row {
    id: i64,
    user_id: i64,
    title: String,
    key: String,
    fingerprint: String,
    created_at: i64,
}

impl From<Row> for Key {
    fn from(Row { id, user_id, title, key, fingerprint, created_at }: Row) -> Self {
        Self {
            id: KeyId::new(id),
            user_id: UserId::new(user_id),
            title,
            key,
            fingerprint,
            created_at: from_micros(created_at),
        }
    }
}

/// Lists the keys of a user, newest first.
pub fn list(db: &mut Conn, user: UserId, page: Page) -> Result<Slice<Key>> {
    let total: i64 = on!(db, conn => keys::table.filter(keys::user_id.eq(user.get())).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => keys::table
        .filter(keys::user_id.eq(user.get()))
        .order(keys::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Key::from).collect(), total: total.into(), page })
}

/// Returns all keys of a user, oldest first.
pub fn all_of(db: &mut Conn, user: UserId) -> Result<Vec<Key>> {
    let rows: Vec<Row> = on!(db, conn => keys::table
        .filter(keys::user_id.eq(user.get()))
        .order(keys::id)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Key::from).collect())
}

/// Returns a key of any user.
pub fn by_id(db: &mut Conn, id: KeyId) -> Result<Option<Key>> {
    let row: Option<Row> = on!(db, conn => keys::table.find(id.get()).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Key::from))
}

/// Returns a key of a user.
pub fn of_user(db: &mut Conn, user: UserId, id: KeyId) -> Result<Option<Key>> {
    let row: Option<Row> = on!(db, conn => keys::table
        .filter(keys::id.eq(id.get()))
        .filter(keys::user_id.eq(user.get()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Key::from))
}

/// Returns the user whose key has this fingerprint.
pub fn holder(db: &mut Conn, fingerprint: &str) -> Result<Option<User>> {
    let user: Option<i64> = on!(db, conn => keys::table
        .filter(keys::fingerprint.eq(fingerprint))
        .select(keys::user_id)
        .first(conn)
        .optional())?;
    user.map_or(Ok(None), |user| users::by_id(db, UserId::new(user)))
}

/// Returns whether a user key or a deploy key has this fingerprint. Locks the fingerprint until the transaction ends, because
/// no index enforces uniqueness across the two tables.
pub fn is_taken(db: &mut Conn, fingerprint: &str) -> Result<bool> {
    if let Conn::Pg(conn) = db {
        let lock = Fragment::<Integer>::new("SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended(");
        let _: Option<i32> = lock.text(fingerprint).sql(", 0))) locked").get_result(conn).optional()?;
    }
    Ok(on!(db, conn => diesel::select(
        diesel::dsl::exists(keys::table.filter(keys::fingerprint.eq(fingerprint)))
            .or(diesel::dsl::exists(deploy_keys::table.filter(deploy_keys::fingerprint.eq(fingerprint)))),
    )
    .get_result(conn))?)
}

/// Inserts a key.
pub fn insert(db: &mut Conn, user: UserId, new: &NewKey, now: Time) -> Result<Key> {
    let row: Row = on!(db, conn => diesel::insert_into(keys::table)
        .values((
            keys::user_id.eq(user.get()),
            keys::title.eq(&new.title),
            keys::key.eq(&new.key),
            keys::fingerprint.eq(&new.fingerprint),
            keys::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Deletes a key.
pub fn delete(db: &mut Conn, id: KeyId) -> Result<()> {
    on!(db, conn => diesel::delete(keys::table.find(id.get())).execute(conn))?;
    Ok(())
}
