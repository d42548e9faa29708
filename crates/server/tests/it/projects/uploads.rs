//! Uploading files to a project and downloading them.

use std::{
    io,
    net::SocketAddr,
    process::{Child, Command},
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    http::Method,
};
use forge::tasks;
use futures_util::{StreamExt as _, stream};
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{ProjectId, Time, tokens::Secret};
use serde_json::{Value, json};
use testkit::{
    TestClient, TestForge, TestResponse,
    tcp_proxy::{Cut, TcpProxy},
};
use tokio::sync::mpsc;

use crate::support::{ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT, postgres_server};

const PROJECT: ProjectId = ProjectId::new(1);
const FORM: &str = "multipart/form-data; boundary=b0undary";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0not much of a picture\xff";

/// Returns a part of a form as `requests` and browsers write it.
fn part(disposition: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--b0undary\r\nContent-Disposition: form-data; {disposition}\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [&parts.concat()[..], b"--b0undary--\r\n"].concat()
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    form(&[part(&format!("name=\"file\"; filename=\"{name}\""), content)])
}

/// Returns a form with a file in chunks of a megabyte, without a content length.
fn stream_of(megabytes: usize) -> Body {
    let head = Bytes::from("--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.bin\"\r\n\r\n");
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let pieces = std::iter::once(head).chain(std::iter::repeat_n(piece, megabytes));
    let pieces = pieces.chain([Bytes::from("\r\n--b0undary--\r\n")]);
    Body::from_stream(stream::iter(pieces.map(Ok::<_, io::Error>)))
}

/// Returns a body that the test sends in chunks.
fn body_channel() -> (mpsc::Sender<io::Result<Bytes>>, Body) {
    let (body_sender, pieces) = mpsc::channel(1);
    let pieces = stream::unfold(pieces, |mut pieces| async move { pieces.recv().await.map(|piece| (piece, pieces)) });
    (body_sender, Body::from_stream(pieces))
}

async fn post(client: &TestClient, path: &str, body: impl Into<Body>) -> TestResponse {
    client.body(Method::POST, path, FORM, body).await
}

async fn upload(client: &TestClient, name: &str, content: &[u8]) -> TestResponse {
    post(client, "/projects/1/uploads", file(name, content)).await
}

/// Creates Ann with her project 1, `ann/x`.
async fn ann_with_project(forge: &TestForge, visibility: i64) -> TestClient {
    let ann = forge.user("ann").await;
    let created = ann.post("/projects", json!({ "name": "x", "visibility_level": visibility })).await;
    assert_eq!((created.code(), created.json()["id"].as_i64()), (201, Some(1)), "{created}");
    ann
}

/// Returns the path of an upload to `ann/x`.
fn page(uploaded: &TestResponse) -> String {
    let upload = uploaded.json();
    let url = upload["url"].as_str().unwrap_or_else(|| panic!("no upload: {uploaded}"));
    let (path, name) = url.rsplit_once('/').expect("a path");
    name.bytes().fold(format!("/ann/x{path}/"), |page, byte| page + &format!("%{byte:02x}"))
}

/// Returns the response with a placeholder for the secret.
fn without_secret(uploaded: &TestResponse) -> String {
    let upload = uploaded.json();
    let secret = upload["url"].as_str().and_then(|url| url.split('/').nth(2)).unwrap_or_default();
    assert!(model::uploads::is_secret(secret), "{uploaded}");
    uploaded.to_string().replace(secret, "SECRET")
}

/// Returns the number of unfinished uploads.
fn unfinished(forge: &TestForge) -> usize {
    forge.with_connection(|db| store::uploads::unfinished_before(db, Time::MAX, 1000).expect("asked").len())
}

