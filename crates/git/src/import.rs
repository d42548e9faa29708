//! Fetches repositories from other servers.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    ChildLimits, Error, LocalPack, PACKED_REFS_PUSH_LIMIT, Ref, Refs, Repositories, Repository, Result, checks,
    git_process::{self, Supervision},
    repository::Handle,
};

/// The processor time that counts as progress, in clock ticks: resolving the deltas of a large pack writes nothing for
/// long.
const BUSY_CPU_TICKS: u64 = 100;

/// The source of a fetch, which was checked and pinned to one address.
pub struct FetchSource {
    /// The URL without credentials: `http` or `https`.
    pub url: String,
    /// The host as the URL names it, and its port.
    pub host: (String, u16),
    /// The address that was resolved and allowed; no other is contacted.
    pub address: IpAddr,
    /// The value of an `Authorization` header, if there is one.
    pub authorization: Option<String>,
}

/// The resource limits of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// The maximum size of the data segment of each process, in bytes.
    pub memory: u64,
    /// The maximum size of the pack, in bytes.
    pub pack: Option<u64>,
    /// The time limit of the whole fetch.
    pub time: Duration,
    /// The time after which a fetch without progress is aborted.
    pub stall: Duration,
    /// The number of bytes that have to arrive during that time.
    pub min_progress: u64,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            memory: ChildLimits::default().memory,
            pack: None,
            time: Duration::from_secs(60 * 60),
            stall: Duration::from_secs(5 * 60),
            min_progress: 1 << 20,
        }
    }
}

impl FetchLimits {
    /// Returns the limits of the processes. The hard limit on files is the last resort: it is larger than the pack may
    /// be, because the index of a pack with many small objects is.
    fn child_limits(&self) -> ChildLimits {
        let file_size = self.pack.map(|pack| pack.saturating_mul(3).saturating_add(1 << 20));
        ChildLimits { memory: self.memory, file_size }
    }
}

/// The time limit for the query of the default branch, and the maximum size of the answer, in bytes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2 * 60);
const MAX_HEAD_ANSWER_BYTES: u64 = 64 << 10;
/// The maximum size of the list of ref names, in bytes, and the maximum number of names that are logged.
const MAX_REF_LIST_BYTES: u64 = 64 << 20;
const MAX_WARNINGS: usize = 20;

/// A fetched and verified repository; its files are deleted with this value.
pub struct FetchedRepository {
    folder: Arc<TempDir>,
    refs: Refs,
}

impl FetchedRepository {
    /// Returns the refs; `HEAD` is the default branch of the source, if it was fetched.
    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// Returns the packs, none if the source is empty.
    pub fn packs(&self) -> Result<Vec<LocalPack>> {
        LocalPack::take_all(&self.folder.path().join("objects/pack"), &self.folder)
    }
}

impl Repositories {
    /// Fetches all branches and tags of another repository, until `cancelled` is set. All objects are checked as those
    /// of a push are, and that everything they link to exists.
    pub fn fetch(
        &self,
        source: &FetchSource,
        limits: &FetchLimits,
        cancelled: &AtomicBool,
    ) -> Result<FetchedRepository> {
        let raw = self.create_blank()?;
        let deadline = Instant::now() + limits.time;
        let supervision = Supervision { limits: limits.child_limits(), deadline, cancelled };
        let mut progress = FetchProgress::new(raw.path(), limits);
        let run = git_process::run_supervised(fetch(raw.path(), source, limits), &supervision, &mut |group| {
            progress.check(group)
        });
        // Whatever the process failed of, exceeding the size limit is the error to report.
        progress.check_size()?;
        run?;
        let head = remote_head(raw.path(), source, limits, &supervision)?;
        let fetched = Repository::new(Handle::open(raw.path())?.into(), Arc::default());
        let mut refs = without_id_like_names(&fetched.read_ref_files()?);
        refs.head = head.filter(|head| refs.find(head).is_some());
        if refs.packed_size() > PACKED_REFS_PUSH_LIMIT {
            return Err(Error::TooLarge("the list of its branches and tags is too long".into()));
        }
        for name in unusable_names(raw.path(), &supervision)? {
            tracing::warn!(name = %name.escape_ascii(), "left a ref out of an import: its name is not allowed");
        }
        let build = self.create_blank()?;
        if refs.iter().next().is_some() {
            let mut pack = git_process::git_command(raw.path());
            pack.args(["pack-objects", "--all", "--stdout", "-q"]);
            git_process::pipe_supervised(pack, git_process::index_pack(build.path(), limits.pack), &supervision)?;
            checks::check_packed_sizes(&build.path().join("objects/pack"))?;
        }
        Ok(FetchedRepository { folder: Arc::new(build), refs })
    }
}

