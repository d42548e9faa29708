//! Pipelines.

use diesel::{
    prelude::*,
    sql_types::{Bool, Double, Nullable},
};
use model::{
    IntentId, Oid, Page, Pipeline, PipelineId, ProjectId, Slice, Status, Time, TriggerId, UserId,
    pipelines::{PipelineFilter, Source},
};

use crate::{
    Conn, Result,
    conn::on,
    constant::constant,
    count_up_to::CountUpTo,
    fragment::Fragment,
    schema::{builds, pipelines, users},
    times::{from_micros, from_micros_opt, to_micros},
    users::SummaryRow,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = pipelines)]
pub(crate) struct Row {
    id: i64,
    project_id: i64,
    ref_name: String,
    tag: bool,
    sha: String,
    before_sha: Option<String>,
    source: String,
    status: String,
    yaml_errors: Option<String>,
    stages: String,
    created_at: i64,
    updated_at: i64,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    duration: Option<i64>,
}

type JoinedRow = (Row, Option<SummaryRow>, Option<f64>);

pub(crate) fn to_pipeline((row, user, coverage): JoinedRow) -> Pipeline {
    Pipeline {
        id: PipelineId::new(row.id),
        project_id: ProjectId::new(row.project_id),
        ref_name: row.ref_name,
        tag: row.tag,
        sha: to_oid(&row.sha),
        before_sha: row.before_sha.as_deref().map(to_oid),
        source: Source::parse(&row.source).unwrap_or(Source::External),
        status: to_status(&row.status),
        yaml_errors: row.yaml_errors,
        stages: to_lines(&row.stages),
        user: user.map(Into::into),
        created_at: from_micros(row.created_at),
        updated_at: from_micros(row.updated_at),
        started_at: from_micros_opt(row.started_at),
        finished_at: from_micros_opt(row.finished_at),
        duration: row.duration,
        coverage,
    }
}

pub(crate) fn to_oid(text: &str) -> Oid {
    text.parse().unwrap_or(Oid([0; 20]))
}

/// An unknown status was written by a newer version and is treated as a failure.
pub(crate) fn to_status(name: &str) -> Status {
    Status::parse(name).unwrap_or(Status::Failed)
}

/// Splits a newline-separated list.
pub(crate) fn to_lines(text: &str) -> Vec<String> {
    text.lines().map(ToOwned::to_owned).collect()
}

/// The average coverage of the latest jobs of a pipeline.
pub(crate) fn coverage() -> Fragment<Nullable<Double>> {
    Fragment::new("(SELECT AVG(b.coverage) FROM builds b WHERE b.pipeline_id = pipelines.id AND ")
        .per_engine("NOT b.retried", "b.retried IS FALSE")
        .sql(")")
}

/// A pipeline to insert.
pub struct NewPipeline<'a> {
    /// The project ID.
    pub project: ProjectId,
    /// The short name of the branch or the tag.
    pub ref_name: &'a str,
    /// Whether the ref is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: Oid,
    /// The previous commit of the ref, as reported to clients.
    pub before_sha: Option<Oid>,
    /// What started the pipeline.
    pub source: Source,
    /// The initial status.
    pub status: Status,
    /// The error in the CI file.
    pub yaml_errors: Option<&'a str>,
    /// The stages in order.
    pub stages: &'a [String],
    /// The ID of the user who starts it.
    pub user: Option<UserId>,
    /// The ID of the trigger that starts it.
    pub trigger: Option<TriggerId>,
    /// The variables passed by the trigger, encrypted.
    pub variables: Option<&'a [u8]>,
    /// The current time.
    pub now: Time,
}

/// Inserts a pipeline and returns its ID.
pub fn insert(db: &mut Conn, new: &NewPipeline<'_>) -> Result<PipelineId> {
    let now = to_micros(new.now);
    let id = on!(db, conn => diesel::insert_into(pipelines::table)
        .values((
            pipelines::project_id.eq(new.project.get()),
            pipelines::ref_name.eq(new.ref_name),
            pipelines::tag.eq(new.tag),
            pipelines::sha.eq(new.sha.to_string()),
            pipelines::before_sha.eq(new.before_sha.map(|oid| oid.to_string())),
            pipelines::source.eq(new.source.as_str()),
            pipelines::status.eq(new.status.as_str()),
            pipelines::yaml_errors.eq(new.yaml_errors),
            pipelines::stages.eq(new.stages.join("\n")),
            pipelines::user_id.eq(new.user.map(UserId::get)),
            pipelines::trigger_id.eq(new.trigger.map(TriggerId::get)),
            pipelines::variables.eq(new.variables),
            pipelines::created_at.eq(now),
            pipelines::updated_at.eq(now),
            pipelines::finished_at.eq((new.status == Status::Failed).then_some(now)),
        ))
        .returning(pipelines::id)
        .get_result(conn))?;
    Ok(PipelineId::new(id))
}

