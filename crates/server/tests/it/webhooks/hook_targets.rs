//! Where messages to hooks go, and where they never go: judged anew at each delivery, whatever was stored.

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

use forge::deliveries::{Address, Letter};
use model::{
    EventKind,
    hooks::{Answer, Attempt, Outcome},
    tokens::Secret,
};
use testkit::receiver::{Receiver, Reply};
use webhooks::client::{Client, Limits, Lookup};

const CLOSED: &str = "the URL leads to an address that this server does not talk to";

/// An address that belongs to everybody in a range that was given to nobody: it is only judged, never talked to.
const OUTSIDE: &str = "3000::1";

/// How URLs name this machine and its neighbours.
const OWN: &[&str] = &[
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

/// How URLs name what is nobody's, or holds the secrets of a cloud: closed even where the own network is open.
const NEVER: &[&str] = &[
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

fn address(url: &str, may_be_local: bool) -> Address {
    Address { url: Secret::new(url.into()), token: None, verify: true, may_be_local }
}

fn letter() -> Letter {
    Letter { delivery: 1, uuid: "one-and-only".into(), occasion: EventKind::Push, depth: 0, body: "{}".into() }
}

fn looking(lookup: impl Fn(String) -> Vec<IpAddr> + Send + Sync + 'static) -> Client {
    let lookup: Lookup = Arc::new(move |name| Box::pin(ready(Ok(lookup(name)))));
    Client::setup().lookup(lookup).build().expect("a client")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn answer(attempt: Attempt) -> Answer {
    match attempt.outcome {
        Outcome::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn refused() -> Outcome {
    Outcome::Refused(CLOSED.into())
}

#[tokio::test]
async fn lesson_10_nothing_is_sent_to_this_machine_or_its_neighbours() {
    let receiver = Receiver::start_everywhere().await;
    let client = Client::new().expect("a client");
    for host in OWN.iter().chain(NEVER) {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{}/hook", receiver.port());
            let attempt = client.send(&address(&url, false), &letter()).await;
            assert_eq!((attempt.outcome, attempt.url), (refused(), url.clone()), "{url}");
            let unverified = Address { verify: false, ..address(&url, false) };
            assert_eq!(client.send(&unverified, &letter()).await.outcome, refused(), "{url}");
        }
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn lesson_10_some_addresses_are_closed_even_where_the_own_network_is_open() {
    let receiver = Receiver::start_everywhere().await;
    let client = Client::new().expect("a client");
    for host in NEVER {
        let url = receiver.url_with(host, "/latest/meta-data");
        assert_eq!(client.send(&address(&url, true), &letter()).await.outcome, refused(), "{url}");
    }
    assert_eq!(receiver.connections(), 0);
    for (count, host) in ["127.0.0.1", "2130706433", "localhost"].iter().enumerate() {
        let url = receiver.url_with(host, "/hook");
        assert_eq!(answer(client.send(&address(&url, true), &letter()).await).status, 200, "{url}");
        assert_eq!(receiver.so_far().len(), count + 1, "{url}");
    }
}

#[tokio::test]
async fn lesson_10_a_name_that_leads_inside_is_refused() {
    let receiver = Receiver::start_everywhere().await;
    let client = Client::new().expect("a client");
    // The names that this machine has for itself.
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    for line in hosts.lines() {
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let Some(Ok(found)) = words.next().map(str::parse::<IpAddr>) else { continue };
        for name in words.filter(|_| found.is_loopback()) {
            let url = receiver.url_with(name, "/hook");
            assert_eq!(client.send(&address(&url, false), &letter()).await.outcome, refused(), "{url}");
        }
    }
    // All that must not stand in a URL must not be found behind a name, either.
    let literal = |host: &&str| host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    for (may_be_local, hosts) in [(false, OWN), (false, NEVER), (true, NEVER)] {
        for found in hosts.iter().filter_map(literal) {
            let client = looking(move |_| vec![found]);
            let url = receiver.url_with("innocent.example", "/hook");
            let outcome = client.send(&address(&url, may_be_local), &letter()).await.outcome;
            assert_eq!(outcome, refused(), "{found}");
        }
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn lesson_10_one_address_inside_among_others_is_enough_to_refuse_a_name() {
    let receiver = Receiver::start_everywhere().await;
    for inside in ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"] {
        for found in [[ip(OUTSIDE), ip(inside)], [ip(inside), ip(OUTSIDE)]] {
            let client = looking(move |_| found.to_vec());
            let url = receiver.url_with("both.example", "/hook");
            assert_eq!(client.send(&address(&url, false), &letter()).await.outcome, refused(), "{found:?}");
        }
    }
    let client = looking(|_| vec![ip("127.0.0.1"), ip("169.254.169.254")]);
    let url = receiver.url_with("both.example", "/hook");
    assert_eq!(client.send(&address(&url, true), &letter()).await.outcome, refused());
    assert_eq!(receiver.connections(), 0);
}

/// Whoever owns a name may answer each question differently. There is one question for each connection, and its answer is
/// both judged and used. (That one which leads outside first is treated alike is told where nothing has to be connected,
/// beside the code.)
#[tokio::test]
async fn lesson_10_a_name_is_looked_up_once_so_that_it_cannot_change_in_between() {
    let receiver = Receiver::start_everywhere().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let client = {
        let asked = Arc::clone(&asked);
        looking(move |name| {
            assert_eq!(name, "rebinding.example");
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => vec![ip("127.0.0.1")],
                _ => vec![ip("169.254.169.254"), ip("127.0.0.1")],
            }
        })
    };
    receiver.answers(Reply::ok().header("Connection", "close"));
    let url = receiver.url_with("rebinding.example", "/hook");
    assert_eq!(answer(client.send(&address(&url, true), &letter()).await).status, 200);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "what was judged is what is used");
    assert_eq!(client.send(&address(&url, true), &letter()).await.outcome, refused());
    assert_eq!(asked.load(Ordering::SeqCst), 2, "each connection is judged anew");
    assert_eq!((receiver.so_far().len(), receiver.connections()), (1, 1));
}

#[tokio::test]
async fn lesson_10_nobody_is_followed_elsewhere() {
    let (receiver, inside) = (Receiver::start().await, Receiver::start_everywhere().await);
    let client = Client::new().expect("a client");
    for status in [301, 302, 303, 307, 308] {
        receiver.answers(Reply::redirect(status, &inside.url()));
        let answer = answer(client.send(&address(&receiver.url(), true), &letter()).await);
        assert_eq!(answer.status, status);
        assert!(answer.headers.contains(&format!("location: {}", inside.url())), "{}", answer.headers);
    }
    assert_eq!((receiver.so_far().len(), inside.connections()), (5, 0));
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_left() {
    let receiver = Receiver::start().await;
    let pause = Duration::from_millis(5);
    let client = Client::setup().limits(Limits { answer: Duration::from_millis(300), ..Limits::default() }).build();
    let client = client.expect("a client");
    let check = async |reply: Reply, why: &str| {
        let told = format!("{reply:?}").chars().take(200).collect::<String>();
        receiver.answers(reply);
        let outcome = client.send(&address(&receiver.url(), true), &letter()).await.outcome;
        assert_eq!(outcome, Outcome::Unreachable(why.into()), "{told}");
    };
    check(Reply::hang(), "no answer within 300 milliseconds").await;
    check(Reply::drip_headers(pause), "no answer within 300 milliseconds").await;
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_in_words() {
    let receiver = Receiver::start().await;
    let client = Client::new().expect("a client");
    let check = async |reply: Reply, why: &str| {
        let told = format!("{reply:?}").chars().take(200).collect::<String>();
        receiver.answers(reply);
        let outcome = client.send(&address(&receiver.url(), true), &letter()).await.outcome;
        assert_eq!(outcome, Outcome::Unreachable(why.into()), "{told}");
    };
    check(Reply::close(), "the connection was closed before there was an answer").await;
    check(Reply::raw("HTTP/1.1 200 OK\r\nX-Cut: of"), "the connection was closed before there was an answer").await;
    check(
        Reply::raw("HTTP/1.1 100 Continue\r\n\r\n".repeat(3)),
        "the connection was closed before there was an answer",
    )
    .await;
    check(Reply::raw("SSH-2.0-OpenSSH_9.9\r\n"), "the answer is not HTTP").await;
    check(Reply::raw(vec![0xff; 4096]), "the answer is not HTTP").await;
    check(Reply::raw("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), "the answer is not HTTP").await;
    check(Reply::ok().header("X-Long", &"x".repeat(1 << 20)), "the headers of the answer are too long").await;
    let many = (0..40_000).fold(Reply::ok(), |reply, number| reply.header(&format!("X-{number}"), "a header of many"));
    check(many, "the headers of the answer are too long").await;
    let gone = receiver.url();
    drop(receiver);
    // The port is free once the receiver has noticed.
    let refused = async {
        loop {
            let outcome = client.send(&address(&gone, true), &letter()).await.outcome;
            if outcome == Outcome::Unreachable("the connection was refused".into()) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("nobody listens there any more");
}

/// Once the status is known it decides; a body is an addition that nobody waits for too long.
#[tokio::test]
async fn a_body_without_an_end_does_not_change_what_the_status_says() {
    let receiver = Receiver::start().await;
    let client = Client::new().expect("a client");
    let hasty = Client::setup().limits(Limits { answer: Duration::from_secs(3), ..Limits::default() }).build();
    let hasty = hasty.expect("a client");
    let send = async |client: &Client, reply: Reply| {
        receiver.answers(reply);
        answer(client.send(&address(&receiver.url(), true), &letter()).await)
    };
    let endless = send(&client, Reply::endless_body()).await;
    assert_eq!((endless.status, endless.body), (200, ".".repeat(64 << 10)));
    let gigabytes = send(&client, Reply::endless_body().with_status(500).header("Content-Length", "5000000000")).await;
    assert_eq!((gigabytes.status, gigabytes.body.len()), (500, 64 << 10));
    let dripping = send(&hasty, Reply::drip_body(Duration::from_millis(10))).await;
    assert_eq!(dripping.status, 200);
    assert!(dripping.body.starts_with('.') && dripping.body.len() < 64 << 10, "{}", dripping.body);
    let cut = send(&client, Reply::raw("HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\nhalf")).await;
    assert_eq!((cut.status, cut.body.as_str()), (202, "half"));
    // What is not read to its end is not used again.
    let connections: HashSet<usize> = receiver.so_far().iter().map(|received| received.connection).collect();
    assert_eq!(connections.len(), 4);
}
