//! Builders that insert through `store`, for objects that the API cannot create and for tests that need many.

use std::sync::atomic::{AtomicI64, Ordering};

use diesel::{
    QueryableByName, RunQueryDsl, sql_query,
    sql_types::{BigInt, Integer, Nullable, Text},
};
use model::{
    BoardId, BoardListId, DeliveryId, EventKind, HookId, IssueId, JobId, LabelId, MilestoneId, NamespaceId, NoteId,
    ProjectId, RunnerId, Time, UserId, Visibility,
    groups::NewGroup,
    hooks::SubscribedEvents,
    labels::NewLabel,
    milestones::NewMilestone,
    projects::{NewProject, TokenSeed},
    runners::RunnerInfo,
    tokens::Digest,
};
use serde_json::Value;
use ssh_key::{
    PublicKey,
    public::{Ed25519PublicKey, KeyData},
};
use store::{
    Conn, hooks::HookRecord, issues::NewIssue, jobs::ARCHIVE, notes::NewNote, runners::NewRunner,
    webhook_events::NewHookEvent,
};

/// Inserts a group without members whose name is its path; returns its id.
pub fn group(db: &mut Conn, path: &str, parent: Option<NamespaceId>, visibility: Visibility, now: Time) -> NamespaceId {
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

/// Inserts a project without members whose name is its path; returns its id.
pub fn project(
    db: &mut Conn,
    path: &str,
    namespace: NamespaceId,
    creator: UserId,
    visibility: Visibility,
    now: Time,
) -> ProjectId {
    let new = NewProject { name: path.to_owned(), path: Some(path.to_owned()), ..NewProject::default() };
    store::projects::insert(db, &new, namespace, creator, visibility, &TokenSeed(vec![7; 16]), now).expect("a project")
}

/// Returns the id of a user's personal namespace.
pub fn personal_namespace(db: &mut Conn, user: UserId) -> NamespaceId {
    store::namespaces::personal(db, user).expect("asked").expect("every user has one").id
}

/// Returns an SSH public key that is different for each number.
pub fn ssh_key(number: i64) -> String {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    let key = PublicKey::from(KeyData::Ed25519(Ed25519PublicKey(bytes)));
    key.to_openssh().expect("a key")
}

/// Inserts an open issue with labels; returns its id.
pub fn issue(
    db: &mut Conn,
    project: ProjectId,
    author: UserId,
    confidential: bool,
    labels: &[LabelId],
    now: Time,
) -> IssueId {
    let iid = store::issues::next_iid(db, project).expect("a number");
    let new = NewIssue {
        project,
        iid,
        author: Some(author),
        title: "x",
        description: None,
        assignee: None,
        milestone: None,
        due_on: None,
        confidential,
        created_at: now,
        now,
    };
    let issue = store::issues::insert(db, &new).expect("an issue");
    store::issues::add_labels(db, issue, labels).expect("labels");
    issue
}

/// The ids of the tracker items of a project.
#[derive(Clone, Copy, Debug)]
pub struct TrackerItems {
    /// An issue.
    pub issue: IssueId,
    /// A note on it.
    pub note: NoteId,
    /// A milestone.
    pub milestone: MilestoneId,
    /// The label `bug`, which has a list on the board.
    pub label: LabelId,
    /// The label `free`, which has none.
    pub free_label: LabelId,
    /// The board.
    pub board: BoardId,
    /// The first of two lists on it.
    pub list: BoardListId,
}

/// Inserts an issue with a note, a milestone, three labels and two board lists into a project.
pub fn tracker_items(db: &mut Conn, project: ProjectId, author: UserId, now: Time) -> TrackerItems {
    let issue = issue(db, project, author, false, &[], now);
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
    TrackerItems { issue, note, milestone, label, free_label, board, list }
}

/// Inserts a runner with an unknown token and enables it for these projects; returns its id.
pub fn runner(db: &mut Conn, projects: &[ProjectId], now: Time) -> RunnerId {
    static NUMBER: AtomicI64 = AtomicI64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let seed = TokenSeed(number.to_be_bytes().to_vec());
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
        store::runners::enable_for_project(db, id, *project, now).expect("enabled");
    }
    id
}

/// Inserts the row of a job's complete archive, without a file.
pub fn artifacts_archive(
    db: &mut Conn,
    project: ProjectId,
    job: JobId,
    name: &str,
    size: u64,
    expires_at: Option<Time>,
) {
    let now = Time::UNIX_EPOCH;
    let artifact = store::artifacts::insert(db, project, job, ARCHIVE, name, now).expect("a file");
    store::artifacts::complete(db, &artifact, size, expires_at, now).expect("complete");
}

/// Forbids sharing the projects of a namespace, which no request can do yet.
pub fn lock_sharing(db: &mut Conn, namespace: NamespaceId) {
    execute_sql(db, &format!("UPDATE namespaces SET share_with_group_lock = TRUE WHERE id = {namespace}"));
}

/// Inserts a hook of a project or of the instance whose URL is invalid, for tests of webhook events.
pub fn hook(db: &mut Conn, project: Option<ProjectId>, events: SubscribedEvents) {
    let record = HookRecord { url: &[0], token: None, receiver: "nowhere.test:80", verify_tls: true, events };
    store::hooks::insert(db, project, &record, Time::UNIX_EPOCH).expect("a hook");
}

/// A webhook event that was not delivered yet.
pub struct HookEvent {
    /// The kind.
    pub kind: EventKind,
    /// The project; `None` for events of system hooks.
    pub project: Option<ProjectId>,
    /// The payload facts.
    pub payload: Value,
}

#[derive(QueryableByName)]
struct HookEventRow {
    #[diesel(sql_type = Integer)]
    occasion: i32,
    #[diesel(sql_type = Nullable<BigInt>)]
    project_id: Option<i64>,
    #[diesel(sql_type = Text)]
    payload: String,
}

/// Deletes and returns all pending webhook events, oldest first.
pub fn take_hook_events(db: &mut Conn) -> Vec<HookEvent> {
    let query = "SELECT occasion, project_id, payload FROM hook_events ORDER BY id";
    let rows: Vec<HookEventRow> = match db {
        Conn::Sqlite(conn) => sql_query(query).load(conn),
        Conn::Pg(conn) => sql_query(query).load(conn),
    }
    .expect("pending events");
    execute_sql(db, "DELETE FROM hook_events");
    let parse = |row: HookEventRow| HookEvent {
        kind: EventKind::from_code(row.occasion).expect("a known event kind"),
        project: row.project_id.map(ProjectId::new),
        payload: serde_json::from_str(&row.payload).expect("JSON"),
    };
    rows.into_iter().map(parse).collect()
}

/// Executes an SQL statement, for states that neither a request nor `store` produces.
pub fn execute_sql(db: &mut Conn, statement: &str) {
    let done = match db {
        Conn::Sqlite(conn) => sql_query(statement).execute(conn),
        Conn::Pg(conn) => sql_query(statement).execute(conn),
    };
    done.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Inserts a pending delivery of a push event; returns its id.
pub fn delivery(db: &mut Conn, hook: HookId, payload: &str, now: Time) -> DeliveryId {
    let seed = format!("seed of {hook}");
    let event =
        NewHookEvent { kind: EventKind::Push, project: None, depth: 0, seed: &seed, payload, waiting: false, now };
    let event = store::webhook_events::insert(db, &event).expect("an event");
    store::delivery_log::insert(db, hook, event, now).expect("a delivery")
}
