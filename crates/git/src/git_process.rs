//! Runs `git` processes: their configuration, resource limits and supervision.

use std::{
    io::{self, BufRead as _, Read as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::Access,
    process::{Pid, Resource, Rlimit, getrlimit, prlimit},
};

use crate::{Error, Result};

/// The minimum version of git: it supports the `core.fsync` settings and has the known security fixes.
const MIN_VERSION: (u32, u32) = (2, 39);
/// The niceness of `git` processes: about a tenth of the processor under contention, all of it otherwise.
const NICENESS: i32 = 10;
/// The maximum number of bytes of error output that are kept.
const MAX_STDERR_BYTES: u64 = 4096;

/// When a process group is limited for the second time after its start, and for how long this is repeated.
const SECOND_LIMITING: Duration = Duration::from_millis(20);
const LIMITING_PERIOD: Duration = Duration::from_secs(10);
/// How often the progress of a process is checked.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How often a watchdog checks whether a process has to be killed.
const WATCHDOG_INTERVAL: Duration = Duration::from_millis(100);
/// The limits of housekeeping, which works on whole repositories.
pub(crate) const HOUSEKEEPING_LIMITS: ChildLimits = ChildLimits { memory: 4 << 30, file_size: None };

/// Settings for every `git` process, which override the configuration of the repository and the machine.
const SETTINGS: &[(&str, &str)] = &[
    // Programs write to temporary folders; what is kept of that is synced when it is stored or installed.
    ("core.fsync", "none"),
    // No foreign program is ever started.
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("protocol.allow", "never"),
    // The server runs housekeeping itself.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // The repositories belong to the server, whatever user owns the folder.
    ("safe.directory", "*"),
    ("safe.bareRepository", "all"),
    ("transfer.hideRefs", "refs/gable"),
    ("uploadpack.allowFilter", "true"),
    // `sparse:oid` reads a blob without a reachability check, and takes unbounded time.
    ("uploadpackfilter.allow", "false"),
    ("uploadpackfilter.blob:none.allow", "true"),
    ("uploadpackfilter.blob:limit.allow", "true"),
    ("uploadpackfilter.tree.allow", "true"),
    ("uploadpackfilter.object:type.allow", "true"),
    ("uploadpackfilter.combine.allow", "true"),
    ("uploadpack.allowTipSHA1InWant", "true"),
    ("uploadpack.allowReachableSHA1InWant", "true"),
    // It would reveal the sizes of unreachable objects.
    ("transfer.advertiseObjectInfo", "false"),
    // Sending a repository takes a bounded amount of memory, whatever its size.
    ("pack.windowMemory", "64m"),
    ("pack.deltaCacheSize", "64m"),
    ("pack.threads", "2"),
    ("core.packedGitLimit", "512m"),
    ("core.bigFileThreshold", "16m"),
];

/// Harmless faults that are common in old histories.
pub(crate) const IGNORED_FSCK_ERRORS: &str = "badTimezone=ignore,missingSpaceBeforeDate=ignore,zeroPaddedFilemode=ignore,\
                        badDateOverflow=ignore,multipleAuthors=ignore,missingEmail=ignore,badEmail=ignore,\
                        missingNameBeforeEmail=ignore,badName=ignore";

/// Returns a `git` command for a repository, with a clean environment.
pub(crate) fn git_command(repository: &Path) -> Command {
    let mut command = base_command();
    command.env("GIT_DIR", repository).current_dir(repository);
    command
}

/// Returns the path of the `git` program. To spawn a program by its bare name with a changed environment, the standard
/// library has to fork, which copies the page tables of the server and stalls all its threads for milliseconds.
fn git_path() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join("git"));
    let is_executable = |file: &PathBuf| rustix::fs::access(file, Access::EXEC_OK).is_ok() && file.is_file();
    // If there is none, the spawn reports it.
    candidates.find(is_executable).unwrap_or_else(|| "git".into())
}

