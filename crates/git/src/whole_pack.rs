//! Sends all objects of a repository as one pack without reading them: its packs one after the other.
//!
//! Git's pack-objects decides about each object, which takes most of the time of a clone. That is not necessary if the
//! client gets everything: entries of a pack refer to others of the same pack only by id or by their distance, so they
//! stay valid in a longer pack.

use std::{
    fs::File,
    io::{self, Read, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
};

use gix::{hash::Kind as HashKind, odb::pack::index};
use model::{Oid, StorageId};

use crate::{Error, Repositories, Result, repositories::pack_name};

/// The maximum number of packs, each of which stays open while it is sent.
const MAX_PACKS: usize = 64;
/// The maximum number of objects outside the largest pack. Each is searched for in the larger packs.
const MAX_OTHER_OBJECTS: u32 = 100_000;
/// The length of the signature, the version and the number of objects.
const HEADER_LENGTH: u64 = 12;
/// The length of the checksum at the end.
const TRAILER_LENGTH: u64 = 20;
const CHUNK_SIZE: usize = 64 << 10;

/// All objects of a repository, as one pack.
pub struct WholePack {
    packs: Vec<OpenPack>,
    objects: u32,
}

/// A pack that can be read even if it is removed meanwhile.
struct OpenPack {
    data: File,
    length: u64,
    index: index::File,
}

impl Repositories {
    /// Joins the packs with these checksums, which are all packs of a repository and must have been linked. Returns `None`
    /// if that is not possible: there are too many of them, or an object is in two of them, which strict clients refuse.
    pub fn whole_pack(&self, storage: &StorageId, checksums: &[Oid]) -> Result<Option<WholePack>> {
        if checksums.is_empty() || checksums.len() > MAX_PACKS {
            return Ok(None);
        }
        let folder = self.path_of(storage).join("objects/pack");
        WholePack::open(checksums.iter().map(|checksum| folder.join(pack_name(*checksum))))
    }
}

impl OpenPack {
    /// Opens the pack at a path, given without extension.
    fn open(path: &Path) -> Result<Self> {
        let index = index::File::at(path.with_extension("idx"), HashKind::Sha1).map_err(Error::corrupt)?;
        let data = File::open(path.with_extension("pack"))?;
        let length = data.metadata()?.len();
        if length < HEADER_LENGTH + TRAILER_LENGTH {
            return Err(Error::corrupt(format!("{} is too short", path.with_extension("pack").display())));
        }
        Ok(Self { data, length, index })
    }
}

impl WholePack {
    /// Joins the packs at these paths, given without extension; `None` if that is not possible.
    pub(crate) fn open(paths: impl Iterator<Item = PathBuf>) -> Result<Option<Self>> {
        let mut packs = paths.map(|path| OpenPack::open(&path)).collect::<Result<Vec<_>>>()?;
        packs.sort_by_key(|pack| std::cmp::Reverse(pack.index.num_objects()));
        let others = packs.iter().skip(1).map(|pack| u64::from(pack.index.num_objects())).sum::<u64>();
        let first = packs.first().map_or(0, |pack| pack.index.num_objects());
        let Some(objects) = u32::try_from(others)
            .ok()
            .filter(|others| *others <= MAX_OTHER_OBJECTS)
            .and_then(|others| others.checked_add(first))
        else {
            return Ok(None);
        };
        for (number, pack) in packs.iter().enumerate().skip(1) {
            let is_repeated =
                |entry: &index::Entry| packs[..number].iter().any(|other| other.index.lookup(entry.oid).is_some());
            if pack.index.iter().any(|entry| is_repeated(&entry)) {
                return Ok(None);
            }
        }
        Ok(Some(Self { packs, objects }))
    }

    /// Writes the pack.
    pub fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_SIZE];
        if let [pack] = &mut self.packs[..] {
            return copy(&mut pack.data, pack.length, &mut chunk, &mut |bytes| out.write_all(bytes));
        }
        let mut hasher = gix::hash::hasher(HashKind::Sha1);
        let mut write = |bytes: &[u8]| {
            hasher.update(bytes);
            out.write_all(bytes)
        };
        write(b"PACK\x00\x00\x00\x02")?;
        write(&self.objects.to_be_bytes())?;
        for pack in &mut self.packs {
            pack.data.seek(SeekFrom::Start(HEADER_LENGTH))?;
            copy(&mut pack.data, pack.length - HEADER_LENGTH - TRAILER_LENGTH, &mut chunk, &mut write)?;
        }
        let checksum = hasher.try_finalize().map_err(io::Error::other)?;
        out.write_all(checksum.as_slice())
    }
}

/// Copies the next `length` bytes.
fn copy(
    from: &mut impl Read,
    length: u64,
    chunk: &mut [u8],
    write: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut rest = from.take(length);
    let mut copied = 0;
    loop {
        match rest.read(chunk)? {
            0 if copied < length => return Err(io::Error::other("a pack is shorter than before")),
            0 => return Ok(()),
            count => {
                write(&chunk[..count])?;
                copied += count as u64;
            }
        }
    }
}
