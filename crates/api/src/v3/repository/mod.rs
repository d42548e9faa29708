//! Endpoints of repositories.

pub(crate) mod branches;
pub(crate) mod commit_notes;
pub(crate) mod commits;
pub(crate) mod contents;
pub(crate) mod repository_files;
pub(crate) mod tags;
