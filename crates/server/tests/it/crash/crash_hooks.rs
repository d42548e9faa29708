//! What a kill in the middle leaves of messages to hooks: whatever happened is told at least once, and whoever is told
//! twice can tell so.
//!
//! `cargo xtask crash --runs N` runs this for longer; `GABLE_CRASH_SEED` repeats the moments of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::receiver::{Receiver, Reply as Answer};

use crate::{
    admin::binary::{Client, Gable, Heard, Home, Reply, Server},
    crash::crash_pushes::Dice,
    crash::crash_ways::{Campaign, End, Way, pause},
};

/// How often one data folder is hit, unless told otherwise.
const KILLS: usize = 6;
/// How long after the first acknowledgements of each kind the server lives at most, in milliseconds.
const LATEST: u64 = 400;
/// How long the last messages may take, and how much longer for each kill; some are tried again after a pause.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_FOR_EACH: Duration = Duration::from_secs(3);

/// What is still to be told.
const UNTOLD: &str = "SELECT (SELECT count(*) FROM hook_deliveries WHERE state = 0) \
                      + (SELECT count(*) FROM hook_events WHERE waiting OR intent_id IS NOT NULL)";

/// What happened, in words that both sides can say.
type Happened = BTreeSet<String>;

#[test]
fn whatever_happened_is_told_after_kills_in_a_storm() {
    hit(Campaign::begin("crash_hooks", KILLS, Way::Kill, with_neighbours));
}

/// Hits a server while hooks are told of what happens.
pub(crate) fn hit(mut campaign: Campaign) {
    let (kills, way) = (campaign.kills, campaign.way);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let receiver = runtime.block_on(Receiver::start());
    receiver.answers_by(|request| {
        // One of the hooks leads to somebody unreliable.
        let is_moody = request.target == "/moody";
        if is_moody && request.order % 499 == 3 {
            Answer::status(503).header("retry-after", "1")
        } else if is_moody && request.order % 997 == 11 {
            Answer::close()
        } else {
            Answer::ok()
        }
    });
    let home = Home::new();
    let server = with_neighbours(&home).start();
    let project = prepare(&server, &receiver);
    server.stop();
    let mut acknowledged = Happened::new();
    for kill in 0..kills {
        let server = campaign.start(&home);
        let heard: [Heard; 4] = Default::default();
        let clients: Vec<JoinHandle<Happened>> = [push, write_issues, write_notes, make_groups]
            .into_iter()
            .zip(&heard)
            .map(|(rage, heard)| {
                let (root, heard, mut dice) = (server.root(), heard.clone(), Dice(campaign.dice.roll() | 1));
                let storm = Raging { project, round: kill, way };
                thread::spawn(move || rage(&root, storm, &heard, &mut dice))
            })
            .collect();
        heard.iter().for_each(Heard::wait);
        campaign.strike(&home, server, &heard, LATEST);
        for client in clients {
            acknowledged.extend(client.join().expect("nothing but success is heard"));
        }
    }
    let server = with_neighbours(&home).start();
    let patience = PATIENCE + PATIENCE_FOR_EACH * u32::try_from(kills).unwrap_or(u32::MAX);
    let start = Instant::now();
    while home.count(UNTOLD) > 0 {
        assert!(start.elapsed() < patience, "still on their way: {}", standing(&home));
        thread::sleep(Duration::from_millis(100));
    }
    let happened = look(&server, project);
    let lost: Vec<_> = acknowledged.difference(&happened).collect();
    assert!(lost.is_empty(), "acknowledged, but not there: {lost:?}");
    compare(&happened, &receiver);
    assert!(happened.len() > kills * 4, "no storm at all: {}", happened.len());
    assert_eq!(home.count("SELECT count(*) FROM hook_deliveries WHERE state <> 1"), 0, "given up");
    server.stop();
    campaign.finish(acknowledged.len());
}

/// What waits for which hook, for whoever looks for the reason.
fn standing(home: &Home) -> String {
    let events = home.count("SELECT count(*) FROM hook_events WHERE waiting OR intent_id IS NOT NULL");
    let lanes = (1..=3).map(|hook| {
        let ask = |what: &str| home.count(&format!("SELECT {what} FROM hooks h WHERE h.id = {hook}"));
        let waiting = ask("(SELECT count(*) FROM hook_deliveries d WHERE d.hook_id = h.id AND d.state = 0)");
        let tried =
            ask("(SELECT coalesce(max(d.attempts), 0) FROM hook_deliveries d WHERE d.hook_id = h.id AND d.state = 0)");
        let (failures, due, leased) = (ask("failures"), ask("coalesce(due_at, 0)"), ask("coalesce(leased_until, 0)"));
        format!("hook {hook}: {waiting} wait, tried up to {tried}, {failures} failures, due {due}, leased {leased}; ")
    });
    format!("{events} events; {}now {}", lanes.collect::<String>(), model::Time::now().as_microsecond())
}

/// A server that may talk to this machine.
pub(crate) fn with_neighbours(home: &Home) -> Gable {
    home.serve().args(&["--allow-local-network"]).with_known_root()
}

/// Where and in which round somebody rages.
#[derive(Clone, Copy)]
struct Raging {
    project: i64,
    round: usize,
    way: Way,
}

