//! How pipelines change while their jobs run.

use ci::{
    StatusEvent, When,
    progress::{self, JobState},
    status,
};
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{JobId, PipelineId, ProjectId, RunnerId, Status, jobs::JobKind};
use serde_json::{Value, json};
use store::jobs::LatestJob;
use testkit::{TestClient, TestForge, fixtures};

use crate::{
    ci::pipelines::{commit_with_ci_file, setup},
    support::Rng,
};

/// A project whose branch `master` has this CI file.
struct PipelineFixture {
    forge: TestForge,
    ann: TestClient,
    project: ProjectId,
    runner: RunnerId,
}

impl PipelineFixture {
    async fn start(file: &str) -> Self {
        let (forge, ann, project) = setup().await;
        forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/master", file)).await;
        let runner = forge.insert_runner("one");
        Self { forge, ann, project, runner }
    }

    /// The latest job of each name, oldest first: `name status`.
    async fn jobs(&self) -> String {
        let list = self.statuses("").await;
        let text = |job: &Value, name: &str| job[name].as_str().expect("text").to_owned();
        list.iter().map(|job| format!("{} {}", text(job, "name"), text(job, "status"))).collect::<Vec<_>>().join(", ")
    }

    async fn statuses(&self, query: &str) -> Vec<Value> {
        let path = format!("/projects/{}/repository/commits/master/statuses?per_page=100{query}", self.project);
        self.ann.get(&path).await.json().as_array().expect("a list").clone()
    }

    async fn job(&self, name: &str) -> JobId {
        let list = self.statuses(&format!("&name={name}")).await;
        JobId::new(list[0]["id"].as_i64().expect("a number"))
    }

    /// A runner takes a pending job and ends it ten seconds later with this event.
    async fn run(&self, name: &str, end: StatusEvent) {
        let job = self.job(name).await;
        self.forge.assign_job(job, self.runner).await;
        self.forge.clock.advance(SignedDuration::from_secs(10));
        self.forge.apply_job_event(job, end).await;
    }

    async fn pipeline(&self) -> Value {
        self.ann.get(&format!("/projects/{}/pipelines/1", self.project)).await.json()
    }

    async fn status(&self) -> String {
        self.pipeline().await["status"].as_str().expect("text").to_owned()
    }

    async fn post_action(&self, action: &str) -> (u16, String) {
        let answer = self.ann.post(&format!("/projects/{}/pipelines/1/{action}", self.project), json!({})).await;
        (answer.code(), answer.json()["status"].as_str().expect("text").to_owned())
    }
}

const STAGED_FILE: &str = "
stages: [build, test]
make: {stage: build, script: make}
check: {stage: test, script: make check}
";

#[tokio::test]
async fn a_failed_stage_stops_the_next_and_a_retry_continues() {
    let fixture = PipelineFixture::start(STAGED_FILE).await;
    assert_eq!(
        (fixture.jobs().await, fixture.status().await),
        ("make pending, check created".into(), "pending".into())
    );
    let job = fixture.job("make").await;
    fixture.forge.assign_job(job, fixture.runner).await;
    let running = fixture.pipeline().await;
    assert_eq!((&running["status"], &running["started_at"]), (&json!("running"), &json!("2026-01-02T03:04:05.678Z")));
    fixture.forge.clock.advance(SignedDuration::from_secs(10));
    fixture.forge.apply_job_event(job, StatusEvent::Drop).await;
    assert_eq!((fixture.jobs().await, fixture.status().await), ("make failed, check skipped".into(), "failed".into()));
    let failed = fixture.pipeline().await;
    assert_eq!((&failed["duration"], &failed["finished_at"]), (&json!(10), &json!("2026-01-02T03:04:15.678Z")));
    fixture.forge.clock.advance(SignedDuration::from_secs(10));
    // The contract says so, whatever the status of the jobs.
    assert_eq!(fixture.post_action("retry").await, (201, "pending".into()));
    assert_eq!(
        (fixture.jobs().await, fixture.status().await),
        ("check created, make pending".into(), "running".into())
    );
    let tried = fixture.pipeline().await;
    assert_eq!((&tried["finished_at"], &tried["started_at"]), (&failed["finished_at"], &running["started_at"]));
    let all = fixture.statuses("&all=true").await;
    let seen: Vec<_> = all.iter().map(|job| (job["name"].as_str(), job["status"].as_str())).collect();
    assert_eq!(
        seen,
        [(Some("make"), Some("failed")), (Some("check"), Some("created")), (Some("make"), Some("pending"))]
    );
    // There is nothing left to retry.
    assert_eq!(fixture.post_action("retry").await, (201, "running".into()));
    fixture.run("make", StatusEvent::Succeed).await;
    assert_eq!(
        (fixture.jobs().await, fixture.status().await),
        ("check pending, make success".into(), "running".into())
    );
    fixture.run("check", StatusEvent::Succeed).await;
    let done = fixture.pipeline().await;
    assert_eq!((&done["status"], &done["duration"]), (&json!("success"), &json!(20)));
    // Events have no effect on a job that has ended.
    fixture.forge.apply_job_event(job, StatusEvent::Cancel).await;
    fixture.forge.apply_job_event(fixture.job("make").await, StatusEvent::Drop).await;
    assert_eq!(fixture.pipeline().await, done);
}

