//! What happens to acknowledged writes when things go wrong.

use std::{
    collections::BTreeSet,
    thread::{self, JoinHandle},
    time::Instant,
};

use serde_json::json;

use crate::{
    admin::binary::{Client, Gable, Heard, Home, PATIENCE, Server, Storm, postgres_server},
    crash::crash_ways::{Campaign, Way, as_usual},
};

/// How often one data folder is hit, unless told otherwise.
const KILLS: usize = 20;
/// How long after the first acknowledgements of each kind the server lives at most, in milliseconds.
const LATEST: u64 = 150;

/// Users of whom only a part was changed, which a transaction that is torn apart would leave.
const HALF_CHANGED: &str = "SELECT count(*) FROM users WHERE \
    NOT EXISTS (SELECT 1 FROM namespaces WHERE owner_id = users.id AND path = users.username) OR \
    NOT EXISTS (SELECT 1 FROM emails WHERE user_id = users.id AND is_primary AND emails.email = users.email)";

#[test]
fn nothing_acknowledged_is_lost_to_kills_in_a_storm() {
    hit(Campaign::begin("crash", KILLS, Way::Kill, as_usual));
}

/// Hits a server while addresses come and go and a user is renamed.
pub(crate) fn hit(mut campaign: Campaign) {
    let home = Home::new();
    home.start().stop();
    home.admin(&["user", "create", "ann-0", "--email", "ann-0@example.org"]);
    let mut expected = Diary::default();
    for kill in 0..campaign.kills {
        let server = campaign.start(&home);
        expected.compare(&home, &server);
        let storm = Storm::begin(&server, &format!("storm-{kill}"));
        let (one_removed, one_renamed) = (Heard::default(), Heard::default());
        let removals = keep_removing(&server, kill, one_removed.clone());
        let renames = keep_renaming(&server, expected.renamed, one_renamed.clone());
        // Each kind at least once, however slow the machine is: a kill before that would show little.
        let heard = [storm.heard().clone(), one_removed, one_renamed];
        heard.iter().for_each(Heard::wait);
        campaign.strike(&home, server, &heard, LATEST);
        expected.added.extend(storm.end());
        expected.removed.extend(removals.join().expect("nothing but success is heard"));
        expected.renamed = renames.join().expect("nothing but success is heard");
    }
    let server = home.start();
    expected.compare(&home, &server);
    let (added, removed, renamed) = (expected.added.len(), expected.removed.len(), expected.renamed);
    assert!(added > campaign.kills && removed > 0 && renamed > 0, "no storm at all: {added}, {removed}, {renamed}");
    if home.database_url().is_none() {
        let faults = "SELECT (SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok') \
                      + (SELECT count(*) FROM pragma_foreign_key_check)";
        assert_eq!(home.count(faults), 0);
    }
    campaign.finish(added + removed + usize::try_from(renamed).expect("a number"));
}

/// What was acknowledged.
#[derive(Default)]
struct Diary {
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// The number that is Ann's name since the last acknowledged rename.
    renamed: u64,
}

impl Diary {
    /// Everything acknowledged is there, and nothing is there by half.
    fn compare(&mut self, home: &Home, server: &Server) {
        let root = server.root();
        let addresses = addresses_of(&root);
        let lost: Vec<_> = self.added.difference(&addresses).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let returned: Vec<_> = self.removed.intersection(&addresses).collect();
        assert!(returned.is_empty(), "removed and back again: {returned:?}");
        let torn: Vec<_> = addresses.iter().filter(|address| !is_whole(address)).collect();
        assert!(torn.is_empty(), "{torn:?}");

        assert_eq!(home.count(HALF_CHANGED), 0);
        let ann = root.get("/api/v3/users/2").json();
        let username = ann["username"].as_str().expect("a name");
        assert_eq!(ann["email"], format!("{username}@example.org"));
        let number = username.strip_prefix("ann-").and_then(|number| number.parse().ok());
        // The last rename may have happened without a chance to be acknowledged.
        assert!(number == Some(self.renamed) || number == Some(self.renamed + 1), "{number:?}, not {}", self.renamed);
        self.renamed = number.unwrap_or_default();
    }
}

/// Whether an address is one that was sent, to its last letter.
fn is_whole(address: &str) -> bool {
    let numbers = address.strip_prefix("storm-").or_else(|| address.strip_prefix("removed-"));
    let numbers = numbers.and_then(|rest| rest.strip_suffix("@example.org"));
    numbers.is_some_and(|text| text.split('-').all(|number| number.parse::<u64>().is_ok()))
}

