//! Reads a consistent snapshot of all tables.

use diesel::connection::SimpleConnection as _;
use model::{Oid, ProjectId, StorageId};

use super::{
    Row, Value,
    statement::{ColumnKind, Statement, query_texts},
    tables::{self, Table, quoted},
};
use crate::{
    Conn, Database, OpenError, checks::StoredFileKind, conn::on, database::known_versions,
    postgres::WHOLE_TABLE_SETTINGS,
};

/// A read transaction in which all reads see the database at the same instant.
pub struct Snapshot {
    db: Conn,
    begun: bool,
}

/// A stored file that has a row in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedFile {
    /// The id of its row.
    pub id: i64,
    /// The storage id of its project, or of the file if it is in a folder of its own.
    pub storage: StorageId,
    /// The number of bytes that belong to the snapshot.
    pub size: u64,
    /// When it was created, in microseconds; `None` for traces, which may still grow.
    pub created_at: Option<i64>,
}

/// A pack of one or more repositories, with files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedPack {
    /// The key of its files in the store, without extension.
    pub key: String,
    /// The trailer of the pack.
    pub checksum: Oid,
    /// The size of the pack in bytes, without its indexes.
    pub size: u64,
}

impl Snapshot {
    /// Connects to the database; the snapshot starts with [`Self::begin`].
    pub fn prepare(database: &Database) -> Result<Self, OpenError> {
        let mut db = database.connect_reader()?;
        if let Conn::Pg(conn) = &mut db {
            // A backup may be slow; no client waits for it.
            conn.batch_execute(WHOLE_TABLE_SETTINGS).map_err(|error| OpenError::new(error.to_string()))?;
        }
        Ok(Self { db, begun: false })
    }

