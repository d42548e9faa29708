//! A repository on somebody's own disk, and the way from there into a project.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicI64, Ordering},
};

use forge::{
    Caller, ProjectRef,
    transport::{self, Push, RefOutcome, Service},
};
use model::{Oid, RefChange, RefName};
use tempfile::TempDir;

use crate::{Client, TestForge, repository::quiet_git};

/// When the first commit of every local repository is made.
const START: i64 = 1_422_824_191;

/// A repository with a work tree, in which the program `git` does what a test says.
pub struct LocalRepository {
    folder: TempDir,
    clock: AtomicI64,
}

impl LocalRepository {
    /// A repository without commits, on the branch `master`.
    #[expect(clippy::new_without_default, reason = "it makes a folder, which should be seen where it happens")]
    pub fn new() -> Self {
        let local = Self { folder: tempfile::tempdir().expect("a folder"), clock: AtomicI64::new(START) };
        local.git(&["init", "--quiet", "--initial-branch=master"]);
        local
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `git` and says what it printed. Every commit is a minute younger than the one before, an hour ahead of UTC.
    pub fn git(&self, arguments: &[&str]) -> String {
        let date = format!("{} +0100", self.clock.fetch_add(60, Ordering::SeqCst));
        let output = quiet_git(self.path())
            .args(arguments)
            .envs([("GIT_AUTHOR_NAME", "Ann Author"), ("GIT_AUTHOR_EMAIL", "ann@example.org")])
            .envs([("GIT_COMMITTER_NAME", "Carl Committer"), ("GIT_COMMITTER_EMAIL", "carl@example.org")])
            .envs([("GIT_AUTHOR_DATE", date.as_str()), ("GIT_COMMITTER_DATE", date.as_str())])
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Writes a file into the work tree.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        fs::write(path, content).expect("written");
    }

    /// Commits everything in the work tree and says the commit's id.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Writes a file, commits it and says the commit's id.
    pub fn commit_file(&self, path: &str, content: impl AsRef<[u8]>) -> String {
        self.write(path, content);
        self.commit(&format!("Add {path}"))
    }

    fn refs(&self) -> Vec<(RefName, Oid)> {
        let refs = self.git(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags"]);
        let read = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some((RefName::new(name)?, id.parse().ok()?))
        };
        refs.lines().map(|line| read(line).unwrap_or_else(|| panic!("not a ref: {line}"))).collect()
    }

    fn pack(&self) -> Vec<u8> {
        let output = quiet_git(self.path())
            .args(["pack-objects", "--all", "--stdout", "--quiet"])
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "a pack");
        output.stdout
    }
}

impl TestForge {
    /// Puts all branches and tags of a local repository into a project, through the gate that every push passes.
    pub async fn push(&self, client: &Client, project: i64, local: &LocalRepository) -> Vec<RefOutcome> {
        let caller = Caller::with_tokens(client.token.as_deref());
        let hosted = transport::open(&self.forge, caller.clone(), ProjectRef::Id(project), Service::Push).await;
        let hosted = hosted.expect("somebody who may push");
        let old = |name: &RefName| hosted.refs().find(name).map(|found| found.target);
        let changes = local.refs().into_iter().map(|(name, id)| RefChange { old: old(&name), name, new: Some(id) });
        let changes: Vec<RefChange> = changes.filter(|change| change.old != change.new).collect();
        let incoming = hosted.receive().expect("a quarantine");
        let mut child = incoming.index_pack(None).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
        child.stdin.take().expect("a pipe").write_all(&local.pack()).expect("taken in");
        assert!(child.wait().expect("ended").success(), "the pack is in order");
        let push = Push { changes, incoming: Some(incoming), atomic: false, options: Vec::new() };
        transport::push(&self.forge, caller, project, push).await.expect("a push")
    }

    /// Gives projects the repository that another one has, behind the forge's back.
    pub fn copy_repository(&self, from: i64, to: impl IntoIterator<Item = i64>) {
        let repositories = git::Repositories::beside(&self.ground.git.path().join("repositories"));
        for to in to {
            repositories.copy(&self.storage_of(from), &self.storage_of(to)).expect("a copy");
        }
    }

    /// As [`Self::push`], and nothing is refused.
    pub async fn push_all(&self, client: &Client, project: i64, local: &LocalRepository) {
        let refused: Vec<RefOutcome> = self.push(client, project, local).await;
        let refused: Vec<&RefOutcome> = refused.iter().filter(|outcome| outcome.refusal.is_some()).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }
}
