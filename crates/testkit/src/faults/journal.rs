//! Reads the journal of the preloaded library: all changes below the watched folder, in order.

use std::{fs, path::Path};

/// A successful call. Files and folders are identified by inode.
pub(super) enum Entry {
    /// Bytes were written; `before` are the overwritten bytes and `size` is the previous size.
    Write { file: u64, from: u64, length: u64, size: u64, before: Vec<u8> },
    /// The length of a file was changed; `before` are the bytes that were cut off.
    Truncate { file: u64, to: u64, size: u64, before: Vec<u8> },
    /// A file was synced.
    Sync { file: u64 },
    /// A folder was synced.
    SyncFolder { folder: u64 },
    /// Everything was synced.
    SyncAll,
    /// A name in a folder was changed.
    NameChange(NameChange),
}

/// A change of a name in a folder.
#[derive(Clone)]
pub(super) struct NameChange {
    pub(super) kind: NameChangeKind,
    /// The file or folder that has the name.
    pub(super) file: u64,
    /// The folder of the name.
    pub(super) folder: u64,
    pub(super) name: String,
    /// The folder of the new name, for a rename.
    pub(super) target: u64,
    pub(super) new_name: String,
    /// The number of the file that lost its name, in the folder of unlinked files; 0 for none.
    pub(super) unlinked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameChangeKind {
    Create,
    Mkdir,
    Rmdir,
    Unlink,
    Rename,
    Link,
}

/// The size of `struct entry` in `shim.c`.
const HEADER_SIZE: usize = 72;

/// Reads the journal; an incomplete last entry, left by a killed process, is ignored.
pub(super) fn read(path: &Path) -> Vec<Entry> {
    let bytes = fs::read(path).expect("the journal");
    let mut entries = Vec::new();
    let mut rest = &bytes[..];
    while let Some((entry, remaining)) = next(rest) {
        entries.push(entry);
        rest = remaining;
    }
    entries
}

fn next(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_SIZE)?;
    let read_u32 = |at: usize| header[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let read_u64 = |at: usize| header[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
    let size_of = |at: usize| usize::try_from(read_u32(at)).expect("a small number");
    let (name, rest) = rest.split_at_checked(size_of(64))?;
    let (new_name, rest) = rest.split_at_checked(size_of(68))?;
    let (before, rest) = rest.split_at_checked(size_of(4))?;
    let before = before.to_vec();
    let (file, from, length, size) = (read_u64(8), read_u64(32), read_u64(40), read_u64(48));
    let step = |kind| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("names are UTF-8");
        Entry::NameChange(NameChange {
            kind,
            file,
            folder: read_u64(16),
            name: text(name),
            target: read_u64(24),
            new_name: text(new_name),
            unlinked: read_u64(56),
        })
    };
    let entry = match read_u32(0) {
        1 => Entry::Write { file, from, length, size, before },
        2 => Entry::Truncate { file, to: from, size, before },
        3 => Entry::Sync { file },
        4 => Entry::SyncFolder { folder: file },
        5 => Entry::SyncAll,
        6 => step(NameChangeKind::Create),
        7 => step(NameChangeKind::Mkdir),
        8 => step(NameChangeKind::Rmdir),
        9 => step(NameChangeKind::Unlink),
        10 => step(NameChangeKind::Rename),
        11 => step(NameChangeKind::Link),
        other => panic!("unknown journal entry {other}"),
    };
    Some((entry, rest))
}