#[tokio::test]
async fn an_allowed_failure_does_not_fail_the_pipeline() {
    let fixture = PipelineFixture::start("a: {script: x, allow_failure: true}\nb: {script: x}").await;
    fixture.run("a", StatusEvent::Drop).await;
    assert_eq!(fixture.status().await, "running");
    fixture.run("b", StatusEvent::Succeed).await;
    assert_eq!(fixture.status().await, "success");
    let fixture = PipelineFixture::start("a: {script: x, allow_failure: true}").await;
    fixture.run("a", StatusEvent::Drop).await;
    assert_eq!((fixture.jobs().await, fixture.status().await), ("a failed".into(), "success".into()));
}

const FILE_WITH_WHEN: &str = "
stages: [build, test]
make: {stage: build, script: make}
by-hand: {stage: build, script: x, when: manual}
good: {stage: test, script: x}
bad: {stage: test, script: x, when: on_failure}
ever: {stage: test, script: x, when: always}
hand: {stage: test, script: x, when: manual}
";

#[tokio::test]
async fn jobs_start_according_to_when() {
    let fixture = PipelineFixture::start(FILE_WITH_WHEN).await;
    let before = "make pending, by-hand skipped, good created, bad created, ever created, hand created";
    assert_eq!((fixture.jobs().await, fixture.status().await), (before.into(), "pending".into()));
    fixture.run("make", StatusEvent::Succeed).await;
    let after = "make success, by-hand skipped, good pending, bad skipped, ever pending, hand skipped";
    assert_eq!(fixture.jobs().await, after);
    let fixture = PipelineFixture::start(FILE_WITH_WHEN).await;
    fixture.run("make", StatusEvent::Drop).await;
    let after = "make failed, by-hand skipped, good skipped, bad pending, ever pending, hand skipped";
    assert_eq!((fixture.jobs().await, fixture.status().await), (after.into(), "running".into()));
    for name in ["bad", "ever"] {
        fixture.run(name, StatusEvent::Succeed).await;
    }
    assert_eq!(fixture.status().await, "failed");
}

#[tokio::test]
async fn a_canceled_pipeline_can_be_retried() {
    let fixture = PipelineFixture::start(STAGED_FILE).await;
    let token = fixture.forge.assign_job(fixture.job("make").await, fixture.runner).await;
    assert!(!token.is_empty());
    fixture.forge.clock.advance(SignedDuration::from_secs(3));
    assert_eq!(fixture.post_action("cancel").await, (200, "canceled".into()));
    assert_eq!(fixture.jobs().await, "make canceled, check canceled");
    assert_eq!(fixture.pipeline().await["duration"], 3);
    assert_eq!(fixture.post_action("cancel").await, (200, "canceled".into()));
    // Too late for the runner.
    fixture.forge.apply_job_event(fixture.job("make").await, StatusEvent::Succeed).await;
    assert_eq!(fixture.status().await, "canceled");
    assert_eq!(fixture.post_action("retry").await, (201, "pending".into()));
    assert_eq!(
        (fixture.jobs().await, fixture.status().await),
        ("make pending, check created".into(), "running".into())
    );
    // A job that had already failed stays failed.
    let fixture = PipelineFixture::start("a: {script: x}\nb: {script: x}").await;
    fixture.run("a", StatusEvent::Drop).await;
    assert_eq!(fixture.post_action("cancel").await, (200, "failed".into()));
    assert_eq!(fixture.jobs().await, "a failed, b canceled");
}

#[tokio::test]
async fn retried_jobs_belong_to_the_user_who_retries() {
    let fixture = PipelineFixture::start(STAGED_FILE).await;
    let bob = fixture.forge.user("bob").await;
    let member = json!({ "user_id": bob.id.get(), "access_level": 30 });
    fixture.ann.post(&format!("/projects/{}/members", fixture.project), member).await;
    fixture.run("make", StatusEvent::Drop).await;
    assert_eq!(bob.post(&format!("/projects/{}/pipelines/1/retry", fixture.project), json!({})).await.code(), 201);
    let author = async |name: &str| fixture.statuses(&format!("&name={name}")).await[0]["author"]["username"].clone();
    // So do jobs of later stages: the user who started them may no longer run them.
    assert_eq!((author("make").await, author("check").await), (json!("bob"), json!("bob")));
    assert_eq!(fixture.pipeline().await["user"]["username"], "ann");
}

