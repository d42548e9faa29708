//! Which database there is, how to reach it, and its migrations.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use diesel::{
    Connection, RunQueryDsl,
    connection::SimpleConnection,
    sql_types::{BigInt, Text},
};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::{Conn, conn::on, fragment::Fragment, postgres, sqlite};

const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// A key for PostgreSQL's advisory lock: of several nodes that start at once, one migrates.
pub(crate) const MIGRATION_LOCK: i64 = 0x6761_626c_6500;

/// A database that connections can be made to.
#[derive(Clone)]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    #[expect(private_interfaces, reason = "only this crate looks inside")]
    Postgres(Box<postgres::Target>),
}

/// Where the tables of a database stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The last migration that it has, as a number; `None` if it has no tables yet.
    pub version: Option<String>,
    /// The migrations that it lacks, by name.
    pub pending: Vec<String>,
    /// The last migration that this version knows, as a number.
    pub known: String,
}

/// Why a database cannot be used, as a sentence for the operator.
#[derive(Debug)]
pub enum OpenError {
    /// A newer version has run this migration, which this version does not know.
    Newer(String),
    /// Anything else.
    Failed(String),
}

impl OpenError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer(migration) => write!(
                f,
                "the database is newer than this gable (it has migration {migration}); use the gable that wrote it, or \
                 a newer one"
            ),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for OpenError {}

impl Database {
    /// The embedded database in a file.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite(path.into())
    }

    /// A PostgreSQL server by its URL.
    pub fn postgres(url: &str) -> Result<Self, OpenError> {
        Ok(Self::Postgres(Box::new(postgres::Target::parse(url)?)))
    }

    /// Whether the database is in this process: reads need no network, and one connection writes at a time.
    pub fn is_embedded(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Opens a connection that only reads.
    pub fn connect_reader(&self) -> Result<Conn, OpenError> {
        Ok(match self {
            Self::Sqlite(path) => Conn::Sqlite(sqlite::connect_reader(path)?),
            Self::Postgres(target) => Conn::Pg(target.connect_reader()?),
        })
    }

    /// Opens a connection that reads and writes.
    pub fn connect_writer(&self) -> Result<Conn, OpenError> {
        Ok(match self {
            Self::Sqlite(path) => Conn::Sqlite(sqlite::connect_writer(path)?),
            Self::Postgres(target) => Conn::Pg(target.connect_writer()?),
        })
    }

    /// Brings the tables up to date, all or nothing; refuses a database that a newer version has touched.
    pub fn migrate(&self) -> Result<(), OpenError> {
        let mut conn = self.connect_writer()?;
        match &mut conn {
            Conn::Sqlite(conn) => {
                sqlite::check_build(conn)?;
                conn.batch_execute("PRAGMA busy_timeout=30000").map_err(failed)?;
                conn.immediate_transaction(|conn| run(conn, SQLITE))
            }
            Conn::Pg(conn) => conn.transaction(|conn| {
                wait_for_migrations(conn)?;
                run(conn, POSTGRES)
            }),
        }
    }

    /// Where the tables stand; refuses a database that a newer version has touched. Nothing is changed by looking.
    pub fn schema(&self) -> Result<Schema, OpenError> {
        // Asked first, because whoever asks for migrations makes a table of them.
        const OF_SQLITE: &str = "SELECT count(*) FROM sqlite_schema WHERE name = '__diesel_schema_migrations'";
        const OF_POSTGRES: &str = "SELECT count(*) FROM pg_class WHERE relname = '__diesel_schema_migrations' \
                                   AND relnamespace = current_schema()::regnamespace";
        match self {
            Self::Sqlite(path) => {
                let mut conn = sqlite::connect_aside(path)?;
                let any: i64 = Fragment::<BigInt>::new(OF_SQLITE)
                    .get_result(&mut conn)
                    .map_err(|error| OpenError::new(format!("cannot open the database {}: {error}", path.display())))?;
                conn.batch_execute("PRAGMA query_only=ON").map_err(unreadable)?;
                schema_of(&mut conn, &SQLITE, any > 0)
            }
            Self::Postgres(target) => target.connect_writer()?.transaction(|conn| {
                wait_for_migrations(conn)?;
                let any: i64 = Fragment::<BigInt>::new(OF_POSTGRES).get_result(conn).map_err(unreadable)?;
                schema_of(conn, &POSTGRES, any > 0)
            }),
        }
    }

    /// Runs the migrations that are pending and undoes them, where a transaction can hold them. What is embedded is tried on
    /// a copy instead, which costs others no waiting.
    pub fn try_migrations(&self) -> Result<(), OpenError> {
        let Conn::Pg(mut conn) = self.connect_writer()? else { return self.migrate() };
        let tried = conn.transaction(|conn| {
            wait_for_migrations(conn)?;
            run(conn, POSTGRES)?;
            Err::<(), _>(Trial::Done)
        });
        match tried {
            Ok(()) | Err(Trial::Done) => Ok(()),
            Err(Trial::Failed(error)) => Err(error),
        }
    }

    /// Writes a copy of the embedded database to an empty file, as it is at one moment, also while others write to it.
    pub fn copy_to(&self, file: &Path) -> Result<(), OpenError> {
        let Self::Sqlite(path) = self else {
            return Err(OpenError::new("only the embedded database can be copied to a file"));
        };
        let mut conn = sqlite::connect_aside(path)?;
        let text = file.to_str().ok_or_else(|| OpenError::new("the path of the copy is not valid UTF-8"))?;
        let copied = diesel::sql_query("VACUUM INTO ?").bind::<Text, _>(text).execute(&mut conn);
        copied.map(drop).map_err(|error| OpenError::new(format!("cannot copy the database to {text}: {error}")))
    }

    /// Brings everything that was written to the embedded database into its one file, so that the file can be copied or
    /// replaced; for the end of a server.
    pub fn write_back(&self) -> Result<(), OpenError> {
        let Self::Sqlite(_) = self else { return Ok(()) };
        let Conn::Sqlite(mut conn) = self.connect_writer()? else { return Ok(()) };
        conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)")
            .map_err(|error| OpenError::new(format!("cannot write the database back into its file: {error}")))
    }

    /// Refuses a database whose tables are not exactly those that this version knows.
    pub fn check_version(&self) -> Result<(), OpenError> {
        let mut conn = self.connect_writer()?;
        let pending = match &mut conn {
            Conn::Sqlite(conn) => refuse_newer(conn, &SQLITE)
                .and_then(|()| conn.has_pending_migration(SQLITE).map_err(|error| OpenError::new(error.to_string()))),
            Conn::Pg(conn) => refuse_newer(conn, &POSTGRES)
                .and_then(|()| conn.has_pending_migration(POSTGRES).map_err(|error| OpenError::new(error.to_string()))),
        }?;
        if pending {
            return Err(OpenError::new(
                "the database is older than this gable; restart the server with this version first",
            ));
        }
        Ok(())
    }
}

