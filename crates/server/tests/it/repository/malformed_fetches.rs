//! Malformed fetch requests: each gets a client error, or a response of git itself.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    time::Instant,
};

use serde_json::json;

use crate::{
    repository::{
        git_clients::GitServer,
        hostile_repositories::{Route, send_request},
    },
    support::{ServerProcess, TestInstance, WAIT_TIMEOUT},
};

fn line(text: &str) -> Vec<u8> {
    format!("{:04x}{text}\n", text.len() + 5).into_bytes()
}

/// Encodes lines as packets; `--` is a flush packet and `-` a delimiter packet.
pub(crate) fn body(lines: &[&str]) -> Vec<u8> {
    let packet = |text: &&str| match *text {
        "--" => b"0000".to_vec(),
        "-" => b"0001".to_vec(),
        text => line(text),
    };
    lines.iter().flat_map(packet).collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(content).expect("written");
    out.finish().expect("packed")
}

/// A named request: its body and encoding.
type Request = (&'static str, Vec<u8>, Option<&'static str>);

/// Requests that are malformed in both versions.
fn in_any_version() -> Vec<Request> {
    let long = "x".repeat(60_000);
    vec![
        ("nothing", Vec::new(), None),
        ("binary", (0..=255).cycle().take(5000).collect(), None),
        ("zeros", vec![0; 5000], None),
        ("text", b"hello".to_vec(), None),
        ("half a length", b"00".to_vec(), None),
        ("a length that is none", b"zzzzwant".to_vec(), None),
        ("a length of three", b"0003".to_vec(), None),
        ("a packet without its end", b"0032want 1".to_vec(), None),
        ("a packet that is too long", b"fff5want".to_vec(), None),
        ("only an end", body(&["--"]), None),
        ("only a seam", body(&["-"]), None),
        ("many ends", b"0000".repeat(1000), None),
        ("an end of an answer", b"0002".to_vec(), None),
        ("an unknown word", body(&["give me everything", "--"]), None),
        ("a long unknown word", body(&[&long, "--"]), None),
        ("not gzip", b"0000".to_vec(), Some("gzip")),
        ("half of a gzip", gzip(&vec![b'x'; 5000])[..20].to_vec(), Some("gzip")),
        ("a gzip and something else", [gzip(b"0000"), b"more".to_vec()].concat(), Some("gzip")),
        ("a gzip bomb", gzip(&vec![0; 80 << 20]), Some("gzip")),
        ("an unknown encoding", b"0000".to_vec(), Some("br")),
    ]
}

fn in_version_0(head: &str) -> Vec<Request> {
    let none = "1".repeat(40);
    let want = format!("want {head}");
    let request = |name, lines: &[&str]| (name, body(lines), None);
    vec![
        request("want of nothing", &["want ", "--", "done"]),
        request("want of no id", &["want main", "--", "done"]),
        request("want of half an id", &[&want[..20], "--", "done"]),
        request("want of what is not there", &[&format!("want {none}"), "--", "done"]),
        request("want without an end", &[&want]),
        request("want without done", &[&want, "--"]),
        request("have before want", &[&format!("have {head}"), &want, "--", "done"]),
        request("have of no id", &[&want, "--", "have x", "done"]),
        request("deepen of no number", &[&want, "deepen x", "--", "done"]),
        request("deepen below zero", &[&want, "deepen -1", "--", "done"]),
        request("deepen beyond all numbers", &[&want, "deepen 99999999999999999999", "--", "done"]),
        request("deepen since never", &[&want, "deepen-since never", "--", "done"]),
        request("deepen since the end of time", &[&want, "deepen-since 99999999999999999999", "--", "done"]),
        request("deepen not a ref", &[&want, "deepen-not refs/heads/none", "--", "done"]),
        request("shallow of no id", &[&want, "shallow x", "--", "done"]),
        request("shallow of what is not there", &[&want, &format!("shallow {none}"), "--", "done"]),
        request("a filter that is none", &[&format!("{want} filter"), "filter none:x", "--", "done"]),
        request("a filter of depth", &[&format!("{want} filter"), "filter tree:x", "--", "done"]),
        request("a filter of many", &[&format!("{want} filter"), "filter combine:tree:0+tree:0+x", "--", "done"]),
        request("unknown abilities", &[&format!("{want} \u{1} x=y ofs-delta"), "--", "done"]),
        request("another hash", &[&format!("{want} object-format=sha256"), "--", "done"]),
    ]
}

