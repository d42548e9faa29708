//! Repositories that an earlier version has written, with refs in files: the list of those that are not converted yet.

use diesel::{
    dsl::exists,
    prelude::*,
    sql_types::{BigInt, Bool, Nullable, Text},
};
use model::ProjectId;

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{jobs, unconverted_repositories},
};

/// The kind of task with which earlier versions copied the repository of a fork.
const COPY_TASK: &str = "copy_repository";

/// A project whose repository is not converted yet, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconvertedRow {
    /// The id of the project.
    pub project: ProjectId,
    /// The storage id of the project.
    pub storage: String,
    /// The default branch of the project.
    pub default_branch: Option<String>,
    /// Whether the project is a fork, and its repository was not copied from its source yet.
    pub is_copy_pending: bool,
}

/// Lists up to `limit` projects with an id above `after`, except those that are being removed.
pub fn list(db: &mut Conn, after: ProjectId, limit: i64) -> Result<Vec<UnconvertedRow>> {
    let query = || {
        Fragment::<(BigInt, Text, Nullable<Text>, Bool)>::new(
            "SELECT p.id, s.storage_id, p.default_branch, \
             EXISTS (SELECT 1 FROM jobs j WHERE j.payload = CAST(p.id AS TEXT) AND j.kind = ",
        )
        .text(COPY_TASK)
        .sql(
            ") FROM unconverted_repositories u JOIN projects p ON p.id = u.project_id \
             JOIN project_storage s ON s.project_id = p.id WHERE p.deleted_at IS NULL AND p.id > ",
        )
        .number(after)
        .sql(" ORDER BY p.id LIMIT ")
        .number(limit)
    };
    let rows: Vec<(i64, String, Option<String>, bool)> = on!(db, conn => query().load(conn))?;
    let to_row = |(project, storage, default_branch, is_copy_pending)| UnconvertedRow {
        project: ProjectId::new(project),
        storage,
        default_branch,
        is_copy_pending,
    };
    Ok(rows.into_iter().map(to_row).collect())
}

/// Returns whether the repository of a project is not converted yet.
pub fn contains(db: &mut Conn, project: ProjectId) -> Result<bool> {
    let row = || unconverted_repositories::table.find(project.get());
    Ok(on!(db, conn => diesel::select(exists(row())).get_result(conn))?)
}

/// Records that the repository of a project is converted, or that there is none. Nothing is left to copy, either.
pub fn delete(db: &mut Conn, project: ProjectId) -> Result<()> {
    on!(db, conn => diesel::delete(unconverted_repositories::table.find(project.get())).execute(conn))?;
    on!(db, conn => diesel::delete(jobs::table)
        .filter(jobs::kind.eq(COPY_TASK))
        .filter(jobs::payload.eq(project.to_string()))
        .execute(conn))?;
    Ok(())
}
