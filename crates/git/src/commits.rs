//! Commits: by name, by history.

use std::collections::HashMap;

use gix::{ObjectId, objs::Kind};
use model::{Commit, Oid, RefName};

use crate::{
    Error, Repository, Result, decode,
    history::{CommitMap, History, Newest},
    repository::{gix_id, oid},
};

/// The longest text that can name a commit: a full name of a ref, or an id.
const LONGEST_NAME: usize = 300;
/// The least number of digits by which an object is named. With fewer, all objects of a repository could be found by trying
/// the few combinations there are.
pub(crate) const FEWEST_DIGITS: usize = 7;

/// How many bytes of messages a list of commits shows before long ones are cut.
const LISTED_MESSAGES: usize = 1 << 20;
/// Messages up to this length are never cut.
const SHORT_MESSAGE: usize = 256;
/// How many parents of a commit a list shows.
const LISTED_PARENTS: usize = 1000;

/// How much the commits of one list have said so far.
pub struct ListedCommits {
    room: usize,
}

impl Default for ListedCommits {
    fn default() -> Self {
        Self { room: LISTED_MESSAGES }
    }
}

impl ListedCommits {
    /// Cuts what would make a list too long.
    pub fn fit(&mut self, commit: &mut Commit) {
        self.fit_message(&mut commit.message);
        commit.parents.truncate(LISTED_PARENTS);
    }

    /// Cuts a message that would make a list too long.
    pub fn fit_message(&mut self, message: &mut String) {
        if message.len() > SHORT_MESSAGE.max(self.room) {
            *message = decode::cut(message, SHORT_MESSAGE);
        }
        self.room = self.room.saturating_sub(message.len());
    }
}

/// Which commits a list shows.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    /// Only those that touch this path.
    pub path: Option<String>,
    /// Only those committed at this second or later.
    pub since: Option<i64>,
    /// Only those committed at this second or earlier.
    pub until: Option<i64>,
    /// How many are left out at the start.
    pub skip: usize,
    /// How many are shown at most.
    pub limit: usize,
}

impl Repository {
    /// The commit that a text names. The first of these that exists is meant:
    ///
    /// 1. 40 hexadecimal digits: the commit with this id and nothing else, whatever branches and tags are called.
    /// 2. `HEAD`.
    /// 3. A branch of exactly this name, then a tag. Git prefers the tag, but anybody who can push can create tags, and
    ///    a tag must not take the place of a protected branch.
    /// 4. A full name of a ref, or one below `refs/`: `refs/heads/main`, `heads/main`, `tags/v1`.
    /// 5. The first digits of the id of a commit, at least seven.
    ///
    /// A commit is found by its id only if a visible ref leads to it. What a deleted branch or a forced push has left behind
    /// is not, so that what was taken back stays so.
    ///
    /// There is no syntax for revisions: `main~1`, `main^{tree}`, `main@{1}` and `:/text` name nothing. Hidden refs are
    /// not found.
    pub fn resolve(&self, text: &str) -> Result<Option<Oid>> {
        if text.len() > LONGEST_NAME {
            return Ok(None);
        }
        if let Ok(id) = text.parse() {
            let commit = self.peel_to_commit(id)?;
            return if commit.is_some() && self.is_reachable(id)? { Ok(commit) } else { Ok(None) };
        }
        let refs = self.refs()?;
        let named = if text == "HEAD" {
            refs.head.as_ref().and_then(|head| refs.find(head))
        } else {
            let below_refs = RefName::new(&format!("refs/{text}"));
            let names = [RefName::branch(text), RefName::tag(text), RefName::new(text), below_refs];
            names.iter().flatten().find_map(|name| refs.find(name))
        };
        if let Some(named) = named {
            return self.peel_to_commit(named.leads_to());
        }
        Ok(self.find_prefix(text, Kind::Commit)?.map(|id| oid(&id)))
    }

    /// A commit; `None` if there is no such commit.
    pub fn commit(&self, id: Oid) -> Result<Option<Commit>> {
        let id = gix_id(id);
        let mut buffer = Vec::new();
        let commit = self.start_of(&id, Kind::Commit, &mut buffer)?;
        Ok(commit.map(|commit| decode::commit(&id, commit)))
    }

    /// Whether the one commit is the other, or lies in its past.
    pub fn is_ancestor(&self, ancestor: Oid, of: Oid) -> Result<bool> {
        Ok(ancestor == of || self.which_are_ancestors(&[ancestor], of)? == [true])
    }

    /// Which of these commits are the tip or lie in its past, in the order given.
    pub fn which_are_ancestors(&self, candidates: &[Oid], of: Oid) -> Result<Vec<bool>> {
        self.history().which_are_ancestors(candidates, of)
    }

    /// The newest commits that one commit has and the others lack, newest first, and how many there are in all.
    pub fn commits_beyond(&self, tip: Oid, without: &[Oid], newest: usize) -> Result<(Vec<Commit>, usize)> {
        let found = self.history().beyond(tip, without)?;
        let commits = self.decode_commits(found.iter().take(newest))?;
        Ok((commits, found.len()))
    }

