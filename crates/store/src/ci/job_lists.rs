//! Lists of jobs. The jobs of a pipeline stay hidden until its push is committed.

use std::collections::HashMap;

use diesel::{prelude::*, sql_types::Bool};
use model::{Job, JobId, Oid, Page, PipelineId, ProjectId, Slice, Status, Time, Total, User, UserId};

use crate::{
    Conn, Result,
    conn::on,
    count_up_to::CountUpTo,
    fragment::Fragment,
    identities,
    jobs::{JoinedRow, joined_jobs, with_artifacts},
    pipelines::to_status,
    schema::{builds, pipelines, users},
    users::Row as UserRow,
};

/// Returns a page of the jobs of a project with one of these statuses (any if empty), newest first.
pub fn list(db: &mut Conn, project: ProjectId, scope: &[Status], page: Page, now: Time) -> Result<Slice<Job>> {
    let of_project = || with_status(scope).sql(" AND builds.project_id = ").number(project);
    let of_hidden = || {
        with_status(scope)
            .sql(
                " AND builds.pipeline_id IN (SELECT h.id FROM pipelines h WHERE h.intent_id IS NOT NULL \
                 AND h.project_id = ",
            )
            .number(project)
            .sql(")")
    };
    let hidden: i64 = on!(db, conn => builds::table.filter(of_hidden()).count().get_result(conn))?;
    // Counts from an index alone; there are few hidden jobs.
    let limit = page.count_limit();
    let all = || CountUpTo::new(builds::table.filter(of_project()).select(builds::id), limit.saturating_add(hidden));
    let total = Total::counted(on!(db, conn => all().count(conn))? - hidden, limit);
    let rows: Vec<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(of_project())
        .filter(pipelines::intent_id.is_null())
        .order(builds::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .load(conn))?;
    Ok(Slice { items: with_artifacts(db, rows, now)?, total, page })
}

/// Returns a page of the jobs of a commit with one of these statuses (any if empty), newest first.
pub fn of_commit(
    db: &mut Conn,
    project: ProjectId,
    sha: Oid,
    scope: &[Status],
    page: Page,
    now: Time,
) -> Result<Slice<Job>> {
    let sha = sha.to_string();
    let total: i64 = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::sha.eq(&sha))
        .filter(pipelines::intent_id.is_null())
        .filter(with_status(scope))
        .count()
        .get_result(conn))?;
    let rows: Vec<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(pipelines::project_id.eq(project.get()))
        .filter(pipelines::sha.eq(&sha))
        .filter(pipelines::intent_id.is_null())
        .filter(with_status(scope))
        .order(builds::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .load(conn))?;
    Ok(Slice { items: with_artifacts(db, rows, now)?, total: total.into(), page })
}

/// Returns a job of a project.
pub fn find(db: &mut Conn, project: ProjectId, id: JobId, now: Time) -> Result<Option<Job>> {
    let row: Option<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(builds::id.eq(id.get()))
        .filter(builds::project_id.eq(project.get()))
        .filter(pipelines::intent_id.is_null())
        .filter(with_status(&[]))
        .first(conn)
        .optional())?;
    Ok(with_artifacts(db, row.into_iter().collect(), now)?.pop())
}

/// Returns the latest job of each name in a pipeline, with commit statuses of external services, ordered by stage and ID.
pub fn latest_of_pipeline(db: &mut Conn, pipeline: PipelineId, now: Time) -> Result<Vec<Job>> {
    let rows: Vec<JoinedRow> = on!(db, conn => joined_jobs!()
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .filter(builds::retried.eq(false))
        .order((builds::stage_index, builds::id))
        .load(conn))?;
    with_artifacts(db, rows, now)
}

/// Returns the newest jobs of a name in a pipeline: the latest one and those that it replaces.
pub fn attempts(db: &mut Conn, pipeline: PipelineId, name: &str, limit: i64) -> Result<Vec<(JobId, Status)>> {
    let rows: Vec<(i64, String)> = on!(db, conn => builds::table
        .filter(builds::pipeline_id.eq(pipeline.get()))
        .filter(builds::name.eq(name))
        .filter(with_status(&[]))
        .order(builds::id.desc())
        .limit(limit)
        .select((builds::id, builds::status))
        .load(conn))?;
    Ok(rows.into_iter().map(|(id, status)| (JobId::new(id), to_status(&status))).collect())
}

/// Returns users by ID; deleted users are missing.
pub fn users_of(db: &mut Conn, ids: &[UserId]) -> Result<HashMap<UserId, User>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(i64, UserRow)> = on!(db, conn => users::table
        .filter(Fragment::<Bool>::new("users.id").in_ids(ids))
        .select((users::id, UserRow::as_select()))
        .load(conn))?;
    let mut identities = identities::of_users(db, ids)?;
    let with_identities = |(id, row): (i64, UserRow)| {
        let id = UserId::new(id);
        let own = identities.remove(&id).unwrap_or_default();
        (id, row.into_user(own))
    };
    Ok(rows.into_iter().map(with_identities).collect())
}

/// Matches jobs with one of these statuses. Partial indexes exist for exactly this condition on `kind`.
fn with_status(scope: &[Status]) -> Fragment<Bool> {
    let kind = Fragment::new("builds.kind = 0");
    match scope {
        [] => kind,
        [one] => kind.sql(format!(" AND builds.status = '{}'", one.as_str())),
        several => {
            let words: Vec<String> = several.iter().map(|status| format!("'{}'", status.as_str())).collect();
            kind.sql(format!(" AND builds.status IN ({})", words.join(", ")))
        }
    }
}
