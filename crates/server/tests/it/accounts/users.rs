//! Users, as administrators and others see and change them.

use api::Dialect;
use insta::assert_snapshot;
use model::UserState;
use serde_json::json;
use testkit::TestForge;

fn ann() -> serde_json::Value {
    json!({ "email": "ann@example.org", "password": "12345678", "username": "ann", "name": "Ann Lee" })
}

#[tokio::test]
async fn an_administrator_creates_a_user_with_everything() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let body = json!({
        "email": " Ann@Example.ORG ", "password": "12345678", "username": "ann", "name": "Ann <b>Lee</b>",
        "skype": "ann.s", "linkedin": "ann.l", "twitter": "ann.t", "website_url": "https://ann.example.org",
        "organization": "Acme", "extern_uid": "4711", "provider": "directory", "bio": "Likes trees",
        "location": "Bern", "projects_limit": 5, "admin": true, "can_create_group": false, "confirm": "false",
        "unknown": "ignored",
    });
    assert_snapshot!(root.post("/users", body).await, @r#"
    201 Created
    {"name":"Ann Lee","username":"ann","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann","created_at":"2026-01-02T03:04:05.678Z","is_admin":true,"bio":"Likes trees","location":"Bern","skype":"ann.s","linkedin":"ann.l","twitter":"ann.t","website_url":"https://ann.example.org","organization":"Acme","last_sign_in_at":null,"confirmed_at":"2026-01-02T03:04:05.678Z","email":"ann@example.org","theme_id":2,"color_scheme_id":1,"projects_limit":5,"current_sign_in_at":null,"identities":[{"provider":"directory","extern_uid":"4711"}],"can_create_group":false,"can_create_project":true,"two_factor_enabled":false,"external":false}
    "#);
}

#[tokio::test]
async fn a_new_user_has_the_defaults() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    assert_snapshot!(root.post("/users", ann()).await, @r#"
    201 Created
    {"name":"Ann Lee","username":"ann","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann","created_at":"2026-01-02T03:04:05.678Z","is_admin":false,"bio":null,"location":null,"skype":"","linkedin":"","twitter":"","website_url":"","organization":"","last_sign_in_at":null,"confirmed_at":"2026-01-02T03:04:05.678Z","email":"ann@example.org","theme_id":2,"color_scheme_id":1,"projects_limit":10,"current_sign_in_at":null,"identities":[],"can_create_group":true,"can_create_project":true,"two_factor_enabled":false,"external":false}
    "#);
}

#[tokio::test]
async fn an_external_user_creates_nothing() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let mut body = ann();
    body["external"] = json!("yes");
    body["projects_limit"] = json!(7);
    let created = root.post("/users", body).await.json();
    assert_eq!(created["external"], true);
    assert_eq!(created["projects_limit"], 0);
    assert_eq!(created["can_create_group"], false);
    assert_eq!(created["can_create_project"], false);
    let raised = root.put("/users/2", json!({ "projects_limit": 9, "can_create_group": true })).await.json();
    assert_eq!((&raised["projects_limit"], &raised["can_create_group"]), (&json!(0), &json!(false)));
    let raised = root.put("/users/2", json!({ "external": false, "projects_limit": 3 })).await.json();
    assert_eq!((&raised["external"], &raised["projects_limit"]), (&json!(false), &json!(3)));
}

