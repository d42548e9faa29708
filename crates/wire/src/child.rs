//! Git processes that serve a client: with resource limits, killed when the client disconnects.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Command, ExitStatus, Stdio},
};

use forge::transport::{ChildLimits, lower_priority};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    task::JoinHandle,
};

use crate::transfers::TransferLimits;

/// The size of the buffer for copying between a process and a client, in bytes.
pub(crate) const CHUNK_SIZE: usize = 64 * 1024;
/// The maximum number of bytes of standard error kept for the log; earlier output is dropped.
const MAX_STDERR: usize = 4 * 1024;

/// A running process with its process group; dropping it kills the group.
pub(crate) struct ChildProcess {
    child: Child,
    group: Option<Pid>,
}

/// The standard streams of a process.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl ChildProcess {
    /// Starts a process in its own process group, so that its children can be killed with it.
    pub(crate) fn start(mut command: Command, limits: &TransferLimits) -> io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let missing = || io::Error::other("the process has no pipes");
        let id = child.id().ok_or_else(missing)?;
        let group = Pid::from_raw(id.cast_signed());
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let process = Self { child, group };
        // The process waits for input and has no children yet; they inherit these limits.
        ChildLimits { memory: limits.max_memory, ..ChildLimits::default() }.apply(id)?;
        lower_priority(id);
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    /// Waits for the process to exit.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.group = None;
        Ok(status)
    }

    /// Kills the process group, unless the process has exited.
    pub(crate) fn kill(&self) {
        if let Some(group) = self.group.filter(|_| self.child.id().is_some()) {
            // An error means that the group has just exited. The runtime reaps the process.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a stream in a background task and returns its last `MAX_STDERR` bytes.
pub(crate) fn collect_tail(stderr: impl AsyncRead + Send + Unpin + 'static) -> JoinHandle<String> {
    tokio::spawn(async move { tail(stderr).await })
}

async fn tail(mut stderr: impl AsyncRead + Unpin) -> String {
    let (mut tail, mut chunk) = (Vec::new(), vec![0; MAX_STDERR]);
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..count]);
        tail.drain(..tail.len().saturating_sub(MAX_STDERR));
    }
    String::from_utf8_lossy(&tail).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn start(script: &str) -> (ChildProcess, Pipes) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ChildProcess::start(command, &TransferLimits::default()).expect("started")
    }

    /// Returns whether a process exists and is not a zombie.
    fn is_running(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    #[tokio::test]
    async fn dropping_a_process_kills_its_children() {
        let (process, pipes) = start("sleep 1000 & echo $!; wait");
        let line = tokio::io::BufReader::new(pipes.stdout).lines().next_line().await.expect("read").expect("a line");
        let (leader, child) = (process.child.id().expect("running"), line.parse().expect("a number"));
        assert!(is_running(leader) && is_running(child));
        drop(process);
        for pid in [leader, child] {
            let ended = async {
                while is_running(pid) {
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
        pipes.stdin.write_all(b"go\n").await.expect("written");
        let line = tokio::io::BufReader::new(pipes.stdout).lines().next_line().await.expect("read").expect("a line");
        assert_eq!(nice(&line), Some(own.max(10)), "{line}");
    }

    #[tokio::test]
    async fn memory_is_limited_and_only_the_end_of_stderr_is_kept() {
        let (mut process, mut pipes) = start(
            "read go; ulimit -d; i=0; while [ $i -lt 2000 ]; do echo complaint >&2; i=$((i+1)); done; echo last >&2; exit 3",
        );
        // Like git, the script waits for input.
        pipes.stdin.write_all(b"go\n").await.expect("written");
        let stderr = collect_tail(pipes.stderr);
        let line = tokio::io::BufReader::new(pipes.stdout).lines().next_line().await.expect("read").expect("a line");
        assert_eq!(line, (TransferLimits::default().max_memory / 1024).to_string());
        assert_eq!(process.wait().await.expect("ended").code(), Some(3));
        let stderr = stderr.await.expect("collected");
        assert!(stderr.len() <= MAX_STDERR && stderr.ends_with("complaint\nlast\n"), "{stderr}");
    }
}
