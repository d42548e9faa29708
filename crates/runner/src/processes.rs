//! Programs of a job: what they say is taken, and all that they have started ends with them.

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
    isolation::{Build, MARK, SUPERVISORS, size},
    usage,
};

/// How long a program may take to end by itself once it was asked to.
const GENTLE: Duration = Duration::from_secs(5);
/// How often is measured what a job uses.
const MEASURED: Duration = Duration::from_millis(500);
/// How many files a job may have in its folder.
const MOST_FILES: u64 = 2_000_000;
/// How long what was said is waited for when whoever said it has ended.
const DRAIN: Duration = Duration::from_secs(2);

/// Why a job does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The server wants it to end.
    Canceled,
    /// The server does not know it any more.
    Refused,
    /// It took too long.
    TimedOut,
    /// The runner stops.
    Stopped,
}

/// How long a job may go on.
#[derive(Clone)]
pub(crate) struct Leash {
    deadline: Instant,
    told: watch::Receiver<Option<Interrupt>>,
}

impl Leash {
    pub(crate) fn new(told: watch::Receiver<Option<Interrupt>>, most: Duration) -> Self {
        Self { deadline: Instant::now() + most, told }
    }

    /// The same leash, but not longer than this.
    pub(crate) fn within(&self, most: Duration) -> Self {
        Self { deadline: self.deadline.min(Instant::now() + most), told: self.told.clone() }
    }

    /// The same leash, but exactly this long from now.
    pub(crate) fn anew(&self, most: Duration) -> Self {
        Self { deadline: Instant::now() + most, told: self.told.clone() }
    }

    /// Waits for the reason not to go on.
    pub(crate) async fn pulled(&self) -> Interrupt {
        let mut told = self.told.clone();
        let told = async {
            match told.wait_for(Option::is_some).await.map(|told| *told) {
                Ok(Some(why)) => why,
                Ok(None) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            why = told => why,
            () = sleep_until(self.deadline) => Interrupt::TimedOut,
        }
    }

    /// Works on something that can be dropped, for as long as there is no reason not to.
    pub(crate) async fn hold<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        tokio::select! {
            biased;
            why = self.pulled() => Err(why),
            done = work => Ok(done),
        }
    }
}

/// Why a program did not come to its own end.
#[derive(Debug)]
pub(crate) enum Broken {
    Interrupted(Interrupt),
    Exceeded(Excess),
    Failed(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A limit that a job has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    Memory(u64),
    Processes(u64),
    Disk(u64),
    Files(u64),
    Depth,
}

impl fmt::Display for Excess {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(most) => write!(to, "job exceeded its memory limit of {}", size(*most)),
            Self::Processes(most) => write!(to, "job exceeded its limit of {most} processes"),
            Self::Disk(most) => write!(to, "job exceeded its disk limit of {}", size(*most)),
            Self::Files(most) => write!(to, "job exceeded its limit of {most} files"),
            Self::Depth => to.write_str("job nests folders deeper than they can be measured"),
        }
    }
}

/// What is taken of what a program says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    Both,
    OutputOnly,
}

/// Runs a program, which the supervisor starts, to its end, and ends all that it has left behind; the code is as a
/// shell tells it.
pub(crate) async fn run(
    mut command: Command,
    streams: Streams,
    build: &Build,
    leash: &Leash,
    mut said: impl FnMut(&[u8]),
) -> Result<i32, Broken> {
    build.repair_way()?;
    let (reader, writer) = io::pipe()?;
    let (orders, controls) = io::pipe()?;
    let errors = if streams == Streams::Both { Stdio::from(writer.try_clone()?) } else { Stdio::null() };
    command.stdin(orders).stdout(writer).stderr(errors).process_group(0);
    let mut running = Running::start(command, controls, build)?;
    let excess = exceeds(running.supervisor, build);
    tokio::pin!(excess);
    let mut output = receive(reader)?;
    let mut piece = vec![0; 32 << 10];
    let mut open = true;
    let mut exceeded = None;
    let mut asked_to_end: Option<(Interrupt, Instant)> = None;
    let status = loop {
        tokio::select! {
            // Somebody who never stops talking is ended all the same.
            biased;
            why = leash.pulled(), if asked_to_end.is_none() => {
                asked_to_end = Some((why, Instant::now() + GENTLE));
                running.terminate();
            }
            () = until(asked_to_end.map(|(_, end)| end)) => {
                asked_to_end = asked_to_end.map(|(why, _)| (why, Instant::now() + GENTLE));
                running.kill();
            }
            which = &mut excess, if exceeded.is_none() => {
                exceeded = Some(which);
                running.kill();
            }
            count = output.read(&mut piece), if open => match count {
                Ok(count @ 1..) => said(&piece[..count]),
                _ => open = false,
            },
            status = running.child.wait() => break status?,
        }
    };
    running.end().await;
    let drained = async {
        while open {
            match output.read(&mut piece).await {
                Ok(count @ 1..) => said(&piece[..count]),
                _ => open = false,
            }
        }
    };
    let _ = timeout(DRAIN, drained).await;
    if let (None, Some(most)) = (exceeded, build.limits.memory) {
        exceeded = build.cgroup.as_ref().filter(|it| it.ran_out_of_memory()).map(|_| Excess::Memory(most));
    }
    match (asked_to_end, exceeded) {
        (Some((why, _)), _) => Err(Broken::Interrupted(why)),
        (None, Some(excess)) => Err(Broken::Exceeded(excess)),
        (None, None) => Ok(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)),
    }
}

