//! The tables to dump, as the catalog of the database describes them.

use super::{
    Value,
    statement::{ColumnKind, Statement, query_texts},
};
use crate::{Conn, OpenError};

/// The table of applied migrations; it is filled by running the migrations, not by loading a dump.
const MIGRATIONS: &str = "__diesel_schema_migrations";

/// The table of the nodes that run now, which are not part of an instance.
const NODES: &str = "nodes";

/// A table and its columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// The name of the table.
    pub name: String,
    /// The names of its columns, in the same order on both engines.
    pub columns: Vec<String>,
    pub(super) kinds: Vec<ColumnKind>,
    /// The indexes of the primary key columns, in the order of the key.
    pub(super) key: Vec<usize>,
}

/// Returns all tables to dump, by name; search indexes are not among them.
pub(super) fn all(db: &mut Conn) -> Result<Vec<Table>, OpenError> {
    let names = match db {
        Conn::Sqlite(_) => {
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%' \
             ORDER BY name"
        }
        Conn::Pg(_) => {
            "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace \
             AND c.relkind = 'r' ORDER BY c.relname::text COLLATE \"C\""
        }
    };
    let names = query_texts(db, names)?;
    names.into_iter().filter(|name| name != MIGRATIONS && name != NODES).map(|name| describe(db, name)).collect()
}

fn describe(db: &mut Conn, name: String) -> Result<Table, OpenError> {
    let unsupported = |what: &str| OpenError::new(format!("the table {name} has {what}, so it cannot be dumped"));
    // Name, type, and position in the primary key, starting at 1; 0 if it is not part of the key.
    let columns = match db {
        Conn::Sqlite(_) => {
            let mut query = Statement::new("SELECT name, type, pk FROM pragma_table_info(");
            let _ = query.bind(ColumnKind::Text, Value::Text(name.clone()));
            query.sql(") ORDER BY name");
            query
        }
        Conn::Pg(_) => {
            let mut query = Statement::new(
                "SELECT a.attname::text, format_type(a.atttypid, NULL), \
                 coalesce(array_position(i.indkey::int2[], a.attnum), -1)::bigint + 1 \
                 FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary \
                 WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = \
                 (SELECT c.oid FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ",
            );
            let _ = query.bind(ColumnKind::Text, Value::Text(name.clone()));
            query.sql(") ORDER BY a.attname::text COLLATE \"C\"");
            query
        }
    };
    let mut table = Table { name: name.clone(), columns: Vec::new(), kinds: Vec::new(), key: Vec::new() };
    let mut key = Vec::new();
    for (index, row) in columns.load(db)?.into_iter().enumerate() {
        let [Value::Text(column), Value::Text(kind), Value::Integer(position)] = row.as_slice() else {
            return Err(unsupported("columns that cannot be read"));
        };
        table.columns.push(column.clone());
        table.kinds.push(
            ColumnKind::from_type_name(kind).ok_or_else(|| unsupported(&format!("a column of the type {kind}")))?,
        );
        if *position > 0 {
            key.push((*position, index));
        }
    }
    if key.is_empty() {
        return Err(unsupported("no key"));
    }
    key.sort_unstable();
    table.key = key.into_iter().map(|(_, index)| index).collect();
    Ok(table)
}

impl Table {
    /// Returns the quoted name.
    pub(super) fn quoted(&self) -> String {
        quoted(&self.name)
    }

    pub(super) fn column_list(&self) -> String {
        list(self.columns.iter())
    }

    pub(super) fn key_list(&self) -> String {
        list(self.key.iter().map(|index| &self.columns[*index]))
    }
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}
