//! Files that were sent to projects: a row comes before its file and goes after it.

use diesel::{dsl::not, prelude::*};
use model::{Time, Upload, tokens::Secret};

use crate::{
    Conn, Result,
    conn::on,
    schema::uploads,
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = uploads)]
struct Row {
    id: i64,
    project_id: i64,
    user_id: i64,
    secret: String,
    name: String,
    size: Option<i64>,
    created_at: i64,
}

impl From<Row> for Upload {
    fn from(Row { id, project_id, user_id, secret, name, size, created_at }: Row) -> Self {
        Self {
            id,
            project_id,
            user_id,
            secret: Secret::new(secret),
            name,
            size: size.and_then(|size| u64::try_from(size).ok()),
            created_at: from_micros(created_at),
        }
    }
}

/// Adds an upload that is under way.
pub fn insert(db: &mut Conn, project: i64, user: i64, secret: &Secret, name: &str, now: Time) -> Result<Upload> {
    let row: Row = on!(db, conn => diesel::insert_into(uploads::table)
        .values((
            uploads::project_id.eq(project),
            uploads::user_id.eq(user),
            uploads::secret.eq(secret.reveal()),
            uploads::name.eq(name),
            uploads::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Notes that an upload is whole; `None` if it is no longer under way.
pub fn complete(db: &mut Conn, id: i64, size: u64) -> Result<Option<Upload>> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let row: Option<Row> = on!(db, conn => diesel::update(uploads::table.find(id).filter(not(uploads::complete)))
        .set((uploads::size.eq(size), uploads::complete.eq(true)))
        .returning(Row::as_returning())
        .get_result(conn)
        .optional())?;
    Ok(row.map(Upload::from))
}

/// A whole upload of a project by what stands in its URL.
pub fn by_secret(db: &mut Conn, project: i64, secret: &str) -> Result<Option<Upload>> {
    let row: Option<Row> = on!(db, conn => uploads::table
        .filter(uploads::secret.eq(secret))
        .filter(uploads::project_id.eq(project))
        .filter(uploads::complete)
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Upload::from))
}

/// Some uploads that are under way since before a moment, oldest first.
pub fn begun_before(db: &mut Conn, moment: Time, most: i64) -> Result<Vec<Upload>> {
    let rows: Vec<Row> = on!(db, conn => uploads::table
        .filter(not(uploads::complete))
        .filter(uploads::created_at.lt(to_micros(moment)))
        .order(uploads::created_at)
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Upload::from).collect())
}

/// Some uploads of a project, those aside that are under way since this moment or later.
pub fn of_project(db: &mut Conn, project: i64, moment: Time, most: i64) -> Result<Vec<Upload>> {
    let rows: Vec<Row> = on!(db, conn => uploads::table
        .filter(uploads::project_id.eq(project))
        .filter(uploads::complete.or(uploads::created_at.lt(to_micros(moment))))
        .order(uploads::id)
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Upload::from).collect())
}

/// Whether a project has an upload, whole or not.
pub fn exist_in(db: &mut Conn, project: i64) -> Result<bool> {
    let first: Option<i64> = on!(db, conn => uploads::table
        .filter(uploads::project_id.eq(project))
        .select(uploads::id)
        .first(conn)
        .optional())?;
    Ok(first.is_some())
}

/// Removes uploads, whose files are gone.
pub fn delete(db: &mut Conn, ids: &[i64]) -> Result<()> {
    on!(db, conn => diesel::delete(uploads::table.filter(uploads::id.eq_any(ids))).execute(conn))?;
    Ok(())
}
