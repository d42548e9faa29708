//! Requests to a complete forge by clients that misbehave in ways that stock git does not.

use std::{fs, io::Write as _, net::SocketAddr, num::NonZeroU32, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{Request, StatusCode, header},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use files::spool::Spools;
use flate2::{Compression, write::GzEncoder};
use futures_util::stream;
use http_body_util::BodyExt as _;
use model::{Oid, ProjectId};
use serde_json::json;
use tempfile::TempDir;
use testkit::{TestClient, TestForge, repository};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use crate::{
    TransferLimits, Transfers,
    http::GitHttp,
    pkt,
    ssh::{self, host_key},
};

const SCRIPT: &str = "\
commit refs/heads/main
committer Ann <ann@example.com> 1422824191 +0100
data 6
First

M 100644 inline README
data 6
hello

";

struct TestServer {
    test: TestForge,
    ann: TestClient,
    project: ProjectId,
    git: GitHttp,
    transfers: Transfers,
    spools: TempDir,
}

impl TestServer {
    async fn start() -> Self {
        let test = TestForge::start().await;
        let ann = test.user("ann").await;
        let project = ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
        let project = ProjectId::new(project);
        let spools = tempfile::tempdir().expect("a folder");
        let cache = Spools::open(spools.path(), 1 << 20).expect("spools");
        let transfers = Transfers::new(
            test.forge.clone(),
            cache,
            TransferLimits { max_pack_bytes: Some(1 << 20), ..TransferLimits::default() },
        );
        let git = GitHttp::new(transfers.clone(), NonZeroU32::new(3));
        Self { test, ann, project, git, transfers, spools }
    }

    async fn post(
        &self,
        service: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> (StatusCode, Result<Bytes, axum::Error>) {
        let kind = format!("application/x-git-{service}-request");
        let mut request = Request::post(format!("/ann/rocket.git/git-{service}")).header(header::CONTENT_TYPE, kind);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.git.handle(request.body(body).expect("a request")).await;
        (response.status(), response.into_body().collect().await.map(|body| body.to_bytes()))
    }

    async fn push(&self, body: Body, headers: &[(&str, &str)]) -> String {
        let token = self.ann.token.as_deref().expect("a token");
        let basic = format!("Basic {}", STANDARD.encode(format!("ann:{token}")));
        let headers: Vec<_> = [("authorization", basic.as_str())].iter().chain(headers).copied().collect();
        let (status, body) = self.post("receive-pack", &headers, body).await;
        assert_eq!(status, StatusCode::OK);
        String::from_utf8_lossy(&body.expect("an answer")).into_owned()
    }

    async fn clone(&self, want: &str) -> Bytes {
        let mut body = Vec::new();
        pkt::line(&mut body, format_args!("command=fetch"));
        pkt::delimiter(&mut body);
        pkt::line(&mut body, format_args!("no-progress"));
        pkt::line(&mut body, format_args!("want {want}"));
        pkt::line(&mut body, format_args!("done"));
        pkt::flush(&mut body);
        let (status, body) = self.post("upload-pack", &[("git-protocol", "version=2")], body.into()).await;
        assert_eq!(status, StatusCode::OK);
        body.expect("a pack")
    }

    /// Returns the number of cached responses.
    fn cached_responses(&self) -> usize {
        fs::read_dir(self.spools.path()).expect("a folder").count()
    }
}

/// Returns the complete request of a push that creates `main`, and its commit.
fn push_request() -> (Vec<u8>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let git = |arguments: &[&str], input: &[u8]| repository::git(folder.path(), arguments, input).stdout;
    git(&["init", "-q", "--bare", "."], b"");
    git(&["fast-import", "--quiet"], SCRIPT.as_bytes());
    let commit = String::from_utf8(git(&["rev-parse", "refs/heads/main"], b"")).expect("text").trim().to_owned();
    let mut request = Vec::new();
    let capabilities = "report-status side-band-64k object-format=sha1";
    pkt::data(&mut request, format!("{} {commit} refs/heads/main\0{capabilities}", Oid::ZERO).as_bytes());
    pkt::flush(&mut request);
    request.extend(git(&["pack-objects", "--all", "--stdout", "-q"], b""));
    (request, commit)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_at_any_byte_changes_nothing() {
    let server = TestServer::start().await;
    let (complete, commit) = push_request();
    for length in (0..complete.len()).step_by(7).chain([complete.len() - 1]) {
        // Once as a premature end of input, once as a broken connection.
        let _ = server.push(complete[..length].to_vec().into(), &[]).await;
        let chunks = [Ok(Bytes::copy_from_slice(&complete[..length])), Err(std::io::Error::other("broken"))];
        let token = server.ann.token.as_deref().expect("a token");
        let basic = format!("Basic {}", STANDARD.encode(format!("{token}:")));
        let broken = Body::from_stream(stream::iter(chunks));
        let _ = server.post("receive-pack", &[("authorization", &basic)], broken).await;
        assert_eq!(server.test.refs_of(server.project), [], "after {length} bytes");
    }
    let report = server.push(complete.into(), &[]).await;
    let repository = server.test.repository_folder(server.project).await.expect("a repository");
    let quarantines = repository.ancestors().nth(3).expect("all repositories").join("tmp");
    assert_eq!(report, "002e\x01000eunpack ok\n0017ok refs/heads/main\n00000000");
    assert_eq!(server.test.refs_of(server.project), [("refs/heads/main".to_owned(), commit)]);
    // A quarantine is removed once its index-pack has exited.
    let emptied = async {
        while fs::read_dir(&quarantines).expect("a folder").count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), emptied).await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_or_oversized_pack_is_reported_in_one_line() {
    let server = TestServer::start().await;
    let (mut corrupt, _) = push_request();
    let last = corrupt.len() - 1;
    corrupt[last] ^= 1;
    let report = server.push(corrupt.into(), &[]).await;
    assert!(report.contains("Gable: pack is corrupted (SHA1 mismatch)\n"), "{report}");
    assert!(report.contains("unpack pack is corrupted (SHA1 mismatch)\n"), "{report}");
    assert!(report.contains("ng refs/heads/main unpacker error\n"), "{report}");
    let (mut large, _) = push_request();
    large.truncate(large.iter().position(|byte| *byte == b'P').expect("a pack") + 12);
    large.extend(vec![0x31; 3 << 20]);
    let report = server.push(large.into(), &[]).await;
    assert!(report.contains("ng refs/heads/main unpacker error\n"), "{report}");
    assert_eq!(server.test.refs_of(server.project), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_may_come_as_gzip() {
    let server = TestServer::start().await;
    let (complete, commit) = push_request();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&complete).expect("packed");
    let packed = encoder.finish().expect("packed");
    let report = server.push(packed.into(), &[("content-encoding", "gzip")]).await;
    assert!(report.contains("ok refs/heads/main\n"), "{report}");
    assert_eq!(server.test.refs_of(server.project), [("refs/heads/main".to_owned(), commit)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_is_cached_until_a_ref_changes() {
    let server = TestServer::start().await;
    let (complete, commit) = push_request();
    server.push(complete.into(), &[]).await;
    let (one, two) = tokio::join!(server.clone(&commit), server.clone(&commit));
    assert!(one.starts_with(b"000dpackfile\n") && one == two);
    assert_eq!(server.clone(&commit).await, one);
    assert_eq!(server.cached_responses(), 1);
    let second =
        format!("{SCRIPT}commit refs/heads/other\ncommitter Bob <bob@example.com> 1422824191 +0100\ndata 0\n\n");
    server.test.fast_import(&server.ann, server.project, &second).await;
    assert!(server.clone(&commit).await.starts_with(b"000dpackfile\n"));
    assert_eq!(server.cached_responses(), 2);
    // A request for other objects goes to upload-pack and is not cached.
    let blob = "ce013625030ba8dba906f756967f9e9ca394464a";
    server.clone(blob).await;
    assert_eq!(server.cached_responses(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failed_sign_ins_count() {
    let server = TestServer::start().await;
    let refs = async |password: &str| {
        let basic = format!("Basic {}", STANDARD.encode(format!("ann:{password}")));
        let request = Request::get("/ann/rocket/info/refs?service=git-upload-pack").header("authorization", basic);
        server.git.handle(request.body(Body::empty()).expect("a request")).await.status().as_u16()
    };
    for _ in 0..10 {
        assert_eq!(refs(testkit::PASSWORD).await, 200);
    }
    for expected in [401, 401, 401, 401, 429] {
        assert_eq!(refs("wrong").await, expected);
    }
    assert_eq!(refs(testkit::PASSWORD).await, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_handshake_is_aborted_and_releases_its_permit() {
    let server = TestServer::start().await;
    let host_key = host_key::load_or_create(&server.spools.path().join("host-key")).expect("a key");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let connection_limits = ssh::ConnectionLimits { total: 10, unauthenticated: 10, unauthenticated_per_address: 1 };
    let options =
        ssh::Options { connection_limits, handshake_timeout: Duration::from_secs(1), ..ssh::Options::default() };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(ssh::serve(listener, host_key, server.transfers.clone(), options, async {
        let _ = stopped.await;
    }));
    let mut greeting = [0; 15];
    for sent in [&b""[..], b"SSH-2.0-slow\r\n"] {
        let mut first = TcpStream::connect(address).await.expect("connected");
        first.write_all(sent).await.expect("sent");
        first.read_exact(&mut greeting).await.expect("a greeting");
        assert_eq!(&greeting, b"SSH-2.0-Gable\r\n");
        // The first has the only permit until its handshake times out.
        let mut second = TcpStream::connect(address).await.expect("connected");
        assert!(!matches!(second.read(&mut greeting).await, Ok(1..)));
        // The connection may also end with a reset.
        let _ = first.read_to_end(&mut Vec::new()).await;
    }
    stop.send(()).expect("still serving");
    tokio::time::timeout(Duration::from_secs(10), serving).await.expect("stopped").expect("without a panic");
    assert!(TcpStream::connect(address).await.is_err());
}

/// Returns the greeting of a server after these bytes were sent, and the connection; `None` if it was closed.
async fn greet(address: SocketAddr, sent: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    // The server may refuse the connection before.
    let _ = stream.write_all(sent).await;
    let mut greeting = [0; 15];
    stream.read_exact(&mut greeting).await.ok()?;
    assert_eq!(&greeting, b"SSH-2.0-Gable\r\n");
    Some(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_trusted_proxy_count_for_the_client_in_their_header() {
    let server = TestServer::start().await;
    for is_trusted in [true, false] {
        let host_key = host_key::load_or_create(&server.spools.path().join("host-key")).expect("a key");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connection_limits =
            ssh::ConnectionLimits { total: 10, unauthenticated: 10, unauthenticated_per_address: 1 };
        let trusted_proxies = ssh::ProxyFilter::new(move |address| is_trusted && address.is_loopback());
        let options = ssh::Options { connection_limits, trusted_proxies, ..ssh::Options::default() };
        tokio::spawn(ssh::serve(listener, host_key, server.transfers.clone(), options, std::future::pending()));
        let header = |client: &str| format!("PROXY TCP4 {client} 198.51.100.1 40000 22\r\nSSH-2.0-x\r\n");
        // Without a header, as before. A client may wait for the server.
        let own = greet(address, b"").await;
        assert!(own.is_some());
        assert!(greet(address, b"SSH-2.0-x\r\n").await.is_none(), "one connection of the proxy itself");
        // What others send is no header, so they count with their own address.
        let first = greet(address, header("192.0.2.1").as_bytes()).await;
        assert_eq!(first.is_some(), is_trusted);
        if !is_trusted {
            continue;
        }
        assert!(greet(address, header("192.0.2.1").as_bytes()).await.is_none(), "the same client");
        let second = greet(address, header("192.0.2.2").as_bytes()).await;
        assert!(second.is_some());
        let version_2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x03\xc6\x33\x64\x01\x9c\x40\0\x16SSH-2.0-x\r\n";
        let third = greet(address, version_2).await;
        assert!(third.is_some());
        assert!(greet(address, header("192.0.2.3").as_bytes()).await.is_none(), "the same client");
        assert!(greet(address, b"PROXY nonsense\r\nSSH-2.0-x\r\n").await.is_none());
        drop(own);
        let again = async {
            while greet(address, b"SSH-2.0-x\r\n").await.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), again).await.expect("its permit is released");
        drop((first, second, third));
    }
}

/// A second branch, whose commit becomes unreachable once the branch is deleted.
const SIDE: &str = "\
commit refs/heads/side
committer Ann <ann@example.com> 1422824192 +0100
data 5
Side

from refs/heads/main
M 100644 inline SECRET
data 7
secret

";

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_object_is_never_sent() {
    let server = TestServer::start().await;
    server.test.fast_import(&server.ann, server.project, &format!("{SCRIPT}{SIDE}")).await;
    let refs = server.test.refs_of(server.project);
    let [(_, main), (_, lost)] = &refs[..] else { panic!("two branches: {refs:?}") };
    server.test.remove_ref(&server.ann, server.project, "refs/heads/side").await;
    let upper = lost.to_uppercase();
    let body = |lines: &[&str]| {
        let mut out = Vec::new();
        for line in lines {
            match *line {
                "--" => pkt::flush(&mut out),
                "-" => pkt::delimiter(&mut out),
                line => pkt::line(&mut out, format_args!("{line}")),
            }
        }
        out
    };
    let (main_want, lost_want, upper_want) = (format!("want {main}"), format!("want {lost}"), format!("want {upper}"));
    let (with_capabilities, oid) = (format!("{lost_want} side-band-64k no-progress"), format!("oid {lost}"));
    let requests: [(&str, Vec<u8>); 10] = [
        ("version=2", body(&["command=fetch", "-", "no-progress", &lost_want, "done", "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &upper_want, "done", "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &main_want, &lost_want, "done", "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &main_want, "done", &lost_want, "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &lost_want, "done"])),
        ("version=2", body(&["command=object-info", "-", "size", &oid, "--"])),
        ("version=0", body(&[&with_capabilities, "--", "done"])),
        ("version=0", body(&[&with_capabilities, "-", "done"])),
        ("version=0", body(&[&with_capabilities])),
        ("version=1", body(&[&with_capabilities, "--", "done"])),
    ];
    for (version, complete) in &requests {
        for length in [complete.len(), 1] {
            let chunks: Vec<_> =
                complete.chunks(length).map(|chunk| std::io::Result::Ok(Bytes::copy_from_slice(chunk))).collect();
            let body = Body::from_stream(stream::iter(chunks));
            let (_, response) = server.post("upload-pack", &[("git-protocol", version)], body).await;
            let response = String::from_utf8_lossy(&response.unwrap_or_default()).into_owned();
            let request = String::from_utf8_lossy(complete);
            assert!(!response.contains("PACK"), "{request}: {response}");
            // A truncated request gets no response; others get git's message for a missing object.
            let refused =
                ["ERR upload-pack: not our ref", "ERR unknown command"].iter().any(|text| response.contains(text));
            assert!(refused || response.is_empty(), "{request}: {response}");
        }
    }
    assert!(server.clone(main).await.windows(4).any(|part| part == b"PACK"), "what is there is sent");
    // Upload-pack would send the parents of every `shallow` commit.
    let folder = server.test.repository_folder(server.project).await.expect("a repository");
    let tree = format!("{main}^{{tree}}");
    let child = repository::git(&folder, &["commit-tree", "-p", lost, "-m", "child", &tree], b"").stdout;
    let shallow = format!("shallow {}", String::from_utf8_lossy(&child).trim());
    let (deepen, with_capabilities) = ("deepen 2147483647", format!("{main_want} shallow no-progress"));
    for (version, complete) in [
        ("version=2", body(&["command=fetch", "-", "no-progress", &main_want, &shallow, deepen, "done", "--"])),
        ("version=0", body(&[&with_capabilities, &shallow, deepen, "--", "done"])),
    ] {
        let (_, response) = server.post("upload-pack", &[("git-protocol", version)], Body::from(complete)).await;
        let response = String::from_utf8_lossy(&response.unwrap_or_default()).into_owned();
        assert!(response.contains("PACK") && !response.contains("unshallow"), "{version}: {response}");
    }
}

/// Returns the content of the side band with the pack in a response of version 2.
fn pack_of(response: &[u8]) -> Vec<u8> {
    let packets: Vec<_> = pkt::packets(response).collect::<Result<_, _>>().expect("packets");
    assert_eq!((packets[0].text(), packets.last()), (Some("packfile"), Some(&pkt::Packet::Flush)));
    let content = |packet: &pkt::Packet<'_>| match packet {
        pkt::Packet::Data([1, content @ ..]) => content.to_vec(),
        _ => Vec::new(),
    };
    packets.iter().flat_map(content).collect()
}

impl TestServer {
    /// Clones everything, as stock git does.
    async fn clone_everything(&self) -> Vec<u8> {
        let mut body = Vec::new();
        pkt::line(&mut body, format_args!("command=fetch"));
        pkt::delimiter(&mut body);
        for argument in ["thin-pack", "no-progress", "include-tag", "ofs-delta"] {
            pkt::line(&mut body, format_args!("{argument}"));
        }
        for (_, target) in self.test.refs_of(self.project) {
            pkt::line(&mut body, format_args!("want {target}"));
        }
        pkt::line(&mut body, format_args!("done"));
        pkt::flush(&mut body);
        let (status, body) = self.post("upload-pack", &[("git-protocol", "version=2")], body.into()).await;
        assert_eq!(status, StatusCode::OK);
        pack_of(&body.expect("a response"))
    }
}

/// Returns the objects of a pack, as git lists them once it has accepted the pack.
fn objects_of(pack: &[u8]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let git = |arguments: &[&str], input: &[u8]| repository::git(folder.path(), arguments, input).stdout;
    git(&["init", "-q", "--bare", "."], b"");
    git(&["index-pack", "--strict", "--stdin"], pack);
    let list = git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], b"");
    String::from_utf8(list).expect("text").lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_of_everything_consists_of_the_stored_packs() {
    let server = TestServer::start().await;
    let (complete, commit) = push_request();
    server.push(complete.into(), &[]).await;
    let folder = server.test.repository_folder(server.project).await.expect("a repository").join("objects/pack");
    let pack = server.clone_everything().await;
    let checksum = Oid(*pack.last_chunk().expect("a checksum"));
    assert!(fs::read(folder.join(format!("pack-{checksum}.pack"))).expect("the stored pack") == pack);
    let second = "blob\nmark :1\ndata 3\ntwo\ncommit refs/heads/other\n\
                  committer Bob <bob@example.com> 1422824191 +0100\ndata 0\nM 100644 :1 two\n\n";
    server.test.fast_import(&server.ann, server.project, second).await;
    let both = objects_of(&server.clone_everything().await);
    assert_eq!(both.len(), objects_of(&pack).len() + 3, "another commit, tree and file");
    assert!(both.contains(&commit));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_of_everything_has_no_unreachable_object() {
    let server = TestServer::start().await;
    // The pack of the second push also has the objects of the first one.
    server.test.fast_import(&server.ann, server.project, SCRIPT).await;
    server.test.fast_import(&server.ann, server.project, &format!("{SCRIPT}{SIDE}")).await;
    let refs = server.test.refs_of(server.project);
    let [(_, main), (_, side)] = &refs[..] else { panic!("two branches: {refs:?}") };
    let before = objects_of(&server.clone_everything().await);
    assert!(before.contains(main) && before.contains(side));
    server.test.remove_ref(&server.ann, server.project, "refs/heads/side").await;
    let after = objects_of(&server.clone_everything().await);
    assert!(after.contains(main) && !after.contains(side));
    assert_eq!(before.len(), after.len() + 3, "the commit, its tree and its file are not sent");
}
