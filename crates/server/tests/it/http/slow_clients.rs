//! Clients that keep the server waiting, or say more than anybody listens to.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::admin::binary::{Home, PATIENCE, ROOT_TOKEN, Server};

/// A server that waits for four seconds: long enough for a client that means it, however busy the machine is.
fn hasty() -> (Home, Server) {
    let home = Home::new();
    let server = home.serve().args(&["--client-timeout-seconds", "4"]).with_known_root().start();
    (home, server)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// How many bytes a large file has.
const LARGE: usize = 8 << 20;

/// The path of a large file.
fn large_file(server: &Server) -> String {
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": "x" })).json()["id"].clone();
    let path = format!("/api/v3/projects/{project}/uploads");
    let url = root.try_upload(&path, "large.txt", &"x".repeat(LARGE)).expect("uploaded").json()["url"].clone();
    format!("/root/x{}", url.as_str().expect("a path"))
}

/// Everything until the server closes the connection.
fn hear(mut stream: &TcpStream) -> String {
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server does not close"),
    }
    String::from_utf8_lossy(&heard).into_owned()
}

/// Sends a byte again and again until the server has had enough; answers what it said.
fn trickle(stream: &TcpStream, byte: &[u8]) -> String {
    let start = Instant::now();
    while (&mut &*stream).write_all(byte).is_ok() {
        assert!(start.elapsed() < PATIENCE, "the server waits for ever");
        thread::sleep(Duration::from_millis(20));
        let mut seen = [0; 1];
        stream.set_nonblocking(true).expect("set");
        let answered = stream.peek(&mut seen).is_ok();
        stream.set_nonblocking(false).expect("set");
        if answered {
            break;
        }
    }
    hear(stream)
}

#[test]
fn who_brings_no_request_is_let_go_of() {
    let (_home, server) = hasty();
    let silent = connect(&server);
    assert_eq!(hear(&silent), "");
    let half = connect(&server);
    (&half).write_all(b"GET /-/health HTTP/1.1\r\nHost: x\r\nX-Long: ").expect("sent");
    assert_eq!(trickle(&half, b"x"), "");
    assert_eq!(server.anonymous().get("/-/health").text, "ok\n");
}

#[test]
fn who_keeps_a_connection_open_for_nothing_is_let_go_of() {
    let (_home, server) = hasty();
    let idle = connect(&server);
    (&idle).write_all(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let heard = hear(&idle);
    assert!(heard.starts_with("HTTP/1.1 200 OK") && heard.ends_with("\r\n\r\nok\n"), "{heard}");
}

#[test]
fn a_body_that_trickles_for_ever_comes_to_an_end() {
    let (_home, server) = hasty();
    let stream = connect(&server);
    let head = format!(
        "POST /api/v3/projects HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n"
    );
    (&stream).write_all(head.as_bytes()).expect("sent");
    let answer = trickle(&stream, b" ");
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
    assert!(answer.contains("{\"message\":\"408 Request Timeout\"}"), "{answer}");
    assert!(server.anonymous().get("/-/metrics").text.contains("gable_slow_clients_total{direction=\"in\"} 1"));
}

#[test]
fn who_takes_nothing_of_an_answer_is_let_go_of() {
    let (_home, server) = hasty();
    let url = large_file(&server);
    let stream = connect(&server);
    let request = format!("GET {url} HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\n\r\n");
    // More than the machine keeps on the way.
    (&stream).write_all(request.repeat(20).as_bytes()).expect("sent");
    let start = Instant::now();
    while !server.anonymous().get("/-/metrics").text.contains("gable_slow_clients_total{direction=\"out\"} 1") {
        assert!(start.elapsed() < PATIENCE, "the server waits for ever");
        // A little is taken now and then, which does not help.
        let _ = (&stream).read(&mut [0; 1]);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_reads_slowly_but_steadily_gets_everything() {
    let (_home, server) = hasty();
    let url = large_file(&server);
    let mut stream = connect(&server);
    write!(stream, "GET {url} HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\nConnection: close\r\n\r\n")
        .expect("sent");
    // For longer than the server waits for somebody who takes nothing; the system itself would take megabytes ahead.
    let (mut heard, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_secs(10) {
        heard += stream.read(&mut [0; 5_000]).expect("the server goes on");
        thread::sleep(Duration::from_millis(50));
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    assert!(heard + rest.len() > LARGE, "{heard} and {} of {LARGE}", rest.len());
}

#[test]
fn heads_have_an_end() {
    let (_home, server) = hasty();
    let answer = |head: String| {
        let stream = connect(&server);
        // The server may have heard enough before all is said.
        let _ = (&stream).write_all(head.as_bytes());
        hear(&stream).lines().next().unwrap_or_default().to_owned()
    };
    let long = |count: usize| "x".repeat(count);
    let many = |count: usize| "X-Short: y\r\n".repeat(count);
    let asked =
        |path: &str, headers: &str| format!("GET /{path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
    assert_eq!(answer(asked("-/health", &many(50))), "HTTP/1.1 200 OK");
    assert_eq!(answer(asked("-/health", &many(200))), "HTTP/1.1 431 Request Header Fields Too Large");
    let large = format!("X-Large: {}\r\n", long(100_000));
    // What was not listened to may take the answer along when the connection is closed.
    let heard = answer(asked("-/health", &large));
    assert!(["", "HTTP/1.1 431 Request Header Fields Too Large"].contains(&heard.as_str()), "{heard}");
    assert_eq!(answer(asked(&long(20_000), "")), "HTTP/1.1 414 URI Too Long");
}
