//! Crashes while webhooks are delivered: every event is delivered at least once, and duplicates are recognizable.
//!
//! `cargo xtask crash --runs N` runs this for longer; `GABLE_CRASH_SEED` repeats the random choices of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::receiver::{MockResponse, Receiver};

use crate::{
    crash::campaign::{Campaign, FailureMode, WriteFailure, wait_before_retry},
    support::{Acknowledgement, GableCommand, HttpClient, HttpResponse, Rng, ServerProcess, TestInstance},
};

/// The default number of crashes per data folder.
const KILLS: usize = 6;
/// The maximum delay between the first acknowledgement of each kind and the crash, in milliseconds.
const MAX_DELAY: u64 = 400;
/// How long the last deliveries may take, some of which are retried after a pause.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// The additional time per kill: after a failure a queue pauses for ten seconds, and on PostgreSQL the queue of a server that
/// was killed stays leased for a minute.
const WAIT_TIMEOUT_PER_KILL: Duration = Duration::from_secs(12);

/// Counts pending deliveries and events.
const PENDING: &str = "SELECT (SELECT count(*) FROM hook_deliveries WHERE state = 0) \
                      + (SELECT count(*) FROM hook_events WHERE waiting)";

/// Descriptions of events that can be made both from API responses and from payloads.
type Events = BTreeSet<String>;

#[test]
fn every_event_is_delivered_when_killed_during_writes() {
    run(Campaign::new("crash_hooks", KILLS, FailureMode::Kill, with_local_network));
}

/// Crashes servers while events happen and webhooks are delivered.
pub(crate) fn run(mut campaign: Campaign) {
    let (kills, mode) = (campaign.kills, campaign.mode);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let receiver = runtime.block_on(Receiver::start());
    receiver.respond_by(|request| {
        // One of the receivers is unreliable.
        let is_flaky = request.target == "/flaky";
        if is_flaky && request.order % 499 == 3 {
            MockResponse::status(503).header("retry-after", "1")
        } else if is_flaky && request.order % 997 == 11 {
            MockResponse::close()
        } else {
            MockResponse::ok()
        }
    });
    let instance = TestInstance::new();
    let server = with_local_network(&instance).start();
    let project = prepare(&server, &receiver);
    server.stop();
    let mut acknowledged = Events::new();
    for kill in 0..kills {
        let server = campaign.start(&instance);
        let acknowledgements: [Acknowledgement; 4] = Default::default();
        let clients: Vec<JoinHandle<Events>> = [push, write_issues, write_notes, create_groups]
            .into_iter()
            .zip(&acknowledgements)
            .map(|(write, acknowledgement)| {
                let (root, acknowledgement, mut rng) =
                    (server.root(), acknowledgement.clone(), Rng(campaign.rng.next_u64() | 1));
                let workload = Workload { project, round: kill, mode };
                thread::spawn(move || write(&root, workload, &acknowledgement, &mut rng))
            })
            .collect();
        acknowledgements.iter().for_each(Acknowledgement::wait);
        campaign.crash(&instance, server, &acknowledgements, MAX_DELAY);
        for client in clients {
            acknowledged.extend(client.join().expect("every response is a success"));
        }
    }
    let server = with_local_network(&instance).start();
    let timeout = WAIT_TIMEOUT + WAIT_TIMEOUT_PER_KILL * u32::try_from(kills).unwrap_or(u32::MAX);
    let start = Instant::now();
    while instance.count(PENDING) > 0 {
        assert!(start.elapsed() < timeout, "still pending: {}", describe_pending(&instance));
        thread::sleep(Duration::from_millis(100));
    }
    let happened = read_events(&server, project);
    let lost: Vec<_> = acknowledged.difference(&happened).collect();
    assert!(lost.is_empty(), "acknowledged, but lost: {lost:?}");
    check_deliveries(&happened, &receiver);
    assert!(happened.len() > kills * 4, "too few writes: {}", happened.len());
    assert_eq!(instance.count("SELECT count(*) FROM hook_deliveries WHERE state <> 1"), 0, "dead deliveries");
    server.stop();
    campaign.finish(acknowledged.len());
}

