//! The data folder and the database of one instance.
//!
//! With `GABLE_TEST_DATABASE=postgres://…` every instance gets its own database on that server.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use diesel::{RunQueryDsl as _, connection::SimpleConnection as _, sql_types::BigInt};
use files::Files;
use model::{ProjectId, Time};
use store::{Conn, Database};
use tempfile::TempDir;
use testkit::repository::{build_repository, store_repository};
use url::Url;

use super::{GableCommand, ServerProcess, UNLIMITED};

/// A folder for one instance, and a database on PostgreSQL if one is configured; removed on drop.
pub(crate) struct TestInstance {
    folder: TempDir,
    database: Option<PostgresDatabase>,
}

impl TestInstance {
    /// Creates an instance on the database engine that is configured for the tests.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), database: PostgresDatabase::create() }
    }

    /// Creates an instance that always uses the embedded database.
    pub(crate) fn embedded() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), database: None }
    }

    /// Returns the working directory of commands, which contains the data folder.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file beside the data folder and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.into_os_string().into_string().expect("a readable path")
    }

    /// Returns a `gable` command for this instance, without the `GABLE_…` variables of the environment.
    pub(crate) fn gable(&self, arguments: &[&str]) -> GableCommand {
        let gable = GableCommand::new(env!("CARGO_BIN_EXE_gable")).args(arguments);
        gable.for_instance(self)
    }

    /// Returns a command that serves on a free port without rate limits.
    pub(crate) fn serve(&self) -> GableCommand {
        self.serve_with_default_limits().args(UNLIMITED)
    }

    /// Returns a command that serves on a free port with the default rate limits.
    pub(crate) fn serve_with_default_limits(&self) -> GableCommand {
        self.gable(&["serve", "--listen", "127.0.0.1:0"])
    }

    /// Starts a server whose administrator has `ROOT_PASSWORD` and `ROOT_TOKEN`.
    pub(crate) fn start(&self) -> ServerProcess {
        self.serve().with_root_credentials().start()
    }

    /// Runs an admin command that must succeed; returns its output.
    pub(crate) fn admin(&self, arguments: &[&str]) -> String {
        self.gable(&["admin"]).args(arguments).finish().succeeded()
    }

    /// Runs an admin command that must fail; returns the error message.
    pub(crate) fn admin_refused(&self, arguments: &[&str]) -> String {
        self.gable(&["admin"]).args(arguments).finish().refused()
    }

    /// Inserts a task that has been due since 1970 and has failed for the last time.
    pub(crate) fn insert_dead_task(&self, kind: &str, payload: &str, error: &str) {
        let (due_at, now) = (Time::UNIX_EPOCH, Time::from_microsecond(1).expect("a time"));
        let mut db = self.database().connect_writer().expect("a connection");
        db.begin_writing().expect("a transaction");
        store::tasks::insert(&mut db, kind, payload, None, due_at, due_at).expect("a task");
        // Other tasks are not due yet at this time.
        let mut claim = || store::tasks::claim(&mut db, now, due_at).expect("asked").expect("a task").id;
        let id = (0..10).map(|_| claim()).last().expect("claimed");
        store::tasks::mark_dead(&mut db, id, error, now).expect("marked");
        db.commit().expect("committed");
    }

    /// Runs SQL directly on the database, for old schemas and for damage.
    pub(crate) fn execute(&self, sql: &str) {
        execute(&self.database(), sql);
    }

    /// Runs a query for one number directly on the database.
    pub(crate) fn count(&self, sql: &str) -> i64 {
        let query = diesel::dsl::sql::<BigInt>(sql);
        match &mut self.database().connect_writer().expect("a connection") {
            Conn::Sqlite(conn) => query.get_result(conn),
            Conn::Pg(conn) => query.get_result(conn),
        }
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Returns the storage id of a project, which names the folders of its files.
    pub(crate) fn storage_of(&self, project: ProjectId) -> String {
        let mut db = self.database().connect_writer().expect("a connection");
        let found = store::projects::storage_of(&mut db, project).expect("readable");
        found.expect("a project").to_string()
    }

    /// Builds the repository of a project from the database and the stored packs, as a server with an empty cache does.
    pub(crate) fn build_repository(&self, project: ProjectId) -> BuiltRepository {
        let root = tempfile::tempdir_in(self.folder()).expect("a folder");
        let mut db = self.database().connect_reader().expect("a connection");
        let path = build_repository(&mut db, &self.files(), project, root.path()).expect("a repository");
        BuiltRepository { path, _root: root }
    }

    /// Gives a project the refs and all objects of a bare repository, without the checks of a push.
    pub(crate) fn store_repository(&self, project: ProjectId, folder: &Path) {
        let mut db = self.database().connect_writer().expect("a connection");
        db.begin_writing().expect("a transaction");
        store_repository(&mut db, &self.files(), project, folder, Time::now());
        db.commit().expect("committed");
    }

    fn files(&self) -> Files {
        Files::open(&self.data().join("files")).expect("the files folder opens")
    }

    /// Saves a copy of the database; while a server runs, this works only with the embedded one.
    pub(crate) fn save_database(&self) {
        match &self.database {
            None => {
                let copy = self.saved_file();
                let _ = std::fs::remove_file(&copy);
                self.database().copy_to(&copy).expect("copied");
            }
            Some(own) => {
                let name = &own.name;
                execute(&own.maintenance_database(), &format!("CREATE DATABASE {name}_saved TEMPLATE {name}"));
            }
        }
    }

    /// Replaces the database by the saved copy.
    pub(crate) fn restore_database(&self) {
        match &self.database {
            None => {
                // No server runs, so there is no WAL file.
                std::fs::copy(self.saved_file(), self.data().join("gable.sqlite3")).expect("copied");
            }
            Some(own) => {
                own.execute_ddl("DROP DATABASE", "WITH (FORCE)");
                let name = &own.name;
                execute(&own.maintenance_database(), &format!("ALTER DATABASE {name}_saved RENAME TO {name}"));
            }
        }
    }

    fn saved_file(&self) -> PathBuf {
        self.folder.path().join("saved.sqlite3")
    }

    /// Returns the URL of the database if it is on PostgreSQL.
    pub(crate) fn database_url(&self) -> Option<Url> {
        self.database.as_ref().map(PostgresDatabase::url)
    }

    /// Closes all connections to the PostgreSQL database and refuses new ones.
    pub(crate) fn begin_outage(&self) {
        self.postgres_database().execute_ddl("ALTER DATABASE", "ALLOW_CONNECTIONS false");
        let name = &self.postgres_database().name;
        let terminate = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        execute(&self.postgres_database().maintenance_database(), &terminate);
    }

    /// Allows connections to the PostgreSQL database again.
    pub(crate) fn end_outage(&self) {
        self.postgres_database().execute_ddl("ALTER DATABASE", "ALLOW_CONNECTIONS true");
    }

    fn postgres_database(&self) -> &PostgresDatabase {
        self.database.as_ref().expect("only PostgreSQL can have an outage")
    }

    fn database(&self) -> Database {
        match self.database_url() {
            None => Database::sqlite(self.data().join("gable.sqlite3")),
            Some(url) => Database::postgres(url.as_str()).expect("a good URL"),
        }
    }
}

