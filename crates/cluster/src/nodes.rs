//! The nodes of Gable.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    http::Client,
    network::{BALANCER, Host, Network, run},
};

/// The access token of the administrator.
pub(crate) const TOKEN: &str = "cluster-administrator";
/// The password of the administrator.
pub(crate) const PASSWORD: &str = "correct-horse-cluster";
/// The size of the disk of a cache, if it has its own.
const CACHE_DISK_SIZE: &str = "1G";
/// How long a node may take until it is ready, also while all processors are in use; debug builds take a few seconds.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum number of attempts to start a node.
const START_ATTEMPTS: u32 = 5;
/// The time after which a node that could not start is started again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The settings that all nodes share.
#[derive(Clone)]
pub(crate) struct NodeSettings {
    pub(crate) gable: PathBuf,
    pub(crate) database: String,
    /// The URL of the standby, from which lists are read.
    pub(crate) read_replica: Option<String>,
    /// `None`: the files are in a data folder, which only one node can use.
    pub(crate) store: Option<String>,
    pub(crate) store_variables: Vec<(String, String)>,
    pub(crate) instance_key: PathBuf,
    pub(crate) external_url: String,
    /// Further flags of `gable serve`.
    pub(crate) flags: Vec<String>,
}

/// What is different about a start of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// Another program.
    pub(crate) gable: Option<PathBuf>,
    /// The clock is wrong by this number of seconds.
    pub(crate) clock_offset: i32,
}

/// A node, which may be stopped.
pub(crate) struct Node {
    pub(crate) host: Host,
    pub(crate) http: SocketAddr,
    ssh: SocketAddr,
    folder: PathBuf,
    process: Option<Child>,
    /// Whether the process has been ready.
    was_ready: bool,
}

