//! Benchmark of pushes and clones with stock git, compared with the server programs of git.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    git_http_backend, large_repository,
    repository::Compared,
    server::{Server, TOKEN},
};

/// The number of small pushes to each server.
const PUSHES: u32 = 40;
/// The number of concurrent clones.
const CLONES: u32 = 10;
/// The number and the size of the incompressible files of the large push.
const LARGE: (usize, usize) = (64, 16 << 20);
/// The maximum memory of the server during the large push, in megabytes.
const MAX_MEMORY_MB: f64 = 150.0;

/// Measures pushes and clones.
pub(crate) fn measure(gable: &Path, folder: &Path) -> Result<Vec<Compared>> {
    let work = folder.join("transport");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let server = Server::gable_with_ssh(gable, &work.join("data"))?;
    let mut rows = vec![small_pushes(&server, &work)?];
    rows.extend(clones(&server, folder, &work)?);
    drop(server);
    let server = Server::gable(gable, &work.join("data"))?;
    rows.extend(large_push(&server, &work)?);
    drop(server);
    let _ = fs::remove_dir_all(&work);
    Ok(rows)
}

/// Creates a project and returns its URL.
fn project(server: &Server, name: &str) -> Result<String> {
    let address = server.address;
    let header = format!("PRIVATE-TOKEN: {TOKEN}");
    let url = format!("http://{address}/api/v3/projects");
    let arguments = ["-sf", "-o", "/dev/null", "-H", &header, "-d", &format!("name={name}"), &url];
    let status = Command::new("curl").args(arguments).status().context("cannot run curl")?;
    let url = format!("http://root:{TOKEN}@{address}/root/{name}.git");
    status.success().then_some(url).with_context(|| format!("cannot create the project {name}"))
}

fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<String> {
    let context = "cannot run git";
    let mut child = git_command(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context(context)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input).context(context)?;
    }
    let output = child.wait_with_output().context(context)?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text).with_context(|| format!("git {arguments:?} failed"))
}

fn git_command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        command.env(name, "bench");
    }
    command
}

/// Measures pushes of one commit to Gable and to `git http-backend` with the same durability.
fn small_pushes(server: &Server, work: &Path) -> Result<Compared> {
    let ours = project(server, "small")?;
    let peers = work.join("peers");
    fs::create_dir_all(&peers).context("cannot create a folder")?;
    git(&peers, &["init", "-q", "--bare", "small.git"], b"")?;
    let bare = peers.join("small.git");
    for (name, value) in [("core.fsync", "all"), ("http.receivepack", "true"), ("gc.auto", "0")] {
        git(&bare, &["config", name, value], b"")?;
    }
    let theirs = format!("http://{}/small.git", git_http_backend::serve(&peers)?);
    let clone = work.join("clone");
    git(work, &["init", "-q", "-b", "main", "clone"], b"")?;
    let tree = git(&clone, &["mktree"], b"")?;
    let mut tip = git(&clone, &["commit-tree", "-m", "First", &tree], b"")?;
    for url in [&ours, &theirs] {
        git(&clone, &["push", "-q", url, &format!("{tip}:refs/heads/main")], b"")?;
    }
    let (mut measured, mut floor) = (Vec::new(), Vec::new());
    for round in 0..PUSHES {
        let blob = git(&clone, &["hash-object", "-w", "--stdin"], round.to_string().as_bytes())?;
        let tree = git(&clone, &["mktree"], format!("100644 blob {blob}\tfile\n").as_bytes())?;
        tip = git(&clone, &["commit-tree", "-p", &tip, "-m", "Next", &tree], b"")?;
        for (url, times) in [(&ours, &mut measured), (&theirs, &mut floor)] {
            let start = Instant::now();
            git(&clone, &["push", "-q", url, &format!("{tip}:refs/heads/main")], b"")?;
            times.push(start.elapsed());
        }
    }
    let goal = Some(1.0);
    Ok(Compared {
        name: "small push, durable; against http-backend",
        measured: median(measured),
        floor: median(floor),
        goal,
    })
}

