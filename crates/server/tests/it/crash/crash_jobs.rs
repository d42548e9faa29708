//! What a kill in the middle leaves of jobs that run: runners go on where they were, no job is lost, and none runs to
//! success twice.
//!
//! `cargo xtask crash --runs N` runs this for longer; `GABLE_CRASH_SEED` repeats the moments of a run.

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
    admin::binary::{Client, Gable, Heard, Home, Reply, Server},
    crash::crash_pushes::Dice,
    crash::crash_ways::{Campaign, End, Way, pause},
};

/// How often one data folder is hit, unless told otherwise.
const KILLS: usize = 6;
/// How long after the first jobs have ended the server lives at most, in milliseconds.
const LATEST: u64 = 400;
/// How many runners there are.
const RUNNERS: usize = 4;
/// How long the last jobs may take; those whose runner never heard of them are given out again after a while.
const PATIENCE: Duration = Duration::from_secs(180);
/// What is built at each push: two jobs, and one that follows them.
const FILE: &str = "stages: [build, test]\none:\n  stage: build\n  script: make\ntwo:\n  stage: build\n  script: make\nthree:\n  stage: test\n  script: make test\n";

/// What is not at its end.
const UNDONE: &str =
    "SELECT (SELECT count(*) FROM pipelines WHERE status <> 'success') + (SELECT count(*) FROM ref_intents)";

#[test]
fn no_job_is_lost_and_none_succeeds_twice_after_kills_in_a_storm() {
    hit(Campaign::begin("crash_jobs", KILLS, Way::Kill, with_quick_requeue));
}

/// Hits a server while runners do what was pushed.
pub(crate) fn hit(mut campaign: Campaign) {
    let (kills, way) = (campaign.kills, campaign.way);
    let home = Home::new();
    let server = with_quick_requeue(&home).start();
    let (project, tokens) = prepare(&server);
    server.stop();
    let yard = Arc::new(Yard::default());
    let runners: Vec<JoinHandle<Vec<Run>>> = tokens
        .into_iter()
        .map(|token| {
            let (yard, dice) = (Arc::clone(&yard), Dice(campaign.dice.roll() | 1));
            thread::spawn(move || work(&yard, &token, dice, way))
        })
        .collect();
    let mut pushed = BTreeSet::new();
    for kill in 0..kills {
        let server = campaign.start(&home);
        let (heard, before) = (Heard::default(), yard.ended.load(Ordering::SeqCst));
        yard.open(Some(server.anonymous()));
        let (root, pushing) = (server.root(), heard.clone());
        let storm = thread::spawn(move || push(&root, project, kill, &pushing, way));
        heard.wait();
        let start = Instant::now();
        while yard.ended.load(Ordering::SeqCst) < before + 2 && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        campaign.strike(&home, server, &[heard], LATEST);
        yard.open(None);
        pushed.extend(storm.join().expect("nothing but success is heard"));
    }
    let server = with_quick_requeue(&home).start();
    yard.open(Some(server.anonymous()));
    let start = Instant::now();
    while home.count(UNDONE) > 0 {
        assert!(start.elapsed() < PATIENCE, "not done: {}", standing(&home));
        thread::sleep(Duration::from_millis(200));
    }
    yard.over.store(true, Ordering::SeqCst);
    let runs: Vec<Run> = runners.into_iter().flat_map(|runner| runner.join().expect("a runner ends well")).collect();
    check(&server, project, &pushed, &runs);
    assert!(pushed.len() >= kills, "no storm at all: {}", pushed.len());
    server.stop();
    campaign.finish(pushed.len() + runs.len());
}

/// A server that soon gives a job to somebody else.
pub(crate) fn with_quick_requeue(home: &Home) -> Gable {
    home.serve().env("GABLE_UNHEARD_JOB_SECONDS", "3").with_known_root()
}

/// How the jobs stand, for whoever looks for the reason.
fn standing(home: &Home) -> String {
    let count = |status: &str| {
        let count = home.count(&format!("SELECT count(*) FROM builds WHERE status = '{status}'"));
        format!("{count} {status}; ")
    };
    ["created", "pending", "running", "failed", "canceled", "skipped", "success"].into_iter().map(count).collect()
}

/// A project with a CI file, and the tokens of its runners.
fn prepare(server: &Server) -> (i64, Vec<String>) {
    let root = server.root();
    let made = root.post("/api/v3/projects", &json!({ "name": "storm", "path": "storm" })).json();
    let project = made["id"].as_i64().unwrap_or_else(|| panic!("{made}"));
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": FILE, "commit_message": "Build it",
    });
    let written = root.post(&format!("/api/v3/projects/{project}/repository/files"), &file);
    assert_eq!(written.status, 201, "{written}");
    let join = |number: usize| {
        let new = json!({ "token": made["runners_token"], "description": format!("runner {number}") });
        let joined = server.anonymous().post("/api/v4/runners", &new);
        joined.json()["token"].as_str().unwrap_or_else(|| panic!("{joined}")).to_owned()
    };
    (project, (0..RUNNERS).map(join).collect())
}

