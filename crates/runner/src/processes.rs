//! Programs of a job: what they say is taken, and all that they have started ends with them.

use std::{
    fs,
    io::{self, PipeReader},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, process::CommandExt as _, process::ExitStatusExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe::Receiver,
    process::Child,
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::isolation::MARK;

/// How long a program may take to end by itself once it was asked to.
const GENTLE: Duration = Duration::from_secs(5);
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
    Failed(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// What is taken of what a program says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    Both,
    OutputOnly,
}

/// Runs a program to its end, and ends all that it has left behind; the code is as a shell tells it.
pub(crate) async fn run(
    mut command: Command,
    streams: Streams,
    build: &Path,
    leash: &Leash,
    mut said: impl FnMut(&[u8]),
) -> Result<i32, Broken> {
    let (reader, writer) = io::pipe()?;
    let errors = if streams == Streams::Both { Stdio::from(writer.try_clone()?) } else { Stdio::null() };
    command.stdout(writer).stderr(errors).process_group(0);
    let mut running = Running::start(command, build)?;
    let mut output = receive(reader)?;
    let mut piece = vec![0; 32 << 10];
    let mut open = true;
    let mut asked_to_end: Option<(Interrupt, Instant)> = None;
    let status = loop {
        tokio::select! {
            // Somebody who never stops talking is ended all the same.
            biased;
            why = leash.pulled(), if asked_to_end.is_none() => {
                asked_to_end = Some((why, Instant::now() + GENTLE));
                running.signal(Signal::TERM);
            }
            () = until(asked_to_end.map(|(_, end)| end)) => {
                asked_to_end = asked_to_end.map(|(why, _)| (why, Instant::now() + GENTLE));
                running.signal(Signal::KILL);
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
    match asked_to_end {
        Some((why, _)) => Err(Broken::Interrupted(why)),
        None => Ok(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)),
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

/// A program with all that it has started; dropped before its end, all of them are killed.
struct Running {
    child: Child,
    group: Option<Pid>,
    build: std::path::PathBuf,
}

impl Running {
    fn start(command: Command, build: &Path) -> io::Result<Self> {
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { child, group, build: build.to_owned() })
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // If all of them have just ended there is nobody to tell.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Ends what is left, also what has left the group.
    async fn end(mut self) {
        self.signal(Signal::KILL);
        self.group = None;
        let build = std::mem::take(&mut self.build);
        let _ = tokio::task::spawn_blocking(move || sweep(&build)).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.group.is_some() {
            self.signal(Signal::KILL);
            sweep(&self.build);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str, mark: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(MARK, mark).stdin(Stdio::null());
        command
    }

    fn leash(most: Duration) -> (watch::Sender<Option<Interrupt>>, Leash) {
        let (tell, told) = watch::channel(None);
        (tell, Leash::new(told, most))
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn all_that_is_said_arrives_in_order_and_the_code_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_tell, leash) = leash(LONG);
        let mut text = Vec::new();
        let script = "i=0; while [ $i -lt 2000 ]; do echo $i; echo $i >&2; i=$((i+1)); done; exit 7";
        let code = run(command(script, folder.path()), Streams::Both, folder.path(), &leash, |piece| {
            text.extend_from_slice(piece);
        })
        .await
        .expect("ended");
        let expected = (0..2000).fold(String::new(), |all, number| format!("{all}{number}\n{number}\n"));
        assert_eq!((code, String::from_utf8(text).expect("text")), (7, expected));
        let killed = run(command("kill -9 $$", folder.path()), Streams::Both, folder.path(), &leash, |_| {}).await;
        assert_eq!(killed.expect("ended"), 137);
    }

    #[tokio::test]
    async fn what_leaves_the_group_ends_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_tell, leash) = leash(LONG);
        let mut text = Vec::new();
        let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; sleep 1000 & echo $!";
        run(command(script, folder.path()), Streams::Both, folder.path(), &leash, |piece| {
            text.extend_from_slice(piece);
        })
        .await
        .expect("ended");
        let text = String::from_utf8(text).expect("text");
        assert_eq!(text.lines().count(), 2);
        for pid in text.lines() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let gone = stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
            assert!(gone, "{stat}");
        }
    }

    #[tokio::test]
    async fn a_deadline_ends_even_what_does_not_listen() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_tell, leash) = leash(Duration::from_millis(200));
        let script = "trap '' TERM; while true; do sleep 0.1; done";
        let ended = run(command(script, folder.path()), Streams::Both, folder.path(), &leash, |_| {}).await;
        assert!(matches!(ended, Err(Broken::Interrupted(Interrupt::TimedOut))));
    }
}
