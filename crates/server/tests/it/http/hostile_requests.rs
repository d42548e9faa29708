//! Requests designed to exhaust memory: bodies with very many values, very large ones, and many concurrent ones.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use api::LimitOptions;
use axum::{
    body::{Body, Bytes},
    extract::ConnectInfo,
    http::{Method, header},
};
use futures_util::{StreamExt as _, stream};
use model::JobId;
use serde_json::json;
use testkit::TestForge;
use tokio::sync::oneshot;

use crate::{
    ci::traces::{JobFixture, ONE_JOB},
    repository::hostile_repositories::{Route, send_request, start_limited},
    support::{ServerProcess, TestInstance},
};

const JOB: JobId = JobId::new(1);

/// The maximum memory of the server, in bytes.
const MAX_MEMORY: u64 = 300 << 20;
/// The number of concurrent clients.
const CLIENTS: usize = 16;
/// The maximum time of a response; generous, because the machine may be busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// Nearly as large as the largest body that any route reads.
const LARGE: usize = 31 << 20;

/// A request with a body.
struct HostileRequest {
    name: &'static str,
    request_line: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

fn hostile_requests() -> Vec<HostileRequest> {
    const UPDATE: &str = "PUT /ci/api/v1/builds/1";
    const JSON: &str = "application/json";
    const PARTS: &str = "multipart/form-data; boundary=b";
    let json = |name, request_line, body: String| HostileRequest {
        name,
        request_line,
        content_type: JSON,
        body: body.into_bytes(),
    };
    let list =
        |item: &str, size: usize| format!("{{\"a\":[{}{item}]}}", format!("{item},").repeat(size / (item.len() + 1)));
    let part = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
    vec![
        json("many numbers", UPDATE, list("0", LARGE)),
        json("many numbers for a job", "PUT /api/v4/jobs/1", list("0", LARGE)),
        json("many empty lists", UPDATE, list("[]", LARGE)),
        json("many empty objects", UPDATE, list("{}", LARGE)),
        json("many fields", UPDATE, format!("{{{}\"b\":0}}", "\"a\":0,".repeat(LARGE / 6))),
        json("a long text", UPDATE, format!("{{\"token\":\"x\",\"trace\":\"{}\"}}", "x".repeat(LARGE))),
        json("a text of escapes", UPDATE, format!("{{\"trace\":\"{}\"}}", "\\n".repeat(LARGE / 2))),
        json("a sign-in with many numbers", "POST /api/v3/session", list("0", 1_000_000)),
        json("a small sign-in with many numbers", "POST /api/v3/session", list("0", 30_000)),
        HostileRequest {
            name: "a form with many fields",
            request_line: UPDATE,
            content_type: "",
            body: b"a&".repeat(LARGE / 2),
        },
        HostileRequest {
            name: "a form with a long field",
            request_line: UPDATE,
            content_type: "",
            body: b"%61+".repeat(LARGE / 4),
        },
        HostileRequest {
            name: "many parts",
            request_line: UPDATE,
            content_type: PARTS,
            body: part.repeat(LARGE / part.len()).into_bytes(),
        },
        HostileRequest {
            name: "many parts without a name",
            request_line: UPDATE,
            content_type: PARTS,
            body: "--b\r\n\r\n\r\n".repeat(LARGE / 9).into_bytes(),
        },
        HostileRequest {
            name: "many parts before a file",
            request_line: "POST /api/v4/jobs/1/artifacts",
            content_type: PARTS,
            body: part.repeat(LARGE / part.len()).into_bytes(),
        },
        HostileRequest {
            name: "a part of a trace",
            request_line: "PATCH /api/v4/jobs/1/trace",
            content_type: "",
            body: vec![b'x'; 8 << 20],
        },
    ]
}

/// The outcome of a client whose connection was closed.
const CLOSED: &str = "closed";

/// Sends an anonymous request; returns the status and the body.
fn send(address: &str, request: &HostileRequest) -> Result<(u16, String), std::io::Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut head = format!("{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", request.request_line);
    if !request.content_type.is_empty() {
        let _ = write!(head, "Content-Type: {}\r\n", request.content_type);
    }
    let _ = write!(head, "Content-Length: {}\r\n\r\n", request.body.len());
    stream.write_all(head.as_bytes())?;
    // A client that is refused early may find the connection closed.
    let _ = stream.write_all(&request.body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.get(9..12).and_then(|digits| digits.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    status.map(|status| (status, body)).ok_or_else(|| std::io::Error::other(format!("no status: {answer}")))
}

/// Sends the same request from many clients concurrently; returns how often each outcome occurred.
fn send_concurrently(server: &ServerProcess, request: &HostileRequest) -> BTreeMap<String, usize> {
    let mut outcomes = BTreeMap::new();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| send(server.address(), request))).collect();
        for client in clients {
            let answer = client.join().expect("a client does not panic");
            let text = match answer {
                Ok((status, _)) => status.to_string(),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => CLOSED.to_owned(),
                Err(error) => error.to_string(),
            };
            *outcomes.entry(text).or_default() += 1;
        }
    });
    outcomes
}