fn base_command() -> Command {
    let mut command = Command::new(git_path());
    command.env_clear().env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C");
    command.env("HOME", "/nonexistent").env("GIT_TERMINAL_PROMPT", "0").env("GIT_ATTR_NOSYSTEM", "1");
    // A pushed `refs/replace/` must not change what other users read.
    command.env("GIT_NO_REPLACE_OBJECTS", "1");
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    for (name, value) in SETTINGS {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Serves a fetch; talks to the client on standard input and output.
pub(crate) fn upload_pack(repository: &Path, protocol: Option<&str>, stateless: bool) -> Command {
    let mut command = git_command(repository);
    if let Some(protocol) = protocol {
        command.env("GIT_PROTOCOL", protocol);
    }
    command.args(["upload-pack", "--strict", "--timeout=600"]);
    if stateless {
        command.arg("--stateless-rpc");
    }
    command.arg("--end-of-options").arg(repository).stdin(Stdio::piped());
    command
}

/// Serves a request for an archive.
pub(crate) fn upload_archive(repository: &Path) -> Command {
    let mut command = git_command(repository);
    command.arg("upload-archive").arg(repository).stdin(Stdio::piped());
    command
}

/// Stores a pack from standard input with its index and reverse index; checks every object, and that every linked
/// object exists. The caller may name other folders of objects in the environment. Thin packs are refused: a delta against an
/// object of the repository would be resolved before it is known whether the client may read that object.
pub(crate) fn index_pack(repository: &Path, max_size: Option<u64>) -> Command {
    let mut command = git_command(repository);
    command.args(["index-pack", "--stdin", "--rev-index", "--threads=2"]);
    command.arg(format!("--strict={IGNORED_FSCK_ERRORS}"));
    if let Some(max_size) = max_size {
        command.arg(format!("--max-input-size={max_size}"));
    }
    command.stdin(Stdio::piped());
    command
}

/// Lowers the priority of a process and its future children below that of the server, whose requests are short. A
/// process that has exited, or that has an even lower priority, is left as it is.
pub fn lower_priority(id: u32) {
    if let Some(id) = pid(id) {
        let _ = rustix::process::setpriority_process(Some(id), NICENESS);
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Resource limits of a `git` process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// The maximum size of its data segment, in bytes. Memory-mapped packs do not count.
    pub memory: u64,
    /// The maximum size of a file that it writes, in bytes.
    pub file_size: Option<u64>,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self { memory: 2 << 30, file_size: None }
    }
}

impl ChildLimits {
    /// Limits a process that has no children yet; future children inherit the limits.
    pub fn apply(&self, id: u32) -> io::Result<()> {
        match pid(id).map_or(Ok(false), |id| self.limit(id)) {
            // The process has exited.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Limits the leader of a process group, which may already have children.
    fn apply_to_group(&self, leader: u32) -> io::Result<()> {
        self.apply(leader)?;
        // Children that were started before their parent was limited are found here. Repeated until no process had
        // other limits.
        while group_members(leader).into_iter().any(|id| matches!(self.limit(id), Ok(true))) {}
        Ok(())
    }

    /// Limits a process group again at increasing intervals during its first seconds. A child that was being created while
    /// its parent was limited has the old limits, and may become visible only afterwards.
    fn apply_again(&self, leader: u32, next: &mut (Instant, Duration)) -> Result<()> {
        let (start, after) = *next;
        if start.elapsed() >= after && after < LIMITING_PERIOD {
            *next = (start, after * 2);
            self.apply_to_group(leader)?;
        }
        Ok(())
    }

    /// Limits one process; returns whether it had other limits.
    fn limit(&self, id: Pid) -> io::Result<bool> {
        let mut changed = false;
        for (resource, limit) in [(Resource::Data, Some(self.memory)), (Resource::Fsize, self.file_size)] {
            let Some(limit) = limit else { continue };
            // The service may have a lower hard limit, which cannot be raised.
            let limit = getrlimit(resource).maximum.map_or(limit, |hard_limit| hard_limit.min(limit));
            let before = prlimit(Some(id), resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
            changed |= before.current != Some(limit);
        }
        Ok(changed)
    }
}

/// Returns the processes of a group.
fn group_members(leader: u32) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| pid(entry.file_name().to_str()?.parse().ok()?));
    ids.filter(|id| stat_fields(*id).is_some_and(|fields| fields.get(2) == Some(&u64::from(leader)))).collect()
}

/// Returns the fields of `/proc/<pid>/stat` after the name as numbers; the state, which is a letter, becomes 0.
fn stat_fields(id: Pid) -> Option<Vec<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect())
}

/// Returns the processor time used by a process group, in clock ticks.
pub(crate) fn cpu_ticks(leader: u32) -> u64 {
    // That of the process itself, and that of the children it has waited for.
    let ticks = |id: Pid| Some(stat_fields(id)?.get(11..15)?.iter().sum::<u64>());
    group_members(leader).into_iter().filter_map(ticks).sum()
}

/// Spawns a process with low priority and limits, in a process group of its own.
fn spawn(command: &mut Command, limits: &ChildLimits) -> Result<Child> {
    let mut child = command.process_group(0).spawn().map_err(Error::GitNotStarted)?;
    lower_priority(child.id());
    if let Err(error) = limits.apply_to_group(child.id()) {
        kill(&mut child);
        return Err(error.into());
    }
    Ok(child)
}

/// Runs a process until it exits; its error output becomes the error.
pub(crate) fn run(mut command: Command) -> Result<()> {
    wait_for_success(spawn(command.stdout(Stdio::null()), &HOUSEKEEPING_LIMITS)?)
}

/// Like [`run`], for a process without children and under supervision. [`Error::GitFailed`] holds what the process
/// reported; a process that was killed or had not enough memory is [`Error::GitInterrupted`].
pub(crate) fn run_single(mut command: Command, supervision: &Supervision<'_>) -> Result<()> {
    let mut child = command.stdout(Stdio::null()).process_group(0).spawn().map_err(Error::GitNotStarted)?;
    lower_priority(child.id());
    if let Err(error) = supervision.limits.apply(child.id()) {
        kill(&mut child);
        return Err(error.into());
    }
    let output = with_watchdog(&mut child, || supervision.check(), |child| Ok(read_stderr(child)?));
    if output.is_err() {
        kill(&mut child);
    }
    let output = output?;
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    let text = failure_text(status, &output);
    // `git` reports it only as text.
    let output = String::from_utf8_lossy(&output).to_ascii_lowercase();
    let has_no_memory = ["out of memory", "cannot allocate memory"].iter().any(|words| output.contains(words));
    let is_interrupted = status.signal().is_some() || has_no_memory;
    Err(if is_interrupted { Error::GitInterrupted(text) } else { Error::GitFailed(text) })
}

/// Works with a running process, and kills its process group as soon as `check` fails. The process is not reaped
/// meanwhile, so its id cannot be reused.
fn with_watchdog<T>(
    child: &mut Child,
    check: impl Fn() -> Result<()> + Send,
    work: impl FnOnce(&mut Child) -> Result<T>,
) -> Result<T> {
    let leader = child.id();
    thread::scope(|scope| {
        let (done, stopped) = mpsc::channel::<()>();
        let watchdog = scope.spawn(move || {
            while matches!(stopped.recv_timeout(WATCHDOG_INTERVAL), Err(mpsc::RecvTimeoutError::Timeout)) {
                if let Err(error) = check() {
                    kill_group(leader);
                    return Err(error);
                }
            }
            Ok(())
        });
        let result = work(child);
        drop(done);
        watchdog.join().unwrap_or(Ok(()))?;
        result
    })
}

/// Reads the error output of a process until it is closed; returns the start of it.
fn read_stderr(child: &mut Child) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(mut log) = child.stderr.take() {
        log.by_ref().take(MAX_STDERR_BYTES).read_to_end(&mut output)?;
        // The rest is read and dropped, because the process would block otherwise.
        io::copy(&mut log, &mut io::sink())?;
    }
    Ok(output)
}

