//! Servers that share a PostgreSQL database and a bucket.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::bucket::Fault;

use super::fixture::{Cluster, large_content};
use crate::support::{GableCommand, ROOT_TOKEN, ServerProcess, WAIT_TIMEOUT};

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
    let mode = fs::metadata(cluster.path("two")).expect("created again").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "other users can read the cache");
    let listed = cluster.on_node("admin", cluster.instance.gable(&["admin", "node", "list"])).finish().succeeded();
    // The killed one may still be listed.
    assert!([&two, &three].iter().all(|node| listed.contains(node.address())), "{listed}");
    let checked = cluster.on_node("admin", cluster.instance.gable(&["doctor"])).finish();
    assert_eq!(checked.status, Some(0), "{}", checked.combined_output());
}

#[test]
fn a_damaged_file_is_not_downloaded_completely() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.start("one");
    cluster.push(&node, "one", b"small\n");
    let uploaded = node.root().try_upload("/api/v3/projects/1/uploads", "note.txt", "kept").expect("sent").json();
    let path = format!("/root/one{}", uploaded["url"].as_str().expect("a link"));
    let download = || {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {0}\r\nprivate-token: {ROOT_TOKEN}\r\n", node.address());
        let mut stream = TcpStream::connect(node.address()).expect("connected");
        stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        // The server may close the connection instead of ending the answer.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(download().ends_with("\r\n\r\nkept"), "{}", download());
    let uploads = cluster.bucket.folder().join("cluster/uploads");
    let folder = fs::read_dir(uploads).expect("listed").next().expect("a project").expect("an entry").path();
    fs::write(folder.join("1"), "lost").expect("damaged");
    assert!(!download().contains("lost"), "{}", download());
}

#[test]
fn without_the_store_cached_repositories_are_readable_and_writes_are_refused() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.start("one");
    cluster.push(&node, "cached", &large_content());
    assert_eq!(cluster.clone(&node, "cached"), large_content());
    assert_eq!(node.anonymous().get("/-/ready").to_string(), "200 ready\n");
    cluster.bucket.fail_next(u32::MAX, Fault::Unavailable);
    for _ in 0..3 {
        let ready = node.anonymous().try_get("/-/ready").expect("answered");
        assert_eq!(ready.to_string(), "503 the store does not respond\n");
    }
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
    let log = node.stop().stderr;
    for change in ["WARN gable::readiness_log: not ready", "INFO gable::readiness_log: ready again"] {
        assert_eq!(log.matches(change).count(), 1, "{log}");
    }
}

#[test]
fn a_write_that_waits_for_the_store_holds_no_locks() {
    let Some(cluster) = Cluster::new() else { return };
    let (one, two) = (cluster.start("one"), cluster.start("two"));
    cluster.push(&one, "large", &large_content());
    let hook = json!({ "url": "http://hooks.example.com", "pipeline_events": true });
    one.root().post("/api/v3/projects/1/hooks", &hook).json();
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "main", "commit_message": "Build", "content": "build: { script: [make] }"
    });
    one.root().post("/api/v3/projects/1/repository/files", &file).json();
    let create_pipeline = || {
        let created = one.root().post("/api/v3/projects/1/pipeline", &json!({ "ref": "main" })).json();
        created["id"].as_i64().expect("an id")
    };
    let cancel = |node: &ServerProcess, pipeline: i64| {
        let canceled = node.root().post(&format!("/api/v3/projects/1/pipelines/{pipeline}/cancel"), &json!({})).json();
        assert_eq!((&canceled["id"], &canceled["status"]), (&json!(pipeline), &json!("canceled")), "{canceled}");
    };
    let pack_requests = || {
        let requests = cluster.bucket.take_requests();
        requests.into_iter().filter(|request| request.starts_with("GET ") && request.contains("/packs/")).count()
    };

    // The event of the pipeline contains its commit, for which this node needs the packs.
    let pipeline = create_pipeline();
    pack_requests();
    cancel(&two, pipeline);
    assert_ne!(pack_requests(), 0, "the node had the packs");

    fs::remove_dir_all(cluster.path("two")).expect("removed");
    let pipeline = create_pipeline();
    cluster.bucket.fail_next(u32::MAX, Fault::Unavailable);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cancel(&two, pipeline));
        let start = Instant::now();
        while pack_requests() == 0 {
            assert!(start.elapsed() < WAIT_TIMEOUT, "the node does not ask for the packs");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Locks the same pipeline.
        cancel(&one, pipeline);
        assert!(!waiting.is_finished());
        cluster.bucket.recover();
    });
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
    assert!(message.contains("; copy it from another node; only for a new instance, "), "{message}");
    let message = refused(cluster.serve("two").env("GABLE_STORE", &cluster.bucket.url("empty")));
    assert!(message.contains("the database contains an instance, but the store s3://gable/empty at "), "{message}");
    let message = refused(cluster.serve("two").env("AWS_SECRET_ACCESS_KEY", "wrong"));
    assert!(message.contains("the store refuses the signature; check AWS_SECRET_ACCESS_KEY"), "{message}");
    // Nor does a server that has a data folder.
    let message = refused(cluster.instance.serve().with_root_credentials());
    assert!(message.contains("the database contains an instance, but the data folder"), "{message}");
    // Commands that lack the settings of the store say so.
    for command in [&["admin", "node", "list"][..], &["migrate"], &["backup", "--quiet", "backup.tar"]] {
        let message = refused(cluster.instance.gable(command).env("GABLE_DATA", "nowhere"));
        assert!(
            message.starts_with(
                "the database contains an instance, but the data folder nowhere does not; specify its folder with --data, or, "
            ),
            "{message}"
        );
        assert!(message.contains("set `store`, `cache` and `instance-key-file`"), "{message}");
    }
    cluster.start("two").stop();
}
