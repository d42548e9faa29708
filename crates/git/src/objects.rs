//! Looks objects up.

use std::collections::HashSet;

use gix::{
    ObjectId,
    objs::{Data, Find as _, Kind, TreeRefIter},
};
use model::Oid;

use crate::{
    Error, Repository, Result,
    commits::FEWEST_DIGITS,
    decode::Parts,
    large_trees,
    repository::{gix_id, oid},
};

/// How many tags may point to one another.
const DEEPEST_TAG: usize = 16;

impl Repository {
    /// An object; `None` if there is none of this name.
    pub(crate) fn object<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<Option<Data<'a>>> {
        self.gix.objects.try_find(id, buffer).map_err(Error::broken)
    }

    /// A blob, past the cache of objects: a large one is held in memory once, and pushes no small objects out.
    ///
    /// The whole blob is unpacked, because a packed one may be built from others and cannot be had in pieces. Callers
    /// that take any blob ask for its size first.
    pub(crate) fn blob<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>> {
        use gix::odb::pack::Find as _;
        let odb: &gix::odb::store::Handle<_> = &self.gix.objects;
        let mut bases = self.blob_bases.borrow_mut();
        let found = odb.try_find_cached(id, buffer, &mut **bases).map_err(Error::broken)?;
        Ok(found.and_then(|(object, _)| (object.kind == Kind::Blob).then_some(object.data)))
    }

    /// What an object is and how long, without reading all of it.
    pub(crate) fn header(&self, id: &gix::oid) -> Result<Option<(Kind, u64)>> {
        let header = self.gix.try_find_header(id).map_err(Error::broken)?;
        Ok(header.map(|header| (header.kind(), header.size())))
    }

    /// The one reachable object of a kind whose id begins like this; `None` if there is none or more than one.
    pub(crate) fn find_prefix(&self, prefix: &str, kind: Kind) -> Result<Option<ObjectId>> {
        if prefix.len() < FEWEST_DIGITS {
            return Ok(None);
        }
        let Ok(prefix) = gix::hash::Prefix::from_hex(prefix) else { return Ok(None) };
        let mut candidates = HashSet::new();
        self.gix.objects.lookup_prefix(prefix, Some(&mut candidates)).map_err(Error::broken)?;
        let mut found = Vec::new();
        for id in candidates {
            if self.header(&id)?.is_some_and(|(found, _)| found == kind) {
                found.push(oid(&id));
            }
        }
        let reachable = self.which_are_reachable(&found)?;
        let mut found = found.into_iter().zip(reachable).filter(|(_, reachable)| *reachable).map(|(id, _)| gix_id(id));
        Ok(found.next().filter(|_| found.next().is_none()))
    }

    /// What a tag object leads to in the end; `None` if it is no tag object, or leads nowhere.
    pub(crate) fn peel_tag(&self, id: Oid) -> Result<Option<Oid>> {
        let mut at = gix_id(id);
        let mut buffer = Vec::new();
        for step in 0..DEEPEST_TAG {
            match self.header(&at)? {
                Some((Kind::Tag, _)) => {}
                Some(_) => return Ok((step > 0).then(|| oid(&at))),
                None => return Ok(None),
            }
            let Some(tag) = self.object(&at, &mut buffer)? else { return Ok(None) };
            let Some(target) = tag.try_into_tag_iter().and_then(|tag| tag.target_id().ok()) else { return Ok(None) };
            at = target;
        }
        Ok(None)
    }

    /// The commit that an object is or leads to.
    pub(crate) fn peel_to_commit(&self, id: Oid) -> Result<Option<Oid>> {
        let id = self.peel_tag(id)?.unwrap_or(id);
        let header = self.header(&gix_id(id))?;
        Ok(header.is_some_and(|(kind, _)| kind == Kind::Commit).then_some(id))
    }

    /// The tree of a commit; `None` if there is no such commit.
    pub(crate) fn tree_of(&self, commit: Oid) -> Result<Option<ObjectId>> {
        let mut buffer = Vec::new();
        let object = self.object(&gix_id(commit), &mut buffer)?.filter(|object| object.kind == Kind::Commit);
        Ok(object.and_then(|object| Parts::of(object.data).tree))
    }

    /// The entries of a tree.
    pub(crate) fn read_tree<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<TreeRefIter<'a>> {
        Ok(TreeRefIter::from_bytes(self.tree_bytes(id, buffer)?, gix::hash::Kind::Sha1))
    }

    /// The bytes of a tree.
    pub(crate) fn tree_bytes<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        // Git never writes the empty tree, and knows it nevertheless.
        if id.is_empty_tree() {
            return Ok(&[]);
        }
        if let Some(tree) = large_trees::find(id) {
            buffer.clear();
            buffer.extend_from_slice(&tree);
            return Ok(buffer);
        }
        let object = self.object(id, buffer)?.filter(|object| object.kind == Kind::Tree);
        let object = object.ok_or_else(|| Error::Broken(format!("the tree {id} is missing")))?;
        large_trees::keep(id, object.data);
        Ok(object.data)
    }
}
