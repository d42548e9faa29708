//! Set-up of SQLite connections.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use diesel::{Connection, RunQueryDsl, SqliteConnection, connection::SimpleConnection, sql_types::Text};

use crate::{Error, OpenError, Result, schema};

/// How long a write waits for the lock of another process on the same file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the file for writing; every commit is synced to disk before it returns.
pub(crate) fn connect_writer(path: &Path) -> std::result::Result<SqliteConnection, OpenError> {
    // A short timeout: `begin_immediate` retries by itself, so that it finds the gaps of a busy writer. Deleted content is
    // overwritten: it may be a secret that was pushed by mistake.
    connect(
        path,
        "PRAGMA synchronous=FULL; PRAGMA busy_timeout=2; PRAGMA journal_size_limit=67108864; PRAGMA secure_delete=ON;",
    )
}

/// Opens the file for reading; the connection cannot write.
pub(crate) fn connect_reader(path: &Path) -> std::result::Result<SqliteConnection, OpenError> {
    connect(path, "PRAGMA query_only=ON; PRAGMA busy_timeout=30000;")
}

/// Opens the file without the settings of the server, some of which would change it; for inspecting or copying it.
pub(crate) fn connect_unconfigured(path: &Path) -> std::result::Result<SqliteConnection, OpenError> {
    let text = path.to_str().ok_or_else(|| OpenError::new("the path of the database is not valid UTF-8"))?;
    let failed = |error: &dyn std::fmt::Display| OpenError::new(format!("cannot open the database {text}: {error}"));
    let mut conn = SqliteConnection::establish(text).map_err(|error| failed(&error))?;
    conn.batch_execute("PRAGMA busy_timeout=30000").map_err(|error| failed(&error))?;
    Ok(conn)
}

fn connect(path: &Path, pragmas: &str) -> std::result::Result<SqliteConnection, OpenError> {
    let text = path.to_str().ok_or_else(|| OpenError::new("the path of the database is not valid UTF-8"))?;
    let failed = |error: &dyn std::fmt::Display| OpenError::new(format!("cannot open the database {text}: {error}"));
    let mut conn = SqliteConnection::establish(text).map_err(|error| failed(&error))?;
    conn.batch_execute("PRAGMA busy_timeout=30000; PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON;")
        .and_then(|()| conn.batch_execute(pragmas))
        .map_err(|error| failed(&error))?;
    schema::lower_utils::register_impl(&mut conn, |text: String| text.to_lowercase())
        .map_err(|error| failed(&error))?;
    Ok(conn)
}

/// Begins a transaction that holds the write lock from its start.
///
/// The server has one writer, so the lock is usually free; an admin command may hold it briefly.
pub(crate) fn begin_immediate(conn: &mut SqliteConnection) -> Result<()> {
    let start = Instant::now();
    loop {
        let attempt = diesel::connection::AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN IMMEDIATE");
        match attempt {
            Ok(()) => return Ok(()),
            Err(error) if is_busy(&error) && start.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(Duration::from_micros(300));
            }
            Err(error) => return Err(Error::from(error)),
        }
    }
}

fn is_busy(error: &diesel::result::Error) -> bool {
    error.to_string().contains("database is locked")
}

/// Refuses an SQLite library that was built without the options on which the query plans depend.
pub(crate) fn check_build(conn: &mut SqliteConnection) -> std::result::Result<(), OpenError> {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = Text)]
        compile_options: String,
    }
    let options: Vec<Row> = diesel::sql_query("PRAGMA compile_options")
        .load(conn)
        .map_err(|error| OpenError::new(format!("cannot read the build options of SQLite: {error}")))?;
    if options.iter().any(|row| row.compile_options == "ENABLE_QPSG") {
        return Ok(());
    }
    Err(OpenError::new(
        "this binary was built with a SQLite that lacks ENABLE_QPSG; build it from the root of the repository, \
         so that .cargo/config.toml is read",
    ))
}
