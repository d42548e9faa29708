//! Contents of files.

use std::io::Write;

use gix::objs::Kind;
use model::Oid;

use crate::{
    Error, Repository, Result,
    repository::{gix_id, oid},
};

impl Repository {
    /// The one blob whose id begins like this, among those that visible refs lead to; `None` if there is none or more than
    /// one. It may take a walk over the history, see [`Repository::which_are_reachable`].
    pub fn find_blob(&self, prefix: &str) -> Result<Option<Oid>> {
        Ok(self.find_prefix(prefix, Kind::Blob)?.map(|id| oid(&id)))
    }

    /// How long a blob is, without reading it; `None` if there is no such blob.
    pub fn blob_size(&self, id: Oid) -> Result<Option<u64>> {
        let header = self.header(&gix_id(id))?;
        Ok(header.and_then(|(kind, size)| (kind == Kind::Blob).then_some(size)))
    }

    /// Writes a blob out. It is unpacked in memory as a whole, so whoever serves blobs of any size bounds how many are
    /// on their way at the same time, with [`Repository::blob_size`] as the measure.
    pub fn write_blob(&self, id: Oid, out: &mut dyn Write) -> Result<()> {
        let mut buffer = Vec::new();
        let blob = self.blob(&gix_id(id), &mut buffer)?;
        let blob = blob.ok_or_else(|| Error::Broken(format!("the blob {id} is missing")))?;
        Ok(out.write_all(blob)?)
    }
}
