//! Delivery queues and the dispatcher: order, retries, limits and leases.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use diesel::{
    QueryableByName, RunQueryDsl, sql_query,
    sql_types::{BigInt, Integer, Nullable, Text},
};
use forge::{
    Caller, Error,
    deliveries::{self, AttemptReport, BatchResults, Capacity, HookTarget, OutgoingDelivery, ReleasedQueue},
    tasks,
};
use jiff::SignedDuration;
use model::{
    EventKind, HookId, ProjectId, Visibility,
    hooks::{AttemptOutcome, DeliveryAttempt, HookResponse, delivery_uuid},
};
use store::Conn;
use testkit::{TestForge, fixtures};
use tokio::sync::Semaphore;
use webhooks::dispatcher::{DispatcherLimits, Transport};

const WAITING: i32 = 0;
const DELIVERED: i32 = 1;
const FAILED: i32 = 2;

/// Returns the outcome of an attempt for a URL and a body.
type Receiver = dyn Fn(&str, &str) -> AttemptOutcome + Send + Sync;

/// Records what is sent, and responds as a test demands.
#[derive(Clone)]
struct FakeTransport {
    receiver: Arc<Receiver>,
    sent: Arc<Mutex<Vec<(String, String)>>>,
}

impl FakeTransport {
    fn new(receiver: impl Fn(&str, &str) -> AttemptOutcome + Send + Sync + 'static) -> Self {
        Self { receiver: Arc::new(receiver), sent: Arc::default() }
    }

    /// Responds to everything with one status.
    fn with_status(status: u16) -> Self {
        Self::new(move |_, _| respond(status))
    }

    /// Takes the bodies that were sent since the last call.
    fn take(&self) -> Vec<String> {
        self.take_all().into_iter().map(|(_, body)| body).collect()
    }

    fn take_all(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.sent.lock().expect("not poisoned"))
    }
}

impl Transport for FakeTransport {
    async fn send(&self, target: &HookTarget, delivery: &OutgoingDelivery) -> DeliveryAttempt {
        let (url, body) = (target.url.reveal(), &*delivery.body);
        self.sent.lock().expect("not poisoned").push((url.to_owned(), body.to_owned()));
        attempt_to(url, (self.receiver)(url, body))
    }
}

fn attempt_to(url: &str, outcome: AttemptOutcome) -> DeliveryAttempt {
    DeliveryAttempt { started_at: model::Time::UNIX_EPOCH, duration: 1500, url: url.to_owned(), signed: false, outcome }
}

fn respond(status: u16) -> AttemptOutcome {
    AttemptOutcome::Responded(HookResponse { status, headers: "x: y".into(), body: "ok".into(), retry_after: None })
}

fn retry_later(status: u16, seconds: u32) -> AttemptOutcome {
    let retry_after = Some(seconds);
    AttemptOutcome::Responded(HookResponse { status, headers: String::new(), body: String::new(), retry_after })
}

/// The columns of a delivery that the tests check.
#[derive(Debug, PartialEq, Eq, QueryableByName)]
struct DeliveryRow {
    #[diesel(sql_type = Integer)]
    state: i32,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Nullable<Integer>)]
    status: Option<i32>,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    response_body: Option<String>,
}

/// The queue of a hook; times are in seconds from now.
#[derive(Debug, PartialEq, Eq, QueryableByName)]
struct QueueRow {
    #[diesel(sql_type = Nullable<BigInt>)]
    due_at: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    leased_until: Option<i64>,
    #[diesel(sql_type = Integer)]
    failures: i32,
    #[diesel(sql_type = Nullable<BigInt>)]
    paused_at: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pause_reason: Option<String>,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

macro_rules! query_rows {
    ($forge:expr, $row:ty, $query:expr) => {
        $forge
            .with_connection(|db| match db {
                Conn::Sqlite(conn) => sql_query($query).load::<$row>(conn),
                Conn::Pg(conn) => sql_query($query).load::<$row>(conn),
            })
            .expect("rows")
    };
}

/// Returns the deliveries of a hook, oldest first.
fn log(forge: &TestForge, hook: HookId) -> Vec<DeliveryRow> {
    let query = format!(
        "SELECT state, attempts, status, error, response_body FROM hook_deliveries WHERE hook_id = {hook} ORDER BY id"
    );
    query_rows!(forge, DeliveryRow, &query)
}

/// Returns the state and the number of attempts of each delivery of a hook.
fn states(forge: &TestForge, hook: HookId) -> Vec<(i32, i32)> {
    log(forge, hook).into_iter().map(|row| (row.state, row.attempts)).collect()
}

fn queue(forge: &TestForge, hook: HookId) -> QueueRow {
    let columns = "due_at, leased_until, failures, paused_at, pause_reason";
    let mut rows = query_rows!(forge, QueueRow, &format!("SELECT {columns} FROM hooks WHERE id = {hook}"));
    let mut row = rows.remove(0);
    let now = forge.forge.now().as_microsecond();
    for time in [&mut row.due_at, &mut row.leased_until, &mut row.paused_at] {
        *time = time.map(|time| (time - now) / 1_000_000);
    }
    row
}

fn count(forge: &TestForge, table: &str) -> i64 {
    query_rows!(forge, Count, &format!("SELECT count(*) AS count FROM {table}"))[0].count
}

/// Starts a forge with a project.
async fn setup() -> (TestForge, ProjectId) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let now = forge.forge.now();
    let project = forge.in_transaction(|db| {
        let home = fixtures::personal_namespace(db, ann.id);
        fixtures::project(db, "rocket", home, ann.id, Visibility::Private, now)
    });
    (forge, project)
}

