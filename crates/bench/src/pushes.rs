//! Benchmark of writes to repositories over HTTP, and of repositories with many refs. An earlier version can be measured in
//! alternation with this one.
//!
//! Requests are those of a git client, but are prepared before: a git process takes longer than the server does.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::json;

use crate::{
    basics::ScratchFolder,
    closed_loop::Measurement,
    engine::{EmptyInstance, Engine, EngineKind},
    load_test::{
        client::{Client, HttpRequest, HttpResponse},
        git_client::packet,
    },
    server::{Server, TOKEN},
};

/// The number of measured pushes and commits of each kind.
const ROUNDS: usize = 40;
/// The number of refs of a push of many refs.
pub(crate) const MANY_REFS: usize = 4_000;
/// The number of refs of the repository with many refs, and how many of them are created by one push.
pub(crate) const REFS: usize = 100_000;
const REFS_PER_PUSH: usize = 10_000;
/// The number of measured pages of branches, and of lists of all refs.
const PAGES: usize = 400;
const REF_LISTS: usize = 20;
/// The files of the repository.
const FILES: usize = 200;
/// A pack without objects, which accompanies refs to existing objects.
const EMPTY_PACK: &[u8] =
    b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e";
const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// The results on one engine.
pub(crate) struct Results {
    pub(crate) kind: EngineKind,
    pub(crate) now: Timings,
    /// Those of the earlier version.
    pub(crate) before: Option<Timings>,
}

/// The latencies of one version.
#[derive(Default)]
pub(crate) struct Timings {
    /// A push of one commit: listing the refs, and sending the pack.
    pub(crate) push: Measurement,
    /// A commit of one file over REST.
    pub(crate) commit: Measurement,
    /// Two pushes to different branches at the same time, until both are done.
    pub(crate) two_pushes: Measurement,
    /// A push of [`MANY_REFS`] new refs: the time until the report, and the processor time of the server.
    pub(crate) many_refs: Measurement,
    pub(crate) many_refs_processor: Duration,
    /// A page of 20 branches of [`REFS`], from different parts of the list.
    pub(crate) branch_page: Measurement,
    /// Listing all of [`REFS`] refs with protocol version 2.
    pub(crate) ref_list: Measurement,
}

/// Measures everything on one engine.
pub(crate) fn measure(program: &Path, before: Option<&Path>, folder: &Path, engine: &Engine) -> Result<Results> {
    let scratch = ScratchFolder::new(folder)?;
    let source = Source::create(&scratch.0.join("source.git"))?;
    let mut servers = vec![MeasuredServer::start(program, engine, &scratch.0, "now")?];
    if let Some(before) = before {
        servers.push(MeasuredServer::start(before, engine, &scratch.0, "before")?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        for server in &mut servers {
            server.send_first_push(&source).await?;
        }
        for round in 0..ROUNDS {
            for server in &mut servers {
                server.measure_round(&source, round).await?;
            }
        }
        // An earlier version may take minutes for so many refs.
        servers[0].measure_many_refs(&source).await?;
        Ok::<_, anyhow::Error>(())
    })?;
    let mut timings = servers.into_iter().map(|server| server.timings);
    let now = timings.next().context("nothing was measured")?;
    Ok(Results { kind: engine.kind(), now, before: timings.next() })
}

/// A version of the server with its results.
struct MeasuredServer {
    server: Server,
    _instance: EmptyInstance,
    client: Client,
    timings: Timings,
}

impl MeasuredServer {
    fn start(program: &Path, engine: &Engine, folder: &Path, name: &str) -> Result<Self> {
        let instance = engine.empty_instance(folder, &format!("pushes_{name}"))?;
        let server = instance.start(program)?;
        let client = Client::new(server.address);
        Ok(Self { server, _instance: instance, client, timings: Timings::default() })
    }

    async fn send_first_push(&self, source: &Source) -> Result<()> {
        for name in ["pushes", "many-refs"] {
            self.post("/api/v3/projects", &json!({ "name": name, "path": name }).to_string(), 201).await?;
            let first = &source.commits[0];
            self.push(name, &update(NO_OBJECT, &first.id, "refs/heads/main"), &first.pack).await?;
        }
        // The first request of each kind fills caches.
        self.commit("warm-up", 0).await
    }

