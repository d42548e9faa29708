//! Which jobs wait for runners, what a job that was given away does, and which ones are stuck.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Text},
};
use model::{Build, Time, pipelines::Source, projects::Seed, runners::RunnerSummary, tokens::Digest};

use crate::{
    Conn, Result,
    builds::{WholeRow, whole_builds, with_artifacts},
    conn::on,
    fragment::Fragment,
    pipelines::to_lines,
    schema::{build_runs, build_specs, builds, pipelines},
    times::to_micros,
};

/// Jobs of a project that wait and want the same of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The project.
    pub project: i64,
    /// What a runner must have.
    pub tags: Vec<String>,
    /// The one that has waited for longest.
    pub first: i64,
}

/// The queues that a runner may look at, whatever it has to offer. Jobs that wait are found along an index that holds all
/// of this, so that many of them cost little.
pub fn queues(db: &mut Conn, runner: &RunnerSummary) -> Result<Vec<Queue>> {
    let found = || {
        let of_runner = |fragment: Fragment<(BigInt, Text, BigInt)>| {
            if runner.is_shared {
                return fragment;
            }
            fragment
                .sql(" AND b.project_id IN (SELECT k.project_id FROM runner_projects k WHERE k.runner_id = ")
                .number(runner.id)
                .sql(")")
        };
        let open = Fragment::new(
            "SELECT q.project_id, q.tags, q.oldest FROM (SELECT b.project_id, b.tags, MIN(b.id) AS oldest FROM builds b \
             WHERE b.status = 'pending' AND b.kind = 0",
        );
        of_runner(open)
            .sql(
                " GROUP BY b.project_id, b.tags) q JOIN projects p ON p.id = q.project_id \
                 WHERE p.deleted_at IS NULL AND NOT p.archived AND p.builds_enabled",
            )
            .sql(if runner.is_shared { " AND p.shared_runners_enabled" } else { "" })
            .sql(" ORDER BY q.oldest")
    };
    let rows: Vec<(i64, String, i64)> = on!(db, conn => found().load(conn))?;
    Ok(rows.into_iter().map(|(project, tags, first)| Queue { project, tags: to_lines(&tags), first }).collect())
}

/// All queues, and how many jobs wait in each.
pub fn all_queues(db: &mut Conn) -> Result<Vec<(Queue, i64)>> {
    let found = || {
        Fragment::<(BigInt, Text, BigInt, BigInt)>::new(
            "SELECT b.project_id, b.tags, MIN(b.id), COUNT(*) FROM builds b \
             WHERE b.status = 'pending' AND b.kind = 0 GROUP BY b.project_id, b.tags ORDER BY MIN(b.id)",
        )
    };
    let rows: Vec<(i64, String, i64, i64)> = on!(db, conn => found().load(conn))?;
    let queue = |(project, tags, first, count): (i64, String, i64, i64)| {
        (Queue { project, tags: to_lines(&tags), first }, count)
    };
    Ok(rows.into_iter().map(queue).collect())
}

/// The jobs of a queue that have waited for longest.
pub fn waiting_in(db: &mut Conn, queue: &Queue, most: i64) -> Result<Vec<i64>> {
    let ids = || {
        Fragment::<BigInt>::new(
            "SELECT b.id FROM builds b WHERE b.status = 'pending' AND b.kind = 0 AND b.project_id = ",
        )
        .number(queue.project)
        .sql(" AND b.tags = ")
        .words(queue.tags.join("\n"))
        .sql(" ORDER BY b.id LIMIT ")
        .number(most)
    };
    Ok(on!(db, conn => ids().load(conn))?)
}

/// What there is to know of a job that was given away, beside what everybody sees of it.
#[derive(Clone, Debug)]
pub struct Work {
    /// What it does, in the notation of the planner.
    pub spec: String,
    /// After how many seconds it is stopped.
    pub timeout: Option<i64>,
    /// What the trigger of its pipeline gave along, sealed.
    pub variables: Option<Vec<u8>>,
}

/// On whose behalf a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starter {
    /// The user who started it, unless that user was removed or a trigger did.
    pub user: Option<i64>,
    /// Whether a trigger token has started its pipeline.
    pub triggered: bool,
}

/// On whose behalf a job runs; `None` if there is no such job.
pub fn starter_of(db: &mut Conn, build: i64) -> Result<Option<Starter>> {
    let found: Option<(Option<i64>, String)> = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .filter(builds::id.eq(build))
        .select((builds::user_id, pipelines::source))
        .first(conn)
        .optional())?;
    Ok(found.map(|(user, source)| Starter { user, triggered: source == Source::Trigger.word() }))
}

/// What a job does.
pub fn work_of(db: &mut Conn, build: i64) -> Result<Option<Work>> {
    let found: Option<(String, Option<i64>, Option<Vec<u8>>)> = on!(db, conn => builds::table
        .inner_join(build_specs::table)
        .inner_join(pipelines::table)
        .filter(builds::id.eq(build))
        .select((build_specs::spec, builds::timeout, pipelines::variables))
        .first(conn)
        .optional())?;
    Ok(found.map(|(spec, timeout, variables)| Work { spec, timeout, variables }))
}

