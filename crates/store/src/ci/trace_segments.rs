//! Traces of instances without a folder of traces. A trace is a sequence of segments, whose bytes are in their rows or in
//! objects of the file store.
//!
//! A transaction that changes the segments of a job locks the row of its run first, so that such transactions wait for each
//! other. The row of an object is inserted before the object is written and deleted after it.

use std::ops::Range;

use diesel::{
    dsl::{max, min},
    prelude::*,
    sql_types::BigInt,
};
use model::{JobId, ProjectId, StorageId, Time, TraceObjectId};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    job_runs::JobRun,
    schema::{build_runs, builds, trace_objects, trace_segments},
    times::to_micros,
};

/// The maximum size of the content of one row; longer content is split.
const MAX_CONTENT_BYTES: usize = 128 << 10;
/// The maximum number of segments that are listed at a time.
const MAX_LISTED: i64 = 256;

/// An object of the file store that holds a part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceObject {
    /// The id of its row.
    pub id: TraceObjectId,
    /// The random part of its key.
    pub storage: StorageId,
}

/// A part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracePart {
    /// Bytes that are in the database.
    Bytes(Vec<u8>),
    /// The rest of an object, from an offset within it.
    Object {
        /// The object.
        object: TraceObject,
        /// The bytes of the object that belong to the part.
        range: Range<u64>,
    },
}

/// Adds bytes to the end of a trace.
pub fn insert(db: &mut Conn, job: JobId, start: u64, bytes: &[u8]) -> Result<()> {
    let mut start = to_number(start);
    for content in bytes.chunks(MAX_CONTENT_BYTES) {
        let size = to_number(content.len() as u64);
        on!(db, conn => diesel::insert_into(trace_segments::table)
            .values((
                trace_segments::job_id.eq(job.get()),
                trace_segments::start.eq(start),
                trace_segments::size.eq(size),
                trace_segments::content.eq(content),
            ))
            .execute(conn))?;
        start += size;
    }
    Ok(())
}

/// Returns the part of a trace that starts at an offset: at most about `max_bytes` from the database, or an object. `None`
/// if the trace ends there.
pub fn part_at(db: &mut Conn, job: JobId, offset: u64, max_bytes: u64) -> Result<Option<TracePart>> {
    loop {
        let listed = list_from(db, job, offset)?;
        let Some(first) = listed.first().filter(|first| first.end() > offset) else { return Ok(None) };
        if let Some(object) = &first.object {
            let range = offset - first.start..first.size;
            return Ok(Some(TracePart::Object { object: object.clone(), range }));
        }
        let mut end = first.end();
        for segment in listed.iter().skip(1) {
            if segment.object.is_some() || segment.start != end || segment.end() > first.start + max_bytes {
                break;
            }
            end = segment.end();
        }
        let bytes = contents(db, job, first.start..end)?;
        let skipped = usize::try_from(offset - first.start).unwrap_or(usize::MAX);
        // On PostgreSQL they may have been archived since they were listed.
        if let Some(rest) = bytes.get(skipped..).filter(|rest| !rest.is_empty()) {
            return Ok(Some(TracePart::Bytes(rest.to_vec())));
        }
    }
}

struct Segment {
    start: u64,
    size: u64,
    object: Option<TraceObject>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.size
    }
}

/// Lists some segments, starting with the one that contains an offset.
fn list_from(db: &mut Conn, job: JobId, offset: u64) -> Result<Vec<Segment>> {
    type Row = (i64, i64, Option<(i64, String)>);
    let first: Option<i64> = on!(db, conn => trace_segments::table
        .filter(trace_segments::job_id.eq(job.get()))
        .filter(trace_segments::start.le(to_number(offset)))
        .select(max(trace_segments::start))
        .first(conn))?;
    let Some(first) = first else { return Ok(Vec::new()) };
    let rows: Vec<Row> = on!(db, conn => trace_segments::table
        .left_join(trace_objects::table)
        .filter(trace_segments::job_id.eq(job.get()))
        .filter(trace_segments::start.ge(first))
        .order(trace_segments::start)
        .limit(MAX_LISTED)
        .select((
            trace_segments::start,
            trace_segments::size,
            (trace_objects::id, trace_objects::storage_id).nullable(),
        ))
        .load(conn))?;
    let to_segment = |(start, size, object): Row| Segment {
        start: from_number(start),
        size: from_number(size),
        object: object.and_then(to_object),
    };
    Ok(rows.into_iter().map(to_segment).collect())
}

