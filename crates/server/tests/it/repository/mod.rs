//! Tests of repositories.

pub(crate) mod branches;
mod commit_notes;
mod commits;
mod contents;
mod first_writes;
pub(crate) mod git_clients;
pub(crate) mod hostile_repositories;
mod malformed_fetches;
mod pushes;
mod ref_names;
mod repository_files;
mod repository_tables;
mod tags;
mod unreachable;
