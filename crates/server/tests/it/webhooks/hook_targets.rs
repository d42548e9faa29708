//! Destinations that the client refuses, checked at each delivery.

use std::{
    collections::HashSet,
    future::ready,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use forge::deliveries::{HookTarget, OutgoingDelivery};
use model::{
    DeliveryId, EventKind,
    hooks::{AttemptOutcome, DeliveryAttempt, HookResponse},
    tokens::Secret,
};
use testkit::receiver::{MockResponse, Receiver};
use webhooks::client::{Client, ClientLimits, LookupFn};

const FORBIDDEN: &str = "the URL leads to an address that this server does not connect to";

/// A public address in an unassigned range: it passes the check but is never connected to.
const PUBLIC_ADDRESS: &str = "3000::1";

/// Spellings of this machine and of private networks.
const LOCAL_HOSTS: &[&str] = &[
    "127.0.0.1",
    "127.0.0.2",
    "127.255.255.254",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "%31%32%37.0.0.1",
    "１２７.0.0.1",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b:1::1]",
    "[2002:7f00:1::]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "[fc00::1]",
    "[fd00::1]",
    "[fec0::1]",
    "[2001:db8::1]",
];

/// Spellings of addresses that are always forbidden, such as metadata services of clouds.
const FORBIDDEN_HOSTS: &[&str] = &[
    "0",
    "0.0.0.0",
    "0x0",
    "00",
    "0.1.2.3",
    "[::]",
    "[::ffff:0.0.0.0]",
    "[64:ff9b::0.0.0.0]",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.0.1",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::169.254.169.254]",
    "[2002:a9fe:a9fe::]",
    "100.100.100.200",
    "[::ffff:100.100.100.200]",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fd00:c1::a9fe:a9fe]",
    "[fd20:ce::254]",
    "[fe80::1]",
    "[febf::1]",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "[ff02::1]",
];

fn target(url: &str, allow_local: bool) -> HookTarget {
    HookTarget { url: Secret::new(url.into()), token: None, verify_tls: true, allow_local }
}

fn delivery() -> OutgoingDelivery {
    OutgoingDelivery {
        id: DeliveryId::new(1),
        uuid: "one-and-only".into(),
        kind: EventKind::Push,
        depth: 0,
        body: "{}".into(),
    }
}

fn client_with_lookup(lookup: impl Fn(String) -> Vec<IpAddr> + Send + Sync + 'static) -> Client {
    let lookup: LookupFn = Arc::new(move |name| Box::pin(ready(Ok(lookup(name)))));
    Client::builder().lookup(lookup).build().expect("a client")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a valid address")
}

fn response(attempt: DeliveryAttempt) -> HookResponse {
    match attempt.outcome {
        AttemptOutcome::Responded(response) => response,
        other => panic!("{other:?}"),
    }
}

fn refused() -> AttemptOutcome {
    AttemptOutcome::Refused(FORBIDDEN.into())
}

