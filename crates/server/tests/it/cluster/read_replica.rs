//! Lists that are read from a standby of PostgreSQL.
//!
//! `GABLE_TEST_STANDBY=postgres://…` is a standby of the server `GABLE_TEST_DATABASE`. The roles of both URLs are superusers,
//! which may pause the standby and start other servers.

use std::{
    net::TcpListener,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::json;
use url::Url;

use crate::support::{GableCommand, ServerProcess, TestInstance, WAIT_TIMEOUT, execute_on, postgres_server};

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

/// Returns the URL of a database with another user.
fn with_user(url: &str, user: &str) -> String {
    let mut url = Url::parse(url).expect("a URL");
    url.set_username(user).expect("set");
    url.set_password(Some("correct-horse")).expect("set");
    url.into()
}

fn serve(instance: &TestInstance, replica: &str) -> GableCommand {
    instance.serve().env("GABLE_READ_REPLICA", replica).with_root_credentials()
}

fn start(instance: &TestInstance, replica: &str) -> ServerProcess {
    start_with_project(serve(instance, replica))
}

fn start_with_project(command: GableCommand) -> ServerProcess {
    let server = command.start();
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
fn create_and_list(server: &ServerProcess, count: usize) {
    let root = server.root();
    for _ in 0..count {
        let created = root.post("/api/v3/projects/1/issues", &json!({ "title": "Issue" }));
        assert_eq!(created.status, 201, "{created}");
        let listed = root.get("/api/v3/projects/1/issues").json();
        assert_eq!(listed[0]["iid"], created.json()["iid"], "{listed}");
    }
}

/// Lists until the log contains a text.
fn list_until_logged(server: &ServerProcess, text: &str) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !server.stderr().contains(text) {
        assert!(Instant::now() < deadline, "not logged: {text}");
        server.root().get("/api/v3/projects");
        std::thread::sleep(Duration::from_millis(100));
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

/// Creates issues and reads the list after each of them, until twenty lists were read from the standby. On a busy machine the
/// standby is late now and then, and is not used for a second.
fn create_and_list_on_standby(server: &ServerProcess) {
    let (deadline, before) = (Instant::now() + WAIT_TIMEOUT, lists_read_from(server, "standby"));
    while lists_read_from(server, "standby") < before + 20 {
        assert!(Instant::now() < deadline, "few lists are read from the standby");
        create_and_list(server, 5);
    }
}

/// Keeps a standby from replaying the log until it is dropped.
struct PausedReplay<'a>(&'a Url);

impl<'a> PausedReplay<'a> {
    fn begin(standby: &'a Url) -> Self {
        execute_on(standby, "SELECT pg_wal_replay_pause()");
        Self(standby)
    }
}

impl Drop for PausedReplay<'_> {
    fn drop(&mut self) {
        execute_on(self.0, "SELECT pg_wal_replay_resume()");
    }
}

#[test]
fn lists_are_read_from_a_standby_that_is_not_behind() {
    let Some(standby) = standby() else { return };
    let instance = TestInstance::new();
    let server = start(&instance, &replica_of(&instance, &standby));
    create_and_list_on_standby(&server);
    check_revoked_access(&server);

    // A standby that is behind is not used.
    let paused = PausedReplay::begin(&standby);
    create_and_list(&server, 5);
    let (before, primary) = (lists_read_from(&server, "standby"), lists_read_from(&server, "primary"));
    create_and_list(&server, 5);
    assert_eq!(lists_read_from(&server, "standby"), before);
    assert_eq!(lists_read_from(&server, "primary"), primary + 5);
    list_until_logged(&server, "instead of the standby reason=the standby is behind the primary; check its load");
    drop(paused);
    create_and_list_on_standby(&server);
    list_until_logged(&server, "lists are read from the standby of the database");
    server.stop();
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
        assert_eq!(ann.get("/api/v3/projects/1/issues?per_page=1").json()[0]["title"], "Issue");
        root.try_delete("/api/v3/projects/1/members/2").expect("removed");
        assert_eq!(ann.get("/api/v3/projects").json(), json!([]));
        let hidden = ann.get("/api/v3/projects/1/issues?per_page=1");
        assert_eq!((hidden.status, hidden.json()), (404, json!({ "message": "404 Project Not Found" })));
    }
}

