//! `gable migrate-store`: the files of an instance move between its data folder and a bucket.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use serde_json::json;

use testkit::bucket::Fault;

use super::fixture::{Cluster, large_content};
use crate::{
    admin::backup::{REPOSITORIES, all_responses, create_test_data, refs_of},
    support::{GableCommand, ServerProcess, TestInstance},
};

impl Cluster {
    /// Returns a command that migrates the files of the instance.
    fn migrate_store(&self, to: &str, data: &str) -> GableCommand {
        self.on_node("admin", self.instance.gable(&["migrate-store", "--quiet", "--to", to, "--data", data]))
    }

    fn data(&self) -> String {
        self.instance.data().display().to_string()
    }
}

/// Returns a server that uses a data folder.
fn serve_from(cluster: &Cluster, data: &str) -> GableCommand {
    cluster.instance.serve().args(&["--data", data]).with_root_credentials()
}

/// Returns everything that clients see: responses by address, and refs by repository.
pub(super) fn observe(server: &ServerProcess) -> (BTreeMap<String, String>, [String; 2]) {
    (all_responses(server), REPOSITORIES.map(|path| refs_of(server, path)))
}

/// Checks that a server with the data folder shows the same as before, large files included, and that the doctor finds nothing.
fn assert_moved_to_folder(cluster: &Cluster, data: &str, before: &(BTreeMap<String, String>, [String; 2])) {
    let server = serve_from(cluster, data).start();
    assert_eq!(observe(&server), *before);
    assert_eq!(cluster.clone(&server, "large"), large_content());
    server.stop();
    let checked = cluster.instance.gable(&["doctor", "--data", data]).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
}

#[test]
fn an_instance_moves_to_a_bucket_and_back_while_it_serves() {
    let Some(cluster) = Cluster::without_key() else { return };
    let (data, back) = (cluster.data(), cluster.path("back"));
    let server = cluster.instance.start();
    create_test_data(&server);
    cluster.push(&server, "early", &large_content());
    let upload = |server: &ServerProcess| {
        server.root().try_upload("/api/v3/projects/1/uploads", "a.txt", "hello").expect("a response").json()["url"]
            .clone()
    };
    let link = upload(&server);

    // With a running server everything is copied, and nothing else changes.
    let output = cluster.migrate_store("bucket", &data).finish().succeeded();
    assert!(output.starts_with("copied "), "{output}");
    let last = output.lines().last().expect("a line");
    assert!(last.starts_with("not finished: a server is using the data folder "), "{output}");
    assert!(last.contains("; stop it and run the command again "), "{output}");
    let refused = cluster.serve("early").finish().refused();
    assert!(refused.contains("does not"), "{refused}");
    // A backup of the data folder contains everything that was copied, too.
    let (backup, restored) = (cluster.path("backup.tar"), TestInstance::new());
    let shown = observe(&server);
    cluster.instance.gable(&["backup", "--quiet", &backup]).finish().succeeded();
    restored.gable(&["restore", "--quiet", &backup]).finish().succeeded();
    let copy = restored.start();
    assert_eq!(observe(&copy), shown);
    copy.stop();
    cluster.push(&server, "late", &large_content());
    let late = upload(&server);
    let before = observe(&server);
    server.stop();

    let output = cluster.migrate_store("bucket", &data).finish().succeeded();
    assert!(output.contains("the instance uses s3://"), "{output}");
    let output = cluster.migrate_store("bucket", &data).finish().succeeded();
    assert!(output.contains(" already"), "{output}");
    let refused = serve_from(&cluster, &data).finish().refused();
    assert!(refused.contains("were moved to s3://"), "{refused}");
    // Even without the note the folder does not match the database any more.
    fs::rename(format!("{data}/moved-to-bucket"), cluster.path("note")).expect("renamed");
    let refused = serve_from(&cluster, &data).finish().refused();
    assert!(refused.contains("is older than its database"), "{refused}");
    fs::rename(cluster.path("note"), format!("{data}/moved-to-bucket")).expect("renamed");

    let node = cluster.start("one");
    assert_eq!(observe(&node), before);
    for project in ["early", "late"] {
        assert_eq!(cluster.clone(&node, project), large_content());
    }
    for link in [&link, &late] {
        let found = node.root().get(&format!("/root/rocket{}", link.as_str().expect("a link")));
        assert_eq!(found.to_string(), "200 hello");
    }
    cluster.push(&node, "in-bucket", &large_content());
    let issue = node.root().post("/api/v3/projects/1/issues", &json!({ "title": "In the bucket" }));
    assert_eq!(issue.status, 201, "{issue}");
    let checked = cluster.on_node("admin", cluster.instance.gable(&["doctor"])).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());

    // And back, into a new folder.
    let output = cluster.migrate_store("folder", &back).finish().succeeded();
    assert!(output.lines().last().expect("a line").starts_with("not finished: nodes are running: "), "{output}");
    let refused = serve_from(&cluster, &back).finish().refused();
    assert!(refused.contains("were moved to s3://"), "{refused}");
    cluster.push(&node, "in-bucket-late", &large_content());
    let before = observe(&node);
    node.stop();
    let output = cluster.migrate_store("folder", &back).finish().succeeded();
    assert!(output.contains(&format!("the instance uses the data folder {back}")), "{output}");
    let refused = cluster.serve("two").finish().refused();
    assert!(refused.contains("the database contains an instance, but the store"), "{refused}");
    let server = serve_from(&cluster, &back).start();
    assert_eq!(observe(&server), before);
    for project in ["early", "late", "in-bucket", "in-bucket-late"] {
        assert_eq!(cluster.clone(&server, project), large_content());
    }
    server.stop();
    let output = cluster.migrate_store("folder", &back).finish().succeeded();
    assert!(output.contains(" already"), "{output}");

    // Neither the old folder nor the old bucket can replace what is newer.
    let unused = cluster.bucket.url("unused");
    let refused = cluster.migrate_store("bucket", &data).env("GABLE_STORE", &unused).finish().refused();
    assert!(
        refused.contains("were moved to s3://") && refused.contains("gable migrate-store --to folder"),
        "{refused}"
    );
    assert!(refused.contains("is older than its database"), "the cause: {refused}");
    for (folder, store) in [(&data, &unused), (&data, &cluster.bucket.url("cluster")), (&back, &unused)] {
        let refused = cluster.migrate_store("folder", folder).env("GABLE_STORE", store).finish().refused();
        assert!(refused.contains("does not contain the files of this instance"), "{refused}");
    }
    let other = cluster.path("other");
    let refused = cluster.migrate_store("folder", &other).finish().refused();
    assert!(refused.contains("are not in s3://") && refused.contains("start the server with the folder"), "{refused}");
    let server = serve_from(&cluster, &back).start();
    assert_eq!(observe(&server), before);
    server.stop();

    // The objects that are still in the bucket are used again, and those without a row are removed. Another bucket gets all.
    cluster.migrate_store("bucket", &back).finish().succeeded();
    let again = cluster.path("again");
    cluster.migrate_store("folder", &again).finish().succeeded();
    let second = cluster.bucket.url("second");
    let output = cluster.migrate_store("bucket", &again).env("GABLE_STORE", &second).finish().succeeded();
    assert!(output.contains("the instance uses s3://"), "{output}");
    let node = cluster.serve("three").env("GABLE_STORE", &second).start();
    assert_eq!(observe(&node), before);
    node.stop();
    let checked = cluster.on_node("admin", cluster.instance.gable(&["doctor"])).env("GABLE_STORE", &second).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
}

