//! Pipelines.

use diesel::{
    prelude::*,
    sql_types::{Bool, Double, Nullable},
};
use model::{Oid, Page, Pipeline, Slice, Status, Time, pipelines::Source};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{pipelines, users},
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

type WholeRow = (Row, Option<SummaryRow>, Option<f64>);

pub(crate) fn to_pipeline((row, user, coverage): WholeRow) -> Pipeline {
    Pipeline {
        id: row.id,
        project_id: row.project_id,
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

/// An unknown word can only come from a newer version, and then nothing went well.
pub(crate) fn to_status(word: &str) -> Status {
    Status::parse(word).unwrap_or(Status::Failed)
}

/// Texts, one in each line.
pub(crate) fn to_lines(text: &str) -> Vec<String> {
    text.lines().map(ToOwned::to_owned).collect()
}

/// How much of the code the latest builds of a pipeline cover on average.
pub(crate) fn coverage() -> Fragment<Nullable<Double>> {
    Fragment::new("(SELECT AVG(b.coverage) FROM builds b WHERE b.pipeline_id = pipelines.id AND ")
        .either("NOT b.retried", "b.retried IS FALSE")
        .sql(")")
}

/// A pipeline about to be written down.
pub struct NewPipeline<'a> {
    /// Where.
    pub project: i64,
    /// The branch or the tag, as people say it.
    pub ref_name: &'a str,
    /// Whether it is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: Oid,
    /// What clients are told of the commit before.
    pub before_sha: Option<Oid>,
    /// Why it is there.
    pub source: Source,
    /// How it stands.
    pub status: Status,
    /// What is wrong with the file.
    pub yaml_errors: Option<&'a str>,
    /// Its stages in order.
    pub stages: &'a [String],
    /// Who starts it.
    pub user: Option<i64>,
    /// The trigger that starts it.
    pub trigger: Option<i64>,
    /// What the trigger gives along, sealed.
    pub variables: Option<&'a [u8]>,
    /// The push that it is part of; nobody sees it until that has happened.
    pub intent: Option<i64>,
    /// What will be built once the push has happened.
    pub plan: Option<&'a str>,
    /// The moment.
    pub now: Time,
}

/// Writes a pipeline down; answers its number.
pub fn insert(db: &mut Conn, new: &NewPipeline<'_>) -> Result<i64> {
    let now = to_micros(new.now);
    Ok(on!(db, conn => diesel::insert_into(pipelines::table)
        .values((
            pipelines::project_id.eq(new.project),
            pipelines::ref_name.eq(new.ref_name),
            pipelines::tag.eq(new.tag),
            pipelines::sha.eq(new.sha.to_string()),
            pipelines::before_sha.eq(new.before_sha.map(|oid| oid.to_string())),
            pipelines::source.eq(new.source.word()),
            pipelines::status.eq(new.status.word()),
            pipelines::yaml_errors.eq(new.yaml_errors),
            pipelines::stages.eq(new.stages.join("\n")),
            pipelines::user_id.eq(new.user),
            pipelines::trigger_id.eq(new.trigger),
            pipelines::variables.eq(new.variables),
            pipelines::intent_id.eq(new.intent),
            pipelines::plan.eq(new.plan),
            pipelines::created_at.eq(now),
            pipelines::updated_at.eq(now),
            pipelines::finished_at.eq((new.status == Status::Failed).then_some(now)),
        ))
        .returning(pipelines::id)
        .get_result(conn))?)
}

/// One pipeline, wherever it is.
pub fn by_id(db: &mut Conn, id: i64) -> Result<Option<Pipeline>> {
    let row: Option<WholeRow> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(pipelines::id.eq(id))
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_pipeline))
}

/// One pipeline of a project, once its push has happened.
pub fn find(db: &mut Conn, project: i64, id: i64) -> Result<Option<Pipeline>> {
    let row: Option<WholeRow> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(pipelines::id.eq(id))
        .filter(pipelines::project_id.eq(project))
        .filter(pipelines::intent_id.is_null())
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_pipeline))
}

/// A page of the pipelines of a project, the newest first; perhaps only those that wait or run.
pub fn list(db: &mut Conn, project: i64, only_running: bool, page: Page) -> Result<Slice<Pipeline>> {
    macro_rules! matching {
        () => {{
            let mut query = pipelines::table
                .left_join(users::table)
                .filter(pipelines::project_id.eq(project))
                .filter(pipelines::intent_id.is_null())
                .into_boxed();
            if only_running {
                // As the index says it.
                query = query.filter(Fragment::<Bool>::new("pipelines.status IN ('pending', 'running')"));
            }
            query
        }};
    }
    let total = on!(db, conn => matching!().count().get_result(conn))?;
    let rows: Vec<WholeRow> = on!(db, conn => matching!()
        .order(pipelines::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_pipeline).collect(), total, page })
}

/// The number of the newest pipeline of each branch, or of each tag, that ever had one.
pub fn newest_of_refs(db: &mut Conn, project: i64, tags: bool) -> Result<Vec<(String, i64)>> {
    let rows: Vec<(String, Option<i64>)> = on!(db, conn => pipelines::table
        .filter(pipelines::project_id.eq(project))
        .filter(pipelines::intent_id.is_null())
        .filter(pipelines::tag.eq(tags))
        .group_by(pipelines::ref_name)
        .select((pipelines::ref_name, diesel::dsl::max(pipelines::id)))
        .load(conn))?;
    Ok(rows.into_iter().filter_map(|(name, id)| Some((name, id?))).collect())
}

