//! Whether everything that a push makes reachable was sent with it or could be reached before.
//!
//! A repository keeps objects that no ref leads to any more, and `git index-pack --strict` accepts links to them, because
//! they exist. Without this check a client that knows the id of a deleted object could link to it and read it afterwards.
//! Deltas from objects that were not sent are never put together: whether that works would tell what is in the object.
//!
//! The check reads the commits and trees that were sent, and of the repository only the folders that the push has changed;
//! what is not found there is looked up among everything that is reachable.

use std::{
    collections::{BTreeSet, HashSet},
    path::Path,
    time::{Duration, Instant},
};

use gix::{
    ObjectId,
    hashtable::hash::Builder,
    objs::{Kind, TreeRefIter},
    odb::pack,
};
use model::Oid;

use crate::{
    Error, Repository, Result,
    decode::Parts,
    limits::Buffer,
    packs,
    repository::{gix_id, oid},
};

/// The time after which reading what was sent is given up.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// The time for which a push waits until it is known what is reachable. What was found out until then is kept, so the next
/// push of the same objects continues from there.
const LONGEST_LOOKUP: Duration = Duration::from_secs(2 * 60);
/// How many bytes of trees of the parents of what was sent are read before everything that is reachable is asked instead.
const MOST_PARENT_BYTES: usize = 256 << 20;
const TOO_LONG: &str = "it takes too long to check what the pushed objects lead to; push fewer commits at a time";

/// A set of ids.
type Ids = HashSet<ObjectId, Builder>;

/// The objects that a client has sent, or that were written on its behalf.
pub struct Sent {
    packs: Vec<pack::index::File>,
    written: Ids,
}

impl Sent {
    /// What lies in a folder of packs, and what was written one by one.
    pub(crate) fn read(packs: &Path, written: &[Oid]) -> Result<Self> {
        let mut sent = Self { packs: Vec::new(), written: written.iter().map(|id| gix_id(*id)).collect() };
        for path in packs::indices(packs)? {
            sent.packs.push(pack::index::File::at(&path, gix::hash::Kind::Sha1).map_err(Error::broken)?);
        }
        Ok(sent)
    }

    /// Whether an object was sent, whether or not the repository has it as well.
    pub fn contains(&self, id: Oid) -> bool {
        self.has(&gix_id(id))
    }

    fn has(&self, id: &gix::oid) -> bool {
        self.written.contains(id) || self.packs.iter().any(|pack| pack.lookup(id).is_some())
    }

    /// The objects that were not sent and that have to be reachable for the push to be whole: what these tips lead to.
    /// `objects` is the repository together with what was sent.
    ///
    /// Objects that were written one by one are built from reachable ones and need no check.
    pub fn find_links(&self, objects: &Repository, tips: impl IntoIterator<Item = Oid>) -> Result<Vec<Oid>> {
        if self.packs.is_empty() {
            return Ok(Vec::new());
        }
        let mut walk = Walk::new(self, objects);
        walk.follow(tips)?;
        let found = walk.find_in_parents(&walk.contents)?;
        // What is found in the parents is reachable if they are.
        let rest = walk.contents.difference(&found).chain(&walk.parents);
        Ok(rest.map(|id| oid(id)).collect())
    }
}

impl Repository {
    /// Which of these objects cannot be reached from a visible ref, in order. As [`Self::which_are_reachable`], but waits
    /// longer until that is known, and costs almost nothing if they are what the refs point to.
    pub fn find_unreachable(&self, mut ids: Vec<Oid>) -> Result<BTreeSet<Oid>> {
        let refs = self.refs()?;
        let tips: HashSet<Oid> = refs.iter().flat_map(|one| [one.target, one.leads_to()]).collect();
        ids.retain(|id| !tips.contains(id));
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let start = Instant::now();
        let reachable = loop {
            match self.which_are_reachable(&ids) {
                Err(Error::Indexing | Error::Busy) if start.elapsed() < LONGEST_LOOKUP => {}
                answer => break answer?,
            }
        };
        Ok(ids.into_iter().zip(reachable).filter(|(_, reachable)| !reachable).map(|(id, _)| id).collect())
    }
}

/// A walk over what was sent, which ends where something begins that was not.
struct Walk<'a> {
    sent: &'a Sent,
    objects: &'a Repository,
    until: Instant,
    seen: Ids,
    /// Commits and trees that are still to be read.
    commits: Vec<ObjectId>,
    trees: Vec<ObjectId>,
    /// Commits that were not sent and that something that was sent leads to.
    parents: Ids,
    /// The same of trees, blobs and tags.
    contents: Ids,
    buffer: Vec<u8>,
    tree: Buffer,
}

impl<'a> Walk<'a> {
    fn new(sent: &'a Sent, objects: &'a Repository) -> Self {
        Self {
            sent,
            objects,
            until: Instant::now() + LONGEST,
            seen: Ids::default(),
            commits: Vec::new(),
            trees: Vec::new(),
            parents: Ids::default(),
            contents: Ids::default(),
            buffer: Vec::new(),
            tree: Buffer::default(),
        }
    }

    fn follow(&mut self, tips: impl IntoIterator<Item = Oid>) -> Result<()> {
        for tip in tips {
            self.add_any(gix_id(tip))?;
        }
        while let Some(id) = self.commits.pop() {
            self.check_time()?;
            self.read_commit(&id)?;
        }
        while let Some(id) = self.trees.pop() {
            self.check_time()?;
            self.read_tree(&id)?;
        }
        Ok(())
    }

