//! Verifies object files against their own checksums: a loose object is named after its content, and packs and the
//! files that belong to them end with a checksum.

use flate2::{Decompress, FlushDecompress, Status};
use gix::{
    ObjectId,
    hash::{Hasher, Kind, hasher},
};
use model::{Oid, PackContent};

use crate::repository::gix_id;

/// The length of a SHA-1.
const HASH_LENGTH: usize = 20;
/// The number of bytes at the start of a file that are kept: up to the end of the fan-out table of an index.
const HEAD_LENGTH: usize = 8 + 256 * 4;
/// The number of bytes of a loose object that are inflated at a time.
const INFLATE_BUFFER_SIZE: usize = 64 * 1024;
/// The maximum length of the header of a loose object: a type, a space, a size and a NUL.
const MAX_HEADER_LENGTH: usize = 64;

/// Verifies a pack and its index against the checksum of the pack.
pub fn check_pack(checksum: Oid, content: &PackContent) -> Result<(), FileFault> {
    [("pack", &content.pack), ("idx", &content.index)].into_iter().try_for_each(|(extension, bytes)| {
        let mut check = FileCheck::for_pack(extension, checksum);
        check.update(bytes);
        check.finish()
    })
}

/// Verifies one file while its bytes are read.
pub struct FileCheck(Check);

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// There are bytes after the compressed content.
    #[error("bytes follow the end of the object")]
    TrailingBytes,
    /// The content of a loose object is not valid zlib data.
    #[error("the content cannot be decompressed")]
    NotDecompressible,
    /// The header of a loose object is not a type and a size.
    #[error("the object header is invalid")]
    InvalidHeader,
    /// The content of a loose object is shorter or longer than its header declares.
    #[error("the object is truncated")]
    Truncated,
    /// The content of a loose object is not the one it is named after.
    #[error("the content does not match the object id")]
    WrongId,
    /// The file does not start as its format requires.
    #[error("the file signature is invalid")]
    InvalidSignature,
    /// The file is too short for a checksum.
    #[error("the file is too short")]
    TooShort,
    /// The checksum at the end of the file is not that of its content.
    #[error("its content does not match the checksum at its end")]
    WrongChecksum,
    /// The checksum in the name of the file is not the one in its content.
    #[error("the checksum does not match the file name")]
    WrongName,
}

enum Check {
    /// The file has no checksum.
    None,
    Loose(Box<Loose>),
    Checksummed(Box<Checksummed>),
}

impl FileCheck {
    /// Creates the check for a file; the path is relative to the repository.
    pub fn for_path(path: &str) -> Self {
        let Some(path) = path.strip_prefix("objects/") else { return Self(Check::None) };
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if folder.len() == 2
            && let Ok(id) = ObjectId::from_hex(format!("{folder}{name}").as_bytes())
        {
            return Self(Check::Loose(Box::new(Loose::new(id))));
        }
        Self(
            Format::of(name)
                .map_or(Check::None, |(format, name)| Check::Checksummed(Box::new(Checksummed::new(format, name)))),
        )
    }

    /// Creates the check for a file of a stored pack with this checksum: the pack itself, or one of its indexes, which
    /// names the pack. Files with other extensions are not checked.
    pub fn for_pack(extension: &str, checksum: Oid) -> Self {
        let format = Format::of_pack_file(extension);
        let check = |format| Check::Checksummed(Box::new(Checksummed::new(format, Some(gix_id(checksum)))));
        Self(format.map_or(Check::None, check))
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Check::None => {}
            Check::Loose(loose) => loose.update(bytes),
            Check::Checksummed(checksummed) => checksummed.update(bytes),
        }
    }

    /// Finishes the check at the end of the file; the error says what is wrong.
    pub fn finish(self) -> Result<(), FileFault> {
        match self.0 {
            Check::None => Ok(()),
            Check::Loose(loose) => loose.finish(),
            Check::Checksummed(checksummed) => checksummed.finish(),
        }
    }
}

