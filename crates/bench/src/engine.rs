//! Databases full of projects, and servers on them.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Instant,
};

use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use tokio_postgres::NoTls;

use crate::{Outcome, server::Server, town};

/// The two engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// An engine that can be filled: beneath a folder, or on a server.
#[derive(Clone)]
pub(crate) enum Engine {
    Sqlite,
    /// The URL of a database beside which others can be made.
    Postgres(String),
}

impl Engine {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Sqlite => Kind::Sqlite,
            Self::Postgres(_) => Kind::Postgres,
        }
    }

    /// Makes a database with so many projects, and what further statements write, and starts a server on it.
    pub(crate) fn fill(&self, program: &Path, folder: &Path, projects: u64, further: &[String]) -> Outcome<Filled> {
        let data = folder.join(format!("{}-{projects}", self.kind()).to_lowercase());
        let database = match self {
            Self::Sqlite => None,
            Self::Postgres(server) => Some(Copy::create(server, &format!("gable_bench_{projects}"))?),
        };
        let start = || Server::gable_on(program, &data, database.as_ref().map(|database| database.url.as_str()));
        // Once to make the tables and the administrator; the rest comes while nobody looks.
        drop(start()?);
        let (mut statements, before) = (town::statements(self.kind(), projects), Instant::now());
        statements.extend_from_slice(further);
        match &database {
            None => fill_sqlite(&data.join("gable.sqlite3"), &statements)?,
            Some(database) => fill_postgres(&database.url, &statements)?,
        }
        eprintln!("{} filled with {projects} projects in {:.1} s", self.kind(), before.elapsed().as_secs_f64());
        Ok(Filled { server: start()?, data, _database: database })
    }
}

impl Engine {
    /// An empty database for servers that are started one after the other.
    pub(crate) fn house(&self, folder: &Path, name: &str) -> Outcome<House> {
        let data = folder.join(format!("{}-{name}", self.kind()).to_lowercase());
        let database = match self {
            Self::Sqlite => None,
            Self::Postgres(server) => Some(Copy::create(server, &format!("gable_bench_{name}"))?),
        };
        Ok(House { data, database })
    }
}

/// A database and a folder; both go when this is dropped.
pub(crate) struct House {
    data: PathBuf,
    database: Option<Copy>,
}

impl House {
    /// Starts a server that talks to this machine.
    pub(crate) fn start(&self, program: &Path) -> Outcome<Server> {
        Server::gable_with_neighbours(program, &self.data, self.database.as_ref().map(|database| database.url.as_str()))
    }

    /// Runs statements while no server does.
    pub(crate) fn execute(&self, statements: &[String]) -> Outcome {
        match &self.database {
            None => fill_sqlite(&self.data.join("gable.sqlite3"), statements),
            Some(database) => fill_postgres(&database.url, statements),
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// A server on a database with projects; both go when this is dropped.
pub(crate) struct Filled {
    pub(crate) server: Server,
    data: PathBuf,
    _database: Option<Copy>,
}

impl Drop for Filled {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn fill_sqlite(path: &Path, statements: &[String]) -> Outcome {
    let text = path.to_str().ok_or("the path of the database is not valid UTF-8")?;
    let failed = |error: diesel::result::Error| format!("cannot fill {text}: {error}");
    let mut conn = SqliteConnection::establish(text).map_err(|error| format!("cannot open {text}: {error}"))?;
    conn.batch_execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144; BEGIN").map_err(failed)?;
    for statement in statements {
        conn.batch_execute(statement).map_err(failed)?;
    }
    conn.batch_execute("COMMIT").map_err(failed)
}

fn fill_postgres(url: &str, statements: &[String]) -> Outcome {
    // What the vacuum of any server in use does within minutes; SQLite gets no such help.
    execute(url, statements.iter().map(String::as_str).chain(["VACUUM ANALYZE"]))
}

/// A database of our own on a server, dropped with this.
struct Copy {
    server: String,
    name: String,
    url: String,
}

impl Copy {
    fn create(server: &str, name: &str) -> Outcome<Self> {
        let name = format!("{name}_{}", std::process::id());
        execute(server, [format!("CREATE DATABASE {name}").as_str()])?;
        let scheme = server.find("://").map_or(0, |at| at + 3);
        let host = server[scheme..].find('/').map_or(server, |at| &server[..scheme + at]);
        // Both are on this machine.
        let url = format!("{host}/{name}?sslmode=disable");
        Ok(Self { server: server.to_owned(), name, url })
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = execute(&self.server, [format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name).as_str()]);
    }
}

fn execute<'a>(url: &str, statements: impl IntoIterator<Item = &'a str>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let failed = |error: tokio_postgres::Error| format!("PostgreSQL refuses: {error}");
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
