//! The programs of git: how they are called, and which of them are good enough.

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

/// The oldest git that does all that is asked of it: settings for what is synced, and fixes for what was found since.
const OLDEST: (u32, u32) = (2, 39);
/// How far programs stand back: a tenth of the processor where somebody else wants it, all of it where nobody does.
const NICENESS: i32 = 10;
/// How much of what a program says to its log is kept.
const LONGEST_COMPLAINT: u64 = 4096;

/// How an error reads of a program that was ended because nobody wants its result any more.
pub(crate) const CANCELLED: &str = "cancelled";
/// How often it is looked whether a program gets on.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether a program has to be ended that another thread listens to.
const WATCH_EVERY: Duration = Duration::from_millis(100);
/// What housekeeping may use: it works on all of a repository at once.
pub(crate) const HOUSE_LIMITS: ChildLimits = ChildLimits { memory: 4 << 30, file_size: None };

/// What every call of git is told, whatever the configuration of the repository or the machine says.
const SETTINGS: &[(&str, &str)] = &[
    // What is written is on disk before the program says that it is done.
    ("core.fsync", "all"),
    ("core.fsyncMethod", "fsync"),
    // No program of somebody else's is ever started.
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("protocol.allow", "never"),
    // Housekeeping is a job of ours.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // A repository belongs to the service, whoever owns the folder on the machine.
    ("safe.directory", "*"),
    ("safe.bareRepository", "all"),
    ("transfer.hideRefs", "refs/gable"),
    ("uploadpack.allowFilter", "true"),
    // `sparse:oid` reads a blob that nobody may ask for, and takes time without bounds.
    ("uploadpackfilter.allow", "false"),
    ("uploadpackfilter.blob:none.allow", "true"),
    ("uploadpackfilter.blob:limit.allow", "true"),
    ("uploadpackfilter.tree.allow", "true"),
    ("uploadpackfilter.object:type.allow", "true"),
    ("uploadpackfilter.combine.allow", "true"),
    ("uploadpack.allowTipSHA1InWant", "true"),
    ("uploadpack.allowReachableSHA1InWant", "true"),
    // Sizes of objects that nobody may ask for.
    ("transfer.advertiseObjectInfo", "false"),
    // However large a repository, sending it takes a bounded amount of memory.
    ("pack.windowMemory", "64m"),
    ("pack.deltaCacheSize", "64m"),
    ("pack.threads", "2"),
    ("core.packedGitLimit", "512m"),
    ("core.bigFileThreshold", "16m"),
];

/// Faults that old and honest histories have, and that hurt nobody.
pub(crate) const FORGIVEN: &str = "badTimezone=ignore,missingSpaceBeforeDate=ignore,zeroPaddedFilemode=ignore,\
                        badDateOverflow=ignore,multipleAuthors=ignore,missingEmail=ignore,badEmail=ignore,\
                        missingNameBeforeEmail=ignore,badName=ignore";

/// A call of git in a repository, with an environment that holds nothing but what is said here.
pub(crate) fn git(repository: &Path) -> Command {
    let mut command = bare();
    command.env("GIT_DIR", repository).current_dir(repository);
    command
}

/// Where git is. Whoever starts a program by its name alone, in an environment of its own, makes the system copy all that
/// the server maps before it can look the name up: milliseconds, in which every thread of the server waits for memory.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join("git"));
    let is_program = |file: &PathBuf| rustix::fs::access(file, Access::EXEC_OK).is_ok() && file.is_file();
    // If there is none, starting it says so.
    found.find(is_program).unwrap_or_else(|| "git".into())
}

