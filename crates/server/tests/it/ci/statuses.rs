//! Commit statuses.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::ProjectId;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse, repository::SMALL_REPOSITORY};

/// A forge with Ann and her project, and its two commits, oldest first.
async fn setup() -> (TestForge, TestClient, ProjectId, [String; 2]) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    forge.fast_import(&ann, project, SMALL_REPOSITORY).await;
    let events = ann.get(&format!("/projects/{project}/events")).await.json();
    let events = events.as_array().expect("a list");
    let push = events.iter().find(|event| event["data"]["ref"] == "refs/heads/master").expect("a push");
    let id = |number: usize| push["data"]["commits"][number]["id"].as_str().expect("an id").to_owned();
    (forge, ann, project, [id(0), id(1)])
}

fn normalized(answer: &TestResponse, shas: &[String; 2]) -> String {
    answer.to_string().replace(&shas[0], "FIRST").replace(&shas[1], "TIP")
}

#[tokio::test]
async fn a_status_is_set_and_updated() {
    let (forge, ann, project, shas) = setup().await;
    let set = async |body: Value| ann.post(&format!("/projects/{project}/statuses/{}", shas[1]), body).await;
    assert_snapshot!(normalized(&set(json!({ "state": "pending" })).await, &shas), @r#"
    201 Created
    {"id":1,"sha":"TIP","ref":"master","status":"pending","name":"default","target_url":null,"description":null,"created_at":"2026-01-02T03:04:05.678Z","started_at":null,"finished_at":null,"allow_failure":false,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"}}
    "#);
    forge.clock.advance(SignedDuration::from_secs(5));
    let running =
        set(json!({ "state": "running", "target_url": "https://ci.example.org/1", "description": "d" })).await;
    assert_eq!((running.code(), &running.json()["started_at"]), (201, &json!("2026-01-02T03:04:10.678Z")));
    assert_snapshot!(set(json!({ "state": "running" })).await, @r#"
    400 Bad Request
    {"message":"Cannot transition status via :run from :running (Reason(s): Status cannot transition via \"run\")"}
    "#);
    assert_snapshot!(set(json!({ "state": "pending" })).await, @r#"
    400 Bad Request
    {"message":"Cannot transition status via :enqueue from :running (Reason(s): Status cannot transition via \"enqueue\")"}
    "#);
    forge.clock.advance(SignedDuration::from_secs(5));
    assert_snapshot!(normalized(&set(json!({ "state": "success" })).await, &shas), @r#"
    201 Created
    {"id":1,"sha":"TIP","ref":"master","status":"success","name":"default","target_url":"https://ci.example.org/1","description":"d","created_at":"2026-01-02T03:04:05.678Z","started_at":"2026-01-02T03:04:10.678Z","finished_at":"2026-01-02T03:04:15.678Z","allow_failure":false,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"}}
    "#);
    // A final status is kept; another report creates a new status.
    let again = set(json!({ "state": "failed", "context": "default", "ref": "master" })).await.json();
    assert_eq!((&again["id"], &again["status"], &again["started_at"]), (&json!(2), &json!("failed"), &json!(null)));
    let list = format!("/projects/{project}/repository/commits/{}/statuses", shas[1]);
    assert_eq!(ann.get(&list).await.join_field("id"), "2");
    assert_eq!(ann.get(&format!("{list}?all=true")).await.join_field("status"), "success failed");
}

#[tokio::test]
async fn statuses_are_listed_by_ref_and_name() {
    let (_forge, ann, project, shas) = setup().await;
    for (state, name, at) in [("pending", "build", "master"), ("success", "test", "master"), ("failed", "test", "v1.0")]
    {
        // Also by the name of a ref that points to the commit.
        let body = json!({ "state": state, "name": name, "ref": at });
        assert_eq!(ann.post(&format!("/projects/{project}/statuses/v1.0"), body).await.json()["sha"], shas[0]);
    }
    let list = async |query: &str| {
        let path = format!("/projects/{project}/repository/commits/{}/statuses?{query}", shas[0]);
        let answer = ann.get(&path).await;
        format!("{} of {}", answer.join_field("id"), answer.header("x-total"))
    };
    assert_eq!(list("").await, "1 2 3 of 3");
    assert_eq!(list("ref=master").await, "1 2 of 2");
    assert_eq!(list("name=test").await, "2 3 of 2");
    assert_eq!(list("ref=v1.0&name=test").await, "3 of 1");
    assert_eq!(list("stage=external").await, "1 2 3 of 3");
    assert_eq!(list("stage=test").await, " of 0");
    assert_eq!(list("per_page=2&page=2").await, "3 of 3");
    let other = ann.get(&format!("/projects/{project}/repository/commits/master/statuses")).await;
    assert_eq!((other.code(), other.text.as_str()), (200, "[]"));
}

#[tokio::test]
async fn each_user_updates_their_own_status() {
    let (forge, ann, project, shas) = setup().await;
    let bob = forge.user("bob").await;
    let member = json!({ "user_id": bob.id.get(), "access_level": 30 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    let path = format!("/projects/{project}/statuses/{}", shas[0]);
    assert_eq!(ann.post(&path, json!({ "state": "running" })).await.json()["id"], 1);
    let status = bob.post(&path, json!({ "state": "success" })).await.json();
    assert_eq!((&status["id"], &status["author"]["username"]), (&json!(2), &json!("bob")));
    let list = ann.get(&format!("/projects/{project}/repository/commits/{}/statuses", shas[0])).await;
    assert_eq!(list.join_field("status"), "success");
    // The status stays when its user is deleted.
    assert_eq!(forge.admin().await.delete(&format!("/users/{}", bob.id)).await.code(), 200);
    let list = ann.get(&format!("/projects/{project}/repository/commits/{}/statuses", shas[0])).await.json();
    assert_eq!((&list[0]["status"], &list[0]["author"]), (&json!("success"), &json!(null)));
}

#[tokio::test]
async fn invalid_statuses_are_rejected() {
    let (_forge, ann, project, shas) = setup().await;
    let set = async |at: &str, body: Value| ann.post(&format!("/projects/{project}/statuses/{at}"), body).await;
    assert_snapshot!(set(&shas[0], json!({})).await, @r#"
    400 Bad Request
    {"error":"state is missing"}
    "#);
    assert_snapshot!(set(&shas[0], json!({ "state": "" })).await, @r#"
    400 Bad Request
    {"error":"state does not have a valid value"}
    "#);
    assert_snapshot!(set(&shas[0], json!({ "state": "skipped" })).await, @r#"
    400 Bad Request
    {"error":"state does not have a valid value"}
    "#);
    assert_snapshot!(set("nowhere", json!({ "state": "pending" })).await, @r#"
    404 Not Found
    {"message":"404 Commit Not Found"}
    "#);
    assert_snapshot!(set(&"f".repeat(40), json!({ "state": "pending" })).await, @r#"
    404 Not Found
    {"message":"404 Commit Not Found"}
    "#);
    let long = "x".repeat(256);
    let body = json!({ "state": "pending", "name": long, "ref": long, "description": long, "target_url": "javascript:alert(1)" });
    assert_snapshot!(set(&shas[0], body).await, @r#"
    400 Bad Request
    {"message":{"name":["is too long (maximum is 255 characters)"],"ref":["is too long (maximum is 255 characters)"],"description":["is too long (maximum is 255 characters)"],"target_url":["must be a valid URL"]}}
    "#);
    assert_snapshot!(set(&shas[0], json!({ "state": "pending", "name": " " })).await, @r#"
    400 Bad Request
    {"message":{"name":["can't be blank"]}}
    "#);
    let list = format!("/projects/{project}/repository/commits");
    assert_snapshot!(ann.get(&format!("{list}/nowhere/statuses")).await, @r#"
    404 Not Found
    {"message":"404 Commit Not Found"}
    "#);
    let empty = ann.make("/projects", json!({ "name": "empty" })).await;
    assert_eq!(ann.get(&format!("/projects/{empty}/repository/commits/master/statuses")).await.code(), 404);
    assert_eq!(
        ann.post(&format!("/projects/{empty}/statuses/master"), json!({ "state": "pending" })).await.code(),
        404
    );
}

#[tokio::test]
async fn a_commit_on_no_branch_needs_a_ref() {
    let (forge, ann, project, shas) = setup().await;
    // Only a tag contains this commit.
    let aside = "commit refs/tags/aside\nauthor A <a@example.com> 1 +0000\ncommitter A <a@example.com> 1 +0000\n\
                 data 1\nx\nM 100644 inline a\ndata 1\nx\n\n";
    forge.fast_import(&ann, project, aside).await;
    let path = format!("/projects/{project}/statuses/aside");
    assert_snapshot!(ann.post(&path, json!({ "state": "pending" })).await, @r#"
    404 Not Found
    {"message":"404 References for commit Not Found"}
    "#);
    assert_eq!(ann.post(&path, json!({ "state": "pending", "ref": "aside" })).await.json()["ref"], "aside");
    // Of several branches that contain it, the first by name is used.
    let body = json!({ "state": "pending" });
    assert_eq!(ann.post(&format!("/projects/{project}/statuses/{}", shas[0]), body).await.json()["ref"], "master");
}

#[tokio::test]
async fn reporters_read_and_developers_write_even_when_archived() {
    let (forge, ann, project, shas) = setup().await;
    let bob = forge.user("bob").await;
    let list = format!("/projects/{project}/repository/commits/{}/statuses", shas[0]);
    let set = format!("/projects/{project}/statuses/{}", shas[0]);
    let codes = async |client: &TestClient| {
        (client.get(&list).await.code(), client.post(&set, json!({ "state": "success" })).await.code())
    };
    assert_eq!(codes(&bob).await, (404, 404));
    ann.post(&format!("/projects/{project}/members"), json!({ "user_id": bob.id.get(), "access_level": 10 })).await;
    for (level, expected) in [(10, (403, 403)), (20, (200, 403)), (30, (200, 201))] {
        ann.put(&format!("/projects/{project}/members/{}", bob.id), json!({ "access_level": level })).await;
        assert_eq!(codes(&bob).await, expected, "{level}");
    }
    assert_eq!(ann.post(&format!("/projects/{project}/archive"), json!({})).await.code(), 201);
    assert_eq!(codes(&bob).await, (200, 201));
    assert_eq!(codes(&forge.anonymous()).await, (401, 401));
}
