//! The debug build of our own server, on a folder that nobody used before.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Stdio},
};

use crate::{Outcome, leash::leashed, scratch::Scratch, workspace};

/// The token and the password of the administrator that clients start with.
pub(crate) const ROOT_TOKEN: &str = "xtask-administrator1";
pub(crate) const ROOT_PASSWORD: &str = "correct-horse";

/// A running server; it ends when this is dropped, and when we die.
pub(crate) struct Gable {
    server: Child,
    url: String,
    ssh_url: String,
    folder: Scratch,
    // Held open, because the server says something now and then.
    _output: BufReader<ChildStdout>,
}

impl Gable {
    /// Starts a server that speaks the dialect, with further flags.
    pub(crate) fn start(dialect: &str, settings: &[&str]) -> Outcome<Self> {
        let folder = Scratch::new(&format!("gable-{dialect}"))?;
        let log = File::create(folder.path().join("log")).map_err(|error| format!("cannot write the log: {error}"))?;
        let mut command = leashed("TERM", workspace::program("debug", "gable"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
            command.env_remove(name);
        }
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--ssh-listen", "127.0.0.1:0", "--sign-ins-per-minute", "0"])
            .args(["--requests-per-minute", "0", "--anonymous-requests-per-minute", "0"])
            .args(settings)
            .args(["--dialect", dialect, "--data"])
            .arg(folder.path().join("data"))
            .env("GABLE_ROOT_TOKEN", ROOT_TOKEN)
            .env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut server = spawned.map_err(|error| format!("cannot start gable: {error}"))?;
        let mut output = BufReader::new(server.stdout.take().ok_or("gable has no standard output")?);
        let ready = read_addresses(&mut output);
        let (url, ssh_url) = ready.ok_or_else(|| format!("gable did not become ready\n{}", log_of(&folder)))?;
        Ok(Self { server, url, ssh_url, folder, _output: output })
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens for SSH.
    pub(crate) fn ssh_url(&self) -> &str {
        &self.ssh_url
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        log_of(&self.folder)
    }
}

impl Drop for Gable {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The addresses in the line that says that it is ready.
fn read_addresses(output: &mut impl BufRead) -> Option<(String, String)> {
    output.lines().map_while(Result::ok).find_map(|line| {
        let (url, ssh_url) = line.strip_prefix("gable ready on ")?.split_once(" and ")?;
        Some((url.to_owned(), ssh_url.to_owned()))
    })
}

fn log_of(folder: &Scratch) -> String {
    fs::read_to_string(folder.path().join("log")).unwrap_or_default()
}
