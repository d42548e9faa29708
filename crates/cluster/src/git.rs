//! The stock git program.

use std::{path::Path, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt as _, process::Command};

/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Runs git in a folder; returns its output, or its messages if it fails.
pub(crate) async fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<String, String> {
    git_within(TIMEOUT, folder, arguments, input).await
}

/// Like [`git`], with another timeout.
pub(crate) async fn git_within(
    timeout: Duration,
    folder: &Path,
    arguments: &[&str],
    input: &[u8],
) -> Result<String, String> {
    let mut command = Command::new("git");
    command.args(["-c", "protocol.version=2", "-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
    command.args(arguments).current_dir(folder);
    command.envs([("GIT_TERMINAL_PROMPT", "0"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Administrator");
        command.env(format!("GIT_{role}_EMAIL"), "admin@example.com");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let run = async {
        let mut process = command.spawn()?;
        if let Some(mut stdin) = process.stdin.take() {
            stdin.write_all(input).await?;
        }
        process.wait_with_output().await
    };
    match tokio::time::timeout(timeout, run).await {
        Err(_) => Err(format!("no result within {} s", timeout.as_secs())),
        Ok(Err(error)) => Err(format!("cannot run git: {error}")),
        Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
