//! Requests and responses of the client. Forbidden destinations are tested in
//! `server/tests/it/webhooks/hook_targets.rs`.

use std::{collections::HashSet, future::ready, net::IpAddr};

use forge::deliveries::{HookTarget, OutgoingDelivery};
use model::{DeliveryId, EventKind, hooks::HookResponse, tokens::Secret};
use testkit::receiver::{Certificate, MockResponse, ReceivedRequest, Receiver};
use tokio::io::AsyncWriteExt as _;

use super::*;

fn target(url: &str) -> HookTarget {
    HookTarget { url: Secret::new(url.into()), token: None, verify_tls: true, allow_local: true }
}

fn with_token(url: &str, token: &str) -> HookTarget {
    HookTarget { token: Some(Secret::new(token.into())), ..target(url) }
}

fn delivery() -> OutgoingDelivery {
    OutgoingDelivery {
        id: DeliveryId::new(1),
        uuid: "one-and-only".into(),
        kind: EventKind::TagPush,
        depth: 1,
        body: r#"{"said":"grüß"}"#.into(),
    }
}

fn client() -> Client {
    Client::new().expect("a client")
}

fn expect_response(attempt: DeliveryAttempt) -> HookResponse {
    match attempt.outcome {
        AttemptOutcome::Responded(response) => response,
        other => panic!("{other:?}"),
    }
}

