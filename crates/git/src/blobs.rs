//! The contents of files.

use std::io::{self, Write};

use gix::objs::Kind;
use model::Oid;

use crate::{
    Error, Repository, Result,
    large_object::LargeObject,
    limits::{Buffer, MAX_UNRESERVED, RESERVATION_SIZE},
    objects::too_large,
    repository::{gix_id, oid},
};

impl Repository {
    /// Returns the only reachable blob whose id starts with this prefix; `None` if there is none or more than one. May
    /// walk the history, see [`Repository::which_are_reachable`].
    pub fn find_blob(&self, prefix: &str) -> Result<Option<Oid>> {
        Ok(self.find_prefix(prefix, Kind::Blob)?.map(|id| oid(&id)))
    }

    /// Returns the size of a blob without reading it; `None` if there is no such blob.
    pub fn blob_size(&self, id: Oid) -> Result<Option<u64>> {
        let header = self.header(&gix_id(id))?;
        Ok(header.and_then(|(kind, size)| (kind == Kind::Blob).then_some(size)))
    }

    /// Fails if writing a blob would exceed the limits, before any output is produced.
    pub fn check_blob(&self, id: Oid) -> Result<()> {
        match self.blob_size(id)? {
            Some(size) if size > MAX_UNRESERVED as u64 => self.check_large(&gix_id(id)),
            _ => Ok(()),
        }
    }

    /// Writes a blob, in chunks if it is large.
    pub fn write_blob(&self, id: Oid, out: &mut dyn Write) -> Result<()> {
        let id = gix_id(id);
        let mut buffer = Vec::new();
        match self.blob(&id, &mut buffer) {
            Ok(blob) => Ok(out.write_all(blob.ok_or_else(|| missing(&id))?)?),
            Err(Error::TooLarge(_)) => {
                io::copy(&mut self.open_large_blob(&id)?, out)?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a blob that is read in chunks.
    pub(crate) fn open_large_blob(&self, id: &gix::oid) -> Result<LargeObject> {
        let found = self.large_object(id, true)?.filter(|object| object.kind == Kind::Blob);
        found.ok_or_else(|| missing(id))
    }

    /// Reads at most `max_bytes` of a blob. Many bytes need a reservation; callers that request many have checked the
    /// size.
    pub(crate) fn read_blob<'a>(&self, id: &gix::oid, max_bytes: u64, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        buffer.clear();
        match self.blob(id, &mut buffer.bytes) {
            Ok(found) => drop(found.ok_or_else(|| missing(id))?),
            Err(Error::TooLarge(_)) => {
                buffer.clear();
                let blob = self.open_large_blob(id)?;
                let wanted = max_bytes.min(blob.size);
                if wanted > RESERVATION_SIZE / 2 {
                    return Err(too_large(Kind::Blob, id, blob.size, RESERVATION_SIZE / 2));
                }
                buffer.reserve()?;
                blob.read_prefix(usize::try_from(wanted).unwrap_or_default(), &mut buffer.bytes)?;
            }
            Err(error) => return Err(error),
        }
        let bytes = &buffer.bytes;
        Ok(&bytes[..bytes.len().min(usize::try_from(max_bytes).unwrap_or(usize::MAX))])
    }
}

fn missing(id: &gix::oid) -> Error {
    Error::corrupt(format!("the blob {id} is missing"))
}
