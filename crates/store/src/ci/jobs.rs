//! Jobs: those run by runners, and commit statuses reported by external services.

use std::collections::HashMap;

use diesel::{prelude::*, sql_types::Bool};
use model::{
    Job, JobId, PipelineId, ProjectId, RunnerId, Status, Time, UserId,
    jobs::{ArtifactSummary, JobKind},
    pipelines::PipelineSummary,
    runners::RunnerSummary,
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    pipelines::{to_lines, to_oid, to_status},
    schema::{build_artifacts, build_specs, builds, pipelines, runners},
    times::{from_micros, from_micros_opt, to_micros},
    users::SummaryRow,
};

/// The maximum number of rows inserted by one statement.
const BATCH_SIZE: usize = 200;
/// The kind of artifact that holds the archive of a job.
pub const ARCHIVE: &str = "archive";

pub(crate) fn kind_code(kind: JobKind) -> i32 {
    match kind {
        JobKind::Runner => 0,
        JobKind::External => 1,
    }
}

fn to_kind(code: i32) -> JobKind {
    if code == 0 { JobKind::Runner } else { JobKind::External }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = builds)]
pub(crate) struct Row {
    id: i64,
    project_id: i64,
    kind: i32,
    name: String,
    stage: String,
    stage_index: i32,
    status: String,
    start_when: String,
    allow_failure: bool,
    retried: bool,
    tags: String,
    coverage: Option<f64>,
    failure_reason: Option<String>,
    created_at: i64,
    queued_at: Option<i64>,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    erased_at: Option<i64>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = pipelines)]
pub(crate) struct PipelineRow {
    id: i64,
    sha: String,
    ref_name: String,
    tag: bool,
    status: String,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = runners)]
pub(crate) struct RunnerRow {
    id: i64,
    description: String,
    active: bool,
    is_shared: bool,
    name: Option<String>,
}

/// Selects jobs as [`JoinedRow`]s, without their artifacts; the caller adds filters and an order.
macro_rules! joined_jobs {
    () => {
        crate::schema::builds::table
            .inner_join(crate::schema::pipelines::table)
            .left_join(
                crate::schema::users::table.on(crate::schema::builds::user_id.eq(crate::schema::users::id.nullable())),
            )
            .left_join(crate::schema::runners::table)
            .select((
                crate::jobs::Row::as_select(),
                crate::jobs::PipelineRow::as_select(),
                Option::<crate::users::SummaryRow>::as_select(),
                Option::<crate::jobs::RunnerRow>::as_select(),
            ))
    };
}
pub(crate) use joined_jobs;

/// A job joined with its pipeline, user and runner, without its artifacts.
pub(crate) type JoinedRow = (Row, PipelineRow, Option<SummaryRow>, Option<RunnerRow>);

fn to_job((row, pipeline, user, runner): JoinedRow) -> Job {
    Job {
        id: JobId::new(row.id),
        project_id: ProjectId::new(row.project_id),
        pipeline: PipelineSummary {
            id: PipelineId::new(pipeline.id),
            sha: to_oid(&pipeline.sha),
            ref_name: pipeline.ref_name,
            tag: pipeline.tag,
            status: to_status(&pipeline.status),
        },
        kind: to_kind(row.kind),
        name: row.name,
        stage: row.stage,
        stage_index: row.stage_index,
        status: to_status(&row.status),
        when: row.start_when,
        allow_failure: row.allow_failure,
        retried: row.retried,
        user: user.map(Into::into),
        runner: runner.map(|RunnerRow { id, description, active, is_shared, name }| RunnerSummary {
            id: RunnerId::new(id),
            description,
            active,
            is_shared,
            name,
        }),
        tags: to_lines(&row.tags),
        coverage: row.coverage,
        failure_reason: row.failure_reason,
        artifacts: None,
        created_at: from_micros(row.created_at),
        queued_at: from_micros_opt(row.queued_at),
        started_at: from_micros_opt(row.started_at),
        finished_at: from_micros_opt(row.finished_at),
        erased_at: from_micros_opt(row.erased_at),
    }
}

