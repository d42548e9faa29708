//! Several nodes on one PostgreSQL database.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::Method;
use forge::{
    clock::{Clock as _, DatabaseClock},
    deliveries, job_queue, wakeups,
};
use jiff::SignedDuration;
use model::{JobId, ProjectId};
use serde_json::json;
use store::{Database, TimeMeasurement};
use testkit::{
    TestForge, TestResponse,
    nodes::{RunningListener, TestNode},
};
use tokio::{task::JoinHandle, time::timeout};

use crate::ci::{
    runners::register_shared,
    traces::{JobFixture, ONE_JOB},
};

const JOB_REQUEST: &str = "/api/v4/jobs/request";
/// Shorter than the interval at which waiting runners and followers of traces poll.
const BEFORE_POLL: Duration = Duration::from_millis(2000);

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
