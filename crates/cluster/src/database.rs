//! The database: two PostgreSQL servers under Patroni, or one server that runs already.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::{
    http::Client,
    network::{self, DATABASES, ETCD, Host, Network, run},
};

const STARTUP_TIMEOUT: Duration = Duration::from_secs(90);
/// How long Patroni may take to confirm which server is the primary, while all processors are in use.
const PRIMARY_TIMEOUT: Duration = Duration::from_secs(10);
/// Patroni responds when the roles are exchanged, or gives up after 20 s.
const SWITCHOVER_TIMEOUT: Duration = Duration::from_secs(30);
const PATRONI_PORT: u16 = 8008;
/// The user that runs PostgreSQL, which refuses to run as root.
const ACCOUNT: &str = "postgres";

/// The database of the nodes.
pub(crate) enum Database {
    /// A server with this URL.
    Single(String),
    Patroni(Patroni),
}

impl Database {
    /// Returns the URL of a database; a single server has only one.
    pub(crate) fn url(&self, network: &Network, name: &str) -> Result<String> {
        match self {
            Self::Single(url) => Ok(url.clone()),
            Self::Patroni(_) => {
                let hosts = hosts(network)?;
                Ok(format!("postgres://postgres@{hosts}/{name}?target_session_attrs=read-write"))
            }
        }
    }

    /// Returns the URL of the standby of a database; `None` if there is none.
    pub(crate) fn standby_url(&self, network: &Network, name: &str) -> Result<Option<String>> {
        match self {
            Self::Single(_) => Ok(None),
            Self::Patroni(_) => {
                let hosts = hosts(network)?;
                Ok(Some(format!("postgres://postgres@{hosts}/{name}?target_session_attrs=read-only")))
            }
        }
    }
}

fn hosts(network: &Network) -> Result<String> {
    let hosts = DATABASES.iter().map(|host| Ok(network.address(*host, 5432)?.to_string()));
    Ok(hosts.collect::<Result<Vec<_>>>()?.join(","))
}

/// Two PostgreSQL servers, of which one is the primary, with synchronous replication.
pub(crate) struct Patroni {
    etcd: Child,
    servers: [Child; 2],
    folder: PathBuf,
}

impl Patroni {
    /// Creates and starts the servers, and creates the database.
    pub(crate) async fn start(network: &Network, folder: &Path) -> Result<Self> {
        let folder = folder.join("postgresql");
        fs::create_dir_all(&folder).context("cannot create the folder of PostgreSQL")?;
        run(Command::new("chown").arg(ACCOUNT).arg(&folder))?;
        let etcd = start_etcd(network, &folder)?;
        let programs = programs().context("PostgreSQL is missing")?;
        for host in DATABASES {
            let path = folder.join(host.name).with_extension("yml");
            fs::write(&path, configuration(network, host, &folder, &programs)?).context("cannot configure Patroni")?;
        }
        let mut servers = Vec::new();
        for host in DATABASES {
            servers.push(start_server(network, host, &folder)?);
        }
        let servers = servers.try_into().ok().context("two servers")?;
        let patroni = Self { etcd, servers, folder };
        patroni.wait_until_synchronous(network, STARTUP_TIMEOUT).await?;
        patroni.create_database(network, "gable").await?;
        Ok(patroni)
    }

    /// Creates an empty database.
    pub(crate) async fn create_database(&self, network: &Network, name: &str) -> Result<()> {
        let primary = self.primary(network).await.context("no server is the primary")?;
        let address = network.address(primary, 5432)?;
        let mut psql = Command::new("psql");
        psql.args(["--username=postgres", "--quiet"]).arg(format!("--command=CREATE DATABASE {name}"));
        run(psql.arg(format!("--host={}", address.ip())).arg(format!("--port={}", address.port()))).map(drop)
    }

    /// Returns the server that accepts writes.
    pub(crate) async fn primary(&self, network: &Network) -> Option<Host> {
        for host in DATABASES {
            let response = rest(network, host).ok()?.get("/primary").await;
            if response.is_ok_and(|response| response.status == 200) {
                return Some(host);
            }
        }
        None
    }

