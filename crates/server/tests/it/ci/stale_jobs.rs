//! Stale jobs are requeued or fail.

use axum::http::Method;
use forge::{Caller, stale_jobs, tasks};
use jiff::SignedDuration;
use model::{JobId, PipelineId, ProjectId, Status, hooks::SubscribedEvents};
use serde_json::json;
use testkit::{TestClient, TestForge, fixtures};

use crate::{
    ci::job_requests::{jobs_of, load_job},
    ci::runners::{call_runner_api, register_shared},
};

const V4: &str = "/api/v4/jobs/request";
const JOB_AND_PIPELINE_EVENTS: SubscribedEvents = SubscribedEvents {
    push: false,
    tag_push: false,
    issues: false,
    confidential_issues: false,
    merge_requests: false,
    note: false,
    build: true,
    pipeline: true,
    wiki_page: false,
};

struct StaleJobFixture {
    forge: TestForge,
    ann: TestClient,
    project: ProjectId,
    token: String,
}

impl StaleJobFixture {
    async fn start(runner: serde_json::Value) -> Self {
        let forge = TestForge::start().await;
        let ann = forge.user("ann").await;
        let project = ProjectId::new(ann.make("/projects", json!({ "name": "x" })).await);
        let (_, token) = register_shared(&forge, runner).await;
        Self { forge, ann, project, token }
    }

    /// Starts a pipeline and lets the runner take its first job; returns its ID.
    async fn start_job(&self, file: &str) -> JobId {
        let pipeline = self.forge.start_pipeline(self.project, None, file).await;
        let id = jobs_of(&self.forge, pipeline.id)[0].id;
        assert_eq!(self.request_job().await["id"], json!(id.get()));
        id
    }

    async fn request_job(&self) -> serde_json::Value {
        let answer = call_runner_api(&self.forge, Method::POST, V4, json!({ "token": self.token })).await;
        if answer.code() == 201 { answer.json() } else { json!({}) }
    }

    /// The runner sends an update about a job.
    fn record_update(&self, id: JobId) {
        let now = self.forge.forge.now().as_microsecond();
        self.forge.execute_sql(&format!("UPDATE build_runs SET heard_at = {now} WHERE build_id = {id}"));
    }

    async fn advance_and_sweep(&self, time: SignedDuration) {
        self.forge.clock.advance(time);
        stale_jobs::sweep(&self.forge.forge).await.expect("swept");
    }

    /// The trace of a job as users read it.
    async fn trace(&self, id: JobId) -> String {
        let path = format!("/projects/{}/builds/{id}/trace", self.project);
        self.ann.get(&path).await.text
    }

    /// The status and the failure reason of a job.
    fn state(&self, id: JobId) -> (Status, Option<String>) {
        let job = load_job(&self.forge, id);
        (job.status, job.failure_reason)
    }

    /// The webhook events since the last call.
    fn webhook_events(&self) -> Vec<String> {
        let events = self.forge.in_transaction(fixtures::take_hook_events);
        events
            .iter()
            .map(|event| match &event.payload["build_status"] {
                serde_json::Value::Null => format!("pipeline {}", event.payload["object_attributes"]["status"]),
                status => format!("build {status}"),
            })
            .collect()
    }
}

fn failed(why: &str) -> (Status, Option<String>) {
    (Status::Failed, Some(why.to_owned()))
}

#[tokio::test]
async fn a_job_without_any_update_is_requeued_and_webhooks_are_notified_once() {
    let fixture = StaleJobFixture::start(json!({})).await;
    let (forge, project) = (&fixture.forge, fixture.project);
    forge.in_transaction(|db| fixtures::hook(db, Some(project), JOB_AND_PIPELINE_EVENTS));
    let pipeline = forge.start_pipeline(project, Some(fixture.ann.id), "one: {script: x}").await;
    let id = jobs_of(forge, pipeline.id)[0].id;
    assert_eq!(fixture.webhook_events(), ["build \"created\"", "pipeline \"pending\""]);
    let first = fixture.request_job().await;
    assert_eq!(fixture.webhook_events(), ["build \"running\"", "pipeline \"running\""]);
    fixture.advance_and_sweep(SignedDuration::from_secs(110)).await;
    assert_eq!(fixture.state(id).0, Status::Running);
    fixture.advance_and_sweep(SignedDuration::from_secs(20)).await;
    assert_eq!(fixture.state(id), (Status::Pending, None));
    assert_eq!(load_job(forge, id).runner, None);
    assert_eq!(fixture.webhook_events(), Vec::<String>::new());
    // The previous token stays invalid, even when the job runs again.
    let of = |job: &serde_json::Value| Caller::with_job_token(job["token"].as_str().expect("a token"));
    let opens = async |caller: Caller| {
        let read = forge.forge.read(caller, move |tx| {
            tx.project(&forge::ProjectRef::Id(project), forge::ProjectAbility::DownloadCode).map(drop)
        });
        read.await.is_ok()
    };
    assert!(!opens(of(&first)).await);
    let second = fixture.request_job().await;
    assert_eq!(second["id"], first["id"]);
    assert!(!opens(of(&first)).await);
    assert!(opens(of(&second)).await);
    assert_eq!(fixture.webhook_events(), Vec::<String>::new());
    // A job with an update is not requeued.
    fixture.record_update(id);
    fixture.advance_and_sweep(SignedDuration::from_mins(10)).await;
    assert_eq!(fixture.state(id).0, Status::Running);
}

