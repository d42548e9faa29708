//! The queue of pending jobs, what a runner needs to run a job, and jobs that have gone stale.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Text},
};
use model::{
    Job, JobId, PipelineId, ProjectId, RunnerId, Time, UserId, pipelines::Source, projects::TokenSeed,
    runners::RunnerSummary, tokens::Digest,
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    jobs::{JoinedRow, joined_jobs, with_artifacts},
    pipelines::to_lines,
    schema::{build_runs, build_specs, builds, pipelines},
    times::to_micros,
};

/// Pending jobs of a project that require the same runner tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobQueue {
    /// The project ID.
    pub project: ProjectId,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// The ID of the job that has been pending longest.
    pub oldest_job: JobId,
}

/// Returns the queues of the projects that a runner may work for, regardless of tags. Reads only a covering index, so a
/// large number of pending jobs costs little.
pub fn queues_for_runner(db: &mut Conn, runner: &RunnerSummary) -> Result<Vec<JobQueue>> {
    let query = || {
        let of_runner = |fragment: Fragment<(BigInt, Text, BigInt)>| {
            if runner.is_shared {
                return fragment;
            }
            fragment
                .sql(" AND b.project_id IN (SELECT k.project_id FROM runner_projects k WHERE k.runner_id = ")
                .number(runner.id)
                .sql(")")
        };
        let grouped = Fragment::new(
            "SELECT q.project_id, q.tags, q.oldest FROM (SELECT b.project_id, b.tags, MIN(b.id) AS oldest FROM builds b \
             WHERE b.status = 'pending' AND b.kind = 0",
        );
        of_runner(grouped)
            .sql(
                " GROUP BY b.project_id, b.tags) q JOIN projects p ON p.id = q.project_id \
                 WHERE p.deleted_at IS NULL AND NOT p.archived AND p.builds_enabled",
            )
            .sql(if runner.is_shared { " AND p.shared_runners_enabled" } else { "" })
            .sql(" ORDER BY q.oldest")
    };
    let rows: Vec<(i64, String, i64)> = on!(db, conn => query().load(conn))?;
    Ok(rows.into_iter().map(to_queue).collect())
}

fn to_queue((project, tags, oldest_job): (i64, String, i64)) -> JobQueue {
    JobQueue { project: ProjectId::new(project), tags: to_lines(&tags), oldest_job: JobId::new(oldest_job) }
}

/// Returns all queues with the number of pending jobs in each.
pub fn all_queues(db: &mut Conn) -> Result<Vec<(JobQueue, i64)>> {
    let query = || {
        Fragment::<(BigInt, Text, BigInt, BigInt)>::new(
            "SELECT b.project_id, b.tags, MIN(b.id), COUNT(*) FROM builds b \
             WHERE b.status = 'pending' AND b.kind = 0 GROUP BY b.project_id, b.tags ORDER BY MIN(b.id)",
        )
    };
    let rows: Vec<(i64, String, i64, i64)> = on!(db, conn => query().load(conn))?;
    let queue = |(project, tags, oldest_job, count)| (to_queue((project, tags, oldest_job)), count);
    Ok(rows.into_iter().map(queue).collect())
}

/// Returns the IDs of the oldest jobs in a queue.
pub fn pending_in(db: &mut Conn, queue: &JobQueue, limit: i64) -> Result<Vec<JobId>> {
    let ids = || {
        Fragment::<BigInt>::new(
            "SELECT b.id FROM builds b WHERE b.status = 'pending' AND b.kind = 0 AND b.project_id = ",
        )
        .number(queue.project)
        .sql(" AND b.tags = ")
        .text(queue.tags.join("\n"))
        .sql(" ORDER BY b.id LIMIT ")
        .number(limit)
    };
    let found: Vec<i64> = on!(db, conn => ids().load(conn))?;
    Ok(found.into_iter().map(JobId::new).collect())
}

