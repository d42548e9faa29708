//! The rows that lists of issues and notes read on PostgreSQL, which counts them: as many as a page shows, however many there are.

use model::{
    IssueId, Page, ProjectId, Visibility,
    issues::{IssueFilter, IssueOrder},
};
use serde_json::json;
use store::{
    Conn, IssueVisibility, Viewer,
    issue_lists::{self, IssueScope},
    notes,
};
use testkit::{TestForge, bulk::filler_issues, fixtures::execute_sql};

use crate::support::reads_of;

/// The number of issues of each of two projects, and of notes on one issue.
const MANY: i64 = 4_000;
/// The maximum number of rows of a table that a page of 20 reads: the page, and the labels of its issues.
const MAX_ROWS: i64 = 200;
/// The tables that grow with the number of issues.
const TABLES: [&str; 5] = ["issue_labels", "issue_texts", "issues", "labels", "notes"];

/// Runs a closure that returns the number of items on a page of 20, and checks what it has read.
fn check(db: &mut Conn, context: &str, list: impl FnOnce(&mut Conn) -> usize) {
    let mut items = 0;
    let reads = reads_of(db, &TABLES, |db| items = list(db));
    assert_eq!(items, 20, "{context}");
    for read in reads {
        assert!(read.sequential_scans == 0 && read.rows <= MAX_ROWS, "{context}: {read:?}");
    }
}

#[tokio::test]
async fn a_page_of_issues_reads_as_many_rows_as_it_shows() {
    let forge = TestForge::start().await;
    if forge.with_read_connection(|db| matches!(db, Conn::Sqlite(_))) {
        return;
    }
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    let other = ProjectId::new(ann.make("/projects", json!({ "name": "Other" })).await);
    let label = ann.post(&format!("/projects/{project}/labels"), json!({ "name": "bug", "color": "#ff0000" })).await;
    let label = label.json()["id"].as_i64().expect("created");
    for project in [project, other] {
        forge.with_connection(|db| filler_issues(db, project, MANY, MANY / 2, false));
    }
    forge.execute_sql(&format!("UPDATE issues SET author_id = {}", ann.id.get()));
    forge.execute_sql(&format!(
        "INSERT INTO issue_labels (issue_id, label_id) SELECT id, {label} FROM issues \
         WHERE project_id = {project} AND iid % 2 = 0"
    ));
    let issue = IssueId::new(ann.make(&format!("/projects/{project}/issues"), json!({ "title": "Noted" })).await);
    forge.execute_sql(&format!(
        "INSERT INTO notes (project_id, issue_id, author_id, body, created_at, updated_at) \
         SELECT {project}, {issue}, {}, 'note', n, n FROM generate_series(1, {MANY}) n",
        ann.id.get()
    ));
    forge.with_connection(|db| execute_sql(db, "VACUUM ANALYZE"));
    let now = forge.forge.now();
    let viewer = Viewer { user: ann.id, visible_from: Visibility::Internal, admin: false, now };
    let all = IssueVisibility { user: ann.id, confidential: true };
    let own = IssueVisibility { user: ann.id, confidential: false };
    forge.with_read_connection(|db| {
        for scope in
            [IssueScope::Project(project, all), IssueScope::Project(project, own), IssueScope::Authored(viewer)]
        {
            for (closed, labels) in
                [(None, false), (Some(true), false), (Some(false), false), (None, true), (Some(true), true)]
            {
                // Issues of several projects are filtered by label as a whole.
                if labels && matches!(scope, IssueScope::Authored(_)) {
                    continue;
                }
                let labels = if labels { vec!["bug".to_owned()] } else { Vec::new() };
                let filter = IssueFilter { closed, labels, ..IssueFilter::default() };
                for (by_update, ascending) in [(false, false), (false, true), (true, false), (true, true)] {
                    let order = IssueOrder { by_update, ascending };
                    // The first page, and the last full one of the shortest of these lists.
                    for number in [1, 50] {
                        let page = Page { number, size: 20 };
                        let context = format!("page {number} of {scope:?} with {filter:?}, {order:?}");
                        check(db, &context, |db| {
                            issue_lists::list(db, &scope, &filter, order, page).expect("listed").items.len()
                        });
                    }
                }
            }
        }
        let first = Page { number: 1, size: 20 };
        check(db, "notes", |db| notes::list(db, issue, first).expect("listed").items.len());
    });
}