#[test]
fn no_request_body_exhausts_the_memory_of_the_server() {
    let instance = TestInstance::embedded();
    let server = start_limited(&instance);
    let mut failures = Vec::new();
    for request in hostile_requests() {
        let outcomes = send_concurrently(&server, &request);
        let peak = server.peak_memory();
        eprintln!("{} | {outcomes:?} | {} MB", request.name, peak >> 20);
        // On a slow machine a body may not arrive in time, or the connection may be closed while it is sent.
        let is_refused = |outcome: &str| matches!(outcome, "408" | "429" | "503") || outcome.starts_with(CLOSED);
        let is_answered =
            outcomes.keys().all(|status| matches!(&**status, "400" | "403" | "404" | "413") || is_refused(status));
        // Some are within the budget of a client and are processed.
        let is_served = outcomes.keys().any(|status| matches!(&**status, "400" | "403" | "404" | "413"));
        if !is_answered || !is_served || peak > MAX_MEMORY {
            failures.push(format!("{} | {outcomes:?} | {} MB", request.name, peak >> 20));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(server.root().get("/api/v3/version").status, 200, "other requests are served");
}

#[tokio::test]
async fn a_json_body_has_a_bounded_number_of_values() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_eq!(ann.make("/projects", json!({ "name": "x" })).await, 1);
    let with = |count: usize| json!({ "title": "x", "other": vec![0; count] });
    // The title and the list itself count as values.
    assert_eq!(ann.post("/projects/1/issues", with(19_998)).await.code(), 201);
    let refused = ann.post("/projects/1/issues", with(19_999)).await;
    let expected = json!({ "error": "too many values in the request body; the limit is 20000" });
    assert_eq!((refused.code(), refused.json()), (400, expected));
    // A commit with several hundred files is within the limit.
    let actions: Vec<_> = (0..900)
        .map(|number| json!({ "action": "create", "file_path": format!("f{number}"), "content": "x".repeat(500) }))
        .collect();
    let commit = json!({ "branch_name": "master", "commit_message": "many files", "actions": actions });
    let made = ann.post("/projects/1/repository/commits", commit).await;
    assert_eq!(made.code(), 201, "{made}");
}

/// Returns a body that never ends; the receiver is notified when the server has read its first part and requests more.
fn stalled_body(first: usize) -> (Body, oneshot::Receiver<()>) {
    let (requested_more, wants_more) = oneshot::channel();
    let first = Bytes::from(vec![b'x'; first]);
    let rest = stream::once(async move {
        let _ = requested_more.send(());
        std::future::pending::<Result<Bytes, std::io::Error>>().await
    });
    (Body::from_stream(stream::iter([Ok(first)]).chain(rest)), wants_more)
}

#[tokio::test]
async fn a_part_of_a_trace_is_not_read_before_its_token_is_checked() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    for (headers, code) in
        [(vec![("content-range", "0-100000")], 403), (vec![("content-range", "0-100000"), ("job-token", "wrong")], 403)]
    {
        for path in ["/api/v4/jobs/1/trace", "/ci/api/v1/builds/1/trace.txt"] {
            // Waiting for the end of the body would time out with 408.
            let answer = fixture.call(Method::PATCH, path, &headers, stalled_body(10).0).await;
            assert_eq!(answer.code(), code, "{path} {headers:?} {answer}");
        }
    }
    let answer =
        fixture.call(Method::PATCH, "/api/v4/jobs/99/trace", &[("job-token", &token)], stalled_body(10).0).await;
    assert_eq!(answer.code(), 404, "{answer}");
    // With a valid token it is accepted.
    assert_eq!(fixture.append_trace(JOB, &token, 0, &"x".repeat(100_000)).await.header("range"), "0-100000");
}