/// Waits until an upload of which a part was sent has begun.
async fn wait_for_upload(forge: &TestForge) {
    let has_begun = || {
        // A bucket gets the file when it is complete.
        if forge.uses_bucket() { unfinished(forge) > 0 } else { !forge.files().is_empty() }
    };
    let start = Instant::now();
    while !has_begun() {
        assert!(start.elapsed() < Duration::from_secs(10), "no upload begins");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn has_no_uploads(forge: &TestForge) -> bool {
    forge.files().is_empty() && !forge.with_connection(|db| store::uploads::exist_in(db, PROJECT).expect("asked"))
}

async fn run_all_tasks(forge: &TestForge) {
    while tasks::run_next(&forge.forge).await.expect("worked") {}
}

#[tokio::test]
async fn a_file_is_uploaded_and_downloaded() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let uploaded = upload(&ann, "dk.png", PNG).await;
    assert_snapshot!(without_secret(&uploaded), @r#"
    201 Created
    {"alt":"dk","url":"/uploads/SECRET/dk.png","markdown":"![dk](/uploads/SECRET/dk.png)"}
    "#);
    assert_eq!(forge.files(), ["uploads/1/1"]);
    let fetched = ann.page(&page(&uploaded)).await;
    assert_eq!((fetched.code(), fetched.bytes.as_slice()), (200, PNG));
    for (name, value) in [
        ("content-type", "image/png"),
        ("content-length", &PNG.len().to_string()),
        ("content-disposition", "inline; filename=\"dk.png\"; filename*=UTF-8''dk.png"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("cache-control", "private, no-cache"),
        ("accept-ranges", "bytes"),
        ("access-control-allow-origin", ""),
    ] {
        assert_eq!(fetched.header(name), value, "{name}");
    }
    // By path, and an empty file.
    let uploaded = post(&ann, "/projects/ann%2Fx/uploads", file("notes.txt", b"")).await;
    assert_snapshot!(without_secret(&uploaded), @r#"
    201 Created
    {"alt":"notes.txt","url":"/uploads/SECRET/notes.txt","markdown":"[notes.txt](/uploads/SECRET/notes.txt)"}
    "#);
    let fetched = ann.page(&page(&uploaded)).await;
    assert_eq!((fetched.code(), fetched.text.as_str(), fetched.header("content-length")), (200, "", "0"));
    assert_eq!(fetched.header("content-type"), "application/octet-stream");
}

#[tokio::test]
async fn a_file_name_is_sanitized_before_use() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let long = format!("{}.png", "ü".repeat(400));
    let names = [
        ("../../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("..", "_.."),
        ("", "unnamed"),
        ("a b\tc?.txt", "a_b_c_.txt"),
        ("März.json", "März.json"),
        ("x](javascript:alert(1)).png", "x__javascript_alert_1__.png"),
        (&long, &format!("{}.png", "ü".repeat(125))),
    ];
    for (sent_name, stored_name) in names {
        let uploaded = upload(&ann, sent_name, b"x").await;
        assert_eq!(
            uploaded.json()["url"].as_str().and_then(|url| url.rsplit('/').next()),
            Some(stored_name),
            "{uploaded}"
        );
        let fetched = ann.page(&page(&uploaded)).await;
        assert_eq!((fetched.code(), fetched.text.as_str()), (200, "x"), "{sent_name:?}");
    }
    // In the encoding of older clients, with characters that a header cannot contain.
    let part = part("name=\"file\"; filename*=utf-8''a%00b%0D%0A%E2%80%AEc.txt", b"x");
    let uploaded = post(&ann, "/projects/1/uploads", form(&[part])).await;
    assert!(uploaded.text.contains("/a_b___c.txt"), "{uploaded}");
    assert_eq!(forge.files(), (1..=names.len() + 1).map(|id| format!("uploads/1/{id}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_malformed_upload_is_rejected_after_the_permission_check() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let refused = async |kind: &str, body: Vec<u8>| {
        let answer = ann.body(Method::POST, "/projects/1/uploads", kind, body.clone()).await;
        let stranger = forge.anonymous().body(Method::POST, "/projects/1/uploads", kind, body).await;
        if answer.text.contains("file") {
            assert_eq!(stranger.code(), 401, "{stranger}");
        }
        answer.to_string()
    };
    let text = part("name=\"file\"", b"not a file");
    let other = part("name=\"other\"; filename=\"x\"", b"x");
    let file_part = part("name=\"file\"; filename=\"x\"", b"x");
    let missing = "400 Bad Request\n{\"error\":\"file is missing\"}";
    let invalid = "400 Bad Request\n{\"error\":\"file is invalid\"}";
    let broken = "400 Bad Request\n{\"error\":\"message body does not match declared format\"}";
    assert_eq!(refused(FORM, form(&[])).await, missing);
    assert_eq!(refused(FORM, Vec::new()).await, missing);
    assert_eq!(refused(FORM, form(&[other])).await, missing);
    assert_eq!(refused("application/json", b"{}".to_vec()).await, missing);
    assert_eq!(refused("application/x-www-form-urlencoded", b"x=1".to_vec()).await, missing);
    assert_eq!(refused("text/plain", b"x".to_vec()).await, missing);
    assert_eq!(refused("application/json", b"{\"file\":\"x\"}".to_vec()).await, invalid);
    assert_eq!(refused(FORM, form(std::slice::from_ref(&text))).await, invalid);
    assert_eq!(refused(FORM, form(&[file_part.clone(), file_part.clone()])).await, invalid);
    assert_eq!(refused(FORM, form(&[file_part.clone(), text])).await, invalid);
    assert_eq!(refused(FORM, file_part).await, broken);
    assert_eq!(refused(FORM, b"--b0undary\r\nnonsense".to_vec()).await, broken);
    assert_eq!(refused("multipart/form-data", b"x".to_vec()).await, broken);
    assert_eq!(refused(FORM, file("a\0b", b"x")).await, broken);
    assert!(has_no_uploads(&forge));
}

#[tokio::test]
async fn users_who_can_see_a_project_can_upload_files() {
    let forge = TestForge::start().await;
    ann_with_project(&forge, 10).await;
    let (bob, eve) = (forge.user("bob").await, forge.external("eve").await);
    assert_eq!(upload(&bob, "x", b"x").await.code(), 201);
    assert_snapshot!(upload(&eve, "x", b"x").await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_snapshot!(upload(&forge.anonymous(), "x", b"x").await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
    let nowhere = post(&bob, "/projects/2/uploads", file("x", b"x")).await;
    assert_snapshot!(nowhere, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_eq!(forge.files(), ["uploads/1/1"]);
}

#[tokio::test]
async fn a_token_may_come_in_the_form_ahead_of_the_file() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let root = forge.admin().await;
    let token =
        |client: &TestClient| part("name=\"private_token\"", client.token.clone().unwrap_or_default().as_bytes());
    let file = part("name=\"file\"; filename=\"x\"", b"x");
    let send = async |parts: &[Vec<u8>]| post(&forge.anonymous(), "/projects/1/uploads", form(parts)).await.code();
    assert_eq!(send(&[token(&ann), file.clone()]).await, 201);
    assert_eq!(send(&[token(&root), part("name=\"sudo\"", b"ann"), file.clone()]).await, 201);
    assert_eq!(send(&[token(&ann), part("name=\"sudo\"", b"root"), file.clone()]).await, 403);
    // A token after the file comes too late.
    assert_eq!(send(&[file.clone(), token(&ann)]).await, 401);
    assert_eq!(forge.files().len(), 2);
}

#[tokio::test]
async fn a_file_above_the_size_limit_is_rejected_and_not_stored() {
    let forge = TestForge::builder().upload_limit(1000).body_limit(500).start().await;
    let ann = ann_with_project(&forge, 0).await;
    let accepted = upload(&ann, "x", &[0; 1000]).await;
    assert_eq!(accepted.code(), 201, "{accepted}");
    let too_large = upload(&ann, "x", &[0; 1001]).await;
    assert_snapshot!(too_large, @r#"
    413 Payload Too Large
    {"message":"413 Request Entity Too Large"}
    "#);
    // By its declared length, for any caller.
    assert_eq!(upload(&forge.anonymous(), "x", &vec![0; 200_000]).await.code(), 413);
    // By the size of other content: fields before and after the file, part headers, and the preamble.
    let file_part = part("name=\"file\"; filename=\"x\"", b"x");
    let much = "y".repeat(600_000);
    let field = part("name=\"y\"", much.as_bytes());
    let head = part(&format!("name=\"y{much}\""), b"y");
    let before = [much.as_bytes(), &file_part].concat();
    for parts in [&[field.clone(), file_part.clone()][..], &[file_part.clone(), field], &[file_part, head], &[before]] {
        let body = Bytes::from(form(parts));
        let body = Body::from_stream(stream::iter([Ok::<_, io::Error>(body)]));
        let answer = post(&ann, "/projects/1/uploads", body).await;
        assert_eq!(answer.code(), 413, "{answer}");
    }
    assert_eq!((forge.files(), unfinished(&forge)), (vec!["uploads/1/1".to_owned()], 0));
}

#[tokio::test]
async fn a_file_of_unknown_length_is_rejected_when_it_exceeds_the_limit() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    assert_eq!(post(&ann, "/projects/1/uploads", stream_of(50)).await.code(), 413);
    assert!(has_no_uploads(&forge));
    let uploaded = post(&ann, "/projects/1/uploads", stream_of(10)).await;
    let fetched = ann.page(&page(&uploaded)).await;
    assert_eq!((fetched.code(), fetched.bytes.len()), (200, 10 << 20));
    assert!(fetched.bytes.iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn a_client_that_stops_sending_times_out() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    tokio::time::pause();
    let half = file("x.bin", &vec![0; 100_000])[..50_000].to_vec();
    let half = stream::iter([Ok::<_, io::Error>(half)]).chain(stream::pending());
    let answer = post(&ann, "/projects/1/uploads", Body::from_stream(half)).await;
    assert_snapshot!(answer, @r#"
    408 Request Timeout
    {"message":"408 Request Timeout"}
    "#);
    assert!(has_no_uploads(&forge));
}

#[tokio::test]
async fn a_client_that_sends_slowly_is_disconnected() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    tokio::time::pause();
    let send_slowly = |begin: &[u8]| {
        let begin = stream::iter([Ok::<_, io::Error>(Bytes::from(begin.to_vec()))]);
        let drops = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(29)).await;
            Ok(Bytes::from_static(b"x"))
        });
        Body::from_stream(begin.chain(drops))
    };
    // An authorized client has a longer timeout, still shorter than the age of abandoned uploads.
    let start = tokio::time::Instant::now();
    let answer = post(&ann, "/projects/1/uploads", send_slowly(&part("name=\"file\"; filename=\"x\"", b"x"))).await;
    assert_eq!(answer.code(), 408);
    assert!(start.elapsed() > Duration::from_secs(2000) && start.elapsed() < Duration::from_secs(3500));
    // An anonymous client has a short timeout.
    let start = tokio::time::Instant::now();
    let answer = post(&forge.anonymous(), "/projects/1/uploads", send_slowly(b"--b0undary\r\nX-")).await;
    assert_eq!(answer.code(), 408);
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(has_no_uploads(&forge));
}

/// The client is gone, and the upload is still rolled back.
#[tokio::test]
async fn an_aborted_upload_is_rolled_back() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let (body_sender, body) = body_channel();
    let request = tokio::spawn(async move { post(&ann, "/projects/1/uploads", body).await });
    let half = file("x.bin", &vec![0; 1_000_000])[..600_000].to_vec();
    body_sender.send(Ok(half.into())).await.expect("taken");
    wait_for_upload(&forge).await;
    assert_eq!(unfinished(&forge), 1);
    request.abort();
    let _ = body_sender.send(Err(io::ErrorKind::ConnectionReset.into())).await;
    while !has_no_uploads(&forge) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn uploads_left_by_a_crash_are_deleted_after_an_hour() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    assert_eq!(upload(&ann, "whole", b"x").await.code(), 201);
    let leave = |number: u8| {
        let (now, secret) = (forge.forge.now(), Secret::new(format!("{number:032x}")));
        let left =
            forge.with_connection(|db| store::uploads::insert(db, PROJECT, ann.id, &secret, "x", now).expect("left"));
        forge.plant_unfinished_file(&format!("uploads/{}/{}", forge.storage_of(PROJECT).as_str(), left.id))
    };
    leave(1);
    tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    run_all_tasks(&forge).await;
    assert_eq!((forge.files().len(), unfinished(&forge)), (2, 1));
    forge.clock.advance(SignedDuration::from_mins(30));
    let young = leave(2);
    forge.clock.advance(SignedDuration::from_mins(31));
    run_all_tasks(&forge).await;
    assert_eq!((forge.files(), unfinished(&forge)), (vec!["uploads/1/1".to_owned(), young], 1));
    // A server that is the only one on its data need not wait.
    forge::uploads::sweep_at_start(&forge.forge).await.expect("swept");
    assert_eq!(unfinished(&forge), usize::from(postgres_server().is_some()));
    forge.clock.advance(SignedDuration::from_mins(61));
    run_all_tasks(&forge).await;
    assert_eq!((forge.files(), unfinished(&forge)), (vec!["uploads/1/1".to_owned()], 0));
}

/// The sweep may already be removing the file of an upload that took too long.
#[tokio::test]
async fn an_upload_that_is_about_to_be_swept_is_not_completed() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    for (minutes, code) in [(54, 201), (56, 503)] {
        let (body_sender, body) = body_channel();
        let sender = ann.clone();
        let request = tokio::spawn(async move { post(&sender, "/projects/1/uploads", body).await });
        let mut whole = file("x.bin", &[0; 1000]);
        let rest = whole.split_off(500);
        body_sender.send(Ok(whole.into())).await.expect("taken");
        while unfinished(&forge) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        forge.clock.advance(SignedDuration::from_mins(minutes));
        body_sender.send(Ok(rest.into())).await.expect("taken");
        drop(body_sender);
        let answer = request.await.expect("answered");
        assert_eq!(answer.code(), code, "{answer}");
    }
    forge.clock.advance(SignedDuration::from_mins(5));
    tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    run_all_tasks(&forge).await;
    assert_eq!((forge.files(), unfinished(&forge)), (vec!["uploads/1/1".to_owned()], 0));
}

/// The commit may have succeeded, and then the row needs its file.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_kept_if_the_outcome_of_the_commit_is_unknown() {
    let Some(url) = postgres_server() else { return };
    let server: SocketAddr = format!("{}:{}", url.host_str().expect("a host"), url.port().unwrap_or(5432))
        .parse()
        .expect("the test server is named by its address");
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let proxy = TcpProxy::start(server);
    let node = forge.start_node_at(&proxy.url(&forge.postgres_url().expect("on PostgreSQL"), server));
    let (body_sender, body) = body_channel();
    let sender = node.client(&ann);
    let request = tokio::spawn(async move { post(&sender, "/projects/1/uploads", body).await });
    let mut whole = file("x.bin", &[7; 1000]);
    let rest = whole.split_off(500);
    body_sender.send(Ok(whole.into())).await.expect("taken");
    while unfinished(&forge) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    proxy.cut_next_commit(Cut::AfterCommitForLong);
    body_sender.send(Ok(rest.into())).await.expect("taken");
    drop(body_sender);
    let answer = request.await.expect("answered");
    assert_eq!((answer.code(), proxy.cuts()), (503, 1), "{answer}");
    assert_eq!(forge.files(), ["uploads/1/1"]);
    proxy.end_outage();
    forge.clock.advance(SignedDuration::from_mins(61));
    tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    run_all_tasks(&forge).await;
    assert_eq!((forge.files(), unfinished(&forge)), (vec!["uploads/1/1".to_owned()], 0), "it was committed");
}

/// Permissions are checked again when the upload is complete.
#[tokio::test]
async fn an_upload_fails_if_access_is_lost_meanwhile() {
    for closing in ["removed", "private", "blocked"] {
        let forge = TestForge::start().await;
        let ann = ann_with_project(&forge, 20).await;
        let (root, bob) = (forge.admin().await, forge.user("bob").await);
        let (body_sender, body) = body_channel();
        let sender = bob.clone();
        let request = tokio::spawn(async move { post(&sender, "/projects/1/uploads", body).await });
        let mut file_part = file("x.bin", &[0; 1000]);
        let rest = file_part.split_off(500);
        body_sender.send(Ok(file_part.into())).await.expect("taken");
        wait_for_upload(&forge).await;
        let closed = match closing {
            "removed" => ann.delete("/projects/1").await,
            "private" => ann.put("/projects/1", json!({ "name": "x", "visibility_level": 0 })).await,
            _ => root.put(&format!("/users/{}/block", bob.id), json!({})).await,
        };
        assert_eq!(closed.code(), 200, "{closing}: {closed}");
        body_sender.send(Ok(rest.into())).await.expect("taken");
        drop(body_sender);
        let answer = request.await.expect("answered");
        assert_eq!(answer.code(), if closing == "blocked" { 401 } else { 404 }, "{closing}: {answer}");
        assert!(has_no_uploads(&forge), "{closing}");
    }
}

#[tokio::test]
async fn every_download_checks_permissions_again() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 20).await;
    let (root, bob) = (forge.admin().await, forge.user("bob").await);
    let (anonymous, eve) = (forge.anonymous(), forge.external("eve").await);
    // An image as well as a text: GitLab 8.14 served images to anyone with the URL.
    let pages = [page(&upload(&ann, "x.png", PNG).await), page(&upload(&ann, "x.txt", b"x").await)];
    let callers = [("anonymous", &anonymous), ("external", &eve), ("bob", &bob), ("ann", &ann), ("root", &root)];
    let seen = async || {
        let mut seen = Vec::new();
        for (name, client) in callers {
            let codes = [client.page(&pages[0]).await.code(), client.page(&pages[1]).await.code()];
            assert_eq!(codes[0], codes[1], "{name}");
            if codes[0] == 200 {
                seen.push(name);
            } else {
                assert_eq!(codes[0], 404, "{name}");
            }
        }
        seen.join(" ")
    };
    let change = async |level: i64| {
        let changed = ann.put("/projects/1", json!({ "name": "x", "visibility_level": level })).await;
        assert_eq!(changed.code(), 200, "{changed}");
    };
    assert_eq!(seen().await, "anonymous external bob ann root");
    change(10).await;
    assert_eq!(seen().await, "bob ann root");
    change(0).await;
    assert_eq!(seen().await, "ann root");
    let added = ann.post("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 10 })).await;
    assert_eq!(added.code(), 201, "{added}");
    assert_eq!(seen().await, "bob ann root");
    let removed = ann.delete(&format!("/projects/1/members/{}", bob.id)).await;
    assert_eq!(removed.code(), 200, "{removed}");
    assert_eq!(seen().await, "ann root");
    assert_eq!(root.put(&format!("/users/{}/block", ann.id), json!({})).await.code(), 200);
    assert_eq!(seen().await, "root");
    assert_eq!(root.put(&format!("/users/{}/unblock", ann.id), json!({})).await.code(), 200);
    assert_eq!(seen().await, "ann root");
    let token_of_root = forge.with_connection(|db| {
        let digest = Secret::new(root.token.clone().unwrap_or_default()).digest();
        store::tokens::find(db, &digest).expect("asked").expect("there").0.id
    });
    let revoke = move |tx: &mut forge::WriteTx<'_>| forge::tokens::revoke(tx, token_of_root);
    forge.forge.write(forge::Caller::system(), revoke).await.expect("revoked");
    assert_eq!(seen().await, "ann");
}

#[tokio::test]
async fn a_hidden_upload_looks_like_a_missing_one() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let created = ann.post("/projects", json!({ "name": "y", "visibility_level": 20 })).await;
    assert_eq!(created.code(), 201, "{created}");
    let page = page(&upload(&ann, "dk.png", PNG).await);
    let bob = forge.user("bob").await;
    let secret = page.split('/').nth(4).expect("a secret").to_owned();
    let other = if secret.starts_with('0') { "1" } else { "0" };
    let wrong_secret = page.replace(&secret, &format!("{other}{}", &secret[1..]));
    let cases = [
        (&bob, page.clone()),
        (&forge.anonymous(), page.clone()),
        (&bob.with_token("abcdefghijklmnopqrst"), page.clone()),
        (&forge.client_with_token(&ann, &[model::Scope::ReadUser], None).await, page.clone()),
        (&ann, format!("{page}x")),
        (&ann, page.replace("/ann/x/", "/ann/y/")),
        (&ann, page.replace("/ann/x/", "/ann/z/")),
        (&ann, page.replace("/ann/x/", "/ann/x/y/")),
        (&ann, page.replace("/ann/x/", "/nobody/x/")),
    ];
    let shape = |answer: &TestResponse| {
        let mut headers = answer.headers.clone();
        headers.remove("x-request-id");
        headers.remove("x-runtime");
        format!("{answer} {headers:?}")
    };
    let unknown = ann.page(&wrong_secret).await;
    assert_snapshot!(unknown, @r#"
    404 Not Found
    {"error":"404 Not Found"}
    "#);
    for (client, path) in cases {
        let headers = [("if-none-match", "*"), ("range", "bytes=99999-")];
        assert_eq!(shape(&client.page(&path).await), shape(&unknown), "{path}");
        assert_eq!(shape(&client.page_with(Method::GET, &path, &headers).await), shape(&unknown), "{path}");
        assert_eq!(client.page_with(Method::HEAD, &path, &[]).await.code(), 404, "{path}");
    }
    // These are no paths of uploads, so they lead to the error page of the web interface.
    for path in [page.replace(&secret, &secret.to_uppercase()), page.replace("uploads", "nowhere")] {
        assert_eq!(ann.page(&path).await.code(), 404, "{path}");
    }
    assert_eq!(ann.page(&page).await.code(), 200);
}

#[tokio::test]
async fn a_token_is_accepted_in_the_header_and_the_query() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let page = page(&upload(&ann, "x", b"x").await);
    let token = ann.token.clone().expect("a token");
    let anonymous = forge.anonymous();
    assert_eq!(anonymous.page(&format!("{page}?private_token={token}")).await.code(), 200);
    let bearer = format!("Bearer {token}");
    assert_eq!(anonymous.page_with(Method::GET, &page, &[("authorization", &bearer)]).await.code(), 200);
    assert_eq!(anonymous.page(&format!("{page}?private_token=x")).await.code(), 404);
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        assert_eq!(ann.page_with(method, &page, &[]).await.code(), 405);
    }
}

