//! Servers that share a PostgreSQL database and a bucket.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use tempfile::TempDir;
use testkit::bucket::{Fault, TestBucket};

use crate::support::{GableCommand, ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT, postgres_server};

/// A database, a bucket and an instance key.
struct Cluster {
    bucket: TestBucket,
    instance: TestInstance,
    folder: TempDir,
}

impl Cluster {
    /// Returns `None` if the tests run on SQLite, which nodes cannot share.
    fn new() -> Option<Self> {
        postgres_server()?;
        let cluster =
            Self { bucket: TestBucket::start(), instance: TestInstance::new(), folder: tempfile::tempdir().ok()? };
        let key = cluster.path("key");
        let created = cluster.instance.gable(&["admin", "instance", "create-key", &key]).finish().succeeded();
        assert_eq!(created, format!("created {key}; copy it to all nodes, and keep a copy in a safe place\n"));
        Some(cluster)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns a command with the settings of a node.
    fn on_node(&self, name: &str, command: GableCommand) -> GableCommand {
        let command = command
            .env("GABLE_STORE", &self.bucket.url("cluster"))
            .env("GABLE_CACHE", &self.path(name))
            .env("GABLE_INSTANCE_KEY_FILE", &self.path("key"));
        self.bucket.variables().iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    fn serve(&self, name: &str) -> GableCommand {
        self.on_node(name, self.instance.serve().with_root_credentials())
    }

    fn start(&self, name: &str) -> ServerProcess {
        self.serve(name).start()
    }

    /// Pushes a commit with a file to a new project; returns the commit.
    fn push(&self, node: &ServerProcess, project: &str, content: &[u8]) -> String {
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
    fn clone(&self, node: &ServerProcess, project: &str) -> Vec<u8> {
        let place = tempfile::tempdir_in(self.folder.path()).expect("a folder");
        git(place.path(), &["clone", "--quiet", &url(node, project), "copy"]);
        fs::read(place.path().join("copy/file")).expect("a file")
    }
}

fn url(node: &ServerProcess, project: &str) -> String {
    format!("http://root:{ROOT_TOKEN}@{}/root/{project}.git", node.address())
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").current_dir(folder).args(arguments).output().expect("git runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns bytes that cannot be compressed, so that their pack is too large to be stored in the database.
fn large_content() -> Vec<u8> {
    let mut state = 7_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..300_000).map(next).collect()
}

#[test]
fn what_one_node_has_acknowledged_is_readable_from_another_one_with_an_empty_cache() {
    let Some(cluster) = Cluster::new() else { return };
    let one = cluster.start("one");
    let commit = cluster.push(&one, "large", &large_content());
    cluster.push(&one, "small", b"small\n");
    let uploaded = one.root().try_upload("/api/v3/projects/1/uploads", "note.txt", "kept").expect("sent").json();
    let link = uploaded["url"].as_str().expect("a link").to_owned();
    one.kill();
    assert!(cluster.bucket.folder().join("cluster/packs").exists());

    let (two, three) = (cluster.start("two"), cluster.start("three"));
    assert_eq!(cluster.clone(&two, "large"), large_content());
    assert_eq!(cluster.clone(&three, "small"), b"small\n");
    let branch = two.root().get("/api/v3/projects/1/repository/branches/main").json();
    assert_eq!(branch["commit"]["id"], commit);
    let file = three.root().get(&format!("/root/large{link}"));
    assert_eq!(file.to_string(), "200 kept");

    // The cache can be deleted while a node serves.
    fs::remove_dir_all(cluster.path("two")).expect("removed");
    assert_eq!(cluster.clone(&two, "large"), large_content());
    let listed = cluster.on_node("admin", cluster.instance.gable(&["admin", "node", "list"])).finish().succeeded();
    // The killed one may still be listed.
    assert!([&two, &three].iter().all(|node| listed.contains(node.address())), "{listed}");
    let checked = cluster.on_node("admin", cluster.instance.gable(&["doctor"])).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
}

#[test]
fn without_the_store_cached_repositories_are_readable_and_writes_are_refused() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.start("one");
    cluster.push(&node, "cached", &large_content());
    assert_eq!(cluster.clone(&node, "cached"), large_content());
    assert_eq!(node.anonymous().get("/-/ready").to_string(), "200 ready\n");
    cluster.bucket.fail_next(u32::MAX, Fault::Unavailable);
    let ready = node.anonymous().try_get("/-/ready").expect("answered");
    assert_eq!(ready.to_string(), "503 the store does not respond\n");
    assert_eq!(cluster.clone(&node, "cached"), large_content());
    let refused = node.root().try_upload("/api/v3/projects/1/uploads", "note.txt", "lost").expect("answered");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{refused}");
    cluster.bucket.recover();
    let start = Instant::now();
    while node.anonymous().try_get("/-/ready").expect("answered").status != 200 {
        assert!(start.elapsed() < WAIT_TIMEOUT, "not ready again");
        std::thread::sleep(Duration::from_millis(100));
    }
    node.root().try_upload("/api/v3/projects/1/uploads", "note.txt", "kept").expect("answered").json();
}

#[test]
fn a_node_that_does_not_belong_to_the_instance_does_not_start() {
    let Some(cluster) = Cluster::new() else { return };
    cluster.start("one").stop();
    let refused = |command: GableCommand| command.finish().refused();
    let other_key = cluster.path("other-key");
    cluster.instance.gable(&["admin", "instance", "create-key", &other_key]).finish().succeeded();
    let message = refused(cluster.serve("two").env("GABLE_INSTANCE_KEY_FILE", &other_key));
    assert!(
        message.contains(&format!("{other_key} is not the key of this database; all nodes need the same key")),
        "{message}"
    );
    let message = refused(cluster.serve("two").env("GABLE_INSTANCE_KEY_FILE", "missing"));
    assert!(message.contains("cannot read the instance key missing: "), "{message}");
    let message = refused(cluster.serve("two").env("GABLE_STORE", &cluster.bucket.url("empty")));
    assert!(message.contains("the database contains an instance, but the store s3://gable/empty at "), "{message}");
    let message = refused(cluster.serve("two").env("AWS_SECRET_ACCESS_KEY", "wrong"));
    assert!(message.contains("the store refuses the signature; check AWS_SECRET_ACCESS_KEY"), "{message}");
    // Nor does a server that has a data folder.
    let message = refused(cluster.instance.serve().with_root_credentials());
    assert!(message.contains("the database contains an instance, but the data folder"), "{message}");
    cluster.start("two").stop();
}
