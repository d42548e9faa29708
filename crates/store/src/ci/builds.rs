//! Builds: the jobs of pipelines, and what others found out about their commits.

use std::collections::HashMap;

use diesel::{prelude::*, sql_types::Bool};
use model::{
    Build, Status, Time,
    pipelines::{ArtifactSummary, BuildKind, PipelineSummary},
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

/// How many rows are written in one statement.
const AT_ONCE: usize = 200;
/// What the archive of a build is called among what it left behind.
pub const ARCHIVE: &str = "archive";

pub(crate) fn kind_code(kind: BuildKind) -> i32 {
    match kind {
        BuildKind::Job => 0,
        BuildKind::External => 1,
    }
}

fn to_kind(code: i32) -> BuildKind {
    if code == 0 { BuildKind::Job } else { BuildKind::External }
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

/// Builds with everything that they show but what they left behind, as [`WholeRow`]s: to be filtered and ordered.
macro_rules! whole_builds {
    () => {
        crate::schema::builds::table
            .inner_join(crate::schema::pipelines::table)
            .left_join(
                crate::schema::users::table.on(crate::schema::builds::user_id.eq(crate::schema::users::id.nullable())),
            )
            .left_join(crate::schema::runners::table)
            .select((
                crate::builds::Row::as_select(),
                crate::builds::PipelineRow::as_select(),
                Option::<crate::users::SummaryRow>::as_select(),
                Option::<crate::builds::RunnerRow>::as_select(),
            ))
    };
}
pub(crate) use whole_builds;

/// A build with everything that it shows but what it left behind.
pub(crate) type WholeRow = (Row, PipelineRow, Option<SummaryRow>, Option<RunnerRow>);

fn to_build((row, pipeline, user, runner): WholeRow) -> Build {
    Build {
        id: row.id,
        project_id: row.project_id,
        pipeline: PipelineSummary {
            id: pipeline.id,
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
            id,
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

/// Makes builds of rows, with what they left behind: one statement for all of them.
pub(crate) fn with_artifacts(db: &mut Conn, rows: Vec<WholeRow>, now: Time) -> Result<Vec<Build>> {
    let mut found: Vec<Build> = rows.into_iter().map(to_build).collect();
    if found.is_empty() {
        return Ok(found);
    }
    let ids: Vec<i64> = found.iter().map(|build| build.id).collect();
    let files: Vec<(i64, String, Option<i64>, Option<i64>)> = on!(db, conn => build_artifacts::table
        .filter(Fragment::<Bool>::new("build_artifacts.build_id").among(&ids))
        .filter(build_artifacts::kind.eq(ARCHIVE))
        .filter(build_artifacts::size.is_not_null())
        .order(build_artifacts::id)
        .select((build_artifacts::build_id, build_artifacts::name, build_artifacts::size, build_artifacts::expires_at))
        .load(conn))?;
    let mut by_build: HashMap<i64, ArtifactSummary> = HashMap::new();
    for (build, name, size, expires_at) in files {
        let expires_at = from_micros_opt(expires_at);
        if let Some(size) = size.filter(|_| expires_at.is_none_or(|end| now < end)) {
            by_build.insert(build, ArtifactSummary { name, size, expires_at });
        }
    }
    for build in &mut found {
        build.artifacts = by_build.remove(&build.id);
    }
    Ok(found)
}

/// Some builds by number, wherever they are, in the order of their numbers.
pub fn by_ids(db: &mut Conn, ids: &[i64], now: Time) -> Result<Vec<Build>> {
    let rows: Vec<WholeRow> = on!(db, conn => whole_builds!()
        .filter(Fragment::<Bool>::new("builds.id").among(ids))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// All builds of a pipeline, also those that were tried again, in the order of their numbers.
pub fn of_pipeline(db: &mut Conn, pipeline: i64, now: Time) -> Result<Vec<Build>> {
    let rows: Vec<WholeRow> = on!(db, conn => whole_builds!()
        .filter(builds::pipeline_id.eq(pipeline))
        .order(builds::id)
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// A build about to be written down, in state `created`.
#[derive(Clone, Debug)]
pub struct NewBuild {
    /// What it is called.
    pub name: String,
    /// Its stage.
    pub stage: String,
    /// The position of its stage.
    pub stage_index: i32,
    /// When it starts.
    pub when: &'static str,
    /// Whether the others go on if it fails, as far as that is known.
    pub allow_failure: bool,
    /// The names of those that it waits for; `None` is all earlier stages.
    pub needs: Option<Vec<String>>,
    /// What a runner must have.
    pub tags: Vec<String>,
    /// After how many seconds it is stopped.
    pub timeout: Option<i64>,
    /// What it does, in the notation of the planner.
    pub spec: String,
}

/// Writes the builds of a pipeline down.
pub fn insert_all(
    db: &mut Conn,
    project: i64,
    pipeline: i64,
    user: Option<i64>,
    new: &[NewBuild],
    now: Time,
) -> Result<()> {
    for some in new.chunks(AT_ONCE) {
        let specs: Vec<_> =
            some.iter().map(|build| (build_specs::project_id.eq(project), build_specs::spec.eq(&build.spec))).collect();
        let mut specs: Vec<i64> = on!(db, conn => diesel::insert_into(build_specs::table)
            .values(&specs)
            .returning(build_specs::id)
            .get_results(conn))?;
        // Numbers are given in the order of the rows.
        specs.sort_unstable();
        let rows: Vec<_> = some
            .iter()
            .zip(specs)
            .map(|(build, spec)| {
                (
                    builds::project_id.eq(project),
                    builds::pipeline_id.eq(pipeline),
                    builds::kind.eq(kind_code(BuildKind::Job)),
                    builds::name.eq(&build.name),
                    builds::stage.eq(&build.stage),
                    builds::stage_index.eq(build.stage_index),
                    builds::status.eq(Status::Created.word()),
                    builds::start_when.eq(build.when),
                    builds::allow_failure.eq(build.allow_failure),
                    builds::user_id.eq(user),
                    builds::spec_id.eq(spec),
                    builds::needs.eq(build.needs.as_ref().map(|names| names.join("\n"))),
                    builds::tags.eq(build.tags.join("\n")),
                    builds::timeout.eq(build.timeout),
                    builds::created_at.eq(to_micros(now)),
                )
            })
            .collect();
        on!(db, conn => diesel::insert_into(builds::table).values(&rows).execute(conn))?;
    }
    Ok(())
}

/// What the state machine knows of a build.
#[derive(Clone, Debug)]
pub struct BuildState {
    /// Its number.
    pub id: i64,
    /// Whose it is.
    pub kind: BuildKind,
    /// What it is called.
    pub name: String,
    /// The position of its stage.
    pub stage_index: i32,
    /// How it stands.
    pub status: Status,
    /// When it starts.
    pub when: String,
    /// Whether the others go on if it fails.
    pub allow_failure: bool,
    /// The names of those that it waits for; `None` is all earlier stages.
    pub needs: Option<Vec<String>>,
    /// When it began and ended.
    pub ran: (Option<Time>, Option<Time>),
}

/// The latest build of each name of a pipeline, in the order of their numbers.
pub fn latest_of(db: &mut Conn, pipeline: i64) -> Result<Vec<BuildState>> {
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
        .filter(builds::pipeline_id.eq(pipeline))
        .filter(builds::retried.eq(false))
        .order(builds::id)
        .select(StateRow::as_select())
        .load(conn))?;
    let to_state = |row: StateRow| BuildState {
        id: row.id,
        kind: to_kind(row.kind),
        name: row.name,
        stage_index: row.stage_index,
        status: to_status(&row.status),
        when: row.start_when,
        allow_failure: row.allow_failure,
        needs: row.needs.map(|names| to_lines(&names)),
        ran: (from_micros_opt(row.started_at), from_micros_opt(row.finished_at)),
    };
    Ok(rows.into_iter().map(to_state).collect())
}

/// How builds stand from now on.
#[derive(Clone, Debug, Default)]
pub struct NewBuildState<'a> {
    /// Why it failed, in one word.
    pub failure_reason: Option<&'a str>,
    /// Whether the others go on although it failed, if that is known only now.
    pub allow_failure: Option<bool>,
    /// Who causes it from now on.
    pub user: Option<i64>,
}

/// Takes builds to a state, with the moments that follow from it.
pub fn set_status(db: &mut Conn, ids: &[i64], status: Status, also: &NewBuildState<'_>, now: Time) -> Result<()> {
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
    let moment = to_micros(now);
    let update = Update {
        status: status.word(),
        allow_failure: also.allow_failure,
        failure_reason: also.failure_reason,
        user_id: also.user,
        queued_at: (status == Status::Pending).then_some(moment),
        started_at: (status == Status::Running).then_some(moment),
        finished_at: matches!(status, Status::Success | Status::Failed | Status::Canceled).then_some(moment),
    };
    on!(db, conn => diesel::update(builds::table)
        .filter(Fragment::<Bool>::new("builds.id").among(ids))
        .set(&update)
        .execute(conn))?;
    Ok(())
}

/// Makes builds anew that are tried again, in state `created` and with the same work; answers the numbers of the new ones
/// in the order of the old ones. The old ones no longer count.
pub fn renew(db: &mut Conn, ids: &[i64], user: Option<i64>, automatic: bool, now: Time) -> Result<Vec<i64>> {
    let whose = || match user {
        Some(user) => Fragment::<diesel::sql_types::BigInt>::new("").number(user),
        None => Fragment::new("user_id"),
    };
    let mut made = Vec::with_capacity(ids.len());
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
            .then(whose())
            .sql(", spec_id, needs, tags, timeout, ")
            .number(to_micros(now))
            .sql(" FROM builds WHERE id = ")
            .number(*id)
            .sql(" RETURNING id")
        };
        made.push(on!(db, conn => copy().get_result(conn))?);
    }
    on!(db, conn => diesel::update(builds::table)
        .filter(Fragment::<Bool>::new("builds.id").among(ids))
        .set(builds::retried.eq(true))
        .execute(conn))?;
    Ok(made)
}

/// Notes of builds that it is not known yet whether their failure matters: that depends on how they fail.
pub fn judge_later(db: &mut Conn, ids: &[i64]) -> Result<()> {
    on!(db, conn => diesel::update(builds::table)
        .filter(Fragment::<Bool>::new("builds.id").among(ids))
        .set(builds::allow_failure.eq(false))
        .execute(conn))?;
    Ok(())
}

/// Where a build belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildPlace {
    /// The project.
    pub project: i64,
    /// The pipeline.
    pub pipeline: i64,
}

/// Where a build belongs, wherever it is.
pub fn place_of(db: &mut Conn, id: i64) -> Result<Option<BuildPlace>> {
    let found: Option<(i64, i64)> = on!(db, conn => builds::table
        .find(id)
        .select((builds::project_id, builds::pipeline_id))
        .first(conn)
        .optional())?;
    Ok(found.map(|(project, pipeline)| BuildPlace { project, pipeline }))
}

/// Gives a job that waits to a runner; whether it still waited.
pub fn take(db: &mut Conn, id: i64, runner: i64, now: Time) -> Result<bool> {
    let moment = to_micros(now);
    let taken = on!(db, conn => diesel::update(builds::table.find(id))
        .filter(builds::status.eq(Status::Pending.word()))
        .filter(builds::kind.eq(kind_code(BuildKind::Job)))
        .set((
            builds::status.eq(Status::Running.word()),
            builds::runner_id.eq(runner),
            builds::started_at.eq(moment),
        ))
        .execute(conn))?;
    Ok(taken > 0)
}
