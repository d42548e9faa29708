//! Checks that everything a push makes reachable was sent with it or was reachable before.
//!
//! A repository keeps unreachable objects, and `git index-pack --strict` accepts links to them, because they exist.
//! Without this check a client that knows the id of a deleted object could link to it and read it afterwards. Deltas
//! against objects that were not sent are never resolved: whether that succeeds would reveal the content of the object.
//!
//! The check reads the received commits and trees, and of the repository only the folders that the push has changed;
//! links that are not found there are looked up among all reachable objects.

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
    decode::CommitParts,
    limits::Buffer,
    packs,
    repository::{gix_id, oid},
};

/// The time limit for reading received objects.
const READ_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The time for which a push waits for the reachability index. The index keeps its progress, so the next push of the
/// same objects continues from there.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The maximum number of bytes of parent trees that are read before the reachability index is used instead.
const MAX_PARENT_BYTES: usize = 256 << 20;
const TIMEOUT_MESSAGE: &str =
    "it takes too long to check what the pushed objects lead to; push fewer commits at a time";

/// A set of object ids.
type Ids = HashSet<ObjectId, Builder>;

/// The objects that a client has sent, or that were written on its behalf.
pub struct ReceivedObjects {
    packs: Vec<pack::index::File>,
    written: Ids,
}

impl ReceivedObjects {
    /// Reads the indexes of a folder of packs, if there is one, and adds objects that were written one by one.
    pub(crate) fn read(packs: Option<&Path>, written: &[Oid]) -> Result<Self> {
        let mut received = Self { packs: Vec::new(), written: written.iter().map(|id| gix_id(*id)).collect() };
        for path in packs.map_or(Ok(Vec::new()), packs::indices)? {
            received.packs.push(pack::index::File::at(&path, gix::hash::Kind::Sha1).map_err(Error::corrupt)?);
        }
        Ok(received)
    }

    /// Returns whether an object was received, whether or not the repository has it as well.
    pub fn contains(&self, id: Oid) -> bool {
        self.contains_id(&gix_id(id))
    }

    fn contains_id(&self, id: &gix::oid) -> bool {
        self.written.contains(id) || self.packs.iter().any(|pack| pack.lookup(id).is_some())
    }

    /// Returns the objects that were not received but that the tips lead to, and that must therefore be reachable
    /// already. `objects` is the repository together with the received objects.
    ///
    /// Objects that were written one by one are built from the trees of parents, which are reachable if the parents are.
    pub fn find_prerequisites(&self, objects: &Repository, tips: impl IntoIterator<Item = Oid>) -> Result<Vec<Oid>> {
        let mut walk = ConnectivityWalk::new(self, objects);
        for tip in tips {
            walk.add_any(gix_id(tip))?;
        }
        if self.packs.is_empty() {
            let targets: Vec<ObjectId> = walk.contents.iter().copied().collect();
            walk.read_commits()?;
            return Ok(walk.parents.iter().chain(&targets).map(|id| oid(id)).collect());
        }
        walk.read_commits()?;
        walk.read_trees()?;
        let found = walk.find_in_parents(&walk.contents)?;
        // What is found in the parents is reachable if they are.
        let rest = walk.contents.difference(&found).chain(&walk.parents);
        Ok(rest.map(|id| oid(id)).collect())
    }
}

impl Repository {
    /// Returns the objects that are not reachable from a visible ref, in order. Like [`Self::which_are_reachable`], but
    /// waits longer for the index, and costs almost nothing for targets of refs.
    pub fn find_unreachable(&self, mut ids: Vec<Oid>) -> Result<BTreeSet<Oid>> {
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        // There may be many refs, and usually few objects.
        let mut unknown: HashSet<Oid> = ids.iter().copied().collect();
        for reference in self.refs().iter() {
            unknown.remove(&reference.target);
            unknown.remove(&reference.peeled_target());
        }
        ids.retain(|id| unknown.contains(id));
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let start = Instant::now();
        let reachable = loop {
            match self.which_are_reachable(&ids) {
                Err(Error::Indexing | Error::Busy) if start.elapsed() < LOOKUP_TIMEOUT => {}
                answer => break answer?,
            }
        };
        Ok(ids.into_iter().zip(reachable).filter(|(_, reachable)| !reachable).map(|(id, _)| id).collect())
    }
}

/// A walk over received objects, which ends at objects that were not received.
struct ConnectivityWalk<'a> {
    received: &'a ReceivedObjects,
    objects: &'a Repository,
    deadline: Instant,
    seen: Ids,
    /// Commits and trees that are still to be read.
    commits: Vec<ObjectId>,
    trees: Vec<ObjectId>,
    /// Commits that received objects link to and that were not received.
    parents: Ids,
    /// The same for trees, blobs and tags.
    contents: Ids,
    buffer: Vec<u8>,
    tree: Buffer,
}

impl<'a> ConnectivityWalk<'a> {
    fn new(received: &'a ReceivedObjects, objects: &'a Repository) -> Self {
        Self {
            received,
            objects,
            deadline: Instant::now() + READ_TIMEOUT,
            seen: Ids::default(),
            commits: Vec::new(),
            trees: Vec::new(),
            parents: Ids::default(),
            contents: Ids::default(),
            buffer: Vec::new(),
            tree: Buffer::default(),
        }
    }

