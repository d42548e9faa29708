//! A process between the runner and each program of a job: it applies limits, adopts every process whose parent has
//! ended, and kills all of them when the program ends or the runner goes away.
//!
//! The runner holds the other end of its standard input: a byte asks the program to terminate, the end of the stream
//! kills everything. So nothing survives a runner that was killed.

use std::{
    ffi::OsString,
    fs,
    io::Read as _,
    os::{fd::BorrowedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    process::{
        Pid, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper,
        setrlimit, wait,
    },
};

use crate::usage;

/// The exit status if the program cannot be started, as shells use it.
const CANNOT_START: u8 = 126;
/// The exit status after SIGKILL, as shells show it.
const KILLED: u8 = 137;

/// What the supervisor is asked to do.
#[derive(Default)]
pub(crate) struct Request {
    /// The control group to join.
    pub(crate) cgroup: Option<PathBuf>,
    /// How many processes and threads the user may have.
    pub(crate) processes: Option<u64>,
    /// The largest file, in bytes.
    pub(crate) file_size: Option<u64>,
    /// The most memory that one process may allocate, in bytes.
    pub(crate) data_size: Option<u64>,
    /// The user and the group to run as.
    pub(crate) user: Option<(u32, u32)>,
}

impl Request {
    /// The arguments that stand for this request; the program and its own arguments follow.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if let Some(cgroup) = &self.cgroup {
            arguments.extend(["--cgroup".into(), cgroup.clone().into_os_string()]);
        }
        let numbers =
            [("--processes", self.processes), ("--file-size", self.file_size), ("--data-size", self.data_size)];
        for (name, number) in numbers {
            if let Some(number) = number {
                arguments.extend([name.into(), number.to_string().into()]);
            }
        }
        if let Some((uid, gid)) = self.user {
            arguments.extend(["--user".into(), format!("{uid}:{gid}").into()]);
        }
        arguments.push("--".into());
        arguments
    }

    /// Reads the arguments back; what follows is the program with its arguments.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<(Self, Vec<OsString>), String> {
        let mut request = Self::default();
        while let Some(name) = arguments.next() {
            if name == "--" {
                return Ok((request, arguments.collect()));
            }
            let value = arguments.next().ok_or_else(|| format!("{} needs a value", name.display()))?;
            let text = value.to_string_lossy();
            let number = || text.parse().map_err(|_| format!("{text} is no number"));
            match name.to_str() {
                Some("--cgroup") => request.cgroup = Some(PathBuf::from(value)),
                Some("--processes") => request.processes = Some(number()?),
                Some("--file-size") => request.file_size = Some(number()?),
                Some("--data-size") => request.data_size = Some(number()?),
                Some("--user") => {
                    let ids = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
                    request.user = Some(ids.ok_or_else(|| format!("{text} is not of the form UID:GID"))?);
                }
                _ => return Err(format!("unknown option {}", name.display())),
            }
        }
        Err("there is no program to supervise".to_owned())
    }

    fn apply(&self) -> Result<(), String> {
        if let Some(cgroup) = &self.cgroup {
            let joined = fs::write(cgroup.join("cgroup.procs"), "0");
            joined.map_err(|error| format!("cannot join the control group {}: {error}", cgroup.display()))?;
        }
        // A core dump is a copy of the job's secrets in a place that nobody measures.
        let mut limits = vec![(Resource::Core, 0)];
        limits.extend(self.processes.map(|count| (Resource::Nproc, count)));
        limits.extend(self.file_size.map(|bytes| (Resource::Fsize, bytes)));
        limits.extend(self.data_size.map(|bytes| (Resource::Data, bytes)));
        for (resource, most) in limits {
            // Only root may raise a limit that is lower already.
            let most = rustix::process::getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
            let set = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
            set.map_err(|error| format!("cannot set the limit {resource:?}: {error}"))?;
        }
        set_child_subreaper(Some(getpid())).map_err(|error| format!("cannot adopt processes: {error}"))
    }
}

/// Runs a program until it ends or the runner closes standard input, then kills everything that it has started.
/// The exit status is the program's, or 128 and the number of the signal that ended it.
pub fn supervise(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("gable runner: {error}");
            ExitCode::from(CANNOT_START)
        }
    }
}

fn run(arguments: impl Iterator<Item = OsString>) -> Result<u8, String> {
    let (request, words) = Request::parse(arguments)?;
    let (program, arguments) = words.split_first().ok_or("there is no program to supervise")?;
    request.apply()?;
    keep_files_to_itself();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    if let Some((uid, gid)) = request.user {
        // As root, this also takes all other groups away.
        command.gid(gid).uid(uid);
    }
    let child = command.spawn().map_err(|error| format!("cannot start {}: {error}", Path::new(program).display()))?;
    let child = Pid::from_raw(child.id().cast_signed()).ok_or("the program has no process id")?;
    thread::spawn(move || listen(child));
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                kill_descendants();
                let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
                return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            }
            // Another process that was adopted has ended.
            Ok(_) | Err(Errno::INTR) => {}
            // The other thread has killed the program and taken its status.
            Err(Errno::CHILD) => return Ok(KILLED),
            Err(error) => return Err(format!("cannot wait for the program: {error}")),
        }
    }
}

/// Lets the program inherit no open file but its three streams: the server may have been started with others.
fn keep_files_to_itself() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        #[expect(unsafe_code, reason = "the number is one of this process, which has a single thread as yet")]
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        // The folder that was read is closed by now.
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
}

/// Does what the runner asks for.
fn listen(child: Pid) {
    let mut stdin = std::io::stdin().lock();
    let mut byte = [0];
    loop {
        match stdin.read(&mut byte) {
            Ok(1) => {
                let _ = kill_process_group(child, Signal::TERM);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    kill_descendants();
    std::process::exit(KILLED.into());
}

/// Kills all descendants. Whatever loses its parent meanwhile becomes a child of this process and is found again.
fn kill_descendants() {
    let own = getpid();
    // A process in an uninterruptible call cannot be killed at once, and the job is not to wait for it for ever.
    for _ in 0..3000 {
        let descendants = usage::descendants(own);
        for pid in &descendants {
            let _ = kill_process(*pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                // There are no children any more.
                Err(_) => return,
            }
        }
        thread::sleep(Duration::from_millis(if descendants.is_empty() { 10 } else { 2 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = Request {
            cgroup: Some("/sys/fs/cgroup/x".into()),
            processes: Some(5),
            file_size: Some(6),
            data_size: Some(7),
            user: Some((8, 9)),
        };
        let arguments = request.arguments().into_iter().chain(["sh".into(), "--user".into()]);
        let (read, program) = Request::parse(arguments).expect("read");
        assert_eq!(program, ["sh", "--user"]);
        assert_eq!((read.cgroup, read.processes, read.file_size), (request.cgroup, Some(5), Some(6)));
        assert_eq!((read.data_size, read.user), (Some(7), Some((8, 9))));
        for wrong in [&["--user", "x", "--", "sh"][..], &["--processes"], &["--what", "1", "--", "sh"], &[]] {
            assert!(Request::parse(wrong.iter().map(OsString::from)).is_err(), "{wrong:?}");
        }
    }
}
