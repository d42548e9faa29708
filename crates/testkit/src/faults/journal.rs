//! What the library has written down: every change below the folder that is watched, in the order in which they happened.

use std::{fs, path::Path};

/// One call, as it succeeded. Files and folders are known by the numbers of their inodes.
pub(super) enum Entry {
    /// Bytes were written; with what was there before, as far as there was anything, and the size of the file then.
    Write { file: u64, from: u64, length: u64, size: u64, before: Vec<u8> },
    /// A file got another length; with what was cut off.
    Truncate { file: u64, to: u64, size: u64, before: Vec<u8> },
    /// The content of a file is on disk.
    Sync { file: u64 },
    /// The entries of a folder are on disk.
    SyncFolder { folder: u64 },
    /// Everything is on disk.
    SyncAll,
    /// Something happened to the entries of a folder.
    Step(Step),
}

/// A change of the entries of a folder.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) kind: Kind,
    /// What it happened to.
    pub(super) file: u64,
    /// The folder, and the name in it.
    pub(super) folder: u64,
    pub(super) name: String,
    /// Of a rename: where to.
    pub(super) target: u64,
    pub(super) new_name: String,
    /// Where that is kept which has lost its name; 0 for nothing.
    pub(super) grave: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Mkdir,
    Rmdir,
    Unlink,
    Rename,
    Link,
}

/// How long `struct entry` in `shim.c` is.
const HEADER: usize = 72;

/// Reads the journal; a half entry at its end, of a program that was killed by somebody else, does not count.
pub(super) fn read(path: &Path) -> Vec<Entry> {
    let bytes = fs::read(path).expect("the journal");
    let mut entries = Vec::new();
    let mut rest = &bytes[..];
    while let Some((entry, further)) = next(rest) {
        entries.push(entry);
        rest = further;
    }
    entries
}

fn next(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let small = |at: usize| header[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let large = |at: usize| header[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
    let size_of = |at: usize| usize::try_from(small(at)).expect("a small number");
    let (name, rest) = rest.split_at_checked(size_of(64))?;
    let (new_name, rest) = rest.split_at_checked(size_of(68))?;
    let (before, rest) = rest.split_at_checked(size_of(4))?;
    let before = before.to_vec();
    let (file, from, length, size) = (large(8), large(32), large(40), large(48));
    let step = |kind| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("names are text here");
        Entry::Step(Step {
            kind,
            file,
            folder: large(16),
            name: text(name),
            target: large(24),
            new_name: text(new_name),
            grave: large(56),
        })
    };
    let entry = match small(0) {
        1 => Entry::Write { file, from, length, size, before },
        2 => Entry::Truncate { file, to: from, size, before },
        3 => Entry::Sync { file },
        4 => Entry::SyncFolder { folder: file },
        5 => Entry::SyncAll,
        6 => step(Kind::Create),
        7 => step(Kind::Mkdir),
        8 => step(Kind::Rmdir),
        9 => step(Kind::Unlink),
        10 => step(Kind::Rename),
        11 => step(Kind::Link),
        other => panic!("the library writes {other}, which nobody understands"),
    };
    Some((entry, rest))
}
