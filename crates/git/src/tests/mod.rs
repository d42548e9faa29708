//! Stories about reading, told with repositories that the `git` program has made, and compared with what it says.

mod archives;
mod blobs;
mod chains;
mod commits;
mod contributors;
mod diffs;
mod histories;
mod large;
mod reachable;
mod refs;
mod trees;

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

/// A bare repository of its own.
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
        // Where the templates of git leave samples is no place for refs.
        let _ = fs::remove_dir_all(path.join("hooks"));
        let handle = Arc::new(Handle::open(&path).expect("a repository"));
        Self { folder, handle }
    }

    /// A repository with what a story has written.
    pub(super) fn with(story: Story) -> Self {
        let fixture = Self::new();
        fixture.import(story);
        fixture
    }

    /// The repository as readers get it.
    pub(super) fn open(&self) -> Repository {
        Repository::new(Arc::clone(&self.handle))
    }

    /// The repository as somebody gets it who has never opened it.
    pub(crate) fn open_anew(&self) -> Repository {
        Repository::new(Arc::new(Handle::open(self.path()).expect("a repository")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.handle.path
    }

    pub(super) fn import(&self, story: Story) {
        self.git_with(&["fast-import", "--quiet", "--force"], &story.stream);
    }

    /// What git says, without the final newline.
    pub(super) fn git(&self, arguments: &[&str]) -> String {
        let said = String::from_utf8(self.git_with(arguments, b"")).expect("UTF-8");
        said.strip_suffix('\n').map(str::to_owned).unwrap_or(said)
    }

    pub(super) fn git_lines(&self, arguments: &[&str]) -> Vec<String> {
        self.git(arguments).lines().map(str::to_owned).collect()
    }

    /// What git says when it is told something.
    pub(crate) fn git_with(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let (output, error) = self.try_git(arguments, input);
        output.unwrap_or_else(|| panic!("git {arguments:?}: {error}"))
    }

    /// What git says, or its complaint.
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

    /// The object that git finds by a name.
    pub(super) fn id(&self, name: &str) -> Oid {
        self.git(&["rev-parse", "--verify", "--end-of-options", name]).parse().expect("an id")
    }

    /// Adds a commit object, byte for byte.
    pub(super) fn raw_commit(&self, text: &[u8]) -> Oid {
        let said = self.git_with(&["hash-object", "-t", "commit", "--literally", "-w", "--stdin"], text);
        String::from_utf8(said).expect("UTF-8").trim().parse().expect("an id")
    }

    /// So many trees that differ from each other, each with one submodule.
    pub(crate) fn small_trees(&self, count: u32) -> Vec<gix::ObjectId> {
        let list: Vec<String> = (1..=count).map(|number| format!("160000 commit {number:040}\tmodule\n\n")).collect();
        let said = self.git_with(&["mktree", "--missing", "--batch"], list.concat().as_bytes());
        let said = String::from_utf8(said).expect("UTF-8");
        said.lines().map(|line| gix::ObjectId::from_hex(line.as_bytes()).expect("an id")).collect()
    }

    pub(super) fn write_commit_graph(&self) {
        self.git(&["commit-graph", "write", "--reachable"]);
    }
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

/// Commits to be made, in the language of `git fast-import`.
#[derive(Default)]
pub(super) struct Story {
    stream: Vec<u8>,
    marks: usize,
}

/// What a commit does to a file.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Write(&'static str, u32, Vec<u8>),
    Remove(&'static str),
}

/// A file with a text.
pub(super) fn file(path: &'static str, text: &str) -> Edit {
    Edit::Write(path, 0o100_644, text.into())
}

/// A commit to be made.
pub(super) struct Plan<'a> {
    pub(super) branch: &'a str,
    pub(super) author: &'a str,
    pub(super) seconds: i64,
    pub(super) message: &'a str,
    /// Earlier commits by their numbers; none makes it a first commit.
    pub(super) parents: &'a [usize],
    pub(super) edits: &'a [Edit],
}

impl Default for Plan<'_> {
    fn default() -> Self {
        let author = "Ann <ann@example.com>";
        Self { branch: "main", author, seconds: 1_500_000_000, message: "change\n", parents: &[], edits: &[] }
    }
}

impl Story {
    /// Adds a commit and gives its number.
    pub(super) fn commit(&mut self, plan: Plan<'_>) -> usize {
        self.marks += 1;
        let Plan { branch, author, seconds, message, parents, edits } = plan;
        if parents.is_empty() {
            self.say(format!("reset refs/heads/{branch}\n"));
        }
        self.say(format!("commit refs/heads/{branch}\nmark :{}\n", self.marks));
        self.say(format!("author {author} {seconds} +0200\ncommitter {author} {seconds} +0200\n"));
        self.data(message.as_bytes());
        for (place, parent) in parents.iter().enumerate() {
            self.say(format!("{} :{parent}\n", if place == 0 { "from" } else { "merge" }));
        }
        for edit in edits {
            match edit {
                Edit::Write(path, 0o160_000, id) => {
                    self.say(format!("M 160000 {} {path}\n", String::from_utf8_lossy(id)));
                }
                Edit::Write(path, mode, text) => {
                    self.say(format!("M {mode:o} inline {path}\n"));
                    self.data(text);
                }
                Edit::Remove(path) => self.say(format!("D {path}\n")),
            }
        }
        self.say("\n");
        self.marks
    }

    /// Adds a commit after the one before it, a second later.
    pub(super) fn next(&mut self, edits: &[Edit]) -> usize {
        let parents = if self.marks == 0 { &[][..] } else { &[self.marks] };
        let seconds = 1_500_000_000 + i64::try_from(self.marks).expect("few");
        let message = format!("change {}\n", self.marks + 1);
        self.commit(Plan { seconds, message: &message, parents, edits, ..Plan::default() })
    }

    pub(super) fn say(&mut self, text: impl AsRef<[u8]>) {
        self.stream.extend_from_slice(text.as_ref());
    }

    fn data(&mut self, bytes: &[u8]) {
        self.say(format!("data {}\n", bytes.len()));
        self.say(bytes);
        self.say("\n");
    }
}
