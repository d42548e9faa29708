//! The refs of a repository at one moment.

use std::sync::OnceLock;

use model::{Oid, RefName, objects::Tag, refs::RefKind};
use sha2::{Digest as _, Sha256};

use crate::{Repository, Result, decode, repository::gix_id};

/// A ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// The full name.
    pub name: RefName,
    /// The object it points to.
    pub target: Oid,
    /// The object that an annotated tag leads to in the end.
    pub peeled: Option<Oid>,
}

/// All visible refs, sorted by name within each kind.
#[derive(Debug, Default)]
pub struct Refs {
    /// The branch that `HEAD` names, whether or not it exists.
    pub head: Option<RefName>,
    /// Refs below `refs/heads/`.
    pub branches: Vec<Ref>,
    /// Refs below `refs/tags/`.
    pub tags: Vec<Ref>,
    /// All other refs except for hidden ones.
    pub others: Vec<Ref>,
    pub(crate) fingerprint: OnceLock<[u8; 32]>,
}

impl Ref {
    /// Returns the object that the ref leads to in the end, usually a commit.
    pub fn peeled_target(&self) -> Oid {
        self.peeled.unwrap_or(self.target)
    }
}

impl Refs {
    /// Returns the ref with this name.
    pub fn find(&self, name: &RefName) -> Option<&Ref> {
        let list = match name.kind() {
            RefKind::Branch => &self.branches,
            RefKind::Tag => &self.tags,
            RefKind::Other => &self.others,
        };
        list.binary_search_by(|reference| reference.name.cmp(name)).ok().map(|index| &list[index])
    }

    /// Returns all refs, sorted by full name in byte order.
    pub fn iter(&self) -> impl Iterator<Item = &Ref> {
        // In this order branches and tags are contiguous, with others before, between and after them.
        let (before, rest) = split(&self.others, "refs/heads/");
        let (between, after) = split(rest, "refs/tags/");
        before.iter().chain(&self.branches).chain(between).chain(&self.tags).chain(after)
    }

    /// Returns the size of all refs in a `packed-refs` file.
    pub fn packed_size(&self) -> u64 {
        let size = |reference: &Ref| packed_size_of(&reference.name) + if reference.peeled.is_some() { 42 } else { 0 };
        self.iter().map(size).sum()
    }

    /// Returns a digest that differs whenever the refs differ.
    pub fn fingerprint(&self) -> [u8; 32] {
        *self.fingerprint.get_or_init(|| {
            let mut digest = Sha256::new();
            digest.update(self.head.as_ref().map_or("", RefName::as_str));
            for reference in self.iter() {
                // Names contain no NUL, so different lists of refs never result in the same bytes.
                digest.update(b"\0");
                digest.update(reference.name.as_str());
                digest.update(b"\0");
                digest.update(reference.target.0);
            }
            digest.finalize().into()
        })
    }
}

/// Returns the size of a ref in a `packed-refs` file: its id, a space, the name and the line feed.
pub fn packed_size_of(name: &RefName) -> u64 {
    name.as_str().len() as u64 + 42
}

impl Repository {
    /// Returns a tag with its annotation and its commit.
    pub fn tag(&self, tag: &Ref) -> Result<Tag> {
        let message = match tag.peeled {
            Some(_) => self.annotation(tag.target)?,
            None => None,
        };
        let commit = self.commit(tag.peeled_target())?;
        Ok(Tag { name: tag.name.short().to_owned(), target: tag.target, message, commit })
    }

    /// Returns the annotation of a tag object; `None` if it is not a tag object.
    pub fn annotation(&self, id: Oid) -> Result<Option<String>> {
        let mut buffer = Vec::new();
        let tag = self.read_bounded(&gix_id(id), gix::object::Kind::Tag, &mut buffer)?;
        Ok(tag.map(decode::annotation))
    }
}

fn split<'a>(refs: &'a [Ref], at: &str) -> (&'a [Ref], &'a [Ref]) {
    refs.split_at(refs.partition_point(|reference| reference.name.as_str() < at))
}