/// Files that a browser could execute are served as downloads, with a harmless content type.
#[tokio::test]
async fn active_content_is_never_served_inline() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 20).await;
    let script = "<script>alert(document.domain)</script>";
    let svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\">{script}</svg>");
    let xml = format!("<?xml version=\"1.0\"?><x:script xmlns:x=\"http://www.w3.org/1999/xhtml\">{script}</x:script>");
    let pdf = "%PDF-1.7 /OpenAction << /S /JavaScript /JS (app.alert(1)) >>";
    let files = [
        ("x.html", script),
        ("x.HTM", script),
        ("x.xhtml", &xml),
        ("x.svg", &svg),
        ("x.svgz", &svg),
        ("x.xml", &xml),
        ("x.xsl", &xml),
        ("x.pdf", pdf),
        ("x.swf", "CWS"),
        ("x.js", "alert(1)"),
        ("x.mhtml", script),
        ("x.ipynb", script),
        ("x.txt", script),
        ("x", script),
        ("x.png.html", script),
        ("x.html\0.png", script),
        (".png", script),
    ];
    for (name, content) in files {
        let name = name.replace('\0', "%00");
        let disposition = format!("name=\"file\"; filename*=utf-8''{name}");
        let uploaded = post(&ann, "/projects/1/uploads", form(&[part(&disposition, content.as_bytes())])).await;
        let fetched = forge.anonymous().page(&page(&uploaded)).await;
        assert_eq!((fetched.code(), fetched.text.as_str()), (200, content), "{name}");
        assert_eq!(fetched.header("x-content-type-options"), "nosniff", "{name}");
        assert_eq!(fetched.header("content-security-policy"), "default-src 'none'; sandbox", "{name}");
        let shown = fetched.header("content-disposition").starts_with("inline");
        let kind = fetched.header("content-type");
        // A file with an image extension is served as that image type, whatever its content.
        assert_eq!(shown, kind == "image/png", "{name}");
        assert_eq!(shown, name == "x.html%00.png", "{name}");
        assert!(shown || kind == "application/octet-stream", "{name}: {kind}");
    }
}

