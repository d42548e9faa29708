//! How jobs end, as runners tell it.

use axum::http::Method;
use jiff::SignedDuration;
use model::Status;
use serde_json::{Value, json};
use testkit::Answer;

use crate::ci::traces::{ONE, Yard};

#[tokio::test]
async fn a_job_that_went_well_lets_the_next_stage_begin() {
    let yard = Yard::with("stages: [a, b]\none: {stage: a, script: make}\ntwo: {stage: b, script: make}").await;
    let token = yard.take(1).await;
    assert_eq!((yard.standing().as_str(), yard.pipeline()), ("one running, two created", Status::Running));
    let told = yard.tell(1, &token, json!({ "state": "success" })).await;
    assert_eq!((told.code(), told.text.as_str()), (200, "null"));
    assert_eq!((told.header("job-status"), told.header("content-type")), ("success", "application/json"));
    assert_eq!(yard.standing(), "one success, two pending");
    let token = yard.take(2).await;
    yard.tell(2, &token, json!({ "state": "success" })).await;
    assert_eq!(yard.pipeline(), Status::Success);
}

#[tokio::test]
async fn an_update_that_comes_late_changes_nothing() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.tell(1, &token, json!({ "state": "failed", "failure_reason": "runner_system_failure" })).await;
    for state in ["running", "success", "failed"] {
        let told = yard.tell(1, &token, json!({ "state": state })).await;
        assert_eq!((told.code(), told.text.as_str()), (403, r#"{"message":"403 Forbidden  - Job is not running"}"#));
        assert_eq!(told.header("job-status"), "failed");
    }
    let build = &yard.builds()[0];
    assert_eq!((build.status, build.failure_reason.as_deref()), (Status::Failed, Some("runner_system_failure")));
}

#[tokio::test]
async fn a_runner_says_that_a_job_goes_on() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.forge.clock.advance(SignedDuration::from_mins(30));
    let heard = format!("heard_at={}", yard.forge.forge.now().as_microsecond());
    assert!(!yard.forge.dump().contains(&heard));
    let told = yard.tell(1, &token, json!({ "state": "running" })).await;
    assert_eq!((told.code(), told.header("job-status")), (200, "running"));
    assert!(yard.forge.dump().contains(&heard));
    assert_eq!(yard.standing(), "one running");
}

