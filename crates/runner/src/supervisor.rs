//! A process between the runner and each program of a job: applies limits, adopts orphaned processes, and kills all of
//! them when the program ends or the runner disappears.
//!
//! The runner holds the other end of its standard input: a byte asks the program to terminate, the end of the stream
//! kills everything. So nothing survives a runner that was killed.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _},
    os::{fd::BorrowedFd, unix::process::CommandExt as _},
    path::PathBuf,
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

use crate::resource_usage;

/// The exit status if the program cannot be started, as in shells.
const CANNOT_START_EXIT_CODE: u8 = 126;
/// The exit status after SIGKILL, as in shells.
pub(crate) const KILLED_EXIT_CODE: u8 = 137;

/// Why a program cannot be supervised.
#[derive(Debug, thiserror::Error)]
enum SupervisorError {
    #[error("{} needs a value", .0.display())]
    MissingValue(OsString),
    #[error("{0} is not a number")]
    InvalidNumber(String),
    #[error("{0} is not of the form UID:GID")]
    InvalidUser(String),
    #[error("unknown option {}", .0.display())]
    UnknownOption(OsString),
    #[error("no program to supervise")]
    NoProgram,
    #[error("cannot join the control group {}: {source}", path.display())]
    JoinCgroup { path: PathBuf, source: io::Error },
    #[error("cannot set the limit {resource:?}: {source}")]
    SetLimit { resource: Resource, source: Errno },
    #[error("cannot adopt processes: {0}")]
    AdoptProcesses(#[source] Errno),
    #[error("cannot start {}: {source}", program.display())]
    Start { program: OsString, source: io::Error },
    #[error("the program has no process id")]
    NoProcessId,
    #[error("cannot wait for the program: {0}")]
    Wait(#[source] Errno),
}

/// The options of a supervisor.
#[derive(Default)]
pub(crate) struct SupervisorOptions {
    /// The control group to join.
    pub(crate) cgroup: Option<PathBuf>,
    /// The maximum number of processes and threads of the user.
    pub(crate) processes: Option<u64>,
    /// The maximum size of a file in bytes.
    pub(crate) file_size: Option<u64>,
    /// The maximum memory that one process may allocate in bytes.
    pub(crate) data_size: Option<u64>,
    /// The user and the group to run as.
    pub(crate) user: Option<(u32, u32)>,
}

impl SupervisorOptions {
    /// Returns the command-line arguments of these options; the program and its arguments follow.
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

    /// Parses the arguments; returns also the program with its arguments.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<(Self, Vec<OsString>), SupervisorError> {
        let mut options = Self::default();
        while let Some(name) = arguments.next() {
            if name == "--" {
                return Ok((options, arguments.collect()));
            }
            let Some(value) = arguments.next() else { return Err(SupervisorError::MissingValue(name)) };
            let text = value.to_string_lossy();
            let number = || text.parse().map_err(|_| SupervisorError::InvalidNumber(text.to_string()));
            match name.to_str() {
                Some("--cgroup") => options.cgroup = Some(PathBuf::from(value)),
                Some("--processes") => options.processes = Some(number()?),
                Some("--file-size") => options.file_size = Some(number()?),
                Some("--data-size") => options.data_size = Some(number()?),
                Some("--user") => {
                    let ids = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
                    options.user = Some(ids.ok_or_else(|| SupervisorError::InvalidUser(text.to_string()))?);
                }
                _ => return Err(SupervisorError::UnknownOption(name)),
            }
        }
        Err(SupervisorError::NoProgram)
    }

    fn apply(&self) -> Result<(), SupervisorError> {
        if let Some(cgroup) = &self.cgroup {
            let joined = fs::write(cgroup.join("cgroup.procs"), "0");
            joined.map_err(|source| SupervisorError::JoinCgroup { path: cgroup.clone(), source })?;
        }
        // A core dump would be an unmeasured copy of the job's secrets.
        let mut limits = vec![(Resource::Core, 0)];
        limits.extend(self.processes.map(|count| (Resource::Nproc, count)));
        limits.extend(self.file_size.map(|bytes| (Resource::Fsize, bytes)));
        limits.extend(self.data_size.map(|bytes| (Resource::Data, bytes)));
        for (resource, limit) in limits {
            // Only root may raise a limit that is already lower.
            let limit = rustix::process::getrlimit(resource).maximum.map_or(limit, |hard| hard.min(limit));
            let set = setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) });
            set.map_err(|source| SupervisorError::SetLimit { resource, source })?;
        }
        set_child_subreaper(Some(getpid())).map_err(SupervisorError::AdoptProcesses)
    }
}

