//! Runners ask for jobs, and each job is given to one of them.

use std::{collections::BTreeSet, time::Duration};

use axum::http::Method;
use diesel::{RunQueryDsl, sql_query};
use forge::assignments;
use model::{Build, Oid, Status};
use serde_json::{Value, json};
use store::{Conn, builds::NewBuildState};
use testkit::{Answer, Client, TestForge};
use tokio::task::JoinHandle;

use crate::ci::runners::{call, call_as, join_instance, join_project, wait_for};

const V4: &str = "/api/v4/jobs/request";
const OLD: &str = "/ci/api/v1/builds/register.json";
const ONE: &str = "one: {script: make}";

async fn ask(forge: &TestForge, token: &str) -> Answer {
    call(forge, Method::POST, V4, json!({ "token": token })).await
}

/// The number of the job that a runner gets, or 0.
async fn job_for(forge: &TestForge, token: &str) -> i64 {
    let answer = ask(forge, token).await;
    match answer.code() {
        201 => answer.json()["id"].as_i64().expect("a number"),
        204 => 0,
        _ => panic!("{answer}"),
    }
}

pub(crate) fn builds_of(forge: &TestForge, pipeline: i64) -> Vec<Build> {
    let now = forge.forge.now();
    forge.in_one_go(|db| store::builds::of_pipeline(db, pipeline, now).expect("asked"))
}

pub(crate) fn build(forge: &TestForge, id: i64) -> Build {
    let now = forge.forge.now();
    forge.in_one_go(|db| store::builds::by_ids(db, &[id], now).expect("asked")).pop().expect("a build")
}

pub(crate) fn execute(forge: &TestForge, sql: &str) {
    forge.in_one_go(|db| match db {
        Conn::Sqlite(conn) => sql_query(sql).execute(conn).expect("done"),
        Conn::Pg(conn) => sql_query(sql).execute(conn).expect("done"),
    });
}

/// Somebody with a project.
async fn owner(forge: &TestForge, name: &str) -> (Client, i64) {
    let owner = forge.user(name).await;
    let project = owner.make("/projects", json!({ "name": "rocket" })).await;
    (owner, project)
}

fn variable(job: &Value, key: &str) -> Value {
    let all = job["variables"].as_array().expect("variables");
    let mut found = all.iter().filter(|one| one["key"] == key).cloned().collect::<Vec<_>>();
    found.pop().map_or(Value::Null, |one| json!([one["value"], one["public"]]))
}

const WHOLE: &str = "
stages: [build, test]
variables: {COLOR: red, GIT_DEPTH: '3'}
compile:
  stage: build
  script: make
check:
  stage: test
  image: {name: 'rust:1', entrypoint: [sh]}
  services: [postgres, {name: 'redis:7', alias: cache}]
  script: [make check, echo done]
  after_script: [rm -r out]
  variables: {COLOR: blue}
  tags: [linux]
  timeout: 30 minutes
  environment: {name: review/$CI_COMMIT_REF_NAME, url: 'http://$CI_ENVIRONMENT_SLUG.$CI_COMMIT_REF_SLUG.test'}
  cache: {key: deps, paths: [target]}
  artifacts: {name: out, paths: [out], expire_in: 1 week, reports: {junit: a.xml}}
lone:
  stage: test
  script: make
  dependencies: []
";

/// A pipeline whose first stage is done and has left something behind; answers the second stage.
async fn with_second_stage(forge: &TestForge, ann: &Client, project: i64) -> [i64; 3] {
    let pipeline = forge.plant_pipeline_at(project, Some(ann.id), "topic", Oid([7; 20]), WHOLE).await;
    let builds = builds_of(forge, pipeline.id);
    let [compile, check, lone] = [builds[0].id, builds[1].id, builds[2].id];
    let now = forge.forge.now();
    forge.in_one_go(|db| {
        store::builds::set_status(db, &[compile], Status::Success, &NewBuildState::default(), now).expect("set");
        store::builds::set_status(db, &[check, lone], Status::Pending, &NewBuildState::default(), now).expect("set");
    });
    execute(
        forge,
        &format!(
            "INSERT INTO build_artifacts (project_id, build_id, kind, name, size, created_at) \
             VALUES ({project}, {compile}, 'archive', 'artifacts.zip', 10, 1)"
        ),
    );
    [compile, check, lone]
}