/// Inserts a push event with each of these bodies.
fn enqueue(forge: &TestForge, project: ProjectId, bodies: &[&str]) {
    for body in bodies {
        forge.insert_hook_event(EventKind::Push, Some(project), body);
    }
}

/// Advances the clock until the queue is due.
fn advance_until_due(forge: &TestForge, hook: HookId) {
    let seconds = queue(forge, hook).due_at.expect("a delivery is pending");
    forge.clock.advance(SignedDuration::from_secs(seconds + 1));
}

/// Polls a condition, for up to a minute.
async fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out");
}

fn capacity() -> Capacity {
    Capacity { queues: 10, failing: 10, bytes: 1 << 20, max_per_receiver: 10, max_per_project: 10, ..Capacity::none() }
}

#[tokio::test]
async fn every_subscribed_hook_receives_each_event_once_and_in_order() {
    let (forge, project) = setup().await;
    let [one, two] = ["http://one.test/a", "http://two.test/b"].map(|url| forge.insert_hook(Some(project), url, None));
    let other = forge.insert_hook(None, "http://instance.test/", None);
    enqueue(&forge, project, &["1", "2", "3"]);
    forge.insert_hook_event(EventKind::System, None, "created");
    let transport = FakeTransport::with_status(204);
    assert_eq!(forge.deliver_with(&transport).await.len(), 7);
    let sent = transport.take_all();
    for (url, expected) in [
        ("http://one.test/a", vec!["1", "2", "3"]),
        ("http://two.test/b", vec!["1", "2", "3"]),
        ("http://instance.test/", vec!["created"]),
    ] {
        let got: Vec<&str> = sent.iter().filter(|(to, _)| to == url).map(|(_, body)| body.as_str()).collect();
        assert_eq!(got, expected, "{url}");
    }
    for hook in [one, two] {
        assert_eq!(states(&forge, hook), [(DELIVERED, 1); 3]);
    }
    let row = log(&forge, other).remove(0);
    let expected =
        DeliveryRow { state: DELIVERED, attempts: 1, status: Some(204), error: None, response_body: Some("ok".into()) };
    assert_eq!(row, expected);
    let idle = QueueRow { due_at: None, leased_until: None, failures: 0, paused_at: None, pause_reason: None };
    assert_eq!(queue(&forge, one), idle);
    assert!(forge.deliver_with(&transport).await.is_empty());
}

#[tokio::test]
async fn a_leased_queue_has_its_target_and_deliveries() {
    let (forge, project) = setup().await;
    let mine = forge.insert_hook(Some(project), "https://me:secret@one.test/", Some("s3cret"));
    let system = forge.insert_hook(None, "https://two.test/", None);
    enqueue(&forge, project, &["1"]);
    forge.insert_hook_event(EventKind::SystemPush, None, "2");
    let batch = deliveries::next_batch(&forge.forge, Arc::default(), capacity()).await.expect("a batch");
    assert_eq!(batch.next_due_at, None);
    let [one, two] = batch.queues.try_into().ok().expect("two queues");
    assert_eq!((one.hook, one.receiver.as_str(), one.failing), (mine, "one.test", false));
    assert_eq!(one.target.url.reveal(), "https://me:secret@one.test/");
    assert_eq!(one.target.token.map(|token| token.reveal().to_owned()).as_deref(), Some("s3cret"));
    assert_eq!((one.target.verify_tls, one.target.allow_local), (true, false));
    assert_eq!((two.hook, two.target.token.is_none(), two.target.allow_local), (system, true, true));
    let delivery = &one.deliveries[0];
    assert_eq!((delivery.kind, &*delivery.body), (EventKind::Push, "1"));
    assert_eq!(delivery.uuid, delivery_uuid("1", mine));
    assert_eq!(two.deliveries[0].uuid, delivery_uuid("2", system));
    // It stays leased until it is released.
    assert_eq!(queue(&forge, mine).leased_until, Some(60));
    let again = deliveries::next_batch(&forge.forge, Arc::default(), capacity()).await.expect("a batch");
    assert!(again.queues.is_empty());
}

#[tokio::test]
async fn events_without_hooks_create_no_deliveries() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1"]);
    forge.insert_hook_event(EventKind::System, None, "no subscriber");
    forge.in_transaction(|db| store::hooks::delete(db, hook).expect("deleted"));
    assert!(forge.deliver_with(&FakeTransport::with_status(200)).await.is_empty());
    assert_eq!((count(&forge, "hook_deliveries"), count(&forge, "hook_events WHERE waiting")), (0, 0));
}

