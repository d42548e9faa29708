//! Repositories on disk: refs, trees, differences, packs.
//!
//! Reading happens in process, through warm handles. Writing goes through a [`Quarantine`] and [`Repositories::apply`];
//! the programs of git are called for what they do best: taking packs in, sending packs, and housekeeping.

mod error;
mod repositories;
mod repository;

mod apply;
mod checks;
mod child;
mod connectivity;
pub mod copies;
mod disk;
mod edits;
mod fork;
mod housekeeping;
mod import;
mod object_files;
mod peel;
mod quarantine;
mod standstill;

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
mod export;
mod history;
mod large;
mod large_trees;
mod limits;
mod marks;
mod objects;
mod packs;
mod patch;
mod patience;
mod reachable;
mod renames;
mod snapshot;
mod substitutes;
mod tree_walk;

#[cfg(test)]
mod tests;

pub use archive::MOST_ARCHIVE_BYTES;
pub use checks::Strays;
pub use child::{ChildLimits, check_version, stand_back};
pub use commits::{ListedCommits, LogQuery};
pub use connectivity::Sent;
pub use deadline::{is_cancelled, with_cancellation};
pub use diff::Listing;
pub use edits::{EditRefusal, FileEdit};
pub use error::{Error, Result};
pub use import::{FetchLimits, Fetched, Source, TOO_LARGE, TOO_SLOW};
pub use object_files::FileCheck;
pub use peel::Peeled;
pub use quarantine::Quarantine;
pub use refs::{Ref, Refs, listed_size_of};
pub use repositories::Repositories;
pub use repository::Repository;
pub use snapshot::MOST_LISTED;
pub use standstill::{Moving, Standstill};