/// A loose object: a compressed header and content, whose SHA-1 is the name.
struct Loose {
    id: ObjectId,
    inflate: Decompress,
    buffer: Vec<u8>,
    hash: Hasher,
    header: Vec<u8>,
    /// The size of the content that the header declares, once it is known.
    declared_size: Option<u64>,
    content: u64,
    ended: bool,
    fault: Option<FileFault>,
}

impl Loose {
    fn new(id: ObjectId) -> Self {
        Self {
            id,
            inflate: Decompress::new(true),
            buffer: vec![0; INFLATE_BUFFER_SIZE],
            hash: hasher(Kind::Sha1),
            header: Vec::new(),
            declared_size: None,
            content: 0,
            ended: false,
            fault: None,
        }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while self.fault.is_none() {
            if self.ended {
                if !bytes.is_empty() {
                    self.fault = Some(FileFault::TrailingBytes);
                }
                return;
            }
            let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
            let Ok(status) = self.inflate.decompress(bytes, &mut self.buffer, FlushDecompress::None) else {
                self.fault = Some(FileFault::NotDecompressible);
                return;
            };
            let read = usize::try_from(self.inflate.total_in() - read).unwrap_or(bytes.len());
            let written = usize::try_from(self.inflate.total_out() - written).unwrap_or_default();
            bytes = &bytes[read..];
            let buffer = std::mem::take(&mut self.buffer);
            self.take_inflated(&buffer[..written]);
            self.buffer = buffer;
            self.ended = status == Status::StreamEnd;
            if !self.ended && written == 0 && (bytes.is_empty() || read == 0) {
                return;
            }
        }
    }

    fn take_inflated(&mut self, inflated: &[u8]) {
        self.hash.update(inflated);
        if self.declared_size.is_some() {
            self.content += inflated.len() as u64;
            return;
        }
        let end = inflated.iter().position(|byte| *byte == 0);
        self.header.extend_from_slice(&inflated[..end.unwrap_or(inflated.len()).min(MAX_HEADER_LENGTH)]);
        let Some(end) = end else {
            if self.header.len() >= MAX_HEADER_LENGTH {
                self.fault = Some(FileFault::InvalidHeader);
            }
            return;
        };
        let size = std::str::from_utf8(&self.header).ok().and_then(|text| text.split_once(' '));
        match size.and_then(|(_, size)| size.parse().ok()) {
            None => self.fault = Some(FileFault::InvalidHeader),
            declared_size => self.declared_size = declared_size,
        }
        self.content = (inflated.len() - end - 1) as u64;
    }

    fn finish(self) -> Result<(), FileFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if !self.ended || self.declared_size != Some(self.content) {
            return Err(FileFault::Truncated);
        }
        compare(self.hash, self.id.as_bytes(), FileFault::WrongId)
    }
}

/// A file that ends with a checksum of everything before it.
struct Checksummed {
    format: Format,
    /// The checksum in the name of the file, if there is one.
    name: Option<ObjectId>,
    hash: Hasher,
    head: Vec<u8>,
    /// The last bytes: a second checksum in some formats, and the checksum of the file.
    tail: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Pack,
    Index,
    ReverseIndex,
    Bitmap,
    MultiPackIndex,
    CommitGraph,
}

impl Format {
    /// Determines the format by the name of a file; also returns the checksum in the name.
    fn of(name: &str) -> Option<(Self, Option<ObjectId>)> {
        if name == "multi-pack-index" {
            return Some((Self::MultiPackIndex, None));
        }
        if name == "commit-graph" {
            return Some((Self::CommitGraph, None));
        }
        let (stem, extension) = name.rsplit_once('.')?;
        let (kind, hash) = stem.rsplit_once('-')?;
        let hash = ObjectId::from_hex(hash.as_bytes()).ok()?;
        let format = match (kind, extension) {
            ("pack", extension) => Self::of_pack_file(extension)?,
            ("multi-pack-index", "rev") => Self::ReverseIndex,
            ("multi-pack-index", "bitmap") => Self::Bitmap,
            ("graph", "graph") => Self::CommitGraph,
            _ => return None,
        };
        Some((format, Some(hash)))
    }

