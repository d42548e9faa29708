//! Email addresses of users.

use api::Dialect;
use insta::assert_snapshot;
use serde_json::json;
use testkit::TestForge;

#[tokio::test]
async fn a_user_manages_secondary_addresses() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(ann.get("/user/emails").await, @"
    200 OK
    []
    ");
    assert_snapshot!(ann.post("/user/emails", json!({ "email": " Second@Example.org " })).await, @r#"
    201 Created
    {"id":2,"email":"second@example.org"}
    "#);
    assert_snapshot!(ann.post("/user/emails", json!({ "email": "third@example.org" })).await, @r#"
    201 Created
    {"id":3,"email":"third@example.org"}
    "#);
    assert_snapshot!(ann.get("/user/emails").await, @r#"
    200 OK
    [{"id":3,"email":"third@example.org"},{"id":2,"email":"second@example.org"}]
    "#);
    assert_snapshot!(ann.get("/user/emails/2").await, @r#"
    200 OK
    {"id":2,"email":"second@example.org"}
    "#);
    assert_snapshot!(ann.delete("/user/emails/2").await, @r#"
    200 OK
    {"id":2,"email":"second@example.org"}
    "#);
    assert_snapshot!(ann.delete("/user/emails/2").await, @"
    200 OK
    null
    ");
    assert_snapshot!(ann.get("/user/emails/2").await, @r#"
    404 Not Found
    {"message":"404 Email Not Found"}
    "#);
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "third@example.org");
}

#[tokio::test]
async fn an_invalid_or_taken_address_is_rejected() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    bob.post("/user/emails", json!({ "email": "more@example.org" })).await;
    assert_snapshot!(ann.post("/user/emails", json!({})).await, @r#"
    400 Bad Request
    {"error":"email is missing"}
    "#);
    assert_snapshot!(ann.post("/user/emails", json!({ "email": "" })).await, @r#"
    400 Bad Request
    {"message":{"email":["can't be blank"]}}
    "#);
    assert_snapshot!(ann.post("/user/emails", json!({ "email": "nowhere" })).await, @r#"
    400 Bad Request
    {"message":{"email":["is invalid"]}}
    "#);
    for taken in ["ann@example.org", "bob@example.org", "MORE@example.org"] {
        let answer = ann.post("/user/emails", json!({ "email": taken })).await;
        let expected = json!({ "message": { "email": ["has already been taken"] } });
        assert_eq!((answer.code(), answer.json()), (400, expected), "{taken}");
    }
    let overlong = format!("{}@x", "a".repeat(300));
    assert_snapshot!(ann.post("/user/emails", json!({ "email": overlong })).await, @r#"
    400 Bad Request
    {"message":{"email":["is too long (maximum is 255 characters)"]}}
    "#);
    assert_eq!(ann.get("/user/emails").await.text, "[]");
}

#[tokio::test]
async fn an_address_that_cannot_be_added_to_another_user_is_a_400_in_the_dialect_gitlab() {
    let forge = TestForge::builder().dialect(Dialect::Gitlab).start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let refused = root.post(&format!("/users/{}/emails", ann.id), json!({ "email": "nowhere" })).await;
    assert_snapshot!(refused, @r#"
    400 Bad Request
    {"message":{"email":["is invalid"]}}
    "#);
}

#[tokio::test]
async fn an_administrator_manages_the_addresses_of_others() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let path = format!("/users/{}/emails", ann.id);
    assert_snapshot!(root.post(&path, json!({ "email": "more@example.org" })).await, @r#"
    201 Created
    {"id":3,"email":"more@example.org"}
    "#);
    assert_eq!(root.get(&path).await.join_field("email"), "more@example.org");
    assert_snapshot!(root.post(&path, json!({ "email": "more@example.org" })).await, @r#"
    404 Not Found
    {"message":{"email":["has already been taken"]}}
    "#);
    assert_snapshot!(root.post(&path, json!({ "email": "nowhere" })).await, @r#"
    404 Not Found
    {"message":{"email":["is invalid"]}}
    "#);
    assert_snapshot!(root.post("/users/99/emails", json!({})).await, @r#"
    400 Bad Request
    {"error":"email is missing"}
    "#);
    assert_snapshot!(root.post("/users/99/emails", json!({ "email": "x@y" })).await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(root.get("/users/99/emails").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(root.delete(&format!("{path}/99")).await, @r#"
    404 Not Found
    {"message":"404 Email Not Found"}
    "#);
    assert_snapshot!(root.delete("/users/99/emails/3").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(root.delete(&format!("{path}/3")).await, @r#"
    200 OK
    {"id":3,"email":"more@example.org"}
    "#);
    assert_eq!(ann.get("/user/emails").await.text, "[]");
}

/// The primary address is not in the list, and its ID is not found either.
#[tokio::test]
async fn the_primary_address_cannot_be_listed_or_deleted() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_eq!(ann.get("/user/emails/1").await.code(), 404);
    assert_eq!(ann.delete("/user/emails/1").await.text, "null");
    assert_eq!(ann.get("/user").await.json()["email"], "ann@example.org");
    let again = ann.post("/user/emails", json!({ "email": "ann@example.org" })).await;
    assert_eq!(again.json(), json!({ "message": { "email": ["has already been taken"] } }));
}

/// Another user's addresses and keys cannot be read, changed or removed.
#[tokio::test]
async fn email_addresses_of_other_users_cannot_be_accessed() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let eve = forge.user("eve").await;
    let id = ann.post("/user/emails", json!({ "email": "more@example.org" })).await.json()["id"].clone();
    let of_ann = format!("/users/{}/emails", ann.id);
    assert_eq!(eve.get(&format!("/user/emails/{id}")).await.code(), 404);
    assert_eq!(eve.delete(&format!("/user/emails/{id}")).await.to_string(), "200 OK\nnull");
    assert_eq!(eve.get(&of_ann).await.code(), 403);
    assert_eq!(eve.post(&of_ann, json!({ "email": "evil@example.org" })).await.code(), 403);
    assert_eq!(eve.delete(&format!("{of_ann}/{id}")).await.code(), 403);
    // Administrators have to give the right user as well.
    assert_eq!(root.delete(&format!("/users/{}/emails/{id}", eve.id)).await.code(), 404);
    assert_eq!(root.get(&format!("/user/emails/{id}")).await.code(), 404);
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "more@example.org");
}

#[tokio::test]
async fn the_dialect_decides_whether_a_list_is_paginated() {
    for (dialect, shown) in [(Dialect::Spec, 20), (Dialect::Gitlab, 25)] {
        let forge = TestForge::builder().dialect(dialect).start().await;
        let ann = forge.user("ann").await;
        for number in 0..25 {
            ann.post("/user/emails", json!({ "email": format!("a{number}@example.org") })).await;
        }
        let list = ann.get("/user/emails").await;
        assert_eq!(list.json().as_array().expect("a list").len(), shown);
        assert_eq!(list.header("x-total"), "25");
        let page = ann.get("/user/emails?per_page=10&page=3").await;
        assert_eq!(
            page.join_field("email"),
            "a4@example.org a3@example.org a2@example.org a1@example.org a0@example.org"
        );
        assert_eq!((page.header("x-total-pages"), page.header("x-next-page")), ("3", ""));
    }
}