    /// Adds an object of whatever kind, and what a tag leads to.
    fn add_any(&mut self, mut id: ObjectId) -> Result<()> {
        loop {
            self.check_time()?;
            let missing = || Error::Broken(format!("the object {id} is missing"));
            match self.objects.header(&id)?.ok_or_else(missing)?.0 {
                Kind::Commit => self.add_commit(id),
                Kind::Tree => self.add_tree(id),
                Kind::Blob => self.add_blob(id),
                Kind::Tag if self.sent.has(&id) => {
                    if self.seen.insert(id) {
                        let target = self.objects.target_of_tag(&id, &mut self.buffer)?;
                        id = target.ok_or_else(|| unreadable("tag", &id))?;
                        continue;
                    }
                }
                Kind::Tag => drop(self.contents.insert(id)),
            }
            return Ok(());
        }
    }

    fn add_commit(&mut self, id: ObjectId) {
        if !self.sent.has(&id) {
            self.parents.insert(id);
        } else if self.seen.insert(id) {
            self.commits.push(id);
        }
    }

    fn add_tree(&mut self, id: ObjectId) {
        if !self.sent.has(&id) {
            self.add_content(id);
        } else if self.seen.insert(id) {
            self.trees.push(id);
        }
    }

    fn add_blob(&mut self, id: ObjectId) {
        if !self.sent.has(&id) {
            self.add_content(id);
        }
    }

    fn add_content(&mut self, id: ObjectId) {
        // What holds nothing reveals nothing, and git knows the empty tree without storing it.
        if !id.is_empty_tree() && !id.is_empty_blob() {
            self.contents.insert(id);
        }
    }

    fn read_commit(&mut self, id: &gix::oid) -> Result<()> {
        let commit = self.objects.start_of(id, Kind::Commit, &mut self.buffer)?;
        let commit = commit.ok_or_else(|| Error::Broken(format!("the commit {id} is missing")))?;
        if commit.is_cut {
            // What it leads to would not be checked.
            return Err(unreadable("commit", id));
        }
        let Parts { tree, parents, .. } = Parts::of(commit.data);
        self.add_tree(tree.ok_or_else(|| Error::Broken(format!("the commit {id} names no tree")))?);
        for parent in parents {
            self.add_commit(parent);
        }
        Ok(())
    }

    fn read_tree(&mut self, id: &gix::oid) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.tree);
        let data = self.tree_bytes(id, &mut buffer)?;
        for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(Error::broken)?;
            if entry.mode.is_tree() {
                self.add_tree(entry.oid.to_owned());
            } else if !entry.mode.is_commit() {
                self.add_blob(entry.oid.to_owned());
            }
        }
        self.tree = buffer;
        Ok(())
    }

    /// Which of some objects are in the trees of the parents. Folders that the push has changed are read first: almost always
    /// everything is found there.
    fn find_in_parents(&self, wanted: &Ids) -> Result<Ids> {
        let (mut found, mut seen) = (Ids::default(), Ids::default());
        let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
        let (mut left, mut buffer) = (MOST_PARENT_BYTES, Buffer::default());
        let mut parents = self.parents.iter();
        while found.len() < wanted.len() && left > 0 {
            self.check_time()?;
            let tree = match changed.pop() {
                Some(tree) => tree,
                None => match parents.next() {
                    Some(parent) => match self.objects.tree_of(oid(parent))? {
                        Some(tree) => tree,
                        None => continue,
                    },
                    None => match unchanged.pop() {
                        Some(tree) => tree,
                        None => break,
                    },
                },
            };
            if !seen.insert(tree) {
                continue;
            }
            if wanted.contains(&tree) {
                found.insert(tree);
            }
            let data = match self.tree_bytes(&tree, &mut buffer) {
                Ok(data) => data,
                Err(Error::TooLarge(_)) => continue,
                Err(error) => return Err(error),
            };
            left = left.saturating_sub(data.len().max(1));
            for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
                let entry = entry.map_err(Error::broken)?;
                if entry.mode.is_commit() {
                    continue;
                }
                if wanted.contains(entry.oid) {
                    found.insert(entry.oid.to_owned());
                }
                if entry.mode.is_tree() {
                    // What was sent links to it, so the push has left it as it was.
                    let is_unchanged = self.contents.contains(entry.oid) || self.sent.has(entry.oid);
                    if is_unchanged { &mut unchanged } else { &mut changed }.push(entry.oid.to_owned());
                }
            }
        }
        Ok(found)
    }

    /// The bytes of a tree. Waits while readers hold the room for large ones: everything was uploaded already.
    fn tree_bytes<'b>(&self, id: &gix::oid, buffer: &'b mut Buffer) -> Result<&'b [u8]> {
        loop {
            match self.objects.tree_bytes(id, buffer).map(drop) {
                Err(Error::Busy) => self.check_time()?,
                read => {
                    read?;
                    return Ok(&buffer.bytes);
                }
            }
        }
    }

    fn check_time(&self) -> Result<()> {
        if Instant::now() < self.until { Ok(()) } else { Err(Error::TooLarge(TOO_LONG.to_owned())) }
    }
}

/// The refusal of an object that is stored in so many pieces that it is not read as a whole.
fn unreadable(kind: &str, id: &gix::oid) -> Error {
    Error::TooLarge(format!(
        "the {kind} {id} cannot be read within the limits; run \"git repack -adf --depth=50\" and push again"
    ))
}
