//! Peels tags.

use gix::objs::Kind;
use model::Oid;

use crate::{
    Error, Repository, Result,
    objects::MAX_TAG_DEPTH,
    repository::{gix_id, oid},
};

/// The result of following tags to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeled {
    /// A commit.
    Commit(Oid),
    /// A tree or a blob.
    Other,
}

impl Repository {
    /// Follows tags to the end; `None` if an object on the way does not exist.
    pub fn peel(&self, id: Oid) -> Result<Option<Peeled>> {
        let mut id = gix_id(id);
        let mut buffer = Vec::new();
        for _ in 0..MAX_TAG_DEPTH {
            // The kind is checked before the object is read, because a blob may be larger than memory.
            match self.kind(&id)? {
                None => return Ok(None),
                Some(Kind::Commit) => return Ok(Some(Peeled::Commit(oid(&id)))),
                Some(Kind::Tree | Kind::Blob) => return Ok(Some(Peeled::Other)),
                Some(Kind::Tag) => {
                    let corrupt = || Error::corrupt(format!("the tag {id} has no target"));
                    id = self.tag_target(&id, &mut buffer)?.ok_or_else(corrupt)?;
                }
            }
        }
        Ok(Some(Peeled::Other))
    }
}
