//! Registration and management of runners.

use axum::{
    body::Body,
    http::{Method, Request},
};
use forge::{Caller, runners, stuck_jobs};
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{ProjectId, RunnerId};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

use crate::support::TestInstance;

/// The registration token of the instance.
pub(crate) async fn registration_token(forge: &TestForge) -> String {
    let token = forge.forge.write(Caller::system(), runners::registration_token).await;
    token.expect("a token").reveal().to_owned()
}

/// Calls a runner protocol without a token in a header.
pub(crate) async fn call_runner_api(forge: &TestForge, method: Method, path: &str, body: Value) -> TestResponse {
    call_runner_api_with_headers(forge, method, path, &[], body).await
}

/// Calls a runner protocol with headers.
pub(crate) async fn call_runner_api_with_headers(
    forge: &TestForge,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> TestResponse {
    let mut request = Request::builder().method(method).uri(path).header("host", "gable.test");
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    forge.anonymous().send(request, Body::from(body.to_string())).await
}

/// Registers a runner; returns its ID and its token.
pub(crate) async fn register(forge: &TestForge, token: &str, mut params: Value) -> (RunnerId, String) {
    params["token"] = json!(token);
    let joined = call_runner_api(forge, Method::POST, "/api/v4/runners", params).await;
    assert_eq!(joined.code(), 201, "{joined}");
    let joined = joined.json();
    let id = RunnerId::new(joined["id"].as_i64().expect("a number"));
    (id, joined["token"].as_str().expect("a token").to_owned())
}

/// Registers a shared runner.
pub(crate) async fn register_shared(forge: &TestForge, params: Value) -> (RunnerId, String) {
    let token = registration_token(forge).await;
    register(forge, &token, params).await
}

/// The registration token of a project.
pub(crate) async fn project_registration_token(owner: &TestClient, project: ProjectId) -> String {
    let shown = owner.get(&format!("/projects/{project}")).await.json();
    shown["runners_token"].as_str().expect("a token").to_owned()
}

/// Registers a runner for a project.
pub(crate) async fn register_for_project(
    forge: &TestForge,
    owner: &TestClient,
    project: ProjectId,
    params: Value,
) -> (RunnerId, String) {
    register(forge, &project_registration_token(owner, project).await, params).await
}

#[tokio::test]
async fn a_runner_is_registered_for_the_instance_and_unregistered() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let token = registration_token(&forge).await;
    let params = json!({
        "token": token, "description": "big", "tag_list": "a, b,a", "locked": true, "maximum_timeout": 7200,
        "info": { "name": "gitlab-runner", "version": "16.1.0", "revision": "abc", "platform": "linux",
                  "architecture": "amd64", "executor": "shell", "features": { "refspecs": true } },
    });
    let joined = call_runner_api(&forge, Method::POST, "/api/v4/runners.json", params).await;
    assert_eq!((joined.code(), joined.header("cache-control")), (201, "no-store"));
    let own = joined.json()["token"].as_str().expect("a token").to_owned();
    assert_eq!(joined.json(), json!({ "id": 1, "token": own, "token_expires_at": null }));
    assert_eq!(
        root.get("/runners/1").await.json(),
        json!({
            "id": 1, "description": "big", "active": true, "is_shared": true, "name": "gitlab-runner",
            "tag_list": ["a", "b"], "run_untagged": true, "locked": true, "version": "16.1.0", "revision": "abc",
            "platform": "linux", "architecture": "amd64", "contacted_at": null, "token": own, "projects": [],
        })
    );
    let verified =
        call_runner_api(&forge, Method::POST, "/api/v4/runners/verify", json!({ "token": own, "system_id": "s" }))
            .await;
    assert_eq!((verified.code(), verified.json()), (200, joined.json()));
    for header in ["private-token", "runner-token"] {
        let verified =
            call_runner_api_with_headers(&forge, Method::POST, "/api/v4/runners/verify", &[(header, &own)], json!({}))
                .await;
        assert_eq!(verified.code(), 200, "{header}: {verified}");
    }
    let machine = call_runner_api(&forge, Method::DELETE, "/api/v4/runners/managers", json!({ "token": own })).await;
    assert_eq!((machine.code(), machine.text.as_str()), (204, ""));
    let left = call_runner_api(&forge, Method::DELETE, "/api/v4/runners", json!({ "token": own })).await;
    assert_eq!((left.code(), left.text.as_str()), (204, ""));
    for (method, path) in [
        (Method::POST, "/api/v4/runners/verify"),
        (Method::DELETE, "/api/v4/runners"),
        (Method::DELETE, "/api/v4/runners/managers"),
        (Method::DELETE, "/ci/api/v1/runners/delete"),
        (Method::POST, "/api/v4/jobs/request"),
        (Method::POST, "/ci/api/v1/builds/register.json"),
    ] {
        let answer = call_runner_api(&forge, method, path, json!({ "token": own })).await;
        assert_eq!(answer.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}", "{path}");
    }
}