    fn read_commits(&mut self) -> Result<()> {
        while let Some(id) = self.commits.pop() {
            self.check_deadline()?;
            self.read_commit(&id)?;
        }
        Ok(())
    }

    fn read_trees(&mut self) -> Result<()> {
        while let Some(id) = self.trees.pop() {
            self.check_deadline()?;
            self.read_tree(&id)?;
        }
        Ok(())
    }

    /// Adds an object of any kind; tags are followed.
    fn add_any(&mut self, mut id: ObjectId) -> Result<()> {
        loop {
            self.check_deadline()?;
            let missing = || Error::corrupt(format!("the object {id} is missing"));
            match self.objects.header(&id)?.ok_or_else(missing)?.0 {
                Kind::Commit => self.add_commit(id),
                Kind::Tree => self.add_tree(id),
                Kind::Blob => self.add_blob(id),
                Kind::Tag if self.received.contains_id(&id) => {
                    if self.seen.insert(id) {
                        let target = self.objects.tag_target(&id, &mut self.buffer)?;
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
        if !self.received.contains_id(&id) {
            self.parents.insert(id);
        } else if self.seen.insert(id) {
            self.commits.push(id);
        }
    }

    fn add_tree(&mut self, id: ObjectId) {
        if !self.received.contains_id(&id) {
            self.add_content(id);
        } else if self.seen.insert(id) {
            self.trees.push(id);
        }
    }

    fn add_blob(&mut self, id: ObjectId) {
        if !self.received.contains_id(&id) {
            self.add_content(id);
        }
    }

    fn add_content(&mut self, id: ObjectId) {
        // Empty objects reveal nothing, and git knows the empty tree without storing it.
        if !id.is_empty_tree() && !id.is_empty_blob() {
            self.contents.insert(id);
        }
    }

    fn read_commit(&mut self, id: &gix::oid) -> Result<()> {
        let commit = self.objects.read_bounded(id, Kind::Commit, &mut self.buffer)?;
        let commit = commit.ok_or_else(|| Error::corrupt(format!("the commit {id} is missing")))?;
        if commit.is_truncated {
            // Its links could not be checked.
            return Err(unreadable("commit", id));
        }
        let CommitParts { tree, parents, .. } = CommitParts::parse(commit.data);
        self.add_tree(tree.ok_or_else(|| Error::corrupt(format!("the commit {id} names no tree")))?);
        for parent in parents {
            self.add_commit(parent);
        }
        Ok(())
    }

    fn read_tree(&mut self, id: &gix::oid) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.tree);
        let data = self.tree_bytes(id, &mut buffer)?;
        for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(Error::corrupt)?;
            if entry.mode.is_tree() {
                self.add_tree(entry.oid.to_owned());
            } else if !entry.mode.is_commit() {
                self.add_blob(entry.oid.to_owned());
            }
        }
        self.tree = buffer;
        Ok(())
    }

    /// Returns which objects are in the trees of the parents. Folders that the push has changed are read first: almost
    /// always everything is found there.
    fn find_in_parents(&self, wanted: &Ids) -> Result<Ids> {
        let (mut found, mut seen) = (Ids::default(), Ids::default());
        let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
        let (mut remaining_bytes, mut buffer) = (MAX_PARENT_BYTES, Buffer::default());
        let mut parents = self.parents.iter();
        while found.len() < wanted.len() && remaining_bytes > 0 {
            self.check_deadline()?;
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
            remaining_bytes = remaining_bytes.saturating_sub(data.len().max(1));
            for entry in TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1) {
                let entry = entry.map_err(Error::corrupt)?;
                if entry.mode.is_commit() {
                    continue;
                }
                if wanted.contains(entry.oid) {
                    found.insert(entry.oid.to_owned());
                }
                if entry.mode.is_tree() {
                    // A received object links to it, so the push did not change it.
                    let is_unchanged = self.contents.contains(entry.oid) || self.received.contains_id(entry.oid);
                    if is_unchanged { &mut unchanged } else { &mut changed }.push(entry.oid.to_owned());
                }
            }
        }
        Ok(found)
    }

    /// Reads a tree. Waits while other readers hold all reservations, because the upload is already complete.
    fn tree_bytes<'b>(&self, id: &gix::oid, buffer: &'b mut Buffer) -> Result<&'b [u8]> {
        loop {
            match self.objects.tree_bytes(id, buffer).map(drop) {
                Err(Error::Busy) => self.check_deadline()?,
                read => {
                    read?;
                    return Ok(&buffer.bytes);
                }
            }
        }
    }

    fn check_deadline(&self) -> Result<()> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(Error::TooLarge(TIMEOUT_MESSAGE.to_owned())) }
    }
}

/// The error for an object whose delta chain is too expensive to resolve.
fn unreadable(kind: &str, id: &gix::oid) -> Error {
    Error::TooLarge(format!(
        "the {kind} {id} cannot be read within the limits; run \"git repack -adf --depth=50\" and push again"
    ))
}
