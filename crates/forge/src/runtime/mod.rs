//! Infrastructure of the use cases: threads, caches, locks, disk space.

pub mod bridge;
pub mod clock;
pub(crate) mod commit_outcome;
pub mod disk_space;
pub(crate) mod memo;
pub(crate) mod repository_locks;
pub(crate) mod stored_files;
