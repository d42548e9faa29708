//! Filling an empty database, all or nothing.

use std::collections::BTreeMap;

use diesel::connection::SimpleConnection as _;

use super::{
    Row, Value,
    reading::identities,
    statement::{Kind, Statement, number, words},
    tables::{self, Table, quoted},
};
use crate::{
    Conn, Database, OpenError,
    conn::on,
    database::{MIGRATION_LOCK, make_tables},
};

/// So many values go into one statement at most; both engines take more.
const VALUES: usize = 10_000;

/// A database that is being filled. Nothing of it counts before [`Self::finish`].
///
/// Counters, copies and the like come as they are, so whatever would make them anew is switched off meanwhile. What a
/// row refers to may come later, so that is looked at when all are there.
pub struct Loading {
    database: Database,
    db: Conn,
    tables: BTreeMap<String, Table>,
    /// What has to be said once all rows are there, so that everything is as before.
    put_back: Vec<String>,
}

impl Loading {
    /// Makes the tables as they were after these migrations. A database that holds something is refused.
    pub fn begin(database: &Database, migrations: &[String]) -> Result<Self, OpenError> {
        let mut db = database.connect_writer()?;
        let prepare = match &db {
            // Synced once, at the end; until then nobody else knows the file.
            Conn::Sqlite(_) => "PRAGMA foreign_keys=OFF; PRAGMA synchronous=OFF; PRAGMA busy_timeout=30000",
            Conn::Pg(_) => "SET statement_timeout = 0",
        };
        say(&mut db, prepare)?;
        db.begin_writing().map_err(|error| OpenError::new(error.to_string()))?;
        let mut loading = Self { database: database.clone(), db, tables: BTreeMap::new(), put_back: Vec::new() };
        loading.refuse_unless_empty()?;
        make_tables(&mut loading.db, Some(migrations))?;
        loading.tables = tables::all(&mut loading.db)?.into_iter().map(|table| (table.name.clone(), table)).collect();
        loading.stand_back()?;
        for table in loading.tables.values() {
            say(&mut loading.db, &format!("DELETE FROM {}", table.quoted()))?;
        }
        Ok(loading)
    }

