//! Repositories with something in them.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use forge::{
    Caller,
    pushes::{self, Push, RefOutcome, Via},
};
use model::{RefChange, RefName, StorageId};

use crate::{Client, TestForge};

/// A branch with two commits, a few files, an annotated and a lightweight tag, in the words of `git fast-import`.
pub const SMALL: &str = "\
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
    /// Fills the repository of a project through the gate, as this client would by a push. The script is in the language
    /// of `git fast-import`.
    pub async fn fill(&self, client: &Client, project: i64, script: &str) {
        for outcome in self.try_fill(client, project, script).await {
            assert_eq!(outcome.refusal, None, "{}", outcome.name);
        }
    }

    /// As [`Self::fill`], but tells what came of it.
    pub async fn try_fill(&self, client: &Client, project: i64, script: &str) -> Vec<RefOutcome> {
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

    /// Changes refs of a project through the gate, as this client would by a push that brings a pack.
    pub async fn push_pack(
        &self,
        client: &Client,
        project: i64,
        pack: &[u8],
        changes: Vec<RefChange>,
    ) -> Vec<RefOutcome> {
        let incoming = pushes::incoming(&self.forge, &self.storage_of(project)).expect("a quarantine");
        let mut child = incoming.index_pack(None).spawn().expect("git starts");
        child.stdin.take().expect("a pipe").write_all(pack).expect("the pack is taken");
        let output = child.wait_with_output().expect("git ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let push = Push { changes, incoming: Some(incoming), atomic: false, options: Vec::new() };
        let caller = Caller::with_tokens(client.token.as_deref());
        pushes::push(&self.forge, caller, project, push, Via::Push).await.expect("a push")
    }

    /// What git says about a pack that it does not take.
    pub fn complaint_about_pack(&self, project: i64, pack: &[u8]) -> String {
        let incoming = pushes::incoming(&self.forge, &self.storage_of(project)).expect("a quarantine");
        let mut child = incoming.index_pack(None).spawn().expect("git starts");
        child.stdin.take().expect("a pipe").write_all(pack).expect("the pack is taken");
        let output = child.wait_with_output().expect("git ends");
        assert!(!output.status.success(), "it is taken");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Removes a ref of a project through the gate, as this client would by a push.
    pub async fn remove_ref(&self, client: &Client, project: i64, name: &str) {
        let old = self.refs_of(project).into_iter().find(|(found, _)| found == name).expect("a ref").1;
        let name = RefName::new(name).expect("a name");
        let changes = vec![RefChange { name, old: Some(old.parse().expect("an id")), new: None }];
        let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
        let caller = Caller::with_tokens(client.token.as_deref());
        for outcome in pushes::push(&self.forge, caller, project, push, Via::Push).await.expect("a push") {
            assert_eq!(outcome.refusal, None, "{}", outcome.name);
        }
    }

    /// The names and targets of all refs of a project.
    pub fn refs_of(&self, project: i64) -> Vec<(String, String)> {
        let repositories = git::Repositories::beside(&self.ground.git.path().join("repositories"));
        let Some(repository) = repositories.find(&self.storage_of(project)).expect("a repository") else {
            return Vec::new();
        };
        let refs = repository.refs().expect("refs");
        refs.iter().map(|found| (found.name.to_string(), found.target.to_string())).collect()
    }

    /// Packs the repository of a project, as is done after pushes.
    pub fn keep_house(&self, project: i64) {
        let repositories = git::Repositories::beside(&self.ground.git.path().join("repositories"));
        assert!(repositories.keep_house(&self.storage_of(project)).expect("kept"), "nobody else is at it");
    }

    /// Where the repository and the files of a project lie.
    pub fn storage_of(&self, project: i64) -> StorageId {
        let found = self.on_a_reading_connection(|db| store::projects::storage_of(db, project));
        found.expect("readable").expect("a project")
    }

    /// The folder of the repository of a project, if it has one.
    pub fn repository_folder(&self, project: i64) -> Option<std::path::PathBuf> {
        let repositories = git::Repositories::beside(&self.ground.git.path().join("repositories"));
        let storage = self.on_a_reading_connection(|db| store::projects::storage_of(db, project)).expect("readable");
        let repository = repositories.find(&storage?).expect("a repository");
        repository.map(|repository| repository.path().to_owned())
    }
}

/// Runs git in a folder, with a name and an address of its own.
pub fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut stdin = tempfile::tempfile().expect("a file");
    stdin.write_all(input).expect("written");
    std::io::Seek::rewind(&mut stdin).expect("rewound");
    let output = quiet_git(folder).args(arguments).stdin(Stdio::from(stdin)).output().expect("git runs");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A call of git that knows nothing of the machine's configuration.
pub fn quiet_git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).stdin(Stdio::from(File::open("/dev/null").expect("nothing")));
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
