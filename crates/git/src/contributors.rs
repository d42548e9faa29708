//! Who wrote the commits of a branch.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use gix::{ObjectId, objs::Kind};
use model::{Oid, objects::Contributor};

use crate::{
    Error, Repository, Result,
    decode::Parts,
    history::{CommitMap, Newest},
    repository::gix_id,
};

/// How many commits are counted, from the newest on.
const NEWEST: usize = 2000;

/// How many parents commits may have together before counting ends; only a history that is made to annoy has as many.
const MOST_LINKS: usize = 500_000;
/// How many parents, and how many bytes of names and addresses, are remembered for the next time.
const KEPT_LINKS: usize = 20_000;
const KEPT_TEXTS: usize = 256 << 10;

/// Who wrote the commits that were last counted. When the branch has moved on, the walk begins anew at its tip, but
/// only commits that were not known are read; so an update costs what is new, and can never disagree with a recount.
#[derive(Default)]
pub(crate) struct Authors {
    counted: Option<(ObjectId, Arc<[Contributor]>)>,
    commits: Arc<CommitMap<Arc<Known>>>,
}

/// What counting has to know about a commit.
struct Known {
    parents: Box<[ObjectId]>,
    seconds: i64,
    name: Arc<str>,
    email: Arc<str>,
}

impl Repository {
    /// Who wrote the newest commits that are no merges, the author of the newest first.
    pub fn contributors(&self, tip: Oid) -> Result<Vec<Contributor>> {
        let tip = gix_id(tip);
        let known = {
            let authors = self.handle.authors();
            match &authors.counted {
                Some((counted, contributors)) if *counted == tip => return Ok(contributors.to_vec()),
                _ => Arc::clone(&authors.commits),
            }
        };
        let mut walk =
            Walk { repository: self, before: &known, commits: CommitMap::default(), texts: HashMap::new(), links: 0 };
        let contributors: Arc<[_]> = walk.count(tip)?.into();
        // What takes much memory is counted anew each time.
        if walk.links <= KEPT_LINKS && walk.texts.keys().map(String::len).sum::<usize>() <= KEPT_TEXTS {
            let commits = Arc::new(walk.commits);
            *self.handle.authors() = Authors { counted: Some((tip, Arc::clone(&contributors))), commits };
        }
        Ok(contributors.to_vec())
    }
}

struct Walk<'a> {
    repository: &'a Repository,
    /// What was known before.
    before: &'a CommitMap<Arc<Known>>,
    /// What is known now: the commits of this walk and no others, so that what is kept does not grow.
    commits: CommitMap<Arc<Known>>,
    texts: HashMap<String, Arc<str>>,
    /// How many parents all these commits have.
    links: usize,
}

impl Walk<'_> {
    fn count(&mut self, tip: ObjectId) -> Result<Vec<Contributor>> {
        let mut contributors: Vec<Contributor> = Vec::new();
        let mut places: HashMap<Arc<str>, usize> = HashMap::new();
        let mut newest = Newest::default();
        let mut counted = 0;
        newest.push(tip, self.look_at(tip)?.seconds);
        while counted < NEWEST
            && self.links < MOST_LINKS
            && let Some(id) = newest.pop()
        {
            let commit = self.look_at(id)?;
            for parent in &commit.parents {
                newest.push(*parent, self.look_at(*parent)?.seconds);
            }
            if commit.parents.len() > 1 {
                continue;
            }
            counted += 1;
            let place = *places.entry(Arc::clone(&commit.email)).or_insert_with(|| {
                contributors.push(Contributor { name: String::new(), email: commit.email.to_string(), commits: 0 });
                contributors.len() - 1
            });
            let contributor = &mut contributors[place];
            contributor.commits += 1;
            if contributor.name.is_empty() && !commit.name.trim().is_empty() {
                contributor.name = commit.name.to_string();
            }
        }
        Ok(contributors)
    }

    fn look_at(&mut self, id: ObjectId) -> Result<Arc<Known>> {
        if let Some(known) = self.commits.get(&id) {
            return Ok(Arc::clone(known));
        }
        let known = match self.before.get(&id) {
            Some(known) => Arc::clone(known),
            None => Arc::new(self.read(id)?),
        };
        self.links += known.parents.len();
        self.commits.insert(id, Arc::clone(&known));
        Ok(known)
    }

    fn read(&mut self, id: ObjectId) -> Result<Known> {
        let mut buffer = Vec::new();
        let commit = self.repository.start_of(&id, Kind::Commit, &mut buffer)?;
        let commit = commit.ok_or_else(|| Error::Broken(format!("the commit {id} is missing")))?;
        let parts = Parts::of(commit.data);
        let author = parts.author();
        let seconds = parts.seconds();
        let (name, email) = (self.shared(author.name), self.shared(author.email));
        Ok(Known { parents: parts.parents.into(), seconds, name, email })
    }

    /// A text that is kept once, however many commits have it.
    fn shared(&mut self, text: String) -> Arc<str> {
        match self.texts.entry(text) {
            Entry::Occupied(kept) => Arc::clone(kept.get()),
            Entry::Vacant(place) => {
                let text = Arc::from(place.key().as_str());
                Arc::clone(place.insert(text))
            }
        }
    }
}
