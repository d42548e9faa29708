//! What becomes of pipelines while their jobs run.

use ci::{
    Event, When,
    progress::{self, JobState},
    status,
};
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{Status, pipelines::BuildKind};
use serde_json::{Value, json};
use store::builds::BuildState;
use testkit::{Client, TestForge, rows};

use crate::{
    ci::pipelines::{built, scene},
    crash::crash_pushes::Dice,
};

/// A project whose branch `master` has this file, and what is known of it.
struct Story {
    forge: TestForge,
    ann: Client,
    project: i64,
    runner: i64,
}

impl Story {
    async fn begin(file: &str) -> Self {
        let (forge, ann, project) = scene().await;
        forge.fill(&ann, project, &built("refs/heads/master", file)).await;
        let runner = forge.plant_runner("one");
        Self { forge, ann, project, runner }
    }

    /// The latest job of each name, oldest first: `name status`.
    async fn jobs(&self) -> String {
        let list = self.statuses("").await;
        let word = |job: &Value, name: &str| job[name].as_str().expect("text").to_owned();
        list.iter().map(|job| format!("{} {}", word(job, "name"), word(job, "status"))).collect::<Vec<_>>().join(", ")
    }

    async fn statuses(&self, query: &str) -> Vec<Value> {
        let path = format!("/projects/{}/repository/commits/master/statuses?per_page=100{query}", self.project);
        self.ann.get(&path).await.json().as_array().expect("a list").clone()
    }

    async fn job(&self, name: &str) -> i64 {
        let list = self.statuses(&format!("&name={name}")).await;
        list[0]["id"].as_i64().expect("a number")
    }

    /// A runner takes a job that waits; it ends so, ten seconds later.
    async fn run(&self, name: &str, end: Event) {
        let job = self.job(name).await;
        self.forge.take_build(job, self.runner).await;
        self.forge.clock.advance(SignedDuration::from_secs(10));
        self.forge.let_happen(job, end).await;
    }

    async fn pipeline(&self) -> Value {
        self.ann.get(&format!("/projects/{}/pipelines/1", self.project)).await.json()
    }

    async fn status(&self) -> String {
        self.pipeline().await["status"].as_str().expect("text").to_owned()
    }

    async fn post(&self, what: &str) -> (u16, String) {
        let answer = self.ann.post(&format!("/projects/{}/pipelines/1/{what}", self.project), json!({})).await;
        (answer.code(), answer.json()["status"].as_str().expect("text").to_owned())
    }
}

const STAGES: &str = "
stages: [build, test]
make: {stage: build, script: make}
check: {stage: test, script: make check}
";

#[tokio::test]
async fn a_stage_that_fails_stops_the_next_and_a_retry_goes_on() {
    let tx = Story::begin(STAGES).await;
    assert_eq!((tx.jobs().await, tx.status().await), ("make pending, check created".into(), "pending".into()));
    let job = tx.job("make").await;
    tx.forge.take_build(job, tx.runner).await;
    let running = tx.pipeline().await;
    assert_eq!((&running["status"], &running["started_at"]), (&json!("running"), &json!("2026-01-02T03:04:05.678Z")));
    tx.forge.clock.advance(SignedDuration::from_secs(10));
    tx.forge.let_happen(job, Event::Drop).await;
    assert_eq!((tx.jobs().await, tx.status().await), ("make failed, check skipped".into(), "failed".into()));
    let failed = tx.pipeline().await;
    assert_eq!((&failed["duration"], &failed["finished_at"]), (&json!(10), &json!("2026-01-02T03:04:15.678Z")));
    tx.forge.clock.advance(SignedDuration::from_secs(10));
    // The contract says so, whatever the jobs say.
    assert_eq!(tx.post("retry").await, (201, "pending".into()));
    assert_eq!((tx.jobs().await, tx.status().await), ("check created, make pending".into(), "running".into()));
    let tried = tx.pipeline().await;
    assert_eq!((&tried["finished_at"], &tried["started_at"]), (&failed["finished_at"], &running["started_at"]));
    let all = tx.statuses("&all=true").await;
    let seen: Vec<_> = all.iter().map(|job| (job["name"].as_str(), job["status"].as_str())).collect();
    assert_eq!(
        seen,
        [(Some("make"), Some("failed")), (Some("check"), Some("created")), (Some("make"), Some("pending"))]
    );
    // There is nothing more to try.
    assert_eq!(tx.post("retry").await, (201, "running".into()));
    tx.run("make", Event::Succeed).await;
    assert_eq!((tx.jobs().await, tx.status().await), ("check pending, make success".into(), "running".into()));
    tx.run("check", Event::Succeed).await;
    let done = tx.pipeline().await;
    assert_eq!((&done["status"], &done["duration"]), (&json!("success"), &json!(20)));
    // What happens to a job that has ended changes nothing.
    tx.forge.let_happen(job, Event::Cancel).await;
    tx.forge.let_happen(tx.job("make").await, Event::Drop).await;
    assert_eq!(tx.pipeline().await, done);
}