#[tokio::test]
async fn a_job_whose_runner_is_silent_fails() {
    let fixture = StaleJobFixture::start(json!({})).await;
    let id =
        fixture.start_job("stages: [a, b]\none: {stage: a, script: x, timeout: 10h}\ntwo: {stage: b, script: x}").await;
    fixture.record_update(id);
    fixture.advance_and_sweep(SignedDuration::from_mins(59)).await;
    assert_eq!(fixture.state(id).0, Status::Running);
    fixture.record_update(id);
    fixture.advance_and_sweep(SignedDuration::from_mins(59)).await;
    assert_eq!(fixture.state(id).0, Status::Running);
    fixture.advance_and_sweep(SignedDuration::from_mins(2)).await;
    assert_eq!(fixture.state(id), failed("stuck_or_timeout_failure"));
    let jobs = jobs_of(&fixture.forge, PipelineId::new(1));
    assert_eq!((jobs[1].status, jobs[1].pipeline.status), (Status::Skipped, Status::Failed));
    assert_eq!(fixture.trace(id).await, "ERROR: job failed: its runner sent no update for an hour\n");
}

#[tokio::test]
async fn a_job_that_exceeds_its_timeout_fails() {
    let limits = [
        (json!({}), "one: {script: x}", 65),
        (json!({}), "one: {script: x, timeout: 20 minutes}", 25),
        (json!({ "maximum_timeout": 600 }), "one: {script: x, timeout: 20 minutes}", 15),
        (json!({ "maximum_timeout": 86400 }), "one: {script: x, timeout: 20 minutes}", 25),
    ];
    for (runner, file, minutes) in limits {
        let fixture = StaleJobFixture::start(runner).await;
        let id = fixture.start_job(file).await;
        for _ in 0..minutes {
            fixture.record_update(id);
            fixture.advance_and_sweep(SignedDuration::from_mins(1)).await;
        }
        assert_eq!(fixture.state(id).0, Status::Running, "{file} after {minutes} minutes");
        fixture.record_update(id);
        fixture.advance_and_sweep(SignedDuration::from_secs(1)).await;
        assert_eq!(fixture.state(id), failed("job_execution_timeout"), "{file}");
        assert_eq!(fixture.trace(id).await, "ERROR: job failed: it ran for longer than its timeout allows\n", "{file}");
    }
}

#[tokio::test]
async fn a_job_that_no_runner_takes_fails_after_a_day() {
    let fixture = StaleJobFixture::start(json!({})).await;
    let pipeline = fixture.forge.start_pipeline(fixture.project, None, "one: {script: x, tags: [rare]}").await;
    let id = jobs_of(&fixture.forge, pipeline.id)[0].id;
    fixture.advance_and_sweep(SignedDuration::from_hours(24)).await;
    assert_eq!(fixture.state(id).0, Status::Pending);
    fixture.advance_and_sweep(SignedDuration::from_secs(1)).await;
    assert_eq!(fixture.state(id), failed("stuck_or_timeout_failure"));
    assert_eq!(fixture.trace(id).await, "ERROR: job failed: no runner took it within 24 hours\n");
    // Appended once.
    fixture.advance_and_sweep(SignedDuration::from_hours(1)).await;
    assert_eq!(fixture.trace(id).await.lines().count(), 1);
}

#[tokio::test]
async fn external_statuses_and_jobs_of_deleted_projects_are_ignored() {
    let fixture = StaleJobFixture::start(json!({})).await;
    let kept = fixture.start_job("one: {script: x}").await;
    let waits = fixture.forge.start_pipeline(fixture.project, None, "one: {script: x}").await;
    let waits = jobs_of(&fixture.forge, waits.id)[0].id;
    fixture.forge.execute_sql("UPDATE builds SET kind = 1");
    fixture.advance_and_sweep(SignedDuration::from_hours(48)).await;
    assert_eq!((fixture.state(kept).0, fixture.state(waits).0), (Status::Running, Status::Pending));
    fixture.forge.execute_sql("UPDATE builds SET kind = 0");
    fixture.forge.execute_sql("UPDATE projects SET deleted_at = 1, namespace_id = NULL");
    fixture.advance_and_sweep(SignedDuration::from_secs(1)).await;
    assert_eq!((fixture.state(kept).0, fixture.state(waits).0), (Status::Running, Status::Pending));
}

#[tokio::test]
async fn stale_jobs_are_swept_every_minute() {
    let fixture = StaleJobFixture::start(json!({})).await;
    let id = fixture.start_job("one: {script: x}").await;
    tasks::enqueue_recurring(&fixture.forge.forge).await.expect("written down");
    fixture.forge.run_due_tasks().await;
    assert_eq!(fixture.state(id).0, Status::Running);
    fixture.forge.clock.advance(SignedDuration::from_mins(3));
    fixture.forge.run_due_tasks().await;
    assert_eq!(fixture.state(id).0, Status::Pending);
    // Also if the job was assigned again.
    assert_eq!(fixture.request_job().await["id"], json!(id.get()));
    fixture.forge.clock.advance(SignedDuration::from_mins(3));
    fixture.forge.run_due_tasks().await;
    assert_eq!(fixture.state(id).0, Status::Pending);
}