/// Checks that a fetch makes progress and stays within its size limit.
struct FetchProgress<'a> {
    packs: PathBuf,
    limits: &'a FetchLimits,
    /// The time of the last progress, with the bytes written and the processor time used by then.
    last_seen: (Instant, u64, u64),
}

impl<'a> FetchProgress<'a> {
    fn new(repository: &Path, limits: &'a FetchLimits) -> Self {
        Self { packs: repository.join("objects/pack"), limits, last_seen: (Instant::now(), 0, 0) }
    }

    fn check(&mut self, group: u32) -> Result<()> {
        let written = self.check_size()?;
        let (since, before, ticks_before) = self.last_seen;
        let ticks = git_process::cpu_ticks(group);
        let is_busy = ticks.saturating_sub(ticks_before) >= BUSY_CPU_TICKS && before > 0;
        if written.saturating_sub(before) >= self.limits.min_progress || is_busy {
            self.last_seen = (Instant::now(), written, ticks);
        } else if since.elapsed() > self.limits.stall {
            return Err(Error::FetchTooSlow);
        }
        Ok(())
    }

    /// Returns the size of all packs so far; fails if it exceeds the limit.
    fn check_size(&self) -> Result<u64> {
        let entries = fs::read_dir(&self.packs).into_iter().flatten().flatten();
        let is_pack = |name: &str| name.starts_with("tmp_pack") || name.ends_with(".pack");
        let packs = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_pack));
        let written = packs.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
        if self.limits.pack.is_some_and(|limit| written > limit) { Err(Error::FetchTooLarge) } else { Ok(written) }
    }
}

/// Returns a `git` command that can contact the source and no other server.
fn remote_command(repository: &Path, source: &FetchSource, limits: &FetchLimits) -> Command {
    let mut command = git_process::git_command(repository);
    let (host, port) = &source.host;
    let address = match source.address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let scheme = if source.url.starts_with("https:") { "https" } else { "http" };
    let mut settings = vec![
        (format!("protocol.{scheme}.allow"), "always".to_owned()),
        ("http.followRedirects".into(), "false".into()),
        ("http.proxy".into(), String::new()),
        ("http.curloptResolve".into(), format!("{host}:{port}:{address}")),
        ("http.lowSpeedLimit".into(), "1000".into()),
        ("http.lowSpeedTime".into(), limits.stall.as_secs().clamp(1, 60).to_string()),
        ("credential.helper".into(), String::new()),
        ("fetch.unpackLimit".into(), "1".into()),
    ];
    if let Some(authorization) = &source.authorization {
        settings.push(("http.extraHeader".into(), format!("Authorization: {authorization}")));
    }
    // In the environment, because every user of the machine can read the arguments of a process.
    command.env("GIT_CONFIG_COUNT", settings.len().to_string()).env("GIT_ASKPASS", "/bin/false");
    for (index, (name, value)) in settings.into_iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{index}"), name).env(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    command
}

fn fetch(repository: &Path, source: &FetchSource, limits: &FetchLimits) -> Command {
    let mut command = remote_command(repository, source, limits);
    command.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]);
    command.arg("--end-of-options").arg(&source.url).args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
    command
}

