//! Concurrent requests with the same effect: one succeeds, the others get the conflict error.

use serde_json::{Value, json};
use testkit::TestForge;

const CONCURRENT_REQUESTS: usize = 12;

/// Sends the same request many times concurrently and returns the sorted responses.
async fn send_concurrently(client: &testkit::TestClient, path: &str, body: Value) -> Vec<String> {
    let tasks: Vec<_> = (0..CONCURRENT_REQUESTS)
        .map(|_| {
            let (client, path, body) = (client.clone(), path.to_owned(), body.clone());
            tokio::spawn(async move { client.post(&path, body).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        let answer = task.await.expect("an answer");
        answers.push(if answer.code() == 201 { "201".to_owned() } else { answer.to_string() });
    }
    answers.sort();
    answers
}

fn one_created_and_rest(rest: &str) -> Vec<String> {
    let mut expected = vec![rest.to_owned(); CONCURRENT_REQUESTS - 1];
    expected.insert(0, "201".to_owned());
    expected
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_requests_gets_the_email_address() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let answers = send_concurrently(&ann, "/user/emails", json!({ "email": "a@b" })).await;
    let taken = "400 Bad Request\n{\"message\":{\"email\":[\"has already been taken\"]}}";
    assert_eq!(answers, one_created_and_rest(taken));
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "a@b");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_requests_gets_the_username() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let body = json!({ "email": "ann@example.org", "password": "12345678", "username": "ann", "name": "Ann" });
    let answers = send_concurrently(&root, "/users", body).await;
    assert_eq!(answers, one_created_and_rest("409 Conflict\n{\"message\":\"Email has already been taken\"}"));
    assert_eq!(root.get("/users").await.join_field("username"), "ann root");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_requests_gets_the_key() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let answers =
        send_concurrently(&ann, "/user/keys", json!({ "title": "k", "key": crate::accounts::keys::ED25519 })).await;
    let taken = "400 Bad Request\n{\"message\":{\"fingerprint\":[\"has already been taken\"],\"key\":[\"has already been taken\"]}}";
    assert_eq!(answers, one_created_and_rest(taken));
}

/// Of two administrators who block each other, one stays.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_administrator_stays() {
    for _ in 0..5 {
        let forge = TestForge::start().await;
        let root = forge.admin().await;
        let ann = forge.user("ann").await;
        root.put(&format!("/users/{}", ann.id), json!({ "admin": true })).await;
        let (removes_ann, removes_root) = (root.clone(), ann.clone());
        let path = format!("/users/{}/block", ann.id);
        let first = tokio::spawn(async move { removes_ann.put(&path, json!({})).await });
        let second = tokio::spawn(async move { removes_root.put("/users/1/block", json!({})).await });
        let mut codes = [first.await.expect("an answer").code(), second.await.expect("an answer").code()];
        codes.sort_unstable();
        // The loser is blocked already, or refused because they would be the last.
        assert!(codes == [200, 401] || codes == [200, 403], "{codes:?}");
        let left = root.get("/user").await.code() == 200 || ann.get("/user").await.code() == 200;
        assert!(left, "an administrator is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_concurrent_write_is_lost() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let ann = ann.clone();
            // Every third write is refused and must not affect the others in its batch.
            let email = if number % 3 == 0 { "bad".to_owned() } else { format!("a{number}@example.org") };
            tokio::spawn(async move { (number % 3, ann.post("/user/emails", json!({ "email": email })).await.code()) })
        })
        .collect();
    for task in tasks {
        let (kind, code) = task.await.expect("an answer");
        assert_eq!(code, if kind == 0 { 400 } else { 201 });
    }
    assert_eq!(ann.get("/user/emails").await.header("x-total"), "133");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_requests_gets_the_project_and_the_group() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let group = json!({ "name": "Acme", "path": "acme" });
    for (path, body) in [("/projects", json!({ "name": "Rocket" })), ("/groups", group)] {
        let answers = send_concurrently(&ann, path, body).await;
        assert_eq!(answers[0], "201");
        for refused in &answers[1..] {
            // A slightly later request may see a conflict of the path alone.
            assert!(refused.starts_with("400") && refused.contains("has already been taken"), "{refused}");
        }
    }
    assert_eq!(ann.get("/projects").await.join_field("path"), "rocket");
    assert_eq!(ann.get("/groups").await.join_field("path"), "acme");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_for_concurrent_requests() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    root.put(&format!("/users/{}", ann.id), json!({ "projects_limit": 3 })).await;
    let tasks: Vec<_> = (0..CONCURRENT_REQUESTS)
        .map(|number| {
            let ann = ann.clone();
            tokio::spawn(async move { ann.post("/projects", json!({ "name": format!("p{number}") })).await.code() })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.expect("an answer"));
    }
    codes.sort_unstable();
    assert_eq!(codes, [[201; 3].as_slice(), &[403; CONCURRENT_REQUESTS - 3]].concat());
    assert_eq!(ann.get("/projects/owned").await.header("x-total"), "3");
}

/// In any order, a group is never left without an owner.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_owner_stays() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    for round in 0..6 {
        let (ann, ben) = (forge.user(&format!("ann{round}")).await, forge.user(&format!("ben{round}")).await);
        let group = ann.make("/groups", json!({ "name": format!("g{round}"), "path": format!("g{round}") })).await;
        ann.post(&format!("/groups/{group}/members"), json!({ "user_id": ben.id.get(), "access_level": 50 })).await;
        let (one, other) = (root.clone(), root.clone());
        let (first, second) = (ann.id, ben.id);
        let one = tokio::spawn(async move { one.delete(&format!("/users/{first}")).await.code() });
        let other = tokio::spawn(async move {
            // Alternately as a user and as a member.
            let path = if round % 2 == 0 { "/users".to_owned() } else { format!("/groups/{group}/members") };
            other.delete(&format!("{path}/{second}")).await.code()
        });
        let codes = [one.await.expect("an answer"), other.await.expect("an answer")];
        assert_eq!(codes.iter().filter(|code| **code == 200).count(), 1, "{codes:?}");
        assert_eq!(root.get(&format!("/groups/{group}/members")).await.join_field("access_level"), "50");
    }
}