#[tokio::test]
async fn a_failed_delivery_is_retried_before_those_behind_it() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1", "2"]);
    let transport = FakeTransport::with_status(500);
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["1"]);
    let row = log(&forge, hook).remove(0);
    assert_eq!((row.state, row.attempts, row.status), (WAITING, 1, Some(500)));
    assert_eq!(row.error.as_deref(), Some("the receiver answered 500"));
    // A new delivery does not change that.
    enqueue(&forge, project, &["3"]);
    assert!(forge.deliver_with(&transport).await.is_empty());
    forge.clock.advance(SignedDuration::from_secs(7));
    assert!(forge.deliver_with(&transport).await.is_empty(), "not before eight seconds have passed");
    forge.clock.advance(SignedDuration::from_secs(6));
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["1"]);
    let (due, failures) = (queue(&forge, hook).due_at, queue(&forge, hook).failures);
    assert!(matches!(due, Some(15..=24)), "{due:?}");
    assert_eq!(failures, 2);
    advance_until_due(&forge, hook);
    let transport = FakeTransport::with_status(200);
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["1", "2", "3"]);
    assert_eq!(states(&forge, hook), [(DELIVERED, 3), (DELIVERED, 1), (DELIVERED, 1)]);
    assert_eq!(queue(&forge, hook).failures, 0);
}

#[tokio::test]
async fn retry_after_delays_the_queue_up_to_an_hour() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1"]);
    forge.deliver_with(&FakeTransport::new(|_, _| retry_later(429, 300))).await;
    assert_eq!(queue(&forge, hook).due_at, Some(300));
    forge.clock.advance(SignedDuration::from_secs(299));
    assert!(forge.deliver_with(&FakeTransport::with_status(200)).await.is_empty());
    forge.clock.advance(SignedDuration::from_secs(1));
    forge.deliver_with(&FakeTransport::new(|_, _| retry_later(503, 1_000_000))).await;
    assert_eq!(queue(&forge, hook).due_at, Some(3600));
}

#[tokio::test]
async fn permanent_failures_are_not_retried_and_do_not_block_the_queue() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["gone", "moved", "local", "fine"]);
    let transport = FakeTransport::new(|_, body| match body {
        "gone" => respond(404),
        "moved" => respond(302),
        "local" => AttemptOutcome::Refused("the address is in this network".into()),
        _ => respond(200),
    });
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["gone", "moved", "local", "fine"]);
    let results: Vec<(i32, Option<String>)> = log(&forge, hook).into_iter().map(|row| (row.state, row.error)).collect();
    let failed = |error: &str| (FAILED, Some(error.to_owned()));
    let expected = [
        failed("the receiver answered 404"),
        failed("the receiver answered 302; redirects are not followed"),
        failed("the address is in this network"),
        (DELIVERED, None),
    ];
    assert_eq!(results, expected);
    assert_eq!(queue(&forge, hook).failures, 0);
}

#[tokio::test]
async fn a_delivery_fails_a_day_after_its_first_attempt() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1"]);
    let started_at = forge.forge.now();
    let transport = FakeTransport::new(|_, _| AttemptOutcome::Unreachable("connection refused".into()));
    forge.deliver_with(&transport).await;
    while queue(&forge, hook).due_at.is_some() {
        advance_until_due(&forge, hook);
        assert_eq!(forge.deliver_with(&transport).await.len(), 1);
    }
    let row = log(&forge, hook).remove(0);
    let error = format!("gave up 24 hours after the first attempt ({} attempts): connection refused", row.attempts);
    assert_eq!((row.state, row.error), (FAILED, Some(error)));
    let hours = forge.forge.now().duration_since(started_at).as_hours();
    assert!((24..=25).contains(&hours), "{hours}");
    assert!((15..=40).contains(&row.attempts), "{}", row.attempts);
    // The next delivery is sent at once.
    enqueue(&forge, project, &["2"]);
    assert_eq!(forge.deliver_with(&FakeTransport::with_status(200)).await.len(), 1);
    assert_eq!(queue(&forge, hook).failures, 0);
}

#[tokio::test]
async fn a_delivery_that_always_fails_is_overtaken() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["poison", "1", "2", "3"]);
    let transport = FakeTransport::new(|_, body| respond(if body == "poison" { 500 } else { 200 }));
    let mut sent = Vec::new();
    while states(&forge, hook).iter().filter(|row| row.0 == DELIVERED).count() < 3 {
        forge.deliver_with(&transport).await;
        sent.extend(transport.take());
        if sent.len() < 5 {
            advance_until_due(&forge, hook);
        }
        assert!(sent.len() < 20, "{sent:?}");
    }
    assert_eq!(sent, ["poison", "poison", "poison", "poison", "1", "poison", "2", "3"]);
    assert_eq!(states(&forge, hook)[0], (WAITING, 5));
    // New deliveries do not wait for it.
    enqueue(&forge, project, &["4"]);
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["4"]);
    // It is retried on its own schedule.
    advance_until_due(&forge, hook);
    enqueue(&forge, project, &["5"]);
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["poison", "5"]);
    enqueue(&forge, project, &["6"]);
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["6"]);
    assert_eq!(queue(&forge, hook).paused_at, None);
}

