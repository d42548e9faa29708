//! The hosts of the cluster: a network namespace each on one bridge, or ports of this machine.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::{Command, Stdio},
    sync::Mutex,
};

use anyhow::{Context as _, Result, bail};

/// A host; its number is the last part of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    number: u8,
}

/// This process: the receiver of webhooks, and the proxy in front of the store.
pub(crate) const CAMPAIGN: Host = Host { name: "campaign", number: 1 };
pub(crate) const NODES: [Host; 3] =
    [Host { name: "node1", number: 11 }, Host { name: "node2", number: 12 }, Host { name: "node3", number: 13 }];
pub(crate) const BALANCER: Host = Host { name: "balancer", number: 20 };
pub(crate) const DATABASES: [Host; 2] = [Host { name: "db1", number: 31 }, Host { name: "db2", number: 32 }];
pub(crate) const ETCD: Host = Host { name: "etcd", number: 33 };
pub(crate) const STORE: Host = Host { name: "store", number: 40 };

/// How hosts are separated.
pub(crate) enum Network {
    /// Each host has a network namespace; requires root.
    Namespaces,
    /// All hosts are this machine, and services have different ports.
    Loopback(Mutex<BTreeMap<(Host, u16), u16>>),
}

impl Network {
    /// Creates the bridge and the namespaces. The calling process has a network namespace of its own, so they disappear
    /// with it.
    pub(crate) fn create_namespaces() -> Result<Self> {
        // The names of namespaces are files here.
        std::fs::create_dir_all("/run/netns").context("cannot create /run/netns")?;
        run(Command::new("mount").args(["-t", "tmpfs", "none", "/run/netns"]))?;
        let address = |host: Host| format!("{}/24", ip(host));
        let ip = |arguments: &str| run(Command::new("ip").args(arguments.split(' ')));
        ip("link set lo up")?;
        ip("link add bridge0 type bridge")?;
        ip(&format!("addr add {} dev bridge0", address(CAMPAIGN)))?;
        ip("link set bridge0 up")?;
        for host in [&NODES[..], &DATABASES, &[BALANCER, ETCD, STORE]].concat() {
            let name = host.name;
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add to-{name} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set to-{name} master bridge0 up"))?;
            ip(&format!("-n {name} addr add {} dev eth0", address(host)))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(Self::Namespaces)
    }

    pub(crate) fn loopback() -> Self {
        Self::Loopback(Mutex::default())
    }

    pub(crate) fn has_namespaces(&self) -> bool {
        matches!(self, Self::Namespaces)
    }

    /// Returns the address of a service, which is always the same.
    pub(crate) fn address(&self, host: Host, port: u16) -> Result<SocketAddr> {
        let Self::Loopback(ports) = self else { return Ok((ip(host), port).into()) };
        let mut ports = ports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let port = match ports.get(&(host, port)) {
            Some(port) => *port,
            None => *ports.entry((host, port)).or_insert(free_port()?),
        };
        Ok((Ipv4Addr::LOCALHOST, port).into())
    }

    /// Returns a command that runs on a host, and is killed when this process ends.
    pub(crate) fn command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        self.command_with(host, &[], program)
    }

    /// Returns a command that runs on a host as another user.
    pub(crate) fn command_as(&self, user: &str, host: Host, program: impl AsRef<OsStr>) -> Command {
        self.command_with(host, &["--reuid", user, "--regid", user, "--init-groups"], program)
    }

    fn command_with(&self, host: Host, options: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = match self {
            Self::Namespaces => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{}", host.name)).arg("setpriv");
                command
            }
            Self::Loopback(_) => Command::new("setpriv"),
        };
        command.args(["--pdeathsig", "KILL"]).args(options).arg(program).stdin(Stdio::null());
        command
    }

    /// Drops all packets between a host and services of others.
    pub(crate) fn partition(&self, host: Host, services: &[SocketAddr]) -> Result<()> {
        if !self.has_namespaces() {
            bail!("partitions require network namespaces, and these require root");
        }
        let mut nft = Command::new("ip");
        nft.args(["netns", "exec", host.name, "nft", "-f", "-"]).stdin(Stdio::piped());
        let mut nft = nft.spawn().context("cannot run nft")?;
        let mut input = nft.stdin.take().context("nft has no input")?;
        std::io::Write::write_all(&mut input, rules(services).as_bytes()).context("cannot write to nft")?;
        drop(input);
        if !nft.wait().context("cannot run nft")?.success() {
            bail!("nft failed");
        }
        Ok(())
    }
}

/// Ends the partition of a host.
pub(crate) fn heal(host: Host) -> Result<()> {
    run(Command::new("ip").args(["netns", "exec", host.name, "nft", "delete", "table", "inet", "partition"])).map(drop)
}

/// Kills all processes of a host.
pub(crate) fn kill_all(host: Host) -> Result<()> {
    let pids = run(Command::new("ip").args(["netns", "pids", host.name]))?;
    let pids: Vec<&str> = pids.split_whitespace().collect();
    if pids.is_empty() {
        bail!("no process runs on {}", host.name);
    }
    // Some may be gone already.
    let _ = Command::new("kill").arg("-9").args(pids).stderr(Stdio::null()).status();
    Ok(())
}

/// Returns the rules of a firewall that drops packets to and from services. A port of 0 is any port.
fn rules(services: &[SocketAddr]) -> String {
    let mut text = String::from("table inet partition {\n");
    for (chain, address, port) in [("output", "daddr", "dport"), ("input", "saddr", "sport")] {
        text += &format!(" chain {chain} {{\n  type filter hook {chain} priority 0;\n");
        for service in services {
            text += &format!("  ip {address} {}", service.ip());
            if service.port() != 0 {
                text += &format!(" tcp {port} {}", service.port());
            }
            text += " drop\n";
        }
        text += " }\n";
    }
    text + "}\n"
}

fn ip(host: Host) -> Ipv4Addr {
    Ipv4Addr::new(10, 87, 0, host.number)
}

fn free_port() -> Result<u16> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).context("cannot find a free port")
}

/// Runs a program that must succeed; its output is reported if it fails.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{name} failed ({})\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_drops_packets_in_both_directions() {
        let services = [SocketAddr::from(([10, 87, 0, 1], 3900)), SocketAddr::from(([10, 87, 0, 20], 0))];
        let rules = rules(&services);
        for rule in [
            "ip daddr 10.87.0.1 tcp dport 3900 drop",
            "ip saddr 10.87.0.1 tcp sport 3900 drop",
            "ip daddr 10.87.0.20 drop",
            "ip saddr 10.87.0.20 drop",
        ] {
            assert!(rules.contains(rule), "{rules}");
        }
    }

    #[test]
    fn a_service_keeps_its_port() {
        let network = Network::loopback();
        let address = |host, port| network.address(host, port).expect("a free port");
        assert_eq!(address(NODES[0], 8080), address(NODES[0], 8080));
        assert_ne!(address(NODES[0], 8080), address(NODES[1], 8080));
    }
}