#[tokio::test]
async fn a_runner_gets_everything_that_it_has_to_know() {
    let forge = TestForge::setup().external_url("https://gable.test/sub").start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let [compile, check, lone] = with_second_stage(&forge, &ann, project).await;
    let (_, token) = join_project(&forge, &ann, project, json!({ "description": "r", "tag_list": "linux,big" })).await;
    let given = ask(&forge, &token).await;
    assert_eq!((given.code(), given.header("content-type")), (201, "application/json"));
    assert_eq!(given.header("cache-control"), "no-store");
    let job = given.json();
    let own = job["token"].as_str().expect("a token");
    assert_eq!((&job["id"], &job["allow_git_fetch"]), (&json!(check), &json!(true)));
    assert_eq!(
        job["job_info"],
        json!({
            "id": check, "name": "check", "stage": "test", "project_id": project, "project_name": "rocket",
            "project_storage_id": forge.storage_of(project).as_str()
        })
    );
    assert_eq!(
        job["git_info"],
        json!({
            "repo_url": format!("https://gitlab-ci-token:{own}@gable.test/sub/ann/rocket.git"),
            "ref": "topic", "sha": "07".repeat(20), "before_sha": "0".repeat(40), "ref_type": "branch",
            "refspecs": ["+refs/heads/topic:refs/remotes/origin/topic"], "depth": 3,
        })
    );
    assert_eq!(job["runner_info"], json!({ "timeout": 1800 }));
    assert_eq!(
        job["steps"],
        json!([
            { "name": "script", "script": ["make check", "echo done"], "timeout": 1800, "when": "on_success",
              "allow_failure": false },
            { "name": "after_script", "script": ["rm -r out"], "timeout": 1800, "when": "always",
              "allow_failure": true },
        ])
    );
    assert_eq!(job["image"], json!({ "name": "rust:1", "entrypoint": ["sh"] }));
    assert_eq!(job["services"][1], json!({ "name": "redis:7", "alias": "cache", "entrypoint": null, "command": null }));
    assert_eq!(
        job["artifacts"],
        json!([
            { "name": "out", "untracked": false, "paths": ["out"], "when": "on_success", "expire_in": "1 week",
              "artifact_type": "archive", "artifact_format": "zip" },
            { "name": "junit", "untracked": false, "paths": ["a.xml"], "when": "always", "expire_in": "1 week",
              "artifact_type": "junit", "artifact_format": "gzip" },
        ])
    );
    assert_eq!(
        job["cache"],
        json!([{ "key": "deps", "untracked": false, "paths": ["target"], "policy": "pull-push", "when": "on_success" }])
    );
    assert_eq!(
        job["dependencies"],
        json!([{ "id": compile, "name": "compile", "token": own,
                 "artifacts_file": { "filename": "artifacts.zip", "size": 10 } }])
    );
    assert_eq!((&job["credentials"], &job["features"]["trace_sections"]), (&json!([]), &json!(true)));
    for (key, value, public) in [
        ("CI", "true", true),
        ("CI_JOB_ID", &*check.to_string(), true),
        ("CI_BUILD_ID", &*check.to_string(), true),
        ("CI_JOB_TOKEN", own, false),
        ("CI_BUILD_TOKEN", own, false),
        ("CI_COMMIT_REF_NAME", "topic", true),
        ("CI_BUILD_REF_NAME", "topic", true),
        ("CI_BUILD_REF", &*"07".repeat(20), true),
        ("CI_PROJECT_PATH", "ann/rocket", true),
        ("CI_PROJECT_NAMESPACE", "ann", true),
        ("CI_PROJECT_URL", "https://gable.test/sub/ann/rocket", true),
        ("CI_RUNNER_TAGS", "linux, big", true),
        ("CI_RUNNER_DESCRIPTION", "r", true),
        ("COLOR", "blue", true),
        ("GITLAB_USER_EMAIL", "ann@example.org", true),
        ("CI_ENVIRONMENT_NAME", "review/topic", true),
        ("CI_ENVIRONMENT_URL", "http://review-topic.topic.test", true),
    ] {
        assert_eq!(variable(&job, key), json!([value, public]), "{key}");
    }
    assert_eq!(variable(&job, "CI_COMMIT_TAG"), Value::Null);
    let all = job["variables"].as_array().expect("variables");
    assert!(all.iter().all(|one| one["masked"].is_boolean() && one["value"].is_string()), "{all:?}");
    // It may say that it wants nothing of the others.
    let second = ask(&forge, &token).await.json();
    assert_eq!((&second["id"], &second["dependencies"]), (&json!(lone), &json!([])));
    assert_eq!((&second["artifacts"], &second["cache"], &second["image"]), (&Value::Null, &json!([]), &Value::Null));
    assert_eq!(second["runner_info"], json!({ "timeout": 3600 }));
    assert_eq!((build(&forge, check).status, build(&forge, compile).status), (Status::Running, Status::Success));
}