#[tokio::test]
async fn range_and_conditional_requests_are_supported() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let page = page(&upload(&ann, "film.mp4", b"0123456789").await);
    let get = async |headers: &[(&str, &str)]| {
        let answer = ann.page_with(Method::GET, &page, headers).await;
        format!("{} {:?} {}", answer.code(), answer.header("content-range"), answer.text)
    };
    assert_eq!(get(&[("range", "bytes=2-4")]).await, "206 \"bytes 2-4/10\" 234");
    assert_eq!(get(&[("range", "bytes=7-")]).await, "206 \"bytes 7-9/10\" 789");
    assert_eq!(get(&[("range", "bytes=-1")]).await, "206 \"bytes 9-9/10\" 9");
    assert_eq!(get(&[("range", "bytes=0-1,4-5")]).await, "200 \"\" 0123456789");
    let outside = get(&[("range", "bytes=10-")]).await;
    assert_eq!(outside, "416 \"bytes */10\" {\"error\":\"416 Range Not Satisfiable\"}");
    let tag = ann.page(&page).await.header("etag").to_owned();
    assert_eq!(tag, "\"upload-1\"");
    assert_eq!(get(&[("if-none-match", &format!("\"a\", W/{tag}"))]).await, "304 \"\" ");
    assert_eq!(get(&[("if-none-match", "\"upload-2\"")]).await, "200 \"\" 0123456789");
    assert_eq!(get(&[("range", "bytes=2-4"), ("if-range", &tag)]).await, "206 \"bytes 2-4/10\" 234");
    assert_eq!(get(&[("range", "bytes=2-4"), ("if-range", "\"a\"")]).await, "200 \"\" 0123456789");
    let head = ann.page_with(Method::HEAD, &page, &[("range", "bytes=2-4")]).await;
    assert_eq!((head.code(), head.header("content-length"), head.text.as_str()), (200, "10", ""));
    assert_eq!(head.header("content-type"), "video/mp4");
}