fn bare() -> Command {
    let mut command = Command::new(program());
    command.env_clear().env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C");
    command.env("HOME", "/nonexistent").env("GIT_TERMINAL_PROMPT", "0").env("GIT_ATTR_NOSYSTEM", "1");
    // What was pushed as a replacement must not change what others get.
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

/// Sends what a client asks for; talks to it on standard input and output.
pub(crate) fn upload_pack(repository: &Path, protocol: Option<&str>, stateless: bool) -> Command {
    let mut command = git(repository);
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

/// Sends an archive that a client asks for.
pub(crate) fn upload_archive(repository: &Path) -> Command {
    let mut command = git(repository);
    command.arg("upload-archive").arg(repository).stdin(Stdio::piped());
    command
}

/// Takes a pack in from standard input: checks every object, and that everything it leads to is there. The pack must not
/// be thin: a delta from an object of the repository would be put together before it is known whether the client may have
/// that object.
pub(crate) fn index_pack(quarantine: &Path, max_size: Option<u64>) -> Command {
    let mut command = git(quarantine);
    command.args(["index-pack", "--stdin", "--threads=2"]).arg(format!("--strict={FORGIVEN}"));
    if let Some(max_size) = max_size {
        command.arg(format!("--max-input-size={max_size}"));
    }
    command.stdin(Stdio::piped());
    command
}

/// Lets a program, and what it will start, stand back behind the server itself: it works for long, and whoever asks for a
/// page or a row in the meantime wants it now. A program that has ended already, or that stands back further because its
/// server does, is left as it is.
pub fn stand_back(id: u32) {
    if let Some(id) = pid(id) {
        let _ = rustix::process::setpriority_process(Some(id), NICENESS);
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// What a program of git may use, whoever it works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// How much memory it may use for its data, in bytes. Packs are mapped from their files and do not count.
    pub memory: u64,
    /// How large a file it may write, in bytes.
    pub file_size: Option<u64>,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self { memory: 2 << 30, file_size: None }
    }
}

impl ChildLimits {
    /// Limits a program that has not started others yet; those it starts inherit the limits.
    pub fn apply(&self, id: u32) -> io::Result<()> {
        match pid(id).map_or(Ok(false), |id| self.limit(id)) {
            // It has ended already.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
            limited => limited.map(drop),
        }
    }

    /// Limits a program that leads a group and may have started others already.
    fn apply_to_group(&self, leader: u32) -> io::Result<()> {
        self.apply(leader)?;
        // Whatever was started before its parent was limited is found here, and limited before it starts more. Done
        // when nothing is found that had other limits.
        while members(leader).into_iter().any(|id| matches!(self.limit(id), Ok(true))) {}
        Ok(())
    }

    /// Limits one process; answers whether it had other limits.
    fn limit(&self, id: Pid) -> io::Result<bool> {
        let mut changed = false;
        for (resource, most) in [(Resource::Data, Some(self.memory)), (Resource::Fsize, self.file_size)] {
            let Some(most) = most else { continue };
            // A limit that an operator has set for the whole service may be lower, and cannot be raised.
            let most = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
            let before = prlimit(Some(id), resource, Rlimit { current: Some(most), maximum: Some(most) })?;
            changed |= before.current != Some(most);
        }
        Ok(changed)
    }
}

/// The processes of a group.
fn members(leader: u32) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| pid(entry.file_name().to_str()?.parse().ok()?));
    ids.filter(|id| fields_of(*id).is_some_and(|fields| fields.get(2) == Some(&u64::from(leader)))).collect()
}

/// What the system tells of a process after its name, as numbers: its state is none, and stands for 0.
fn fields_of(id: Pid) -> Option<Vec<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect())
}

/// The processor time that a group of processes has used so far, in ticks of the system's clock.
pub(crate) fn ticks_used(leader: u32) -> u64 {
    // Its own, and what those have used that it has waited for.
    let ticks = |id: Pid| Some(fields_of(id)?.get(11..15)?.iter().sum::<u64>());
    members(leader).into_iter().filter_map(ticks).sum()
}

/// Starts a program that nobody waits for in haste, with limits, in a group of its own.
fn start(command: &mut Command, limits: &ChildLimits) -> Result<Child> {
    let mut child = command.process_group(0).spawn().map_err(cannot_start)?;
    stand_back(child.id());
    if let Err(error) = limits.apply_to_group(child.id()) {
        end(&mut child);
        return Err(error.into());
    }
    Ok(child)
}

/// Runs a program to its end; what it complains about becomes the error.
pub(crate) fn run(mut command: Command) -> Result<()> {
    to_its_end(start(command.stdout(Stdio::null()), &HOUSE_LIMITS)?)
}

