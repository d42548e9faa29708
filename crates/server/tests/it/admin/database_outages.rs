//! What happens to requests while PostgreSQL cannot be reached, or connections to it are lost.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use diesel::{QueryResult, RunQueryDsl as _, dsl::sql, sql_types::BigInt};
use forge::{Caller, WriteTx, runners};
use serde_json::json;
use store::{Conn, Database, TransactionId, TransactionStatus};
use testkit::{
    TestClient, TestForge, TestResponse,
    nodes::TestNode,
    tcp_proxy::{Cut, TcpProxy},
};

use crate::support::postgres_server;

/// A node that reaches its database through a proxy, and one that reaches it directly.
struct Fixture {
    direct: TestClient,
    proxied: TestClient,
    proxy: TcpProxy,
    _node: TestNode,
    _forge: TestForge,
}

impl Fixture {
    /// Returns `None` if the tests run on SQLite.
    async fn start() -> Option<Self> {
        let server = server()?;
        let forge = TestForge::start().await;
        let direct = forge.user("ann").await;
        let proxy = TcpProxy::start(server);
        let node = forge.start_node_at(&proxy.url(&forge.postgres_url()?, server));
        let proxied = node.client(&direct);
        Some(Self { direct, proxied, proxy, _node: node, _forge: forge })
    }

    async fn add(&self, address: &str) -> TestResponse {
        self.proxied.post("/user/emails", json!({ "email": address })).await
    }

    /// Returns the addresses that the other node finds, in order.
    async fn addresses(&self) -> Vec<String> {
        let list = self.direct.get("/user/emails").await.json();
        let address = |one: &serde_json::Value| one["email"].as_str().expect("an address").to_owned();
        let mut addresses: Vec<String> = list.as_array().expect("a list").iter().map(address).collect();
        addresses.sort();
        addresses
    }
}

/// Returns the address of the PostgreSQL server of the tests.
fn server() -> Option<SocketAddr> {
    let url = postgres_server()?;
    let address = format!("{}:{}", url.host_str()?, url.port().unwrap_or(5432));
    Some(address.parse().expect("the test server is named by its address"))
}

