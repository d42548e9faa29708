//! Artifacts: files uploaded by jobs. A row is inserted before its file is written and deleted after its file is removed.
//!
//! To remove an artifact, it is first made to expire, which hides it; a sweep deletes it if the removal is interrupted.

use diesel::prelude::*;
use model::{ArtifactId, JobId, ProjectId, Time, jobs::JobKind};

use crate::{
    Conn, Result,
    conn::on,
    jobs::{ARCHIVE, kind_code},
    schema::{build_artifacts, builds, pipelines},
    times::{from_micros_opt, to_micros},
};

/// A file uploaded by a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// The ID.
    pub id: ArtifactId,
    /// The project ID.
    pub project: ProjectId,
    /// The ID of the job that uploaded it.
    pub job: JobId,
    /// `archive`, or another type sent by the runner.
    pub kind: String,
    /// The file name.
    pub name: String,
    /// The size in bytes; `None` until the upload is complete.
    pub size: Option<u64>,
    /// When it expires; `None` means never.
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
            id: ArtifactId::new(id),
            project: ProjectId::new(project_id),
            job: JobId::new(build_id),
            kind,
            name,
            size: size.and_then(|size| u64::try_from(size).ok()),
            expires_at: from_micros_opt(expires_at),
        }
    }
}

/// Counts the stored files of a job, complete or not.
pub fn count_for_job(db: &mut Conn, job: JobId) -> Result<i64> {
    Ok(on!(db, conn => build_artifacts::table
        .filter(build_artifacts::build_id.eq(job.get()))
        .count()
        .get_result(conn))?)
}

/// Inserts an incomplete file.
pub fn insert(db: &mut Conn, project: ProjectId, job: JobId, kind: &str, name: &str, now: Time) -> Result<Artifact> {
    let row: Row = on!(db, conn => diesel::insert_into(build_artifacts::table)
        .values((
            build_artifacts::project_id.eq(project.get()),
            build_artifacts::build_id.eq(job.get()),
            build_artifacts::kind.eq(kind),
            build_artifacts::name.eq(name),
            build_artifacts::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Marks a file as complete and makes earlier files of the same kind expire. Returns `None` if it was not incomplete.
pub fn complete(
    db: &mut Conn,
    artifact: &Artifact,
    size: u64,
    expires_at: Option<Time>,
    now: Time,
) -> Result<Option<Artifact>> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let row: Option<Row> = on!(db, conn => diesel::update(build_artifacts::table.find(artifact.id.get()))
        .filter(build_artifacts::size.is_null())
        .set((build_artifacts::size.eq(size), build_artifacts::expires_at.eq(expires_at.map(to_micros))))
        .returning(Row::as_returning())
        .get_result(conn)
        .optional())?;
    if row.is_some() {
        on!(db, conn => diesel::update(build_artifacts::table)
            .filter(build_artifacts::build_id.eq(artifact.job.get()))
            .filter(build_artifacts::kind.eq(&artifact.kind))
            .filter(build_artifacts::size.is_not_null())
            .filter(build_artifacts::id.ne(artifact.id.get()))
            .set(build_artifacts::expires_at.eq(to_micros(now)))
            .execute(conn))?;
    }
    Ok(row.map(Artifact::from))
}

/// Returns the archive of a job unless it has expired.
pub fn archive_of(db: &mut Conn, job: JobId, now: Time) -> Result<Option<Artifact>> {
    let unexpired = build_artifacts::expires_at.is_null().or(build_artifacts::expires_at.gt(to_micros(now)));
    let row: Option<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::build_id.eq(job.get()))
        .filter(build_artifacts::kind.eq(ARCHIVE))
        .filter(build_artifacts::size.is_not_null())
        .filter(unexpired.assume_not_null())
        .order(build_artifacts::id.desc())
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Artifact::from))
}

/// Returns the job with this name in the newest successful pipeline of a branch or a tag that has one.
pub fn latest_job_for_ref(
    db: &mut Conn,
    project: ProjectId,
    ref_name: &str,
    tag: bool,
    job: &str,
) -> Result<Option<JobId>> {
    let id: Option<i64> = on!(db, conn => pipelines::table
        .inner_join(builds::table)
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::ref_name.eq(ref_name))
        .filter(pipelines::tag.eq(tag))
        .filter(pipelines::intent_id.is_null())
        .filter(pipelines::status.eq("success"))
        .filter(builds::name.eq(job))
        .filter(builds::kind.eq(kind_code(JobKind::Runner)))
        .filter(builds::retried.eq(false))
        .order(pipelines::id.desc())
        .select(builds::id)
        .first(conn)
        .optional())?;
    Ok(id.map(JobId::new))
}

/// Removes the expiry of an artifact; returns whether the artifact exists.
pub fn keep(db: &mut Conn, artifact: ArtifactId) -> Result<bool> {
    let updated = on!(db, conn => diesel::update(build_artifacts::table.find(artifact.get()))
        .set(build_artifacts::expires_at.eq(None::<i64>))
        .execute(conn))?;
    Ok(updated > 0)
}

/// Makes all artifacts of a job expire; returns the complete ones, including those that had already expired.
pub fn expire_all_of_job(db: &mut Conn, job: JobId, now: Time) -> Result<Vec<Artifact>> {
    let rows: Vec<Row> = on!(db, conn => diesel::update(build_artifacts::table)
        .filter(build_artifacts::build_id.eq(job.get()))
        .filter(build_artifacts::size.is_not_null())
        .set(build_artifacts::expires_at.eq(to_micros(now)))
        .returning(Row::as_returning())
        .get_results(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Returns incomplete files inserted before a time, oldest first.
pub fn unfinished_before(db: &mut Conn, moment: Time, limit: i64) -> Result<Vec<Artifact>> {
    let rows: Vec<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::size.is_null())
        .filter(build_artifacts::created_at.lt(to_micros(moment)))
        .order(build_artifacts::created_at)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Returns expired files.
pub fn expired(db: &mut Conn, now: Time, limit: i64) -> Result<Vec<Artifact>> {
    let rows: Vec<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::expires_at.is_not_null())
        .filter(build_artifacts::expires_at.le(to_micros(now)))
        .order(build_artifacts::expires_at)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Returns files of a project, except incomplete ones inserted at or after `moment`.
pub fn of_project(db: &mut Conn, project: ProjectId, moment: Time, limit: i64) -> Result<Vec<Artifact>> {
    let eligible = build_artifacts::size.is_not_null().or(build_artifacts::created_at.lt(to_micros(moment)));
    let rows: Vec<Row> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::project_id.eq(project.get()))
        .filter(eligible)
        .order(build_artifacts::id)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Artifact::from).collect())
}

/// Returns whether a project has any artifact, complete or not.
pub fn exist_in(db: &mut Conn, project: ProjectId) -> Result<bool> {
    let first: Option<i64> = on!(db, conn => build_artifacts::table
        .filter(build_artifacts::project_id.eq(project.get()))
        .select(build_artifacts::id)
        .first(conn)
        .optional())?;
    Ok(first.is_some())
}

/// Deletes the rows of removed files.
pub fn delete(db: &mut Conn, ids: &[ArtifactId]) -> Result<()> {
    let ids: Vec<i64> = ids.iter().copied().map(ArtifactId::get).collect();
    on!(db, conn => diesel::delete(build_artifacts::table.filter(build_artifacts::id.eq_any(&ids))).execute(conn))?;
    Ok(())
}