/// Returns the refs without those that are named like an object id, which could never be resolved by name.
fn without_id_like_names(refs: &Refs) -> Refs {
    let usable = |list: &[Ref]| list.iter().filter(|reference| !reference.name.looks_like_oid()).cloned().collect();
    Refs {
        head: refs.head.clone(),
        branches: usable(&refs.branches),
        tags: usable(&refs.tags),
        others: refs.others.clone(),
        ..Refs::default()
    }
}

/// Returns the names of refs that cannot be imported: invalid UTF-8, or not allowed by this server. They are never
/// converted, because the result could be the name of another ref.
fn unusable_names(repository: &Path, supervision: &Supervision<'_>) -> Result<Vec<Vec<u8>>> {
    let mut command = git_process::git_command(repository);
    command.args(["for-each-ref", "--format=%(refname)"]);
    let output = git_process::output_supervised(command, MAX_REF_LIST_BYTES, supervision)?;
    let is_usable = |name: &[u8]| {
        let name = std::str::from_utf8(name).ok().and_then(model::RefName::new);
        name.is_some_and(|name| !name.looks_like_oid())
    };
    let names = output.split(|byte| *byte == b'\n').filter(|name| !name.is_empty());
    Ok(names.filter(|name| !is_usable(name)).take(MAX_WARNINGS).map(<[u8]>::to_vec).collect())
}