/// A project with an issue and a branch, and three hooks.
fn prepare(server: &Server, receiver: &Receiver) -> i64 {
    let root = server.root();
    let made = |reply: Reply| {
        let body = reply.json();
        body.get(0).unwrap_or(&body)["id"].as_i64().unwrap_or_else(|| panic!("{reply}"))
    };
    let project = made(root.post("/api/v3/projects", &json!({ "name": "storm", "path": "storm" })));
    let base = format!("/api/v3/projects/{project}");
    made(root.post(&format!("{base}/issues"), &json!({ "title": "the first" })));
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "First" });
    root.post(&format!("{base}/repository/files"), &file);
    for path in ["/steady", "/moody"] {
        let hook = json!({
            "url": receiver.url_with("127.0.0.1", path), "token": "secret", "push_events": true, "issues_events": true, "note_events": true,
        });
        made(root.post(&format!("{base}/hooks"), &hook));
    }
    made(root.post("/api/v3/hooks", &json!({ "url": receiver.url_with("127.0.0.1", "/system"), "push_events": true })));
    project
}

/// Commits to the default branch, again and again, until the server is gone.
fn push(root: &Client, Raging { project, round, way }: Raging, heard: &Heard, _: &mut Dice) -> Happened {
    repeat(heard, |step| {
        let action = json!({ "action": "create", "file_path": format!("f-{round}-{step}"), "content": "x" });
        let new = json!({ "branch_name": "master", "commit_message": "m", "actions": [action] });
        let made = root.try_post(&format!("/api/v3/projects/{project}/repository/commits"), &new);
        way.heard(made).map(|body| format!("push {}", body["id"].as_str().unwrap_or_default()))
    })
}

/// Writes issues and closes some.
fn write_issues(root: &Client, Raging { project, round, way }: Raging, heard: &Heard, dice: &mut Dice) -> Happened {
    let mut last = 0;
    repeat(heard, |step| {
        let base = format!("/api/v3/projects/{project}/issues");
        if last > 0 && dice.roll().is_multiple_of(3) {
            let closed = root.try_put(&format!("{base}/{last}"), &json!({ "state_event": "close" }));
            last = 0;
            return way.heard(closed).map(|body| format!("issue close {}", body["title"].as_str().unwrap_or_default()));
        }
        let made = root.try_post(&base, &json!({ "title": format!("issue {round}-{step}") }));
        way.heard(made).map(|body| {
            last = body["id"].as_i64().unwrap_or_default();
            format!("issue open {}", body["title"].as_str().unwrap_or_default())
        })
    })
}

/// Says something about the first issue.
fn write_notes(root: &Client, Raging { project, round, way }: Raging, heard: &Heard, _: &mut Dice) -> Happened {
    repeat(heard, |step| {
        let said = format!("note {round}-{step}");
        let made = root.try_post(&format!("/api/v3/projects/{project}/issues/1/notes"), &json!({ "body": said }));
        way.heard(made).map(|body| format!("note {}", body["body"].as_str().unwrap_or_default()))
    })
}

/// Makes groups.
fn make_groups(root: &Client, Raging { round, way, .. }: Raging, heard: &Heard, _: &mut Dice) -> Happened {
    repeat(heard, |step| {
        let path = format!("group-{round}-{step}");
        let made = root.try_post("/api/v3/groups", &json!({ "name": path, "path": path }));
        way.heard(made).map(|body| format!("group_create {}", body["path"].as_str().unwrap_or_default()))
    })
}

fn repeat(heard: &Heard, mut act: impl FnMut(usize) -> Result<String, End>) -> Happened {
    let mut happened = Happened::new();
    for step in 0.. {
        match act(step) {
            Ok(what) => {
                happened.insert(what);
                heard.note();
            }
            Err(End::Refused) => pause(),
            Err(End::Gone) => break,
        }
    }
    happened
}

/// Everything that has happened, whether somebody heard of it or not.
fn look(server: &Server, project: i64) -> Happened {
    let root = server.root();
    let all = |path: &str| {
        let mut found = Vec::new();
        for page in 0.. {
            // Commits are counted from 0, the others from 1.
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
    let mut happened = Happened::new();
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

/// Whatever happened was told to everybody whom it concerns, each time under the same number and in the same words.
fn compare(happened: &Happened, receiver: &Receiver) {
    let mut bodies: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut told: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let requests = receiver.so_far();
    for request in &requests {
        let uuid = request.header("x-gitlab-event-uuid").expect("a number").to_owned();
        let known = bodies.entry(uuid.clone()).or_insert_with(|| request.body.clone());
        assert_eq!(known, &request.body, "the same number, but other words");
        let payload: Value = serde_json::from_slice(&request.body).expect("JSON");
        told.entry((request.target.clone(), words(&payload))).or_default().insert(uuid);
    }
    eprintln!("{} requests, {} messages", requests.len(), bodies.len());
    let mut untold = Vec::new();
    for what in happened {
        let paths: &[&str] = match what.split(' ').next() {
            Some("push") => &["/steady", "/moody", "/system"],
            Some("group_create") => &["/system"],
            _ => &["/steady", "/moody"],
        };
        for path in paths {
            match told.get(&((*path).to_owned(), what.clone())) {
                Some(uuids) => assert_eq!(uuids.len(), 1, "{what} was written down more than once for {path}"),
                None => untold.push(format!("{path}: {what}")),
            }
        }
    }
    assert!(untold.is_empty(), "never told: {untold:?}");
}

/// What a payload tells, in the words of [`Happened`].
fn words(payload: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let attributes = &payload["object_attributes"];
    match payload["object_kind"].as_str() {
        Some("issue") => format!("issue {} {}", text(&attributes["action"]), text(&attributes["title"])),
        Some("note") => format!("note {}", text(&attributes["note"])),
        Some("push") => format!("push {}", text(&payload["after"])),
        _ => format!("{} {}", text(&payload["event_name"]), text(&payload["path"])),
    }
}
