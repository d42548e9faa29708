//! Whole requests, answered by a whole forge, with a client that misbehaves in ways that stock git does not.

use std::{fs, io::Write as _, num::NonZeroU32, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{Request, StatusCode, header},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use files::spool::Spools;
use flate2::{Compression, write::GzEncoder};
use futures_util::stream;
use http_body_util::BodyExt as _;
use model::Oid;
use serde_json::json;
use tempfile::TempDir;
use testkit::{Client, TestForge, repository};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use crate::{
    Limits, Transfers,
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

struct Story {
    test: TestForge,
    ann: Client,
    project: i64,
    git: GitHttp,
    transfers: Transfers,
    spools: TempDir,
}

impl Story {
    async fn begin() -> Self {
        let test = TestForge::start().await;
        let ann = test.user("ann").await;
        let project = ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
        let spools = tempfile::tempdir().expect("a folder");
        let cache = Spools::in_folder(spools.path(), 1 << 20).expect("spools");
        let transfers = Transfers::new(test.forge.clone(), cache, Limits { pack: Some(1 << 20), ..Limits::default() });
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
        let answer = self.git.answer(request.body(body).expect("a request")).await;
        (answer.status(), answer.into_body().collect().await.map(|body| body.to_bytes()))
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

    /// How many answers the cache holds.
    fn cached(&self) -> usize {
        fs::read_dir(self.spools.path()).expect("a folder").count()
    }
}

/// The whole request of a push that makes `main`, and the commit that it makes.
fn request() -> (Vec<u8>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let git = |arguments: &[&str], input: &[u8]| repository::git(folder.path(), arguments, input).stdout;
    git(&["init", "-q", "--bare", "."], b"");
    git(&["fast-import", "--quiet"], SCRIPT.as_bytes());
    let commit = String::from_utf8(git(&["rev-parse", "refs/heads/main"], b"")).expect("text").trim().to_owned();
    let mut request = Vec::new();
    let abilities = "report-status side-band-64k object-format=sha1";
    pkt::data(&mut request, format!("{} {commit} refs/heads/main\0{abilities}", Oid::ZERO).as_bytes());
    pkt::flush(&mut request);
    request.extend(git(&["pack-objects", "--all", "--stdout", "-q"], b""));
    (request, commit)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_at_any_byte_has_changed_nothing() {
    let story = Story::begin().await;
    let (whole, commit) = request();
    for length in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
        // Once as an end that comes too early, once as a connection that breaks.
        let _ = story.push(whole[..length].to_vec().into(), &[]).await;
        let pieces = [Ok(Bytes::copy_from_slice(&whole[..length])), Err(std::io::Error::other("broken"))];
        let token = story.ann.token.as_deref().expect("a token");
        let basic = format!("Basic {}", STANDARD.encode(format!("{token}:")));
        let broken = Body::from_stream(stream::iter(pieces));
        let _ = story.post("receive-pack", &[("authorization", &basic)], broken).await;
        assert_eq!(story.test.refs_of(story.project), [], "after {length} bytes");
    }
    let report = story.push(whole.into(), &[]).await;
    let places = story.test.repository_folder(story.project).expect("a repository");
    let places = places.ancestors().nth(3).expect("all repositories").join("tmp");
    assert_eq!(report, "002e\x01000eunpack ok\n0017ok refs/heads/main\n00000000");
    assert_eq!(story.test.refs_of(story.project), [("refs/heads/main".to_owned(), commit)]);
    // What has come for nothing goes as soon as the program that was taking it in is gone.
    let emptied = async {
        while fs::read_dir(&places).expect("a folder").count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), emptied).await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_is_spoiled_or_too_large_is_told_in_one_sentence() {
    let story = Story::begin().await;
    let (mut spoiled, _) = request();
    let last = spoiled.len() - 1;
    spoiled[last] ^= 1;
    let report = story.push(spoiled.into(), &[]).await;
    assert!(report.contains("Gable: pack is corrupted (SHA1 mismatch)\n"), "{report}");
    assert!(report.contains("unpack pack is corrupted (SHA1 mismatch)\n"), "{report}");
    assert!(report.contains("ng refs/heads/main unpacker error\n"), "{report}");
    let (mut large, _) = request();
    large.truncate(large.iter().position(|byte| *byte == b'P').expect("a pack") + 12);
    large.extend(vec![0x31; 3 << 20]);
    let report = story.push(large.into(), &[]).await;
    assert!(report.contains("ng refs/heads/main unpacker error\n"), "{report}");
    assert_eq!(story.test.refs_of(story.project), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_may_come_as_gzip() {
    let story = Story::begin().await;
    let (whole, commit) = request();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&whole).expect("packed");
    let packed = encoder.finish().expect("packed");
    let report = story.push(packed.into(), &[("content-encoding", "gzip")]).await;
    assert!(report.contains("ok refs/heads/main\n"), "{report}");
    assert_eq!(story.test.refs_of(story.project), [("refs/heads/main".to_owned(), commit)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_is_made_once_until_a_ref_moves() {
    let story = Story::begin().await;
    let (whole, commit) = request();
    story.push(whole.into(), &[]).await;
    let (one, two) = tokio::join!(story.clone(&commit), story.clone(&commit));
    assert!(one.starts_with(b"000dpackfile\n") && one == two);
    assert_eq!(story.clone(&commit).await, one);
    assert_eq!(story.cached(), 1);
    let second =
        format!("{SCRIPT}commit refs/heads/other\ncommitter Bob <bob@example.com> 1422824191 +0100\ndata 0\n\n");
    story.test.fill(&story.ann, story.project, &second).await;
    assert!(story.clone(&commit).await.starts_with(b"000dpackfile\n"));
    assert_eq!(story.cached(), 2);
    // What no ref shows is upload-pack's to judge, and shared with nobody.
    let blob = "ce013625030ba8dba906f756967f9e9ca394464a";
    story.clone(blob).await;
    assert_eq!(story.cached(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_are_counted_and_right_ones_are_not() {
    let story = Story::begin().await;
    let refs = async |password: &str| {
        let basic = format!("Basic {}", STANDARD.encode(format!("ann:{password}")));
        let request = Request::get("/ann/rocket/info/refs?service=git-upload-pack").header("authorization", basic);
        story.git.answer(request.body(Body::empty()).expect("a request")).await.status().as_u16()
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
async fn lesson_30_a_stalled_handshake_is_cut_and_gives_its_place_back() {
    let story = Story::begin().await;
    let host_key = host_key::load_or_make(&story.spools.path().join("host-key")).expect("a key");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let places = ssh::Places { connections: 10, strangers: 10, strangers_per_address: 1 };
    let options = ssh::Options { places, handshake: Duration::from_secs(1), ..ssh::Options::default() };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(ssh::serve(listener, host_key, story.transfers.clone(), options, async {
        let _ = stopped.await;
    }));
    let mut greeting = [0; 15];
    for said in [&b""[..], b"SSH-2.0-slow\r\n"] {
        let mut first = TcpStream::connect(address).await.expect("connected");
        first.write_all(said).await.expect("said");
        first.read_exact(&mut greeting).await.expect("a greeting");
        assert_eq!(&greeting, b"SSH-2.0-Gable\r\n");
        // The first has the only place, until its time is over.
        let mut second = TcpStream::connect(address).await.expect("connected");
        assert!(!matches!(second.read(&mut greeting).await, Ok(1..)));
        // A reset is as good an end as any.
        let _ = first.read_to_end(&mut Vec::new()).await;
    }
    stop.send(()).expect("still serving");
    tokio::time::timeout(Duration::from_secs(10), serving).await.expect("stopped").expect("without a panic");
    assert!(TcpStream::connect(address).await.is_err());
}

/// A second branch, whose commit is lost once the branch is deleted.
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
async fn an_object_that_no_ref_leads_to_is_not_sent_however_it_is_asked_for() {
    let story = Story::begin().await;
    story.test.fill(&story.ann, story.project, &format!("{SCRIPT}{SIDE}")).await;
    let refs = story.test.refs_of(story.project);
    let [(_, main), (_, lost)] = &refs[..] else { panic!("two branches: {refs:?}") };
    story.test.remove_ref(&story.ann, story.project, "refs/heads/side").await;
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
    let (kept, gone, loud) = (format!("want {main}"), format!("want {lost}"), format!("want {upper}"));
    let (with_abilities, oid) = (format!("{gone} side-band-64k no-progress"), format!("oid {lost}"));
    let asked: [(&str, Vec<u8>); 10] = [
        ("version=2", body(&["command=fetch", "-", "no-progress", &gone, "done", "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &loud, "done", "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &kept, &gone, "done", "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &kept, "done", &gone, "--"])),
        ("version=2", body(&["command=fetch", "-", "no-progress", &gone, "done"])),
        ("version=2", body(&["command=object-info", "-", "size", &oid, "--"])),
        ("version=0", body(&[&with_abilities, "--", "done"])),
        ("version=0", body(&[&with_abilities, "-", "done"])),
        ("version=0", body(&[&with_abilities])),
        ("version=1", body(&[&with_abilities, "--", "done"])),
    ];
    for (version, whole) in &asked {
        for length in [whole.len(), 1] {
            let pieces: Vec<_> =
                whole.chunks(length).map(|piece| std::io::Result::Ok(Bytes::copy_from_slice(piece))).collect();
            let body = Body::from_stream(stream::iter(pieces));
            let (_, answer) = story.post("upload-pack", &[("git-protocol", version)], body).await;
            let answer = String::from_utf8_lossy(&answer.unwrap_or_default()).into_owned();
            let request = String::from_utf8_lossy(whole);
            assert!(!answer.contains("PACK"), "{request}: {answer}");
            // One that is cut short gets no answer at all; others hear what git says of an object that does not exist.
            let told = ["ERR upload-pack: not our ref", "ERR unknown command"].iter().any(|text| answer.contains(text));
            assert!(told || answer.is_empty(), "{request}: {answer}");
        }
    }
    assert!(story.clone(main).await.windows(4).any(|part| part == b"PACK"), "what is there is sent");
    // Of every commit that a client calls shallow, upload-pack would send the parents.
    let folder = story.test.repository_folder(story.project).expect("a repository");
    let tree = format!("{main}^{{tree}}");
    let child = repository::git(&folder, &["commit-tree", "-p", lost, "-m", "child", &tree], b"").stdout;
    let shallow = format!("shallow {}", String::from_utf8_lossy(&child).trim());
    let (deepen, with_abilities) = ("deepen 2147483647", format!("{kept} shallow no-progress"));
    for (version, whole) in [
        ("version=2", body(&["command=fetch", "-", "no-progress", &kept, &shallow, deepen, "done", "--"])),
        ("version=0", body(&[&with_abilities, &shallow, deepen, "--", "done"])),
    ] {
        let (_, answer) = story.post("upload-pack", &[("git-protocol", version)], Body::from(whole)).await;
        let answer = String::from_utf8_lossy(&answer.unwrap_or_default()).into_owned();
        assert!(answer.contains("PACK") && !answer.contains("unshallow"), "{version}: {answer}");
    }
}