    /// Determines the format of a file that belongs to a single pack.
    fn of_pack_file(extension: &str) -> Option<Self> {
        match extension {
            "pack" => Some(Self::Pack),
            "idx" => Some(Self::Index),
            "rev" => Some(Self::ReverseIndex),
            "bitmap" => Some(Self::Bitmap),
            _ => None,
        }
    }

    fn magic(self) -> &'static [u8] {
        match self {
            Self::Pack => b"PACK",
            Self::Index => b"\xfftOc",
            Self::ReverseIndex => b"RIDX",
            Self::Bitmap => b"BITM",
            Self::MultiPackIndex => b"MIDX",
            Self::CommitGraph => b"CGPH",
        }
    }
}

impl Checksummed {
    fn new(format: Format, name: Option<ObjectId>) -> Self {
        Self { format, name, hash: hasher(Kind::Sha1), head: Vec::new(), tail: Vec::new() }
    }

    fn update(&mut self, bytes: &[u8]) {
        let wanted = HEAD_LENGTH.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..wanted]);
        if bytes.len() >= 2 * HASH_LENGTH {
            let (body, tail) = bytes.split_at(bytes.len() - 2 * HASH_LENGTH);
            self.hash.update(&self.tail);
            self.hash.update(body);
            self.tail.clear();
            self.tail.extend_from_slice(tail);
        } else {
            self.tail.extend_from_slice(bytes);
            let surplus = self.tail.len().saturating_sub(2 * HASH_LENGTH);
            self.hash.update(&self.tail[..surplus]);
            self.tail.drain(..surplus);
        }
    }

    fn finish(mut self) -> Result<(), FileFault> {
        if !self.head.starts_with(self.format.magic()) {
            return Err(FileFault::InvalidSignature);
        }
        let Some(body) = self.tail.len().checked_sub(HASH_LENGTH) else { return Err(FileFault::TooShort) };
        let (before, checksum) = self.tail.split_at(body);
        self.hash.update(before);
        compare(self.hash, checksum, FileFault::WrongChecksum)?;
        // Each of these files repeats the checksum in its name.
        let embedded = match self.format {
            Format::Pack | Format::CommitGraph => checksum,
            Format::Index | Format::ReverseIndex => before,
            Format::Bitmap => self.head.get(12..12 + HASH_LENGTH).unwrap_or_default(),
            Format::MultiPackIndex => return Ok(()),
        };
        match self.name {
            Some(name) if name.as_bytes() != embedded => Err(FileFault::WrongName),
            _ => Ok(()),
        }
    }
}

