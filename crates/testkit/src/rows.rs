//! Groups and projects straight into the database, for tests that need many.

use std::sync::atomic::{AtomicI64, Ordering};

use diesel::{
    QueryableByName, RunQueryDsl, sql_query,
    sql_types::{BigInt, Integer, Nullable, Text},
};
use model::{
    EventKind, Time, Visibility,
    groups::NewGroup,
    hooks::Switches,
    labels::NewLabel,
    milestones::NewMilestone,
    projects::{NewProject, Seed},
    runners::RunnerInfo,
    tokens::Digest,
};
use serde_json::Value;
use ssh_key::{
    PublicKey,
    public::{Ed25519PublicKey, KeyData},
};
use store::{Conn, issues::NewIssue, notes::NewNote, runners::NewRunner, webhook_events::NewHookEvent};

/// Adds a group without members, called as its path; says its number.
pub fn group(db: &mut Conn, path: &str, parent: Option<i64>, visibility: Visibility, now: Time) -> i64 {
    let new = NewGroup {
        name: path.to_owned(),
        path: path.to_owned(),
        description: String::new(),
        visibility,
        lfs_enabled: None,
        request_access_enabled: false,
    };
    let parent = parent.map(|id| store::namespaces::by_id(db, id).expect("asked").expect("a parent"));
    store::groups::insert(db, &new, parent.as_ref(), now).expect("a group")
}

/// Adds a project without members, called as its path; says its number.
pub fn project(db: &mut Conn, path: &str, namespace: i64, creator: i64, visibility: Visibility, now: Time) -> i64 {
    let new = NewProject { name: path.to_owned(), path: Some(path.to_owned()), ..NewProject::default() };
    store::projects::insert(db, &new, namespace, creator, visibility, &Seed(vec![7; 16]), now).expect("a project")
}

/// The number of a user's personal namespace.
pub fn personal_namespace(db: &mut Conn, user: i64) -> i64 {
    store::namespaces::personal(db, user).expect("asked").expect("everybody has one").id
}

/// An SSH key that differs for each number, on one line.
pub fn ssh_key(number: i64) -> String {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    let key = PublicKey::from(KeyData::Ed25519(Ed25519PublicKey(bytes)));
    key.to_openssh().expect("a key")
}

/// What lies on the desk of a project, by numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Desk {
    /// An issue.
    pub issue: i64,
    /// A note on it.
    pub note: i64,
    /// A milestone.
    pub milestone: i64,
    /// The label `bug`, which has a list on the board.
    pub label: i64,
    /// The label `free`, which has none.
    pub free_label: i64,
    /// The board.
    pub board: i64,
    /// The first of two lists on it.
    pub list: i64,
}

/// Gives a project an issue with a note, a milestone, three labels and two lists on its board.
pub fn desk(db: &mut Conn, project: i64, author: i64, now: Time) -> Desk {
    let iid = store::issues::next_number(db, project).expect("a number");
    let new = NewIssue {
        project,
        iid,
        author: Some(author),
        title: "x",
        description: None,
        assignee: None,
        milestone: None,
        due_on: None,
        confidential: false,
        created_at: now,
        now,
    };
    let issue = store::issues::insert(db, &new).expect("an issue");
    let new = NewNote { project, issue, author, body: "x", system: false, now };
    let note = store::notes::insert(db, &new).expect("a note");
    let new = NewMilestone { title: "x".into(), description: None, start_on: None, due_on: None };
    let milestone = store::milestones::insert(db, project, &new, now).expect("a milestone").id;
    let [label, other, free_label] = ["bug", "other", "free"].map(|title| {
        let new = NewLabel { title: title.into(), color: "#123456".into(), description: None, priority: None };
        store::labels::insert(db, project, &new, now).expect("a label").id
    });
    let board = store::boards::id_of(db, project).expect("asked").expect("every project has one");
    let list = store::boards::insert(db, board, label, 0, now).expect("a list");
    store::boards::insert(db, board, other, 1, now).expect("a list");
    Desk { issue, note, milestone, label, free_label, board, list }
}