/// What a job runs.
#[derive(Clone, Debug)]
pub struct JobDefinition {
    /// The job specification, in the format of the planner.
    pub spec: String,
    /// The timeout in seconds.
    pub timeout: Option<i64>,
    /// The variables passed by the trigger of the pipeline, encrypted.
    pub variables: Option<Vec<u8>>,
}

/// Who or what started a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobInitiator {
    /// The user who started it; `None` if that user was deleted or a trigger started it.
    pub user: Option<UserId>,
    /// Whether a trigger token started the pipeline.
    pub triggered: bool,
}

/// Returns who started a job; `None` if the job does not exist.
pub fn initiator_of(db: &mut Conn, job: JobId) -> Result<Option<JobInitiator>> {
    let found: Option<(Option<i64>, String)> = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .filter(builds::id.eq(job.get()))
        .select((builds::user_id, pipelines::source))
        .first(conn)
        .optional())?;
    Ok(found.map(|(user, source)| JobInitiator {
        user: user.map(UserId::new),
        triggered: source == Source::Trigger.as_str(),
    }))
}

/// Returns what a job runs.
pub fn definition_of(db: &mut Conn, job: JobId) -> Result<Option<JobDefinition>> {
    let found: Option<(String, Option<i64>, Option<Vec<u8>>)> = on!(db, conn => builds::table
        .inner_join(build_specs::table)
        .inner_join(pipelines::table)
        .filter(builds::id.eq(job.get()))
        .select((build_specs::spec, builds::timeout, pipelines::variables))
        .first(conn)
        .optional())?;
    Ok(found.map(|(spec, timeout, variables)| JobDefinition { spec, timeout, variables }))
}