/// Returns the bytes of the segments without an object that start in a range, up to the first gap.
fn contents(db: &mut Conn, job: JobId, range: Range<u64>) -> Result<Vec<u8>> {
    let rows: Vec<(i64, Option<Vec<u8>>)> = on!(db, conn => trace_segments::table
        .filter(trace_segments::job_id.eq(job.get()))
        .filter(trace_segments::start.ge(to_number(range.start)))
        .filter(trace_segments::start.lt(to_number(range.end)))
        .order(trace_segments::start)
        .select((trace_segments::start, trace_segments::content))
        .load(conn))?;
    let mut bytes = Vec::new();
    for (start, content) in rows {
        match content {
            Some(content) if from_number(start) == range.start + bytes.len() as u64 => bytes.extend(content),
            _ => break,
        }
    }
    Ok(bytes)
}

/// Returns where the segments of a trace end.
pub fn end_of(db: &mut Conn, job: JobId) -> Result<u64> {
    let last: Option<(i64, i64)> = on!(db, conn => trace_segments::table
        .filter(trace_segments::job_id.eq(job.get()))
        .order(trace_segments::start.desc())
        .select((trace_segments::start, trace_segments::size))
        .first(conn)
        .optional())?;
    Ok(last.map_or(0, |(start, size)| from_number(start) + from_number(size)))
}

/// Returns the first range of a trace whose bytes are in the database.
pub fn inline_range(db: &mut Conn, job: JobId) -> Result<Option<Range<u64>>> {
    let start: Option<i64> = on!(db, conn => trace_segments::table
        .filter(trace_segments::job_id.eq(job.get()))
        .filter(trace_segments::object_id.is_null())
        .select(min(trace_segments::start))
        .first(conn))?;
    let Some(start) = start else { return Ok(None) };
    let next_object: Option<i64> = on!(db, conn => trace_segments::table
        .filter(trace_segments::job_id.eq(job.get()))
        .filter(trace_segments::object_id.is_not_null())
        .filter(trace_segments::start.gt(start))
        .select(min(trace_segments::start))
        .first(conn))?;
    let end = match next_object {
        Some(next) => from_number(next),
        None => end_of(db, job)?,
    };
    Ok(Some(from_number(start)..end))
}

/// Returns which of these jobs have bytes of their traces in the database.
pub fn with_inline_bytes(db: &mut Conn, jobs: &[JobId]) -> Result<Vec<JobId>> {
    let query = || {
        Fragment::<BigInt>::new("SELECT DISTINCT job_id FROM trace_segments WHERE object_id IS NULL AND job_id")
            .in_ids(jobs)
            .sql(" ORDER BY job_id")
    };
    let ids: Vec<i64> = on!(db, conn => query().load(conn))?;
    Ok(ids.into_iter().map(JobId::new).collect())
}

/// Replaces the segments of a range by one whose bytes are in an object. Returns `false` and changes nothing if the segments
/// are not those that the object was written from: they belong to a later run, or were replaced or erased.
pub fn archive(db: &mut Conn, run: &JobRun, range: &Range<u64>, object: &TraceObject) -> Result<bool> {
    if !lock_run(db, run)? {
        return Ok(false);
    }
    let (job, start, end) = (run.job.get(), to_number(range.start), to_number(range.end));
    let stored = || {
        Fragment::<BigInt>::new("SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM trace_segments WHERE job_id = ")
            .number(job)
            .sql(" AND object_id IS NULL AND start >= ")
            .number(start)
            .sql(" AND start < ")
            .number(end)
    };
    if on!(db, conn => stored().get_result::<i64>(conn))? != end - start || !use_object(db, run.job, range, object)? {
        return Ok(false);
    }
    on!(db, conn => diesel::delete(trace_segments::table)
        .filter(trace_segments::job_id.eq(job))
        .filter(trace_segments::start.ge(start))
        .filter(trace_segments::start.lt(end))
        .execute(conn))?;
    insert_object_segment(db, run.job, range, object)?;
    Ok(true)
}

/// Adds an object with these bytes to the end of a trace. Returns `false` and changes nothing if the trace ends elsewhere, or
/// belongs to a later run.
pub fn append_object(db: &mut Conn, run: &JobRun, range: &Range<u64>, object: &TraceObject) -> Result<bool> {
    if !lock_run(db, run)? || end_of(db, run.job)? != range.start || !use_object(db, run.job, range, object)? {
        return Ok(false);
    }
    insert_object_segment(db, run.job, range, object)?;
    Ok(true)
}

/// Locks the row of a run until the end of the transaction; returns `false` if the job has been assigned again. SQLite has
/// one writer anyway.
fn lock_run(db: &mut Conn, run: &JobRun) -> Result<bool> {
    let Some(token) = &run.token else { return Ok(false) };
    let row = || {
        build_runs::table.find(run.job.get()).filter(build_runs::digest.eq(&token.digest)).select(build_runs::build_id)
    };
    let found: Option<i64> = match db {
        Conn::Sqlite(conn) => row().first(conn).optional()?,
        Conn::Pg(conn) => row().for_update().first(conn).optional()?,
    };
    Ok(found.is_some())
}