    /// Begins the transaction: everything is read as it is now.
    pub fn begin(&mut self) -> Result<(), OpenError> {
        let begin = match &self.db {
            Conn::Sqlite(_) => "BEGIN",
            Conn::Pg(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        on!(&mut self.db, conn => conn.batch_execute(begin)).map_err(|error| OpenError::new(error.to_string()))?;
        self.begun = true;
        // On both engines, the first query takes the snapshot.
        self.migrations().map(drop)
    }

    /// Returns the integrity errors of an SQLite database. PostgreSQL reports them while rows are read.
    pub fn integrity_errors(&mut self) -> Result<Vec<String>, OpenError> {
        match &self.db {
            Conn::Sqlite(_) => {
                crate::checks::integrity(&mut self.db).map_err(|error| OpenError::new(error.to_string()))
            }
            Conn::Pg(_) => Ok(Vec::new()),
        }
    }

    /// Returns the connection, for other queries on the same snapshot.
    pub fn connection(&mut self) -> &mut Conn {
        &mut self.db
    }

    /// Returns the versions of the applied migrations; refuses one that this binary does not know.
    pub fn migrations(&mut self) -> Result<Vec<String>, OpenError> {
        if !self.has_table("__diesel_schema_migrations")? {
            return Err(OpenError::new("the database has no tables yet; start the server once"));
        }
        let mut versions = query_texts(&mut self.db, "SELECT version FROM __diesel_schema_migrations")?;
        versions.sort_unstable();
        let known = known_versions();
        match versions.iter().find(|version| !known.contains(*version)) {
            None => Ok(versions),
            Some(version) => Err(OpenError::Newer(version.clone())),
        }
    }

    fn has_table(&mut self, table: &str) -> Result<bool, OpenError> {
        let mut query = Statement::new(match &self.db {
            Conn::Sqlite(_) => "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ",
            Conn::Pg(_) => {
                "SELECT 1 FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace \
                 AND relname = "
            }
        });
        let _ = query.bind(ColumnKind::Text, Value::Text(table.to_owned()));
        Ok(!query.load(&mut self.db)?.is_empty())
    }

    /// Returns all tables to dump, by name.
    pub fn tables(&mut self) -> Result<Vec<Table>, OpenError> {
        tables::all(&mut self.db)
    }

    /// Returns up to `limit` rows of a table in the order of its key, starting after a given row.
    pub fn rows(&mut self, table: &Table, after: Option<&Row>, limit: usize) -> Result<Vec<Row>, OpenError> {
        let mut query = Statement::new(format!("SELECT {} FROM {}", table.column_list(), table.quoted()));
        if let Some(after) = after {
            query.sql(format!(" WHERE ({}) > (", table.key_list()));
            for (position, index) in table.key.iter().enumerate() {
                query.sql(if position == 0 { "" } else { ", " });
                let value = after.get(*index).cloned().unwrap_or(Value::Null);
                if !query.bind(table.kinds[*index], value) {
                    return Err(OpenError::new(format!("a row of {} has an unreadable key", table.name)));
                }
            }
            query.sql(")");
        }
        query.sql(format!(" ORDER BY {} LIMIT {limit}", table.key_list()));
        query.load(&mut self.db)
    }

    /// Returns the highest id that each table has ever assigned, also if that row is deleted.
    pub fn sequences(&mut self) -> Result<Vec<(String, i64)>, OpenError> {
        let rows = match &self.db {
            Conn::Sqlite(_) => {
                Statement::new("SELECT name, seq FROM sqlite_sequence ORDER BY name").load(&mut self.db)?
            }
            Conn::Pg(_) => {
                let mut rows = Vec::new();
                for (table, sequence) in identities(&mut self.db)? {
                    let query = format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}");
                    let last = super::statement::query_integer(&mut self.db, &query)?;
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

    /// Returns whether the database has all tables of repositories. Earlier versions stored refs, and then small packs, in
    /// files.
    pub fn has_repositories(&mut self) -> Result<bool, OpenError> {
        self.has_table("pack_contents")
    }

    /// Returns up to `limit` packs of repositories, live and dead, that have files and a key above `after`, in byte order of
    /// the keys.
    pub fn packs(&mut self, after: &str, limit: usize) -> Result<Vec<DumpedPack>, OpenError> {
        let key = match &self.db {
            Conn::Sqlite(_) => "p.file_key",
            Conn::Pg(_) => "p.file_key COLLATE \"C\"",
        };
        let mut query = Statement::new(format!(
            "SELECT p.file_key, p.checksum, p.bytes FROM packs p \
             WHERE EXISTS (SELECT 1 FROM repository_packs r WHERE r.pack_id = p.id) \
             AND NOT EXISTS (SELECT 1 FROM pack_contents c WHERE c.pack_id = p.id) AND {key} > "
        ));
        let _ = query.bind(ColumnKind::Text, Value::Text(after.to_owned()));
        query.sql(format!(" ORDER BY {key} LIMIT {limit}"));
        let pack = |row: Row| match row.as_slice() {
            [Value::Text(key), Value::Text(checksum), Value::Integer(size)] => {
                let (checksum, size) = (checksum.parse().ok(), u64::try_from(*size).ok());
                let invalid = || OpenError::new(format!("the row of the pack {key} is invalid"));
                let (checksum, size) = checksum.zip(size).ok_or_else(invalid)?;
                Ok(DumpedPack { key: key.clone(), checksum, size })
            }
            _ => Err(OpenError::new("the row of a pack is invalid")),
        };
        query.load(&mut self.db)?.into_iter().map(pack).collect()
    }

    /// Returns the projects that have a default branch but no repository, without those that are being removed.
    pub fn projects_without_repository(&mut self) -> Result<Vec<ProjectId>, OpenError> {
        let query = Statement::new(
            "SELECT p.id FROM projects p WHERE p.default_branch IS NOT NULL AND p.namespace_id IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM repositories r WHERE r.project_id = p.id) ORDER BY p.id",
        );
        let id = |row: Row| match row.first() {
            Some(Value::Integer(id)) => Some(ProjectId::new(*id)),
            _ => None,
        };
        Ok(query.load(&mut self.db)?.into_iter().filter_map(id).collect())
    }

    /// Returns the SQL expression for the storage id of a project. In a database from before there were storage ids, it is
    /// the project id.
    fn storage_of(&mut self, project: &str) -> Result<String, OpenError> {
        Ok(if self.has_table("project_storage")? {
            format!("(SELECT s.storage_id FROM project_storage s WHERE s.project_id = {project})")
        } else {
            format!("CAST({project} AS TEXT)")
        })
    }

    /// Returns up to `limit` complete files of a kind with an id above `after`.
    pub fn files(&mut self, kind: StoredFileKind, after: i64, limit: usize) -> Result<Vec<DumpedFile>, OpenError> {
        let storage = match kind {
            StoredFileKind::Avatars | StoredFileKind::TraceObjects => "f.storage_id".to_owned(),
            _ => self.storage_of("f.project_id")?,
        };
        let (table, id, columns, from) = match kind {
            StoredFileKind::Uploads => {
                ("uploads", "f.id", "f.size, f.created_at", "uploads f WHERE f.size IS NOT NULL")
            }
            StoredFileKind::Artifacts => {
                ("build_artifacts", "f.id", "f.size, f.created_at", "build_artifacts f WHERE f.size IS NOT NULL")
            }
            StoredFileKind::Avatars => {
                ("avatars", "f.id", "f.size, f.created_at", "avatars f WHERE f.size IS NOT NULL")
            }
            StoredFileKind::Traces => (
                "build_runs",
                "r.build_id",
                "r.trace_size, NULL",
                "build_runs r JOIN builds f ON f.id = r.build_id WHERE r.trace_size > 0",
            ),
            StoredFileKind::TraceObjects => {
                ("trace_objects", "f.id", "f.size, f.created_at", "trace_objects f WHERE f.job_id IS NOT NULL")
            }
        };
        // An older database has fewer tables.
        if !self.has_table(table)? {
            return Ok(Vec::new());
        }
        let mut query = Statement::new(format!("SELECT {id}, {storage}, {columns} FROM {from} AND {id} > "));
        let _ = query.bind(ColumnKind::Integer, Value::Integer(after));
        query.sql(format!(" ORDER BY {id} LIMIT {limit}"));
        let file = |row: Row| match row.as_slice() {
            [Value::Integer(id), Value::Text(storage), Value::Integer(size), created_at] => Some(DumpedFile {
                id: *id,
                storage: StorageId::parse(storage)?,
                size: u64::try_from(*size).unwrap_or_default(),
                created_at: if let Value::Integer(micros) = created_at { Some(*micros) } else { None },
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

/// Returns the tables with an identity column and their sequences; PostgreSQL only.
pub(super) fn identities(db: &mut Conn) -> Result<Vec<(String, String)>, OpenError> {
    let query = "SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                 WHERE a.attidentity <> '' AND c.relnamespace = current_schema()::regnamespace \
                 ORDER BY c.relname::text COLLATE \"C\"";
    let mut found = Vec::new();
    for row in Statement::new(query).load(db)? {
        let [Value::Text(table), Value::Text(column)] = row.as_slice() else { continue };
        let name = quoted(table).replace('\'', "''");
        let sequence = format!("SELECT pg_get_serial_sequence('{name}', '{}')", column.replace('\'', "''"));
        found.extend(query_texts(db, &sequence)?.into_iter().map(|sequence| (table.clone(), sequence)));
    }
    Ok(found)
}
