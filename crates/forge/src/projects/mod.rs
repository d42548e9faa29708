//! Use cases of projects, groups, namespaces, members and what belongs to them.

pub mod avatars;
pub mod deploy_keys;
pub mod events;
pub mod explore;
pub mod fork_links;
pub mod forks;
pub mod group_pages;
pub mod groups;
pub(crate) mod import_slots;
pub(crate) mod imports;
pub mod member_pages;
pub mod members;
pub mod namespaces;
pub mod project_pages;
#[expect(clippy::module_inception, reason = "the resource that gives the domain its name")]
pub mod projects;
pub mod search_pages;
pub mod uploads;

pub use self::projects::*;