    /// Measures one push, one commit, and two pushes at the same time.
    async fn measure_round(&mut self, source: &Source, round: usize) -> Result<()> {
        let (parent, next) = (&source.commits[round], &source.commits[round + 1]);
        let start = Instant::now();
        self.push("pushes", &update(&parent.id, &next.id, "refs/heads/main"), &next.pack).await?;
        self.timings.push.push(start.elapsed());
        let start = Instant::now();
        self.commit("measured", round).await?;
        self.timings.commit.push(start.elapsed());
        let [one, two] = &source.pairs[round];
        let create = |commit: &PackedCommit, name: &str| update(NO_OBJECT, &commit.id, &format!("refs/heads/{name}"));
        let (first, second) = (create(one, &format!("one-{round}")), create(two, &format!("two-{round}")));
        let start = Instant::now();
        let both = tokio::join!(self.push("pushes", &first, &one.pack), self.push("pushes", &second, &two.pack));
        both.0.and(both.1)?;
        self.timings.two_pushes.push(start.elapsed());
        Ok(())
    }

    async fn measure_many_refs(&mut self, source: &Source) -> Result<()> {
        let tip = &source.commits[0].id;
        let commands = |start: usize, count: usize| {
            (start..start + count).fold(String::new(), |commands, number| {
                let options = if commands.is_empty() { "\0report-status" } else { "" };
                commands + &packet(&format!("{NO_OBJECT} {tip} refs/heads/many/{number:06}{options}\n"))
            })
        };
        let processor = self.server.process_tree_cpu_time()?;
        let start = Instant::now();
        // With numbers above those of the other refs.
        self.push("many-refs", &commands(REFS, MANY_REFS), EMPTY_PACK).await?;
        self.timings.many_refs.push(start.elapsed());
        self.timings.many_refs_processor = self.server.process_tree_cpu_time()?.saturating_sub(processor);
        for start in (MANY_REFS..REFS).step_by(REFS_PER_PUSH) {
            self.push("many-refs", &commands(start, REFS_PER_PUSH.min(REFS - start)), EMPTY_PACK).await?;
        }
        let project = "/api/v3/projects/2/repository/branches";
        for page in 0..PAGES {
            let target = format!("{project}?per_page=20&page={}", 1 + page * (REFS / 20 / PAGES));
            let start = Instant::now();
            self.get(&target, &[("private-token", TOKEN.to_owned())]).await?;
            self.timings.branch_page.push(start.elapsed());
        }
        let request = "0014command=ls-refs\n00010009peel\n000csymrefs\n0000";
        for _ in 0..REF_LISTS {
            let mut headers = git_headers("application/x-git-upload-pack-request");
            headers.push(("git-protocol", "version=2".to_owned()));
            let target = "/root/many-refs.git/git-upload-pack".to_owned();
            let request = HttpRequest { method: "POST", target, headers, body: Bytes::from_static(request.as_bytes()) };
            let start = Instant::now();
            let response = self.client.send(&request).await?;
            if response.status != 200 || response.length < REFS * 60 {
                bail!("a list of refs has status {} and {} bytes", response.status, response.length);
            }
            self.timings.ref_list.push(start.elapsed());
        }
        Ok(())
    }

    /// Sends what a git client sends for a push, and checks the report.
    async fn push(&self, project: &str, commands: &str, pack: &[u8]) -> Result<()> {
        let target = format!("/root/{project}.git/info/refs?service=git-receive-pack");
        self.get(&target, &[("authorization", basic_authorization())]).await?;
        let body = [commands.as_bytes(), b"0000", pack].concat().into();
        let headers = git_headers("application/x-git-receive-pack-request");
        let target = format!("/root/{project}.git/git-receive-pack");
        let report = self.client.send(&HttpRequest { method: "POST", target, headers, body }).await?;
        let text = String::from_utf8_lossy(&report.start);
        if report.status != 200 || !text.contains("unpack ok") || text.contains("ng refs/") {
            bail!("a push failed with status {}: {text}", report.status);
        }
        Ok(())
    }

    /// Creates a file in the project `many-refs`, which has few refs at this time.
    async fn commit(&self, folder: &str, number: usize) -> Result<()> {
        let action = json!({ "action": "create", "file_path": format!("{folder}/{number}"), "content": "x" });
        let body = json!({ "branch_name": "main", "commit_message": "Add a file", "actions": [action] });
        self.post("/api/v3/projects/2/repository/commits", &body.to_string(), 201).await
    }

