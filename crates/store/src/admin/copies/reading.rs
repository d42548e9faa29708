//! Reading everything as it was at one instant.

use diesel::connection::SimpleConnection as _;
use model::StorageId;

use super::{
    Row, Value,
    statement::{Kind, Statement, words},
    tables::{self, Table, quoted},
};
use crate::{Conn, Database, OpenError, conn::on, database::known_versions};

/// Everything that a database held at one instant, for as long as this lives.
pub struct Snapshot {
    db: Conn,
    begun: bool,
}

/// What lies in files and not in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Files that people have uploaded.
    Uploads,
    /// Files that jobs have left behind.
    Artifacts,
    /// What jobs have said.
    Traces,
}

/// A file that the database knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Its number.
    pub id: i64,
    /// Where the files of its project lie.
    pub storage: StorageId,
    /// How many bytes count.
    pub size: u64,
    /// When it came to be, in microseconds; unknown of what may still grow.
    pub created_at: Option<i64>,
}

/// A project that has a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithRepository {
    /// Its number.
    pub id: i64,
    /// Where its files lie.
    pub storage: StorageId,
    /// Its default branch, which the repository has.
    pub default_branch: String,
}

impl Snapshot {
    /// Gets ready; nothing is held yet.
    pub fn prepare(database: &Database) -> Result<Self, OpenError> {
        let mut db = database.connect_reader()?;
        if let Conn::Pg(conn) = &mut db {
            // A statement may have to wait for a disk; nobody waits for it.
            conn.batch_execute("SET statement_timeout = 0").map_err(|error| OpenError::new(error.to_string()))?;
        }
        Ok(Self { db, begun: false })
    }

