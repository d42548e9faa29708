//! Tests of reading and packing, with repositories created by the `git` program, and compared with its output.

mod archives;
mod blobs;
mod chains;
mod commit_pages;
mod commits;
mod contributors;
mod diffs;
mod histories;
mod large;
mod old_repository;
mod pack_writer;
mod quarantine;
mod reachable;
mod refs;
mod trees;
mod whole_pack;

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use model::Oid;
use tempfile::TempDir;

use crate::{Repository, repository::Handle};

/// A bare repository in a temporary folder.
pub(crate) struct Fixture {
    folder: TempDir,
    handle: Arc<Handle>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("repository.git");
        let made = git_command(folder.path()).args(["init", "--quiet", "--bare", "-b", "main"]).arg(&path).status();
        assert!(made.expect("git runs").success());
        // The templates of git contain sample hooks.
        let _ = fs::remove_dir_all(path.join("hooks"));
        let handle = Arc::new(Handle::open(&path).expect("a repository"));
        Self { folder, handle }
    }

    /// Creates a repository with a history.
    pub(super) fn with(history: HistoryBuilder) -> Self {
        let fixture = Self::new();
        fixture.import(history);
        fixture
    }

    /// Opens the repository with the shared handle.
    pub(super) fn open(&self) -> Repository {
        with_ref_files(&self.handle)
    }

    /// Opens the repository without reading its refs.
    pub(super) fn open_without_refs(&self) -> Repository {
        Repository::new(Arc::clone(&self.handle), Arc::default())
    }

    /// Opens the repository with a new handle.
    pub(crate) fn reopen(&self) -> Repository {
        with_ref_files(&Arc::new(Handle::open(self.path()).expect("a repository")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.handle.path
    }

    pub(super) fn import(&self, history: HistoryBuilder) {
        self.git_with(&["fast-import", "--quiet", "--force"], &history.stream);
    }

    /// Returns the output of git without the final newline.
    pub(super) fn git(&self, arguments: &[&str]) -> String {
        let output = String::from_utf8(self.git_with(arguments, b"")).expect("UTF-8");
        output.strip_suffix('\n').map(str::to_owned).unwrap_or(output)
    }

    pub(super) fn git_lines(&self, arguments: &[&str]) -> Vec<String> {
        self.git(arguments).lines().map(str::to_owned).collect()
    }

    /// Returns the output of git for this standard input.
    pub(crate) fn git_with(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let (output, error) = self.try_git(arguments, input);
        output.unwrap_or_else(|| panic!("git {arguments:?}: {error}"))
    }

    /// Returns the output of git if it succeeds, and its error output.
    pub(super) fn try_git(&self, arguments: &[&str], input: &[u8]) -> (Option<Vec<u8>>, String) {
        let mut command = git_command(self.folder.path());
        command.arg("--git-dir").arg(self.path()).args(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("git");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("git ends");
        writer.join().expect("written");
        (output.status.success().then_some(output.stdout), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Returns the object that git resolves a name to.
    pub(super) fn id(&self, name: &str) -> Oid {
        self.git(&["rev-parse", "--verify", "--end-of-options", name]).parse().expect("an id")
    }

    /// Adds a commit object byte for byte.
    pub(crate) fn raw_commit(&self, text: &[u8]) -> Oid {
        let output = self.git_with(&["hash-object", "-t", "commit", "--literally", "-w", "--stdin"], text);
        String::from_utf8(output).expect("UTF-8").trim().parse().expect("an id")
    }

    /// Creates this many different trees, each with one submodule.
    pub(crate) fn small_trees(&self, count: u32) -> Vec<gix::ObjectId> {
        let list: Vec<String> = (1..=count).map(|number| format!("160000 commit {number:040}\tmodule\n\n")).collect();
        let output = self.git_with(&["mktree", "--missing", "--batch"], list.concat().as_bytes());
        let output = String::from_utf8(output).expect("UTF-8");
        output.lines().map(|line| gix::ObjectId::from_hex(line.as_bytes()).expect("an id")).collect()
    }

    pub(super) fn write_commit_graph(&self) {
        self.git(&["commit-graph", "write", "--reachable"]);
    }
}

/// Opens a repository with the refs in its files.
fn with_ref_files(handle: &Arc<Handle>) -> Repository {
    let refs = Repository::new(Arc::clone(handle), Arc::default()).read_ref_files().expect("refs");
    Repository::new(Arc::clone(handle), Arc::new(refs))
}

/// Runs git in a folder; returns its output.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = git_command(folder).current_dir(folder).args(arguments).output().expect("git runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn git_command(home: &Path) -> Command {
    let mut command = Command::new("git");
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Ann").env(format!("GIT_{role}_EMAIL"), "ann@example.com");
        command.env(format!("GIT_{role}_DATE"), "1500000000 +0000");
    }
    command
}

/// Builds a stream for `git fast-import`.
#[derive(Default)]
pub(super) struct HistoryBuilder {
    stream: Vec<u8>,
    marks: usize,
}

/// A change of a file.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Write(&'static str, u32, Vec<u8>),
    Remove(&'static str),
}

/// A text file.
pub(super) fn file(path: &'static str, text: &str) -> Edit {
    Edit::Write(path, 0o100_644, text.into())
}

/// A commit to be created.
pub(super) struct CommitSpec<'a> {
    pub(super) branch: &'a str,
    pub(super) author: &'a str,
    pub(super) seconds: i64,
    pub(super) message: &'a str,
    /// Earlier commits by their numbers; empty for a root commit.
    pub(super) parents: &'a [usize],
    pub(super) edits: &'a [Edit],
}

impl Default for CommitSpec<'_> {
    fn default() -> Self {
        let author = "Ann <ann@example.com>";
        Self { branch: "main", author, seconds: 1_500_000_000, message: "change\n", parents: &[], edits: &[] }
    }
}

