//! Starts the debug build of the server on an empty data folder.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Stdio},
};

use anyhow::{Context as _, Result};

use crate::{child_guard::guarded, temp_folder::TempFolder, workspace};

/// The token of the administrator, which clients use.
pub(crate) const ROOT_TOKEN: &str = "xtask-administrator1";
/// The password of the administrator.
pub(crate) const ROOT_PASSWORD: &str = "correct-horse";

/// A running server; stopped on drop and when xtask exits.
pub(crate) struct GableServer {
    server: Child,
    url: String,
    ssh_url: String,
    folder: TempFolder,
    // Kept open, because the server may still write to it.
    _output: BufReader<ChildStdout>,
}

impl GableServer {
    /// Starts a server with a dialect and further flags.
    pub(crate) fn start(dialect: &str, flags: &[&str]) -> Result<Self> {
        let folder = TempFolder::new(&format!("gable-{dialect}"))?;
        let log = File::create(folder.path().join("log")).context("cannot write the log")?;
        let mut command = guarded("TERM", workspace::program("debug", "gable"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
            command.env_remove(name);
        }
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--ssh-listen", "127.0.0.1:0", "--sign-ins-per-minute", "0"])
            .args(["--requests-per-minute", "0", "--anonymous-requests-per-minute", "0"])
            .args(flags)
            .args(["--dialect", dialect, "--data"])
            .arg(folder.path().join("data"))
            .env("GABLE_ROOT_TOKEN", ROOT_TOKEN)
            .env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut server = spawned.context("cannot start gable")?;
        let mut output = BufReader::new(server.stdout.take().context("gable has no standard output")?);
        let ready = read_addresses(&mut output);
        let (url, ssh_url) = ready.with_context(|| format!("gable did not become ready\n{}", read_log(&folder)))?;
        Ok(Self { server, url, ssh_url, folder, _output: output })
    }

    /// Returns the HTTP URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the SSH URL.
    pub(crate) fn ssh_url(&self) -> &str {
        &self.ssh_url
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        read_log(&self.folder)
    }
}

impl Drop for GableServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Reads the URLs from the line that the server prints when it is ready.
fn read_addresses(output: &mut impl BufRead) -> Option<(String, String)> {
    output.lines().map_while(Result::ok).find_map(|line| {
        let (url, ssh_url) = line.strip_prefix("gable ready on ")?.split_once(" and ")?;
        Some((url.to_owned(), ssh_url.to_owned()))
    })
}

fn read_log(folder: &TempFolder) -> String {
    fs::read_to_string(folder.path().join("log")).unwrap_or_default()
}