    async fn get(&self, target: &str, headers: &[(&'static str, String)]) -> Result<HttpResponse> {
        let (target, headers) = (target.to_owned(), headers.to_vec());
        let response = self.client.send(&HttpRequest { method: "GET", target, headers, body: Bytes::new() }).await?;
        if response.status == 200 { Ok(response) } else { bail!("a read failed with status {}", response.status) }
    }

    async fn post(&self, target: &str, body: &str, status: u16) -> Result<()> {
        let headers = vec![("private-token", TOKEN.to_owned()), ("content-type", "application/json".to_owned())];
        let (target, body) = (target.to_owned(), body.to_owned().into());
        let response = self.client.send(&HttpRequest { method: "POST", target, headers, body }).await?;
        if response.status == status {
            return Ok(());
        }
        bail!("a write failed with status {}: {}", response.status, String::from_utf8_lossy(&response.start))
    }
}

/// Returns the headers of a git client.
fn git_headers(content_type: &str) -> Vec<(&'static str, String)> {
    vec![("authorization", basic_authorization()), ("content-type", content_type.to_owned())]
}

pub(crate) fn basic_authorization() -> String {
    format!("Basic {}", STANDARD.encode(format!("root:{TOKEN}")))
}

/// Returns the command of a push of one ref.
fn update(old: &str, new: &str, name: &str) -> String {
    packet(&format!("{old} {new} {name}\0report-status\n"))
}

/// A commit, with a pack of the objects that its parent does not have.
struct PackedCommit {
    id: String,
    pack: Vec<u8>,
}

/// The commits that are pushed.
struct Source {
    /// One after the other.
    commits: Vec<PackedCommit>,
    /// Pairs of commits with the first one as parent.
    pairs: Vec<[PackedCommit; 2]>,
}

impl Source {
    fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        git(folder, &["init", "--quiet", "--bare"], b"")?;
        let mut history = String::new();
        let mut commit = |branch: &str, parent: Option<&str>, files: &[(String, String)]| -> Result<()> {
            writeln!(history, "commit refs/heads/{branch}\ncommitter bench <bench> 1700000000 +0000\ndata 6\nChange")?;
            if let Some(parent) = parent {
                writeln!(history, "from refs/heads/{parent}")?;
            }
            for (path, content) in files {
                writeln!(history, "M 100644 inline {path}\ndata {}\n{content}", content.len())?;
            }
            Ok(())
        };
        let file = |number: usize, extra: &str| {
            let content = format!("line {number} of a file\n").repeat(20) + extra;
            (format!("folder/file-{number}"), content)
        };
        let all: Vec<_> = (0..FILES).map(|number| file(number, "")).collect();
        commit("main-0", None, &all)?;
        for round in 0..ROUNDS {
            let parent = format!("main-{round}");
            commit(&format!("main-{}", round + 1), Some(&parent), &[file(round, "changed")])?;
            for side in ["one", "two"] {
                commit(&format!("{side}-{round}"), Some("main-0"), &[file(round, &format!("{side} changed"))])?;
            }
        }
        git(folder, &["fast-import", "--quiet"], history.as_bytes())?;
        let packed = |branch: &str, parent: Option<&str>| -> Result<PackedCommit> {
            let resolve = |branch: &str| {
                let id = git(folder, &["rev-parse", &format!("refs/heads/{branch}")], b"")?;
                Ok::<_, anyhow::Error>(String::from_utf8_lossy(&id).trim().to_owned())
            };
            let id = resolve(branch)?;
            let mut revisions = format!("{id}\n");
            if let Some(parent) = parent {
                writeln!(revisions, "^{}", resolve(parent)?)?;
            }
            let pack = git(folder, &["pack-objects", "--revs", "--stdout", "--quiet"], revisions.as_bytes())?;
            Ok(PackedCommit { id, pack })
        };
        let parent = |round: usize| round.checked_sub(1).map(|parent| format!("main-{parent}"));
        let commits = (0..=ROUNDS).map(|round| packed(&format!("main-{round}"), parent(round).as_deref()));
        let pairs = (0..ROUNDS).map(|round| {
            let side = |name: &str| packed(&format!("{name}-{round}"), Some("main-0"));
            Ok([side("one")?, side("two")?])
        });
        Ok(Self { commits: commits.collect::<Result<_>>()?, pairs: pairs.collect::<Result<_>>()? })
    }
}

/// Runs git in a bare repository.
pub(crate) fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let context = "cannot run git";
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.arg("--git-dir").arg(folder).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context(context)?;
    let mut stdin = child.stdin.take().context("git has no standard input")?;
    let input = input.to_vec();
    let writing = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().context(context)?;
    let written = writing.join().ok().context("the writing thread panicked")?;
    written.context("cannot write to git")?;
    if output.status.success() { Ok(output.stdout) } else { bail!("git {arguments:?} failed") }
}