/// Describes the pending deliveries of each hook, for error messages.
fn describe_pending(instance: &TestInstance) -> String {
    let events = instance.count("SELECT count(*) FROM hook_events WHERE waiting");
    let queues = (1..=3).map(|hook| {
        let query =
            |column: &str| instance.count(&format!("SELECT CAST({column} AS BIGINT) FROM hooks h WHERE h.id = {hook}"));
        let waiting = query("(SELECT count(*) FROM hook_deliveries d WHERE d.hook_id = h.id AND d.state = 0)");
        let tried = query(
            "(SELECT coalesce(max(d.attempts), 0) FROM hook_deliveries d WHERE d.hook_id = h.id AND d.state = 0)",
        );
        let (failures, due, leased) =
            (query("failures"), query("coalesce(due_at, 0)"), query("coalesce(leased_until, 0)"));
        format!("hook {hook}: {waiting} wait, tried up to {tried}, {failures} failures, due {due}, leased {leased}; ")
    });
    format!("{events} events; {}now {}", queues.collect::<String>(), model::Time::now().as_microsecond())
}

/// Returns a command whose server may send webhooks to local addresses.
pub(crate) fn with_local_network(instance: &TestInstance) -> GableCommand {
    instance.serve().args(&["--allow-local-network"]).with_root_credentials()
}

/// The project, the round and the failure mode of a writing client.
#[derive(Clone, Copy)]
struct Workload {
    project: i64,
    round: usize,
    mode: FailureMode,
}

/// Creates a project with an issue, a branch and three hooks; returns its id.
fn prepare(server: &ServerProcess, receiver: &Receiver) -> i64 {
    let root = server.root();
    let id = |response: HttpResponse| {
        let body = response.json();
        body.get(0).unwrap_or(&body)["id"].as_i64().unwrap_or_else(|| panic!("{response}"))
    };
    let project = id(root.post("/api/v3/projects", &json!({ "name": "storm", "path": "storm" })));
    let base = format!("/api/v3/projects/{project}");
    id(root.post(&format!("{base}/issues"), &json!({ "title": "the first" })));
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "First" });
    root.post(&format!("{base}/repository/files"), &file);
    for path in ["/steady", "/flaky"] {
        let hook = json!({
            "url": receiver.url_with("127.0.0.1", path), "token": "secret", "push_events": true, "issues_events": true, "note_events": true,
        });
        id(root.post(&format!("{base}/hooks"), &hook));
    }
    id(root.post("/api/v3/hooks", &json!({ "url": receiver.url_with("127.0.0.1", "/system"), "push_events": true })));
    project
}

/// Commits to the default branch until the server is gone.
fn push(
    root: &HttpClient,
    Workload { project, round, mode }: Workload,
    acknowledgement: &Acknowledgement,
    _: &mut Rng,
) -> Events {
    repeat(acknowledgement, |step| {
        let action = json!({ "action": "create", "file_path": format!("f-{round}-{step}"), "content": "x" });
        let new = json!({ "branch_name": "master", "commit_message": "m", "actions": [action] });
        let made = root.try_post(&format!("/api/v3/projects/{project}/repository/commits"), &new);
        mode.acknowledged(made).map(|body| format!("push {}", body["id"].as_str().unwrap_or_default()))
    })
}

/// Creates issues and closes some until the server is gone.
fn write_issues(
    root: &HttpClient,
    Workload { project, round, mode }: Workload,
    acknowledgement: &Acknowledgement,
    rng: &mut Rng,
) -> Events {
    let mut last = 0;
    repeat(acknowledgement, |step| {
        let base = format!("/api/v3/projects/{project}/issues");
        if last > 0 && rng.next_u64().is_multiple_of(3) {
            let closed = root.try_put(&format!("{base}/{last}"), &json!({ "state_event": "close" }));
            last = 0;
            return mode
                .acknowledged(closed)
                .map(|body| format!("issue close {}", body["title"].as_str().unwrap_or_default()));
        }
        let made = root.try_post(&base, &json!({ "title": format!("issue {round}-{step}") }));
        mode.acknowledged(made).map(|body| {
            last = body["id"].as_i64().unwrap_or_default();
            format!("issue open {}", body["title"].as_str().unwrap_or_default())
        })
    })
}

/// Comments on the first issue until the server is gone.
fn write_notes(
    root: &HttpClient,
    Workload { project, round, mode }: Workload,
    acknowledgement: &Acknowledgement,
    _: &mut Rng,
) -> Events {
    repeat(acknowledgement, |step| {
        let note = format!("note {round}-{step}");
        let made = root.try_post(&format!("/api/v3/projects/{project}/issues/1/notes"), &json!({ "body": note }));
        mode.acknowledged(made).map(|body| format!("note {}", body["body"].as_str().unwrap_or_default()))
    })
}