#[tokio::test]
async fn an_older_runner_gets_it_in_its_own_words() {
    let forge = TestForge::start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let [compile, check, _] = with_second_stage(&forge, &ann, project).await;
    let (_, token) = join_project(&forge, &ann, project, json!({ "tag_list": "linux", "maximum_timeout": 900 })).await;
    let given = call(&forge, Method::POST, OLD, json!({ "token": token, "info": { "version": "1.11" } })).await;
    assert_eq!((given.code(), given.header("content-type")), (201, "application/json"));
    let mut job = given.json();
    let own = job["token"].as_str().expect("a token").to_owned();
    let variables = job["variables"].take();
    assert!(
        variables.as_array().is_some_and(|all| all.contains(&json!({ "key": "CI", "value": "true", "public": true })))
    );
    assert_eq!(
        job,
        json!({
            "id": check, "ref": "topic", "tag": false, "sha": "07".repeat(20), "status": "running", "name": "check",
            "token": own, "stage": "test", "project_id": project, "project_name": "rocket",
            "commands": "make check\necho done",
            "repo_url": format!("http://gitlab-ci-token:{own}@gable.test/ann/rocket.git"),
            "before_sha": "0".repeat(40), "allow_git_fetch": true,
            "options": {
                "image": "rust:1", "services": ["postgres", "redis:7"],
                "artifacts": { "name": "out", "untracked": false, "paths": ["out"], "when": "on_success",
                               "expire_in": "1 week" },
                "cache": { "key": "deps", "untracked": false, "paths": ["target"] },
                "after_script": ["rm -r out"],
                "environment": { "name": "review/$CI_COMMIT_REF_NAME" },
            },
            "timeout": 900, "variables": null,
            "depends_on_builds": [{
                "id": compile, "ref": "topic", "tag": false, "sha": "07".repeat(20), "status": "success",
                "name": "compile", "token": own, "stage": "build", "project_id": project, "project_name": "rocket",
                "artifacts_file": { "filename": "artifacts.zip", "size": 10 },
            }],
            "credentials": [],
        })
    );
}