/// A runner of these projects, whose token nobody knows; answers its number.
pub fn runner(db: &mut Conn, projects: &[i64], now: Time) -> i64 {
    static NUMBER: AtomicI64 = AtomicI64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let seed = Seed(number.to_be_bytes().to_vec());
    let new = NewRunner {
        digest: Digest::of(&format!("runner {number}")),
        seed: &seed,
        description: "runner",
        active: true,
        is_shared: false,
        run_untagged: true,
        locked: false,
        tags: &[],
        maximum_timeout: None,
        info: &RunnerInfo::default(),
    };
    let id = store::runners::insert(db, &new, now).expect("a runner");
    for project in projects {
        store::runners::join(db, id, *project, now).expect("joined");
    }
    id
}

/// Adds a hook of a project, or of the instance, that leads nowhere: for tests of what there is to tell.
pub fn hook(db: &mut Conn, project: Option<i64>, wants: Switches) {
    let Switches { push, tag_push, issues, confidential_issues, merge_requests, note, build, pipeline, wiki_page } =
        wants;
    let project = project.map_or_else(|| "NULL".to_owned(), |project| project.to_string());
    let bytes = match db {
        Conn::Sqlite(_) => "x'00'",
        Conn::Pg(_) => "'\\x00'::bytea",
    };
    let insert = format!(
        "INSERT INTO hooks (project_id, url, receiver, enable_ssl_verification, push_events, tag_push_events, \
         issues_events, confidential_issues_events, merge_requests_events, note_events, build_events, pipeline_events, \
         wiki_page_events, created_at, updated_at) VALUES ({project}, {bytes}, 'nowhere.test:80', TRUE, {push}, \
         {tag_push}, {issues}, {confidential_issues}, {merge_requests}, {note}, {build}, {pipeline}, {wiki_page}, 0, 0)"
    );
    execute(db, &insert);
}

/// Something that hooks are to be told.
pub struct Announcement {
    /// On which occasion.
    pub occasion: EventKind,
    /// In which project; `None` for what hooks of the instance are told.
    pub project: Option<i64>,
    /// What is told.
    pub payload: Value,
}

#[derive(QueryableByName)]
struct AnnouncementRow {
    #[diesel(sql_type = Integer)]
    occasion: i32,
    #[diesel(sql_type = Nullable<BigInt>)]
    project_id: Option<i64>,
    #[diesel(sql_type = Text)]
    payload: String,
}

/// Takes away what there is to tell hooks, oldest first.
pub fn take_announcements(db: &mut Conn) -> Vec<Announcement> {
    let query = "SELECT occasion, project_id, payload FROM hook_events ORDER BY id";
    let rows: Vec<AnnouncementRow> = match db {
        Conn::Sqlite(conn) => sql_query(query).load(conn),
        Conn::Pg(conn) => sql_query(query).load(conn),
    }
    .expect("what there is to tell");
    execute(db, "DELETE FROM hook_events");
    let read = |row: AnnouncementRow| Announcement {
        occasion: EventKind::from_code(row.occasion).expect("a known occasion"),
        project: row.project_id,
        payload: serde_json::from_str(&row.payload).expect("JSON"),
    };
    rows.into_iter().map(read).collect()
}

fn execute(db: &mut Conn, statement: &str) {
    let done = match db {
        Conn::Sqlite(conn) => sql_query(statement).execute(conn),
        Conn::Pg(conn) => sql_query(statement).execute(conn),
    };
    done.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Writes down that a hook is to be told something; says the number in its log.
pub fn delivery(db: &mut Conn, hook: i64, payload: &str, now: Time) -> i64 {
    let seed = format!("seed of {hook}");
    let event = NewHookEvent {
        occasion: EventKind::Push,
        project: None,
        depth: 0,
        seed: &seed,
        intent: None,
        ref_name: None,
        payload,
        waiting: false,
        now,
    };
    let event = store::webhook_events::insert(db, &event).expect("an event");
    store::delivery_log::insert(db, hook, event, now).expect("a delivery")
}
