//! Updates of jobs by runners.

use axum::http::Method;
use jiff::SignedDuration;
use model::{JobId, Status};
use serde_json::{Value, json};
use testkit::TestResponse;

use crate::ci::traces::{JobFixture, ONE_JOB};

const JOB: JobId = JobId::new(1);

#[tokio::test]
async fn a_successful_job_starts_the_next_stage() {
    let fixture =
        JobFixture::with("stages: [a, b]\none: {stage: a, script: make}\ntwo: {stage: b, script: make}").await;
    let token = fixture.assign(JOB).await;
    assert_eq!((fixture.job_states().as_str(), fixture.pipeline()), ("one running, two created", Status::Running));
    let response = fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    assert_eq!((response.code(), response.text.as_str()), (200, "null"));
    assert_eq!((response.header("job-status"), response.header("content-type")), ("success", "application/json"));
    assert_eq!(fixture.job_states(), "one success, two pending");
    let token = fixture.assign(JobId::new(2)).await;
    fixture.update_job(JobId::new(2), &token, json!({ "state": "success" })).await;
    assert_eq!(fixture.pipeline(), Status::Success);
}

#[tokio::test]
async fn a_late_update_has_no_effect() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.update_job(JOB, &token, json!({ "state": "failed", "failure_reason": "runner_system_failure" })).await;
    for state in ["running", "success", "failed"] {
        let response = fixture.update_job(JOB, &token, json!({ "state": state })).await;
        assert_eq!(
            (response.code(), response.text.as_str()),
            (403, r#"{"message":"403 Forbidden  - Job is not running"}"#)
        );
        assert_eq!(response.header("job-status"), "failed");
    }
    let job = &fixture.jobs()[0];
    assert_eq!((job.status, job.failure_reason.as_deref()), (Status::Failed, Some("runner_system_failure")));
}

#[tokio::test]
async fn a_runner_reports_that_a_job_is_running() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.forge.clock.advance(SignedDuration::from_mins(30));
    let heard = format!("heard_at={}", fixture.forge.forge.now().as_microsecond());
    assert!(!fixture.forge.dump().contains(&heard));
    let response = fixture.update_job(JOB, &token, json!({ "state": "running" })).await;
    assert_eq!((response.code(), response.header("job-status")), (200, "running"));
    assert!(fixture.forge.dump().contains(&heard));
    assert_eq!(fixture.job_states(), "one running");
}