/// Returns the latest job of each name in the stages before `stage_index`, ordered by ID.
pub fn of_earlier_stages(db: &mut Conn, pipeline: PipelineId, stage_index: i32, now: Time) -> Result<Vec<Job>> {
    let rows: Vec<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .filter(builds::kind.eq(0))
        .filter(builds::retried.eq(false))
        .filter(builds::stage_index.lt(stage_index))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// Returns the latest jobs of a pipeline with one of these names, ordered by ID.
pub fn by_names(db: &mut Conn, pipeline: PipelineId, names: &[String], now: Time) -> Result<Vec<Job>> {
    let rows: Vec<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .filter(builds::kind.eq(0))
        .filter(builds::retried.eq(false))
        .filter(builds::name.eq_any(names))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// Returns whether a job was assigned to a runner before; webhooks have then reported it as running.
pub fn was_assigned(db: &mut Conn, job: JobId) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => build_runs::table
        .find(job.get())
        .select(build_runs::build_id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Returns the IDs of the jobs that a runner is running.
pub fn running_on(db: &mut Conn, runner: RunnerId) -> Result<Vec<JobId>> {
    let ids: Vec<i64> = on!(db, conn => builds::table
        .filter(builds::runner_id.eq(runner.get()))
        .filter(builds::status.eq("running"))
        .order(builds::id)
        .select(builds::id)
        .load(conn))?;
    Ok(ids.into_iter().map(JobId::new).collect())
}

/// Makes a running job pending again and returns whether it was running; with `only_unacknowledged`, only if its runner
/// has sent no update. The row of the run stays, with a replacement token that no client knows.
pub fn requeue(
    db: &mut Conn,
    job: JobId,
    only_unacknowledged: bool,
    replacement: (&TokenSeed, &Digest),
) -> Result<bool> {
    let running = || {
        let unacknowledged = "builds.status = 'running' AND builds.kind = 0 AND EXISTS (SELECT 1 FROM build_runs r \
                       WHERE r.build_id = builds.id AND r.heard_at IS NULL)";
        let any = "builds.status = 'running' AND builds.kind = 0";
        Fragment::<diesel::sql_types::Bool>::new(if only_unacknowledged { unacknowledged } else { any })
    };
    let updated = on!(db, conn => diesel::update(builds::table.find(job.get()))
        .filter(running())
        .set((
            builds::status.eq("pending"),
            builds::runner_id.eq(None::<i64>),
            builds::started_at.eq(None::<i64>),
        ))
        .execute(conn))?;
    if updated > 0 {
        on!(db, conn => diesel::update(build_runs::table.find(job.get()))
            .set((build_runs::seed.eq(&replacement.0.0), build_runs::digest.eq(replacement.1.as_bytes())))
            .execute(conn))?;
    }
    Ok(updated > 0)
}

/// Why a job is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// A runner took it and never sent an update.
    Unacknowledged,
    /// Its runner has sent no update for too long.
    RunnerSilent,
    /// It has exceeded its timeout.
    TimedOut,
    /// It has been pending for too long.
    PendingTooLong,
}

/// The times before which a job is stale, for each [`StaleReason`].
#[derive(Clone, Copy, Debug)]
pub struct StaleDeadlines {
    /// Assigned before this time, without any update.
    pub assigned_before: Time,
    /// Last updated before this time.
    pub updated_before: Time,
    /// Timeout expired before this time.
    pub timed_out_before: Time,
    /// Pending since before this time.
    pub queued_before: Time,
    /// The timeout, in seconds, of jobs that set none.
    pub default_timeout: i64,
}

impl StaleReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Unacknowledged, Self::TimedOut, Self::RunnerSilent, Self::PendingTooLong];

    fn query_for(self, deadlines: &StaleDeadlines) -> Fragment<BigInt> {
        let running = || {
            Fragment::new(
                "SELECT b.id FROM builds b JOIN projects p ON p.id = b.project_id AND p.deleted_at IS NULL \
                 JOIN build_runs r ON r.build_id = b.id LEFT JOIN runners u ON u.id = b.runner_id \
                 WHERE b.status = 'running' AND b.kind = 0 AND ",
            )
        };
        match self {
            Self::Unacknowledged => {
                running().sql("r.heard_at IS NULL AND r.taken_at < ").number(to_micros(deadlines.assigned_before))
            }
            Self::RunnerSilent => running().sql("r.heard_at < ").number(to_micros(deadlines.updated_before)),
            Self::TimedOut => running()
                .sql("b.started_at + 1000000 * (CASE WHEN u.maximum_timeout < COALESCE(b.timeout, ")
                .number(deadlines.default_timeout)
                .sql(") THEN u.maximum_timeout ELSE COALESCE(b.timeout, ")
                .number(deadlines.default_timeout)
                .sql(") END) < ")
                .number(to_micros(deadlines.timed_out_before)),
            Self::PendingTooLong => Fragment::new(
                "SELECT b.id FROM builds b JOIN projects p ON p.id = b.project_id AND p.deleted_at IS NULL \
                 WHERE b.status = 'pending' AND b.kind = 0 AND b.queued_at < ",
            )
            .number(to_micros(deadlines.queued_before)),
        }
    }
}

/// Returns the IDs of jobs that are stale for a reason, in ascending order.
pub fn stale(db: &mut Conn, reason: StaleReason, deadlines: &StaleDeadlines, limit: i64) -> Result<Vec<JobId>> {
    let ids = || reason.query_for(deadlines).sql(" ORDER BY b.id LIMIT ").number(limit);
    let found: Vec<i64> = on!(db, conn => ids().load(conn))?;
    Ok(found.into_iter().map(JobId::new).collect())
}

/// Returns whether a job is still stale for a reason.
pub fn is_stale(db: &mut Conn, reason: StaleReason, deadlines: &StaleDeadlines, job: JobId) -> Result<bool> {
    let id = || reason.query_for(deadlines).sql(" AND b.id = ").number(job);
    let found: Option<i64> = on!(db, conn => id().get_result(conn).optional())?;
    Ok(found.is_some())
}
