//! Messages on their way to hooks: in order, again if they fail, and never in the way of others.

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
    deliveries::{self, Address, Ended, Letter, Notes, Report, Room},
    tasks,
};
use jiff::SignedDuration;
use model::{
    EventKind, Visibility,
    hooks::{Answer, Attempt, Outcome, delivery_uuid},
};
use store::Conn;
use testkit::{TestForge, rows};
use tokio::sync::Semaphore;
use webhooks::rounds::{Limits, Sender};

const WAITING: i32 = 0;
const DELIVERED: i32 = 1;
const FAILED: i32 = 2;

/// What a receiver makes of a message, by its URL and its text.
type Receiver = dyn Fn(&str, &str) -> Outcome + Send + Sync;

/// Stands for the network: remembers what was sent, and answers as told.
#[derive(Clone)]
struct Post {
    receiver: Arc<Receiver>,
    sent: Arc<Mutex<Vec<(String, String)>>>,
}

impl Post {
    fn new(receiver: impl Fn(&str, &str) -> Outcome + Send + Sync + 'static) -> Self {
        Self { receiver: Arc::new(receiver), sent: Arc::default() }
    }

    /// A receiver that answers everything with one status.
    fn answering(status: u16) -> Self {
        Self::new(move |_, _| answer(status))
    }

    /// The texts that were sent since this was last asked.
    fn take(&self) -> Vec<String> {
        self.take_all().into_iter().map(|(_, body)| body).collect()
    }

    fn take_all(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.sent.lock().expect("nobody panics"))
    }
}

impl Sender for Post {
    async fn send(&self, address: &Address, letter: &Letter) -> Attempt {
        let (url, body) = (address.url.reveal(), &*letter.body);
        self.sent.lock().expect("nobody panics").push((url.to_owned(), body.to_owned()));
        tried(url, (self.receiver)(url, body))
    }
}

fn tried(url: &str, outcome: Outcome) -> Attempt {
    Attempt { at: model::Time::UNIX_EPOCH, duration: 1500, url: url.to_owned(), signed: false, outcome }
}

fn answer(status: u16) -> Outcome {
    Outcome::Answered(Answer { status, headers: "x: y".into(), body: "said".into(), retry_after: None })
}

fn answer_later(status: u16, seconds: u32) -> Outcome {
    let retry_after = Some(seconds);
    Outcome::Answered(Answer { status, headers: String::new(), body: String::new(), retry_after })
}

/// A line of the log, as far as the stories look at it.
#[derive(Debug, PartialEq, Eq, QueryableByName)]
struct Line {
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

/// How a lane stands; times count in seconds from now.
#[derive(Debug, PartialEq, Eq, QueryableByName)]
struct LaneRow {
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

macro_rules! ask {
    ($forge:expr, $row:ty, $query:expr) => {
        $forge
            .behind_the_back(|db| match db {
                Conn::Sqlite(conn) => sql_query($query).load::<$row>(conn),
                Conn::Pg(conn) => sql_query($query).load::<$row>(conn),
            })
            .expect("rows")
    };
}

/// The log of a hook, oldest first.
fn log(forge: &TestForge, hook: i64) -> Vec<Line> {
    let query = format!(
        "SELECT state, attempts, status, error, response_body FROM hook_deliveries WHERE hook_id = {hook} ORDER BY id"
    );
    ask!(forge, Line, &query)
}

/// How the messages of a hook stand, and how often they were tried.
fn standings(forge: &TestForge, hook: i64) -> Vec<(i32, i32)> {
    log(forge, hook).into_iter().map(|line| (line.state, line.attempts)).collect()
}

fn lane(forge: &TestForge, hook: i64) -> LaneRow {
    let columns = "due_at, leased_until, failures, paused_at, pause_reason";
    let mut rows = ask!(forge, LaneRow, &format!("SELECT {columns} FROM hooks WHERE id = {hook}"));
    let mut row = rows.remove(0);
    let now = forge.forge.now().as_microsecond();
    for time in [&mut row.due_at, &mut row.leased_until, &mut row.paused_at] {
        *time = time.map(|time| (time - now) / 1_000_000);
    }
    row
}

fn count(forge: &TestForge, table: &str) -> i64 {
    ask!(forge, Count, &format!("SELECT count(*) AS count FROM {table}"))[0].count
}

fn execute(forge: &TestForge, query: &str) {
    forge.in_one_go(|db| {
        match db {
            Conn::Sqlite(conn) => sql_query(query).execute(conn),
            Conn::Pg(conn) => sql_query(query).execute(conn),
        }
        .expect("done");
    });
}

/// A forge with a project.
async fn start() -> (TestForge, i64) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let now = forge.forge.now();
    let project = forge.in_one_go(|db| {
        let home = rows::personal_namespace(db, ann.id);
        rows::project(db, "rocket", home, ann.id, Visibility::Private, now)
    });
    (forge, project)
}

/// Tells the hooks of a project something for each word.
fn tell(forge: &TestForge, project: i64, words: &[&str]) {
    for word in words {
        forge.plant_event(EventKind::Push, Some(project), word);
    }
}

/// Lets time pass until the lane is due.
fn wait_for(forge: &TestForge, hook: i64) {
    let seconds = lane(forge, hook).due_at.expect("something waits");
    forge.clock.advance(SignedDuration::from_secs(seconds + 1));
}

/// Waits until something is so, for as long as a busy machine may need.
async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to that");
}

