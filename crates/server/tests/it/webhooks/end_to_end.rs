//! Webhooks over real connections; each payload is checked against the field tables.

use std::{collections::BTreeSet, sync::Arc};

use api::WebhookSender;
use hmac::{Hmac, KeyInit as _, Mac as _};
use model::{HookId, JobId, ProjectId};
use serde_json::{Value, json};
use sha2::Sha256;
use testkit::{
    LocalRepository, TestClient, TestForge, payload_schema,
    receiver::{MockResponse, ReceivedRequest, Receiver},
};

/// A forge that may connect to this machine, with a receiver, an administrator and a project of a user.
struct Fixture {
    forge: TestForge,
    receiver: Receiver,
    root: TestClient,
    ann: TestClient,
    project: ProjectId,
    hook: HookId,
}

impl Fixture {
    async fn new() -> Self {
        let client = webhooks::Client::new().expect("a client");
        let sender: WebhookSender = Arc::new(move |target, delivery| {
            let client = client.clone();
            Box::pin(async move { client.send(&target, &delivery).await })
        });
        let forge = TestForge::builder().allow_local_network().webhook_sender(sender).start().await;
        let receiver = Receiver::start().await;
        let (root, ann) = (forge.admin().await, forge.user("ann").await);
        let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await);
        let hook = json!({
            "url": receiver.url_with("ann:pass%20word@127.0.0.1", "/project?key=k"), "token": "t0ken",
            "tag_push_events": true, "issues_events": true, "confidential_issues_events": true, "note_events": true,
        });
        let hook = HookId::new(ann.make(&format!("/projects/{project}/hooks"), hook).await);
        Self { forge, receiver, root, ann, project, hook }
    }

    /// Sends all due deliveries; returns the received requests, whose payloads are checked.
    async fn deliver(&self) -> Vec<ReceivedRequest> {
        let before = self.receiver.requests().len();
        for attempt in self.forge.deliver_all().await {
            assert!(matches!(attempt.outcome, model::hooks::AttemptOutcome::Responded(_)), "{attempt:?}");
        }
        let requests = self.receiver.requests().split_off(before);
        for request in &requests {
            payload_schema::check(request.header("x-gitlab-event").expect("an event header"), &request.json());
        }
        requests
    }
}

/// Summarizes the requests to a path.
fn summaries(requests: &[ReceivedRequest], path: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    requests
        .iter()
        .filter(|request| request.target.starts_with(path))
        .map(|request| {
            let payload = request.json();
            match payload["object_kind"].as_str() {
                Some("issue") => format!("issue {}", text(&payload["object_attributes"]["action"])),
                Some("note") => format!("note on {}", text(&payload["object_attributes"]["noteable_type"])),
                Some(kind) => format!("{kind} {}", text(&payload["ref"])),
                None => text(&payload["event_name"]),
            }
        })
        .collect()
}

