//! A list costs a fixed number of statements, however many rows it shows.

use std::{
    env,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use model::{
    Oid, Role, Visibility,
    events::{Action, PushData},
    keys::NewKey,
};
use serde_json::Value;
use store::{events::NewEvent, members::Place};
use testkit::{Client, TestForge, rows};

/// Set where the test has a process to itself.
const ALONE: &str = "GABLE_TEST_COUNTS_STATEMENTS";
const MANY: i64 = 50;

static STATEMENTS: AtomicUsize = AtomicUsize::new(0);

struct Counter;

impl Instrumentation for Counter {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if matches!(event, InstrumentationEvent::StartQuery { .. }) {
            STATEMENTS.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Diesel counts for all connections of a process, so this test starts itself once more in one of its own.
#[test]
fn a_list_costs_the_same_however_many_rows_it_shows() {
    if env::var_os(ALONE).is_some() {
        set_default_instrumentation(|| Some(Box::new(Counter))).expect("nobody else has set it");
        return tokio::runtime::Runtime::new().expect("a runtime").block_on(count());
    }
    let name = "statements::a_list_costs_the_same_however_many_rows_it_shows";
    let alone = Command::new(env::current_exe().expect("this binary"))
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("started");
    let told = format!("{}{}", String::from_utf8_lossy(&alone.stdout), String::from_utf8_lossy(&alone.stderr));
    assert!(alone.status.success() && told.contains("1 passed"), "{told}");
}

/// Who asks for what: `root` is the administrator.
const LISTS: [(&str, &str); 35] = [
    ("ann", "/projects"),
    ("ann", "/projects/visible"),
    ("ann", "/projects/owned"),
    ("ann", "/projects/starred"),
    ("root", "/projects/all"),
    ("root", "/projects/visible"),
    ("root", "/projects/all?search=name"),
    ("ann", "/projects/visible?order_by=name&sort=asc"),
    ("ann", "/projects/visible?visibility=private"),
    ("ann", "/projects/visible?search=name"),
    ("ann", "/projects/visible?simple=true"),
    ("ann", "/projects?search=name"),
    ("ann", "/projects/search/name"),
    ("ann", "/projects/search/na"),
    ("ann", "/groups"),
    ("ann", "/groups?all_available=true"),
    ("ann", "/groups?search=name"),
    ("root", "/groups"),
    ("ann", "/groups/owned"),
    ("ann", "/groups/home"),
    ("root", "/groups/home"),
    ("ann", "/groups/home/projects"),
    ("root", "/groups/home/projects"),
    ("ann", "/groups/home/members"),
    ("root", "/groups/home/members?query=name"),
    ("ann", "/projects/1/members"),
    ("ann", "/projects/1/members?query=name"),
    ("ann", "/projects/1/events"),
    ("ann", "/projects/1/deploy_keys"),
    ("ann", "/users/2/events"),
    ("root", "/users/2/events"),
    ("ann", "/namespaces"),
    ("root", "/namespaces"),
    ("ann", "/users"),
    ("root", "/users"),
];

async fn count() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let home = forge.in_one_go(|db| {
        let home = rows::group(db, "home", None, Visibility::Public, model::Time::UNIX_EPOCH);
        store::members::put(db, Place::Group(home), ann.id, Role::Owner, None, model::Time::UNIX_EPOCH).expect("put");
        home
    });
    add(&forge, &ann, home, 0).await;
    // The second time, everything that a connection does once is done.
    for _ in 0..4 {
        ask(&root, &ann).await;
    }
    let few = ask(&root, &ann).await;
    for number in 1..MANY {
        add(&forge, &ann, home, number).await;
    }
    let many = ask(&root, &ann).await;
    for (((who, path), (statements, rows)), (statements_of_many, rows_of_many)) in LISTS.iter().zip(&few).zip(&many) {
        let path = format!("{path} for {who}");
        assert!(*statements > 0 && *rows > 0, "{path}: {statements} statements for {rows} rows");
        assert!(*rows_of_many >= rows + 49, "{path}: {rows} rows, then {rows_of_many}");
        assert_eq!(statements, statements_of_many, "{path} for {rows} and for {rows_of_many} rows");
    }
}

/// Another of everything that lists show: a project of the group with a star and shares, a fork of it that is shared
/// with the group, a group, a member, a push and a deploy key.
async fn add(forge: &TestForge, ann: &Client, home: i64, number: i64) {
    let now = forge.forge.now();
    let user = forge.user(&format!("name-{number}")).await;
    forge.in_one_go(|db| {
        let group = rows::group(db, &format!("name-g{number}"), None, Visibility::Internal, now);
        let put = |db: &mut store::Conn, place, user, role| {
            store::members::put(db, place, user, role, None, now).expect("a member");
        };
        put(db, Place::Group(group), ann.id, Role::Owner);
        let project = rows::project(db, &format!("name{number}"), home, ann.id, Visibility::Public, now);
        store::members::insert_share(db, project, group, Role::Guest, None, now).expect("a share");
        store::projects::star(db, project, ann.id, now).expect("a star");
        let personal = rows::personal_namespace(db, ann.id);
        let shared = rows::project(db, &format!("name{number}"), personal, ann.id, Visibility::Private, now);
        store::members::insert_share(db, shared, home, Role::Guest, None, now).expect("a share");
        store::forks::insert(db, shared, project, now).expect("a link");
        let push = PushData {
            ref_name: "refs/heads/main".into(),
            before: None,
            after: Some(Oid([1; 20])),
            commits: Vec::new(),
            total_commits: 0,
        };
        let event = NewEvent {
            project: 1,
            author: ann.id,
            action: Action::Pushed,
            target_type: None,
            target_id: None,
            push: Some(&push),
            intent: None,
            now,
        };
        store::events::insert(db, &event).expect("an event");
        let key = NewKey { title: "k".into(), key: "k".into(), fingerprint: number.to_string() };
        store::deploy_keys::insert(db, 1, &key, now).expect("a key");
        put(db, Place::Group(home), user.id, Role::Guest);
        put(db, Place::Project(1), user.id, Role::Guest);
    });
}

/// How many statements each list takes, and how many rows it shows.
async fn ask(root: &Client, ann: &Client) -> Vec<(usize, usize)> {
    let mut counts = Vec::new();
    for (who, path) in LISTS {
        let client = if who == "root" { root } else { ann };
        let mark = if path.contains('?') { '&' } else { '?' };
        let before = STATEMENTS.load(Ordering::SeqCst);
        let answer = client.get(&format!("{path}{mark}per_page=100")).await;
        let statements = STATEMENTS.load(Ordering::SeqCst) - before;
        assert_eq!(answer.code(), 200, "{path}: {answer}");
        counts.push((statements, rows_in(&answer.json())));
    }
    counts
}

/// A group shows two lists at once; both grow.
fn rows_in(answer: &Value) -> usize {
    let length = |list: &Value| list.as_array().map_or(0, Vec::len);
    if answer.is_array() { length(answer) } else { length(&answer["projects"]).min(length(&answer["shared_projects"])) }
}
