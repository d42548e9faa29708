//! Files that jobs leave behind: a row comes before its file and goes after it.
//!
//! What is to go is first made to expire: from then on nobody sees it, and whatever happens, it is swept away.

use diesel::prelude::*;
use model::{Time, pipelines::BuildKind};

use crate::{
    Conn, Result,
    builds::{ARCHIVE, kind_code},
    conn::on,
    schema::{build_artifacts, builds, pipelines},
    times::{from_micros_opt, to_micros},
};

/// A file that a job left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its number.
    pub id: i64,
    /// Where.
    pub project: i64,
    /// The build that left it.
    pub build: i64,
    /// `archive`, or what else a runner sends.
    pub kind: String,
    /// What it is called.
    pub name: String,
    /// How many bytes it has; unknown while it is under way.
    pub size: Option<u64>,
    /// Until when it is kept; `None` is for good.
    pub expires_at: Option<Time>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = build_artifacts)]
struct Row {
    id: i64,
    project_id: i64,
    build_id: i64,
    kind: String,
    name: String,
    size: Option<i64>,
    expires_at: Option<i64>,
}

impl From<Row> for Artifact {
    fn from(Row { id, project_id, build_id, kind, name, size, expires_at }: Row) -> Self {
        Self {
            id,
            project: project_id,
            build: build_id,
            kind,
            name,
            size: size.and_then(|size| u64::try_from(size).ok()),
            expires_at: from_micros_opt(expires_at),
        }
    }
}

/// How many files a build has sent that are still there, whole or not.
pub fn count_of(db: &mut Conn, build: i64) -> Result<i64> {
    Ok(on!(db, conn => build_artifacts::table
        .filter(build_artifacts::build_id.eq(build))
        .count()
        .get_result(conn))?)
}

/// Adds a file that is under way.
pub fn insert(db: &mut Conn, project: i64, build: i64, kind: &str, name: &str, now: Time) -> Result<Artifact> {
    let row: Row = on!(db, conn => diesel::insert_into(build_artifacts::table)
        .values((
            build_artifacts::project_id.eq(project),
            build_artifacts::build_id.eq(build),
            build_artifacts::kind.eq(kind),
            build_artifacts::name.eq(name),
            build_artifacts::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Notes that a file is whole; those of the same kind that were there before expire. `None` if it is no longer under way.
pub fn complete(
    db: &mut Conn,
    artifact: &Artifact,
    size: u64,
    expires_at: Option<Time>,
    now: Time,
) -> Result<Option<Artifact>> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let row: Option<Row> = on!(db, conn => diesel::update(build_artifacts::table.find(artifact.id))
        .filter(build_artifacts::size.is_null())
        .set((build_artifacts::size.eq(size), build_artifacts::expires_at.eq(expires_at.map(to_micros))))
        .returning(Row::as_returning())
        .get_result(conn)
        .optional())?;
    if row.is_some() {
        on!(db, conn => diesel::update(build_artifacts::table)
            .filter(build_artifacts::build_id.eq(artifact.build))
            .filter(build_artifacts::kind.eq(&artifact.kind))
            .filter(build_artifacts::size.is_not_null())
            .filter(build_artifacts::id.ne(artifact.id))
            .set(build_artifacts::expires_at.eq(to_micros(now)))
            .execute(conn))?;
    }
    Ok(row.map(Artifact::from))
}

/// The archive of a build, as long as it is kept.
pub fn archive_of(db: &mut Conn, build: i64, now: Time) -> Result<Option<Artifact>> {
    let kept = build_artifacts::expires_at.is_null().or(build_artifacts::expires_at.gt(to_micros(now)));
    let row: Option<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::build_id.eq(build))
        .filter(build_artifacts::kind.eq(ARCHIVE))
        .filter(build_artifacts::size.is_not_null())
        .filter(kept.assume_not_null())
        .order(build_artifacts::id.desc())
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Artifact::from))
}

/// The build of a name in the newest pipeline of a branch or a tag that went well and has one.
pub fn build_by_ref(db: &mut Conn, project: i64, ref_name: &str, tag: bool, job: &str) -> Result<Option<i64>> {
    Ok(on!(db, conn => pipelines::table
        .inner_join(builds::table)
        .filter(pipelines::project_id.eq(project))
        .filter(pipelines::ref_name.eq(ref_name))
        .filter(pipelines::tag.eq(tag))
        .filter(pipelines::intent_id.is_null())
        .filter(pipelines::status.eq("success"))
        .filter(builds::name.eq(job))
        .filter(builds::kind.eq(kind_code(BuildKind::Job)))
        .filter(builds::retried.eq(false))
        .order(pipelines::id.desc())
        .select(builds::id)
        .first(conn)
        .optional())?)
}

/// Keeps the archive of a build for good; whether there is one.
pub fn keep(db: &mut Conn, artifact: i64) -> Result<bool> {
    let kept = on!(db, conn => diesel::update(build_artifacts::table.find(artifact))
        .set(build_artifacts::expires_at.eq(None::<i64>))
        .execute(conn))?;
    Ok(kept > 0)
}

/// Lets all that a build left behind expire; answers those that are whole, also those that had expired before.
pub fn expire_all_of(db: &mut Conn, build: i64, now: Time) -> Result<Vec<Artifact>> {
    let rows: Vec<Row> = on!(db, conn => diesel::update(build_artifacts::table)
        .filter(build_artifacts::build_id.eq(build))
        .filter(build_artifacts::size.is_not_null())
        .set(build_artifacts::expires_at.eq(to_micros(now)))
        .returning(Row::as_returning())
        .get_results(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Some files that are under way since before a moment, oldest first.
pub fn begun_before(db: &mut Conn, moment: Time, most: i64) -> Result<Vec<Artifact>> {
    let rows: Vec<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::size.is_null())
        .filter(build_artifacts::created_at.lt(to_micros(moment)))
        .order(build_artifacts::created_at)
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Some files that nobody sees any more.
pub fn expired(db: &mut Conn, now: Time, most: i64) -> Result<Vec<Artifact>> {
    let rows: Vec<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::expires_at.is_not_null())
        .filter(build_artifacts::expires_at.le(to_micros(now)))
        .order(build_artifacts::expires_at)
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Some files of a project, those aside that are under way since this moment or later.
pub fn of_project(db: &mut Conn, project: i64, moment: Time, most: i64) -> Result<Vec<Artifact>> {
    let whole = build_artifacts::size.is_not_null().or(build_artifacts::created_at.lt(to_micros(moment)));
    let rows: Vec<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::project_id.eq(project))
        .filter(whole)
        .order(build_artifacts::id)
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Whether a project has a file of a job, whole or not.
pub fn exist_in(db: &mut Conn, project: i64) -> Result<bool> {
    let first: Option<i64> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::project_id.eq(project))
        .select(build_artifacts::id)
        .first(conn)
        .optional())?;
    Ok(first.is_some())
}

/// Removes rows whose files are gone.
pub fn delete(db: &mut Conn, ids: &[i64]) -> Result<()> {
    on!(db, conn => diesel::delete(build_artifacts::table.filter(build_artifacts::id.eq_any(ids))).execute(conn))?;
    Ok(())
}
