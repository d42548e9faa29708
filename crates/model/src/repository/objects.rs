//! Objects of a repository: commits, tags, trees and diffs.

use std::{fmt, str::FromStr};

use jiff::tz::Offset;

use crate::Time;

/// An object id: a SHA-1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(pub [u8; 20]);

impl Oid {
    /// The null id of protocols and payloads, which stands for no object.
    pub const ZERO: &'static str = "0000000000000000000000000000000000000000";
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 40];
        f.write_str(base16ct::lower::encode_str(&self.0, &mut digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error of parsing an invalid object id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseOidError;

impl FromStr for Oid {
    type Err = ParseOidError;

    fn from_str(text: &str) -> Result<Self, ParseOidError> {
        let mut id = [0; 20];
        let decoded = base16ct::mixed::decode(text, &mut id).map_err(|_| ParseOidError)?;
        if decoded.len() != 20 {
            return Err(ParseOidError);
        }
        Ok(Self(id))
    }
}

/// The author or committer of an object, with time and time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name; invalid UTF-8 is replaced.
    pub name: String,
    /// The email address.
    pub email: String,
    /// The time in seconds since 1970.
    pub seconds: i64,
    /// The offset from UTC, in seconds.
    pub offset: i32,
}

impl Signature {
    /// Formats the time with its offset. Times out of range become the beginning of 1970.
    pub fn timestamp(&self) -> String {
        let moment = Time::from_second(self.seconds).unwrap_or(Time::UNIX_EPOCH);
        let offset = Offset::from_seconds(self.offset).unwrap_or(Offset::UTC);
        moment.display_with_offset(offset).to_string()
    }
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The id.
    pub id: Oid,
    /// The parents.
    pub parents: Vec<Oid>,
    /// The author.
    pub author: Signature,
    /// The committer.
    pub committer: Signature,
    /// The complete message, including the final newline; invalid UTF-8 is replaced.
    pub message: String,
}

impl Commit {
    /// Returns the first eight digits of the id.
    pub fn short_id(&self) -> String {
        let mut id = self.id.to_string();
        id.truncate(8);
        id
    }

    /// Returns the first line of the message, shortened if it is very long.
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

/// The numbers of lines that a commit adds and removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Lines added.
    pub additions: usize,
    /// Lines removed.
    pub deletions: usize,
}

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The name without `refs/tags/`.
    pub name: String,
    /// The target of the ref: the tag object of an annotated tag, else the commit.
    pub target: Oid,
    /// The annotation without its final newline; `None` for a lightweight tag.
    pub message: Option<String>,
    /// The commit; `None` if the tag points to another object.
    pub commit: Option<Commit>,
}

/// The kind of a tree entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A folder.
    Tree,
    /// A file or a symbolic link.
    Blob,
    /// A commit of a submodule.
    Submodule,
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// The object id.
    pub id: Oid,
    /// The last segment of the path.
    pub name: String,
    /// The path from the root of the repository.
    pub path: String,
    /// The kind.
    pub kind: EntryKind,
    /// The mode, such as `0o100644`.
    pub mode: u16,
}

/// The last commit that changed an entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCommit {
    /// The id.
    pub id: Oid,
    /// The first line of the message.
    pub title: String,
    /// When it was committed.
    pub time: Time,
}

/// Which commit last changed each line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// The lines in their order, without gaps.
    pub ranges: Vec<BlameRange>,
    /// The commits that the ranges refer to by their index.
    pub commits: Vec<Commit>,
}

/// Consecutive lines that the same commit changed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlameRange {
    /// The number of the first line, starting at 0.
    pub start: usize,
    /// The number of lines.
    pub length: usize,
    /// The index of the commit; `None` if it was not found in the time allowed.
    pub commit: Option<usize>,
    /// The number of the first line in that commit, starting at 0.
    pub original_start: usize,
    /// The path of the file in that commit.
    pub original_path: String,
}

/// The diff of a file between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// The old path; equals `new_path` unless the file was renamed.
    pub old_path: String,
    /// The new path.
    pub new_path: String,
    /// The old mode; `None` for a new file.
    pub old_mode: Option<u16>,
    /// The new mode; `None` for a deleted file.
    pub new_mode: Option<u16>,
    /// The unified diff without git's headers; empty if it is too large or has no text.
    pub diff: String,
    /// Whether the file was renamed.
    pub renamed: bool,
    /// Whether the diff was omitted because of its size.
    pub too_large: bool,
}

/// A comparison of two commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The commits that only the second one contains, oldest first.
    pub commits: Vec<Commit>,
    /// The diffs against the merge base.
    pub diffs: Vec<FileDiff>,
    /// Whether commits or diffs were omitted because of their number or size.
    pub is_truncated: bool,
    /// Whether both commits are the same.
    pub same: bool,
}

/// An author of commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contributor {
    /// The name in the newest commit.
    pub name: String,
    /// The email address, which identifies the contributor.
    pub email: String,
    /// The number of commits.
    pub commits: usize,
}

/// How many commits were made when and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The first second of each week with commits, and their number; oldest first.
    pub weeks: Vec<(i64, usize)>,
    /// The number of commits.
    pub commits: usize,
    /// The authors, those with the most commits first.
    pub contributors: Vec<ContributorActivity>,
    /// The number of all authors; only the first are listed.
    pub contributor_count: usize,
    /// Whether old commits were left out.
    pub is_truncated: bool,
}

/// The commits of an author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContributorActivity {
    /// The name in the newest commit.
    pub name: String,
    /// The number of commits.
    pub commits: usize,
    /// The time of the oldest commit, in seconds since 1970.
    pub first: i64,
    /// The time of the newest commit, in seconds since 1970.
    pub last: i64,
}

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveFormat {
    /// A tar file compressed with gzip.
    TarGz,
    /// A tar file compressed with bzip2.
    TarBz2,
    /// An uncompressed tar file.
    Tar,
    /// A zip file.
    Zip,
}

impl ArchiveFormat {
    /// Returns the file extension.
    pub fn extension(self) -> &'static str {
        match self {
            Self::TarGz => "tar.gz",
            Self::TarBz2 => "tar.bz2",
            Self::Tar => "tar",
            Self::Zip => "zip",
        }
    }

    /// Returns the format of a file extension.
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
            assert_eq!(bad.parse::<Oid>(), Err(ParseOidError), "{bad}");
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
