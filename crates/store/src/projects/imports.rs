//! Imports of repositories from other servers.

use diesel::prelude::*;
use model::{
    ProjectId, Time, UserId, UserState,
    imports::{EncryptedCredentials, Import, ImportState, ImportStatus},
};

use crate::{
    Conn, Result,
    conn::on,
    schema::{project_imports, projects, users},
    times::{from_micros_opt, to_micros},
};

/// The status of an import as the project shows it.
#[derive(Queryable, Selectable)]
#[diesel(table_name = project_imports)]
pub(crate) struct StatusRow {
    status: String,
    error: Option<String>,
}

impl From<StatusRow> for ImportStatus {
    fn from(StatusRow { status, error }: StatusRow) -> Self {
        // An unknown state comes from a newer version; such an import is not waited for.
        Self { state: ImportState::parse(&status).unwrap_or(ImportState::Failed), error }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = project_imports)]
struct Row {
    project_id: i64,
    #[diesel(embed)]
    status: StatusRow,
    url: String,
    credentials: Option<Vec<u8>>,
    started_at: Option<i64>,
    finished_at: Option<i64>,
}

impl From<Row> for Import {
    fn from(Row { project_id, status, url, credentials, started_at, finished_at }: Row) -> Self {
        Self {
            project: ProjectId::new(project_id),
            status: status.into(),
            url,
            credentials: credentials.map(EncryptedCredentials),
            started_at: from_micros_opt(started_at),
            finished_at: from_micros_opt(finished_at),
        }
    }
}

/// Deletes the ended import of a project, so that another one can be inserted.
pub fn delete(db: &mut Conn, project: ProjectId) -> Result<()> {
    on!(db, conn => diesel::delete(project_imports::table.find(project.get())).execute(conn))?;
    Ok(())
}

/// Inserts a scheduled import.
pub fn insert(
    db: &mut Conn,
    project: ProjectId,
    requester: Option<UserId>,
    url: &str,
    credentials: Option<&EncryptedCredentials>,
) -> Result<()> {
    on!(db, conn => diesel::insert_into(project_imports::table)
        .values((
            project_imports::project_id.eq(project.get()),
            project_imports::requester_id.eq(requester.map(UserId::get)),
            project_imports::status.eq(ImportState::Scheduled.as_str()),
            project_imports::url.eq(url),
            project_imports::credentials.eq(credentials.map(|encrypted| &encrypted.0)),
        ))
        .execute(conn))?;
    Ok(())
}

/// The user who requested an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The ID of the user; 0 for the server itself.
    pub user: UserId,
    /// Whether the user is blocked or deleted.
    pub is_blocked: bool,
}

/// Returns the user who requested the import of a project; `None` if the project is deleted or has no import.
pub fn requester(db: &mut Conn, project: ProjectId) -> Result<Option<Requester>> {
    let found: Option<(Option<i64>, Option<String>)> = on!(db, conn => project_imports::table
        .inner_join(projects::table)
        .left_join(users::table.on(users::id.nullable().eq(project_imports::requester_id)))
        .filter(projects::id.eq(project.get()))
        .filter(projects::deleted_at.is_null())
        .select((project_imports::requester_id, users::state.nullable()))
        .first(conn)
        .optional())?;
    let is_active = |state: Option<String>| state.as_deref() == Some(UserState::Active.as_str());
    Ok(found.map(|(user, state)| match user {
        Some(user) => Requester { user: UserId::new(user), is_blocked: !is_active(state) },
        // The server itself, which cannot be blocked.
        None => Requester { user: UserId::new(0), is_blocked: false },
    }))
}

/// Returns the import of a project.
pub fn find(db: &mut Conn, project: ProjectId) -> Result<Option<Import>> {
    let row: Option<Row> = on!(db, conn => project_imports::table
        .find(project.get())
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Import::from))
}

/// Marks an import as started.
pub fn start(db: &mut Conn, project: ProjectId, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(project_imports::table.find(project.get()))
        .set((
            project_imports::status.eq(ImportState::Started.as_str()),
            project_imports::error.eq(None::<String>),
            project_imports::started_at.eq(to_micros(now)),
            project_imports::finished_at.eq(None::<i64>),
        ))
        .execute(conn))?;
    Ok(())
}

/// Marks an import as finished or failed, and deletes its credentials.
pub fn finish(db: &mut Conn, project: ProjectId, error: Option<&str>, now: Time) -> Result<()> {
    let state = if error.is_none() { ImportState::Finished } else { ImportState::Failed };
    on!(db, conn => diesel::update(project_imports::table.find(project.get()))
        .set((
            project_imports::status.eq(state.as_str()),
            project_imports::error.eq(error),
            project_imports::credentials.eq(None::<Vec<u8>>),
            project_imports::finished_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}
