//! What network a job has. A job that may reach public addresses only gets a network namespace of its own, which
//! `slirp4netns` connects to the world and in which rules of routing refuse everything else.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    net::Ipv4Addr,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::{process::Child, time::timeout};

use crate::isolation::PATH;

/// What jobs may reach, as the operator wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Public addresses if `slirp4netns` is installed and works, else nothing.
    #[default]
    Auto,
    /// Public addresses only; without `slirp4netns` the runner does not start.
    Public,
    /// Nothing.
    None,
    /// Everything that the machine can reach, its own services included.
    Host,
}

/// What a program of a job may reach, as it turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Public,
    None,
    Host,
}

/// The address at which a job asks for names; only port 53 of it can be reached.
const RESOLVER: &str = "10.0.2.3";
/// Networks that are not public: <https://www.iana.org/assignments/iana-ipv4-special-registry>, multicast and reserved
/// addresses. The loopback network is the job's own.
const NOT_PUBLIC: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
/// How long it may take until a network is there.
const SET_UP: Duration = Duration::from_secs(30);
/// What keeps the namespace: it waits until there is an interface, forbids what is not public, and stays until the
/// other end of its standard input is closed.
const KEEPER: &str = "echo namespace && read -r go && ip -batch - <<'RULES' && echo rules && exec cat >/dev/null\n";

/// The network namespace of one job; dropped, it goes away with what is in it.
#[derive(Debug)]
pub(crate) struct JobNetwork {
    /// How programs enter it.
    entrance: Vec<String>,
    _namespaces: [Namespace; 2],
    _keeper: Child,
    _keep: PipeWriter,
    _slirp: Child,
    _stay: PipeWriter,
}

impl JobNetwork {
    /// Makes a namespace from which public addresses can be reached.
    pub(crate) async fn public() -> Result<Self, String> {
        timeout(SET_UP, Self::set_up()).await.unwrap_or_else(|_| Err("it takes too long to set up".to_owned()))
    }

    async fn set_up() -> Result<Self, String> {
        let root = rustix::process::geteuid().is_root();
        let script = format!("{KEEPER}{}RULES\n", rules(&own_addresses()));
        let mut keeper = with_plain_environment(Command::new("unshare"));
        if !root {
            keeper.args(["--user", "--map-root-user"]);
        }
        keeper.args(["--net", "--", "sh", "-c", &script]);
        let (said, says) = pipe()?;
        let (input, mut keep) = pipe()?;
        let errors = says.try_clone().map_err(cannot_pipe)?;
        keeper.stdin(input).stdout(says).stderr(errors);
        let mut keeper = spawn(keeper, "unshare")?;
        let said = expect(said, "namespace", "cannot make a network namespace").await?;
        let pid = keeper.id().ok_or("the network namespace is gone")?.to_string();

        let namespaces = [Namespace::open(&pid, "net")?, Namespace::open(&pid, "user")?];
        let mut slirp = with_plain_environment(Command::new("slirp4netns"));
        // There are no descriptors but these three to hand over: one is written to when the interface is there, and
        // slirp4netns ends with the other.
        slirp.args(["--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"]);
        slirp.args(["--ready-fd=0", "--exit-fd=1", &pid, "tap0"]);
        let (is_ready, ready) = pipe()?;
        let (exit, stay) = pipe()?;
        let (reason, errors_of_slirp) = pipe()?;
        slirp.stdin(ready).stdout(exit).stderr(errors_of_slirp);
        let slirp = spawn(slirp, "slirp4netns")?;
        if expect(is_ready, "1", "slirp4netns does not work").await.is_err() {
            let said = read_all(reason).await;
            return Err(format!("slirp4netns does not work: {}", said.trim().replace('\n', "; ")));
        }
        drop(reason);
        keep.write_all(b"go\n").map_err(cannot_pipe)?;
        expect(said, "rules", "cannot forbid addresses that are not public").await?;
        if let Ok(Some(status)) = keeper.try_wait() {
            return Err(format!("the network namespace does not stay: {status}"));
        }
        let mut entrance = vec!["nsenter".to_owned(), namespaces[0].entrance("net")];
        if !root {
            entrance.extend([namespaces[1].entrance("user"), "--preserve-credentials".to_owned()]);
        }
        entrance.push("--".to_owned());
        Ok(Self { entrance, _namespaces: namespaces, _keeper: keeper, _keep: keep, _slirp: slirp, _stay: stay })
    }