fn room() -> Room {
    Room { lanes: 10, failing: 10, bytes: 1 << 20, per_receiver: 10, per_project: 10, ..Room::none() }
}

#[tokio::test]
async fn every_hook_of_the_place_is_told_in_order_and_once() {
    let (forge, project) = start().await;
    let [one, two] = ["http://one.test/a", "http://two.test/b"].map(|url| forge.plant_hook(Some(project), url, None));
    let other = forge.plant_hook(None, "http://instance.test/", None);
    tell(&forge, project, &["1", "2", "3"]);
    forge.plant_event(EventKind::System, None, "made");
    let post = Post::answering(204);
    assert_eq!(forge.deliver_with(&post).await.len(), 7);
    let sent = post.take_all();
    for (url, expected) in [
        ("http://one.test/a", vec!["1", "2", "3"]),
        ("http://two.test/b", vec!["1", "2", "3"]),
        ("http://instance.test/", vec!["made"]),
    ] {
        let got: Vec<&str> = sent.iter().filter(|(to, _)| to == url).map(|(_, body)| body.as_str()).collect();
        assert_eq!(got, expected, "{url}");
    }
    for hook in [one, two] {
        assert_eq!(standings(&forge, hook), [(DELIVERED, 1); 3]);
    }
    let line = log(&forge, other).remove(0);
    let expected =
        Line { state: DELIVERED, attempts: 1, status: Some(204), error: None, response_body: Some("said".into()) };
    assert_eq!(line, expected);
    let quiet = LaneRow { due_at: None, leased_until: None, failures: 0, paused_at: None, pause_reason: None };
    assert_eq!(lane(&forge, one), quiet);
    assert!(forge.deliver_with(&post).await.is_empty());
}

#[tokio::test]
async fn a_letter_holds_what_the_receiver_needs() {
    let (forge, project) = start().await;
    let mine = forge.plant_hook(Some(project), "https://me:secret@one.test/", Some("s3cret"));
    let system = forge.plant_hook(None, "https://two.test/", None);
    tell(&forge, project, &["1"]);
    forge.plant_event(EventKind::SystemPush, None, "2");
    let work = deliveries::turn(&forge.forge, Arc::default(), room()).await.expect("a turn");
    assert_eq!(work.next, None);
    let [one, two] = work.lanes.try_into().ok().expect("two lanes");
    assert_eq!((one.hook, one.receiver.as_str(), one.failing), (mine, "one.test", false));
    assert_eq!(one.address.url.reveal(), "https://me:secret@one.test/");
    assert_eq!(one.address.token.map(|token| token.reveal().to_owned()).as_deref(), Some("s3cret"));
    assert_eq!((one.address.verify, one.address.may_be_local), (true, false));
    assert_eq!((two.hook, two.address.token.is_none(), two.address.may_be_local), (system, true, true));
    let letter = &one.letters[0];
    assert_eq!((letter.occasion, &*letter.body), (EventKind::Push, "1"));
    assert_eq!(letter.uuid, delivery_uuid("1", mine));
    assert_eq!(two.letters[0].uuid, delivery_uuid("2", system));
    // It is theirs until they say that it has ended.
    assert_eq!(lane(&forge, mine).leased_until, Some(60));
    let again = deliveries::turn(&forge.forge, Arc::default(), room()).await.expect("a turn");
    assert!(again.lanes.is_empty());
}

#[tokio::test]
async fn what_nobody_wants_to_hear_is_told_nobody() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1"]);
    forge.plant_event(EventKind::System, None, "nobody listens");
    execute(&forge, &format!("DELETE FROM hooks WHERE id = {hook}"));
    assert!(forge.deliver_with(&Post::answering(200)).await.is_empty());
    assert_eq!((count(&forge, "hook_deliveries"), count(&forge, "hook_events WHERE waiting")), (0, 0));
}

#[tokio::test]
async fn a_message_that_fails_is_tried_again_later_before_those_behind_it() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1", "2"]);
    let post = Post::answering(500);
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["1"]);
    let line = log(&forge, hook).remove(0);
    assert_eq!((line.state, line.attempts, line.status), (WAITING, 1, Some(500)));
    assert_eq!(line.error.as_deref(), Some("the receiver answered 500"));
    // Something new changes nothing.
    tell(&forge, project, &["3"]);
    assert!(forge.deliver_with(&post).await.is_empty());
    forge.clock.advance(SignedDuration::from_secs(7));
    assert!(forge.deliver_with(&post).await.is_empty(), "not before eight seconds have passed");
    forge.clock.advance(SignedDuration::from_secs(6));
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["1"]);
    let (due, failures) = (lane(&forge, hook).due_at, lane(&forge, hook).failures);
    assert!(matches!(due, Some(15..=24)), "{due:?}");
    assert_eq!(failures, 2);
    wait_for(&forge, hook);
    let post = Post::answering(200);
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["1", "2", "3"]);
    assert_eq!(standings(&forge, hook), [(DELIVERED, 3), (DELIVERED, 1), (DELIVERED, 1)]);
    assert_eq!(lane(&forge, hook).failures, 0);
}

