//! Looks objects up.

use std::{cell::RefCell, collections::HashSet};

use gix::{
    ObjectId,
    objs::{Data, Find, Kind, TagRefIter, TreeRefIter},
};
use model::Oid;

use crate::{
    Error, Repository, Result,
    commits::FEWEST_DIGITS,
    decode::Parts,
    large_trees,
    limits::{Buffer, LARGEST_COMMIT, LARGEST_TREE, Reservation, UNRESERVED, in_words},
    repository::{gix_id, oid},
};

/// How many tags may point to one another.
pub(crate) const DEEPEST_TAG: usize = 16;
/// How much is read of a commit or a tag object that is too large to be shown in full, in bytes.
const BEGINNING: usize = 64 << 10;

/// A commit or a tag object as far as it is shown.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) data: &'a [u8],
    /// Whether this is only its beginning, because it is too large.
    pub(crate) is_cut: bool,
}

impl Repository {
    /// An object; `None` if there is none of this name. One that cannot be unpacked within [`UNRESERVED`] bytes is
    /// [`Error::TooLarge`].
    ///
    /// [`UNRESERVED`]: crate::limits::UNRESERVED
    pub(crate) fn object<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<Option<Data<'a>>> {
        self.gix.objects.try_find(id, buffer).map_err(|error| Error::of_read(&error))
    }

    /// A commit or a tag object, as far as it is shown: in full if it is not larger than it may be, else its beginning.
    /// `None` if there is no object of this kind.
    pub(crate) fn start_of<'a>(&self, id: &gix::oid, kind: Kind, buffer: &'a mut Vec<u8>) -> Result<Option<Shown<'a>>> {
        match self.object(id, buffer) {
            Ok(None) => return Ok(None),
            Ok(Some(object)) if object.kind != kind => return Ok(None),
            Ok(Some(object)) if object.data.len() as u64 <= LARGEST_COMMIT => {
                return Ok(Some(Shown { data: &buffer[..], is_cut: false }));
            }
            Ok(Some(_)) => buffer.truncate(BEGINNING),
            Err(Error::TooLarge(_)) => {
                buffer.clear();
                if self.kind(id)? != Some(kind) {
                    return Ok(None);
                }
                match self.large_object(id, false) {
                    Ok(Some(object)) => object.beginning(BEGINNING, buffer)?,
                    // It would have to be put together on the disk; nothing of it is shown.
                    Ok(None) | Err(Error::TooLarge(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
        Ok(Some(Shown { data: buffer, is_cut: true }))
    }

    /// A blob that is not large, past the cache of objects. One that cannot be unpacked within [`UNRESERVED`] bytes is
    /// [`Error::TooLarge`]; [`Self::large_object`] reads it in pieces.
    ///
    /// [`UNRESERVED`]: crate::limits::UNRESERVED
    pub(crate) fn blob<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>> {
        use gix::odb::pack::Find as _;
        let odb: &gix::odb::store::Handle<_> = &self.gix.objects;
        let mut bases = self.blob_bases.borrow_mut();
        let found = odb.try_find_cached(id, buffer, &mut **bases).map_err(|error| Error::of_read(&error))?;
        Ok(found.and_then(|(object, _)| (object.kind == Kind::Blob).then_some(object.data)))
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

    /// What a tag object leads to in the end; `None` if it is no tag object, or leads nowhere.
    pub(crate) fn peel_tag(&self, id: Oid) -> Result<Option<Oid>> {
        let mut at = gix_id(id);
        let mut buffer = Vec::new();
        for step in 0..DEEPEST_TAG {
            match self.kind(&at)? {
                Some(Kind::Tag) => {}
                Some(_) => return Ok((step > 0).then(|| oid(&at))),
                None => return Ok(None),
            }
            let Some(target) = self.target_of_tag(&at, &mut buffer)? else { return Ok(None) };
            at = target;
        }
        Ok(None)
    }

    /// What a tag object points to; `None` if it is none, or does not say.
    pub(crate) fn target_of_tag(&self, id: &gix::oid, buffer: &mut Vec<u8>) -> Result<Option<ObjectId>> {
        let tag = self.start_of(id, Kind::Tag, buffer)?;
        Ok(tag.and_then(|tag| TagRefIter::from_bytes(tag.data, gix::hash::Kind::Sha1).target_id().ok()))
    }

    /// The commit that an object is or leads to.
    pub(crate) fn peel_to_commit(&self, id: Oid) -> Result<Option<Oid>> {
        let id = self.peel_tag(id)?.unwrap_or(id);
        Ok((self.kind(&gix_id(id))? == Some(Kind::Commit)).then_some(id))
    }

    /// The tree of a commit; `None` if there is no such commit.
    pub(crate) fn tree_of(&self, commit: Oid) -> Result<Option<ObjectId>> {
        let mut buffer = Vec::new();
        let commit = self.start_of(&gix_id(commit), Kind::Commit, &mut buffer)?;
        Ok(commit.and_then(|commit| Parts::of(commit.data).tree))
    }

    /// The entries of a tree.
    pub(crate) fn read_tree<'a>(&self, id: &gix::oid, buffer: &'a mut Buffer) -> Result<TreeRefIter<'a>> {
        Ok(TreeRefIter::from_bytes(self.tree_bytes(id, buffer)?, gix::hash::Kind::Sha1))
    }

    /// The bytes of a tree.
    pub(crate) fn tree_bytes<'a>(&self, id: &gix::oid, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        buffer.clear();
        // Git never writes the empty tree, and knows it nevertheless.
        if id.is_empty_tree() {
            return Ok(&[]);
        }
        if let Some(tree) = large_trees::find(id) {
            if tree.len() > UNRESERVED {
                buffer.reserve()?;
            }
            buffer.bytes.extend_from_slice(&tree);
            return Ok(&buffer.bytes);
        }
        let missing = || Error::Broken(format!("the tree {id} is missing"));
        match self.object(id, &mut buffer.bytes) {
            Ok(found) => drop(found.filter(|object| object.kind == Kind::Tree).ok_or_else(missing)?),
            Err(Error::TooLarge(_)) => self.read_large_tree(id, buffer)?,
            Err(error) => return Err(error),
        }
        large_trees::keep(id, &buffer.bytes);
        Ok(&buffer.bytes)
    }

    fn read_large_tree(&self, id: &gix::oid, buffer: &mut Buffer) -> Result<()> {
        buffer.clear();
        let missing = || Error::Broken(format!("the tree {id} is missing"));
        let (_, size) = self.header(id)?.filter(|(kind, _)| *kind == Kind::Tree).ok_or_else(missing)?;
        if size > LARGEST_TREE {
            return Err(too_large(Kind::Tree, id, size, LARGEST_TREE));
        }
        buffer.reserve()?;
        self.large_object(id, true)?.ok_or_else(missing)?.whole(&mut buffer.bytes)
    }
}

/// What is said of an object that is larger than it may be.
pub(crate) fn too_large(kind: Kind, id: &gix::oid, size: u64, most: u64) -> Error {
    Error::TooLarge(format!("the {kind} {id} has {}; the limit is {}", in_words(size), in_words(most)))
}

/// Trees for whoever compares them: those that are large are read as all others.
pub(crate) struct Trees<'a> {
    repository: &'a Repository,
    /// The room for large trees, which stay in buffers of the reader until the end.
    room: RefCell<Option<Reservation>>,
}

impl<'a> Trees<'a> {
    pub(crate) fn of(repository: &'a Repository) -> Self {
        Self { repository, room: RefCell::new(None) }
    }
}

impl Find for Trees<'_> {
    fn try_find<'a>(&self, id: &gix::oid, buffer: &'a mut Vec<u8>) -> gix::error::Result<Option<Data<'a>>> {
        let mut read = Buffer::of(std::mem::take(buffer));
        self.repository.tree_bytes(id, &mut read).map_err(gix::error::Error::from_error)?;
        let (bytes, room) = read.into_parts();
        *buffer = bytes;
        if room.is_some() {
            self.room.replace(room);
        }
        Ok(Some(Data { kind: Kind::Tree, object_hash: gix::hash::Kind::Sha1, data: buffer }))
    }
}
