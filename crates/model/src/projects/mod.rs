//! Projects, groups, namespaces, members and what belongs to them.

pub mod avatars;
pub mod deploy_keys;
pub mod events;
pub mod groups;
pub mod imports;
pub mod members;
pub mod namespaces;
#[expect(clippy::module_inception, reason = "the resource that gives the domain its name")]
pub mod projects;
pub mod roles;
pub mod storage;
pub mod uploads;
pub mod visibility;

pub use self::projects::*;
