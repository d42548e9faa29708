//! SQL statements for projects, groups, namespaces, members and what belongs to them.

pub(crate) mod access;
pub mod avatars;
mod bucket_lists;
pub mod deploy_keys;
pub mod events;
pub mod forks;
pub mod groups;
pub mod imports;
pub mod members;
pub mod namespaces;
pub mod project_lists;
#[expect(clippy::module_inception, reason = "the resource that gives the domain its name")]
pub mod projects;
pub mod uploads;

pub use self::projects::*;