/// Measures what a job uses, again and again, until it is too much. What a control group holds is not measured.
async fn exceeds(supervisor: Option<Pid>, build: &Build) -> Excess {
    let Some(supervisor) = supervisor else { return std::future::pending().await };
    let limits = build.limits;
    let (memory, processes) = if build.cgroup.is_some() { (None, None) } else { (limits.memory, limits.processes) };
    let mut disk_due = Instant::now();
    loop {
        sleep(MEASURED).await;
        if memory.is_some() || processes.is_some() {
            let Ok(used) = spawn_blocking(move || usage::of_descendants(supervisor, memory)).await else { continue };
            build.peak_memory.fetch_max(used.memory, Ordering::Relaxed);
            if let Some(most) = memory.filter(|most| used.memory > *most) {
                return Excess::Memory(most);
            }
            if let Some(most) = processes.filter(|most| used.tasks > most.saturating_add(SUPERVISORS)) {
                return Excess::Processes(most);
            }
        }
        let Some(most) = limits.disk.filter(|_| Instant::now() >= disk_due) else { continue };
        let begun = Instant::now();
        let root = build.root.clone();
        let measured = spawn_blocking(move || {
            let taken = usage::of_folder(&root, MOST_FILES);
            (taken.unwrap_or_default(), usage::of_unnamed_files(supervisor, &root))
        });
        let Ok((taken, unnamed)) = measured.await else { continue };
        // A folder that takes long to measure is measured less often.
        disk_due = Instant::now() + begun.elapsed() * 20;
        if taken.bytes.saturating_add(unnamed) > most {
            return Excess::Disk(most);
        }
        if taken.entries > MOST_FILES {
            return Excess::Files(MOST_FILES);
        }
        if taken.too_deep {
            return Excess::Depth;
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn receive(reader: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(OwnedFd::from(reader))
}

/// A supervisor with all that it has started; dropped before its end, all of them are killed by it.
struct Running {
    child: Child,
    supervisor: Option<Pid>,
    /// What the supervisor listens to; it kills everything when this is closed.
    controls: Option<PipeWriter>,
    root: std::path::PathBuf,
}

impl Running {
    fn start(command: Command, controls: PipeWriter, build: &Build) -> io::Result<Self> {
        let child = tokio::process::Command::from(command).spawn()?;
        let supervisor = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { child, supervisor, controls: Some(controls), root: build.root.clone() })
    }

    /// Asks the program to end by itself.
    fn terminate(&mut self) {
        if let Some(controls) = &mut self.controls {
            // If it has just ended there is nobody to tell.
            let _ = controls.write_all(b"t");
        }
    }

    /// Has everything killed; the second time, the supervisor too.
    fn kill(&mut self) {
        if self.controls.take().is_none()
            && let Some(supervisor) = self.supervisor
        {
            let _ = kill_process(supervisor, Signal::KILL);
        }
    }

    /// Ends what is left if somebody has killed the supervisor.
    async fn end(mut self) {
        let root = std::mem::take(&mut self.root);
        let _ = spawn_blocking(move || sweep(&root)).await;
    }
}

/// Kills whatever carries the mark of a folder of jobs, or of one below it.
pub(crate) fn sweep(folder: &Path) {
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    // Whoever is being killed may have started another one a moment before.
    for _ in 0..20 {
        let mut found = false;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(pid) = pid else { continue };
            // Those of others cannot be read, and those that have ended are empty.
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            let marked =
                |it: &[u8]| it.strip_prefix(&*mark).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')));
            if environment.split(|byte| *byte == 0).any(marked) {
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
