//! Writes packs in process, for the few objects of a change that the server makes itself.
//!
//! gix encodes the headers. Its writers of whole files are not used: that of packs (feature `generate`) holds every
//! compressed object in memory and does not return the checksums that the index needs, and that of indexes (feature
//! `streaming-input`) inflates the pack again to compute ids that are known here. No object is stored as a delta: the
//! next repack finds deltas.

use std::{
    collections::BTreeSet,
    fs::Permissions,
    io::{self, BufWriter, Write},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use flate2::{Compression, Crc, write::ZlibEncoder};
use gix::{
    ObjectId,
    hash::Kind as HashKind,
    objs::Kind,
    odb::pack::data::{self, entry::Header},
};
use model::{Oid, PackContent};
use tempfile::NamedTempFile;

use crate::{
    Error, Result,
    large_object::LargeObject,
    repositories::pack_name,
    repository::{gix_id, oid},
};

/// The first bytes of an index, and its version.
const INDEX_HEADER: &[u8; 8] = b"\xfftOc\0\0\0\x02";
/// Offsets from here on are in a table of their own; this bit marks a position in that table.
const LARGE_OFFSET: u32 = 1 << 31;

/// Writes a pack of these objects and then its index; returns the checksum of the pack, which names both files. The
/// objects are opened one after the other and read in chunks. Nothing is synced.
pub(crate) fn write_pack(
    folder: &Path,
    ids: &BTreeSet<Oid>,
    open: impl FnMut(Oid) -> Result<LargeObject>,
) -> Result<Oid> {
    let (pack, index, checksum) = encode_pack(BufWriter::new(create_file(folder)?), ids, open)?;
    let pack = pack.into_inner().map_err(io::IntoInnerError::into_error)?;
    let path = folder.join(pack_name(checksum));
    pack.persist(path.with_extension("pack")).map_err(|error| error.error)?;
    let mut file = create_file(folder)?;
    file.write_all(&index)?;
    file.persist(path.with_extension("idx")).map_err(|error| error.error)?;
    Ok(checksum)
}

/// Like [`write_pack`], in memory.
pub(crate) fn build_pack(
    ids: &BTreeSet<Oid>,
    open: impl FnMut(Oid) -> Result<LargeObject>,
) -> Result<(Oid, PackContent)> {
    let (pack, index, checksum) = encode_pack(Vec::new(), ids, open)?;
    Ok((checksum, PackContent { pack, index }))
}

/// Writes a pack that was built in memory, and then its index, to read-only files. They are created in a temporary folder, so
/// that a concurrent reader never sees a part of one. Nothing is synced.
pub(crate) fn write_files(folder: &Path, temp_folder: &Path, checksum: Oid, content: &PackContent) -> Result<()> {
    let path = folder.join(pack_name(checksum));
    for (extension, file) in create_files(temp_folder, content)? {
        file.persist(path.with_extension(extension)).map_err(|error| error.error)?;
    }
    Ok(())
}

/// Writes a pack that was built in memory, and its index, to temporary files; returns them with their extensions.
pub(crate) fn create_files(
    temp_folder: &Path,
    content: &PackContent,
) -> io::Result<[(&'static str, NamedTempFile); 2]> {
    let create = |bytes: &[u8]| {
        let mut file = create_file(temp_folder)?;
        file.write_all(bytes)?;
        Ok::<_, io::Error>(file)
    };
    Ok([("pack", create(&content.pack)?), ("idx", create(&content.index)?)])
}

/// Writes a pack; returns its index and its checksum.
fn encode_pack<W: Write>(
    out: W,
    ids: &BTreeSet<Oid>,
    mut open: impl FnMut(Oid) -> Result<LargeObject>,
) -> Result<(W, Vec<u8>, Oid)> {
    let mut pack = PackStream::new(out);
    pack.write_all(&data::header::encode(data::Version::V2, to_u32(ids.len())))?;
    // In the order of the index.
    let entries = ids.iter().map(|id| pack.add(*id, open(*id)?)).collect::<Result<Vec<_>>>()?;
    let (out, checksum) = pack.finish()?;
    Ok((out, encode_index(&entries, &checksum)?, oid(&checksum)))
}

/// Creates a temporary file that can be written only here; packs are read-only, as in git.
fn create_file(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o444)).tempfile_in(folder)
}

