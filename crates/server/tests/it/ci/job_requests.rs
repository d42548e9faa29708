//! Requests of runners for jobs.

use std::{collections::BTreeSet, time::Duration};

use axum::http::Method;
use forge::job_queue;
use model::{Job, JobId, Oid, PipelineId, ProjectId, Status};
use serde_json::{Value, json};
use store::jobs::JobChanges;
use testkit::{TestClient, TestForge, TestResponse, fixtures};
use tokio::task::JoinHandle;

use crate::ci::runners::{
    call_runner_api, call_runner_api_with_headers, register_for_project, register_shared, wait_for,
};

const V4: &str = "/api/v4/jobs/request";
const CI_V1: &str = "/ci/api/v1/builds/register.json";
const ONE_JOB: &str = "one: {script: make}";

async fn request_job(forge: &TestForge, token: &str) -> TestResponse {
    call_runner_api(forge, Method::POST, V4, json!({ "token": token })).await
}

/// The ID of the job that a runner gets.
async fn requested_job_id(forge: &TestForge, token: &str) -> Option<JobId> {
    let answer = request_job(forge, token).await;
    match answer.code() {
        201 => Some(JobId::new(answer.json()["id"].as_i64().expect("a number"))),
        204 => None,
        _ => panic!("{answer}"),
    }
}

pub(crate) fn jobs_of(forge: &TestForge, pipeline: PipelineId) -> Vec<Job> {
    let now = forge.forge.now();
    forge.in_transaction(|db| store::jobs::of_pipeline(db, pipeline, now).expect("asked"))
}

pub(crate) fn load_job(forge: &TestForge, id: JobId) -> Job {
    let now = forge.forge.now();
    forge.in_transaction(|db| store::jobs::by_ids(db, &[id], now).expect("asked")).pop().expect("a job")
}

/// Creates a user with a project.
async fn user_with_project(forge: &TestForge, name: &str) -> (TestClient, ProjectId) {
    let client = forge.user(name).await;
    let project = ProjectId::new(client.make("/projects", json!({ "name": "rocket" })).await);
    (client, project)
}

fn variable(job: &Value, key: &str) -> Value {
    let all = job["variables"].as_array().expect("variables");
    let mut found = all.iter().filter(|one| one["key"] == key).cloned().collect::<Vec<_>>();
    found.pop().map_or(Value::Null, |one| json!([one["value"], one["public"]]))
}

const FULL_FILE: &str = "
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

/// Starts a pipeline whose first stage is done and has artifacts; returns the IDs of its jobs.
async fn with_second_stage(forge: &TestForge, ann: &TestClient, project: ProjectId) -> [JobId; 3] {
    let pipeline = forge.start_pipeline_at(project, Some(ann.id), "topic", Oid([7; 20]), FULL_FILE).await;
    let jobs = jobs_of(forge, pipeline.id);
    let [compile, check, lone] = [jobs[0].id, jobs[1].id, jobs[2].id];
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        store::jobs::set_status(db, &[compile], Status::Success, &JobChanges::default(), now).expect("set");
        store::jobs::set_status(db, &[check, lone], Status::Pending, &JobChanges::default(), now).expect("set");
        fixtures::artifacts_archive(db, project, compile, "artifacts.zip", 10, None);
    });
    [compile, check, lone]
}

