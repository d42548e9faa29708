//! Database engines, and servers on empty or filled databases.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, bail};
use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use tokio_postgres::NoTls;

use crate::{list_dataset, server::Server};

/// The kind of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Sqlite,
    Postgres,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// An engine on which databases can be created.
#[derive(Clone)]
pub(crate) enum Engine {
    Sqlite,
    /// The URL of an existing database on the server.
    Postgres(String),
}

impl Engine {
    pub(crate) fn kind(&self) -> EngineKind {
        match self {
            Self::Sqlite => EngineKind::Sqlite,
            Self::Postgres(_) => EngineKind::Postgres,
        }
    }

    /// Creates a database with the given number of projects, executes extra statements, and starts a server on it.
    pub(crate) fn fill(
        &self,
        program: &Path,
        folder: &Path,
        projects: u64,
        extra_statements: &[String],
    ) -> Result<FilledInstance> {
        self.fill_named(program, folder, &projects.to_string(), projects, extra_statements)
    }

    /// Like [`Self::fill`], with a name that distinguishes databases of the same size.
    pub(crate) fn fill_named(
        &self,
        program: &Path,
        folder: &Path,
        name: &str,
        projects: u64,
        extra_statements: &[String],
    ) -> Result<FilledInstance> {
        let data = folder.join(format!("{}-{name}", self.kind()).to_lowercase());
        let database = match self {
            Self::Sqlite => None,
            Self::Postgres(server) => Some(TemporaryDatabase::create(server, &format!("gable_bench_{name}"))?),
        };
        let start = || Server::gable_on(program, &data, database.as_ref().map(|database| database.url.as_str()));
        // The first start creates the tables and the administrator; the rows are inserted while no server runs.
        drop(start()?);
        let (mut statements, before) = (list_dataset::statements(self.kind(), projects), Instant::now());
        statements.extend_from_slice(extra_statements);
        match &database {
            None => fill_sqlite(&data.join("gable.sqlite3"), &statements)?,
            Some(database) => fill_postgres(&database.url, &statements)?,
        }
        eprintln!("{} filled with {projects} projects in {:.1} s", self.kind(), before.elapsed().as_secs_f64());
        Ok(FilledInstance { server: start()?, data, database })
    }
}

impl Engine {
    /// Creates an empty database for servers that are started one after another.
    pub(crate) fn empty_instance(&self, folder: &Path, name: &str) -> Result<EmptyInstance> {
        let data = folder.join(format!("{}-{name}", self.kind()).to_lowercase());
        let database = match self {
            Self::Sqlite => None,
            Self::Postgres(server) => Some(TemporaryDatabase::create(server, &format!("gable_bench_{name}"))?),
        };
        Ok(EmptyInstance { data, database })
    }
}

/// An empty database and a data folder; both are deleted on drop.
pub(crate) struct EmptyInstance {
    data: PathBuf,
    database: Option<TemporaryDatabase>,
}

impl EmptyInstance {
    /// Starts a server that may send webhooks to this machine.
    pub(crate) fn start(&self, program: &Path) -> Result<Server> {
        Server::gable_with_local_network(
            program,
            &self.data,
            self.database.as_ref().map(|database| database.url.as_str()),
        )
    }

    /// Copies the data while no server runs.
    pub(crate) fn copy(&self, engine: &Engine, folder: &Path, name: &str) -> Result<Self> {
        let data = folder.join(format!("{}-{name}", engine.kind()).to_lowercase());
        let copied = Command::new("cp").arg("-a").arg(&self.data).arg(&data).status().context("cannot run cp")?;
        if !copied.success() {
            bail!("cannot copy {}", self.data.display());
        }
        let database = match (engine, &self.database) {
            (Engine::Postgres(server), Some(database)) => {
                let template = format!(" TEMPLATE {}", database.name);
                Some(TemporaryDatabase::create_with(server, &format!("gable_bench_{name}"), &template)?)
            }
            _ => None,
        };
        Ok(Self { data, database })
    }

    /// Executes statements; a server may be running.
    pub(crate) fn execute(&self, statements: &[String]) -> Result<()> {
        match &self.database {
            None => fill_sqlite(&self.data.join("gable.sqlite3"), statements),
            Some(database) => fill_postgres(&database.url, statements),
        }
    }
}

impl Drop for EmptyInstance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// A server on a filled database; both are deleted on drop.
pub(crate) struct FilledInstance {
    pub(crate) server: Server,
    data: PathBuf,
    database: Option<TemporaryDatabase>,
}

impl FilledInstance {
    /// Returns the name of the PostgreSQL database.
    pub(crate) fn database_name(&self) -> Option<&str> {
        self.database.as_ref().map(|database| database.name.as_str())
    }
}

impl Drop for FilledInstance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn fill_sqlite(path: &Path, statements: &[String]) -> Result<()> {
    let text = path.to_str().context("the path of the database is not valid UTF-8")?;
    let context = || format!("cannot fill {text}");
    let mut conn = SqliteConnection::establish(text).with_context(|| format!("cannot open {text}"))?;
    conn.batch_execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144; BEGIN").with_context(context)?;
    for statement in statements {
        conn.batch_execute(statement).with_context(context)?;
    }
    conn.batch_execute("COMMIT").with_context(context)
}

fn fill_postgres(url: &str, statements: &[String]) -> Result<()> {
    // Autovacuum would do this within minutes; SQLite has nothing comparable.
    execute(url, statements.iter().map(String::as_str).chain(["VACUUM ANALYZE"]))
}

/// A PostgreSQL database that is dropped with this value.
struct TemporaryDatabase {
    server: String,
    name: String,
    url: String,
}

impl TemporaryDatabase {
    fn create(server: &str, name: &str) -> Result<Self> {
        Self::create_with(server, name, "")
    }

    fn create_with(server: &str, name: &str, options: &str) -> Result<Self> {
        let name = format!("{name}_{}", std::process::id());
        execute(server, [format!("CREATE DATABASE {name}{options}").as_str()])?;
        let scheme = server.find("://").map_or(0, |at| at + 3);
        let host = server[scheme..].find('/').map_or(server, |at| &server[..scheme + at]);
        // Client and server are on the same machine.
        let url = format!("{host}/{name}?sslmode=disable");
        Ok(Self { server: server.to_owned(), name, url })
    }
}

impl Drop for TemporaryDatabase {
    fn drop(&mut self) {
        let _ = execute(&self.server, [format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name).as_str()]);
    }
}

fn execute<'a>(url: &str, statements: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    // The text of this error already contains its source.
    let failed = |error: tokio_postgres::Error| anyhow!("PostgreSQL error: {error}");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(failed)?;
        let connection = tokio::spawn(connection);
        for statement in statements {
            client.batch_execute(statement).await.map_err(failed)?;
        }
        drop(client);
        let _ = connection.await;
        Ok(())
    })
}
