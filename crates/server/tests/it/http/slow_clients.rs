//! Clients that send or read slowly, or send oversized headers.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT};

/// Starts a server with a client timeout of four seconds: long enough for an active client on a busy machine.
fn start_with_short_timeout() -> (TestInstance, ServerProcess) {
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--client-timeout-seconds", "4"]).with_root_credentials().start();
    (instance, server)
}

fn connect(server: &ServerProcess) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("connected");
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).expect("set");
    stream
}

/// The size of the large file in bytes.
const LARGE: usize = 8 << 20;

/// Uploads a large file and returns its path.
fn large_file(server: &ServerProcess) -> String {
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": "x" })).json()["id"].clone();
    let path = format!("/api/v3/projects/{project}/uploads");
    let url = root.try_upload(&path, "large.txt", &"x".repeat(LARGE)).expect("uploaded").json()["url"].clone();
    format!("/root/x{}", url.as_str().expect("a path"))
}

/// Reads until the server closes the connection.
fn read_all(mut stream: &TcpStream) -> String {
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server does not close the connection"),
    }
    String::from_utf8_lossy(&received).into_owned()
}

/// Sends a byte repeatedly until the server responds or closes the connection; returns the response.
fn trickle(stream: &TcpStream, byte: &[u8]) -> String {
    let start = Instant::now();
    while (&mut &*stream).write_all(byte).is_ok() {
        assert!(start.elapsed() < WAIT_TIMEOUT, "the server waits forever");
        thread::sleep(Duration::from_millis(20));
        let mut seen = [0; 1];
        stream.set_nonblocking(true).expect("set");
        let answered = stream.peek(&mut seen).is_ok();
        stream.set_nonblocking(false).expect("set");
        if answered {
            break;
        }
    }
    read_all(stream)
}

#[test]
fn a_client_without_a_complete_request_is_disconnected() {
    let (_home, server) = start_with_short_timeout();
    let silent = connect(&server);
    assert_eq!(read_all(&silent), "");
    let half = connect(&server);
    (&half).write_all(b"GET /-/health HTTP/1.1\r\nHost: x\r\nX-Long: ").expect("sent");
    assert_eq!(trickle(&half, b"x"), "");
    assert_eq!(server.anonymous().get("/-/health").text, "ok\n");
}

#[test]
fn an_idle_connection_is_closed() {
    let (_home, server) = start_with_short_timeout();
    let idle = connect(&server);
    (&idle).write_all(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let received = read_all(&idle);
    assert!(received.starts_with("HTTP/1.1 200 OK") && received.ends_with("\r\n\r\nok\n"), "{received}");
}

#[test]
fn a_body_that_trickles_times_out() {
    let (_home, server) = start_with_short_timeout();
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
fn a_client_that_does_not_read_the_response_is_disconnected() {
    let (_home, server) = start_with_short_timeout();
    let url = large_file(&server);
    let stream = connect(&server);
    let request = format!("GET {url} HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\n\r\n");
    // More than the socket buffers hold.
    (&stream).write_all(request.repeat(20).as_bytes()).expect("sent");
    let start = Instant::now();
    while !server.anonymous().get("/-/metrics").text.contains("gable_slow_clients_total{direction=\"out\"} 1") {
        assert!(start.elapsed() < WAIT_TIMEOUT, "the server waits forever");
        // Reading a byte now and then does not count as progress.
        let _ = (&stream).read(&mut [0; 1]);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_slow_but_steady_reader_gets_the_whole_response() {
    let (_home, server) = start_with_short_timeout();
    let url = large_file(&server);
    let mut stream = connect(&server);
    write!(stream, "GET {url} HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\nConnection: close\r\n\r\n")
        .expect("sent");
    // For longer than the client timeout; the socket buffers alone would take megabytes.
    let (mut received, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_secs(10) {
        received += stream.read(&mut [0; 5_000]).expect("the server keeps sending");
        thread::sleep(Duration::from_millis(50));
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    assert!(received + rest.len() > LARGE, "{received} and {} of {LARGE}", rest.len());
}

#[test]
fn request_heads_are_limited_in_size() {
    let (_home, server) = start_with_short_timeout();
    let answer = |head: String| {
        let stream = connect(&server);
        // The server may respond before everything is sent.
        let _ = (&stream).write_all(head.as_bytes());
        read_all(&stream).lines().next().unwrap_or_default().to_owned()
    };
    let repeated = |count: usize| "x".repeat(count);
    let headers = |count: usize| "X-Short: y\r\n".repeat(count);
    let request =
        |path: &str, headers: &str| format!("GET /{path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
    assert_eq!(answer(request("-/health", &headers(50))), "HTTP/1.1 200 OK");
    assert_eq!(answer(request("-/health", &headers(200))), "HTTP/1.1 431 Request Header Fields Too Large");
    let large = format!("X-Large: {}\r\n", repeated(100_000));
    // Unread data may discard the response when the connection is closed.
    let received = answer(request("-/health", &large));
    assert!(["", "HTTP/1.1 431 Request Header Fields Too Large"].contains(&received.as_str()), "{received}");
    assert_eq!(answer(request(&repeated(20_000), "")), "HTTP/1.1 414 URI Too Long");
}
