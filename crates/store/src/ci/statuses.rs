//! What is known of commits: jobs, and what others found out, which are builds of the other kind.

use diesel::{prelude::*, sql_types::Bool};
use model::{
    CommitStatus, Oid, Page, Slice, Status, Time,
    pipelines::{BuildKind, EXTERNAL_STAGE},
    statuses::{NewStatus, StatusFilter},
};

use crate::{
    Conn, Result,
    builds::kind_code,
    conn::on,
    fragment::Fragment,
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

type WholeRow = (Row, PipelineRow, Option<SummaryRow>);

fn to_commit_status((row, pipeline, author): WholeRow) -> CommitStatus {
    let Row { id, name, status, target_url, description, allow_failure, created_at, started_at, finished_at } = row;
    CommitStatus {
        id,
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

/// The latest of each name for each branch and each tag.
fn is_latest(project: i64, sha: Oid) -> Fragment<Bool> {
    Fragment::new(
        "builds.id IN (SELECT MAX(b.id) FROM pipelines p JOIN builds b ON b.pipeline_id = p.id WHERE p.project_id = ",
    )
    .number(project)
    .sql(" AND p.sha = ")
    .words(sha.to_string())
    .sql(" AND p.intent_id IS NULL GROUP BY p.ref_name, p.tag, b.kind, b.name)")
}

/// The statuses of a commit, oldest first; of each ref and name only the latest, unless all are wanted.
pub fn list(db: &mut Conn, project: i64, sha: Oid, filter: &StatusFilter, page: Page) -> Result<Slice<CommitStatus>> {
    macro_rules! matching {
        () => {{
            let mut query = builds::table
                .inner_join(pipelines::table)
                .left_join(users::table.on(builds::user_id.eq(users::id.nullable())))
                .filter(pipelines::project_id.eq(project))
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
    let total = on!(db, conn => matching!().count().get_result(conn))?;
    let rows: Vec<WholeRow> = on!(db, conn => matching!()
        .order(builds::id)
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), PipelineRow::as_select(), Option::<SummaryRow>::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_commit_status).collect(), total, page })
}

/// What was last found out about the commit of a pipeline under a name.
pub fn latest(db: &mut Conn, pipeline: i64, name: &str) -> Result<Option<CommitStatus>> {
    let row: Option<WholeRow> = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .left_join(users::table.on(builds::user_id.eq(users::id.nullable())))
        .filter(builds::pipeline_id.eq(pipeline))
        .filter(builds::kind.eq(kind_code(BuildKind::External)))
        .filter(builds::name.eq(name))
        .filter(builds::retried.eq(false))
        .order(builds::id.desc())
        .select((Row::as_select(), PipelineRow::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_commit_status))
}

/// One status, whosever it is.
fn by_id(db: &mut Conn, id: i64) -> Result<CommitStatus> {
    let row: WholeRow = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .left_join(users::table.on(builds::user_id.eq(users::id.nullable())))
        .filter(builds::id.eq(id))
        .select((Row::as_select(), PipelineRow::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn))?;
    Ok(to_commit_status(row))
}

/// Adds a status to a pipeline; what was told before under its name no longer counts.
pub fn insert(
    db: &mut Conn,
    project: i64,
    pipeline: i64,
    author: i64,
    new: &NewStatus,
    now: Time,
) -> Result<CommitStatus> {
    let moment = to_micros(now);
    on!(db, conn => diesel::update(builds::table)
        .filter(builds::pipeline_id.eq(pipeline))
        .filter(builds::kind.eq(kind_code(BuildKind::External)))
        .filter(builds::name.eq(&new.name))
        .filter(builds::retried.eq(false))
        .set(builds::retried.eq(true))
        .execute(conn))?;
    let (stage, stage_index) = EXTERNAL_STAGE;
    let status = new.state.status();
    let id: i64 = on!(db, conn => diesel::insert_into(builds::table)
        .values((
            builds::project_id.eq(project),
            builds::pipeline_id.eq(pipeline),
            builds::kind.eq(kind_code(BuildKind::External)),
            builds::name.eq(&new.name),
            builds::stage.eq(stage),
            builds::stage_index.eq(stage_index),
            builds::status.eq(status.word()),
            builds::start_when.eq("on_success"),
            builds::allow_failure.eq(false),
            builds::user_id.eq(author),
            builds::target_url.eq(&new.target_url),
            builds::description.eq(&new.description),
            builds::created_at.eq(moment),
            builds::started_at.eq((status == Status::Running).then_some(moment)),
            builds::finished_at.eq(status.is_done().then_some(moment)),
        ))
        .returning(builds::id)
        .get_result(conn))?;
    by_id(db, id)
}

/// Takes a status further; what is not told anew stays as it was.
pub fn update(db: &mut Conn, id: i64, author: i64, new: &NewStatus, now: Time) -> Result<CommitStatus> {
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
    let (moment, status) = (to_micros(now), new.state.status());
    let update = Update {
        status: status.word(),
        user_id: author,
        target_url: new.target_url.as_deref(),
        description: new.description.as_deref(),
        started_at: (status == Status::Running).then_some(moment),
        finished_at: status.is_done().then_some(moment),
    };
    on!(db, conn => diesel::update(builds::table.find(id)).set(&update).execute(conn))?;
    by_id(db, id)
}
