//! The directory of a ZIP archive, which is at its end. Reads numbers that a job wrote, and trusts none of them.

use std::ops::Range;

/// The maximum number of bytes at the end of an archive in which its directory is found.
pub(super) const MAX_END_BYTES: u64 = 20 + 22 + 65_535;
/// The size of the record that contains the place of the directory of a large archive.
pub(super) const ZIP64_END_BYTES: u64 = 56;
/// The size of the header in front of a file, without its name.
pub(super) const LOCAL_HEADER_BYTES: u64 = 30;

const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
const ENTRY_BYTES: usize = 46;
/// The number that refers to the 64-bit record.
const IN_ZIP64: u32 = u32::MAX;
/// The flag of encrypted files.
const ENCRYPTED: u16 = 1;

/// Where the directory is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DirectoryEnd {
    /// The bytes of the directory.
    Found(Range<u64>),
    /// The offset of the record of a large archive.
    Zip64(u64),
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Deflate,
    /// Encrypted, or compressed with another method.
    Unsupported,
}

/// An entry of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) compression: Compression,
    pub(super) compressed_size: u64,
    pub(super) size: u64,
    /// The offset of the header in front of the file.
    pub(super) header_offset: u64,
}

impl Entry {
    pub(super) fn is_folder(&self) -> bool {
        self.path.ends_with('/')
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Finds the directory in the last bytes of an archive; `None` if it is not an archive.
pub(super) fn find_end(tail: &[u8]) -> Option<DirectoryEnd> {
    let last = tail.len().checked_sub(END_BYTES)?;
    // The record is followed by a comment of the length that it states.
    let is_end = |at: &usize| {
        tail[*at..].starts_with(b"PK\x05\x06")
            && u16_at(tail, at + 20).is_some_and(|length| at + END_BYTES + usize::from(length) == tail.len())
    };
    let at = (0..=last).rev().find(is_end)?;
    let (size, offset) = (u32_at(tail, at + 12)?, u32_at(tail, at + 16)?);
    if size == IN_ZIP64 || offset == IN_ZIP64 {
        let locator = tail.get(at.checked_sub(LOCATOR_BYTES)?..at)?;
        return locator.starts_with(b"PK\x06\x07").then(|| u64_at(locator, 8).map(DirectoryEnd::Zip64)).flatten();
    }
    let start = u64::from(offset);
    Some(DirectoryEnd::Found(start..start + u64::from(size)))
}

/// Returns the place of the directory from the record of a large archive.
pub(super) fn read_zip64_end(record: &[u8]) -> Option<Range<u64>> {
    let is_record = record.starts_with(b"PK\x06\x06");
    let (size, start) = (u64_at(record, 40)?, u64_at(record, 48)?);
    is_record.then(|| Some(start..start.checked_add(size)?)).flatten()
}

/// Reads the entries of a directory; an item is `None` if the rest is damaged.
pub(super) fn entries(directory: &[u8]) -> impl Iterator<Item = Option<Entry>> {
    let mut rest = directory;
    std::iter::from_fn(move || {
        // What follows the entries, such as a signature, is of no interest.
        if !rest.starts_with(b"PK\x01\x02") {
            return None;
        }
        let entry = read_entry(rest);
        rest = entry.as_ref().map_or(&[], |(_, length)| rest.get(*length..).unwrap_or_default());
        Some(entry.map(|(entry, _)| entry))
    })
}

/// Reads the first entry, and returns it with its length.
fn read_entry(bytes: &[u8]) -> Option<(Entry, usize)> {
    let length_at = |at: usize| u16_at(bytes, at).map(usize::from);
    let (name, extra, comment) = (length_at(28)?, length_at(30)?, length_at(32)?);
    let name_end = ENTRY_BYTES + name;
    let path = String::from_utf8_lossy(bytes.get(ENTRY_BYTES..name_end)?).replace('\\', "/");
    let mut zip64 = zip64_numbers(bytes.get(name_end..name_end + extra)?);
    let mut number = |at: usize| match u32_at(bytes, at)? {
        IN_ZIP64 => {
            let (number, rest) = zip64.split_first_chunk::<8>()?;
            zip64 = rest;
            Some(u64::from_le_bytes(*number))
        }
        number => Some(u64::from(number)),
    };
    // The extra field has them in this order.
    let (size, compressed_size, header_offset) = (number(24)?, number(20)?, number(42)?);
    let compression = match (u16_at(bytes, 10)?, u16_at(bytes, 8)? & ENCRYPTED) {
        (0, 0) => Compression::None,
        (8, 0) => Compression::Deflate,
        _ => Compression::Unsupported,
    };
    Some((Entry { path, compression, compressed_size, size, header_offset }, name_end + extra + comment))
}

/// Returns the 64-bit numbers in the extra fields of an entry.
fn zip64_numbers(mut extra: &[u8]) -> &[u8] {
    while let (Some(kind), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let end = 4 + usize::from(length);
        let Some(data) = extra.get(4..end) else { break };
        if kind == 1 {
            return data;
        }
        extra = &extra[end..];
    }
    &[]
}

/// Returns how far behind the beginning of its header the content of a file begins.
pub(super) fn content_start(header: &[u8]) -> Option<u64> {
    let is_header = header.starts_with(b"PK\x03\x04");
    let (name, extra) = (u16_at(header, 26)?, u16_at(header, 28)?);
    is_header.then(|| LOCAL_HEADER_BYTES + u64::from(name) + u64::from(extra))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of a directory with these sizes and extra fields.
    fn entry(path: &str, sizes: [u32; 3], extra: &[u8]) -> Vec<u8> {
        let mut bytes = b"PK\x01\x02".to_vec();
        bytes.extend([20, 0, 20, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(sizes[0].to_le_bytes());
        bytes.extend(sizes[1].to_le_bytes());
        bytes.extend(u16::try_from(path.len()).expect("short").to_le_bytes());
        bytes.extend(u16::try_from(extra.len()).expect("short").to_le_bytes());
        bytes.extend([0; 10]);
        bytes.extend(sizes[2].to_le_bytes());
        [&bytes, path.as_bytes(), extra].concat()
    }

    #[test]
    fn entries_are_read() {
        let large = [&1u16.to_le_bytes()[..], &16u16.to_le_bytes(), &(5u64 << 32).to_le_bytes(), &7u64.to_le_bytes()];
        let directory =
            [entry("a/b.txt", [3, 9, 40], b""), entry("big", [IN_ZIP64, IN_ZIP64, 1], &large.concat())].concat();
        let found: Vec<Entry> = entries(&directory).map(|entry| entry.expect("an entry")).collect();
        assert_eq!((found[0].path.as_str(), found[0].compressed_size, found[0].size), ("a/b.txt", 3, 9));
        assert_eq!((found[0].header_offset, found[0].compression), (40, Compression::Deflate));
        assert_eq!((found[1].size, found[1].compressed_size), (5 << 32, 7));
        // Every truncation and every changed byte is read without a panic.
        for length in 0..directory.len() {
            assert!(entries(&directory[..length]).count() <= 2);
        }
        for at in 0..directory.len() {
            let mut damaged = directory.clone();
            damaged[at] = 0xff;
            assert!(entries(&damaged).count() <= 2);
        }
    }

    #[test]
    fn the_directory_is_found_before_a_comment() {
        let mut end = b"PK\x05\x06\0\0\0\0\x01\0\x01\0".to_vec();
        end.extend(50u32.to_le_bytes());
        end.extend(100u32.to_le_bytes());
        end.extend(2u16.to_le_bytes());
        end.extend(b"hi");
        assert_eq!(find_end(&end), Some(DirectoryEnd::Found(100..150)));
        assert_eq!(find_end(&end[..23]), None);
        assert_eq!(find_end(b"not an archive, whatever its name says"), None);
        assert_eq!(find_end(b""), None);
    }
}