    /// Takes the instant: everything is read as it is now.
    pub fn begin(&mut self) -> Result<(), OpenError> {
        let begin = match &self.db {
            Conn::Sqlite(_) => "BEGIN",
            Conn::Pg(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        on!(&mut self.db, conn => conn.batch_execute(begin)).map_err(|error| OpenError::new(error.to_string()))?;
        self.begun = true;
        // It is the first statement that looks, on either engine.
        self.migrations().map(drop)
    }

    /// What is wrong with the database itself. PostgreSQL tells while it is read.
    pub fn faults(&mut self) -> Result<Vec<String>, OpenError> {
        match &self.db {
            Conn::Sqlite(_) => {
                crate::checks::integrity(&mut self.db).map_err(|error| OpenError::new(error.to_string()))
            }
            Conn::Pg(_) => Ok(Vec::new()),
        }
    }

    /// The connection that reads, for other questions about the same instant.
    pub fn connection(&mut self) -> &mut Conn {
        &mut self.db
    }

    /// Which migrations had run. One that this version does not know is refused.
    pub fn migrations(&mut self) -> Result<Vec<String>, OpenError> {
        if !self.has("__diesel_schema_migrations")? {
            return Err(OpenError::new("the database holds nothing yet; start the server once"));
        }
        let mut versions = words(&mut self.db, "SELECT version FROM __diesel_schema_migrations")?;
        versions.sort_unstable();
        let known = known_versions();
        match versions.iter().find(|version| !known.contains(*version)) {
            None => Ok(versions),
            Some(version) => Err(OpenError::Newer(version.clone())),
        }
    }

    fn has(&mut self, table: &str) -> Result<bool, OpenError> {
        let mut query = Statement::new(match &self.db {
            Conn::Sqlite(_) => "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ",
            Conn::Pg(_) => {
                "SELECT 1 FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace \
                 AND relname = "
            }
        });
        let _ = query.bind(Kind::Text, Value::Text(table.to_owned()));
        Ok(!query.load(&mut self.db)?.is_empty())
    }

    /// All tables with rows of ours, by name.
    pub fn tables(&mut self) -> Result<Vec<Table>, OpenError> {
        tables::all(&mut self.db)
    }

    /// Some rows of a table in the order of its key, beginning after one of them.
    pub fn rows(&mut self, table: &Table, after: Option<&Row>, most: usize) -> Result<Vec<Row>, OpenError> {
        let mut query = Statement::new(format!("SELECT {} FROM {}", table.column_list(), table.quoted()));
        if let Some(after) = after {
            query.sql(format!(" WHERE ({}) > (", table.key_list()));
            for (place, index) in table.key.iter().enumerate() {
                query.sql(if place == 0 { "" } else { ", " });
                let value = after.get(*index).cloned().unwrap_or(Value::Null);
                if !query.bind(table.kinds[*index], value) {
                    return Err(OpenError::new(format!("a row of {} has an unreadable key", table.name)));
                }
            }
            query.sql(")");
        }
        query.sql(format!(" ORDER BY {} LIMIT {most}", table.key_list()));
        query.load(&mut self.db)
    }

    /// The highest number that each table has ever given, also if that row is gone.
    pub fn sequences(&mut self) -> Result<Vec<(String, i64)>, OpenError> {
        let rows = match &self.db {
            Conn::Sqlite(_) => {
                Statement::new("SELECT name, seq FROM sqlite_sequence ORDER BY name").load(&mut self.db)?
            }
            Conn::Pg(_) => {
                let mut rows = Vec::new();
                for (table, sequence) in identities(&mut self.db)? {
                    let given = format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}");
                    let last = super::statement::number(&mut self.db, &given)?;
                    rows.push(vec![Value::Text(table), Value::Integer(last)]);
                }
                rows
            }
        };
        let pair = |row: Row| match row.as_slice() {
            [Value::Text(table), Value::Integer(last)] => Some((table.clone(), *last)),
            _ => None,
        };
        Ok(rows.into_iter().filter_map(pair).filter(|(_, last)| *last > 0).collect())
    }

    /// Some of the projects that have a repository, by their number, beginning after one of them. Those that are being
    /// removed do not count.
    pub fn with_repository(&mut self, after: i64, most: usize) -> Result<Vec<WithRepository>, OpenError> {
        // An older database knows of no repositories.
        if !self.has("ref_intents")? {
            return Ok(Vec::new());
        }
        let storage = self.storage_of("p.id")?;
        let mut query = Statement::new(format!(
            "SELECT p.id, {storage}, p.default_branch FROM projects p \
             WHERE p.default_branch IS NOT NULL AND p.namespace_id IS NOT NULL AND p.id > "
        ));
        let _ = query.bind(Kind::Integer, Value::Integer(after));
        query.sql(format!(" ORDER BY p.id LIMIT {most}"));
        let project = |row: Row| match row.as_slice() {
            [Value::Integer(id), Value::Text(storage), Value::Text(branch)] => {
                Some(WithRepository { id: *id, storage: StorageId::parse(storage)?, default_branch: branch.clone() })
            }
            _ => None,
        };
        Ok(query.load(&mut self.db)?.into_iter().filter_map(project).collect())
    }

    /// How a statement asks where the files of a project lie. In a database from before there were storage ids, that is
    /// the number.
    fn storage_of(&mut self, project: &str) -> Result<String, OpenError> {
        Ok(if self.has("project_storage")? {
            format!("(SELECT s.storage_id FROM project_storage s WHERE s.project_id = {project})")
        } else {
            format!("CAST({project} AS TEXT)")
        })
    }

    /// Some of the files that count, by their number, beginning after one of them.
    pub fn kept(&mut self, what: Kept, after: i64, most: usize) -> Result<Vec<KeptFile>, OpenError> {
        let storage = self.storage_of("f.project_id")?;
        let (table, id, columns, from) = match what {
            Kept::Uploads => ("uploads", "f.id", "f.size, f.created_at", "uploads f WHERE f.size IS NOT NULL"),
            Kept::Artifacts => {
                ("build_artifacts", "f.id", "f.size, f.created_at", "build_artifacts f WHERE f.size IS NOT NULL")
            }
            Kept::Traces => (
                "build_runs",
                "r.build_id",
                "r.trace_size, NULL",
                "build_runs r JOIN builds f ON f.id = r.build_id WHERE r.trace_size > 0",
            ),
        };
        // An older database has fewer tables.
        if !self.has(table)? {
            return Ok(Vec::new());
        }
        let mut query = Statement::new(format!("SELECT {id}, {storage}, {columns} FROM {from} AND {id} > "));
        let _ = query.bind(Kind::Integer, Value::Integer(after));
        query.sql(format!(" ORDER BY {id} LIMIT {most}"));
        let file = |row: Row| match row.as_slice() {
            [Value::Integer(id), Value::Text(storage), Value::Integer(size), created_at] => Some(KeptFile {
                id: *id,
                storage: StorageId::parse(storage)?,
                size: u64::try_from(*size).unwrap_or_default(),
                created_at: if let Value::Integer(moment) = created_at { Some(*moment) } else { None },
            }),
            _ => None,
        };
        Ok(query.load(&mut self.db)?.into_iter().filter_map(file).collect())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.begun {
            let _ = on!(&mut self.db, conn => conn.batch_execute("ROLLBACK"));
        }
    }
}

/// The tables that number their rows themselves, each with its sequence; only PostgreSQL has them.
pub(super) fn identities(db: &mut Conn) -> Result<Vec<(String, String)>, OpenError> {
    let query = "SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                 WHERE a.attidentity <> '' AND c.relnamespace = current_schema()::regnamespace \
                 ORDER BY c.relname::text COLLATE \"C\"";
    let mut found = Vec::new();
    for row in Statement::new(query).load(db)? {
        let [Value::Text(table), Value::Text(column)] = row.as_slice() else { continue };
        let name = quoted(table).replace('\'', "''");
        let sequence = format!("SELECT pg_get_serial_sequence('{name}', '{}')", column.replace('\'', "''"));
        found.extend(words(db, &sequence)?.into_iter().map(|sequence| (table.clone(), sequence)));
    }
    Ok(found)
}
