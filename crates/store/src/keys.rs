//! SSH keys.

use diesel::prelude::*;
use model::{Key, Page, Slice, Time, keys::NewKey};

use crate::{
    Conn, Result,
    conn::on,
    schema::keys,
    times::{from_micros, to_micros},
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
        Self { id, user_id, title, key, fingerprint, created_at: from_micros(created_at) }
    }
}

/// The keys of a user, newest first.
pub fn list(db: &mut Conn, user: i64, page: Page) -> Result<Slice<Key>> {
    let total = on!(db, conn => keys::table.filter(keys::user_id.eq(user)).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => keys::table
        .filter(keys::user_id.eq(user))
        .order(keys::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Key::from).collect(), total, page })
}

/// One key, whosever it is.
pub fn by_id(db: &mut Conn, id: i64) -> Result<Option<Key>> {
    let row: Option<Row> = on!(db, conn => keys::table.find(id).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Key::from))
}

/// One key of a user.
pub fn of_user(db: &mut Conn, user: i64, id: i64) -> Result<Option<Key>> {
    let row: Option<Row> = on!(db, conn => keys::table
        .filter(keys::id.eq(id))
        .filter(keys::user_id.eq(user))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Key::from))
}

/// Whether a key with this fingerprint is in use by anybody.
pub fn is_taken(db: &mut Conn, fingerprint: &str) -> Result<bool> {
    Ok(on!(db, conn => diesel::select(diesel::dsl::exists(
        keys::table.filter(keys::fingerprint.eq(fingerprint)),
    ))
    .get_result(conn))?)
}

/// Adds a key.
pub fn insert(db: &mut Conn, user: i64, new: &NewKey, now: Time) -> Result<Key> {
    let row: Row = on!(db, conn => diesel::insert_into(keys::table)
        .values((
            keys::user_id.eq(user),
            keys::title.eq(&new.title),
            keys::key.eq(&new.key),
            keys::fingerprint.eq(&new.fingerprint),
            keys::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Removes a key.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(keys::table.find(id)).execute(conn))?;
    Ok(())
}
