//! Objects that are too large to be unpacked in memory; they are read sequentially, in chunks.
//!
//! An object that is stored whole is inflated as it is read. One that is stored as a delta is reconstructed first, in
//! memory if the whole delta chain is small, otherwise in unnamed temporary files.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Cursor, Read, Write},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use flate2::bufread::ZlibDecoder;
use gix::{
    objs::Kind,
    odb::pack::data::{self, Entry, entry::Header},
};

use crate::{
    Error, Repository, Result,
    limits::{RESERVATION_SIZE, Reservation, format_size},
    packs::{MAX_DELTA_CHAIN, PackFile, too_deep},
};

/// The maximum number of bytes that are written to reconstruct one object.
const MAX_WRITTEN: u64 = 2 << 30;
/// The number of bytes copied at a time.
const CHUNK_SIZE: usize = 64 << 10;
/// The maximum length of the header of a loose object: its kind, its size and a NUL.
const MAX_HEADER_LENGTH: u64 = 64;

/// An object that is read in chunks.
pub(crate) struct LargeObject {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// The number of bytes still to be read.
    remaining: u64,
    content: Content,
}

enum Content {
    Packed(ZlibDecoder<PackData>),
    Loose(Box<ZlibDecoder<BufReader<File>>>),
    Reconstructed(Reconstructed),
    InMemory(Cursor<Vec<u8>>),
}

/// Where an object is stored.
enum Location {
    Packed(Arc<PackFile>, Entry),
    Loose(File),
}

/// An object that was reconstructed from deltas.
enum Reconstructed {
    InMemory(Cursor<Vec<u8>>, Reservation),
    InFile(File, u64),
}

/// The data of a pack from an offset on.
struct PackData {
    pack: Arc<PackFile>,
    at: u64,
}

impl Repository {
    /// Opens an object of any size; `None` if it does not exist. With `on_disk` it may be reconstructed in temporary
    /// files.
    pub(crate) fn large_object(&self, id: &gix::oid, on_disk: bool) -> Result<Option<LargeObject>> {
        if let Some((kind, content)) = self.new_objects.get(id) {
            return Ok(Some(LargeObject::in_memory(*kind, content.clone())));
        }
        let Some(location) = self.locate(id)? else { return Ok(None) };
        match location {
            Location::Loose(file) => LargeObject::loose(file).map(Some),
            Location::Packed(pack, entry) => match entry.header.as_kind() {
                Some(kind) => Ok(Some(LargeObject::packed(kind, &pack, &entry))),
                None => self.reconstruct(id, &pack, entry, on_disk).map(Some),
            },
        }
    }