#[tokio::test]
async fn who_finds_nothing_hears_it_as_they_expect() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (runner, token) = join_instance(&forge, json!({})).await;
    let body = || json!({ "token": token });
    let nothing = ask(&forge, &token).await;
    assert_eq!((nothing.code(), nothing.text.as_str()), (204, ""));
    assert!(!nothing.header("x-gitlab-last-update").is_empty());
    let old = [("user-agent", "gitlab-ci-multi-runner 1.11.0 (1-11-stable; go1.5.4; linux/amd64)")];
    let told = call_as(&forge, Method::POST, OLD, &old, body()).await;
    assert_eq!((told.code(), told.text.as_str()), (204, ""));
    let told = call(&forge, Method::POST, OLD, body()).await;
    assert_eq!(told.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    // One that is paused, too.
    assert_eq!(root.put(&format!("/runners/{runner}"), json!({ "active": false })).await.code(), 200);
    assert_eq!(ask(&forge, &token).await.code(), 204);
    assert_eq!(call_as(&forge, Method::POST, OLD, &old, body()).await.code(), 404);
    for body in [json!({}), json!({ "token": "x" })] {
        let code = if body["token"].is_null() { 400 } else { 403 };
        assert_eq!(call(&forge, Method::POST, V4, body).await.code(), code);
    }
}

/// Who gets what: the tags of a job, and a runner.
#[tokio::test]
async fn a_runner_gets_only_what_it_suits() {
    let forge = TestForge::start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let (ben, elsewhere) = owner(&forge, "ben").await;
    let runners = [
        ("shared", join_instance(&forge, json!({})).await),
        ("shared a b", join_instance(&forge, json!({ "tag_list": "a,b" })).await),
        ("shared only a", join_instance(&forge, json!({ "tag_list": ["a"], "run_untagged": false })).await),
        ("paused", join_instance(&forge, json!({ "tag_list": "a,b", "paused": true })).await),
        ("specific", join_project(&forge, &ann, project, json!({ "tag_list": "a" })).await),
        ("locked", join_project(&forge, &ann, project, json!({ "tag_list": "a", "locked": true })).await),
        ("of another", join_project(&forge, &ben, elsewhere, json!({ "tag_list": "a,b" })).await),
    ];
    let mut table = String::new();
    for tags in ["", "a", "a, b", "A"] {
        let file = format!("one: {{script: make, tags: [{tags}]}}");
        for (name, (_, token)) in &runners {
            let pipeline = forge.plant_pipeline(project, None, &file).await;
            let got = job_for(&forge, token).await == builds_of(&forge, pipeline.id)[0].id;
            execute(&forge, "UPDATE builds SET status = 'canceled'");
            if got {
                table += &format!("[{tags}] {name}\n");
            }
        }
    }
    assert_eq!(
        table,
        "[] shared\n[] shared a b\n[] specific\n[] locked\n\
         [a] shared a b\n[a] shared only a\n[a] specific\n[a] locked\n\
         [a, b] shared a b\n"
    );
}

#[tokio::test]
async fn nothing_is_given_away_of_projects_that_do_not_want_it() {
    let forge = TestForge::start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let (_, shared) = join_instance(&forge, json!({})).await;
    let (_, own) = join_project(&forge, &ann, project, json!({})).await;
    let pipeline = forge.plant_pipeline(project, None, ONE).await;
    let id = builds_of(&forge, pipeline.id)[0].id;
    let edit = async |body: Value| {
        let mut body = body;
        body["name"] = json!("rocket");
        assert_eq!(ann.put(&format!("/projects/{project}"), body).await.code(), 200);
    };
    edit(json!({ "shared_runners_enabled": false })).await;
    assert_eq!(job_for(&forge, &shared).await, 0);
    edit(json!({ "shared_runners_enabled": true, "builds_enabled": false })).await;
    assert_eq!((job_for(&forge, &shared).await, job_for(&forge, &own).await), (0, 0));
    edit(json!({ "builds_enabled": true })).await;
    assert_eq!(ann.post(&format!("/projects/{project}/archive"), json!({})).await.code(), 201);
    assert_eq!((job_for(&forge, &shared).await, job_for(&forge, &own).await), (0, 0));
    assert_eq!(ann.post(&format!("/projects/{project}/unarchive"), json!({})).await.code(), 201);
    assert_eq!(job_for(&forge, &own).await, id);
    forge.plant_pipeline(project, None, ONE).await;
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    assert_eq!((job_for(&forge, &shared).await, job_for(&forge, &own).await), (0, 0));
}

