//! Comparisons of two commits.

use model::{Oid, objects::Comparison};

use crate::{
    Repository, Result,
    diff::empty_tree,
    patch::Whitespace,
    repository::{gix_id, oid},
};

/// The maximum number of commits in a comparison, which have to fit into memory; the newest are kept.
const MAX_COMMITS: usize = 10_000;

impl Repository {
    /// Compares two commits: the commits that are reachable from `to` but not from `from`, oldest first, and the diff
    /// from their merge base to `to`. Without a merge base every file of `to` is new.
    pub fn compare(&self, from: Oid, to: Oid) -> Result<Comparison> {
        Ok(self.compare_with(from, to, Whitespace::Significant)?.0)
    }

    /// Like [`Self::compare`], with the choice to ignore white space; also returns the merge base.
    pub fn compare_with(&self, from: Oid, to: Oid, whitespace: Whitespace) -> Result<(Comparison, Option<Oid>)> {
        if from == to {
            return Ok((Comparison { same: true, ..Comparison::default() }, Some(from)));
        }
        let mut history = self.history();
        let mut found = history.excluding(to, &[from])?;
        found.reverse();
        if found.is_empty() {
            return Ok((Comparison::default(), None));
        }
        let commits = self.decode_commits(&found[found.len().saturating_sub(MAX_COMMITS)..])?;
        let base_commit = history.merge_base(from, to)?;
        let base = match base_commit {
            Some(base) => history.node(base)?.tree,
            None => None,
        };
        let new = history.node(gix_id(to))?.tree.unwrap_or_else(empty_tree);
        let (diffs, _, is_truncated) = self.diff(base.unwrap_or_else(empty_tree), new, whitespace)?;
        let is_truncated = is_truncated || found.len() > MAX_COMMITS;
        let comparison = Comparison { commits, diffs, is_truncated, same: false };
        Ok((comparison, base_commit.map(|id| oid(&id))))
    }
}
