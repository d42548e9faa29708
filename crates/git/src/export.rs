//! What `.gitattributes` say about archives.

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

const FILE: &[u8] = b".gitattributes";
/// Longer files of attributes are passed over.
const LONGEST_FILE: u64 = 128 * 1024;
/// So are files of attributes in folders below others that have said so much together.
const MOST_BYTES: u64 = 256 * 1024;

/// How an entry is exported.
#[derive(Clone, Copy, Default)]
pub(crate) struct Export {
    pub(crate) is_ignored: bool,
    pub(crate) is_substituted: bool,
}

/// The attributes that hold in the folder that a walk is in.
pub(crate) struct Exports {
    search: Search,
    names: MetadataCollection,
    outcome: Outcome,
    /// How deep the folders lie that have brought attributes, and how many bytes of them.
    depths: Vec<(usize, u64)>,
    depth: usize,
}

impl Exports {
    pub(crate) fn new() -> Result<Self> {
        let mut names = MetadataCollection::default();
        let search = Search::new_globals(std::iter::empty::<&Path>(), &mut Vec::new(), &mut names)?;
        Ok(Self { search, names, outcome: Outcome::default(), depths: Vec::new(), depth: 0 })
    }

    /// Takes in what the folder says that has just been entered. The path ends in a slash, unless it is the root's.
    pub(crate) fn enter(&mut self, repository: &Repository, folder: TreeRefIter<'_>, path: &[u8]) -> Result<()> {
        self.depth += 1;
        let entry =
            folder.filter_map(std::result::Result::ok).find(|entry| entry.filename == FILE && entry.mode.is_blob());
        let Some(entry) = entry else { return Ok(()) };
        let size = repository.header(entry.oid)?.map_or(u64::MAX, |(_, size)| size);
        let known: u64 = self.depths.iter().map(|(_, bytes)| bytes).sum();
        if size > LONGEST_FILE || known + size > MOST_BYTES {
            return Ok(());
        }
        let mut buffer = Vec::new();
        let text = match repository.blob(entry.oid, &mut buffer) {
            Ok(Some(text)) => text,
            Ok(None) | Err(Error::TooLarge(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let source = Path::new(OsStr::from_bytes(&[path, FILE].concat())).to_owned();
        let is_root = path.is_empty();
        self.search.add_patterns_buffer(text, source, Some(Path::new("")), &mut self.names, is_root)?;
        self.outcome.initialize_with_selection(&self.names, ["export-ignore", "export-subst"]);
        self.depths.push((self.depth, size));
        Ok(())
    }

    /// Drops what folders have said that lie deeper than this.
    pub(crate) fn leave(&mut self, depth: usize) {
        self.depth = depth;
        while self.depths.last().is_some_and(|(deepest, _)| *deepest > depth) {
            self.depths.pop();
            self.search.pop_pattern_list();
        }
    }

    /// How an entry of the folder is exported.
    pub(crate) fn of(&mut self, path: &[u8], is_folder: bool) -> Export {
        if self.depths.is_empty() {
            return Export::default();
        }
        self.outcome.reset();
        self.search.pattern_matching_relative_path(path.into(), Case::Sensitive, Some(is_folder), &mut self.outcome);
        let mut states = self.outcome.iter_selected().map(|found| found.assignment.state == StateRef::Set);
        Export { is_ignored: states.next() == Some(true), is_substituted: states.next() == Some(true) }
    }
}
