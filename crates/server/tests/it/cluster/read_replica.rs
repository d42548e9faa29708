//! Lists that are read from a standby of PostgreSQL.
//!
//! `GABLE_TEST_STANDBY=postgres://…` is a standby of the server `GABLE_TEST_DATABASE`, whose role may pause it.

use std::time::{Duration, Instant};

use serde_json::json;
use url::Url;

use crate::support::{ServerProcess, TestInstance, WAIT_TIMEOUT, execute_on, postgres_server};

/// Returns the server of the standby; `None` if there is none, as on SQLite.
fn standby() -> Option<Url> {
    let text = std::env::var("GABLE_TEST_STANDBY").ok().filter(|_| postgres_server().is_some());
    if text.is_none() {
        eprintln!("skipped: requires GABLE_TEST_STANDBY");
    }
    text.map(|text| Url::parse(&text).expect("GABLE_TEST_STANDBY is a URL"))
}

/// Returns the URL of the standby of the database of an instance.
fn replica_of(instance: &TestInstance, standby: &Url) -> String {
    let mut url = standby.clone();
    url.set_path(instance.database_url().expect("on PostgreSQL").path());
    url.set_query(Some("target_session_attrs=read-only"));
    url.into()
}

fn start(instance: &TestInstance, replica: &str) -> ServerProcess {
    let server = instance.serve().env("GABLE_READ_REPLICA", replica).with_root_credentials().start();
    assert_eq!(server.root().post("/api/v3/projects", &json!({ "name": "lists" })).status, 201);
    server
}

/// Returns the number of lists that were read from a server.
fn lists_read_from(server: &ServerProcess, kind: &str) -> u64 {
    let metrics = server.anonymous().get("/-/metrics").text;
    let name = format!("gable_list_reads_total{{server=\"{kind}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().expect("a number"))
}

/// Creates issues, and reads the list after each of them.
fn create_and_list(server: &ServerProcess, numbers: std::ops::Range<usize>) {
    let root = server.root();
    for number in numbers {
        let title = format!("Issue {number}");
        root.post("/api/v3/projects/1/issues", &json!({ "title": title }));
        let listed = root.get("/api/v3/projects/1/issues").json();
        assert_eq!(listed[0]["title"], title, "{listed}");
    }
}

/// Lists until one is read from the standby, which cannot be connected to until it has replayed the creation of the database.
fn wait_for_standby(server: &ServerProcess) {
    let (deadline, before) = (Instant::now() + WAIT_TIMEOUT, lists_read_from(server, "standby"));
    while lists_read_from(server, "standby") == before {
        assert!(Instant::now() < deadline, "no list is read from the standby");
        server.root().get("/api/v3/projects");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn lists_are_read_from_a_standby_that_is_not_behind() {
    let Some(standby) = standby() else { return };
    let instance = TestInstance::new();
    let server = start(&instance, &replica_of(&instance, &standby));
    wait_for_standby(&server);
    let before = lists_read_from(&server, "standby");
    create_and_list(&server, 0..40);
    let read = lists_read_from(&server, "standby") - before;
    assert!(read >= 20, "{read} of 40 lists were read from the standby");
    check_revoked_access(&server);

    // A standby that is behind is not used.
    execute_on(&standby, "SELECT pg_wal_replay_pause()");
    create_and_list(&server, 40..45);
    let (before, primary) = (lists_read_from(&server, "standby"), lists_read_from(&server, "primary"));
    create_and_list(&server, 45..50);
    assert_eq!(lists_read_from(&server, "standby"), before);
    assert_eq!(lists_read_from(&server, "primary"), primary + 5);
    execute_on(&standby, "SELECT pg_wal_replay_resume()");
    wait_for_standby(&server);
    create_and_list(&server, 50..55);

    let log = server.stop().combined_output();
    assert!(log.contains("lists are read from the standby of the database"), "{log}");
    assert!(log.contains("instead of the standby reason=unavailable: the standby is behind the primary"), "{log}");
}

/// Checks that a list never contains what its caller may no longer see.
fn check_revoked_access(server: &ServerProcess) {
    let root = server.root();
    let ann = json!({
        "username": "ann", "email": "ann@example.com", "name": "Ann", "password": "correct-horse", "confirm": false
    });
    assert_eq!(root.post("/api/v3/users", &ann).status, 201);
    let session = server.anonymous().post("/api/v3/session", &json!({ "login": "ann", "password": "correct-horse" }));
    let ann = server.client(session.json()["private_token"].as_str().expect("a token"));
    for _ in 0..10 {
        root.post("/api/v3/projects/1/members", &json!({ "user_id": 2, "access_level": 30 }));
        assert_eq!(ann.get("/api/v3/projects").json()[0]["name"], "lists");
        root.try_delete("/api/v3/projects/1/members/2").expect("removed");
        assert_eq!(ann.get("/api/v3/projects").json(), json!([]));
    }
}

#[test]
fn without_a_usable_standby_lists_are_read_from_the_primary() {
    let Some(standby) = standby() else { return };
    let other = TestInstance::new();
    let replica_of_another = replica_of(&other, &standby);
    for replica in [None, Some("postgres://gable@127.0.0.1:1/gable"), Some(&*replica_of_another)] {
        let instance = TestInstance::new();
        let primary = instance.database_url().expect("on PostgreSQL");
        // Not a standby at all, nothing listens there, and the standby of another database.
        let server = start(&instance, replica.unwrap_or(primary.as_str()));
        create_and_list(&server, 0..5);
        // The threads of the standby have tried to connect by now.
        std::thread::sleep(Duration::from_secs(2));
        create_and_list(&server, 5..10);
        assert_eq!(lists_read_from(&server, "standby"), 0, "{replica:?}");
        assert_eq!(server.anonymous().get("/-/ready").to_string(), "200 ready\n");
        let log = server.stop().combined_output();
        assert!(log.contains("lists are read from the primary database instead of the standby"), "{replica:?}: {log}");
    }
}

#[test]
fn a_read_replica_requires_postgresql_and_a_valid_url() {
    let instance = TestInstance::embedded();
    let refused = instance.serve().env("GABLE_READ_REPLICA", "postgres://ann:s3cret@host/gable").finish().refused();
    assert!(refused.contains("read-replica requires database: the embedded database has no standbys"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    let instance = TestInstance::embedded();
    let serve = instance.serve().env("GABLE_DATABASE", "postgres://ann:s3cret@127.0.0.1:1/gable");
    let refused = serve.env("GABLE_READ_REPLICA", "mysql://ann:s3cret@host/gable").finish().refused();
    assert!(refused.contains("read-replica: the database URL is not of the form postgres://"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
}
