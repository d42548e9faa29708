//! The list of everything that a backup holds, by which a cut or changed one is told from a good one.
//!
//! ```text
//! {"format":1,…}                 what it is a backup of
//! <sha256> <size> <path>         a file; its bytes follow from the sum
//! = <path> <path>                the second file is the first one under another name
//! {"rows":{…},…}                 how much there is of what
//! sha256 <sum>                   of everything above
//! ```

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, BufRead, Read, Write},
};

use git::FileCheck;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Sentence;

/// The form that this version writes. Newer ones are refused.
pub(super) const FORMAT: u32 = 1;

/// What it is a backup of.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Head {
    pub(super) format: u32,
    /// The version that wrote it.
    pub(super) gable: String,
    /// `sqlite` or `postgres`: for people, since either restores into either.
    pub(super) engine: String,
    /// Which migrations had run.
    pub(super) migrations: Vec<String>,
    pub(super) taken_at: String,
    /// What tells one instance from all others, and nothing else of it; older backups do not say.
    #[serde(default)]
    pub(super) instance: Option<String>,
    /// Whether what was copied was checked on the way; older versions did not.
    #[serde(default)]
    pub(super) verified: bool,
}

/// How much there is of what.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Seal {
    /// Rows by table.
    pub(super) rows: BTreeMap<String, u64>,
    /// The highest number that each table has ever given.
    pub(super) sequences: BTreeMap<String, i64>,
    pub(super) repositories: u64,
    pub(super) members: u64,
    pub(super) bytes: u64,
    /// What was removed while the backup was made: nothing below these paths counts.
    pub(super) left_out: Vec<String>,
    /// What should have been there and was not: files and repositories that the disk has lost.
    #[serde(default)]
    pub(super) missing: Vec<String>,
    /// What was copied but is not what was once written: files that were damaged on disk.
    #[serde(default)]
    pub(super) damaged: Vec<Damage>,
    /// In a stream, the sum of every byte before the manifest.
    pub(super) stream: Option<String>,
}

impl Seal {
    /// Whether the instance was whole when the backup was made, so that a restore gives all of it.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.damaged.is_empty()
    }
}

/// A file that was found to be damaged on the disk of the instance.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Damage {
    pub(super) path: String,
    /// What is wrong with it.
    pub(super) fault: String,
    /// The project whose repository it belongs to.
    #[serde(default)]
    pub(super) project: Option<i64>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.project {
            Some(project) => write!(f, "{} (project {project}): {}", self.path, self.fault),
            None => write!(f, "{}: {}", self.path, self.fault),
        }
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    File { sum: String, size: u64, path: String },
    Link { target: String, path: String },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { sum, size, path } => write!(f, "{sum} {size} {path}"),
            Self::Link { target, path } => write!(f, "= {target} {path}"),
        }
    }
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once(' ')?;
        let (second, path) = rest.split_once(' ')?;
        let path = path.to_owned();
        if first == "=" {
            return Some(Self::Link { target: second.to_owned(), path });
        }
        let is_sum = first.len() == 64 && first.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Self::File { sum: is_sum.then(|| first.to_owned())?, size: second.parse().ok()?, path })
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::File { path, .. } | Self::Link { path, .. } => path,
        }
    }
}

/// Writes a manifest as files are added.
pub(super) struct Writer<W: Write> {
    out: W,
    hash: Sha256,
    members: u64,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(out: W, head: &Head) -> io::Result<Self> {
        let mut writer = Self { out, hash: Sha256::new(), members: 0, bytes: 0 };
        writer.say(&serde_json::to_string(head)?)?;
        Ok(writer)
    }

    pub(super) fn add(&mut self, line: &Line) -> io::Result<()> {
        self.members += 1;
        if let Line::File { size, .. } = line {
            self.bytes += size;
        }
        self.say(&line.to_string())
    }

    /// Ends it; answers what was written it to.
    pub(super) fn finish(mut self, seal: Seal) -> io::Result<(W, Seal)> {
        let seal = Seal { members: self.members, bytes: self.bytes, ..seal };
        self.say(&serde_json::to_string(&seal)?)?;
        let sum = hex(&self.hash.finalize_reset());
        self.out.write_all(format!("sha256 {sum}\n").as_bytes())?;
        Ok((self.out, seal))
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        self.hash.update(line);
        self.hash.update("\n");
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }
}

/// Reads a manifest from its beginning, and answers for it at its end.
pub(super) struct Reader<R: BufRead> {
    from: R,
    hash: Sha256,
    members: u64,
    pub(super) head: Head,
}

/// What comes next in a manifest.
pub(super) enum Next {
    Line(Line),
    /// All was as it was written.
    End(Box<Seal>),
}

impl<R: BufRead> Reader<R> {
    pub(super) fn open(mut from: R) -> Result<Self, Sentence> {
        let mut hash = Sha256::new();
        let line = take_line(&mut from, &mut hash)?;
        Ok(Self { from, hash, members: 0, head: read_head(&line)? })
    }

