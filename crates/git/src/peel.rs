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
        for _ in 0..DEEPEST {
            let Some(object) = self.gix.try_find_object(id).map_err(Error::broken)? else { return Ok(None) };
            match object.kind {
                Kind::Commit => return Ok(Some(Peeled::Commit(oid(&id)))),
                Kind::Tree | Kind::Blob => return Ok(Some(Peeled::Other)),
                Kind::Tag => {
                    let tag = object.into_tag();
                    id = tag.target_id().map_err(Error::broken)?.detach();
                }
            }
        }
        Ok(Some(Peeled::Other))
    }
}