impl HistoryBuilder {
    /// Adds a commit and returns its number.
    pub(super) fn commit(&mut self, spec: CommitSpec<'_>) -> usize {
        self.marks += 1;
        let CommitSpec { branch, author, seconds, message, parents, edits } = spec;
        if parents.is_empty() {
            self.write_stream(format!("reset refs/heads/{branch}\n"));
        }
        self.write_stream(format!("commit refs/heads/{branch}\nmark :{}\n", self.marks));
        self.write_stream(format!("author {author} {seconds} +0200\ncommitter {author} {seconds} +0200\n"));
        self.data(message.as_bytes());
        for (index, parent) in parents.iter().enumerate() {
            self.write_stream(format!("{} :{parent}\n", if index == 0 { "from" } else { "merge" }));
        }
        for edit in edits {
            match edit {
                Edit::Write(path, 0o160_000, id) => {
                    self.write_stream(format!("M 160000 {} {path}\n", String::from_utf8_lossy(id)));
                }
                Edit::Write(path, mode, text) => {
                    self.write_stream(format!("M {mode:o} inline {path}\n"));
                    self.data(text);
                }
                Edit::Remove(path) => self.write_stream(format!("D {path}\n")),
            }
        }
        self.write_stream("\n");
        self.marks
    }

    /// Adds a commit after the previous one, a second later.
    pub(super) fn next(&mut self, edits: &[Edit]) -> usize {
        let parents = if self.marks == 0 { &[][..] } else { &[self.marks] };
        let seconds = 1_500_000_000 + i64::try_from(self.marks).expect("few");
        let message = format!("change {}\n", self.marks + 1);
        self.commit(CommitSpec { seconds, message: &message, parents, edits, ..CommitSpec::default() })
    }

    pub(super) fn write_stream(&mut self, text: impl AsRef<[u8]>) {
        self.stream.extend_from_slice(text.as_ref());
    }

    fn data(&mut self, bytes: &[u8]) {
        self.write_stream(format!("data {}\n", bytes.len()));
        self.write_stream(bytes);
        self.write_stream("\n");
    }
}