fn wait_for_success(mut child: Child) -> Result<()> {
    let output = read_stderr(&mut child)?;
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(failure(status, &output))
}

/// When a process is killed early.
pub(crate) struct Supervision<'a> {
    pub(crate) limits: ChildLimits,
    pub(crate) deadline: Instant,
    /// Set when the result is no longer wanted.
    pub(crate) cancelled: &'a AtomicBool,
}

impl Supervision<'_> {
    fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if Instant::now() > self.deadline { Err(Error::DeadlineExceeded) } else { Ok(()) }
    }
}

/// Runs a process with its children until it exits, under supervision. `on_progress` is called about once a second with
/// the id of the process group, which is killed if the call fails.
pub(crate) fn run_supervised(
    mut command: Command,
    supervision: &Supervision<'_>,
    on_progress: &mut dyn FnMut(u32) -> Result<()>,
) -> Result<()> {
    let mut child = spawn(command.stdout(Stdio::null()), &supervision.limits)?;
    let output = child.stderr.take().map(|mut log| {
        thread::spawn(move || {
            let mut output = Vec::new();
            let _ = log.by_ref().take(MAX_STDERR_BYTES).read_to_end(&mut output);
            let _ = io::copy(&mut log, &mut io::sink());
            output
        })
    });
    let mut last_progress = Instant::now();
    let mut limiting = (Instant::now(), SECOND_LIMITING);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let mut outcome = supervision.check().and_then(|()| supervision.limits.apply_again(child.id(), &mut limiting));
        if outcome.is_ok() && last_progress.elapsed() >= PROGRESS_INTERVAL {
            last_progress = Instant::now();
            outcome = on_progress(child.id());
        }
        if let Err(error) = outcome {
            kill(&mut child);
            return Err(error);
        }
        thread::sleep(Duration::from_millis(20));
    };
    let output = output.and_then(|output| output.join().ok()).unwrap_or_default();
    if status.success() { Ok(()) } else { Err(failure(status, &output)) }
}

