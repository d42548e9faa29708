//! CI variables of projects.

use axum::http::Method;
use insta::assert_snapshot;
use model::{ProjectId, tokens::Digest};
use serde_json::json;
use testkit::{TestClient, TestForge};

async fn setup() -> (TestForge, TestClient, String) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    (forge, ann, format!("/projects/{project}/variables"))
}

#[tokio::test]
async fn a_variable_is_created_updated_and_deleted() {
    let (_forge, ann, path) = setup().await;
    assert_snapshot!(ann.post(&path, json!({ "key": "API_KEY", "value": "line 1\nline 2" })).await, @r#"
    201 Created
    {"key":"API_KEY","value":"line 1\nline 2"}
    "#);
    // A key may start with a digit and a value may be empty, as in GitLab.
    let form = "application/x-www-form-urlencoded";
    assert_snapshot!(ann.body(Method::POST, &path, form, "key=2_b&value=").await, @r#"
    201 Created
    {"key":"2_b","value":""}
    "#);
    assert_snapshot!(ann.get(&path).await, @r#"
    200 OK
    [{"key":"API_KEY","value":"line 1\nline 2"},{"key":"2_b","value":""}]
    "#);
    assert_snapshot!(ann.get(&format!("{path}/API_KEY")).await, @r#"
    200 OK
    {"key":"API_KEY","value":"line 1\nline 2"}
    "#);
    assert_snapshot!(ann.put(&format!("{path}/API_KEY"), json!({ "value": "other" })).await, @r#"
    200 OK
    {"key":"API_KEY","value":"other"}
    "#);
    assert_eq!(ann.put(&format!("{path}/API_KEY"), json!({})).await.json()["value"], "other");
    assert_eq!(ann.get(&format!("{path}/API_KEY")).await.json()["value"], "other");
    assert_snapshot!(ann.delete(&format!("{path}/API_KEY")).await, @r#"
    200 OK
    {"key":"API_KEY","value":"other"}
    "#);
    let missing = "404 Not Found\n{\"message\":\"404 Variable Not Found\"}";
    for key in ["API_KEY", "api_key", "a%00b", "ä", "a%2Fb"] {
        let path = format!("{path}/{key}");
        assert_eq!(ann.get(&path).await.to_string(), missing, "{key}");
        assert_eq!(ann.put(&path, json!({ "value": "x" })).await.to_string(), missing, "{key}");
        assert_eq!(ann.delete(&path).await.to_string(), missing, "{key}");
    }
    assert_eq!(ann.get(&path).await.join_field("key"), "2_b");
}

#[tokio::test]
async fn a_key_is_validated_and_unique() {
    let (_forge, ann, path) = setup().await;
    assert_snapshot!(ann.post(&path, json!({})).await, @r#"
    400 Bad Request
    {"error":"key is missing, value is missing"}
    "#);
    assert_snapshot!(ann.post(&path, json!({ "key": "", "value": "x" })).await, @r#"
    400 Bad Request
    {"message":{"key":["can't be blank"]}}
    "#);
    assert_snapshot!(ann.post(&path, json!({ "key": "a-b", "value": "x" })).await, @r#"
    400 Bad Request
    {"message":{"key":["can contain only letters, digits and '_'."]}}
    "#);
    assert_snapshot!(ann.post(&path, json!({ "key": "k".repeat(256), "value": "v".repeat(10_001) })).await, @r#"
    400 Bad Request
    {"message":{"key":["is too long (maximum is 255 characters)"],"value":["is too long (maximum is 10000 characters)"]}}
    "#);
    assert_eq!(ann.post(&path, json!({ "key": "k".repeat(255), "value": "ä".repeat(10_000) })).await.code(), 201);
    assert_eq!(ann.post(&path, json!({ "key": "A", "value": "1" })).await.code(), 201);
    assert_snapshot!(ann.post(&path, json!({ "key": "A", "value": "2" })).await, @r#"
    400 Bad Request
    {"message":{"key":["has already been taken"]}}
    "#);
    assert_eq!(ann.post(&path, json!({ "key": "a", "value": "2" })).await.code(), 201);
    assert_snapshot!(ann.put(&format!("{path}/A"), json!({ "value": "v".repeat(10_001) })).await, @r#"
    400 Bad Request
    {"message":{"value":["is too long (maximum is 10000 characters)"]}}
    "#);
    assert_snapshot!(ann.put(&format!("{path}/A"), json!({ "value": "a\u{0}b" })).await, @r#"
    400 Bad Request
    {"error":"value is invalid"}
    "#);
    assert_eq!(ann.get(&format!("{path}/A")).await.json()["value"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_requests_one_creates_the_variable() {
    let (_forge, ann, path) = setup().await;
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let (ann, path) = (ann.clone(), path.clone());
            tokio::spawn(
                async move { ann.post(&path, json!({ "key": "A", "value": number.to_string() })).await.code() },
            )
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.expect("an answer"));
    }
    codes.sort_unstable();
    assert_eq!(codes, [201, 400, 400, 400, 400, 400, 400, 400]);
    assert_eq!(ann.get(&path).await.join_field("key"), "A");
}

#[tokio::test]
async fn a_project_has_at_most_a_thousand_variables() {
    let (forge, ann, path) = setup().await;
    forge.in_transaction(|db| {
        for number in 0..1000 {
            store::variables::insert(db, ProjectId::new(1), &format!("K{number}"), b"x").expect("a variable");
        }
    });
    assert_snapshot!(ann.post(&path, json!({ "key": "ONE_MORE", "value": "x" })).await, @r#"
    400 Bad Request
    {"message":{"base":["Maximum number of variables (1000) reached"]}}
    "#);
    let page = ann.get(&format!("{path}?per_page=2&page=2")).await;
    assert_eq!((page.join_field("key"), page.header("x-total")), ("K2 K3".into(), "1000"));
    // A value that was encrypted with another instance key cannot be shown, but replaced.
    assert_eq!(page.json()[0]["value"], json!(null));
    assert_eq!(ann.put(&format!("{path}/K2"), json!({ "value": "known" })).await.json()["value"], "known");
    assert_eq!(ann.get(&format!("{path}/K2")).await.json()["value"], "known");
    assert_eq!(ann.delete(&format!("{path}/K3")).await.to_string(), "200 OK\n{\"key\":\"K3\",\"value\":null}");
}

#[tokio::test]
async fn a_copy_of_the_database_reveals_neither_values_nor_tokens() {
    let (forge, ann, path) = setup().await;
    assert_eq!(ann.post(&path, json!({ "key": "API_KEY", "value": "moonshot" })).await.code(), 201);
    forge.fast_import(&ann, ProjectId::new(1), crate::ci::triggers::SCRIPT).await;
    let trigger = ann.post("/projects/1/triggers", json!({})).await.json();
    let token = trigger["token"].as_str().expect("a token");
    let call = json!({ "ref": "master", "token": token, "variables": { "A": "sunshine" } });
    assert_eq!(ann.post("/projects/1/trigger/builds", call).await.code(), 201);
    let dump = forge.dump();
    // Bytes are dumped in hex.
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    assert!(dump.contains("key=API_KEY"));
    for secret in ["moonshot", "sunshine", token] {
        assert!(!dump.contains(secret) && !dump.contains(&hex(secret)), "{secret}");
    }
    let found = forge.in_transaction(|db| store::triggers::by_token(db, &Digest::of(token)).expect("asked"));
    assert!(found.is_some());
}

#[tokio::test]
async fn only_masters_manage_variables_and_triggers() {
    let (forge, ann, path) = setup().await;
    let bob = forge.user("bob").await;
    assert_eq!(ann.post(&path, json!({ "key": "A", "value": "1" })).await.code(), 201);
    let token = ann.post("/projects/1/triggers", json!({})).await.json()["token"].clone();
    let trigger = format!("/projects/1/triggers/{}", token.as_str().expect("a token"));
    let codes = async |client: &TestClient| {
        let mut codes = vec![client.get(&path).await.code(), client.get(&format!("{path}/A")).await.code()];
        codes.push(client.put(&format!("{path}/A"), json!({ "value": "1" })).await.code());
        // Masters learn that the key is taken.
        codes.push(client.post(&path, json!({ "key": "A", "value": "1" })).await.code());
        codes.push(client.get("/projects/1/triggers").await.code());
        codes.push(client.get(&trigger).await.code());
        codes
    };
    assert_eq!(codes(&forge.anonymous()).await, [401; 6]);
    assert_eq!(codes(&bob).await, [404; 6]);
    ann.post("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 30 })).await;
    assert_eq!(codes(&bob).await, [403; 6]);
    ann.put(&format!("/projects/1/members/{}", bob.id), json!({ "access_level": 40 })).await;
    assert_eq!(codes(&bob).await, [200, 200, 200, 400, 200, 200]);
    let off = json!({ "name": "Rocket", "builds_enabled": false });
    assert_eq!(ann.put("/projects/1", off).await.code(), 200);
    assert_eq!(codes(&ann).await, [403; 6]);
}