#[tokio::test]
async fn a_hook_with_a_failing_receiver_is_paused_probed_and_resumed() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    let bodies: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    enqueue(&forge, project, &bodies);
    let transport = FakeTransport::with_status(503);
    for failures in 1..=10 {
        assert_eq!(queue(&forge, hook).paused_at, None);
        assert_eq!(forge.deliver_with(&transport).await.len(), 1);
        assert_eq!(queue(&forge, hook).failures, failures);
        if failures < 10 {
            advance_until_due(&forge, hook);
        }
    }
    // The receiver was probed with other deliveries, too.
    assert_eq!(transport.take(), ["1", "1", "1", "1", "2", "3", "4", "5", "6", "7"]);
    let paused = queue(&forge, hook);
    let error = "10 attempts in a row failed, the last one because: the receiver answered 503";
    assert_eq!((paused.paused_at, paused.pause_reason.as_deref()), (Some(0), Some(error)));
    assert!(matches!(paused.due_at, Some(2880..=4320)), "{paused:?}");
    let queue_stats = forge.forge.read(Caller::system(), deliveries::queue_stats).await.expect("statistics");
    assert_eq!((queue_stats.waiting, queue_stats.paused), (20, 1));
    // One delivery per probe; new ones wait.
    enqueue(&forge, project, &["new"]);
    assert!(forge.deliver_with(&transport).await.is_empty());
    advance_until_due(&forge, hook);
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["8"]);
    assert!(queue(&forge, hook).paused_at.is_some_and(|since| since < 0), "still paused since the same time");
    advance_until_due(&forge, hook);
    let transport = FakeTransport::with_status(200);
    forge.deliver_with(&transport).await;
    // First the probe, then the backlog in its original order.
    let sent = transport.take();
    assert_eq!((sent[0].as_str(), sent[1].as_str(), sent[2].as_str(), sent.len()), ("9", "1", "2", 21));
    let idle = QueueRow { due_at: None, leased_until: None, failures: 0, paused_at: None, pause_reason: None };
    assert_eq!(queue(&forge, hook), idle);
    assert!(states(&forge, hook).iter().all(|row| row.0 == DELIVERED));
}

#[tokio::test]
async fn queue_statistics_are_for_administrators() {
    let (forge, project) = setup().await;
    forge.insert_hook(Some(project), "http://one.test/", None);
    let begin = forge.forge.now();
    enqueue(&forge, project, &["1", "2"]);
    forge.clock.advance(SignedDuration::from_secs(100));
    let queue_stats = async || forge.forge.read(Caller::system(), deliveries::queue_stats).await.expect("statistics");
    let before = queue_stats().await;
    assert_eq!((before.waiting, before.oldest, before.paused), (0, Some(begin), 0));
    forge.deliver_with(&FakeTransport::with_status(500)).await;
    let after = queue_stats().await;
    assert_eq!((after.waiting, after.oldest, after.paused), (2, Some(begin), 0));
    forge.clock.advance(SignedDuration::from_secs(100));
    forge.deliver_with(&FakeTransport::with_status(200)).await;
    let done = queue_stats().await;
    assert_eq!((done.waiting, done.oldest, done.paused), (0, None, 0));
    let asked = forge.forge.read(Caller::anonymous(), deliveries::queue_stats).await;
    assert!(matches!(asked, Err(Error::Unauthenticated)));
}