#[tokio::test]
async fn external_statuses_belong_to_the_pipeline() {
    let fixture = PipelineFixture::start("make: {script: x}").await;
    let tell = async |name: &str, state: &str| {
        let body = json!({ "state": state, "name": name, "ref": "master" });
        let response = fixture.ann.post(&format!("/projects/{}/statuses/master", fixture.project), body).await;
        assert_eq!(response.code(), 201, "{response}");
        response.json()["id"].as_i64().expect("a number")
    };
    let review = tell("review", "running").await;
    assert_eq!(
        (fixture.jobs().await, fixture.status().await),
        ("make pending, review running".into(), "running".into())
    );
    fixture.run("make", StatusEvent::Succeed).await;
    assert_eq!(fixture.status().await, "running");
    assert_eq!(tell("review", "failed").await, review);
    assert_eq!(fixture.status().await, "failed");
    // An external status cannot be retried.
    assert_eq!(fixture.post_action("retry").await, (201, "failed".into()));
    assert_ne!(tell("review", "success").await, review);
    assert_eq!(
        (fixture.jobs().await, fixture.status().await),
        ("make success, review success".into(), "success".into())
    );
    assert_eq!(fixture.statuses("&all=true").await.len(), 3);
    assert_eq!(fixture.statuses("&stage=external").await.len(), 1);
    assert_eq!(fixture.statuses("&stage=test").await.len(), 1);
    // An external status may have the name of a job.
    tell("make", "failed").await;
    assert_eq!(
        (fixture.jobs().await, fixture.status().await),
        ("make success, review success, make failed".into(), "failed".into())
    );
    assert_eq!(fixture.statuses("&all=true&ref=other").await.len(), 0);
    // Another ref of the same commit has a pipeline of its own.
    let body = json!({ "state": "pending", "ref": "elsewhere" });
    fixture.ann.post(&format!("/projects/{}/statuses/master", fixture.project), body).await;
    let list = fixture.ann.get(&format!("/projects/{}/pipelines", fixture.project)).await.json();
    let seen = (&list[0]["id"], &list[0]["ref"], &list[0]["status"], &list[0]["before_sha"]);
    assert_eq!(seen, (&json!(2), &json!("elsewhere"), &json!("pending"), &json!("0".repeat(40))));
    let commit = fixture.ann.get(&format!("/projects/{}/repository/commits/master", fixture.project)).await.json();
    assert_eq!(commit["status"], "pending");
}

