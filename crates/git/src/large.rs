//! Objects that are too large to be unpacked in memory: read from the first byte to the last, in pieces.
//!
//! An object that is stored whole is inflated as it is read. One that is stored as differences from others is put
//! together first, in memory if all parts are small and else in files that have no name.

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
    limits::{RESERVATION, Reservation, in_words},
    packs::{LONGEST_CHAIN, PackFile, too_deep},
};

/// How many bytes may be written to put one object together.
const MOST_WRITTEN: u64 = 2 << 30;
/// How much is copied at a time.
const PIECE: usize = 64 << 10;
/// The longest head of a loose object: its kind, its size and a NUL.
const LONGEST_HEAD: u64 = 64;

/// An object that is read in pieces.
pub(crate) struct LargeObject {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// How much is still to be read.
    left: u64,
    content: Content,
}

enum Content {
    Packed(ZlibDecoder<PackData>),
    Loose(Box<ZlibDecoder<BufReader<File>>>),
    Built(Built),
}

/// Where an object is stored.
enum Place {
    Packed(Arc<PackFile>, Entry),
    Loose(File),
}

/// An object that was put together.
enum Built {
    InMemory(Cursor<Vec<u8>>, Reservation),
    InFile(File, u64),
}

/// The bytes of a pack from one place on.
struct PackData {
    pack: Arc<PackFile>,
    at: u64,
}

impl Repository {
    /// An object of any size; `None` if there is none of this name. With `on_disk` it may be put together in files.
    pub(crate) fn large_object(&self, id: &gix::oid, on_disk: bool) -> Result<Option<LargeObject>> {
        let Some(place) = self.locate(id)? else { return Ok(None) };
        match place {
            Place::Loose(file) => LargeObject::loose(file).map(Some),
            Place::Packed(pack, entry) => match entry.header.as_kind() {
                Some(kind) => Ok(Some(LargeObject::packed(kind, &pack, &entry))),
                None => self.build(id, &pack, entry, on_disk).map(Some),
            },
        }
    }

