//! The manifest of a backup: all files with their checksums, to detect truncated and corrupted backups.
//!
//! ```text
//! {"format":2,…}                 header
//! <sha256> <size> <path>         a file
//! = <path> <path>                the second path is a hard link to the first; only in format 1
//! {"rows":{…},…}                 summary
//! sha256 <sum>                   of everything above
//! ```
//!
//! Format 1 contains the folders of repositories with refs as files. Since format 2 refs are rows, and objects are packs
//! in the store of files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, BufRead, Read, Write},
};

use anyhow::{Error, Result, anyhow, bail};
use git::FileCheck;
use model::text::hex;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

/// The format version that this version writes. Newer ones are refused.
pub(super) const FORMAT: u32 = 2;
/// The last format version with the folders of repositories.
pub(super) const LAST_FORMAT_WITH_FOLDERS: u32 = 1;
/// The maximum number of projects that are listed for one damaged file.
const MAX_LISTED_PROJECTS: usize = 10;

/// The first line of a manifest.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ManifestHeader {
    pub(super) format: u32,
    /// The version of gable that wrote the backup.
    pub(super) gable: String,
    /// `sqlite` or `postgres`. Informative: either can be restored into either.
    pub(super) engine: String,
    /// The migrations that had been applied.
    pub(super) migrations: Vec<String>,
    pub(super) taken_at: String,
    /// A digest that identifies the instance; absent in older backups.
    #[serde(default)]
    pub(super) instance: Option<String>,
    /// Whether files were verified while they were copied; older versions did not do that.
    #[serde(default)]
    pub(super) verified: bool,
    /// Whether traces consist of segments in rows and objects, as on an instance with a bucket. Otherwise they are files.
    #[serde(default)]
    pub(super) has_segments: bool,
}

/// The last but one line of a manifest.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct ManifestSummary {
    /// The number of rows by table.
    pub(super) rows: BTreeMap<String, u64>,
    /// The highest id that each table has ever assigned.
    pub(super) sequences: BTreeMap<String, i64>,
    pub(super) repositories: u64,
    pub(super) members: u64,
    pub(super) bytes: u64,
    /// Paths that were removed during the backup; everything below them is ignored.
    pub(super) left_out: Vec<String>,
    /// Files that should exist but do not, as text for people; sorted.
    #[serde(default)]
    pub(super) missing: Vec<String>,
    /// Files that were damaged on disk, and repositories that lack objects.
    #[serde(default)]
    pub(super) damaged: Vec<DamagedFile>,
    /// Digests of the packs and refs of the repositories that lack no object; see `ListedRepository::digest`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) connected: BTreeSet<String>,
    /// In a stream, the SHA-256 of every byte before the manifest.
    pub(super) stream: Option<String>,
}

impl ManifestSummary {
    /// Returns whether no file was missing or damaged when the backup was made.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.damaged.is_empty()
    }
}

/// A file of the instance that is damaged on disk.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct DamagedFile {
    pub(super) path: String,
    /// What is wrong with the file.
    pub(super) fault: String,
    /// The projects whose repositories it belongs to.
    #[serde(default, alias = "project", deserialize_with = "one_or_more")]
    pub(super) projects: Vec<i64>,
}

impl fmt::Display for DamagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", self.path, describe_projects(&self.projects), self.fault)
    }
}

/// Returns a text such as ` (projects 1, 2)`; empty if there are none.
pub(super) fn describe_projects(projects: &[i64]) -> String {
    let listed: Vec<String> = projects.iter().take(MAX_LISTED_PROJECTS).map(ToString::to_string).collect();
    match projects {
        [] => String::new(),
        [project] => format!(" (project {project})"),
        _ if projects.len() > listed.len() => {
            format!(" (projects {} and {} more)", listed.join(", "), projects.len() - listed.len())
        }
        _ => format!(" (projects {})", listed.join(", ")),
    }
}

/// Reads a list of projects, or the single one of format 1.
fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Projects {
        One(Option<i64>),
        More(Vec<i64>),
    }
    Ok(match Projects::deserialize(from)? {
        Projects::One(project) => project.into_iter().collect(),
        Projects::More(projects) => projects,
    })
}