/// As [`run`], of a program that starts no others, unless the supervision ends it before. [`Error::Child`] is what the
/// program has found out; that it could not be started or did not come to its end is [`Error::Unfinished`].
pub(crate) fn run_single(mut command: Command, supervision: &Supervision<'_>) -> Result<()> {
    let unfinished = |error: Error| match error {
        Error::Child(text) => Error::Unfinished(text),
        error => error,
    };
    let child = command.stdout(Stdio::null()).process_group(0).spawn().map_err(cannot_start);
    let mut child = child.map_err(unfinished)?;
    stand_back(child.id());
    if let Err(error) = supervision.limits.apply(child.id()) {
        end(&mut child);
        return Err(error.into());
    }
    let said = while_watched(&mut child, || supervision.check(), |child| Ok(read_log(child)?));
    if said.is_err() {
        end(&mut child);
    }
    let said = said.map_err(unfinished)?;
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    let error = ended(status, &said);
    let said = String::from_utf8_lossy(&said).to_ascii_lowercase();
    let has_no_memory = ["out of memory", "cannot allocate memory"].iter().any(|words| said.contains(words));
    Err(if status.signal().is_some() || has_no_memory { unfinished(error) } else { error })
}

/// Does something with a program that runs, and ends the program's group as soon as `check` fails. The process is not
/// waited for meanwhile, so no other one can get its number.
fn while_watched<T>(
    child: &mut Child,
    check: impl Fn() -> Result<()> + Send,
    work: impl FnOnce(&mut Child) -> Result<T>,
) -> Result<T> {
    let leader = child.id();
    thread::scope(|scope| {
        let (done, waits) = mpsc::channel::<()>();
        let watchdog = scope.spawn(move || {
            while matches!(waits.recv_timeout(WATCH_EVERY), Err(mpsc::RecvTimeoutError::Timeout)) {
                if let Err(error) = check() {
                    end_group(leader);
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

/// Waits until a program has closed its log; answers the beginning of it.
fn read_log(child: &mut Child) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    if let Some(mut log) = child.stderr.take() {
        log.by_ref().take(LONGEST_COMPLAINT).read_to_end(&mut said)?;
        // The rest is not kept, but it has to be taken, or the program waits for it for ever.
        io::copy(&mut log, &mut io::sink())?;
    }
    Ok(said)
}

fn to_its_end(mut child: Child) -> Result<()> {
    let said = read_log(&mut child)?;
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(ended(status, &said))
}

/// When a program is ended before its time.
pub(crate) struct Supervision<'a> {
    pub(crate) limits: ChildLimits,
    pub(crate) deadline: Instant,
    /// Raised by somebody who does not want the result any more.
    pub(crate) cancelled: &'a AtomicBool,
}

impl Supervision<'_> {
    fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Child(CANCELLED.into()));
        }
        if Instant::now() > self.deadline { Err(Error::Child("timed out".into())) } else { Ok(()) }
    }
}

/// Runs a program to its end, with all that it starts, unless the supervision ends it before. `look` is called about once a
/// second with the group of the program, and ends it, too, if it fails.
pub(crate) fn run_supervised(
    mut command: Command,
    supervision: &Supervision<'_>,
    look: &mut dyn FnMut(u32) -> Result<()>,
) -> Result<()> {
    let mut child = start(command.stdout(Stdio::null()), &supervision.limits)?;
    let said = child.stderr.take().map(|mut log| {
        thread::spawn(move || {
            let mut said = Vec::new();
            let _ = log.by_ref().take(LONGEST_COMPLAINT).read_to_end(&mut said);
            let _ = io::copy(&mut log, &mut io::sink());
            said
        })
    });
    let mut looked = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let mut may_go_on = supervision.check();
        if may_go_on.is_ok() && looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            may_go_on = look(child.id());
        }
        if let Err(error) = may_go_on {
            end(&mut child);
            return Err(error);
        }
        thread::sleep(Duration::from_millis(20));
    };
    let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
    if status.success() { Ok(()) } else { Err(ended(status, &said)) }
}

/// What a program says on standard output, as far as it is that short; it is ended when it says more, and when the
/// supervision says so.
pub(crate) fn said_supervised(mut command: Command, longest: u64, supervision: &Supervision<'_>) -> Result<Vec<u8>> {
    let mut child = start(command.stderr(Stdio::null()), &supervision.limits)?;
    let (tell, told) = mpsc::channel();
    let out = child.stdout.take();
    thread::spawn(move || {
        let mut said = Vec::new();
        let read = out.map_or(Ok(0), |out| out.take(longest).read_to_end(&mut said));
        // Nobody listens any more if it took too long.
        let _ = tell.send(read.map(|_| said));
    });
    let said = loop {
        match told.recv_timeout(Duration::from_millis(20)) {
            Ok(said) => break said.map_err(Error::from),
            Err(_) => {
                if let Err(error) = supervision.check() {
                    break Err(error);
                }
            }
        }
    };
    end(&mut child);
    said
}