/// A repository that was built for a test, removed on drop.
pub(crate) struct BuiltRepository {
    path: PathBuf,
    _root: TempDir,
}

impl BuiltRepository {
    /// Returns the folder, a bare repository.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A database on the PostgreSQL server of the tests, removed on drop.
struct PostgresDatabase {
    server: Url,
    name: String,
}

impl PostgresDatabase {
    fn create() -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let server = postgres_server()?;
        let name = format!("gable_story_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst));
        let own = Self { server, name };
        own.execute_ddl("DROP DATABASE IF EXISTS", "WITH (FORCE)");
        own.execute_ddl("CREATE DATABASE", "");
        Some(own)
    }

    fn url(&self) -> Url {
        let mut url = self.server.clone();
        url.set_path(&self.name);
        url
    }

    /// Returns the database of the server itself, from which others are created.
    fn maintenance_database(&self) -> Database {
        Database::postgres(self.server.as_str()).expect("a good URL")
    }

    fn execute_ddl(&self, statement: &str, options: &str) {
        execute(&self.maintenance_database(), &format!("{statement} {} {options}", self.name));
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        // Errors are ignored: a second panic would hide the first.
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _ = try_execute(&self.maintenance_database(), &drop);
    }
}

/// Returns the PostgreSQL server of the tests, if one is configured.
pub(crate) fn postgres_server() -> Option<Url> {
    let text = std::env::var("GABLE_TEST_DATABASE").ok().filter(|text| !text.is_empty())?;
    Some(Url::parse(&text).expect("GABLE_TEST_DATABASE is a URL"))
}

/// Runs SQL on a PostgreSQL server.
pub(crate) fn execute_on(server: &Url, sql: &str) {
    execute(&Database::postgres(server.as_str()).expect("a good URL"), sql);
}

fn execute(database: &Database, sql: &str) {
    try_execute(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn try_execute(database: &Database, sql: &str) -> Result<(), String> {
    match &mut database.connect_writer().map_err(|error| error.to_string())? {
        Conn::Sqlite(conn) => conn.batch_execute(sql),
        Conn::Pg(conn) => conn.batch_execute(sql),
    }
    .map_err(|error| error.to_string())
}
