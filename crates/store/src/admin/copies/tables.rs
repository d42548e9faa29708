//! Which tables there are, as the database itself knows them.

use super::statement::{Kind, Statement, words};
use crate::{Conn, OpenError, copies::Value};

/// The table in which it is noted which migrations have run; it is written by whoever makes the other tables.
const MIGRATIONS: &str = "__diesel_schema_migrations";

/// A table and its columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The names of its columns; both engines have them in the same order.
    pub columns: Vec<String>,
    pub(super) kinds: Vec<Kind>,
    /// Which columns tell a row from all others, in the order of the index.
    pub(super) key: Vec<usize>,
}

/// All tables with rows of ours, by name. What only helps to search is not among them.
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
    let names = words(db, names)?;
    names.into_iter().filter(|name| name != MIGRATIONS).map(|name| describe(db, name)).collect()
}

fn describe(db: &mut Conn, name: String) -> Result<Table, OpenError> {
    let strange = |what: &str| OpenError::new(format!("the table {name} has {what}, so it cannot be copied"));
    // Name, kind, and the place in the key, beginning with 1; 0 is none.
    let columns = match db {
        Conn::Sqlite(_) => {
            let mut query = Statement::new("SELECT name, type, pk FROM pragma_table_info(");
            let _ = query.bind(Kind::Text, Value::Text(name.clone()));
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
            let _ = query.bind(Kind::Text, Value::Text(name.clone()));
            query.sql(") ORDER BY a.attname::text COLLATE \"C\"");
            query
        }
    };
    let mut table = Table { name: name.clone(), columns: Vec::new(), kinds: Vec::new(), key: Vec::new() };
    let mut key = Vec::new();
    for (index, row) in columns.load(db)?.into_iter().enumerate() {
        let [Value::Text(column), Value::Text(kind), Value::Integer(place)] = row.as_slice() else {
            return Err(strange("columns that cannot be read"));
        };
        table.columns.push(column.clone());
        table.kinds.push(Kind::named(kind).ok_or_else(|| strange(&format!("a column of the type {kind}")))?);
        if *place > 0 {
            key.push((*place, index));
        }
    }
    if key.is_empty() {
        return Err(strange("no key"));
    }
    key.sort_unstable();
    table.key = key.into_iter().map(|(_, index)| index).collect();
    Ok(table)
}

impl Table {
    /// Its name, as it stands in a statement.
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