    pub(super) fn next(&mut self) -> Result<Next, Sentence> {
        let line = take_line(&mut self.from, &mut self.hash)?;
        if !line.starts_with('{') {
            self.members += 1;
            return Line::parse(&line).map(Next::Line).ok_or_else(changed);
        }
        let seal: Seal = serde_json::from_str(&line).map_err(|_| changed())?;
        let sum = hex(&self.hash.finalize_reset());
        let last = take_line(&mut self.from, &mut self.hash)?;
        let mut beyond = [0];
        let ended = self.from.read(&mut beyond).map_err(unreadable)? == 0;
        if last != format!("sha256 {sum}") || !ended || seal.members != self.members {
            return Err(changed());
        }
        Ok(Next::End(Box::new(seal)))
    }
}

/// Reads what it is a backup of. What a newer version wrote is refused before anything else is looked at.
pub(super) fn read_head(text: &str) -> Result<Head, Sentence> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_str(text).map_err(|_| not_one())?;
    if format > FORMAT {
        return Err(format!("this backup is of the form {format}, and this gable knows {FORMAT}; use a newer gable"));
    }
    serde_json::from_str(text).map_err(|_| changed())
}

fn take_line(from: &mut impl BufRead, hash: &mut Sha256) -> Result<String, Sentence> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line).map_err(unreadable)?;
    hash.update(&line);
    if line.pop() != Some(b'\n') {
        return Err(cut());
    }
    String::from_utf8(line).map_err(|_| changed())
}

/// Sums up what is read.
pub(super) struct Hashing<R> {
    inner: R,
    hash: Sha256,
    /// How many bytes it were.
    pub(super) count: u64,
}

impl<R> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), count: 0 }
    }

    pub(super) fn sum(self) -> String {
        hex(&self.hash.finalize())
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.count += read as u64;
        Ok(read)
    }
}

/// The path of a file from its repository on.
pub(super) fn repository_path(path: &str) -> Option<&str> {
    path.strip_prefix("repositories/")?.split_once(".git/").map(|(_, path)| path)
}

/// What is wrong with the file of a repository.
pub(super) fn fault_of(mut content: impl Read, mut check: FileCheck) -> Option<String> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return check.finish().err(),
            Ok(read) => check.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// Refuses to call a backup good in which files were damaged when it was made, by a version that did not look.
pub(super) fn refuse_faults(faults: &[(String, String)]) -> Result<(), Sentence> {
    let Some((path, fault)) = faults.first() else { return Ok(()) };
    Err(format!(
        "the backup is what was written, but {path} was damaged already when the backup was made ({fault}; {} such \
         files); an older backup may have it whole",
        faults.len()
    ))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect()
}

pub(super) fn cut() -> Sentence {
    "the backup is cut: its end is missing; nothing was changed".into()
}

pub(super) fn changed() -> Sentence {
    "the backup is damaged or cut: it is not what was written; nothing was changed".into()
}

pub(super) fn not_one() -> Sentence {
    "this is no backup of gable; nothing was changed".into()
}

pub(super) fn unreadable(error: io::Error) -> Sentence {
    use io::ErrorKind::{InvalidData, Other, UnexpectedEof};
    match error.kind() {
        UnexpectedEof => cut(),
        InvalidData | Other => changed(),
        _ => format!("the backup cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let head = Head {
            format: FORMAT,
            gable: "1".into(),
            engine: "sqlite".into(),
            migrations: vec!["1".into()],
            taken_at: "now".into(),
            instance: None,
            verified: true,
        };
        let mut writer = Writer::begin(Vec::new(), &head).expect("begun");
        writer.add(&Line::File { sum: "a".repeat(64), size: 3, path: "files/a b".into() }).expect("added");
        writer.add(&Line::Link { target: "x".into(), path: "y".into() }).expect("added");
        writer.finish(Seal::default()).expect("finished").0
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>, Sentence> {
        let mut reader = Reader::open(bytes)?;
        let mut lines = Vec::new();
        loop {
            match reader.next()? {
                Next::Line(line) => lines.push(line.to_string()),
                Next::End(_) => return Ok(lines),
            }
        }
    }

    #[test]
    fn what_was_written_is_read_and_whatever_was_changed_or_cut_is_refused() {
        let whole = written();
        assert_eq!(read(&whole).expect("read"), [format!("{} 3 files/a b", "a".repeat(64)), "= x y".into()]);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "cut at {end}");
        }
        for place in 0..whole.len() {
            let mut other = whole.clone();
            other[place] ^= 1;
            assert!(read(&other).is_err(), "changed at {place}");
        }
    }

    #[test]
    fn what_a_newer_version_wrote_is_refused() {
        let refused = read_head(r#"{"format":2,"what":"we do not know"}"#).expect_err("refused");
        assert_eq!(refused, "this backup is of the form 2, and this gable knows 1; use a newer gable");
    }
}