#[tokio::test]
async fn a_receiver_is_left_alone_for_as_long_as_it_asks() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1"]);
    forge.deliver_with(&Post::new(|_, _| answer_later(429, 300))).await;
    assert_eq!(lane(&forge, hook).due_at, Some(300));
    forge.clock.advance(SignedDuration::from_secs(299));
    assert!(forge.deliver_with(&Post::answering(200)).await.is_empty());
    forge.clock.advance(SignedDuration::from_secs(1));
    forge.deliver_with(&Post::new(|_, _| answer_later(503, 1_000_000))).await;
    assert_eq!(lane(&forge, hook).due_at, Some(3600));
}

#[tokio::test]
async fn what_would_never_arrive_is_given_up_at_once_and_the_next_one_follows() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["gone", "moved", "local", "fine"]);
    let post = Post::new(|_, body| match body {
        "gone" => answer(404),
        "moved" => answer(302),
        "local" => Outcome::Refused("the address is in this network".into()),
        _ => answer(200),
    });
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["gone", "moved", "local", "fine"]);
    let told: Vec<(i32, Option<String>)> = log(&forge, hook).into_iter().map(|line| (line.state, line.error)).collect();
    let failed = |why: &str| (FAILED, Some(why.to_owned()));
    let expected = [
        failed("the receiver answered 404"),
        failed("the receiver answered 302; redirects are not followed"),
        failed("the address is in this network"),
        (DELIVERED, None),
    ];
    assert_eq!(told, expected);
    assert_eq!(lane(&forge, hook).failures, 0);
}

#[tokio::test]
async fn a_message_is_given_up_a_day_after_its_first_attempt() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1"]);
    let start = forge.forge.now();
    let post = Post::new(|_, _| Outcome::Unreachable("nobody listens".into()));
    forge.deliver_with(&post).await;
    while lane(&forge, hook).due_at.is_some() {
        wait_for(&forge, hook);
        assert_eq!(forge.deliver_with(&post).await.len(), 1);
    }
    let line = log(&forge, hook).remove(0);
    let why = format!("given up a day after the first of {} attempts: nobody listens", line.attempts);
    assert_eq!((line.state, line.error), (FAILED, Some(why)));
    let hours = forge.forge.now().duration_since(start).as_hours();
    assert!((24..=25).contains(&hours), "{hours}");
    assert!((15..=40).contains(&line.attempts), "{}", line.attempts);
    // The next one is tried at once, and starts anew.
    tell(&forge, project, &["2"]);
    assert_eq!(forge.deliver_with(&Post::answering(200)).await.len(), 1);
    assert_eq!(lane(&forge, hook).failures, 0);
}

#[tokio::test]
async fn a_message_that_the_receiver_cannot_bear_is_overtaken() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["poison", "1", "2", "3"]);
    let post = Post::new(|_, body| answer(if body == "poison" { 500 } else { 200 }));
    let mut sent = Vec::new();
    while standings(&forge, hook).iter().filter(|line| line.0 == DELIVERED).count() < 3 {
        forge.deliver_with(&post).await;
        sent.extend(post.take());
        if sent.len() < 5 {
            wait_for(&forge, hook);
        }
        assert!(sent.len() < 20, "{sent:?}");
    }
    assert_eq!(sent, ["poison", "poison", "poison", "poison", "1", "poison", "2", "3"]);
    assert_eq!(standings(&forge, hook)[0], (WAITING, 5));
    // What is new does not wait for it.
    tell(&forge, project, &["4"]);
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["4"]);
    // And it has its own hours.
    wait_for(&forge, hook);
    tell(&forge, project, &["5"]);
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["poison", "5"]);
    tell(&forge, project, &["6"]);
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["6"]);
    assert_eq!(lane(&forge, hook).paused_at, None);
}