/// Converts rows to jobs and loads the artifacts of all of them with one statement.
pub(crate) fn with_artifacts(db: &mut Conn, rows: Vec<JoinedRow>, now: Time) -> Result<Vec<Job>> {
    let mut found: Vec<Job> = rows.into_iter().map(to_job).collect();
    if found.is_empty() {
        return Ok(found);
    }
    let ids: Vec<JobId> = found.iter().map(|job| job.id).collect();
    let files: Vec<(i64, String, Option<i64>, Option<i64>)> = on!(db, conn => build_artifacts::table
        .filter(Fragment::<Bool>::new("build_artifacts.build_id").in_ids(&ids))
        .filter(build_artifacts::kind.eq(ARCHIVE))
        .filter(build_artifacts::size.is_not_null())
        .order(build_artifacts::id)
        .select((build_artifacts::build_id, build_artifacts::name, build_artifacts::size, build_artifacts::expires_at))
        .load(conn))?;
    let mut jobs_by_id: HashMap<JobId, ArtifactSummary> = HashMap::new();
    for (job, name, size, expires_at) in files {
        let expires_at = from_micros_opt(expires_at);
        if let Some(size) = size.filter(|_| expires_at.is_none_or(|end| now < end)) {
            jobs_by_id.insert(JobId::new(job), ArtifactSummary { name, size, expires_at });
        }
    }
    for job in &mut found {
        job.artifacts = jobs_by_id.remove(&job.id);
    }
    Ok(found)
}

