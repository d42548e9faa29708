//! Git itself: pushes and clones of stock git against the shipped binary, beside the same with the programs of git.

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

use crate::{
    Outcome, landscape, peer,
    repository::Compared,
    server::{Server, TOKEN},
};

/// How many small pushes are timed on each side.
const PUSHES: u32 = 40;
/// How many clones run at once.
const CLONES: u32 = 10;
/// How large the large push is: so many files of so many bytes, none of which can be packed any smaller.
const LARGE: (usize, usize) = (64, 16 << 20);
/// How much memory the server may take for it, in megabytes.
const MEMORY: f64 = 150.0;

/// Measures pushes and clones.
pub(crate) fn measure(gable: &Path, folder: &Path) -> Outcome<Vec<Compared>> {
    let work = folder.join("transport");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).map_err(|error| format!("cannot make {}: {error}", work.display()))?;
    let server = Server::gable(gable, &work.join("data"))?;
    let mut rows = vec![small_pushes(&server, &work)?, clones(&server, folder, &work)?];
    drop(server);
    let server = Server::gable(gable, &work.join("data"))?;
    rows.extend(large_push(&server, &work)?);
    drop(server);
    let _ = fs::remove_dir_all(&work);
    Ok(rows)
}

/// A new project, as the URL to push to.
fn project(server: &Server, name: &str) -> Outcome<String> {
    let address = server.address;
    let header = format!("PRIVATE-TOKEN: {TOKEN}");
    let url = format!("http://{address}/api/v3/projects");
    let arguments = ["-sf", "-o", "/dev/null", "-H", &header, "-d", &format!("name={name}"), &url];
    let status = Command::new("curl").args(arguments).status().map_err(|error| format!("cannot run curl: {error}"))?;
    let url = format!("http://root:{TOKEN}@{address}/root/{name}.git");
    status.success().then_some(url).ok_or_else(|| format!("the project {name} cannot be made"))
}

fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Outcome<String> {
    let failed = |error: std::io::Error| format!("cannot run git: {error}");
    let mut child = quiet(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(said).ok_or_else(|| format!("git {arguments:?} failed"))
}

fn quiet(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        command.env(name, "bench");
    }
    command
}

/// A push of one commit, end to end: ours, and that to `git http-backend` which syncs as we do.
fn small_pushes(server: &Server, work: &Path) -> Outcome<Compared> {
    let ours = project(server, "small")?;
    let peers = work.join("peers");
    fs::create_dir_all(&peers).map_err(|error| format!("cannot make a folder: {error}"))?;
    git(&peers, &["init", "-q", "--bare", "small.git"], b"")?;
    let bare = peers.join("small.git");
    for (name, value) in [("core.fsync", "all"), ("http.receivepack", "true"), ("gc.auto", "0")] {
        git(&bare, &["config", name, value], b"")?;
    }
    let theirs = format!("http://{}/small.git", peer::serve(&peers)?);
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
        measured: middle(measured),
        floor: middle(floor),
        goal,
    })
}

/// Ten clones at once of the large repository: what they cost the server and its programs, against ten calls of
/// `git upload-pack` that send the same.
fn clones(server: &Server, folder: &Path, work: &Path) -> Outcome<Compared> {
    let (_, path) = landscape::provide(folder)?;
    let url = project(server, "large")?;
    git(&path, &["push", "-q", &url, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"], b"")?;
    wait_for_housekeeping(&work.join("data/repositories"))?;
    let before = server.family_time()?;
    let cloned: Vec<_> = (0..CLONES)
        .map(|number| {
            let (work, url) = (work.to_owned(), url.clone());
            thread::spawn(move || git(&work, &["clone", "-q", "--bare", &url, &format!("clone-{number}")], b""))
        })
        .collect();
    for clone in cloned {
        clone.join().map_err(|_| "a clone panicked")??;
    }
    let spent = server.family_time()?.saturating_sub(before);
    for number in 0..CLONES {
        let _ = fs::remove_dir_all(work.join(format!("clone-{number}")));
    }
    let once = upload_pack(&path)?;
    Ok(Compared {
        name: "ten clones at once, processor ms; ten upload-packs",
        measured: spent.as_secs_f64() * 1000.0,
        floor: once.as_secs_f64() * 1000.0 * f64::from(CLONES),
        goal: Some(0.2),
    })
}

/// Waits until the server has packed what was pushed, as it does half a minute later: the other side is packed as well.
fn wait_for_housekeeping(repositories: &Path) -> Outcome {
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
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
            }
        }
        thread::sleep(Duration::from_millis(500));
    }
    Err("the server has not kept house within two minutes".into())
}

