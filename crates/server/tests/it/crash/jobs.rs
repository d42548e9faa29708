//! Crashes while runners execute jobs: runners continue, no job is lost, and none succeeds twice.
//!
//! `cargo xtask crash --runs N` runs this for longer; `GABLE_CRASH_SEED` repeats the random choices of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    crash::campaign::{Campaign, FailureMode, WriteFailure, wait_before_retry},
    support::{Acknowledgement, GableCommand, HttpClient, HttpResponse, Rng, ServerProcess, TestInstance},
};

/// The default number of crashes per data folder.
const KILLS: usize = 6;
/// The maximum delay between the end of the first jobs and the crash, in milliseconds.
const MAX_DELAY: u64 = 400;
/// The number of runners.
const RUNNERS: usize = 4;
/// How long the last jobs may take; a job whose assignment was lost is queued again after a while.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
/// The CI file: two jobs, and one that follows them.
const CI_FILE: &str = "stages: [build, test]\none:\n  stage: build\n  script: make\ntwo:\n  stage: build\n  script: make\nthree:\n  stage: test\n  script: make test\n";

/// Counts pipelines that are not finished.
const UNFINISHED: &str = "SELECT count(*) FROM pipelines WHERE status <> 'success'";

#[test]
fn no_job_is_lost_and_none_succeeds_twice_when_killed_during_writes() {
    run(Campaign::new("crash_jobs", KILLS, FailureMode::Kill, with_quick_requeue));
}

/// Crashes servers while commits are pushed and runners execute their jobs.
pub(crate) fn run(mut campaign: Campaign) {
    let (kills, mode) = (campaign.kills, campaign.mode);
    let instance = TestInstance::new();
    let server = with_quick_requeue(&instance).start();
    let (project, tokens) = prepare(&server);
    server.stop();
    let current_server = Arc::new(CurrentServer::default());
    let runners: Vec<JoinHandle<Vec<FinishedJob>>> = tokens
        .into_iter()
        .map(|token| {
            let (current_server, rng) = (Arc::clone(&current_server), Rng(campaign.rng.next_u64() | 1));
            thread::spawn(move || run_runner(&current_server, &token, rng, mode))
        })
        .collect();
    let mut pushed = BTreeSet::new();
    for kill in 0..kills {
        let server = campaign.start(&instance);
        let (acknowledgement, before) =
            (Acknowledgement::default(), current_server.finished_jobs.load(Ordering::SeqCst));
        current_server.set(Some(server.anonymous()));
        let (root, pushed_once) = (server.root(), acknowledgement.clone());
        let pusher = thread::spawn(move || push(&root, project, kill, &pushed_once, mode));
        acknowledgement.wait();
        let start = Instant::now();
        while current_server.finished_jobs.load(Ordering::SeqCst) < before + 2 && start.elapsed() < WAIT_TIMEOUT {
            thread::sleep(Duration::from_millis(1));
        }
        campaign.crash(&instance, server, &[acknowledgement], MAX_DELAY);
        current_server.set(None);
        pushed.extend(pusher.join().expect("every response is a success"));
    }
    let server = with_quick_requeue(&instance).start();
    current_server.set(Some(server.anonymous()));
    let start = Instant::now();
    while instance.count(UNFINISHED) > 0 {
        assert!(start.elapsed() < WAIT_TIMEOUT, "not finished: {}", describe_jobs(&instance));
        thread::sleep(Duration::from_millis(200));
    }
    current_server.stopped.store(true, Ordering::SeqCst);
    let finished: Vec<FinishedJob> =
        runners.into_iter().flat_map(|runner| runner.join().expect("a runner does not panic")).collect();
    check(&server, project, &pushed, &finished);
    assert!(pushed.len() >= kills, "too few writes: {}", pushed.len());
    server.stop();
    campaign.finish(pushed.len() + finished.len());
}

/// Returns a command that queues unconfirmed jobs again after a short time.
pub(crate) fn with_quick_requeue(instance: &TestInstance) -> GableCommand {
    instance.serve().env("GABLE_UNHEARD_JOB_SECONDS", "3").with_root_credentials()
}

