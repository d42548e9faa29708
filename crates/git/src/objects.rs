//! Reads objects.

use std::{cell::RefCell, collections::HashSet};

use gix::{
    ObjectId,
    objs::{Data, Find, Kind, TagRefIter, TreeRefIter},
};
use model::Oid;

use crate::{
    Error, Repository, Result,
    commits::MIN_PREFIX_DIGITS,
    decode::CommitParts,
    limits::{Buffer, MAX_COMMIT_SIZE, MAX_TREE_SIZE, MAX_UNRESERVED, Reservation, format_size},
    repository::{Handle, gix_id, oid},
    tree_cache,
};

/// The maximum number of tags that may point to each other.
pub(crate) const MAX_TAG_DEPTH: usize = 16;
/// The number of bytes that are read of a commit or a tag object that is too large.
const TRUNCATED_SIZE: usize = 64 << 10;

/// The content of a commit or a tag object, truncated if it is too large.
#[derive(Clone, Copy)]
pub(crate) struct BoundedObject<'a> {
    pub(crate) data: &'a [u8],
    /// Whether this is only the start of the object.
    pub(crate) is_truncated: bool,
}

impl Repository {
    /// Returns an object; `None` if it does not exist. An object that cannot be unpacked within [`MAX_UNRESERVED`]
    /// bytes is [`Error::TooLarge`].
    pub(crate) fn object<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<Option<Data<'a>>> {
        let found = self.gix.objects.try_find(id, buffer).map_err(Error::from_read)?;
        if let Some(Data { kind, object_hash, .. }) = found {
            return Ok(Some(Data { kind, object_hash, data: buffer }));
        }
        if self.find_in_new_pack(id)?.is_none() {
            return Ok(None);
        }
        // A handle of its own lists the packs again.
        let reopened = Handle::open(self.path())?.gix.to_thread_local();
        reopened.objects.try_find(id, buffer).map_err(Error::from_read)
    }

    /// Returns a commit or a tag object, truncated if it exceeds its size limit; `None` if there is no object of this
    /// kind.
    pub(crate) fn read_bounded<'a>(
        &self,
        id: &gix::oid,
        kind: Kind,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Option<BoundedObject<'a>>> {
        match self.object(id, buffer) {
            Ok(None) => return Ok(None),
            Ok(Some(object)) if object.kind != kind => return Ok(None),
            Ok(Some(object)) if object.data.len() as u64 <= MAX_COMMIT_SIZE => {
                return Ok(Some(BoundedObject { data: &buffer[..], is_truncated: false }));
            }
            Ok(Some(_)) => buffer.truncate(TRUNCATED_SIZE),
            Err(Error::TooLarge(_)) => {
                buffer.clear();
                if self.kind(id)? != Some(kind) {
                    return Ok(None);
                }
                match self.large_object(id, false) {
                    Ok(Some(object)) => object.read_prefix(TRUNCATED_SIZE, buffer)?,
                    // It would have to be reconstructed on disk; its content is left out.
                    Ok(None) | Err(Error::TooLarge(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
        Ok(Some(BoundedObject { data: buffer, is_truncated: true }))
    }

    /// Returns a blob that is not large, without caching it. One that cannot be unpacked within [`MAX_UNRESERVED`]
    /// bytes is [`Error::TooLarge`]; [`Self::large_object`] reads it in chunks.
    pub(crate) fn blob<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>> {
        use gix::odb::pack::Find as _;
        if let Some((kind, content)) = self.new_objects.get(id) {
            buffer.clone_from(content);
            return Ok((*kind == Kind::Blob).then_some(buffer));
        }
        let odb: &gix::odb::store::Handle<_> = &self.gix.objects;
        let mut bases = self.blob_bases.borrow_mut();
        let found = odb.try_find_cached(id, buffer, &mut **bases).map_err(Error::from_read)?;
        Ok(found.and_then(|(object, _)| (object.kind == Kind::Blob).then_some(object.data)))
    }

    /// Returns the only reachable object of a kind whose id starts with this prefix; `None` if there is none or more
    /// than one.
    pub(crate) fn find_prefix(&self, prefix: &str, kind: Kind) -> Result<Option<ObjectId>> {
        if prefix.len() < MIN_PREFIX_DIGITS {
            return Ok(None);
        }
        let Ok(prefix) = gix::hash::Prefix::from_hex(prefix) else { return Ok(None) };
        let mut candidates = HashSet::new();
        self.gix.objects.lookup_prefix(prefix, Some(&mut candidates)).map_err(Error::corrupt)?;
        let mut found = Vec::new();
        for id in candidates {
            if self.kind(&id)? == Some(kind) {
                found.push(oid(&id));
            }
        }
        if found.is_empty() {
            return Ok(None);
        }
        let reachable = match kind {
            Kind::Commit => self.which_commits_are_reachable(&found)?,
            _ => self.which_are_reachable(&found)?,
        };
        let mut found = found.into_iter().zip(reachable).filter(|(_, reachable)| *reachable).map(|(id, _)| gix_id(id));
        Ok(found.next().filter(|_| found.next().is_none()))
    }

    /// Follows a tag object to the end; `None` if it is not a tag object, or leads nowhere.
    pub fn peel_tag(&self, id: Oid) -> Result<Option<Oid>> {
        let mut at = gix_id(id);
        let mut buffer = Vec::new();
        for step in 0..MAX_TAG_DEPTH {
            match self.kind(&at)? {
                Some(Kind::Tag) => {}
                Some(_) => return Ok((step > 0).then(|| oid(&at))),
                None => return Ok(None),
            }
            let Some(target) = self.tag_target(&at, &mut buffer)? else { return Ok(None) };
            at = target;
        }
        Ok(None)
    }

    /// Returns the target of a tag object; `None` if it is not one, or names no target.
    pub(crate) fn tag_target(&self, id: &gix::oid, buffer: &mut Vec<u8>) -> Result<Option<ObjectId>> {
        let tag = self.read_bounded(id, Kind::Tag, buffer)?;
        Ok(tag.and_then(|tag| TagRefIter::from_bytes(tag.data, gix::hash::Kind::Sha1).target_id().ok()))
    }

    /// Returns the commit that an object is or leads to.
    pub(crate) fn peel_to_commit(&self, id: Oid) -> Result<Option<Oid>> {
        let id = self.peel_tag(id)?.unwrap_or(id);
        Ok((self.kind(&gix_id(id))? == Some(Kind::Commit)).then_some(id))
    }

    /// Returns the root tree of a commit; `None` if there is no such commit.
    pub(crate) fn tree_of(&self, commit: Oid) -> Result<Option<ObjectId>> {
        let mut buffer = Vec::new();
        let commit = self.read_bounded(&gix_id(commit), Kind::Commit, &mut buffer)?;
        Ok(commit.and_then(|commit| CommitParts::parse(commit.data).tree))
    }

    /// Returns the entries of a tree.
    pub(crate) fn read_tree<'a>(&self, id: &gix::oid, buffer: &'a mut Buffer) -> Result<TreeRefIter<'a>> {
        Ok(TreeRefIter::from_bytes(self.tree_bytes(id, buffer)?, gix::hash::Kind::Sha1))
    }

    /// Returns the bytes of a tree.
    pub(crate) fn tree_bytes<'a>(&self, id: &gix::oid, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        buffer.clear();
        // Git knows the empty tree without storing it.
        if id.is_empty_tree() {
            return Ok(&[]);
        }
        if let Some(tree) = tree_cache::get(id) {
            if tree.len() > MAX_UNRESERVED {
                buffer.reserve()?;
            }
            buffer.bytes.extend_from_slice(&tree);
            return Ok(&buffer.bytes);
        }
        let missing = || Error::corrupt(format!("the tree {id} is missing"));
        match self.object(id, &mut buffer.bytes) {
            Ok(found) => drop(found.filter(|object| object.kind == Kind::Tree).ok_or_else(missing)?),
            Err(Error::TooLarge(_)) => self.read_large_tree(id, buffer)?,
            Err(error) => return Err(error),
        }
        tree_cache::insert(id, &buffer.bytes);
        Ok(&buffer.bytes)
    }

    fn read_large_tree(&self, id: &gix::oid, buffer: &mut Buffer) -> Result<()> {
        buffer.clear();
        let missing = || Error::corrupt(format!("the tree {id} is missing"));
        let (_, size) = self.header(id)?.filter(|(kind, _)| *kind == Kind::Tree).ok_or_else(missing)?;
        if size > MAX_TREE_SIZE {
            return Err(too_large(Kind::Tree, id, size, MAX_TREE_SIZE));
        }
        buffer.reserve()?;
        self.large_object(id, true)?.ok_or_else(missing)?.read_all(&mut buffer.bytes)
    }
}

