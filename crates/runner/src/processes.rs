//! Runs the programs of a job: captures their output and kills everything they have started.

use std::{
    fmt, fs,
    io::{self, PipeReader, PipeWriter, Write as _},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, process::CommandExt as _, process::ExitStatusExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    sync::atomic::Ordering,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe::Receiver,
    process::Child,
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    isolation::{BUILDS_DIR_VARIABLE, JobWorkspace, SUPERVISOR_PROCESSES, format_size},
    resource_usage,
};

/// How long a program may take to end after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval of measuring resource usage.
const MEASURE_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of files in the folder of a job.
const MAX_FILES: u64 = 2_000_000;
/// How long remaining output is read after the program has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a job is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The server canceled the job.
    Canceled,
    /// The server does not know the job any more.
    Refused,
    /// The job timed out.
    TimedOut,
    /// The runner is stopping.
    Stopped,
}

/// The deadline and the interrupts of a job.
#[derive(Clone)]
pub(crate) struct Cancellation {
    deadline: Instant,
    interrupts: watch::Receiver<Option<Interrupt>>,
}

impl Cancellation {
    pub(crate) fn new(interrupts: watch::Receiver<Option<Interrupt>>, duration: Duration) -> Self {
        Self { deadline: Instant::now() + duration, interrupts }
    }

    /// Returns the same with an earlier deadline, if this duration ends earlier.
    pub(crate) fn within(&self, duration: Duration) -> Self {
        Self { deadline: self.deadline.min(Instant::now() + duration), interrupts: self.interrupts.clone() }
    }

    /// Returns the same with a new deadline.
    pub(crate) fn with_timeout(&self, duration: Duration) -> Self {
        Self { deadline: Instant::now() + duration, interrupts: self.interrupts.clone() }
    }

    /// Waits for an interrupt or the deadline.
    pub(crate) async fn interrupted(&self) -> Interrupt {
        let mut interrupts = self.interrupts.clone();
        let received = async {
            match interrupts.wait_for(Option::is_some).await.map(|interrupt| *interrupt) {
                Ok(Some(interrupt)) => interrupt,
                Ok(None) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            interrupt = received => interrupt,
            () = sleep_until(self.deadline) => Interrupt::TimedOut,
        }
    }

    /// Runs a future that may be dropped, until it completes or the job is interrupted.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        tokio::select! {
            biased;
            interrupt = self.interrupted() => Err(interrupt),
            done = work => Ok(done),
        }
    }
}

/// Why a program did not end by itself.
#[derive(Debug)]
pub(crate) enum ProcessError {
    Interrupted(Interrupt),
    Exceeded(ExceededLimit),
    Failed(io::Error),
}

impl From<io::Error> for ProcessError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A limit that a job has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    Memory(u64),
    Processes(u64),
    Disk(u64),
    Files(u64),
    Depth,
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(limit) => write!(formatter, "job exceeded its memory limit of {}", format_size(*limit)),
            Self::Processes(limit) => write!(formatter, "job exceeded its limit of {limit} processes"),
            Self::Disk(limit) => write!(formatter, "job exceeded its disk limit of {}", format_size(*limit)),
            Self::Files(limit) => write!(formatter, "job exceeded its limit of {limit} files"),
            Self::Depth => formatter.write_str("job nests folders too deeply to measure them"),
        }
    }
}

/// Which output streams are captured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    Both,
    OutputOnly,
}

/// Runs a program through the supervisor, and kills everything it leaves behind. Returns the exit status as a shell
/// would.
pub(crate) async fn run(
    mut command: Command,
    streams: Streams,
    workspace: &JobWorkspace,
    cancellation: &Cancellation,
    mut on_output: impl FnMut(&[u8]),
) -> Result<i32, ProcessError> {
    workspace.restore_parent_folders()?;
    let (reader, writer) = io::pipe()?;
    let (control_reader, control_pipe) = io::pipe()?;
    let errors = if streams == Streams::Both { Stdio::from(writer.try_clone()?) } else { Stdio::null() };
    command.stdin(control_reader).stdout(writer).stderr(errors).process_group(0);
    let mut running = RunningProcess::start(command, control_pipe, workspace)?;
    let exceeded_limit = wait_for_exceeded_limit(running.supervisor, workspace);
    tokio::pin!(exceeded_limit);
    let mut output = async_receiver(reader)?;
    let mut buffer = vec![0; 32 << 10];
    let mut open = true;
    let mut exceeded = None;
    let mut termination: Option<(Interrupt, Instant)> = None;
    let status = loop {
        tokio::select! {
            // A program that never stops writing must be interruptible too.
            biased;
            interrupt = cancellation.interrupted(), if termination.is_none() => {
                termination = Some((interrupt, Instant::now() + TERMINATION_TIMEOUT));
                running.terminate();
            }
            () = sleep_until_some(termination.map(|(_, end)| end)) => {
                termination = termination.map(|(interrupt, _)| (interrupt, Instant::now() + TERMINATION_TIMEOUT));
                running.kill();
            }
            which = &mut exceeded_limit, if exceeded.is_none() => {
                exceeded = Some(which);
                running.kill();
            }
            count = output.read(&mut buffer), if open => match count {
                Ok(count @ 1..) => on_output(&buffer[..count]),
                _ => open = false,
            },
            status = running.child.wait() => break status?,
        }
    };
    running.end().await;
    let drained = async {
        while open {
            match output.read(&mut buffer).await {
                Ok(count @ 1..) => on_output(&buffer[..count]),
                _ => open = false,
            }
        }
    };
    let _ = timeout(DRAIN_TIMEOUT, drained).await;
    if let (None, Some(limit)) = (exceeded, workspace.limits.memory) {
        exceeded = workspace.cgroup.as_ref().filter(|it| it.ran_out_of_memory()).map(|_| ExceededLimit::Memory(limit));
    }
    match (termination, exceeded) {
        (Some((interrupt, _)), _) => Err(ProcessError::Interrupted(interrupt)),
        (None, Some(exceeded_limit)) => Err(ProcessError::Exceeded(exceeded_limit)),
        (None, None) => Ok(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)),
    }
}

