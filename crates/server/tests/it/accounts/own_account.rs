//! Changes of users to their own account, and the sessions that end with a password.

use forge::{
    Caller, Error, Unvalidated,
    sessions::{self, PasswordLogin},
    users::{self, UserUpdate},
};
use insta::assert_snapshot;
use model::users::UserChanges;
use serde_json::json;
use testkit::{PASSWORD, TestClient, TestForge};

const NEW: &str = "a new password";

async fn sign_in(forge: &TestForge, login: &str, password: &str) -> Option<TestClient> {
    let anonymous = forge.anonymous();
    let answer = anonymous.post("/session", json!({ "login": login, "password": password })).await;
    answer.json()["private_token"].as_str().map(|token| anonymous.with_token(token))
}

async fn session(forge: &TestForge, login: &str) -> TestClient {
    sign_in(forge, login, PASSWORD).await.expect("signed in")
}

#[tokio::test]
async fn a_user_changes_their_own_profile() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let before = ann.get("/user").await.json();
    let changes = json!({
        "name": "Ann Other", "bio": "Likes trees", "location": "Bern", "skype": "s", "linkedin": "l", "twitter": "t",
        "website_url": "https://ann.example.org", "organization": "Acme", "username": "annie",
    });
    let answer = ann.put("/user", changes.clone()).await;
    assert_eq!(answer.code(), 200, "{answer}");
    let after = answer.json();
    for (field, value) in changes.as_object().expect("an object") {
        assert_eq!(&after[field], value, "{field}");
    }
    assert_eq!(ann.get("/user").await.json(), after);
    // Without the password the address does not change, and neither do the fields for administrators.
    let refused = ann.put("/user", json!({ "email": "other@example.org" })).await;
    assert_snapshot!(refused, @r#"
    400 Bad Request
    {"message":{"current_password":["can't be blank"]}}
    "#);
    let admin_fields = json!({ "admin": true, "projects_limit": 999, "external": true, "can_create_group": false });
    let answer = ann.put("/user", admin_fields).await;
    assert_eq!((answer.code(), answer.json()), (200, after));
    let same = ann.put("/user", json!({ "email": before["email"], "bio": null })).await;
    assert_eq!((same.code(), &same.json()["email"]), (200, &before["email"]));
    let moved = ann.put("/user", json!({ "email": "other@example.org", "current_password": PASSWORD })).await;
    assert_eq!((moved.code(), &moved.json()["email"]), (200, &json!("other@example.org")));
    forge.user("bob").await;
    let taken = ann.put("/user", json!({ "username": "bob" })).await;
    assert_snapshot!(taken, @r#"
    409 Conflict
    {"message":"Username has already been taken"}
    "#);
}

#[tokio::test]
async fn a_new_password_needs_the_current_one() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for (body, text) in [
        (json!({ "password": NEW }), r#"{"message":{"current_password":["can't be blank"]}}"#),
        (json!({ "password": NEW, "current_password": "" }), r#"{"message":{"current_password":["can't be blank"]}}"#),
        (json!({ "password": NEW, "current_password": NEW }), r#"{"message":{"current_password":["is invalid"]}}"#),
        (
            json!({ "password": "short", "current_password": PASSWORD }),
            r#"{"message":{"password":["is too short (minimum is 8 characters)"]}}"#,
        ),
    ] {
        let answer = ann.put("/user", body.clone()).await;
        assert_eq!((answer.code(), answer.text.as_str()), (400, text), "{body}");
    }
    assert!(sign_in(&forge, "ann", PASSWORD).await.is_some());
    let reading = forge.client_with_token(&ann, &[model::Scope::ReadUser], None).await;
    let change = json!({ "password": NEW, "current_password": PASSWORD });
    assert_eq!(reading.put("/user", change.clone()).await.code(), 401);
    let answer = ann.put("/user", change).await;
    assert_eq!((answer.code(), &answer.json()["username"]), (200, &json!("ann")));
    assert!(sign_in(&forge, "ann", PASSWORD).await.is_none());
    assert!(sign_in(&forge, "ann", NEW).await.is_some());
    // An administrator who acts as the user needs the user's password as well.
    let root = forge.admin().await;
    let refused = root.put("/user?sudo=ann", json!({ "password": PASSWORD, "current_password": PASSWORD })).await;
    assert_eq!(refused.text, r#"{"message":{"current_password":["is invalid"]}}"#);
}

#[tokio::test]
async fn guessing_the_current_password_is_limited_as_signing_in_is() {
    let forge = TestForge::builder().sign_ins_per_minute(3).start().await;
    let ann = forge.user("ann").await;
    let guess = json!({ "password": NEW, "current_password": "a guess" });
    for _ in 0..3 {
        assert_eq!(ann.put("/user", guess.clone()).await.code(), 400);
    }
    assert_snapshot!(ann.put("/user", guess).await, @"
    429 Too Many Requests
    Retry later
    ");
    // Changes without a password are not limited.
    assert_eq!(ann.put("/user", json!({ "bio": "x" })).await.code(), 200);
    // Both count against the same limit.
    let refused = forge.anonymous().post("/session", json!({ "login": "ann", "password": PASSWORD })).await;
    assert_eq!(refused.code(), 429);
}

#[tokio::test]
async fn a_new_password_ends_sessions_and_keeps_personal_tokens() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let (one, two, other) = (session(&forge, "ann").await, session(&forge, "ann").await, session(&forge, "bob").await);
    let created = one
        .post("/personal_access_tokens", json!({ "name": "by hand", "scopes": ["api"], "current_password": PASSWORD }))
        .await;
    let by_hand = one.with_token(created.json()["token"].as_str().expect("a token"));
    let change = json!({ "password": NEW, "current_password": PASSWORD });
    assert_eq!(two.put("/user", change).await.code(), 200);
    // The session that made the change stays valid; the other one, cached responses included, is over.
    assert_eq!((one.get("/user").await.code(), two.get("/user").await.code()), (401, 200));
    for client in [&ann, &by_hand, &other, &bob] {
        assert_eq!(client.get("/user").await.code(), 200);
    }
    let list = ann.get("/personal_access_tokens").await;
    assert_eq!(list.join_field("name"), "by hand session session test");
    assert_eq!(list.join_field("active"), "true true false true");
    assert_eq!(list.join_field("session"), "false true true false");
    // A change with a personal token ends every session.
    let change = json!({ "password": PASSWORD, "current_password": NEW });
    assert_eq!(ann.put("/user", change).await.code(), 200);
    assert_eq!((two.get("/user").await.code(), by_hand.get("/user").await.code()), (401, 200));
}

#[tokio::test]
async fn a_password_set_by_an_administrator_ends_the_sessions_of_the_user() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let (one, of_root) = (session(&forge, "ann").await, session(&forge, "root").await);
    let path = format!("/users/{}", ann.id);
    assert_eq!(root.put(&path, json!({ "name": "Ann" })).await.code(), 200);
    assert_eq!(one.get("/user").await.code(), 200);
    assert_eq!(root.put(&path, json!({ "password": NEW })).await.code(), 200);
    assert_eq!(one.get("/user").await.text, r#"{"message":"401 Unauthorized"}"#);
    assert_eq!((ann.get("/user").await.code(), of_root.get("/user").await.code()), (200, 200));
    // An administrator who sets their own password keeps the current session as well.
    let idle = session(&forge, "root").await;
    assert_eq!(of_root.put(&format!("/users/{}", root.id), json!({ "password": NEW })).await.code(), 200);
    assert_eq!((of_root.get("/user").await.code(), idle.get("/user").await.code()), (200, 401));
}

#[tokio::test]
async fn a_block_ends_sessions_and_an_unblock_brings_none_back() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let one = session(&forge, "ann").await;
    assert_eq!(one.get("/user").await.code(), 200);
    let (block, unblock) = (format!("/users/{}/block", ann.id), format!("/users/{}/unblock", ann.id));
    assert_eq!(root.put(&block, json!({})).await.code(), 200);
    assert_eq!((one.get("/user").await.code(), ann.get("/user").await.code()), (401, 401));
    assert_eq!(root.put(&unblock, json!({})).await.code(), 200);
    assert_eq!((one.get("/user").await.code(), ann.get("/user").await.code()), (401, 200));
}

#[tokio::test]
async fn a_demoted_administrator_loses_the_permissions_of_all_tokens() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let path = format!("/users/{}", ann.id);
    assert_eq!(root.put(&path, json!({ "admin": true })).await.code(), 200);
    let one = session(&forge, "ann").await;
    for client in [&ann, &one] {
        assert_eq!(client.get("/projects/all").await.code(), 200);
        assert_eq!(client.get("/user?sudo=root").await.json()["username"], "root");
    }
    assert_eq!(root.put(&path, json!({ "admin": false })).await.code(), 200);
    for client in [&ann, &one] {
        assert_eq!(client.get("/projects/all").await.code(), 403);
        let refused = client.get("/user?sudo=root").await;
        assert_eq!(refused.text, r#"{"message":"403 Forbidden  - Must be admin to use sudo"}"#);
        assert_eq!(client.get("/user").await.json()["is_admin"], false);
    }
}

#[tokio::test]
async fn a_password_that_changes_during_verification_is_rejected() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let credentials = Unvalidated::valid(PasswordLogin { login: "ann".into(), password: PASSWORD.into() });
    let check = forge.forge.run_blocking(Caller::anonymous(), move |cx| sessions::verify_password(cx, &credentials));
    let signed_in = check.await.expect("the right password");
    let edit = Unvalidated::valid(UserUpdate { changes: UserChanges::default(), password: Some(NEW.into()) });
    let ready = forge.forge.run_blocking(Caller::system(), move |cx| users::prepare_update(cx, ann.id, &edit)).await;
    let ready = ready.expect("a good edit");
    forge.forge.write(Caller::system(), move |tx| users::update(tx, ann.id, &ready)).await.expect("changed");
    let caller = signed_in.caller();
    let read = forge.forge.read(caller.clone(), users::current).await;
    assert!(matches!(read, Err(Error::Unauthenticated)));
    let created = forge.forge.write(caller, move |tx| sessions::create(tx, &signed_in)).await;
    assert!(matches!(created, Err(Error::Unauthenticated)));
}