#[test]
fn traces_are_copied_again_if_another_bucket_was_the_target_meanwhile() {
    let Some(cluster) = Cluster::without_key() else { return };
    let data = cluster.data();
    let server = cluster.instance.start();
    create_test_data(&server);
    let migrate = || cluster.migrate_store("bucket", &data);
    migrate().finish().succeeded();
    migrate().env("GABLE_STORE", &cluster.bucket.url("second")).finish().succeeded();
    let before = observe(&server);
    server.stop();
    let output = migrate().finish().succeeded();
    assert!(output.contains("the instance uses s3://"), "{output}");
    let node = cluster.start("one");
    assert_eq!(observe(&node), before);
    node.stop();
    let checked = cluster.on_node("admin", cluster.instance.gable(&["doctor"])).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
}

#[test]
fn a_killed_migration_is_resumed() {
    let Some(cluster) = Cluster::without_key() else { return };
    let (data, back) = (cluster.data(), cluster.path("back"));
    let server = cluster.instance.start();
    create_test_data(&server);
    cluster.push(&server, "large", &large_content());
    let before = observe(&server);
    server.stop();
    let kill_repeatedly = |to: &str, data: &str| {
        for delay in (0..12).map(|round| Duration::from_millis(60 * round)) {
            let running = cluster.migrate_store(to, data).spawn();
            thread::sleep(delay);
            running.kill();
        }
        cluster.migrate_store(to, data).finish().succeeded()
    };
    kill_repeatedly("bucket", &data);
    let node = cluster.start("one");
    assert_eq!(observe(&node), before);
    node.stop();
    kill_repeatedly("folder", &back);
    assert_moved_to_folder(&cluster, &back, &before);
}

