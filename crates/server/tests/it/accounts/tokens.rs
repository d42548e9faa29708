//! Access tokens as users and administrators manage them over the API.

use jiff::SignedDuration;
use model::Scope;
use serde_json::{Value, json};
use testkit::{PASSWORD, TestClient, TestForge};

fn api(name: &str) -> Value {
    json!({ "name": name, "scopes": ["api"] })
}

/// Creates a token; returns its ID and a client that uses it.
async fn create(client: &TestClient, body: Value) -> (i64, TestClient) {
    let answer = client.post("/personal_access_tokens", body).await;
    assert_eq!(answer.code(), 201, "{answer}");
    let created = answer.json();
    (created["id"].as_i64().expect("a number"), client.with_token(created["token"].as_str().expect("a token")))
}

#[tokio::test]
async fn a_user_creates_shows_lists_and_revokes_tokens() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let body = json!({ "name": "ci", "scopes": ["api", "read_user"], "expires_at": "2026-03-01" });
    let answer = ann.post("/personal_access_tokens", body).await;
    assert_eq!((answer.code(), answer.header("cache-control")), (201, "no-store"));
    let mut created = answer.json();
    let secret = created.as_object_mut().expect("an object").remove("token").expect("a token");
    let secret = secret.as_str().expect("a text").to_owned();
    assert_eq!(secret.len(), 20);
    let expected = json!({
        "id": 2, "name": "ci", "revoked": false, "created_at": "2026-01-02T03:04:05.678Z", "description": null,
        "scopes": ["api", "read_user"], "user_id": ann.id.get(), "last_used_at": null, "active": true,
        "expires_at": "2026-03-01", "session": false,
    });
    assert_eq!(created, expected);
    let ci = ann.with_token(&secret);
    assert_eq!(ci.get("/user").await.json()["username"], "ann");
    // No other response contains the secret.
    assert_eq!(ann.get("/personal_access_tokens/2").await.json(), expected);
    assert_eq!(ci.get("/personal_access_tokens/self").await.json(), expected);
    let list = ann.get("/personal_access_tokens").await;
    assert_eq!((list.join_field("id"), list.header("x-total")), ("2 1".into(), "2"));
    assert_eq!(list.json()[0], expected);

    let gone = ann.delete("/personal_access_tokens/2").await;
    assert_eq!((gone.code(), gone.text.as_str()), (204, ""));
    assert_eq!(ci.get("/user").await.code(), 401);
    let again = ann.delete("/personal_access_tokens/2").await;
    assert_eq!((again.code(), again.text.as_str()), (400, r#"{"message":"400 Bad request - Token already revoked"}"#));
    let shown = ann.get("/personal_access_tokens/2").await.json();
    assert_eq!((&shown["revoked"], &shown["active"]), (&json!(true), &json!(false)));
    for (query, ids) in [
        ("revoked=true", "2"),
        ("revoked=false", "1"),
        ("state=active", "1"),
        ("state=inactive", "2"),
        ("per_page=1&page=2", "1"),
    ] {
        assert_eq!(ann.get(&format!("/personal_access_tokens?{query}")).await.join_field("id"), ids, "{query}");
    }
}

#[tokio::test]
async fn a_token_expires_on_its_date_and_within_a_year() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (_, brief) = create(&ann, json!({ "name": "brief", "scopes": "read_user", "expires_at": "2026-01-04" })).await;
    let (_, long) = create(&ann, api("long")).await;
    assert_eq!(long.get("/personal_access_tokens/self").await.json()["expires_at"], "2027-01-02");
    assert_eq!(brief.get("/user").await.code(), 200);
    for (day, text) in [
        ("2026-01-02", r#"{"message":{"expires_at":["must be in the future"]}}"#),
        ("2027-01-03", r#"{"message":{"expires_at":["must be within 365 days from now"]}}"#),
        ("9999-12-31", r#"{"message":{"expires_at":["must be within 365 days from now"]}}"#),
        ("soon", r#"{"error":"expires_at is invalid"}"#),
    ] {
        let body = json!({ "name": "x", "scopes": ["api"], "expires_at": day });
        let answer = ann.post("/personal_access_tokens", body).await;
        assert_eq!((answer.code(), answer.text.as_str()), (400, text), "{day}");
    }
    forge.clock.advance(SignedDuration::from_hours(45));
    assert_eq!((brief.get("/user").await.code(), long.get("/user").await.code()), (401, 200));
    assert_eq!(ann.get("/personal_access_tokens?state=inactive").await.join_field("name"), "brief");
}

#[tokio::test]
async fn an_invalid_token_request_is_rejected() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for (body, text) in [
        (json!({}), r#"{"error":"name is missing, scopes is missing"}"#),
        (json!({ "name": "x", "scopes": ["root"] }), r#"{"error":"scopes does not have a valid value"}"#),
        (json!({ "name": "x", "scopes": "api,root" }), r#"{"error":"scopes does not have a valid value"}"#),
        (json!({ "name": "x", "scopes": [] }), r#"{"message":{"scopes":["can't be blank"]}}"#),
        (json!({ "name": " ", "scopes": ["api"] }), r#"{"message":{"name":["can't be blank"]}}"#),
        (
            json!({ "name": "x".repeat(256), "scopes": ["api"] }),
            r#"{"message":{"name":["is too long (maximum is 255 characters)"]}}"#,
        ),
    ] {
        let answer = ann.post("/personal_access_tokens", body.clone()).await;
        assert_eq!((answer.code(), answer.text.as_str()), (400, text), "{body}");
    }
    assert_eq!(ann.get("/personal_access_tokens").await.join_field("id"), "1");
}

#[tokio::test]
async fn a_token_without_the_scope_api_creates_no_token_but_shows_and_revokes_itself() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (id, reading) = create(&ann, json!({ "name": "reading", "scopes": ["read_user"] })).await;
    for body in [api("more"), json!({ "name": "same", "scopes": ["read_user"] })] {
        let refused = reading.post("/personal_access_tokens", body).await;
        assert_eq!((refused.code(), refused.text.as_str()), (401, r#"{"message":"401 Unauthorized"}"#));
    }
    for path in ["/personal_access_tokens", "/personal_access_tokens/1"] {
        assert_eq!(reading.get(path).await.code(), 401, "{path}");
    }
    assert_eq!(reading.delete("/personal_access_tokens/1").await.code(), 401);
    assert_eq!(reading.get("/personal_access_tokens/self").await.json()["id"], id);
    assert_eq!(reading.delete("/personal_access_tokens/self").await.code(), 204);
    assert_eq!(reading.get("/personal_access_tokens/self").await.code(), 401);
    assert_eq!(ann.get("/user").await.code(), 200);
}

#[tokio::test]
async fn tokens_of_other_users_cannot_be_accessed() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let own = bob.get("/personal_access_tokens/self").await.json()["id"].as_i64().expect("a number");
    let absent = r#"{"message":"404 Personal Access Token Not Found"}"#;
    for id in [own, 999] {
        let path = format!("/personal_access_tokens/{id}");
        let shown = ann.get(&path).await;
        assert_eq!((shown.code(), shown.text.as_str()), (404, absent));
        let deleted = ann.delete(&path).await;
        assert_eq!((deleted.code(), deleted.text.as_str()), (404, absent));
    }
    for path in [format!("/personal_access_tokens?user_id={}", bob.id), "/personal_access_tokens?user_id=999".into()] {
        let refused = ann.get(&path).await;
        assert_eq!((refused.code(), refused.text.as_str()), (403, r#"{"message":"403 Forbidden"}"#));
    }
    let refused = ann.post(&format!("/users/{}/personal_access_tokens", bob.id), api("x")).await;
    assert_eq!((refused.code(), refused.text.as_str()), (403, r#"{"message":"403 Forbidden"}"#));
    assert_eq!(ann.get(&format!("/personal_access_tokens?user_id={}", ann.id)).await.join_field("id"), "1");
    assert_eq!(bob.get("/user").await.code(), 200);
}

#[tokio::test]
async fn administrators_manage_the_tokens_of_all_users() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let created = root.post(&format!("/users/{}/personal_access_tokens", ann.id), api("bot")).await;
    assert_eq!((created.code(), &created.json()["user_id"]), (201, &json!(ann.id.get())));
    let bot = ann.with_token(created.json()["token"].as_str().expect("a token"));
    assert_eq!(bot.get("/user").await.json()["username"], "ann");
    assert_eq!(
        root.get("/personal_access_tokens").await.join_field("user_id"),
        format!("{0} {0} {1}", ann.id, root.id)
    );
    let path = format!("/personal_access_tokens?user_id={}", ann.id);
    assert_eq!(root.get(&path).await.join_field("name"), "bot test");
    let missing = root.get("/personal_access_tokens?user_id=999").await;
    assert_eq!((missing.code(), missing.text.as_str()), (404, r#"{"message":"404 User Not Found"}"#));
    let missing = root.post("/users/999/personal_access_tokens", api("x")).await;
    assert_eq!((missing.code(), missing.text.as_str()), (404, r#"{"message":"404 User Not Found"}"#));
    let id = created.json()["id"].as_i64().expect("a number");
    assert_eq!(root.delete(&format!("/personal_access_tokens/{id}")).await.code(), 204);
    assert_eq!(bot.get("/user").await.code(), 401);
}

#[tokio::test]
async fn the_list_marks_sessions_and_a_session_can_be_ended() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let answer = forge.anonymous().post("/session", json!({ "login": "ann", "password": PASSWORD })).await;
    let session = ann.with_token(answer.json()["private_token"].as_str().expect("a token"));
    // A personal token is not a session, whatever its name.
    create(&session, json!({ "name": "session", "scopes": ["api"], "current_password": PASSWORD })).await;
    let list = ann.get("/personal_access_tokens").await;
    assert_eq!(
        (list.join_field("name"), list.join_field("session")),
        ("session session test".into(), "false true false".into())
    );
    assert_eq!(ann.delete("/personal_access_tokens/2").await.code(), 204);
    assert_eq!(session.get("/user").await.code(), 401);
}

#[tokio::test]
async fn a_user_has_200_active_tokens_at_most() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let now = forge.forge.now();
    // In addition to the one that Ann already has.
    forge.in_transaction(|db| {
        for number in 0..198 {
            let digest = model::tokens::Digest::of(&format!("token {number}"));
            let scopes = &[Scope::Api];
            let (user_id, name) = (ann.id, "many");
            let new = store::tokens::NewToken { user_id, name, digest, scopes, expires_at: None, session: false };
            store::tokens::insert(db, &new, now).expect("a token");
        }
    });
    let (last, _) = create(&ann, api("last")).await;
    let refused = ann.post("/personal_access_tokens", api("beyond")).await;
    let text = r#"{"message":{"base":["Maximum number of active tokens (200) reached"]}}"#;
    assert_eq!((refused.code(), refused.text.as_str()), (400, text));
    assert_eq!(ann.delete(&format!("/personal_access_tokens/{last}")).await.code(), 204);
    create(&ann, api("instead")).await;
    // Sessions do not count.
    let answer = forge.anonymous().post("/session", json!({ "login": "ann", "password": PASSWORD })).await;
    assert_eq!(answer.code(), 201);
}

/// Creating and revoking in a loop does not fill the database.
#[tokio::test]
async fn of_revoked_tokens_the_newest_200_are_kept() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        for number in 0..250 {
            let digest = model::tokens::Digest::of(&format!("token {number}"));
            let scopes = &[Scope::Api];
            let (user_id, name) = (ann.id, "old");
            let new = store::tokens::NewToken { user_id, name, digest, scopes, expires_at: None, session: false };
            let token = store::tokens::insert(db, &new, now).expect("a token");
            store::tokens::revoke(db, token.id, now).expect("revoked");
        }
    });
    create(&ann, api("fresh")).await;
    assert_eq!(ann.get("/personal_access_tokens?state=inactive&per_page=1").await.header("x-total"), "200");
    assert_eq!(ann.get("/personal_access_tokens?state=active").await.join_field("name"), "fresh test");
}

#[tokio::test]
async fn a_token_creates_none_that_outlives_it() {
    let forge = TestForge::start().await;
    let (ann, root) = (forge.user("ann").await, forge.admin().await);
    let (_, brief) = create(&ann, json!({ "name": "brief", "scopes": ["api"], "expires_at": "2026-01-04" })).await;
    let body = json!({ "name": "brief", "scopes": ["api"], "expires_at": "2026-01-04" });
    let (_, admins) = create(&root, body).await;
    let others = format!("/users/{}/personal_access_tokens", ann.id);
    let own = format!("/users/{}/personal_access_tokens", root.id);
    let text = r#"{"message":{"expires_at":["must not be later than the expiry of the token that creates it (2026-01-04T00:00:00Z)"]}}"#;
    for (client, path) in [
        (&brief, "/personal_access_tokens"),
        (&admins, "/personal_access_tokens"),
        (&admins, &others),
        (&admins, &own),
        (&admins, "/personal_access_tokens?sudo=ann"),
    ] {
        for day in ["2026-01-05", "2027-01-02"] {
            let refused = client.post(path, json!({ "name": "x", "scopes": ["api"], "expires_at": day })).await;
            assert_eq!((refused.code(), refused.text.as_str()), (400, text), "{path} {day}");
        }
        let created = client.post(path, json!({ "name": "x", "scopes": ["api"], "expires_at": "2026-01-03" })).await;
        assert_eq!((created.code(), &created.json()["expires_at"]), (201, &json!("2026-01-03")), "{path}: {created}");
        let created = client.post(path, api("x")).await;
        assert_eq!((created.code(), &created.json()["expires_at"]), (201, &json!("2026-01-04")), "{path}: {created}");
    }
    forge.clock.advance(SignedDuration::from_hours(45));
    let active = ann.get("/personal_access_tokens?state=active").await;
    assert_eq!(active.join_field("id"), "1", "{active}");
}

#[tokio::test]
async fn a_session_creates_a_token_only_with_the_password() {
    let forge = TestForge::builder().sign_ins_per_minute(8).start().await;
    let (ann, root) = (forge.user("ann").await, forge.admin().await);
    let session = async |name: &str| {
        let answer = forge.anonymous().post("/session", json!({ "login": name, "password": PASSWORD })).await;
        ann.with_token(answer.json()["private_token"].as_str().expect("a token"))
    };
    let root_name = root.get("/user").await.json()["username"].as_str().expect("a name").to_owned();
    let (ann_in, root_in) = (session("ann").await, session(&root_name).await);
    let others = format!("/users/{}/personal_access_tokens", ann.id);
    let with = |password: &str| json!({ "name": "x", "scopes": ["api"], "current_password": password });
    for (client, path) in [(&ann_in, "/personal_access_tokens"), (&root_in, others.as_str())] {
        for body in [api("x"), with("")] {
            let refused = client.post(path, body).await;
            let text = r#"{"message":{"current_password":["can't be blank"]}}"#;
            assert_eq!((refused.code(), refused.text.as_str()), (400, text), "{path}");
        }
        let refused = client.post(path, with("a wrong password")).await;
        let text = r#"{"message":{"current_password":["is invalid"]}}"#;
        assert_eq!((refused.code(), refused.text.as_str()), (400, text), "{path}");
        let created = client.post(path, with(PASSWORD)).await;
        assert_eq!((created.code(), &created.json()["expires_at"]), (201, &json!("2027-01-02")), "{path}: {created}");
    }
    // Attempts count against the sign-in limit.
    for _ in 0..2 {
        assert_eq!(ann_in.post("/personal_access_tokens", with("a wrong password")).await.code(), 400);
    }
    let refused = ann_in.post("/personal_access_tokens", with(PASSWORD)).await;
    assert_eq!((refused.code(), refused.text.as_str()), (429, "Retry later\n"));
    // A personal token needs no password.
    assert_eq!(ann.post("/personal_access_tokens", api("x")).await.code(), 201);
    let names = ann.get("/personal_access_tokens?state=active").await.join_field("name");
    assert_eq!(names.split(' ').filter(|name| *name == "x").count(), 3, "{names}");
}
