//! Use cases of repositories.

pub mod branches;
pub mod browse;
pub mod code_search;
pub mod commit_authors;
pub mod commit_notes;
pub mod commits;
pub mod contents;
pub mod deleted_refs;
pub mod downloads;
pub mod edit_pages;
pub mod history_pages;
pub mod maintenance;
pub mod node_cache;
pub mod pushes;
pub mod ref_pages;
pub mod release_pages;
pub mod repository_files;
pub mod tags;
pub mod transport;
