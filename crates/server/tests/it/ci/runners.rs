//! Runners join and leave, and people steer them.

use axum::{
    body::Body,
    http::{Method, Request},
};
use forge::{Caller, runners, waiting};
use insta::assert_snapshot;
use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::{Answer, Client, TestForge};

use crate::admin::binary::Home;

/// The token with which runners join the instance.
pub(crate) async fn registration_token(forge: &TestForge) -> String {
    let token = forge.forge.write(Caller::system(), runners::registration_token).await;
    token.expect("a token").reveal().to_owned()
}

/// Calls one of the protocols of runners, without a token in a header.
pub(crate) async fn call(forge: &TestForge, method: Method, path: &str, body: Value) -> Answer {
    call_as(forge, method, path, &[], body).await
}

/// The same with headers.
pub(crate) async fn call_as(
    forge: &TestForge,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("host", "gable.test");
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    forge.anonymous().send(request, Body::from(body.to_string())).await
}

/// Lets a runner join; answers its number and its token.
pub(crate) async fn join(forge: &TestForge, token: &str, mut says: Value) -> (i64, String) {
    says["token"] = json!(token);
    let joined = call(forge, Method::POST, "/api/v4/runners", says).await;
    assert_eq!(joined.code(), 201, "{joined}");
    let joined = joined.json();
    (joined["id"].as_i64().expect("a number"), joined["token"].as_str().expect("a token").to_owned())
}

/// Lets a shared runner join.
pub(crate) async fn join_instance(forge: &TestForge, says: Value) -> (i64, String) {
    let token = registration_token(forge).await;
    join(forge, &token, says).await
}

/// The token with which runners join a project.
pub(crate) async fn token_of_project(owner: &Client, project: i64) -> String {
    let shown = owner.get(&format!("/projects/{project}")).await.json();
    shown["runners_token"].as_str().expect("a token").to_owned()
}

/// Lets a runner join a project.
pub(crate) async fn join_project(forge: &TestForge, owner: &Client, project: i64, says: Value) -> (i64, String) {
    join(forge, &token_of_project(owner, project).await, says).await
}

#[tokio::test]
async fn a_runner_joins_the_instance_and_leaves_it() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let token = registration_token(&forge).await;
    let says = json!({
        "token": token, "description": "big", "tag_list": "a, b,a", "locked": true, "maximum_timeout": 7200,
        "info": { "name": "gitlab-runner", "version": "16.1.0", "revision": "abc", "platform": "linux",
                  "architecture": "amd64", "executor": "shell", "features": { "refspecs": true } },
    });
    let joined = call(&forge, Method::POST, "/api/v4/runners.json", says).await;
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
        call(&forge, Method::POST, "/api/v4/runners/verify", json!({ "token": own, "system_id": "s" })).await;
    assert_eq!((verified.code(), verified.json()), (200, joined.json()));
    for header in ["private-token", "runner-token"] {
        let verified = call_as(&forge, Method::POST, "/api/v4/runners/verify", &[(header, &own)], json!({})).await;
        assert_eq!(verified.code(), 200, "{header}: {verified}");
    }
    let machine = call(&forge, Method::DELETE, "/api/v4/runners/managers", json!({ "token": own })).await;
    assert_eq!((machine.code(), machine.text.as_str()), (204, ""));
    let left = call(&forge, Method::DELETE, "/api/v4/runners", json!({ "token": own })).await;
    assert_eq!((left.code(), left.text.as_str()), (204, ""));
    for (method, path) in [
        (Method::POST, "/api/v4/runners/verify"),
        (Method::DELETE, "/api/v4/runners"),
        (Method::DELETE, "/api/v4/runners/managers"),
        (Method::DELETE, "/ci/api/v1/runners/delete"),
        (Method::POST, "/api/v4/jobs/request"),
        (Method::POST, "/ci/api/v1/builds/register.json"),
    ] {
        let answer = call(&forge, method, path, json!({ "token": own })).await;
        assert_eq!(answer.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}", "{path}");
    }
}

#[tokio::test]
async fn an_older_runner_joins_a_project_and_leaves_it() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let token = token_of_project(&ann, project).await;
    let says = json!({ "token": token, "description": "old", "tag_list": "", "run_untagged": true, "locked": false });
    let joined = call(&forge, Method::POST, "/ci/api/v1/runners/register.json", says).await;
    let own = joined.json()["token"].as_str().expect("a token").to_owned();
    assert_eq!((joined.code(), joined.json()), (201, json!({ "id": 1, "token": own })));
    let shown = ann.get("/runners/1").await.json();
    assert_eq!((&shown["is_shared"], &shown["token"]), (&json!(false), &json!(own)));
    assert_eq!(
        shown["projects"],
        json!([{ "id": 1, "name": "x", "name_with_namespace": "ann / x", "path": "x", "path_with_namespace": "ann/x" }])
    );
    let left = call(&forge, Method::DELETE, "/ci/api/v1/runners/delete", json!({ "token": own })).await;
    assert_eq!((left.code(), left.text.as_str()), (200, "null"));
    assert_eq!(ann.get("/runners/1").await.to_string(), "404 Not Found\n{\"message\":\"404 Runner Not Found\"}");
}