#[tokio::test]
async fn a_job_that_is_allowed_to_fail_does_not_matter() {
    let tx = Story::begin("a: {script: x, allow_failure: true}\nb: {script: x}").await;
    tx.run("a", Event::Drop).await;
    assert_eq!(tx.status().await, "running");
    tx.run("b", Event::Succeed).await;
    assert_eq!(tx.status().await, "success");
    let tx = Story::begin("a: {script: x, allow_failure: true}").await;
    tx.run("a", Event::Drop).await;
    assert_eq!((tx.jobs().await, tx.status().await), ("a failed".into(), "success".into()));
}

const WHENS: &str = "
stages: [build, test]
make: {stage: build, script: make}
by-hand: {stage: build, script: x, when: manual}
good: {stage: test, script: x}
bad: {stage: test, script: x, when: on_failure}
ever: {stage: test, script: x, when: always}
hand: {stage: test, script: x, when: manual}
";

#[tokio::test]
async fn jobs_start_when_they_say() {
    let tx = Story::begin(WHENS).await;
    let before = "make pending, by-hand skipped, good created, bad created, ever created, hand created";
    assert_eq!((tx.jobs().await, tx.status().await), (before.into(), "pending".into()));
    tx.run("make", Event::Succeed).await;
    let after = "make success, by-hand skipped, good pending, bad skipped, ever pending, hand skipped";
    assert_eq!(tx.jobs().await, after);
    let tx = Story::begin(WHENS).await;
    tx.run("make", Event::Drop).await;
    let after = "make failed, by-hand skipped, good skipped, bad pending, ever pending, hand skipped";
    assert_eq!((tx.jobs().await, tx.status().await), (after.into(), "running".into()));
    for name in ["bad", "ever"] {
        tx.run(name, Event::Succeed).await;
    }
    assert_eq!(tx.status().await, "failed");
}

#[tokio::test]
async fn what_is_canceled_ends_and_can_be_tried_again() {
    let tx = Story::begin(STAGES).await;
    let token = tx.forge.take_build(tx.job("make").await, tx.runner).await;
    assert!(!token.is_empty());
    tx.forge.clock.advance(SignedDuration::from_secs(3));
    assert_eq!(tx.post("cancel").await, (200, "canceled".into()));
    assert_eq!(tx.jobs().await, "make canceled, check canceled");
    assert_eq!(tx.pipeline().await["duration"], 3);
    assert_eq!(tx.post("cancel").await, (200, "canceled".into()));
    // It is too late for the runner.
    tx.forge.let_happen(tx.job("make").await, Event::Succeed).await;
    assert_eq!(tx.status().await, "canceled");
    assert_eq!(tx.post("retry").await, (201, "pending".into()));
    assert_eq!((tx.jobs().await, tx.status().await), ("make pending, check created".into(), "running".into()));
    // Something that had failed already stays so.
    let tx = Story::begin("a: {script: x}\nb: {script: x}").await;
    tx.run("a", Event::Drop).await;
    assert_eq!(tx.post("cancel").await, (200, "failed".into()));
    assert_eq!(tx.jobs().await, "a failed, b canceled");
}

#[tokio::test]
async fn whoever_retries_is_the_one_who_causes_the_new_jobs() {
    let tx = Story::begin(STAGES).await;
    let bob = tx.forge.user("bob").await;
    let member = json!({ "user_id": bob.id, "access_level": 30 });
    tx.ann.post(&format!("/projects/{}/members", tx.project), member).await;
    tx.run("make", Event::Drop).await;
    assert_eq!(bob.post(&format!("/projects/{}/pipelines/1/retry", tx.project), json!({})).await.code(), 201);
    let author = async |name: &str| tx.statuses(&format!("&name={name}")).await[0]["author"]["username"].clone();
    // Jobs of later stages, too: the one who started them may not run them any more.
    assert_eq!((author("make").await, author("check").await), (json!("bob"), json!("bob")));
    assert_eq!(tx.pipeline().await["user"]["username"], "ann");
}