#[tokio::test]
async fn a_hook_whose_receiver_always_fails_is_paused_probed_and_taken_up_again() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    let words: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    tell(&forge, project, &words);
    let post = Post::answering(503);
    for failures in 1..=10 {
        assert_eq!(lane(&forge, hook).paused_at, None);
        assert_eq!(forge.deliver_with(&post).await.len(), 1);
        assert_eq!(lane(&forge, hook).failures, failures);
        if failures < 10 {
            wait_for(&forge, hook);
        }
    }
    // The receiver was asked with others, too.
    assert_eq!(post.take(), ["1", "1", "1", "1", "2", "3", "4", "5", "6", "7"]);
    let paused = lane(&forge, hook);
    let why = "10 attempts in a row failed, the last one because: the receiver answered 503";
    assert_eq!((paused.paused_at, paused.pause_reason.as_deref()), (Some(0), Some(why)));
    assert!(matches!(paused.due_at, Some(2880..=4320)), "{paused:?}");
    let standing = forge.forge.read(Caller::system(), deliveries::standing).await.expect("known");
    assert_eq!((standing.waiting, standing.paused), (20, 1));
    // One message for each pause, and nothing new in between.
    tell(&forge, project, &["new"]);
    assert!(forge.deliver_with(&post).await.is_empty());
    wait_for(&forge, hook);
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["8"]);
    assert!(lane(&forge, hook).paused_at.is_some_and(|since| since < 0), "paused for as long as before");
    wait_for(&forge, hook);
    let post = Post::answering(200);
    forge.deliver_with(&post).await;
    // First the probe, then everything in the old order.
    let sent = post.take();
    assert_eq!((sent[0].as_str(), sent[1].as_str(), sent[2].as_str(), sent.len()), ("9", "1", "2", 21));
    let quiet = LaneRow { due_at: None, leased_until: None, failures: 0, paused_at: None, pause_reason: None };
    assert_eq!(lane(&forge, hook), quiet);
    assert!(standings(&forge, hook).iter().all(|line| line.0 == DELIVERED));
}

#[tokio::test]
async fn how_the_post_is_doing_is_for_administrators() {
    let (forge, project) = start().await;
    forge.plant_hook(Some(project), "http://one.test/", None);
    let begin = forge.forge.now();
    tell(&forge, project, &["1", "2"]);
    forge.clock.advance(SignedDuration::from_secs(100));
    let standing = async || forge.forge.read(Caller::system(), deliveries::standing).await.expect("known");
    let before = standing().await;
    assert_eq!((before.waiting, before.oldest, before.paused), (0, Some(begin), 0));
    forge.deliver_with(&Post::answering(500)).await;
    let after = standing().await;
    assert_eq!((after.waiting, after.oldest, after.paused), (2, Some(begin), 0));
    forge.clock.advance(SignedDuration::from_secs(100));
    forge.deliver_with(&Post::answering(200)).await;
    let done = standing().await;
    assert_eq!((done.waiting, done.oldest, done.paused), (0, None, 0));
    let asked = forge.forge.read(Caller::anonymous(), deliveries::standing).await;
    assert!(matches!(asked, Err(Error::Unauthenticated)));
}