/// Some pipelines by number, the newest first.
pub fn by_ids(db: &mut Conn, ids: &[i64]) -> Result<Vec<Pipeline>> {
    let rows: Vec<WholeRow> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(Fragment::<Bool>::new("pipelines.id").among(ids))
        .order(pipelines::id.desc())
        .select((Row::as_select(), Option::<SummaryRow>::as_select(), coverage()))
        .load(conn))?;
    Ok(rows.into_iter().map(to_pipeline).collect())
}

/// How the newest pipeline of a commit stands.
pub fn status_of_commit(db: &mut Conn, project: i64, sha: Oid) -> Result<Option<Status>> {
    let word: Option<String> = on!(db, conn => pipelines::table
        .filter(pipelines::project_id.eq(project))
        .filter(pipelines::sha.eq(sha.to_string()))
        .filter(pipelines::intent_id.is_null())
        .order(pipelines::id.desc())
        .select(pipelines::status)
        .first(conn)
        .optional())?;
    Ok(word.as_deref().map(to_status))
}

/// The number of the newest pipeline of a commit for a branch or a tag.
pub fn newest_at(db: &mut Conn, project: i64, sha: Oid, ref_name: &str, tag: bool) -> Result<Option<i64>> {
    Ok(on!(db, conn => pipelines::table
        .filter(pipelines::project_id.eq(project))
        .filter(pipelines::sha.eq(sha.to_string()))
        .filter(pipelines::intent_id.is_null())
        .filter(pipelines::ref_name.eq(ref_name))
        .filter(pipelines::tag.eq(tag))
        .order(pipelines::id.desc())
        .select(pipelines::id)
        .first(conn)
        .optional())?)
}

/// The same without its coverage, for which all its builds are looked at.
pub fn in_short(db: &mut Conn, id: i64) -> Result<Option<Pipeline>> {
    let row: Option<(Row, Option<SummaryRow>)> = on!(db, conn => pipelines::table
        .left_join(users::table)
        .filter(pipelines::id.eq(id))
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(|(row, user)| to_pipeline((row, user, None))))
}

/// What a trigger gave along, sealed.
pub fn variables_of(db: &mut Conn, id: i64) -> Result<Option<Vec<u8>>> {
    let found: Option<Option<Vec<u8>>> =
        on!(db, conn => pipelines::table.find(id).select(pipelines::variables).first(conn).optional())?;
    Ok(found.flatten())
}

/// Keeps everybody else from changing a pipeline and its builds while the transaction lasts; SQLite has one writer
/// anyway. Whether it is there.
pub fn hold(db: &mut Conn, id: i64) -> Result<bool> {
    let row = || pipelines::table.find(id).select(pipelines::id);
    let found: Option<i64> = match db {
        Conn::Sqlite(conn) => row().first(conn).optional()?,
        Conn::Pg(conn) => row().for_update().first(conn).optional()?,
    };
    Ok(found.is_some())
}

/// A pipeline whose push has not happened yet.
#[derive(Clone, Debug, PartialEq, Eq, Queryable)]
pub struct Waiting {
    /// Its number.
    pub id: i64,
    /// The branch or the tag, as people say it.
    pub ref_name: String,
    /// Whether it is a tag.
    pub tag: bool,
    /// What will be built; nothing if there is nothing to build.
    pub plan: Option<String>,
}

/// The pipelines that a push makes, with what will be built.
pub fn of_intent(db: &mut Conn, intent: i64) -> Result<Vec<Waiting>> {
    Ok(on!(db, conn => pipelines::table
        .filter(pipelines::intent_id.eq(intent))
        .order(pipelines::id)
        .select((pipelines::id, pipelines::ref_name, pipelines::tag, pipelines::plan))
        .load(conn))?)
}

/// Shows a pipeline, whose push has happened; what will be built is written down elsewhere by now.
pub fn show(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::update(pipelines::table.find(id))
        .set((pipelines::intent_id.eq(None::<i64>), pipelines::plan.eq(None::<String>)))
        .execute(conn))?;
    Ok(())
}

/// How a pipeline stands from now on; moments that are not given stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct NewState {
    /// How it stands.
    pub status: Status,
    /// When it first ran.
    pub started_at: Option<Time>,
    /// When it came to an end.
    pub finished_at: Option<Time>,
    /// For how many seconds it ran.
    pub duration: Option<i64>,
    /// The moment.
    pub now: Time,
}

/// Notes how a pipeline stands.
pub fn set_state(db: &mut Conn, id: i64, new: &NewState) -> Result<()> {
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
        status: new.status.word(),
        updated_at: to_micros(new.now),
        started_at: new.started_at.map(to_micros),
        finished_at: new.finished_at.map(to_micros),
        duration: new.duration,
    };
    on!(db, conn => diesel::update(pipelines::table.find(id)).set(&update).execute(conn))?;
    Ok(())
}