    /// Waits until one server is the primary, and the other one has everything that is acknowledged.
    pub(crate) async fn wait_until_synchronous(&self, network: &Network, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        let mut state = String::new();
        while start.elapsed() < timeout {
            for host in DATABASES {
                if let Ok(response) = rest(network, host)?.get("/cluster").await {
                    if has_synchronous_standby(&response.json()) {
                        return Ok(());
                    }
                    state = response.to_string();
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("PostgreSQL has no synchronous standby after {} s: {state}", timeout.as_secs())
    }

    /// Waits until a server accepts writes.
    async fn wait_for_primary(&self, network: &Network) -> Result<Host> {
        let start = Instant::now();
        loop {
            match self.primary(network).await {
                Some(host) => return Ok(host),
                None if start.elapsed() > PRIMARY_TIMEOUT => {
                    bail!("no server is the primary for {} s", PRIMARY_TIMEOUT.as_secs())
                }
                None => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Kills the processes of the primary; returns its host.
    pub(crate) async fn kill_primary(&mut self, network: &Network) -> Result<Host> {
        let primary = self.wait_for_primary(network).await?;
        network::kill_all(primary)?;
        let _ = self.server(primary).wait();
        Ok(primary)
    }

    /// Starts a server that was killed.
    pub(crate) fn restart(&mut self, network: &Network, host: Host) -> Result<()> {
        *self.server(host) = start_server(network, host, &self.folder)?;
        Ok(())
    }

    /// Exchanges the roles of the servers, as `patronictl switchover` does.
    pub(crate) async fn switch_over(&self, network: &Network) -> Result<()> {
        let primary = self.wait_for_primary(network).await?;
        let candidate = DATABASES.into_iter().find(|host| *host != primary).context("two servers")?;
        let request = json!({ "leader": primary.name, "candidate": candidate.name });
        let client = rest(network, primary)?.with_timeout(SWITCHOVER_TIMEOUT);
        let response = client.post("/switchover", &request).await?;
        if !response.is_success() {
            bail!("the switchover was refused: {response}");
        }
        Ok(())
    }

    fn server(&mut self, host: Host) -> &mut Child {
        &mut self.servers[usize::from(host != DATABASES[0])]
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        for process in self.servers.iter_mut().chain([&mut self.etcd]) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn rest(network: &Network, host: Host) -> Result<Client> {
    Ok(Client::new(network.address(host, PATRONI_PORT)?, None).with_timeout(Duration::from_secs(10)))
}

/// Returns whether a description of the cluster by Patroni has a running primary and a synchronous standby.
fn has_synchronous_standby(cluster: &Value) -> bool {
    let members = cluster["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |role: &str| {
        let is_running = |member: &&Value| member["state"] == "running" || member["state"] == "streaming";
        members.iter().filter(|member| member["role"] == role).any(|member| is_running(&member))
    };
    has("leader") && has("sync_standby")
}

fn start_etcd(network: &Network, folder: &Path) -> Result<Child> {
    let (client, peer) = (network.address(ETCD, 2379)?, network.address(ETCD, 2380)?);
    let log = File::create(folder.join("etcd.log")).context("cannot write the log of etcd")?;
    let mut etcd = network.command(ETCD, "etcd");
    etcd.args(["--name", "etcd", "--data-dir"]).arg(folder.join("etcd"));
    etcd.args(["--listen-client-urls", &format!("http://{client}")]);
    etcd.args(["--advertise-client-urls", &format!("http://{client}")]);
    etcd.args(["--listen-peer-urls", &format!("http://{peer}")]);
    etcd.args(["--initial-advertise-peer-urls", &format!("http://{peer}")]);
    etcd.args(["--initial-cluster", &format!("etcd=http://{peer}")]);
    etcd.stdout(log.try_clone()?).stderr(log).spawn().context("cannot start etcd")
}

fn start_server(network: &Network, host: Host, folder: &Path) -> Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join(host.name).with_extension("log"));
    let log = log.context("cannot write the log of Patroni")?;
    let mut patroni = network.command_as(ACCOUNT, host, "patroni");
    patroni.arg(folder.join(host.name).with_extension("yml")).current_dir(folder).env("HOME", folder);
    patroni.stdout(log.try_clone()?).stderr(log).spawn().context("cannot start Patroni")
}

/// Returns the configuration of Patroni, that of `examples/cluster/patroni.yml` with other addresses and without passwords. Its
/// times are short, so that a fail-over takes seconds.
fn configuration(network: &Network, host: Host, folder: &Path, programs: &Path) -> Result<String> {
    let (postgres, rest) = (network.address(host, 5432)?, network.address(host, PATRONI_PORT)?);
    let etcd = network.address(ETCD, 2379)?;
    Ok(format!(
        "scope: gable
name: {name}
restapi:
  listen: {rest}
  connect_address: {rest}
etcd3:
  hosts: {etcd}
bootstrap:
  dcs:
    ttl: 6
    loop_wait: 1
    retry_timeout: 2
    maximum_lag_on_failover: 1048576
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 200
        wal_log_hints: on
        tcp_keepalives_idle: 3
        tcp_keepalives_interval: 1
        tcp_keepalives_count: 3
  initdb:
    - encoding: UTF8
    - locale: C.UTF-8
    - data-checksums
postgresql:
  listen: {postgres}
  connect_address: {postgres}
  data_dir: {folder}/{name}
  bin_dir: {programs}
  pgpass: {folder}/{name}.pgpass
  pg_hba:
    - local all all trust
    - host all all 10.87.0.0/24 trust
    - host replication all 10.87.0.0/24 trust
  authentication:
    superuser:
      username: postgres
    replication:
      username: replicator
  parameters:
    unix_socket_directories: ''
",
        name = host.name,
        folder = folder.display(),
        programs = programs.display(),
    ))
}

/// Returns the folder with the server programs, which are not in `PATH` on Debian.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let folders = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin"))).filter(|(_, folder)| folder.join("initdb").is_file())
    });
    folders.max().map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../examples/cluster/patroni.yml");

    /// Returns the options of a new cluster, without comments and times.
    fn bootstrap_options(configuration: &str) -> Vec<&str> {
        let (_, options) = configuration.split_once("\nbootstrap:\n").expect("options of a new cluster");
        let (options, _) = options.split_once("\npostgresql:\n").expect("options of the server");
        let is_time = |line: &str| ["ttl:", "loop_wait:", "retry_timeout:"].iter().any(|name| line.starts_with(name));
        let lines = options.lines();
        lines.filter(|line| !line.trim_start().starts_with('#') && !is_time(line.trim_start())).collect()
    }

    #[test]
    fn the_example_has_the_options_that_are_tested() {
        let (network, folder) = (Network::loopback(), Path::new("folder"));
        let tested = configuration(&network, DATABASES[0], folder, folder).expect("free ports");
        let options = bootstrap_options(EXAMPLE);
        assert_eq!(options, bootstrap_options(&tested));
        assert!(options.contains(&"    synchronous_mode: true"), "{options:?}");
    }

    #[test]
    fn a_standby_counts_when_it_is_synchronous_and_runs() {
        let check = |standby: Value, expected| {
            let cluster = json!({ "members": [{ "role": "leader", "state": "running" }, standby] });
            assert_eq!(has_synchronous_standby(&cluster), expected, "{cluster}");
        };
        check(json!({ "role": "sync_standby", "state": "running" }), true);
        check(json!({ "role": "sync_standby", "state": "streaming" }), true);
        check(json!({ "role": "sync_standby", "state": "stopped" }), false);
        check(json!({ "role": "replica", "state": "running" }), false);
        assert!(!has_synchronous_standby(&Value::Null));
    }
}
