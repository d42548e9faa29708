//! The contributors of a branch.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use gix::{ObjectId, objs::Kind};
use model::{Oid, objects::Contributor};

use crate::{
    Error, Repository, Result,
    decode::CommitParts,
    history::{CommitMap, CommitQueue},
    repository::gix_id,
};

/// The maximum number of commits that are counted, from the newest on.
const MAX_COUNTED_COMMITS: usize = 2000;

/// The maximum total number of parents before counting stops; only a crafted history has as many.
const MAX_PARENT_LINKS: usize = 500_000;
/// The maximum number of parents, and of bytes of names and addresses, that are cached.
const MAX_CACHED_LINKS: usize = 20_000;
const MAX_CACHED_TEXT_BYTES: usize = 256 << 10;

/// The result of the last count. When the branch has moved, the walk starts again at its tip but reads only new
/// commits; so an update costs what is new, and always agrees with a recount.
#[derive(Default)]
pub(crate) struct ContributorCache {
    counted: Option<(ObjectId, Arc<[Contributor]>)>,
    commits: Arc<CommitMap<Arc<CommitAuthor>>>,
}

/// The data of a commit that counting needs.
struct CommitAuthor {
    parents: Box<[ObjectId]>,
    seconds: i64,
    name: Arc<str>,
    email: Arc<str>,
}

impl Repository {
    /// Returns the authors of the newest commits without merges, the author of the newest commit first.
    pub fn contributors(&self, tip: Oid) -> Result<Vec<Contributor>> {
        let tip = gix_id(tip);
        let cached = {
            let cache = self.handle.contributor_cache();
            match &cache.counted {
                Some((counted, contributors)) if *counted == tip => return Ok(contributors.to_vec()),
                _ => Arc::clone(&cache.commits),
            }
        };
        let mut walk = ContributorWalk {
            repository: self,
            cached: &cached,
            commits: CommitMap::default(),
            texts: HashMap::new(),
            links: 0,
        };
        let contributors: Arc<[_]> = walk.count(tip)?.into();
        // Results that take much memory are not cached.
        if walk.links <= MAX_CACHED_LINKS && walk.texts.keys().map(String::len).sum::<usize>() <= MAX_CACHED_TEXT_BYTES
        {
            let commits = Arc::new(walk.commits);
            *self.handle.contributor_cache() =
                ContributorCache { counted: Some((tip, Arc::clone(&contributors))), commits };
        }
        Ok(contributors.to_vec())
    }
}

struct ContributorWalk<'a> {
    repository: &'a Repository,
    /// The commits of the last count.
    cached: &'a CommitMap<Arc<CommitAuthor>>,
    /// The commits of this walk and no others, so that the cache does not grow.
    commits: CommitMap<Arc<CommitAuthor>>,
    texts: HashMap<String, Arc<str>>,
    /// The total number of parents of these commits.
    links: usize,
}

impl ContributorWalk<'_> {
    fn count(&mut self, tip: ObjectId) -> Result<Vec<Contributor>> {
        let mut contributors: Vec<Contributor> = Vec::new();
        let mut indexes: HashMap<Arc<str>, usize> = HashMap::new();
        let mut queue = CommitQueue::default();
        let mut counted = 0;
        queue.push(tip, self.load_commit(tip)?.seconds);
        while counted < MAX_COUNTED_COMMITS
            && self.links < MAX_PARENT_LINKS
            && let Some(id) = queue.pop()
        {
            let commit = self.load_commit(id)?;
            for parent in &commit.parents {
                queue.push(*parent, self.load_commit(*parent)?.seconds);
            }
            if commit.parents.len() > 1 {
                continue;
            }
            counted += 1;
            let index = *indexes.entry(Arc::clone(&commit.email)).or_insert_with(|| {
                contributors.push(Contributor { name: String::new(), email: commit.email.to_string(), commits: 0 });
                contributors.len() - 1
            });
            let contributor = &mut contributors[index];
            contributor.commits += 1;
            if contributor.name.is_empty() && !commit.name.trim().is_empty() {
                contributor.name = commit.name.to_string();
            }
        }
        Ok(contributors)
    }

    fn load_commit(&mut self, id: ObjectId) -> Result<Arc<CommitAuthor>> {
        if let Some(commit) = self.commits.get(&id) {
            return Ok(Arc::clone(commit));
        }
        let commit = match self.cached.get(&id) {
            Some(commit) => Arc::clone(commit),
            None => Arc::new(self.read(id)?),
        };
        self.links += commit.parents.len();
        self.commits.insert(id, Arc::clone(&commit));
        Ok(commit)
    }

    fn read(&mut self, id: ObjectId) -> Result<CommitAuthor> {
        let mut buffer = Vec::new();
        let commit = self.repository.read_bounded(&id, Kind::Commit, &mut buffer)?;
        let commit = commit.ok_or_else(|| Error::corrupt(format!("the commit {id} is missing")))?;
        let parts = CommitParts::parse(commit.data);
        let author = parts.author();
        let seconds = parts.seconds();
        let (name, email) = (self.intern(author.name), self.intern(author.email));
        Ok(CommitAuthor { parents: parts.parents.into(), seconds, name, email })
    }

    /// Returns a shared copy of a text.
    fn intern(&mut self, text: String) -> Arc<str> {
        match self.texts.entry(text) {
            Entry::Occupied(existing) => Arc::clone(existing.get()),
            Entry::Vacant(vacant) => {
                let text = Arc::from(vacant.key().as_str());
                Arc::clone(vacant.insert(text))
            }
        }
    }
}
