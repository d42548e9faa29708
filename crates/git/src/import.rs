//! Taking over a repository from somewhere else.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use model::StorageId;

use crate::{
    ChildLimits, Error, Ref, Refs, Repositories, Repository, Result, checks,
    child::{self, Supervision},
    repositories::write_refs,
    repository::Handle,
};

/// How an error reads if there is more to fetch than is taken.
pub const TOO_LARGE: &str = "the repository is too large";
/// How an error reads if the other side gets nowhere.
pub const TOO_SLOW: &str = "the other side is too slow";
/// How much processor time stands for progress, in ticks: whoever resolves the deltas of a large pack writes nothing for
/// long.
const BUSY: u64 = 100;

/// Where a repository comes from: known to be allowed, and pinned to one address.
pub struct Source {
    /// The URL without credentials: `http` or `https`.
    pub url: String,
    /// The host as the URL names it, and its port.
    pub host: (String, u16),
    /// The address that was looked up and allowed; no other is ever asked.
    pub address: IpAddr,
    /// The value of an `Authorization` header, if there is one.
    pub authorization: Option<String>,
}

/// How much a repository that is fetched may ask of this machine.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// How much memory each program may use for its data, in bytes.
    pub memory: u64,
    /// How large the pack may be, in bytes.
    pub pack: Option<u64>,
    /// How long all of it may take.
    pub time: Duration,
    /// How long nothing or next to nothing may come in, before it is given up.
    pub stall: Duration,
    /// How much has to come in during that time, in bytes.
    pub least: u64,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            memory: ChildLimits::default().memory,
            pack: None,
            time: Duration::from_secs(60 * 60),
            stall: Duration::from_secs(5 * 60),
            least: 1 << 20,
        }
    }
}

impl FetchLimits {
    /// What holds for the programs. A file with a hard limit is the last resort: it is larger than the pack may be, because
    /// the index of a pack of many small objects is.
    fn of_child(&self) -> ChildLimits {
        let file_size = self.pack.map(|pack| pack.saturating_mul(3).saturating_add(1 << 20));
        ChildLimits { memory: self.memory, file_size }
    }
}

/// How long the other side may take to name its default branch, and how much it may say about that, in bytes.
const PATIENCE: Duration = Duration::from_secs(2 * 60);
const LONGEST_ANSWER: u64 = 64 << 10;
/// How many bytes of names of refs are looked at, and how many of them are logged at most.
const LONGEST_LIST: u64 = 64 << 20;
const MOST_WARNINGS: usize = 20;

/// A repository that was fetched and found good, on its way into its place; gone with this value unless it is adopted.
pub struct Fetched(TempDir);

impl Repositories {
    /// Fetches all branches and tags of another repository, unless somebody raises the flag. Whatever way they came, every
    /// object is looked at as one that is pushed, and that everything they lead to is there.
    pub fn fetch(&self, source: &Source, limits: &FetchLimits, cancelled: &AtomicBool) -> Result<Fetched> {
        let raw = self.blank()?;
        let deadline = Instant::now() + limits.time;
        let supervision = Supervision { limits: limits.of_child(), deadline, cancelled };
        let mut progress = Progress::new(raw.path(), limits);
        let run =
            child::run_supervised(fetch(raw.path(), source, limits), &supervision, &mut |group| progress.look(group));
        // Whatever it failed of, too large is too large.
        progress.check_size()?;
        run?;
        let head = remote_head(raw.path(), source, limits, &supervision)?;
        let fetched = Repository::new(Handle::open(raw.path())?.into());
        let all = fetched.refs()?;
        let refs = without_ids(&all);
        for name in unusable_names(raw.path(), &supervision)? {
            tracing::warn!(name = %name.escape_ascii(), "a ref of an import was left out, its name is not allowed here");
        }
        let build = self.blank()?;
        if refs.iter().next().is_some() {
            let mut pack = child::git(raw.path());
            pack.args(["pack-objects", "--all", "--stdout", "-q"]);
            child::pipe_supervised(pack, child::index_pack(build.path(), limits.pack), &supervision)?;
            checks::check_packed_sizes(build.path())?;
        }
        write_refs(build.path(), &refs, head.as_ref().filter(|head| refs.find(head).is_some()))?;
        Ok(Fetched(build))
    }

