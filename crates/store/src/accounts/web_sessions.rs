//! Sessions of the web interface, looked up by digest.

use diesel::prelude::*;
use model::{Time, User, UserId, WebSession, WebSessionId, tokens::Digest};

use crate::{
    Conn, Result,
    conn::on,
    schema::{users, web_sessions},
    times::{from_micros, to_micros},
    users::Row as UserRow,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = web_sessions)]
struct Row {
    id: i64,
    user_id: i64,
    created_at: i64,
    last_used_at: i64,
}

impl From<Row> for WebSession {
    fn from(Row { id, user_id, created_at, last_used_at }: Row) -> Self {
        Self {
            id: WebSessionId::new(id),
            user_id: UserId::new(user_id),
            created_at: from_micros(created_at),
            last_used_at: from_micros(last_used_at),
        }
    }
}

/// Returns the session with this digest, valid or not, and its user without identities.
pub fn find(db: &mut Conn, digest: &Digest) -> Result<Option<(WebSession, User)>> {
    let found: Option<(Row, UserRow)> = on!(db, conn => web_sessions::table
        .inner_join(users::table)
        .filter(web_sessions::digest.eq(digest.as_bytes()))
        .select((Row::as_select(), UserRow::as_select()))
        .first(conn)
        .optional())?;
    Ok(found.map(|(session, user)| (session.into(), user.into_user(Vec::new()))))
}

/// Inserts a session.
pub fn insert(db: &mut Conn, user: UserId, digest: &Digest, now: Time) -> Result<()> {
    on!(db, conn => diesel::insert_into(web_sessions::table)
        .values((
            web_sessions::user_id.eq(user.get()),
            web_sessions::digest.eq(digest.as_bytes()),
            web_sessions::created_at.eq(to_micros(now)),
            web_sessions::last_used_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Stores the time of the last request of a session.
pub fn set_last_used(db: &mut Conn, id: WebSessionId, at: Time) -> Result<()> {
    on!(db, conn => diesel::update(web_sessions::table.find(id.get()))
        .set(web_sessions::last_used_at.eq(to_micros(at)))
        .execute(conn))?;
    Ok(())
}

/// Deletes the session of a user with this digest.
pub fn delete(db: &mut Conn, user: UserId, digest: &Digest) -> Result<()> {
    on!(db, conn => diesel::delete(web_sessions::table)
        .filter(web_sessions::user_id.eq(user.get()))
        .filter(web_sessions::digest.eq(digest.as_bytes()))
        .execute(conn))?;
    Ok(())
}

/// Returns all sessions of a user, newest first.
pub fn all_of(db: &mut Conn, user: UserId) -> Result<Vec<WebSession>> {
    let rows: Vec<Row> = on!(db, conn => web_sessions::table
        .filter(web_sessions::user_id.eq(user.get()))
        .order(web_sessions::id.desc())
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(WebSession::from).collect())
}

/// Deletes a session of a user; returns whether there was one.
pub fn delete_by_id(db: &mut Conn, user: UserId, id: WebSessionId) -> Result<bool> {
    let deleted = on!(db, conn => diesel::delete(web_sessions::table.find(id.get()))
        .filter(web_sessions::user_id.eq(user.get()))
        .execute(conn))?;
    Ok(deleted > 0)
}

/// Deletes the sessions of a user except one.
pub fn delete_all_except(db: &mut Conn, user: UserId, except: Option<WebSessionId>) -> Result<()> {
    // No session has this ID.
    let except = except.map_or(0, WebSessionId::get);
    on!(db, conn => diesel::delete(web_sessions::table)
        .filter(web_sessions::user_id.eq(user.get()))
        .filter(web_sessions::id.ne(except))
        .execute(conn))?;
    Ok(())
}

/// Deletes all sessions of a user.
pub fn delete_all_of(db: &mut Conn, user: UserId) -> Result<()> {
    on!(db, conn => diesel::delete(web_sessions::table)
        .filter(web_sessions::user_id.eq(user.get()))
        .execute(conn))?;
    Ok(())
}

/// Deletes the oldest sessions of a user, keeping the newest `keep`.
pub fn delete_oldest(db: &mut Conn, user: UserId, keep: i64) -> Result<()> {
    let oldest_to_keep: Option<i64> = on!(db, conn => web_sessions::table
        .filter(web_sessions::user_id.eq(user.get()))
        .order(web_sessions::id.desc())
        .offset(keep - 1)
        .limit(1)
        .select(web_sessions::id)
        .first(conn)
        .optional())?;
    if let Some(oldest_to_keep) = oldest_to_keep {
        on!(db, conn => diesel::delete(web_sessions::table)
            .filter(web_sessions::user_id.eq(user.get()))
            .filter(web_sessions::id.lt(oldest_to_keep))
            .execute(conn))?;
    }
    Ok(())
}

/// Deletes sessions that were created or last used before these times; returns their number.
pub fn delete_expired(db: &mut Conn, created_before: Time, last_used_before: Time) -> Result<usize> {
    Ok(on!(db, conn => diesel::delete(web_sessions::table.filter(
        web_sessions::created_at
            .lt(to_micros(created_before))
            .or(web_sessions::last_used_at.lt(to_micros(last_used_before))),
    ))
    .execute(conn))?)
}
