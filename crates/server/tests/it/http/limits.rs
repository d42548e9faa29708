//! How much one caller may ask for, and what answers tell browsers.

use std::{net::SocketAddr, num::NonZeroU32, sync::mpsc, time::Duration};

use api::Guards;
use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Method, header},
};
use forge::Caller;
use insta::assert_snapshot;
use serde_json::{Value, json};
use testkit::{Answer, Client, TestForge};

use crate::{
    admin::binary::{Home, ROOT_TOKEN},
    ci::runners::join_instance,
};

const HERE: &str = "192.0.2.1";
const THERE: &str = "198.51.100.1";

/// Limits for one token and for one address.
pub(crate) fn per_minute(token: u32, address: u32) -> Guards {
    Guards {
        requests_per_minute: NonZeroU32::new(token),
        anonymous_requests_per_minute: NonZeroU32::new(address),
        ..Guards::default()
    }
}

/// Asks from an address.
pub(crate) async fn ask(client: &Client, from: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let peer = SocketAddr::new(from.parse().expect("an address"), 4321);
    let request = client.request(method, path).extension(ConnectInfo(peer));
    match body {
        None => client.send(request, Body::empty()).await,
        Some(body) => {
            client.send(request.header(header::CONTENT_TYPE, "application/json"), Body::from(body.to_string())).await
        }
    }
}

async fn get(client: &Client, from: &str, path: &str) -> Answer {
    ask(client, from, Method::GET, path, None).await
}

#[tokio::test]
async fn who_shows_nothing_is_counted_by_address() {
    let forge = TestForge::setup().guards(per_minute(100, 3)).start().await;
    let nobody = forge.anonymous();
    for _ in 0..3 {
        assert_eq!(get(&nobody, HERE, "/version").await.code(), 401);
    }
    let refused = get(&nobody, HERE, "/version").await;
    assert_snapshot!(refused, @"
    429 Too Many Requests
    Retry later
    ");
    assert_eq!(refused.header("content-type"), "text/plain");
    let wait: u32 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=20).contains(&wait), "{wait}");
    assert_ne!(refused.header("x-request-id"), "");
    // Whatever is asked for, known or not; but others are others.
    assert_eq!(get(&nobody, HERE, "/-/nothing").await.code(), 429);
    assert_eq!(get(&nobody, "::ffff:192.0.2.1", "/version").await.code(), 429);
    assert_eq!(get(&nobody, THERE, "/version").await.code(), 401);
}

#[tokio::test]
async fn a_network_of_ipv6_counts_as_one_address() {
    let forge = TestForge::setup().guards(per_minute(100, 2)).start().await;
    let nobody = forge.anonymous();
    assert_eq!(get(&nobody, "2001:db8::1", "/version").await.code(), 401);
    assert_eq!(get(&nobody, "2001:db8::2", "/version").await.code(), 401);
    assert_eq!(get(&nobody, "2001:db8::3", "/version").await.code(), 429);
    assert_eq!(get(&nobody, "2001:db8:0:1::1", "/version").await.code(), 401);
}

#[tokio::test]
async fn a_token_has_a_count_of_its_own_wherever_it_is_shown() {
    let forge = TestForge::setup().guards(per_minute(5, 100)).start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let token = ann.token.clone().expect("a token");
    for _ in 0..3 {
        assert_eq!(get(&ann, HERE, "/user").await.code(), 200);
    }
    let nobody = forge.anonymous();
    assert_eq!(get(&nobody, THERE, &format!("/user?private_token={token}")).await.code(), 200);
    let bearer = nobody.request(Method::GET, "/user").header("authorization", format!("Bearer {token}"));
    assert_eq!(nobody.send(bearer, Body::empty()).await.code(), 200);
    assert_eq!(get(&ann, THERE, "/user").await.code(), 429);
    // In a body, too.
    let in_body = ask(&nobody, THERE, Method::GET, "/user", Some(json!({ "private_token": token }))).await;
    assert_eq!(in_body.code(), 429);
    assert_eq!(get(&bob, HERE, "/user").await.code(), 200);
}

