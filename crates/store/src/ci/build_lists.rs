//! Jobs as people look for them. Those of a pipeline whose push has not happened yet are not there.

use std::collections::HashMap;

use diesel::{prelude::*, sql_types::Bool};
use model::{Build, Oid, Page, Slice, Status, Time, User};

use crate::{
    Conn, Result,
    builds::{WholeRow, whole_builds, with_artifacts},
    conn::on,
    fragment::Fragment,
    identities,
    schema::{builds, pipelines, users},
    users::Row as UserRow,
};

/// The jobs of a project in one of these states, or in any if none is named; newest first.
pub fn list(db: &mut Conn, project: i64, scope: &[Status], page: Page, now: Time) -> Result<Slice<Build>> {
    let of_project = || wanted(scope).sql(" AND builds.project_id = ").number(project);
    // An index tells how many there are without a look at any of them; of hidden ones there are few.
    let all: i64 = on!(db, conn => builds::table.filter(of_project()).count().get_result(conn))?;
    let of_hidden = || {
        wanted(scope)
            .sql(
                " AND builds.pipeline_id IN (SELECT h.id FROM pipelines h WHERE h.intent_id IS NOT NULL \
                 AND h.project_id = ",
            )
            .number(project)
            .sql(")")
    };
    let hidden: i64 = on!(db, conn => builds::table.filter(of_hidden()).count().get_result(conn))?;
    let rows: Vec<WholeRow> = on!(db, conn => whole_builds!()
        .filter(of_project())
        .filter(pipelines::intent_id.is_null())
        .order(builds::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .load(conn))?;
    Ok(Slice { items: with_artifacts(db, rows, now)?, total: all - hidden, page })
}

/// The jobs of a commit in one of these states, or in any if none is named; newest first.
pub fn of_commit(
    db: &mut Conn,
    project: i64,
    sha: Oid,
    scope: &[Status],
    page: Page,
    now: Time,
) -> Result<Slice<Build>> {
    let sha = sha.to_string();
    let total = on!(db, conn => builds::table
        .inner_join(pipelines::table)
        .filter(pipelines::project_id.eq(project))
        .filter(pipelines::sha.eq(&sha))
        .filter(pipelines::intent_id.is_null())
        .filter(wanted(scope))
        .count()
        .get_result(conn))?;
    let rows: Vec<WholeRow> = on!(db, conn => whole_builds!()
        .filter(pipelines::project_id.eq(project))
        .filter(pipelines::sha.eq(&sha))
        .filter(pipelines::intent_id.is_null())
        .filter(wanted(scope))
        .order(builds::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .load(conn))?;
    Ok(Slice { items: with_artifacts(db, rows, now)?, total, page })
}

/// One job of a project.
pub fn find(db: &mut Conn, project: i64, id: i64, now: Time) -> Result<Option<Build>> {
    let row: Option<WholeRow> = on!(db, conn => whole_builds!()
        .filter(builds::id.eq(id))
        .filter(builds::project_id.eq(project))
        .filter(pipelines::intent_id.is_null())
        .filter(wanted(&[]))
        .first(conn)
        .optional())?;
    Ok(with_artifacts(db, row.into_iter().collect(), now)?.pop())
}

/// Those of these users who are there, by their numbers.
pub fn users_of(db: &mut Conn, ids: &[i64]) -> Result<HashMap<i64, User>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(i64, UserRow)> = on!(db, conn => users::table
        .filter(Fragment::<Bool>::new("users.id").among(ids))
        .select((users::id, UserRow::as_select()))
        .load(conn))?;
    let mut identities = identities::of_users(db, ids)?;
    let with_identities = |(id, row): (i64, UserRow)| {
        let own = identities.remove(&id).unwrap_or_default();
        (id, row.into_user(own))
    };
    Ok(rows.into_iter().map(with_identities).collect())
}

/// Jobs in one of these states. Indexes are kept for the kind as it stands here.
fn wanted(scope: &[Status]) -> Fragment<Bool> {
    let kind = Fragment::new("builds.kind = 0");
    match scope {
        [] => kind,
        [one] => kind.sql(format!(" AND builds.status = '{}'", one.word())),
        several => {
            let words: Vec<String> = several.iter().map(|status| format!("'{}'", status.word())).collect();
            kind.sql(format!(" AND builds.status IN ({})", words.join(", ")))
        }
    }
}
