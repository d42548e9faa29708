//! Cached responses are never stale: every change is visible in the next response.

use jiff::{SignedDuration, Timestamp};
use model::{Scope, UserState};
use serde_json::json;
use testkit::{TestClient, TestForge};

/// Returns the status, and a field on success.
async fn status_and_field(client: &TestClient, path: &str, field: &str) -> String {
    // Twice, so that the second response comes from the cache.
    let (fresh, cached) = (client.get(path).await, client.get(path).await);
    assert_eq!(fresh.to_string(), cached.to_string());
    if fresh.code() == 200 { format!("200 {}", fresh.json()[field]) } else { fresh.code().to_string() }
}

#[tokio::test]
async fn every_change_is_visible_immediately() {
    let forge = TestForge::start().await;
    let (root, ann, ben) = (forge.admin().await, forge.user("ann").await, forge.user("ben").await);
    ann.post("/projects", json!({ "name": "Rocket", "visibility_level": 10 })).await;
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "200 \"Rocket\"");
    ann.put("/projects/1", json!({ "name": "Engine" })).await;
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "200 \"Engine\"");
    assert_eq!(status_and_field(&ben, "/projects/ann%2Frocket", "star_count").await, "200 0");
    ben.post("/projects/1/star", json!({})).await;
    assert_eq!(status_and_field(&ben, "/projects/ann%2Frocket", "star_count").await, "200 1");
    // The cache is separate for each user.
    let level = |answer: testkit::TestResponse| answer.json()["permissions"]["project_access"]["access_level"].clone();
    assert_eq!((level(ann.get("/projects/1").await), level(ben.get("/projects/1").await)), (json!(40), json!(null)));
    assert!(ann.get("/projects/1").await.json()["runners_token"].is_string());
    assert!(ben.get("/projects/1").await.json()["runners_token"].is_null());
    ann.put("/projects/1", json!({ "name": "Engine", "visibility_level": 0 })).await;
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "404");
    ann.post("/projects/1/members", json!({ "user_id": ben.id.get(), "access_level": 20 })).await;
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "200 \"Engine\"");
    ann.delete(&format!("/projects/1/members/{}", ben.id)).await;
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "404");
    assert_eq!(status_and_field(&root, "/projects/1", "name").await, "200 \"Engine\"");
    // Changes by other processes, such as an admin command, are visible as well.
    let now = forge.forge.now();
    assert_eq!(status_and_field(&ann, "/user", "username").await, "200 \"ann\"");
    forge.with_connection(|db| store::users::set_state(db, ann.id, UserState::Blocked, now).expect("blocked"));
    assert_eq!(status_and_field(&ann, "/user", "username").await, "401");
    assert_eq!(status_and_field(&ann, "/projects/1", "name").await, "401");
}

#[tokio::test]
async fn expiry_dates_are_respected() {
    let forge = TestForge::start().await;
    forge.clock.set("2026-03-01T23:59:00Z".parse::<Timestamp>().expect("a timestamp"));
    let (ann, ben) = (forge.user("ann").await, forge.user("ben").await);
    ann.post("/projects", json!({ "name": "x" })).await;
    let until = json!({ "user_id": ben.id.get(), "access_level": 20, "expires_at": "2026-03-02" });
    assert_eq!(ann.post("/projects/1/members", until).await.code(), 201);
    let second = SignedDuration::from_secs(1);
    let short_lived = forge.client_with_token(&ann, &[Scope::Api], Some(forge.forge.now() + second * 30)).await;
    assert_eq!(status_and_field(&short_lived, "/projects/1", "name").await, "200 \"x\"");
    forge.clock.advance(second * 29);
    assert_eq!(status_and_field(&short_lived, "/projects/1", "name").await, "200 \"x\"");
    forge.clock.advance(second);
    assert_eq!(status_and_field(&short_lived, "/projects/1", "name").await, "401");
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "200 \"x\"");
    forge.clock.advance(second * 29);
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "200 \"x\"");
    forge.clock.advance(second);
    assert_eq!(status_and_field(&ben, "/projects/1", "name").await, "404");
}

#[tokio::test]
async fn responses_are_cached_per_caller_token_and_host() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    assert_eq!(status_and_field(&root, "/user", "username").await, "200 \"root\"");
    assert_eq!(status_and_field(&root, "/user?sudo=ann", "username").await, "200 \"ann\"");
    assert_eq!(status_and_field(&root, "/user", "username").await, "200 \"root\"");
    assert_eq!(status_and_field(&ann, "/user", "username").await, "200 \"ann\"");
    assert_eq!(status_and_field(&forge.anonymous(), "/user", "username").await, "401");
    let read_only = forge.client_with_token(&ann, &[Scope::ReadUser], None).await;
    ann.post("/projects", json!({ "name": "x" })).await;
    assert_eq!(status_and_field(&ann, "/projects/1", "name").await, "200 \"x\"");
    assert_eq!(status_and_field(&read_only, "/projects/1", "name").await, "401");
    // Absolute URLs use the host of each request.
    let web_url = async |host: &str| {
        let request = axum::http::Request::get("/api/v3/projects/1").header("host", host);
        let request = request.header("private-token", ann.token.as_deref().expect("a token"));
        ann.send(request, axum::body::Body::empty()).await.json()["web_url"].clone()
    };
    for host in ["one.test", "other.test", "one.test"] {
        assert_eq!(web_url(host).await, format!("http://{host}/ann/x"));
    }
    let known = ann.get("/projects/1").await;
    let again = ann.get_with("/projects/1", &[("if-none-match", known.header("etag"))]).await;
    assert_eq!((again.code(), again.text.as_str()), (304, ""));
}