#[tokio::test]
async fn the_log_stores_truncated_responses_and_no_secrets() {
    let (forge, project) = setup().await;
    let url = "https://me:pa55word@one.test/key";
    let hook = forge.insert_hook(Some(project), url, Some("s3cret"));
    enqueue(&forge, project, &["1", "2", "3"]);
    let transport = FakeTransport::new(|_, body| match body {
        "1" | "2" => {
            let status = if body == "1" { 400 } else { 200 };
            let body = format!("a\0b{}", "ä".repeat(64 << 10));
            AttemptOutcome::Responded(HookResponse { status, headers: "h".repeat(1 << 20), body, retry_after: None })
        }
        _ => AttemptOutcome::Unreachable(format!("a\0b{}", "ä".repeat(5000))),
    });
    forge.deliver_with(&transport).await;
    let entries = log(&forge, hook);
    let body = entries[0].response_body.as_deref().expect("a body");
    assert!(body.starts_with("a bää") && (65_530..=65_536).contains(&body.len()), "{}", body.len());
    // Less is stored of a successful response.
    let success_length = entries[1].response_body.as_deref().map(str::len);
    assert!(success_length.is_some_and(|length| (4090..=4096).contains(&length)), "{success_length:?}");
    let error = entries[2].error.as_deref().expect("an error");
    assert!(error.starts_with("a\u{fffd}bää") && error.chars().count() == 1000, "{}", error.len());
    let dump = forge.dump();
    for secret in ["pa55word", "s3cret", "one.test/key"] {
        assert!(!dump.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn deliveries_of_a_hook_that_cannot_be_decrypted_fail() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    let well = forge.insert_hook(Some(project), "http://two.test/", None);
    let embedded = forge.with_connection(|db| matches!(db, Conn::Sqlite(_)));
    let blob = if embedded { "x'0102'" } else { "'\\x0102'::bytea" };
    forge.execute_sql(&format!("UPDATE hooks SET url = {blob} WHERE id = {hook}"));
    let bodies: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    enqueue(&forge, project, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(forge.deliver_with(&FakeTransport::with_status(200)).await.len(), 50);
    let error = "the hook is encrypted with another instance key; set its URL and token again";
    let entries = log(&forge, hook);
    assert_eq!(entries.len(), 50);
    assert!(entries.iter().all(|row| row.state == FAILED && row.error.as_deref() == Some(error)));
    assert_eq!(queue(&forge, hook).due_at, None);
    assert_eq!(states(&forge, well), [(DELIVERED, 1); 50]);
}

#[tokio::test]
async fn results_for_a_deleted_hook_are_ignored() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1", "2"]);
    let batch = deliveries::next_batch(&forge.forge, Arc::default(), capacity()).await.expect("a batch");
    let queue = &batch.queues[0];
    forge.in_transaction(|db| store::hooks::delete(db, hook).expect("deleted"));
    let report = |status| AttemptReport {
        hook,
        delivery: queue.deliveries[0].id,
        attempt: attempt_to("http://one.test/", respond(status)),
    };
    let released = vec![ReleasedQueue { hook, leased_until: queue.leased_until }];
    let results = BatchResults { attempts: vec![report(200), report(500)], released };
    let batch = deliveries::next_batch(&forge.forge, Arc::new(results), capacity()).await.expect("a batch");
    assert!(batch.queues.is_empty() && batch.next_due_at.is_none());
    assert_eq!(count(&forge, "hook_deliveries"), 0);
}

#[tokio::test]
async fn a_late_release_does_not_end_a_newer_lease() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1"]);
    let next_batch = async |results: BatchResults| {
        deliveries::next_batch(&forge.forge, Arc::new(results), capacity()).await.expect("a batch")
    };
    let first = next_batch(BatchResults::default()).await.queues.remove(0);
    forge.clock.advance(deliveries::LEASE_DURATION + SignedDuration::from_secs(1));
    let second = next_batch(BatchResults::default()).await.queues.remove(0);
    assert_eq!(first.deliveries[0].uuid, second.deliveries[0].uuid);
    let report = |status| AttemptReport {
        hook,
        delivery: first.deliveries[0].id,
        attempt: attempt_to("http://one.test/", respond(status)),
    };
    let released = |leased_until| vec![ReleasedQueue { hook, leased_until }];
    // The first dispatcher reports late: its attempt counts, but the queue stays leased to the second one.
    let late = BatchResults { attempts: vec![report(200)], released: released(first.leased_until) };
    assert!(next_batch(late).await.queues.is_empty());
    assert_eq!(queue(&forge, hook).leased_until, Some(60));
    // An attempt of a delivery that has already succeeded is ignored.
    let then = BatchResults { attempts: vec![report(500)], released: released(second.leased_until) };
    next_batch(then).await;
    assert_eq!(states(&forge, hook), [(DELIVERED, 1)]);
    let idle = QueueRow { due_at: None, leased_until: None, failures: 0, paused_at: None, pause_reason: None };
    assert_eq!(queue(&forge, hook), idle);
}

#[tokio::test]
async fn a_batch_respects_the_capacity() {
    let (forge, project) = setup().await;
    for number in 0..6 {
        forge.insert_hook(Some(project), &format!("http://{}.test/{number}", number % 2), None);
    }
    enqueue(&forge, project, &["12345", "67890"]);
    let next_batch = async |capacity: Capacity| {
        deliveries::next_batch(&forge.forge, Arc::default(), capacity).await.expect("a batch").queues
    };
    let release = || forge.execute_sql("UPDATE hooks SET leased_until = NULL");
    let receivers = |queues: &[deliveries::LeasedQueue]| {
        let mut receivers: Vec<String> = queues.iter().map(|queue| queue.receiver.clone()).collect();
        receivers.sort();
        receivers
    };
    let queues = next_batch(Capacity { max_per_receiver: 2, ..capacity() }).await;
    assert_eq!(receivers(&queues), ["0.test", "0.test", "1.test", "1.test"]);
    release();
    let busy_receivers = HashMap::from([("0.test".to_owned(), 2), ("1.test".to_owned(), 1)]);
    let queues = next_batch(Capacity { max_per_receiver: 2, busy_receivers, ..capacity() }).await;
    assert_eq!(receivers(&queues), ["1.test"]);
    release();
    assert_eq!(next_batch(Capacity { queues: 5, ..capacity() }).await.len(), 5);
    release();
    // The first delivery is always sent, further ones if they fit.
    let queues = next_batch(Capacity { bytes: 12, ..capacity() }).await;
    let counts: Vec<usize> = queues.iter().map(|queue| queue.deliveries.len()).collect();
    assert_eq!(counts, [2, 1]);
    release();
    let queues = next_batch(Capacity { bytes: 1, ..capacity() }).await;
    assert_eq!(queues.iter().map(|queue| queue.deliveries.len()).collect::<Vec<_>>(), [1]);
    release();
    assert!(next_batch(Capacity { bytes: 0, ..capacity() }).await.is_empty());
    // Failing queues have a limit of their own.
    forge.execute_sql("UPDATE hooks SET failures = 1 WHERE id <= 4");
    let queues = next_batch(Capacity { failing: 1, ..capacity() }).await;
    let counts: Vec<(bool, usize)> = queues.iter().map(|queue| (queue.failing, queue.deliveries.len())).collect();
    assert_eq!(counts, [(true, 1), (false, 2), (false, 2)]);
}

/// Holds deliveries back until their gate opens, and counts how many are in flight.
#[derive(Clone, Default)]
struct GatedTransport {
    gates: Arc<HashMap<String, Semaphore>>,
    in_flight: Arc<Mutex<HashMap<String, usize>>>,
    max_in_flight: Arc<Mutex<HashMap<String, usize>>>,
    total: Arc<AtomicUsize>,
    max_total: Arc<AtomicUsize>,
    delivered: Arc<Mutex<Vec<(String, String)>>>,
}

impl GatedTransport {
    /// Creates a transport with closed gates for these receivers.
    fn new(receivers: &[&str]) -> Self {
        let gates = receivers.iter().map(|receiver| ((*receiver).to_owned(), Semaphore::new(0))).collect();
        Self { gates: Arc::new(gates), ..Self::default() }
    }

    fn open(&self, receiver: &str) {
        self.gates[receiver].add_permits(1_000_000);
    }

    fn delivered(&self, receiver: &str) -> Vec<String> {
        let delivered = self.delivered.lock().expect("not poisoned");
        delivered.iter().filter(|(to, _)| to == receiver).map(|(_, body)| body.clone()).collect()
    }

    fn in_flight(&self, receiver: &str) -> usize {
        self.in_flight.lock().expect("not poisoned").get(receiver).copied().unwrap_or(0)
    }
}

impl Transport for GatedTransport {
    async fn send(&self, target: &HookTarget, delivery: &OutgoingDelivery) -> DeliveryAttempt {
        let url = target.url.reveal();
        let receiver = url.split('/').nth(2).unwrap_or_default().to_owned();
        let count = |map: &Mutex<HashMap<String, usize>>, change: fn(usize, usize) -> usize, by: usize| {
            let mut map = map.lock().expect("not poisoned");
            let count = map.entry(receiver.clone()).or_default();
            *count = change(*count, by);
            *count
        };
        let in_flight = count(&self.in_flight, |count, by| count + by, 1);
        count(&self.max_in_flight, usize::max, in_flight);
        let total = self.total.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_total.fetch_max(total, Ordering::SeqCst);
        tokio::task::yield_now().await;
        if let Some(gate) = self.gates.get(&receiver) {
            gate.acquire().await.expect("open").forget();
        }
        self.total.fetch_sub(1, Ordering::SeqCst);
        count(&self.in_flight, |count, by| count - by, 1);
        self.delivered.lock().expect("not poisoned").push((receiver, delivery.body.to_string()));
        attempt_to(url, respond(200))
    }
}

#[tokio::test]
async fn a_hanging_receiver_does_not_delay_others() {
    let (forge, project) = setup().await;
    for number in 0..40 {
        forge.insert_hook(Some(project), &format!("http://hangs.test/{number}"), None);
    }
    forge.insert_hook(Some(project), "http://well.test/", None);
    let bodies: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    enqueue(&forge, project, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let transport = GatedTransport::new(&["hangs.test"]);
    let dispatcher = forge.start_dispatcher(transport.clone(), DispatcherLimits::default());
    wait_until(|| transport.delivered("well.test").len() == 100).await;
    assert_eq!(transport.delivered("well.test"), bodies);
    assert_eq!(transport.delivered("hangs.test").len(), 0);
    wait_until(|| transport.in_flight("hangs.test") == 16).await;
    // Once it recovers, it receives everything.
    transport.open("hangs.test");
    wait_until(|| transport.delivered("hangs.test").len() == 40 * 100).await;
    dispatcher.stop().await;
    assert_eq!(transport.max_in_flight.lock().expect("not poisoned")["hangs.test"], 16);
    assert_eq!(count(&forge, "hook_deliveries WHERE state = 1"), 41 * 100);
}

#[tokio::test]
async fn the_dispatcher_respects_its_limits() {
    let (forge, project) = setup().await;
    for number in 0..60 {
        forge.insert_hook(Some(project), &format!("http://{}.test/{number}", number % 6), None);
    }
    enqueue(&forge, project, &["1", "2", "3"]);
    let receivers = ["0.test", "1.test", "2.test", "3.test", "4.test", "5.test"];
    let transport = GatedTransport::new(&receivers);
    let dispatcher = forge.start_dispatcher(
        transport.clone(),
        DispatcherLimits { queues: 12, per_receiver: 3, per_project: 12, failing: 3, bytes: 1 << 20 },
    );
    wait_until(|| transport.total.load(Ordering::SeqCst) == 12).await;
    for receiver in receivers {
        transport.open(receiver);
    }
    wait_until(|| receivers.iter().all(|receiver| transport.delivered(receiver).len() == 30)).await;
    dispatcher.stop().await;
    assert_eq!(transport.max_total.load(Ordering::SeqCst), 12);
    let max = transport.max_in_flight.lock().expect("not poisoned");
    assert!(max.values().all(|count| *count <= 3), "{max:?}");
}

#[tokio::test]
async fn a_queue_with_a_large_backlog_does_not_starve_others() {
    let (forge, project) = setup().await;
    let busy = forge.insert_hook(Some(project), "http://busy.test/", None);
    let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    enqueue(&forge, project, &many.iter().map(String::as_str).collect::<Vec<_>>());
    let one_queue = || Capacity { queues: 1, ..capacity() };
    let batch = deliveries::next_batch(&forge.forge, Arc::default(), one_queue()).await.expect("a batch");
    let queue = batch.queues.into_iter().next().expect("a queue");
    assert_eq!((queue.hook, queue.deliveries.len()), (busy, 32));
    forge.clock.advance(SignedDuration::from_secs(1));
    let calm = forge.insert_hook(None, "http://calm.test/", None);
    forge.insert_hook_event(EventKind::System, None, "created");
    assert!(
        deliveries::next_batch(&forge.forge, Arc::default(), Capacity::none())
            .await
            .expect("a batch")
            .queues
            .is_empty()
    );
    forge.clock.advance(SignedDuration::from_secs(1));
    let attempts = queue.deliveries.iter().map(|delivery| {
        let attempt = attempt_to("http://busy.test/", respond(200));
        AttemptReport { hook: busy, delivery: delivery.id, attempt }
    });
    let released = vec![ReleasedQueue { hook: busy, leased_until: queue.leased_until }];
    let results = BatchResults { attempts: attempts.collect(), released };
    let batch = deliveries::next_batch(&forge.forge, Arc::new(results), one_queue()).await.expect("a batch");
    assert_eq!(batch.queues.iter().map(|queue| queue.hook).collect::<Vec<_>>(), [calm]);
}

#[tokio::test]
async fn a_project_with_many_hooks_does_not_starve_others() {
    let (forge, project) = setup().await;
    for number in 0..20 {
        forge.insert_hook(Some(project), &format!("http://{number}.test/"), None);
    }
    let other = forge.insert_hook(None, "http://instance.test/", None);
    enqueue(&forge, project, &["1"]);
    forge.insert_hook_event(EventKind::System, None, "created");
    let limited = || Capacity { max_per_project: 3, ..capacity() };
    let batch = deliveries::next_batch(&forge.forge, Arc::default(), limited()).await.expect("a batch");
    let of_project = batch.queues.iter().filter(|queue| queue.project == Some(project)).count();
    assert_eq!((of_project, batch.queues.len()), (3, 4));
    assert!(batch.queues.iter().any(|queue| queue.hook == other));
    let full = Capacity { busy_projects: HashMap::from([(project, 3)]), ..limited() };
    let batch = deliveries::next_batch(&forge.forge, Arc::default(), full).await.expect("a batch");
    assert_eq!(batch.queues.len(), 0);
}

#[tokio::test]
async fn stopping_the_dispatcher_saves_its_results() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1", "2", "3"]);
    let transport = GatedTransport::new(&["one.test"]);
    let dispatcher = forge.start_dispatcher(transport.clone(), DispatcherLimits::default());
    wait_until(|| transport.in_flight("one.test") == 1).await;
    let opener = transport.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        opener.open("one.test");
    });
    dispatcher.stop().await;
    // The delivery in flight has succeeded; the others are pending, and the queue is released.
    assert_eq!(transport.delivered("one.test"), ["1"]);
    assert_eq!(states(&forge, hook), [(DELIVERED, 1), (WAITING, 0), (WAITING, 0)]);
    assert_eq!((queue(&forge, hook).leased_until, queue(&forge, hook).due_at), (None, Some(0)));
}