/// A membership that was reported as removed stays removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_member_is_not_added_again() {
    let forge = TestForge::start().await;
    let (ann, ben) = (forge.user("ann").await, forge.user("ben").await);
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let path = format!("/projects/{project}/members");
    for _ in 0..10 {
        ann.post(&path, json!({ "user_id": ben.id.get(), "access_level": 30 })).await;
        let member = format!("{path}/{}", ben.id);
        let (one, other, same) = (ann.clone(), ann.clone(), member.clone());
        let change = tokio::spawn(async move { one.put(&same, json!({ "access_level": 20 })).await.code() });
        let removal = tokio::spawn(async move { other.delete(&member).await.code() });
        let (changed, removed) = (change.await.expect("an answer"), removal.await.expect("an answer"));
        assert!(matches!((changed, removed), (200 | 404, 200)), "{changed} {removed}");
        assert_eq!(ben.get(&format!("/projects/{project}")).await.code(), 404);
    }
}

/// A project that is moved out of a group during its deletion is either deleted with it or stays complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_project_moved_out_of_a_deleted_group_is_complete() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let safe = root.make("/groups", json!({ "name": "safe", "path": "safe" })).await;
    for round in 0..10 {
        let doomed = root.make("/groups", json!({ "name": format!("d{round}"), "path": format!("d{round}") })).await;
        let new = json!({ "name": format!("p{round}"), "namespace_id": doomed });
        let project = root.make("/projects", new).await;
        root.post(&format!("/projects/{project}/star"), json!({})).await;
        let (one, other) = (root.clone(), root.clone());
        let moved =
            tokio::spawn(
                async move { one.post(&format!("/groups/{safe}/projects/{project}"), json!({})).await.code() },
            );
        let removed = tokio::spawn(async move { other.delete(&format!("/groups/{doomed}")).await.code() });
        let (moved, removed) = (moved.await.expect("an answer"), removed.await.expect("an answer"));
        assert_eq!(removed, 200);
        forge.run_due_tasks().await;
        let found = root.get(&format!("/projects/{project}")).await;
        match moved {
            201 => assert_eq!(found.json()["star_count"], 1),
            _ => assert_eq!((moved, found.code()), (404, 404)),
        }
        let total = |answer: testkit::TestResponse| answer.header("x-total").to_owned();
        assert_eq!(total(root.get("/projects/starred").await), total(root.get("/projects/all").await));
    }
}