#[tokio::test]
async fn all_errors_are_reported_at_once() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    assert_snapshot!(root.post("/users", json!({})).await, @r#"
    400 Bad Request
    {"error":"email is missing, password is missing, username is missing, name is missing"}
    "#);
    assert_snapshot!(root.post("/users", json!({ "email": "x", "admin": "perhaps", "extern_uid": "1" })).await, @r#"
    400 Bad Request
    {"error":"password is missing, username is missing, name is missing, admin is invalid, extern_uid, provider provide all or none of parameters"}
    "#);
    let wrong = json!({
        "email": "nowhere", "password": "short", "username": "-ann", "name": "", "projects_limit": -1,
        "bio": "x".repeat(256),
    });
    assert_snapshot!(root.post("/users", wrong).await, @r#"
    400 Bad Request
    {"message":{"email":["is invalid"],"name":["can't be blank"],"username":["can contain only letters, digits, '_', '-' and '.'. Cannot start with '-' or end in '.', '.git' or '.atom'."],"projects_limit":["must be greater than or equal to 0"],"bio":["is too long (maximum is 255 characters)"],"password":["is too short (minimum is 8 characters)"]}}
    "#);
    let reserved = json!({ "email": "a@b", "password": "12345678", "username": "Admin", "name": "A" });
    assert_snapshot!(root.post("/users", reserved).await, @r#"
    400 Bad Request
    {"message":{"username":["Admin is a reserved name"]}}
    "#);
    let overlong = json!({ "email": "a@b", "password": "x".repeat(129), "username": "a", "name": "n".repeat(256) });
    assert_snapshot!(root.post("/users", overlong).await, @r#"
    400 Bad Request
    {"message":{"name":["is too long (maximum is 255 characters)"],"password":["is too long (maximum is 128 characters)"]}}
    "#);
    assert_eq!(root.get("/users").await.header("x-total"), "1");
}

#[tokio::test]
async fn a_taken_name_or_address_is_a_conflict() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    root.post("/users", ann()).await;
    root.post("/users/2/emails", json!({ "email": "second@example.org" })).await;
    let with = |email: &str, username: &str| json!({ "email": email, "password": "12345678", "username": username, "name": "N" });
    assert_snapshot!(root.post("/users", with("ANN@example.org", "other")).await, @r#"
    409 Conflict
    {"message":"Email has already been taken"}
    "#);
    assert_snapshot!(root.post("/users", with("other@example.org", "ann")).await, @r#"
    409 Conflict
    {"message":"Username has already been taken"}
    "#);
    assert_snapshot!(root.post("/users", with("other@example.org", "ANN")).await, @r#"
    400 Bad Request
    {"message":{"username":["has already been taken"]}}
    "#);
    assert_snapshot!(root.post("/users", with("second@example.org", "other")).await, @r#"
    400 Bad Request
    {"message":{"email":["has already been taken"]}}
    "#);
    let all = json!({ "email": "second@example.org", "password": "short", "username": "-x", "name": "N" });
    let expected = json!({
        "username": ["can contain only letters, digits, '_', '-' and '.'. Cannot start with '-' or end in '.', '.git' or '.atom'."],
        "password": ["is too short (minimum is 8 characters)"],
        "email": ["has already been taken"],
    });
    assert_eq!(root.post("/users", all).await.json(), json!({ "message": expected }));
    let identity = |username: &str| {
        let mut body = with(&format!("{username}@x"), username);
        body["provider"] = json!("directory");
        body["extern_uid"] = json!("1");
        body
    };
    assert_eq!(root.post("/users", identity("bob")).await.code(), 201);
    assert_snapshot!(root.post("/users", identity("eve")).await, @r#"
    400 Bad Request
    {"message":{"identities.extern_uid":["has already been taken"]}}
    "#);
}

#[tokio::test]
async fn users_see_each_other_in_three_forms() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(ann.get("/users").await, @r#"
    200 OK
    [{"name":"ann","username":"ann","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},{"name":"root","username":"root","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/0a5cf7b99ae76577.svg","web_url":"http://gable.test/root"}]
    "#);
    assert_snapshot!(ann.get("/users/1").await, @r#"
    200 OK
    {"name":"root","username":"root","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/0a5cf7b99ae76577.svg","web_url":"http://gable.test/root","created_at":"2026-01-02T03:04:05.678Z","is_admin":true,"bio":null,"location":null,"skype":"","linkedin":"","twitter":"","website_url":"","organization":""}
    "#);
    assert_snapshot!(ann.get(&format!("/users/{}", ann.id)).await, @r#"
    200 OK
    {"name":"ann","username":"ann","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann","created_at":"2026-01-02T03:04:05.678Z","is_admin":false,"bio":null,"location":null,"skype":"","linkedin":"","twitter":"","website_url":"","organization":""}
    "#);
    let full = root.get(&format!("/users/{}", ann.id)).await;
    assert_eq!(full.json(), ann.get("/user").await.json());
    assert_eq!(full.json(), root.get("/users").await.json()[0]);
    assert_eq!(full.json()["email"], "ann@example.org");
    assert_snapshot!(ann.get("/users/999").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(ann.get("/users/ann").await, @r#"
    404 Not Found
    {"error":"404 Not Found"}
    "#);
}

#[tokio::test]
async fn a_list_is_filtered_and_newest_come_first() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let eve = forge.external("eve").await;
    root.put(&format!("/users/{}/block", bob.id), json!({})).await;
    forge.with_connection(|db| {
        store::users::set_state(db, eve.id, UserState::LdapBlocked, model::Time::UNIX_EPOCH).expect("set");
    });
    root.put(&format!("/users/{}", ann.id), json!({ "name": "Änne Öz" })).await;
    root.put(&format!("/users/{}", bob.id), json!({ "name": "50%_Bob" })).await;
    let names = async |query: &str| root.get(&format!("/users?{query}")).await.join_field("username");
    assert_eq!(names("").await, "eve bob ann root");
    assert_eq!(names("active=true").await, "ann root");
    assert_eq!(names("blocked=true").await, "eve bob");
    assert_eq!(names("active=false&blocked=false").await, "eve bob ann root");
    assert_eq!(names("active=true&blocked=true").await, "");
    assert_eq!(names("external=true").await, "eve");
    assert_eq!(names("username=ann").await, "ann");
    assert_eq!(names("username=ANN").await, "");
    assert_eq!(names("username=ann&blocked=true").await, "ann");
    assert_eq!(names("search=ROO").await, "root");
    assert_eq!(names("search=%C3%A4nne+%C3%B6").await, "ann");
    assert_eq!(names("search=example.org").await, "eve bob ann root");
    assert_eq!(names("search=%25").await, "bob");
    assert_eq!(names("search=_").await, "bob");
    assert_eq!(names("search=%5C").await, "");
    assert_eq!(names("search=").await, "eve bob ann root");
    assert_snapshot!(root.get("/users?active=perhaps").await, @r#"
    400 Bad Request
    {"error":"active is invalid"}
    "#);
}

#[tokio::test]
async fn other_users_cannot_guess_addresses_by_searching() {
    let forge = TestForge::start().await;
    forge.admin().await;
    let ann = forge.user("ann").await;
    assert_eq!(ann.get("/users?search=example").await.join_field("username"), "");
    assert_eq!(ann.get("/users?search=root@example.org").await.join_field("username"), "root");
    assert_eq!(ann.get("/users?external=true").await.join_field("username"), "ann root");
}

#[tokio::test]
async fn an_update_changes_only_the_given_fields() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    root.post("/users", ann()).await;
    let before = root.get("/users/2").await.json();
    assert_eq!(root.put("/users/2", json!({})).await.json(), before);
    let changes = json!({
        "name": "Anna", "username": "anna", "email": "anna@example.org", "bio": "x", "location": "Rome",
        "skype": "s", "linkedin": "l", "twitter": "t", "website_url": "w", "organization": "o", "projects_limit": 3,
        "can_create_group": false, "admin": true, "external": null, "provider": "p", "extern_uid": "u",
    });
    assert_snapshot!(root.put("/users/2", changes).await, @r#"
    200 OK
    {"name":"Anna","username":"anna","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/5e74372c8de63439.svg","web_url":"http://gable.test/anna","created_at":"2026-01-02T03:04:05.678Z","is_admin":true,"bio":"x","location":"Rome","skype":"s","linkedin":"l","twitter":"t","website_url":"w","organization":"o","last_sign_in_at":null,"confirmed_at":"2026-01-02T03:04:05.678Z","email":"anna@example.org","theme_id":2,"color_scheme_id":1,"projects_limit":3,"current_sign_in_at":null,"identities":[{"provider":"p","extern_uid":"u"}],"can_create_group":false,"can_create_project":true,"two_factor_enabled":false,"external":false}
    "#);
    let cleared = json!({
        "name": "", "username": "", "email": "", "password": "", "bio": "", "location": "", "skype": "",
        "linkedin": "", "twitter": "", "website_url": "", "organization": "", "extern_uid": "v", "provider": "p",
    });
    assert_snapshot!(root.put("/users/2", cleared).await, @r#"
    200 OK
    {"name":"Anna","username":"anna","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/5e74372c8de63439.svg","web_url":"http://gable.test/anna","created_at":"2026-01-02T03:04:05.678Z","is_admin":true,"bio":null,"location":null,"skype":"","linkedin":"","twitter":"","website_url":"","organization":"","last_sign_in_at":null,"confirmed_at":"2026-01-02T03:04:05.678Z","email":"anna@example.org","theme_id":2,"color_scheme_id":1,"projects_limit":3,"current_sign_in_at":null,"identities":[{"provider":"p","extern_uid":"v"}],"can_create_group":false,"can_create_project":true,"two_factor_enabled":false,"external":false}
    "#);
    assert_snapshot!(root.put("/users/2", json!({ "email": "x", "password": "short" })).await, @r#"
    400 Bad Request
    {"message":{"email":["is invalid"],"password":["is too short (minimum is 8 characters)"]}}
    "#);
    assert_snapshot!(root.put("/users/77", json!({ "name": "x" })).await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_eq!(root.get("/users/2").await.json()["email"], "anna@example.org");
}

#[tokio::test]
async fn the_dialect_decides_the_status_of_a_conflicting_update() {
    for (dialect, status) in [(Dialect::Spec, 404), (Dialect::Gitlab, 409)] {
        let forge = TestForge::builder().dialect(dialect).start().await;
        let root = forge.admin().await;
        let ann = forge.user("ann").await;
        forge.user("bob").await;
        let path = format!("/users/{}", ann.id);
        let answer = root.put(&path, json!({ "email": "bob@example.org" })).await;
        assert_eq!((answer.code(), answer.json()), (status, json!({ "message": "Email has already been taken" })));
        let answer = root.put(&path, json!({ "username": "bob" })).await;
        assert_eq!((answer.code(), answer.json()), (status, json!({ "message": "Username has already been taken" })));
        let answer = root.put(&path, json!({ "username": "BOB" })).await;
        let taken = json!({ "message": { "username": ["has already been taken"] } });
        assert_eq!((answer.code(), answer.json()), (400, taken));
        let same = root.put(&path, json!({ "username": "ann", "email": "ann@example.org" })).await;
        assert_eq!(same.code(), 200);
        assert_eq!(root.put(&path, json!({ "username": "Ann" })).await.json()["username"], "Ann");
    }
}

#[tokio::test]
async fn a_secondary_address_becomes_the_primary_one() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    ann.post("/user/emails", json!({ "email": "new@example.org" })).await;
    let path = format!("/users/{}", ann.id);
    assert_eq!(root.put(&path, json!({ "email": "new@example.org" })).await.json()["email"], "new@example.org");
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "ann@example.org");
    // The removed address is free for others.
    root.put(&path, json!({ "email": "third@example.org" })).await;
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "ann@example.org");
    assert_eq!(root.post("/user/emails", json!({ "email": "new@example.org" })).await.code(), 201);
}

#[tokio::test]
async fn a_renamed_user_frees_the_old_name() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    root.put(&format!("/users/{}", ann.id), json!({ "username": "anna" })).await;
    let again = json!({ "email": "x@y", "password": "12345678", "username": "ann", "name": "N" });
    assert_eq!(root.post("/users", again.clone()).await.code(), 201);
    let taken = json!({ "email": "z@y", "password": "12345678", "username": "ANNA", "name": "N" });
    assert_eq!(
        root.post("/users", taken).await.json(),
        json!({ "message": { "username": ["has already been taken"] } })
    );
}

#[tokio::test]
async fn deleting_a_user_deletes_all_their_data() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    ann.post("/user/emails", json!({ "email": "more@example.org" })).await;
    let path = format!("/users/{}", ann.id);
    let deleted = root.delete(&path).await;
    assert_eq!((deleted.code(), &deleted.json()["email"]), (200, &json!("ann@example.org")));
    assert_eq!(ann.get("/user").await.code(), 401);
    assert_eq!(root.get(&path).await.code(), 404);
    let again = json!({ "email": "more@example.org", "password": "12345678", "username": "ann", "name": "N" });
    let created = root.post("/users", again).await;
    assert_eq!(created.code(), 201);
    assert_ne!(created.json()["id"], ann.id.get(), "a number is never given twice");
}

#[tokio::test]
async fn the_dialect_decides_the_response_to_deleting_a_missing_user() {
    let forge = TestForge::start().await;
    assert_snapshot!(forge.admin().await.delete("/users/99").await, @"
    200 OK
    null
    ");
    let forge = TestForge::builder().dialect(Dialect::Gitlab).start().await;
    assert_snapshot!(forge.admin().await.delete("/users/99").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
}

#[tokio::test]
async fn a_blocked_user_cannot_sign_in_until_unblocked() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let (block, unblock) = (format!("/users/{}/block", ann.id), format!("/users/{}/unblock", ann.id));
    for _ in 0..2 {
        assert_eq!(root.put(&block, json!({})).await.to_string(), "200 OK\ntrue");
        assert_eq!(ann.get("/user").await.to_string(), "401 Unauthorized\n{\"message\":\"401 Unauthorized\"}");
    }
    assert_eq!(root.get(&format!("/users/{}", ann.id)).await.json()["state"], "blocked");
    for _ in 0..2 {
        assert_eq!(root.put(&unblock, json!({})).await.to_string(), "200 OK\ntrue");
        assert_eq!(ann.get("/user").await.json()["state"], "active");
    }
    assert_snapshot!(root.put("/users/99/block", json!({})).await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(root.put("/users/99/unblock", json!({})).await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
}

#[tokio::test]
async fn a_user_blocked_by_ldap_cannot_be_unblocked_by_the_api() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    forge.with_connection(|db| {
        store::users::set_state(db, ann.id, UserState::LdapBlocked, model::Time::UNIX_EPOCH).expect("set");
    });
    assert_eq!(ann.get("/user").await.code(), 401);
    assert_snapshot!(root.put(&format!("/users/{}/block", ann.id), json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - LDAP blocked users cannot be modified by the API"}
    "#);
    assert_snapshot!(root.put(&format!("/users/{}/unblock", ann.id), json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - LDAP blocked users cannot be unblocked by the API"}
    "#);
    assert_eq!(root.get(&format!("/users/{}", ann.id)).await.json()["state"], "ldap_blocked");
}

#[tokio::test]
async fn the_last_administrator_cannot_be_removed() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(root.delete("/users/1").await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - Cannot remove the last administrator"}
    "#);
    assert_snapshot!(root.put("/users/1/block", json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - Cannot block the last administrator"}
    "#);
    assert_snapshot!(root.put("/users/1", json!({ "admin": false })).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - Cannot demote the last administrator"}
    "#);
    root.put(&format!("/users/{}", ann.id), json!({ "admin": true })).await;
    assert_eq!(root.put("/users/1", json!({ "admin": false })).await.json()["is_admin"], false);
    assert_eq!(ann.delete("/users/1").await.code(), 200);
}

#[tokio::test]
async fn a_users_events_are_an_empty_list_for_now() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let events = ann.get(&format!("/users/{}/events", root.id)).await;
    assert_eq!((events.to_string().as_str(), events.header("x-total")), ("200 OK\n[]", "0"));
    assert_snapshot!(ann.get("/users/99/events").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
}

/// Mass assignment: fields for administrators have no effect when other users send them.
#[tokio::test]
async fn a_user_cannot_change_their_own_privileges() {
    let forge = TestForge::start().await;
    forge.admin().await;
    let ann = forge.user("ann").await;
    let before = ann.get("/user").await.json();
    let protected_fields =
        json!({ "admin": true, "id": 1, "user_id": 1, "projects_limit": 999, "external": false, "confirm": false });
    assert_snapshot!(ann.put(&format!("/users/{}", ann.id), protected_fields.clone()).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    assert_eq!(ann.get("/user").await.json(), before);
    let mut email = protected_fields.clone();
    email["email"] = json!("more@example.org");
    assert_eq!(ann.post("/user/emails", email).await.code(), 201);
    let mut key = protected_fields;
    key["title"] = json!("k");
    key["key"] = json!(crate::accounts::keys::ED25519);
    assert_eq!(ann.post("/user/keys", key).await.code(), 201);
    assert_eq!(ann.get("/user").await.json(), before);
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "more@example.org");
    assert_eq!(ann.get("/user/keys").await.join_field("title"), "k");
}