#[tokio::test]
async fn shared_runners_serve_those_first_who_have_least_and_others_in_turn() {
    let forge = TestForge::start().await;
    let (ann, one) = owner(&forge, "ann").await;
    let (_, two) = owner(&forge, "ben").await;
    let (_, shared) = join_instance(&forge, json!({})).await;
    let three = "a: {script: x}\nb: {script: x}\nc: {script: x}";
    forge.plant_pipeline(one, None, three).await;
    forge.plant_pipeline(two, None, three).await;
    let mut given = Vec::new();
    for _ in 0..5 {
        given.push(job_for(&forge, &shared).await);
    }
    assert_eq!(given, [1, 4, 2, 5, 3]);
    // What a specific runner does is nobody's turn.
    forge.plant_pipeline(one, None, ONE).await;
    let (_, own) = join_project(&forge, &ann, one, json!({})).await;
    assert_eq!((job_for(&forge, &own).await, job_for(&forge, &own).await), (7, 0));
    assert_eq!((job_for(&forge, &shared).await, job_for(&forge, &shared).await), (6, 0));
}

#[tokio::test]
async fn many_jobs_that_a_runner_does_not_suit_hide_none_that_it_suits() {
    let forge = TestForge::start().await;
    let (_, project) = owner(&forge, "ann").await;
    let (_, token) = join_instance(&forge, json!({})).await;
    for _ in 0..3 {
        forge.plant_pipeline(project, None, "one: {script: x, tags: [rare], parallel: 100}").await;
    }
    let last = forge.plant_pipeline(project, None, ONE).await;
    assert_eq!(job_for(&forge, &token).await, builds_of(&forge, last.id)[0].id);
    assert_eq!(job_for(&forge, &token).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_jobs_is_given_to_one_of_many_runners() {
    const RUNNERS: usize = 50;
    const JOBS: usize = 200;
    let forge = TestForge::start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let mut tokens = Vec::new();
    for number in 0..RUNNERS {
        let (_, token) = match number % 2 {
            0 => join_instance(&forge, json!({})).await,
            _ => join_project(&forge, &ann, project, json!({})).await,
        };
        tokens.push(token);
    }
    for _ in 0..4 {
        forge.plant_pipeline(project, None, "one: {script: x, parallel: 50}").await;
    }
    let client = forge.anonymous();
    let tasks: Vec<_> = tokens
        .into_iter()
        .map(|token| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut given = Vec::new();
                let mut idle = 0;
                // A few may find that others are about to take what is left.
                while idle < 20 {
                    let answer = client.json(Method::POST, V4, json!({ "token": token })).await;
                    match answer.code() {
                        201 => {
                            let job = answer.json();
                            given.push((job["id"].as_i64().expect("a number"), job["token"].to_string()));
                        }
                        204 | 409 | 503 => idle += 1,
                        _ => panic!("{answer}"),
                    }
                }
                given
            })
        })
        .collect();
    let mut given = Vec::new();
    for task in tasks {
        given.extend(task.await.expect("ended"));
    }
    let ids: BTreeSet<i64> = given.iter().map(|(id, _)| *id).collect();
    let tokens: BTreeSet<&String> = given.iter().map(|(_, token)| token).collect();
    assert_eq!((given.len(), ids.len(), tokens.len()), (JOBS, JOBS, JOBS));
    assert!(ids.iter().all(|id| build(&forge, *id).runner.is_some()));
}