#[tokio::test]
async fn what_others_find_out_belongs_to_the_pipeline() {
    let tx = Story::begin("make: {script: x}").await;
    let tell = async |name: &str, state: &str| {
        let body = json!({ "state": state, "name": name, "ref": "master" });
        let told = tx.ann.post(&format!("/projects/{}/statuses/master", tx.project), body).await;
        assert_eq!(told.code(), 201, "{told}");
        told.json()["id"].as_i64().expect("a number")
    };
    let review = tell("review", "running").await;
    assert_eq!((tx.jobs().await, tx.status().await), ("make pending, review running".into(), "running".into()));
    tx.run("make", Event::Succeed).await;
    assert_eq!(tx.status().await, "running");
    assert_eq!(tell("review", "failed").await, review);
    assert_eq!(tx.status().await, "failed");
    // Nobody here can try again what others found out.
    assert_eq!(tx.post("retry").await, (201, "failed".into()));
    assert_ne!(tell("review", "success").await, review);
    assert_eq!((tx.jobs().await, tx.status().await), ("make success, review success".into(), "success".into()));
    assert_eq!(tx.statuses("&all=true").await.len(), 3);
    assert_eq!(tx.statuses("&stage=external").await.len(), 1);
    assert_eq!(tx.statuses("&stage=test").await.len(), 1);
    // One that is called like a job is another thing.
    tell("make", "failed").await;
    assert_eq!(
        (tx.jobs().await, tx.status().await),
        ("make success, review success, make failed".into(), "failed".into())
    );
    assert_eq!(tx.statuses("&all=true&ref=other").await.len(), 0);
    // For another ref of the same commit there is a pipeline of its own.
    let body = json!({ "state": "pending", "ref": "elsewhere" });
    tx.ann.post(&format!("/projects/{}/statuses/master", tx.project), body).await;
    let list = tx.ann.get(&format!("/projects/{}/pipelines", tx.project)).await.json();
    let seen = (&list[0]["id"], &list[0]["ref"], &list[0]["status"], &list[0]["before_sha"]);
    assert_eq!(seen, (&json!(2), &json!("elsewhere"), &json!("pending"), &json!("0".repeat(40))));
    let commit = tx.ann.get(&format!("/projects/{}/repository/commits/master", tx.project)).await.json();
    assert_eq!(commit["status"], "pending");
}

