//! Lists with more items than are counted: they have no total, and all of their pages can be requested.

use model::{ProjectId, UserId, events::EventAction};
use serde_json::json;
use testkit::{TestForge, TestResponse, bulk::filler_issues};

/// More than are counted; see `model::page::MAX_COUNTED`.
const MANY: i64 = 10_050;

fn insert_events(forge: &TestForge, project: i64, author: UserId, amount: i64) {
    forge.execute_sql(&format!(
        "INSERT INTO events (project_id, author_id, action, created_at) \
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {amount}) \
         SELECT {project}, {}, {}, n FROM numbers",
        author.get(),
        EventAction::Joined.code()
    ));
}

/// Returns the pagination headers, the relations of the links, and the number of items.
fn summary(page: &TestResponse) -> String {
    let header = |name: &str| page.headers.get(name).map_or("none", |value| value.to_str().expect("a text")).to_owned();
    let numbers = ["x-total", "x-total-pages", "x-page", "x-next-page", "x-prev-page"].map(header).join("|");
    let relations: Vec<&str> =
        page.header("link").split("rel=\"").skip(1).filter_map(|link| link.split('"').next()).collect();
    let items = page.json().as_array().map_or(0, Vec::len);
    format!("{numbers} {} {items}", relations.join(","))
}

#[tokio::test]
async fn events_beyond_ten_thousand_are_not_counted() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    insert_events(&forge, project, ann.id, MANY);
    // With the event of the creation.
    for path in [format!("/projects/{project}/events"), format!("/users/{}/events", ann.id)] {
        let page = async |number: i64| summary(&ann.get(&format!("{path}?page={number}")).await);
        assert_eq!(page(1).await, "none|none|1|2| next,first 20", "{path}");
        assert_eq!(page(502).await, "none|none|502|503|501 prev,next,first 20", "{path}");
        assert_eq!(page(503).await, "10051|503|503||502 prev,first,last 11", "{path}");
        assert_eq!(page(504).await, "10051|503|504||503 prev,first,last 0", "{path}");
    }
}

#[tokio::test]
async fn old_events_are_listed_if_the_newest_ten_thousand_are_hidden() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let public = ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await;
    insert_events(&forge, public, ann.id, 30);
    let private = ann.make("/projects", json!({ "name": "Secret" })).await;
    insert_events(&forge, private, ann.id, MANY);
    let page = async |number: i64| summary(&bob.get(&format!("/users/{}/events?page={number}", ann.id)).await);
    assert_eq!(page(1).await, "31|2|1|2| next,first,last 20");
    assert_eq!(page(2).await, "31|2|2||1 prev,first,last 11");
}

#[tokio::test]
async fn own_issues_beyond_ten_thousand_are_not_counted() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    forge.with_connection(|db| filler_issues(db, ProjectId::new(project), MANY, 20, false));
    forge.execute_sql(&format!("UPDATE issues SET author_id = {}", ann.id.get()));
    let page = async |query: &str| summary(&ann.get(&format!("/issues?{query}")).await);
    assert_eq!(page("").await, "none|none|1|2| next,first 20");
    assert_eq!(page("state=opened&page=502").await, "10030|502|502||501 prev,first,last 10");
    assert_eq!(page("page=503").await, "10050|503|503||502 prev,first,last 10");
    assert_eq!(page("state=closed").await, "20|1|1|| first,last 20");
    // The lists of the project have counters.
    let of_project = ann.get(&format!("/projects/{project}/issues")).await;
    assert_eq!(summary(&of_project), "10050|503|1|2| next,first,last 20");
}

#[tokio::test]
async fn a_short_term_is_found_whether_it_is_frequent_or_rare() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    let project = ann.make("/projects", json!({ "name": "Rocket", "namespace_id": acme })).await;
    let other = ann.make("/projects", json!({ "name": "Other" })).await;
    for (project, count) in [(project, 1_200), (other, 1_100)] {
        forge.with_connection(|db| filler_issues(db, ProjectId::new(project), count, 0, false));
    }
    forge.execute_sql(&format!("UPDATE issues SET author_id = {}", ann.id.get()));
    ann.make(&format!("/projects/{project}/issues"), json!({ "title": "Zoo" })).await;
    let total =
        async |list: &str, term: &str| ann.get(&format!("{list}?search={term}")).await.header("x-total").to_owned();
    for (list, fillers) in [
        (format!("/projects/{project}/issues"), "1200"),
        (format!("/groups/{acme}/issues"), "1200"),
        ("/issues".to_owned(), "2300"),
    ] {
        assert_eq!(total(&list, "f").await, fillers, "{list}");
        assert_eq!(total(&list, "LL").await, fillers, "{list}");
        assert_eq!(total(&list, "z").await, "1", "{list}");
        assert_eq!(total(&list, "oo").await, "1", "{list}");
        assert_eq!(total(&list, "q").await, "0", "{list}");
    }
}
