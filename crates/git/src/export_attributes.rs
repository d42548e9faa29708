//! The `.gitattributes` that apply to archives.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use gix::{
    attrs::{
        Search, StateRef,
        search::{MetadataCollection, Outcome},
    },
    glob::pattern::Case,
    objs::TreeRefIter,
};

use crate::{Error, Repository, Result};

const ATTRIBUTES_FILE: &[u8] = b".gitattributes";
/// Larger attribute files are ignored.
const MAX_FILE_SIZE: u64 = 128 * 1024;
/// Attribute files beyond this total size on one path are ignored.
const MAX_TOTAL_BYTES: u64 = 256 * 1024;

/// The export attributes of an entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExportAttributes {
    pub(crate) is_ignored: bool,
    pub(crate) is_substituted: bool,
}

/// The attributes that apply in the current folder of a walk.
pub(crate) struct AttributeStack {
    search: Search,
    names: MetadataCollection,
    outcome: Outcome,
    /// The depth and the size of each attribute file in use.
    depths: Vec<(usize, u64)>,
    depth: usize,
}

impl AttributeStack {
    pub(crate) fn new() -> Result<Self> {
        let mut names = MetadataCollection::default();
        let search = Search::new_globals(std::iter::empty::<&Path>(), &mut Vec::new(), &mut names)?;
        Ok(Self { search, names, outcome: Outcome::default(), depths: Vec::new(), depth: 0 })
    }

    /// Adds the attributes of a folder that was just entered. Its path ends in a slash, except for that of the root.
    pub(crate) fn enter(&mut self, repository: &Repository, folder: TreeRefIter<'_>, path: &[u8]) -> Result<()> {
        self.depth += 1;
        let entry = folder
            .filter_map(std::result::Result::ok)
            .find(|entry| entry.filename == ATTRIBUTES_FILE && entry.mode.is_blob());
        let Some(entry) = entry else { return Ok(()) };
        let size = repository.header(entry.oid)?.map_or(u64::MAX, |(_, size)| size);
        let total: u64 = self.depths.iter().map(|(_, bytes)| bytes).sum();
        if size > MAX_FILE_SIZE || total + size > MAX_TOTAL_BYTES {
            return Ok(());
        }
        let mut buffer = Vec::new();
        let text = match repository.blob(entry.oid, &mut buffer) {
            Ok(Some(text)) => text,
            Ok(None) | Err(Error::TooLarge(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let source = Path::new(OsStr::from_bytes(&[path, ATTRIBUTES_FILE].concat())).to_owned();
        let is_root = path.is_empty();
        self.search.add_patterns_buffer(text, source, Some(Path::new("")), &mut self.names, is_root)?;
        self.outcome.initialize_with_selection(&self.names, ["export-ignore", "export-subst"]);
        self.depths.push((self.depth, size));
        Ok(())
    }

    /// Removes the attributes of folders deeper than this.
    pub(crate) fn leave(&mut self, depth: usize) {
        self.depth = depth;
        while self.depths.last().is_some_and(|(deepest, _)| *deepest > depth) {
            self.depths.pop();
            self.search.pop_pattern_list();
        }
    }

    /// Returns the export attributes of an entry of the current folder.
    pub(crate) fn attributes_of(&mut self, path: &[u8], is_folder: bool) -> ExportAttributes {
        if self.depths.is_empty() {
            return ExportAttributes::default();
        }
        self.outcome.reset();
        self.search.pattern_matching_relative_path(path.into(), Case::Sensitive, Some(is_folder), &mut self.outcome);
        let mut states = self.outcome.iter_selected().map(|found| found.assignment.state == StateRef::Set);
        ExportAttributes { is_ignored: states.next() == Some(true), is_substituted: states.next() == Some(true) }
    }
}
