//! Groups and projects straight into the database, for tests that need many.

use model::{
    Time, Visibility,
    groups::NewGroup,
    projects::{NewProject, Seed},
};
use ssh_key::{
    PublicKey,
    public::{Ed25519PublicKey, KeyData},
};
use store::Conn;

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