/// Returns at most `max_bytes` of the standard output of a process. The process is killed once it has written more, or
/// when the supervision ends it.
pub(crate) fn output_supervised(
    mut command: Command,
    max_bytes: u64,
    supervision: &Supervision<'_>,
) -> Result<Vec<u8>> {
    let mut child = spawn(command.stderr(Stdio::null()), &supervision.limits)?;
    let (sender, receiver) = mpsc::channel();
    let out = child.stdout.take();
    thread::spawn(move || {
        let mut output = Vec::new();
        let read = out.map_or(Ok(0), |out| out.take(max_bytes).read_to_end(&mut output));
        // After a timeout the receiver is gone.
        let _ = sender.send(read.map(|_| output));
    });
    let mut limiting = (Instant::now(), SECOND_LIMITING);
    let output = loop {
        if let Ok(output) = receiver.recv_timeout(Duration::from_millis(20)) {
            break output.map_err(Error::from);
        }
        let checked = supervision.check();
        if let Err(error) = checked.and_then(|()| supervision.limits.apply_again(child.id(), &mut limiting)) {
            break Err(error);
        }
    };
    kill(&mut child);
    output
}

/// Kills a process and its children, and reaps it.
fn kill(child: &mut Child) {
    kill_group(child.id());
    let _ = child.wait();
}

/// Calls `on_line` with each line of the standard output of a process, without the line feed. The process is killed
/// after `timeout`, whether or not it writes anything.
pub(crate) fn for_each_line(mut command: Command, timeout: Duration, mut on_line: impl FnMut(&[u8])) -> Result<()> {
    let mut child = spawn(command.stderr(Stdio::null()), &HOUSEKEEPING_LIMITS)?;
    let start = Instant::now();
    let check_timeout = || if start.elapsed() <= timeout { Ok(()) } else { Err(Error::TimedOut(timeout)) };
    let result = with_watchdog(&mut child, check_timeout, |child| {
        let out = child.stdout.take().ok_or_else(|| io::Error::other("the process has no pipe"))?;
        let (mut out, mut line) = (io::BufReader::new(out), Vec::new());
        while out.read_until(b'\n', &mut line)? > 0 {
            on_line(line.strip_suffix(b"\n").unwrap_or(&line));
            line.clear();
        }
        Ok(())
    });
    if result.is_err() {
        kill_group(child.id());
    }
    let status = child.wait()?;
    result?;
    if status.success() { Ok(()) } else { Err(failure(status, b"")) }
}