#[tokio::test]
async fn a_project_hook_receives_its_events() {
    let fixture = Fixture::new().await;
    let Fixture { forge, ann, project, .. } = &fixture;
    let local = LocalRepository::new();
    local.write("kiln.txt", "cold\n");
    local.write("tile.txt", "blue\n");
    let first = local.commit("Build the kiln");
    forge.push_all(ann, *project, &local).await;
    local.write("kiln.txt", "hot\n");
    local.git(&["mv", "tile.txt", "roof.txt"]);
    let second = local.commit("Raise the heat");
    local.git(&["tag", "-a", "-m", "First firing", "v1.0"]);
    forge.push_all(ann, *project, &local).await;
    let requests = fixture.deliver().await;
    assert_eq!(
        summaries(&requests, "/project"),
        ["push refs/heads/master", "push refs/heads/master", "tag_push refs/tags/v1.0"]
    );
    let pushed = requests[1].json();
    assert_eq!(
        (&pushed["before"], &pushed["after"], &pushed["checkout_sha"]),
        (&json!(first), &json!(second), &json!(second))
    );
    let commit = &pushed["commits"][0];
    assert_eq!(commit["modified"], json!(["kiln.txt"]));
    assert_eq!((&commit["added"], &commit["removed"]), (&json!(["roof.txt"]), &json!([])));
    assert_eq!((&pushed["user_email"], &pushed["total_commits_count"]), (&json!("ann@example.org"), &json!(1)));
    assert_eq!(pushed["project"]["default_branch"], "master");
    let tag = requests[2].json();
    assert_eq!((&tag["message"], &tag["checkout_sha"]), (&json!("First firing"), &json!(second)));
    assert_ne!(tag["after"], tag["checkout_sha"]);

    let issues = format!("/projects/{project}/issues");
    let issue = ann.make(&issues, json!({ "title": "Cracked", "assignee_id": ann.id.get() })).await;
    ann.put(&format!("{issues}/{issue}"), json!({ "state_event": "close", "title": "Cracked tile" })).await;
    ann.put(&format!("{issues}/{issue}"), json!({ "state_event": "reopen" })).await;
    let hidden = ann.make(&issues, json!({ "title": "Secret", "confidential": true })).await;
    ann.make(&format!("{issues}/{issue}/notes"), json!({ "body": "Looks \"fine\" \u{1f525}" })).await;
    ann.make(&format!("{issues}/{hidden}/notes"), json!({ "body": "In confidence" })).await;
    let comments = format!("/projects/{project}/repository/commits/{second}/comments");
    assert_eq!(ann.post(&comments, json!({ "note": "Too hot" })).await.code(), 201);
    let line = json!({ "note": "Here", "path": "kiln.txt", "line": 1, "line_type": "new" });
    assert_eq!(ann.post(&comments, line).await.code(), 201);
    ann.delete(&format!("/projects/{project}/repository/tags/v1.0")).await;
    let requests = fixture.deliver().await;
    let expected = [
        "issue open",
        "issue close",
        "issue update",
        "issue reopen",
        "issue open",
        "note on Issue",
        "note on Issue",
        "note on Commit",
        "note on Commit",
        "tag_push refs/tags/v1.0",
    ];
    assert_eq!(summaries(&requests, "/project"), expected);
    assert_eq!(requests[4].header("x-gitlab-event"), Some("Confidential Issue Hook"));
    assert_eq!(requests[9].json()["checkout_sha"], Value::Null);

    for request in &requests {
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/project?key=k"));
        assert_eq!(request.header("x-gitlab-token"), Some("t0ken"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("authorization"), Some("Basic YW5uOnBhc3Mgd29yZA=="));
        assert!(request.header("user-agent").is_some_and(|agent| agent.starts_with("Gable/")));
        let mut mac = Hmac::<Sha256>::new_from_slice(b"t0ken").expect("a key");
        mac.update(&request.body);
        let digest = mac.finalize().into_bytes();
        let digits = digest.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"));
        assert_eq!(request.header("x-hub-signature-256"), Some(format!("sha256={digits}").as_str()));
    }
    let numbers: BTreeSet<i64> = requests
        .iter()
        .filter_map(|request| {
            let payload = request.json();
            payload["object_attributes"]["id"].as_i64().filter(|_| payload["object_kind"] == "note")
        })
        .collect();
    assert_eq!(numbers.len(), 4, "comments on issues and commits share one id sequence");
    let uuids: BTreeSet<_> = requests.iter().filter_map(|request| request.header("x-gitlab-event-uuid")).collect();
    assert_eq!(uuids.len(), requests.len());
}

#[tokio::test]
async fn new_commits_of_a_branch_are_those_missing_from_the_default_branch() {
    let fixture = Fixture::new().await;
    let Fixture { forge, ann, project, .. } = &fixture;
    let local = LocalRepository::new();
    local.commit_file("a", "1");
    local.git(&["branch", "old"]);
    local.commit_file("b", "2");
    forge.push_all(ann, *project, &local).await;
    let count = |request: &ReceivedRequest| {
        let payload = request.json();
        (payload["ref"].as_str().unwrap_or_default().to_owned(), payload["total_commits_count"].clone())
    };
    let counts: Vec<_> = fixture.deliver().await.iter().map(count).collect();
    assert_eq!(counts, [("refs/heads/master".into(), json!(2)), ("refs/heads/old".into(), json!(0))]);
}

#[tokio::test]
async fn every_pushed_tag_is_sent_with_its_commit() {
    let fixture = Fixture::new().await;
    let Fixture { forge, ann, project, .. } = &fixture;
    let local = LocalRepository::new();
    let commit = local.commit_file("a", "1");
    for number in 0..110 {
        local.git(&["tag", "-a", "-m", &format!("Number {number}"), &format!("t{number:03}")]);
    }
    let blob = local.git(&["rev-parse", "HEAD:a"]);
    local.git(&["tag", "file", blob.trim()]);
    forge.push_all(ann, *project, &local).await;
    let requests = fixture.deliver().await;
    let tags: Vec<Value> =
        requests.iter().map(ReceivedRequest::json).filter(|tag| tag["object_kind"] == "tag_push").collect();
    assert_eq!(tags.len(), 111);
    for tag in &tags {
        let name = tag["ref"].as_str().unwrap_or_default();
        if name == "refs/tags/file" {
            assert_eq!((&tag["checkout_sha"], &tag["commits"]), (&Value::Null, &json!([])));
            continue;
        }
        assert_eq!((&tag["checkout_sha"], &tag["total_commits_count"]), (&json!(commit), &json!(1)), "{name}");
        let number = name.trim_start_matches("refs/tags/t").parse::<i32>().expect("a number");
        assert_eq!(tag["message"], format!("Number {number}"));
    }
}

#[tokio::test]
async fn a_system_hook_receives_its_events() {
    let fixture = Fixture::new().await;
    let Fixture { forge, root, ann, receiver, project, .. } = &fixture;
    let url = receiver.url_with("127.0.0.1", "/system");
    root.make("/hooks", json!({ "url": url, "tag_push_events": true })).await;
    let bo = root
        .make(
            "/users",
            json!({ "username": "bo", "name": "Bo Lin", "email": "bo@example.org", "password": "12345678x" }),
        )
        .await;
    let key = testkit::fixtures::ssh_key(7);
    ann.make("/user/keys", json!({ "title": "k", "key": key })).await;
    let group = ann.make("/groups", json!({ "name": "Pots", "path": "pots" })).await;
    ann.post(&format!("/groups/{group}/members"), json!({ "user_id": bo, "access_level": 30 })).await;
    ann.post(&format!("/projects/{project}/members"), json!({ "user_id": bo, "access_level": 20 })).await;
    let local = LocalRepository::new();
    local.commit_file("a", "x");
    local.git(&["tag", "light"]);
    forge.push_all(ann, *project, &local).await;
    ann.put(&format!("/projects/{project}"), json!({ "name": "Rocket", "path": "rocket-2" })).await;
    root.post(&format!("/groups/{group}/projects/{project}"), json!({})).await;
    ann.delete(&format!("/groups/{group}")).await;
    root.delete(&format!("/users/{bo}")).await;
    let requests = fixture.deliver().await;
    let expected = [
        "user_create",
        "key_create",
        "group_create",
        "user_add_to_group",
        "user_add_to_group",
        "user_add_to_team",
        "push refs/heads/master",
        "tag_push refs/tags/light",
        "project_rename",
        "project_transfer",
        "user_remove_from_team",
        "user_remove_from_team",
        "project_destroy",
        "user_remove_from_group",
        "user_remove_from_group",
        "group_destroy",
        "user_destroy",
    ];
    assert_eq!(summaries(&requests, "/system"), expected);
    for request in requests.iter().filter(|request| request.target == "/system") {
        assert_eq!(request.header("x-gitlab-event"), Some("System Hook"));
        assert_eq!((request.header("x-gitlab-token"), request.header("x-hub-signature-256")), (None, None));
    }
}

#[tokio::test]
async fn a_system_hook_test_is_sent_before_the_response() {
    let fixture = Fixture::new().await;
    let Fixture { root, receiver, .. } = &fixture;
    let url = receiver.url_with("127.0.0.1", "/system");
    let hook = root.make("/hooks", json!({ "url": url, "token": "t0ken" })).await;
    let shown = root.get(&format!("/hooks/{hook}")).await;
    let requests = receiver.requests();
    assert_eq!((shown.code(), requests.len()), (200, 1));
    assert_eq!(requests[0].json(), shown.json());
    assert_eq!(requests[0].header("x-gitlab-event"), Some("System Hook"));
    // `HEAD` sends nothing, and the response of the receiver does not matter.
    assert_eq!(root.head(&format!("/hooks/{hook}")).await.code(), 200);
    receiver.respond_with(MockResponse::status(500));
    assert_eq!(root.get(&format!("/hooks/{hook}")).await.code(), 200);
    assert_eq!(receiver.requests().len(), 2);
    assert_eq!(root.get(&format!("/hooks/{hook}/deliveries")).await.json(), json!([]));
}

#[tokio::test]
async fn a_delivery_is_logged_and_can_be_resent() {
    let fixture = Fixture::new().await;
    let Fixture { ann, receiver, project, hook, .. } = &fixture;
    let base = format!("/projects/{project}/hooks/{hook}");
    receiver.respond_with(
        MockResponse::status(422).header("set-cookie", "session=1").body("no, thank you; not t0ken either"),
    );
    ann.make(&format!("/projects/{project}/issues"), json!({ "title": "Cracked" })).await;
    fixture.deliver().await;
    let list = ann.get(&format!("{base}/deliveries")).await.json();
    let line = &list[0];
    assert_eq!((&line["state"], &line["attempt"], &line["event"]), (&json!("failed"), &json!(1), &json!("Issue Hook")));
    assert_eq!(line["response"]["status"], 422);
    let number = line["id"].as_i64().expect("a number");
    let shown = ann.get(&format!("{base}/deliveries/{number}")).await;
    let entry = shown.json();
    assert_eq!(entry["request"]["body"]["object_attributes"]["title"], "Cracked");
    let port = receiver.port();
    assert_eq!(entry["request"]["url"], format!("http://*****:*****@127.0.0.1:{port}/project?key=k"));
    for secret in ["t0ken", "pass%20word", "pass word", "session=1"] {
        assert!(!shown.to_string().contains(secret), "{secret}: {shown}");
    }
    receiver.respond_with(MockResponse::ok());
    let again = ann.post(&format!("{base}/deliveries/{number}/resend"), json!({})).await;
    assert_eq!((again.code(), &again.json()["state"]), (201, &json!("waiting")));
    fixture.deliver().await;
    let requests = receiver.requests();
    assert_eq!(requests[0].header("x-gitlab-event-uuid"), requests[1].header("x-gitlab-event-uuid"));
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(ann.get(&format!("{base}/deliveries")).await.join_field("state"), "delivered failed");
}

#[tokio::test]
async fn status_changes_of_pipelines_and_builds_are_sent() {
    let fixture = Fixture::new().await;
    let Fixture { forge, ann, project, .. } = &fixture;
    let url = fixture.receiver.url_with("127.0.0.1", "/builds");
    let hook = json!({ "url": url, "build_events": true, "pipeline_events": true, "push_events": false });
    ann.make(&format!("/projects/{project}/hooks"), hook).await;
    let local = LocalRepository::new();
    local.write("kiln.txt", "cold\n");
    let sha = local.commit("Build the kiln");
    forge.push_all(ann, *project, &local).await;
    fixture.deliver().await;

    let file = "fire:\n  stage: build\n  script: burn\nlook:\n  script: see\n";
    let sha: model::Oid = sha.parse().expect("a commit");
    let pipeline = forge.start_pipeline_at(*project, Some(ann.id), "master", sha, file).await;
    let requests = fixture.deliver().await;
    let summarize = |requests: &[ReceivedRequest]| -> Vec<String> {
        requests
            .iter()
            .map(|request| {
                let payload = request.json();
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                match payload["object_kind"].as_str() {
                    Some("build") => format!("{} {}", text(&payload["build_name"]), text(&payload["build_status"])),
                    _ => format!("pipeline {}", text(&payload["object_attributes"]["status"])),
                }
            })
            .collect()
    };
    assert_eq!(summarize(&requests), ["fire created", "look created", "pipeline pending"]);
    let whole = requests[2].json();
    assert_eq!(whole["object_attributes"]["id"], pipeline.id.get());
    assert_eq!(whole["object_attributes"]["stages"], json!(["build", "test"]));
    assert_eq!(whole["commit"]["message"], "Build the kiln\n");
    assert_eq!(whole["user"]["username"], "ann");
    let names: Vec<&Value> = whole["builds"].as_array().expect("builds").iter().map(|build| &build["name"]).collect();
    assert_eq!(names, ["fire", "look"]);

    let runner = forge.insert_runner("the oven");
    let burning = JobId::new(whole["builds"][0]["id"].as_i64().expect("a number"));
    forge.assign_job(burning, runner).await;
    let requests = fixture.deliver().await;
    assert_eq!(summarize(&requests), ["fire running", "pipeline running"]);
    let begun = requests[0].json();
    assert_eq!((&begun["build_id"], &begun["commit"]["id"]), (&json!(burning.get()), &json!(pipeline.id.get())));
    assert_eq!((&begun["user"]["email"], &begun["sha"]), (&json!("ann@example.org"), &json!(sha.to_string())));
    assert_eq!(requests[1].json()["builds"][0]["runner"]["description"], "the oven");
}
