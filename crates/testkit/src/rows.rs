//! Groups and projects straight into the database, for tests that need many.

use model::{
    Time, Visibility,
    groups::NewGroup,
    labels::NewLabel,
    milestones::NewMilestone,
    projects::{NewProject, Seed},
};
use ssh_key::{
    PublicKey,
    public::{Ed25519PublicKey, KeyData},
};
use store::{Conn, issues::NewIssue, notes::NewNote};

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
