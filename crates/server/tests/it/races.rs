//! Two clients doing the same thing at once: one wins, the others get the conflict answer.

use serde_json::{Value, json};
use testkit::TestForge;

const AT_ONCE: usize = 12;

/// Runs the same request many times at once and sorts the answers.
async fn all_at_once(client: &testkit::Client, path: &str, body: Value) -> Vec<String> {
    let tasks: Vec<_> = (0..AT_ONCE)
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

fn one_and_rest(rest: &str) -> Vec<String> {
    let mut expected = vec![rest.to_owned(); AT_ONCE - 1];
    expected.insert(0, "201".to_owned());
    expected
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_gets_the_address() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let answers = all_at_once(&ann, "/user/emails", json!({ "email": "a@b" })).await;
    let taken = "400 Bad Request\n{\"message\":{\"email\":[\"has already been taken\"]}}";
    assert_eq!(answers, one_and_rest(taken));
    assert_eq!(ann.get("/user/emails").await.each("email"), "a@b");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_gets_the_name() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let body = json!({ "email": "ann@example.org", "password": "12345678", "username": "ann", "name": "Ann" });
    let answers = all_at_once(&root, "/users", body).await;
    assert_eq!(answers, one_and_rest("409 Conflict\n{\"message\":\"Email has already been taken\"}"));
    assert_eq!(root.get("/users").await.each("username"), "ann root");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_gets_the_key() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let answers = all_at_once(&ann, "/user/keys", json!({ "title": "k", "key": crate::keys::ED25519 })).await;
    let taken = "400 Bad Request\n{\"message\":{\"fingerprint\":[\"has already been taken\"],\"key\":[\"has already been taken\"]}}";
    assert_eq!(answers, one_and_rest(taken));
}

/// Of two administrators who remove each other, one stays.
#[tokio::test(flavor = "multi_thread")]
async fn administrators_cannot_all_leave_at_once() {
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
async fn many_writes_at_once_are_all_there() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let ann = ann.clone();
            // Every third write is refused; it must not take its neighbours with it.
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