    /// Makes what was fetched the repository of a project. It appears whole or not at all, and never in the place of
    /// one that is there. Whoever calls this is the only one who writes to the project.
    pub fn adopt(&self, fetched: Fetched, storage: &StorageId) -> Result<()> {
        if self.path_of(storage).exists() {
            return Err(Error::Moved("the repository is not empty any more, it".into()));
        }
        self.put_in_place(fetched.0, &self.path_of(storage))
    }
}

/// Whether what is fetched gets on, and stays within bounds.
struct Progress<'a> {
    packs: PathBuf,
    limits: &'a FetchLimits,
    /// When it was last seen to get on, and how far it had come by then: bytes that were written, and processor time.
    last: (Instant, u64, u64),
}

impl<'a> Progress<'a> {
    fn new(repository: &Path, limits: &'a FetchLimits) -> Self {
        Self { packs: repository.join("objects/pack"), limits, last: (Instant::now(), 0, 0) }
    }

    fn look(&mut self, group: u32) -> Result<()> {
        let written = self.check_size()?;
        let (since, before, ticks_before) = self.last;
        let ticks = child::ticks_used(group);
        let is_busy = ticks.saturating_sub(ticks_before) >= BUSY && before > 0;
        if written.saturating_sub(before) >= self.limits.least || is_busy {
            self.last = (Instant::now(), written, ticks);
        } else if since.elapsed() > self.limits.stall {
            return Err(Error::Child(TOO_SLOW.into()));
        }
        Ok(())
    }

    /// How many bytes of packs were written, if they are not too many.
    fn check_size(&self) -> Result<u64> {
        let entries = fs::read_dir(&self.packs).into_iter().flatten().flatten();
        let is_pack = |name: &str| name.starts_with("tmp_pack") || name.ends_with(".pack");
        let packs = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_pack));
        let written = packs.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
        if self.limits.pack.is_some_and(|most| written > most) {
            Err(Error::Child(TOO_LARGE.into()))
        } else {
            Ok(written)
        }
    }
}

/// A program of git that talks to the other side and to nobody else.
fn guarded(repository: &Path, source: &Source, limits: &FetchLimits) -> Command {
    let mut command = child::git(repository);
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
    // In the environment, because everybody on the machine can read the arguments of a program.
    command.env("GIT_CONFIG_COUNT", settings.len().to_string()).env("GIT_ASKPASS", "/bin/false");
    for (index, (name, value)) in settings.into_iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{index}"), name).env(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    command
}

fn fetch(repository: &Path, source: &Source, limits: &FetchLimits) -> Command {
    let mut command = guarded(repository, source, limits);
    command.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]);
    command.arg("--end-of-options").arg(&source.url).args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
    command
}

/// The refs but those that are called like the id of a commit, which would never be found by their name.
fn without_ids(refs: &Refs) -> Refs {
    let kept = |list: &[Ref]| list.iter().filter(|one| !one.name.looks_like_an_id()).cloned().collect();
    Refs {
        head: refs.head.clone(),
        branches: kept(&refs.branches),
        tags: kept(&refs.tags),
        others: refs.others.clone(),
        ..Refs::default()
    }
}

/// The names of refs that cannot be taken over: not valid UTF-8, or refused here for another reason. They are never
/// converted to something else, which would be the name of another ref.
fn unusable_names(repository: &Path, supervision: &Supervision<'_>) -> Result<Vec<Vec<u8>>> {
    let mut command = child::git(repository);
    command.args(["for-each-ref", "--format=%(refname)"]);
    let said = child::said_supervised(command, LONGEST_LIST, supervision)?;
    let is_usable = |name: &[u8]| {
        let name = std::str::from_utf8(name).ok().and_then(model::RefName::new);
        name.is_some_and(|name| !name.looks_like_an_id())
    };
    let names = said.split(|byte| *byte == b'\n').filter(|name| !name.is_empty());
    Ok(names.filter(|name| !is_usable(name)).take(MOST_WARNINGS).map(<[u8]>::to_vec).collect())
}