#[tokio::test]
async fn the_log_keeps_the_beginning_of_an_answer_and_no_secret() {
    let (forge, project) = start().await;
    let url = "https://me:pa55word@one.test/key";
    let hook = forge.plant_hook(Some(project), url, Some("s3cret"));
    tell(&forge, project, &["1", "2", "3"]);
    let post = Post::new(|_, body| match body {
        "1" | "2" => {
            let status = if body == "1" { 400 } else { 200 };
            let body = format!("a\0b{}", "ä".repeat(64 << 10));
            Outcome::Answered(Answer { status, headers: "h".repeat(1 << 20), body, retry_after: None })
        }
        _ => Outcome::Unreachable(format!("a\0b{}", "ä".repeat(5000))),
    });
    forge.deliver_with(&post).await;
    let lines = log(&forge, hook);
    let body = lines[0].response_body.as_deref().expect("a body");
    assert!(body.starts_with("a bää") && (65_530..=65_536).contains(&body.len()), "{}", body.len());
    // Of one that is content less is worth knowing.
    let glad = lines[1].response_body.as_deref().map(str::len);
    assert!(glad.is_some_and(|length| (4090..=4096).contains(&length)), "{glad:?}");
    let error = lines[2].error.as_deref().expect("an error");
    assert!(error.starts_with("a\u{fffd}bää") && error.chars().count() == 1000, "{}", error.len());
    let dump = forge.dump();
    for secret in ["pa55word", "s3cret", "one.test/key"] {
        assert!(!dump.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn messages_of_a_hook_that_cannot_be_read_are_given_up_aloud() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    let well = forge.plant_hook(Some(project), "http://two.test/", None);
    let embedded = forge.behind_the_back(|db| matches!(db, Conn::Sqlite(_)));
    let blob = if embedded { "x'0102'" } else { "'\\x0102'::bytea" };
    execute(&forge, &format!("UPDATE hooks SET url = {blob} WHERE id = {hook}"));
    let words: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    tell(&forge, project, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(forge.deliver_with(&Post::answering(200)).await.len(), 50);
    let why = "the hook was sealed with another instance key; set its URL and token anew";
    let lines = log(&forge, hook);
    assert_eq!(lines.len(), 50);
    assert!(lines.iter().all(|line| line.state == FAILED && line.error.as_deref() == Some(why)));
    assert_eq!(lane(&forge, hook).due_at, None);
    assert_eq!(standings(&forge, well), [(DELIVERED, 1); 50]);
}

#[tokio::test]
async fn a_hook_that_is_removed_meanwhile_is_no_longer_told() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1", "2"]);
    let work = deliveries::turn(&forge.forge, Arc::default(), room()).await.expect("a turn");
    let lane = &work.lanes[0];
    execute(&forge, &format!("DELETE FROM hooks WHERE id = {hook}"));
    let report = |status| Report {
        hook,
        delivery: lane.letters[0].delivery,
        attempt: tried("http://one.test/", answer(status)),
    };
    let ended = vec![Ended { hook, lease: lane.lease }];
    let notes = Notes { reports: vec![report(200), report(500)], ended };
    let work = deliveries::turn(&forge.forge, Arc::new(notes), room()).await.expect("it bears that");
    assert!(work.lanes.is_empty() && work.next.is_none());
    assert_eq!(count(&forge, "hook_deliveries"), 0);
}

#[tokio::test]
async fn a_lane_that_somebody_took_over_stays_theirs() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1"]);
    let turn = async |notes: Notes| deliveries::turn(&forge.forge, Arc::new(notes), room()).await.expect("a turn");
    let first = turn(Notes::default()).await.lanes.remove(0);
    forge.clock.advance(deliveries::LEASE + SignedDuration::from_secs(1));
    let second = turn(Notes::default()).await.lanes.remove(0);
    assert_eq!(first.letters[0].uuid, second.letters[0].uuid);
    let report = |status| Report {
        hook,
        delivery: first.letters[0].delivery,
        attempt: tried("http://one.test/", answer(status)),
    };
    let ended = |lease| vec![Ended { hook, lease }];
    // The first one comes back late: what it did counts, but the lane is not its own any more.
    let late = Notes { reports: vec![report(200)], ended: ended(first.lease) };
    assert!(turn(late).await.lanes.is_empty());
    assert_eq!(lane(&forge, hook).leased_until, Some(60));
    // What the second one says of a message that has arrived changes nothing.
    let then = Notes { reports: vec![report(500)], ended: ended(second.lease) };
    turn(then).await;
    assert_eq!(standings(&forge, hook), [(DELIVERED, 1)]);
    let quiet = LaneRow { due_at: None, leased_until: None, failures: 0, paused_at: None, pause_reason: None };
    assert_eq!(lane(&forge, hook), quiet);
}

#[tokio::test]
async fn no_more_is_taken_than_there_is_room_for() {
    let (forge, project) = start().await;
    for number in 0..6 {
        forge.plant_hook(Some(project), &format!("http://{}.test/{number}", number % 2), None);
    }
    tell(&forge, project, &["12345", "67890"]);
    let turn = async |room: Room| deliveries::turn(&forge.forge, Arc::default(), room).await.expect("a turn").lanes;
    let release = || execute(&forge, "UPDATE hooks SET leased_until = NULL");
    let receivers = |lanes: &[deliveries::Lane]| {
        let mut receivers: Vec<String> = lanes.iter().map(|lane| lane.receiver.clone()).collect();
        receivers.sort();
        receivers
    };
    let lanes = turn(Room { per_receiver: 2, ..room() }).await;
    assert_eq!(receivers(&lanes), ["0.test", "0.test", "1.test", "1.test"]);
    release();
    let busy = HashMap::from([("0.test".to_owned(), 2), ("1.test".to_owned(), 1)]);
    let lanes = turn(Room { per_receiver: 2, busy, ..room() }).await;
    assert_eq!(receivers(&lanes), ["1.test"]);
    release();
    assert_eq!(turn(Room { lanes: 5, ..room() }).await.len(), 5);
    release();
    // Bytes: the first message always goes, further ones as far as they fit.
    let lanes = turn(Room { bytes: 12, ..room() }).await;
    let taken: Vec<usize> = lanes.iter().map(|lane| lane.letters.len()).collect();
    assert_eq!(taken, [2, 1]);
    release();
    let lanes = turn(Room { bytes: 1, ..room() }).await;
    assert_eq!(lanes.iter().map(|lane| lane.letters.len()).collect::<Vec<_>>(), [1]);
    release();
    assert!(turn(Room { bytes: 0, ..room() }).await.is_empty());
    // Those whose last attempt failed have a few places.
    execute(&forge, "UPDATE hooks SET failures = 1 WHERE id <= 4");
    let lanes = turn(Room { failing: 1, ..room() }).await;
    let taken: Vec<(bool, usize)> = lanes.iter().map(|lane| (lane.failing, lane.letters.len())).collect();
    assert_eq!(taken, [(true, 1), (false, 2), (false, 2)]);
}

/// Answers as soon as it is let, and counts how many wait at the same time.
#[derive(Clone, Default)]
struct Slow {
    gates: Arc<HashMap<String, Semaphore>>,
    now: Arc<Mutex<HashMap<String, usize>>>,
    most: Arc<Mutex<HashMap<String, usize>>>,
    all: Arc<AtomicUsize>,
    most_of_all: Arc<AtomicUsize>,
    arrived: Arc<Mutex<Vec<(String, String)>>>,
}

impl Slow {
    /// The gates of these receivers are closed at first.
    fn new(receivers: &[&str]) -> Self {
        let gates = receivers.iter().map(|receiver| ((*receiver).to_owned(), Semaphore::new(0))).collect();
        Self { gates: Arc::new(gates), ..Self::default() }
    }

    fn open(&self, receiver: &str) {
        self.gates[receiver].add_permits(1_000_000);
    }

    fn arrived(&self, receiver: &str) -> Vec<String> {
        let arrived = self.arrived.lock().expect("nobody panics");
        arrived.iter().filter(|(to, _)| to == receiver).map(|(_, body)| body.clone()).collect()
    }

    fn under_way(&self, receiver: &str) -> usize {
        self.now.lock().expect("nobody panics").get(receiver).copied().unwrap_or(0)
    }
}

impl Sender for Slow {
    async fn send(&self, address: &Address, letter: &Letter) -> Attempt {
        let url = address.url.reveal();
        let receiver = url.split('/').nth(2).unwrap_or_default().to_owned();
        let count = |map: &Mutex<HashMap<String, usize>>, change: fn(usize, usize) -> usize, by: usize| {
            let mut map = map.lock().expect("nobody panics");
            let count = map.entry(receiver.clone()).or_default();
            *count = change(*count, by);
            *count
        };
        let here = count(&self.now, |count, by| count + by, 1);
        count(&self.most, usize::max, here);
        let all = self.all.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_of_all.fetch_max(all, Ordering::SeqCst);
        tokio::task::yield_now().await;
        if let Some(gate) = self.gates.get(&receiver) {
            gate.acquire().await.expect("open").forget();
        }
        self.all.fetch_sub(1, Ordering::SeqCst);
        count(&self.now, |count, by| count - by, 1);
        self.arrived.lock().expect("nobody panics").push((receiver, letter.body.to_string()));
        tried(url, answer(200))
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_nobody_else() {
    let (forge, project) = start().await;
    for number in 0..40 {
        forge.plant_hook(Some(project), &format!("http://hangs.test/{number}"), None);
    }
    forge.plant_hook(Some(project), "http://well.test/", None);
    let words: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    tell(&forge, project, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let slow = Slow::new(&["hangs.test"]);
    let rounds = forge.start_rounds(slow.clone(), Limits::default());
    until(|| slow.arrived("well.test").len() == 100).await;
    assert_eq!(slow.arrived("well.test"), words);
    assert_eq!(slow.arrived("hangs.test").len(), 0);
    until(|| slow.under_way("hangs.test") == 16).await;
    // When it is well again, everything arrives there, too.
    slow.open("hangs.test");
    until(|| slow.arrived("hangs.test").len() == 40 * 100).await;
    rounds.stop().await;
    assert_eq!(slow.most.lock().expect("nobody panics")["hangs.test"], 16);
    assert_eq!(count(&forge, "hook_deliveries WHERE state = 1"), 41 * 100);
}

#[tokio::test]
async fn never_more_lanes_are_under_way_than_the_limits_say() {
    let (forge, project) = start().await;
    for number in 0..60 {
        forge.plant_hook(Some(project), &format!("http://{}.test/{number}", number % 6), None);
    }
    tell(&forge, project, &["1", "2", "3"]);
    let receivers = ["0.test", "1.test", "2.test", "3.test", "4.test", "5.test"];
    let slow = Slow::new(&receivers);
    let rounds = forge
        .start_rounds(slow.clone(), Limits { lanes: 12, per_receiver: 3, per_project: 12, failing: 3, bytes: 1 << 20 });
    until(|| slow.all.load(Ordering::SeqCst) == 12).await;
    for receiver in receivers {
        slow.open(receiver);
    }
    until(|| receivers.iter().all(|receiver| slow.arrived(receiver).len() == 30)).await;
    rounds.stop().await;
    assert_eq!(slow.most_of_all.load(Ordering::SeqCst), 12);
    let most = slow.most.lock().expect("nobody panics");
    assert!(most.values().all(|count| *count <= 3), "{most:?}");
}

/// One user with slow receivers must not keep everybody else waiting.
#[tokio::test]
async fn who_has_much_to_tell_takes_turns_with_those_who_have_little() {
    let (forge, project) = start().await;
    let busy = forge.plant_hook(Some(project), "http://busy.test/", None);
    let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    tell(&forge, project, &many.iter().map(String::as_str).collect::<Vec<_>>());
    let one_lane = || Room { lanes: 1, ..room() };
    let work = deliveries::turn(&forge.forge, Arc::default(), one_lane()).await.expect("a turn");
    let lane = work.lanes.into_iter().next().expect("a lane");
    assert_eq!((lane.hook, lane.letters.len()), (busy, 32));
    forge.clock.advance(SignedDuration::from_secs(1));
    let calm = forge.plant_hook(None, "http://calm.test/", None);
    forge.plant_event(EventKind::System, None, "made");
    assert!(deliveries::turn(&forge.forge, Arc::default(), Room::none()).await.expect("a turn").lanes.is_empty());
    forge.clock.advance(SignedDuration::from_secs(1));
    let reports = lane.letters.iter().map(|letter| {
        let answer = Answer { status: 200, headers: String::new(), body: String::new(), retry_after: None };
        let attempt = tried("http://busy.test/", Outcome::Answered(answer));
        Report { hook: busy, delivery: letter.delivery, attempt }
    });
    let ended = vec![Ended { hook: busy, lease: lane.lease }];
    let notes = Notes { reports: reports.collect(), ended };
    let work = deliveries::turn(&forge.forge, Arc::new(notes), one_lane()).await.expect("a turn");
    assert_eq!(work.lanes.iter().map(|lane| lane.hook).collect::<Vec<_>>(), [calm]);
}

#[tokio::test]
async fn a_project_with_many_hooks_leaves_room_for_others() {
    let (forge, project) = start().await;
    for number in 0..20 {
        forge.plant_hook(Some(project), &format!("http://{number}.test/"), None);
    }
    let other = forge.plant_hook(None, "http://instance.test/", None);
    tell(&forge, project, &["1"]);
    forge.plant_event(EventKind::System, None, "made");
    let few = || Room { per_project: 3, ..room() };
    let work = deliveries::turn(&forge.forge, Arc::default(), few()).await.expect("a turn");
    let of_project = work.lanes.iter().filter(|lane| lane.project == Some(project)).count();
    assert_eq!((of_project, work.lanes.len()), (3, 4));
    assert!(work.lanes.iter().any(|lane| lane.hook == other));
    let full = Room { busy_projects: HashMap::from([(project, 3)]), ..few() };
    let work = deliveries::turn(&forge.forge, Arc::default(), full).await.expect("a turn");
    assert_eq!(work.lanes.len(), 0);
}

#[tokio::test]
async fn rounds_that_are_told_to_stop_write_down_what_they_did() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1", "2", "3"]);
    let slow = Slow::new(&["one.test"]);
    let rounds = forge.start_rounds(slow.clone(), Limits::default());
    until(|| slow.under_way("one.test") == 1).await;
    let opener = slow.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        opener.open("one.test");
    });
    rounds.stop().await;
    // The message that was under way has arrived; the others wait for the next start, and nobody holds the lane.
    assert_eq!(slow.arrived("one.test"), ["1"]);
    assert_eq!(standings(&forge, hook), [(DELIVERED, 1), (WAITING, 0), (WAITING, 0)]);
    assert_eq!((lane(&forge, hook).leased_until, lane(&forge, hook).due_at), (None, Some(0)));
}

#[tokio::test]
async fn what_a_crash_interrupts_is_sent_again_by_the_next_start() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1", "2", "3"]);
    let slow = Slow::new(&["one.test"]);
    let rounds = forge.start_rounds(slow.clone(), Limits::default());
    until(|| slow.under_way("one.test") == 1).await;
    rounds.kill().await;
    let post = Post::answering(200);
    assert!(forge.deliver_with(&post).await.is_empty(), "somebody still seems to be at it");
    deliveries::take_up(&forge.forge).await.expect("taken up");
    if forge.behind_the_back(|db| matches!(db, Conn::Pg(_))) {
        // Another node may be alive; it is waited for.
        assert!(forge.deliver_with(&post).await.is_empty());
        forge.clock.advance(deliveries::LEASE + SignedDuration::from_secs(1));
    }
    forge.deliver_with(&post).await;
    assert_eq!(post.take(), ["1", "2", "3"]);
    assert_eq!(standings(&forge, hook), [(DELIVERED, 1); 3]);
}