#[tokio::test]
async fn webhooks_are_notified_of_every_change() {
    let (forge, ann, project) = setup().await;
    let wants = model::hooks::SubscribedEvents { push: true, pipeline: true, build: true, ..Default::default() };
    forge.in_transaction(|db| fixtures::hook(db, Some(project), wants));
    forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/master", STAGED_FILE)).await;
    let runner = forge.insert_runner("one");
    let heard = || {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let line = |payload: &Value| match payload["object_kind"].as_str() {
            Some("pipeline") => format!("pipeline {}", text(&payload["object_attributes"]["status"])),
            Some("build") => format!("{} {}", text(&payload["build_name"]), text(&payload["build_status"])),
            _ => "push".to_owned(),
        };
        let events = forge.in_transaction(fixtures::take_hook_events);
        events.iter().map(|one| line(&one.payload)).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(heard(), "push, make created, check created, pipeline pending");
    forge.assign_job(JobId::new(1), runner).await;
    assert_eq!(heard(), "make running, pipeline running");
    forge.apply_job_event(JobId::new(1), StatusEvent::Drop).await;
    assert_eq!(heard(), "make failed, pipeline failed");
    ann.post(&format!("/projects/{project}/pipelines/1/retry"), json!({})).await;
    assert_eq!(heard(), "make created, pipeline running");
    ann.post(&format!("/projects/{project}/pipelines/1/cancel"), json!({})).await;
    assert_eq!(heard(), "check canceled, make canceled, pipeline canceled");
    let body = json!({ "state": "running" });
    ann.post(&format!("/projects/{project}/statuses/master"), body).await;
    assert_eq!(heard(), "pipeline running");
    ann.post(&format!("/projects/{project}/pipelines/1/cancel"), json!({})).await;
    assert_eq!(heard(), "pipeline canceled");
}

#[tokio::test]
async fn the_coverage_is_that_of_the_latest_jobs() {
    let fixture = PipelineFixture::start("a: {script: x}\nb: {script: x}").await;
    assert_eq!(fixture.pipeline().await["coverage"], json!(null));
    let set = |job, coverage| {
        fixture.forge.in_transaction(|db| store::job_runs::set_coverage(db, job, coverage).expect("set"));
    };
    set(JobId::new(1), 33.333);
    assert_snapshot!(fixture.pipeline().await["coverage"], @r#""33.33""#);
    set(JobId::new(2), 66.67);
    assert_snapshot!(fixture.pipeline().await["coverage"], @r#""50.00""#);
}

const COMPLEX_FILE: &str = "
stages: [one, two, three]
a: {stage: one, script: x}
b: {stage: one, script: x, allow_failure: true}
c: {stage: one, script: x, when: manual}
d: {stage: two, script: x, needs: [a]}
e: {stage: two, script: x, when: always}
f: {stage: two, script: x, when: on_failure}
g: {stage: three, script: x}
h: {stage: three, script: x, needs: [d, c]}
i: {stage: three, script: x, needs: []}
";

fn to_state(job: &LatestJob, all: &[LatestJob]) -> JobState {
    let place = |name: &String| all.iter().position(|other| other.kind == JobKind::Runner && other.name == *name);
    JobState {
        stage: usize::try_from(job.stage_index).expect("a position"),
        status: job.status,
        when: When::parse(&job.when).expect("a word"),
        allow_failure: job.allow_failure,
        needs: job.needs.as_ref().map(|needs| needs.iter().filter_map(place).collect()),
    }
}

/// Returns whether everything that a job needs has ended.
fn is_ready(job: &JobState, all: &[JobState]) -> bool {
    match &job.needs {
        Some(needs) => needs.iter().all(|need| all[*need].status.is_done()),
        None => all.iter().filter(|other| other.stage < job.stage).all(|other| other.status.is_done()),
    }
}

/// After any sequence of events, the status of the pipeline follows from its jobs, nothing is left to do, and no job has
/// started too early.
#[tokio::test]
async fn after_any_events_the_pipeline_follows_its_jobs() {
    for seed in 1..=6_u64 {
        let fixture = PipelineFixture::start(COMPLEX_FILE).await;
        let mut rng = Rng(seed * 7919);
        let look = || {
            fixture.forge.in_transaction(|db| {
                let pipeline = store::pipelines::by_id(db, PipelineId::new(1)).expect("asked").expect("a pipeline");
                (pipeline, store::jobs::latest_of_pipeline(db, PipelineId::new(1)).expect("asked"))
            })
        };
        let (mut pipeline, mut jobs) = look();
        for step in 0..60 {
            fixture.forge.clock.advance(SignedDuration::from_secs(1));
            let chosen = &jobs[usize::try_from(rng.next_u64()).expect("a number") % jobs.len()];
            let action = match rng.next_u64() % 12 {
                0 => fixture.post_action("retry").await.1,
                1 => fixture.post_action("cancel").await.1,
                2 => {
                    let state = ["pending", "running", "success", "failed", "canceled"]
                        [usize::try_from(rng.next_u64() % 5).expect("small")];
                    let body = json!({ "state": state, "name": "a", "ref": "master" });
                    let response =
                        fixture.ann.post(&format!("/projects/{}/statuses/master", fixture.project), body).await;
                    format!("reported {state} {}", response.code())
                }
                number => {
                    // Mostly what a runner would do.
                    let event = match (number, chosen.status) {
                        (3..=8, Status::Pending) => StatusEvent::Run,
                        (3..=6, Status::Running) => StatusEvent::Succeed,
                        (7..=8, Status::Running) => StatusEvent::Drop,
                        _ => [StatusEvent::Run, StatusEvent::Succeed, StatusEvent::Drop, StatusEvent::Cancel]
                            [usize::try_from(rng.next_u64() % 4).expect("small")],
                    };
                    fixture.forge.apply_job_event(chosen.id, event).await;
                    format!("{} {event:?}", chosen.name)
                }
            };
            let (next, latest) = look();
            let place = format!("seed {seed}, step {step}, {action}: {latest:#?}");
            let states: Vec<JobState> = latest.iter().map(|job| to_state(job, &latest)).collect();
            let computed = status::combine(latest.iter().map(|job| (job.status, job.allow_failure)));
            assert_eq!(next.status, status::next_pipeline_status(next.status, computed), "{place}");
            assert_eq!(next.status, status::next_pipeline_status(pipeline.status, computed), "{place}");
            assert_eq!(progress::progress(&states), [], "{place}");
            for (job, state) in latest.iter().zip(&states).filter(|(job, _)| job.kind == JobKind::Runner) {
                let before = jobs.iter().find(|one| one.id == job.id).map_or(Status::Created, |one| one.status);
                let starts = before == Status::Created && job.status == Status::Pending;
                assert!(!starts || state.when == When::Manual || is_ready(state, &states), "{}: {place}", job.name);
            }
            assert!(next.started_at >= pipeline.started_at && next.finished_at >= pipeline.finished_at, "{place}");
            (pipeline, jobs) = (next, latest);
        }
    }
}