#[tokio::test]
async fn an_update_needs_the_job_token_and_valid_parameters() {
    let fixture = JobFixture::with("one: {script: make}\ntwo: {script: make}").await;
    let (token, other) = (fixture.assign(JOB).await, fixture.assign(JobId::new(2)).await);
    let text = |answer: TestResponse| format!("{} {}", answer.code(), answer.text);
    let done = json!({ "state": "success" });
    assert_eq!(text(fixture.update_job(JOB, &other, done.clone()).await), r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(text(fixture.update_job(JOB, "", done.clone()).await), r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(
        text(fixture.update_job(JobId::new(9), &token, done.clone()).await),
        r#"404 {"message":"404 Not Found"}"#
    );
    assert_eq!(
        text(fixture.update_job(JOB, &other, json!({ "state": "odd" })).await),
        r#"403 {"message":"403 Forbidden"}"#
    );
    assert_eq!(
        text(fixture.update_job(JOB, &token, json!({ "state": "odd" })).await),
        r#"400 {"error":"state does not have a valid value"}"#
    );
    assert_eq!(fixture.job_states(), "one running, two running");
    // A malformed reason is ignored.
    let response = json!({ "state": "failed", "failure_reason": "<b>'; DROP TABLE" });
    assert_eq!(fixture.update_job(JOB, &token, response).await.code(), 200);
    assert_eq!(fixture.jobs()[0].failure_reason.as_deref(), Some("unknown_failure"));
    // In a header, as some runners send it.
    let headers = [("private-token", other.as_str()), ("content-type", "application/json")];
    let response = fixture.call(Method::PUT, "/api/v4/jobs/2", &headers, r#"{"state":"success"}"#).await;
    assert_eq!(response.code(), 200);
}

#[tokio::test]
async fn of_concurrent_final_updates_one_is_applied() {
    let fixture =
        JobFixture::with("stages: [a, b]\none: {stage: a, script: make, retry: 2}\ntwo: {stage: b, script: make}")
            .await;
    let token = fixture.assign(JOB).await;
    let states = ["success", "failed", "success", "failed", "success", "failed"];
    let response =
        futures_util::future::join_all(states.map(|state| fixture.update_job(JOB, &token, json!({ "state": state }))))
            .await;
    let done: Vec<&TestResponse> = response.iter().filter(|answer| answer.code() == 200).collect();
    assert_eq!(done.len(), 1, "{response:?}");
    assert!(response.iter().all(|answer| [200, 403].contains(&answer.code())));
    let expected = match done[0].header("job-status") {
        "success" => "one success, two pending",
        _ => "one failed, two created, one pending",
    };
    assert_eq!(fixture.job_states(), expected);
}

#[tokio::test]
async fn some_failures_are_tolerated() {
    let file = "stages: [a, b]\none: {stage: a, script: make, allow_failure: {exit_codes: [3]}}\ntwo: {stage: b, script: make}";
    let fixture = JobFixture::with(file).await;
    let token = fixture.assign(JOB).await;
    fixture
        .update_job(JOB, &token, json!({ "state": "failed", "failure_reason": "script_failure", "exit_code": 3 }))
        .await;
    assert_eq!((fixture.job_states().as_str(), fixture.jobs()[0].allow_failure), ("one failed, two pending", true));
    let fixture = JobFixture::with(file).await;
    let token = fixture.assign(JOB).await;
    fixture
        .update_job(JOB, &token, json!({ "state": "failed", "failure_reason": "script_failure", "exit_code": 4 }))
        .await;
    assert_eq!((fixture.job_states().as_str(), fixture.pipeline()), ("one failed, two skipped", Status::Failed));
}

#[tokio::test]
async fn a_job_is_retried_automatically_as_often_as_its_file_says() {
    let fixture = JobFixture::with("one: {script: make, retry: {max: 2, when: runner_system_failure}}").await;
    let failed = |reason: &str| json!({ "state": "failed", "failure_reason": reason });
    let token = fixture.assign(JOB).await;
    fixture.update_job(JOB, &token, failed("runner_system_failure")).await;
    assert_eq!((fixture.job_states().as_str(), fixture.pipeline()), ("one failed, one pending", Status::Running));
    // The token of the first attempt is invalid.
    let second = fixture.assign(JobId::new(2)).await;
    assert_eq!(fixture.append_trace(JobId::new(2), &token, 0, "text").await.code(), 403);
    fixture.update_job(JobId::new(2), &second, failed("runner_system_failure")).await;
    let third = fixture.assign(JobId::new(3)).await;
    fixture.update_job(JobId::new(3), &third, failed("runner_system_failure")).await;
    assert_eq!(
        (fixture.job_states().as_str(), fixture.pipeline()),
        ("one failed, one failed, one failed", Status::Failed)
    );
    assert_eq!(fixture.jobs().iter().map(|job| job.retried).collect::<Vec<_>>(), [true, true, false]);
    let user = fixture.jobs()[2].user.as_ref().map(|user| user.id);
    assert_eq!(user, Some(fixture.ann.id));
    // Not for other reasons.
    let fixture = JobFixture::with("one: {script: make, retry: {max: 2, when: runner_system_failure}}").await;
    let token = fixture.assign(JOB).await;
    fixture.update_job(JOB, &token, failed("script_failure")).await;
    assert_eq!(fixture.job_states(), "one failed");
}

#[tokio::test]
async fn the_coverage_is_found_at_the_end_of_the_trace() {
    let fixture = JobFixture::with("one: {script: make, coverage: '/Covered: (\\d+\\.\\d+)%/'}").await;
    let token = fixture.assign(JOB).await;
    let text = format!("Covered: 10.00%\n{}\nCovered: 98.76%\ndone\n", "line\n".repeat(300_000));
    fixture.append_trace(JOB, &token, 0, &text).await;
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    assert_eq!(fixture.jobs()[0].coverage, Some(98.76));
}

#[tokio::test]
async fn older_runners_send_updates_with_their_own_token() {
    let fixture = JobFixture::with("one: {script: make}\ntwo: {script: make}").await;
    let other = fixture.forge.insert_runner("other");
    fixture.forge.set_runner_token(fixture.runner, "runner-token-abcdefg");
    fixture.forge.set_runner_token(other, "runner-token-other-x");
    let token = fixture.assign(JOB).await;
    let put = async |path: &str, token: &str, mut body: Value| {
        body["token"] = json!(token);
        let answer = fixture.anyone.put(&format!("/ci/api/v1/builds/{path}"), body).await;
        format!("{} {}", answer.code(), answer.text)
    };
    let (own, running) = ("runner-token-abcdefg", json!({ "state": "running" }));
    // They use this to check their token.
    assert_eq!(put("-1", own, json!({})).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(put("-1.json", own, json!({})).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(put("-1", "unknown", json!({})).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(put("1", "unknown", running.clone()).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(put("1", &token, running.clone()).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(put("1", "runner-token-other-x", running.clone()).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(put("2", own, running.clone()).await, r#"404 {"message":"404 Not Found"}"#);
    // They send the full trace each time.
    assert_eq!(put("1.json", own, json!({ "state": "running", "trace": "one\n" })).await, "200 null");
    assert_eq!(fixture.trace(JOB).await, "one\n");
    let whole = format!("one\n{token}\n");
    assert_eq!(put("1", own, json!({ "state": "running", "trace": whole })).await, "200 null");
    assert_eq!(put("1", own, json!({ "state": "running", "trace": "one" })).await, "200 null");
    // It may be larger than the body of other calls.
    let whole = format!("{whole}{}", "line\n".repeat(500_000));
    assert_eq!(put("1", own, json!({ "state": "failed", "trace": whole })).await, "200 null");
    assert_eq!(fixture.trace(JOB).await, whole.replace(&token, &"x".repeat(token.len())));
    assert_eq!(fixture.jobs()[0].failure_reason.as_deref(), Some("script_failure"));
    assert_eq!(put("1", own, running.clone()).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(fixture.ann.post("/projects/1/builds/1/erase", json!({})).await.code(), 201);
    assert_eq!(put("1", own, running).await, r#"403 {"message":"403 Forbidden  - Build has been erased!"}"#);
}

#[tokio::test]
async fn a_job_of_a_deleted_project_is_not_found() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.ann.delete("/projects/1").await;
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "success" })).await.code(), 404);
}

#[tokio::test]
async fn an_allowed_failure_does_not_apply_to_the_next_attempt() {
    let fixture = JobFixture::with("one: {script: x, allow_failure: {exit_codes: [3]}}").await;
    let token = fixture.assign(JOB).await;
    fixture
        .update_job(JOB, &token, json!({ "state": "failed", "failure_reason": "script_failure", "exit_code": 3 }))
        .await;
    assert_eq!(fixture.ann.get("/projects/1/builds/1").await.json()["allow_failure"], true);
    assert_eq!(fixture.pipeline(), Status::Success);
    let again = fixture.ann.post("/projects/1/builds/1/retry", json!({})).await.json();
    assert_eq!((&again["status"], &again["allow_failure"]), (&json!("pending"), &json!(false)), "{again}");
    assert_eq!(again["user"]["username"], "ann");
    fixture.ann.post(&format!("/projects/1/builds/{}/cancel", again["id"]), json!({})).await;
    assert_eq!(fixture.pipeline(), Status::Canceled);
}
