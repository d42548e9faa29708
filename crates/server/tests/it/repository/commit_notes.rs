//! Comments on commits.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::ProjectId;
use serde_json::{Value, json};
use testkit::{LocalRepository, TestClient, TestForge, TestResponse, repository::SMALL_REPOSITORY};

/// Starts a forge with Ann and her project; returns also its two commits, oldest first.
async fn set_up() -> (TestForge, TestClient, ProjectId, [String; 2]) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    forge.fast_import(&ann, project, SMALL_REPOSITORY).await;
    let commits = ann.get(&format!("/projects/{project}/repository/commits")).await.json();
    let id = |at: usize| commits[at]["id"].as_str().expect("an id").to_owned();
    (forge, ann, project, [id(1), id(0)])
}

fn comments(project: ProjectId, at: &str) -> String {
    format!("/projects/{project}/repository/commits/{at}/comments")
}

fn position(answer: &TestResponse) -> Value {
    let json = answer.json();
    assert_eq!(answer.code(), 201, "{answer}");
    json!([json["path"], json["line"], json["line_type"]])
}

#[tokio::test]
async fn a_commit_has_comments() {
    let (forge, ann, project, shas) = set_up().await;
    assert_snapshot!(ann.post(&comments(project, &shas[1]), json!({ "note": "Nice" })).await, @r#"
    201 Created
    {"note":"Nice","path":null,"line":null,"line_type":null,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:05.678Z"}
    "#);
    forge.clock.advance(SignedDuration::from_secs(5));
    let on_a_line = json!({ "note": "Why?", "path": "docs/guide.md", "line": 1 });
    assert_snapshot!(ann.post(&comments(project, "master"), on_a_line).await, @r#"
    201 Created
    {"note":"Why?","path":"docs/guide.md","line":1,"line_type":"new","author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:10.678Z"}
    "#);
    let short = &shas[0][..8];
    assert_eq!(ann.post(&comments(project, short), json!({ "note": "On the other one" })).await.code(), 201);
    let list = ann.get(&comments(project, &shas[1])).await;
    assert_eq!((list.join_field("note"), list.header("x-total")), ("Nice Why?".into(), "2"));
    assert_snapshot!(list, @r#"
    200 OK
    [{"note":"Nice","path":null,"line":null,"line_type":null,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:05.678Z"},{"note":"Why?","path":"docs/guide.md","line":1,"line_type":"new","author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:10.678Z"}]
    "#);
    let second = ann.get(&format!("{}?per_page=1&page=2", comments(project, "light"))).await;
    assert_eq!((second.join_field("note"), second.header("x-total")), ("Why?".into(), "2"));
    assert_eq!(ann.get(&comments(project, "v1.0")).await.join_field("note"), "On the other one");
}

#[tokio::test]
async fn a_comment_on_a_line_that_the_commit_does_not_change_is_on_the_commit() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    let local = LocalRepository::new();
    local.write("a.txt", "one\ntwo\nthree\n");
    local.commit("First");
    local.write("a.txt", "one\n2\nthree\nfour\n");
    let sha = local.commit("Second");
    forge.push_all(&ann, project, &local).await;
    let say = async |mut body: Value| {
        body["note"] = json!("x");
        position(&ann.post(&comments(project, &sha), body).await)
    };
    let nowhere = json!([null, null, null]);
    assert_eq!(say(json!({ "path": "a.txt", "line": 2 })).await, json!(["a.txt", 2, "new"]));
    assert_eq!(say(json!({ "path": "a.txt", "line": 4, "line_type": "new" })).await, json!(["a.txt", 4, "new"]));
    assert_eq!(say(json!({ "path": "a.txt", "line": 2, "line_type": "old" })).await, json!(["a.txt", 2, "old"]));
    for kept_on_the_commit in [
        json!({ "path": "a.txt", "line": 1 }),
        json!({ "path": "a.txt", "line": 4, "line_type": "old" }),
        json!({ "path": "a.txt", "line": 0 }),
        json!({ "path": "a.txt", "line": -2 }),
        json!({ "path": "a.txt", "line": i64::MAX }),
        json!({ "path": "b.txt", "line": 2 }),
        json!({ "path": "../a.txt", "line": 2 }),
        json!({ "path": "", "line": 2 }),
        json!({ "path": "a.txt" }),
        json!({ "line": 2 }),
        json!({ "line": 2, "line_type": "old" }),
    ] {
        assert_eq!(say(kept_on_the_commit.clone()).await, nowhere, "{kept_on_the_commit}");
    }
}

#[tokio::test]
async fn invalid_comments_are_refused() {
    let (_forge, ann, project, shas) = set_up().await;
    let say = async |at: &str, body: Value| ann.post(&comments(project, at), body).await;
    assert_snapshot!(say(&shas[0], json!({})).await, @r#"
    400 Bad Request
    {"error":"note is missing"}
    "#);
    assert_snapshot!(say(&shas[0], json!({ "note": " \n" })).await, @r#"
    400 Bad Request
    {"message":{"note":["can't be blank"]}}
    "#);
    assert_snapshot!(say(&shas[0], json!({ "note": "x", "path": "README.md", "line": "one" })).await, @r#"
    400 Bad Request
    {"error":"line is invalid"}
    "#);
    assert_snapshot!(say(&shas[0], json!({ "note": "x", "line_type": "middle" })).await, @r#"
    400 Bad Request
    {"error":"line_type does not have a valid value"}
    "#);
    assert_snapshot!(say("nowhere", json!({ "note": "x" })).await, @r#"
    404 Not Found
    {"message":"404 Commit Not Found"}
    "#);
    assert_snapshot!(say(&"0".repeat(40), json!({ "note": "x" })).await, @r#"
    404 Not Found
    {"message":"404 Commit Not Found"}
    "#);
    let long = say(&shas[0], json!({ "note": "x".repeat(100_001) })).await;
    assert_eq!((long.code(), long.text.contains("is too long")), (400, true), "{long}");
    assert_eq!(ann.get(&comments(project, &shas[0])).await.text, "[]");
    assert_eq!(ann.get(&comments(project, "nowhere")).await.code(), 404);
    // A project without a repository has no commits.
    let empty = ProjectId::new(ann.make("/projects", json!({ "name": "Empty" })).await);
    assert_eq!(ann.post(&comments(empty, "master"), json!({ "note": "x" })).await.code(), 404);
    assert_eq!(ann.get(&comments(empty, "master")).await.code(), 404);
}

#[tokio::test]
async fn users_who_may_read_the_code_may_comment() {
    let (forge, ann, project, shas) = set_up().await;
    let (guest, reporter, stranger) = (forge.user("guest").await, forge.user("rep").await, forge.user("odd").await);
    for (user, level) in [(&guest, 10), (&reporter, 20)] {
        let member = json!({ "user_id": user.id.get(), "access_level": level });
        assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    }
    let path = comments(project, &shas[0]);
    let codes = async |who: &TestClient| {
        let said = who.post(&path, json!({ "note": "x" })).await.code();
        (said, who.get(&path).await.code())
    };
    assert_eq!(codes(&forge.anonymous()).await, (401, 401));
    assert_eq!(codes(&stranger).await, (404, 404));
    assert_eq!(codes(&guest).await, (403, 403));
    assert_eq!(codes(&reporter).await, (201, 200));
    // On public code every signed-in user may comment, archived or not.
    assert_eq!(
        ann.put(&format!("/projects/{project}"), json!({ "name": "Rocket", "visibility_level": 20 })).await.code(),
        200
    );
    assert_eq!(ann.post(&format!("/projects/{project}/archive"), json!({})).await.code(), 201);
    assert_eq!(codes(&forge.anonymous()).await, (401, 401));
    assert_eq!(codes(&stranger).await, (201, 200));
    assert_eq!(codes(&guest).await, (201, 200));
    // A deleted user's comment stays, and its event is deleted.
    assert_eq!(forge.admin().await.delete(&format!("/users/{}", stranger.id)).await.code(), 200);
    let list = ann.get(&path).await.json();
    let authors: Vec<&Value> =
        list.as_array().expect("a list").iter().map(|note| &note["author"]["username"]).collect();
    assert_eq!(authors, [&json!("rep"), &Value::Null, &json!("guest")]);
}

#[tokio::test]
async fn a_comment_is_an_event_visible_with_the_code() {
    let (forge, ann, project, shas) = set_up().await;
    let (guest, root) = (forge.user("guest").await, forge.admin().await);
    let member = json!({ "user_id": guest.id.get(), "access_level": 10 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one" })).await;
    ann.make(&format!("/projects/{project}/issues/{issue}/notes"), json!({ "body": "On the issue" })).await;
    for note in ["Nice", "Very nice"] {
        assert_eq!(ann.post(&comments(project, &shas[0]), json!({ "note": note })).await.code(), 201);
    }
    let feeds = [format!("/projects/{project}/events"), format!("/users/{}/events", ann.id)];
    let shown = ann.get(&feeds[0]).await.json();
    assert_snapshot!(shown[0], @r#"{"title":null,"project_id":1,"action_name":"commented on","target_id":3,"target_type":"Note","target_title":null,"author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":null,"created_at":"2026-01-02T03:04:05.678Z","note":{"id":3,"body":"Very nice","attachment":null,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","system":false,"noteable_id":null,"noteable_type":"Commit","upvote":false,"downvote":false,"upvote?":false,"downvote?":false}}"#);
    let said = async |who: &TestClient, feed: &str| {
        let answer = who.get(feed).await;
        let events = answer.json();
        let events = events.as_array().expect("a list").clone();
        assert_eq!(answer.header("x-total"), events.len().to_string(), "{answer}");
        let notes = events.iter().filter_map(|event| event["note"]["body"].as_str());
        notes.map(str::to_owned).collect::<Vec<_>>().join(", ")
    };
    for feed in &feeds {
        assert_eq!(said(&ann, feed).await, "Very nice, Nice, On the issue", "{feed}");
        assert_eq!(said(&root, feed).await, "Very nice, Nice, On the issue", "{feed}");
        assert_eq!(said(&guest, feed).await, "On the issue", "{feed}");
    }
    // With issues disabled, a guest sees neither.
    assert_eq!(
        ann.put(&format!("/projects/{project}"), json!({ "name": "Rocket", "issues_enabled": false })).await.code(),
        200
    );
    for feed in &feeds {
        assert_eq!(said(&ann, feed).await, "Very nice, Nice", "{feed}");
        assert_eq!(said(&guest, feed).await, "", "{feed}");
    }
    // A non-member sees it once the code is public.
    let open = json!({ "name": "Rocket", "visibility_level": 10, "issues_enabled": true });
    assert_eq!(ann.put(&format!("/projects/{project}"), open).await.code(), 200);
    let stranger = forge.user("odd").await;
    for feed in &feeds {
        assert_eq!(said(&stranger, feed).await, "Very nice, Nice, On the issue", "{feed}");
        assert_eq!(said(&guest, feed).await, "Very nice, Nice, On the issue", "{feed}");
    }
}

#[tokio::test]
async fn comments_are_deleted_with_their_project() {
    let (forge, ann, project, shas) = set_up().await;
    assert_eq!(ann.post(&comments(project, &shas[0]), json!({ "note": "unmistakable" })).await.code(), 201);
    assert!(forge.dump().contains("unmistakable"));
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    forge.run_due_tasks().await;
    assert!(!forge.dump().contains("unmistakable"));
}