fn in_version_2(head: &str) -> Vec<Request> {
    let none = "1".repeat(40);
    let (want, shallow) = (format!("want {head}"), format!("shallow {head}"));
    let fetch = |name, lines: &[&str]| (name, body(&[&["command=fetch", "-"], lines, &["--"]].concat()), None);
    let request = |name, lines: &[&str]| (name, body(lines), None);
    vec![
        request("an unknown command", &["command=none", "--"]),
        request("two commands", &["command=ls-refs", "command=fetch", "--"]),
        request("no command", &["agent=git/2", "--"]),
        request("a command without an end", &["command=ls-refs"]),
        request("a command of nothing", &["command=", "--"]),
        request("an unknown ability", &["command=ls-refs", "ability=x", "-", "--"]),
        request("another hash", &["command=ls-refs", "object-format=sha256", "-", "--"]),
        request("an unknown argument of ls-refs", &["command=ls-refs", "-", "none", "--"]),
        fetch("nothing is wanted", &["done"]),
        fetch("want of no id", &["want main", "done"]),
        fetch("want of what is not there", &[&format!("want {none}"), "done"]),
        fetch("want of a ref that is not there", &["want-ref refs/heads/none", "done"]),
        fetch("have of no id", &[&want, "have x", "done"]),
        fetch("deepen of no number", &[&want, "deepen x", "done"]),
        fetch("deepen below zero", &[&want, "deepen -1", "done"]),
        fetch("deepen beyond all numbers", &[&want, "deepen 99999999999999999999", "done"]),
        fetch("deepen since never", &[&want, "deepen-since never", "done"]),
        fetch("deepen not a ref", &[&want, "deepen-not refs/heads/none", "done"]),
        fetch("deepen in two ways", &[&want, "deepen 1", "deepen-since 1", "done"]),
        fetch("shallow of no id", &[&want, "shallow x", "done"]),
        fetch("more shallow commits than anybody has", &[&[&*want][..], &vec![&*shallow; 10_001], &["done"]].concat()),
        fetch("a filter that is none", &[&want, "filter none:x", "done"]),
        fetch("a filter of too much", &[&want, "filter blob:limit=99999999999999999999", "done"]),
        fetch("an unknown argument", &[&want, "none", "done"]),
        fetch("object-info", &["size", &format!("oid {head}")]),
    ]
}

