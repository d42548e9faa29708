//! Rate limits, concurrency limits and security headers.

use std::{net::SocketAddr, num::NonZeroU32, sync::mpsc, time::Duration};

use api::LimitOptions;
use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Method, header},
};
use forge::Caller;
use insta::assert_snapshot;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

use crate::{
    ci::runners::register_shared,
    support::{ROOT_TOKEN, TestInstance},
};

const CLIENT_A: &str = "192.0.2.1";
const CLIENT_B: &str = "198.51.100.1";

/// Returns rate limits per token and per address.
pub(crate) fn per_minute(token: u32, address: u32) -> LimitOptions {
    LimitOptions {
        requests_per_minute: NonZeroU32::new(token),
        anonymous_requests_per_minute: NonZeroU32::new(address),
        ..LimitOptions::default()
    }
}

/// Sends a request from an address.
pub(crate) async fn send_from(
    client: &TestClient,
    from: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> TestResponse {
    let peer = SocketAddr::new(from.parse().expect("an address"), 4321);
    let request = client.request(method, path).extension(ConnectInfo(peer));
    match body {
        None => client.send(request, Body::empty()).await,
        Some(body) => {
            client.send(request.header(header::CONTENT_TYPE, "application/json"), Body::from(body.to_string())).await
        }
    }
}

async fn get(client: &TestClient, from: &str, path: &str) -> TestResponse {
    send_from(client, from, Method::GET, path, None).await
}

#[tokio::test]
async fn anonymous_requests_are_counted_by_address() {
    let forge = TestForge::builder().limit_options(per_minute(100, 3)).start().await;
    let anonymous = forge.anonymous();
    for _ in 0..3 {
        assert_eq!(get(&anonymous, CLIENT_A, "/version").await.code(), 401);
    }
    let refused = get(&anonymous, CLIENT_A, "/version").await;
    assert_snapshot!(refused, @"
    429 Too Many Requests
    Retry later
    ");
    assert_eq!(refused.header("content-type"), "text/plain");
    let retry_after: u32 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=20).contains(&retry_after), "{retry_after}");
    assert_ne!(refused.header("x-request-id"), "");
    // Unknown paths count as well; other addresses are not affected.
    assert_eq!(get(&anonymous, CLIENT_A, "/-/nothing").await.code(), 429);
    assert_eq!(get(&anonymous, "::ffff:192.0.2.1", "/version").await.code(), 429);
    assert_eq!(get(&anonymous, CLIENT_B, "/version").await.code(), 401);
}

#[tokio::test]
async fn an_ipv6_network_counts_as_one_address() {
    let forge = TestForge::builder().limit_options(per_minute(100, 2)).start().await;
    let anonymous = forge.anonymous();
    assert_eq!(get(&anonymous, "2001:db8::1", "/version").await.code(), 401);
    assert_eq!(get(&anonymous, "2001:db8::2", "/version").await.code(), 401);
    assert_eq!(get(&anonymous, "2001:db8::3", "/version").await.code(), 429);
    assert_eq!(get(&anonymous, "2001:db8:0:1::1", "/version").await.code(), 401);
}

#[tokio::test]
async fn a_token_is_counted_separately_wherever_it_is_presented() {
    let forge = TestForge::builder().limit_options(per_minute(5, 100)).start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let token = ann.token.clone().expect("a token");
    for _ in 0..3 {
        assert_eq!(get(&ann, CLIENT_A, "/user").await.code(), 200);
    }
    let anonymous = forge.anonymous();
    assert_eq!(get(&anonymous, CLIENT_B, &format!("/user?private_token={token}")).await.code(), 200);
    let bearer = anonymous.request(Method::GET, "/user").header("authorization", format!("Bearer {token}"));
    assert_eq!(anonymous.send(bearer, Body::empty()).await.code(), 200);
    assert_eq!(get(&ann, CLIENT_B, "/user").await.code(), 429);
    // In a body as well.
    let in_body = send_from(&anonymous, CLIENT_B, Method::GET, "/user", Some(json!({ "private_token": token }))).await;
    assert_eq!(in_body.code(), 429);
    assert_eq!(get(&bob, CLIENT_A, "/user").await.code(), 200);
}

