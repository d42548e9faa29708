//! A local repository of a test, and pushing it to a project.

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
use model::{Oid, ProjectId, RefChange, RefName};
use tempfile::TempDir;

use crate::{TestClient, TestForge, repository::git_command};

/// The time of the first commit in every local repository.
const FIRST_COMMIT_TIME: i64 = 1_422_824_191;

/// A repository with a work tree, removed on drop.
pub struct LocalRepository {
    folder: TempDir,
    clock: AtomicI64,
}

impl LocalRepository {
    /// Creates a repository without commits, on the branch `master`.
    #[expect(clippy::new_without_default, reason = "it creates a folder, which callers should see")]
    pub fn new() -> Self {
        let local = Self { folder: tempfile::tempdir().expect("a folder"), clock: AtomicI64::new(FIRST_COMMIT_TIME) };
        local.git(&["init", "--quiet", "--initial-branch=master"]);
        local
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `git` and returns its output. Each call is dated a minute after the previous one, in UTC+1.
    pub fn git(&self, arguments: &[&str]) -> String {
        let date = format!("{} +0100", self.clock.fetch_add(60, Ordering::SeqCst));
        let output = git_command(self.path())
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

    /// Commits everything in the work tree; returns the id of the commit.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Writes a file and commits it; returns the id of the commit.
    pub fn commit_file(&self, path: &str, content: impl AsRef<[u8]>) -> String {
        self.write(path, content);
        self.commit(&format!("Add {path}"))
    }

    fn refs(&self) -> Vec<(RefName, Oid)> {
        let refs = self.git(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags"]);
        let parse = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some((RefName::new(name)?, id.parse().ok()?))
        };
        refs.lines().map(|line| parse(line).unwrap_or_else(|| panic!("not a ref: {line}"))).collect()
    }

    fn pack(&self) -> Vec<u8> {
        let output = git_command(self.path())
            .args(["pack-objects", "--all", "--stdout", "--quiet"])
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "a pack");
        output.stdout
    }
}

impl TestForge {
    /// Pushes all branches and tags of a local repository to a project, with all checks of a real push.
    pub async fn push(&self, client: &TestClient, project: ProjectId, local: &LocalRepository) -> Vec<RefOutcome> {
        let caller = Caller::with_tokens(client.token.as_deref());
        let hosted = transport::open(&self.forge, caller.clone(), ProjectRef::Id(project), Service::Push).await;
        let hosted = hosted.expect("the client may push");
        let old = |name: &RefName| hosted.refs().find(name).map(|found| found.target);
        let changes = local.refs().into_iter().map(|(name, id)| RefChange { old: old(&name), name, new: Some(id) });
        let changes: Vec<RefChange> = changes.filter(|change| change.old != change.new).collect();
        let (incoming, mut command) = hosted.receive(None).expect("a quarantine");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
        child.stdin.take().expect("a pipe").write_all(&local.pack()).expect("the pack is read");
        assert!(child.wait().expect("ended").success(), "the pack is valid");
        let push = Push { changes, incoming: Some(incoming), atomic: false, options: Vec::new() };
        transport::push(&self.forge, caller, project, push).await.expect("a push")
    }

    /// Like [`Self::push`], but panics if a ref is refused.
    pub async fn push_all(&self, client: &TestClient, project: ProjectId, local: &LocalRepository) {
        let outcomes: Vec<RefOutcome> = self.push(client, project, local).await;
        let refused: Vec<&RefOutcome> = outcomes.iter().filter(|outcome| outcome.rejection.is_some()).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }
}