/// Ends a program and everything that it has started, and waits for it.
fn end(child: &mut Child) {
    end_group(child.id());
    let _ = child.wait();
}

/// Hands out the lines that a program says on standard output, without their ends. A program that takes longer than this
/// is ended, whether or not it says anything.
pub(crate) fn each_line(mut command: Command, most: Duration, mut take: impl FnMut(&[u8])) -> Result<()> {
    let mut child = start(command.stderr(Stdio::null()), &HOUSE_LIMITS)?;
    let start = Instant::now();
    let is_in_time = || {
        if start.elapsed() <= most {
            return Ok(());
        }
        Err(Error::Child(format!("timed out after {} seconds", most.as_secs())))
    };
    let heard = while_watched(&mut child, is_in_time, |child| {
        let out = child.stdout.take().ok_or_else(|| io::Error::other("a program without pipes"))?;
        let (mut out, mut line) = (io::BufReader::new(out), Vec::new());
        while out.read_until(b'\n', &mut line)? > 0 {
            take(line.strip_suffix(b"\n").unwrap_or(&line));
            line.clear();
        }
        Ok(())
    });
    if heard.is_err() {
        end_group(child.id());
    }
    let status = child.wait()?;
    heard?;
    if status.success() { Ok(()) } else { Err(ended(status, b"")) }
}

