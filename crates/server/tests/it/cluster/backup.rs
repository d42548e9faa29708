//! Backups of instances whose files are in a bucket, and restoring into a bucket.

use std::{fs, path::Path};

use super::{
    fixture::{Cluster, large_content},
    migrate_store::observe,
};
use crate::{admin::backup::create_test_data, support::TestInstance};

/// Makes a backup on a node; returns the output.
fn back_up(cluster: &Cluster, arguments: &[&str]) -> String {
    let command = cluster.instance.gable(&[&["backup", "--quiet"], arguments].concat());
    cluster.on_node("backup", command).finish().succeeded()
}

fn number_of_objects(cluster: &Cluster) -> usize {
    fn count(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
    }
    count(&cluster.bucket.folder().join("cluster"))
}

#[test]
fn a_backup_of_a_bucket_is_restored_into_a_folder_and_into_another_bucket() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.start("one");
    create_test_data(&node);
    cluster.push(&node, "large", &large_content());
    let before = observe(&node);
    let file = cluster.path("backup.tar");
    let output = back_up(&cluster, &[&file]);
    assert!(output.starts_with(&format!("backed up into {file}: ")), "{output}");
    // Unchanged objects are not copied again.
    let folder = cluster.path("backups");
    back_up(&cluster, &["--folder", &folder]);
    let output = back_up(&cluster, &["--folder", &folder]);
    assert!(output.contains("are new"), "{output}");
    assert!(!output.contains("MiB are new"), "{output}");
    node.stop();

    for (from, other) in [(&file, TestInstance::new()), (&folder, TestInstance::embedded())] {
        let output = other.gable(&["restore", "--quiet", from]).finish().succeeded();
        assert!(output.starts_with("restored the backup of "), "{output}");
        let server = other.start();
        assert_eq!(observe(&server), before);
        assert_eq!(cluster.clone(&server, "large"), large_content());
        server.stop();
        let checked = other.gable(&["doctor"]).finish();
        assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
    }

    let other = Cluster::without_key().expect("PostgreSQL");
    let restore = || other.on_node("admin", other.instance.gable(&["restore", "--quiet", &file]));
    let output = restore().finish().succeeded();
    assert!(output.contains("into s3://"), "{output}");
    let (one, two) = (other.start("one"), other.start("two"));
    assert_eq!(observe(&one), before);
    assert_eq!(other.clone(&two, "large"), large_content());
    let checked = other.on_node("admin", other.instance.gable(&["doctor"])).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
    // What is in use is not replaced.
    let refused = restore().finish().refused();
    assert!(refused.contains("the database is not empty"), "{refused}");
}

#[test]
fn a_backup_of_a_folder_is_restored_into_a_bucket() {
    let Some(cluster) = Cluster::without_key() else { return };
    let source = TestInstance::new();
    let server = source.start();
    create_test_data(&server);
    cluster.push(&server, "large", &large_content());
    let before = observe(&server);
    server.stop();
    let file = cluster.path("backup.tar");
    source.gable(&["backup", "--quiet", &file]).finish().succeeded();
    // A bucket with other objects is refused.
    let restore = || cluster.on_node("admin", cluster.instance.gable(&["restore", "--quiet", &file]));
    let strange = cluster.bucket.folder().join("cluster/strange");
    fs::create_dir_all(strange.parent().expect("a folder")).expect("a folder");
    fs::write(&strange, "kept").expect("written");
    let refused = restore().finish().refused();
    assert!(refused.contains("contains objects of something else, such as strange"), "{refused}");
    assert_eq!(number_of_objects(&cluster), 1, "nothing was written");
    fs::remove_file(&strange).expect("removed");

    restore().finish().succeeded();
    assert!(number_of_objects(&cluster) > 5);
    let node = cluster.start("one");
    assert_eq!(observe(&node), before);
    assert_eq!(cluster.clone(&node, "large"), large_content());
    node.stop();
    let checked = cluster.on_node("admin", cluster.instance.gable(&["doctor"])).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
}

#[test]
fn a_restored_copy_is_not_mixed_with_its_original() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.start("one");
    cluster.push(&node, "large", &large_content());
    node.stop();
    let file = cluster.path("backup.tar");
    back_up(&cluster, &[&file]);
    let copy = Cluster::without_key().expect("PostgreSQL");
    copy.on_node("admin", copy.instance.gable(&["restore", "--quiet", &file])).finish().succeeded();
    // Both have the same instance key.
    for (one, other) in [(&cluster, &copy), (&copy, &cluster)] {
        let database = other.instance.database_url().expect("PostgreSQL");
        let before = number_of_objects(one);
        for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["admin", "user", "list"]] {
            let command = one.on_node("mixed", one.instance.gable(command)).env("GABLE_DATABASE", database.as_str());
            let refused = command.finish().refused();
            assert!(
                refused.contains(
                    " contains another instance than the database; specify a database and a store that belong together"
                ),
                "{refused}"
            );
        }
        assert_eq!(number_of_objects(one), before);
    }
    // Each goes on with its own.
    for cluster in [&cluster, &copy] {
        let node = cluster.start("two");
        assert_eq!(cluster.clone(&node, "large"), large_content());
        node.stop();
    }
}