#[tokio::test]
async fn a_runner_gets_the_complete_payload_of_a_job() {
    let forge = TestForge::builder().external_url("https://gable.test/sub").start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let [compile, check, lone] = with_second_stage(&forge, &ann, project).await;
    let (_, token) =
        register_for_project(&forge, &ann, project, json!({ "description": "r", "tag_list": "linux,big" })).await;
    let response = request_job(&forge, &token).await;
    assert_eq!((response.code(), response.header("content-type")), (201, "application/json"));
    assert_eq!(response.header("cache-control"), "no-store");
    let job = response.json();
    let own = job["token"].as_str().expect("a token");
    assert_eq!((&job["id"], &job["allow_git_fetch"]), (&json!(check.get()), &json!(true)));
    assert_eq!(
        job["job_info"],
        json!({
            "id": check.get(), "name": "check", "stage": "test", "project_id": project.get(), "project_name": "rocket",
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
        json!([{ "id": compile.get(), "name": "compile", "token": own,
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
    // A job may exclude all dependencies.
    let second = request_job(&forge, &token).await.json();
    assert_eq!((&second["id"], &second["dependencies"]), (&json!(lone.get()), &json!([])));
    assert_eq!((&second["artifacts"], &second["cache"], &second["image"]), (&Value::Null, &json!([]), &Value::Null));
    assert_eq!(second["runner_info"], json!({ "timeout": 3600 }));
    assert_eq!((load_job(&forge, check).status, load_job(&forge, compile).status), (Status::Running, Status::Success));
}

#[tokio::test]
async fn an_older_runner_gets_the_payload_of_its_protocol() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let [compile, check, _] = with_second_stage(&forge, &ann, project).await;
    let (_, token) =
        register_for_project(&forge, &ann, project, json!({ "tag_list": "linux", "maximum_timeout": 900 })).await;
    let response =
        call_runner_api(&forge, Method::POST, CI_V1, json!({ "token": token, "info": { "version": "1.11" } })).await;
    assert_eq!((response.code(), response.header("content-type")), (201, "application/json"));
    let mut job = response.json();
    let own = job["token"].as_str().expect("a token").to_owned();
    let variables = job["variables"].take();
    assert!(
        variables.as_array().is_some_and(|all| all.contains(&json!({ "key": "CI", "value": "true", "public": true })))
    );
    assert_eq!(
        job,
        json!({
            "id": check.get(), "ref": "topic", "tag": false, "sha": "07".repeat(20), "status": "running", "name": "check",
            "token": own, "stage": "test", "project_id": project.get(), "project_name": "rocket",
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
                "id": compile.get(), "ref": "topic", "tag": false, "sha": "07".repeat(20), "status": "success",
                "name": "compile", "token": own, "stage": "build", "project_id": project.get(), "project_name": "rocket",
                "artifacts_file": { "filename": "artifacts.zip", "size": 10 },
            }],
            "credentials": [],
        })
    );
}

#[tokio::test]
async fn a_response_without_a_job_depends_on_the_runner() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (runner, token) = register_shared(&forge, json!({})).await;
    let body = || json!({ "token": token });
    let response = request_job(&forge, &token).await;
    assert_eq!((response.code(), response.text.as_str()), (204, ""));
    assert!(!response.header("x-gitlab-last-update").is_empty());
    let old = [("user-agent", "gitlab-ci-multi-runner 1.11.0 (1-11-stable; go1.5.4; linux/amd64)")];
    let response = call_runner_api_with_headers(&forge, Method::POST, CI_V1, &old, body()).await;
    assert_eq!((response.code(), response.text.as_str()), (204, ""));
    let response = call_runner_api(&forge, Method::POST, CI_V1, body()).await;
    assert_eq!(response.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    // So does the response to a paused runner.
    assert_eq!(root.put(&format!("/runners/{runner}"), json!({ "active": false })).await.code(), 200);
    assert_eq!(request_job(&forge, &token).await.code(), 204);
    assert_eq!(call_runner_api_with_headers(&forge, Method::POST, CI_V1, &old, body()).await.code(), 404);
    for body in [json!({}), json!({ "token": "x" })] {
        let code = if body["token"].is_null() { 400 } else { 403 };
        assert_eq!(call_runner_api(&forge, Method::POST, V4, body).await.code(), code);
    }
}

/// Tags of a job, and a runner.
#[tokio::test]
async fn a_runner_gets_only_jobs_that_match_its_tags() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let (ben, elsewhere) = user_with_project(&forge, "ben").await;
    let runners = [
        ("shared", register_shared(&forge, json!({})).await),
        ("shared a b", register_shared(&forge, json!({ "tag_list": "a,b" })).await),
        ("shared only a", register_shared(&forge, json!({ "tag_list": ["a"], "run_untagged": false })).await),
        ("paused", register_shared(&forge, json!({ "tag_list": "a,b", "paused": true })).await),
        ("specific", register_for_project(&forge, &ann, project, json!({ "tag_list": "a" })).await),
        ("locked", register_for_project(&forge, &ann, project, json!({ "tag_list": "a", "locked": true })).await),
        ("of another", register_for_project(&forge, &ben, elsewhere, json!({ "tag_list": "a,b" })).await),
    ];
    let mut table = String::new();
    for tags in ["", "a", "a, b", "A"] {
        let file = format!("one: {{script: make, tags: [{tags}]}}");
        for (name, (_, token)) in &runners {
            let pipeline = forge.start_pipeline(project, None, &file).await;
            let got = requested_job_id(&forge, token).await == Some(jobs_of(&forge, pipeline.id)[0].id);
            forge.execute_sql("UPDATE builds SET status = 'canceled'");
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
async fn jobs_of_projects_without_ci_are_not_assigned() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let (_, shared) = register_shared(&forge, json!({})).await;
    let (_, own) = register_for_project(&forge, &ann, project, json!({})).await;
    let pipeline = forge.start_pipeline(project, None, ONE_JOB).await;
    let id = jobs_of(&forge, pipeline.id)[0].id;
    let edit = async |body: Value| {
        let mut body = body;
        body["name"] = json!("rocket");
        assert_eq!(ann.put(&format!("/projects/{project}"), body).await.code(), 200);
    };
    edit(json!({ "shared_runners_enabled": false })).await;
    assert_eq!(requested_job_id(&forge, &shared).await, None);
    edit(json!({ "shared_runners_enabled": true, "builds_enabled": false })).await;
    assert_eq!((requested_job_id(&forge, &shared).await, requested_job_id(&forge, &own).await), (None, None));
    edit(json!({ "builds_enabled": true })).await;
    assert_eq!(ann.post(&format!("/projects/{project}/archive"), json!({})).await.code(), 201);
    assert_eq!((requested_job_id(&forge, &shared).await, requested_job_id(&forge, &own).await), (None, None));
    assert_eq!(ann.post(&format!("/projects/{project}/unarchive"), json!({})).await.code(), 201);
    assert_eq!(requested_job_id(&forge, &own).await, Some(id));
    forge.start_pipeline(project, None, ONE_JOB).await;
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    assert_eq!((requested_job_id(&forge, &shared).await, requested_job_id(&forge, &own).await), (None, None));
}

#[tokio::test]
async fn shared_runners_prefer_projects_with_the_fewest_running_jobs() {
    let forge = TestForge::start().await;
    let (ann, one) = user_with_project(&forge, "ann").await;
    let (_, two) = user_with_project(&forge, "ben").await;
    let (_, shared) = register_shared(&forge, json!({})).await;
    let three = "a: {script: x}\nb: {script: x}\nc: {script: x}";
    forge.start_pipeline(one, None, three).await;
    forge.start_pipeline(two, None, three).await;
    let mut response = Vec::new();
    for _ in 0..5 {
        response.push(requested_job_id(&forge, &shared).await);
    }
    assert_eq!(response, [1, 4, 2, 5, 3].map(|id| Some(JobId::new(id))));
    // Jobs of specific runners do not count.
    forge.start_pipeline(one, None, ONE_JOB).await;
    let (_, own) = register_for_project(&forge, &ann, one, json!({})).await;
    assert_eq!(
        (requested_job_id(&forge, &own).await, requested_job_id(&forge, &own).await),
        (Some(JobId::new(7)), None)
    );
    assert_eq!(
        (requested_job_id(&forge, &shared).await, requested_job_id(&forge, &shared).await),
        (Some(JobId::new(6)), None)
    );
}

#[tokio::test]
async fn many_jobs_with_other_tags_do_not_hide_a_matching_job() {
    let forge = TestForge::start().await;
    let (_, project) = user_with_project(&forge, "ann").await;
    let (_, token) = register_shared(&forge, json!({})).await;
    for _ in 0..3 {
        forge.start_pipeline(project, None, "one: {script: x, tags: [rare], parallel: 100}").await;
    }
    let last = forge.start_pipeline(project, None, ONE_JOB).await;
    assert_eq!(requested_job_id(&forge, &token).await, Some(jobs_of(&forge, last.id)[0].id));
    assert_eq!(requested_job_id(&forge, &token).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_jobs_is_assigned_to_one_of_many_runners() {
    const RUNNERS: usize = 50;
    const JOBS: usize = 200;
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let mut tokens = Vec::new();
    for number in 0..RUNNERS {
        let (_, token) = match number % 2 {
            0 => register_shared(&forge, json!({})).await,
            _ => register_for_project(&forge, &ann, project, json!({})).await,
        };
        tokens.push(token);
    }
    for _ in 0..4 {
        forge.start_pipeline(project, None, "one: {script: x, parallel: 50}").await;
    }
    let client = forge.anonymous();
    let tasks: Vec<_> = tokens
        .into_iter()
        .map(|token| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut response = Vec::new();
                let mut idle = 0;
                // A few may find that others have claimed the remaining jobs.
                while idle < 20 {
                    let answer = client.json(Method::POST, V4, json!({ "token": token })).await;
                    match answer.code() {
                        201 => {
                            let job = answer.json();
                            response
                                .push((JobId::new(job["id"].as_i64().expect("a number")), job["token"].to_string()));
                        }
                        204 | 409 | 503 => idle += 1,
                        _ => panic!("{answer}"),
                    }
                }
                response
            })
        })
        .collect();
    let mut response = Vec::new();
    for task in tasks {
        response.extend(task.await.expect("ended"));
    }
    let ids: BTreeSet<JobId> = response.iter().map(|(id, _)| *id).collect();
    let tokens: BTreeSet<&String> = response.iter().map(|(_, token)| token).collect();
    assert_eq!((response.len(), ids.len(), tokens.len()), (JOBS, JOBS, JOBS));
    assert!(ids.iter().all(|id| load_job(&forge, *id).runner.is_some()));
}

/// A job is canceled while runners request it.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_either_assigned_or_canceled() {
    let forge = TestForge::start().await;
    let (_, project) = user_with_project(&forge, "ann").await;
    let (_, token) = register_shared(&forge, json!({})).await;
    for _ in 0..10 {
        let pipeline = forge.start_pipeline(project, None, ONE_JOB).await;
        let id = jobs_of(&forge, pipeline.id)[0].id;
        let request = tokio::spawn({
            let (client, token) = (forge.anonymous(), token.clone());
            async move { client.json(Method::POST, V4, json!({ "token": token })).await.code() }
        });
        tokio::task::yield_now().await;
        // As the state machine does it: lock the pipeline, check, then change.
        let now = forge.forge.now();
        let canceled = forge.in_transaction(|db| {
            assert!(store::pipelines::lock_row(db, pipeline.id).expect("held"));
            let state = store::jobs::latest_of_pipeline(db, pipeline.id).expect("asked")[0].status;
            if state == Status::Pending {
                store::jobs::set_status(db, &[id], Status::Canceled, &JobChanges::default(), now).expect("set");
            }
            state == Status::Pending
        });
        let code = request.await.expect("an answer");
        let expected = if canceled { Status::Canceled } else { Status::Running };
        assert_eq!(load_job(&forge, id).status, expected);
        assert_eq!(code == 201, !canceled, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_runner_gets_no_more_jobs() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (_, project) = user_with_project(&forge, "ann").await;
    let (runner, token) = register_shared(&forge, json!({})).await;
    forge.start_pipeline(project, None, "one: {script: x, parallel: 60}").await;
    let requests: Vec<_> = (0..4)
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
    let given_away = || jobs_of(&forge, PipelineId::new(1)).iter().filter(|job| job.status == Status::Running).count();
    let before = given_away();
    for task in requests {
        task.await.expect("ended");
    }
    assert_eq!(given_away(), before);
    assert_eq!(requested_job_id(&forge, &token).await, None);
    // Other runners get the remaining jobs.
    let (_, other) = register_shared(&forge, json!({})).await;
    assert_ne!(requested_job_id(&forge, &other).await, None);
}

/// Whether a response takes longer than one without waiting.
async fn is_waiting(request: &JoinHandle<TestResponse>) -> bool {
    tokio::time::sleep(Duration::from_millis(300)).await;
    !request.is_finished()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_knows_of_no_job_waits_for_one() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let (runner, token) = register_shared(&forge, json!({})).await;
    let wait_for_job = |cursor: String| {
        let (client, body) = (forge.anonymous(), json!({ "token": token, "last_update": cursor }));
        tokio::spawn(async move { client.json(Method::POST, V4, body).await })
    };
    let cursor = async || request_job(&forge, &token).await.header("x-gitlab-last-update").to_owned();
    // A request with an old cursor does not wait.
    let old = cursor().await;
    assert_eq!(old, cursor().await);
    let waiting = wait_for_job(old.clone());
    assert!(is_waiting(&waiting).await);
    let pipeline = forge.start_pipeline(project, None, ONE_JOB).await;
    let response = waiting.await.expect("an answer");
    assert_eq!((response.code(), &response.json()["id"]), (201, &json!(jobs_of(&forge, pipeline.id)[0].id.get())));
    let stale = call_runner_api(&forge, Method::POST, V4, json!({ "token": token, "last_update": old })).await;
    assert_eq!(stale.code(), 204);
    // A change of the runner or of a project ends the wait.
    assert_eq!(ann.put("/projects/1", json!({ "name": "rocket", "shared_runners_enabled": false })).await.code(), 200);
    forge.start_pipeline(project, None, "one: {script: x, tags: [big]}").await;
    let waiting = wait_for_job(cursor().await);
    assert!(is_waiting(&waiting).await);
    assert_eq!(ann.put("/projects/1", json!({ "name": "rocket", "shared_runners_enabled": true })).await.code(), 200);
    assert_eq!(waiting.await.expect("an answer").code(), 204);
    let waiting = wait_for_job(cursor().await);
    assert!(is_waiting(&waiting).await);
    assert_eq!(root.put(&format!("/runners/{runner}"), json!({ "tag_list": "big" })).await.code(), 200);
    assert_eq!(waiting.await.expect("an answer").code(), 201);
    // An unknown runner does not wait.
    let response =
        call_runner_api(&forge, Method::POST, V4, json!({ "token": "x", "last_update": cursor().await })).await;
    assert_eq!(response.code(), 403);
    // Waiting runners do not delay the shutdown.
    let waiting = wait_for_job(cursor().await);
    assert!(is_waiting(&waiting).await);
    job_queue::stop_waiting(&forge.forge);
    assert_eq!(waiting.await.expect("an answer").code(), 204);
    let after =
        call_runner_api(&forge, Method::POST, V4, json!({ "token": token, "last_update": cursor().await })).await;
    assert_eq!(after.code(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_after_the_timeout() {
    let forge = TestForge::start().await;
    job_queue::set_wait_timeout(&forge.forge, Duration::from_millis(50));
    let (_, token) = register_shared(&forge, json!({})).await;
    let cursor = request_job(&forge, &token).await.header("x-gitlab-last-update").to_owned();
    let response = call_runner_api(&forge, Method::POST, V4, json!({ "token": token, "last_update": cursor })).await;
    assert_eq!((response.code(), response.header("x-gitlab-last-update")), (204, &*cursor));
}

#[tokio::test]
async fn a_job_with_an_invalid_specification_is_requeued() {
    let forge = TestForge::start().await;
    let (_, project) = user_with_project(&forge, "ann").await;
    let (_, token) = register_shared(&forge, json!({})).await;
    let pipeline = forge.start_pipeline(project, None, ONE_JOB).await;
    let id = jobs_of(&forge, pipeline.id)[0].id;
    forge.execute_sql("UPDATE build_specs SET spec = 'x' || spec");
    assert_eq!(request_job(&forge, &token).await.code(), 500);
    let after = load_job(&forge, id);
    assert_eq!((after.status, after.runner, after.started_at), (Status::Pending, None, None));
    forge.execute_sql("UPDATE build_specs SET spec = substr(spec, 2)");
    assert_eq!(requested_job_id(&forge, &token).await, Some(id));
}

#[tokio::test]
async fn a_request_that_finds_no_job_writes_nothing() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let (_, token) = register_shared(&forge, json!({})).await;
    assert_eq!(requested_job_id(&forge, &token).await, None);
    wait_for(async || !root.get("/runners/1").await.json()["contacted_at"].is_null()).await;
    let before = forge.dump();
    for _ in 0..3 {
        assert_eq!(requested_job_id(&forge, &token).await, None);
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn job_tokens_are_not_stored() {
    let forge = TestForge::start().await;
    let (_, project) = user_with_project(&forge, "ann").await;
    let (_, token) = register_shared(&forge, json!({})).await;
    forge.start_pipeline(project, None, ONE_JOB).await;
    let job = request_job(&forge, &token).await.json();
    let dump = forge.dump();
    assert!(!dump.contains(&token) && !dump.contains(job["token"].as_str().expect("a token")));
}

const NOT_ALLOWED: &str = "ERROR: job failed: the user who started it is blocked or removed, or may not run pipelines in \
                           this project any more\n";

#[tokio::test]
async fn a_job_fails_instead_of_starting_if_its_user_may_no_longer_run_it() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let root = forge.admin().await;
    let (_, runner) = register_for_project(&forge, &ann, project, json!({})).await;
    let variable = json!({ "key": "SECRET", "value": "s3cret" });
    assert_eq!(ann.post(&format!("/projects/{project}/variables"), variable).await.code(), 201);
    let members = format!("/projects/{project}/members");
    for way in ["block", "remove", "lower", "leave", "expire"] {
        let bob = forge.user(&format!("bob-{way}")).await;
        ann.make(&members, json!({ "user_id": bob.id.get(), "access_level": 30 })).await;
        // Two jobs and one that needs them; it would be retried if it failed.
        let file = "stages: [a, b]\none: {stage: a, script: make, retry: 2}\ntwo: {stage: b, script: make}";
        let pipeline = forge.start_pipeline(project, Some(bob.id), file).await;
        let [one, two] = [0, 1].map(|at| jobs_of(&forge, pipeline.id)[at].id);
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
        // The same request assigns a job of another user.
        let good = forge.start_pipeline(project, Some(ann.id), ONE_JOB).await;
        let answer = request_job(&forge, &runner).await;
        assert_eq!(answer.code(), 201, "{way}: {answer}");
        assert_eq!(answer.json()["id"], jobs_of(&forge, good.id)[0].id.get(), "{way}");
        assert_eq!(load_job(&forge, one).status, Status::Failed, "{way}");
        assert_eq!(load_job(&forge, two).status, Status::Skipped, "{way}");
        assert_eq!(jobs_of(&forge, pipeline.id).len(), 2, "{way}: it is not tried again");
        let trace = ann.get(&format!("/projects/{project}/builds/{one}/trace")).await;
        assert_eq!((trace.code(), trace.text.as_str()), (200, NOT_ALLOWED), "{way}");
        assert_eq!(requested_job_id(&forge, &runner).await, None, "{way}");
    }
}

#[tokio::test]
async fn a_retried_pipeline_runs_for_the_user_who_retried_it_in_all_stages() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let (_, runner) = register_for_project(&forge, &ann, project, json!({})).await;
    let members = format!("/projects/{project}/members");
    for whole in [false, true] {
        let bob = forge.user(&format!("bob-{whole}")).await;
        ann.make(&members, json!({ "user_id": bob.id.get(), "access_level": 30 })).await;
        let file = "stages: [a, b]\none: {stage: a, script: make}\ntwo: {stage: b, script: make}";
        let pipeline = forge.start_pipeline(project, Some(bob.id), file).await;
        let one = jobs_of(&forge, pipeline.id)[0].id;
        assert_eq!(ann.delete(&format!("{members}/{}", bob.id)).await.code(), 200);
        assert_eq!(requested_job_id(&forge, &runner).await, None, "bob has left");
        assert_eq!(load_job(&forge, one).status, Status::Failed);
        let retry = if whole { format!("pipelines/{}/retry", pipeline.id) } else { format!("builds/{one}/retry") };
        let retried = ann.post(&format!("/projects/{project}/{retry}"), json!({})).await;
        assert_eq!(retried.code(), 201, "{retried}");
        for stage in ["a", "b"] {
            let answer = request_job(&forge, &runner).await;
            assert_eq!(answer.code(), 201, "{whole} {stage}: {answer}");
            let (id, token) = (answer.json()["id"].clone(), answer.json()["token"].clone());
            let path = format!("/api/v4/jobs/{id}");
            let ended =
                call_runner_api(&forge, Method::PUT, &path, json!({ "token": token, "state": "success" })).await;
            assert_eq!(ended.code(), 200, "{whole} {stage}: {ended}");
        }
    }
}

#[tokio::test]
async fn a_job_without_a_user_starts_only_if_a_trigger_started_it() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge, "ann").await;
    let (_, runner) = register_for_project(&forge, &ann, project, json!({})).await;
    let triggered = forge.start_pipeline(project, None, ONE_JOB).await;
    let other = forge.start_pipeline(project, Some(ann.id), ONE_JOB).await;
    forge.execute_sql(&format!("UPDATE builds SET user_id = NULL WHERE pipeline_id = {}", other.id));
    assert_eq!(requested_job_id(&forge, &runner).await, Some(jobs_of(&forge, triggered.id)[0].id));
    assert_eq!(requested_job_id(&forge, &runner).await, None);
    assert_eq!(jobs_of(&forge, other.id)[0].status, Status::Failed);
}
