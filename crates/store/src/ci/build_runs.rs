//! What only matters once a runner has taken a job: its token, its trace, when the runner was last heard.

use diesel::prelude::*;
use model::{
    Status, Time,
    pipelines::{BuildKind, Source},
    projects::Seed,
    tokens::Digest,
};

use crate::{
    Conn, Result,
    builds::kind_code,
    conn::on,
    pipelines::to_status,
    schema::{build_runs, build_specs, builds, pipelines, projects},
    times::to_micros,
};

/// A job that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningJob {
    /// Number of the build.
    pub build: i64,
    /// Where.
    pub project: i64,
    /// The pipeline that it belongs to.
    pub pipeline: i64,
    /// Who started it.
    pub user: Option<i64>,
    /// Whether its pipeline was started by a trigger.
    pub triggered: bool,
}

/// A job as those see it who tell how it goes.
#[derive(Clone, Debug)]
pub struct Run {
    /// Number of the build.
    pub build: i64,
    /// Where.
    pub project: i64,
    /// The pipeline that it belongs to.
    pub pipeline: i64,
    /// How it stands.
    pub status: Status,
    /// Who has it.
    pub runner: Option<i64>,
    /// Whether its trace was removed.
    pub erased: bool,
    /// How often it was tried before without anybody asking.
    pub attempt: i32,
    /// Its token, once somebody has taken it.
    pub token: Option<RunToken>,
    /// How many bytes of its trace are on disk.
    pub trace_size: u64,
    /// How many of them at the end nobody sees yet.
    pub trace_held: u64,
}

/// How the token of a job is recognised and made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunToken {
    /// What is stored of it.
    pub digest: Vec<u8>,
    /// From what it is made.
    pub seed: Seed,
}

impl Run {
    /// How much of the trace is to be seen.
    pub fn visible(&self) -> u64 {
        self.trace_size.saturating_sub(self.trace_held)
    }

    /// Whether this is the token of the job, whatever it opens at the moment.
    pub fn has_token(&self, digest: &Digest) -> bool {
        self.token.as_ref().is_some_and(|token| token.digest == digest.as_bytes())
    }
}

/// Notes that a runner has a job: its token is made of the seed, and what it must not say is sealed. If it was given away
/// before, that is forgotten.
pub fn begin(
    db: &mut Conn,
    build: i64,
    (seed, token): (&Seed, &Digest),
    secrets: Option<&[u8]>,
    now: Time,
) -> Result<()> {
    on!(db, conn => diesel::delete(build_runs::table.find(build)).execute(conn))?;
    on!(db, conn => diesel::insert_into(build_runs::table)
        .values((
            build_runs::build_id.eq(build),
            build_runs::seed.eq(&seed.0),
            build_runs::digest.eq(token.as_bytes()),
            build_runs::taken_at.eq(to_micros(now)),
            build_runs::secrets.eq(secrets),
        ))
        .execute(conn))?;
    Ok(())
}

/// What a job must not say, sealed when it was given away.
pub fn secrets_of(db: &mut Conn, build: i64) -> Result<Option<Vec<u8>>> {
    let found: Option<Option<Vec<u8>>> =
        on!(db, conn => build_runs::table.find(build).select(build_runs::secrets).first(conn).optional())?;
    Ok(found.flatten())
}

/// The job whose token this is, while it runs.
pub fn running(db: &mut Conn, token: &Digest) -> Result<Option<RunningJob>> {
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
    Ok(found.map(|(build, project, pipeline, user, source)| {
        let triggered = source == Source::Trigger.word();
        RunningJob { build, project, pipeline, user, triggered }
    }))
}

type RunRow = (i64, i64, i64, String, Option<i64>, Option<i64>, i32, Option<(Vec<u8>, Vec<u8>, i64, i64)>);

/// A job of a project that is there, whether anybody has taken it or not.
pub fn find(db: &mut Conn, build: i64) -> Result<Option<Run>> {
    let found: Option<RunRow> = on!(db, conn => builds::table
        .inner_join(projects::table.on(projects::id.eq(builds::project_id)))
        .left_join(build_runs::table)
        .filter(builds::id.eq(build))
        .filter(builds::kind.eq(kind_code(BuildKind::Job)))
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
    Ok(found.map(|(build, project, pipeline, status, runner, erased_at, attempt, run)| {
        let (digest, seed, size, held) = run.unwrap_or_default();
        Run {
            build,
            project,
            pipeline,
            status: to_status(&status),
            runner,
            erased: erased_at.is_some(),
            attempt,
            token: (!digest.is_empty()).then_some(RunToken { digest, seed: Seed(seed) }),
            trace_size: u64::try_from(size).unwrap_or_default(),
            trace_held: u64::try_from(held).unwrap_or_default(),
        }
    }))
}

/// Notes that the trace of a job has grown, while the job runs and nobody else has made it grow; whether that is so. The
/// job is known by its token too, because it may have been given to somebody else meanwhile.
pub fn grow_trace(db: &mut Conn, run: &Run, size: u64, held: u64, now: Time) -> Result<bool> {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let Some(token) = &run.token else { return Ok(false) };
    let runs = builds::table
        .filter(builds::id.eq(run.build))
        .filter(builds::status.eq(Status::Running.word()))
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

/// Notes that the trace of a job that has ended was closed with a last line and has so many bytes now; whether nobody else has
/// changed it meanwhile.
pub fn close_trace(db: &mut Conn, run: &Run, size: u64) -> Result<bool> {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let ended = builds::table
        .filter(builds::id.eq(run.build))
        .filter(builds::status.eq_any([Status::Failed.word(), Status::Canceled.word()]))
        .filter(builds::erased_at.is_null())
        .select(builds::id);
    let closed = on!(db, conn => diesel::update(build_runs::table)
        .filter(build_runs::build_id.eq_any(ended))
        .filter(build_runs::trace_size.eq(number(run.trace_size)))
        .set((build_runs::trace_size.eq(number(size)), build_runs::trace_held.eq(0)))
        .execute(conn))?;
    Ok(closed > 0)
}

/// Notes that the runner was heard of a job.
pub fn touch(db: &mut Conn, build: i64, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(build_runs::table.find(build))
        .set(build_runs::heard_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// Shows the whole trace: nothing comes after it.
pub fn settle_trace(db: &mut Conn, build: i64) -> Result<()> {
    on!(db, conn => diesel::update(build_runs::table.find(build)).set(build_runs::trace_held.eq(0)).execute(conn))?;
    Ok(())
}

/// Notes that the trace of a build is gone.
pub fn erase(db: &mut Conn, build: i64, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(builds::table.find(build))
        .set(builds::erased_at.eq(to_micros(now)))
        .execute(conn))?;
    on!(db, conn => diesel::update(build_runs::table.find(build))
        .set((build_runs::trace_size.eq(0), build_runs::trace_held.eq(0)))
        .execute(conn))?;
    Ok(())
}

/// What a job does, in the notation of the planner.
pub fn spec_of(db: &mut Conn, build: i64) -> Result<Option<String>> {
    Ok(on!(db, conn => builds::table
        .inner_join(build_specs::table)
        .filter(builds::id.eq(build))
        .select(build_specs::spec)
        .first(conn)
        .optional())?)
}

/// Notes how much of the code a job covers.
pub fn set_coverage(db: &mut Conn, build: i64, coverage: f64) -> Result<()> {
    on!(db, conn => diesel::update(builds::table.find(build)).set(builds::coverage.eq(coverage)).execute(conn))?;
    Ok(())
}