#[tokio::test]
async fn an_update_needs_the_token_of_its_job_and_sense() {
    let yard = Yard::with("one: {script: make}\ntwo: {script: make}").await;
    let (token, other) = (yard.take(1).await, yard.take(2).await);
    let text = |answer: Answer| format!("{} {}", answer.code(), answer.text);
    let done = json!({ "state": "success" });
    assert_eq!(text(yard.tell(1, &other, done.clone()).await), r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(text(yard.tell(1, "", done.clone()).await), r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(text(yard.tell(9, &token, done.clone()).await), r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(text(yard.tell(1, &other, json!({ "state": "odd" })).await), r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(
        text(yard.tell(1, &token, json!({ "state": "odd" })).await),
        r#"400 {"error":"state does not have a valid value"}"#
    );
    assert_eq!(yard.standing(), "one running, two running");
    // A reason that is no word is none.
    let told = json!({ "state": "failed", "failure_reason": "<b>'; DROP TABLE" });
    assert_eq!(yard.tell(1, &token, told).await.code(), 200);
    assert_eq!(yard.builds()[0].failure_reason.as_deref(), Some("unknown_failure"));
    // By a header, as runners of some versions do.
    let headers = [("private-token", other.as_str()), ("content-type", "application/json")];
    let told = yard.call(Method::PUT, "/api/v4/jobs/2", &headers, r#"{"state":"success"}"#).await;
    assert_eq!(told.code(), 200);
}

#[tokio::test]
async fn of_many_endings_at_once_one_counts() {
    let yard =
        Yard::with("stages: [a, b]\none: {stage: a, script: make, retry: 2}\ntwo: {stage: b, script: make}").await;
    let token = yard.take(1).await;
    let states = ["success", "failed", "success", "failed", "success", "failed"];
    let told =
        futures_util::future::join_all(states.map(|state| yard.tell(1, &token, json!({ "state": state })))).await;
    let done: Vec<&Answer> = told.iter().filter(|answer| answer.code() == 200).collect();
    assert_eq!(done.len(), 1, "{told:?}");
    assert!(told.iter().all(|answer| [200, 403].contains(&answer.code())));
    let expected = match done[0].header("job-status") {
        "success" => "one success, two pending",
        _ => "one failed, two created, one pending",
    };
    assert_eq!(yard.standing(), expected);
}

#[tokio::test]
async fn some_failures_are_tolerated() {
    let file = "stages: [a, b]\none: {stage: a, script: make, allow_failure: {exit_codes: [3]}}\ntwo: {stage: b, script: make}";
    let yard = Yard::with(file).await;
    let token = yard.take(1).await;
    yard.tell(1, &token, json!({ "state": "failed", "failure_reason": "script_failure", "exit_code": 3 })).await;
    assert_eq!((yard.standing().as_str(), yard.builds()[0].allow_failure), ("one failed, two pending", true));
    let yard = Yard::with(file).await;
    let token = yard.take(1).await;
    yard.tell(1, &token, json!({ "state": "failed", "failure_reason": "script_failure", "exit_code": 4 })).await;
    assert_eq!((yard.standing().as_str(), yard.pipeline()), ("one failed, two skipped", Status::Failed));
}

#[tokio::test]
async fn a_job_is_tried_again_by_itself_as_often_as_its_file_says() {
    let yard = Yard::with("one: {script: make, retry: {max: 2, when: runner_system_failure}}").await;
    let failed = |reason: &str| json!({ "state": "failed", "failure_reason": reason });
    let token = yard.take(1).await;
    yard.tell(1, &token, failed("runner_system_failure")).await;
    assert_eq!((yard.standing().as_str(), yard.pipeline()), ("one failed, one pending", Status::Running));
    // The token of the first attempt opens nothing any more.
    let second = yard.take(2).await;
    assert_eq!(yard.say(2, &token, 0, "text").await.code(), 403);
    yard.tell(2, &second, failed("runner_system_failure")).await;
    let third = yard.take(3).await;
    yard.tell(3, &third, failed("runner_system_failure")).await;
    assert_eq!((yard.standing().as_str(), yard.pipeline()), ("one failed, one failed, one failed", Status::Failed));
    assert_eq!(yard.builds().iter().map(|build| build.retried).collect::<Vec<_>>(), [true, true, false]);
    let user = yard.builds()[2].user.as_ref().map(|user| user.id);
    assert_eq!(user, Some(yard.ann.id));
    // For other reasons it is not.
    let yard = Yard::with("one: {script: make, retry: {max: 2, when: runner_system_failure}}").await;
    let token = yard.take(1).await;
    yard.tell(1, &token, failed("script_failure")).await;
    assert_eq!(yard.standing(), "one failed");
}

#[tokio::test]
async fn the_coverage_is_found_at_the_end_of_the_trace() {
    let yard = Yard::with("one: {script: make, coverage: '/Covered: (\\d+\\.\\d+)%/'}").await;
    let token = yard.take(1).await;
    let text = format!("Covered: 10.00%\n{}\nCovered: 98.76%\ndone\n", "line\n".repeat(300_000));
    yard.say(1, &token, 0, &text).await;
    yard.tell(1, &token, json!({ "state": "success" })).await;
    assert_eq!(yard.builds()[0].coverage, Some(98.76));
}

#[tokio::test]
async fn older_runners_tell_with_their_own_token() {
    let yard = Yard::with("one: {script: make}\ntwo: {script: make}").await;
    let other = yard.forge.plant_runner("other");
    yard.forge.let_runner_show(yard.runner, "runner-token-abcdefg");
    yard.forge.let_runner_show(other, "runner-token-other-x");
    let token = yard.take(1).await;
    let put = async |path: &str, token: &str, mut body: Value| {
        body["token"] = json!(token);
        let answer = yard.anyone.put(&format!("/ci/api/v1/builds/{path}"), body).await;
        format!("{} {}", answer.code(), answer.text)
    };
    let (own, running) = ("runner-token-abcdefg", json!({ "state": "running" }));
    // So they find out whether they are known.
    assert_eq!(put("-1", own, json!({})).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(put("-1.json", own, json!({})).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(put("-1", "unknown", json!({})).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(put("1", "unknown", running.clone()).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(put("1", &token, running.clone()).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(put("1", "runner-token-other-x", running.clone()).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(put("2", own, running.clone()).await, r#"404 {"message":"404 Not Found"}"#);
    // They send all that was said each time.
    assert_eq!(put("1.json", own, json!({ "state": "running", "trace": "one\n" })).await, "200 null");
    assert_eq!(yard.trace(1).await, "one\n");
    let whole = format!("one\n{token}\n");
    assert_eq!(put("1", own, json!({ "state": "running", "trace": whole })).await, "200 null");
    assert_eq!(put("1", own, json!({ "state": "running", "trace": "one" })).await, "200 null");
    // More than an ordinary body, too.
    let whole = format!("{whole}{}", "line\n".repeat(500_000));
    assert_eq!(put("1", own, json!({ "state": "failed", "trace": whole })).await, "200 null");
    assert_eq!(yard.trace(1).await, whole.replace(&token, &"x".repeat(token.len())));
    assert_eq!(yard.builds()[0].failure_reason.as_deref(), Some("script_failure"));
    assert_eq!(put("1", own, running.clone()).await, r#"404 {"message":"404 Not Found"}"#);
    assert_eq!(yard.ann.post("/projects/1/builds/1/erase", json!({})).await.code(), 201);
    assert_eq!(put("1", own, running).await, r#"403 {"message":"403 Forbidden  - Build has been erased!"}"#);
}

#[tokio::test]
async fn a_job_of_a_removed_project_is_not_there() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.ann.delete("/projects/1").await;
    assert_eq!(yard.tell(1, &token, json!({ "state": "success" })).await.code(), 404);
}

#[tokio::test]
async fn that_one_failure_was_allowed_says_nothing_about_the_next_attempt() {
    let yard = Yard::with("one: {script: x, allow_failure: {exit_codes: [3]}}").await;
    let token = yard.take(1).await;
    yard.tell(1, &token, json!({ "state": "failed", "failure_reason": "script_failure", "exit_code": 3 })).await;
    assert_eq!(yard.ann.get("/projects/1/builds/1").await.json()["allow_failure"], true);
    assert_eq!(yard.pipeline(), Status::Success);
    let again = yard.ann.post("/projects/1/builds/1/retry", json!({})).await.json();
    assert_eq!((&again["status"], &again["allow_failure"]), (&json!("pending"), &json!(false)), "{again}");
    assert_eq!(again["user"]["username"], "ann");
    yard.ann.post(&format!("/projects/1/builds/{}/cancel", again["id"]), json!({})).await;
    assert_eq!(yard.pipeline(), Status::Canceled);
}
