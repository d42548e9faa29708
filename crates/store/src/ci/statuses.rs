//! Commit statuses: jobs, and statuses reported by external services, which are stored as jobs of another kind.

use diesel::{prelude::*, sql_types::Bool};
use model::{
    CommitStatus, JobId, Oid, Page, PipelineId, ProjectId, Slice, Status, Time, UserId,
    jobs::JobKind,
    pipelines::EXTERNAL_STAGE,
    statuses::{NewStatus, StatusFilter},
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    jobs::kind_code,
    pipelines::{to_oid, to_status},
    schema::{builds, pipelines, users},
    times::{from_micros, from_micros_opt, to_micros},
    users::SummaryRow,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = builds)]
struct Row {
    id: i64,
    name: String,
    status: String,
    target_url: Option<String>,
    description: Option<String>,
    allow_failure: bool,
    created_at: i64,
    started_at: Option<i64>,
    finished_at: Option<i64>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = pipelines)]
struct PipelineRow {
    sha: String,
    ref_name: String,
}

type JoinedRow = (Row, PipelineRow, Option<SummaryRow>);

fn to_commit_status((row, pipeline, author): JoinedRow) -> CommitStatus {
    let Row { id, name, status, target_url, description, allow_failure, created_at, started_at, finished_at } = row;
    CommitStatus {
        id: JobId::new(id),
        sha: to_oid(&pipeline.sha),
        ref_name: pipeline.ref_name,
        name,
        state: to_status(&status),
        target_url,
        description,
        allow_failure,
        author: author.map(Into::into),
        created_at: from_micros(created_at),
        started_at: from_micros_opt(started_at),
        finished_at: from_micros_opt(finished_at),
    }
}

/// Matches the latest status of each name for each branch and each tag.
fn is_latest(project: ProjectId, sha: Oid) -> Fragment<Bool> {
    Fragment::new(
        "builds.id IN (SELECT MAX(b.id) FROM pipelines p JOIN builds b ON b.pipeline_id = p.id WHERE p.project_id = ",
    )
    .number(project)
    .sql(" AND p.sha = ")
    .text(sha.to_string())
    .sql(" AND p.intent_id IS NULL GROUP BY p.ref_name, p.tag, b.kind, b.name)")
}

/// Returns the statuses of a commit, oldest first; only the latest of each ref and name unless `filter.all` is set.
pub fn list(
    db: &mut Conn,
    project: ProjectId,
    sha: Oid,
    filter: &StatusFilter,
    page: Page,
) -> Result<Slice<CommitStatus>> {
    macro_rules! matching {
        () => {{
            let mut query = builds::table
                .inner_join(pipelines::table)
                .left_join(users::table.on(builds::user_id.eq(users::id.nullable())))
                .filter(pipelines::project_id.eq(project.get()))
                .filter(pipelines::sha.eq(sha.to_string()))
                .filter(pipelines::intent_id.is_null())
                .into_boxed();
            if let Some(ref_name) = &filter.ref_name {
                query = query.filter(pipelines::ref_name.eq(ref_name));
            }
            if let Some(stage) = &filter.stage {
                query = query.filter(builds::stage.eq(stage));
            }
            if let Some(name) = &filter.name {
                query = query.filter(builds::name.eq(name));
            }
            if !filter.all {
                query = query.filter(is_latest(project, sha));
            }
            query
        }};
    }
    let total: i64 = on!(db, conn => matching!().count().get_result(conn))?;
    let rows: Vec<JoinedRow> = on!(db, conn => matching!()
        .order(builds::id)
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), PipelineRow::as_select(), Option::<SummaryRow>::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_commit_status).collect(), total: total.into(), page })
}

/// Returns the latest external status of a name in a pipeline.
pub fn latest(db: &mut Conn, pipeline: PipelineId, name: &str) -> Result<Option<CommitStatus>> {
    let row: Option<JoinedRow> = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .left_join(users::table.on(builds::user_id.eq(users::id.nullable())))
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .filter(builds::kind.eq(kind_code(JobKind::External)))
        .filter(builds::name.eq(name))
        .filter(builds::retried.eq(false))
        .order(builds::id.desc())
        .select((Row::as_select(), PipelineRow::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_commit_status))
}

/// Returns a status by ID.
fn by_id(db: &mut Conn, id: JobId) -> Result<CommitStatus> {
    let row: JoinedRow = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .left_join(users::table.on(builds::user_id.eq(users::id.nullable())))
        .filter(builds::id.eq(id.get()))
        .select((Row::as_select(), PipelineRow::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn))?;
    Ok(to_commit_status(row))
}

/// Inserts an external status and marks the earlier one of the same name as retried.
pub fn insert(
    db: &mut Conn,
    project: ProjectId,
    pipeline: PipelineId,
    author: UserId,
    new: &NewStatus,
    now: Time,
) -> Result<CommitStatus> {
    let timestamp = to_micros(now);
    on!(db, conn => diesel::update(builds::table)
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .filter(builds::kind.eq(kind_code(JobKind::External)))
        .filter(builds::name.eq(&new.name))
        .filter(builds::retried.eq(false))
        .set(builds::retried.eq(true))
        .execute(conn))?;
    let (stage, stage_index) = EXTERNAL_STAGE;
    let status = new.state.status();
    let id: i64 = on!(db, conn => diesel::insert_into(builds::table)
        .values((
            builds::project_id.eq(project.get()),
            builds::pipeline_id.eq(pipeline.get()),
            builds::kind.eq(kind_code(JobKind::External)),
            builds::name.eq(&new.name),
            builds::stage.eq(stage),
            builds::stage_index.eq(stage_index),
            builds::status.eq(status.as_str()),
            builds::start_when.eq("on_success"),
            builds::allow_failure.eq(false),
            builds::user_id.eq(author.get()),
            builds::target_url.eq(&new.target_url),
            builds::description.eq(&new.description),
            builds::created_at.eq(timestamp),
            builds::started_at.eq((status == Status::Running).then_some(timestamp)),
            builds::finished_at.eq(status.is_done().then_some(timestamp)),
        ))
        .returning(builds::id)
        .get_result(conn))?;
    by_id(db, JobId::new(id))
}

/// Updates an external status; missing fields are kept.
pub fn update(db: &mut Conn, id: JobId, author: UserId, new: &NewStatus, now: Time) -> Result<CommitStatus> {
    #[derive(AsChangeset)]
    #[diesel(table_name = builds)]
    struct Update<'a> {
        status: &'static str,
        user_id: i64,
        target_url: Option<&'a str>,
        description: Option<&'a str>,
        started_at: Option<i64>,
        finished_at: Option<i64>,
    }
    let (timestamp, status) = (to_micros(now), new.state.status());
    let update = Update {
        status: status.as_str(),
        user_id: author.get(),
        target_url: new.target_url.as_deref(),
        description: new.description.as_deref(),
        started_at: (status == Status::Running).then_some(timestamp),
        finished_at: status.is_done().then_some(timestamp),
    };
    on!(db, conn => diesel::update(builds::table.find(id.get())).set(&update).execute(conn))?;
    by_id(db, id)
}
