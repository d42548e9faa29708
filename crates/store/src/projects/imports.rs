//! Repositories that come from elsewhere.

use diesel::prelude::*;
use model::{
    Time, UserState,
    imports::{Import, ImportState, ImportStatus, Sealed},
};

use crate::{
    Conn, Result,
    conn::on,
    schema::{project_imports, projects, users},
    times::{from_micros_opt, to_micros},
};

/// What a project tells about its import.
#[derive(Queryable, Selectable)]
#[diesel(table_name = project_imports)]
pub(crate) struct StatusRow {
    status: String,
    error: Option<String>,
}

impl From<StatusRow> for ImportStatus {
    fn from(StatusRow { status, error }: StatusRow) -> Self {
        // An unknown word can only come from a newer version, and then nobody waits for it.
        Self { state: ImportState::from_word(&status).unwrap_or(ImportState::Failed), error }
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
            project: project_id,
            status: status.into(),
            url,
            credentials: credentials.map(Sealed),
            started_at: from_micros_opt(started_at),
            finished_at: from_micros_opt(finished_at),
        }
    }
}

/// Forgets the import of a project that has ended, so that another one can begin.
pub fn delete(db: &mut Conn, project: i64) -> Result<()> {
    on!(db, conn => diesel::delete(project_imports::table.find(project)).execute(conn))?;
    Ok(())
}

/// Notes that the repository of a project shall come from elsewhere, and which user asks for it.
pub fn insert(
    db: &mut Conn,
    project: i64,
    requester: Option<i64>,
    url: &str,
    credentials: Option<&Sealed>,
) -> Result<()> {
    on!(db, conn => diesel::insert_into(project_imports::table)
        .values((
            project_imports::project_id.eq(project),
            project_imports::requester_id.eq(requester),
            project_imports::status.eq(ImportState::Scheduled.as_str()),
            project_imports::url.eq(url),
            project_imports::credentials.eq(credentials.map(|sealed| &sealed.0)),
        ))
        .execute(conn))?;
    Ok(())
}

/// The user who asked for an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Number of the user.
    pub user: i64,
    /// Whether the user is blocked or gone.
    pub is_blocked: bool,
}

/// The user who asked for the import of a project; `None` if the project is removed or has no import.
pub fn requester(db: &mut Conn, project: i64) -> Result<Option<Requester>> {
    let found: Option<(Option<i64>, Option<String>)> = on!(db, conn => project_imports::table
        .inner_join(projects::table)
        .left_join(users::table.on(users::id.nullable().eq(project_imports::requester_id)))
        .filter(projects::id.eq(project))
        .filter(projects::deleted_at.is_null())
        .select((project_imports::requester_id, users::state.nullable()))
        .first(conn)
        .optional())?;
    let is_active = |state: Option<String>| state.as_deref() == Some(UserState::Active.as_str());
    Ok(found.map(|(user, state)| match user {
        Some(user) => Requester { user, is_blocked: !is_active(state) },
        // The server itself, which nobody blocks.
        None => Requester { user: 0, is_blocked: false },
    }))
}

/// The import of a project.
pub fn find(db: &mut Conn, project: i64) -> Result<Option<Import>> {
    let row: Option<Row> = on!(db, conn => project_imports::table
        .find(project)
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Import::from))
}

/// Notes that an import began.
pub fn start(db: &mut Conn, project: i64, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(project_imports::table.find(project))
        .set((
            project_imports::status.eq(ImportState::Started.as_str()),
            project_imports::error.eq(None::<String>),
            project_imports::started_at.eq(to_micros(now)),
            project_imports::finished_at.eq(None::<i64>),
        ))
        .execute(conn))?;
    Ok(())
}

/// Notes that an import came to its end, well or with an error; what let us in is forgotten.
pub fn finish(db: &mut Conn, project: i64, error: Option<&str>, now: Time) -> Result<()> {
    let state = if error.is_none() { ImportState::Finished } else { ImportState::Failed };
    on!(db, conn => diesel::update(project_imports::table.find(project))
        .set((
            project_imports::status.eq(state.as_str()),
            project_imports::error.eq(error),
            project_imports::credentials.eq(None::<Vec<u8>>),
            project_imports::finished_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}