#[tokio::test]
async fn nothing_is_sent_to_local_addresses() {
    let receiver = Receiver::start_everywhere().await;
    let client = Client::new().expect("a client");
    for host in LOCAL_HOSTS.iter().chain(FORBIDDEN_HOSTS) {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{}/hook", receiver.port());
            let attempt = client.send(&target(&url, false), &delivery()).await;
            assert_eq!((attempt.outcome, attempt.url), (refused(), url.clone()), "{url}");
            let unverified = HookTarget { verify_tls: false, ..target(&url, false) };
            assert_eq!(client.send(&unverified, &delivery()).await.outcome, refused(), "{url}");
        }
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn some_addresses_are_forbidden_even_if_local_ones_are_allowed() {
    let receiver = Receiver::start_everywhere().await;
    let client = Client::new().expect("a client");
    for host in FORBIDDEN_HOSTS {
        let url = receiver.url_with(host, "/latest/meta-data");
        assert_eq!(client.send(&target(&url, true), &delivery()).await.outcome, refused(), "{url}");
    }
    assert_eq!(receiver.connections(), 0);
    for (count, host) in ["127.0.0.1", "2130706433", "localhost"].iter().enumerate() {
        let url = receiver.url_with(host, "/hook");
        assert_eq!(response(client.send(&target(&url, true), &delivery()).await).status, 200, "{url}");
        assert_eq!(receiver.requests().len(), count + 1, "{url}");
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_a_local_address_is_refused() {
    let receiver = Receiver::start_everywhere().await;
    let client = Client::new().expect("a client");
    // Local names of this machine.
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    for line in hosts.lines() {
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
        for name in words.filter(|_| address.is_loopback()) {
            let url = receiver.url_with(name, "/hook");
            assert_eq!(client.send(&target(&url, false), &delivery()).await.outcome, refused(), "{url}");
        }
    }
    // Forbidden addresses are also refused behind names.
    let literal = |host: &&str| host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    for (allow_local, hosts) in [(false, LOCAL_HOSTS), (false, FORBIDDEN_HOSTS), (true, FORBIDDEN_HOSTS)] {
        for address in hosts.iter().filter_map(literal) {
            let client = client_with_lookup(move |_| vec![address]);
            let url = receiver.url_with("innocent.example", "/hook");
            let outcome = client.send(&target(&url, allow_local), &delivery()).await.outcome;
            assert_eq!(outcome, refused(), "{address}");
        }
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_single_local_address_among_others_is_enough_to_refuse_a_name() {
    let receiver = Receiver::start_everywhere().await;
    for local in ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"] {
        for addresses in [[ip(PUBLIC_ADDRESS), ip(local)], [ip(local), ip(PUBLIC_ADDRESS)]] {
            let client = client_with_lookup(move |_| addresses.to_vec());
            let url = receiver.url_with("both.example", "/hook");
            assert_eq!(client.send(&target(&url, false), &delivery()).await.outcome, refused(), "{addresses:?}");
        }
    }
    let client = client_with_lookup(|_| vec![ip("127.0.0.1"), ip("169.254.169.254")]);
    let url = receiver.url_with("both.example", "/hook");
    assert_eq!(client.send(&target(&url, true), &delivery()).await.outcome, refused());
    assert_eq!(receiver.connections(), 0);
}

/// Prevents DNS rebinding: each connection uses the addresses of the lookup that was checked. Public addresses are
/// tested in `webhooks/src/client/resolver.rs`, where nothing is connected to.
#[tokio::test]
async fn a_name_is_resolved_once_per_connection() {
    let receiver = Receiver::start_everywhere().await;
    let lookups = Arc::new(AtomicUsize::new(0));
    let client = {
        let lookups = Arc::clone(&lookups);
        client_with_lookup(move |name| {
            assert_eq!(name, "rebinding.example");
            match lookups.fetch_add(1, Ordering::SeqCst) {
                0 => vec![ip("127.0.0.1")],
                _ => vec![ip("169.254.169.254"), ip("127.0.0.1")],
            }
        })
    };
    receiver.respond_with(MockResponse::ok().header("Connection", "close"));
    let url = receiver.url_with("rebinding.example", "/hook");
    assert_eq!(response(client.send(&target(&url, true), &delivery()).await).status, 200);
    assert_eq!(lookups.load(Ordering::SeqCst), 1, "the checked lookup is used");
    assert_eq!(client.send(&target(&url, true), &delivery()).await.outcome, refused());
    assert_eq!(lookups.load(Ordering::SeqCst), 2, "each connection is checked");
    assert_eq!((receiver.requests().len(), receiver.connections()), (1, 1));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (receiver, local) = (Receiver::start().await, Receiver::start_everywhere().await);
    let client = Client::new().expect("a client");
    for status in [301, 302, 303, 307, 308] {
        receiver.respond_with(MockResponse::redirect(status, &local.url()));
        let response = response(client.send(&target(&receiver.url(), true), &delivery()).await);
        assert_eq!(response.status, status);
        assert!(response.headers.contains(&format!("location: {}", local.url())), "{}", response.headers);
    }
    assert_eq!((receiver.requests().len(), local.connections()), (5, 0));
}

#[tokio::test]
async fn a_receiver_that_does_not_respond_times_out() {
    let receiver = Receiver::start().await;
    let interval = Duration::from_millis(5);
    let client = Client::builder()
        .limits(ClientLimits { response_timeout: Duration::from_millis(300), ..ClientLimits::default() })
        .build();
    let client = client.expect("a client");
    let check = async |mock: MockResponse, error: &str| {
        let description = format!("{mock:?}").chars().take(200).collect::<String>();
        receiver.respond_with(mock);
        let outcome = client.send(&target(&receiver.url(), true), &delivery()).await.outcome;
        assert_eq!(outcome, AttemptOutcome::Unreachable(error.into()), "{description}");
    };
    check(MockResponse::hang(), "no response within 300 milliseconds").await;
    check(MockResponse::drip_headers(interval), "no response within 300 milliseconds").await;
}

#[tokio::test]
async fn invalid_responses_have_error_messages() {
    let receiver = Receiver::start().await;
    let client = Client::new().expect("a client");
    let check = async |mock: MockResponse, error: &str| {
        let description = format!("{mock:?}").chars().take(200).collect::<String>();
        receiver.respond_with(mock);
        let outcome = client.send(&target(&receiver.url(), true), &delivery()).await.outcome;
        assert_eq!(outcome, AttemptOutcome::Unreachable(error.into()), "{description}");
    };
    check(MockResponse::close(), "the connection was closed before a response was received").await;
    check(
        MockResponse::raw("HTTP/1.1 200 OK\r\nX-Cut: of"),
        "the connection was closed before a response was received",
    )
    .await;
    check(
        MockResponse::raw("HTTP/1.1 100 Continue\r\n\r\n".repeat(3)),
        "the connection was closed before a response was received",
    )
    .await;
    check(MockResponse::raw("SSH-2.0-OpenSSH_9.9\r\n"), "the response is not HTTP").await;
    check(MockResponse::raw(vec![0xff; 4096]), "the response is not HTTP").await;
    check(MockResponse::raw("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), "the response is not HTTP").await;
    check(MockResponse::ok().header("X-Long", &"x".repeat(1 << 20)), "the headers of the response are too long").await;
    let many =
        (0..40_000).fold(MockResponse::ok(), |mock, number| mock.header(&format!("X-{number}"), "a header of many"));
    check(many, "the headers of the response are too long").await;
    let closed_url = receiver.url();
    drop(receiver);
    // The port is closed asynchronously.
    let refused = async {
        loop {
            let outcome = client.send(&target(&closed_url, true), &delivery()).await.outcome;
            if outcome == AttemptOutcome::Unreachable("the connection was refused".into()) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the port is closed");
}

/// The status decides; the body is read only up to the limits.
#[tokio::test]
async fn an_endless_body_does_not_change_the_outcome() {
    let receiver = Receiver::start().await;
    let client = Client::new().expect("a client");
    let impatient_client = Client::builder()
        .limits(ClientLimits { response_timeout: Duration::from_secs(3), ..ClientLimits::default() })
        .build();
    let impatient_client = impatient_client.expect("a client");
    let send = async |client: &Client, mock: MockResponse| {
        receiver.respond_with(mock);
        response(client.send(&target(&receiver.url(), true), &delivery()).await)
    };
    let endless = send(&client, MockResponse::endless_body()).await;
    assert_eq!((endless.status, endless.body), (200, ".".repeat(64 << 10)));
    let gigabytes =
        send(&client, MockResponse::endless_body().with_status(500).header("Content-Length", "5000000000")).await;
    assert_eq!((gigabytes.status, gigabytes.body.len()), (500, 64 << 10));
    let dripping = send(&impatient_client, MockResponse::drip_body(Duration::from_millis(10))).await;
    assert_eq!(dripping.status, 200);
    assert!(dripping.body.starts_with('.') && dripping.body.len() < 64 << 10, "{}", dripping.body);
    let truncated = send(&client, MockResponse::raw("HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\nhalf")).await;
    assert_eq!((truncated.status, truncated.body.as_str()), (202, "half"));
    // Connections with unread bodies are not reused.
    let connections: HashSet<usize> = receiver.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections.len(), 4);
}
