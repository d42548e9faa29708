//! Contents of files.

use std::io::{self, Write};

use gix::objs::Kind;
use model::Oid;

use crate::{
    Error, Repository, Result,
    large::LargeObject,
    limits::{Buffer, RESERVATION, UNRESERVED},
    objects::too_large,
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

    /// Fails if a blob would take too much to be written out, before that is begun.
    pub fn check_blob(&self, id: Oid) -> Result<()> {
        match self.blob_size(id)? {
            Some(size) if size > UNRESERVED as u64 => self.check_large(&gix_id(id)),
            _ => Ok(()),
        }
    }

    /// Writes a blob out, in pieces if it is large.
    pub fn write_blob(&self, id: Oid, out: &mut dyn Write) -> Result<()> {
        let id = gix_id(id);
        let mut buffer = Vec::new();
        match self.blob(&id, &mut buffer) {
            Ok(blob) => Ok(out.write_all(blob.ok_or_else(|| missing(&id))?)?),
            Err(Error::TooLarge(_)) => {
                io::copy(&mut self.large_blob(&id)?, out)?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A blob that is read in pieces.
    pub(crate) fn large_blob(&self, id: &gix::oid) -> Result<LargeObject> {
        let found = self.large_object(id, true)?.filter(|object| object.kind == Kind::Blob);
        found.ok_or_else(|| missing(id))
    }

    /// The first bytes of a blob, or all of them if there are no more. With a reservation if they are many; callers that
    /// want many have asked for the size.
    pub(crate) fn read_blob<'a>(&self, id: &gix::oid, most: u64, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        buffer.clear();
        match self.blob(id, &mut buffer.bytes) {
            Ok(found) => drop(found.ok_or_else(|| missing(id))?),
            Err(Error::TooLarge(_)) => {
                buffer.clear();
                let blob = self.large_blob(id)?;
                let wanted = most.min(blob.size);
                if wanted > RESERVATION / 2 {
                    return Err(too_large(Kind::Blob, id, blob.size, RESERVATION / 2));
                }
                buffer.reserve()?;
                blob.beginning(usize::try_from(wanted).unwrap_or_default(), &mut buffer.bytes)?;
            }
            Err(error) => return Err(error),
        }
        let bytes = &buffer.bytes;
        Ok(&bytes[..bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX))])
    }
}

fn missing(id: &gix::oid) -> Error {
    Error::Broken(format!("the blob {id} is missing"))
}
