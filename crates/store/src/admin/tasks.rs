//! The table of background work.

use diesel::prelude::*;
use model::{Time, tasks::TaskRecord};

use crate::{
    Conn, Result,
    conn::on,
    schema::jobs,
    times::{from_micros, from_micros_opt, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs)]
struct Row {
    id: i64,
    kind: String,
    payload: String,
    attempts: i32,
    run_at: i64,
    leased_until: Option<i64>,
    dead_at: Option<i64>,
    last_error: Option<String>,
    created_at: i64,
}

impl From<Row> for TaskRecord {
    fn from(row: Row) -> Self {
        let Row { id, kind, payload, attempts, run_at, leased_until, dead_at, last_error, created_at } = row;
        Self {
            id,
            kind,
            payload,
            attempts,
            run_at: from_micros(run_at),
            leased_until: from_micros_opt(leased_until),
            dead_at: from_micros_opt(dead_at),
            last_error,
            created_at: from_micros(created_at),
        }
    }
}

/// Adds a job; of jobs with the same singleton only one waits at a time.
pub fn insert(
    db: &mut Conn,
    kind: &str,
    payload: &str,
    singleton: Option<&str>,
    run_at: Time,
    now: Time,
) -> Result<()> {
    on!(db, conn => diesel::insert_into(jobs::table)
        .values((
            jobs::kind.eq(kind),
            jobs::payload.eq(payload),
            jobs::singleton.eq(singleton),
            jobs::run_at.eq(to_micros(run_at)),
            jobs::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(())
}

/// The numbers of jobs that are due and that no worker has, longest due first.
#[diesel::dsl::auto_type(no_type_alias)]
fn due(now: Time) -> _ {
    let now: i64 = to_micros(now);
    jobs::table
        .filter(jobs::dead_at.is_null())
        .filter(jobs::run_at.le(now))
        .filter(jobs::leased_until.is_null().or(jobs::leased_until.lt(now)))
        .order((jobs::run_at, jobs::id))
        .select(jobs::id)
}

/// Whether a job is due.
pub fn is_due(db: &mut Conn, now: Time) -> Result<bool> {
    let first: Option<i64> = on!(db, conn => due(now).first(conn).optional())?;
    Ok(first.is_some())
}

/// Takes the job that has been due for longest, until the lease ends; counts the attempt.
pub fn claim(db: &mut Conn, now: Time, lease_until: Time) -> Result<Option<TaskRecord>> {
    // SQLite has one writer; on PostgreSQL several nodes may look at the same moment.
    let id: Option<i64> = match db {
        Conn::Sqlite(conn) => due(now).first(conn).optional()?,
        Conn::Pg(conn) => due(now).for_update().skip_locked().first(conn).optional()?,
    };
    let Some(id) = id else { return Ok(None) };
    let row: Row = on!(db, conn => diesel::update(jobs::table.find(id))
        .set((jobs::leased_until.eq(to_micros(lease_until)), jobs::attempts.eq(jobs::attempts + 1)))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(Some(row.into()))
}

/// Takes all jobs back from workers that are known to be dead.
pub fn release_all(db: &mut Conn) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.filter(jobs::leased_until.is_not_null()))
        .set(jobs::leased_until.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}

/// Lets a job wait for its next round, with a clean record.
pub fn reschedule(db: &mut Conn, id: i64, run_at: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id))
        .set((
            jobs::run_at.eq(to_micros(run_at)),
            jobs::leased_until.eq(None::<i64>),
            jobs::attempts.eq(0),
            jobs::last_error.eq(None::<String>),
        ))
        .execute(conn))?;
    Ok(())
}

/// Forgets a job that is done.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(jobs::table.find(id)).execute(conn))?;
    Ok(())
}

/// Forgets the job that waits under this name, unless it was given up.
pub fn delete_singleton(db: &mut Conn, singleton: &str) -> Result<()> {
    on!(db, conn => diesel::delete(jobs::table)
        .filter(jobs::singleton.eq(singleton))
        .filter(jobs::dead_at.is_null())
        .execute(conn))?;
    Ok(())
}

/// Whether a job waits under this name and was not given up.
pub fn is_waiting(db: &mut Conn, singleton: &str) -> Result<bool> {
    let found = on!(db, conn => jobs::table
        .filter(jobs::singleton.eq(singleton))
        .filter(jobs::dead_at.is_null())
        .select(jobs::id)
        .first::<i64>(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Lets a worker that is still at it keep its job.
pub fn renew(db: &mut Conn, id: i64, until: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id))
        .filter(jobs::leased_until.is_not_null())
        .set(jobs::leased_until.eq(to_micros(until)))
        .execute(conn))?;
    Ok(())
}

/// Takes back that an attempt counts.
pub fn uncount(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => {
        diesel::update(jobs::table.find(id)).set(jobs::attempts.eq(jobs::attempts - 1)).execute(conn)
    })?;
    Ok(())
}

/// Notes that a job failed and when it is tried again.
pub fn fail(db: &mut Conn, id: i64, error: &str, run_at: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id))
        .set((
            jobs::run_at.eq(to_micros(run_at)),
            jobs::leased_until.eq(None::<i64>),
            jobs::last_error.eq(error),
        ))
        .execute(conn))?;
    Ok(())
}

/// Gives a job up; it stays for the operator to see and retry.
pub fn bury(db: &mut Conn, id: i64, error: &str, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id))
        .set((jobs::dead_at.eq(to_micros(now)), jobs::leased_until.eq(None::<i64>), jobs::last_error.eq(error)))
        .execute(conn))?;
    Ok(())
}

/// Brings a job that was given up back; says whether there was one. If its successor waits already, that one is due now
/// and the old one is forgotten.
pub fn revive(db: &mut Conn, id: i64, now: Time) -> Result<bool> {
    let singleton: Option<Option<String>> = on!(db, conn => jobs::table
        .find(id)
        .filter(jobs::dead_at.is_not_null())
        .select(jobs::singleton)
        .first(conn)
        .optional())?;
    if let Some(Some(singleton)) = singleton {
        let hastened = on!(db, conn => diesel::update(jobs::table)
            .filter(jobs::singleton.eq(singleton))
            .filter(jobs::dead_at.is_null())
            .set(jobs::run_at.eq(to_micros(now)))
            .execute(conn))?;
        if hastened > 0 {
            on!(db, conn => diesel::delete(jobs::table.find(id)).execute(conn))?;
            return Ok(true);
        }
    }
    let changed = on!(db, conn => diesel::update(jobs::table.find(id))
        .filter(jobs::dead_at.is_not_null())
        .set((jobs::dead_at.eq(None::<i64>), jobs::attempts.eq(0), jobs::run_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(changed > 0)
}

/// All jobs, those that were given up first.
pub fn list(db: &mut Conn, most: i64) -> Result<Vec<TaskRecord>> {
    let rows: Vec<Row> = on!(db, conn => jobs::table
        .order((jobs::dead_at.is_null(), jobs::run_at, jobs::id))
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(TaskRecord::from).collect())
}

/// How many jobs wait, and how many were given up.
pub fn count(db: &mut Conn) -> Result<(i64, i64)> {
    let waiting = on!(db, conn => jobs::table.filter(jobs::dead_at.is_null()).count().get_result(conn))?;
    let dead = on!(db, conn => jobs::table.filter(jobs::dead_at.is_not_null()).count().get_result(conn))?;
    Ok((waiting, dead))
}