/// All migrations that this version knows; they are the same for both engines.
pub(crate) fn known_versions() -> BTreeSet<String> {
    let known = diesel::migration::MigrationSource::<diesel::sqlite::Sqlite>::migrations(&SQLITE).unwrap_or_default();
    known.iter().map(|migration| migration.name().version().to_string()).collect()
}

/// Runs the named migrations, or all that are missing, in the transaction that is open.
pub(crate) fn make_tables(db: &mut Conn, versions: Option<&[String]>) -> Result<(), OpenError> {
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
    let failed = |error: &dyn fmt::Display| OpenError::new(format!("cannot make the tables: {error}"));
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

impl Conn {
    /// A number that changes whenever another connection has changed the embedded database.
    pub fn version(&mut self) -> crate::Result<i64> {
        match self {
            Self::Sqlite(conn) => Ok(Fragment::<BigInt>::new("PRAGMA data_version").get_result(conn)?),
            // PostgreSQL has no such number: nothing is remembered of it.
            Self::Pg(_) => Ok(0),
        }
    }

    /// Asks the database for a sign of life.
    pub fn ping(&mut self) -> crate::Result<()> {
        on!(self, conn => diesel::sql_query("SELECT 1").execute(conn)).map(drop).map_err(Into::into)
    }
}

/// Waits until nobody else looks after the tables, for as long as the transaction lasts.
fn wait_for_migrations(conn: &mut postgres::PgConnection) -> Result<(), OpenError> {
    diesel::sql_query(format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).execute(conn).map(drop).map_err(failed)
}

/// How a trial of migrations ends: always by an error, so that nothing of it stays.
enum Trial {
    Done,
    Failed(OpenError),
}

impl From<diesel::result::Error> for Trial {
    fn from(error: diesel::result::Error) -> Self {
        Self::Failed(failed(error))
    }
}

impl From<OpenError> for Trial {
    fn from(error: OpenError) -> Self {
        Self::Failed(error)
    }
}

fn schema_of<C, B>(conn: &mut C, migrations: &EmbeddedMigrations, any: bool) -> Result<Schema, OpenError>
where
    C: MigrationHarness<B>,
    B: diesel::backend::Backend,
    EmbeddedMigrations: diesel::migration::MigrationSource<B>,
{
    let mut applied = BTreeSet::new();
    if any {
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
    let newest = known.iter().map(|migration| version(&**migration)).max().unwrap_or_default();
    Ok(Schema { version: applied.last().cloned(), pending, known: newest })
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
    fn looking_at_a_database_leaves_no_trace_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("test.sqlite3");
        std::fs::write(&file, "").expect("written");
        let database = Database::sqlite(&file);
        let schema = database.schema().expect("looked at");
        assert_eq!((schema.version.as_deref(), schema.pending.len()), (None, known_versions().len()));
        assert_eq!(std::fs::metadata(&file).expect("there").len(), 0);
        database.migrate().expect("migrated");
        assert_eq!(database.schema().expect("looked at").pending, [] as [&str; 0]);
        // A copy is not in the mode in which the server works, and stays so.
        let copy = folder.path().join("copy.sqlite3");
        database.copy_to(&copy).expect("copied");
        let before = std::fs::read(&copy).expect("read");
        assert_eq!(Database::sqlite(&copy).schema().expect("looked at").pending, [] as [&str; 0]);
        Database::sqlite(&copy).copy_to(&folder.path().join("second.sqlite3")).expect("copied");
        assert!(std::fs::read(&copy).expect("read") == before, "not a byte was changed");
    }

    /// A killed process does not show what a power cut would: the setting itself is held.
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
        let setting: Synchronous = diesel::sql_query("PRAGMA synchronous").get_result(&mut conn).expect("asked");
        assert_eq!(setting.synchronous, 2, "FULL");
    }
}
