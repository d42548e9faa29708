//! Single files: reading with metadata, creating, updating and deleting.

use axum::http::Method;
use insta::assert_snapshot;
use model::ProjectId;
use serde_json::{Value, json};

use crate::repository::branches::{RepositoryFixture, new_branch};

const FILES: &str = "/projects/1/repository/files";

fn file(path: &str, content: &str) -> Value {
    json!({ "file_path": path, "branch_name": "topic", "content": content, "commit_message": "Change it" })
}

async fn with_topic() -> RepositoryFixture {
    let fixture = RepositoryFixture::start().await;
    assert_eq!(fixture.dan.post("/projects/1/repository/branches", new_branch("topic")).await.code(), 200);
    fixture
}

#[tokio::test]
async fn a_file_is_shown_with_its_last_commit() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, commits, .. } = &fixture;
    assert_snapshot!(dan.get(&format!("{FILES}?file_path=README.md&ref=master")).await, @r#"
    200 OK
    {"file_name":"README.md","file_path":"README.md","size":4,"encoding":"base64","content":"b25lCg==","ref":"master","blob_id":"5626abf0f72e58d7a153368ba57db4c673c0e171","commit_id":"e3d05f6b77aef72e104fe3dc1a35a8656a1b0f28","last_commit_id":"e21b62d8d2a836e1394e4f9d1fbd9c60e3f17966"}
    "#);
    let found = dan.get(&format!("{FILES}?file_path=/src/main.rs&ref={}", commits[1])).await.json();
    assert_eq!((&found["file_path"], &found["file_name"]), (&json!("src/main.rs"), &json!("main.rs")));
    assert_eq!(found["last_commit_id"], json!(commits[1]));
    for (query, code, body) in [
        ("file_path=x&ref=master", 404, json!({ "message": "404 File Not Found" })),
        ("file_path=src&ref=master", 404, json!({ "message": "404 File Not Found" })),
        ("file_path=x&ref=nowhere", 404, json!({ "message": "404 Commit Not Found" })),
        ("", 400, json!({ "error": "file_path is missing, ref is missing" })),
    ] {
        let answer = dan.get(&format!("{FILES}?{query}")).await;
        assert_eq!((answer.code(), answer.json()), (code, body), "{query}");
    }
}

