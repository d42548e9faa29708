//! Trigger tokens.

use axum::http::Method;
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::ProjectId;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

/// A CI file on two branches.
pub(crate) const SCRIPT: &str = "\
commit refs/heads/master
mark :1
committer Ann <ann@example.com> 1422824191 +0000
data 1
x
M 100644 inline .gitlab-ci.yml
data 21
build: {script: make}

reset refs/heads/feature/x
from :1

";

/// A forge with Ann, her project and its trigger.
async fn setup() -> (TestForge, TestClient, ProjectId, String) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    forge.fast_import(&ann, project, SCRIPT).await;
    let token = trigger(&ann, project).await;
    (forge, ann, project, token)
}

async fn trigger(client: &TestClient, project: ProjectId) -> String {
    let made = client.post(&format!("/projects/{project}/triggers"), json!({})).await;
    assert_eq!(made.code(), 201, "{made}");
    made.json()["token"].as_str().expect("a token").to_owned()
}

fn normalized(answer: &TestResponse, token: &str) -> String {
    answer.to_string().replace(token, "TOKEN")
}

#[tokio::test]
async fn a_trigger_is_created_shown_and_deleted() {
    let (_forge, ann, project, token) = setup().await;
    let path = format!("/projects/{project}/triggers");
    assert_eq!(token.len(), 20);
    assert_snapshot!(normalized(&ann.get(&path).await, &token), @r#"
    200 OK
    [{"token":"TOKEN","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","deleted_at":null,"last_used":null}]
    "#);
    assert_snapshot!(normalized(&ann.get(&format!("{path}/{token}")).await, &token), @r#"
    200 OK
    {"token":"TOKEN","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","deleted_at":null,"last_used":null}
    "#);
    let other = trigger(&ann, project).await;
    assert_ne!(other, token);
    let page = ann.get(&format!("{path}?per_page=1&page=2")).await;
    assert_eq!((page.join_field("token"), page.header("x-total")), (other.clone(), "2"));
    assert_snapshot!(normalized(&ann.delete(&format!("{path}/{token}")).await, &token), @r#"
    200 OK
    {"token":"TOKEN","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","deleted_at":null,"last_used":null}
    "#);
    let missing = "404 Not Found\n{\"message\":\"404 Trigger Not Found\"}";
    let elsewhere = ProjectId::new(ann.make("/projects", json!({ "name": "elsewhere" })).await);
    let foreign = trigger(&ann, elsewhere).await;
    for gone in [&token, "x", "a%00b", &foreign] {
        assert_eq!(ann.get(&format!("{path}/{gone}")).await.to_string(), missing, "{gone}");
        assert_eq!(ann.delete(&format!("{path}/{gone}")).await.to_string(), missing, "{gone}");
    }
    assert_eq!(ann.get(&path).await.join_field("token"), other);
    assert_eq!(ann.get(&format!("/projects/{elsewhere}/triggers")).await.join_field("token"), foreign);
}

#[tokio::test]
async fn a_trigger_token_starts_a_pipeline() {
    let (forge, ann, project, token) = setup().await;
    let anybody = forge.anonymous();
    forge.clock.advance(SignedDuration::from_secs(5));
    let path = format!("/projects/{project}/trigger/builds");
    let started = anybody.post(&path, json!({ "ref": "master", "token": token })).await;
    let id = started.json()["id"].as_i64().expect("a number");
    assert_eq!(started.to_string(), format!("201 Created\n{{\"id\":{id},\"variables\":{{}}}}"));
    let jobs = ann.get(&format!("/projects/{project}/builds")).await.json();
    let jobs: Vec<&Value> = jobs.as_array().expect("a list").iter().filter(|job| job["pipeline"]["id"] == id).collect();
    assert_eq!((jobs.len(), &jobs[0]["status"]), (1, &json!("pending")));
    assert_eq!((&jobs[0]["user"], &jobs[0]["ref"]), (&json!(null), &json!("master")));
    let used = ann.get(&format!("/projects/{project}/triggers/{token}")).await.json();
    assert_eq!(used["last_used"], "2026-01-02T03:04:10.678Z");
    // Its pipelines stay when it is deleted.
    assert_eq!(ann.delete(&format!("/projects/{project}/triggers/{token}")).await.code(), 200);
    assert_eq!(ann.get(&format!("/projects/{project}/builds/{}", jobs[0]["id"])).await.code(), 200);
    assert_eq!(anybody.post(&path, json!({ "ref": "master", "token": token })).await.code(), 404);
}

#[tokio::test]
async fn the_ref_may_be_part_of_the_path() {
    let (forge, ann, project, token) = setup().await;
    let anybody = forge.anonymous();
    for name in ["master", "feature/x", "feature%2Fx"] {
        for end in ["", ".json", "/"] {
            let path = format!("/projects/{project}/ref/{name}/trigger/builds{end}");
            let started = anybody.post(&path, json!({ "token": token })).await;
            assert_eq!(started.code(), 201, "{path}: {started}");
            let listed = ann.get(&format!("/projects/{project}/builds?per_page=1")).await.json();
            assert_eq!(listed[0]["pipeline"]["id"], started.json()["id"]);
            assert_eq!(listed[0]["ref"], name.replace("%2F", "/"));
        }
    }
    // The path takes precedence.
    let body = json!({ "token": token, "ref": "master" });
    let path = format!("/projects/{project}/ref/nowhere/trigger/builds");
    assert_snapshot!(anybody.post(&path, body).await, @r#"
    400 Bad Request
    {"message":"No builds created"}
    "#);
    let path = format!("/projects/ann%2Frocket/ref/master/trigger/builds?token={token}");
    assert_eq!(anybody.post(&path, json!({})).await.code(), 201);
}

#[tokio::test]
async fn variables_are_accepted_in_every_encoding() {
    let (forge, ann, project, token) = setup().await;
    let anybody = forge.anonymous();
    let path = format!("/projects/{project}/trigger/builds");
    // The push may have created pipelines of its own.
    let count = async || -> i64 {
        let listed = ann.get(&format!("/projects/{project}/builds")).await;
        listed.header("x-total").parse().expect("a number")
    };
    let before = count().await;
    let expected = "{\"A\":\"1\",\"B_2\":\"x y\"}";
    let form = format!("token={token}&ref=master&variables[A]=1&variables%5BB_2%5D=x+y");
    let part =
        |name: &str, value: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let parts = [("token", token.as_str()), ("ref", "master"), ("variables[A]", "1"), ("variables[B_2]", "x y")];
    let multipart: String = parts.iter().map(|(name, value)| part(name, value)).chain(["--b--\r\n".into()]).collect();
    let body = json!({ "token": token, "ref": "master", "variables": { "A": "1", "B_2": "x y" } });
    let answers = [
        anybody.post(&format!("{path}?{form}"), json!({})).await,
        anybody.body(Method::POST, &path, "application/x-www-form-urlencoded", form.clone()).await,
        anybody.body(Method::POST, &path, "multipart/form-data; boundary=b", multipart).await,
        anybody.post(&path, body).await,
    ];
    for answer in answers {
        assert_eq!(answer.code(), 201, "{answer}");
        assert!(answer.text.ends_with(&format!("\"variables\":{expected}}}")), "{answer}");
    }
    let refuse = async |variables: Value| {
        anybody.post(&path, json!({ "token": token, "ref": "master", "variables": variables })).await.to_string()
    };
    let not_a_map = "400 Bad Request\n{\"message\":\"variables needs to be a map of key-valued strings\"}";
    for variables in [json!("x"), json!(["A"]), json!({ "A": 1 }), json!({ "A": ["1"] }), json!({ "A": null })] {
        assert_eq!(refuse(variables).await, not_a_map);
    }
    assert_snapshot!(refuse(json!({ "a-b": "1" })).await, @r#"
    400 Bad Request
    {"message":{"key":["can contain only letters, digits and '_'."]}}
    "#);
    assert_snapshot!(refuse(json!({ "A": "x".repeat(10_001) })).await, @r#"
    400 Bad Request
    {"message":{"value":["is too long (maximum is 10000 characters)"]}}
    "#);
    let many: serde_json::Map<String, Value> = (0..1001).map(|number| (format!("K{number}"), json!("x"))).collect();
    assert_snapshot!(refuse(Value::Object(many)).await, @r#"
    400 Bad Request
    {"message":{"variables":["are too many (maximum is 1000)"]}}
    "#);
    assert_eq!(count().await, before + 4);
}

#[tokio::test]
async fn invalid_tokens_are_rejected() {
    let (forge, ann, project, token) = setup().await;
    let elsewhere = ProjectId::new(ann.make("/projects", json!({ "name": "elsewhere" })).await);
    let anybody = forge.anonymous();
    let start = async |project: ProjectId, body: Value| {
        anybody.post(&format!("/projects/{project}/trigger/builds"), body).await.to_string()
    };
    assert_snapshot!(start(project, json!({})).await, @r#"
    400 Bad Request
    {"error":"ref is missing, token is missing"}
    "#);
    assert_snapshot!(start(project, json!({ "ref": "master", "token": ["x"] })).await, @r#"
    400 Bad Request
    {"error":"token is invalid"}
    "#);
    let body = json!({ "ref": "master", "token": token });
    let absent = "404 Not Found\n{\"message\":\"404 Not Found\"}";
    assert_eq!(start(ProjectId::new(999), body.clone()).await, absent);
    for unknown in ["", "x", "a\u{e4}"] {
        assert_eq!(start(project, json!({ "ref": "master", "token": unknown })).await, absent);
    }
    // A token of a user is not a trigger token, nor the other way round.
    let request = ann.request(Method::GET, "/user");
    let own = request.headers_ref().expect("headers")["private-token"].to_str().expect("text");
    assert_eq!(start(project, json!({ "ref": "master", "token": own })).await, absent);
    assert_eq!(anybody.with_token(&token).get(&format!("/projects/{project}")).await.code(), 401);
    assert_eq!(anybody.with_token(&token).get("/user").await.code(), 401);
    assert_snapshot!(start(elsewhere, body.clone()).await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
    assert_snapshot!(start(project, json!({ "ref": "nowhere", "token": token })).await, @r#"
    400 Bad Request
    {"message":"No builds created"}
    "#);
    let listed = ann.get(&format!("/projects/{project}/builds")).await.header("x-total").to_owned();
    let off = json!({ "name": "Rocket", "builds_enabled": false });
    assert_eq!(ann.put(&format!("/projects/{project}"), off).await.code(), 200);
    let nothing = "400 Bad Request\n{\"message\":\"No builds created\"}";
    assert_eq!(start(project, body.clone()).await, nothing);
    let on = json!({ "name": "Rocket", "builds_enabled": true });
    assert_eq!(ann.put(&format!("/projects/{project}"), on).await.code(), 200);
    assert_eq!(ann.post(&format!("/projects/{project}/archive"), json!({})).await.code(), 201);
    assert_eq!(start(project, body.clone()).await, nothing);
    assert_eq!(ann.get(&format!("/projects/{project}/builds")).await.header("x-total"), listed);
    assert_eq!(ann.get(&format!("/projects/{project}/triggers/{token}")).await.json()["last_used"], json!(null));
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    assert_eq!(start(project, body).await, absent);
}
