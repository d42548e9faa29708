//! Programs of git that talk to a client: bounded, and gone when the client is.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Command, ExitStatus, Stdio},
};

use forge::transport::{ChildLimits, stand_back};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    task::JoinHandle,
};

use crate::transfers::Limits;

/// How much is moved at a time.
pub(crate) const PIECE: usize = 64 * 1024;
/// How much of what a program says to its log is kept.
const COMPLAINT: usize = 4 * 1024;

/// A program with all that it has started; dropped before its end, all of them are killed.
pub(crate) struct Running {
    child: Child,
    group: Option<Pid>,
}

/// The ends of a program's pipes.
pub(crate) struct Pipes {
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
    pub(crate) log: ChildStderr,
}

impl Running {
    /// Starts a program in a group of its own, so that all of it can be killed at once.
    pub(crate) fn start(mut command: Command, limits: &Limits) -> io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let missing = || io::Error::other("a program without pipes");
        let id = child.id().ok_or_else(missing)?;
        let group = Pid::from_raw(id.cast_signed());
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let log = child.stderr.take().ok_or_else(missing)?;
        let running = Self { child, group };
        // It has been told nothing yet, so it has started no others, and those will inherit what is set here.
        ChildLimits { memory: limits.memory, ..ChildLimits::default() }.apply(id)?;
        stand_back(id);
        Ok((running, Pipes { input, output, log }))
    }

    /// Waits for the end.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.group = None;
        Ok(status)
    }

    /// Kills it with all that it has started, unless it has ended.
    pub(crate) fn kill(&self) {
        if let Some(group) = self.group.filter(|_| self.child.id().is_some()) {
            // If all of them have just ended there is nothing to kill. Who is left is reaped by the runtime.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Collects the end of what a program says to its log, while it runs.
pub(crate) fn collect(log: impl AsyncRead + Send + Unpin + 'static) -> JoinHandle<String> {
    tokio::spawn(async move { tail(log).await })
}

async fn tail(mut log: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut piece) = (Vec::new(), vec![0; COMPLAINT]);
    while let Ok(count @ 1..) = log.read(&mut piece).await {
        kept.extend_from_slice(&piece[..count]);
        kept.drain(..kept.len().saturating_sub(COMPLAINT));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn start(script: &str) -> (Running, Pipes) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Running::start(command, &Limits::default()).expect("started")
    }

    /// Whether a process is there and not merely waiting to be reaped.
    fn lives(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    #[tokio::test]
    async fn a_dropped_program_takes_its_own_children_with_it() {
        let (running, pipes) = start("sleep 1000 & echo $!; wait");
        let line = tokio::io::BufReader::new(pipes.output).lines().next_line().await.expect("read").expect("a line");
        let (leader, child) = (running.child.id().expect("running"), line.parse().expect("a number"));
        assert!(lives(leader) && lives(child));
        drop(running);
        for pid in [leader, child] {
            let ended = async {
                while lives(pid) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), ended).await.expect("killed");
        }
    }

    #[tokio::test]
    async fn a_program_and_what_it_starts_stand_back() {
        let nice = |stat: &str| stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.parse::<i32>().ok();
        let own = nice(&fs::read_to_string("/proc/thread-self/stat").expect("a line")).expect("a number");
        let (_running, mut pipes) = start("read go; cat /proc/self/stat");
        pipes.input.write_all(b"go\n").await.expect("told");
        let line = tokio::io::BufReader::new(pipes.output).lines().next_line().await.expect("read").expect("a line");
        assert_eq!(nice(&line), Some(own.max(10)), "{line}");
    }

    #[tokio::test]
    async fn memory_is_bounded_and_complaints_are_kept_short() {
        let (mut running, mut pipes) = start(
            "read go; ulimit -d; i=0; while [ $i -lt 2000 ]; do echo complaint >&2; i=$((i+1)); done; echo last >&2; exit 3",
        );
        // As git does, it waits to be told something.
        pipes.input.write_all(b"go\n").await.expect("told");
        let log = collect(pipes.log);
        let line = tokio::io::BufReader::new(pipes.output).lines().next_line().await.expect("read").expect("a line");
        assert_eq!(line, (Limits::default().memory / 1024).to_string());
        assert_eq!(running.wait().await.expect("ended").code(), Some(3));
        let log = log.await.expect("collected");
        assert!(log.len() <= COMPLAINT && log.ends_with("complaint\nlast\n"), "{log}");
    }
}