/// Describes the states of all jobs, for error messages.
fn describe_jobs(instance: &TestInstance) -> String {
    let count = |status: &str| {
        let count = instance.count(&format!("SELECT count(*) FROM builds WHERE status = '{status}'"));
        format!("{count} {status}; ")
    };
    ["created", "pending", "running", "failed", "canceled", "skipped", "success"].into_iter().map(count).collect()
}

/// Creates a project with a CI file; returns its id and the tokens of its runners.
fn prepare(server: &ServerProcess) -> (i64, Vec<String>) {
    let root = server.root();
    let made = root.post("/api/v3/projects", &json!({ "name": "storm", "path": "storm" })).json();
    let project = made["id"].as_i64().unwrap_or_else(|| panic!("{made}"));
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": CI_FILE, "commit_message": "Build it",
    });
    let written = root.post(&format!("/api/v3/projects/{project}/repository/files"), &file);
    assert_eq!(written.status, 201, "{written}");
    let register = |number: usize| {
        let new = json!({ "token": made["runners_token"], "description": format!("runner {number}") });
        let registered = server.anonymous().post("/api/v4/runners", &new);
        registered.json()["token"].as_str().unwrap_or_else(|| panic!("{registered}")).to_owned()
    };
    (project, (0..RUNNERS).map(register).collect())
}

/// Commits repeatedly until the server is gone; returns the acknowledged commits.
fn push(
    root: &HttpClient,
    project: i64,
    round: usize,
    acknowledgement: &Acknowledgement,
    mode: FailureMode,
) -> Vec<String> {
    let mut pushed = Vec::new();
    // With a disk that fills up and is freed again, pushing continues until the kill.
    for step in 0..if mode == FailureMode::DiskFull { usize::MAX } else { 8 } {
        let action = json!({ "action": "create", "file_path": format!("f-{round}-{step}"), "content": "x" });
        let new = json!({ "branch_name": "master", "commit_message": "m", "actions": [action] });
        let made = root.try_post(&format!("/api/v3/projects/{project}/repository/commits"), &new);
        match mode.acknowledged(made) {
            Ok(body) => {
                pushed.push(body["id"].as_str().unwrap_or_default().to_owned());
                acknowledgement.record();
            }
            Err(WriteFailure::DiskFull) => {}
            Err(WriteFailure::ServerGone) => break,
        }
        if mode == FailureMode::DiskFull {
            wait_before_retry();
        }
    }
    pushed
}

/// The running server, shared with the runner threads.
#[derive(Default)]
struct CurrentServer {
    client: RwLock<Option<HttpClient>>,
    stopped: AtomicBool,
    /// The number of finished jobs.
    finished_jobs: AtomicU64,
}

impl CurrentServer {
    fn set(&self, client: Option<HttpClient>) {
        *self.client.write().expect("no panic while locked") = client;
    }

