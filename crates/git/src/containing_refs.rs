//! Which branches and tags contain a commit.

use std::time::Duration;

use model::Oid;

use crate::{Ref, Repository, Result, deadline::SoftDeadline};

/// The time after which no more refs are checked.
const TIMEOUT: Duration = Duration::from_millis(20);
/// The maximum number of commits outside the commit-graph that are read for a ref.
const MAX_READS: usize = 2000;

/// The branches and tags that contain a commit, as far as they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainingRefs {
    /// The names of branches.
    pub branches: Vec<String>,
    /// The names of tags.
    pub tags: Vec<String>,
    /// Whether all refs were checked.
    pub is_complete: bool,
}

impl Repository {
    /// Returns the first branches and tags that contain a commit: at most `limit` of each, found in a short time.
    pub fn refs_containing(&self, commit: Oid, limit: usize) -> Result<ContainingRefs> {
        let soft_deadline = SoftDeadline::within(TIMEOUT);
        let mut history = self.history();
        let mut is_complete = true;
        let mut containing = |refs: &[Ref]| -> Result<Vec<String>> {
            let mut names = Vec::new();
            for reference in refs {
                if names.len() == limit || soft_deadline.has_passed() {
                    is_complete = false;
                    break;
                }
                let tip = reference.peeled_target();
                // A tag may point to something else than a commit.
                if self.commit(tip)?.is_none() {
                    continue;
                }
                match history.which_are_ancestors_bounded(&[commit], &[tip], MAX_READS)? {
                    Some(found) if found == [true] => names.push(reference.name.short().to_owned()),
                    Some(_) => {}
                    None => is_complete = false,
                }
            }
            Ok(names)
        };
        let refs = self.refs();
        let (branches, tags) = (containing(&refs.branches)?, containing(&refs.tags)?);
        Ok(ContainingRefs { branches, tags, is_complete })
    }
}
