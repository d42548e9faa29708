//! Endpoints of projects, groups, namespaces, members and what belongs to them.

pub(crate) mod deploy_keys;
pub(crate) mod events;
pub(crate) mod fork_links;
pub(crate) mod groups;
pub(crate) mod members;
pub(crate) mod namespaces;
pub(crate) mod project_params;
#[expect(clippy::module_inception, reason = "the resource that gives the domain its name")]
pub(crate) mod projects;
pub(crate) mod uploads;

pub(crate) use self::projects::*;
