//! E-mail addresses: primary and secondary ones share one table, so that every address is unique.

use diesel::prelude::*;
use model::{Email, EmailId, Page, Slice, Time, UserId, UserState};

use crate::{
    Conn, Result,
    conn::on,
    schema::{emails, users},
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
        Self { id: EmailId::new(id), user_id: UserId::new(user_id), email, created_at: from_micros(created_at) }
    }
}

/// The user who has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The ID of the user.
    pub user_id: UserId,
    /// Whether it is the user's primary address.
    pub is_primary: bool,
}

/// Lists the secondary addresses of a user, newest first.
pub fn list(db: &mut Conn, user: UserId, page: Page) -> Result<Slice<Email>> {
    let total: i64 = on!(db, conn => emails::table
        .filter(emails::user_id.eq(user.get()))
        .filter(emails::is_primary.eq(false))
        .count()
        .get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => emails::table
        .filter(emails::user_id.eq(user.get()))
        .filter(emails::is_primary.eq(false))
        .order(emails::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Email::from).collect(), total: total.into(), page })
}

/// Returns a secondary address of a user.
pub fn of_user(db: &mut Conn, user: UserId, id: EmailId) -> Result<Option<Email>> {
    let row: Option<Row> = on!(db, conn => emails::table
        .filter(emails::id.eq(id.get()))
        .filter(emails::user_id.eq(user.get()))
        .filter(emails::is_primary.eq(false))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Email::from))
}

/// Returns the user who has an address.
pub fn holder(db: &mut Conn, email: &str) -> Result<Option<Holder>> {
    let row: Option<(i64, bool)> = on!(db, conn => emails::table
        .filter(emails::email.eq(email))
        .select((emails::user_id, emails::is_primary))
        .first(conn)
        .optional())?;
    Ok(row.map(|(user_id, is_primary)| Holder { user_id: UserId::new(user_id), is_primary }))
}

/// Returns the primary addresses among these that belong to active users with a confirmed address, and their usernames.
pub fn usernames(db: &mut Conn, addresses: &[String]) -> Result<Vec<(String, String)>> {
    let rows = on!(db, conn => emails::table
        .inner_join(users::table)
        .filter(emails::email.eq_any(addresses))
        .filter(emails::is_primary.eq(true))
        .filter(users::state.eq(UserState::Active.as_str()))
        .filter(users::confirmed_at.is_not_null())
        .select((emails::email, users::username))
        .load(conn))?;
    Ok(rows)
}

/// Inserts an address.
pub fn insert(db: &mut Conn, user: UserId, email: &str, is_primary: bool, now: Time) -> Result<Email> {
    let row: Row = on!(db, conn => diesel::insert_into(emails::table)
        .values((
            emails::user_id.eq(user.get()),
            emails::email.eq(email),
            emails::is_primary.eq(is_primary),
            emails::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Makes a secondary address of the user the primary one, and the old primary one secondary.
pub fn make_primary(db: &mut Conn, user: UserId, email: &str) -> Result<()> {
    on!(db, conn => diesel::update(emails::table)
        .filter(emails::user_id.eq(user.get()))
        .filter(emails::is_primary.eq(true))
        .set(emails::is_primary.eq(false))
        .execute(conn))?;
    on!(db, conn => diesel::update(emails::table)
        .filter(emails::user_id.eq(user.get()))
        .filter(emails::email.eq(email))
        .set(emails::is_primary.eq(true))
        .execute(conn))?;
    Ok(())
}

/// Replaces the primary address.
pub fn replace_primary(db: &mut Conn, user: UserId, email: &str) -> Result<()> {
    on!(db, conn => diesel::update(emails::table)
        .filter(emails::user_id.eq(user.get()))
        .filter(emails::is_primary.eq(true))
        .set(emails::email.eq(email))
        .execute(conn))?;
    Ok(())
}

/// Deletes a secondary address.
pub fn delete(db: &mut Conn, id: EmailId) -> Result<()> {
    on!(db, conn => diesel::delete(emails::table.filter(emails::id.eq(id.get())).filter(emails::is_primary.eq(false)))
        .execute(conn))?;
    Ok(())
}