#[tokio::test]
async fn hooks_hear_of_every_change() {
    let (forge, ann, project) = scene().await;
    let wants = model::hooks::Switches { push: true, pipeline: true, build: true, ..Default::default() };
    forge.in_one_go(|db| rows::hook(db, Some(project), wants));
    forge.fill(&ann, project, &built("refs/heads/master", STAGES)).await;
    let runner = forge.plant_runner("one");
    let heard = || {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let line = |payload: &Value| match payload["object_kind"].as_str() {
            Some("pipeline") => format!("pipeline {}", text(&payload["object_attributes"]["status"])),
            Some("build") => format!("{} {}", text(&payload["build_name"]), text(&payload["build_status"])),
            _ => "push".to_owned(),
        };
        let told = forge.in_one_go(rows::take_announcements);
        told.iter().map(|one| line(&one.payload)).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(heard(), "push, make created, check created, pipeline pending");
    forge.take_build(1, runner).await;
    assert_eq!(heard(), "make running, pipeline running");
    forge.let_happen(1, Event::Drop).await;
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
async fn the_coverage_is_that_of_the_latest_builds() {
    let tx = Story::begin("a: {script: x}\nb: {script: x}").await;
    assert_eq!(tx.pipeline().await["coverage"], json!(null));
    let set = |statement: &'static str| {
        tx.forge.in_one_go(|db| {
            use diesel::RunQueryDsl as _;
            match db {
                store::Conn::Sqlite(conn) => diesel::sql_query(statement).execute(conn),
                store::Conn::Pg(conn) => diesel::sql_query(statement).execute(conn),
            }
            .expect("changed");
        });
    };
    set("UPDATE builds SET coverage = 33.333 WHERE id = 1");
    assert_snapshot!(tx.pipeline().await["coverage"], @r#""33.33""#);
    set("UPDATE builds SET coverage = 66.67 WHERE id = 2");
    assert_snapshot!(tx.pipeline().await["coverage"], @r#""50.00""#);
}

const TANGLE: &str = "
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

fn to_state(build: &BuildState, all: &[BuildState]) -> JobState {
    let place = |name: &String| all.iter().position(|other| other.kind == BuildKind::Job && other.name == *name);
    JobState {
        stage: usize::try_from(build.stage_index).expect("a position"),
        status: build.status,
        when: When::parse(&build.when).expect("a word"),
        allow_failure: build.allow_failure,
        needs: build.needs.as_ref().map(|needs| needs.iter().filter_map(place).collect()),
    }
}

/// Whether everything has ended that a job waits for.
fn is_ready(job: &JobState, all: &[JobState]) -> bool {
    match &job.needs {
        Some(needs) => needs.iter().all(|need| all[*need].status.is_done()),
        None => all.iter().filter(|other| other.stage < job.stage).all(|other| other.status.is_done()),
    }
}

/// Whatever happens, the pipeline is called what its builds say, nothing is left to do, and no job starts before its turn.
#[tokio::test]
async fn whatever_happens_the_pipeline_follows_its_builds() {
    for seed in 1..=6_u64 {
        let tx = Story::begin(TANGLE).await;
        let mut dice = Dice(seed * 7919);
        let look = || {
            tx.forge.in_one_go(|db| {
                let pipeline = store::pipelines::by_id(db, 1).expect("asked").expect("a pipeline");
                (pipeline, store::builds::latest_of(db, 1).expect("asked"))
            })
        };
        let (mut pipeline, mut builds) = look();
        for step in 0..60 {
            tx.forge.clock.advance(SignedDuration::from_secs(1));
            let chosen = &builds[usize::try_from(dice.roll()).expect("a number") % builds.len()];
            let what = match dice.roll() % 12 {
                0 => tx.post("retry").await.1,
                1 => tx.post("cancel").await.1,
                2 => {
                    let state = ["pending", "running", "success", "failed", "canceled"]
                        [usize::try_from(dice.roll() % 5).expect("small")];
                    let body = json!({ "state": state, "name": "a", "ref": "master" });
                    let told = tx.ann.post(&format!("/projects/{}/statuses/master", tx.project), body).await;
                    format!("told {state} {}", told.code())
                }
                number => {
                    // Most of the time what a runner would do.
                    let event = match (number, chosen.status) {
                        (3..=8, Status::Pending) => Event::Run,
                        (3..=6, Status::Running) => Event::Succeed,
                        (7..=8, Status::Running) => Event::Drop,
                        _ => [Event::Run, Event::Succeed, Event::Drop, Event::Cancel]
                            [usize::try_from(dice.roll() % 4).expect("small")],
                    };
                    tx.forge.let_happen(chosen.id, event).await;
                    format!("{} {event:?}", chosen.name)
                }
            };
            let (next, latest) = look();
            let place = format!("seed {seed}, step {step}, {what}: {latest:#?}");
            let states: Vec<JobState> = latest.iter().map(|build| to_state(build, &latest)).collect();
            let computed = status::compute(latest.iter().map(|build| (build.status, build.allow_failure)));
            assert_eq!(next.status, status::follow(next.status, computed), "{place}");
            assert_eq!(next.status, status::follow(pipeline.status, computed), "{place}");
            assert_eq!(progress::progress(&states), [], "{place}");
            for (build, state) in latest.iter().zip(&states).filter(|(build, _)| build.kind == BuildKind::Job) {
                let before = builds.iter().find(|one| one.id == build.id).map_or(Status::Created, |one| one.status);
                let starts = before == Status::Created && build.status == Status::Pending;
                assert!(!starts || state.when == When::Manual || is_ready(state, &states), "{}: {place}", build.name);
            }
            assert!(next.started_at >= pipeline.started_at && next.finished_at >= pipeline.finished_at, "{place}");
            (pipeline, builds) = (next, latest);
        }
    }
}
