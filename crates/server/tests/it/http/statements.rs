//! A list costs a fixed number of statements, however many rows it shows.

use std::{
    env,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use model::{
    Oid, Role, Visibility,
    events::{Action, PushData, Target},
    keys::NewKey,
    labels::NewLabel,
    milestones::NewMilestone,
    projects::Seed,
    tokens::Digest,
};
use serde_json::{Value, json};
use store::{events::NewEvent, issues::NewIssue, members::Place, notes::NewNote};
use testkit::{Client, TestForge, rows};

/// Set where the test has a process to itself.
const ALONE: &str = "GABLE_TEST_COUNTS_STATEMENTS";
const MANY: i64 = 50;
/// The number of the administrator, who is the first user.
const ROOT: i64 = 1;

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

/// Who asks for what: `root` is the administrator, `guest` a guest of project 1.
const LISTS: [(&str, &str); 64] = [
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
    ("ann", "/projects/3/events"),
    ("ann", "/projects/1/deploy_keys"),
    ("ann", "/projects/1/hooks"),
    ("ann", "/projects/1/hooks/1/deliveries"),
    ("root", "/hooks"),
    ("root", "/hooks/2/deliveries"),
    ("ann", "/projects/1/pipelines"),
    ("ann", "/projects/1/pipelines?scope=running"),
    ("ann", "/projects/1/builds"),
    ("ann", "/projects/1/builds?scope[]=pending&scope[]=running"),
    ("ann", "/projects/1/variables"),
    ("ann", "/projects/1/triggers"),
    ("ann", "/users/1/events"),
    ("ann", "/projects/1/labels"),
    ("guest", "/projects/1/labels"),
    ("ann", "/projects/1/boards"),
    ("guest", "/projects/1/boards"),
    ("ann", "/projects/1/boards/1/lists"),
    ("ann", "/projects/1/issues"),
    ("guest", "/projects/1/issues?state=opened&order_by=updated_at"),
    ("guest", "/projects/1/issues?search=leak"),
    ("ann", "/groups/home/issues"),
    ("root", "/issues"),
    ("ann", "/projects/1/issues/1/notes"),
    ("ann", "/projects/1/milestones"),
    ("ann", "/projects/1/milestones?state=active"),
    ("ann", "/projects/1/milestones/1/issues"),
    ("ann", "/users/2/events"),
    ("root", "/users/2/events"),
    ("ann", "/namespaces"),
    ("root", "/namespaces"),
    ("ann", "/users"),
    ("root", "/users"),
    ("ann", "/personal_access_tokens"),
    ("root", "/personal_access_tokens"),
    ("root", "/personal_access_tokens?user_id=2&state=active"),
];

async fn count() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let guest = forge.user("guest").await;
    let home = forge.in_one_go(|db| {
        let home = rows::group(db, "home", None, Visibility::Public, model::Time::UNIX_EPOCH);
        store::members::put(db, Place::Group(home), ann.id, Role::Owner, None, model::Time::UNIX_EPOCH).expect("put");
        home
    });
    add(&forge, [&root, &ann], home, 0).await;
    let place = Place::Project(1);
    forge.in_one_go(|db| {
        store::members::put(db, place, guest.id, Role::Guest, None, model::Time::UNIX_EPOCH).expect("put");
    });
    let clients = [("root", &root), ("ann", &ann), ("guest", &guest)];
    // The second time, everything that a connection does once is done.
    for _ in 0..4 {
        ask(&clients).await;
    }
    let few = ask(&clients).await;
    for number in 1..MANY {
        add(&forge, [&root, &ann], home, number).await;
    }
    let many = ask(&clients).await;
    for (((who, path), (statements, rows)), (statements_of_many, rows_of_many)) in LISTS.iter().zip(&few).zip(&many) {
        let path = format!("{path} for {who}");
        assert!(*statements > 0 && *rows > 0, "{path}: {statements} statements for {rows} rows");
        assert!(*rows_of_many >= rows + 49, "{path}: {rows} rows, then {rows_of_many}");
        assert_eq!(statements, statements_of_many, "{path} for {rows} and for {rows_of_many} rows");
    }
}