fn header_names(request: &ReceivedRequest) -> Vec<&str> {
    request.headers.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn a_delivery_is_a_post_with_the_payload_and_identifying_headers() {
    let receiver = Receiver::start().await;
    receiver.respond_with(MockResponse::status(201).header("X-Said", "thanks").body("Well received."));
    let url = receiver.url_with("127.0.0.1", "/a/hook?b=c%20d&e#f");
    let attempt = client().send(&with_token(&url, "open sesame"), &delivery()).await;
    assert_eq!(attempt.url, url);
    assert!(attempt.duration > 0);
    let expected = HookResponse {
        status: 201,
        headers: "x-said: thanks\ncontent-length: 14".into(),
        body: "Well received.".into(),
        retry_after: None,
    };
    assert_eq!(expect_response(attempt), expected);
    let request = &receiver.wait_for_requests(1).await[0];
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/a/hook?b=c%20d&e"));
    assert_eq!(request.body, delivery().body.as_bytes());
    assert_eq!(request.header("Host"), Some(format!("127.0.0.1:{}", receiver.port()).as_str()));
    assert_eq!(request.header("Content-Type"), Some("application/json"));
    assert_eq!(request.header("X-Gitlab-Event"), Some("Tag Push Hook"));
    assert_eq!(request.header("X-Gitlab-Token"), Some("open sesame"));
    assert_eq!(request.header("X-Gitlab-Event-UUID"), Some("one-and-only"));
    assert_eq!(request.header("Idempotency-Key"), Some("one-and-only"));
    assert_eq!(request.header("User-Agent"), Some(concat!("Gable/", env!("CARGO_PKG_VERSION"))));
    // Made with `printf '%s' '{"said":"grüß"}' | openssl dgst -sha256 -hmac 'open sesame'`.
    let signature = "sha256=a9cf2bb8d9efa13886f5391371a7041140feaac3a23dc9674279130d0a1b7951";
    assert_eq!(request.header("X-Hub-Signature-256"), Some(signature));
    // Some receivers compare names of headers case-sensitively.
    assert!(
        header_names(request).contains(&"X-Gitlab-Event") && header_names(request).contains(&"X-Hub-Signature-256")
    );
}

#[tokio::test]
async fn without_a_token_there_are_no_token_headers() {
    let receiver = Receiver::start().await;
    for target in [target(&receiver.url()), with_token(&receiver.url(), ""), with_token(&receiver.url(), " ")] {
        assert_eq!(expect_response(client().send(&target, &delivery()).await).status, 200);
    }
    for request in receiver.wait_for_requests(3).await {
        let expected = [
            "Content-Type",
            "User-Agent",
            "X-Gitlab-Event",
            "X-Gitlab-Event-Uuid",
            "Idempotency-Key",
            "Host",
            "X-Gable-Hook-Depth",
        ];
        let mut found = header_names(&request);
        found.retain(|name| *name != "Content-Length");
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn a_token_that_fits_no_header_is_refused() {
    let receiver = Receiver::start().await;
    for bad in ["a\nX-Evil: 1", "a\r\n\r\nGET / HTTP/1.1", "a\0b", "a\u{7f}"] {
        let attempt = client().send(&with_token(&receiver.url(), bad), &delivery()).await;
        let error = "the token contains characters that a header cannot hold; set another token";
        assert_eq!(attempt.outcome, AttemptOutcome::Refused(error.into()), "{bad:?}");
    }
    assert_eq!(receiver.connections(), 0);
    client().send(&with_token(&receiver.url(), "schlüssel"), &delivery()).await;
    assert_eq!(receiver.wait_for_requests(1).await[0].header("X-Gitlab-Token"), Some("schlüssel"));
}

#[tokio::test]
async fn credentials_are_sent_only_in_the_authorization_header() {
    let receiver = Receiver::start().await;
    let url = receiver.url_with("us%40er:p%3Aw%20rd@127.0.0.1", "/hook?a=b");
    let attempt = client().send(&target(&url), &delivery()).await;
    assert_eq!(attempt.url, receiver.url_with("*****:*****@127.0.0.1", "/hook?a=b"));
    let user_only = client().send(&target(&receiver.url_with("user@127.0.0.1", "/hook")), &delivery()).await;
    assert_eq!(user_only.url, receiver.url_with("*****:*****@127.0.0.1", "/hook"));
    let requests = receiver.wait_for_requests(2).await;
    // `us@er:p:w rd` and `user:`.
    assert_eq!(requests[0].header("Authorization"), Some("Basic dXNAZXI6cDp3IHJk"));
    assert_eq!(requests[1].header("Authorization"), Some("Basic dXNlcjo="));
    assert_eq!(requests[0].target, "/hook?a=b");
    assert_eq!(requests[0].header("Host"), Some(format!("127.0.0.1:{}", receiver.port()).as_str()));
}

#[tokio::test]
async fn secrets_in_a_response_are_redacted() {
    let receiver = Receiver::start().await;
    receiver.respond_by(|request| {
        let echoed = format!("{:?}", request.headers);
        MockResponse::status(401)
            .header("Set-Cookie", "session=secret")
            .header("WWW-Authenticate", "Basic realm=secret")
            .header("X-Echo", request.header("X-Gitlab-Token").unwrap_or_default())
            .body(echoed)
    });
    let url = receiver.url_with("user:password@127.0.0.1", "/hook");
    let response = expect_response(client().send(&with_token(&url, "open sesame"), &delivery()).await);
    let head = "set-cookie: *****\nwww-authenticate: *****\nx-echo: *****\ncontent-length: ";
    assert!(response.headers.starts_with(head), "{}", response.headers);
    for secret in ["open sesame", "password", "dXNlcjpwYXNzd29yZA=="] {
        assert!(!response.body.contains(secret), "{}", response.body);
    }
    assert!(response.body.contains(r#"("X-Gitlab-Token", "*****")"#), "{}", response.body);
}

#[tokio::test]
async fn a_response_body_is_converted_to_text_and_truncated() {
    let receiver = Receiver::start().await;
    receiver.respond_first_with([
        MockResponse::status(500).body(*b"a\0b\xffc"),
        MockResponse::ok().body("ä".repeat(40 << 10)),
        MockResponse::ok().body(vec![0xff; 64 << 10]),
        MockResponse::status(204),
    ]);
    let client = client();
    let send = async || expect_response(client.send(&target(&receiver.url()), &delivery()).await);
    assert_eq!(send().await.body, "ab\u{fffd}c");
    let response = send().await;
    assert_eq!((response.status, response.body.len()), (200, 64 << 10));
    assert!(response.body.chars().all(|c| c == 'ä'));
    assert!(send().await.body.len() <= 64 << 10);
    assert_eq!(send().await.body, "");
}

#[tokio::test]
async fn retry_after_is_returned() {
    let receiver = Receiver::start().await;
    let clock = Arc::new(testkit::TestClock::default());
    let client = Client::builder().clock(Arc::clone(&clock) as _).build().expect("a client");
    receiver.respond_first_with([
        MockResponse::status(429).header("Retry-After", "90"),
        MockResponse::status(503).header("Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT"),
        MockResponse::status(503).header("Retry-After", "whenever"),
    ]);
    for (status, retry_after) in [(429, Some(90)), (503, Some(60)), (503, None), (200, None)] {
        let attempt = client.send(&target(&receiver.url()), &delivery()).await;
        assert_eq!(attempt.started_at, clock.now());
        let response = expect_response(attempt);
        assert_eq!((response.status, response.retry_after), (status, retry_after));
    }
}

#[tokio::test]
async fn connections_are_reused_only_with_the_same_verification() {
    let receiver = Receiver::start().await;
    let client = client();
    // A connection may not be back in the pool when the next delivery is sent, so some of them are new.
    for _ in 0..20 {
        client.send(&target(&receiver.url()), &delivery()).await;
    }
    client.send(&HookTarget { verify_tls: false, ..target(&receiver.url()) }, &delivery()).await;
    let connections: Vec<usize> =
        receiver.wait_for_requests(21).await.iter().map(|request| request.connection).collect();
    let (unverified, verified) = connections.split_last().expect("21 of them");
    assert!(verified.iter().collect::<HashSet<_>>().len() < 20, "{connections:?}");
    assert!(!verified.contains(unverified), "{connections:?}");
}

#[tokio::test]
async fn an_open_local_connection_is_not_reused_where_local_ones_are_forbidden() {
    let receiver = Receiver::start().await;
    let lookup: LookupFn = Arc::new(|_| Box::pin(ready(Ok(vec![IpAddr::from([127, 0, 0, 1])]))));
    let client = Client::builder().lookup(lookup).build().expect("a client");
    let allowed = target(&receiver.url_with("receiver.test", "/hook"));
    assert_eq!(expect_response(client.send(&allowed, &delivery()).await).status, 200);
    let attempt = client.send(&HookTarget { allow_local: false, ..allowed }, &delivery()).await;
    let error = "the URL leads to an address that this server does not connect to";
    assert_eq!(attempt.outcome, AttemptOutcome::Refused(error.into()));
    assert_eq!((receiver.requests().len(), receiver.connections()), (1, 1));
}

#[tokio::test]
async fn certificates_are_verified_unless_the_hook_disables_that() {
    let certificate = Certificate::for_hosts(&["receiver.test", "127.0.0.1"]);
    let receiver = Receiver::start_with(&certificate).await;
    let lookup: LookupFn = Arc::new(|_| Box::pin(ready(Ok(vec![IpAddr::from([127, 0, 0, 1])]))));
    let default_client = Client::builder().lookup(Arc::clone(&lookup)).build().expect("a client");
    let trusting_client =
        Client::builder().lookup(lookup).trust_certificate(certificate.der().to_vec()).and_then(ClientBuilder::build);
    let trusting_client = trusting_client.expect("a client");
    let right_name = target(&receiver.url_with("receiver.test", "/hook"));
    let wrong_name = target(&receiver.url_with("elsewhere.test", "/hook"));
    let unverified = HookTarget { verify_tls: false, ..wrong_name.clone() };

    let untrusted = "the certificate is not signed by a trusted authority";
    assert_eq!(
        default_client.send(&right_name, &delivery()).await.outcome,
        AttemptOutcome::Unreachable(untrusted.into())
    );
    match trusting_client.send(&wrong_name, &delivery()).await.outcome {
        AttemptOutcome::Unreachable(error) => {
            assert!(error.starts_with("the certificate is not valid for this host: "), "{error}");
            assert!(error.contains("receiver.test"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(receiver.requests().is_empty());
    assert_eq!(expect_response(trusting_client.send(&right_name, &delivery()).await).status, 200);
    assert_eq!(expect_response(trusting_client.send(&target(&receiver.url()), &delivery()).await).status, 200);
    assert_eq!(expect_response(default_client.send(&unverified, &delivery()).await).status, 200);
    // An earlier connection without verification is not reused.
    assert_eq!(
        default_client.send(&wrong_name, &delivery()).await.outcome,
        AttemptOutcome::Unreachable(untrusted.into())
    );
    assert_eq!(receiver.requests().len(), 3);
}

#[tokio::test]
async fn tls_errors_have_messages() {
    let certificate = Certificate::expired(&["127.0.0.1"]);
    let receiver = Receiver::start_with(&certificate).await;
    let client = Client::builder()
        .trust_certificate(certificate.der().to_vec())
        .and_then(ClientBuilder::build)
        .expect("a client");
    let outcome = client.send(&target(&receiver.url()), &delivery()).await.outcome;
    assert_eq!(outcome, AttemptOutcome::Unreachable("the certificate has expired".into()));
    // This server does not wait for a line end, which the TLS handshake may never contain.
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("https://{}/hook", plain.local_addr().expect("it is bound"));
    let plain_server = tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("it is open");
        stream
    });
    let outcome = client.send(&target(&url), &delivery()).await.outcome;
    assert_eq!(outcome, AttemptOutcome::Unreachable("the receiver does not speak TLS".into()));
    drop(plain_server.await);
}

#[tokio::test]
async fn url_errors_have_messages() {
    let check = async |url: &str, outcome: AttemptOutcome| {
        let lookup: LookupFn = Arc::new(|_| Box::pin(ready(Err(std::io::Error::other("no such host")))));
        let client = Client::builder().lookup(lookup).build().expect("a client");
        assert_eq!(client.send(&target(url), &delivery()).await.outcome, outcome, "{url}");
    };
    check(
        "ftp://user:pw@host/",
        AttemptOutcome::Refused("the URL must be a valid URL that begins with http:// or https://".into()),
    )
    .await;
    check("http://", AttemptOutcome::Refused("the URL must be a valid URL".into())).await;
    check("http://nowhere.test/", AttemptOutcome::Unreachable("the URL names a host that cannot be found".into()))
        .await;
}
