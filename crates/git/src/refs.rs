//! The refs of a repository at one moment.

use std::{collections::HashSet, sync::OnceLock};

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
    /// Grows with every change of a ref; 0 for refs that are not from the database.
    pub generation: i64,
    /// The branch that `HEAD` names, whether or not it exists.
    pub head: Option<RefName>,
    /// Refs below `refs/heads/`.
    pub branches: Vec<Ref>,
    /// Refs below `refs/tags/`.
    pub tags: Vec<Ref>,
    /// All other refs except for hidden ones.
    pub others: Vec<Ref>,
    pub(crate) fingerprint: OnceLock<[u8; 32]>,
    pub(crate) targets: OnceLock<Box<[Oid]>>,
}

impl Ref {
    /// Returns the object that the ref leads to in the end, usually a commit.
    pub fn peeled_target(&self) -> Oid {
        self.peeled.unwrap_or(self.target)
    }
}

impl Refs {
    /// Creates a list from refs that are sorted by full name in byte order; hidden refs are left out.
    pub fn from_sorted(generation: i64, head: Option<RefName>, all: impl IntoIterator<Item = Ref>) -> Self {
        let mut refs = Self { generation, head, ..Self::default() };
        for reference in all.into_iter().filter(|reference| !reference.name.is_hidden()) {
            match reference.name.kind() {
                RefKind::Branch => refs.branches.push(reference),
                RefKind::Tag => refs.tags.push(reference),
                RefKind::Other => refs.others.push(reference),
            }
        }
        refs
    }

    /// Returns the refs of the next generation: each change has the name of a ref, and the ref unless it is deleted.
    pub fn with_changes(&self, changes: &[(RefName, Option<Ref>)]) -> Self {
        let mut refs = Self {
            generation: self.generation + 1,
            head: self.head.clone(),
            branches: self.branches.clone(),
            tags: self.tags.clone(),
            others: self.others.clone(),
            fingerprint: OnceLock::new(),
            targets: OnceLock::new(),
        };
        for kind in [RefKind::Branch, RefKind::Tag, RefKind::Other] {
            let list = match kind {
                RefKind::Branch => &mut refs.branches,
                RefKind::Tag => &mut refs.tags,
                RefKind::Other => &mut refs.others,
            };
            let changes = changes.iter().filter(|(name, _)| name.kind() == kind && !name.is_hidden());
            let mut added = Vec::new();
            let mut deleted = HashSet::new();
            for (name, reference) in changes {
                match (list.binary_search_by(|reference| reference.name.cmp(name)), reference) {
                    (Ok(index), Some(reference)) => list[index] = reference.clone(),
                    (Ok(_), None) => drop(deleted.insert(name)),
                    (Err(_), Some(reference)) => added.push(reference.clone()),
                    (Err(_), None) => {}
                }
            }
            if !deleted.is_empty() {
                list.retain(|reference| !deleted.contains(&reference.name));
            }
            if !added.is_empty() {
                list.extend(added);
                // Almost sorted.
                list.sort_by(|one, other| one.name.cmp(&other.name));
            }
        }
        refs
    }

    /// Returns the branch that `HEAD` names, if it exists.
    pub fn default_branch(&self) -> Option<&RefName> {
        self.head.as_ref().filter(|head| self.find(head).is_some())
    }

    /// Returns the ref with this name.
    pub fn find(&self, name: &RefName) -> Option<&Ref> {
        let list = match name.kind() {
            RefKind::Branch => &self.branches,
            RefKind::Tag => &self.tags,
            RefKind::Other => &self.others,
        };
        list.binary_search_by(|reference| reference.name.cmp(name)).ok().map(|index| &list[index])
    }

    /// Returns the first ref whose full name begins with a prefix that ends in a slash.
    pub fn first_below(&self, prefix: &str) -> Option<&Ref> {
        let lists = [&self.branches, &self.tags, &self.others];
        let first = |list: &'_ Vec<Ref>| list.partition_point(|reference| reference.name.as_str() < prefix);
        let found = lists.into_iter().filter_map(|list| list.get(first(list)));
        found.into_iter().find(|reference| reference.name.as_str().starts_with(prefix))
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

    /// Returns the approximate size in memory.
    pub fn count_bytes(&self) -> usize {
        let targets = 2 * size_of::<Oid>();
        self.iter().map(|reference| size_of::<Ref>() + reference.name.as_str().len() + targets).sum()
    }

    /// Returns the targets of all refs and of the tag objects among them, sorted and without duplicates.
    pub fn targets(&self) -> &[Oid] {
        self.targets.get_or_init(|| {
            let mut targets: Vec<_> =
                self.iter().flat_map(|reference| [Some(reference.target), reference.peeled]).flatten().collect();
            targets.sort_unstable();
            targets.dedup();
            targets.into()
        })
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