#[tokio::test]
async fn a_developer_adds_changes_and_removes_a_file() {
    let fixture = with_topic().await;
    let RepositoryFixture { dan, .. } = &fixture;
    assert_snapshot!(dan.post(FILES, file("docs/a.md", "one\r\ntwo")).await, @r#"
    201 Created
    {"file_path":"docs/a.md","branch_name":"topic"}
    "#);
    assert_snapshot!(dan.post(FILES, file("docs/a.md", "again")).await, @r#"
    400 Bad Request
    {"message":"Your changes could not be committed because a file with the same name already exists"}
    "#);
    let read = async || dan.get("/projects/1/repository/blobs/topic?filepath=docs/a.md").await.text;
    assert_eq!(read().await, "one\ntwo");
    assert_snapshot!(dan.put(FILES, file("docs/a.md", "three")).await, @r#"
    200 OK
    {"file_path":"docs/a.md","branch_name":"topic"}
    "#);
    assert_eq!(read().await, "three");
    let made = dan.put(FILES, file("made/by/put", "")).await;
    assert_eq!((made.code(), made.json()["file_path"].clone()), (200, json!("made/by/put")));
    // Stock clients send the parameters of a deletion in the query.
    let query = "file_path=docs/a.md&branch_name=topic&commit_message=Away";
    assert_snapshot!(dan.delete(&format!("{FILES}?{query}")).await, @r#"
    200 OK
    {"file_path":"docs/a.md","branch_name":"topic"}
    "#);
    assert_snapshot!(dan.delete(&format!("{FILES}?{query}")).await, @r#"
    400 Bad Request
    {"message":"File to be deleted `docs/a.md` does not exist."}
    "#);
    assert_eq!(dan.get("/projects/1/repository/tree?ref_name=topic").await.join_field("name"), "made src README.md");
    let log = dan.get("/projects/1/repository/commits?ref_name=topic&per_page=4").await;
    assert_eq!(log.join_field("title"), "Away Change it Change it Change it");
}

#[tokio::test]
async fn a_file_keeps_its_mode_and_every_byte() {
    let fixture = with_topic().await;
    let RepositoryFixture { forge, ann, dan, local, .. } = &fixture;
    local.git(&["switch", "--quiet", "--create", "modes"]);
    local.write("run.sh", "#!/bin/sh\n");
    local.git(&["add", "--all"]);
    local.git(&["update-index", "--chmod=+x", "run.sh"]);
    local.git(&["commit", "--quiet", "--message", "run"]);
    forge.push_all(ann, ProjectId::new(1), local).await;
    let mut change = file("run.sh", "AP8NCg==");
    change["branch_name"] = json!("modes");
    change["encoding"] = json!("base64");
    assert_eq!(dan.put(FILES, change).await.code(), 200);
    let tree = dan.get("/projects/1/repository/tree?ref_name=modes").await.json();
    assert_eq!((&tree[2]["name"], &tree[2]["mode"]), (&json!("run.sh"), &json!("100755")));
    let raw = dan.get("/projects/1/repository/blobs/modes?filepath=run.sh").await;
    assert_eq!(raw.bytes, [0, 255, 13, 10]);
    let nul = dan.post(FILES, file("nul", "a\0b")).await;
    assert_eq!(nul.code(), 201);
    assert_eq!(dan.get("/projects/1/repository/blobs/topic?filepath=nul").await.bytes, b"a\0b");
}

#[tokio::test]
async fn invalid_changes_are_refused() {
    let fixture = with_topic().await;
    let RepositoryFixture { dan, .. } = &fixture;
    let with = |name: &str, value: Value| {
        let mut body = file("x", "x");
        body[name] = value;
        body
    };
    for (body, expected) in [
        (
            json!({}),
            json!({ "error": "file_path is missing, branch_name is missing, commit_message is missing, content is missing" }),
        ),
        (with("file_path", json!(" ")), json!({ "error": "file_path is empty" })),
        (with("commit_message", json!("\n")), json!({ "error": "commit_message is empty" })),
        (with("content", json!(["x"])), json!({ "error": "content is invalid" })),
        (with("encoding", json!("hex")), json!({ "error": "encoding does not have a valid value" })),
        (
            with("branch_name", json!("nowhere")),
            json!({ "message": "You can only create or edit files when you are on a branch" }),
        ),
        (
            with("branch_name", json!("-x")),
            json!({ "message": "You can only create or edit files when you are on a branch" }),
        ),
        (
            with("file_path", json!("../x")),
            json!({ "message": "Your changes could not be committed, because the file name cannot include directory traversal." }),
        ),
        (
            with("file_path", json!("a/.git/x")),
            json!({ "message": "Your changes could not be committed, because the file name is not one that a repository may hold." }),
        ),
        (with("branch_name", json!("master")), json!({ "message": "You are not allowed to push into this branch" })),
    ] {
        let answer = dan.post(FILES, body.clone()).await;
        assert_eq!((answer.code(), answer.json()), (400, expected), "{body}");
    }
    assert_eq!(dan.get("/projects/1/repository/commits?ref_name=topic").await.json().as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn files_of_public_projects_are_public_and_written_by_developers() {
    let fixture = with_topic().await;
    let RepositoryFixture { forge, ann, .. } = &fixture;
    let (anonymous, reporter) = (forge.anonymous(), forge.user("rita").await);
    ann.make("/projects/1/members", json!({ "user_id": reporter.id.get(), "access_level": 20 })).await;
    let path = format!("{FILES}?file_path=README.md&ref=master");
    assert_eq!(anonymous.get(&path).await.code(), 404);
    ann.put("/projects/1", json!({ "name": "x", "visibility_level": 20 })).await;
    assert_eq!(anonymous.get(&path).await.json()["content"], "b25lCg==");
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        assert_eq!(anonymous.json(method.clone(), FILES, json!({})).await.code(), 401);
        assert_eq!(reporter.json(method.clone(), FILES, json!({})).await.code(), 403);
        assert_eq!(ann.json(method.clone(), FILES, json!({})).await.code(), 400);
    }
    ann.post("/projects/1/archive", json!({})).await;
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        assert_eq!(ann.json(method, FILES, json!({})).await.code(), 403);
    }
}