impl Node {
    pub(crate) fn new(network: &Network, host: Host, folder: &Path) -> Result<Self> {
        let folder = folder.join(host.name);
        fs::create_dir_all(folder.join("cache")).context("cannot create the folder of a node")?;
        if network.has_namespaces() {
            // The mount namespace of this process ends with it, and so does the mount.
            let options = format!("size={CACHE_DISK_SIZE}");
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(folder.join("cache")))?;
        }
        let (http, ssh) = (network.address(host, 8080)?, network.address(host, 2222)?);
        Ok(Self { host, http, ssh, folder, process: None, was_ready: false })
    }

    /// Returns a client with the token of the administrator.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.http, Some(TOKEN))
    }

    /// Returns the folder of the cache.
    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.join("cache")
    }

    /// Returns the path of the log.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    /// Returns the processor time that the node and its finished children have used.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let id = self.process.as_ref().context("the node does not run")?.id();
        let stat =
            fs::read_to_string(format!("/proc/{id}/stat")).context("cannot read the processor time of a node")?;
        processor_time(&stat).context("cannot read the processor time of a node")
    }

    /// Starts the node, without waiting until it is ready.
    pub(crate) fn start(&mut self, network: &Network, settings: &NodeSettings, start: &Start) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.context("cannot write the log of a node")?;
        let mut command = network.command(self.host, start.gable.as_ref().unwrap_or(&settings.gable));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
            command.env_remove(name);
        }
        command.arg("serve").args(["--listen", &self.http.to_string(), "--ssh-listen", &self.ssh.to_string()]);
        command.args(["--external-url", &settings.external_url, "--drain-timeout", "5s"]);
        command.args(["--allow-local-network", "--requests-per-minute", "0", "--anonymous-requests-per-minute", "0"]);
        command.args(["--sign-ins-per-minute", "0", "--unheard-job-seconds", "5s", "--min-free-disk", "16M"]);
        command.args(["--trusted-proxies", &network.address(BALANCER, 80)?.ip().to_string()]);
        command.args(&settings.flags);
        match &settings.store {
            Some(store) => {
                command.args(["--store", store, "--cache"]).arg(self.cache());
                command.arg("--instance-key-file").arg(&settings.instance_key);
            }
            None => _ = command.arg("--data").arg(self.folder.join("data")),
        }
        command.env("GABLE_DATABASE", &settings.database).envs(settings.store_variables.iter().cloned());
        command.envs(settings.read_replica.iter().map(|url| ("GABLE_READ_REPLICA", url)));
        command.env("GABLE_ROOT_TOKEN", TOKEN).env("GABLE_ROOT_PASSWORD", PASSWORD);
        if start.clock_offset != 0 {
            command.env("LD_PRELOAD", faketime()?).env("FAKETIME", format!("{:+}s", start.clock_offset));
            // Only the time of day is wrong.
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let process = command.stdout(log.try_clone()?).stderr(log).spawn();
        self.process = Some(process.context("cannot start gable")?);
        self.was_ready = false;
        Ok(())
    }

    /// Starts the node unless it runs, and waits until it is ready. If it ends before it has been ready, it is started
    /// again, as a service manager does: a node gives up if the database does not respond in time.
    pub(crate) async fn start_until_ready(
        &mut self,
        network: &Network,
        settings: &NodeSettings,
        start: &Start,
    ) -> Result<()> {
        let mut attempt = 1;
        loop {
            if self.process.is_none() {
                self.start(network, settings, start)?;
            }
            match self.wait_until_ready().await {
                Err(error) if attempt < START_ATTEMPTS && self.exit_status().is_some() && !self.was_ready => {
                    println!("attempt {attempt} to start: {error:#}");
                    self.kill();
                    tokio::time::sleep(RETRY_DELAY).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits until the node is ready; fails if it ends.
    async fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        let client = Client::new(self.http, None).with_timeout(Duration::from_secs(2));
        let mut last = String::new();
        while start.elapsed() < STARTUP_TIMEOUT {
            if let Some(status) = self.exit_status() {
                bail!("{} has ended ({status}); see {}", self.host.name, self.log().display());
            }
            last = match client.get("/-/ready").await {
                Ok(response) if response.status == 200 => {
                    self.was_ready = true;
                    return Ok(());
                }
                Ok(response) => response.to_string(),
                Err(error) => error.to_string(),
            };
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{} is not ready after {} s: {last}", self.host.name, STARTUP_TIMEOUT.as_secs())
    }

    /// Returns whether the process has ended by itself after it had been ready, which must not happen.
    pub(crate) fn has_ended_after_ready(&mut self) -> bool {
        self.was_ready && self.exit_status().is_some()
    }

    /// Returns the exit status if the process has ended by itself.
    pub(crate) fn exit_status(&mut self) -> Option<String> {
        self.process.as_mut()?.try_wait().ok()?.map(|status| status.to_string())
    }

    /// Kills the node without warning.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops the node as an operator does.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        run(Command::new("kill").arg(process.id().to_string()))?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if process.try_wait().context("cannot wait for a node")?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = process.kill();
        let _ = process.wait();
        bail!("{} did not stop within a minute", self.host.name)
    }

    /// Removes the content of the cache.
    pub(crate) fn clear_cache(&self) -> Result<()> {
        for entry in fs::read_dir(self.cache()).context("cannot read the cache")?.flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the processor time in a line of `/proc/PID/stat`.
fn processor_time(stat: &str) -> Option<Duration> {
    // Fields are counted after the name, which is in parentheses and may contain spaces. A tick is a hundredth of a
    // second.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * ticks))
}

/// Returns the library that changes the time of a process.
fn faketime() -> Result<PathBuf> {
    let name = "faketime/libfaketimeMT.so.1";
    let folders =
        fs::read_dir("/usr/lib").context("cannot read /usr/lib")?.flatten().map(|entry| entry.path().join(name));
    folders.chain([Path::new("/usr/lib").join(name)]).find(|path| path.is_file()).context("libfaketime is missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_the_sum_of_user_and_system_time() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 1 20 0 9";
        assert_eq!(processor_time(stat), Some(Duration::from_millis(1240)));
        assert_eq!(processor_time("42"), None);
    }
}
