//! Contents of files.

use std::io::Write;

use gix::objs::Kind;
use model::Oid;

use crate::{
    Error, Repository, Result,
    repository::{gix_id, oid},
};

impl Repository {
    /// The one blob whose id begins like this; `None` if there is none or more than one, or it is no blob.
    pub fn find_blob(&self, prefix: &str) -> Result<Option<Oid>> {
        let Some(id) = self.find_prefix(prefix)? else { return Ok(None) };
        let header = self.header(&id)?;
        Ok(header.is_some_and(|(kind, _)| kind == Kind::Blob).then(|| oid(&id)))
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