/// An object in a pack.
struct IndexEntry {
    id: ObjectId,
    offset: u64,
    /// The checksum of its compressed bytes and their header.
    crc: u32,
}

/// A pack that is being written.
struct PackStream<W> {
    out: gix::hash::io::Write<W>,
    length: u64,
    /// The checksum of the current entry.
    crc: Crc,
}

impl<W: Write> PackStream<W> {
    fn new(out: W) -> Self {
        Self { out: gix::hash::io::Write::new(out, HashKind::Sha1), length: 0, crc: Crc::new() }
    }

    fn add(&mut self, id: Oid, mut object: LargeObject) -> Result<IndexEntry> {
        let offset = self.length;
        self.crc.reset();
        let header = match object.kind {
            Kind::Commit => Header::Commit,
            Kind::Tree => Header::Tree,
            Kind::Blob => Header::Blob,
            Kind::Tag => Header::Tag,
        };
        header.write_to(object.size, self)?;
        // The level of `git pack-objects`, because a repack copies the compressed bytes.
        let mut encoder = ZlibEncoder::new(&mut *self, Compression::default());
        io::copy(&mut object, &mut encoder)?;
        encoder.finish()?;
        Ok(IndexEntry { id: gix_id(id), offset, crc: self.crc.sum() })
    }

    /// Writes the trailer, which is the checksum of everything before it.
    fn finish(self) -> Result<(W, ObjectId)> {
        let checksum = self.out.hash.try_finalize().map_err(Error::corrupt)?;
        let mut out = self.out.inner;
        out.write_all(checksum.as_slice())?;
        Ok((out, checksum))
    }
}

impl<W: Write> Write for PackStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.crc.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Encodes the index of a pack, in version 2 of the format. The entries must be sorted by id.
fn encode_index(entries: &[IndexEntry], pack_checksum: &gix::oid) -> Result<Vec<u8>> {
    let mut index = INDEX_HEADER.to_vec();
    for first_byte in 0..=u8::MAX {
        let count = entries.partition_point(|entry| entry.id.first_byte() <= first_byte);
        index.extend(to_u32(count).to_be_bytes());
    }
    for entry in entries {
        index.extend(entry.id.as_slice());
    }
    for entry in entries {
        index.extend(entry.crc.to_be_bytes());
    }
    let mut large_offsets = Vec::new();
    for entry in entries {
        let offset = match u32::try_from(entry.offset) {
            Ok(offset) if offset < LARGE_OFFSET => offset,
            _ => {
                large_offsets.push(entry.offset);
                LARGE_OFFSET | to_u32(large_offsets.len() - 1)
            }
        };
        index.extend(offset.to_be_bytes());
    }
    for offset in large_offsets {
        index.extend(offset.to_be_bytes());
    }
    index.extend(pack_checksum.as_bytes());
    let mut hasher = gix::hash::hasher(HashKind::Sha1);
    hasher.update(&index);
    index.extend(hasher.try_finalize().map_err(Error::corrupt)?.as_slice());
    Ok(index)
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).expect("the ids of so many objects do not fit in memory")
}

#[cfg(test)]
mod tests {
    use gix::odb::pack::index;

    use super::*;

    #[test]
    fn an_index_holds_small_and_large_offsets() {
        let offsets = [12, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1_0000_0000, 40];
        let entry = |(number, offset)| IndexEntry { id: ObjectId::Sha1([number; 20]), offset, crc: number.into() };
        // Ids with the smallest and the largest first byte, and gaps between them.
        let entries: Vec<IndexEntry> = [0, 1, 7, 8, 254, 255].into_iter().zip(offsets).map(entry).collect();
        let checksum = ObjectId::Sha1([9; 20]);
        let encoded = encode_index(&entries, &checksum).expect("encoded");
        let index = index::File::from_data(encoded, "pack.idx".into(), HashKind::Sha1).expect("an index");
        assert_eq!((index.num_objects(), index.pack_checksum()), (6, checksum));
        let never = std::sync::atomic::AtomicBool::new(false);
        index.verify_checksum(&mut gix::progress::Discard, &never).expect("the checksum of the index");
        for entry in &entries {
            let at = index.lookup(entry.id).expect("found");
            assert_eq!(index.pack_offset_at_index(at), entry.offset);
            assert_eq!(index.crc32_at_index(at), Some(entry.crc));
        }
        assert_eq!(index.lookup(ObjectId::Sha1([2; 20])), None);
    }
}
