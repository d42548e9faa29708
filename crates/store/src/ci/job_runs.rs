//! The run of a job: its token, its trace, and when its runner last sent an update.

use diesel::prelude::*;
use model::{
    JobId, PipelineId, ProjectId, RunnerId, Status, Time, UserId, jobs::JobKind, pipelines::Source,
    projects::TokenSeed, tokens::Digest,
};

use crate::{
    Conn, Result,
    conn::on,
    jobs::kind_code,
    pipelines::to_status,
    schema::{build_runs, build_specs, builds, pipelines, projects},
    times::to_micros,
    trace_segments,
};

/// A running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningJob {
    /// The job ID.
    pub job: JobId,
    /// The project ID.
    pub project: ProjectId,
    /// The pipeline ID.
    pub pipeline: PipelineId,
    /// The ID of the user who started it.
    pub user: Option<UserId>,
    /// Whether a trigger started its pipeline.
    pub triggered: bool,
}

/// A job with the state of its run.
#[derive(Clone, Debug)]
pub struct JobRun {
    /// The job ID.
    pub job: JobId,
    /// The project ID.
    pub project: ProjectId,
    /// The pipeline ID.
    pub pipeline: PipelineId,
    /// The status of the job.
    pub status: Status,
    /// The ID of the runner that it is assigned to.
    pub runner: Option<RunnerId>,
    /// Whether its trace was erased.
    pub erased: bool,
    /// How many times it was retried automatically.
    pub attempt: i32,
    /// Its token; `None` until a runner takes the job.
    pub token: Option<StoredJobToken>,
    /// The size of its trace, in bytes.
    pub trace_size: u64,
    /// How many bytes at the end of the trace are withheld from readers.
    pub trace_held: u64,
}

/// The stored form of a job token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJobToken {
    /// The digest that identifies the token.
    pub digest: Vec<u8>,
    /// The seed that the token is derived from.
    pub seed: TokenSeed,
}

impl JobRun {
    /// Returns the number of bytes of the trace that readers can see.
    pub fn visible(&self) -> u64 {
        self.trace_size.saturating_sub(self.trace_held)
    }

    /// Returns whether the digest is that of the job token, whether or not the token is still valid.
    pub fn has_token(&self, digest: &Digest) -> bool {
        self.token.as_ref().is_some_and(|token| token.digest == digest.as_bytes())
    }
}

/// Records that a runner took a job. The token is derived from the seed; `secrets`, the values to mask in the trace, are
/// encrypted. Replaces the record of an earlier run, with the segments of its trace.
pub fn start(
    db: &mut Conn,
    job: JobId,
    (seed, token): (&TokenSeed, &Digest),
    secrets: Option<&[u8]>,
    now: Time,
) -> Result<()> {
    on!(db, conn => diesel::delete(build_runs::table.find(job.get())).execute(conn))?;
    on!(db, conn => diesel::insert_into(build_runs::table)
        .values((
            build_runs::build_id.eq(job.get()),
            build_runs::seed.eq(&seed.0),
            build_runs::digest.eq(token.as_bytes()),
            build_runs::taken_at.eq(to_micros(now)),
            build_runs::secrets.eq(secrets),
        ))
        .execute(conn))?;
    Ok(())
}

/// Returns the values to mask in the trace, encrypted when the job was assigned.
pub fn secrets_of(db: &mut Conn, job: JobId) -> Result<Option<Vec<u8>>> {
    let found: Option<Option<Vec<u8>>> =
        on!(db, conn => build_runs::table.find(job.get()).select(build_runs::secrets).first(conn).optional())?;
    Ok(found.flatten())
}

/// Returns the running job with this token.
pub fn running_by_token(db: &mut Conn, token: &Digest) -> Result<Option<RunningJob>> {
    type Found = (i64, i64, i64, Option<i64>, String);
    let found: Option<Found> = on!(db, conn => build_runs::table
        .inner_join(builds::table)
        .inner_join(projects::table.on(projects::id.eq(builds::project_id)))
        .inner_join(pipelines::table.on(pipelines::id.eq(builds::pipeline_id)))
        .filter(build_runs::digest.eq(token.as_bytes()))
        .filter(builds::status.eq("running"))
        .filter(projects::deleted_at.is_null())
        .select((builds::id, builds::project_id, builds::pipeline_id, builds::user_id, pipelines::source))
        .first(conn)
        .optional())?;
    Ok(found.map(|(job, project, pipeline, user, source)| {
        let triggered = source == Source::Trigger.as_str();
        RunningJob {
            job: JobId::new(job),
            project: ProjectId::new(project),
            pipeline: PipelineId::new(pipeline),
            user: user.map(UserId::new),
            triggered,
        }
    }))
}

type RunRow = (i64, i64, i64, String, Option<i64>, Option<i64>, i32, Option<(Vec<u8>, Vec<u8>, i64, i64)>);