    /// Hands out the newest commits that one commit has and the others lack, newest first and one at a time: all of
    /// their messages at once may be far more than was sent.
    pub fn each_beyond(&self, tip: Oid, without: &[Oid], newest: usize, mut show: impl FnMut(Commit)) -> Result<()> {
        for id in self.history().beyond(tip, without)?.iter().take(newest) {
            self.decode_commits([id])?.into_iter().for_each(&mut show);
        }
        Ok(())
    }

    /// A part of the history of a commit, newest first.
    ///
    /// With a path, a commit is shown if it differs there from everything it builds upon; where it is the same as one
    /// of them, only that one is followed.
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

    /// The newest commit in the past of this one that touched a path.
    pub fn last_commit_of(&self, tip: Oid, path: &str) -> Result<Option<Oid>> {
        let query = LogQuery { path: Some(path.to_owned()), ..LogQuery::default() };
        let mut found = None;
        self.walk(tip, &query, |id| {
            found = Some(oid(&id));
            false
        })?;
        Ok(found)
    }

    /// Commits for one list. Once their messages are long enough together, the others are cut.
    pub(crate) fn decode_commits<'a>(&self, ids: impl IntoIterator<Item = &'a ObjectId>) -> Result<Vec<Commit>> {
        let mut buffer = Vec::new();
        let mut listed = ListedCommits::default();
        let decode = |id: &ObjectId| {
            let missing = || Error::Broken(format!("the commit {id} is missing"));
            let commit = self.start_of(id, Kind::Commit, &mut buffer)?.ok_or_else(missing)?;
            let mut commit = decode::commit(id, commit);
            listed.fit(&mut commit);
            Ok(commit)
        };
        ids.into_iter().map(decode).collect()
    }

    /// Hands out commits, newest first, until `show` has had enough.
    fn walk(&self, tip: Oid, query: &LogQuery, mut show: impl FnMut(ObjectId) -> bool) -> Result<()> {
        let mut history = self.history();
        let mut newest = Newest::default();
        let path = query.path.as_deref().map(|path| path.trim_matches('/')).filter(|path| !path.is_empty());
        let mut places = Places { repository: self, path, known: CommitMap::default(), folders: HashMap::new() };
        let tip = gix_id(tip);
        newest.push(tip, history.node(tip)?.seconds);
        while let Some(id) = newest.pop() {
            let node = history.node(id)?;
            // What lies before the time asked for lies behind us; its past is older still.
            if query.since.is_some_and(|since| node.seconds < since) {
                continue;
            }
            let same = places.parent_like(id, &mut history)?;
            let followed = same.as_ref().map_or(&node.parents[..], std::slice::from_ref);
            for parent in followed {
                newest.push(*parent, history.node(*parent)?.seconds);
            }
            let shown =
                places.is_touched_by(id, &mut history)? && query.until.is_none_or(|until| node.seconds <= until);
            if shown && same.is_none() && !show(id) {
                break;
            }
        }
        Ok(())
    }
}

/// What an entry of a tree is: its mode and its object.
type Place = Option<(u16, ObjectId)>;

/// What lies at one path in several commits.
struct Places<'a> {
    repository: &'a Repository,
    path: Option<&'a str>,
    known: CommitMap<Place>,
    /// What folders hold of the path, by how much of it is left.
    folders: HashMap<(ObjectId, usize), Place>,
}

impl Places<'_> {
    /// The first of the parents where the same lies at the path; `None` if it lies at none, or if there is no path.
    fn parent_like(&mut self, id: ObjectId, history: &mut History<'_>) -> Result<Option<ObjectId>> {
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

    /// Whether a commit that differs from all its parents does so by something that is there. Only the first commits of
    /// a history have nothing to differ from.
    fn is_touched_by(&mut self, id: ObjectId, history: &mut History<'_>) -> Result<bool> {
        Ok(self.path.is_none() || !history.node(id)?.parents.is_empty() || self.at(id, history)?.is_some())
    }

    fn at(&mut self, id: ObjectId, history: &mut History<'_>) -> Result<Place> {
        if let Some(place) = self.known.get(&id) {
            return Ok(*place);
        }
        let place = match (history.node(id)?.tree, self.path) {
            (Some(tree), Some(path)) => self.below(tree, path)?,
            _ => None,
        };
        self.known.insert(id, place);
        Ok(place)
    }

    /// What lies at a path below a tree. Most commits share most of their folders, so each folder is looked at once.
    fn below(&mut self, tree: ObjectId, path: &str) -> Result<Place> {
        let (mut folder, mut left) = (tree, path);
        loop {
            let (part, rest) = left.split_once('/').map_or((left, None), |(part, rest)| (part, Some(rest)));
            let key = (folder, left.len());
            let place = match self.folders.get(&key) {
                Some(place) => *place,
                None => self.repository.lookup(folder, part)?.map(|entry| (entry.mode, entry.id)),
            };
            self.folders.insert(key, place);
            match (rest, place) {
                (None, place) => return Ok(place),
                (Some(rest), Some((0o040_000, inner))) => (folder, left) = (inner, rest),
                (Some(_), _) => return Ok(None),
            }
        }
    }
}
