//! Fork relations between projects, and the visibility rules that follow from them.

use insta::assert_snapshot;
use serde_json::json;
use testkit::{TestClient, TestForge};

/// Starts a forge with an administrator, Ann with a source and Bob with a fork, both public.
async fn setup() -> (TestForge, [TestClient; 3], [i64; 2]) {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let source = ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await;
    let fork = bob.make("/projects", json!({ "name": "Copy", "visibility_level": 20 })).await;
    (forge, [root, ann, bob], [source, fork])
}

#[tokio::test]
async fn an_administrator_creates_a_fork_relation() {
    let (_forge, [root, ann, bob], [source, fork]) = setup().await;
    let link = format!("/projects/{fork}/fork/{source}");
    assert_snapshot!(bob.post(&link, json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    assert_snapshot!(root.post(&link, json!({})).await, @r#"
    201 Created
    {"id":1,"forked_to_project_id":2,"forked_from_project_id":1,"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z"}
    "#);
    assert_snapshot!(root.post(&link, json!({})).await, @r#"
    409 Conflict
    {"message":"Project already forked"}
    "#);
    assert_snapshot!(root.post(&format!("/projects/{source}/fork/{source}"), json!({})).await, @r#"
    409 Conflict
    {"message":"A project cannot be a fork of itself"}
    "#);
    assert_snapshot!(root.post(&format!("/projects/{source}/fork/99"), json!({})).await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_snapshot!(root.post("/projects/99/fork/1", json!({})).await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    let shown = bob.get(&format!("/projects/{fork}")).await.json();
    assert_snapshot!(shown["forked_from_project"], @r#"{"id":1,"http_url_to_repo":"http://gable.test/ann/rocket.git","web_url":"http://gable.test/ann/rocket","name":"Rocket","name_with_namespace":"ann / Rocket","path":"rocket","path_with_namespace":"ann/rocket"}"#);
    for list in ["/projects", "/projects/visible", "/projects/owned", "/projects/search/Copy"] {
        assert_eq!(bob.get(list).await.json()[0]["forked_from_project"], shown["forked_from_project"], "{list}");
    }
    assert_eq!(ann.get(&format!("/projects/{source}")).await.json()["forks_count"], 1);
    assert_eq!(ann.get(&format!("/projects/{source}")).await.json().get("forked_from_project"), None);
    // Also by path, and after starring.
    assert_eq!(bob.post("/projects/bob%2Fcopy/star", json!({})).await.json()["forked_from_project"]["id"], source);
}

#[tokio::test]
async fn an_owner_deletes_a_fork_relation() {
    let (_forge, [root, ann, bob], [source, fork]) = setup().await;
    let link = root.post(&format!("/projects/{fork}/fork/{source}"), json!({})).await.json();
    let path = format!("/projects/{fork}/fork");
    assert_snapshot!(ann.delete(&path).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    let removed = bob.delete(&path).await;
    assert_eq!((removed.code(), removed.json()), (200, link));
    // Deleting a missing relation is not an error.
    assert_snapshot!(bob.delete(&path).await, @"
    200 OK
    null
    ");
    assert_eq!(ann.get(&format!("/projects/{source}")).await.json()["forks_count"], 0);
    assert_eq!(bob.get(&format!("/projects/{fork}")).await.json().get("forked_from_project"), None);
}

/// A source that the caller cannot see, or that is deleted, is shown nowhere.
#[tokio::test]
async fn a_hidden_fork_source_is_not_shown() {
    let (_forge, [root, ann, bob], [source, fork]) = setup().await;
    assert_eq!(root.post(&format!("/projects/{fork}/fork/{source}"), json!({})).await.code(), 201);
    let hide = json!({ "name": "Rocket", "visibility_level": 0 });
    assert_eq!(ann.put(&format!("/projects/{source}"), hide).await.code(), 200);
    let source_id_seen_by = async |client: &TestClient| {
        let one = client.get(&format!("/projects/{fork}")).await.json()["forked_from_project"]["id"].clone();
        let list = if client.id == root.id { "/projects/all?search=Copy" } else { "/projects?search=Copy" };
        let list = client.get(list).await.json()[0]["forked_from_project"]["id"].clone();
        assert_eq!(one, list);
        one
    };
    assert_eq!(source_id_seen_by(&bob).await, json!(null));
    assert_eq!(source_id_seen_by(&root).await, json!(source));
    let member = json!({ "user_id": bob.id.get(), "access_level": 10 });
    assert_eq!(ann.post(&format!("/projects/{source}/members"), member).await.code(), 201);
    assert_eq!(source_id_seen_by(&bob).await, json!(source));
    assert_eq!(ann.delete(&format!("/projects/{source}")).await.code(), 200);
    assert_eq!(source_id_seen_by(&bob).await, json!(null));
    assert_eq!(source_id_seen_by(&root).await, json!(null));
    // Without a source, it can become a fork of another project.
    let other = ann.make("/projects", json!({ "name": "Other", "visibility_level": 20 })).await;
    assert_eq!(root.post(&format!("/projects/{fork}/fork/{other}"), json!({})).await.code(), 201);
    assert_eq!(source_id_seen_by(&bob).await, json!(other));
    // A deleted fork is no longer counted.
    assert_eq!(ann.get(&format!("/projects/{other}")).await.json()["forks_count"], 1);
    assert_eq!(bob.delete(&format!("/projects/{fork}")).await.code(), 200);
    assert_eq!(ann.get(&format!("/projects/{other}")).await.json()["forks_count"], 0);
}

#[tokio::test]
async fn a_fork_is_never_more_visible_than_its_source() {
    let (_forge, [root, ann, bob], [source, fork]) = setup().await;
    assert_eq!(root.post(&format!("/projects/{fork}/fork/{source}"), json!({})).await.code(), 201);
    let set = async |client: &TestClient, project: i64, name: &str, level: i64| {
        client.put(&format!("/projects/{project}"), json!({ "name": name, "visibility_level": level })).await
    };
    let level = async |project: i64| root.get(&format!("/projects/{project}")).await.json()["visibility_level"].clone();
    // Lowering the visibility of the source lowers that of its forks.
    assert_eq!(set(&ann, source, "Rocket", 10).await.code(), 200);
    assert_eq!((level(source).await, level(fork).await), (json!(10), json!(10)));
    assert_snapshot!(set(&bob, fork, "Copy", 20).await, @r#"
    400 Bad Request
    {"message":{"visibility_level":["public is not allowed since the fork source project has lower visibility."]}}
    "#);
    assert_eq!(set(&bob, fork, "Copy", 10).await.code(), 200);
    assert_eq!(set(&bob, fork, "Copy", 0).await.code(), 200);
    // Raising it does not change the forks.
    assert_eq!(set(&ann, source, "Rocket", 20).await.code(), 200);
    assert_eq!(level(fork).await, json!(0));
    assert_eq!(set(&bob, fork, "Copy", 20).await.code(), 200);
    // Without the relation the limit does not apply.
    assert_eq!(set(&ann, source, "Rocket", 0).await.code(), 200);
    assert_eq!(bob.delete(&format!("/projects/{fork}/fork")).await.code(), 200);
    assert_eq!(set(&bob, fork, "Copy", 20).await.code(), 200);
}