/// Measures the processor time of the server and its processes for concurrent clones of the large repository over HTTP
/// and over SSH, compared with as many runs of `git upload-pack`.
fn clones(server: &Server, folder: &Path, work: &Path) -> Result<Vec<Compared>> {
    let (_, path) = large_repository::open_or_create(folder)?;
    let url = project(server, "large")?;
    git(&path, &["push", "-q", &url, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"], b"")?;
    wait_for_housekeeping(&work.join("data/repositories"))?;
    let ssh_address = server.ssh_address.context("the server has no SSH")?;
    let ssh_url = format!("ssh://git@{ssh_address}/root/large.git");
    let ssh_command = create_ssh_key(server, work)?;
    let floor = upload_pack(&path)?.as_secs_f64() * 1000.0 * f64::from(CLONES);
    let mut rows = Vec::new();
    for (name, url) in
        [("ten clones at once, processor ms; ten upload-packs", url), ("the same over SSH, with encryption", ssh_url)]
    {
        let before = server.process_tree_cpu_time()?;
        let cloned: Vec<_> = (0..CLONES)
            .map(|number| {
                let mut command = git_command(work);
                command.env("GIT_SSH_COMMAND", &ssh_command);
                command.args(["clone", "-q", "--bare", &url, &format!("clone-{number}")]);
                thread::spawn(move || command.status())
            })
            .collect();
        for clone in cloned {
            let status = clone.join().map_err(|_| anyhow!("a clone panicked"))?.context("cannot run git")?;
            if !status.success() {
                bail!("a clone of {url} failed");
            }
        }
        let measured = server.process_tree_cpu_time()?.saturating_sub(before).as_secs_f64() * 1000.0;
        for number in 0..CLONES {
            let _ = fs::remove_dir_all(work.join(format!("clone-{number}")));
        }
        rows.push(Compared { name, measured, floor, goal: Some(0.2) });
    }
    Ok(rows)
}

/// Creates an SSH key of the administrator; returns the command with which git uses it.
fn create_ssh_key(server: &Server, work: &Path) -> Result<String> {
    let key = work.join("key");
    let mut generate = Command::new("ssh-keygen");
    generate.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    if !generate.status().context("cannot run ssh-keygen")?.success() {
        bail!("ssh-keygen failed");
    }
    let public = fs::read_to_string(key.with_extension("pub")).context("cannot read the key")?;
    let url = format!("http://{}/api/v3/user/keys", server.address);
    let (header, field) = (format!("PRIVATE-TOKEN: {TOKEN}"), format!("key={}", public.trim()));
    let arguments =
        ["-sf", "-o", "/dev/null", "-H", &header, "--data-urlencode", "title=bench", "--data-urlencode", &field, &url];
    if !Command::new("curl").args(arguments).status().context("cannot run curl")?.success() {
        bail!("cannot add the key");
    }
    let key = key.display();
    Ok(format!(
        "ssh -F /dev/null -i {key} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -q"
    ))
}

/// Waits until the housekeeping of the server has packed the repository, as the reference is packed, too.
fn wait_for_housekeeping(repositories: &Path) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(120) {
        let mut folders = vec![repositories.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let graph = entry.file_name() == "commit-graphs";
                let large = || fs::read_dir(entry.path()).is_ok_and(|files| files.flatten().any(is_large));
                if graph && large() {
                    return Ok(());
                }
                // Not yet in place.
                let temporary = entry.file_name() == "tmp";
                if !temporary && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
            }
        }
        thread::sleep(Duration::from_millis(500));
    }
    Err(anyhow!("no housekeeping within two minutes"))
}

/// Returns whether a file is a commit-graph of many commits.
fn is_large(file: fs::DirEntry) -> bool {
    file.metadata().is_ok_and(|data| data.len() > 500_000)
}

/// Returns the processor time of a `git upload-pack` that sends everything.
fn upload_pack(path: &Path) -> Result<Duration> {
    let tips = git(path, &["for-each-ref", "--format=%(objectname)"], b"")?;
    let mut tips: Vec<&str> = tips.lines().collect();
    tips.sort_unstable();
    tips.dedup();
    let packet = |text: &str| format!("{:04x}{text}\n", text.len() + 5);
    let mut request = packet("command=fetch") + &packet("object-format=sha1") + "0001";
    for word in ["thin-pack", "no-progress", "ofs-delta"] {
        request += &packet(word);
    }
    for tip in tips {
        request += &packet(&format!("want {tip}"));
    }
    request += &(packet("done") + "0000");
    let before = children_time()?;
    let mut child = git_command(path)
        .args(["upload-pack", "--stateless-rpc", "."])
        .env("GIT_PROTOCOL", "version=2")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot run git")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(request.as_bytes()).context("cannot write to git")?;
    }
    let status = child.wait().context("cannot wait for git")?;
    if !status.success() {
        bail!("git upload-pack failed");
    }
    Ok(children_time()?.saturating_sub(before))
}

/// Returns the processor time of all finished descendants of this process.
fn children_time() -> Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    crate::server::ticks(&text, &[13, 14]).context("cannot read the processor time of this process")
}

/// Measures the memory of the server during a push of a gigabyte, without and with its child processes.
fn large_push(server: &Server, work: &Path) -> Result<Vec<Compared>> {
    let url = project(server, "huge")?;
    let source = work.join("huge.git");
    git(work, &["init", "-q", "--bare", "huge.git"], b"")?;
    write_noise(&source)?;
    let done = Arc::new(AtomicBool::new(false));
    let tree_memory = {
        let (done, pid) = (Arc::clone(&done), server.id());
        thread::spawn(move || {
            let mut peak = 0.0_f64;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(crate::server::process_tree_memory(pid));
                thread::sleep(Duration::from_millis(50));
            }
            peak
        })
    };
    let pushed =
        git(&source, &["-c", "core.compression=0", "-c", "core.bigFileThreshold=1m", "push", "-q", &url, "main"], b"");
    done.store(true, Ordering::Relaxed);
    let tree_memory = tree_memory.join().map_err(|_| anyhow!("the memory sampler panicked"))?;
    pushed?;
    let server_peak = server.peak_memory()?;
    Ok(vec![
        Compared {
            name: "push of 1 GB, peak memory of the server in MB",
            measured: server_peak,
            floor: MAX_MEMORY_MB,
            goal: Some(1.0),
        },
        Compared { name: "the same with its child processes", measured: tree_memory, floor: MAX_MEMORY_MB, goal: None },
    ])
}

/// Creates a repository of incompressible files.
fn write_noise(path: &Path) -> Result<()> {
    let context = "cannot write noise";
    let mut child = git_command(path)
        .args(["-c", "core.compression=0", "fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .context(context)?;
    let mut out = child.stdin.take().context("git has no standard input")?;
    let (files, size) = LARGE;
    let mut state = 88_172_645_463_325_252_u64;
    let mut chunk = vec![0; size];
    for file in 1..=files {
        for word in chunk.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        write!(out, "blob\nmark :{file}\ndata {size}\n").context(context)?;
        out.write_all(&chunk).context(context)?;
    }
    write!(out, "\ncommit refs/heads/main\ncommitter x <x> 0 +0000\ndata 5\nnoise\n").context(context)?;
    for file in 1..=files {
        writeln!(out, "M 100644 :{file} noise-{file}").context(context)?;
    }
    drop(out);
    let status = child.wait().context(context)?;
    status.success().then_some(()).context("git fast-import failed")
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}
