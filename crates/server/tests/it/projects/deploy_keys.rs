//! Deploy keys.

use insta::assert_snapshot;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, fixtures};

const ONE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdd7FPpZg0xpOoN5tuoqyVWHoh8sVJ8AnvYI0oBpSRB ci@example.org";
const TWO: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f two";

fn key(title: &str, key: &str) -> Value {
    json!({ "title": title, "key": key })
}

/// A forge with Ann, who has two projects, and Bob, who has one.
async fn setup() -> (TestForge, TestClient, TestClient, [i64; 3]) {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let own = ann.make("/projects", json!({ "name": "own" })).await;
    let second = ann.make("/projects", json!({ "name": "second" })).await;
    let other = bob.make("/projects", json!({ "name": "other", "visibility_level": 20 })).await;
    (forge, ann, bob, [own, second, other])
}

#[tokio::test]
async fn a_key_is_added_shown_and_removed() {
    let (_forge, ann, _, [own, ..]) = setup().await;
    let keys = format!("/projects/{own}/deploy_keys");
    assert_snapshot!(ann.post(&keys, key(" build ", &format!("  {}\n", ONE.replacen(' ', "  ", 1)))).await, @r#"
    201 Created
    {"id":1,"title":"build","key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdd7FPpZg0xpOoN5tuoqyVWHoh8sVJ8AnvYI0oBpSRB ci@example.org","created_at":"2026-01-02T03:04:05.678Z"}
    "#);
    assert_eq!(ann.post(&format!("/projects/{own}/keys"), key("older name", TWO)).await.code(), 201);
    assert_eq!(
        (ann.get(&keys).await.join_field("id"), ann.get(&keys).await.header("x-total").to_owned()),
        ("2 1".into(), "2".into())
    );
    assert_eq!(ann.get(&format!("/projects/{own}/keys?per_page=1")).await.join_field("title"), "older name");
    assert_eq!(ann.get(&format!("{keys}/1")).await.json()["key"], ONE);
    assert_eq!(ann.get("/projects/ann%2Fown/keys/1").await.json()["title"], "build");
    assert_eq!(ann.delete(&format!("{keys}/1")).await.json()["title"], "build");
    assert_snapshot!(ann.get(&format!("{keys}/1")).await, @r#"
    404 Not Found
    {"message":"404 Not found"}
    "#);
    assert_snapshot!(ann.delete(&format!("{keys}/1")).await, @r#"
    404 Not Found
    {"message":"404 Deploy Key Not Found"}
    "#);
    assert_snapshot!(ann.get(&format!("{keys}/x")).await, @r#"
    400 Bad Request
    {"error":"key_id is invalid"}
    "#);
    assert_eq!(ann.get(&keys).await.join_field("id"), "2");
    // It is in use nowhere, so it can be added again.
    assert_eq!(ann.post(&keys, key("again", ONE)).await.json()["id"], 3);
}

#[tokio::test]
async fn an_invalid_or_used_key_is_rejected() {
    let (_forge, ann, bob, [own, second, other]) = setup().await;
    let keys = format!("/projects/{own}/deploy_keys");
    assert_snapshot!(ann.post(&keys, json!({})).await, @r#"
    400 Bad Request
    {"error":"title is missing, key is missing"}
    "#);
    assert_snapshot!(ann.post(&keys, key("k", "garbage")).await, @r#"
    400 Bad Request
    {"message":{"key":["is invalid"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_eq!(ann.post("/user/keys", key("mine", ONE)).await.code(), 201);
    assert_snapshot!(ann.post(&keys, key("k", ONE)).await, @r#"
    400 Bad Request
    {"message":{"fingerprint":["has already been taken"],"key":["has already been taken"]}}
    "#);
    // Conversely, a deploy key cannot be added to a user.
    assert_eq!(ann.post(&keys, key("k", TWO)).await.code(), 201);
    assert_snapshot!(bob.post("/user/keys", key("k", TWO)).await, @r#"
    400 Bad Request
    {"message":{"fingerprint":["has already been taken"],"key":["has already been taken"]}}
    "#);
    // Adding the same key again returns the existing one; in another project of hers it is enabled.
    assert_eq!(ann.post(&keys, key("other", TWO)).await.json()["title"], "k");
    assert_eq!(ann.post(&format!("/projects/{second}/deploy_keys"), key("other", TWO)).await.json()["id"], 1);
    assert_eq!(ann.get(&format!("/projects/{second}/deploy_keys")).await.join_field("title"), "k");
    // Bob learns only that the key is in use.
    assert_snapshot!(bob.post(&format!("/projects/{other}/deploy_keys"), key("k", TWO)).await, @r#"
    400 Bad Request
    {"message":{"fingerprint":["has already been taken"],"key":["has already been taken"]}}
    "#);
}

#[tokio::test]
async fn a_key_is_enabled_by_masters_of_both_projects() {
    let (forge, ann, bob, [own, second, other]) = setup().await;
    let id = ann.make(&format!("/projects/{own}/deploy_keys"), key("k", ONE)).await;
    let enable = |project: i64| format!("/projects/{project}/deploy_keys/{id}/enable");
    assert_eq!(ann.post(&enable(second), json!({})).await.json()["title"], "k");
    assert_eq!(ann.post(&enable(second), json!({})).await.code(), 201);
    assert_snapshot!(bob.post(&enable(other), json!({})).await, @r#"
    404 Not Found
    {"message":"404 Deploy Key Not Found"}
    "#);
    // A developer of the first project cannot enable its key in another one; a master and an administrator can.
    for (level, code) in [(30, 404), (40, 201)] {
        let member = json!({ "user_id": bob.id.get(), "access_level": level });
        ann.post(&format!("/projects/{own}/members"), member).await;
        ann.put(&format!("/projects/{own}/members/{}", bob.id), json!({ "access_level": level })).await;
        assert_eq!(bob.post(&enable(other), json!({})).await.code(), code, "{level}");
    }
    let root = forge.admin().await;
    let spare = root.make("/projects", json!({ "name": "spare" })).await;
    assert_eq!(root.post(&enable(spare), json!({})).await.code(), 201);
    // Removed from one project, it stays enabled in the others.
    for (project, left) in [(own, 404), (second, 404), (spare, 404)] {
        let taken = root.delete(&format!("/projects/{project}/deploy_keys/{id}/disable")).await;
        assert_eq!((taken.code(), &taken.json()["title"]), (200, &json!("k")));
        assert_eq!(root.get(&format!("/projects/{project}/deploy_keys/{id}")).await.code(), left);
        assert_eq!(bob.get(&format!("/projects/{other}/deploy_keys/{id}")).await.code(), 200);
    }
    assert_eq!(bob.delete(&format!("/projects/{other}/keys/{id}/disable")).await.code(), 200);
    assert_eq!(root.post(&enable(own), json!({})).await.code(), 404);
}

/// The ID of a key of another project is not found and changes nothing.
#[tokio::test]
async fn a_deploy_key_of_another_project_is_not_found() {
    let (forge, ann, bob, [own, _, other]) = setup().await;
    let id = ann.make(&format!("/projects/{own}/deploy_keys"), key("k", ONE)).await;
    let before = forge.dump();
    for path in ["deploy_keys", "keys"].map(|name| format!("/projects/{other}/{name}/{id}")) {
        assert_eq!(bob.get(&path).await.code(), 404);
        assert_eq!(bob.delete(&path).await.code(), 404);
        assert_eq!(bob.delete(&format!("{path}/disable")).await.code(), 404);
        assert_eq!(bob.post(&format!("{path}/enable"), json!({})).await.code(), 404);
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_for_the_same_key_succeed_only_once() {
    let (_forge, ann, bob, [own, _, other]) = setup().await;
    let (keys, others) = (format!("/projects/{own}/deploy_keys"), format!("/projects/{other}/deploy_keys"));
    for number in 0..10 {
        let new = key("k", &fixtures::ssh_key(number));
        let answers =
            tokio::join!(ann.post("/user/keys", new.clone()), ann.post(&keys, new.clone()), bob.post(&others, new));
        let codes = [answers.0.code(), answers.1.code(), answers.2.code()];
        assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == 400).count(), 2, "{codes:?}");
    }
}