/// Measures the resource usage of a job until it exceeds a limit. Limits that the control group enforces are not
/// measured.
async fn wait_for_exceeded_limit(supervisor: Option<Pid>, workspace: &JobWorkspace) -> ExceededLimit {
    let Some(supervisor) = supervisor else { return std::future::pending().await };
    let limits = workspace.limits;
    let (memory, processes) = if workspace.cgroup.is_some() { (None, None) } else { (limits.memory, limits.processes) };
    let mut disk_due = Instant::now();
    loop {
        sleep(MEASURE_INTERVAL).await;
        if memory.is_some() || processes.is_some() {
            let Ok(usage) = spawn_blocking(move || resource_usage::descendant_usage(supervisor, memory)).await else {
                continue;
            };
            workspace.peak_memory.fetch_max(usage.memory, Ordering::Relaxed);
            if let Some(limit) = memory.filter(|limit| usage.memory > *limit) {
                return ExceededLimit::Memory(limit);
            }
            if let Some(limit) = processes.filter(|limit| usage.tasks > limit.saturating_add(SUPERVISOR_PROCESSES)) {
                return ExceededLimit::Processes(limit);
            }
        }
        let Some(limit) = limits.disk.filter(|_| Instant::now() >= disk_due) else { continue };
        let started_at = Instant::now();
        let root = workspace.root.clone();
        let measured = spawn_blocking(move || {
            let usage = resource_usage::folder_usage(&root, MAX_FILES);
            (usage.unwrap_or_default(), resource_usage::unlinked_file_bytes(supervisor, &root))
        });
        let Ok((usage, unlinked_bytes)) = measured.await else { continue };
        // A folder that takes long to measure is measured less often.
        disk_due = Instant::now() + started_at.elapsed() * 20;
        if usage.bytes.saturating_add(unlinked_bytes) > limit {
            return ExceededLimit::Disk(limit);
        }
        if usage.entries > MAX_FILES {
            return ExceededLimit::Files(MAX_FILES);
        }
        if usage.too_deep {
            return ExceededLimit::Depth;
        }
    }
}

async fn sleep_until_some(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn async_receiver(reader: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(OwnedFd::from(reader))
}

/// A running supervisor; it kills all its processes if this is dropped.
struct RunningProcess {
    child: Child,
    supervisor: Option<Pid>,
    /// The write end of the supervisor's standard input; it kills everything when this is closed.
    control_pipe: Option<PipeWriter>,
    root: std::path::PathBuf,
}

impl RunningProcess {
    fn start(command: Command, control_pipe: PipeWriter, workspace: &JobWorkspace) -> io::Result<Self> {
        let child = tokio::process::Command::from(command).spawn()?;
        let supervisor = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { child, supervisor, control_pipe: Some(control_pipe), root: workspace.root.clone() })
    }

    /// Asks the program to terminate.
    fn terminate(&mut self) {
        if let Some(control_pipe) = &mut self.control_pipe {
            // The supervisor may have just ended.
            let _ = control_pipe.write_all(b"t");
        }
    }

    /// Kills everything; the second call also kills the supervisor.
    fn kill(&mut self) {
        if self.control_pipe.take().is_none()
            && let Some(supervisor) = self.supervisor
        {
            let _ = kill_process(supervisor, Signal::KILL);
        }
    }

    /// Kills remaining processes in case the supervisor was killed.
    async fn end(mut self) {
        let root = std::mem::take(&mut self.root);
        let _ = spawn_blocking(move || kill_marked_processes(&root)).await;
    }
}

/// Kills all processes whose environment names this folder of jobs or one below it.
pub(crate) fn kill_marked_processes(folder: &Path) {
    let marker = [BUILDS_DIR_VARIABLE.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    // A process may fork just before it is killed.
    for _ in 0..20 {
        let mut found = false;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(pid) = pid else { continue };
            // Environments of other users cannot be read, and those of ended processes are empty.
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            let is_marked =
                |it: &[u8]| it.strip_prefix(&*marker).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')));
            if environment.split(|byte| *byte == 0).any(is_marked) {
                found = true;
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if !found {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