fn compare(hash: Hasher, expected: &[u8], fault: FileFault) -> Result<(), FileFault> {
    match hash.try_finalize() {
        Ok(found) if found.as_bytes() == expected => Ok(()),
        _ => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tests::git;

    fn check(path: &str, content: &[u8], piece: usize) -> Result<(), FileFault> {
        let mut check = FileCheck::for_path(path);
        content.chunks(piece).for_each(|bytes| check.update(bytes));
        check.finish()
    }

    /// The path and content of files of every format that git stores objects in.
    fn every_kind() -> Vec<(String, Vec<u8>)> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        git(path, &["init", "-q"]);
        for (number, size) in [1_usize, 3000, 200_000].into_iter().enumerate() {
            let content: Vec<u8> = (0..size).map(|at| u8::try_from((at * at / 7) % 251).expect("small")).collect();
            fs::write(path.join(format!("file-{number}")), content).expect("written");
            git(path, &["add", "."]);
            git(path, &["commit", "-q", "-m", "more"]);
            let pack = ["repack", "-q", "-d", "--write-midx", "--write-bitmap-index"];
            git(path, &[&["-c", "pack.writeReverseIndex=true"], &pack[..]].concat());
        }
        git(path, &["repack", "-q", "-a", "-b"]);
        git(path, &["commit-graph", "write", "--reachable", "--split"]);
        git(path, &["commit", "-q", "--allow-empty", "-m", "loose"]);
        let mut files = Vec::new();
        let mut folders = vec![path.join(".git/objects")];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).expect("a folder") {
                let entry = entry.expect("an entry").path();
                if entry.is_dir() {
                    folders.push(entry);
                } else {
                    let name = entry.strip_prefix(path.join(".git")).expect("inside").display().to_string();
                    files.push((name, fs::read(entry).expect("read")));
                }
            }
        }
        files.retain(|(path, _)| !matches!(FileCheck::for_path(path).0, Check::None));
        files
    }

    #[test]
    fn files_of_a_stored_pack_are_compared_with_its_checksum() {
        let files = every_kind();
        let (path, pack) = files.iter().find(|(path, _)| path.ends_with(".pack")).expect("a pack");
        let checksum: Oid = path[path.len() - 45..path.len() - 5].parse().expect("a checksum");
        let check = |extension: &str, content: &[u8], checksum: Oid| {
            let mut check = FileCheck::for_pack(extension, checksum);
            check.update(content);
            check.finish()
        };
        let index = files.iter().find(|(name, _)| *name == path.replace(".pack", ".idx")).map(|(_, index)| index);
        let index = index.expect("an index");
        assert_eq!(check("pack", pack, checksum), Ok(()));
        assert_eq!(check("idx", index, checksum), Ok(()));
        let other = Oid([7; 20]);
        assert_eq!(check("pack", pack, other), Err(FileFault::WrongName));
        assert_eq!(check("idx", index, other), Err(FileFault::WrongName));
        assert_eq!(check("pack", &pack[..pack.len() - 1], checksum), Err(FileFault::WrongChecksum));
        assert_eq!(check("idx", pack, checksum), Err(FileFault::InvalidSignature));
    }

    #[test]
    fn intact_files_pass_and_any_damage_to_any_format_is_found() {
        let files = every_kind();
        let kinds = [".pack", ".idx", ".rev", ".bitmap", ".graph", "multi-pack-index"];
        for kind in kinds {
            assert!(files.iter().any(|(path, _)| path.ends_with(kind)), "no {kind}");
        }
        assert!(
            files.iter().any(|(path, _)| matches!(FileCheck::for_path(path).0, Check::Loose(_))),
            "no loose object"
        );
        for (path, content) in &files {
            for piece in [1, 7, 39, 40, 41, 65_536] {
                assert_eq!(check(path, content, piece), Ok(()), "{path} in pieces of {piece}");
            }
            let damaged = |what: &str, content: &[u8]| {
                assert!(check(path, content, 4096).is_err(), "{path}: {what}");
            };
            for end in [0, 1, 19, 20, 40, content.len() / 2, content.len() - 20, content.len() - 1] {
                damaged(&format!("cut at {end}"), &content[..end.min(content.len() - 1)]);
            }
            // The last byte of the compressed data, before its checksum of 4 bytes, may have unused bits.
            let is_loose = matches!(FileCheck::for_path(path).0, Check::Loose(_));
            let means_something = |place: &usize| !is_loose || *place != content.len() - 5;
            let places = (0..content.len()).step_by(content.len() / 97 + 1).chain([content.len() - 1]);
            for place in places.filter(means_something) {
                let mut other = content.clone();
                other[place] ^= 16;
                damaged(&format!("changed at {place}"), &other);
            }
            damaged("zeros", &vec![0; content.len()]);
            damaged("grown", &[content.as_slice(), b"\0"].concat());
        }
        for (path, _) in &files {
            let same_kind = |other: &str| path.rsplit('.').next() == other.rsplit('.').next() && path.contains('.');
            for (_, content) in files.iter().filter(|(other, _)| other != path && same_kind(other)) {
                assert!(check(path, content, 4096).is_err(), "{path} is another file");
            }
        }
    }
}
