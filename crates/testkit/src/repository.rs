//! Fills and inspects the repositories of projects.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use files::Files;
use forge::{
    Caller, ProjectAbility, ProjectRef, ReadTx, maintenance,
    pushes::{self, Push, PushSource, RefOutcome},
    transport::{self, Service},
};
use git::{Quarantine, Repositories};
use model::{ProjectId, RefChange, RefName, StorageId};
use store::packs::PackRecord;

use crate::{TestClient, TestForge};

pub use crate::stored_repositories::{build_repository, store_repository};

/// Returns text that is not compressed to less than two thirds. A pack of a hundred thousand bytes of it is not small, so it
/// is stored in files.
pub fn incompressible_text(length: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(DIGITS[usize::try_from(state % 64).unwrap_or_default()])
    };
    (0..length).map(|_| next()).collect()
}

/// A `git fast-import` script: a branch with two commits, a few files, an annotated and a lightweight tag.
pub const SMALL_REPOSITORY: &str = "\
blob
mark :1
data 6
hello

blob
mark :2
data 12
fn main() {}
commit refs/heads/master
mark :3
author Ann Author <ann@example.com> 1422824191 +0100
committer Carl Committer <carl@example.com> 1422827791 +0000
data 14
First commit

M 100644 :1 README.md
M 100755 :2 src/main.rs

commit refs/heads/master
mark :4
author Bob <bob@example.com> 1422830000 -0500
committer Bob <bob@example.com> 1422830000 -0500
data 14
Second commit

from :3
M 100644 inline docs/guide.md
data 6
Guide

tag v1.0
from :3
tagger Ann Author <ann@example.com> 1422831000 +0100
data 16
The first one.

reset refs/tags/light
from :4

";

impl TestForge {
    /// Pushes the refs of a `git fast-import` script to a project; panics if a ref is refused.
    pub async fn fast_import(&self, client: &TestClient, project: ProjectId, script: &str) {
        for outcome in self.try_fast_import(client, project, script).await {
            assert_eq!(outcome.rejection, None, "{}", outcome.name);
        }
    }

    /// Like [`Self::fast_import`], but returns the outcomes.
    pub async fn try_fast_import(&self, client: &TestClient, project: ProjectId, script: &str) -> Vec<RefOutcome> {
        let folder = tempfile::tempdir().expect("a folder");
        git(folder.path(), &["init", "-q", "--bare", "."], b"");
        git(folder.path(), &["fast-import", "--quiet"], script.as_bytes());
        let refs = git(folder.path(), &["for-each-ref", "--format=%(objectname) %(refname)"], b"");
        let current = self.refs_of(project);
        let refs = String::from_utf8(refs.stdout).expect("text");
        let changes = refs.lines().filter_map(|line| {
            let (id, name) = line.split_once(' ').expect("two words");
            let old = current.iter().find(|(found, _)| found == name).map(|(_, id)| id.parse().expect("an id"));
            let new = Some(id.parse().expect("an id"));
            (old != new).then(|| RefChange { name: RefName::new(name).expect("a name"), old, new })
        });
        let changes: Vec<RefChange> = changes.collect();
        let pack = git(folder.path(), &["pack-objects", "--all", "--stdout", "-q"], b"").stdout;
        self.push_pack(client, project, &pack, changes).await
    }

    /// Pushes ref changes and a pack to a project.
    pub async fn push_pack(
        &self,
        client: &TestClient,
        project: ProjectId,
        pack: &[u8],
        changes: Vec<RefChange>,
    ) -> Vec<RefOutcome> {
        let incoming = self.quarantine(project).await;
        let mut child = incoming.index_pack(None).expect("a folder").spawn().expect("git starts");
        child.stdin.take().expect("a pipe").write_all(pack).expect("the pack is read");
        let output = child.wait_with_output().expect("git ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let push = Push { changes, incoming: Some(incoming), atomic: false, options: Vec::new() };
        let caller = Caller::with_tokens(client.token.as_deref());
        pushes::push(&self.forge, caller, project, push, PushSource::Git).await.expect("a push")
    }

    /// Creates a quarantine as for a push.
    pub async fn quarantine(&self, project: ProjectId) -> Quarantine {
        let open = move |tx: &mut ReadTx<'_>| {
            let project = tx.project(&ProjectRef::Id(project), ProjectAbility::ReadProject)?;
            tx.repository(&project).map(drop)
        };
        self.forge.read(Caller::system(), open).await.expect("the repository opens");
        pushes::create_quarantine(&self.forge, &self.storage_of(project)).expect("a quarantine")
    }