/// Returns jobs by ID, regardless of project, ordered by ID.
pub fn by_ids(db: &mut Conn, ids: &[JobId], now: Time) -> Result<Vec<Job>> {
    let rows: Vec<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(Fragment::<Bool>::new("builds.id").in_ids(ids))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// Returns all jobs of a pipeline, including retried ones, ordered by ID.
pub fn of_pipeline(db: &mut Conn, pipeline: PipelineId, now: Time) -> Result<Vec<Job>> {
    let rows: Vec<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// A job to insert, with status `created`.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// The name of the job.
    pub name: String,
    /// The name of its stage.
    pub stage: String,
    /// The position of its stage.
    pub stage_index: i32,
    /// When the job starts.
    pub when: &'static str,
    /// Whether the pipeline continues if the job fails; `false` if that depends on the exit code.
    pub allow_failure: bool,
    /// The names of the jobs that it needs; `None` stands for all earlier stages.
    pub needs: Option<Vec<String>>,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// The timeout in seconds.
    pub timeout: Option<i64>,
    /// The job specification, in the format of the planner.
    pub spec: String,
}

/// Inserts the jobs of a pipeline.
pub fn insert_all(
    db: &mut Conn,
    project: ProjectId,
    pipeline: PipelineId,
    user: Option<UserId>,
    new: &[NewJob],
    now: Time,
) -> Result<()> {
    for batch in new.chunks(BATCH_SIZE) {
        let specs: Vec<_> = batch
            .iter()
            .map(|job| (build_specs::project_id.eq(project.get()), build_specs::spec.eq(&job.spec)))
            .collect();
        let mut specs: Vec<i64> = on!(db, conn => diesel::insert_into(build_specs::table)
            .values(&specs)
            .returning(build_specs::id)
            .get_results(conn))?;
        // IDs are assigned in the order of the rows.
        specs.sort_unstable();
        let rows: Vec<_> = batch
            .iter()
            .zip(specs)
            .map(|(job, spec)| {
                (
                    builds::project_id.eq(project.get()),
                    builds::pipeline_id.eq(pipeline.get()),
                    builds::kind.eq(kind_code(JobKind::Runner)),
                    builds::name.eq(&job.name),
                    builds::stage.eq(&job.stage),
                    builds::stage_index.eq(job.stage_index),
                    builds::status.eq(Status::Created.as_str()),
                    builds::start_when.eq(job.when),
                    builds::allow_failure.eq(job.allow_failure),
                    builds::user_id.eq(user.map(UserId::get)),
                    builds::spec_id.eq(spec),
                    builds::needs.eq(job.needs.as_ref().map(|names| names.join("\n"))),
                    builds::tags.eq(job.tags.join("\n")),
                    builds::timeout.eq(job.timeout),
                    builds::created_at.eq(to_micros(now)),
                )
            })
            .collect();
        on!(db, conn => diesel::insert_into(builds::table).values(&rows).execute(conn))?;
    }
    Ok(())
}

/// The latest job of its name in a pipeline, as the state machine needs it.
#[derive(Clone, Debug)]
pub struct LatestJob {
    /// The ID.
    pub id: JobId,
    /// The kind of job.
    pub kind: JobKind,
    /// The name of the job.
    pub name: String,
    /// The position of its stage.
    pub stage_index: i32,
    /// The status.
    pub status: Status,
    /// When the job starts.
    pub when: String,
    /// Whether the pipeline continues if the job fails.
    pub allow_failure: bool,
    /// The names of the jobs that it needs; `None` stands for all earlier stages.
    pub needs: Option<Vec<String>>,
    /// When the job started.
    pub started_at: Option<Time>,
    /// When the job finished.
    pub finished_at: Option<Time>,
}

/// Returns the latest job of each name in a pipeline, ordered by ID.
pub fn latest_of_pipeline(db: &mut Conn, pipeline: PipelineId) -> Result<Vec<LatestJob>> {
    #[derive(Queryable, Selectable)]
    #[diesel(table_name = builds)]
    struct StateRow {
        id: i64,
        kind: i32,
        name: String,
        stage_index: i32,
        status: String,
        start_when: String,
        allow_failure: bool,
        needs: Option<String>,
        started_at: Option<i64>,
        finished_at: Option<i64>,
    }
    let rows: Vec<StateRow> = on!(db, conn => builds::table
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .filter(builds::retried.eq(false))
        .order(builds::id)
        .select(StateRow::as_select())
        .load(conn))?;
    let to_state = |row: StateRow| LatestJob {
        id: JobId::new(row.id),
        kind: to_kind(row.kind),
        name: row.name,
        stage_index: row.stage_index,
        status: to_status(&row.status),
        when: row.start_when,
        allow_failure: row.allow_failure,
        needs: row.needs.map(|names| to_lines(&names)),
        started_at: from_micros_opt(row.started_at),
        finished_at: from_micros_opt(row.finished_at),
    };
    Ok(rows.into_iter().map(to_state).collect())
}

/// Fields to change together with a status; `None` keeps the stored value.
#[derive(Clone, Debug, Default)]
pub struct JobChanges<'a> {
    /// The machine-readable reason of a failure.
    pub failure_reason: Option<&'a str>,
    /// Whether the pipeline continues although the job failed, if that depends on the exit code.
    pub allow_failure: Option<bool>,
    /// The user on whose behalf the job runs.
    pub user: Option<UserId>,
}

/// Sets the status of jobs, together with the timestamps that it implies.
pub fn set_status(db: &mut Conn, ids: &[JobId], status: Status, changes: &JobChanges<'_>, now: Time) -> Result<()> {
    #[derive(AsChangeset)]
    #[diesel(table_name = builds)]
    struct Update<'a> {
        status: &'static str,
        allow_failure: Option<bool>,
        failure_reason: Option<&'a str>,
        user_id: Option<i64>,
        queued_at: Option<i64>,
        started_at: Option<i64>,
        finished_at: Option<i64>,
    }
    let timestamp = to_micros(now);
    let update = Update {
        status: status.as_str(),
        allow_failure: changes.allow_failure,
        failure_reason: changes.failure_reason,
        user_id: changes.user.map(UserId::get),
        queued_at: (status == Status::Pending).then_some(timestamp),
        started_at: (status == Status::Running).then_some(timestamp),
        finished_at: matches!(status, Status::Success | Status::Failed | Status::Canceled).then_some(timestamp),
    };
    on!(db, conn => diesel::update(builds::table)
        .filter(Fragment::<Bool>::new("builds.id").in_ids(ids))
        .set(&update)
        .execute(conn))?;
    Ok(())
}