#[tokio::test]
async fn two_couriers_on_the_same_database_bring_everything_once() {
    let (forge, project) = start().await;
    let hooks: Vec<i64> =
        (0..20).map(|number| forge.plant_hook(Some(project), &format!("http://{number}.test/"), None)).collect();
    let words: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    tell(&forge, project, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let slow = Slow::default();
    let limits = Limits { lanes: 5, ..Limits::default() };
    let [one, two] = [(); 2].map(|()| forge.start_rounds(slow.clone(), limits));
    until(|| slow.arrived.lock().expect("nobody panics").len() >= 20 * 50).await;
    one.stop().await;
    two.stop().await;
    for (number, hook) in hooks.iter().enumerate() {
        assert_eq!(slow.arrived(&format!("{number}.test")), words, "in order, and once");
        assert_eq!(standings(&forge, *hook), [(DELIVERED, 1); 50]);
    }
}

#[tokio::test]
async fn what_arrived_is_not_forgotten_while_the_database_is_in_trouble() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1"]);
    let slow = Slow::new(&["one.test"]);
    let rounds = forge.start_rounds(slow.clone(), Limits::default());
    until(|| slow.under_way("one.test") == 1).await;
    execute(&forge, "ALTER TABLE hook_deliveries RENAME TO mislaid");
    slow.open("one.test");
    until(|| !slow.arrived("one.test").is_empty()).await;
    // Long enough for an attempt to write it down; without one the story is true, too.
    tokio::time::sleep(Duration::from_millis(200)).await;
    execute(&forge, "ALTER TABLE mislaid RENAME TO hook_deliveries");
    until(|| standings(&forge, hook) == [(DELIVERED, 1)]).await;
    rounds.stop().await;
    assert_eq!(slow.arrived("one.test"), ["1"]);
    assert_eq!(lane(&forge, hook).leased_until, None);
}