#[tokio::test]
async fn who_shows_no_good_token_does_not_join() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let gone = ann.make("/projects", json!({ "name": "y" })).await;
    let old = registration_token(&forge).await;
    let reset = forge.forge.write(Caller::system(), runners::reset_registration_token).await.expect("another");
    assert_ne!(reset.reveal(), old);
    let of_gone = token_of_project(&ann, gone).await;
    assert_eq!(ann.delete(&format!("/projects/{gone}")).await.code(), 200);
    let (_, of_runner) = join_project(&forge, &ann, project, json!({})).await;
    let before = forge.dump();
    for token in [old, of_gone, of_runner, ann.token.clone().expect("a token"), "x".into(), "ä\u{1}".into()] {
        for path in ["/api/v4/runners", "/ci/api/v1/runners/register"] {
            // What else is wrong is not told to strangers.
            let answer = call(&forge, Method::POST, path, json!({ "token": token, "maximum_timeout": "x" })).await;
            assert_eq!(answer.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        }
    }
    for body in [json!({}), json!({ "token": null })] {
        let answer = call(&forge, Method::POST, "/api/v4/runners", body).await;
        assert!(answer.to_string().starts_with("400 Bad Request\n{\"error\":\"token is "), "{answer}");
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn a_runner_that_breaks_the_rules_does_not_join() {
    let forge = TestForge::start().await;
    let token = registration_token(&forge).await;
    let ask = async |path: &str, mut says: Value| {
        says["token"] = json!(token);
        call(&forge, Method::POST, path, says).await
    };
    let v4 = "/api/v4/runners";
    assert_snapshot!(ask(v4, json!({ "run_untagged": false })).await, @r#"
    400 Bad Request
    {"message":{"tag_list":["can't be empty if the runner takes no builds without tags"]}}
    "#);
    assert_snapshot!(ask("/ci/api/v1/runners/register", json!({ "run_untagged": false, "tag_list": "" })).await, @r#"
    404 Not Found
    {"message":{"tag_list":["can't be empty if the runner takes no builds without tags"]}}
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
    // Zero is no limit, and what a runner says about itself never matters.
    let odd = json!({ "maximum_timeout": 0, "paused": true, "info": ["x"], "access_level": "not_protected", "x": 1 });
    assert_eq!(ask(v4, odd).await.code(), 201);
    let root = forge.admin().await;
    assert_eq!(root.get("/runners/1").await.json()["active"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_instance_is_made_once() {
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
async fn the_runner_of_the_service_is_made_once() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let token = runners::own_token(&forge.forge, "here".into()).await.expect("a token");
    assert_eq!(runners::own_token(&forge.forge, "here".into()).await.expect("a token").reveal(), token.reveal());
    let all = root.get("/runners/all").await;
    assert_eq!(
        all.json(),
        json!([{ "id": 1, "description": "built-in", "active": true, "is_shared": true, "name": null }])
    );
    assert_eq!(root.get("/runners/1").await.json()["token"], json!(token.reveal()));
    // Whoever removes it gets another one at the next start.
    assert_eq!(root.delete("/runners/1").await.code(), 200);
    assert_eq!(runners::own_token(&forge.forge, "here".into()).await.expect("a token").reveal(), token.reveal());
    assert_eq!(root.get("/runners/all").await.each("id"), "2");
}

#[tokio::test]
async fn lists_show_runners_by_right_and_scope() {
    let forge = TestForge::start().await;
    let (root, ann, ben) = (forge.admin().await, forge.user("ann").await, forge.user("ben").await);
    let own = ann.make("/projects", json!({ "name": "own" })).await;
    let other = ben.make("/projects", json!({ "name": "other" })).await;
    for (user, level) in [(&ann, 30), (&root, 40)] {
        let member = json!({ "user_id": user.id, "access_level": level });
        assert_eq!(ben.post(&format!("/projects/{other}/members"), member).await.code(), 201);
    }
    let (_, shared) = join_instance(&forge, json!({})).await;
    join_instance(&forge, json!({ "paused": true })).await;
    join_project(&forge, &ann, own, json!({})).await;
    join_project(&forge, &ben, other, json!({ "active": false })).await;
    let ids = async |client: &Client, path: &str| client.get(path).await.each("id");
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
    assert_eq!((page.each("id"), page.header("x-total")), ("4".into(), "4"));
    assert_eq!(ann.get("/runners/all").await.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
    for path in ["/runners?scope=shared", "/runners/all?scope=x"] {
        let answer = if path.contains("all") { root.get(path).await } else { ann.get(path).await };
        assert_eq!(answer.to_string(), "400 Bad Request\n{\"error\":\"scope does not have a valid value\"}");
    }
    // Heard of within the last hour.
    assert_eq!(all("online").await, "");
    assert_eq!(call(&forge, Method::POST, "/api/v4/runners/verify", json!({ "token": shared })).await.code(), 200);
    wait_for(async || all("online").await == "1").await;
    forge.clock.advance(SignedDuration::from_mins(61));
    assert_eq!(all("online").await, "");
}

/// Waits for something that happens beside the answers.
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
async fn what_a_runner_says_about_itself_is_noted_now_and_then() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (_, token) = join_instance(&forge, json!({ "info": { "name": "n", "version": "1" } })).await;
    let ask = async |version: &str| {
        let body = json!({ "token": token, "info": { "version": version } });
        assert_eq!(call(&forge, Method::POST, "/api/v4/jobs/request", body).await.code(), 204);
    };
    let shown = async || {
        let shown = root.get("/runners/1").await.json();
        format!("{} {} {}", shown["name"], shown["version"], shown["contacted_at"])
    };
    ask("2").await;
    wait_for(async || shown().await == "\"n\" \"2\" \"2026-01-02T03:04:05.678Z\"").await;
    // Nothing is written while what was written is young enough.
    let before = forge.dump();
    forge.clock.advance(SignedDuration::from_secs(29));
    ask("3").await;
    assert_eq!(forge.dump(), before);
    forge.clock.advance(SignedDuration::from_secs(2));
    ask("4").await;
    wait_for(async || shown().await == "\"n\" \"4\" \"2026-01-02T03:04:36.678Z\"").await;
}

#[tokio::test]
async fn who_may_steer_a_runner() {
    let forge = TestForge::start().await;
    let (root, ann, ben) = (forge.admin().await, forge.user("ann").await, forge.user("ben").await);
    let own = ann.make("/projects", json!({ "name": "own" })).await;
    join_instance(&forge, json!({ "description": "shared" })).await;
    join_project(&forge, &ann, own, json!({ "description": "own" })).await;
    // A shared one is seen by everybody, without its token.
    let shown = ben.get("/runners/1").await;
    assert_eq!((shown.code(), shown.json().get("token")), (200, None));
    assert!(root.get("/runners/1").await.json()["token"].is_string());
    assert!(ann.get("/runners/2").await.json()["token"].is_string());
    assert!(root.get("/runners/2").await.json()["token"].is_string());
    assert_snapshot!(ben.get("/runners/2").await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner builds no project of which you are a master."}
    "#);
    assert_snapshot!(ann.put("/runners/1", json!({ "active": false })).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is shared; only an administrator can change it."}
    "#);
    assert_snapshot!(ben.put("/runners/2", json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner builds no project of which you are a master."}
    "#);
    assert_snapshot!(ann.put("/runners/2", json!({})).await, @r#"
    400 Bad Request
    {"error":"description, active, tag_list, run_untagged, locked are missing, at least one parameter must be provided"}
    "#);
    assert_snapshot!(ann.put("/runners/2", json!({ "run_untagged": false })).await, @r#"
    400 Bad Request
    {"message":{"tag_list":["can't be empty if the runner takes no builds without tags"]}}
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
async fn a_runner_builds_further_projects_and_fewer() {
    let forge = TestForge::start().await;
    let (root, ann, ben) = (forge.admin().await, forge.user("ann").await, forge.user("ben").await);
    let one = ann.make("/projects", json!({ "name": "one" })).await;
    let two = ann.make("/projects", json!({ "name": "two" })).await;
    let bens = ben.make("/projects", json!({ "name": "three" })).await;
    let (runner, _) = join_project(&forge, &ann, one, json!({})).await;
    let (locked, _) = join_project(&forge, &ann, one, json!({ "locked": true })).await;
    let (shared, _) = join_instance(&forge, json!({})).await;
    let enable = async |client: &Client, project: i64, runner: i64| {
        client.post(&format!("/projects/{project}/runners"), json!({ "runner_id": runner })).await
    };
    let disable = async |client: &Client, project: i64, runner: i64| {
        client.delete(&format!("/projects/{project}/runners/{runner}")).await
    };
    assert_snapshot!(disable(&ann, one, runner).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner builds no other project; remove the runner itself instead."}
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
    {"message":"403 Forbidden  - The runner is locked; it builds no further projects."}
    "#);
    assert_snapshot!(enable(&root, two, shared).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner is shared; it builds every project that wants shared runners."}
    "#);
    assert_eq!(enable(&ben, bens, runner).await.code(), 403);
    assert_eq!(enable(&ben, one, runner).await.code(), 404);
    assert_eq!(enable(&ann, two, 99).await.text, "{\"message\":\"404 Runner Not Found\"}");
    let missing = ann.post(&format!("/projects/{two}/runners"), json!({})).await;
    assert_eq!(missing.text, "{\"error\":\"runner_id is missing\"}");
    assert_snapshot!(ann.delete(&format!("/runners/{runner}")).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - The runner builds more than one project; only an administrator can remove it."}
    "#);
    assert_eq!(disable(&ben, bens, runner).await.text, "{\"message\":\"404 Runner Not Found\"}");
    assert_eq!(disable(&ann, one, shared).await.text, "{\"message\":\"404 Runner Not Found\"}");
    assert_eq!(disable(&ann, one, runner).await.code(), 200);
    assert_eq!(ann.get(&format!("/projects/{one}/runners?scope=specific")).await.each("id"), "2");
    // A project that goes takes its place at the runner along.
    assert_eq!(enable(&ann, one, runner).await.code(), 201);
    assert_eq!(ann.delete(&format!("/projects/{one}")).await.code(), 200);
    forge.do_all_jobs().await;
    assert_eq!(ann.get(&format!("/runners/{runner}")).await.json()["projects"][0]["id"], json!(two));
    assert_eq!(disable(&ann, two, runner).await.code(), 403);
    assert_eq!(root.delete(&format!("/runners/{runner}")).await.code(), 200);
    assert_eq!(root.get(&format!("/runners/{locked}")).await.json()["projects"], json!([]));
}

#[test]
fn the_operator_asks_for_the_token_and_lists_runners() {
    let home = Home::new();
    home.start().stop();
    let token = home.admin(&["runner", "token"]);
    assert_eq!(token.trim_end().len(), 20);
    assert_eq!(home.admin(&["runner", "token"]), token);
    let other = home.admin(&["runner", "token", "--reset"]);
    assert_ne!(other, token);
    assert_eq!(home.admin(&["runner", "token"]), other);
    let list = home.admin(&["runner", "list"]);
    assert_eq!(list.split_whitespace().collect::<Vec<_>>().join(" "), "id kind active last heard of tags description");
}

#[tokio::test]
async fn a_job_that_no_runner_will_take_says_why() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x", "shared_runners_enabled": true })).await;
    let file = "plain: {script: make}\nspecial: {script: make, tags: [mac, arm]}";
    forge.plant_pipeline(project, Some(ann.id), file).await;
    let reasons = async || {
        let listed = ann.get(&format!("/projects/{project}/builds")).await.json();
        let mut told: Vec<(String, Value)> = listed
            .as_array()
            .expect("a list")
            .iter()
            .map(|build| {
                assert_eq!(build["stuck"], if build["pending_reason"].is_null() { Value::Null } else { json!(true) });
                (build["name"].as_str().expect("a name").to_owned(), build["pending_reason"].clone())
            })
            .collect();
        told.sort_by(|one, other| one.0.cmp(&other.0));
        told.into_iter().map(|(_, reason)| reason).collect::<Vec<_>>()
    };
    let none = "there is no runner: register one for this project or for the instance";
    assert_eq!(reasons().await, [json!(none), json!(none)]);
    let stuck = forge.forge.read(Caller::system(), waiting::stuck_jobs).await.expect("looked at");
    let told: Vec<_> = stuck.iter().map(|jobs| (jobs.path.as_str(), jobs.count, jobs.reason.as_str())).collect();
    assert_eq!(told, [("ann/x", 1, none), ("ann/x", 1, none)]);

    let (shared, _) = join_instance(&forge, json!({})).await;
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

    join_project(&forge, &ann, project, json!({ "tag_list": "mac,arm", "run_untagged": false })).await;
    assert_eq!(reasons().await, [json!("no active runner takes jobs without tags"), Value::Null]);
    // One that is not heard of for long may not come back.
    forge.clock.advance(SignedDuration::from_mins(61));
    let silent = json!("no runner that could take it was heard from in the last hour");
    assert_eq!(reasons().await, [json!("no active runner takes jobs without tags"), silent]);
}
