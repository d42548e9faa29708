//! The configured database, its connections and its migrations.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    fmt,
    path::{Path, PathBuf},
};

use diesel::{
    Connection, RunQueryDsl,
    connection::SimpleConnection,
    sql_types::{BigInt, Text},
};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::{Conn, conn::on, constant::constant, fragment::Fragment, postgres, sqlite};

const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// The key of PostgreSQL's advisory lock that lets only one of several starting nodes migrate.
pub(crate) const MIGRATION_LOCK: i64 = 0x6761_626c_6500;

/// How many connections to PostgreSQL may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionUsage {
    /// The number of connections that the server accepts from all nodes together.
    pub max: i64,
    /// The number of nodes that were heard of recently.
    pub other_nodes: i64,
}

/// The database of an instance.
#[derive(Clone)]
pub enum Database {
    /// An SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL server.
    #[expect(private_interfaces, reason = "only this crate uses the target")]
    Postgres(Box<postgres::Target>),
}

/// The applied and pending migrations of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaStatus {
    /// The version of the last applied migration; `None` if there are no tables yet.
    pub version: Option<String>,
    /// The names of the migrations that are not applied yet.
    pub pending: Vec<String>,
    /// The version of the last migration of this binary.
    pub latest: String,
}

/// Why a database cannot be used; its text is shown to the operator and includes that of its cause.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database has this migration, which this binary does not know: a newer version has used it.
    #[error(
        "the database is newer than this gable (it has migration {0}); use the gable that wrote it, or a newer one"
    )]
    Newer(String),
    /// Anything else.
    #[error("{0}")]
    Failed(#[source] Box<dyn StdError + Send + Sync>),
}

impl OpenError {
    pub(crate) fn new(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Failed(cause.into())
    }
}