/// Somebody cancels while runners ask: a job is either given away or canceled.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_given_away_or_canceled_and_never_both() {
    let forge = TestForge::start().await;
    let (_, project) = owner(&forge, "ann").await;
    let (_, token) = join_instance(&forge, json!({})).await;
    for _ in 0..10 {
        let pipeline = forge.plant_pipeline(project, None, ONE).await;
        let id = builds_of(&forge, pipeline.id)[0].id;
        let asking = tokio::spawn({
            let (client, token) = (forge.anonymous(), token.clone());
            async move { client.json(Method::POST, V4, json!({ "token": token })).await.code() }
        });
        tokio::task::yield_now().await;
        // As the machine does it: the pipeline is held, then looked at, then changed.
        let now = forge.forge.now();
        let canceled = forge.in_one_go(|db| {
            assert!(store::pipelines::hold(db, pipeline.id).expect("held"));
            let state = store::builds::latest_of(db, pipeline.id).expect("asked")[0].status;
            if state == Status::Pending {
                store::builds::set_status(db, &[id], Status::Canceled, &NewBuildState::default(), now).expect("set");
            }
            state == Status::Pending
        });
        let code = asking.await.expect("an answer");
        let expected = if canceled { Status::Canceled } else { Status::Running };
        assert_eq!(build(&forge, id).status, expected);
        assert_eq!(code == 201, !canceled, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_was_paused_gets_nothing_from_then_on() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (_, project) = owner(&forge, "ann").await;
    let (runner, token) = join_instance(&forge, json!({})).await;
    forge.plant_pipeline(project, None, "one: {script: x, parallel: 60}").await;
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let (client, token) = (forge.anonymous(), token.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    let answer = client.json(Method::POST, V4, json!({ "token": token })).await;
                    assert!([201, 204, 409].contains(&answer.code()), "{answer}");
                }
            })
        })
        .collect();
    assert_eq!(root.put(&format!("/runners/{runner}"), json!({ "active": false })).await.code(), 200);
    let given_away = || builds_of(&forge, 1).iter().filter(|build| build.status == Status::Running).count();
    let before = given_away();
    for task in asking {
        task.await.expect("ended");
    }
    assert_eq!(given_away(), before);
    assert_eq!(job_for(&forge, &token).await, 0);
    // Others get what it did not.
    let (_, other) = join_instance(&forge, json!({})).await;
    assert_ne!(job_for(&forge, &other).await, 0);
}

