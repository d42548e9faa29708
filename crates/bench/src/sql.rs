//! SQL text for either engine.

use model::text::hex;

use crate::engine::EngineKind;

/// The first timestamp of generated rows, in the autumn of 2025, in microseconds since 1970.
pub(crate) const START: u64 = 1_760_000_000_000_000;
/// A minute in microseconds.
pub(crate) const MINUTE: u64 = 60_000_000;
const ROWS_PER_STATEMENT: usize = 500;

/// Returns a literal for a byte string.
pub(crate) fn bytes_literal(kind: EngineKind, bytes: &[u8]) -> String {
    let digits = hex(bytes);
    match kind {
        EngineKind::Sqlite => format!("x'{digits}'"),
        EngineKind::Postgres => format!("'\\x{digits}'"),
    }
}

/// Appends statements that insert rows into a table.
pub(crate) fn insert(statements: &mut Vec<String>, table: &str, columns: &str, rows: &[String]) {
    for rows in rows.chunks(ROWS_PER_STATEMENT) {
        statements.push(format!("INSERT INTO {table} ({columns}) VALUES {}", rows.join(",")));
    }
}

pub(crate) fn bool_literal(flag: bool) -> &'static str {
    if flag { "TRUE" } else { "FALSE" }
}