#[tokio::test]
async fn deliveries_interrupted_by_a_crash_are_sent_again() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1", "2", "3"]);
    let transport = GatedTransport::new(&["one.test"]);
    let dispatcher = forge.start_dispatcher(transport.clone(), DispatcherLimits::default());
    wait_until(|| transport.in_flight("one.test") == 1).await;
    dispatcher.kill().await;
    let transport = FakeTransport::with_status(200);
    assert!(forge.deliver_with(&transport).await.is_empty(), "the queue is still leased");
    deliveries::release_stale_leases(&forge.forge).await.expect("released");
    if forge.with_connection(|db| matches!(db, Conn::Pg(_))) {
        // Another node may hold the lease, which has to expire first.
        assert!(forge.deliver_with(&transport).await.is_empty());
        forge.clock.advance(deliveries::LEASE_DURATION + SignedDuration::from_secs(1));
    }
    forge.deliver_with(&transport).await;
    assert_eq!(transport.take(), ["1", "2", "3"]);
    assert_eq!(states(&forge, hook), [(DELIVERED, 1); 3]);
}

#[tokio::test]
async fn two_dispatchers_on_one_database_send_everything_once() {
    let (forge, project) = setup().await;
    let hooks: Vec<HookId> =
        (0..20).map(|number| forge.insert_hook(Some(project), &format!("http://{number}.test/"), None)).collect();
    let bodies: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    enqueue(&forge, project, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let transport = GatedTransport::default();
    let limits = DispatcherLimits { queues: 5, ..DispatcherLimits::default() };
    let [one, two] = [(); 2].map(|()| forge.start_dispatcher(transport.clone(), limits));
    wait_until(|| transport.delivered.lock().expect("not poisoned").len() >= 20 * 50).await;
    one.stop().await;
    two.stop().await;
    for (number, hook) in hooks.iter().enumerate() {
        assert_eq!(transport.delivered(&format!("{number}.test")), bodies, "in order, and once");
        assert_eq!(states(&forge, *hook), [(DELIVERED, 1); 50]);
    }
}

#[tokio::test]
async fn results_survive_database_errors() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1"]);
    let transport = GatedTransport::new(&["one.test"]);
    let dispatcher = forge.start_dispatcher(transport.clone(), DispatcherLimits::default());
    wait_until(|| transport.in_flight("one.test") == 1).await;
    forge.execute_sql("ALTER TABLE hook_deliveries RENAME TO mislaid");
    transport.open("one.test");
    wait_until(|| !transport.delivered("one.test").is_empty()).await;
    // Gives the dispatcher time for an attempt to save the result.
    tokio::time::sleep(Duration::from_millis(200)).await;
    forge.execute_sql("ALTER TABLE mislaid RENAME TO hook_deliveries");
    wait_until(|| states(&forge, hook) == [(DELIVERED, 1)]).await;
    dispatcher.stop().await;
    assert_eq!(transport.delivered("one.test"), ["1"]);
    assert_eq!(queue(&forge, hook).leased_until, None);
}

