//! The queue of background tasks, in the table `jobs`.

use diesel::prelude::*;
use model::{TaskId, Time, tasks::TaskRecord};

use crate::{
    Conn, Result,
    conn::on,
    constant::constant,
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
            id: TaskId::new(id),
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

/// Enqueues a task; of tasks with the same singleton name only one is pending at a time.
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

/// Makes a pending task with this singleton name due now.
pub fn expedite(db: &mut Conn, singleton: &str, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table)
        .filter(jobs::singleton.eq(singleton))
        .filter(jobs::run_at.gt(to_micros(now)))
        .set(jobs::run_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// Returns the ids of tasks that are due and not leased, longest due first.
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

/// Returns whether a task is due.
pub fn is_due(db: &mut Conn, now: Time) -> Result<bool> {
    let first: Option<i64> = on!(db, conn => due(now).first(conn).optional())?;
    Ok(first.is_some())
}

/// Leases the task that has been due for longest and counts the attempt.
pub fn claim(db: &mut Conn, now: Time, lease_until: Time) -> Result<Option<TaskRecord>> {
    // SQLite has one writer; on PostgreSQL several nodes may claim concurrently.
    let id: Option<i64> = match db {
        Conn::Sqlite(conn) => due(now).first(conn).optional()?,
        Conn::Pg(conn) => due(now).for_update().skip_locked().first(conn).optional()?,
    };
    let Some(id) = id else { return Ok(None) };
    let row: Row = on!(db, conn => constant!(diesel::update(jobs::table.find(id))
        .set((jobs::leased_until.eq(to_micros(lease_until)), jobs::attempts.eq(jobs::attempts + 1)))
        .returning(Row::as_returning()))
        .get_result(conn))?;
    Ok(Some(row.into()))
}

/// Ends all leases; for a start at which no worker is running.
pub fn release_all(db: &mut Conn) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.filter(jobs::leased_until.is_not_null()))
        .set(jobs::leased_until.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}

/// Schedules the next run of a recurring task and resets its attempts and its error.
pub fn reschedule(db: &mut Conn, id: TaskId, run_at: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id.get()))
        .set((
            jobs::run_at.eq(to_micros(run_at)),
            jobs::leased_until.eq(None::<i64>),
            jobs::attempts.eq(0),
            jobs::last_error.eq(None::<String>),
        ))
        .execute(conn))?;
    Ok(())
}

/// Deletes a task that is done.
pub fn delete(db: &mut Conn, id: TaskId) -> Result<()> {
    on!(db, conn => diesel::delete(jobs::table.find(id.get())).execute(conn))?;
    Ok(())
}

/// Deletes the pending task with this singleton name; one that failed permanently is kept.
pub fn delete_singleton(db: &mut Conn, singleton: &str) -> Result<()> {
    on!(db, conn => diesel::delete(jobs::table)
        .filter(jobs::singleton.eq(singleton))
        .filter(jobs::dead_at.is_null())
        .execute(conn))?;
    Ok(())
}

/// Returns whether a task with this singleton name is pending.
pub fn is_pending(db: &mut Conn, singleton: &str) -> Result<bool> {
    let found = on!(db, conn => jobs::table
        .filter(jobs::singleton.eq(singleton))
        .filter(jobs::dead_at.is_null())
        .select(jobs::id)
        .first::<i64>(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Extends the lease of a running task.
pub fn renew(db: &mut Conn, id: TaskId, until: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id.get()))
        .filter(jobs::leased_until.is_not_null())
        .set(jobs::leased_until.eq(to_micros(until)))
        .execute(conn))?;
    Ok(())
}

/// Takes back the last counted attempt.
pub fn refund_attempt(db: &mut Conn, id: TaskId) -> Result<()> {
    on!(db, conn => {
        diesel::update(jobs::table.find(id.get())).set(jobs::attempts.eq(jobs::attempts - 1)).execute(conn)
    })?;
    Ok(())
}

/// Records a failed attempt and when to retry.
pub fn fail(db: &mut Conn, id: TaskId, error: &str, run_at: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id.get()))
        .set((
            jobs::run_at.eq(to_micros(run_at)),
            jobs::leased_until.eq(None::<i64>),
            jobs::last_error.eq(error),
        ))
        .execute(conn))?;
    Ok(())
}

/// Marks a task as failed permanently; it is kept for the operator to inspect and retry.
pub fn mark_dead(db: &mut Conn, id: TaskId, error: &str, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(jobs::table.find(id.get()))
        .set((jobs::dead_at.eq(to_micros(now)), jobs::leased_until.eq(None::<i64>), jobs::last_error.eq(error)))
        .execute(conn))?;
    Ok(())
}

/// Makes a task that failed permanently pending again; returns whether there was one. If a task with its singleton name is
/// already pending, that one becomes due now and the failed one is deleted.
pub fn retry_dead(db: &mut Conn, id: TaskId, now: Time) -> Result<bool> {
    let singleton: Option<Option<String>> = on!(db, conn => jobs::table
        .find(id.get())
        .filter(jobs::dead_at.is_not_null())
        .select(jobs::singleton)
        .first(conn)
        .optional())?;
    if let Some(Some(singleton)) = singleton {
        let rescheduled = on!(db, conn => diesel::update(jobs::table)
            .filter(jobs::singleton.eq(singleton))
            .filter(jobs::dead_at.is_null())
            .set(jobs::run_at.eq(to_micros(now)))
            .execute(conn))?;
        if rescheduled > 0 {
            on!(db, conn => diesel::delete(jobs::table.find(id.get())).execute(conn))?;
            return Ok(true);
        }
    }
    let changed = on!(db, conn => diesel::update(jobs::table.find(id.get()))
        .filter(jobs::dead_at.is_not_null())
        .set((jobs::dead_at.eq(None::<i64>), jobs::attempts.eq(0), jobs::run_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(changed > 0)
}

/// Returns up to `limit` tasks, those that failed permanently first.
pub fn list(db: &mut Conn, limit: i64) -> Result<Vec<TaskRecord>> {
    let rows: Vec<Row> = on!(db, conn => jobs::table
        .order((jobs::dead_at.is_null(), jobs::run_at, jobs::id))
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(TaskRecord::from).collect())
}

/// Returns the numbers of pending tasks and of those that failed permanently.
pub fn count(db: &mut Conn) -> Result<(i64, i64)> {
    let pending = on!(db, conn => jobs::table.filter(jobs::dead_at.is_null()).count().get_result(conn))?;
    let dead = on!(db, conn => jobs::table.filter(jobs::dead_at.is_not_null()).count().get_result(conn))?;
    Ok((pending, dead))
}