/// Returns a job of an existing project, whether or not a runner has taken it.
pub fn find(db: &mut Conn, job: JobId) -> Result<Option<JobRun>> {
    let found: Option<RunRow> = on!(db, conn => builds::table
        .inner_join(projects::table.on(projects::id.eq(builds::project_id)))
        .left_join(build_runs::table)
        .filter(builds::id.eq(job.get()))
        .filter(builds::kind.eq(kind_code(JobKind::Runner)))
        .filter(projects::deleted_at.is_null())
        .select((
            builds::id,
            builds::project_id,
            builds::pipeline_id,
            builds::status,
            builds::runner_id,
            builds::erased_at,
            builds::attempt,
            (build_runs::digest, build_runs::seed, build_runs::trace_size, build_runs::trace_held).nullable(),
        ))
        .first(conn)
        .optional())?;
    Ok(found.map(|(job, project, pipeline, status, runner, erased_at, attempt, run)| {
        let (digest, seed, size, held) = run.unwrap_or_default();
        JobRun {
            job: JobId::new(job),
            project: ProjectId::new(project),
            pipeline: PipelineId::new(pipeline),
            status: to_status(&status),
            runner: runner.map(RunnerId::new),
            erased: erased_at.is_some(),
            attempt,
            token: (!digest.is_empty()).then_some(StoredJobToken { digest, seed: TokenSeed(seed) }),
            trace_size: u64::try_from(size).unwrap_or_default(),
            trace_held: u64::try_from(held).unwrap_or_default(),
        }
    }))
}

/// Records that the trace of a running job has grown; returns `false` if the job has ended or the trace was changed
/// concurrently. Also compares the token, because the job may have been assigned to another runner.
pub fn extend_trace(db: &mut Conn, run: &JobRun, size: u64, held: u64, now: Time) -> Result<bool> {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let Some(token) = &run.token else { return Ok(false) };
    let runs = builds::table
        .filter(builds::id.eq(run.job.get()))
        .filter(builds::status.eq(Status::Running.as_str()))
        .select(builds::id);
    let grown = on!(db, conn => diesel::update(build_runs::table)
        .filter(build_runs::build_id.eq_any(runs))
        .filter(build_runs::digest.eq(&token.digest))
        .filter(build_runs::trace_size.eq(number(run.trace_size)))
        .set((
            build_runs::trace_size.eq(number(size)),
            build_runs::trace_held.eq(number(held)),
            build_runs::heard_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(grown > 0)
}

/// Records the new size of the trace of a finished job after a last line was appended; returns `false` if the trace was
/// changed concurrently.
pub fn close_trace(db: &mut Conn, run: &JobRun, size: u64) -> Result<bool> {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let ended = builds::table
        .filter(builds::id.eq(run.job.get()))
        .filter(builds::status.eq_any([Status::Failed.as_str(), Status::Canceled.as_str()]))
        .filter(builds::erased_at.is_null())
        .select(builds::id);
    let closed = on!(db, conn => diesel::update(build_runs::table)
        .filter(build_runs::build_id.eq_any(ended))
        .filter(build_runs::trace_size.eq(number(run.trace_size)))
        .set((
            build_runs::trace_size.eq(number(size)),
            build_runs::trace_held.eq(0),
            build_runs::trace_withheld.eq(None::<Vec<u8>>),
        ))
        .execute(conn))?;
    Ok(closed > 0)
}

/// Records that the runner sent an update about a job.
pub fn touch(db: &mut Conn, job: JobId, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(build_runs::table.find(job.get()))
        .set(build_runs::heard_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// Makes the withheld end of a trace visible.
pub fn release_held_trace(db: &mut Conn, job: JobId) -> Result<()> {
    on!(db, conn => diesel::update(build_runs::table.find(job.get()))
        .set((build_runs::trace_held.eq(0), build_runs::trace_withheld.eq(None::<Vec<u8>>)))
        .execute(conn))?;
    Ok(())
}

/// Returns the encrypted end of a trace in segments that is withheld from readers; `None` if there is none, or if the trace
/// has changed.
pub fn withheld_of(db: &mut Conn, run: &JobRun) -> Result<Option<Vec<u8>>> {
    let Some(token) = &run.token else { return Ok(None) };
    let size = i64::try_from(run.trace_size).unwrap_or(i64::MAX);
    let found: Option<Option<Vec<u8>>> = on!(db, conn => build_runs::table
        .find(run.job.get())
        .filter(build_runs::digest.eq(&token.digest))
        .filter(build_runs::trace_size.eq(size))
        .select(build_runs::trace_withheld)
        .first(conn)
        .optional())?;
    Ok(found.flatten())
}

/// Replaces the encrypted end of a trace in segments that is withheld from readers.
pub fn set_withheld(db: &mut Conn, job: JobId, withheld: Option<&[u8]>) -> Result<()> {
    on!(db, conn => diesel::update(build_runs::table.find(job.get()))
        .set(build_runs::trace_withheld.eq(withheld))
        .execute(conn))?;
    Ok(())
}

/// Records that the trace of a job was erased.
pub fn erase(db: &mut Conn, job: JobId, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(builds::table.find(job.get()))
        .set(builds::erased_at.eq(to_micros(now)))
        .execute(conn))?;
    on!(db, conn => diesel::update(build_runs::table.find(job.get()))
        .set((
            build_runs::trace_size.eq(0),
            build_runs::trace_held.eq(0),
            build_runs::trace_withheld.eq(None::<Vec<u8>>),
        ))
        .execute(conn))?;
    trace_segments::delete_all(db, job)
}

/// Returns the job specification, in the format of the planner.
pub fn spec_of(db: &mut Conn, job: JobId) -> Result<Option<String>> {
    Ok(on!(db, conn => builds::table
        .inner_join(build_specs::table)
        .filter(builds::id.eq(job.get()))
        .select(build_specs::spec)
        .first(conn)
        .optional())?)
}

/// Stores the code coverage of a job.
pub fn set_coverage(db: &mut Conn, job: JobId, coverage: f64) -> Result<()> {
    on!(db, conn => diesel::update(builds::table.find(job.get())).set(builds::coverage.eq(coverage)).execute(conn))?;
    Ok(())
}