/// Adds addresses and removes them again until the server dies; answers those that were acknowledged as removed.
fn keep_removing(server: &Server, kill: usize, heard: Heard) -> JoinHandle<Vec<String>> {
    let root = server.root();
    thread::spawn(move || {
        let mut removed = Vec::new();
        for number in 0.. {
            let address = format!("removed-{kill}-{number}@example.org");
            let Ok(added) = root.try_post("/api/v3/user/emails", &json!({ "email": address })) else { break };
            // The server may die while it says which number the address got.
            let Some(id) = added.try_json().map(|email| email["id"].to_string()) else { break };
            let Ok(gone) = root.try_delete(&format!("/api/v3/user/emails/{id}")) else { break };
            assert_eq!((added.status, gone.status), (201, 200), "{added}, {gone}");
            removed.push(address);
            heard.note();
        }
        removed
    })
}

/// Renames Ann until the server dies; a rename changes three tables. Answers the last number that was acknowledged.
fn keep_renaming(server: &Server, since: u64, heard: Heard) -> JoinHandle<u64> {
    let root = server.root();
    thread::spawn(move || {
        let mut renamed = since;
        loop {
            let name = format!("ann-{}", renamed + 1);
            let change = json!({ "username": name, "email": format!("{name}@example.org") });
            let Ok(reply) = root.try_put("/api/v3/users/2", &change) else { return renamed };
            assert_eq!(reply.status, 200, "{reply}");
            renamed += 1;
            heard.note();
        }
    })
}

/// The further addresses of the caller.
fn addresses_of(root: &Client) -> BTreeSet<String> {
    let start = Instant::now();
    loop {
        let (mut held, mut totals) = (BTreeSet::new(), BTreeSet::new());
        for page in 1.. {
            let reply = root.get(&format!("/api/v3/user/emails?per_page=100&page={page}"));
            assert_eq!(reply.status, 200, "{reply}");
            totals.insert(reply.header("x-total").map(str::to_owned));
            let emails = reply.json();
            let emails = emails.as_array().expect("a list");
            held.extend(emails.iter().map(|email| email["email"].as_str().expect("an address").to_owned()));
            if emails.len() < 100 {
                break;
            }
        }
        // On PostgreSQL a commit of the killed server may still come in between two pages.
        if totals == [Some(held.len().to_string())].into() {
            return held;
        }
        assert!(start.elapsed() < PATIENCE, "{} listed, but the total is {totals:?}", held.len());
    }
}

#[test]
fn a_full_disk_fails_writes_and_loses_nothing() {
    /// How large a file may grow, in blocks of 512 bytes: enough to start, too little to write for long.
    const LARGEST_FILE: &str = "1024";
    let home = Home::embedded();
    home.start().stop();
    // A limit on the size of files stands in for the end of a disk; the signal that comes with it is switched off.
    let server = Gable::new("sh")
        .args(&["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", LARGEST_FILE])
        .args(&[env!("CARGO_BIN_EXE_gable"), "serve", "--listen", "127.0.0.1:0"])
        .in_place(&home)
        .start();
    let root = server.root();
    let add = |address: &str| root.post("/api/v3/user/emails", &json!({ "email": address }));
    let mut acknowledged = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for number in 0..1_000 {
        let address = format!("full-{number}@example.org");
        let reply = add(&address);
        if reply.status == 201 {
            acknowledged.insert(address);
            continue;
        }
        assert_eq!(reply.to_string(), r#"500 {"message":"500 Internal Server Error"}"#);
        refused.insert(address);
        if refused.len() == 10 {
            break;
        }
    }
    assert!(!acknowledged.is_empty() && refused.len() == 10, "{} and {}", acknowledged.len(), refused.len());
    assert_eq!(root.get("/-/ready").status, 200);
    assert_eq!(addresses_of(&root), acknowledged);
    assert_eq!(server.stop().status, Some(0));
    // Once there is room again, everything goes on.
    let server = home.start();
    let root = server.root();
    assert_eq!(addresses_of(&root), acknowledged);
    for address in refused {
        assert_eq!(root.post("/api/v3/user/emails", &json!({ "email": address })).status, 201);
    }
}

#[test]
fn a_server_outlives_an_outage_of_postgresql() {
    if postgres_server().is_none() {
        // The embedded database has no server that could fail.
        return;
    }
    let home = Home::new();
    let server = home.start();
    let root = server.root();
    let add = |address: &str| root.post("/api/v3/user/emails", &json!({ "email": address })).status;
    // Often enough that all connections are in use, and each loses its own.
    for number in 0..20 {
        assert_eq!(add(&format!("before-{number}@example.org")), 201);
        assert_eq!(root.get("/api/v3/user").status, 200);
    }
    home.begin_outage();
    assert_eq!(add("during@example.org"), 500);
    assert_eq!(root.get("/api/v3/user").status, 500);
    assert_eq!(root.get("/-/health").to_string(), "200 ok\n");
    assert_eq!(root.get("/-/ready").to_string(), "503 the database does not answer\n");
    home.end_outage();
    assert_eq!(root.get("/-/ready").status, 200);
    for number in 0..20 {
        assert_eq!(add(&format!("after-{number}@example.org")), 201);
        assert_eq!(root.get("/api/v3/user").status, 200);
    }
    assert_eq!(addresses_of(&root).len(), 40);
}