    /// Looks an object up in all packs and among the loose ones. A concurrent repack may move it from one place to another,
    /// so the packs are listed anew before it is said to be missing.
    fn locate(&self, id: &gix::oid) -> Result<Option<Place>> {
        for attempt in 0..2 {
            if let Some((pack, entry)) = self.find_packed(id)? {
                return Ok(Some(Place::Packed(pack, entry)));
            }
            let name = id.to_string();
            for objects in self.packs()?.objects() {
                match File::open(objects.join(&name[..2]).join(&name[2..])) {
                    Ok(file) => return Ok(Some(Place::Loose(file))),
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

    /// Fails if an object would take too much to be put together, before that is begun.
    pub(crate) fn check_large(&self, id: &gix::oid) -> Result<()> {
        match self.locate(id)? {
            Some(Place::Packed(pack, entry)) if entry.header.is_delta() => {
                self.chain(id, &pack, entry)?.check(id, true).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Puts an object together that is stored as differences from others.
    fn build(&self, id: &gix::oid, pack: &Arc<PackFile>, entry: Entry, on_disk: bool) -> Result<LargeObject> {
        let chain = self.chain(id, pack, entry)?;
        let in_memory = chain.check(id, on_disk)?;
        let target = |size: u64| -> Result<Built> {
            match usize::try_from(size) {
                Ok(size) if in_memory => {
                    let room = Reservation::take()?;
                    Ok(Built::InMemory(Cursor::new(Vec::with_capacity(size)), room))
                }
                _ => Ok(tempfile::tempfile_in(self.path()).map(|file| Built::InFile(file, 0))?),
            }
        };
        let Chain { mut base, deltas } = chain;
        let kind = base.kind;
        let mut built = target(base.size)?;
        built.fill(|out| io::copy(&mut base, out))?;
        for delta in deltas.iter().rev() {
            let mut next = target(delta.result_size)?;
            next.fill(|out| delta.apply(&built, out))?;
            built = next;
        }
        let size = built.rewind();
        Ok(LargeObject { kind, size, left: size, content: Content::Built(built) })
    }

    /// What an object is built from: the differences, the last one first, and what the first one of them begins with.
    fn chain(&self, id: &gix::oid, pack: &Arc<PackFile>, entry: Entry) -> Result<Chain> {
        let mut deltas = Vec::new();
        let (mut pack, mut entry) = (Arc::clone(pack), entry);
        loop {
            let place = match entry.header {
                Header::OfsDelta { base_distance } => {
                    Place::Packed(Arc::clone(&pack), pack.base(&entry, base_distance)?)
                }
                Header::RefDelta { base_id } => {
                    let missing = || Error::Broken(format!("the object {base_id} is missing"));
                    self.locate(&base_id)?.ok_or_else(missing)?
                }
                Header::Commit | Header::Tree | Header::Blob | Header::Tag => {
                    let kind = entry.header.as_kind().unwrap_or(Kind::Blob);
                    return Ok(Chain { deltas, base: LargeObject::packed(kind, &pack, &entry) });
                }
            };
            deltas.push(Delta::read(&pack, &entry)?);
            if deltas.len() > LONGEST_CHAIN {
                return Err(too_deep(id));
            }
            match place {
                Place::Packed(next_pack, next) => (pack, entry) = (next_pack, next),
                Place::Loose(file) => return Ok(Chain { deltas, base: LargeObject::loose(file)? }),
            }
        }
    }
}

/// What an object is built from.
struct Chain {
    deltas: Vec<Delta>,
    base: LargeObject,
}

impl Chain {
    /// Whether the object is put together in memory; fails if it would take too much.
    fn check(&self, id: &gix::oid, on_disk: bool) -> Result<bool> {
        let sizes = || self.deltas.iter().map(|delta| delta.result_size).chain([self.base.size]);
        let written = sizes().fold(0, u64::saturating_add);
        let largest = sizes().max().unwrap_or_default();
        // The object and the one before it are held at the same time.
        let in_memory = largest.saturating_mul(2) <= RESERVATION / 2;
        if written > MOST_WRITTEN || !(in_memory || on_disk) {
            let written = in_words(written);
            return Err(Error::TooLarge(format!(
                "the object {id} takes {written} to be put together, which is too much"
            )));
        }
        Ok(in_memory)
    }
}

/// How an object differs from another.
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

    /// Writes what the differences make of an object.
    fn apply(&self, base: &Built, out: &mut dyn Write) -> io::Result<u64> {
        let corrupt = || io::Error::new(io::ErrorKind::InvalidData, "a difference between two objects is broken");
        let mut instructions = self.instructions();
        let (base_size, result_size) = (read_size(&mut instructions)?, read_size(&mut instructions)?);
        if base_size != base.len() || (base_size, result_size) != (self.base_size, self.result_size) {
            return Err(corrupt());
        }
        let mut written = 0_u64;
        let mut piece = vec![0; PIECE];
        while written < result_size {
            let length = match read_byte(&mut instructions)? {
                0 => return Err(corrupt()),
                length @ 1..0x80 => {
                    let length = usize::from(length);
                    instructions.read_exact(&mut piece[..length])?;
                    out.write_all(&piece[..length])?;
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
                    base.copy(offset, length, &mut piece, out)?;
                    length
                }
            };
            written += length;
        }
        if written == result_size { Ok(written) } else { Err(corrupt()) }
    }
}

impl Built {
    /// Writes the content, through a buffer if it goes to a file.
    fn fill(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<u64>) -> io::Result<u64> {
        match self {
            Self::InMemory(bytes, _) => write(bytes),
            Self::InFile(file, len) => {
                let mut out = BufWriter::with_capacity(PIECE, file);
                let written = write(&mut out)?;
                out.flush()?;
                *len = written;
                Ok(written)
            }
        }
    }

    /// Copies a part of the content.
    fn copy(&self, offset: u64, length: u64, piece: &mut [u8], out: &mut dyn Write) -> io::Result<()> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(piece.len());
            match self {
                Self::InMemory(bytes, _) => {
                    let start = usize::try_from(at).unwrap_or(usize::MAX);
                    let part = bytes.get_ref().get(start..start.saturating_add(count));
                    out.write_all(part.ok_or(io::ErrorKind::UnexpectedEof)?)?;
                }
                Self::InFile(file, _) => {
                    file.read_exact_at(&mut piece[..count], at)?;
                    out.write_all(&piece[..count])?;
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

    /// Lets reading begin at the first byte; answers how many there are.
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
        Self { kind, size, left: size, content: Content::Packed(ZlibDecoder::new(data)) }
    }

    /// An object in a file of its own.
    pub(crate) fn loose(file: File) -> Result<Self> {
        let mut content = Box::new(ZlibDecoder::new(BufReader::new(file)));
        let mut head = Vec::new();
        while !head.ends_with(b"\0") && (head.len() as u64) < LONGEST_HEAD {
            head.push(read_byte(&mut content)?);
        }
        let (kind, size, _) = gix::objs::decode::loose_header(&head).map_err(Error::broken)?;
        Ok(Self { kind, size, left: size, content: Content::Loose(content) })
    }

    /// The first bytes, or all of them if there are no more.
    pub(crate) fn beginning(self, most: usize, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        self.take(most as u64).read_to_end(buffer)?;
        Ok(())
    }

    /// All bytes.
    pub(crate) fn whole(mut self, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        buffer.reserve_exact(usize::try_from(self.size).unwrap_or_default());
        io::copy(&mut self, buffer)?;
        Ok(())
    }
}

/// Gives exactly as many bytes as the object says that it has.
impl Read for LargeObject {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let into = &mut into[..most];
        let count = match &mut self.content {
            Content::Packed(data) => data.read(into)?,
            Content::Loose(data) => data.read(into)?,
            Content::Built(Built::InMemory(data, _)) => data.read(into)?,
            Content::Built(Built::InFile(file, at)) => {
                let count = file.read_at(into, *at)?;
                *at += count as u64;
                count
            }
        };
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "an object is not as long as it says"));
        }
        self.left -= count as u64;
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

/// A number as it stands at the beginning of a difference.
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