#[test]
fn without_a_usable_standby_lists_are_read_from_the_primary_and_the_log_says_why() {
    let Some(standby) = standby() else { return };
    let other = TestInstance::new();
    let check = |instance: &TestInstance, replica: &str, reason: &str| {
        let server = start(instance, replica);
        create_and_list(&server, 5);
        list_until_logged(&server, &format!("primary database instead of the standby reason={reason}"));
        create_and_list(&server, 5);
        assert_eq!(lists_read_from(&server, "standby"), 0, "{replica}");
        assert!(lists_read_from(&server, "primary") >= 10, "{replica}");
        assert_eq!(server.anonymous().get("/-/ready").to_string(), "200 ready\n");
        server.stop();
    };
    let instance = TestInstance::new();
    let nothing = "unavailable: cannot connect to PostgreSQL at 127.0.0.1:1 (database gable, user gable): ";
    check(&instance, "postgres://gable@127.0.0.1:1/gable", nothing);
    let instance = TestInstance::new();
    let primary = instance.database_url().expect("on PostgreSQL");
    check(&instance, primary.as_str(), "the server is not a standby; add target_session_attrs=read-only");
    check(&TestInstance::new(), &replica_of(&other, &standby), "the URL of read-replica names another database");
    let cluster = OwnServer::with_new_cluster();
    check(&TestInstance::new(), &cluster.url(), "the server belongs to another cluster than the primary");
}

#[test]
fn a_standby_that_refuses_some_connections_is_used() {
    if standby().is_none() {
        return;
    }
    // Other tests pause the replay of the shared standby.
    let own = OwnServer::with_standby();
    let role = Role::create("CONNECTION LIMIT 1");
    execute_on(&role.server, &format!("GRANT pg_read_all_data TO {}", role.name));
    let instance = TestInstance::new();
    let replica = with_user(&replica_of(&instance, &Url::parse(&own.url()).expect("a URL")), &role.name);
    // Three threads read lists.
    let server = start_with_project(serve(&instance, &replica).env("GABLE_DATABASE_CONNECTIONS", "9"));
    wait_for_standby(&server);
    list_until_logged(&server, "cannot open all connections to the standby of the database");
    create_and_list_on_standby(&server);
    server.stop();
}

#[test]
fn a_role_that_may_not_read_the_position_is_named_in_the_log() {
    let Some(standby) = standby() else { return };
    let role = Role::create("");
    let instance = TestInstance::new();
    let primary = instance.database_url().expect("on PostgreSQL");
    let database = primary.path().trim_start_matches('/').to_owned();
    execute_on(&primary, &format!("ALTER DATABASE {database} OWNER TO {}", role.name));
    execute_on(&primary, "REVOKE EXECUTE ON FUNCTION pg_current_wal_flush_lsn() FROM PUBLIC");
    let command = serve(&instance, &replica_of(&instance, &standby));
    let server = start_with_project(command.env("GABLE_DATABASE", &with_user(primary.as_str(), &role.name)));
    let reason = "reason=cannot ask the primary for the position of its log: permission denied for function";
    list_until_logged(&server, reason);
    create_and_list(&server, 20);
    let log = server.stop().combined_output();
    assert_eq!(log.matches(reason).count(), 1, "{log}");
}

#[test]
fn lists_do_not_wait_for_a_standby_that_does_not_answer() {
    if standby().is_none() {
        return;
    }
    let (own, instance) = (OwnServer::with_standby(), TestInstance::new());
    let server = start(&instance, &replica_of(&instance, &Url::parse(&own.url()).expect("a URL")));
    wait_for_standby(&server);
    own.signal("STOP");
    let (start, primary) = (Instant::now(), lists_read_from(&server, "primary"));
    create_and_list(&server, 30);
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    assert_eq!(lists_read_from(&server, "primary"), primary + 30);
    own.signal("CONT");
    wait_for_standby(&server);
    server.stop();
}