#[tokio::test]
async fn deleting_a_project_deletes_its_files() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    ann.post("/projects", json!({ "name": "y" })).await;
    let page = page(&upload(&ann, "x", b"x").await);
    assert_eq!(upload(&ann, "y", b"y").await.code(), 201);
    assert_eq!(post(&ann, "/projects/2/uploads", file("z", b"z")).await.code(), 201);
    let folder = forge.project_files_folder("uploads", PROJECT);
    assert!(folder.exists());
    assert_eq!(ann.delete("/projects/1").await.code(), 200);
    assert_eq!(ann.page(&page).await.code(), 404);
    run_all_tasks(&forge).await;
    assert_eq!(forge.files(), ["uploads/2/3"]);
    // A bucket has no folders.
    assert!(forge.uses_bucket() || !folder.exists());
    assert!(!forge.with_connection(|db| store::uploads::exist_in(db, PROJECT).expect("asked")));
}

#[tokio::test]
async fn deleting_a_project_waits_for_an_unfinished_upload() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    assert_eq!(upload(&ann, "x", b"x").await.code(), 201);
    let (now, secret) = (forge.forge.now(), Secret::new("f".repeat(32)));
    forge.with_connection(|db| store::uploads::insert(db, PROJECT, ann.id, &secret, "y", now).expect("begun"));
    assert_eq!(ann.delete("/projects/1").await.code(), 200);
    run_all_tasks(&forge).await;
    assert_eq!((forge.files().len(), unfinished(&forge)), (0, 1));
    // However many attempts it takes, the task is retried.
    for _ in 0..11 {
        forge.clock.advance(SignedDuration::from_mins(5));
        run_all_tasks(&forge).await;
        assert!(forge.dump().contains("kind=remove_project"));
    }
    forge.clock.advance(SignedDuration::from_mins(10));
    run_all_tasks(&forge).await;
    assert!(has_no_uploads(&forge));
    assert!(!forge.dump().contains("kind=remove_project"));
}