/// Inserts a copy of each job, with status `created`, and marks the originals as retried. Returns the IDs of the copies in
/// the order of `ids`.
pub fn insert_retries(
    db: &mut Conn,
    ids: &[JobId],
    user: Option<UserId>,
    automatic: bool,
    now: Time,
) -> Result<Vec<JobId>> {
    let user_id_sql = || match user {
        Some(user) => Fragment::<diesel::sql_types::BigInt>::new("").number(user),
        None => Fragment::new("user_id"),
    };
    let mut new_ids = Vec::with_capacity(ids.len());
    for id in ids {
        let copy = || {
            Fragment::<diesel::sql_types::BigInt>::new(
                "INSERT INTO builds (project_id, pipeline_id, kind, name, stage, stage_index, status, start_when, \
                 allow_failure, retried, attempt, user_id, spec_id, needs, tags, timeout, created_at) \
                 SELECT project_id, pipeline_id, kind, name, stage, stage_index, 'created', start_when, \
                 allow_failure, ",
            )
            .flag(false)
            .sql(if automatic { ", attempt + 1, " } else { ", 0, " })
            .append(user_id_sql())
            .sql(", spec_id, needs, tags, timeout, ")
            .number(to_micros(now))
            .sql(" FROM builds WHERE id = ")
            .number(*id)
            .sql(" RETURNING id")
        };
        new_ids.push(JobId::new(on!(db, conn => copy().get_result(conn))?));
    }
    on!(db, conn => diesel::update(builds::table)
        .filter(Fragment::<Bool>::new("builds.id").in_ids(ids))
        .set(builds::retried.eq(true))
        .execute(conn))?;
    Ok(new_ids)
}

/// Sets `allow_failure` to false for jobs for which it depends on the exit code.
pub fn clear_allow_failure(db: &mut Conn, ids: &[JobId]) -> Result<()> {
    on!(db, conn => diesel::update(builds::table)
        .filter(Fragment::<Bool>::new("builds.id").in_ids(ids))
        .set(builds::allow_failure.eq(false))
        .execute(conn))?;
    Ok(())
}

/// The project and the pipeline of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobParents {
    /// The project ID.
    pub project: ProjectId,
    /// The pipeline ID.
    pub pipeline: PipelineId,
}

/// Returns the project and the pipeline of a job.
pub fn parents_of(db: &mut Conn, id: JobId) -> Result<Option<JobParents>> {
    let found: Option<(i64, i64)> = on!(db, conn => builds::table
        .find(id.get())
        .select((builds::project_id, builds::pipeline_id))
        .first(conn)
        .optional())?;
    let parents =
        |(project, pipeline)| JobParents { project: ProjectId::new(project), pipeline: PipelineId::new(pipeline) };
    Ok(found.map(parents))
}

/// Assigns a pending job to a runner; returns whether it was still pending.
pub fn assign(db: &mut Conn, id: JobId, runner: RunnerId, now: Time) -> Result<bool> {
    let timestamp = to_micros(now);
    let updated = on!(db, conn => diesel::update(builds::table.find(id.get()))
        .filter(builds::status.eq(Status::Pending.as_str()))
        .filter(builds::kind.eq(kind_code(JobKind::Runner)))
        .set((
            builds::status.eq(Status::Running.as_str()),
            builds::runner_id.eq(runner.get()),
            builds::started_at.eq(timestamp),
        ))
        .execute(conn))?;
    Ok(updated > 0)
}