/// Ends a program and everything that it has started.
fn end_group(leader: u32) {
    if let Some(group) = pid(leader) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

fn ended(status: ExitStatus, said: &[u8]) -> Error {
    Error::Child(format!("git ended with {status}: {}", String::from_utf8_lossy(said).trim()))
}

/// Lets one program read what another one writes, and runs both to their ends, unless the supervision ends them before.
pub(crate) fn pipe_supervised(mut from: Command, mut to: Command, supervision: &Supervision<'_>) -> Result<()> {
    let mut source = start(from.stderr(Stdio::null()), &supervision.limits)?;
    let written = source.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let taken = run_supervised(
        {
            to.stdin(written);
            to
        },
        supervision,
        &mut |_| Ok(()),
    );
    if taken.is_err() {
        end(&mut source);
    }
    let status = source.wait()?;
    taken?;
    if status.success() { Ok(()) } else { Err(ended(status, b"")) }
}

fn cannot_start(error: io::Error) -> Error {
    Error::Child(format!("cannot start git: {error}"))
}

/// Which git is there, if it is new enough; else a sentence that tells the operator what to do.
pub fn check_version() -> std::result::Result<String, String> {
    let advice = format!("install git {}.{} or newer", OLDEST.0, OLDEST.1);
    let output = bare().arg("version").output().map_err(|error| format!("cannot run git: {error}; {advice}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().strip_prefix("git version ").unwrap_or_default();
    let found = parse_version(version).ok_or_else(|| format!("git does not tell its version; {advice}"))?;
    if found < OLDEST {
        return Err(format!("git {version} is too old; {advice}"));
    }
    Ok(version.to_owned())
}

fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_makers_are_understood() {
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
        assert!((2, 38) < OLDEST && OLDEST <= (2, 40) && OLDEST < (3, 0));
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

    /// Waits until no process of a group runs any more.
    #[track_caller]
    fn wait_for_end(group: u32) {
        let is_running = |id: &Pid| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
        };
        let start = Instant::now();
        while members(group).iter().any(is_running) {
            assert!(start.elapsed() < Duration::from_secs(300), "still there");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A script that notes its number in a file, then starts a program that never ends and waits for it.
    fn endless(note: &Path) -> Command {
        shell(&format!("echo $$ > {}; sleep 100000 & wait", note.display()))
    }

    /// The number that an [`endless`] script has noted; `None` if it did not come that far.
    fn noted(note: &Path) -> Option<u32> {
        std::fs::read_to_string(note).ok()?.trim().parse().ok()
    }

    #[test]
    fn what_takes_too_long_or_says_too_much_is_not_heard_to_the_end() {
        let never = AtomicBool::new(false);
        assert_eq!(said_supervised(shell("echo x"), 10, &within(600.0, &never)).expect("said"), b"x\n");
        assert_eq!(said_supervised(shell("yes"), 4, &within(600.0, &never)).expect("said"), b"y\ny\n");
        // What it has started itself holds the other end of the pipe, and ends, too.
        let folder = tempfile::tempdir().expect("a folder");
        let note = |name: &str| folder.path().join(name);
        let ended = [
            said_supervised(endless(&note("said")), 10, &within(1.0, &never)).map(drop),
            run_supervised(endless(&note("run")), &within(1.0, &never), &mut |_| Ok(())),
            each_line(endless(&note("lines")), Duration::from_secs(1), |_| ()),
            run_single(endless(&note("single")), &within(1.0, &never)),
        ];
        for (ended, name) in ended.into_iter().zip(["said", "run", "lines", "single"]) {
            let error = ended.expect_err(name);
            assert!(error.to_string().contains("timed out"), "{name}: {error}");
            assert_eq!(matches!(error, Error::Unfinished(_)), name == "single", "{name}");
            if let Some(group) = noted(&note(name)) {
                wait_for_end(group);
            }
        }
    }

    #[test]
    fn what_a_program_found_out_is_told_from_a_program_that_did_not_end() {
        let (never, cancelled) = (AtomicBool::new(false), AtomicBool::new(true));
        let run = |script: &str| run_single(shell(script), &within(600.0, &never));
        run("exit 0").expect("it ends well");
        let found = run("echo 'fatal: missing blob 1234' >&2; exit 128").expect_err("a fault");
        assert!(matches!(&found, Error::Child(text) if text.contains("missing blob 1234")), "{found}");
        for script in ["kill -KILL $$", "kill -TERM $$", "echo 'fatal: Out of memory, malloc failed' >&2; exit 128"] {
            let error = run(script).expect_err(script);
            assert!(matches!(error, Error::Unfinished(_)), "{script}: {error}");
        }
        let nowhere = run_single(Command::new("/nonexistent/git"), &within(600.0, &never)).expect_err("no program");
        assert!(matches!(&nowhere, Error::Unfinished(text) if text.starts_with("cannot start git")), "{nowhere}");
        let error = run_single(shell("sleep 100000"), &within(600.0, &cancelled)).expect_err("cancelled");
        assert!(matches!(&error, Error::Unfinished(text) if text == CANCELLED), "{error}");
    }

    #[test]
    fn what_nobody_wants_any_more_is_ended_with_all_that_it_started() {
        let cancelled = AtomicBool::new(false);
        let (supervision, mut group) = (within(600.0, &cancelled), 0);
        let ended = run_supervised(shell("sleep 100000 & sleep 100000 & wait"), &supervision, &mut |leader| {
            if members(leader).len() == 3 {
                group = leader;
                cancelled.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        assert_eq!(ended.expect_err("ended").to_string(), CANCELLED);
        wait_for_end(group);
    }

    #[test]
    fn a_program_and_what_it_starts_have_limits_however_quick_they_are() {
        let never = AtomicBool::new(false);
        let limits = ChildLimits { memory: 64 << 20, file_size: Some(1 << 20) };
        let supervision = Supervision { limits, ..within(60.0, &never) };
        for _ in 0..20 {
            // Started at once, so perhaps before anybody has limited its parent.
            let script = "(until [ \"$(ulimit -f)\" != unlimited ]; do sleep 0.01; done; ulimit -d; ulimit -f) & wait";
            let said = said_supervised(shell(script), 100, &supervision).expect("said");
            let said = String::from_utf8_lossy(&said);
            let lines: Vec<&str> = said.lines().collect();
            // Shells count blocks of 512 or 1024 bytes.
            assert!(lines[0] == "65536" && ["2048", "1024"].contains(&lines[1]), "{said}");
        }
    }

    #[test]
    fn git_is_started_by_its_path() {
        let git = bare();
        let path = Path::new(git.get_program());
        assert!(path.is_absolute() && path.ends_with("git") && path.is_file(), "{}", path.display());
    }

    #[test]
    fn lesson_28_the_git_of_this_machine_is_new_enough() {
        check_version().expect("a git");
    }
}