/// Returns a pipeline regardless of project, even if it is hidden.
pub fn by_id(db: &mut Conn, id: PipelineId) -> Result<Option<Pipeline>> {
    let row: Option<JoinedRow> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(pipelines::id.eq(id.get()))
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_pipeline))
}

/// Returns a pipeline of a project unless it is hidden.
pub fn find(db: &mut Conn, project: ProjectId, id: PipelineId) -> Result<Option<Pipeline>> {
    let row: Option<JoinedRow> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(pipelines::id.eq(id.get()))
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::intent_id.is_null())
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_pipeline))
}

/// Returns a page of the pipelines of a project, newest first.
pub fn list(db: &mut Conn, project: ProjectId, filter: &PipelineFilter, page: Page) -> Result<Slice<Pipeline>> {
    macro_rules! matching {
        () => {{
            let mut query = pipelines::table
                .left_join(users::table)
                .filter(pipelines::project_id.eq(project.get()))
                .filter(pipelines::intent_id.is_null())
                .into_boxed();
            if filter.only_running {
                // Matches the condition of the partial index.
                query = query.filter(Fragment::<Bool>::new("pipelines.status IN ('pending', 'running')"));
            }
            if let Some(status) = filter.status {
                query = query.filter(pipelines::status.eq(status.as_str()));
            }
            if let Some(ref_name) = &filter.ref_name {
                query = query.filter(pipelines::ref_name.eq(ref_name));
            }
            query
        }};
    }
    let total = on!(db, conn => CountUpTo::of_list(matching!().select(pipelines::id), page).total(conn))?;
    let rows: Vec<JoinedRow> = on!(db, conn => matching!()
        .order(pipelines::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_pipeline).collect(), total, page })
}

/// Returns the ID of the newest pipeline of each branch, or of each tag, that has one.
pub fn newest_of_refs(db: &mut Conn, project: ProjectId, tags: bool) -> Result<Vec<(String, PipelineId)>> {
    let rows: Vec<(String, Option<i64>)> = on!(db, conn => pipelines::table
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::intent_id.is_null())
        .filter(pipelines::tag.eq(tags))
        .group_by(pipelines::ref_name)
        .select((pipelines::ref_name, diesel::dsl::max(pipelines::id)))
        .load(conn))?;
    Ok(rows.into_iter().filter_map(|(name, id)| Some((name, PipelineId::new(id?)))).collect())
}

/// Returns pipelines by ID, newest first.
pub fn by_ids(db: &mut Conn, ids: &[PipelineId]) -> Result<Vec<Pipeline>> {
    let rows: Vec<JoinedRow> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(Fragment::<Bool>::new("pipelines.id").in_ids(ids))
        .order(pipelines::id.desc())
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .load(conn))?;
    Ok(rows.into_iter().map(to_pipeline).collect())
}

/// A status that at least one of the latest jobs in a stage of a pipeline has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageStatus {
    /// The ID of the pipeline.
    pub pipeline: PipelineId,
    /// The position of the stage.
    pub index: i32,
    /// The name of the stage.
    pub stage: String,
    /// The status.
    pub status: Status,
    /// Whether the job may fail.
    pub allow_failure: bool,
}

/// Returns the distinct statuses in the stages of pipelines, ordered by stage.
pub fn stage_statuses(db: &mut Conn, ids: &[PipelineId]) -> Result<Vec<StageStatus>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(i64, i32, String, String, bool)> = on!(db, conn => builds::table
        .filter(Fragment::<Bool>::new("builds.pipeline_id").in_ids(ids))
        .filter(builds::retried.eq(false))
        .select((builds::pipeline_id, builds::stage_index, builds::stage, builds::status, builds::allow_failure))
        .distinct()
        .order((builds::stage_index, builds::stage))
        .load(conn))?;
    let found = rows.into_iter().map(|(pipeline, index, stage, status, allow_failure)| StageStatus {
        pipeline: PipelineId::new(pipeline),
        index,
        stage,
        status: to_status(&status),
        allow_failure,
    });
    Ok(found.collect())
}

/// Returns the newest pipeline of a commit with its status.
pub fn newest_of_commit(db: &mut Conn, project: ProjectId, sha: Oid) -> Result<Option<(PipelineId, Status)>> {
    let found: Option<(i64, String)> = on!(db, conn => pipelines::table
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::sha.eq(sha.to_string()))
        .filter(pipelines::intent_id.is_null())
        .order(pipelines::id.desc())
        .select((pipelines::id, pipelines::status))
        .first(conn)
        .optional())?;
    Ok(found.map(|(id, status)| (PipelineId::new(id), to_status(&status))))
}