#[tokio::test]
async fn a_queue_is_released_when_its_worker_panics() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://one.test/", None);
    enqueue(&forge, project, &["1"]);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let transport = FakeTransport::new(move |_, _| {
        assert!(counter.fetch_add(1, Ordering::SeqCst) > 0, "the first call panics");
        respond(200)
    });
    let dispatcher = forge.start_dispatcher(transport.clone(), DispatcherLimits::default());
    wait_until(|| states(&forge, hook) == [(DELIVERED, 1)]).await;
    dispatcher.stop().await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn deleting_a_project_deletes_its_hooks_and_deliveries() {
    let (forge, project) = setup().await;
    let now = forge.forge.now();
    for number in 0..3 {
        forge.insert_hook(Some(project), &format!("http://one.test/{number}"), None);
    }
    let kept = forge.insert_hook(None, "http://instance.test/", None);
    enqueue(&forge, project, &["1", "2", "3", "4"]);
    forge.insert_hook_event(EventKind::System, None, "kept");
    forge.deliver_with(&FakeTransport::with_status(200)).await;
    let steps = forge.with_connection(|db| {
        store::projects::soft_delete(db, store::projects::DeletionScope::One(project), "remove_project", now)
            .expect("deleted");
        let mut steps = Vec::new();
        loop {
            match store::projects::purge_batch(db, project, 5).expect("purged") {
                0 => break steps,
                removed => steps.push(removed),
            }
        }
    });
    assert!(steps.starts_with(&[5, 5, 2]), "{steps:?}");
    assert!(steps.contains(&3), "{steps:?}");
    assert_eq!((count(&forge, "hooks"), count(&forge, "hook_deliveries")), (1, 1));
    assert_eq!(states(&forge, kept), [(DELIVERED, 1)]);
    forge.run_due_tasks().await;
    assert_eq!(count(&forge, "projects"), 0);
}