#[tokio::test]
async fn invented_tokens_count_for_the_address_and_do_not_affect_valid_tokens() {
    let forge = TestForge::builder().limit_options(per_minute(100, 6)).start().await;
    let (ann, anonymous) = (forge.user("ann").await, forge.anonymous());
    assert_eq!(get(&ann, CLIENT_A, "/user").await.code(), 200);
    for number in 0..5 {
        let invented = anonymous.with_token(&format!("made-up-token-no-{number}"));
        assert_eq!(get(&invented, CLIENT_A, "/user").await.code(), 401);
    }
    assert_eq!(get(&anonymous.with_token("another-made-up-token"), CLIENT_A, "/user").await.code(), 429);
    assert_eq!(get(&anonymous, CLIENT_A, "/version").await.code(), 429);
    // Several tokens in one request do not count as valid.
    let several_tokens = ann.request(Method::GET, "/user").header("job-token", "made-up");
    let several_tokens =
        several_tokens.extension(ConnectInfo(SocketAddr::new(CLIENT_A.parse().expect("an address"), 1)));
    assert_eq!(ann.send(several_tokens, Body::empty()).await.code(), 429);
    for _ in 0..20 {
        assert_eq!(get(&ann, CLIENT_A, "/user").await.code(), 200);
    }
    assert_eq!(get(&ann, CLIENT_B, "/user").await.code(), 200);
}

