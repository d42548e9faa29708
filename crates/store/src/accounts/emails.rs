//! Addresses: the primary one of each user and the further ones share one table, so that none is held twice.

use diesel::prelude::*;
use model::{Email, Page, Slice, Time};

use crate::{
    Conn, Result,
    conn::on,
    schema::emails,
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = emails)]
struct Row {
    id: i64,
    user_id: i64,
    email: String,
    created_at: i64,
}

impl From<Row> for Email {
    fn from(Row { id, user_id, email, created_at }: Row) -> Self {
        Self { id, user_id, email, created_at: from_micros(created_at) }
    }
}

/// Who holds an address, and whether it is the primary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Whose it is.
    pub user_id: i64,
    /// Whether it is that user's primary address.
    pub is_primary: bool,
}

/// The further addresses of a user, newest first.
pub fn list(db: &mut Conn, user: i64, page: Page) -> Result<Slice<Email>> {
    let total = on!(db, conn => emails::table
        .filter(emails::user_id.eq(user))
        .filter(emails::is_primary.eq(false))
        .count()
        .get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => emails::table
        .filter(emails::user_id.eq(user))
        .filter(emails::is_primary.eq(false))
        .order(emails::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Email::from).collect(), total, page })
}

/// One further address of a user.
pub fn of_user(db: &mut Conn, user: i64, id: i64) -> Result<Option<Email>> {
    let row: Option<Row> = on!(db, conn => emails::table
        .filter(emails::id.eq(id))
        .filter(emails::user_id.eq(user))
        .filter(emails::is_primary.eq(false))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Email::from))
}

/// Who holds an address.
pub fn holder(db: &mut Conn, email: &str) -> Result<Option<Holder>> {
    let row: Option<(i64, bool)> = on!(db, conn => emails::table
        .filter(emails::email.eq(email))
        .select((emails::user_id, emails::is_primary))
        .first(conn)
        .optional())?;
    Ok(row.map(|(user_id, is_primary)| Holder { user_id, is_primary }))
}

/// Adds an address.
pub fn insert(db: &mut Conn, user: i64, email: &str, is_primary: bool, now: Time) -> Result<Email> {
    let row: Row = on!(db, conn => diesel::insert_into(emails::table)
        .values((
            emails::user_id.eq(user),
            emails::email.eq(email),
            emails::is_primary.eq(is_primary),
            emails::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Makes one of the user's own further addresses the primary one; the old primary one becomes a further address.
pub fn make_primary(db: &mut Conn, user: i64, email: &str) -> Result<()> {
    on!(db, conn => diesel::update(emails::table.filter(emails::user_id.eq(user)).filter(emails::is_primary.eq(true)))
        .set(emails::is_primary.eq(false))
        .execute(conn))?;
    on!(db, conn => diesel::update(emails::table.filter(emails::user_id.eq(user)).filter(emails::email.eq(email)))
        .set(emails::is_primary.eq(true))
        .execute(conn))?;
    Ok(())
}

/// Replaces the primary address.
pub fn replace_primary(db: &mut Conn, user: i64, email: &str) -> Result<()> {
    on!(db, conn => diesel::update(emails::table.filter(emails::user_id.eq(user)).filter(emails::is_primary.eq(true)))
        .set(emails::email.eq(email))
        .execute(conn))?;
    Ok(())
}

/// Removes a further address.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(emails::table.filter(emails::id.eq(id)).filter(emails::is_primary.eq(false)))
        .execute(conn))?;
    Ok(())
}