/// Runs a program until it ends or the runner closes standard input, then kills everything that it has started. The
/// exit status is the program's, or 128 plus the number of the signal that ended it.
pub fn supervise(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("gable runner: {error}");
            ExitCode::from(CANNOT_START_EXIT_CODE)
        }
    }
}

fn run(arguments: impl Iterator<Item = OsString>) -> Result<u8, SupervisorError> {
    let (options, command_line) = SupervisorOptions::parse(arguments)?;
    let (program, arguments) = command_line.split_first().ok_or(SupervisorError::NoProgram)?;
    options.apply()?;
    set_close_on_exec();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    if let Some((uid, gid)) = options.user {
        // As root, this also drops all supplementary groups.
        command.gid(gid).uid(uid);
    }
    let child = command.spawn().map_err(|source| SupervisorError::Start { program: program.clone(), source })?;
    let child = Pid::from_raw(child.id().cast_signed()).ok_or(SupervisorError::NoProcessId)?;
    thread::spawn(move || handle_commands(child));
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                kill_descendants();
                let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
                return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            }
            // Another adopted process has ended.
            Ok(_) | Err(Errno::INTR) => {}
            // The other thread has killed the program and reaped it.
            Err(Errno::CHILD) => return Ok(KILLED_EXIT_CODE),
            Err(error) => return Err(SupervisorError::Wait(error)),
        }
    }
}

/// Marks all open files except the standard streams as close-on-exec: the server may have been started with others.
fn set_close_on_exec() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        #[expect(unsafe_code, reason = "the number is one of this process, which has a single thread as yet")]
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        // The folder that was read is closed by now.
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
}

/// Handles the commands of the runner on standard input.
fn handle_commands(child: Pid) {
    let mut stdin = io::stdin().lock();
    let mut byte = [0];
    loop {
        match stdin.read(&mut byte) {
            Ok(1) => {
                let _ = kill_process_group(child, Signal::TERM);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    kill_descendants();
    std::process::exit(KILLED_EXIT_CODE.into());
}

/// Kills all descendants. Processes orphaned meanwhile become children of this process and are found in the next pass.
fn kill_descendants() {
    let own_pid = getpid();
    // A process in an uninterruptible system call cannot be killed immediately; do not wait for it indefinitely.
    for _ in 0..3000 {
        let descendants = resource_usage::descendants(own_pid);
        for pid in &descendants {
            let _ = kill_process(*pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                // There are no children left.
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
    fn options_survive_a_round_trip() {
        let options = SupervisorOptions {
            cgroup: Some("/sys/fs/cgroup/x".into()),
            processes: Some(5),
            file_size: Some(6),
            data_size: Some(7),
            user: Some((8, 9)),
        };
        let arguments = options.arguments().into_iter().chain(["sh".into(), "--user".into()]);
        let (read, program) = SupervisorOptions::parse(arguments).expect("read");
        assert_eq!(program, ["sh", "--user"]);
        assert_eq!((read.cgroup, read.processes, read.file_size), (options.cgroup, Some(5), Some(6)));
        assert_eq!((read.data_size, read.user), (Some(7), Some((8, 9))));
        for wrong in [&["--user", "x", "--", "sh"][..], &["--processes"], &["--what", "1", "--", "sh"], &[]] {
            assert!(SupervisorOptions::parse(wrong.iter().map(OsString::from)).is_err(), "{wrong:?}");
        }
    }
}
