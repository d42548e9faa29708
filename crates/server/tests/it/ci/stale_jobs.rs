//! Jobs that are stuck are taken back or given up.

use axum::http::Method;
use forge::{Caller, stale_jobs, tasks};
use jiff::SignedDuration;
use model::{Status, hooks::Switches};
use serde_json::json;
use testkit::{Client, TestForge, rows};

use crate::{
    ci::assignments::{build, builds_of, execute},
    ci::runners::{call, join_instance},
};

const V4: &str = "/api/v4/jobs/request";
const BOTH: Switches = Switches {
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

struct Scene {
    forge: TestForge,
    ann: Client,
    project: i64,
    token: String,
}

impl Scene {
    async fn start(runner: serde_json::Value) -> Self {
        let forge = TestForge::start().await;
        let ann = forge.user("ann").await;
        let project = ann.make("/projects", json!({ "name": "x" })).await;
        let (_, token) = join_instance(&forge, runner).await;
        Self { forge, ann, project, token }
    }

    /// Starts a pipeline and lets the runner take its first job; answers its number.
    async fn take(&self, file: &str) -> i64 {
        let pipeline = self.forge.plant_pipeline(self.project, None, file).await;
        let id = builds_of(&self.forge, pipeline.id)[0].id;
        assert_eq!(self.ask().await["id"], json!(id));
        id
    }

    async fn ask(&self) -> serde_json::Value {
        let answer = call(&self.forge, Method::POST, V4, json!({ "token": self.token })).await;
        if answer.code() == 201 { answer.json() } else { json!({}) }
    }

    /// The runner says something about a job.
    fn hear(&self, id: i64) {
        let now = self.forge.forge.now().as_microsecond();
        execute(&self.forge, &format!("UPDATE build_runs SET heard_at = {now} WHERE build_id = {id}"));
    }

    async fn after(&self, time: SignedDuration) {
        self.forge.clock.advance(time);
        stale_jobs::sweep(&self.forge.forge).await.expect("swept");
    }

    /// What people read of a job.
    async fn trace(&self, id: i64) -> String {
        let path = format!("/projects/{}/builds/{id}/trace", self.project);
        self.ann.get(&path).await.text
    }

    /// How a job stands, and why.
    fn state(&self, id: i64) -> (Status, Option<String>) {
        let build = build(&self.forge, id);
        (build.status, build.failure_reason)
    }

    /// What hooks were told since this was last asked.
    fn told(&self) -> Vec<String> {
        let told = self.forge.in_one_go(rows::take_announcements);
        told.iter()
            .map(|told| match &told.payload["build_status"] {
                serde_json::Value::Null => format!("pipeline {}", told.payload["object_attributes"]["status"]),
                status => format!("build {status}"),
            })
            .collect()
    }
}

fn failed(why: &str) -> (Status, Option<String>) {
    (Status::Failed, Some(why.to_owned()))
}

#[tokio::test]
async fn a_job_that_was_never_heard_of_waits_again_and_nobody_is_told_twice() {
    let scene = Scene::start(json!({})).await;
    let (forge, project) = (&scene.forge, scene.project);
    forge.in_one_go(|db| rows::hook(db, Some(project), BOTH));
    let pipeline = forge.plant_pipeline(project, Some(scene.ann.id), "one: {script: x}").await;
    let id = builds_of(forge, pipeline.id)[0].id;
    assert_eq!(scene.told(), ["build \"created\"", "pipeline \"pending\""]);
    let first = scene.ask().await;
    assert_eq!(scene.told(), ["build \"running\"", "pipeline \"running\""]);
    scene.after(SignedDuration::from_secs(110)).await;
    assert_eq!(scene.state(id).0, Status::Running);
    scene.after(SignedDuration::from_secs(20)).await;
    assert_eq!(scene.state(id), (Status::Pending, None));
    assert_eq!(build(forge, id).runner, None);
    assert_eq!(scene.told(), Vec::<String>::new());
    // The token of before opens nothing, not even once the job runs again.
    let of = |job: &serde_json::Value| Caller::with_job_token(job["token"].as_str().expect("a token"));
    let opens = async |caller: Caller| {
        let read = forge.forge.read(caller, move |tx| {
            tx.open(&forge::ProjectRef::Id(project), forge::ProjectAbility::DownloadCode).map(drop)
        });
        read.await.is_ok()
    };
    assert!(!opens(of(&first)).await);
    let second = scene.ask().await;
    assert_eq!(second["id"], first["id"]);
    assert!(!opens(of(&first)).await);
    assert!(opens(of(&second)).await);
    assert_eq!(scene.told(), Vec::<String>::new());
    // One that was heard of stays where it is.
    scene.hear(id);
    scene.after(SignedDuration::from_mins(10)).await;
    assert_eq!(scene.state(id).0, Status::Running);
}

#[tokio::test]
async fn a_job_whose_runner_fell_silent_fails() {
    let scene = Scene::start(json!({})).await;
    let id = scene.take("stages: [a, b]\none: {stage: a, script: x, timeout: 10h}\ntwo: {stage: b, script: x}").await;
    scene.hear(id);
    scene.after(SignedDuration::from_mins(59)).await;
    assert_eq!(scene.state(id).0, Status::Running);
    scene.hear(id);
    scene.after(SignedDuration::from_mins(59)).await;
    assert_eq!(scene.state(id).0, Status::Running);
    scene.after(SignedDuration::from_mins(2)).await;
    assert_eq!(scene.state(id), failed("stuck_or_timeout_failure"));
    let after = builds_of(&scene.forge, 1);
    assert_eq!((after[1].status, after[1].pipeline.status), (Status::Skipped, Status::Failed));
    assert_eq!(scene.trace(id).await, "ERROR: job failed: nothing was heard from its runner for an hour\n");
}

#[tokio::test]
async fn a_job_that_takes_too_long_fails() {
    let limits = [
        (json!({}), "one: {script: x}", 65),
        (json!({}), "one: {script: x, timeout: 20 minutes}", 25),
        (json!({ "maximum_timeout": 600 }), "one: {script: x, timeout: 20 minutes}", 15),
        (json!({ "maximum_timeout": 86400 }), "one: {script: x, timeout: 20 minutes}", 25),
    ];
    for (runner, file, minutes) in limits {
        let scene = Scene::start(runner).await;
        let id = scene.take(file).await;
        for _ in 0..minutes {
            scene.hear(id);
            scene.after(SignedDuration::from_mins(1)).await;
        }
        assert_eq!(scene.state(id).0, Status::Running, "{file} after {minutes} minutes");
        scene.hear(id);
        scene.after(SignedDuration::from_secs(1)).await;
        assert_eq!(scene.state(id), failed("job_execution_timeout"), "{file}");
        assert_eq!(scene.trace(id).await, "ERROR: job failed: it ran for longer than its timeout allows\n", "{file}");
    }
}

#[tokio::test]
async fn a_job_that_no_runner_wants_fails_after_a_day() {
    let scene = Scene::start(json!({})).await;
    let pipeline = scene.forge.plant_pipeline(scene.project, None, "one: {script: x, tags: [rare]}").await;
    let id = builds_of(&scene.forge, pipeline.id)[0].id;
    scene.after(SignedDuration::from_hours(24)).await;
    assert_eq!(scene.state(id).0, Status::Pending);
    scene.after(SignedDuration::from_secs(1)).await;
    assert_eq!(scene.state(id), failed("stuck_or_timeout_failure"));
    assert_eq!(scene.trace(id).await, "ERROR: job failed: no runner took it within 24 hours\n");
    // Said once.
    scene.after(SignedDuration::from_hours(1)).await;
    assert_eq!(scene.trace(id).await.lines().count(), 1);
}

#[tokio::test]
async fn what_others_found_out_and_projects_that_are_gone_are_left_alone() {
    let scene = Scene::start(json!({})).await;
    let kept = scene.take("one: {script: x}").await;
    let waits = scene.forge.plant_pipeline(scene.project, None, "one: {script: x}").await;
    let waits = builds_of(&scene.forge, waits.id)[0].id;
    execute(&scene.forge, "UPDATE builds SET kind = 1");
    scene.after(SignedDuration::from_hours(48)).await;
    assert_eq!((scene.state(kept).0, scene.state(waits).0), (Status::Running, Status::Pending));
    execute(&scene.forge, "UPDATE builds SET kind = 0");
    execute(&scene.forge, "UPDATE projects SET deleted_at = 1, namespace_id = NULL");
    scene.after(SignedDuration::from_secs(1)).await;
    assert_eq!((scene.state(kept).0, scene.state(waits).0), (Status::Running, Status::Pending));
}

#[tokio::test]
async fn somebody_looks_every_minute() {
    let scene = Scene::start(json!({})).await;
    let id = scene.take("one: {script: x}").await;
    tasks::enqueue_recurring(&scene.forge.forge).await.expect("written down");
    scene.forge.do_all_jobs().await;
    assert_eq!(scene.state(id).0, Status::Running);
    scene.forge.clock.advance(SignedDuration::from_mins(3));
    scene.forge.do_all_jobs().await;
    assert_eq!(scene.state(id).0, Status::Pending);
    // Whoever took it again, too.
    assert_eq!(scene.ask().await["id"], json!(id));
    scene.forge.clock.advance(SignedDuration::from_mins(3));
    scene.forge.do_all_jobs().await;
    assert_eq!(scene.state(id).0, Status::Pending);
}