/// A token without the right scope counts as anonymous, so its user can still download public files.
#[tokio::test]
async fn a_token_without_the_scope_can_download_public_files() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 20).await;
    let page = page(&upload(&ann, "x", b"x").await);
    let reading = forge.client_with_token(&ann, &[model::Scope::ReadUser], None).await;
    assert_eq!(reading.page(&page).await.code(), 200);
    ann.put("/projects/1", json!({ "name": "x", "visibility_level": 0 })).await;
    assert_eq!((reading.page(&page).await.code(), ann.page(&page).await.code()), (404, 200));
}

#[tokio::test]
async fn a_transferred_project_keeps_its_files() {
    let forge = TestForge::start().await;
    let ann = ann_with_project(&forge, 0).await;
    let page = page(&upload(&ann, "x", b"x").await);
    let renamed = ann.put("/projects/1", json!({ "name": "x", "path": "renamed" })).await;
    assert_eq!(renamed.code(), 200, "{renamed}");
    assert_eq!(ann.page(&page.replace("/ann/x/", "/ann/renamed/")).await.text, "x");
    assert_eq!(ann.page(&page).await.code(), 404);
}

#[tokio::test]
async fn the_openapi_document_describes_the_file_parameter() {
    let document = TestForge::start().await.anonymous().get("/openapi.json").await.json();
    let operation = &document["paths"]["/projects/{id}/uploads"]["post"];
    let content = &operation["requestBody"]["content"];
    assert_eq!(content.as_object().expect("types").keys().collect::<Vec<_>>(), ["multipart/form-data"]);
    assert_eq!(content["multipart/form-data"]["schema"]["properties"]["file"]["format"], "binary");
    for status in ["201", "400", "401", "404", "413"] {
        assert!(operation["responses"][status].is_object(), "{status}");
    }
}