/// The error for an object that exceeds its size limit.
pub(crate) fn too_large(kind: Kind, id: &gix::oid, size: u64, limit: u64) -> Error {
    Error::TooLarge(format!("the {kind} {id} has {}; the limit is {}", format_size(size), format_size(limit)))
}

/// Provides trees to the diff algorithm of gix; large trees are read like all others.
pub(crate) struct TreeFinder<'a> {
    repository: &'a Repository,
    /// The reservation for large trees, which stay in the buffers of gix until the end.
    reservation: RefCell<Option<Reservation>>,
}

impl<'a> TreeFinder<'a> {
    pub(crate) fn of(repository: &'a Repository) -> Self {
        Self { repository, reservation: RefCell::new(None) }
    }
}

impl Find for TreeFinder<'_> {
    fn try_find<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> gix::error::Result<Option<Data<'a>>> {
        let mut read = Buffer::from_vec(std::mem::take(buffer));
        self.repository.tree_bytes(id, &mut read).map_err(gix::error::Error::from_error)?;
        let (bytes, reservation) = read.into_parts();
        *buffer = bytes;
        if reservation.is_some() {
            self.reservation.replace(reservation);
        }
        Ok(Some(Data { kind: Kind::Tree, object_hash: gix::hash::Kind::Sha1, data: buffer }))
    }
}
