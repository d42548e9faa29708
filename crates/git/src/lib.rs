//! Repositories on disk: refs, trees, diffs and packs.
//!
//! The database says which refs and which packs a repository has; both are passed in. Objects are read in process,
//! through cached handles. New objects arrive in a [`Quarantine`] and become packs. The `git` program is used to receive
//! packs, to send packs and for maintenance.

mod error;
mod repositories;
mod repository;

pub mod backup;
mod checks;
mod connectivity;
mod disk;
mod edits;
mod git_process;
mod import;
mod local_pack;
mod maintenance;
mod object_files;
mod old_repository;
mod pack_writer;
mod peel;
mod quarantine;

mod activity;
mod archive;
mod blame;
mod blobs;
mod commits;
mod compare;
mod containing_refs;
mod contributors;
mod ref_files;
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
mod last_commits;
mod limits;
mod objects;
mod packs;
mod patch;
mod patch_file;
mod reachable;
mod renames;
mod tree_cache;
mod tree_walk;
mod whole_pack;

#[cfg(test)]
mod tests;

pub use archive::MAX_ARCHIVE_BYTES;
pub use checks::UnexpectedEntries;
pub use commits::{CommitListBudget, LogQuery};
pub use connectivity::ReceivedObjects;
pub use containing_refs::ContainingRefs;
pub use deadline::{is_cancelled, with_cancellation};
pub use diff::FileListBudget;
pub use edits::{EditError, FileEdit};
pub use error::{Error, Result};
pub use git_process::{ChildLimits, VersionError, check_version, lower_priority};
pub use import::{FetchLimits, FetchSource, FetchedRepository};
pub use last_commits::LastCommits;
pub use local_pack::{LocalPack, StagedPack};
pub use maintenance::{PackSize, Repack, Unreachable};
pub use object_files::{FileCheck, FileFault, check_pack};
pub use old_repository::OldRepository;
pub use patch::Whitespace;
pub use peel::Peeled;
pub use quarantine::Quarantine;
pub use ref_files::PACKED_REFS_PUSH_LIMIT;
pub use refs::{Ref, Refs, packed_size_of};
pub use repositories::{FolderGuard, OtherPacks, PACK_EXTENSIONS, PackEntry, PackSource, Repositories};
pub use repository::Repository;
pub use whole_pack::WholePack;