/// Runs `curl`; returns the status and the body.
fn curl(arguments: &[&str]) -> (String, Vec<u8>) {
    let output =
        Command::new("curl").args(["--silent", "--write-out", "%{stderr}%{http_code}"]).args(arguments).output();
    let output = output.expect("curl runs");
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
}

/// Starts a server with project 1, `root/x`.
fn serve(instance: &TestInstance) -> (ServerProcess, String) {
    let server = instance.start();
    let created = server.root().post("/api/v3/projects", &json!({ "name": "x" }));
    assert_eq!(created.status, 201, "{created}");
    let url = format!("{}/api/v3/projects/root%2Fx/uploads", server.url);
    (server, url)
}

#[test]
fn curl_uploads_a_file_and_downloads_it_after_a_restart() {
    let instance = TestInstance::new();
    let (server, url) = serve(&instance);
    let path = instance.file("notes and more.txt", "hello");
    let (token, field) = (format!("PRIVATE-TOKEN: {ROOT_TOKEN}"), format!("file=@{path}"));
    let (status, body) = curl(&["--header", &token, "--form", &field, &url]);
    assert_eq!(status, "201", "{}", String::from_utf8_lossy(&body));
    let upload: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(upload["alt"], "notes_and_more.txt");
    let in_form = format!("private_token={ROOT_TOKEN}");
    assert_eq!(curl(&["--form", &in_form, "--form", &field, &url]).0, "201");
    assert_eq!(server.stop().status, Some(0));
    let server = instance.start();
    let page = format!("{}/root/x{}", server.url, upload["url"].as_str().expect("a URL"));
    assert_eq!(curl(&["--header", &token, &page]), ("200".into(), b"hello".to_vec()));
    assert_eq!(curl(&["--header", &token, "--range", "1-2", &page]), ("206".into(), b"el".to_vec()));
    assert_eq!(curl(&["--header", &token, "--head", "--output", "/dev/null", &page]).0, "200");
    assert_eq!(curl(&[&page]).0, "404");
}