/// The latest jobs of each name of a pipeline that belong to stages before this one, in the order of their numbers.
pub fn earlier_than(db: &mut Conn, pipeline: i64, stage_index: i32, now: Time) -> Result<Vec<Build>> {
    let rows: Vec<WholeRow> = on!(db, conn => whole_builds!()
        .filter(builds::pipeline_id.eq(pipeline))
        .filter(builds::kind.eq(0))
        .filter(builds::retried.eq(false))
        .filter(builds::stage_index.lt(stage_index))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// The latest jobs of a pipeline that have one of these names, in the order of their numbers.
pub fn named(db: &mut Conn, pipeline: i64, names: &[String], now: Time) -> Result<Vec<Build>> {
    let rows: Vec<WholeRow> = on!(db, conn => whole_builds!()
        .filter(builds::pipeline_id.eq(pipeline))
        .filter(builds::kind.eq(0))
        .filter(builds::retried.eq(false))
        .filter(builds::name.eq_any(names))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// Whether a job was given away before; then everybody was told that it runs.
pub fn was_given(db: &mut Conn, build: i64) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => build_runs::table
        .find(build)
        .select(build_runs::build_id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// The jobs that a runner has.
pub fn of_runner(db: &mut Conn, runner: i64) -> Result<Vec<i64>> {
    Ok(on!(db, conn => builds::table
        .filter(builds::runner_id.eq(runner))
        .filter(builds::status.eq("running"))
        .order(builds::id)
        .select(builds::id)
        .load(conn))?)
}

/// Takes a job back that was given away, and if wanted only if it was not heard of since; whether it was. What is left of
/// it is that it was given away, with a token that nobody has.
pub fn take_back(db: &mut Conn, build: i64, only_unheard: bool, dead: (&Seed, &Digest)) -> Result<bool> {
    let running = || {
        let unheard = "builds.status = 'running' AND builds.kind = 0 AND EXISTS (SELECT 1 FROM build_runs r \
                       WHERE r.build_id = builds.id AND r.heard_at IS NULL)";
        let any = "builds.status = 'running' AND builds.kind = 0";
        Fragment::<diesel::sql_types::Bool>::new(if only_unheard { unheard } else { any })
    };
    let taken = on!(db, conn => diesel::update(builds::table.find(build))
        .filter(running())
        .set((
            builds::status.eq("pending"),
            builds::runner_id.eq(None::<i64>),
            builds::started_at.eq(None::<i64>),
        ))
        .execute(conn))?;
    if taken > 0 {
        on!(db, conn => diesel::update(build_runs::table.find(build))
            .set((build_runs::seed.eq(&dead.0.0), build_runs::digest.eq(dead.1.as_bytes())))
            .execute(conn))?;
    }
    Ok(taken > 0)
}

/// What is wrong with a job that is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// A runner has taken it and was never heard of since.
    Unheard,
    /// Its runner was not heard of for too long.
    Silent,
    /// It takes longer than it may.
    Overdue,
    /// No runner wants it.
    Unwanted,
}

/// Since when is too long, for each of [`Stuck`].
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Given away before this and never heard of since.
    pub given: Time,
    /// Last heard of before this.
    pub heard: Time,
    /// Should have ended before this.
    pub ended: Time,
    /// Waits since before this.
    pub queued: Time,
    /// How many seconds a job may take that says nothing about it.
    pub usual_timeout: i64,
}

impl Stuck {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Unheard, Self::Overdue, Self::Silent, Self::Unwanted];

    fn rule(self, by: &Deadlines) -> Fragment<BigInt> {
        let running = || {
            Fragment::new(
                "SELECT b.id FROM builds b JOIN projects p ON p.id = b.project_id AND p.deleted_at IS NULL \
                 JOIN build_runs r ON r.build_id = b.id LEFT JOIN runners u ON u.id = b.runner_id \
                 WHERE b.status = 'running' AND b.kind = 0 AND ",
            )
        };
        match self {
            Self::Unheard => running().sql("r.heard_at IS NULL AND r.taken_at < ").number(to_micros(by.given)),
            Self::Silent => running().sql("r.heard_at < ").number(to_micros(by.heard)),
            Self::Overdue => running()
                .sql("b.started_at + 1000000 * (CASE WHEN u.maximum_timeout < COALESCE(b.timeout, ")
                .number(by.usual_timeout)
                .sql(") THEN u.maximum_timeout ELSE COALESCE(b.timeout, ")
                .number(by.usual_timeout)
                .sql(") END) < ")
                .number(to_micros(by.ended)),
            Self::Unwanted => Fragment::new(
                "SELECT b.id FROM builds b JOIN projects p ON p.id = b.project_id AND p.deleted_at IS NULL \
                 WHERE b.status = 'pending' AND b.kind = 0 AND b.queued_at < ",
            )
            .number(to_micros(by.queued)),
        }
    }
}

/// Some of the jobs that are stuck in a way, in the order of their numbers.
pub fn stuck(db: &mut Conn, how: Stuck, by: &Deadlines, most: i64) -> Result<Vec<i64>> {
    let ids = || how.rule(by).sql(" ORDER BY b.id LIMIT ").number(most);
    Ok(on!(db, conn => ids().load(conn))?)
}

/// Whether a job is still stuck in a way.
pub fn is_stuck(db: &mut Conn, how: Stuck, by: &Deadlines, build: i64) -> Result<bool> {
    let id = || how.rule(by).sql(" AND b.id = ").number(build);
    let found: Option<i64> = on!(db, conn => id().get_result(conn).optional())?;
    Ok(found.is_some())
}