    /// Adds rows to a table, whose values come in this order of columns.
    pub fn load(&mut self, table: &str, columns: &[String], rows: Vec<Row>) -> Result<(), OpenError> {
        let table = self.tables.get(table).ok_or_else(|| unfitting(table, "there is no such table"))?;
        let places: Option<Vec<usize>> =
            columns.iter().map(|name| table.columns.iter().position(|column| column == name)).collect();
        let places = places
            .filter(|places| places.len() == table.columns.len())
            .ok_or_else(|| unfitting(&table.name, "its columns are others"))?;
        let kinds: Vec<Kind> = places.iter().map(|place| table.kinds[*place]).collect();
        let names: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        let insert = format!("INSERT INTO {} ({}) VALUES ", table.quoted(), names.join(", "));
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let mut statement = Statement::new(insert.as_str());
            for (nth, row) in rows.by_ref().take((VALUES / kinds.len().max(1)).max(1)).enumerate() {
                if row.len() != kinds.len() {
                    return Err(unfitting(&table.name, "a row has too many values or too few"));
                }
                statement.sql(if nth == 0 { "(" } else { ", (" });
                for (place, (kind, value)) in kinds.iter().zip(row).enumerate() {
                    statement.sql(if place == 0 { "" } else { ", " });
                    if !statement.bind(*kind, value) {
                        let column = &columns[place];
                        return Err(unfitting(&table.name, &format!("a value does not fit its column {column}")));
                    }
                }
                statement.sql(")");
            }
            statement.run(&mut self.db).map_err(|error| unfitting(&table.name, &error.to_string()))?;
        }
        Ok(())
    }

    /// How many rows each table holds by now.
    pub fn counts(&mut self) -> Result<BTreeMap<String, u64>, OpenError> {
        let mut counts = BTreeMap::new();
        for (name, table) in &self.tables {
            let count = number(&mut self.db, &format!("SELECT count(*) FROM {}", table.quoted()))?;
            counts.insert(name.clone(), u64::try_from(count).unwrap_or_default());
        }
        Ok(counts)
    }

    /// Lets numbers go on after the highest that was ever given, checks all references, brings the tables up to date and
    /// makes it last.
    pub fn finish(mut self, sequences: &[(String, i64)]) -> Result<(), OpenError> {
        self.set_sequences(sequences)?;
        for statement in std::mem::take(&mut self.put_back) {
            say(&mut self.db, &statement)?;
        }
        if let Conn::Sqlite(_) = self.db {
            let broken = words(&mut self.db, "SELECT \"table\" FROM pragma_foreign_key_check LIMIT 1")?;
            if let Some(table) = broken.first() {
                return Err(unfitting(table, "a row refers to one that is not there"));
            }
        } else {
            make_tables(&mut self.db, None)?;
        }
        self.db.commit().map_err(|error| OpenError::new(error.to_string()))?;
        if let Conn::Sqlite(_) = self.db {
            say(&mut self.db, "PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(TRUNCATE)")?;
            drop(self.db);
            self.database.migrate()?;
        }
        Ok(())
    }

    /// So that nobody fills a database that somebody has begun to use.
    fn refuse_unless_empty(&mut self) -> Result<(), OpenError> {
        if let Conn::Pg(_) = self.db {
            // A server that starts at this moment waits until all is there.
            say(&mut self.db, &format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))?;
        }
        let tables = match &self.db {
            Conn::Sqlite(_) => "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
            Conn::Pg(_) => {
                "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
                 AND relkind IN ('r', 'p')"
            }
        };
        let tables = words(&mut self.db, tables)?;
        // Whoever only asked for the version may have left this one behind.
        let is_empty = match tables.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => true,
            ["__diesel_schema_migrations"] => {
                number(&mut self.db, "SELECT count(*) FROM __diesel_schema_migrations")? == 0
            }
            _ => false,
        };
        if is_empty {
            return Ok(());
        }
        Err(OpenError::new("the database is not empty; make a new one and name that"))
    }

    /// Switches off what would count or check each row as it comes.
    fn stand_back(&mut self) -> Result<(), OpenError> {
        match &self.db {
            Conn::Sqlite(_) => {
                // What fills the tables to search in stays: they are nobody's rows and are made anew from those that come.
                let triggers = Statement::new(
                    "SELECT t.name, t.sql FROM sqlite_schema t WHERE t.type = 'trigger' AND NOT EXISTS \
                     (SELECT 1 FROM pragma_table_list v WHERE v.schema = 'main' AND v.type = 'virtual' \
                     AND t.sql LIKE '% AFTER INSERT ON %' AND instr(t.sql, 'INSERT INTO ' || v.name || ' ') > 0)",
                );
                for row in triggers.load(&mut self.db)? {
                    let [Value::Text(name), Value::Text(sql)] = row.as_slice() else { continue };
                    say(&mut self.db, &format!("DROP TRIGGER {}", quoted(name)))?;
                    self.put_back.push(sql.clone());
                }
            }
            Conn::Pg(_) => {
                let references = Statement::new(
                    "SELECT k.conrelid::regclass::text, quote_ident(k.conname), pg_get_constraintdef(k.oid) \
                     FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
                     WHERE k.contype = 'f' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1, 2",
                );
                for row in references.load(&mut self.db)? {
                    let [Value::Text(table), Value::Text(name), Value::Text(meaning)] = row.as_slice() else {
                        continue;
                    };
                    say(&mut self.db, &format!("ALTER TABLE {table} DROP CONSTRAINT {name}"))?;
                    self.put_back.push(format!("ALTER TABLE {table} ADD CONSTRAINT {name} {meaning}"));
                }
                for table in self.tables.values() {
                    say(&mut self.db, &format!("ALTER TABLE {} DISABLE TRIGGER USER", table.quoted()))?;
                    self.put_back.push(format!("ALTER TABLE {} ENABLE TRIGGER USER", table.quoted()));
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
                    let mut forget = Statement::new("DELETE FROM sqlite_sequence WHERE seq <= ");
                    let _ = forget.bind(Kind::Integer, Value::Integer(*last));
                    forget.sql(" AND name = ");
                    let _ = forget.bind(Kind::Text, name());
                    forget.run(&mut self.db)?;
                    let mut note = Statement::new("INSERT INTO sqlite_sequence (name, seq) SELECT ");
                    let _ = note.bind(Kind::Text, name());
                    note.sql(", ");
                    let _ = note.bind(Kind::Integer, Value::Integer(*last));
                    note.sql(" WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ");
                    let _ = note.bind(Kind::Text, name());
                    note.sql(")");
                    note.run(&mut self.db)?;
                }
            }
            Conn::Pg(_) => {
                let given: BTreeMap<&str, i64> =
                    sequences.iter().map(|(table, last)| (table.as_str(), *last)).collect();
                for (table, sequence) in identities(&mut self.db)? {
                    let last = given.get(table.as_str()).copied().unwrap_or(0);
                    let highest = format!("SELECT coalesce(max(id), 0) FROM {}", quoted(&table));
                    let last = last.max(number(&mut self.db, &highest)?);
                    if last > 0 {
                        say(&mut self.db, &format!("SELECT setval('{}', {last})", sequence.replace('\'', "''")))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn say(db: &mut Conn, sql: &str) -> Result<(), OpenError> {
    on!(db, conn => conn.batch_execute(sql)).map_err(|error| OpenError::new(error.to_string()))
}

fn unfitting(table: &str, why: &str) -> OpenError {
    OpenError::new(format!("the rows of {table} cannot be taken over: {why}"))
}
