//! A database for one test: an SQLite file in its own folder, or a copy of a template database on PostgreSQL.

use std::{
    fs,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use diesel::connection::SimpleConnection as _;
use store::Database;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio_postgres::NoTls;

use crate::on_own_thread;

/// A migrated database, removed on drop.
pub(crate) struct TestDatabase {
    pub(crate) database: Database,
    folder: Option<TempDir>,
    copy: Option<PostgresCopy>,
}

/// A database on the PostgreSQL server of the tests.
struct PostgresCopy {
    server: String,
    name: String,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);
/// The template database, created once per process. PostgreSQL copies only unused databases, so copies are made one at
/// a time.
static TEMPLATE: Mutex<Option<String>> = Mutex::const_new(None);

impl TestDatabase {
    pub(crate) async fn create() -> Self {
        match server() {
            None => Self::create_file(),
            Some(server) => Self::create_copy(server).await,
        }
    }

    fn create_file() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let database = Database::sqlite(folder.path().join("gable.sqlite3"));
        database.migrate().expect("a fresh database takes all migrations");
        Self { database, folder: Some(folder), copy: None }
    }

    async fn create_copy(server: &str) -> Self {
        let mut template = TEMPLATE.lock().await;
        if template.is_none() {
            let name = format!("gable_template_{}", std::process::id());
            execute(server, &[format!("DROP DATABASE IF EXISTS {name}"), format!("CREATE DATABASE {name}")]).await;
            let database = Database::postgres(&with_name(server, &name)).expect("a good URL");
            on_own_thread(|| database.migrate().expect("a fresh database takes all migrations"));
            *template = Some(name);
        }
        Self::copy_of(server, template.as_deref().unwrap_or_default()).await
    }

    async fn copy_of(server: &str, template: &str) -> Self {
        let name = format!("gable_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst));
        let copy = format!("CREATE DATABASE {name} TEMPLATE {template}");
        execute(server, &[format!("DROP DATABASE IF EXISTS {name}"), copy]).await;
        let database = Database::postgres(&with_name(server, &name)).expect("a good URL");
        Self { database, folder: None, copy: Some(PostgresCopy { server: server.to_owned(), name }) }
    }

    /// Returns the URL of the database; `None` for an SQLite file.
    pub(crate) fn url(&self) -> Option<String> {
        self.copy.as_ref().map(|copy| with_name(&copy.server, &copy.name))
    }

    /// Writes the WAL into the database file, so that copying the file is enough; needs exclusive access.
    pub(crate) fn checkpoint(&self) {
        if self.folder.is_some() {
            let mut conn = self.database.connect_writer().expect("a connection");
            if let store::Conn::Sqlite(conn) = &mut conn {
                conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)").expect("a checkpoint");
            }
        }
    }

    /// Creates another database with the same rows, after [`Self::checkpoint`].
    pub(crate) async fn copy(&self) -> Self {
        if let Some(PostgresCopy { server, name }) = &self.copy {
            return Self::copy_of(server, name).await;
        }
        let (old, folder) = (self.folder.as_ref().expect("a file"), tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("gable.sqlite3");
        fs::copy(old.path().join("gable.sqlite3"), &path).expect("a copy");
        Self { database: Database::sqlite(path), folder: Some(folder), copy: None }
    }
}

impl Drop for PostgresCopy {
    fn drop(&mut self) {
        let (server, drop) = (&self.server, format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        on_own_thread(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(execute(server, &[drop]));
        });
    }
}

/// Returns the URL of the PostgreSQL server for tests, if one is configured.
fn server() -> Option<&'static str> {
    static SERVER: OnceLock<Option<String>> = OnceLock::new();
    SERVER.get_or_init(|| std::env::var("GABLE_TEST_DATABASE").ok().filter(|url| !url.is_empty())).as_deref()
}

/// Returns the URL of another database on the same server.
fn with_name(server: &str, name: &str) -> String {
    let (base, query) = server.split_once('?').map_or((server, None), |(base, query)| (base, Some(query)));
    let scheme = base.find("://").map_or(0, |at| at + 3);
    let host = base[scheme..].find('/').map_or(base, |at| &base[..scheme + at]);
    query.map_or_else(|| format!("{host}/{name}"), |query| format!("{host}/{name}?{query}"))
}

async fn execute(server: &str, statements: &[String]) {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.expect("the test server is reachable");
    let connection = tokio::spawn(connection);
    for statement in statements {
        client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    drop(client);
    let _ = connection.await;
}
