//! The nouns of the forge and their own rules: plain values, no I/O, no serialisation.

pub mod addresses;
pub mod change;
pub mod deploy_keys;
pub mod emails;
pub mod events;
pub mod groups;
pub mod imports;
pub mod jobs;
pub mod keys;
pub mod members;
pub mod namespaces;
pub mod page;
pub mod projects;
pub mod protections;
pub mod refs;
pub mod releases;
pub mod repository;
pub mod roles;
pub mod statuses;
pub mod text;
pub mod tokens;
pub mod uploads;
pub mod users;
pub mod violations;
pub mod visibility;

pub use change::Change;
pub use deploy_keys::DeployKey;
pub use emails::Email;
pub use events::Event;
pub use keys::Key;
pub use members::{Member, Share};
pub use namespaces::{Namespace, NamespaceKind};
pub use page::{Page, Slice};
pub use projects::Project;
pub use protections::{Protection, PushLevel};
pub use refs::{RefChange, RefKind, RefName};
pub use releases::Release;
pub use repository::{Commit, Oid};
pub use roles::Role;
pub use statuses::CommitStatus;
pub use tokens::{Scope, Token};
pub use uploads::Upload;
pub use users::{User, UserState};
pub use violations::Violations;
pub use visibility::Visibility;

/// A moment in UTC, cut to microseconds so that it survives every database unchanged.
pub type Time = jiff::Timestamp;
