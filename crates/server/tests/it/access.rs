//! Every route, asked by everybody: the table of who gets what.

use std::fmt::Write as _;

use axum::http::Method;
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{Scope, UserState};
use serde_json::{Value, json};
use testkit::{Client, TestForge};

const CALLERS: [&str; 12] = [
    "anonymous",
    "wrong",
    "expired",
    "revoked",
    "blocked",
    "directory",
    "read_user",
    "external",
    "ordinary",
    "owner",
    "sudo",
    "admin",
];

/// A forge with one of each, and things to reach for: user 2 has address 3 and key 1.
async fn caller(forge: &TestForge, name: &str) -> Client {
    let root = forge.admin().await;
    let owner = forge.user("owner").await;
    owner.post("/user/emails", json!({ "email": "more@example.org" })).await;
    owner.post("/user/keys", json!({ "title": "k", "key": crate::keys::ED25519 })).await;
    let now = forge.forge.now();
    match name {
        "anonymous" => forge.anonymous(),
        "wrong" => forge.anonymous().showing("abcdefghijklmnopqrst"),
        "expired" => {
            let brief = forge.with_token(&root, &[Scope::Api], Some(now + SignedDuration::from_secs(1))).await;
            forge.clock.advance(SignedDuration::from_secs(2));
            brief
        }
        "revoked" => {
            forge.forge.write(forge::Caller::system(), |it| forge::tokens::revoke(it, 1)).await.expect("revoked");
            root
        }
        "blocked" | "directory" => {
            let state = if name == "blocked" { UserState::Blocked } else { UserState::DirectoryBlocked };
            let second = forge.user("second").await;
            root.put(&format!("/users/{}", second.id), json!({ "admin": true })).await;
            forge.behind_the_back(|db| store::users::set_state(db, second.id, state, now).expect("set"));
            second
        }
        "read_user" => forge.with_token(&root, &[Scope::ReadUser], None).await,
        "external" => forge.external("ext").await,
        "ordinary" => forge.user("ann").await,
        "owner" => owner,
        "sudo" | "admin" => root,
        other => panic!("no caller {other}"),
    }
}

/// A body with which the route would succeed, if it lets the caller in.
fn body(method: &Method, path: &str) -> Value {
    match (method.as_str(), path) {
        ("POST", "/users") => json!({ "email": "n@x", "password": "12345678", "username": "fresh", "name": "N" }),
        ("PUT", "/users/{id}") => json!({ "name": "Other" }),
        ("POST", path) if path.ends_with("/keys") => json!({ "title": "k", "key": crate::keys::OTHER }),
        ("POST", path) if path.ends_with("/emails") => json!({ "email": "fresh@example.org" }),
        ("POST", "/session") => json!({ "login": "owner", "password": testkit::PASSWORD }),
        _ => json!({}),
    }
}

fn concrete(path: &str) -> String {
    let id = if path.contains("/keys/") {
        "1"
    } else if path.contains("/emails/") {
        "3"
    } else {
        "2"
    };
    path.replace("{uid}", "2").replace("{id}", id)
}

/// Lesson 13: no route is open that nobody meant to open. A new route fails this test until its row is reviewed.
#[tokio::test(flavor = "multi_thread")]
async fn lesson_13_the_access_table() {
    let routes = api::routes::v3();
    let mut columns = Vec::new();
    for name in CALLERS {
        let mut column = Vec::new();
        let mut fresh = None;
        for route in &routes {
            let (forge, client) = if let Some(fresh) = fresh.take() {
                fresh
            } else {
                let forge = TestForge::start().await;
                let client = caller(&forge, name).await;
                (forge, client)
            };
            let mut body = body(&route.method, route.path);
            if name == "sudo" {
                body["sudo"] = json!("owner");
            }
            let answer = client.json(route.method.clone(), &concrete(route.path), body).await;
            column.push(answer.code());
            // What was changed does not meet the next route.
            if route.method == Method::GET || !answer.status.is_success() {
                fresh = Some((forge, client));
            }
        }
        columns.push(column);
    }
    let mut table = format!("{:<36}", "");
    for name in CALLERS {
        let _ = write!(table, " {name:>9}");
    }
    for (index, route) in routes.iter().enumerate() {
        let _ = write!(table, "\n{:<7}{:<29}", route.method.as_str(), route.path);
        for column in &columns {
            let _ = write!(table, " {:>9}", column[index]);
        }
    }
    assert_snapshot!("access", table);
}
