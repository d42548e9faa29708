//! Tokens with which others start pipelines. Stored are what they are made of and how they are recognised.

use diesel::prelude::*;
use model::{Page, Slice, Time, projects::Seed, runners::Trigger, tokens::Digest};

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
            id,
            seed: Seed(seed),
            created_at: from_micros(created_at),
            updated_at: from_micros(updated_at),
            last_used: from_micros_opt(last_used),
        }
    }
}

/// The triggers of a project, oldest first.
pub fn list(db: &mut Conn, project: i64, page: Page) -> Result<Slice<Trigger>> {
    let total = count(db, project)?;
    let rows: Vec<Row> = on!(db, conn => ci_triggers::table
        .filter(ci_triggers::project_id.eq(project))
        .order(ci_triggers::id)
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Trigger::from).collect(), total, page })
}

/// How many triggers a project has.
pub fn count(db: &mut Conn, project: i64) -> Result<i64> {
    Ok(on!(db, conn => ci_triggers::table
        .filter(ci_triggers::project_id.eq(project))
        .count()
        .get_result(conn))?)
}

/// The trigger whose token this is, with the project that it belongs to.
pub fn by_token(db: &mut Conn, token: &Digest) -> Result<Option<(i64, Trigger)>> {
    let row: Option<(i64, Row)> = on!(db, conn => ci_triggers::table
        .filter(ci_triggers::digest.eq(token.as_bytes()))
        .select((ci_triggers::project_id, Row::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(|(project, row)| (project, row.into())))
}

/// Adds a trigger whose token is made of the seed.
pub fn insert(db: &mut Conn, project: i64, seed: &Seed, token: &Digest, now: Time) -> Result<Trigger> {
    let row: Row = on!(db, conn => diesel::insert_into(ci_triggers::table)
        .values((
            ci_triggers::project_id.eq(project),
            ci_triggers::seed.eq(&seed.0),
            ci_triggers::digest.eq(token.as_bytes()),
            ci_triggers::created_at.eq(to_micros(now)),
            ci_triggers::updated_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Notes that a trigger was used; whether it is still there.
pub fn note_use(db: &mut Conn, id: i64, now: Time) -> Result<bool> {
    let noted = on!(db, conn => diesel::update(ci_triggers::table.find(id))
        .set(ci_triggers::last_used.eq(to_micros(now)))
        .execute(conn))?;
    Ok(noted > 0)
}

/// Removes a trigger; what it has started stays.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(ci_triggers::table.find(id)).execute(conn))?;
    Ok(())
}
