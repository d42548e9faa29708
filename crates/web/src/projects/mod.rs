//! Pages of projects, groups and users.

pub(crate) mod explore;
pub(crate) mod home;
pub(crate) mod list;
pub(crate) mod namespaces;