/// Kills all processes of a group.
fn kill_group(leader: u32) {
    if let Some(group) = pid(leader) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

fn failure(status: ExitStatus, output: &[u8]) -> Error {
    Error::GitFailed(failure_text(status, output))
}

fn failure_text(status: ExitStatus, output: &[u8]) -> String {
    format!("git exited with {status}: {}", String::from_utf8_lossy(output).trim())
}

/// Pipes the output of one process into another and runs both until they exit, under supervision.
pub(crate) fn pipe_supervised(mut from: Command, mut to: Command, supervision: &Supervision<'_>) -> Result<()> {
    let mut source = spawn(from.stderr(Stdio::null()), &supervision.limits)?;
    let pipe = source.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let sink_result = run_supervised(
        {
            to.stdin(pipe);
            to
        },
        supervision,
        &mut |_| Ok(()),
    );
    if sink_result.is_err() {
        kill(&mut source);
    }
    let status = source.wait()?;
    sink_result?;
    if status.success() { Ok(()) } else { Err(failure(status, b"")) }
}

/// Why the installed git cannot be used; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// It cannot be run.
    #[error("cannot run git: {0}; install git {major}.{minor} or newer", major = MIN_VERSION.0, minor = MIN_VERSION.1)]
    NotRunnable(#[source] io::Error),
    /// It does not report a version.
    #[error("cannot determine the version of git; install git {}.{} or newer", MIN_VERSION.0, MIN_VERSION.1)]
    Unknown,
    /// It has this version, which is too old.
    #[error("git {0} is too old; install git {major}.{minor} or newer", major = MIN_VERSION.0, minor = MIN_VERSION.1)]
    TooOld(String),
}

/// Returns the version of the installed git.
pub fn check_version() -> std::result::Result<String, VersionError> {
    let output = base_command().arg("version").output().map_err(VersionError::NotRunnable)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().strip_prefix("git version ").unwrap_or_default();
    let parsed = parse_version(version).ok_or(VersionError::Unknown)?;
    if parsed < MIN_VERSION { Err(VersionError::TooOld(version.to_owned())) } else { Ok(version.to_owned()) }
}

fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_distributions_are_parsed() {
        let cases = [
            ("2.39.5", Some((2, 39))),
            ("2.39.5 (Apple Git-154)", Some((2, 39))),
            ("2.47.0.windows.1", Some((2, 47))),
            ("3.0.0-rc1", Some((3, 0))),
            ("unknown", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_version(text), expected, "{text}");
        }
        assert!((2, 38) < MIN_VERSION && MIN_VERSION <= (2, 40) && MIN_VERSION < (3, 0));
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn within(seconds: f64, cancelled: &AtomicBool) -> Supervision<'_> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds);
        Supervision { limits: ChildLimits::default(), deadline, cancelled }
    }

    /// Waits until no process of a group is running.
    #[track_caller]
    fn wait_for_end(group: u32) {
        let is_running = |id: &Pid| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
        };
        let start = Instant::now();
        while group_members(group).iter().any(is_running) {
            assert!(start.elapsed() < Duration::from_secs(300), "still there");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A script that writes its process id to a file, then starts a process that never exits and waits for it.
    fn endless(pid_file: &Path) -> Command {
        shell(&format!("echo $$ > {}; sleep 100000 & wait", pid_file.display()))
    }

    /// The process id that an [`endless`] script has written; `None` if it did not get that far.
    fn read_pid(pid_file: &Path) -> Option<u32> {
        std::fs::read_to_string(pid_file).ok()?.trim().parse().ok()
    }

    #[test]
    fn processes_that_take_too_long_or_write_too_much_are_killed() {
        let never = AtomicBool::new(false);
        assert_eq!(output_supervised(shell("echo x"), 10, &within(600.0, &never)).expect("output"), b"x\n");
        assert_eq!(output_supervised(shell("yes"), 4, &within(600.0, &never)).expect("output"), b"y\ny\n");
        // The children hold the other end of the pipe, and are killed, too.
        let folder = tempfile::tempdir().expect("a folder");
        let pid_file = |name: &str| folder.path().join(name);
        let results = [
            output_supervised(endless(&pid_file("output")), 10, &within(1.0, &never)).map(drop),
            run_supervised(endless(&pid_file("run")), &within(1.0, &never), &mut |_| Ok(())),
            for_each_line(endless(&pid_file("lines")), Duration::from_secs(1), |_| ()),
            run_single(endless(&pid_file("single")), &within(1.0, &never)),
        ];
        for (result, name) in results.into_iter().zip(["output", "run", "lines", "single"]) {
            let error = result.expect_err(name);
            assert!(matches!(error, Error::DeadlineExceeded | Error::TimedOut(_)), "{name}: {error}");
            if let Some(group) = read_pid(&pid_file(name)) {
                wait_for_end(group);
            }
        }
    }

    #[test]
    fn a_failed_process_is_distinguished_from_one_that_did_not_finish() {
        let (never, cancelled) = (AtomicBool::new(false), AtomicBool::new(true));
        let run = |script: &str| run_single(shell(script), &within(600.0, &never));
        run("exit 0").expect("it ends well");
        let error = run("echo 'fatal: missing blob 1234' >&2; exit 128").expect_err("a fault");
        assert!(matches!(&error, Error::GitFailed(text) if text.contains("missing blob 1234")), "{error}");
        for script in ["kill -KILL $$", "kill -TERM $$", "echo 'fatal: Out of memory, malloc failed' >&2; exit 128"] {
            let error = run(script).expect_err(script);
            assert!(matches!(error, Error::GitInterrupted(_)), "{script}: {error}");
        }
        let nowhere = run_single(Command::new("/nonexistent/git"), &within(600.0, &never)).expect_err("no program");
        assert!(matches!(nowhere, Error::GitNotStarted(_)), "{nowhere}");
        let error = run_single(shell("sleep 100000"), &within(600.0, &cancelled)).expect_err("cancelled");
        assert!(matches!(error, Error::Cancelled), "{error}");
    }

    #[test]
    fn a_cancelled_process_is_killed_with_its_children() {
        let cancelled = AtomicBool::new(false);
        let (supervision, mut group) = (within(600.0, &cancelled), 0);
        let result = run_supervised(shell("sleep 100000 & sleep 100000 & wait"), &supervision, &mut |leader| {
            if group_members(leader).len() == 3 {
                group = leader;
                cancelled.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        wait_for_end(group);
    }

    #[test]
    fn a_process_and_its_children_are_limited_however_quickly_they_start() {
        let never = AtomicBool::new(false);
        let limits = ChildLimits { memory: 64 << 20, file_size: Some(1 << 20) };
        let supervision = Supervision { limits, ..within(60.0, &never) };
        for _ in 0..20 {
            // The child may start before its parent is limited.
            let script = "(until [ \"$(ulimit -f)\" != unlimited ]; do sleep 0.01; done; ulimit -d; ulimit -f) & wait";
            let output = output_supervised(shell(script), 100, &supervision).expect("output");
            let output = String::from_utf8_lossy(&output);
            let lines: Vec<&str> = output.lines().collect();
            // Shells count blocks of 512 or 1024 bytes.
            assert!(lines[0] == "65536" && ["2048", "1024"].contains(&lines[1]), "{output}");
        }
    }

    #[test]
    fn git_is_spawned_by_its_path() {
        let git = base_command();
        let path = Path::new(git.get_program());
        assert!(path.is_absolute() && path.ends_with("git") && path.is_file(), "{}", path.display());
    }

    #[test]
    fn the_git_of_this_machine_is_new_enough() {
        check_version().expect("a git");
    }
}
