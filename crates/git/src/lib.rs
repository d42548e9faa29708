//! Repositories on disk: refs, trees, diffs and packs.
//!
//! Objects and refs are read in process, through cached handles. Writes go through a [`Quarantine`] and
//! [`Repositories::apply`]. The `git` program is used to receive packs, to send packs and for housekeeping.

mod error;
mod repositories;
mod repository;

mod apply;
pub mod backup;
mod checks;
mod connectivity;
mod disk;
mod edits;
mod fork;
mod git_process;
mod housekeeping;
mod import;
mod object_files;
mod peel;
mod quarantine;
mod ref_freeze;

mod archive;
mod blobs;
mod commits;
mod compare;
mod contributors;
mod refs;
mod trees;

mod changes;
mod deadline;
mod decode;
mod diff;
mod export_attributes;
mod file_stamps;
mod format_substitution;
mod history;
mod large_object;
mod limits;
mod objects;
mod packs;
mod patch;
mod reachable;
mod renames;
mod snapshot;
mod tree_cache;
mod tree_walk;

#[cfg(test)]
mod tests;

pub use archive::MAX_ARCHIVE_BYTES;
pub use checks::UnexpectedEntries;
pub use commits::{CommitListBudget, LogQuery};
pub use connectivity::ReceivedObjects;
pub use deadline::{is_cancelled, with_cancellation};
pub use diff::FileListBudget;
pub use edits::{EditError, FileEdit};
pub use error::{Error, Result};
pub use git_process::{ChildLimits, VersionError, check_version, lower_priority};
pub use import::{FetchLimits, FetchSource, FetchedRepository};
pub use object_files::{FileCheck, FileFault};
pub use peel::Peeled;
pub use quarantine::Quarantine;
pub use ref_freeze::{RefFreeze, RefUpdateGuard};
pub use refs::{Ref, Refs, packed_size_of};
pub use repositories::Repositories;
pub use repository::Repository;
pub use snapshot::PACKED_REFS_PUSH_LIMIT;