    /// The words before a program that is to run in the namespace.
    pub(crate) fn entrance(&self) -> &[String] {
        &self.entrance
    }
}

/// A namespace of another process, held open: the number of a process that has ended may become that of another one.
#[derive(Debug)]
struct Namespace(File);

impl Namespace {
    fn open(pid: &str, kind: &str) -> Result<Self, String> {
        let path = format!("/proc/{pid}/ns/{kind}");
        File::open(&path).map(Self).map_err(|error| format!("cannot open {path}: {error}"))
    }

    /// The argument with which `nsenter` enters it.
    fn entrance(&self, kind: &str) -> String {
        format!("--{kind}=/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// What a job finds in the place of the machine's `resolv.conf`, and where.
pub(crate) fn resolver() -> (String, Option<PathBuf>) {
    // It often is a link to a file that a daemon keeps.
    let place = Path::new("/etc/resolv.conf").canonicalize().ok();
    (format!("nameserver {RESOLVER}\n"), place)
}

/// The rules of routing in the namespace, as `ip -batch` reads them.
fn rules(own: &[Ipv4Addr]) -> String {
    let mut rules = String::from("link set lo up\n");
    for protocol in ["udp", "tcp"] {
        let _ = writeln!(rules, "rule add pref 100 to {RESOLVER} ipproto {protocol} dport 53 lookup main");
    }
    for network in NOT_PUBLIC {
        let _ = writeln!(rules, "rule add pref 200 to {network} unreachable");
    }
    // What this machine serves to its own network often listens on all of its addresses.
    for address in own.iter().filter(|address| !address.is_loopback()) {
        let _ = writeln!(rules, "rule add pref 300 to {address} unreachable");
    }
    rules
}

/// The addresses of this machine.
fn own_addresses() -> Vec<Ipv4Addr> {
    local_addresses(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default())
}

/// Reads the kernel's tables: an address stands above the line that says that it is local.
fn local_addresses(tries: &str) -> Vec<Ipv4Addr> {
    let (mut addresses, mut last): (_, Option<Ipv4Addr>) = (Vec::new(), None);
    for line in tries.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            addresses.extend(last);
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn with_plain_environment(mut command: Command) -> Command {
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C");
    command
}

fn spawn(command: Command, name: &str) -> Result<Child, String> {
    tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("cannot start {name}: {error}"),
    })
}

fn pipe() -> Result<(PipeReader, PipeWriter), String> {
    io::pipe().map_err(cannot_pipe)
}

fn cannot_pipe(error: io::Error) -> String {
    format!("cannot make a pipe: {error}")
}

/// Waits until a program says this; else the error holds what it said.
async fn expect(mut from: PipeReader, word: &'static str, failed: &str) -> Result<PipeReader, String> {
    let read = move || {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&said).contains(word) {
            if from.read(&mut byte).unwrap_or(0) == 0 || said.len() > 4000 {
                return Err(String::from_utf8_lossy(&said).trim().replace('\n', "; "));
            }
            said.push(byte[0]);
        }
        Ok(from)
    };
    let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
    read.map_err(|said| format!("{failed}: {said}"))
}

async fn read_all(mut from: PipeReader) -> String {
    let read = move || {
        let mut said = Vec::new();
        let _ = from.by_ref().take(4000).read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_read_from_the_tables_of_the_kernel() {
        let tries = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 203.0.113.9\n        \
                     /32 host LOCAL\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 203.0.113.9\n        \
                     /32 host LOCAL\n     |-- 203.0.113.255\n        /32 link BROADCAST\n";
        let found = local_addresses(tries);
        assert_eq!(found, [Ipv4Addr::LOCALHOST, Ipv4Addr::new(203, 0, 113, 9)]);
        let rules = rules(&found);
        assert!(rules.contains("to 203.0.113.9 unreachable\n") && !rules.contains("127.0.0.1"), "{rules}");
        assert!(rules.contains("to 10.0.0.0/8 unreachable\n"), "{rules}");
    }
}