/// A file in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ManifestEntry {
    File { sum: String, size: u64, path: String },
    Link { target: String, path: String },
}

impl fmt::Display for ManifestEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { sum, size, path } => write!(f, "{sum} {size} {path}"),
            Self::Link { target, path } => write!(f, "= {target} {path}"),
        }
    }
}

impl ManifestEntry {
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
    pub(super) fn begin(out: W, header: &ManifestHeader) -> io::Result<Self> {
        let mut writer = Self { out, hash: Sha256::new(), members: 0, bytes: 0 };
        writer.write_line(&serde_json::to_string(header)?)?;
        Ok(writer)
    }

    pub(super) fn add(&mut self, line: &ManifestEntry) -> io::Result<()> {
        self.members += 1;
        if let ManifestEntry::File { size, .. } = line {
            self.bytes += size;
        }
        self.write_line(&line.to_string())
    }

    /// Finishes the manifest; returns the writer and the completed summary.
    pub(super) fn finish(mut self, summary: ManifestSummary) -> io::Result<(W, ManifestSummary)> {
        let summary = ManifestSummary { members: self.members, bytes: self.bytes, ..summary };
        self.write_line(&serde_json::to_string(&summary)?)?;
        let sum = hex(&self.hash.finalize_reset());
        self.out.write_all(format!("sha256 {sum}\n").as_bytes())?;
        Ok((self.out, summary))
    }

    fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.hash.update(line);
        self.hash.update("\n");
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }
}

/// Reads a manifest; its checksum is verified at the end.
pub(super) struct Reader<R: BufRead> {
    from: R,
    hash: Sha256,
    members: u64,
    pub(super) header: ManifestHeader,
}

/// The next item of a manifest.
pub(super) enum ManifestItem {
    Entry(ManifestEntry),
    /// The end; the checksum is correct.
    End(Box<ManifestSummary>),
}

impl<R: BufRead> Reader<R> {
    pub(super) fn open(mut from: R) -> Result<Self> {
        let mut hash = Sha256::new();
        let line = read_line(&mut from, &mut hash)?;
        Ok(Self { from, hash, members: 0, header: parse_header(&line)? })
    }

    pub(super) fn next(&mut self) -> Result<ManifestItem> {
        let line = read_line(&mut self.from, &mut self.hash)?;
        if !line.starts_with('{') {
            self.members += 1;
            return ManifestEntry::parse(&line).map(ManifestItem::Entry).ok_or_else(corrupted);
        }
        let summary: ManifestSummary = serde_json::from_str(&line).map_err(|_| corrupted())?;
        let sum = hex(&self.hash.finalize_reset());
        let last = read_line(&mut self.from, &mut self.hash)?;
        let mut beyond = [0];
        let ended = self.from.read(&mut beyond).map_err(read_error)? == 0;
        if last != format!("sha256 {sum}") || !ended || summary.members != self.members {
            return Err(corrupted());
        }
        Ok(ManifestItem::End(Box::new(summary)))
    }
}

/// Parses the header of a manifest. A newer format is refused before the rest is parsed.
pub(super) fn parse_header(text: &str) -> Result<ManifestHeader> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_str(text).map_err(|_| not_a_backup())?;
    if format > FORMAT {
        bail!("the backup has format {format}, and this version of gable supports up to {FORMAT}; use a newer version");
    }
    serde_json::from_str(text).map_err(|_| corrupted())
}

fn read_line(from: &mut impl BufRead, hash: &mut Sha256) -> Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line).map_err(read_error)?;
    hash.update(&line);
    if line.pop() != Some(b'\n') {
        return Err(truncated());
    }
    String::from_utf8(line).map_err(|_| corrupted())
}

/// Computes the SHA-256 of what is read.
pub(super) struct HashingReader<R> {
    inner: R,
    hash: Sha256,
    /// The number of bytes read.
    pub(super) count: u64,
}

impl<R> HashingReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), count: 0 }
    }

    pub(super) fn sum(self) -> String {
        hex(&self.hash.finalize())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.count += read as u64;
        Ok(read)
    }
}

