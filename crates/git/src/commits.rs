//! Commits by name and by history.

use std::{collections::HashMap, sync::Arc};

use gix::{ObjectId, objs::Kind};
use model::{Commit, Oid, RefName};

use crate::{
    Error, Repository, Result, decode,
    history::{CommitMap, CommitQueue, History},
    repository::{gix_id, oid},
};

/// The maximum length of a name of a commit: a full ref name or an id.
const MAX_NAME_LENGTH: usize = 300;
/// The minimum number of digits of an abbreviated id. With fewer, all objects of a repository could be found by trial
/// and error.
pub(crate) const MIN_PREFIX_DIGITS: usize = 7;

/// The maximum total length of the messages in a list of commits; beyond it long messages are truncated.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Messages up to this length are never truncated.
const SHORT_MESSAGE_LENGTH: usize = 256;
/// The maximum number of parents of a commit in a list.
const MAX_PARENTS: usize = 1000;

/// Limits the total size of the commits in one list.
pub struct CommitListBudget {
    remaining: usize,
}

impl Default for CommitListBudget {
    fn default() -> Self {
        Self { remaining: MAX_MESSAGE_BYTES }
    }
}

impl CommitListBudget {
    /// Truncates a commit that would make the list too large.
    pub fn truncate(&mut self, commit: &mut Commit) {
        self.truncate_message(&mut commit.message);
        commit.parents.truncate(MAX_PARENTS);
    }

    /// Truncates a message that would make the list too large.
    pub fn truncate_message(&mut self, message: &mut String) {
        if message.len() > SHORT_MESSAGE_LENGTH.max(self.remaining) {
            *message = decode::truncate_message(message, SHORT_MESSAGE_LENGTH);
        }
        self.remaining = self.remaining.saturating_sub(message.len());
    }
}

/// Selects the commits of a log.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    /// Only commits that change this path.
    pub path: Option<String>,
    /// Only commits with this commit time or later, in seconds.
    pub since: Option<i64>,
    /// Only commits with this commit time or earlier, in seconds.
    pub until: Option<i64>,
    /// The number of commits to skip.
    pub skip: usize,
    /// The maximum number of commits.
    pub limit: usize,
}

impl Repository {
    /// Resolves the name of a commit. The first of these that exists is returned:
    ///
    /// 1. 40 hexadecimal digits: the commit with this id and nothing else, whatever branches and tags are called.
    /// 2. `HEAD`.
    /// 3. A branch of exactly this name, then a tag. Git prefers the tag, but every user who can push can create tags,
    ///    and a tag must not shadow a protected branch.
    /// 4. A full name of a ref, or one below `refs/`: `refs/heads/main`, `heads/main`, `tags/v1`.
    /// 5. The first digits of the id of a commit, at least seven.
    ///
    /// A commit is found by its id only if it is reachable from a visible ref. What a deleted branch or a forced push has
    /// left behind is not found, so that retracted commits stay unreadable.
    ///
    /// The revision syntax of git is not supported: `main~1`, `main^{tree}`, `main@{1}` and `:/text` name nothing. Hidden refs
    /// are not found.
    pub fn resolve(&self, text: &str) -> Result<Option<Oid>> {
        if text.len() > MAX_NAME_LENGTH {
            return Ok(None);
        }
        if let Ok(id) = text.parse() {
            let commit = self.peel_to_commit(id)?;
            return if commit.is_some() && self.is_reachable(id)? { Ok(commit) } else { Ok(None) };
        }
        let refs = self.refs();
        let named = if text == "HEAD" {
            refs.head.as_ref().and_then(|head| refs.find(head))
        } else {
            let below_refs = RefName::new(&format!("refs/{text}"));
            let names = [RefName::branch(text), RefName::tag(text), RefName::new(text), below_refs];
            names.iter().flatten().find_map(|name| refs.find(name))
        };
        if let Some(named) = named {
            return self.peel_to_commit(named.peeled_target());
        }
        Ok(self.find_prefix(text, Kind::Commit)?.map(|id| oid(&id)))
    }