#[tokio::test]
async fn unauthenticated_clients_share_a_budget_for_large_bodies() {
    const ADDRESSES: [&str; 2] = ["192.0.2.1", "198.51.100.1"];
    let limit_options = LimitOptions { max_wait: Duration::from_millis(50), ..LimitOptions::default() };
    let fixture = JobFixture::start_on(TestForge::builder().limit_options(limit_options).start().await, ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let send = |address: &str, path: &str, headers: &[(&str, &str)], body: Body| {
        let peer = SocketAddr::new(address.parse().expect("an address"), 4321);
        let request = fixture.anyone.request(Method::PUT, path).extension(ConnectInfo(peer));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let client = fixture.anyone.clone();
        async move { client.send(request, body).await }
    };
    let large = || Body::from(json!({ "state": "running", "trace": "x".repeat(100_000) }).to_string());
    // One client announces the maximum size and does not send it.
    let (body, was_requested) = stalled_body(100_000);
    let stalled = tokio::spawn(send(ADDRESSES[0], "/api/v4/jobs/1", &[], body));
    was_requested.await.expect("read");
    let refused = send(ADDRESSES[0], "/api/v4/jobs/1", &[], large()).await;
    assert_eq!((refused.code(), refused.text.as_str()), (429, "Retry later\n"));
    // Another client has only the rest of the budget.
    let answer = send(ADDRESSES[1], "/api/v4/jobs/1", &[], large()).await;
    assert_eq!(answer.code(), 403, "{answer}");
    let (body, _) = stalled_body(100_000);
    let refused = send(ADDRESSES[1], "/api/v4/jobs/1", &[], body).await;
    assert_eq!((refused.code(), refused.header("retry-after")), (503, "1"));
    // Clients that authenticate before the body, and small bodies, are not affected.
    let answer = send(ADDRESSES[0], "/api/v4/jobs/1", &[("job-token", &token)], large()).await;
    assert_eq!(answer.code(), 200, "{answer}");
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "running" })).await.code(), 200);
    let made = fixture.ann.post("/projects/1/issues", json!({ "title": "x", "description": "x".repeat(90_000) })).await;
    assert_eq!(made.code(), 201, "{made}");
    // The reservation is released when the client disconnects.
    stalled.abort();
    assert!(stalled.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(send(ADDRESSES[0], "/api/v4/jobs/1", &[], large()).await.code(), 403);
}

#[test]
fn concurrent_lists_of_long_texts_are_bounded_in_memory() {
    const ITEMS: usize = 40;
    let instance = TestInstance::embedded();
    let server = start_limited(&instance);
    let root = server.root();
    let made = root.post("/api/v3/projects", &json!({ "name": "long", "visibility_level": 20 }));
    assert_eq!(made.status, 201, "{}", made.text);
    let api = format!("/api/v3/projects/{}", made.json()["id"]);
    // The maximum text: each character takes four bytes.
    let text = "\u{1f600}".repeat(100_000);
    let mut issue = json!(null);
    for number in 0..ITEMS {
        let made = root.post(&format!("{api}/issues"), &json!({ "title": format!("{number}"), "description": text }));
        assert_eq!(made.status, 201);
        issue = made.json()["id"].clone();
    }
    let notes = format!("{api}/issues/{issue}/notes");
    for _ in 0..ITEMS {
        assert_eq!(root.post(&notes, &json!({ "body": text })).status, 201);
    }
    for path in [format!("{api}/issues?per_page=100"), format!("{notes}?per_page=100")] {
        let route = Route { name: "list", path: path.clone(), body: None, version: None, encoding: None };
        thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|_| scope.spawn(|| send_request(server.address(), &route))).collect();
            let mut answered = 0;
            for client in clients {
                // On a slow machine some may time out waiting for a permit.
                let (status, _) = client.join().expect("a client does not panic").expect("an answer");
                assert!(matches!(status, 200 | 429), "{status} {path}");
                answered += usize::from(status == 200);
            }
            assert!(answered > 0, "every client was refused: {path}");
        });
        let peak = server.peak_memory();
        eprintln!("{path} | {} MB", peak >> 20);
        assert!(peak < MAX_MEMORY, "{} MB after {path}", peak >> 20);
    }
    // A single client gets the whole page.
    let whole = root.get(&format!("{notes}?per_page=20"));
    assert_eq!(whole.status, 200);
    let whole = whole.json();
    let bodies: Vec<usize> =
        whole.as_array().expect("a list").iter().filter_map(|note| note["body"].as_str().map(str::len)).collect();
    assert_eq!(bodies, vec![text.len(); 20]);
}
