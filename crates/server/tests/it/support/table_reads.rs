//! The rows that statements read on PostgreSQL, which counts them.

use diesel::{
    QueryableByName, RunQueryDsl as _, sql_query,
    sql_types::{Array, BigInt, Text},
};
use store::Conn;
use testkit::fixtures::execute_sql;

/// What a transaction has read of a table.
#[derive(Debug, QueryableByName)]
pub(crate) struct TableReads {
    #[diesel(sql_type = Text)]
    pub(crate) table_name: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) sequential_scans: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) rows: i64,
}

/// Runs a closure in a transaction and returns what it has read of some tables. Rows that are read from an index alone are not
/// counted.
pub(crate) fn reads_of(db: &mut Conn, tables: &[&str], f: impl FnOnce(&mut Conn)) -> Vec<TableReads> {
    execute_sql(db, "BEGIN");
    // The statistics may have rows of earlier transactions that were not reported yet.
    let before = statistics(db, tables);
    f(db);
    let mut reads = statistics(db, tables);
    execute_sql(db, "COMMIT");
    for (after, before) in reads.iter_mut().zip(before) {
        after.sequential_scans -= before.sequential_scans;
        after.rows -= before.rows;
    }
    reads
}

fn statistics(db: &mut Conn, tables: &[&str]) -> Vec<TableReads> {
    let Conn::Pg(conn) = db else { panic!("only PostgreSQL counts rows") };
    let found: Vec<TableReads> = sql_query(
        "SELECT relname::text AS table_name, coalesce(seq_scan, 0) AS sequential_scans, \
         coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) AS rows FROM pg_stat_xact_user_tables \
         WHERE relname = ANY ($1) ORDER BY relname",
    )
    .bind::<Array<Text>, _>(tables)
    .load(conn)
    .expect("read");
    assert_eq!(found.len(), tables.len(), "{found:?}");
    found
}