#[test]
fn wrong_places_are_refused_and_not_changed() {
    let Some(cluster) = Cluster::without_key() else { return };
    let data = cluster.data();
    let server = cluster.instance.start();
    cluster.push(&server, "large", &large_content());
    server.stop();
    // A bucket with other objects.
    let strange = cluster.bucket.folder().join("cluster/strange");
    fs::create_dir_all(strange.parent().expect("a folder")).expect("a folder");
    fs::write(&strange, "kept").expect("written");
    let refused = cluster.migrate_store("bucket", &data).finish().refused();
    assert!(refused.contains("contains objects of something else, such as strange"), "{refused}");
    fs::remove_file(&strange).expect("removed");
    // Another key in the file of the nodes.
    let key = cluster.path("key");
    cluster.instance.gable(&["admin", "instance", "create-key", &key]).finish().succeeded();
    let refused = cluster.migrate_store("bucket", &data).finish().refused();
    assert!(refused.contains("does not contain the key of this instance"), "{refused}");
    fs::remove_file(&key).expect("removed");
    // A folder that is in use for something else, or has no instance.
    let refused = cluster.migrate_store("bucket", &cluster.path("none")).finish().refused();
    assert!(refused.contains("no Gable instance in"), "{refused}");
    cluster.migrate_store("bucket", &data).finish().succeeded();
    let full = cluster.path("full");
    fs::create_dir(&full).expect("a folder");
    fs::write(format!("{full}/letter"), "dear").expect("written");
    let refused = cluster.migrate_store("folder", &full).finish().refused();
    assert!(refused.contains("is not empty"), "{refused}");
    // Without settings of a bucket.
    let refused = cluster.instance.gable(&["migrate-store", "--to", "folder"]).finish();
    assert_eq!(refused.status, Some(2), "{}", refused.combined_output());
    assert!(refused.stderr.contains("set `store` to the bucket"), "{}", refused.stderr);
    let node = cluster.start("one");
    assert_eq!(cluster.clone(&node, "large"), large_content());
}

#[test]
fn a_node_that_was_cut_off_stops_after_the_files_were_moved_away() {
    let Some(cluster) = Cluster::new() else { return };
    let (node, back) = (cluster.start("one"), cluster.path("back"));
    cluster.push(&node, "large", &large_content());
    node.signal("STOP");
    // As after a minute without a heartbeat.
    cluster.instance.execute("UPDATE nodes SET heartbeat_at = heartbeat_at - 60000000");
    let output = cluster.migrate_store("folder", &back).finish().succeeded();
    assert!(output.contains(&format!("the instance uses the data folder {back}")), "{output}");
    let server = serve_from(&cluster, &back).start();
    node.signal("CONT");
    let stopped = node.wait();
    assert_eq!(stopped.status, Some(1), "{}", stopped.combined_output());
    assert!(
        stopped.stderr.contains("gable: the database was moved to another store or restored, "),
        "{}",
        stopped.stderr
    );
    assert_eq!(cluster.clone(&server, "large"), large_content());
}

#[test]
fn a_listing_that_is_out_of_date_loses_nothing() {
    let Some(cluster) = Cluster::new() else { return };
    let (node, back) = (cluster.start("one"), cluster.path("back"));
    create_test_data(&node);
    cluster.push(&node, "large", &large_content());
    let before = observe(&node);
    node.stop();
    // An object that the bucket has lost.
    let uploads = cluster.bucket.folder().join("cluster/uploads");
    let project = fs::read_dir(uploads).expect("a folder").next().expect("a project").expect("an entry").path();
    let object = project.join("1");
    let aside = cluster.path("aside");
    fs::copy(&object, &aside).expect("copied");
    fs::remove_file(&object).expect("removed");
    let refused = cluster.migrate_store("folder", &back).finish().refused();
    let key = format!("uploads/{}/1", project.file_name().expect("a name").to_string_lossy());
    assert!(refused.starts_with("1 files that the database names are missing in s3://"), "{refused}");
    assert!(refused.contains(&format!(", such as {key}; run the command again, or, ")), "{refused}");
    // Nodes can go on.
    let node = cluster.start("one");
    assert_eq!(cluster.clone(&node, "large"), large_content());
    node.stop();
    fs::copy(&aside, &object).expect("restored");

    cluster.bucket.fail_next(u32::MAX, Fault::StaleListing);
    let output = cluster.migrate_store("folder", &back).finish().succeeded();
    assert!(output.contains(&format!("the instance uses the data folder {back}")), "{output}");
    cluster.bucket.recover();
    assert_moved_to_folder(&cluster, &back, &before);
}
