//! What the client says, and what it understands. Where it does not go is a story of its own, told in `hook_targets`.

use std::{collections::HashSet, future::ready, net::IpAddr};

use forge::deliveries::{Address, Letter};
use model::{EventKind, hooks::Answer, tokens::Secret};
use testkit::receiver::{Certificate, Received, Receiver, Reply};
use tokio::io::AsyncWriteExt as _;

use super::*;

fn address(url: &str) -> Address {
    Address { url: Secret::new(url.into()), token: None, verify: true, may_be_local: true }
}

fn with_token(url: &str, token: &str) -> Address {
    Address { token: Some(Secret::new(token.into())), ..address(url) }
}

fn letter() -> Letter {
    Letter {
        delivery: 1,
        uuid: "one-and-only".into(),
        occasion: EventKind::TagPush,
        depth: 1,
        body: r#"{"said":"grüß"}"#.into(),
    }
}

fn client() -> Client {
    Client::new().expect("a client")
}

fn answer(attempt: Attempt) -> Answer {
    match attempt.outcome {
        Outcome::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn names(received: &Received) -> Vec<&str> {
    received.headers.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn a_receiver_is_told_what_when_and_by_whom() {
    let receiver = Receiver::start().await;
    receiver.answers(Reply::status(201).header("X-Said", "thanks").body("Well received."));
    let url = receiver.url_with("127.0.0.1", "/a/hook?b=c%20d&e#f");
    let attempt = client().send(&with_token(&url, "open sesame"), &letter()).await;
    assert_eq!(attempt.url, url);
    assert!(attempt.duration > 0);
    let expected = Answer {
        status: 201,
        headers: "x-said: thanks\ncontent-length: 14".into(),
        body: "Well received.".into(),
        retry_after: None,
    };
    assert_eq!(answer(attempt), expected);
    let told = &receiver.received(1).await[0];
    assert_eq!((told.method.as_str(), told.target.as_str()), ("POST", "/a/hook?b=c%20d&e"));
    assert_eq!(told.body, letter().body.as_bytes());
    assert_eq!(told.header("Host"), Some(format!("127.0.0.1:{}", receiver.port()).as_str()));
    assert_eq!(told.header("Content-Type"), Some("application/json"));
    assert_eq!(told.header("X-Gitlab-Event"), Some("Tag Push Hook"));
    assert_eq!(told.header("X-Gitlab-Token"), Some("open sesame"));
    assert_eq!(told.header("X-Gitlab-Event-UUID"), Some("one-and-only"));
    assert_eq!(told.header("Idempotency-Key"), Some("one-and-only"));
    assert_eq!(told.header("User-Agent"), Some(concat!("Gable/", env!("CARGO_PKG_VERSION"))));
    // Made with `printf '%s' '{"said":"grüß"}' | openssl dgst -sha256 -hmac 'open sesame'`.
    let signature = "sha256=a9cf2bb8d9efa13886f5391371a7041140feaac3a23dc9674279130d0a1b7951";
    assert_eq!(told.header("X-Hub-Signature-256"), Some(signature));
    // Some receivers do not know that case is of no matter.
    assert!(names(told).contains(&"X-Gitlab-Event") && names(told).contains(&"X-Hub-Signature-256"));
}

#[tokio::test]
async fn without_a_token_nothing_is_said_about_one() {
    let receiver = Receiver::start().await;
    for address in [address(&receiver.url()), with_token(&receiver.url(), ""), with_token(&receiver.url(), " ")] {
        assert_eq!(answer(client().send(&address, &letter()).await).status, 200);
    }
    for told in receiver.received(3).await {
        let expected = [
            "Content-Type",
            "User-Agent",
            "X-Gitlab-Event",
            "X-Gitlab-Event-Uuid",
            "Idempotency-Key",
            "Host",
            "X-Gable-Hook-Depth",
        ];
        let mut found = names(&told);
        found.retain(|name| *name != "Content-Length");
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn a_token_is_sent_as_it_is_or_not_at_all() {
    let receiver = Receiver::start().await;
    for bad in ["a\nX-Evil: 1", "a\r\n\r\nGET / HTTP/1.1", "a\0b", "a\u{7f}"] {
        let attempt = client().send(&with_token(&receiver.url(), bad), &letter()).await;
        let why = "the token holds characters that cannot be sent; give the hook another one";
        assert_eq!(attempt.outcome, Outcome::Refused(why.into()), "{bad:?}");
    }
    assert_eq!(receiver.connections(), 0);
    client().send(&with_token(&receiver.url(), "schlüssel"), &letter()).await;
    assert_eq!(receiver.received(1).await[0].header("X-Gitlab-Token"), Some("schlüssel"));
}

#[tokio::test]
async fn lesson_24_credentials_go_into_a_header_and_nowhere_else() {
    let receiver = Receiver::start().await;
    let url = receiver.url_with("us%40er:p%3Aw%20rd@127.0.0.1", "/hook?a=b");
    let attempt = client().send(&address(&url), &letter()).await;
    assert_eq!(attempt.url, receiver.url_with("*****:*****@127.0.0.1", "/hook?a=b"));
    let user_only = client().send(&address(&receiver.url_with("user@127.0.0.1", "/hook")), &letter()).await;
    assert_eq!(user_only.url, receiver.url_with("*****:*****@127.0.0.1", "/hook"));
    let told = receiver.received(2).await;
    // `us@er:p:w rd` and `user:`.
    assert_eq!(told[0].header("Authorization"), Some("Basic dXNAZXI6cDp3IHJk"));
    assert_eq!(told[1].header("Authorization"), Some("Basic dXNlcjo="));
    assert_eq!(told[0].target, "/hook?a=b");
    assert_eq!(told[0].header("Host"), Some(format!("127.0.0.1:{}", receiver.port()).as_str()));
}

#[tokio::test]
async fn lesson_24_secrets_in_an_answer_are_not_kept() {
    let receiver = Receiver::start().await;
    receiver.answers_by(|received| {
        let said = format!("{:?}", received.headers);
        Reply::status(401)
            .header("Set-Cookie", "session=secret")
            .header("WWW-Authenticate", "Basic realm=secret")
            .header("X-Echo", received.header("X-Gitlab-Token").unwrap_or_default())
            .body(said)
    });
    let url = receiver.url_with("user:password@127.0.0.1", "/hook");
    let answer = answer(client().send(&with_token(&url, "open sesame"), &letter()).await);
    let head = "set-cookie: *****\nwww-authenticate: *****\nx-echo: *****\ncontent-length: ";
    assert!(answer.headers.starts_with(head), "{}", answer.headers);
    for secret in ["open sesame", "password", "dXNlcjpwYXNzd29yZA=="] {
        assert!(!answer.body.contains(secret), "{}", answer.body);
    }
    assert!(answer.body.contains(r#"("X-Gitlab-Token", "*****")"#), "{}", answer.body);
}

#[tokio::test]
async fn a_body_is_kept_as_text_up_to_a_length() {
    let receiver = Receiver::start().await;
    receiver.answers_first([
        Reply::status(500).body(*b"a\0b\xffc"),
        Reply::ok().body("ä".repeat(40 << 10)),
        Reply::ok().body(vec![0xff; 64 << 10]),
        Reply::status(204),
    ]);
    let client = client();
    let send = async || answer(client.send(&address(&receiver.url()), &letter()).await);
    assert_eq!(send().await.body, "ab\u{fffd}c");
    let answer = send().await;
    assert_eq!((answer.status, answer.body.len()), (200, 64 << 10));
    assert!(answer.body.chars().all(|c| c == 'ä'));
    assert!(send().await.body.len() <= 64 << 10);
    assert_eq!(send().await.body, "");
}

#[tokio::test]
async fn a_pause_that_a_receiver_wants_is_heard() {
    let receiver = Receiver::start().await;
    let clock = Arc::new(testkit::TestClock::default());
    let client = Client::setup().clock(Arc::clone(&clock) as _).build().expect("a client");
    receiver.answers_first([
        Reply::status(429).header("Retry-After", "90"),
        Reply::status(503).header("Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT"),
        Reply::status(503).header("Retry-After", "whenever"),
    ]);
    for (status, pause) in [(429, Some(90)), (503, Some(60)), (503, None), (200, None)] {
        let attempt = client.send(&address(&receiver.url()), &letter()).await;
        assert_eq!(attempt.at, clock.now());
        let answer = answer(attempt);
        assert_eq!((answer.status, answer.retry_after), (status, pause));
    }
}

#[tokio::test]
async fn a_connection_is_used_again_by_those_who_may_do_the_same() {
    let receiver = Receiver::start().await;
    let client = client();
    // A connection may still be on its way back when the next message goes out; not every time, though.
    for _ in 0..20 {
        client.send(&address(&receiver.url()), &letter()).await;
    }
    client.send(&Address { verify: false, ..address(&receiver.url()) }, &letter()).await;
    let connections: Vec<usize> = receiver.received(21).await.iter().map(|received| received.connection).collect();
    let (lenient, strict) = connections.split_last().expect("21 of them");
    assert!(strict.iter().collect::<HashSet<_>>().len() < 20, "{connections:?}");
    assert!(!strict.contains(lenient), "{connections:?}");
}

#[tokio::test]
async fn lesson_10_a_connection_that_is_open_serves_nobody_who_may_not_go_there() {
    let receiver = Receiver::start().await;
    // The name leads to the receiver whoever asks.
    let lookup: Lookup = Arc::new(|_| Box::pin(ready(Ok(vec![IpAddr::from([127, 0, 0, 1])]))));
    let client = Client::setup().lookup(lookup).build().expect("a client");
    let allowed = address(&receiver.url_with("receiver.test", "/hook"));
    assert_eq!(answer(client.send(&allowed, &letter()).await).status, 200);
    let attempt = client.send(&Address { may_be_local: false, ..allowed }, &letter()).await;
    let why = "the URL leads to an address that this server does not talk to";
    assert_eq!(attempt.outcome, Outcome::Refused(why.into()));
    assert_eq!((receiver.so_far().len(), receiver.connections()), (1, 1));
}

#[tokio::test]
async fn a_receiver_proves_who_it_is_unless_nobody_wants_to_know() {
    let certificate = Certificate::of(&["receiver.test", "127.0.0.1"]);
    let receiver = Receiver::start_with(&certificate).await;
    let lookup: Lookup = Arc::new(|_| Box::pin(ready(Ok(vec![IpAddr::from([127, 0, 0, 1])]))));
    let sceptic = Client::setup().lookup(Arc::clone(&lookup)).build().expect("a client");
    let friend = Client::setup().lookup(lookup).trust(certificate.der().to_vec()).and_then(Setup::build);
    let friend = friend.expect("a client");
    let known = address(&receiver.url_with("receiver.test", "/hook"));
    let elsewhere = address(&receiver.url_with("elsewhere.test", "/hook"));
    let whoever = Address { verify: false, ..elsewhere.clone() };

    let stranger = "the certificate is signed by nobody whom this server trusts";
    assert_eq!(sceptic.send(&known, &letter()).await.outcome, Outcome::Unreachable(stranger.into()));
    match friend.send(&elsewhere, &letter()).await.outcome {
        Outcome::Unreachable(why) => {
            assert!(why.starts_with("the certificate is not valid for this host: "), "{why}");
            assert!(why.contains("receiver.test"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(receiver.so_far().is_empty());
    assert_eq!(answer(friend.send(&known, &letter()).await).status, 200);
    assert_eq!(answer(friend.send(&address(&receiver.url()), &letter()).await).status, 200);
    assert_eq!(answer(sceptic.send(&whoever, &letter()).await).status, 200);
    // That somebody else did not want to know does not make it known.
    assert_eq!(sceptic.send(&elsewhere, &letter()).await.outcome, Outcome::Unreachable(stranger.into()));
    assert_eq!(receiver.so_far().len(), 3);
}

#[tokio::test]
async fn what_is_wrong_with_tls_is_told_in_words() {
    let certificate = Certificate::expired(&["127.0.0.1"]);
    let receiver = Receiver::start_with(&certificate).await;
    let client = Client::setup().trust(certificate.der().to_vec()).and_then(Setup::build).expect("a client");
    let outcome = client.send(&address(&receiver.url()), &letter()).await.outcome;
    assert_eq!(outcome, Outcome::Unreachable("the certificate has expired".into()));
    // A receiver that waits for the end of a line hears one in the greeting of TLS sooner or later, or never; this one
    // does not listen.
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("https://{}/hook", plain.local_addr().expect("it is bound"));
    let answering = tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("it is open");
        stream
    });
    let outcome = client.send(&address(&url), &letter()).await.outcome;
    assert_eq!(outcome, Outcome::Unreachable("the receiver does not speak TLS".into()));
    drop(answering.await);
}

#[tokio::test]
async fn what_is_wrong_with_a_url_is_told_in_words() {
    let check = async |url: &str, outcome: Outcome| {
        let lookup: Lookup = Arc::new(|_| Box::pin(ready(Err(std::io::Error::other("no such host")))));
        let client = Client::setup().lookup(lookup).build().expect("a client");
        assert_eq!(client.send(&address(url), &letter()).await.outcome, outcome, "{url}");
    };
    check(
        "ftp://user:pw@host/",
        Outcome::Refused("the URL must be a valid URL that begins with http:// or https://".into()),
    )
    .await;
    check("http://", Outcome::Refused("the URL must be a valid URL".into())).await;
    check("http://nowhere.test/", Outcome::Unreachable("the URL names a host that cannot be found".into())).await;
}