#[tokio::test]
async fn an_older_runner_is_registered_for_a_project_and_unregistered() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "x" })).await);
    let token = project_registration_token(&ann, project).await;
    let params = json!({ "token": token, "description": "old", "tag_list": "", "run_untagged": true, "locked": false });
    let joined = call_runner_api(&forge, Method::POST, "/ci/api/v1/runners/register.json", params).await;
    let own = joined.json()["token"].as_str().expect("a token").to_owned();
    assert_eq!((joined.code(), joined.json()), (201, json!({ "id": 1, "token": own })));
    let shown = ann.get("/runners/1").await.json();
    assert_eq!((&shown["is_shared"], &shown["token"]), (&json!(false), &json!(own)));
    assert_eq!(
        shown["projects"],
        json!([{ "id": 1, "name": "x", "name_with_namespace": "ann / x", "path": "x", "path_with_namespace": "ann/x" }])
    );
    let left = call_runner_api(&forge, Method::DELETE, "/ci/api/v1/runners/delete", json!({ "token": own })).await;
    assert_eq!((left.code(), left.text.as_str()), (200, "null"));
    assert_eq!(ann.get("/runners/1").await.to_string(), "404 Not Found\n{\"message\":\"404 Runner Not Found\"}");
}

#[tokio::test]
async fn registration_needs_a_valid_token() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "x" })).await);
    let gone = ProjectId::new(ann.make("/projects", json!({ "name": "y" })).await);
    let old = registration_token(&forge).await;
    let reset = forge.forge.write(Caller::system(), runners::reset_registration_token).await.expect("another");
    assert_ne!(reset.reveal(), old);
    let of_gone = project_registration_token(&ann, gone).await;
    assert_eq!(ann.delete(&format!("/projects/{gone}")).await.code(), 200);
    let (_, of_runner) = register_for_project(&forge, &ann, project, json!({})).await;
    let before = forge.dump();
    for token in [old, of_gone, of_runner, ann.token.clone().expect("a token"), "x".into(), "ä\u{1}".into()] {
        for path in ["/api/v4/runners", "/ci/api/v1/runners/register"] {
            // Other errors are not revealed without a valid token.
            let answer =
                call_runner_api(&forge, Method::POST, path, json!({ "token": token, "maximum_timeout": "x" })).await;
            assert_eq!(answer.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        }
    }
    for body in [json!({}), json!({ "token": null })] {
        let answer = call_runner_api(&forge, Method::POST, "/api/v4/runners", body).await;
        assert!(answer.to_string().starts_with("400 Bad Request\n{\"error\":\"token is "), "{answer}");
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn an_invalid_registration_is_rejected() {
    let forge = TestForge::start().await;
    let token = registration_token(&forge).await;
    let ask = async |path: &str, mut params: Value| {
        params["token"] = json!(token);
        call_runner_api(&forge, Method::POST, path, params).await
    };
    let v4 = "/api/v4/runners";
    assert_snapshot!(ask(v4, json!({ "run_untagged": false })).await, @r#"
    400 Bad Request
    {"message":{"tag_list":["can't be empty if the runner does not take untagged jobs"]}}
    "#);
    assert_snapshot!(ask("/ci/api/v1/runners/register", json!({ "run_untagged": false, "tag_list": "" })).await, @r#"
    404 Not Found
    {"message":{"tag_list":["can't be empty if the runner does not take untagged jobs"]}}
    "#);
    assert_snapshot!(ask(v4, json!({ "maximum_timeout": 599, "description": "d".repeat(256) })).await, @r#"
    400 Bad Request
    {"message":{"description":["is too long (maximum is 255 characters)"],"maximum_timeout":["must be at least 600 seconds"]}}
    "#);
    assert_snapshot!(ask(v4, json!({ "tag_list": ["a\nb"], "locked": "maybe" })).await, @r#"
    400 Bad Request
    {"error":"locked is invalid"}
    "#);
    assert_snapshot!(ask(v4, json!({ "tag_list": ["a\nb"] })).await, @r#"
    400 Bad Request
    {"message":{"tag_list":["is invalid"]}}
    "#);
    assert_snapshot!(ask(v4, json!({ "access_level": "ref_protected" })).await, @r#"
    400 Bad Request
    {"error":"access_level is invalid"}
    "#);
    // Zero means no limit, and invalid details of a runner are accepted.
    let odd = json!({ "maximum_timeout": 0, "paused": true, "info": ["x"], "access_level": "not_protected", "x": 1 });
    assert_eq!(ask(v4, odd).await.code(), 201);
    let root = forge.admin().await;
    assert_eq!(root.get("/runners/1").await.json()["active"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_token_of_the_instance_is_stable() {
    let forge = TestForge::start().await;
    let tasks: Vec<_> = (0..12)
        .map(|_| {
            let forge = forge.forge.clone();
            tokio::spawn(async move { forge.write(Caller::system(), runners::registration_token).await })
        })
        .collect();
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(task.await.expect("ended").expect("a token").reveal().to_owned());
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 1);
    assert!(!forge.dump().contains(&tokens[0]));
}

#[tokio::test]
async fn the_built_in_runner_is_registered_once() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let token = runners::built_in_runner_token(&forge.forge, "here".into()).await.expect("a token");
    assert_eq!(
        runners::built_in_runner_token(&forge.forge, "here".into()).await.expect("a token").reveal(),
        token.reveal()
    );
    let all = root.get("/runners/all").await;
    assert_eq!(
        all.json(),
        json!([{ "id": 1, "description": "built-in", "active": true, "is_shared": true, "name": null }])
    );
    assert_eq!(root.get("/runners/1").await.json()["token"], json!(token.reveal()));
    // If it is deleted, the next start registers another one.
    assert_eq!(root.delete("/runners/1").await.code(), 200);
    assert_eq!(
        runners::built_in_runner_token(&forge.forge, "here".into()).await.expect("a token").reveal(),
        token.reveal()
    );
    assert_eq!(root.get("/runners/all").await.join_field("id"), "2");
}

#[tokio::test]
async fn lists_show_runners_by_permission_and_scope() {
    let forge = TestForge::start().await;
    let (root, ann, ben) = (forge.admin().await, forge.user("ann").await, forge.user("ben").await);
    let own = ProjectId::new(ann.make("/projects", json!({ "name": "own" })).await);
    let other = ProjectId::new(ben.make("/projects", json!({ "name": "other" })).await);
    for (user, level) in [(&ann, 30), (&root, 40)] {
        let member = json!({ "user_id": user.id.get(), "access_level": level });
        assert_eq!(ben.post(&format!("/projects/{other}/members"), member).await.code(), 201);
    }
    let (_, shared) = register_shared(&forge, json!({})).await;
    register_shared(&forge, json!({ "paused": true })).await;
    register_for_project(&forge, &ann, own, json!({})).await;
    register_for_project(&forge, &ben, other, json!({ "active": false })).await;
    let ids = async |client: &TestClient, path: &str| client.get(path).await.join_field("id");
    assert_eq!(ids(&ann, "/runners").await, "3");
    assert_eq!(ids(&ben, "/runners").await, "4");
    assert_eq!(ids(&root, "/runners").await, "4");
    assert_eq!(ids(&ben, "/runners?scope=active").await, "");
    assert_eq!(ids(&ben, "/runners?scope=paused").await, "4");
    let all = async |scope: &str| ids(&root, &format!("/runners/all?scope={scope}")).await;
    assert_eq!(all("").await, "1 2 3 4");
    assert_eq!((all("active").await, all("paused").await), ("1 3".into(), "2 4".into()));
    assert_eq!((all("shared").await, all("specific").await), ("1 2".into(), "3 4".into()));
    assert_eq!(ids(&ann, &format!("/projects/{own}/runners")).await, "1 2 3");
    assert_eq!(ids(&ann, &format!("/projects/{own}/runners?scope=specific")).await, "3");
    assert_eq!(ann.get(&format!("/projects/{other}/runners")).await.code(), 403);
    let page = root.get("/runners/all?per_page=3&page=2").await;
    assert_eq!((page.join_field("id"), page.header("x-total")), ("4".into(), "4"));
    assert_eq!(ann.get("/runners/all").await.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
    for path in ["/runners?scope=shared", "/runners/all?scope=x"] {
        let answer = if path.contains("all") { root.get(path).await } else { ann.get(path).await };
        assert_eq!(answer.to_string(), "400 Bad Request\n{\"error\":\"scope does not have a valid value\"}");
    }
    // Contacted within the last hour.
    assert_eq!(all("online").await, "");
    assert_eq!(
        call_runner_api(&forge, Method::POST, "/api/v4/runners/verify", json!({ "token": shared })).await.code(),
        200
    );
    wait_for(async || all("online").await == "1").await;
    forge.clock.advance(SignedDuration::from_mins(61));
    assert_eq!(all("online").await, "");
}

/// Waits for an effect in the background.
pub(crate) async fn wait_for(happened: impl AsyncFn() -> bool) {
    for _ in 0..1000 {
        if happened().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it does not happen");
}

#[tokio::test]
async fn the_contact_of_a_runner_is_recorded_at_intervals() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (_, token) = register_shared(&forge, json!({ "info": { "name": "n", "version": "1" } })).await;
    let ask = async |version: &str| {
        let body = json!({ "token": token, "info": { "version": version } });
        assert_eq!(call_runner_api(&forge, Method::POST, "/api/v4/jobs/request", body).await.code(), 204);
    };
    let shown = async || {
        let shown = root.get("/runners/1").await.json();
        format!("{} {} {}", shown["name"], shown["version"], shown["contacted_at"])
    };
    ask("2").await;
    wait_for(async || shown().await == "\"n\" \"2\" \"2026-01-02T03:04:05.678Z\"").await;
    // Nothing is written until the interval has passed.
    let before = forge.dump();
    forge.clock.advance(SignedDuration::from_secs(29));
    ask("3").await;
    assert_eq!(forge.dump(), before);
    forge.clock.advance(SignedDuration::from_secs(2));
    ask("4").await;
    wait_for(async || shown().await == "\"n\" \"4\" \"2026-01-02T03:04:36.678Z\"").await;
}

#[tokio::test]
async fn permissions_to_change_a_runner() {
    let forge = TestForge::start().await;
    let (root, ann, ben) = (forge.admin().await, forge.user("ann").await, forge.user("ben").await);
    let own = ProjectId::new(ann.make("/projects", json!({ "name": "own" })).await);
    register_shared(&forge, json!({ "description": "shared" })).await;
    register_for_project(&forge, &ann, own, json!({ "description": "own" })).await;
    // All users see a shared runner, without its token.
    let shown = ben.get("/runners/1").await;
    assert_eq!((shown.code(), shown.json().get("token")), (200, None));
    assert!(root.get("/runners/1").await.json()["token"].is_string());
    assert!(ann.get("/runners/2").await.json()["token"].is_string());
    assert!(root.get("/runners/2").await.json()["token"].is_string());
    assert_snapshot!(ben.get("/runners/2").await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is enabled for no project in which you are a master"}
    "#);
    assert_snapshot!(ann.put("/runners/1", json!({ "active": false })).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is shared; only an administrator can change it"}
    "#);
    assert_snapshot!(ben.put("/runners/2", json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is enabled for no project in which you are a master"}
    "#);
    assert_snapshot!(ann.put("/runners/2", json!({})).await, @r#"
    400 Bad Request
    {"error":"description, active, tag_list, run_untagged, locked are missing, at least one parameter must be provided"}
    "#);
    assert_snapshot!(ann.put("/runners/2", json!({ "run_untagged": false })).await, @r#"
    400 Bad Request
    {"message":{"tag_list":["can't be empty if the runner does not take untagged jobs"]}}
    "#);
    assert_eq!(ann.put("/runners/9", json!({ "active": true })).await.text, "{\"message\":\"404 Runner Not Found\"}");
    assert_eq!(ann.get("/runners/x").await.text, "{\"error\":\"id is invalid\"}");
    let changes = json!({ "description": "mine", "active": false, "tag_list": ["a", "b"], "run_untagged": false });
    let shown = ann.put("/runners/2", changes).await.json();
    assert_eq!(
        [&shown["description"], &shown["active"], &shown["tag_list"], &shown["run_untagged"]],
        [&json!("mine"), &json!(false), &json!(["a", "b"]), &json!(false)]
    );
    assert_eq!(root.put("/runners/1", json!({ "locked": true })).await.json()["locked"], json!(true));
    assert_eq!(ben.delete("/runners/2").await.code(), 403);
    assert_eq!(ann.delete("/runners/1").await.code(), 403);
    let gone = ann.delete("/runners/2").await;
    assert_eq!(
        gone.json(),
        json!({ "id": 2, "description": "mine", "active": false, "is_shared": false, "name": null })
    );
    assert_eq!(ann.delete("/runners/2").await.code(), 404);
}

#[tokio::test]
async fn a_runner_is_enabled_and_disabled_for_projects() {
    let forge = TestForge::start().await;
    let (root, ann, ben) = (forge.admin().await, forge.user("ann").await, forge.user("ben").await);
    let one = ProjectId::new(ann.make("/projects", json!({ "name": "one" })).await);
    let two = ProjectId::new(ann.make("/projects", json!({ "name": "two" })).await);
    let bens = ProjectId::new(ben.make("/projects", json!({ "name": "three" })).await);
    let (runner, _) = register_for_project(&forge, &ann, one, json!({})).await;
    let (locked, _) = register_for_project(&forge, &ann, one, json!({ "locked": true })).await;
    let (shared, _) = register_shared(&forge, json!({})).await;
    let enable = async |client: &TestClient, project: ProjectId, runner: RunnerId| {
        client.post(&format!("/projects/{project}/runners"), json!({ "runner_id": runner.get() })).await
    };
    let disable = async |client: &TestClient, project: ProjectId, runner: RunnerId| {
        client.delete(&format!("/projects/{project}/runners/{runner}")).await
    };
    assert_snapshot!(disable(&ann, one, runner).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is enabled for no other project; delete the runner instead"}
    "#);
    assert_eq!(
        enable(&ann, two, runner).await.to_string(),
        "201 Created\n{\"id\":1,\"description\":\"\",\"active\":true,\"is_shared\":false,\"name\":null}"
    );
    assert_snapshot!(enable(&ann, two, runner).await, @r#"
    409 Conflict
    {"message":"Runner was already enabled for this project"}
    "#);
    assert_snapshot!(enable(&ann, two, locked).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is locked; it cannot be enabled for further projects"}
    "#);
    assert_snapshot!(enable(&root, two, shared).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is shared; it serves every project that uses shared runners"}
    "#);
    assert_eq!(enable(&ben, bens, runner).await.code(), 403);
    assert_eq!(enable(&ben, one, runner).await.code(), 404);
    assert_eq!(enable(&ann, two, RunnerId::new(99)).await.text, "{\"message\":\"404 Runner Not Found\"}");
    let missing = ann.post(&format!("/projects/{two}/runners"), json!({})).await;
    assert_eq!(missing.text, "{\"error\":\"runner_id is missing\"}");
    assert_snapshot!(ann.delete(&format!("/runners/{runner}")).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is enabled for more than one project; only an administrator can delete it"}
    "#);
    assert_eq!(disable(&ben, bens, runner).await.text, "{\"message\":\"404 Runner Not Found\"}");
    assert_eq!(disable(&ann, one, shared).await.text, "{\"message\":\"404 Runner Not Found\"}");
    assert_eq!(disable(&ann, one, runner).await.code(), 200);
    assert_eq!(ann.get(&format!("/projects/{one}/runners?scope=specific")).await.join_field("id"), "2");
    // A deleted project no longer counts.
    assert_eq!(enable(&ann, one, runner).await.code(), 201);
    assert_eq!(ann.delete(&format!("/projects/{one}")).await.code(), 200);
    forge.run_due_tasks().await;
    assert_eq!(ann.get(&format!("/runners/{runner}")).await.json()["projects"][0]["id"], json!(two.get()));
    assert_eq!(disable(&ann, two, runner).await.code(), 403);
    assert_eq!(root.delete(&format!("/runners/{runner}")).await.code(), 200);
    assert_eq!(root.get(&format!("/runners/{locked}")).await.json()["projects"], json!([]));
}

#[test]
fn the_operator_prints_the_registration_token_and_lists_runners() {
    let instance = TestInstance::new();
    instance.start().stop();
    let token = instance.admin(&["runner", "token"]);
    assert_eq!(token.trim_end().len(), 20);
    assert_eq!(instance.admin(&["runner", "token"]), token);
    let other = instance.admin(&["runner", "token", "--reset"]);
    assert_ne!(other, token);
    assert_eq!(instance.admin(&["runner", "token"]), other);
    let list = instance.admin(&["runner", "list"]);
    assert_eq!(list.split_whitespace().collect::<Vec<_>>().join(" "), "id kind active last contact tags description");
}

#[tokio::test]
async fn a_stuck_job_shows_the_reason() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "x", "shared_runners_enabled": true })).await);
    let file = "plain: {script: make}\nspecial: {script: make, tags: [mac, arm]}";
    forge.start_pipeline(project, Some(ann.id), file).await;
    let reasons = async || {
        let listed = ann.get(&format!("/projects/{project}/builds")).await.json();
        let mut reasons: Vec<(String, Value)> = listed
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| {
                assert_eq!(job["stuck"], if job["pending_reason"].is_null() { Value::Null } else { json!(true) });
                (job["name"].as_str().expect("a name").to_owned(), job["pending_reason"].clone())
            })
            .collect();
        reasons.sort_by(|one, other| one.0.cmp(&other.0));
        reasons.into_iter().map(|(_, reason)| reason).collect::<Vec<_>>()
    };
    let none = "there is no runner: register one for this project or for the instance";
    assert_eq!(reasons().await, [json!(none), json!(none)]);
    let stuck = forge.forge.read(Caller::system(), stuck_jobs::list).await.expect("looked at");
    let summary: Vec<_> = stuck.iter().map(|jobs| (jobs.path.as_str(), jobs.count, jobs.reason.as_str())).collect();
    assert_eq!(summary, [("ann/x", 1, none), ("ann/x", 1, none)]);

    let (shared, _) = register_shared(&forge, json!({})).await;
    let tags = json!("no active runner has all of the tags: mac, arm");
    assert_eq!(reasons().await, [Value::Null, tags.clone()]);
    let admin = forge.admin().await;
    assert_eq!(admin.put(&format!("/runners/{shared}"), json!({ "active": false })).await.code(), 200);
    let paused = json!("all runners of this project are paused");
    assert_eq!(reasons().await, [paused.clone(), paused]);
    let changed =
        ann.put(&format!("/projects/{project}"), json!({ "name": "x", "shared_runners_enabled": false })).await;
    assert_eq!(changed.code(), 200, "{changed}");
    let without = json!("the project has no runner and does not use shared runners");
    assert_eq!(reasons().await, [without.clone(), without]);

    register_for_project(&forge, &ann, project, json!({ "tag_list": "mac,arm", "run_untagged": false })).await;
    assert_eq!(reasons().await, [json!("no active runner takes jobs without tags"), Value::Null]);
    // A runner without recent contact may not come back.
    forge.clock.advance(SignedDuration::from_mins(61));
    let silent = json!("no runner that could take it was heard from in the last hour");
    assert_eq!(reasons().await, [json!("no active runner takes jobs without tags"), silent]);
}