    /// Returns a commit; `None` if there is no such commit.
    pub fn commit(&self, id: Oid) -> Result<Option<Commit>> {
        let id = gix_id(id);
        let mut buffer = Vec::new();
        let commit = self.read_bounded(&id, Kind::Commit, &mut buffer)?;
        Ok(commit.map(|commit| decode::commit(&id, commit)))
    }

    /// Returns whether a commit is an ancestor of another one, or the same.
    pub fn is_ancestor(&self, ancestor: Oid, of: Oid) -> Result<bool> {
        Ok(ancestor == of || self.which_are_ancestors(&[ancestor], of)? == [true])
    }

    /// Returns for each of these commits whether it is the tip or an ancestor of it.
    pub fn which_are_ancestors(&self, candidates: &[Oid], of: Oid) -> Result<Vec<bool>> {
        self.history().which_are_ancestors(candidates, of)
    }

    /// Returns the newest commits that are reachable from `tip` but not from `excluded`, newest first, and their total
    /// number.
    pub fn commits_excluding(&self, tip: Oid, excluded: &[Oid], limit: usize) -> Result<(Vec<Commit>, usize)> {
        let found = self.history().excluding(tip, excluded)?;
        let commits = self.decode_commits(found.iter().take(limit))?;
        Ok((commits, found.len()))
    }

    /// Calls `visit` with the newest commits that are reachable from `tip` but not from `excluded`, newest first. One
    /// at a time, because all their messages together may be far larger than the push.
    pub fn for_each_commit_excluding(
        &self,
        tip: Oid,
        excluded: &[Oid],
        limit: usize,
        mut visit: impl FnMut(Commit),
    ) -> Result<()> {
        for id in self.history().excluding(tip, excluded)?.iter().take(limit) {
            self.decode_commits([id])?.into_iter().for_each(&mut visit);
        }
        Ok(())
    }

    /// Returns a part of the history of a commit, newest first.
    ///
    /// With a path, a commit is included if its entry at the path differs from that of every parent; if a parent has
    /// the same entry, only that parent is followed.
    pub fn log(&self, tip: Oid, query: &LogQuery) -> Result<Vec<Commit>> {
        let mut found = Vec::new();
        let mut to_skip = query.skip;
        self.walk(tip, query, |id| {
            if to_skip > 0 {
                to_skip -= 1;
            } else if found.len() < query.limit {
                found.push(id);
            }
            found.len() < query.limit
        })?;
        self.decode_commits(&found)
    }

    /// Returns the newest commit in the history of `tip` that changed a path.
    pub fn last_commit_of(&self, tip: Oid, path: &str) -> Result<Option<Oid>> {
        let query = LogQuery { path: Some(path.to_owned()), ..LogQuery::default() };
        let mut found = None;
        self.walk(tip, &query, |id| {
            found = Some(oid(&id));
            false
        })?;
        Ok(found)
    }

    /// Decodes the commits of one list, with long messages truncated once the list is large.
    pub(crate) fn decode_commits<'a>(&self, ids: impl IntoIterator<Item = &'a ObjectId>) -> Result<Vec<Commit>> {
        let mut buffer = Vec::new();
        let mut budget = CommitListBudget::default();
        let decode = |id: &ObjectId| {
            let missing = || Error::corrupt(format!("the commit {id} is missing"));
            let commit = self.read_bounded(id, Kind::Commit, &mut buffer)?.ok_or_else(missing)?;
            let mut commit = decode::commit(id, commit);
            budget.truncate(&mut commit);
            Ok(commit)
        };
        ids.into_iter().map(decode).collect()
    }

    /// Calls `visit` with commits, newest first, until it returns `false`.
    fn walk(&self, tip: Oid, query: &LogQuery, mut visit: impl FnMut(ObjectId) -> bool) -> Result<()> {
        let mut history = self.history();
        let mut queue = CommitQueue::default();
        let path = query.path.as_deref().map(|path| path.trim_matches('/')).filter(|path| !path.is_empty());
        let mut path_history = PathHistory::new(self, path);
        let tip = gix_id(tip);
        queue.push(tip, history.node(tip)?.seconds);
        while let Some(id) = queue.pop() {
            let node = history.node(id)?;
            // The ancestors of a commit before `since` are older still.
            if query.since.is_some_and(|since| node.seconds < since) {
                continue;
            }
            let unchanged = path_history.unchanged_parent(id, &mut history)?;
            let followed = unchanged.as_ref().map_or(&node.parents[..], std::slice::from_ref);
            for parent in followed {
                queue.push(*parent, history.node(*parent)?.seconds);
            }
            let shown =
                path_history.touches_path(id, &mut history)? && query.until.is_none_or(|until| node.seconds <= until);
            if shown && unchanged.is_none() && !visit(id) {
                break;
            }
        }
        Ok(())
    }
}

