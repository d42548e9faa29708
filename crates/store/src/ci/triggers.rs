//! Trigger tokens, which start pipelines. Only the seed and the digest of a token are stored.

use diesel::prelude::*;
use model::{Page, ProjectId, Slice, Time, TriggerId, projects::TokenSeed, tokens::Digest, triggers::Trigger};

use crate::{
    Conn, Result,
    conn::on,
    schema::ci_triggers,
    times::{from_micros, from_micros_opt, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = ci_triggers)]
struct Row {
    id: i64,
    seed: Vec<u8>,
    created_at: i64,
    updated_at: i64,
    last_used: Option<i64>,
}

impl From<Row> for Trigger {
    fn from(Row { id, seed, created_at, updated_at, last_used }: Row) -> Self {
        Self {
            id: TriggerId::new(id),
            seed: TokenSeed(seed),
            created_at: from_micros(created_at),
            updated_at: from_micros(updated_at),
            last_used: from_micros_opt(last_used),
        }
    }
}

/// Returns a page of the triggers of a project, oldest first.
pub fn list(db: &mut Conn, project: ProjectId, page: Page) -> Result<Slice<Trigger>> {
    let total = count(db, project)?;
    let rows: Vec<Row> = on!(db, conn => ci_triggers::table
        .filter(ci_triggers::project_id.eq(project.get()))
        .order(ci_triggers::id)
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Trigger::from).collect(), total: total.into(), page })
}

/// Counts the triggers of a project.
pub fn count(db: &mut Conn, project: ProjectId) -> Result<i64> {
    Ok(on!(db, conn => ci_triggers::table
        .filter(ci_triggers::project_id.eq(project.get()))
        .count()
        .get_result(conn))?)
}

/// Returns the trigger with this token, and its project.
pub fn by_token(db: &mut Conn, token: &Digest) -> Result<Option<(ProjectId, Trigger)>> {
    let row: Option<(i64, Row)> = on!(db, conn => ci_triggers::table
        .filter(ci_triggers::digest.eq(token.as_bytes()))
        .select((ci_triggers::project_id, Row::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(|(project, row)| (ProjectId::new(project), row.into())))
}

/// Returns a trigger of a project.
pub fn by_id(db: &mut Conn, project: ProjectId, id: TriggerId) -> Result<Option<Trigger>> {
    let row: Option<Row> = on!(db, conn => ci_triggers::table
        .find(id.get())
        .filter(ci_triggers::project_id.eq(project.get()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Trigger::from))
}

/// Inserts a trigger whose token is derived from the seed.
pub fn insert(db: &mut Conn, project: ProjectId, seed: &TokenSeed, token: &Digest, now: Time) -> Result<Trigger> {
    let row: Row = on!(db, conn => diesel::insert_into(ci_triggers::table)
        .values((
            ci_triggers::project_id.eq(project.get()),
            ci_triggers::seed.eq(&seed.0),
            ci_triggers::digest.eq(token.as_bytes()),
            ci_triggers::created_at.eq(to_micros(now)),
            ci_triggers::updated_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Records the use of a trigger; returns whether it still exists.
pub fn record_use(db: &mut Conn, id: TriggerId, now: Time) -> Result<bool> {
    let updated = on!(db, conn => diesel::update(ci_triggers::table.find(id.get()))
        .set(ci_triggers::last_used.eq(to_micros(now)))
        .execute(conn))?;
    Ok(updated > 0)
}

/// Deletes a trigger; its pipelines stay.
pub fn delete(db: &mut Conn, id: TriggerId) -> Result<()> {
    on!(db, conn => diesel::delete(ci_triggers::table.find(id.get())).execute(conn))?;
    Ok(())
}