/// Returns the status of the newest pipeline of a commit.
pub fn status_of_commit(db: &mut Conn, project: ProjectId, sha: Oid) -> Result<Option<Status>> {
    let status: Option<String> = on!(db, conn => pipelines::table
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::sha.eq(sha.to_string()))
        .filter(pipelines::intent_id.is_null())
        .order(pipelines::id.desc())
        .select(pipelines::status)
        .first(conn)
        .optional())?;
    Ok(status.as_deref().map(to_status))
}

/// Returns the ID of the newest pipeline of a commit for a branch or a tag.
pub fn newest_at(db: &mut Conn, project: ProjectId, sha: Oid, ref_name: &str, tag: bool) -> Result<Option<PipelineId>> {
    let id: Option<i64> = on!(db, conn => pipelines::table
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::sha.eq(sha.to_string()))
        .filter(pipelines::intent_id.is_null())
        .filter(pipelines::ref_name.eq(ref_name))
        .filter(pipelines::tag.eq(tag))
        .order(pipelines::id.desc())
        .select(pipelines::id)
        .first(conn)
        .optional())?;
    Ok(id.map(PipelineId::new))
}

/// Returns a pipeline without its coverage, which would have to be computed from all its jobs.
pub fn by_id_without_coverage(db: &mut Conn, id: PipelineId) -> Result<Option<Pipeline>> {
    let row: Option<(Row, Option<SummaryRow>)> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(pipelines::id.eq(id.get()))
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(|(row, user)| to_pipeline((row, user, None))))
}

/// Returns the variables passed by a trigger, encrypted.
pub fn trigger_variables_of(db: &mut Conn, id: PipelineId) -> Result<Option<Vec<u8>>> {
    let found: Option<Option<Vec<u8>>> =
        on!(db, conn => pipelines::table.find(id.get()).select(pipelines::variables).first(conn).optional())?;
    Ok(found.flatten())
}

/// Locks the row of a pipeline, which guards the pipeline and its jobs, until the end of the transaction; SQLite has one
/// writer anyway. Returns whether the pipeline exists.
pub fn lock_row(db: &mut Conn, id: PipelineId) -> Result<bool> {
    let row = || pipelines::table.find(id.get()).select(pipelines::id);
    let found: Option<i64> = match db {
        Conn::Sqlite(conn) => row().first(conn).optional()?,
        Conn::Pg(conn) => row().for_update().first(conn).optional()?,
    };
    Ok(found.is_some())
}

/// A pipeline that is hidden because its push is not committed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenPipeline {
    /// The ID.
    pub id: PipelineId,
    /// The short name of the branch or the tag.
    pub ref_name: String,
    /// Whether the ref is a tag.
    pub tag: bool,
    /// The plan to execute; `None` if there are no jobs.
    pub plan: Option<String>,
}

/// Returns the hidden pipelines of a push.
pub fn of_intent(db: &mut Conn, intent: IntentId) -> Result<Vec<HiddenPipeline>> {
    let rows: Vec<(i64, String, bool, Option<String>)> = on!(db, conn => pipelines::table
        .filter(pipelines::intent_id.eq(intent.get()))
        .order(pipelines::id)
        .select((pipelines::id, pipelines::ref_name, pipelines::tag, pipelines::plan))
        .load(conn))?;
    let hidden = |(id, ref_name, tag, plan)| HiddenPipeline { id: PipelineId::new(id), ref_name, tag, plan };
    Ok(rows.into_iter().map(hidden).collect())
}

/// Makes a pipeline visible after its push is committed and drops its plan, whose jobs have been inserted.
pub fn publish(db: &mut Conn, id: PipelineId) -> Result<()> {
    on!(db, conn => constant!(diesel::update(pipelines::table.find(id.get()))
        .set((pipelines::intent_id.eq(None::<i64>), pipelines::plan.eq(None::<String>))))
        .execute(conn))?;
    Ok(())
}

/// The new state of a pipeline; `None` keeps the stored value.
#[derive(Clone, Copy, Debug)]
pub struct NewPipelineState {
    /// The status.
    pub status: Status,
    /// When it first started.
    pub started_at: Option<Time>,
    /// When it finished.
    pub finished_at: Option<Time>,
    /// How long it ran, in seconds.
    pub duration: Option<i64>,
    /// The current time.
    pub now: Time,
}

/// Updates the state of a pipeline.
pub fn set_state(db: &mut Conn, id: PipelineId, new: &NewPipelineState) -> Result<()> {
    #[derive(AsChangeset)]
    #[diesel(table_name = pipelines)]
    struct Update {
        status: &'static str,
        updated_at: i64,
        started_at: Option<i64>,
        finished_at: Option<i64>,
        duration: Option<i64>,
    }
    let update = Update {
        status: new.status.as_str(),
        updated_at: to_micros(new.now),
        started_at: new.started_at.map(to_micros),
        finished_at: new.finished_at.map(to_micros),
        duration: new.duration,
    };
    on!(db, conn => diesel::update(pipelines::table.find(id.get())).set(&update).execute(conn))?;
    Ok(())
}