#[test]
fn after_a_promotion_lists_are_read_from_another_standby() {
    let Some(other) = standby() else { return };
    // The copy has the database; a standby without it would not be used, and the other one would.
    let instance = TestInstance::new();
    let own = OwnServer::with_standby();
    let replica = replica_of(&instance, &other).replacen('@', &format!("@127.0.0.1:{},", own.port), 1);
    // One thread reads lists.
    let server = start_with_project(serve(&instance, &replica).env("GABLE_DATABASE_CONNECTIONS", "3"));
    wait_for_standby(&server);
    let database = instance.database_url().expect("on PostgreSQL").path().trim_start_matches('/').to_owned();
    // Waits: a standby that was late for a moment is left, and used again.
    let has_reader = format!(
        "DO $$BEGIN FOR attempt IN 1..300 LOOP \
         IF EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = '{database}') THEN RETURN; END IF; \
         PERFORM pg_sleep(0.1); PERFORM pg_stat_clear_snapshot(); END LOOP; RAISE 'no reader is connected'; END$$"
    );
    let own_url = Url::parse(&own.url()).expect("a URL");
    execute_on(&own_url, &has_reader);
    execute_on(&own_url, "SELECT pg_promote()");
    create_and_list(&server, 5);
    wait_for_standby(&server);
    execute_on(&other, &has_reader);
    create_and_list(&server, 5);
    server.stop();
}

/// A PostgreSQL server for one test, on the machine and with the account of the server of the tests. It is removed on drop.
struct OwnServer {
    folder: PathBuf,
    port: u16,
}

impl OwnServer {
    /// Starts a standby of the server of the tests.
    fn with_standby() -> Self {
        let primary = postgres_server().expect("on PostgreSQL");
        Self::start(&format!("pg_basebackup --pgdata=$data --write-recovery-conf --checkpoint=fast --dbname={primary}"))
    }

    /// Starts a server that has nothing in common with the server of the tests.
    fn with_new_cluster() -> Self {
        Self::start("initdb --pgdata=$data --username=gable --auth=trust --no-sync")
    }

    fn start(create: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let folder = std::env::temp_dir().join(format!("gable-own-server-{}-{port}", std::process::id()));
        drop(listener);
        let own = Self { folder, port };
        let options = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=1000 -c fsync=off"
        );
        own.run(&format!("{create} && pg_ctl start --wait --pgdata=$data --log=$data/log --options=\"{options}\""));
        own
    }

    fn url(&self) -> String {
        format!("postgres://gable:correct-horse@127.0.0.1:{}/postgres", self.port)
    }

    /// Sends a signal to all processes of the server.
    fn signal(&self, name: &str) {
        self.run(&format!(
            "process=$(head -n 1 $data/postmaster.pid) && pkill -{name} -P $process && kill -{name} $process"
        ));
    }

    /// Runs a shell command as the account of the server of the tests; `$data` is the folder of this server.
    fn run(&self, command: &str) {
        let path = "PATH=$(dirname $(readlink /proc/$PPID/exe)):$PATH";
        let script = format!("cat >/dev/null; {path}; data={}; ({command}) >/dev/null", self.folder.display());
        let script = script.replace('\'', "''");
        execute_on(&postgres_server().expect("on PostgreSQL"), &format!("COPY (SELECT 1) TO PROGRAM '{script}'"));
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // Nothing fails here: a second panic would hide the first.
        self.run(
            "process=$(head -n 1 $data/postmaster.pid); pkill -CONT -P $process; kill -CONT $process; \
             pg_ctl stop --mode=immediate --pgdata=$data; rm -rf $data; true",
        );
    }
}

/// A role that may sign in, removed on drop.
struct Role {
    server: Url,
    name: String,
}

impl Role {
    fn create(options: &str) -> Self {
        let (server, name) =
            (postgres_server().expect("on PostgreSQL"), format!("gable_role_{}_{}", std::process::id(), options.len()));
        execute_on(&server, &format!("CREATE ROLE {name} LOGIN PASSWORD 'correct-horse' {options}"));
        Self { server, name }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        execute_on(&self.server, &format!("DROP ROLE {}", self.name));
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