fn assert_unavailable(response: &TestResponse) {
    assert_eq!((response.code(), response.header("retry-after")), (503, "5"), "{response}");
    assert_eq!(response.json(), json!({ "message": "503 Service Unavailable" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_commit_does_not_reach_the_database_runs_again() {
    let Some(fixture) = Fixture::start().await else { return };
    for number in 0..10 {
        fixture.proxy.cut_next_commit(Cut::BeforeCommit);
        let response = fixture.add(&format!("ann-{number}@example.org")).await;
        assert_eq!(response.code(), 201, "{response}");
    }
    assert_eq!(fixture.proxy.cuts(), 10);
    let expected: Vec<String> = (0..10).map(|number| format!("ann-{number}@example.org")).collect();
    assert_eq!(fixture.addresses().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_commit_is_not_answered_succeeds_once() {
    let Some(fixture) = Fixture::start().await else { return };
    for number in 0..10 {
        fixture.proxy.cut_next_commit(Cut::AfterCommit);
        let response = fixture.add(&format!("ann-{number}@example.org")).await;
        assert_eq!(response.code(), 201, "{response}");
    }
    assert_eq!(fixture.proxy.cuts(), 10);
    let expected: Vec<String> = (0..10).map(|number| format!("ann-{number}@example.org")).collect();
    assert_eq!(fixture.addresses().await, expected, "none was added twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_outcome_is_unknown_is_not_acknowledged() {
    let Some(fixture) = Fixture::start().await else { return };
    fixture.proxy.cut_next_commit(Cut::AfterCommitForLong);
    let start = Instant::now();
    assert_unavailable(&fixture.add("ann-1@example.org").await);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    fixture.proxy.end_outage();
    // The commit had succeeded, which the client finds when it tries again.
    assert_eq!(fixture.addresses().await, ["ann-1@example.org"]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let again = fixture.add("ann-1@example.org").await;
    assert_eq!(again.code(), 400, "{again}");
    assert_eq!(fixture.add("ann-2@example.org").await.code(), 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_refused_soon_while_the_database_is_gone_and_succeed_after_it_is_back() {
    let Some(fixture) = Fixture::start().await else { return };
    assert_eq!(fixture.add("before@example.org").await.code(), 201);
    assert_eq!(fixture.proxied.get("/user").await.code(), 200);
    for round in 0..2 {
        fixture.proxy.begin_outage();
        let start = Instant::now();
        for number in 0..20 {
            assert_unavailable(&fixture.proxied.get("/user").await);
            assert_unavailable(&fixture.proxied.get("/projects").await);
            assert_unavailable(&fixture.add(&format!("during-{number}@example.org")).await);
            let page = fixture.proxied.page("/explore").await;
            assert_eq!((page.code(), page.header("retry-after")), (503, "1"), "{page}");
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        fixture.proxy.end_outage();
        let start = Instant::now();
        while fixture.proxied.get("/user").await.code() != 200 {
            assert!(start.elapsed() < Duration::from_secs(10), "it does not recover");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(fixture.proxied.get("/projects").await.code(), 200);
        assert_eq!(fixture.add(&format!("after-{round}@example.org")).await.code(), 201);
    }
    let expected = ["after-0@example.org", "after-1@example.org", "before@example.org"];
    assert_eq!(fixture.addresses().await, expected, "what was refused was not stored");
}

/// A node that is cut off from the database in the middle of a transaction must not keep the others waiting for its locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_waits_for_long_is_ended_and_runs_again() {
    if server().is_none() {
        return;
    }
    let test = TestForge::start().await;
    let (runs, forge) = (Arc::new(AtomicU32::new(0)), test.forge.clone());
    let counted = Arc::clone(&runs);
    let reset = move |tx: &mut WriteTx<'_>| {
        let token = runners::reset_registration_token(tx)?;
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_secs(8));
        }
        Ok(token)
    };
    let waiting = tokio::spawn(async move { forge.write(Caller::system(), reset).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    // This one needs the same lock.
    let other = test.forge.write(Caller::system(), runners::reset_registration_token).await.expect("succeeds");
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the first one still waits");
    let last = waiting.await.expect("ended").expect("succeeds");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_ne!(last.reveal(), other.reveal());
    let current = test.forge.write(Caller::system(), runners::registration_token).await.expect("succeeds");
    assert_eq!(current.reveal(), last.reveal());
}

/// Otherwise its session would get the lock next, and keep it from the nodes that are not cut off.
#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_node_that_is_cut_off_stops_waiting_for_a_lock() {
    const VERSION: &str = "SELECT current_setting('server_version_num')::bigint";
    const LOCK: &str = "SELECT 1::bigint FROM pg_advisory_lock(1)";
    const WAITING: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
    let Some(server) = server() else { return };
    let forge = TestForge::start().await;
    // PostgreSQL 13 does not have `client_connection_check_interval`.
    if forge.with_connection(|db| number(db, VERSION).expect("read")) < 140_000 {
        return;
    }
    let proxy = TcpProxy::start(server);
    let url = proxy.url(&forge.postgres_url().expect("on PostgreSQL"), server);
    let cut_off = Database::postgres(&url).expect("a good URL");
    forge.with_connection(|holder| {
        number(holder, LOCK).expect("locked");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| number(&mut cut_off.connect_writer().expect("a connection"), LOCK));
            wait_for(holder, WAITING, 1);
            proxy.begin_outage();
            wait_for(holder, WAITING, 0);
            waiting.join().expect("returned").expect_err("cut off");
        });
    });
}

/// Runs a query for one number.
fn number(db: &mut Conn, query: &str) -> QueryResult<i64> {
    let query = sql::<BigInt>(query);
    match db {
        Conn::Sqlite(conn) => query.get_result(conn),
        Conn::Pg(conn) => query.get_result(conn),
    }
}

/// Waits until a query returns a number.
fn wait_for(db: &mut Conn, query: &str, expected: i64) {
    let start = Instant::now();
    while number(db, query).expect("read") != expected {
        assert!(start.elapsed() < Duration::from_secs(10), "{query}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_of_a_url_are_tried() {
    let Some(server) = server() else { return };
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (gone, proxy) = (TcpProxy::start(server), TcpProxy::start(server));
    gone.begin_outage();
    let url = forge.postgres_url().expect("PostgreSQL");
    let hosts = format!("127.0.0.1:1,{},{}", gone.address, proxy.address);
    let url = TcpProxy::url_with_hosts(&url, server, &hosts) + "&target_session_attrs=read-write";
    let node = forge.start_node_at(&url);
    let ann = node.client(&ann);
    assert_eq!(ann.post("/user/emails", json!({ "email": "one@example.org" })).await.code(), 201);
    // The other server becomes the primary.
    proxy.begin_outage();
    gone.end_outage();
    let start = Instant::now();
    while ann.post("/user/emails", json!({ "email": "two@example.org" })).await.code() != 201 {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_of_a_transaction_is_found_by_its_id() {
    if server().is_none() {
        return;
    }
    let forge = TestForge::start().await;
    let status = |id: &TransactionId| forge.with_connection(|db| db.transaction_status(id).expect("asked"));
    forge.with_connection(|db| {
        let id = db.begin_tracked().expect("begun").expect("an id");
        assert_eq!(status(&id), TransactionStatus::InProgress);
        db.commit_tracked(&["a notification that's quoted".to_owned()]).expect("committed");
        assert_eq!(status(&id), TransactionStatus::Committed);
        let next = db.begin_tracked().expect("begun").expect("an id");
        assert_ne!(next, id);
        db.roll_back().expect("rolled back");
        assert_eq!(status(&next), TransactionStatus::Aborted);
        // The state of the server is the same on all connections.
        let state = db.server_state().expect("asked");
        assert!(state.is_some());
        assert_eq!(state, forge.with_connection(|db| db.server_state().expect("asked")));
    });
}
