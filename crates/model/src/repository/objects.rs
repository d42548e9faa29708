//! What is in a repository: commits, branches, tags, trees and their differences.

use std::{fmt, str::FromStr};

use jiff::tz::Offset;

use crate::Time;

/// The name of an object: its SHA-1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(pub [u8; 20]);

impl Oid {
    /// What stands for no object at all in protocols and payloads.
    pub const ZERO: &'static str = "0000000000000000000000000000000000000000";
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnOid;

impl FromStr for Oid {
    type Err = NotAnOid;

    fn from_str(text: &str) -> Result<Self, NotAnOid> {
        let bytes = text.as_bytes();
        if bytes.len() != 40 {
            return Err(NotAnOid);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut id = [0; 20];
        for (place, pair) in id.iter_mut().zip(bytes.chunks_exact(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(NotAnOid) };
            *place = high << 4 | low;
        }
        Ok(Self(id))
    }
}

/// Who did something, and when, in their own time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name; what is not UTF-8 is replaced.
    pub name: String,
    /// The address.
    pub email: String,
    /// Seconds since 1970.
    pub seconds: i64,
    /// How far the clock was ahead of UTC, in seconds.
    pub offset: i32,
}

impl Signature {
    /// The moment to the second, with the offset. What no calendar has becomes the beginning of 1970.
    pub fn timestamp(&self) -> String {
        let moment = Time::from_second(self.seconds).unwrap_or(Time::UNIX_EPOCH);
        let offset = Offset::from_seconds(self.offset).unwrap_or(Offset::UTC);
        moment.display_with_offset(offset).to_string()
    }
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its name.
    pub id: Oid,
    /// What it builds upon.
    pub parents: Vec<Oid>,
    /// Who wrote it.
    pub author: Signature,
    /// Who put it there.
    pub committer: Signature,
    /// All of the message, the final newline included; what is not UTF-8 is replaced.
    pub message: String,
}

impl Commit {
    /// The first eight digits of its name.
    pub fn short_id(&self) -> String {
        let mut id = self.id.to_string();
        id.truncate(8);
        id
    }

    /// The first line of the message, shortened if it is very long.
    pub fn title(&self) -> String {
        let line = self.message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        if line.is_empty() {
            return "--no commit message".into();
        }
        if line.chars().count() <= 100 {
            return line.to_owned();
        }
        line.chars().take(80).chain(['…']).collect()
    }
}

/// How many lines a commit added and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Lines added.
    pub additions: usize,
    /// Lines removed.
    pub deletions: usize,
}

/// A tag as the repository knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The name without `refs/tags/`.
    pub name: String,
    /// What the ref points to: the tag object of an annotated tag, else the commit.
    pub target: Oid,
    /// The annotation without its final newline; `None` for a lightweight tag.
    pub message: Option<String>,
    /// The commit it leads to; `None` if it leads to something else.
    pub commit: Option<Commit>,
}

/// What an entry of a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A folder.
    Tree,
    /// A file or a symbolic link.
    Blob,
    /// A commit of another repository.
    Submodule,
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// The name of the object.
    pub id: Oid,
    /// The last part of the path.
    pub name: String,
    /// The path from the root.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// The mode, such as `0o100644`.
    pub mode: u16,
}

/// How one file differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// Where it was; the same as `new_path` unless it was moved.
    pub old_path: String,
    /// Where it is.
    pub new_path: String,
    /// Its mode before; `None` if it was not there.
    pub old_mode: Option<u16>,
    /// Its mode after; `None` if it is gone.
    pub new_mode: Option<u16>,
    /// The unified text without the headers of git; empty if it is too large or there is nothing to show.
    pub diff: String,
    /// Whether it was moved.
    pub renamed: bool,
    /// Whether the text was left out because of its size.
    pub too_large: bool,
}

/// What lies between two commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The commits of the one that the other lacks, oldest first.
    pub commits: Vec<Commit>,
    /// How the files differ from where the two parted.
    pub diffs: Vec<FileDiff>,
    /// Whether there is more than a page should show.
    pub overflows: bool,
    /// Whether both are the same commit.
    pub same: bool,
}

/// Somebody who wrote commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contributor {
    /// The name on the newest of their commits.
    pub name: String,
    /// The address by which they are told apart.
    pub email: String,
    /// How many commits.
    pub commits: usize,
}

/// The form of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveFormat {
    /// Packed by gzip.
    TarGz,
    /// Packed by bzip2.
    TarBz2,
    /// Not packed.
    Tar,
    /// A zip file.
    Zip,
}

impl ArchiveFormat {
    /// The ending of the file name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::TarGz => "tar.gz",
            Self::TarBz2 => "tar.bz2",
            Self::Tar => "tar",
            Self::Zip => "zip",
        }
    }

    /// The form that an ending asks for.
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension {
            "tar.gz" | "tgz" | "gz" => Some(Self::TarGz),
            "tar.bz2" | "tbz" | "tbz2" | "tb2" | "bz2" => Some(Self::TarBz2),
            "tar" => Some(Self::Tar),
            "zip" => Some(Self::Zip),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_forty_hexadecimal_digits() {
        let text = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(text.parse::<Oid>().map(|id| id.to_string()), Ok(text.to_owned()));
        assert_eq!(text.to_uppercase().parse::<Oid>().map(|id| id.to_string()), Ok(text.to_owned()));
        for bad in ["", "01", &text[1..], &format!("{text}0"), &text.replace('0', "g"), &text.replace('0', "+")] {
            assert_eq!(bad.parse::<Oid>(), Err(NotAnOid), "{bad}");
        }
    }

    #[test]
    fn a_signature_keeps_its_own_offset() {
        let check = |seconds, offset, expected: &str| {
            let signature = Signature { name: String::new(), email: String::new(), seconds, offset };
            assert_eq!(signature.timestamp(), expected, "{seconds} {offset}");
        };
        check(1_479_809_730, 7200, "2016-11-22T12:15:30+02:00");
        check(1_479_809_730, -12600, "2016-11-22T06:45:30-03:30");
        check(0, 0, "1970-01-01T00:00:00+00:00");
        check(i64::MAX, i32::MAX, "1970-01-01T00:00:00+00:00");
    }

    #[test]
    fn a_title_is_one_short_line() {
        let titled = |message: &str| {
            let who = Signature { name: String::new(), email: String::new(), seconds: 0, offset: 0 };
            let (id, parents, message) = (Oid([0; 20]), Vec::new(), message.to_owned());
            Commit { id, parents, author: who.clone(), committer: who, message }.title()
        };
        assert_eq!(titled("first\nsecond\n"), "first");
        assert_eq!(titled(" \n"), "--no commit message");
        assert_eq!(titled(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(titled(&"ä".repeat(101)), format!("{}…", "ä".repeat(80)));
    }
}
