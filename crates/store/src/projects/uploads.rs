//! Files uploaded to projects: a row is inserted before its file is written and deleted after it.

use diesel::{dsl::not, prelude::*};
use model::{ProjectId, Time, Upload, UploadId, UserId, tokens::Secret};

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
            id: UploadId::new(id),
            project_id: ProjectId::new(project_id),
            user_id: UserId::new(user_id),
            secret: Secret::new(secret),
            name,
            size: size.and_then(|size| u64::try_from(size).ok()),
            created_at: from_micros(created_at),
        }
    }
}

/// Inserts an unfinished upload.
pub fn insert(
    db: &mut Conn,
    project: ProjectId,
    user: UserId,
    secret: &Secret,
    name: &str,
    now: Time,
) -> Result<Upload> {
    let row: Row = on!(db, conn => diesel::insert_into(uploads::table)
        .values((
            uploads::project_id.eq(project.get()),
            uploads::user_id.eq(user.get()),
            uploads::secret.eq(secret.reveal()),
            uploads::name.eq(name),
            uploads::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Marks an upload as complete; returns `None` if it is not unfinished.
pub fn complete(db: &mut Conn, id: UploadId, size: u64) -> Result<Option<Upload>> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let row: Option<Row> = on!(db, conn => diesel::update(uploads::table.find(id.get()).filter(not(uploads::complete)))
        .set((uploads::size.eq(size), uploads::complete.eq(true)))
        .returning(Row::as_returning())
        .get_result(conn)
        .optional())?;
    Ok(row.map(Upload::from))
}

/// Returns a complete upload of a project by the secret in its URL.
pub fn by_secret(db: &mut Conn, project: ProjectId, secret: &str) -> Result<Option<Upload>> {
    let row: Option<Row> = on!(db, conn => uploads::table
        .filter(uploads::secret.eq(secret))
        .filter(uploads::project_id.eq(project.get()))
        .filter(uploads::complete)
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Upload::from))
}

/// Returns some unfinished uploads that started before a time, oldest first.
pub fn unfinished_before(db: &mut Conn, before: Time, limit: i64) -> Result<Vec<Upload>> {
    let rows: Vec<Row> = on!(db, conn => uploads::table
        .filter(not(uploads::complete))
        .filter(uploads::created_at.lt(to_micros(before)))
        .order(uploads::created_at)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Upload::from).collect())
}

/// Returns some uploads of a project, except unfinished ones that started at this time or later.
pub fn of_project(db: &mut Conn, project: ProjectId, before: Time, limit: i64) -> Result<Vec<Upload>> {
    let rows: Vec<Row> = on!(db, conn => uploads::table
        .filter(uploads::project_id.eq(project.get()))
        .filter(uploads::complete.or(uploads::created_at.lt(to_micros(before))))
        .order(uploads::id)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Upload::from).collect())
}

/// Returns whether a project has an upload, complete or not.
pub fn exist_in(db: &mut Conn, project: ProjectId) -> Result<bool> {
    let first: Option<i64> = on!(db, conn => uploads::table
        .filter(uploads::project_id.eq(project.get()))
        .select(uploads::id)
        .first(conn)
        .optional())?;
    Ok(first.is_some())
}

/// Deletes uploads whose files are deleted.
pub fn delete(db: &mut Conn, ids: &[UploadId]) -> Result<()> {
    on!(db, conn => diesel::delete(uploads::table)
        .filter(uploads::id.eq_any(ids.iter().copied().map(UploadId::get)))
        .execute(conn))?;
    Ok(())
}
