//! The loss of the key that all nodes share.

use std::fs;

use serde_json::json;

use super::fixture::Cluster;
use crate::support::GableCommand;

impl Cluster {
    fn new_key(&self, more: &[&str]) -> GableCommand {
        self.on_node("admin", self.instance.gable(&["admin", "instance", "new-key"]).args(more))
    }
}

#[test]
fn a_lost_instance_key_is_replaced_with_what_was_encrypted_with_it() {
    let Some(cluster) = Cluster::new() else { return };
    let start = |name: &str| cluster.serve(name).args(&["--ssh-listen", "127.0.0.1:0"]).start();
    let node = start("one");
    cluster.push(&node, "small", b"small\n");
    node.root().post("/api/v3/projects/1/variables", &json!({ "key": "CODE", "value": "secret" })).json();
    node.root().post("/api/v3/projects/1/hooks", &json!({ "url": "https://example.org/hook" })).json();
    let trigger = node.root().post("/api/v3/projects/1/triggers", &json!({})).json();
    let host_keys = "SELECT count(*) FROM instance_secrets WHERE name = 'ssh-host-key'";
    assert_eq!(cluster.instance.count(host_keys), 1);

    // Nothing is lost yet, and nodes are running.
    let refused = cluster.new_key(&["--yes"]).finish().refused();
    assert!(refused.starts_with("nodes are running: ") && refused.ends_with("; stop them first"), "{refused}");
    node.stop();
    let refused = cluster.new_key(&["--yes"]).finish().refused();
    assert!(refused.ends_with("/key is the key of this database; there is nothing to replace"), "{refused}");

    // The key is lost, and another one was created in its place.
    let (key, other) = (cluster.path("key"), "A".repeat(43));
    fs::write(&key, &other).expect("written");
    let refused = cluster.serve("one").finish().refused();
    assert!(refused.contains("`gable admin instance new-key` lists what would be lost with it"), "{refused}");
    let asked = cluster.new_key(&[]).finish();
    assert_eq!(asked.status, Some(1), "{}", asked.combined_output());
    for what in ["1 hooks", "1 variables of projects", "1 tokens of triggers", "1 SSH host keys in the database"] {
        assert!(asked.stdout.lines().any(|line| line == format!("would be lost: {what}")), "{what}: {}", asked.stdout);
    }
    assert!(asked.stderr.contains("nothing was changed; run the command again with --yes"), "{}", asked.stderr);
    assert_eq!(fs::read_to_string(&key).expect("a key"), other);
    assert_eq!(cluster.instance.count(host_keys), 1);
    // The bucket of another instance is refused.
    let elsewhere = cluster.new_key(&["--yes"]).env("GABLE_STORE", &cluster.bucket.url("other")).finish().refused();
    assert!(elsewhere.starts_with("the database contains an instance, but the store "), "{elsewhere}");

    let output = cluster.new_key(&["--yes"]).finish().succeeded();
    assert!(output.contains("lost: 1 variables of projects\n"), "{output}");
    assert!(output.ends_with(&format!("copy {key} to all nodes before you start them\n")), "{output}");
    let kept = fs::read_dir(cluster.folder.path()).expect("a folder").flatten();
    let kept: Vec<_> = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("key.replaced-")).collect();
    assert_eq!(fs::read_to_string(kept[0].path()).expect("the other key"), other);

    let (one, two) = (start("one"), start("two"));
    assert_eq!(cluster.clone(&two, "small"), b"small\n");
    for part in ["variables", "hooks"] {
        assert_eq!(one.root().get(&format!("/api/v3/projects/1/{part}")).json(), json!([]), "{part}");
    }
    one.root().post("/api/v3/projects/1/variables", &json!({ "key": "CODE", "value": "new" })).json();
    assert_eq!(two.root().get("/api/v3/projects/1/variables").json()[0]["value"], "new");
    let token = two.root().get("/api/v3/projects/1/triggers").json()[0]["token"].clone();
    assert_ne!(token, trigger["token"]);
    assert_eq!(one.root().get("/api/v3/projects/1/triggers").json()[0]["token"], token);
    assert_eq!(cluster.instance.count(host_keys), 1);
    one.stop();
    two.stop();
    let checked = cluster.on_node("admin", cluster.instance.gable(&["doctor"])).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
}

#[test]
fn a_missing_instance_key_file_is_created() {
    let Some(cluster) = Cluster::new() else { return };
    cluster.start("one").stop();
    let key = cluster.path("key");
    fs::remove_file(&key).expect("removed");
    cluster.new_key(&["--yes"]).finish().succeeded();
    cluster.start("one").stop();
    let text = fs::read_to_string(&key).expect("a key");
    let refused = cluster.new_key(&["--yes"]).finish().refused();
    assert!(refused.contains("there is nothing to replace"), "{refused}");
    assert_eq!(fs::read_to_string(&key).expect("a key"), text);
}