    /// Looks an object up in all packs and among the loose objects. A concurrent repack may move it, so the packs are
    /// listed again before it counts as missing.
    fn locate(&self, id: &gix::oid) -> Result<Option<Location>> {
        for attempt in 0..2 {
            if let Some((pack, entry)) = self.find_packed(id)? {
                return Ok(Some(Location::Packed(pack, entry)));
            }
            let name = id.to_string();
            for objects in self.packs()?.objects() {
                match File::open(objects.join(&name[..2]).join(&name[2..])) {
                    Ok(file) => return Ok(Some(Location::Loose(file))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if attempt == 0 {
                self.refresh_packs()?;
            }
        }
        Ok(None)
    }

    /// Fails if reconstructing an object would exceed the limits, before that is started.
    pub(crate) fn check_large(&self, id: &gix::oid) -> Result<()> {
        match self.locate(id)? {
            Some(Location::Packed(pack, entry)) if entry.header.is_delta() => {
                self.delta_chain(id, &pack, entry)?.check(id, true).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Reconstructs an object that is stored as a delta.
    fn reconstruct(&self, id: &gix::oid, pack: &Arc<PackFile>, entry: Entry, on_disk: bool) -> Result<LargeObject> {
        let delta_chain = self.delta_chain(id, pack, entry)?;
        let in_memory = delta_chain.check(id, on_disk)?;
        let target = |size: u64| -> Result<Reconstructed> {
            match usize::try_from(size) {
                Ok(size) if in_memory => {
                    let reservation = Reservation::take()?;
                    Ok(Reconstructed::InMemory(Cursor::new(Vec::with_capacity(size)), reservation))
                }
                _ => Ok(tempfile::tempfile_in(self.path()).map(|file| Reconstructed::InFile(file, 0))?),
            }
        };
        let DeltaChain { mut base, deltas } = delta_chain;
        let kind = base.kind;
        let mut reconstructed = target(base.size)?;
        reconstructed.fill(|out| io::copy(&mut base, out))?;
        for delta in deltas.iter().rev() {
            let mut next = target(delta.result_size)?;
            next.fill(|out| delta.apply(&reconstructed, out))?;
            reconstructed = next;
        }
        let size = reconstructed.rewind();
        Ok(LargeObject { kind, size, remaining: size, content: Content::Reconstructed(reconstructed) })
    }

    /// Returns the delta chain of an object, the last delta first.
    fn delta_chain(&self, id: &gix::oid, pack: &Arc<PackFile>, entry: Entry) -> Result<DeltaChain> {
        let mut deltas = Vec::new();
        let (mut pack, mut entry) = (Arc::clone(pack), entry);
        loop {
            let location = match entry.header {
                Header::OfsDelta { base_distance } => {
                    Location::Packed(Arc::clone(&pack), pack.base(&entry, base_distance)?)
                }
                Header::RefDelta { base_id } => {
                    let missing = || Error::corrupt(format!("the object {base_id} is missing"));
                    self.locate(&base_id)?.ok_or_else(missing)?
                }
                Header::Commit | Header::Tree | Header::Blob | Header::Tag => {
                    let kind = entry.header.as_kind().unwrap_or(Kind::Blob);
                    return Ok(DeltaChain { deltas, base: LargeObject::packed(kind, &pack, &entry) });
                }
            };
            deltas.push(Delta::read(&pack, &entry)?);
            if deltas.len() > MAX_DELTA_CHAIN {
                return Err(too_deep(id));
            }
            match location {
                Location::Packed(next_pack, next) => (pack, entry) = (next_pack, next),
                Location::Loose(file) => return Ok(DeltaChain { deltas, base: LargeObject::loose(file)? }),
            }
        }
    }
}

/// The deltas of an object, the last one first, and the object that the chain starts from.
struct DeltaChain {
    deltas: Vec<Delta>,
    base: LargeObject,
}

impl DeltaChain {
    /// Returns whether the object is reconstructed in memory; fails if that would exceed the limits.
    fn check(&self, id: &gix::oid, on_disk: bool) -> Result<bool> {
        let sizes = || self.deltas.iter().map(|delta| delta.result_size).chain([self.base.size]);
        let written = sizes().fold(0, u64::saturating_add);
        let largest = sizes().max().unwrap_or_default();
        // Two consecutive objects of the chain are held at the same time.
        let in_memory = largest.saturating_mul(2) <= RESERVATION_SIZE / 2;
        if written > MAX_WRITTEN || !(in_memory || on_disk) {
            let written = format_size(written);
            return Err(Error::TooLarge(format!(
                "reconstructing the object {id} takes {written}, which exceeds the limit"
            )));
        }
        Ok(in_memory)
    }
}

/// A delta in a pack.
struct Delta {
    pack: Arc<PackFile>,
    at: u64,
    base_size: u64,
    result_size: u64,
}

impl Delta {
    fn read(pack: &Arc<PackFile>, entry: &Entry) -> Result<Self> {
        let mut delta = Self { pack: Arc::clone(pack), at: entry.data_offset, base_size: 0, result_size: 0 };
        let mut instructions = delta.instructions();
        let (base_size, result_size) = (read_size(&mut instructions)?, read_size(&mut instructions)?);
        (delta.base_size, delta.result_size) = (base_size, result_size);
        Ok(delta)
    }

    fn instructions(&self) -> BufReader<ZlibDecoder<PackData>> {
        BufReader::new(ZlibDecoder::new(PackData { pack: Arc::clone(&self.pack), at: self.at }))
    }

    /// Applies the delta to its base and writes the result.
    fn apply(&self, base: &Reconstructed, out: &mut dyn Write) -> io::Result<u64> {
        let corrupt = || io::Error::new(io::ErrorKind::InvalidData, "a delta is corrupt");
        let mut instructions = self.instructions();
        let (base_size, result_size) = (read_size(&mut instructions)?, read_size(&mut instructions)?);
        if base_size != base.len() || (base_size, result_size) != (self.base_size, self.result_size) {
            return Err(corrupt());
        }
        let mut written = 0_u64;
        let mut chunk = vec![0; CHUNK_SIZE];
        while written < result_size {
            let length = match read_byte(&mut instructions)? {
                0 => return Err(corrupt()),
                length @ 1..0x80 => {
                    let length = usize::from(length);
                    instructions.read_exact(&mut chunk[..length])?;
                    out.write_all(&chunk[..length])?;
                    length as u64
                }
                bits => {
                    let mut part = |bit: u8, shift: u32| {
                        if bits & (1 << bit) == 0 {
                            Ok(0)
                        } else {
                            Ok::<_, io::Error>(u64::from(read_byte(&mut instructions)?) << shift)
                        }
                    };
                    let offset = part(0, 0)? | part(1, 8)? | part(2, 16)? | part(3, 24)?;
                    let length = match part(4, 0)? | part(5, 8)? | part(6, 16)? {
                        0 => 0x1_0000,
                        length => length,
                    };
                    if offset + length > base_size || written + length > result_size {
                        return Err(corrupt());
                    }
                    base.copy(offset, length, &mut chunk, out)?;
                    length
                }
            };
            written += length;
        }
        if written == result_size { Ok(written) } else { Err(corrupt()) }
    }
}

impl Reconstructed {
    /// Writes the content, through a buffer if it goes to a file.
    fn fill(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<u64>) -> io::Result<u64> {
        match self {
            Self::InMemory(bytes, _) => write(bytes),
            Self::InFile(file, len) => {
                let mut out = BufWriter::with_capacity(CHUNK_SIZE, file);
                let written = write(&mut out)?;
                out.flush()?;
                *len = written;
                Ok(written)
            }
        }
    }

    /// Copies a part of the content.
    fn copy(&self, offset: u64, length: u64, chunk: &mut [u8], out: &mut dyn Write) -> io::Result<()> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(chunk.len());
            match self {
                Self::InMemory(bytes, _) => {
                    let start = usize::try_from(at).unwrap_or(usize::MAX);
                    let part = bytes.get_ref().get(start..start.saturating_add(count));
                    out.write_all(part.ok_or(io::ErrorKind::UnexpectedEof)?)?;
                }
                Self::InFile(file, _) => {
                    file.read_exact_at(&mut chunk[..count], at)?;
                    out.write_all(&chunk[..count])?;
                }
            }
            at += count as u64;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        match self {
            Self::InMemory(bytes, _) => bytes.get_ref().len() as u64,
            Self::InFile(_, len) => *len,
        }
    }

    /// Makes reads start at the first byte; returns the length.
    fn rewind(&mut self) -> u64 {
        let len = self.len();
        match self {
            Self::InMemory(bytes, _) => bytes.set_position(0),
            Self::InFile(_, at) => *at = 0,
        }
        len
    }
}

impl LargeObject {
    fn packed(kind: Kind, pack: &Arc<PackFile>, entry: &Entry) -> Self {
        let data = PackData { pack: Arc::clone(pack), at: entry.data_offset };
        let size = entry.decompressed_size;
        Self { kind, size, remaining: size, content: Content::Packed(ZlibDecoder::new(data)) }
    }

    /// Reads an object that is in memory.
    pub(crate) fn in_memory(kind: Kind, content: Vec<u8>) -> Self {
        let size = content.len() as u64;
        Self { kind, size, remaining: size, content: Content::InMemory(Cursor::new(content)) }
    }

    /// Opens a loose object.
    pub(crate) fn loose(file: File) -> Result<Self> {
        let mut content = Box::new(ZlibDecoder::new(BufReader::new(file)));
        let mut head = Vec::new();
        while !head.ends_with(b"\0") && (head.len() as u64) < MAX_HEADER_LENGTH {
            head.push(read_byte(&mut content)?);
        }
        let (kind, size, _) = gix::objs::decode::loose_header(&head).map_err(Error::corrupt)?;
        Ok(Self { kind, size, remaining: size, content: Content::Loose(content) })
    }

    /// Reads at most `max_bytes`.
    pub(crate) fn read_prefix(self, max_bytes: usize, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        self.take(max_bytes as u64).read_to_end(buffer)?;
        Ok(())
    }

    /// Reads all bytes.
    pub(crate) fn read_all(mut self, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        buffer.reserve_exact(usize::try_from(self.size).unwrap_or_default());
        io::copy(&mut self, buffer)?;
        Ok(())
    }
}

/// Yields exactly as many bytes as the header of the object declares.
impl Read for LargeObject {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let max_bytes = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(into.len());
        if max_bytes == 0 {
            return Ok(0);
        }
        let into = &mut into[..max_bytes];
        let count = match &mut self.content {
            Content::Packed(data) => data.read(into)?,
            Content::Loose(data) => data.read(into)?,
            Content::Reconstructed(Reconstructed::InMemory(data, _)) | Content::InMemory(data) => data.read(into)?,
            Content::Reconstructed(Reconstructed::InFile(file, at)) => {
                let count = file.read_at(into, *at)?;
                *at += count as u64;
                count
            }
        };
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "an object is shorter than its header declares"));
        }
        self.remaining -= count as u64;
        Ok(count)
    }
}

impl Read for PackData {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for PackData {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let pack = self.pack.data().map_err(io::Error::other)?;
        let range: data::EntryRange = self.at..pack.pack_end() as u64;
        pack.entry_slice(range).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn consume(&mut self, count: usize) {
        self.at += count as u64;
    }
}

fn read_byte(from: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// Reads a size in the variable-length encoding of deltas.
fn read_size(from: &mut impl Read) -> io::Result<u64> {
    let mut size = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = read_byte(from)?;
        size |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(size);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
