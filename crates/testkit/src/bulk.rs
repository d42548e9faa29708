//! Inserts many rows with one statement, for tests of large tables that `store` would take minutes to fill.

use model::ProjectId;
use store::Conn;

use crate::fixtures::execute_sql;

/// Inserts issues with the title `filler` and iids from 1000; the first `closed` of them are closed.
pub fn filler_issues(db: &mut Conn, project: ProjectId, count: i64, closed: i64, confidential: bool) {
    let issues = format!(
        "INSERT INTO issues (project_id, iid, title, closed, confidential, created_at, updated_at) \
         WITH RECURSIVE n (n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM n WHERE n < {count} + 999) \
         SELECT {project}, n, 'filler', n < {closed} + 1000, {confidential}, n, n FROM n"
    );
    execute_sql(db, &issues);
    let texts = "INSERT INTO issue_texts (issue_id, search_text) \
                 SELECT i.id, 'filler' || '\u{1}\u{1}\u{1}' FROM issues i \
                 WHERE NOT EXISTS (SELECT 1 FROM issue_texts t WHERE t.issue_id = i.id)";
    execute_sql(db, texts);
}
