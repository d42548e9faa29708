//! Sign-in with a password.

use axum::http::Method;
use insta::assert_snapshot;
use jiff::SignedDuration;
use serde_json::json;
use testkit::{PASSWORD, TestForge};

#[tokio::test]
async fn a_password_is_exchanged_for_a_token() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let anonymous = forge.anonymous();
    for login in ["ann", "ANN", "ann@example.org", "Ann@Example.org"] {
        for field in ["login", "email"] {
            let answer = anonymous.post("/session", json!({ field: login, "password": PASSWORD })).await;
            assert_eq!(answer.code(), 201, "{login}");
            let token = answer.json()["private_token"].as_str().expect("a token").to_owned();
            assert_eq!(token.len(), 20);
            let signed_in = anonymous.with_token(&token);
            assert_eq!(signed_in.get("/user").await.json()["username"], "ann");
        }
    }
    // `email` takes precedence over `login`.
    let both = json!({ "login": "nobody", "email": "ann", "password": PASSWORD });
    let form = format!("login=ann&password={}", PASSWORD.replace(' ', "+"));
    assert_eq!(anonymous.post("/session", both).await.code(), 201);
    assert_eq!(
        anonymous.post("/session", json!({ "login": "ann", "password": PASSWORD })).await.header("cache-control"),
        "no-store"
    );
    let by_form = anonymous.body(Method::POST, "/session", "application/x-www-form-urlencoded", form).await;
    let mut shown = by_form.json();
    assert_eq!(
        shown.as_object_mut().expect("a user").remove("private_token").map(|token| token.is_string()),
        Some(true)
    );
    assert_eq!(shown, ann.get("/user").await.json());
    assert_eq!(shown["current_sign_in_at"], "2026-01-02T03:04:05.678Z");
}

#[tokio::test]
async fn missing_parameters_are_reported() {
    let forge = TestForge::start().await;
    let anonymous = forge.anonymous();
    assert_snapshot!(anonymous.post("/session", json!({ "login": "ann" })).await, @r#"
    400 Bad Request
    {"error":"password is missing"}
    "#);
    assert_snapshot!(anonymous.post("/session", json!({ "password": "x" })).await, @r#"
    400 Bad Request
    {"error":"login, email are missing, at least one parameter must be provided"}
    "#);
    assert_snapshot!(anonymous.post("/session", json!({})).await, @r#"
    400 Bad Request
    {"error":"password is missing, login, email are missing, at least one parameter must be provided"}
    "#);
}

/// Unknown user, wrong password and blocked user get the same response, so that it does not reveal who has an account.
#[tokio::test]
async fn a_failed_sign_in_does_not_say_why() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let eve = forge.user("eve").await;
    root.put(&format!("/users/{}/block", eve.id), json!({})).await;
    let anonymous = forge.anonymous();
    let mut answers = Vec::new();
    for (login, password) in
        [("nobody", PASSWORD), ("ann", "wrong password"), ("eve", PASSWORD), ("", ""), ("x@y", "z")]
    {
        answers.push(anonymous.post("/session", json!({ "login": login, "password": password })).await.to_string());
    }
    answers.dedup();
    assert_eq!(answers, ["401 Unauthorized\n{\"message\":\"401 Unauthorized\"}"]);
    // The same holds for an invalid token and a token of a blocked user.
    let stranger = anonymous.with_token("abcdefghijklmnopqrst");
    assert_eq!(stranger.get("/users/1").await.to_string(), eve.get("/users/1").await.to_string());
    // Keys and addresses of others get the same response whether or not the user exists.
    for path in ["keys", "emails"] {
        let there = ann.get(&format!("/users/{}/{path}", root.id)).await.to_string();
        assert_eq!(there, ann.get(&format!("/users/999/{path}")).await.to_string());
    }
}

#[tokio::test]
async fn sign_ins_are_throttled_by_address() {
    let forge = TestForge::builder().sign_ins_per_minute(10).start().await;
    let anonymous = forge.anonymous();
    for _ in 0..10 {
        assert_eq!(anonymous.post("/session", json!({ "login": "x", "password": "y" })).await.code(), 401);
    }
    let refused = anonymous.post("/session", json!({ "login": "x", "password": "y" })).await;
    assert_snapshot!(refused, @"
    429 Too Many Requests
    Retry later
    ");
    assert_eq!((refused.header("retry-after"), refused.header("content-type")), ("6", "text/plain"));
}

#[tokio::test]
async fn session_tokens_expire_and_the_oldest_are_deleted() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let anonymous = forge.anonymous();
    let sign_in = async || {
        let answer = anonymous.post("/session", json!({ "login": "ann", "password": PASSWORD })).await;
        anonymous.with_token(answer.json()["private_token"].as_str().expect("a token"))
    };
    let first = sign_in().await;
    for _ in 0..49 {
        sign_in().await;
    }
    assert_eq!(first.get("/user").await.code(), 200);
    let last = sign_in().await;
    assert_eq!((first.get("/user").await.code(), last.get("/user").await.code()), (401, 200));
    forge.clock.advance(SignedDuration::from_hours(24 * 91));
    assert_eq!((last.get("/user").await.code(), ann.get("/user").await.code()), (401, 200));
}

#[tokio::test]
async fn the_previous_sign_in_time_is_kept() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let credentials = json!({ "login": "ann", "password": PASSWORD });
    forge.anonymous().post("/session", credentials.clone()).await;
    forge.clock.advance(SignedDuration::from_hours(1));
    forge.anonymous().post("/session", credentials).await;
    let me = ann.get("/user").await.json();
    assert_eq!(me["last_sign_in_at"], "2026-01-02T03:04:05.678Z");
    assert_eq!(me["current_sign_in_at"], "2026-01-02T04:04:05.678Z");
}