#[tokio::test]
async fn made_up_tokens_count_for_the_address_and_shut_nobody_out_who_is_known() {
    let forge = TestForge::setup().guards(per_minute(100, 6)).start().await;
    let (ann, nobody) = (forge.user("ann").await, forge.anonymous());
    assert_eq!(get(&ann, HERE, "/user").await.code(), 200);
    for number in 0..5 {
        let made_up = nobody.showing(&format!("made-up-token-no-{number}"));
        assert_eq!(get(&made_up, HERE, "/user").await.code(), 401);
    }
    assert_eq!(get(&nobody.showing("another-made-up-token"), HERE, "/user").await.code(), 429);
    assert_eq!(get(&nobody, HERE, "/version").await.code(), 429);
    // Several at once may be anything.
    let several = ann.request(Method::GET, "/user").header("job-token", "made-up");
    let several = several.extension(ConnectInfo(SocketAddr::new(HERE.parse().expect("an address"), 1)));
    assert_eq!(ann.send(several, Body::empty()).await.code(), 429);
    for _ in 0..20 {
        assert_eq!(get(&ann, HERE, "/user").await.code(), 200);
    }
    assert_eq!(get(&ann, THERE, "/user").await.code(), 200);
}

#[tokio::test]
async fn of_several_tokens_in_one_request_each_pays_and_none_is_proved() {
    let forge = TestForge::setup().guards(per_minute(5, 0)).start().await;
    let ann = forge.user("ann").await;
    let token = ann.token.clone().expect("a token");
    let ask = async |made_up: &str| {
        let body = json!({ "private_token": token, "name": "x" }).to_string();
        let request = forge.anonymous().request(Method::PUT, "/projects/999").header("job-token", made_up);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        forge.anonymous().send(request, Body::from(body)).await.code()
    };
    let mut codes = Vec::new();
    for made_up in ["one", "two", "three"] {
        for _ in 0..2 {
            codes.push(ask(made_up).await);
        }
    }
    assert_eq!(codes, [404, 404, 404, 404, 404, 429]);
    assert_eq!(get(&ann, HERE, "/user").await.code(), 429);
    // In headers, too, and where addresses are not counted at all.
    let bob = forge.user("bob").await;
    let mut codes = Vec::new();
    for number in 0..6 {
        let several = bob.request(Method::GET, "/user").header("job-token", format!("made-up-{number}"));
        codes.push(bob.send(several, Body::empty()).await.code());
    }
    assert_eq!(codes, [200, 200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn a_refusal_before_the_body_was_read_ends_the_connection() {
    let forge = TestForge::setup().guards(per_minute(1, 100)).start().await;
    let ann = forge.user("ann").await;
    assert_eq!(get(&ann, HERE, "/user").await.code(), 200);
    let refused = ask(&ann, HERE, Method::POST, "/projects", Some(json!({ "name": "x" }))).await;
    assert_eq!((refused.code(), refused.header("connection")), (429, "close"));
    let refused = get(&ann, HERE, "/user").await;
    assert_eq!((refused.code(), refused.header("connection")), (429, ""));
}

#[test]
fn what_git_does_not_look_at_proves_nothing_to_it() {
    let home = Home::new();
    let server = home.limited().args(&["--anonymous-requests-per-minute", "9"]).with_known_root().start();
    let root = server.root();
    root.post("/api/v3/projects", &json!({ "name": "open", "visibility_level": 20 }));
    let refs = "/root/open.git/info/refs?service=git-upload-pack";
    let nobody = server.anonymous();
    let ask = |number| nobody.get(&format!("{refs}&private_token=made-up-{}", number % 3)).status;
    let answered = (0..30).filter(|number| ask(*number) == 200).count();
    assert!((1..=12).contains(&answered), "{answered} where 9 a minute are allowed");
}

#[tokio::test]
async fn runners_behind_one_address_are_counted_by_their_own_tokens() {
    let forge = TestForge::setup().guards(per_minute(50, 40)).start().await;
    let nobody = forge.anonymous();
    let mut tokens = Vec::new();
    for _ in 0..4 {
        tokens.push(join_instance(&forge, json!({})).await.1);
    }
    for round in 0..30 {
        for token in &tokens {
            let polled =
                ask(&nobody, HERE, Method::POST, "/api/v4/jobs/request", Some(json!({ "token": token }))).await;
            assert_eq!(polled.code(), 204, "round {round}: {polled}");
        }
    }
    let stranger = json!({ "token": "no runner has this" });
    let mut last = 0;
    for _ in 0..41 {
        last = ask(&nobody, HERE, Method::POST, "/api/v4/jobs/request", Some(stranger.clone())).await.code();
    }
    assert_eq!(last, 429);
    let known = json!({ "token": tokens[0] });
    assert_eq!(ask(&nobody, HERE, Method::POST, "/api/v4/jobs/request", Some(known)).await.code(), 204);
}

#[tokio::test]
async fn what_takes_long_has_places_in_all_and_for_each_address() {
    let none_left = Guards { heavy: (0, 1), wait: Duration::ZERO, ..Guards::default() };
    let forge = TestForge::setup().guards(none_left).start().await;
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
    let none_for_one = Guards { heavy: (1, 0), uploads: (1, 0), wait: Duration::ZERO, ..Guards::default() };
    let forge = TestForge::setup().guards(none_for_one).start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let refused = ann.get(&format!("/projects/{project}/repository/compare?from=a&to=b")).await;
    assert_eq!((refused.code(), refused.text.as_str(), refused.header("retry-after")), (429, "Retry later\n", "5"));
    let uploaded = ann.body(Method::POST, &format!("/projects/{project}/uploads"), "multipart/form-data", "").await;
    assert_eq!((uploaded.code(), uploaded.text.as_str()), (429, "Retry later\n"));
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up() {
    let hasty = Guards { request_time: Duration::from_millis(50), ..Guards::default() };
    let forge = TestForge::setup().guards(hasty).start().await;
    forge.user("ann").await;
    // Nobody hashes passwords until this one is let go of.
    let (let_go, waiting) = mpsc::channel::<()>();
    let busy = forge.forge.clone();
    let busy = tokio::spawn(async move {
        busy.run_blocking(Caller::system(), move |_| {
            let _ = waiting.recv();
            Ok(())
        })
        .await
    });
    tokio::task::yield_now().await;
    let sign_in = json!({ "login": "ann", "password": testkit::PASSWORD });
    let refused = forge.anonymous().post("/session", sign_in).await;
    assert_eq!((refused.code(), refused.header("retry-after")), (503, "1"), "{refused}");
    drop(let_go);
    busy.await.expect("ended").expect("well");
}

#[tokio::test]
async fn work_on_a_repository_is_told_when_its_client_has_gone() {
    let forge = TestForge::start().await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (told, was_told) = tokio::sync::oneshot::channel();
    let (forge, mut signals) = (forge.forge.clone(), Some((begun, told)));
    let client = tokio::spawn(async move {
        let work = move |_: &mut forge::BlockingContext<'_>| {
            let Some((begun, told)) = signals.take() else { return Ok(()) };
            let _ = begun.send(git::is_cancelled());
            // As a walk over folders does it: looked at now and then.
            for _ in 0..30_000 {
                if git::is_cancelled() {
                    let _ = told.send(());
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        };
        forge.run_blocking(Caller::system(), work).await
    });
    assert!(!has_begun.await.expect("it has begun"), "somebody waits");
    client.abort();
    was_told.await.expect("it was told");
}

#[tokio::test]
async fn one_address_cannot_hold_all_places_for_long_answers() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let file = json!({ "file_path": "f", "branch_name": "master", "content": "hello", "commit_message": "first" });
    assert_eq!(ann.post(&format!("/projects/{project}/repository/files"), file).await.code(), 201);
    // Comparisons wait for the one thread that makes them, and hold their places meanwhile.
    let (let_go, waiting) = mpsc::channel::<()>();
    let busy = forge.forge.clone();
    let busy = tokio::spawn(async move {
        busy.run_blocking(Caller::system(), move |_| {
            let _ = waiting.recv();
            Ok(())
        })
        .await
    });
    let compare = format!("/projects/{project}/repository/compare?from=master&to=master");
    let from_here: Vec<_> = (0..7)
        .map(|_| {
            let (ann, compare) = (ann.clone(), compare.clone());
            tokio::spawn(async move { get(&ann, HERE, &compare).await })
        })
        .collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    // An answer that needs such a place and not that thread.
    let there = get(&ann, THERE, &format!("/projects/{project}/repository/blobs/master?filepath=f")).await;
    assert_eq!((there.code(), there.text.as_str()), (200, "hello"));
    assert!(from_here.iter().all(|task| !task.is_finished()));
    drop(let_go);
    for answer in from_here {
        assert_eq!(answer.await.expect("no panic").code(), 200);
    }
    busy.await.expect("ended").expect("well");
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
async fn every_answer_tells_browsers_to_take_it_for_what_it_is() {
    let forge = TestForge::setup().guards(per_minute(100, 100)).start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let told = |answer: &Answer| {
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
    assert_snapshot!(told(&ann.get(&format!("/projects/{project}")).await), @"
    x-content-type-options: nosniff
    x-frame-options: DENY
    referrer-policy: no-referrer
    content-security-policy: default-src 'none'; frame-ancestors 'none'
    cross-origin-resource-policy: same-origin
    cache-control: max-age=0, private, must-revalidate
    ");
    let identicon = ann.get("/user").await.json()["avatar_url"].as_str().expect("a URL").to_owned();
    let picture = ann.page(identicon.trim_start_matches("http://gable.test")).await;
    assert_eq!(picture.code(), 200);
    assert_eq!(picture.header("cross-origin-resource-policy"), "");
    assert_eq!(picture.header("x-content-type-options"), "nosniff");
    for answer in [ann.get("/nowhere").await, ann.delete("/version").await, forge.anonymous().get("/user").await] {
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{answer}");
        assert_eq!(answer.header("cache-control"), "no-cache", "{answer}");
        assert_eq!(answer.header("strict-transport-security"), "", "{answer}");
        assert_eq!(answer.header("server"), "", "{answer}");
    }
}

#[test]
fn monitors_are_not_counted_and_operators_hear_of_who_is() {
    let home = Home::new();
    let server = home.limited().args(&["--anonymous-requests-per-minute", "5"]).with_known_root().start();
    let (root, nobody) = (server.root(), server.anonymous());
    for _ in 0..10 {
        assert_eq!(nobody.get("/-/health").text, "ok\n");
        assert_eq!(nobody.get("/-/metrics").status, 200);
    }
    assert_eq!(root.get("/api/v3/user").status, 200);
    let refused = (0..10).filter(|_| nobody.get("/api/v3/version").status == 429).count();
    assert!(refused >= 5, "{refused}");
    let git = nobody.get("/root/x.git/info/refs?service=git-upload-pack");
    assert_eq!((git.status, git.text.as_str()), (429, "Retry later\n"));
    assert_eq!(root.get("/api/v3/user").status, 200);
    let metrics = nobody.get("/-/metrics").text;
    assert!(
        metrics.contains(&format!("gable_limited_requests_total{{kind=\"address\"}} {}", refused + 1)),
        "{metrics}"
    );
    let said = server.stop().words();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("turned away")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("127.0.0.1") && lines[0].contains("WARN"), "{said}");
    assert!(!said.contains(ROOT_TOKEN), "{said}");
}
