//! Dumps all rows of all tables as text, for tests that compare or search them.

use diesel::{QueryableByName, RunQueryDsl, sql_query, sql_types::Text};
use store::Conn;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    line: String,
}

pub(crate) fn dump(db: &mut Conn) -> String {
    let tables = match db {
        Conn::Sqlite(_) => "SELECT name AS line FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
        Conn::Pg(_) => "SELECT tablename::text AS line FROM pg_tables WHERE schemaname = 'public'",
    };
    let mut tables = lines(db, tables);
    tables.sort();
    let mut text = String::new();
    for table in tables {
        let columns = match db {
            Conn::Sqlite(_) => format!("SELECT name AS line FROM pragma_table_info('{table}')"),
            Conn::Pg(_) => {
                format!("SELECT column_name::text AS line FROM information_schema.columns WHERE table_name = '{table}'")
            }
        };
        let expressions: Vec<String> = lines(db, &columns).iter().map(|column| column_expression(db, column)).collect();
        for row in lines(db, &format!("SELECT {} AS line FROM {table} ORDER BY 1", expressions.join(" || ' ' || "))) {
            text += &format!("{table}: {row}\n");
        }
    }
    text
}

/// Returns the SQL expression of `column=value`, with bytes in hex.
fn column_expression(db: &Conn, column: &str) -> String {
    match db {
        Conn::Sqlite(_) => {
            let bytes = format!("lower(hex({column}))");
            format!("'{column}=' || coalesce(CASE typeof({column}) WHEN 'blob' THEN {bytes} ELSE {column} END, '')")
        }
        Conn::Pg(_) => format!("'{column}=' || coalesce(replace({column}::text, '\\x', ''), '')"),
    }
}

fn lines(db: &mut Conn, query: &str) -> Vec<String> {
    let rows: Vec<Row> = match db {
        Conn::Sqlite(conn) => sql_query(query).load(conn),
        Conn::Pg(conn) => sql_query(query).load(conn),
    }
    .unwrap_or_else(|error| panic!("{query}: {error}"));
    rows.into_iter().map(|row| row.line).collect()
}