#[tokio::test]
async fn each_of_several_tokens_in_one_request_is_counted_and_none_is_verified() {
    let forge = TestForge::builder().limit_options(per_minute(5, 0)).start().await;
    let ann = forge.user("ann").await;
    let token = ann.token.clone().expect("a token");
    let send_from = async |invented: &str| {
        let body = json!({ "private_token": token, "name": "x" }).to_string();
        let request = forge.anonymous().request(Method::PUT, "/projects/999").header("job-token", invented);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        forge.anonymous().send(request, Body::from(body)).await.code()
    };
    let mut codes = Vec::new();
    for invented in ["one", "two", "three"] {
        for _ in 0..2 {
            codes.push(send_from(invented).await);
        }
    }
    assert_eq!(codes, [404, 404, 404, 404, 404, 429]);
    assert_eq!(get(&ann, CLIENT_A, "/user").await.code(), 429);
    // In headers as well, and without a limit per address.
    let bob = forge.user("bob").await;
    let mut codes = Vec::new();
    for number in 0..6 {
        let several_tokens = bob.request(Method::GET, "/user").header("job-token", format!("made-up-{number}"));
        codes.push(bob.send(several_tokens, Body::empty()).await.code());
    }
    assert_eq!(codes, [200, 200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn a_rejection_before_the_body_is_read_closes_the_connection() {
    let forge = TestForge::builder().limit_options(per_minute(1, 100)).start().await;
    let ann = forge.user("ann").await;
    assert_eq!(get(&ann, CLIENT_A, "/user").await.code(), 200);
    let refused = send_from(&ann, CLIENT_A, Method::POST, "/projects", Some(json!({ "name": "x" }))).await;
    assert_eq!((refused.code(), refused.header("connection")), (429, "close"));
    let refused = get(&ann, CLIENT_A, "/user").await;
    assert_eq!((refused.code(), refused.header("connection")), (429, ""));
}

#[test]
fn tokens_that_git_does_not_use_are_not_verified_by_it() {
    let instance = TestInstance::new();
    let server = instance
        .serve_with_default_limits()
        .args(&["--anonymous-requests-per-minute", "9"])
        .with_root_credentials()
        .start();
    let root = server.root();
    root.post("/api/v3/projects", &json!({ "name": "open", "visibility_level": 20 }));
    let refs = "/root/open.git/info/refs?service=git-upload-pack";
    let anonymous = server.anonymous();
    let send_from = |number| anonymous.get(&format!("{refs}&private_token=made-up-{}", number % 3)).status;
    let answered = (0..30).filter(|number| send_from(*number) == 200).count();
    assert!((1..=12).contains(&answered), "{answered} with a limit of 9 per minute");
}

#[tokio::test]
async fn runners_behind_one_address_are_counted_by_their_own_tokens() {
    let forge = TestForge::builder().limit_options(per_minute(50, 40)).start().await;
    let anonymous = forge.anonymous();
    let mut tokens = Vec::new();
    for _ in 0..4 {
        tokens.push(register_shared(&forge, json!({})).await.1);
    }
    for round in 0..30 {
        for token in &tokens {
            let polled =
                send_from(&anonymous, CLIENT_A, Method::POST, "/api/v4/jobs/request", Some(json!({ "token": token })))
                    .await;
            assert_eq!(polled.code(), 204, "round {round}: {polled}");
        }
    }
    let stranger = json!({ "token": "unknown runner" });
    let mut last = 0;
    for _ in 0..41 {
        last =
            send_from(&anonymous, CLIENT_A, Method::POST, "/api/v4/jobs/request", Some(stranger.clone())).await.code();
    }
    assert_eq!(last, 429);
    let known = json!({ "token": tokens[0] });
    assert_eq!(send_from(&anonymous, CLIENT_A, Method::POST, "/api/v4/jobs/request", Some(known)).await.code(), 204);
}

#[tokio::test]
async fn expensive_requests_are_limited_in_total_and_per_address() {
    let no_total_permits =
        LimitOptions { expensive_requests: (0, 1), max_wait: Duration::ZERO, ..LimitOptions::default() };
    let forge = TestForge::builder().limit_options(no_total_permits).start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let compare = format!("/projects/{project}/repository/compare?from=a&to=b");
    let refused = ann.get(&compare).await;
    assert_snapshot!(refused, @r#"
    503 Service Unavailable
    {"message":"503 Service Unavailable"}
    "#);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(ann.get(&format!("/projects/{project}")).await.code(), 200);
    let no_permits_per_client = LimitOptions {
        expensive_requests: (1, 0),
        concurrent_uploads: (1, 0),
        max_wait: Duration::ZERO,
        ..LimitOptions::default()
    };
    let forge = TestForge::builder().limit_options(no_permits_per_client).start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let refused = ann.get(&format!("/projects/{project}/repository/compare?from=a&to=b")).await;
    assert_eq!((refused.code(), refused.text.as_str(), refused.header("retry-after")), (429, "Retry later\n", "5"));
    let uploaded = ann.body(Method::POST, &format!("/projects/{project}/uploads"), "multipart/form-data", "").await;
    assert_eq!((uploaded.code(), uploaded.text.as_str()), (429, "Retry later\n"));
}

#[tokio::test]
async fn a_request_that_exceeds_the_timeout_is_aborted() {
    let short_timeout = LimitOptions { request_timeout: Duration::from_millis(50), ..LimitOptions::default() };
    let forge = TestForge::builder().limit_options(short_timeout).start().await;
    forge.user("ann").await;
    // Occupies the thread that hashes passwords.
    let (release, wait_for_release) = mpsc::channel::<()>();
    let blocker = forge.forge.clone();
    let blocker = tokio::spawn(async move {
        blocker
            .run_blocking(Caller::system(), move |_| {
                let _ = wait_for_release.recv();
                Ok(())
            })
            .await
    });
    tokio::task::yield_now().await;
    let sign_in = json!({ "login": "ann", "password": testkit::PASSWORD });
    let refused = forge.anonymous().post("/session", sign_in).await;
    assert_eq!((refused.code(), refused.header("retry-after")), (503, "1"), "{refused}");
    drop(release);
    blocker.await.expect("finished").expect("succeeded");
}

#[tokio::test]
async fn work_on_a_repository_is_cancelled_when_its_client_disconnects() {
    let forge = TestForge::start().await;
    let (started, has_started) = tokio::sync::oneshot::channel();
    let (cancelled, was_cancelled) = tokio::sync::oneshot::channel();
    let (forge, mut signals) = (forge.forge.clone(), Some((started, cancelled)));
    let client = tokio::spawn(async move {
        let work = move |_: &mut forge::BlockingContext<'_>| {
            let Some((started, cancelled)) = signals.take() else { return Ok(()) };
            let _ = started.send(git::is_cancelled());
            // Polls for cancellation like a tree walk.
            for _ in 0..30_000 {
                if git::is_cancelled() {
                    let _ = cancelled.send(());
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        };
        forge.run_blocking(Caller::system(), work).await
    });
    assert!(!has_started.await.expect("started"), "the client still waits");
    client.abort();
    was_cancelled.await.expect("cancelled");
}

#[tokio::test]
async fn one_address_cannot_hold_all_permits_for_expensive_responses() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let file = json!({ "file_path": "f", "branch_name": "master", "content": "hello", "commit_message": "first" });
    assert_eq!(ann.post(&format!("/projects/{project}/repository/files"), file).await.code(), 201);
    // Comparisons wait for the blocked thread and hold their permits meanwhile.
    let (release, wait_for_release) = mpsc::channel::<()>();
    let blocker = forge.forge.clone();
    let blocker = tokio::spawn(async move {
        blocker
            .run_blocking(Caller::system(), move |_| {
                let _ = wait_for_release.recv();
                Ok(())
            })
            .await
    });
    let compare = format!("/projects/{project}/repository/compare?from=master&to=master");
    let from_client_a: Vec<_> = (0..7)
        .map(|_| {
            let (ann, compare) = (ann.clone(), compare.clone());
            tokio::spawn(async move { get(&ann, CLIENT_A, &compare).await })
        })
        .collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    // This needs such a permit but not that thread.
    let from_client_b = get(&ann, CLIENT_B, &format!("/projects/{project}/repository/blobs/master?filepath=f")).await;
    assert_eq!((from_client_b.code(), from_client_b.text.as_str()), (200, "hello"));
    assert!(from_client_a.iter().all(|task| !task.is_finished()));
    drop(release);
    for answer in from_client_a {
        assert_eq!(answer.await.expect("no panic").code(), 200);
    }
    blocker.await.expect("finished").expect("succeeded");
}

#[tokio::test]
async fn a_path_may_be_long_but_not_endless() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_eq!(ann.get(&format!("/projects?search={}", "x".repeat(8_000))).await.code(), 200);
    assert_snapshot!(ann.get(&format!("/projects?search={}", "x".repeat(20_000))).await, @r#"
    414 URI Too Long
    {"error":"414 URI Too Long"}
    "#);
}

#[tokio::test]
async fn every_response_has_security_headers() {
    let forge = TestForge::builder().limit_options(per_minute(100, 100)).start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let security_headers = |answer: &TestResponse| {
        let names = [
            "x-content-type-options",
            "x-frame-options",
            "referrer-policy",
            "content-security-policy",
            "cross-origin-resource-policy",
            "cache-control",
        ];
        names.map(|name| format!("{name}: {}\n", answer.header(name))).concat()
    };
    assert_snapshot!(security_headers(&ann.get(&format!("/projects/{project}")).await), @"
    x-content-type-options: nosniff
    x-frame-options: DENY
    referrer-policy: no-referrer
    content-security-policy: default-src 'none'; frame-ancestors 'none'
    cross-origin-resource-policy: same-origin
    cache-control: max-age=0, private, must-revalidate
    ");
    let identicon = ann.get("/user").await.json()["avatar_url"].as_str().expect("a URL").to_owned();
    let avatar = ann.page(identicon.trim_start_matches("http://gable.test")).await;
    assert_eq!(avatar.code(), 200);
    assert_eq!(avatar.header("cross-origin-resource-policy"), "");
    assert_eq!(avatar.header("x-content-type-options"), "nosniff");
    for answer in [ann.get("/nowhere").await, ann.delete("/version").await, forge.anonymous().get("/user").await] {
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{answer}");
        assert_eq!(answer.header("cache-control"), "no-cache", "{answer}");
        assert_eq!(answer.header("strict-transport-security"), "", "{answer}");
        assert_eq!(answer.header("server"), "", "{answer}");
    }
}

#[test]
fn monitoring_is_not_limited_and_rejected_clients_are_logged() {
    let instance = TestInstance::new();
    let server = instance
        .serve_with_default_limits()
        .args(&["--anonymous-requests-per-minute", "5"])
        .with_root_credentials()
        .start();
    let (root, anonymous) = (server.root(), server.anonymous());
    for _ in 0..10 {
        assert_eq!(anonymous.get("/-/health").text, "ok\n");
        assert_eq!(anonymous.get("/-/metrics").status, 200);
    }
    assert_eq!(root.get("/api/v3/user").status, 200);
    let refused = (0..10).filter(|_| anonymous.get("/api/v3/version").status == 429).count();
    assert!(refused >= 5, "{refused}");
    let git = anonymous.get("/root/x.git/info/refs?service=git-upload-pack");
    assert_eq!((git.status, git.text.as_str()), (429, "Retry later\n"));
    assert_eq!(root.get("/api/v3/user").status, 200);
    let metrics = anonymous.get("/-/metrics").text;
    assert!(
        metrics.contains(&format!("gable_limited_requests_total{{kind=\"address\"}} {}", refused + 1)),
        "{metrics}"
    );
    let log_output = server.stop().combined_output();
    let lines: Vec<&str> = log_output.lines().filter(|line| line.contains("rate limit exceeded")).collect();
    assert_eq!(lines.len(), 1, "{log_output}");
    assert!(lines[0].contains("127.0.0.1") && lines[0].contains("WARN"), "{log_output}");
    assert!(!log_output.contains(ROOT_TOKEN), "{log_output}");
}
