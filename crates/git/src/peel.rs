//! Objects of any kind.

use gix::objs::Kind;
use model::{Oid, RefName};

use crate::{
    Error, Repository, Result,
    repository::{gix_id, oid},
};

/// How many tags may point to each other; nobody does that but to annoy.
const DEEPEST: usize = 16;

/// Where an object leads once tags are looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeled {
    /// To a commit.
    Commit(Oid),
    /// To a tree or a blob.
    Other,
}

impl Repository {
    /// The branch that HEAD names, if there is such a branch.
    pub fn default_branch(&self) -> Result<Option<RefName>> {
        let refs = self.refs()?;
        Ok(refs.head.clone().filter(|head| refs.find(head).is_some()))
    }

    /// Where an object leads; `None` if it, or something on the way, is missing.
    pub fn peel(&self, id: Oid) -> Result<Option<Peeled>> {
        let mut id = gix_id(id);
        let mut buffer = Vec::new();
        for _ in 0..DEEPEST {
            // Asked for what it is before it is read: a blob may be larger than memory.
            match self.kind(&id)? {
                None => return Ok(None),
                Some(Kind::Commit) => return Ok(Some(Peeled::Commit(oid(&id)))),
                Some(Kind::Tree | Kind::Blob) => return Ok(Some(Peeled::Other)),
                Some(Kind::Tag) => {
                    let broken = || Error::Broken(format!("the tag {id} does not say what it points to"));
                    id = self.target_of_tag(&id, &mut buffer)?.ok_or_else(broken)?;
                }
            }
        }
        Ok(Some(Peeled::Other))
    }
}