/// Returns the default branch of the source.
fn remote_head(
    repository: &Path,
    source: &FetchSource,
    limits: &FetchLimits,
    supervision: &Supervision<'_>,
) -> Result<Option<model::RefName>> {
    let mut command = remote_command(repository, source, limits);
    command.args(["ls-remote", "--symref", "--end-of-options"]).arg(&source.url).arg("HEAD");
    let deadline = supervision.deadline.min(Instant::now() + HEAD_TIMEOUT);
    let output =
        git_process::output_supervised(command, MAX_HEAD_ANSWER_BYTES, &Supervision { deadline, ..*supervision })?;
    let text = String::from_utf8_lossy(&output);
    let line = text.lines().find_map(|line| line.strip_prefix("ref: ")?.strip_suffix("\tHEAD"));
    Ok(line.and_then(model::RefName::new))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, BufRead as _, BufReader, Read as _, Write},
        net::{TcpListener, TcpStream},
        sync::{Arc, atomic::Ordering, mpsc},
        thread,
    };

    use super::*;
    use crate::tests::Fixture;

    const ID: &str = "1111111111111111111111111111111111111111";

    /// Starts a server that handles each connection with `answer`.
    fn serve(answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static) -> FetchSource {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
                    let (mut line, mut rest) = (String::new(), String::new());
                    let _ = reader.read_line(&mut line);
                    while reader.read_line(&mut rest).is_ok_and(|read| read > 2) {
                        rest.clear();
                    }
                    let _ = answer(line.split(' ').next().unwrap_or_default(), &mut stream);
                });
            }
        });
        FetchSource {
            url: format!("http://{address}/x.git"),
            host: ("127.0.0.1".into(), address.port()),
            address: address.ip(),
            authorization: None,
        }
    }

    fn send_response_head(out: &mut TcpStream, kind: &str) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/x-git-upload-pack-{kind}\r\n\r\n"
        );
        out.write_all(head.as_bytes())
    }

    fn packet(out: &mut impl Write, content: &[u8]) -> io::Result<()> {
        out.write_all(format!("{:04x}", content.len() + 4).as_bytes())?;
        out.write_all(content)
    }

    fn send_refs_head(out: &mut TcpStream) -> io::Result<()> {
        send_refs_head_with(out, ID)
    }

    fn send_refs_head_with(out: &mut TcpStream, id: &str) -> io::Result<()> {
        send_response_head(out, "advertisement")?;
        packet(out, b"# service=git-upload-pack\n")?;
        out.write_all(b"0000")?;
        packet(out, format!("{id} refs/heads/main\0side-band-64k ofs-delta\n").as_bytes())
    }

    /// Sends a pack that never ends, in chunks of this size.
    fn send_endless_pack(out: &mut TcpStream, chunk: usize, pause: Duration) -> io::Result<()> {
        send_response_head(out, "result")?;
        packet(out, b"NAK\n")?;
        // A file of a tebibyte, in blocks that are not compressed.
        let mut start = b"\x01PACK\0\0\0\x02\0\0\0\x01".to_vec();
        start.extend([0xb0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x04, 0x78, 0x01]);
        packet(out, &start)?;
        let length = u16::try_from(chunk).expect("a small piece");
        let mut block = vec![1, 0];
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(vec![7; chunk]);
        loop {
            packet(out, &block)?;
            thread::sleep(pause);
        }
    }

    fn small_limits() -> FetchLimits {
        FetchLimits { memory: 256 << 20, ..FetchLimits::default() }
    }

    fn short_stall_limits() -> FetchLimits {
        FetchLimits { stall: Duration::from_secs(3), ..small_limits() }
    }

    fn fetch_error(source: &FetchSource, limits: &FetchLimits) -> Error {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::open_folder(folder.path()).expect("repositories");
        let fetched = repositories.fetch(source, limits, &AtomicBool::new(false));
        let error = fetched.map(drop).expect_err("the fetch fails");
        let left = fs::read_dir(folder.path().join("tmp")).expect("a folder").count();
        assert_eq!(left, 0, "something is left: {error}");
        error
    }

    #[test]
    fn a_server_that_sends_refs_without_end_hits_the_memory_limit() {
        let source = serve(|_, out| {
            send_refs_head(out)?;
            let mut many = Vec::new();
            for number in 0..1000 {
                packet(&mut many, format!("{ID} refs/heads/{number:0>200}\n").as_bytes())?;
            }
            loop {
                out.write_all(&many)?;
            }
        });
        let error = fetch_error(&source, &small_limits());
        assert!(error.to_string().contains("ut of memory"), "{error}");
    }

    #[test]
    fn a_pack_that_exceeds_the_size_limit_is_aborted() {
        let source = serve(|method, out| match method {
            "GET" => send_refs_head(out).and_then(|()| out.write_all(b"0000")),
            _ => send_endless_pack(out, 60_000, Duration::ZERO),
        });
        let error = fetch_error(&source, &FetchLimits { pack: Some(4 << 20), ..small_limits() });
        assert!(matches!(error, Error::FetchTooLarge), "{error}");
    }

    #[test]
    fn a_commit_that_exceeds_the_size_limit_is_refused() {
        let fixture = Fixture::new();
        let tree = String::from_utf8(fixture.git_with(&["mktree"], b"")).expect("UTF-8");
        let head =
            format!("tree {}author A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\n", tree.trim().to_owned() + "\n");
        let id = fixture.raw_commit(&[head.as_bytes(), &vec![b'x'; 2 << 20]].concat()).to_string();
        let revisions = format!("{id}\n");
        let pack = fixture.git_with(&["pack-objects", "--revs", "--stdout", "-q"], revisions.as_bytes());
        let commit = id.clone();
        let source = serve(move |method, out| {
            if method == "GET" {
                return send_refs_head_with(out, &id).and_then(|()| out.write_all(b"0000"));
            }
            send_response_head(out, "result")?;
            packet(out, b"NAK\n")?;
            for part in pack.chunks(60_000) {
                packet(out, &[b"\x01", part].concat())?;
            }
            out.write_all(b"0000")
        });
        let error = fetch_error(&source, &FetchLimits::default());
        let expected = format!("the commit {commit} has 2.0 MB; the limit is 1 MB");
        assert!(matches!(&error, Error::TooLarge(text) if *text == expected), "{error}");
    }

    #[test]
    fn a_silent_or_slow_server_is_given_up() {
        let silent = serve(|_, out| out.read_to_end(&mut Vec::new()).map(drop));
        let error = fetch_error(&silent, &short_stall_limits());
        assert!(error.to_string().contains("too slow"), "silent: {error}");
        let drip = serve(|_, out| {
            send_refs_head(out)?;
            loop {
                out.write_all(b"0")?;
                thread::sleep(Duration::from_millis(50));
            }
        });
        let error = fetch_error(&drip, &short_stall_limits());
        assert!(error.to_string().contains("too slow"), "refs that drip: {error}");
        // Fast enough for the limits of libcurl.
        let pack = serve(|method, out| match method {
            "GET" => send_refs_head(out).and_then(|()| out.write_all(b"0000")),
            _ => send_endless_pack(out, 4_000, Duration::from_millis(200)),
        });
        let error = fetch_error(&pack, &FetchLimits { min_progress: 1 << 30, ..short_stall_limits() });
        assert!(error.to_string().contains("too slow"), "a pack that drips: {error}");
    }

    #[test]
    fn progress_messages_without_end_do_not_count_as_progress() {
        let source = serve(|method, out| {
            if method == "GET" {
                return send_refs_head(out).and_then(|()| out.write_all(b"0000"));
            }
            send_response_head(out, "result")?;
            packet(out, b"NAK\n")?;
            loop {
                packet(out, format!("\x02{}\r", "Counting objects ".repeat(100)).as_bytes())?;
                thread::sleep(Duration::from_millis(2));
            }
        });
        let error = fetch_error(&source, &short_stall_limits());
        assert!(error.to_string().contains("too slow"), "{error}");
    }

    #[test]
    fn a_cancelled_fetch_closes_its_connection() {
        let (sender, receiver) = mpsc::channel();
        let source = serve(move |_, out| {
            let _ = sender.send("open");
            let ended = out.read_to_end(&mut Vec::new()).map(drop);
            let _ = sender.send("closed");
            ended
        });
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::open_folder(folder.path()).expect("repositories");
        let cancelled = AtomicBool::new(false);
        thread::scope(|scope| {
            let fetching = scope.spawn(|| repositories.fetch(&source, &FetchLimits::default(), &cancelled).map(drop));
            let max_wait = Duration::from_secs(50);
            assert_eq!(receiver.recv_timeout(max_wait), Ok("open"));
            cancelled.store(true, Ordering::Relaxed);
            assert_eq!(receiver.recv_timeout(max_wait), Ok("closed"));
            let result = fetching.join().expect("no panic");
            assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        });
    }

    #[test]
    fn refs_with_invalid_names_are_reported_and_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::open_folder(folder.path()).expect("repositories");
        let raw = repositories.create_blank().expect("a repository");
        let path = raw.path();
        let id = "1".repeat(40);
        let packed = [
            b"# pack-refs with: peeled fully-peeled sorted \n",
            format!("{id} refs/heads/-x\n{id} refs/heads/{id}\n{id} refs/heads/fine\n{id} refs/heads/").as_bytes(),
            b"\xff\xfe\n",
        ]
        .concat();
        fs::write(path.join("packed-refs"), packed).expect("written");
        let repository = Repository::new(Handle::open(path).expect("a repository").into(), Arc::default());
        let refs = without_id_like_names(&repository.read_ref_files().expect("refs"));
        let taken: Vec<String> = refs.iter().map(|reference| reference.name.to_string()).collect();
        assert_eq!(taken, ["refs/heads/fine"]);
        let deadline = Instant::now() + HEAD_TIMEOUT;
        let cancelled = AtomicBool::new(false);
        let supervision = Supervision { limits: ChildLimits::default(), deadline, cancelled: &cancelled };
        let left_out = unusable_names(path, &supervision).expect("names");
        let like_an_id = format!("refs/heads/{id}");
        assert_eq!(left_out, [&b"refs/heads/-x"[..], like_an_id.as_bytes(), b"refs/heads/\xff\xfe"]);
    }
}
