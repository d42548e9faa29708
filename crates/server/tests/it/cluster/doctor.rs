//! `gable doctor` on instances whose files are in a bucket.

use std::fs;

use serde_json::Value;
use testkit::bucket::Fault;

use super::fixture::{Cluster, large_content};
use crate::support::GableCommand;

/// Returns a command that checks the instance on a machine that serves no node.
fn doctor(cluster: &Cluster, more: &[&str]) -> GableCommand {
    cluster.on_node("admin", cluster.instance.gable(&["doctor", "--quick", "--json"]).args(more))
}

/// Returns the exit status, and the checks as `status`, `message`, `remedy`.
fn run(command: GableCommand) -> (Option<i32>, impl Fn(&str) -> Vec<[String; 3]>) {
    let finished = command.finish();
    let report: Value =
        serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{}", finished.combined_output()));
    let checks_named = move |name: &str| {
        let checks = report["checks"].as_array().expect("a list").iter().filter(|check| check["check"] == name);
        let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
        checks.map(|check| ["status", "message", "remedy"].map(|field| text(check, field))).collect()
    };
    (finished.status, checks_named)
}

#[test]
fn a_check_beside_nodes_names_them_and_moves_nothing() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.start("one");
    cluster.push(&node, "large", &large_content());
    let listed = cluster.on_node("admin", cluster.instance.gable(&["admin", "node", "list"])).finish().succeeded();
    let name = listed.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a node").to_owned();
    // As if a push were storing its pack, and a folder of the cache belonged to no project.
    let pack = cluster.bucket.folder().join("cluster/packs/ab/abcd.pack");
    fs::create_dir_all(pack.parent().expect("a folder")).expect("a folder");
    fs::write(&pack, "in progress").expect("written");
    let orphan = cluster.folder.path().join("admin/repositories/ab/cd/abcd.git");
    fs::create_dir_all(&orphan).expect("a folder");

    let (status, checks) = run(doctor(&cluster, &["--fix"]));
    assert_eq!(checks("server")[0][..2], ["ok".to_owned(), format!("nodes are running: {name}")]);
    let text = "1 objects may belong to pushes in progress; nodes remove such packs after a day";
    assert_eq!(checks("packs without rows")[0][..2], ["ok", text]);
    assert_eq!(checks("orphaned repositories")[0][0], "warning");
    assert_eq!(checks("store")[0][0], "ok");
    assert_eq!(status, Some(0));
    assert!(orphan.exists() && pack.exists());

    node.stop();
    let (status, checks) = run(doctor(&cluster, &["--fix"]));
    assert_eq!(checks("server")[0][..2], ["ok", "no server is running"]);
    let [state, text, remedy] = &checks("packs without rows")[0];
    assert_eq!(
        (state.as_str(), remedy.as_str()),
        ("warning", "leave them: nodes remove such packs a day after they were stored")
    );
    assert!(text.contains("packs/ab/abcd.pack"), "{text}");
    assert_eq!(checks("orphaned repositories")[0][0], "fixed");
    assert_eq!(status, Some(0));
    assert!(!orphan.exists() && pack.exists());
}

#[test]
fn a_store_that_cannot_be_used_is_reported_as_such() {
    let Some(cluster) = Cluster::new() else { return };
    cluster.start("one").stop();
    let assert_reported = |command: GableCommand, expected: &str| {
        let (status, checks) = run(command);
        let [state, text, remedy] = &checks("store")[0];
        assert_eq!((status, state.as_str()), (Some(1), "problem"));
        assert!(text.contains(expected), "{text}");
        assert!(remedy.starts_with("check that the store responds, and that `store`, "), "{remedy}");
        assert_eq!(checks("database"), [] as [[String; 3]; 0]);
    };
    let other = cluster.bucket.url("other");
    assert_reported(
        doctor(&cluster, &[]).env("GABLE_STORE", &other),
        "the database contains an instance, but the store ",
    );
    cluster.bucket.fail_next(u32::MAX, Fault::Refused("AccessDenied"));
    assert_reported(doctor(&cluster, &[]), "cannot read from the store ");
    cluster.bucket.recover();
    assert_eq!(run(doctor(&cluster, &[])).0, Some(0));
}