fn project(server: &ServerProcess) -> String {
    let root = server.root();
    let made = root.post("/api/v3/projects", &json!({ "name": "target", "visibility_level": 20 }));
    let id = made.json()["id"].as_i64().expect("a number");
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x\n", "commit_message": "first" });
    assert_eq!(root.post(&format!("/api/v3/projects/{id}/repository/files"), &file).status, 201);
    let branch = root.get(&format!("/api/v3/projects/{id}/repository/branches/master"));
    branch.json()["commit"]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn no_malformed_fetch_causes_a_server_error() {
    let instance = TestInstance::embedded();
    let server = instance.start();
    let head = project(&server);
    let mut table = String::new();
    let mut failures = String::new();
    let versions = [("version=0", in_version_0(&head)), ("version=2", in_version_2(&head))];
    for (version, requests) in versions {
        for (name, content, encoding) in in_any_version().into_iter().chain(requests) {
            let route = Route {
                name,
                path: "/root/target.git/git-upload-pack".into(),
                body: Some(("application/x-git-upload-pack-request", content)),
                version: Some(version),
                encoding,
            };
            let (status, answer) =
                send_request(server.address(), &route).unwrap_or_else(|error| panic!("{name}: {error}"));
            let answer = String::from_utf8_lossy(&answer);
            let answer = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let excerpt: String = answer.chars().take(120).map(|c| if c.is_control() { ' ' } else { c }).collect();
            let _ = writeln!(table, "{version} | {name} | {status} | {excerpt}");
            if !(status == 200 || (400..500).contains(&status)) {
                let _ = writeln!(failures, "{version} | {name} | {status} | {excerpt}");
            }
        }
    }
    eprintln!("{table}");
    assert_eq!(failures, "", "{}", server.stderr());
    let many = table.lines().find(|line| line.contains("more shallow commits than anybody has")).expect("a row");
    assert!(many.contains("too many shallow commits"), "{many}");
    let log = server.stderr();
    assert!(!log.contains("ERROR") && !log.contains(" WARN"), "{log}");
    assert_eq!(server.root().get("/api/v3/projects/root%2Ftarget").status, 200, "it still answers");
}

#[test]
fn a_malformed_fetch_over_ssh_gets_an_error_and_no_server_error() {
    let setup = GitServer::start();
    let (ann, head) = (setup.person("ann"), project(&setup.server));
    let requests = in_any_version().into_iter().filter(|(_, _, encoding)| encoding.is_none());
    for (name, content, _) in requests.chain(in_version_2(&head)) {
        let (start, mut client) = (Instant::now(), setup.upload_pack(&ann, "root/target"));
        // The server may have refused the request before its end.
        let _ = client.stdin.take().expect("a pipe").write_all(&content);
        let ended = client.wait_with_output().expect("ssh ends");
        let output = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        match ended.status.code() {
            Some(0) => assert!(!output.contains("ERR "), "{name}: {output}"),
            Some(128) => assert!(output.contains("ERR "), "{name}: {output}"),
            other => panic!("{name}: {other:?}: {output}"),
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "{name}: {output}");
    }
    let log = setup.server.stop().stderr;
    assert!(!log.contains("ERROR") && !log.contains(" WARN"), "{log}");
}

#[test]
fn an_error_over_ssh_ends_the_connection_even_if_the_client_does_not() {
    let setup = GitServer::start();
    let (ann, head) = (setup.person("ann"), project(&setup.server));
    let none = format!("want {}", "1".repeat(40));
    let malformed = "ERR upload-pack: protocol error";
    let refs = body(&["command=ls-refs", "--"]);
    for (content, expected) in [
        (b"zzzz".to_vec(), malformed),
        (b"0003".to_vec(), malformed),
        (b"fff5".to_vec(), malformed),
        ([refs.clone(), b"zzzz".to_vec()].concat(), malformed),
        ([line("command=fetch"), b"zzzz".to_vec()].concat(), malformed),
        (b"0002".to_vec(), "ERR upload-pack: "),
        (body(&["command=none", "--"]), "ERR unknown command"),
        (body(&["command=fetch", "-", &none, "done", "--"]), "ERR upload-pack: not our ref"),
        // A response, and then a flush packet instead of a request.
        ([refs, b"0000".to_vec()].concat(), &format!("{head} refs/heads/master")),
    ] {
        let (start, mut client) = (Instant::now(), setup.upload_pack(&ann, "root/target"));
        let mut input = client.stdin.take().expect("a pipe");
        input.write_all(&content).expect("sent");
        let mut output = String::new();
        client.stdout.take().expect("a pipe").read_to_string(&mut output).expect("text");
        let request = String::from_utf8_lossy(&content);
        assert!(output.contains(expected), "{request}: {output}");
        let status = if expected.starts_with("ERR ") { 128 } else { 0 };
        assert_eq!(client.wait().expect("ssh ends").code(), Some(status), "{request}: {output}");
        assert!(start.elapsed() < WAIT_TIMEOUT, "{request}: {output}");
        drop(input);
    }
}