#[tokio::test]
async fn rows_from_the_future_do_not_stop_the_sweep() {
    let (forge, project) = setup().await;
    let hook = forge.insert_hook(Some(project), "http://ill.test/", None);
    tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    enqueue(&forge, project, &["from the future", "old"]);
    deliveries::next_batch(&forge.forge, Arc::default(), Capacity::none()).await.expect("a batch");
    // The queue is leased for a long time, and the first delivery has a time in the future.
    forge.execute_sql(&format!("UPDATE hooks SET leased_until = 9000000000000000 WHERE id = {hook}"));
    forge.execute_sql("UPDATE hook_deliveries SET created_at = 9000000000000000 WHERE id = 1");
    forge.clock.advance(SignedDuration::from_hours(8 * 24));
    forge.run_due_tasks().await;
    assert_eq!(states(&forge, hook), [(WAITING, 0), (FAILED, 0)]);
}

#[tokio::test]
async fn old_deliveries_fail_and_are_deleted() {
    let (forge, project) = setup().await;
    let well = forge.insert_hook(Some(project), "http://well.test/", None);
    let ill = forge.insert_hook(Some(project), "http://ill.test/", None);
    tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    let transport = FakeTransport::new(|url, _| respond(if url.contains("well") { 200 } else { 500 }));
    enqueue(&forge, project, &["old"]);
    forge.deliver_with(&transport).await;
    // The queue is leased for a long time, so that nothing in it is retried.
    forge.execute_sql(&format!("UPDATE hooks SET leased_until = 9000000000000000 WHERE id = {ill}"));
    forge.clock.advance(SignedDuration::from_hours(6 * 24));
    enqueue(&forge, project, &["young"]);
    assert_eq!(forge.deliver_with(&transport).await.len(), 1);
    forge.run_due_tasks().await;
    assert_eq!(states(&forge, well), [(DELIVERED, 1); 2]);
    assert_eq!(states(&forge, ill), [(WAITING, 1), (WAITING, 0)]);
    forge.clock.advance(SignedDuration::from_hours(25));
    forge.run_due_tasks().await;
    assert_eq!(states(&forge, well), [(DELIVERED, 1)]);
    assert_eq!(states(&forge, ill), [(FAILED, 1), (WAITING, 0)]);
    let row = log(&forge, ill).remove(0);
    assert_eq!(row.error.as_deref(), Some("was not delivered within 7 days"));
    assert_eq!(count(&forge, "hook_events"), 2);
    // A week later the old event is deleted with its deliveries, and then the young one.
    forge.clock.advance(SignedDuration::from_hours(8 * 24));
    forge.run_due_tasks().await;
    assert_eq!((states(&forge, well), states(&forge, ill)), (vec![], vec![(FAILED, 0)]));
    assert_eq!(count(&forge, "hook_events"), 1);
    forge.clock.advance(SignedDuration::from_hours(8 * 24));
    forge.run_due_tasks().await;
    assert_eq!((count(&forge, "hook_deliveries"), count(&forge, "hook_events")), (0, 0));
}