impl Database {
    /// Returns the SQLite database in a file.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite(path.into())
    }

    /// Returns the PostgreSQL database at a URL.
    pub fn postgres(url: &str) -> Result<Self, OpenError> {
        Ok(Self::Postgres(Box::new(postgres::Target::parse(url)?)))
    }

    /// Returns the PostgreSQL standbys at a URL. A standby that disappears is noticed sooner than a primary, because the
    /// primary can be used instead.
    pub fn standby(url: &str) -> Result<Self, OpenError> {
        Ok(Self::Postgres(Box::new(postgres::Target::parse_with(url, postgres::STANDBY_TIMEOUTS)?)))
    }

    /// Returns whether the engine is SQLite: statements run inside this process, and the whole database can be copied as a
    /// file.
    pub fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Returns whether only one server uses the database, so that leases and unfinished work found at its start belong
    /// to a process that is gone. Several servers may share one PostgreSQL database.
    pub fn is_single_node(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Returns whether the database is a file in the data folder: it is created with it and shares its disk, so a full
    /// disk affects both.
    pub fn is_in_data_folder(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Returns whether the engine allows one write transaction at a time, so that one writer thread groups all writes.
    pub fn has_single_writer(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Opens a read-only connection.
    pub fn connect_reader(&self) -> Result<Conn, OpenError> {
        Ok(match self {
            Self::Sqlite(path) => Conn::Sqlite(sqlite::connect_reader(path)?),
            Self::Postgres(target) => Conn::Pg(target.connect_reader()?),
        })
    }

    /// Returns how many connections PostgreSQL accepts, and how many nodes are registered that may use them; `None` on
    /// SQLite.
    pub fn connection_usage(&self) -> Result<Option<ConnectionUsage>, OpenError> {
        if self.is_sqlite() {
            return Ok(None);
        }
        let mut db = self.connect_reader()?;
        let query = Fragment::<(BigInt, BigInt)>::new(
            "SELECT (SELECT sum(CASE name WHEN 'max_connections' THEN setting::bigint ELSE -setting::bigint END)::bigint \
             FROM pg_settings WHERE name IN ('max_connections', 'superuser_reserved_connections')), \
             (SELECT count(*) FROM nodes WHERE heartbeat_at > (extract(epoch FROM clock_timestamp()) - 20) * 1000000)",
        );
        let (max, other_nodes) = on!(&mut db, conn => query.get_result(conn)).map_err(failed)?;
        Ok(Some(ConnectionUsage { max, other_nodes }))
    }

    /// Opens a connection for reading and writing.
    pub fn connect_writer(&self) -> Result<Conn, OpenError> {
        Ok(match self {
            Self::Sqlite(path) => Conn::Sqlite(sqlite::connect_writer(path)?),
            Self::Postgres(target) => Conn::Pg(target.connect_writer()?),
        })
    }

    /// Applies all pending migrations or none; refuses a database that a newer version has used.
    pub fn migrate(&self) -> Result<(), OpenError> {
        let mut conn = self.connect_writer()?;
        match &mut conn {
            Conn::Sqlite(conn) => {
                sqlite::check_build(conn)?;
                conn.batch_execute("PRAGMA busy_timeout=30000").map_err(failed)?;
                conn.immediate_transaction(|conn| run(conn, SQLITE))
            }
            Conn::Pg(conn) => conn.transaction(|conn| {
                lock_migrations(conn)?;
                run(conn, POSTGRES)
            }),
        }
    }

    /// Returns which migrations are applied, without changing the database; refuses one that a newer version has used.
    pub fn schema_status(&self) -> Result<SchemaStatus, OpenError> {
        // Checked first, because Diesel creates the table of migrations when it lists them.
        const OF_SQLITE: &str = "SELECT count(*) FROM sqlite_schema WHERE name = '__diesel_schema_migrations'";
        const OF_POSTGRES: &str = "SELECT count(*) FROM pg_class WHERE relname = '__diesel_schema_migrations' \
                                   AND relnamespace = current_schema()::regnamespace";
        match self {
            Self::Sqlite(path) => {
                let mut conn = sqlite::connect_unconfigured(path)?;
                let tables: i64 = Fragment::<BigInt>::new(OF_SQLITE)
                    .get_result(&mut conn)
                    .map_err(|error| OpenError::new(format!("cannot open the database {}: {error}", path.display())))?;
                conn.batch_execute("PRAGMA query_only=ON").map_err(unreadable)?;
                schema_status_of(&mut conn, &SQLITE, tables > 0)
            }
            Self::Postgres(target) => target.connect_writer()?.transaction(|conn| {
                lock_migrations(conn)?;
                let tables: i64 = Fragment::<BigInt>::new(OF_POSTGRES).get_result(conn).map_err(unreadable)?;
                schema_status_of(conn, &POSTGRES, tables > 0)
            }),
        }
    }

    /// Runs the pending migrations, calls `inspect` with the result, and rolls everything back. On SQLite it is called on a
    /// copy of the file, so that no other connection waits.
    pub fn dry_run_migrations<T>(&self, inspect: impl FnOnce(&mut Conn) -> crate::Result<T>) -> Result<T, OpenError> {
        let mut db = self.connect_writer()?;
        db.begin_writing().map_err(OpenError::new)?;
        let result = match &mut db {
            Conn::Sqlite(conn) => run(conn, SQLITE),
            Conn::Pg(conn) => lock_migrations(conn).and_then(|()| run(conn, POSTGRES)),
        };
        let inspected = result.and_then(|()| inspect(&mut db).map_err(OpenError::new));
        db.roll_back().map_err(OpenError::new)?;
        inspected
    }

    /// Writes a consistent copy of an SQLite database to an empty file, also while other connections write to it.
    pub fn copy_to(&self, file: &Path) -> Result<(), OpenError> {
        let Self::Sqlite(path) = self else {
            return Err(OpenError::new("only an SQLite database can be copied to a file"));
        };
        let mut conn = sqlite::connect_unconfigured(path)?;
        let text = file.to_str().ok_or_else(|| OpenError::new("the path of the copy is not valid UTF-8"))?;
        let copied = diesel::sql_query("VACUUM INTO ?").bind::<Text, _>(text).execute(&mut conn);
        copied.map(drop).map_err(|error| OpenError::new(format!("cannot copy the database to {text}: {error}")))
    }

    /// Moves the write-ahead log of an SQLite database into its main file, so that the file alone can be copied or
    /// replaced after the server has stopped.
    pub fn checkpoint(&self) -> Result<(), OpenError> {
        let Self::Sqlite(_) = self else { return Ok(()) };
        let Conn::Sqlite(mut conn) = self.connect_writer()? else { return Ok(()) };
        conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)")
            .map_err(|error| OpenError::new(format!("cannot move the write-ahead log into the database file: {error}")))
    }

    /// Refuses a database whose migrations are not exactly those of this binary.
    pub fn check_version(&self) -> Result<(), OpenError> {
        let mut conn = self.connect_writer()?;
        let pending = match &mut conn {
            Conn::Sqlite(conn) => {
                refuse_newer(conn, &SQLITE).and_then(|()| conn.has_pending_migration(SQLITE).map_err(OpenError::new))
            }
            Conn::Pg(conn) => refuse_newer(conn, &POSTGRES)
                .and_then(|()| conn.has_pending_migration(POSTGRES).map_err(OpenError::new)),
        }?;
        if pending {
            return Err(OpenError::new(
                "the database is older than this gable; restart the server with this version first",
            ));
        }
        Ok(())
    }
}

/// Returns the versions of all migrations of this binary; they are the same for both engines.
pub(crate) fn known_versions() -> BTreeSet<String> {
    let known = diesel::migration::MigrationSource::<diesel::sqlite::Sqlite>::migrations(&SQLITE).unwrap_or_default();
    known.iter().map(|migration| migration.name().version().to_string()).collect()
}

/// Runs the given pending migrations, or all of them, in the open transaction.
pub(crate) fn run_migrations(db: &mut Conn, versions: Option<&[String]>) -> Result<(), OpenError> {
    match db {
        Conn::Sqlite(conn) => run_some(conn, SQLITE, versions),
        Conn::Pg(conn) => run_some(conn, POSTGRES, versions),
    }
}

fn run_some<C, B>(conn: &mut C, migrations: EmbeddedMigrations, versions: Option<&[String]>) -> Result<(), OpenError>
where
    C: MigrationHarness<B>,
    B: diesel::backend::Backend,
    EmbeddedMigrations: diesel::migration::MigrationSource<B>,
{
    let failed = |error: &dyn fmt::Display| OpenError::new(format!("cannot create the tables: {error}"));
    let known = known_versions();
    if let Some(version) = versions.unwrap_or_default().iter().find(|version| !known.contains(*version)) {
        return Err(OpenError::new(format!(
            "it was made by a newer gable (it has migration {version}); use that one, or a newer one"
        )));
    }
    for migration in conn.pending_migrations(migrations).map_err(|error| failed(&error))? {
        let version = migration.name().version().to_string();
        if versions.is_none_or(|versions| versions.contains(&version)) {
            conn.run_migration(&migration).map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}

/// Identifies the committed data that a read connection sees. Only versions of the same connection are comparable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataVersion {
    /// On SQLite, the number of commits of other connections.
    Commits(i64),
    /// On PostgreSQL, the snapshot, which determines the transactions that have ended.
    Snapshot(String),
}

impl Conn {
    /// Returns the current version of the data. While it stays the same, reading again returns the same; this costs less
    /// than most reads.
    pub fn data_version(&mut self) -> crate::Result<DataVersion> {
        Ok(match self {
            Self::Sqlite(conn) => {
                DataVersion::Commits(constant!(Fragment::<BigInt>::new("PRAGMA data_version")).get_result(conn)?)
            }
            Self::Pg(conn) => {
                DataVersion::Snapshot(Fragment::<Text>::new("SELECT pg_current_snapshot()::text").get_result(conn)?)
            }
        })
    }

    /// Checks that the database answers.
    pub fn ping(&mut self) -> crate::Result<()> {
        on!(self, conn => diesel::sql_query("SELECT 1").execute(conn)).map(drop).map_err(Into::into)
    }
}

/// Waits for migrations of other nodes and prevents new ones until the end of the transaction.
fn lock_migrations(conn: &mut postgres::PgConnection) -> Result<(), OpenError> {
    // An index of a large table takes longer than any request may.
    conn.batch_execute(postgres::WHOLE_TABLE_SETTINGS).map_err(failed)?;
    diesel::sql_query(format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).execute(conn).map(drop).map_err(failed)
}

fn schema_status_of<C, B>(
    conn: &mut C,
    migrations: &EmbeddedMigrations,
    has_migrations: bool,
) -> Result<SchemaStatus, OpenError>
where
    C: MigrationHarness<B>,
    B: diesel::backend::Backend,
    EmbeddedMigrations: diesel::migration::MigrationSource<B>,
{
    let mut applied = BTreeSet::new();
    if has_migrations {
        refuse_newer(conn, migrations)?;
        applied.extend(conn.applied_migrations().map_err(unreadable)?.iter().map(ToString::to_string));
    }
    let known = diesel::migration::MigrationSource::<B>::migrations(migrations).map_err(unreadable)?;
    let version = |migration: &dyn diesel::migration::Migration<B>| migration.name().version().to_string();
    let mut pending: Vec<String> = known
        .iter()
        .filter(|migration| !applied.contains(&version(&**migration)))
        .map(|migration| migration.name().to_string())
        .collect();
    pending.sort();
    let latest = known.iter().map(|migration| version(&**migration)).max().unwrap_or_default();
    Ok(SchemaStatus { version: applied.last().cloned(), pending, latest })
}

impl From<diesel::result::Error> for OpenError {
    fn from(error: diesel::result::Error) -> Self {
        failed(error)
    }
}

fn failed(error: diesel::result::Error) -> OpenError {
    OpenError::new(format!("cannot bring the database up to date: {error}"))
}

fn unreadable(error: impl fmt::Display) -> OpenError {
    OpenError::new(format!("cannot read the version of the database: {error}"))
}

fn run<C, B>(conn: &mut C, migrations: EmbeddedMigrations) -> Result<(), OpenError>
where
    C: MigrationHarness<B>,
    B: diesel::backend::Backend,
    EmbeddedMigrations: diesel::migration::MigrationSource<B>,
{
    refuse_newer(conn, &migrations)?;
    let run = conn.run_pending_migrations(migrations);
    run.map(drop).map_err(|error| OpenError::new(format!("cannot bring the database up to date: {error}")))
}

fn refuse_newer<C, B>(conn: &mut C, migrations: &EmbeddedMigrations) -> Result<(), OpenError>
where
    C: MigrationHarness<B>,
    B: diesel::backend::Backend,
    EmbeddedMigrations: diesel::migration::MigrationSource<B>,
{
    let known = diesel::migration::MigrationSource::<B>::migrations(migrations).map_err(unreadable)?;
    let known: BTreeSet<String> = known.iter().map(|migration| migration.name().version().to_string()).collect();
    let applied = conn.applied_migrations().map_err(unreadable)?;
    match applied.iter().map(ToString::to_string).find(|version| !known.contains(version)) {
        None => Ok(()),
        Some(version) => Err(OpenError::Newer(version)),
    }
}

#[cfg(test)]
mod tests {
    use diesel::{QueryableByName, sql_types::Integer};

    use super::*;

    #[test]
    fn both_engines_have_the_same_migrations() {
        let names = |engine: &str| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
            let entries = std::fs::read_dir(folder).expect("the migrations are there");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("readable").file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names("sqlite"), names("postgres"));
    }

    #[test]
    fn reading_the_schema_status_does_not_change_the_database() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("test.sqlite3");
        std::fs::write(&file, "").expect("written");
        let database = Database::sqlite(&file);
        let schema = database.schema_status().expect("read");
        assert_eq!((schema.version.as_deref(), schema.pending.len()), (None, known_versions().len()));
        assert_eq!(std::fs::metadata(&file).expect("there").len(), 0);
        database.migrate().expect("migrated");
        assert_eq!(database.schema_status().expect("read").pending, [] as [&str; 0]);
        // A copy is not in WAL mode, and reading it must not change that.
        let copy = folder.path().join("copy.sqlite3");
        database.copy_to(&copy).expect("copied");
        let before = std::fs::read(&copy).expect("read");
        assert_eq!(Database::sqlite(&copy).schema_status().expect("read").pending, [] as [&str; 0]);
        Database::sqlite(&copy).copy_to(&folder.path().join("second.sqlite3")).expect("copied");
        assert!(std::fs::read(&copy).expect("read") == before, "not a byte was changed");
    }

    /// Killing a process does not simulate a power cut, so the setting itself is checked.
    #[test]
    fn a_commit_on_sqlite_waits_for_the_disk() {
        #[derive(QueryableByName)]
        struct Synchronous {
            #[diesel(sql_type = Integer)]
            synchronous: i32,
        }
        let folder = tempfile::tempdir().expect("a folder");
        let database = Database::sqlite(folder.path().join("test.sqlite3"));
        let Ok(Conn::Sqlite(mut conn)) = database.connect_writer() else { panic!("a connection") };
        let setting: Synchronous = diesel::sql_query("PRAGMA synchronous").get_result(&mut conn).expect("read");
        assert_eq!(setting.synchronous, 2, "FULL");
    }
}