/// Creates groups until the server is gone.
fn create_groups(
    root: &HttpClient,
    Workload { round, mode, .. }: Workload,
    acknowledgement: &Acknowledgement,
    _: &mut Rng,
) -> Events {
    repeat(acknowledgement, |step| {
        let path = format!("group-{round}-{step}");
        let made = root.try_post("/api/v3/groups", &json!({ "name": path, "path": path }));
        mode.acknowledged(made).map(|body| format!("group_create {}", body["path"].as_str().unwrap_or_default()))
    })
}

fn repeat(acknowledgement: &Acknowledgement, mut act: impl FnMut(usize) -> Result<String, WriteFailure>) -> Events {
    let mut happened = Events::new();
    for step in 0.. {
        match act(step) {
            Ok(what) => {
                happened.insert(what);
                acknowledgement.record();
            }
            Err(WriteFailure::DiskFull) => wait_before_retry(),
            Err(WriteFailure::ServerGone) => break,
        }
    }
    happened
}

/// Returns all events that happened, acknowledged or not.
fn read_events(server: &ServerProcess, project: i64) -> Events {
    let root = server.root();
    let all = |path: &str| {
        let mut found = Vec::new();
        for page in 0.. {
            // Pages of commits start at 0, the others at 1.
            let number = if path.contains("commits") { page } else { page + 1 };
            let sign = if path.contains('?') { '&' } else { '?' };
            let shown = root.get(&format!("{path}{sign}per_page=100&page={number}")).json();
            let some = shown.as_array().cloned().unwrap_or_else(|| panic!("{shown}"));
            if some.is_empty() {
                break;
            }
            found.extend(some);
        }
        found
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let base = format!("/api/v3/projects/{project}");
    let mut happened = Events::new();
    for issue in all(&format!("{base}/issues")).iter().filter(|issue| issue["iid"] != 1) {
        happened.insert(format!("issue open {}", text(&issue["title"])));
        if issue["state"] == "closed" {
            happened.insert(format!("issue close {}", text(&issue["title"])));
        }
    }
    for note in all(&format!("{base}/issues/1/notes")) {
        happened.insert(format!("note {}", text(&note["body"])));
    }
    for commit in all(&format!("{base}/repository/commits")).iter().filter(|commit| commit["title"] == "m") {
        happened.insert(format!("push {}", text(&commit["id"])));
    }
    for group in all("/api/v3/groups") {
        happened.insert(format!("group_create {}", text(&group["path"])));
    }
    happened
}

/// Checks that every event was delivered to all subscribed hooks, always with the same UUID and the same payload.
fn check_deliveries(happened: &Events, receiver: &Receiver) {
    let mut bodies: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut delivered: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let requests = receiver.requests();
    for request in &requests {
        let uuid = request.header("x-gitlab-event-uuid").expect("a number").to_owned();
        let known = bodies.entry(uuid.clone()).or_insert_with(|| request.body.clone());
        assert_eq!(known, &request.body, "the same UUID, but another payload");
        let payload: Value = serde_json::from_slice(&request.body).expect("JSON");
        delivered.entry((request.target.clone(), describe_payload(&payload))).or_default().insert(uuid);
    }
    eprintln!("{} requests, {} deliveries", requests.len(), bodies.len());
    let mut missing = Vec::new();
    for event in happened {
        let paths: &[&str] = match event.split(' ').next() {
            Some("push") => &["/steady", "/flaky", "/system"],
            Some("group_create") => &["/system"],
            _ => &["/steady", "/flaky"],
        };
        for path in paths {
            match delivered.get(&((*path).to_owned(), event.clone())) {
                Some(uuids) => assert_eq!(uuids.len(), 1, "{event} was recorded more than once for {path}"),
                None => missing.push(format!("{path}: {event}")),
            }
        }
    }
    assert!(missing.is_empty(), "never delivered: {missing:?}");
}

/// Describes the event of a payload as in [`Events`].
fn describe_payload(payload: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let attributes = &payload["object_attributes"];
    match payload["object_kind"].as_str() {
        Some("issue") => format!("issue {} {}", text(&attributes["action"]), text(&attributes["title"])),
        Some("note") => format!("note {}", text(&attributes["note"])),
        Some("push") => format!("push {}", text(&payload["after"])),
        _ => format!("{} {}", text(&payload["event_name"]), text(&payload["path"])),
    }
}
