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
    /// What it points to.
    pub target: Oid,
    /// What an annotated tag leads to in the end.
    pub peeled: Option<Oid>,
}

/// All refs that people may see, each kind in byte order of its names.
#[derive(Debug, Default)]
pub struct Refs {
    /// The branch that HEAD names, whether it exists or not.
    pub head: Option<RefName>,
    /// Below `refs/heads/`.
    pub branches: Vec<Ref>,
    /// Below `refs/tags/`.
    pub tags: Vec<Ref>,
    /// All others but the hidden ones.
    pub others: Vec<Ref>,
    pub(crate) fingerprint: OnceLock<[u8; 32]>,
}

impl Ref {
    /// What it leads to in the end: the commit, if all is well.
    pub fn leads_to(&self) -> Oid {
        self.peeled.unwrap_or(self.target)
    }
}

impl Refs {
    /// The ref of this name.
    pub fn find(&self, name: &RefName) -> Option<&Ref> {
        let list = match name.kind() {
            RefKind::Branch => &self.branches,
            RefKind::Tag => &self.tags,
            RefKind::Other => &self.others,
        };
        list.binary_search_by(|it| it.name.cmp(name)).ok().map(|place| &list[place])
    }

    /// All refs, in byte order of their full names.
    pub fn iter(&self) -> impl Iterator<Item = &Ref> {
        // Branches and tags each lie together in that order, with others before, between and after them.
        let (before, rest) = split(&self.others, "refs/heads/");
        let (between, after) = split(rest, "refs/tags/");
        before.iter().chain(&self.branches).chain(between).chain(&self.tags).chain(after)
    }

    /// How many bytes a list of all refs takes, as git stores it.
    pub fn listed_size(&self) -> u64 {
        let size = |one: &Ref| listed_size_of(&one.name) + if one.peeled.is_some() { 42 } else { 0 };
        self.iter().map(size).sum()
    }

    /// A few bytes that differ whenever the refs differ.
    pub fn fingerprint(&self) -> [u8; 32] {
        *self.fingerprint.get_or_init(|| {
            let mut digest = Sha256::new();
            digest.update(self.head.as_ref().map_or("", RefName::as_str));
            for it in self.iter() {
                // No name holds a NUL, so no two lists of refs look alike.
                digest.update(b"\0");
                digest.update(it.name.as_str());
                digest.update(b"\0");
                digest.update(it.target.0);
            }
            digest.finalize().into()
        })
    }
}

/// How many bytes a ref of this name takes in a list of refs: its id, a space, the name and the end of the line.
pub fn listed_size_of(name: &RefName) -> u64 {
    name.as_str().len() as u64 + 42
}

impl Repository {
    /// A tag with its annotation and the commit it leads to.
    pub fn tag(&self, tag: &Ref) -> Result<Tag> {
        let message = match tag.peeled {
            Some(_) => self.annotation(tag.target)?,
            None => None,
        };
        let commit = self.commit(tag.leads_to())?;
        Ok(Tag { name: tag.name.short().to_owned(), target: tag.target, message, commit })
    }

    /// What the annotation of a tag says; `None` if this is no tag but something else.
    pub fn annotation(&self, id: Oid) -> Result<Option<String>> {
        let mut buffer = Vec::new();
        let tag = self.start_of(&gix_id(id), gix::object::Kind::Tag, &mut buffer)?;
        Ok(tag.map(decode::annotation))
    }
}

fn split<'a>(refs: &'a [Ref], at: &str) -> (&'a [Ref], &'a [Ref]) {
    refs.split_at(refs.partition_point(|it| it.name.as_str() < at))
}