/// Commits again and again until the server is gone; answers the commits that were acknowledged.
fn push(root: &Client, project: i64, round: usize, heard: &Heard, way: Way) -> Vec<String> {
    let mut pushed = Vec::new();
    // On a disk that fills up and is freed again, there is something to push to the end.
    for step in 0..if way == Way::Full { usize::MAX } else { 8 } {
        let action = json!({ "action": "create", "file_path": format!("f-{round}-{step}"), "content": "x" });
        let new = json!({ "branch_name": "master", "commit_message": "m", "actions": [action] });
        let made = root.try_post(&format!("/api/v3/projects/{project}/repository/commits"), &new);
        match way.heard(made) {
            Ok(body) => {
                pushed.push(body["id"].as_str().unwrap_or_default().to_owned());
                heard.note();
            }
            Err(End::Refused) => {}
            Err(End::Gone) => break,
        }
        if way == Way::Full {
            pause();
        }
    }
    pushed
}

/// Where runners find the server, as long as there is one.
#[derive(Default)]
struct Yard {
    door: RwLock<Option<Client>>,
    over: AtomicBool,
    /// How many jobs have ended.
    ended: AtomicU64,
}

impl Yard {
    fn open(&self, door: Option<Client>) {
        *self.door.write().expect("nothing panics while holding this") = door;
    }

    /// The server, as soon as there is one; nothing once all is over.
    fn server(&self) -> Option<Client> {
        while !self.over.load(Ordering::SeqCst) {
            if let Some(client) = self.door.read().expect("nothing panics while holding this").clone() {
                return Some(client);
            }
            thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// A job that a runner has brought to its end, as the server has acknowledged.
struct Run {
    build: i64,
    said: String,
}

/// Takes jobs and does them, whatever happens to the server.
fn work(yard: &Yard, token: &str, mut dice: Dice, way: Way) -> Vec<Run> {
    let mut runs = Vec::new();
    while let Some(server) = yard.server() {
        let Ok(reply) = server.try_post("/api/v4/jobs/request", &json!({ "token": token })) else { continue };
        match reply.status {
            201 => {
                // Half an answer is none: the server has died in the middle of it.
                if let Some(job) = reply.try_json()
                    && let Some(run) = perform(yard, &job, &mut dice, way)
                {
                    yard.ended.fetch_add(1, Ordering::SeqCst);
                    runs.push(run);
                }
            }
            204 | 409 => thread::sleep(Duration::from_millis(10)),
            _ if way.allows(&reply) => pause(),
            _ => panic!("{reply}"),
        }
    }
    runs
}

/// Does a job: says something in pieces, and that it went well. Nothing if the server no longer wants it.
fn perform(yard: &Yard, job: &Value, dice: &mut Dice, way: Way) -> Option<Run> {
    let (build, token) = (job["id"].as_i64()?, job["token"].as_str()?);
    let mark = dice.roll();
    let mut said = String::new();
    let mut heard = 0;
    for line in 0..3 {
        said += &format!("run {mark:x} of job {build}, line {line}\n");
        while heard < said.len() {
            let reply = patch(&yard.server()?, build, token, heard, &said[heard..]);
            let Ok(reply) = reply else { continue };
            match reply.status {
                202 | 416 => heard = length(&reply)?,
                403 | 404 => return None,
                _ if way.allows(&reply) => pause(),
                _ => panic!("{reply}"),
            }
        }
        thread::sleep(Duration::from_millis(dice.roll() % 5));
    }
    loop {
        let ended =
            yard.server()?.try_put(&format!("/api/v4/jobs/{build}"), &json!({ "token": token, "state": "success" }));
        let Ok(reply) = ended else { continue };
        return match reply.status {
            200 => Some(Run { build, said }),
            // The acknowledgement was lost, and it is told again how the job stands.
            403 if reply.header("job-status") == Some("success") => Some(Run { build, said }),
            403 | 404 => None,
            _ if way.allows(&reply) => {
                pause();
                continue;
            }
            _ => panic!("{reply}"),
        };
    }
}

fn patch(server: &Client, build: i64, token: &str, from: usize, text: &str) -> Result<Reply, ureq::Error> {
    let range = format!("{from}-{}", from + text.len() - 1);
    server.try_patch(
        &format!("/api/v4/jobs/{build}/trace"),
        &[("job-token", token), ("content-range", &range), ("content-type", "text/plain")],
        text,
    )
}

/// How much the server has, as it says.
fn length(reply: &Reply) -> Option<usize> {
    reply.header("range")?.strip_prefix("0-")?.parse().ok()
}

/// Compares what the server shows with what the runners did.
fn check(server: &Server, project: i64, pushed: &BTreeSet<String>, runs: &[Run]) {
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
        let place = (build["pipeline"]["id"].as_i64().unwrap_or_default(), name);
        succeeded.entry(place).or_default().push(build["id"].as_i64().unwrap_or_default());
    }
    assert_eq!(succeeded.len(), pipelines.len() * 3, "three jobs each");
    for (place, builds) in &succeeded {
        let [only] = builds.as_slice() else { panic!("{place:?} succeeded more than once: {builds:?}") };
        let done: Vec<&Run> = runs.iter().filter(|run| run.build == *only).collect();
        let [run] = done.as_slice() else { panic!("job {only} was brought to its end {} times", done.len()) };
        assert_eq!(root.get(&format!("{base}/builds/{only}/trace")).text, run.said, "job {only}");
    }
}
