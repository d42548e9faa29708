//! Several nodes on one PostgreSQL database.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::Method;
use forge::{
    Caller, Forge,
    clock::{Clock as _, DatabaseClock},
    deliveries, instance_secrets, job_queue,
    nodes::{self, ListedNode, NodeCounts, NodeDescription, RegistrationEnd},
    tasks, wakeups,
};
use jiff::SignedDuration;
use model::{JobId, ProjectId, nodes::NodeState};
use serde_json::json;
use store::{Database, TimeMeasurement};
use testkit::{
    TestForge, TestResponse,
    nodes::{RunningListener, TestNode},
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{
    ci::{
        runners::register_shared,
        traces::{JobFixture, ONE_JOB},
    },
    support::{ServerProcess, TestInstance, WAIT_TIMEOUT, postgres_server},
};

const JOB_REQUEST: &str = "/api/v4/jobs/request";
/// Shorter than the interval at which waiting runners and followers of traces poll.
const BEFORE_POLL: Duration = Duration::from_secs(2);

/// Returns a forge on PostgreSQL; `None` if the tests run on SQLite, which has one node.
async fn start() -> Option<TestForge> {
    let forge = TestForge::start().await;
    forge.postgres_url().is_some().then_some(forge)
}

fn request_job(node: &TestNode, token: &str, cursor: Option<&str>) -> JoinHandle<TestResponse> {
    let (client, body) = (node.anonymous(), json!({ "token": token, "last_update": cursor }));
    tokio::spawn(async move { client.json(Method::POST, JOB_REQUEST, body).await })
}

async fn cursor(node: &TestNode, token: &str) -> String {
    let response = request_job(node, token, None).await.expect("a response");
    assert_eq!(response.code(), 204, "{response}");
    response.header("x-gitlab-last-update").to_owned()
}

/// Waits until a node listens: its runners are woken when it begins to.
async fn listen(node: &TestNode, token: &str) -> RunningListener {
    let before = cursor(node, token).await;
    let listener = node.listen();
    while cursor(node, token).await == before {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    listener
}

async fn project(forge: &TestForge) -> ProjectId {
    let ann = forge.user("ann").await;
    ProjectId::new(ann.make("/projects", json!({ "name": "rocket" })).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_runner_is_woken_by_a_job_of_another_node() {
    let Some(forge) = start().await else { return };
    let project = project(&forge).await;
    let (_, token) = register_shared(&forge, json!({})).await;
    let node = forge.start_node();
    let listener = listen(&node, &token).await;
    let waiting = request_job(&node, &token, Some(&cursor(&node, &token).await));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    forge.start_pipeline(project, None, ONE_JOB).await;
    let response = timeout(BEFORE_POLL, waiting).await.expect("woken").expect("a response");
    assert_eq!((response.code(), &response.json()["id"]), (201, &json!(1)));
    listener.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_runner_finds_a_job_of_another_node_without_a_notification() {
    let Some(forge) = start().await else { return };
    let project = project(&forge).await;
    let (_, token) = register_shared(&forge, json!({})).await;
    let node = forge.start_node();
    let waiting = request_job(&node, &token, Some(&cursor(&node, &token).await));
    tokio::time::sleep(Duration::from_millis(300)).await;
    forge.start_pipeline(project, None, ONE_JOB).await;
    let response = timeout(Duration::from_secs(8), waiting).await.expect("found").expect("a response");
    assert_eq!((response.code(), &response.json()["id"]), (201, &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_with_the_cursor_of_another_node_waits_and_misses_no_job() {
    let Some(forge) = start().await else { return };
    let project = project(&forge).await;
    let (_, token) = register_shared(&forge, json!({})).await;
    let (one, two) = (forge.start_node(), forge.start_node());
    for node in [&one, &two] {
        job_queue::set_wait_timeout(&node.forge, Duration::from_secs(1));
    }
    // Requests that alternate between the nodes.
    let mut last = cursor(&one, &token).await;
    let start = Instant::now();
    for node in [&two, &one, &two] {
        let response = request_job(node, &token, Some(&last)).await.expect("a response");
        assert_eq!(response.code(), 204, "{response}");
        last = response.header("x-gitlab-last-update").to_owned();
    }
    assert!(start.elapsed() >= Duration::from_secs(3), "each of them waits");
    forge.start_pipeline(project, None, ONE_JOB).await;
    let start = Instant::now();
    assert_eq!(request_job(&one, &token, Some(&last)).await.expect("a response").code(), 201);
    assert!(start.elapsed() < Duration::from_secs(1), "a job that exists is found at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_followed_on_another_node() {
    let Some(forge) = start().await else { return };
    let fixture = JobFixture::start_on(forge, ONE_JOB).await;
    let job = JobId::new(1);
    let token = fixture.assign(job).await;
    fixture.append_trace(job, &token, 0, "before\n").await;
    let node = fixture.forge.start_node();
    let listener = node.listen();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let ann = node.client(&fixture.ann);
    let following = tokio::spawn(async move { ann.get("/projects/1/builds/1/trace?follow=true").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fixture.append_trace(job, &token, 7, "after\n").await.code(), 202);
    fixture.update_job(job, &token, json!({ "state": "success" })).await;
    let followed = timeout(BEFORE_POLL, following).await.expect("woken").expect("a response");
    assert_eq!((followed.code(), followed.text.as_str()), (200, "before\nafter\n"));
    listener.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_dispatcher_of_a_node_is_woken_by_a_process_without_one() {
    let Some(forge) = start().await else { return };
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "rocket" })).await;
    let hook = json!({ "url": "http://receiver.example.org/", "issues_events": true });
    ann.make(&format!("/projects/{project}/hooks"), hook).await;
    let node = forge.start_node();
    let listener = node.listen();
    let woken = || timeout(Duration::from_secs(5), deliveries::wait_for_wakeup(&node.forge));
    woken().await.expect("woken when it begins to listen");
    ann.make(&format!("/projects/{project}/issues"), json!({ "title": "It leaks" })).await;
    woken().await.expect("woken by the event");
    // A process with a dispatcher of its own does not wake others.
    wakeups::set_has_workers(&forge.forge, true);
    ann.make(&format!("/projects/{project}/issues"), json!({ "title": "It leaks again" })).await;
    let wait = deliveries::wait_for_wakeup(&node.forge);
    assert!(timeout(Duration::from_millis(500), wait).await.is_err());
    listener.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_listens_again_after_it_lost_its_connection() {
    let Some(forge) = start().await else { return };
    let project = project(&forge).await;
    let (_, token) = register_shared(&forge, json!({})).await;
    let node = forge.start_node();
    let listener = listen(&node, &token).await;
    let before = cursor(&node, &token).await;
    forge.execute_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE '%clock_timestamp%' AND pid <> pg_backend_pid()",
    );
    // Waiting runners are woken, because a notification may be lost.
    let waiting = request_job(&node, &token, Some(&before));
    assert_eq!(timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("a response").code(), 204);
    let waiting = request_job(&node, &token, Some(&cursor(&node, &token).await));
    tokio::time::sleep(Duration::from_millis(300)).await;
    forge.start_pipeline(project, None, ONE_JOB).await;
    assert_eq!(timeout(BEFORE_POLL, waiting).await.expect("woken").expect("a response").code(), 201);
    listener.stop().await;
}

/// Returns the time of the database.
async fn time_of(database: &Database) -> TimeMeasurement {
    let database = database.clone();
    let measured = tokio::task::spawn_blocking(move || std::thread::spawn(move || database.measure_time()).join());
    let measured = measured.await.expect("no panic").expect("no panic");
    measured.expect("a time").expect("PostgreSQL has a clock")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_wrong_clock_follows_that_of_the_database() {
    let Some(forge) = start().await else { return };
    let database = Database::postgres(&forge.postgres_url().expect("PostgreSQL")).expect("a good URL");
    let measured = time_of(&database).await;
    let two_minutes = SignedDuration::from_mins(2);
    for wrong in [measured.time - two_minutes, measured.time] {
        let clock = Arc::new(DatabaseClock::new(&TimeMeasurement { time: wrong, ..measured }));
        let node = forge.start_node_with(database.clone(), Arc::clone(&clock) as _);
        let listener = node.listen();
        let start = Instant::now();
        loop {
            let actual = time_of(&database).await.time;
            let difference = actual.duration_since(clock.now()).abs();
            if difference < SignedDuration::from_millis(500) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(5), "it is wrong by {difference}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(node.forge.now() >= measured.time);
        listener.stop().await;
    }
}

/// A node that registers itself until it is stopped.
struct RegisteredNode {
    stop: watch::Sender<bool>,
    task: JoinHandle<RegistrationEnd>,
}

impl RegisteredNode {
    async fn start(forge: &Forge, name: &str) -> Self {
        let (stop, stopped) = watch::channel(false);
        let description = NodeDescription {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            addresses: "http://192.0.2.1:80".to_owned(),
            mark: None,
        };
        let task = tokio::spawn(nodes::register_until_stopped(forge.clone(), description, stopped));
        wait_until(async || states(forge).await.iter().any(|(listed, _, _)| listed == name)).await;
        Self { stop, task }
    }

    async fn stop(self) {
        let _ = self.stop.send(true);
        assert_eq!(self.task.await.expect("no panic"), RegistrationEnd::Stopped);
    }
}

async fn wait_until(happened: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !happened().await {
        assert!(start.elapsed() < WAIT_TIMEOUT, "it does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the names and states of the listed nodes, and whether they are silent.
async fn states(forge: &Forge) -> Vec<(String, NodeState, bool)> {
    let listed = forge.read(Caller::system(), nodes::list).await.expect("a list");
    let state = |ListedNode { node, is_silent, .. }: ListedNode| (node.name, node.state, is_silent);
    listed.into_iter().map(state).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_listed_until_they_stop() {
    let Some(forge) = start().await else { return };
    let other = forge.start_node();
    let one = RegisteredNode::start(&forge.forge, "one").await;
    let two = RegisteredNode::start(&other.forge, "two").await;
    let serving = |name: &str| (name.to_owned(), NodeState::Serving, false);
    assert_eq!(states(&forge.forge).await, [serving("one"), serving("two")]);
    let listed = forge.forge.read(Caller::system(), nodes::list).await.expect("a list");
    let node = &listed[0].node;
    assert_eq!((node.version.as_str(), node.addresses.as_str()), ("1.2.3", "http://192.0.2.1:80"));
    assert_eq!((node.started_at, node.heartbeat_at), (forge.clock.now(), forge.clock.now()));
    other.forge.begin_draining();
    let draining = ("two".to_owned(), NodeState::Draining, false);
    wait_until(async || states(&forge.forge).await == [serving("one"), draining.clone()]).await;
    two.stop().await;
    assert_eq!(states(&forge.forge).await, [serving("one")]);
    one.stop().await;
    assert_eq!(states(&forge.forge).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_killed_is_silent_and_forgotten_after_a_day() {
    let forge = TestForge::start().await;
    let node = RegisteredNode::start(&forge.forge, "one").await;
    // Nothing removes it.
    node.task.abort();
    let counts = async || forge.forge.read(Caller::system(), nodes::count).await.expect("counts");
    assert_eq!(counts().await, NodeCounts { serving: 1, ..NodeCounts::default() });
    forge.clock.advance(SignedDuration::from_mins(4));
    assert_eq!(counts().await, NodeCounts { silent: 1, ..NodeCounts::default() });
    let listed = forge.forge.read(Caller::system(), nodes::list).await.expect("a list");
    assert_eq!((listed[0].is_silent, listed[0].heartbeat_age), (true, SignedDuration::from_mins(4)));
    tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    forge.run_due_tasks().await;
    assert_eq!(counts().await.silent, 1);
    forge.clock.advance(SignedDuration::from_hours(25));
    forge.run_due_tasks().await;
    assert_eq!(counts().await, NodeCounts::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_at_once_agree_on_a_secret() {
    let Some(forge) = start().await else { return };
    let other = forge.start_node();
    for round in 0..10 {
        let name = format!("secret {round}");
        let store = |forge: &Forge, secret: &'static str| {
            let (forge, name) = (forge.clone(), name.clone());
            async move {
                let store =
                    move |tx: &mut forge::WriteTx<'_>| instance_secrets::find_or_insert(tx, &name, secret.as_bytes());
                forge.write(Caller::system(), store).await.expect("stored")
            }
        };
        let (one, two) = tokio::join!(store(&forge.forge, "of the first"), store(&other.forge, "of the second"));
        assert_eq!(one, two);
        assert!([&b"of the first"[..], b"of the second"].contains(&&*one));
        assert_eq!(store(&other.forge, "too late").await, one);
    }
    assert!(!forge.dump().contains("of the"), "they are encrypted");
}

/// Returns the fingerprint of the host key that a server has logged.
fn fingerprint(server: &ServerProcess) -> String {
    let log = server.stderr();
    let found = log.split("fingerprint=").nth(1).and_then(|rest| rest.split_whitespace().next());
    found.unwrap_or_else(|| panic!("no fingerprint in {log}")).trim_matches('"').to_owned()
}

fn start_with_ssh(instance: &TestInstance) -> ServerProcess {
    instance.serve().with_root_credentials().args(&["--ssh-listen", "127.0.0.1:0"]).start()
}

#[test]
fn the_ssh_host_key_is_imported_into_the_database_and_stays_the_same() {
    // A server with the embedded database has a file.
    let embedded = TestInstance::embedded();
    let server = start_with_ssh(&embedded);
    let expected = fingerprint(&server);
    server.stop();
    let file = embedded.data().join("ssh-host-key");
    assert!(file.exists());
    let server = start_with_ssh(&embedded);
    assert_eq!(fingerprint(&server), expected);
    server.stop();
    if postgres_server().is_none() {
        return;
    }
    let instance = TestInstance::new();
    instance.start().stop();
    assert_eq!(instance.count("SELECT count(*) FROM instance_secrets"), 0, "without SSH there is no key");
    let imported = instance.data().join("ssh-host-key");
    std::fs::copy(&file, &imported).expect("copied");
    let server = start_with_ssh(&instance);
    assert_eq!(fingerprint(&server), expected);
    server.stop();
    std::fs::remove_file(&imported).expect("removed");
    let server = start_with_ssh(&instance);
    assert_eq!(fingerprint(&server), expected);
    server.stop();
    assert!(!imported.exists());
    // A key that nobody has imported is created in the database.
    let other = TestInstance::new();
    let server = start_with_ssh(&other);
    let created = fingerprint(&server);
    assert_ne!(created, expected);
    server.stop();
    assert!(!other.data().join("ssh-host-key").exists());
    assert_eq!(fingerprint(&start_with_ssh(&other)), created);
}

#[test]
fn the_command_lists_a_server_while_it_runs() {
    let instance = TestInstance::new();
    let server = instance.start();
    let start = Instant::now();
    let nodes = loop {
        let nodes = instance.admin(&["node", "list"]);
        if nodes.lines().count() > 1 {
            break nodes;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "{nodes}");
    };
    let row: Vec<&str> = nodes.lines().nth(1).expect("a row").split_whitespace().collect();
    let address = format!("http://{}", server.address());
    assert_eq!((row[1], row[4], &row[5..]), (env!("CARGO_PKG_VERSION"), "s", &["serving", address.as_str()][..]));
    let json: serde_json::Value =
        serde_json::from_str(&instance.admin(&["node", "list", "--json"])).expect("valid JSON");
    assert_eq!(
        (&json[0]["state"], &json[0]["addresses"], &json[0]["name"]),
        (&json!("serving"), &json!([address]), &json!(row[0]))
    );
    let metrics = server.anonymous().get("/-/metrics").to_string();
    assert!(metrics.contains("gable_nodes{state=\"serving\"} 1\n"), "{metrics}");
    assert!(metrics.contains("gable_node_info{name=\""), "{metrics}");
    server.stop();
    assert_eq!(instance.admin(&["node", "list"]).lines().count(), 1);
}

#[test]
fn a_server_that_drains_is_not_ready_and_still_serves() {
    let instance = TestInstance::new();
    let server = instance.serve().with_root_credentials().args(&["--drain-timeout", "2s"]).start();
    let root = server.root();
    assert_eq!(root.get("/-/ready").to_string(), "200 ready\n");
    let stopped_at = Instant::now();
    server.signal("TERM");
    while root.get("/-/ready").status == 200 {
        assert!(stopped_at.elapsed() < Duration::from_secs(1), "it is still ready");
    }
    assert_eq!(root.get("/-/ready").to_string(), "503 draining\n");
    assert_eq!(root.get("/api/v3/user").status, 200);
    let row = instance.admin(&["node", "list"]);
    assert!(row.contains(" draining "), "{row}");
    assert_eq!(server.wait().status, Some(0));
    assert!(stopped_at.elapsed() >= Duration::from_secs(2));
}
