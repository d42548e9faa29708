//! Crashes while email addresses are added and removed and a user is renamed, and database failures.

use std::{
    collections::BTreeSet,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    crash::campaign::{Campaign, FailureMode, default_server},
    support::{
        Acknowledgement, GableCommand, HttpClient, ServerProcess, TestInstance, WAIT_TIMEOUT, WriteLoad,
        postgres_server,
    },
};

/// The default number of crashes per data folder.
const KILLS: usize = 20;
/// The maximum delay between the first acknowledgement of each kind and the crash, in milliseconds.
const MAX_DELAY: u64 = 150;

/// Counts users that were changed only in part, which a torn transaction would leave.
const INCONSISTENT_USERS: &str = "SELECT count(*) FROM users WHERE \
    NOT EXISTS (SELECT 1 FROM namespaces WHERE owner_id = users.id AND path = users.username) OR \
    NOT EXISTS (SELECT 1 FROM emails WHERE user_id = users.id AND is_primary AND emails.email = users.email)";

#[test]
fn nothing_acknowledged_is_lost_when_killed_during_writes() {
    run(Campaign::new("crash", KILLS, FailureMode::Kill, default_server));
}

/// Crashes servers while addresses are added and removed and a user is renamed.
pub(crate) fn run(mut campaign: Campaign) {
    let instance = TestInstance::new();
    instance.start().stop();
    instance.admin(&["user", "create", "ann-0", "--email", "ann-0@example.org"]);
    let mut expected = ExpectedUsers::default();
    for kill in 0..campaign.kills {
        let server = campaign.start(&instance);
        expected.check(&instance, &server);
        let additions = WriteLoad::start(&server, &format!("storm-{kill}"));
        let (one_removed, one_renamed) = (Acknowledgement::default(), Acknowledgement::default());
        let removals = remove_addresses(&server, kill, one_removed.clone());
        let renames = rename_user(&server, expected.renamed, one_renamed.clone());
        // A crash before each kind of write was acknowledged once would test little.
        let acknowledgements = [additions.acknowledgement().clone(), one_removed, one_renamed];
        acknowledgements.iter().for_each(Acknowledgement::wait);
        campaign.crash(&instance, server, &acknowledgements, MAX_DELAY);
        expected.added.extend(additions.stop());
        expected.removed.extend(removals.join().expect("every response is a success"));
        expected.renamed = renames.join().expect("every response is a success");
    }
    let server = instance.start();
    expected.check(&instance, &server);
    let (added, removed, renamed) = (expected.added.len(), expected.removed.len(), expected.renamed);
    assert!(added > campaign.kills && removed > 0 && renamed > 0, "too few writes: {added}, {removed}, {renamed}");
    if instance.database_url().is_none() {
        let faults = "SELECT (SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok') \
                      + (SELECT count(*) FROM pragma_foreign_key_check)";
        assert_eq!(instance.count(faults), 0);
    }
    campaign.finish(added + removed + usize::try_from(renamed).expect("a number"));
}

/// The acknowledged changes.
#[derive(Default)]
struct ExpectedUsers {
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// The number in Ann's name after the last acknowledged rename.
    renamed: u64,
}

impl ExpectedUsers {
    /// Checks that everything acknowledged is there, and nothing in part.
    fn check(&mut self, instance: &TestInstance, server: &ServerProcess) {
        let root = server.root();
        let addresses = addresses_of(&root);
        let lost: Vec<_> = self.added.difference(&addresses).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let returned: Vec<_> = self.removed.intersection(&addresses).collect();
        assert!(returned.is_empty(), "removed, but back again: {returned:?}");
        let torn: Vec<_> = addresses.iter().filter(|address| !is_complete(address)).collect();
        assert!(torn.is_empty(), "{torn:?}");

        assert_eq!(instance.count(INCONSISTENT_USERS), 0);
        let ann = root.get("/api/v3/users/2").json();
        let username = ann["username"].as_str().expect("a name");
        assert_eq!(ann["email"], format!("{username}@example.org"));
        let number = username.strip_prefix("ann-").and_then(|number| number.parse().ok());
        // The last rename may have happened without being acknowledged.
        assert!(number == Some(self.renamed) || number == Some(self.renamed + 1), "{number:?}, not {}", self.renamed);
        self.renamed = number.unwrap_or_default();
    }
}

/// Returns whether an address has the complete form in which it was sent.
fn is_complete(address: &str) -> bool {
    let numbers = address.strip_prefix("storm-").or_else(|| address.strip_prefix("removed-"));
    let numbers = numbers.and_then(|rest| rest.strip_suffix("@example.org"));
    numbers.is_some_and(|text| text.split('-').all(|number| number.parse::<u64>().is_ok()))
}

/// Adds and removes addresses until the server dies; returns those whose removal was acknowledged.
fn remove_addresses(server: &ServerProcess, kill: usize, acknowledgement: Acknowledgement) -> JoinHandle<Vec<String>> {
    let root = server.root();
    thread::spawn(move || {
        let mut removed = Vec::new();
        for number in 0.. {
            let address = format!("removed-{kill}-{number}@example.org");
            let Ok(added) = root.try_post("/api/v3/user/emails", &json!({ "email": address })) else { break };
            // The server may die while it sends the id of the address.
            let Some(id) = added.try_json().map(|email| email["id"].to_string()) else { break };
            let Ok(gone) = root.try_delete(&format!("/api/v3/user/emails/{id}")) else { break };
            assert_eq!((added.status, gone.status), (201, 200), "{added}, {gone}");
            removed.push(address);
            acknowledgement.record();
        }
        removed
    })
}