/// Whether an answer lets wait for it for longer than it takes where nobody waits.
async fn waits(asking: &JoinHandle<Answer>) -> bool {
    tokio::time::sleep(Duration::from_millis(300)).await;
    !asking.is_finished()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_that_there_is_nothing_waits_until_there_is() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (ann, project) = owner(&forge, "ann").await;
    let (runner, token) = join_instance(&forge, json!({})).await;
    let hold = |mark: String| {
        let (client, body) = (forge.anonymous(), json!({ "token": token, "last_update": mark }));
        tokio::spawn(async move { client.json(Method::POST, V4, body).await })
    };
    let mark = async || ask(&forge, &token).await.header("x-gitlab-last-update").to_owned();
    // A mark that is old is no reason to wait.
    let old = mark().await;
    assert_eq!(old, mark().await);
    let waiting = hold(old.clone());
    assert!(waits(&waiting).await);
    let pipeline = forge.plant_pipeline(project, None, ONE).await;
    let given = waiting.await.expect("an answer");
    assert_eq!((given.code(), &given.json()["id"]), (201, &json!(builds_of(&forge, pipeline.id)[0].id)));
    let stale = call(&forge, Method::POST, V4, json!({ "token": token, "last_update": old })).await;
    assert_eq!(stale.code(), 204);
    // A change of the runner or of a project may be what it waits for.
    assert_eq!(ann.put("/projects/1", json!({ "name": "rocket", "shared_runners_enabled": false })).await.code(), 200);
    forge.plant_pipeline(project, None, "one: {script: x, tags: [big]}").await;
    let waiting = hold(mark().await);
    assert!(waits(&waiting).await);
    assert_eq!(ann.put("/projects/1", json!({ "name": "rocket", "shared_runners_enabled": true })).await.code(), 200);
    assert_eq!(waiting.await.expect("an answer").code(), 204);
    let waiting = hold(mark().await);
    assert!(waits(&waiting).await);
    assert_eq!(root.put(&format!("/runners/{runner}"), json!({ "tag_list": "big" })).await.code(), 200);
    assert_eq!(waiting.await.expect("an answer").code(), 201);
    // One that does not exist does not wait.
    let stranger = call(&forge, Method::POST, V4, json!({ "token": "x", "last_update": mark().await })).await;
    assert_eq!(stranger.code(), 403);
    // Nobody waits for ever, and nobody keeps the service from ending.
    let waiting = hold(mark().await);
    assert!(waits(&waiting).await);
    assignments::stop_waiting(&forge.forge);
    assert_eq!(waiting.await.expect("an answer").code(), 204);
    let after = call(&forge, Method::POST, V4, json!({ "token": token, "last_update": mark().await })).await;
    assert_eq!(after.code(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever() {
    let forge = TestForge::start().await;
    assignments::set_patience(&forge.forge, Duration::from_millis(50));
    let (_, token) = join_instance(&forge, json!({})).await;
    let mark = ask(&forge, &token).await.header("x-gitlab-last-update").to_owned();
    let held = call(&forge, Method::POST, V4, json!({ "token": token, "last_update": mark })).await;
    assert_eq!((held.code(), held.header("x-gitlab-last-update")), (204, &*mark));
}

#[tokio::test]
async fn a_job_of_which_nobody_knows_what_it_does_waits_on() {
    let forge = TestForge::start().await;
    let (_, project) = owner(&forge, "ann").await;
    let (_, token) = join_instance(&forge, json!({})).await;
    let pipeline = forge.plant_pipeline(project, None, ONE).await;
    let id = builds_of(&forge, pipeline.id)[0].id;
    execute(&forge, "UPDATE build_specs SET spec = 'x' || spec");
    assert_eq!(ask(&forge, &token).await.code(), 500);
    let after = build(&forge, id);
    assert_eq!((after.status, after.runner, after.started_at), (Status::Pending, None, None));
    execute(&forge, "UPDATE build_specs SET spec = substr(spec, 2)");
    assert_eq!(job_for(&forge, &token).await, id);
}

#[tokio::test]
async fn who_finds_nothing_writes_nothing() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (_, token) = join_instance(&forge, json!({})).await;
    assert_eq!(job_for(&forge, &token).await, 0);
    wait_for(async || !root.get("/runners/1").await.json()["contacted_at"].is_null()).await;
    let before = forge.dump();
    for _ in 0..3 {
        assert_eq!(job_for(&forge, &token).await, 0);
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn the_token_of_a_job_is_in_no_table() {
    let forge = TestForge::start().await;
    let (_, project) = owner(&forge, "ann").await;
    let (_, token) = join_instance(&forge, json!({})).await;
    forge.plant_pipeline(project, None, ONE).await;
    let job = ask(&forge, &token).await.json();
    let dump = forge.dump();
    assert!(!dump.contains(&token) && !dump.contains(job["token"].as_str().expect("a token")));
}

const NOT_ALLOWED: &str = "ERROR: job failed: the user who started it is blocked or removed, or may not run pipelines in \
                           this project any more\n";

#[tokio::test]
async fn a_job_fails_instead_of_starting_when_its_user_may_not_run_it_any_more() {
    let forge = TestForge::start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let root = forge.admin().await;
    let (_, runner) = join_project(&forge, &ann, project, json!({})).await;
    let variable = json!({ "key": "SECRET", "value": "s3cret" });
    assert_eq!(ann.post(&format!("/projects/{project}/variables"), variable).await.code(), 201);
    let members = format!("/projects/{project}/members");
    for way in ["block", "remove", "lower", "leave", "expire"] {
        let bob = forge.user(&format!("bob-{way}")).await;
        ann.make(&members, json!({ "user_id": bob.id, "access_level": 30 })).await;
        // Two jobs and a job that waits for them; it is tried again if it fails.
        let file = "stages: [a, b]\none: {stage: a, script: make, retry: 2}\ntwo: {stage: b, script: make}";
        let pipeline = forge.plant_pipeline(project, Some(bob.id), file).await;
        let [one, two] = [0, 1].map(|at| builds_of(&forge, pipeline.id)[at].id);
        let member = format!("{members}/{}", bob.id);
        let done = match way {
            "block" => root.put(&format!("/users/{}/block", bob.id), json!({})).await,
            "remove" => root.delete(&format!("/users/{}", bob.id)).await,
            "lower" => ann.put(&member, json!({ "access_level": 20 })).await,
            "leave" => ann.delete(&member).await,
            _ => ann.put(&member, json!({ "access_level": 30, "expires_at": "2026-01-03" })).await,
        };
        assert_eq!(done.code(), 200, "{way}: {done}");
        if way == "expire" {
            forge.clock.advance(jiff::SignedDuration::from_hours(48));
        }
        // What others have started is given out by the same request.
        let good = forge.plant_pipeline(project, Some(ann.id), ONE).await;
        let answer = ask(&forge, &runner).await;
        assert_eq!(answer.code(), 201, "{way}: {answer}");
        assert_eq!(answer.json()["id"], builds_of(&forge, good.id)[0].id, "{way}");
        assert_eq!(build(&forge, one).status, Status::Failed, "{way}");
        assert_eq!(build(&forge, two).status, Status::Skipped, "{way}");
        assert_eq!(builds_of(&forge, pipeline.id).len(), 2, "{way}: it is not tried again");
        let trace = ann.get(&format!("/projects/{project}/builds/{one}/trace")).await;
        assert_eq!((trace.code(), trace.text.as_str()), (200, NOT_ALLOWED), "{way}");
        assert_eq!(job_for(&forge, &runner).await, 0, "{way}");
    }
}

#[tokio::test]
async fn what_a_member_tries_again_runs_for_that_member_in_all_stages() {
    let forge = TestForge::start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let (_, runner) = join_project(&forge, &ann, project, json!({})).await;
    let members = format!("/projects/{project}/members");
    for whole in [false, true] {
        let bob = forge.user(&format!("bob-{whole}")).await;
        ann.make(&members, json!({ "user_id": bob.id, "access_level": 30 })).await;
        let file = "stages: [a, b]\none: {stage: a, script: make}\ntwo: {stage: b, script: make}";
        let pipeline = forge.plant_pipeline(project, Some(bob.id), file).await;
        let one = builds_of(&forge, pipeline.id)[0].id;
        assert_eq!(ann.delete(&format!("{members}/{}", bob.id)).await.code(), 200);
        assert_eq!(job_for(&forge, &runner).await, 0, "bob has left");
        assert_eq!(build(&forge, one).status, Status::Failed);
        let retry = if whole { format!("pipelines/{}/retry", pipeline.id) } else { format!("builds/{one}/retry") };
        let retried = ann.post(&format!("/projects/{project}/{retry}"), json!({})).await;
        assert_eq!(retried.code(), 201, "{retried}");
        for stage in ["a", "b"] {
            let answer = ask(&forge, &runner).await;
            assert_eq!(answer.code(), 201, "{whole} {stage}: {answer}");
            let (id, token) = (answer.json()["id"].clone(), answer.json()["token"].clone());
            let path = format!("/api/v4/jobs/{id}");
            let ended = call(&forge, Method::PUT, &path, json!({ "token": token, "state": "success" })).await;
            assert_eq!(ended.code(), 200, "{whole} {stage}: {ended}");
        }
    }
}

#[tokio::test]
async fn a_job_without_a_user_starts_only_if_a_trigger_token_started_it() {
    let forge = TestForge::start().await;
    let (ann, project) = owner(&forge, "ann").await;
    let (_, runner) = join_project(&forge, &ann, project, json!({})).await;
    let triggered = forge.plant_pipeline(project, None, ONE).await;
    let other = forge.plant_pipeline(project, Some(ann.id), ONE).await;
    execute(&forge, &format!("UPDATE builds SET user_id = NULL WHERE pipeline_id = {}", other.id));
    assert_eq!(job_for(&forge, &runner).await, builds_of(&forge, triggered.id)[0].id);
    assert_eq!(job_for(&forge, &runner).await, 0);
    assert_eq!(builds_of(&forge, other.id)[0].status, Status::Failed);
}