/// The branch that the other side names as its own.
fn remote_head(
    repository: &Path,
    source: &Source,
    limits: &FetchLimits,
    supervision: &Supervision<'_>,
) -> Result<Option<model::RefName>> {
    let mut command = guarded(repository, source, limits);
    command.args(["ls-remote", "--symref", "--end-of-options"]).arg(&source.url).arg("HEAD");
    let deadline = supervision.deadline.min(Instant::now() + PATIENCE);
    let said = child::said_supervised(command, LONGEST_ANSWER, &Supervision { deadline, ..*supervision })?;
    let text = String::from_utf8_lossy(&said);
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

    use model::StorageId;

    use super::*;

    const ID: &str = "1111111111111111111111111111111111111111";

    /// A server that answers requests by their method as it likes, for as long as it likes.
    fn serve(answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Source {
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
        Source {
            url: format!("http://{address}/x.git"),
            host: ("127.0.0.1".into(), address.port()),
            address: address.ip(),
            authorization: None,
        }
    }

    fn begin(out: &mut TcpStream, kind: &str) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/x-git-upload-pack-{kind}\r\n\r\n"
        );
        out.write_all(head.as_bytes())
    }

    fn packet(out: &mut impl Write, content: &[u8]) -> io::Result<()> {
        out.write_all(format!("{:04x}", content.len() + 4).as_bytes())?;
        out.write_all(content)
    }

    fn begin_refs(out: &mut TcpStream) -> io::Result<()> {
        begin(out, "advertisement")?;
        packet(out, b"# service=git-upload-pack\n")?;
        out.write_all(b"0000")?;
        packet(out, format!("{ID} refs/heads/main\0side-band-64k ofs-delta\n").as_bytes())
    }

    /// A pack that never ends, in pieces of this size.
    fn endless_pack(out: &mut TcpStream, piece: usize, pause: Duration) -> io::Result<()> {
        begin(out, "result")?;
        packet(out, b"NAK\n")?;
        // A file of a tebibyte, in blocks that are not compressed.
        let mut start = b"\x01PACK\0\0\0\x02\0\0\0\x01".to_vec();
        start.extend([0xb0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x04, 0x78, 0x01]);
        packet(out, &start)?;
        let length = u16::try_from(piece).expect("a small piece");
        let mut block = vec![1, 0];
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(vec![7; piece]);
        loop {
            packet(out, &block)?;
            thread::sleep(pause);
        }
    }

    fn small() -> FetchLimits {
        FetchLimits { memory: 256 << 20, ..FetchLimits::default() }
    }

    fn impatient() -> FetchLimits {
        FetchLimits { stall: Duration::from_secs(3), ..small() }
    }

    fn fetch_of(source: &Source, limits: &FetchLimits) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::in_folder(folder.path()).expect("a place");
        let fetched = repositories.fetch(source, limits, &AtomicBool::new(false));
        let error = fetched.map(drop).expect_err("nothing can be had there").to_string();
        let left = fs::read_dir(folder.path().join("tmp")).expect("a folder").count();
        assert_eq!(left, 0, "something is left: {error}");
        error
    }

    #[test]
    fn a_server_that_sends_refs_without_end_does_not_get_more_memory_than_a_push() {
        let source = serve(|_, out| {
            begin_refs(out)?;
            let mut many = Vec::new();
            for number in 0..1000 {
                packet(&mut many, format!("{ID} refs/heads/{number:0>200}\n").as_bytes())?;
            }
            loop {
                out.write_all(&many)?;
            }
        });
        let error = fetch_of(&source, &small());
        assert!(error.contains("ut of memory"), "{error}");
    }

    #[test]
    fn a_pack_that_is_larger_than_a_push_may_be_is_given_up() {
        let source = serve(|method, out| match method {
            "GET" => begin_refs(out).and_then(|()| out.write_all(b"0000")),
            _ => endless_pack(out, 60_000, Duration::ZERO),
        });
        let error = fetch_of(&source, &FetchLimits { pack: Some(4 << 20), ..small() });
        assert_eq!(error, TOO_LARGE);
    }

    #[test]
    fn a_server_that_is_silent_or_drips_is_given_up() {
        let silent = serve(|_, out| out.read_to_end(&mut Vec::new()).map(drop));
        let error = fetch_of(&silent, &impatient());
        assert!(error.contains("too slow"), "silent: {error}");
        let drip = serve(|_, out| {
            begin_refs(out)?;
            loop {
                out.write_all(b"0")?;
                thread::sleep(Duration::from_millis(50));
            }
        });
        let error = fetch_of(&drip, &impatient());
        assert!(error.contains("too slow"), "refs that drip: {error}");
        // Quick enough for the library that speaks HTTP.
        let pack = serve(|method, out| match method {
            "GET" => begin_refs(out).and_then(|()| out.write_all(b"0000")),
            _ => endless_pack(out, 4_000, Duration::from_millis(200)),
        });
        let error = fetch_of(&pack, &FetchLimits { least: 1 << 30, ..impatient() });
        assert!(error.contains("too slow"), "a pack that drips: {error}");
    }

    #[test]
    fn messages_without_end_are_no_progress() {
        let source = serve(|method, out| {
            if method == "GET" {
                return begin_refs(out).and_then(|()| out.write_all(b"0000"));
            }
            begin(out, "result")?;
            packet(out, b"NAK\n")?;
            loop {
                packet(out, format!("\x02{}\r", "Counting objects ".repeat(100)).as_bytes())?;
                thread::sleep(Duration::from_millis(2));
            }
        });
        let error = fetch_of(&source, &impatient());
        assert!(error.contains("too slow"), "{error}");
    }

    #[test]
    fn a_fetch_that_nobody_wants_any_more_ends_with_its_connection() {
        let (tell, told) = mpsc::channel();
        let source = serve(move |_, out| {
            let _ = tell.send("open");
            let ended = out.read_to_end(&mut Vec::new()).map(drop);
            let _ = tell.send("closed");
            ended
        });
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::in_folder(folder.path()).expect("a place");
        let cancelled = AtomicBool::new(false);
        thread::scope(|scope| {
            let fetching = scope.spawn(|| repositories.fetch(&source, &FetchLimits::default(), &cancelled).map(drop));
            let most = Duration::from_secs(50);
            assert_eq!(told.recv_timeout(most), Ok("open"));
            cancelled.store(true, Ordering::Relaxed);
            assert_eq!(told.recv_timeout(most), Ok("closed"));
            let error = fetching.join().expect("no panic").expect_err("cancelled");
            assert_eq!(error.to_string(), child::CANCELLED);
        });
    }

    #[test]
    fn names_that_are_not_allowed_are_told_and_not_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::in_folder(folder.path()).expect("a place");
        let storage = StorageId::parse("1").expect("a storage id");
        let path = repositories.find_or_make(&storage).expect("made").path().to_owned();
        let id = "1".repeat(40);
        let packed = [
            b"# pack-refs with: peeled fully-peeled sorted \n",
            format!("{id} refs/heads/-x\n{id} refs/heads/{id}\n{id} refs/heads/fine\n{id} refs/heads/").as_bytes(),
            b"\xff\xfe\n",
        ]
        .concat();
        fs::write(path.join("packed-refs"), packed).expect("written");
        let repository = repositories.find(&storage).expect("asked").expect("there");
        let refs = without_ids(&repository.refs().expect("refs"));
        let taken: Vec<String> = refs.iter().map(|one| one.name.to_string()).collect();
        assert_eq!(taken, ["refs/heads/fine"]);
        let deadline = Instant::now() + PATIENCE;
        let cancelled = AtomicBool::new(false);
        let supervision = Supervision { limits: ChildLimits::default(), deadline, cancelled: &cancelled };
        let left_out = unusable_names(&path, &supervision).expect("names");
        let like_an_id = format!("refs/heads/{id}");
        assert_eq!(left_out, [&b"refs/heads/-x"[..], like_an_id.as_bytes(), b"refs/heads/\xff\xfe"]);
    }
}