/// Whether a file is the graph of many commits.
fn is_large(file: fs::DirEntry) -> bool {
    file.metadata().is_ok_and(|data| data.len() > 500_000)
}

/// The processor time of one `git upload-pack` that sends everything.
fn upload_pack(path: &Path) -> Outcome<Duration> {
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
    let mut child = quiet(path)
        .args(["upload-pack", "--stateless-rpc", "."])
        .env("GIT_PROTOCOL", "version=2")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(request.as_bytes()).map_err(|error| format!("cannot write to git: {error}"))?;
    }
    let status = child.wait().map_err(|error| format!("cannot wait for git: {error}"))?;
    if !status.success() {
        return Err("git upload-pack failed".into());
    }
    Ok(children_time()?.saturating_sub(before))
}

/// The processor time of all children of this program that have ended, and of theirs.
fn children_time() -> Outcome<Duration> {
    let text = fs::read_to_string("/proc/self/stat").map_err(|error| format!("cannot read my own state: {error}"))?;
    crate::server::ticks(&text, &[13, 14]).ok_or_else(|| "cannot read my own processor time".into())
}

/// One push of a pack of a gigabyte: how much memory the server takes for it, alone and with its programs.
fn large_push(server: &Server, work: &Path) -> Outcome<Vec<Compared>> {
    let url = project(server, "huge")?;
    let source = work.join("huge.git");
    git(work, &["init", "-q", "--bare", "huge.git"], b"")?;
    write_noise(&source)?;
    let done = Arc::new(AtomicBool::new(false));
    let family = {
        let (done, pid) = (Arc::clone(&done), server.id());
        thread::spawn(move || {
            let mut most = 0.0_f64;
            while !done.load(Ordering::Relaxed) {
                most = most.max(crate::server::family_memory(pid));
                thread::sleep(Duration::from_millis(50));
            }
            most
        })
    };
    let pushed =
        git(&source, &["-c", "core.compression=0", "-c", "core.bigFileThreshold=1m", "push", "-q", &url, "main"], b"");
    done.store(true, Ordering::Relaxed);
    let family = family.join().map_err(|_| "the watcher panicked")?;
    pushed?;
    let alone = server.peak_memory()?;
    Ok(vec![
        Compared {
            name: "push of 1 GB, peak memory of the server in MB",
            measured: alone,
            floor: MEMORY,
            goal: Some(1.0),
        },
        Compared { name: "the same with the programs it runs", measured: family, floor: MEMORY, goal: None },
    ])
}

/// Files that cannot be packed any smaller.
fn write_noise(path: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("cannot write noise: {error}");
    let mut child = quiet(path)
        .args(["-c", "core.compression=0", "fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut out = child.stdin.take().ok_or("git takes no input")?;
    let (files, size) = LARGE;
    let mut state = 88_172_645_463_325_252_u64;
    let mut piece = vec![0; size];
    for file in 1..=files {
        for place in piece.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            place.copy_from_slice(&state.to_le_bytes());
        }
        write!(out, "blob\nmark :{file}\ndata {size}\n").map_err(failed)?;
        out.write_all(&piece).map_err(failed)?;
    }
    write!(out, "\ncommit refs/heads/main\ncommitter x <x> 0 +0000\ndata 5\nnoise\n").map_err(failed)?;
    for file in 1..=files {
        writeln!(out, "M 100644 :{file} noise-{file}").map_err(failed)?;
    }
    drop(out);
    let status = child.wait().map_err(failed)?;
    status.success().then_some(()).ok_or_else(|| "git fast-import failed".into())
}

fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}