/// Renames Ann, which changes three tables, until the server dies; returns the last acknowledged number.
fn rename_user(server: &ServerProcess, since: u64, acknowledgement: Acknowledgement) -> JoinHandle<u64> {
    let root = server.root();
    thread::spawn(move || {
        let mut renamed = since;
        loop {
            let name = format!("ann-{}", renamed + 1);
            let change = json!({ "username": name, "email": format!("{name}@example.org") });
            let Ok(response) = root.try_put("/api/v3/users/2", &change) else { return renamed };
            assert_eq!(response.status, 200, "{response}");
            renamed += 1;
            acknowledgement.record();
        }
    })
}

/// Returns the secondary addresses of the caller.
fn addresses_of(root: &HttpClient) -> BTreeSet<String> {
    let start = Instant::now();
    loop {
        let (mut held, mut totals) = (BTreeSet::new(), BTreeSet::new());
        for page in 1.. {
            let response = root.get(&format!("/api/v3/user/emails?per_page=100&page={page}"));
            assert_eq!(response.status, 200, "{response}");
            totals.insert(response.header("x-total").map(str::to_owned));
            let emails = response.json();
            let emails = emails.as_array().expect("a list");
            held.extend(emails.iter().map(|email| email["email"].as_str().expect("an address").to_owned()));
            if emails.len() < 100 {
                break;
            }
        }
        // On PostgreSQL a commit of the killed server may still arrive between two pages.
        if totals == [Some(held.len().to_string())].into() {
            return held;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "{} listed, but the total is {totals:?}", held.len());
    }
}

#[test]
fn a_full_disk_fails_writes_and_loses_nothing() {
    /// The maximum size of a file in blocks of 512 bytes: enough to start, too little to write for long.
    const MAX_FILE_BLOCKS: &str = "1024";
    let instance = TestInstance::embedded();
    instance.start().stop();
    // A limit on the size of files simulates a full disk; the signal that it sends is ignored.
    let server = GableCommand::new("sh")
        .args(&["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", MAX_FILE_BLOCKS])
        .args(&[env!("CARGO_BIN_EXE_gable"), "serve", "--listen", "127.0.0.1:0"])
        .for_instance(&instance)
        .start();
    let root = server.root();
    let add = |address: &str| root.post("/api/v3/user/emails", &json!({ "email": address }));
    let mut acknowledged = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for number in 0..1_000 {
        let address = format!("full-{number}@example.org");
        let response = add(&address);
        if response.status == 201 {
            acknowledged.insert(address);
            continue;
        }
        assert_eq!(response.to_string(), r#"500 {"message":"500 Internal Server Error"}"#);
        refused.insert(address);
        if refused.len() == 10 {
            break;
        }
    }
    assert!(!acknowledged.is_empty() && refused.len() == 10, "{} and {}", acknowledged.len(), refused.len());
    assert_eq!(root.get("/-/ready").status, 200);
    assert_eq!(addresses_of(&root), acknowledged);
    assert_eq!(server.stop().status, Some(0));
    // Without the limit, all writes succeed.
    let server = instance.start();
    let root = server.root();
    assert_eq!(addresses_of(&root), acknowledged);
    for address in refused {
        assert_eq!(root.post("/api/v3/user/emails", &json!({ "email": address })).status, 201);
    }
}

#[test]
fn a_server_survives_an_outage_of_postgresql() {
    if postgres_server().is_none() {
        // The embedded database has no server that can fail.
        return;
    }
    let instance = TestInstance::new();
    let server = instance.start();
    let root = server.root();
    let add = |address: &str| root.post("/api/v3/user/emails", &json!({ "email": address })).status;
    // Often enough that every pooled connection is used and lost.
    for number in 0..20 {
        assert_eq!(add(&format!("before-{number}@example.org")), 201);
        assert_eq!(root.get("/api/v3/user").status, 200);
    }
    instance.begin_outage();
    assert_eq!(add("during@example.org"), 503);
    assert_eq!(root.get("/api/v3/user").status, 503);
    assert_eq!(root.get("/-/health").to_string(), "200 ok\n");
    for _ in 0..5 {
        assert_eq!(root.get("/-/ready").to_string(), "503 the database does not respond\n");
    }
    instance.end_outage();
    let start = Instant::now();
    while root.get("/-/ready").status != 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not recover");
        thread::sleep(Duration::from_millis(50));
    }
    for number in 0..20 {
        assert_eq!(add(&format!("after-{number}@example.org")), 201);
        assert_eq!(root.get("/api/v3/user").status, 200);
    }
    assert_eq!(addresses_of(&root).len(), 40);
    let log = server.stop().stderr;
    for change in ["WARN gable::readiness_log: not ready", "INFO gable::readiness_log: ready again"] {
        assert_eq!(log.matches(change).count(), 1, "{log}");
    }
}