    /// Returns the error of `git index-pack` for an invalid pack.
    pub async fn index_pack_error(&self, project: ProjectId, pack: &[u8]) -> String {
        let incoming = self.quarantine(project).await;
        let mut child = incoming.index_pack(None).expect("a folder").spawn().expect("git starts");
        child.stdin.take().expect("a pipe").write_all(pack).expect("the pack is read");
        let output = child.wait_with_output().expect("git ends");
        assert!(!output.status.success(), "the pack is accepted");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Deletes a ref of a project by a push.
    pub async fn remove_ref(&self, client: &TestClient, project: ProjectId, name: &str) {
        let old = self.refs_of(project).into_iter().find(|(found, _)| found == name).expect("a ref").1;
        let name = RefName::new(name).expect("a name");
        let changes = vec![RefChange { name, old: Some(old.parse().expect("an id")), new: None }];
        let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
        let caller = Caller::with_tokens(client.token.as_deref());
        for outcome in pushes::push(&self.forge, caller, project, push, PushSource::Git).await.expect("a push") {
            assert_eq!(outcome.rejection, None, "{}", outcome.name);
        }
    }

    /// Returns the names and targets of all refs of a project.
    pub fn refs_of(&self, project: ProjectId) -> Vec<(String, String)> {
        let found = self.with_read_connection(|db| {
            let repository = store::repositories::find(db, project).expect("readable")?;
            store::repositories::refs(db, repository.id).expect("readable")
        });
        let refs = found.map(|found| found.refs).unwrap_or_default();
        refs.into_iter().map(|found| (found.name.to_string(), found.target.to_string())).collect()
    }

    /// Combines and indexes the packs of a project, as the background task after a push does.
    pub async fn run_housekeeping(&self, project: ProjectId) {
        maintenance::run(&self.forge, project).await.expect("housekeeping succeeds");
    }

    /// Returns the storage id of a project.
    pub fn storage_of(&self, project: ProjectId) -> StorageId {
        let found = self.with_read_connection(|db| store::projects::storage_of(db, project));
        found.expect("readable").expect("a project")
    }

    /// Returns the folder of a project's repository after the forge has prepared it for the `git` program: with its current
    /// packs and refs. `None` if nothing was ever written to the repository.
    pub async fn repository_folder(&self, project: ProjectId) -> Option<PathBuf> {
        let found = self.with_read_connection(|db| {
            store::repositories::find(db, project).expect("readable")?;
            store::projects::storage_of(db, project).expect("readable")
        });
        let storage = found?;
        let opened = transport::open(&self.forge, Caller::system(), ProjectRef::Id(project), Service::Fetch).await;
        let opened = opened.expect("the repository opens");
        self.repositories().write_refs(&storage, opened.refs()).expect("written");
        Some(self.repositories().path_of(&storage))
    }

    /// Gives a project the refs and all objects of a bare repository, without the checks of a push.
    pub fn store_repository(&self, project: ProjectId, folder: &Path) {
        let files = Files::open(self.files_folder()).expect("the files folder opens");
        let now = self.forge.now();
        self.in_transaction(|db| store_repository(db, &files, project, folder, now));
    }

    /// Builds the folder of a project's repository in `root` from its rows and live packs, as a server with an empty cache
    /// does; returns its path.
    pub fn build_repository(&self, project: ProjectId, root: &Path) -> PathBuf {
        let files = Files::open(self.files_folder()).expect("the files folder opens");
        self.with_read_connection(|db| build_repository(db, &files, project, root)).expect("a repository")
    }

    /// Returns the packs of a project, live and dead, oldest first.
    pub fn pack_rows(&self, project: ProjectId) -> Vec<PackRecord> {
        self.with_read_connection(|db| {
            let repository = store::repositories::find(db, project).expect("readable").expect("a repository");
            store::packs::of_repository(db, repository.id).expect("readable")
        })
    }

    /// Copies the rows of a project's repository to other projects, as a fork does.
    pub fn copy_repository(&self, from: ProjectId, to: impl IntoIterator<Item = ProjectId> + Send) {
        let now = self.forge.now();
        self.in_transaction(|db| {
            let from = store::repositories::find(db, from).expect("readable").expect("a repository").id;
            for to in to {
                store::repositories::copy(db, from, to, now).expect("a copy");
            }
        });
    }

    /// Returns the folders of repositories, without the state of the forge.
    pub fn repositories(&self) -> Repositories {
        Repositories::attach(&self.resources.git.path().join("repositories"))
    }
}

/// Runs git in a folder with the given standard input; panics if it fails.
pub fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut stdin = tempfile::tempfile().expect("a file");
    stdin.write_all(input).expect("written");
    std::io::Seek::rewind(&mut stdin).expect("rewound");
    let output = git_command(folder).args(arguments).stdin(Stdio::from(stdin)).output().expect("git runs");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns a git command that ignores the configuration of the machine.
pub fn git_command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).stdin(Stdio::from(File::open("/dev/null").expect("/dev/null opens")));
    for (name, value) in [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_AUTHOR_NAME", "Test"),
        ("GIT_AUTHOR_EMAIL", "test@example.com"),
        ("GIT_COMMITTER_NAME", "Test"),
        ("GIT_COMMITTER_EMAIL", "test@example.com"),
        ("LC_ALL", "C"),
    ] {
        command.env(name, value);
    }
    command
}
