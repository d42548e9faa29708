//! Loads a dump into an empty database, all or nothing.

use std::collections::BTreeMap;

use diesel::connection::SimpleConnection as _;

use super::{
    Row, Value,
    snapshot::identities,
    statement::{ColumnKind, Statement, query_integer, query_texts},
    tables::{self, Table, quoted},
};
use crate::{
    Conn, Database, OpenError,
    conn::on,
    database::{MIGRATION_LOCK, run_migrations},
    postgres::WHOLE_TABLE_SETTINGS,
};

/// The maximum number of values in one statement; both engines allow more.
const MAX_VALUES: usize = 10_000;

/// Loads rows in one transaction, which [`Self::finish`] commits.
///
/// Counters and other derived columns are part of the dump, so the triggers that maintain them are disabled meanwhile.
/// Referenced rows may be loaded later, so references are checked at the end.
pub struct Loader {
    database: Database,
    db: Conn,
    tables: BTreeMap<String, Table>,
    /// Statements that recreate the dropped triggers and constraints.
    restore_statements: Vec<String>,
}

impl Loader {
    /// Creates the tables of these migrations; refuses a database that is not empty.
    pub fn begin(database: &Database, migrations: &[String]) -> Result<Self, OpenError> {
        let mut db = database.connect_writer()?;
        let prepare = match &db {
            // Synced once, at the end; nothing else uses the file before.
            Conn::Sqlite(_) => "PRAGMA foreign_keys=OFF; PRAGMA synchronous=OFF; PRAGMA busy_timeout=30000",
            Conn::Pg(_) => WHOLE_TABLE_SETTINGS,
        };
        execute(&mut db, prepare)?;
        db.begin_writing().map_err(|error| OpenError::new(error.to_string()))?;
        let mut loader =
            Self { database: database.clone(), db, tables: BTreeMap::new(), restore_statements: Vec::new() };
        loader.refuse_unless_empty()?;
        run_migrations(&mut loader.db, Some(migrations))?;
        loader.tables = tables::all(&mut loader.db)?.into_iter().map(|table| (table.name.clone(), table)).collect();
        loader.disable_triggers_and_constraints()?;
        for table in loader.tables.values() {
            execute(&mut loader.db, &format!("DELETE FROM {}", table.quoted()))?;
        }
        Ok(loader)
    }