#[test]
fn a_huge_file_is_rejected_with_little_memory() {
    let instance = TestInstance::new();
    let (server, url) = serve(&instance);
    let token = format!("PRIVATE-TOKEN: {ROOT_TOKEN}");
    let before = server.peak_memory();
    let huge = instance.file("huge.bin", "");
    std::fs::File::options().write(true).open(&huge).and_then(|file| file.set_len(2 << 30)).expect("a sparse file");
    let field = format!("file=@{huge}");
    // With a content length, with and without `Expect: 100-continue`, and chunked.
    let asking = ["--header", "Expect: 100-continue"];
    for how in [&asking[..], &["--header", "Expect:"], &["--header", "Transfer-Encoding: chunked"]] {
        let (status, body) = curl(&[&["--header", &token, "--form", &field], how, &[&url]].concat());
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("413", r#"{"message":"413 Request Entity Too Large"}"#),
            "{how:?}"
        );
    }
    let grown = server.peak_memory() - before;
    assert!(grown < 20 << 20, "{grown} bytes more");
    assert_eq!(instance.count("SELECT count(*) FROM uploads"), 0);
    assert_eq!(files_in(&instance), 0);
}

#[test]
fn a_disconnected_client_leaves_no_files() {
    let instance = TestInstance::new();
    let (_server, url) = serve(&instance);
    let mut client = start_upload(&instance, &url);
    client.kill().and_then(|()| client.wait()).expect("curl ends");
    let start = Instant::now();
    while (files_in(&instance), instance.count("SELECT count(*) FROM uploads")) != (0, 0) {
        assert!(start.elapsed() < WAIT_TIMEOUT, "something stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn unfinished_uploads_of_a_killed_server_are_deleted_at_the_next_start() {
    let instance = TestInstance::embedded();
    let (server, url) = serve(&instance);
    let mut client = start_upload(&instance, &url);
    server.kill();
    client.wait().expect("curl ends");
    assert_eq!((files_in(&instance), instance.count("SELECT count(*) FROM uploads")), (1, 1));
    let server = instance.start();
    assert_eq!((files_in(&instance), instance.count("SELECT count(*) FROM uploads")), (0, 0));
    drop(server);
}

/// Starts a slow client, part of whose file has arrived.
fn start_upload(instance: &TestInstance, url: &str) -> Child {
    let (token, field) = (format!("PRIVATE-TOKEN: {ROOT_TOKEN}"), instance.file("slow.bin", &"x".repeat(4 << 20)));
    let field = format!("file=@{field}");
    let slowly = ["--silent", "--limit-rate", "100K", "--header", &token, "--form", &field, url];
    let client = Command::new("curl").args(slowly).spawn().expect("curl runs");
    let start = Instant::now();
    while files_in(instance) == 0 {
        assert!(start.elapsed() < WAIT_TIMEOUT, "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
    client
}

fn files_in(instance: &TestInstance) -> usize {
    let folder = instance.data().join("files/uploads").join(instance.storage_of(PROJECT));
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}
