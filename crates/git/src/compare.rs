//! Comparisons of two commits.

use model::{Oid, objects::Comparison};

use crate::{Repository, Result, diff::empty_tree, repository::gix_id};

/// The maximum number of commits in a comparison, which have to fit into memory; the newest are kept.
const MAX_COMMITS: usize = 10_000;

impl Repository {
    /// Compares two commits: the commits that are reachable from `to` but not from `from`, oldest first, and the diff
    /// from their merge base to `to`. Without a merge base every file of `to` is new.
    pub fn compare(&self, from: Oid, to: Oid) -> Result<Comparison> {
        if from == to {
            return Ok(Comparison { same: true, ..Comparison::default() });
        }
        let mut history = self.history();
        let mut found = history.excluding(to, &[from])?;
        found.reverse();
        if found.is_empty() {
            return Ok(Comparison::default());
        }
        let commits = self.decode_commits(&found[found.len().saturating_sub(MAX_COMMITS)..])?;
        let base = match history.merge_base(from, to)? {
            Some(base) => history.node(base)?.tree,
            None => None,
        };
        let new = history.node(gix_id(to))?.tree.unwrap_or_else(empty_tree);
        let (diffs, is_truncated) = self.diff(base.unwrap_or_else(empty_tree), new)?;
        Ok(Comparison { commits, diffs, is_truncated: is_truncated || found.len() > MAX_COMMITS, same: false })
    }
}
