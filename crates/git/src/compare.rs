//! What lies between two commits.

use model::{Oid, objects::Comparison};

use crate::{Repository, Result, diff::empty_tree, repository::gix_id};

/// How many commits are shown at most, the newest of them. Nobody reads as many, but they have to fit into memory.
const MOST_COMMITS: usize = 10_000;

impl Repository {
    /// What `to` has that `from` lacks: commits, oldest first, and how files differ from where the two parted. If they
    /// have no past in common, every file of `to` is new.
    pub fn compare(&self, from: Oid, to: Oid) -> Result<Comparison> {
        if from == to {
            return Ok(Comparison { same: true, ..Comparison::default() });
        }
        let mut history = self.history();
        let mut found = history.beyond(to, &[from])?;
        found.reverse();
        if found.is_empty() {
            return Ok(Comparison::default());
        }
        let commits = self.decode_commits(&found[found.len().saturating_sub(MOST_COMMITS)..])?;
        let base = match history.merge_base(from, to)? {
            Some(base) => history.node(base)?.tree,
            None => None,
        };
        let new = history.node(gix_id(to))?.tree.unwrap_or_else(empty_tree);
        let (diffs, overflows) = self.diff(base.unwrap_or_else(empty_tree), new)?;
        Ok(Comparison { commits, diffs, overflows: overflows || found.len() > MOST_COMMITS, same: false })
    }
}