    /// Inserts rows into a table; `columns` gives the order of their values.
    pub fn load(&mut self, table: &str, columns: &[String], rows: Vec<Row>) -> Result<(), OpenError> {
        let table = self.tables.get(table).ok_or_else(|| load_error(table, "there is no such table"))?;
        let indexes: Option<Vec<usize>> =
            columns.iter().map(|name| table.columns.iter().position(|column| column == name)).collect();
        let indexes = indexes
            .filter(|indexes| indexes.len() == table.columns.len())
            .ok_or_else(|| load_error(&table.name, "its columns differ"))?;
        let kinds: Vec<ColumnKind> = indexes.iter().map(|index| table.kinds[*index]).collect();
        let names: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        let insert = format!("INSERT INTO {} ({}) VALUES ", table.quoted(), names.join(", "));
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let mut statement = Statement::new(insert.as_str());
            for (position, row) in rows.by_ref().take((MAX_VALUES / kinds.len().max(1)).max(1)).enumerate() {
                if row.len() != kinds.len() {
                    return Err(load_error(&table.name, "a row has too many values or too few"));
                }
                statement.sql(if position == 0 { "(" } else { ", (" });
                for (index, (kind, value)) in kinds.iter().zip(row).enumerate() {
                    statement.sql(if index == 0 { "" } else { ", " });
                    if !statement.bind(*kind, value) {
                        let column = &columns[index];
                        return Err(load_error(&table.name, &format!("a value does not fit its column {column}")));
                    }
                }
                statement.sql(")");
            }
            statement.run(&mut self.db).map_err(|error| load_error(&table.name, &error.to_string()))?;
        }
        Ok(())
    }

    /// Returns the number of rows that each table has so far.
    pub fn counts(&mut self) -> Result<BTreeMap<String, u64>, OpenError> {
        let mut counts = BTreeMap::new();
        for (name, table) in &self.tables {
            let count = query_integer(&mut self.db, &format!("SELECT count(*) FROM {}", table.quoted()))?;
            counts.insert(name.clone(), u64::try_from(count).unwrap_or_default());
        }
        Ok(counts)
    }

    /// Forgets packs whose files are missing because they were removed while the rows were dumped: packs that others
    /// replaced, and the repositories of projects that were removed. Such a project has an empty repository afterwards.
    pub fn forget_packs(&mut self, keys: &[String]) -> Result<(), OpenError> {
        let affected = "(SELECT r.repository_id FROM repository_packs r JOIN packs p ON p.id = r.pack_id \
                        WHERE r.dead_since IS NULL AND p.file_key = ";
        // Cascades are disabled while rows are loaded.
        let statements = [
            (format!("DELETE FROM refs WHERE repository_id IN {affected}"), ")"),
            (
                format!(
                    "UPDATE projects SET default_branch = NULL WHERE id IN \
                     (SELECT o.project_id FROM repositories o WHERE o.id IN {affected}"
                ),
                "))",
            ),
            (format!("DELETE FROM repositories WHERE id IN {affected}"), ")"),
            (
                "DELETE FROM repository_packs WHERE repository_id NOT IN (SELECT id FROM repositories) \
                 OR pack_id IN (SELECT id FROM packs WHERE file_key = "
                    .to_owned(),
                ")",
            ),
        ];
        for key in keys {
            for (start, end) in &statements {
                let mut statement = Statement::new(start.as_str());
                let _ = statement.bind(ColumnKind::Text, Value::Text(key.clone()));
                statement.sql(*end);
                statement.run(&mut self.db)?;
            }
        }
        Ok(())
    }

    /// Restores the sequences of ids, checks all references, runs the remaining migrations and commits.
    pub fn finish(mut self, sequences: &[(String, i64)]) -> Result<(), OpenError> {
        self.set_sequences(sequences)?;
        for statement in std::mem::take(&mut self.restore_statements) {
            execute(&mut self.db, &statement)?;
        }
        if let Conn::Sqlite(_) = self.db {
            let broken = query_texts(&mut self.db, "SELECT \"table\" FROM pragma_foreign_key_check LIMIT 1")?;
            if let Some(table) = broken.first() {
                return Err(load_error(table, "a row refers to a missing row"));
            }
        } else {
            run_migrations(&mut self.db, None)?;
        }
        self.db.commit().map_err(|error| OpenError::new(error.to_string()))?;
        if let Conn::Sqlite(_) = self.db {
            execute(&mut self.db, "PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(TRUNCATE)")?;
            drop(self.db);
            self.database.migrate()?;
        }
        Ok(())
    }

    /// Refuses a database that is already in use.
    fn refuse_unless_empty(&mut self) -> Result<(), OpenError> {
        if let Conn::Pg(_) = self.db {
            // A server that starts meanwhile waits until the load is complete.
            execute(&mut self.db, &format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))?;
        }
        let tables = match &self.db {
            Conn::Sqlite(_) => "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
            Conn::Pg(_) => {
                "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
                 AND relkind IN ('r', 'p')"
            }
        };
        let tables = query_texts(&mut self.db, tables)?;
        // Reading the schema version may have created this table.
        let is_empty = match tables.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => true,
            ["__diesel_schema_migrations"] => {
                query_integer(&mut self.db, "SELECT count(*) FROM __diesel_schema_migrations")? == 0
            }
            _ => false,
        };
        if is_empty {
            return Ok(());
        }
        Err(OpenError::new(match &self.db {
            Conn::Sqlite(_) => "the database is not empty; create a new one and use that",
            Conn::Pg(_) => {
                "the database is not empty; create a new one and use that, or, if nothing in it is needed, remove its tables \
                 with `DROP SCHEMA public CASCADE; CREATE SCHEMA public;`"
            }
        }))
    }

    /// Drops or disables the triggers and constraints that would process each inserted row.
    fn disable_triggers_and_constraints(&mut self) -> Result<(), OpenError> {
        match &self.db {
            Conn::Sqlite(_) => {
                // Triggers that fill search indexes stay: the indexes are not dumped but rebuilt from the loaded rows.
                let triggers = Statement::new(
                    "SELECT t.name, t.sql FROM sqlite_schema t WHERE t.type = 'trigger' AND NOT EXISTS \
                     (SELECT 1 FROM pragma_table_list v WHERE v.schema = 'main' AND v.type = 'virtual' \
                     AND t.sql LIKE '% AFTER INSERT ON %' AND instr(t.sql, 'INSERT INTO ' || v.name || ' ') > 0)",
                );
                for row in triggers.load(&mut self.db)? {
                    let [Value::Text(name), Value::Text(sql)] = row.as_slice() else { continue };
                    execute(&mut self.db, &format!("DROP TRIGGER {}", quoted(name)))?;
                    self.restore_statements.push(sql.clone());
                }
            }
            Conn::Pg(_) => {
                let references = Statement::new(
                    "SELECT k.conrelid::regclass::text, quote_ident(k.conname), pg_get_constraintdef(k.oid) \
                     FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
                     WHERE k.contype = 'f' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1, 2",
                );
                for row in references.load(&mut self.db)? {
                    let [Value::Text(table), Value::Text(name), Value::Text(definition)] = row.as_slice() else {
                        continue;
                    };
                    execute(&mut self.db, &format!("ALTER TABLE {table} DROP CONSTRAINT {name}"))?;
                    self.restore_statements.push(format!("ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"));
                }
                for table in self.tables.values() {
                    execute(&mut self.db, &format!("ALTER TABLE {} DISABLE TRIGGER USER", table.quoted()))?;
                    self.restore_statements.push(format!("ALTER TABLE {} ENABLE TRIGGER USER", table.quoted()));
                }
            }
        }
        Ok(())
    }

    fn set_sequences(&mut self, sequences: &[(String, i64)]) -> Result<(), OpenError> {
        match &self.db {
            Conn::Sqlite(_) => {
                for (table, last) in sequences {
                    let name = || Value::Text(table.clone());
                    let mut delete = Statement::new("DELETE FROM sqlite_sequence WHERE seq <= ");
                    let _ = delete.bind(ColumnKind::Integer, Value::Integer(*last));
                    delete.sql(" AND name = ");
                    let _ = delete.bind(ColumnKind::Text, name());
                    delete.run(&mut self.db)?;
                    let mut insert = Statement::new("INSERT INTO sqlite_sequence (name, seq) SELECT ");
                    let _ = insert.bind(ColumnKind::Text, name());
                    insert.sql(", ");
                    let _ = insert.bind(ColumnKind::Integer, Value::Integer(*last));
                    insert.sql(" WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ");
                    let _ = insert.bind(ColumnKind::Text, name());
                    insert.sql(")");
                    insert.run(&mut self.db)?;
                }
            }
            Conn::Pg(_) => {
                let dumped: BTreeMap<&str, i64> =
                    sequences.iter().map(|(table, last)| (table.as_str(), *last)).collect();
                for (table, sequence) in identities(&mut self.db)? {
                    let last = dumped.get(table.as_str()).copied().unwrap_or(0);
                    let highest = format!("SELECT coalesce(max(id), 0) FROM {}", quoted(&table));
                    let last = last.max(query_integer(&mut self.db, &highest)?);
                    if last > 0 {
                        execute(&mut self.db, &format!("SELECT setval('{}', {last})", sequence.replace('\'', "''")))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn execute(db: &mut Conn, sql: &str) -> Result<(), OpenError> {
    on!(db, conn => conn.batch_execute(sql)).map_err(|error| OpenError::new(error.to_string()))
}

fn load_error(table: &str, reason: &str) -> OpenError {
    OpenError::new(format!("cannot load the rows of {table}: {reason}"))
}