/// The mode and the object of a tree entry.
pub(crate) type EntryAtPath = Option<(u16, ObjectId)>;

/// The entry at one path in several commits.
pub(crate) struct PathHistory<'a> {
    repository: &'a Repository,
    path: Option<Arc<str>>,
    known: CommitMap<EntryAtPath>,
    /// Entries of folders on the path, by folder and by the length of the rest of the path.
    folders: HashMap<(ObjectId, usize), EntryAtPath>,
}

impl<'a> PathHistory<'a> {
    pub(crate) fn new(repository: &'a Repository, path: Option<&str>) -> Self {
        Self { repository, path: path.map(Arc::from), known: CommitMap::default(), folders: HashMap::new() }
    }

    /// Returns whether the path is that of the root folder.
    pub(crate) fn is_root(&self) -> bool {
        self.path.is_none()
    }

    /// Returns the first parent with the same entry at the path; `None` if there is none, or no path is given.
    fn unchanged_parent(&mut self, id: ObjectId, history: &mut History<'_>) -> Result<Option<ObjectId>> {
        if self.path.is_none() {
            return Ok(None);
        }
        let here = self.at(id, history)?;
        for parent in &history.node(id)?.parents {
            if self.at(*parent, history)? == here {
                return Ok(Some(*parent));
            }
        }
        Ok(None)
    }

    /// Returns whether a commit that differs from all its parents has an entry to show. Only root commits have no
    /// parents to differ from.
    fn touches_path(&mut self, id: ObjectId, history: &mut History<'_>) -> Result<bool> {
        Ok(self.path.is_none() || !history.node(id)?.parents.is_empty() || self.at(id, history)?.is_some())
    }

    /// Returns the entry at the path in a commit.
    pub(crate) fn at(&mut self, id: ObjectId, history: &mut History<'_>) -> Result<EntryAtPath> {
        if let Some(entry) = self.known.get(&id) {
            return Ok(*entry);
        }
        let entry = match (history.node(id)?.tree, self.path.clone()) {
            (Some(tree), Some(path)) => self.below(tree, &path)?,
            _ => None,
        };
        self.known.insert(id, entry);
        Ok(entry)
    }

    /// Returns the entry at a path below a tree. Most commits share most folders, so each folder is read once.
    fn below(&mut self, tree: ObjectId, path: &str) -> Result<EntryAtPath> {
        let (mut folder, mut left) = (tree, path);
        loop {
            let (part, rest) = left.split_once('/').map_or((left, None), |(part, rest)| (part, Some(rest)));
            let key = (folder, left.len());
            let entry = match self.folders.get(&key) {
                Some(entry) => *entry,
                None => self.repository.lookup(folder, part)?.map(|entry| (entry.mode, entry.id)),
            };
            self.folders.insert(key, entry);
            match (rest, entry) {
                (None, entry) => return Ok(entry),
                (Some(rest), Some((0o040_000, inner))) => (folder, left) = (inner, rest),
                (Some(_), _) => return Ok(None),
            }
        }
    }
}
