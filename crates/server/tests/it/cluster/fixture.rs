//! A cluster of nodes for tests.

use std::{fs, path::Path, process::Command};

use serde_json::json;
use tempfile::TempDir;
use testkit::bucket::TestBucket;

use crate::support::{GableCommand, ROOT_TOKEN, ServerProcess, TestInstance, postgres_server};

/// A database, a bucket and an instance key.
pub(super) struct Cluster {
    pub(super) bucket: TestBucket,
    pub(super) instance: TestInstance,
    pub(super) folder: TempDir,
}

impl Cluster {
    /// Returns `None` if the tests run on SQLite, which nodes cannot share.
    pub(super) fn new() -> Option<Self> {
        let cluster = Self::without_key()?;
        let key = cluster.path("key");
        let created = cluster.instance.gable(&["admin", "instance", "create-key", &key]).finish().succeeded();
        assert_eq!(created, format!("created {key}; copy it to all nodes, and keep a copy in a safe place\n"));
        Some(cluster)
    }

    /// Like [`Self::new`], but without an instance key.
    pub(super) fn without_key() -> Option<Self> {
        postgres_server()?;
        Some(Self { bucket: TestBucket::start(), instance: TestInstance::new(), folder: tempfile::tempdir().ok()? })
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns a command with the settings of a node.
    pub(super) fn on_node(&self, name: &str, command: GableCommand) -> GableCommand {
        let command = command
            .env("GABLE_STORE", &self.bucket.url("cluster"))
            .env("GABLE_CACHE", &self.path(name))
            .env("GABLE_INSTANCE_KEY_FILE", &self.path("key"));
        self.bucket.variables().iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    pub(super) fn serve(&self, name: &str) -> GableCommand {
        self.on_node(name, self.instance.serve().with_root_credentials())
    }

    pub(super) fn start(&self, name: &str) -> ServerProcess {
        self.serve(name).start()
    }

    /// Pushes a commit with a file to a new project; returns the commit.
    pub(super) fn push(&self, node: &ServerProcess, project: &str, content: &[u8]) -> String {
        let created = node.root().post("/api/v3/projects", &json!({ "name": project })).json();
        assert_eq!(created["path_with_namespace"], format!("root/{project}"), "{created}");
        let work = self.folder.path().join(format!("work-{project}"));
        git(self.folder.path(), &["init", "--quiet", "--initial-branch=main", &work.display().to_string()]);
        fs::write(work.join("file"), content).expect("written");
        git(&work, &["add", "."]);
        git(&work, &["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "one"]);
        git(&work, &["push", "--quiet", &url(node, project), "main"]);
        git(&work, &["rev-parse", "HEAD"])
    }

    /// Clones a project from a node and returns the content of its file.
    pub(super) fn clone(&self, node: &ServerProcess, project: &str) -> Vec<u8> {
        let place = tempfile::tempdir_in(self.folder.path()).expect("a folder");
        git(place.path(), &["clone", "--quiet", &url(node, project), "copy"]);
        fs::read(place.path().join("copy/file")).expect("a file")
    }
}

pub(super) fn url(node: &ServerProcess, project: &str) -> String {
    format!("http://root:{ROOT_TOKEN}@{}/root/{project}.git", node.address())
}

pub(super) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").current_dir(folder).args(arguments).output().expect("git runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns bytes that cannot be compressed, so that their pack is too large to be stored in the database.
pub(super) fn large_content() -> Vec<u8> {
    let mut state = 7_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..300_000).map(next).collect()
}
