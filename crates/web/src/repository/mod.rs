//! Pages of a repository.

pub(crate) mod branches;
pub(crate) mod commit;
pub(crate) mod commits;
pub(crate) mod compare;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod raw;
pub(crate) mod tags;
