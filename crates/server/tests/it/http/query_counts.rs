//! A list executes a fixed number of SQL statements, however many rows it returns.

use std::{
    env,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use model::{
    BoardId, HookId, IssueId, MilestoneId, NamespaceId, Oid, ProjectId, Role, UserId, Visibility,
    events::{EventAction, EventTarget, PushData},
    keys::NewKey,
    labels::NewLabel,
    milestones::NewMilestone,
    projects::TokenSeed,
    tokens::Digest,
};
use serde_json::{Value, json};
use store::{events::NewEvent, issues::NewIssue, members::MemberSource, notes::NewNote};
use testkit::{TestClient, TestForge, fixtures};

const PROJECT: ProjectId = ProjectId::new(1);

/// Set in the child process in which the test runs alone.
const CHILD_PROCESS: &str = "GABLE_TEST_COUNTS_STATEMENTS";
const MANY: i64 = 50;
/// The id of the administrator, who is the first user.
const ROOT: UserId = UserId::new(1);

static STATEMENTS: AtomicUsize = AtomicUsize::new(0);

struct Counter;

impl Instrumentation for Counter {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        // On PostgreSQL only some reads ask for the version of the data.
        if let InstrumentationEvent::StartQuery { query, .. } = event
            && !query.to_string().contains("pg_current_snapshot")
        {
            STATEMENTS.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Diesel counts for all connections of a process, so this test runs itself in a child process.
#[test]
fn the_number_of_statements_of_a_list_does_not_depend_on_its_rows() {
    if env::var_os(CHILD_PROCESS).is_some() {
        set_default_instrumentation(|| Some(Box::new(Counter))).expect("not set before");
        return tokio::runtime::Runtime::new().expect("a runtime").block_on(count_statements());
    }
    let name = "http::query_counts::the_number_of_statements_of_a_list_does_not_depend_on_its_rows";
    let child = Command::new(env::current_exe().expect("this binary"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD_PROCESS, "1")
        .output()
        .expect("started");
    let output = format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

/// The user and path of each list: `root` is the administrator, `guest` a guest of project 1.
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

async fn count_statements() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let guest = forge.user("guest").await;
    let home = forge.in_transaction(|db| {
        let home = fixtures::group(db, "home", None, Visibility::Public, model::Time::UNIX_EPOCH);
        store::members::upsert(db, MemberSource::Group(home), ann.id, Role::Owner, None, model::Time::UNIX_EPOCH)
            .expect("put");
        home
    });
    add(&forge, [&root, &ann], home, 0).await;
    let place = MemberSource::Project(PROJECT);
    // Every commit also makes reads forget what earlier ones have looked up.
    let commit = || {
        forge.in_transaction(|db| {
            store::members::upsert(db, place, guest.id, Role::Guest, None, model::Time::UNIX_EPOCH).expect("put");
        });
    };
    commit();
    let clients = [("root", &root), ("ann", &ann), ("guest", &guest)];
    // Warms up everything that a connection does only once.
    for _ in 0..4 {
        request_lists(&clients, commit).await;
    }
    let few = request_lists(&clients, commit).await;
    for number in 1..MANY {
        add(&forge, [&root, &ann], home, number).await;
    }
    let many = request_lists(&clients, commit).await;
    for (((who, path), (statements, rows)), (statements_of_many, rows_of_many)) in LISTS.iter().zip(&few).zip(&many) {
        let path = format!("{path} for {who}");
        assert!(*statements > 0 && *rows > 0, "{path}: {statements} statements for {rows} rows");
        assert!(*rows_of_many >= rows + 49, "{path}: {rows} rows, then {rows_of_many}");
        assert_eq!(statements, statements_of_many, "{path} for {rows} and for {rows_of_many} rows");
    }
}

/// Adds one more of everything that lists show: a project of the group with a star and shares, a fork of it that is shared with
/// the group, a group, a member, a push, a deploy key, a label with its board list, a milestone, an issue and a note, a hook of
/// each kind and deliveries of the first ones, pipelines, a variable, a trigger, a token, and notes on issues of the
/// administrator's project 3, one of which Ann does not see.
async fn add(forge: &TestForge, [root, ann]: [&TestClient; 2], home: NamespaceId, number: i64) {
    let now = forge.forge.now();
    let user = forge.user(&format!("name-{number}")).await;
    forge.client_with_token(ann, &[model::Scope::Api], None).await;
    forge.in_transaction(|db| {
        let group = fixtures::group(db, &format!("name-g{number}"), None, Visibility::Internal, now);
        let put = |db: &mut store::Conn, place, user, role| {
            store::members::upsert(db, place, user, role, None, now).expect("a member");
        };
        put(db, MemberSource::Group(group), ann.id, Role::Owner);
        let project = fixtures::project(db, &format!("name{number}"), home, ann.id, Visibility::Public, now);
        store::members::insert_share(db, project, group, Role::Guest, None, now).expect("a share");
        store::projects::star(db, project, ann.id, now).expect("a star");
        let personal = fixtures::personal_namespace(db, ann.id);
        let shared = fixtures::project(db, &format!("name{number}"), personal, ann.id, Visibility::Private, now);
        store::members::insert_share(db, shared, home, Role::Guest, None, now).expect("a share");
        store::forks::insert(db, shared, project, now).expect("a link");
        let push = PushData {
            ref_name: "refs/heads/main".into(),
            before: None,
            after: Some(Oid([1; 20])),
            commits: Vec::new(),
            total_commits: 0,
        };
        store::events::insert_pushes(db, PROJECT, ann.id, &[&push], now).expect("an event");
        let key = NewKey { title: "k".into(), key: "k".into(), fingerprint: number.to_string() };
        store::deploy_keys::insert(db, PROJECT, &key, now).expect("a key");
        let title = format!("l{number}");
        let label = NewLabel { title, color: "#fff".into(), description: None, priority: None };
        let label = store::labels::insert(db, PROJECT, &label, now).expect("a label");
        store::boards::insert(db, BoardId::new(1), label.id, number, now).expect("a list");
        add_issue_data(db, user.id, number, now);
        put(db, MemberSource::Group(home), user.id, Role::Guest);
        put(db, MemberSource::Project(PROJECT), user.id, Role::Guest);
        if number == 0 {
            let personal = fixtures::personal_namespace(db, ROOT);
            assert_eq!(fixtures::project(db, "elsewhere", personal, ROOT, Visibility::Public, now), ProjectId::new(3));
        }
        for confidential in [false, true] {
            add_issue_with_note(db, confidential, now);
        }
        store::variables::insert(db, PROJECT, &format!("K{number}"), b"x").expect("a variable");
        let token = Digest::of(&number.to_string());
        store::triggers::insert(db, PROJECT, &TokenSeed(vec![1]), &token, now).expect("a trigger");
    });
    forge.start_pipeline(PROJECT, Some(user.id), "build: {script: make}").await;
    let hook = json!({ "url": "https://hooks.example.com/x" });
    ann.make("/projects/1/hooks", hook.clone()).await;
    root.make("/hooks", hook).await;
    forge.in_transaction(|db| [1, 2].map(|hook| fixtures::delivery(db, HookId::new(hook), "{}", now)));
    forge.start_pipeline(PROJECT, Some(user.id), "one: {script: make}\ntwo: {script: make}").await;
}

/// Adds an issue of the administrator with a note.
fn add_issue_with_note(db: &mut store::Conn, confidential: bool, now: model::Time) {
    let iid = store::issues::next_iid(db, ProjectId::new(3)).expect("a number");
    let new = NewIssue {
        project: ProjectId::new(3),
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
    let note = NewNote { project: ProjectId::new(3), issue, author: ROOT, body: "b", system: false, now };
    let note = store::notes::insert(db, &note).expect("a note");
    let event = NewEvent {
        project: ProjectId::new(3),
        author: ROOT,
        action: EventAction::Commented,
        target: Some(EventTarget::Note { note, issue }),
        now,
    };
    store::events::insert(db, &event).expect("an event");
}

/// Adds a milestone to the first project, an issue to its first milestone and a note to its first issue.
fn add_issue_data(db: &mut store::Conn, author: UserId, number: i64, now: model::Time) {
    let project = PROJECT;
    let new = NewMilestone { title: number.to_string(), description: None, start_on: None, due_on: None };
    store::milestones::insert(db, project, &new, now).expect("a milestone");
    let new = NewIssue {
        project,
        iid: store::issues::next_iid(db, project).expect("a number"),
        author: Some(author),
        title: "It leaks",
        description: None,
        assignee: None,
        milestone: Some(MilestoneId::new(1)),
        due_on: None,
        confidential: false,
        created_at: now,
        now,
    };
    store::issues::insert(db, &new).expect("an issue");
    let note = NewNote { project, issue: IssueId::new(1), author, body: "It does", system: false, now };
    store::notes::insert(db, &note).expect("a note");
}

/// Returns the number of statements and rows of each list, which is requested after a commit.
async fn request_lists(clients: &[(&str, &TestClient)], commit: impl Fn()) -> Vec<(usize, usize)> {
    let mut counts = Vec::new();
    for (who, path) in LISTS {
        let (_, client) = clients.iter().find(|(name, _)| *name == who).expect("a known user");
        let separator = if path.contains('?') { '&' } else { '?' };
        commit();
        let before = STATEMENTS.load(Ordering::SeqCst);
        let answer = client.get(&format!("{path}{separator}per_page=100")).await;
        let statements = STATEMENTS.load(Ordering::SeqCst) - before;
        assert_eq!(answer.code(), 200, "{path}: {answer}");
        counts.push((statements, rows_in(&answer.json())));
    }
    counts
}

/// Counts the rows of a response. A group contains two lists, which both grow; the only board contains lists, which grow.
fn rows_in(answer: &Value) -> usize {
    let length = |list: &Value| list.as_array().map_or(0, Vec::len);
    if answer[0]["lists"].is_array() {
        return length(&answer[0]["lists"]);
    }
    if answer.is_array() { length(answer) } else { length(&answer["projects"]).min(length(&answer["shared_projects"])) }
}