    /// Waits for a server; returns `None` once the test is over.
    fn wait_for_client(&self) -> Option<HttpClient> {
        while !self.stopped.load(Ordering::SeqCst) {
            if let Some(client) = self.client.read().expect("no panic while locked").clone() {
                return Some(client);
            }
            thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// A job whose success the server has acknowledged.
struct FinishedJob {
    build: i64,
    trace: String,
}

/// Requests and finished jobs until the test is over, also across restarts of the server.
fn run_runner(current_server: &CurrentServer, token: &str, mut rng: Rng, mode: FailureMode) -> Vec<FinishedJob> {
    let mut finished = Vec::new();
    while let Some(server) = current_server.wait_for_client() {
        let Ok(response) = server.try_post("/api/v4/jobs/request", &json!({ "token": token })) else { continue };
        match response.status {
            201 => {
                // An incomplete body means that the server has died.
                if let Some(job) = response.try_json()
                    && let Some(job) = run_job(current_server, &job, &mut rng, mode)
                {
                    current_server.finished_jobs.fetch_add(1, Ordering::SeqCst);
                    finished.push(job);
                }
            }
            204 | 409 => thread::sleep(Duration::from_millis(10)),
            _ if mode.is_disk_full_response(&response) => wait_before_retry(),
            _ => panic!("{response}"),
        }
    }
    finished
}

/// Runs a job: sends its trace in parts and reports success. Returns `None` if the server has canceled it.
fn run_job(current_server: &CurrentServer, job: &Value, rng: &mut Rng, mode: FailureMode) -> Option<FinishedJob> {
    let (build, token) = (job["id"].as_i64()?, job["token"].as_str()?);
    let run_id = rng.next_u64();
    let mut trace = String::new();
    let mut sent = 0;
    for line in 0..3 {
        trace += &format!("run {run_id:x} of job {build}, line {line}\n");
        while sent < trace.len() {
            let response = append_trace(&current_server.wait_for_client()?, build, token, sent, &trace[sent..]);
            let Ok(response) = response else { continue };
            match response.status {
                202 | 416 => sent = trace_length(&response)?,
                403 | 404 => return None,
                _ if mode.is_disk_full_response(&response) => wait_before_retry(),
                _ => panic!("{response}"),
            }
        }
        thread::sleep(Duration::from_millis(rng.next_u64() % 5));
    }
    loop {
        let reported = current_server
            .wait_for_client()?
            .try_put(&format!("/api/v4/jobs/{build}"), &json!({ "token": token, "state": "success" }));
        let Ok(response) = reported else { continue };
        return match response.status {
            200 => Some(FinishedJob { build, trace }),
            // The acknowledgement was lost; the server reports the final status again.
            403 if response.header("job-status") == Some("success") => Some(FinishedJob { build, trace }),
            403 | 404 => None,
            _ if mode.is_disk_full_response(&response) => {
                wait_before_retry();
                continue;
            }
            _ => panic!("{response}"),
        };
    }
}

fn append_trace(
    server: &HttpClient,
    build: i64,
    token: &str,
    from: usize,
    text: &str,
) -> Result<HttpResponse, ureq::Error> {
    let range = format!("{from}-{}", from + text.len() - 1);
    server.try_patch(
        &format!("/api/v4/jobs/{build}/trace"),
        &[("job-token", token), ("content-range", &range), ("content-type", "text/plain")],
        text,
    )
}

/// Returns the length of the trace that the server reports.
fn trace_length(response: &HttpResponse) -> Option<usize> {
    response.header("range")?.strip_prefix("0-")?.parse().ok()
}

/// Compares the state of the server with what the runners did.
fn check(server: &ServerProcess, project: i64, pushed: &BTreeSet<String>, finished: &[FinishedJob]) {
    let root = server.root();
    let all = |path: &str| {
        let mut found = Vec::new();
        for page in 1.. {
            let shown = root.get(&format!("{path}?per_page=100&page={page}")).json();
            let some = shown.as_array().cloned().unwrap_or_else(|| panic!("{shown}"));
            if some.is_empty() {
                break;
            }
            found.extend(some);
        }
        found
    };
    let base = format!("/api/v3/projects/{project}");
    let pipelines = all(&format!("{base}/pipelines"));
    let built: Vec<String> = pipelines.iter().map(|one| one["sha"].as_str().unwrap_or_default().to_owned()).collect();
    let different: BTreeSet<&String> = built.iter().collect();
    assert_eq!(different.len(), built.len(), "a commit was built twice");
    let lost: Vec<_> = pushed.iter().filter(|sha| !different.contains(sha)).collect();
    assert!(lost.is_empty(), "pushed, but not built: {lost:?}");

    let mut succeeded: BTreeMap<(i64, String), Vec<i64>> = BTreeMap::new();
    for build in all(&format!("{base}/builds")) {
        assert_eq!(build["status"], "success", "{build}");
        let name = build["name"].as_str().unwrap_or_default().to_owned();
        let key = (build["pipeline"]["id"].as_i64().unwrap_or_default(), name);
        succeeded.entry(key).or_default().push(build["id"].as_i64().unwrap_or_default());
    }
    assert_eq!(succeeded.len(), pipelines.len() * 3, "three jobs each");
    for (key, builds) in &succeeded {
        let [only] = builds.as_slice() else { panic!("{key:?} succeeded more than once: {builds:?}") };
        let done: Vec<&FinishedJob> = finished.iter().filter(|job| job.build == *only).collect();
        let [job] = done.as_slice() else { panic!("job {only} was finished {} times", done.len()) };
        assert_eq!(root.get(&format!("{base}/builds/{only}/trace")).text, job.trace, "job {only}");
    }
}