/// Returns the path of a file relative to its repository, if it belongs to the folder of one.
pub(super) fn repository_path(path: &str) -> Option<&str> {
    path.strip_prefix("repositories/")?.split_once(".git/").map(|(_, path)| path)
}

/// Returns what is wrong with a file of a repository.
pub(super) fn find_fault(mut content: impl Read, mut check: FileCheck) -> Option<String> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return check.finish().err().map(|fault| fault.to_string()),
            Ok(read) => check.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// Returns an error if files were already damaged when a version without verification made the backup.
pub(super) fn ensure_no_faults(faults: &[(String, String)]) -> Result<()> {
    let Some((path, fault)) = faults.first() else { return Ok(()) };
    Err(anyhow!(
        "the backup is intact, but {path} was already damaged when the backup was made ({fault}; {} such files); an older \
         backup may contain an intact copy",
        faults.len()
    ))
}

pub(super) fn truncated() -> Error {
    anyhow!("the backup is truncated; nothing was changed")
}

pub(super) fn corrupted() -> Error {
    anyhow!("the backup is damaged: its content does not match its checksums; nothing was changed")
}

pub(super) fn not_a_backup() -> Error {
    anyhow!("not a backup of gable; nothing was changed")
}

pub(super) fn read_error(error: io::Error) -> Error {
    use io::ErrorKind::{InvalidData, Other, UnexpectedEof};
    match error.kind() {
        UnexpectedEof => truncated(),
        InvalidData | Other => corrupted(),
        _ => Error::new(error).context("cannot read the backup"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let header = ManifestHeader {
            format: FORMAT,
            gable: "1".into(),
            engine: "sqlite".into(),
            migrations: vec!["1".into()],
            taken_at: "now".into(),
            instance: None,
            verified: true,
            has_segments: false,
        };
        let mut writer = Writer::begin(Vec::new(), &header).expect("begun");
        writer.add(&ManifestEntry::File { sum: "a".repeat(64), size: 3, path: "files/a b".into() }).expect("added");
        writer.add(&ManifestEntry::Link { target: "x".into(), path: "y".into() }).expect("added");
        writer.finish(ManifestSummary::default()).expect("finished").0
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>> {
        let mut reader = Reader::open(bytes)?;
        let mut lines = Vec::new();
        loop {
            match reader.next()? {
                ManifestItem::Entry(line) => lines.push(line.to_string()),
                ManifestItem::End(_) => return Ok(lines),
            }
        }
    }

    #[test]
    fn truncated_and_modified_manifests_are_refused() {
        let intact = written();
        assert_eq!(read(&intact).expect("read"), [format!("{} 3 files/a b", "a".repeat(64)), "= x y".into()]);
        for end in 0..intact.len() {
            assert!(read(&intact[..end]).is_err(), "truncated at {end}");
        }
        for position in 0..intact.len() {
            let mut other = intact.clone();
            other[position] ^= 1;
            assert!(read(&other).is_err(), "modified at {position}");
        }
    }

    #[test]
    fn a_newer_format_is_refused() {
        let refused = parse_header(r#"{"format":3,"what":"we do not know"}"#).expect_err("refused");
        assert_eq!(
            refused.to_string(),
            "the backup has format 3, and this version of gable supports up to 2; use a newer version"
        );
    }

    #[test]
    fn damaged_files_name_their_projects_in_either_format() {
        let check = |json: &str, shown: &str| {
            let damaged: DamagedFile = serde_json::from_str(json).expect(json);
            assert_eq!(damaged.to_string(), shown);
        };
        check(r#"{"path":"a","fault":"cut","project":7}"#, "a (project 7): cut");
        check(r#"{"path":"a","fault":"cut","project":null}"#, "a: cut");
        check(r#"{"path":"a","fault":"cut"}"#, "a: cut");
        check(r#"{"path":"a","fault":"cut","projects":[7]}"#, "a (project 7): cut");
        check(r#"{"path":"a","fault":"cut","projects":[7,8]}"#, "a (projects 7, 8): cut");
        let many = DamagedFile { path: "a".into(), fault: "cut".into(), projects: (1..=12).collect() };
        assert_eq!(many.to_string(), "a (projects 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more): cut");
    }
}
