//! Sends all objects of a repository as one pack without reading them: its packs one after the other.
//!
//! Git's pack-objects decides about each object, which takes most of the time of a clone. That is not necessary if the
//! client gets everything: entries of a pack refer to others of the same pack only by id or by their distance, so they
//! stay valid in a longer pack.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write},
    path::{Path, PathBuf},
};

use gix::{hash::Kind as HashKind, odb::pack::index};
use model::{Oid, StorageId};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::{Error, Repositories, Result, repositories::pack_name};

/// The maximum number of packs, each of which stays open while it is sent.
const MAX_PACKS: usize = 64;
/// The maximum number of objects outside the largest pack. Each is searched for in the larger packs.
const MAX_OTHER_OBJECTS: u32 = 100_000;
/// The length of the signature, the version and the number of objects.
const HEADER_LENGTH: u64 = 12;
/// The length of the checksum at the end.
const TRAILER_LENGTH: usize = 20;
const CHUNK_SIZE: usize = 64 << 10;

/// All objects of a repository, as one pack.
pub struct WholePack {
    packs: Vec<OpenPack>,
    objects: u32,
}

/// A pack that can be read even if it is removed meanwhile.
struct OpenPack {
    /// Without extension.
    path: PathBuf,
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
        if length < HEADER_LENGTH + TRAILER_LENGTH as u64 {
            return Err(Error::corrupt(format!("{} is too short", path.with_extension("pack").display())));
        }
        Ok(Self { path: path.to_owned(), data, length, index })
    }

    /// Copies the content from an offset on, up to the checksum, which is verified and returned.
    fn copy_without_checksum(
        &self,
        from: u64,
        write: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<[u8; TRAILER_LENGTH]> {
        let damaged = || io::Error::other(format!("the pack {} is damaged", self.path.display()));
        let mut skipped = vec![0; usize::try_from(from).map_err(io::Error::other)?];
        (&self.data).rewind()?;
        (&self.data).read_exact(&mut skipped).map_err(|_| damaged())?;
        let mut computed = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        computed.update(&skipped);
        let mut rest = (&self.data).take(self.length - from - TRAILER_LENGTH as u64);
        let mut chunk = vec![0; CHUNK_SIZE];
        loop {
            let count = rest.read(&mut chunk).map_err(|_| damaged())?;
            if count == 0 {
                break;
            }
            computed.update(&chunk[..count]);
            write(&chunk[..count])?;
        }
        let mut checksum = [0; TRAILER_LENGTH];
        (&self.data).read_exact(&mut checksum).map_err(|_| damaged())?;
        if computed.finish().as_ref() == checksum { Ok(checksum) } else { Err(damaged()) }
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

    /// Writes the pack. Fails at the end of a pack whose content does not match its checksum.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        if let [pack] = &self.packs[..] {
            let checksum = pack.copy_without_checksum(0, &mut |bytes| out.write_all(bytes))?;
            return out.write_all(&checksum);
        }
        let mut whole = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        let mut write = |bytes: &[u8]| {
            whole.update(bytes);
            out.write_all(bytes)
        };
        write(b"PACK\x00\x00\x00\x02")?;
        write(&self.objects.to_be_bytes())?;
        for pack in &self.packs {
            pack.copy_without_checksum(HEADER_LENGTH, &mut write)?;
        }
        out.write_all(whole.finish().as_ref())
    }
}
