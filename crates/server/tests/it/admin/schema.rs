//! The tables and their indexes, and how statements use them.

use diesel::{
    QueryableByName, RunQueryDsl as _, sql_query,
    sql_types::{BigInt, Text},
};
use model::ProjectId;
use store::Conn;
use testkit::TestForge;

#[derive(Debug, QueryableByName)]
struct ForeignKey {
    #[diesel(sql_type = Text)]
    table_name: String,
    #[diesel(sql_type = Text)]
    column_name: String,
}

#[derive(Debug, QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

#[derive(Debug, QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Otherwise deleting a project, for example, would read all rows of a table.
#[tokio::test]
async fn every_foreign_key_has_an_index() {
    let forge = TestForge::start().await;
    let without_index: Vec<ForeignKey> = forge.with_connection(|db| match db {
        Conn::Sqlite(conn) => {
            let keys: Vec<ForeignKey> = sql_query(
                "SELECT t.name AS table_name, k.\"from\" AS column_name \
                 FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) k WHERE t.type = 'table'",
            )
            .load(conn)
            .expect("read");
            assert!(keys.len() > 50, "{keys:?}");
            let mut is_searched = |key: &ForeignKey| {
                let ForeignKey { table_name, column_name } = key;
                let steps: Vec<Step> =
                    sql_query(format!("EXPLAIN QUERY PLAN SELECT 1 FROM {table_name} WHERE {column_name} = ?1"))
                        .load(conn)
                        .expect("planned");
                steps.iter().all(|step| step.detail.starts_with("SEARCH "))
            };
            keys.into_iter().filter(|key| !is_searched(key)).collect()
        }
        Conn::Pg(conn) => sql_query(
            "SELECT c.conrelid::regclass::text AS table_name, a.attname::text AS column_name FROM pg_constraint c \
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1] \
             WHERE c.contype = 'f' AND NOT EXISTS (SELECT 1 FROM pg_index i \
             WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1] AND (i.indpred IS NULL \
             OR pg_get_expr(i.indpred, i.indrelid) = format('(%I IS NOT NULL)', a.attname)))",
        )
        .load(conn)
        .expect("read"),
    });
    assert!(without_index.is_empty(), "{without_index:?}");
}

/// Diesel prepares an update each time unless it is told that its text is constant.
#[tokio::test]
async fn frequent_updates_are_prepared_once_per_connection() {
    let forge = TestForge::start().await;
    let now = forge.forge.now();
    let prepared = forge.with_connection(|db| {
        for _ in 0..3 {
            store::events::update_last_activity(db, ProjectId::new(1), now).expect("updated");
        }
        let Conn::Pg(conn) = db else { return None };
        let counted: Count = sql_query(
            "SELECT count(*) AS count FROM pg_prepared_statements \
             WHERE statement LIKE 'UPDATE \"projects\" SET \"last_activity_at\"%'",
        )
        .get_result(conn)
        .expect("counted");
        Some(counted.count)
    });
    assert!(matches!(prepared, None | Some(1)), "{prepared:?}");
}