#[tokio::test]
async fn a_lane_whose_walker_panics_is_given_back() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://one.test/", None);
    tell(&forge, project, &["1"]);
    let fell = Arc::new(AtomicUsize::new(0));
    let falls = Arc::clone(&fell);
    let post = Post::new(move |_, _| {
        assert!(falls.fetch_add(1, Ordering::SeqCst) > 0, "the first one falls");
        answer(200)
    });
    let rounds = forge.start_rounds(post.clone(), Limits::default());
    until(|| standings(&forge, hook) == [(DELIVERED, 1)]).await;
    rounds.stop().await;
    assert_eq!(fell.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_project_goes_with_its_hooks_and_all_they_were_told() {
    let (forge, project) = start().await;
    let now = forge.forge.now();
    for number in 0..3 {
        forge.plant_hook(Some(project), &format!("http://one.test/{number}"), None);
    }
    let kept = forge.plant_hook(None, "http://instance.test/", None);
    tell(&forge, project, &["1", "2", "3", "4"]);
    forge.plant_event(EventKind::System, None, "kept");
    forge.deliver_with(&Post::answering(200)).await;
    let steps = forge.behind_the_back(|db| {
        store::projects::bury(db, store::projects::Buried::One(project), "remove_project", now).expect("buried");
        let mut steps = Vec::new();
        loop {
            match store::projects::shrink_buried(db, project, 5).expect("shrunk") {
                0 => break steps,
                removed => steps.push(removed),
            }
        }
    });
    assert!(steps.starts_with(&[5, 5, 2]), "{steps:?}");
    assert!(steps.contains(&3), "{steps:?}");
    assert_eq!((count(&forge, "hooks"), count(&forge, "hook_deliveries")), (1, 1));
    assert_eq!(standings(&forge, kept), [(DELIVERED, 1)]);
    forge.do_all_jobs().await;
    assert_eq!(count(&forge, "projects"), 0);
}

#[tokio::test]
async fn a_clock_that_was_ahead_does_not_keep_what_is_old() {
    let (forge, project) = start().await;
    let hook = forge.plant_hook(Some(project), "http://ill.test/", None);
    tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    tell(&forge, project, &["from the future", "old"]);
    deliveries::turn(&forge.forge, Arc::default(), Room::none()).await.expect("a turn");
    // Somebody keeps the lane, and the first message has come at an hour that is far ahead.
    execute(&forge, &format!("UPDATE hooks SET leased_until = 9000000000000000 WHERE id = {hook}"));
    execute(&forge, "UPDATE hook_deliveries SET created_at = 9000000000000000 WHERE id = 1");
    forge.clock.advance(SignedDuration::from_hours(8 * 24));
    forge.do_all_jobs().await;
    assert_eq!(standings(&forge, hook), [(WAITING, 0), (FAILED, 0)]);
}

#[tokio::test]
async fn what_is_old_is_given_up_and_forgotten() {
    let (forge, project) = start().await;
    let well = forge.plant_hook(Some(project), "http://well.test/", None);
    let ill = forge.plant_hook(Some(project), "http://ill.test/", None);
    tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    let post = Post::new(|url, _| answer(if url.contains("well") { 200 } else { 500 }));
    tell(&forge, project, &["old"]);
    forge.deliver_with(&post).await;
    // Somebody keeps the lane, so that nothing in it is tried again and given up after a day.
    execute(&forge, &format!("UPDATE hooks SET leased_until = 9000000000000000 WHERE id = {ill}"));
    forge.clock.advance(SignedDuration::from_hours(6 * 24));
    tell(&forge, project, &["young"]);
    assert_eq!(forge.deliver_with(&post).await.len(), 1);
    forge.do_all_jobs().await;
    assert_eq!(standings(&forge, well), [(DELIVERED, 1); 2]);
    assert_eq!(standings(&forge, ill), [(WAITING, 1), (WAITING, 0)]);
    forge.clock.advance(SignedDuration::from_hours(25));
    forge.do_all_jobs().await;
    assert_eq!(standings(&forge, well), [(DELIVERED, 1)]);
    assert_eq!(standings(&forge, ill), [(FAILED, 1), (WAITING, 0)]);
    let line = log(&forge, ill).remove(0);
    assert_eq!(line.error.as_deref(), Some("was not delivered within 7 days"));
    assert_eq!(count(&forge, "hook_events"), 2);
    // A week later the old one is forgotten with all that was told of it, and then the young one.
    forge.clock.advance(SignedDuration::from_hours(8 * 24));
    forge.do_all_jobs().await;
    assert_eq!((standings(&forge, well), standings(&forge, ill)), (vec![], vec![(FAILED, 0)]));
    assert_eq!(count(&forge, "hook_events"), 1);
    forge.clock.advance(SignedDuration::from_hours(8 * 24));
    forge.do_all_jobs().await;
    assert_eq!((count(&forge, "hook_deliveries"), count(&forge, "hook_events")), (0, 0));
}