/// Another of everything that lists show: a project of the group with a star and shares, a fork of it that is shared
/// with the group, a group, a member, a push, a deploy key, a label with its list on the board, a milestone, an issue and a
/// note, a hook of each kind with something more for the first ones, a pipeline, builds, a variable, a trigger, a token, and a note on an issue of the
/// administrator's project 3, beside one that Ann does not see.
async fn add(forge: &TestForge, [root, ann]: [&Client; 2], home: i64, number: i64) {
    let now = forge.forge.now();
    let user = forge.user(&format!("name-{number}")).await;
    forge.with_token(ann, &[model::Scope::Api], None).await;
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
            target: None,
            push: Some(&push),
            intent: None,
            now,
        };
        store::events::insert(db, &event).expect("an event");
        let key = NewKey { title: "k".into(), key: "k".into(), fingerprint: number.to_string() };
        store::deploy_keys::insert(db, 1, &key, now).expect("a key");
        let title = format!("l{number}");
        let label = NewLabel { title, color: "#fff".into(), description: None, priority: None };
        let label = store::labels::insert(db, 1, &label, now).expect("a label");
        store::boards::insert(db, 1, label.id, number, now).expect("a list");
        say_something(db, user.id, number, now);
        put(db, Place::Group(home), user.id, Role::Guest);
        put(db, Place::Project(1), user.id, Role::Guest);
        if number == 0 {
            let personal = rows::personal_namespace(db, ROOT);
            assert_eq!(rows::project(db, "elsewhere", personal, ROOT, Visibility::Public, now), 3);
        }
        for confidential in [false, true] {
            comment(db, confidential, now);
        }
        store::variables::insert(db, 1, &format!("K{number}"), b"x").expect("a variable");
        let token = Digest::of(&number.to_string());
        store::triggers::insert(db, 1, &Seed(vec![1]), &token, now).expect("a trigger");
    });
    forge.plant_pipeline(1, Some(user.id), "build: {script: make}").await;
    let hook = json!({ "url": "https://hooks.example.com/x" });
    ann.make("/projects/1/hooks", hook.clone()).await;
    root.make("/hooks", hook).await;
    forge.in_one_go(|db| [1, 2].map(|hook| rows::delivery(db, hook, "{}", now)));
    forge.plant_pipeline(1, Some(user.id), "one: {script: make}\ntwo: {script: make}").await;
}

/// The administrator says something about another issue of their own.
fn comment(db: &mut store::Conn, confidential: bool, now: model::Time) {
    let iid = store::issues::next_number(db, 3).expect("a number");
    let new = NewIssue {
        project: 3,
        iid,
        author: Some(ROOT),
        title: "t",
        description: None,
        assignee: None,
        milestone: None,
        due_on: None,
        confidential,
        created_at: now,
        now,
    };
    let issue = store::issues::insert(db, &new).expect("an issue");
    let note = NewNote { project: 3, issue, author: ROOT, body: "b", system: false, now };
    let note = store::notes::insert(db, &note).expect("a note");
    let event = NewEvent {
        project: 3,
        author: ROOT,
        action: Action::Commented,
        target: Some(Target::Note { note, issue }),
        push: None,
        intent: None,
        now,
    };
    store::events::insert(db, &event).expect("an event");
}

/// A milestone of the first project, an issue of its first milestone and a note on its first issue.
fn say_something(db: &mut store::Conn, author: i64, number: i64, now: model::Time) {
    let (project, first) = (1, 1);
    let new = NewMilestone { title: number.to_string(), description: None, start_on: None, due_on: None };
    store::milestones::insert(db, project, &new, now).expect("a milestone");
    let new = NewIssue {
        project,
        iid: store::issues::next_number(db, project).expect("a number"),
        author: Some(author),
        title: "It leaks",
        description: None,
        assignee: None,
        milestone: Some(first),
        due_on: None,
        confidential: false,
        created_at: now,
        now,
    };
    store::issues::insert(db, &new).expect("an issue");
    let note = NewNote { project, issue: first, author, body: "It does", system: false, now };
    store::notes::insert(db, &note).expect("a note");
}

/// How many statements each list takes, and how many rows it shows.
async fn ask(clients: &[(&str, &Client)]) -> Vec<(usize, usize)> {
    let mut counts = Vec::new();
    for (who, path) in LISTS {
        let (_, client) = clients.iter().find(|(name, _)| *name == who).expect("somebody");
        let mark = if path.contains('?') { '&' } else { '?' };
        let before = STATEMENTS.load(Ordering::SeqCst);
        let answer = client.get(&format!("{path}{mark}per_page=100")).await;
        let statements = STATEMENTS.load(Ordering::SeqCst) - before;
        assert_eq!(answer.code(), 200, "{path}: {answer}");
        counts.push((statements, rows_in(&answer.json())));
    }
    counts
}

/// A group shows two lists at once; both grow. Of boards there is one; its lists grow.
fn rows_in(answer: &Value) -> usize {
    let length = |list: &Value| list.as_array().map_or(0, Vec::len);
    if answer[0]["lists"].is_array() {
        return length(&answer[0]["lists"]);
    }
    if answer.is_array() { length(answer) } else { length(&answer["projects"]).min(length(&answer["shared_projects"])) }
}