/// Records that an object is written and used by a job; returns `false` if it was given up and removed meanwhile.
fn use_object(db: &mut Conn, job: JobId, range: &Range<u64>, object: &TraceObject) -> Result<bool> {
    let updated = on!(db, conn => diesel::update(trace_objects::table.find(object.id.get()))
        .filter(trace_objects::size.is_null())
        .set((trace_objects::job_id.eq(job.get()), trace_objects::size.eq(to_number(range.end - range.start))))
        .execute(conn))?;
    Ok(updated > 0)
}

fn insert_object_segment(db: &mut Conn, job: JobId, range: &Range<u64>, object: &TraceObject) -> Result<()> {
    on!(db, conn => diesel::insert_into(trace_segments::table)
        .values((
            trace_segments::job_id.eq(job.get()),
            trace_segments::start.eq(to_number(range.start)),
            trace_segments::size.eq(to_number(range.end - range.start)),
            trace_segments::object_id.eq(object.id.get()),
        ))
        .execute(conn))?;
    Ok(())
}

/// Deletes the segments of a job; their objects are then unused.
pub fn delete_all(db: &mut Conn, job: JobId) -> Result<()> {
    on!(db, conn => diesel::delete(trace_segments::table)
        .filter(trace_segments::job_id.eq(job.get()))
        .execute(conn))?;
    on!(db, conn => diesel::update(trace_objects::table)
        .filter(trace_objects::job_id.eq(job.get()))
        .set(trace_objects::job_id.eq(None::<i64>))
        .execute(conn))?;
    Ok(())
}

/// Returns up to `limit` jobs of a project that have segments in objects.
pub fn jobs_with_objects(db: &mut Conn, project: ProjectId, limit: i64) -> Result<Vec<JobId>> {
    let ids: Vec<i64> = on!(db, conn => trace_objects::table
        .inner_join(builds::table.on(builds::id.nullable().eq(trace_objects::job_id)))
        .filter(builds::project_id.eq(project.get()))
        .limit(limit)
        .select(builds::id)
        .distinct()
        .load(conn))?;
    Ok(ids.into_iter().map(JobId::new).collect())
}

/// Returns up to `limit` jobs with an id above `after` that have a trace.
pub fn jobs_with_traces(db: &mut Conn, after: JobId, limit: i64) -> Result<Vec<JobId>> {
    let ids: Vec<i64> = on!(db, conn => build_runs::table
        .filter(build_runs::build_id.gt(after.get()))
        .filter(build_runs::trace_size.gt(0))
        .order(build_runs::build_id)
        .limit(limit)
        .select(build_runs::build_id)
        .load(conn))?;
    Ok(ids.into_iter().map(JobId::new).collect())
}

/// Inserts an object that is not written yet.
pub fn insert_object(db: &mut Conn, storage: &StorageId, now: Time) -> Result<TraceObject> {
    let id = on!(db, conn => diesel::insert_into(trace_objects::table)
        .values((trace_objects::storage_id.eq(storage.as_str()), trace_objects::created_at.eq(to_micros(now))))
        .returning(trace_objects::id)
        .get_result(conn))?;
    Ok(TraceObject { id: TraceObjectId::new(id), storage: storage.clone() })
}

/// Returns some objects that no segment uses, without unfinished ones that were begun after a time.
pub fn unused_objects(db: &mut Conn, before: Time, limit: i64) -> Result<Vec<TraceObject>> {
    let rows: Vec<(i64, String)> = on!(db, conn => trace_objects::table
        .filter(trace_objects::job_id.is_null())
        .filter(trace_objects::size.is_not_null().or(trace_objects::created_at.lt(to_micros(before))))
        .order(trace_objects::id)
        .limit(limit)
        .select((trace_objects::id, trace_objects::storage_id))
        .load(conn))?;
    Ok(rows.into_iter().filter_map(to_object).collect())
}

/// Deletes the rows of removed objects.
pub fn delete_objects(db: &mut Conn, ids: &[TraceObjectId]) -> Result<()> {
    on!(db, conn => diesel::delete(trace_objects::table)
        .filter(trace_objects::id.eq_any(ids.iter().copied().map(TraceObjectId::get)))
        .execute(conn))?;
    Ok(())
}

fn to_object((id, storage): (i64, String)) -> Option<TraceObject> {
    Some(TraceObject { id: TraceObjectId::new(id), storage: StorageId::parse(&storage)? })
}

fn to_number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn from_number(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or_default()
}
