//! Network access of jobs. A job limited to public addresses gets its own network namespace, which `slirp4netns`
//! connects to the internet and in which routing rules block everything else.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    net::Ipv4Addr,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use tokio::{process::Child, task::JoinError, time::timeout};

use crate::isolation::PATH;

/// The network access of jobs, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// In bubblewrap, public addresses if `slirp4netns` is installed and works, otherwise none. Without isolation,
    /// everything that the machine can reach. As another user, the runner does not start.
    #[default]
    Auto,
    /// Public addresses only; without `slirp4netns` the runner does not start.
    Public,
    /// No network.
    None,
    /// Everything that the machine can reach, including its own services.
    Host,
}

/// The network access of a program, as determined at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkAccess {
    Public,
    None,
    Host,
}

/// The address of the job's name server; only port 53 of it is reachable.
const RESOLVER_ADDRESS: &str = "10.0.2.3";
/// Networks that are not public: <https://www.iana.org/assignments/iana-ipv4-special-registry>, multicast and reserved
/// addresses. The loopback network belongs to the namespace.
const NON_PUBLIC_NETWORKS: &[&str] = &[
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
/// The timeout of setting up a network.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// The process that keeps the namespace alive: waits for the interface, adds the routing rules, and runs until its
/// standard input is closed.
const HOLDER_SCRIPT: &str =
    "echo namespace && read -r go && ip -batch - <<'RULES' && echo rules && exec cat >/dev/null\n";

/// Why a network namespace cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("the setup timed out")]
    TimedOut,
    #[error("{0} is not installed")]
    NotInstalled(&'static str),
    #[error("cannot start {program}: {source}")]
    Start { program: &'static str, source: io::Error },
    #[error("cannot create a pipe: {0}")]
    Pipe(#[from] io::Error),
    #[error("cannot open {path}: {source}")]
    OpenNamespace { path: String, source: io::Error },
    #[error("the network namespace is gone")]
    NamespaceGone,
    #[error("the network namespace ended early: {0}")]
    NamespaceEnded(ExitStatus),
    #[error("{step}: {output}")]
    Program { step: &'static str, output: String },
    #[error(transparent)]
    Panicked(#[from] JoinError),
}

/// The network namespace of one job; removed when dropped.
#[derive(Debug)]
pub(crate) struct JobNetwork {
    /// The command prefix that enters the namespace.
    nsenter_arguments: Vec<String>,
    _namespaces: [Namespace; 2],
    _holder: Child,
    _holder_stdin: PipeWriter,
    _slirp: Child,
    _slirp_exit: PipeWriter,
}

impl JobNetwork {
    /// Creates a namespace with access to public addresses.
    pub(crate) async fn public() -> Result<Self, NetworkError> {
        timeout(SETUP_TIMEOUT, Self::set_up()).await.unwrap_or(Err(NetworkError::TimedOut))
    }

    async fn set_up() -> Result<Self, NetworkError> {
        let root = rustix::process::geteuid().is_root();
        let script = format!("{HOLDER_SCRIPT}{}RULES\n", routing_rules(&own_addresses()));
        let mut holder = with_clean_environment(Command::new("unshare"));
        if !root {
            holder.args(["--user", "--map-root-user"]);
        }
        holder.args(["--net", "--", "sh", "-c", &script]);
        let (output, output_writer) = io::pipe()?;
        let (input, mut holder_stdin) = io::pipe()?;
        let errors = output_writer.try_clone()?;
        holder.stdin(input).stdout(output_writer).stderr(errors);
        let mut holder = spawn(holder, "unshare")?;
        let output = wait_for_output(output, "namespace", "cannot create a network namespace").await?;
        let pid = holder.id().ok_or(NetworkError::NamespaceGone)?.to_string();

        let namespaces = [Namespace::open(&pid, "net")?, Namespace::open(&pid, "user")?];
        let mut slirp = with_clean_environment(Command::new("slirp4netns"));
        // There are no file descriptors to pass but the standard streams: one is written when the interface is ready,
        // another one stops slirp4netns when closed.
        slirp.args(["--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"]);
        slirp.args(["--ready-fd=0", "--exit-fd=1", &pid, "tap0"]);
        let (is_ready, ready) = io::pipe()?;
        let (exit, slirp_exit) = io::pipe()?;
        let (slirp_errors, slirp_stderr) = io::pipe()?;
        slirp.stdin(ready).stdout(exit).stderr(slirp_stderr);
        let slirp = spawn(slirp, "slirp4netns")?;
        let step = "slirp4netns does not work";
        if wait_for_output(is_ready, "1", step).await.is_err() {
            let output = read_all(slirp_errors).await.trim().replace('\n', "; ");
            return Err(NetworkError::Program { step, output });
        }
        drop(slirp_errors);
        holder_stdin.write_all(b"go\n")?;
        wait_for_output(output, "rules", "cannot add routing rules").await?;
        if let Ok(Some(status)) = holder.try_wait() {
            return Err(NetworkError::NamespaceEnded(status));
        }
        let mut nsenter_arguments = vec!["nsenter".to_owned(), namespaces[0].nsenter_argument("net")];
        if !root {
            nsenter_arguments.extend([namespaces[1].nsenter_argument("user"), "--preserve-credentials".to_owned()]);
        }
        nsenter_arguments.push("--".to_owned());
        Ok(Self {
            nsenter_arguments,
            _namespaces: namespaces,
            _holder: holder,
            _holder_stdin: holder_stdin,
            _slirp: slirp,
            _slirp_exit: slirp_exit,
        })
    }

    /// Returns the command prefix that runs a program in the namespace.
    pub(crate) fn nsenter_arguments(&self) -> &[String] {
        &self.nsenter_arguments
    }
}

/// A namespace of another process, held open because process ids are reused.
#[derive(Debug)]
struct Namespace(File);

impl Namespace {
    fn open(pid: &str, kind: &str) -> Result<Self, NetworkError> {
        let path = format!("/proc/{pid}/ns/{kind}");
        File::open(&path).map(Self).map_err(|source| NetworkError::OpenNamespace { path, source })
    }

    /// Returns the argument of `nsenter` for this namespace.
    fn nsenter_argument(&self, kind: &str) -> String {
        format!("--{kind}=/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Returns the content of the job's `resolv.conf`, and the path of the machine's own.
pub(crate) fn resolv_conf() -> (String, Option<PathBuf>) {
    // Often a link to a file maintained by a daemon.
    let path = Path::new("/etc/resolv.conf").canonicalize().ok();
    (format!("nameserver {RESOLVER_ADDRESS}\n"), path)
}

/// Returns the routing rules of the namespace in the format of `ip -batch`.
fn routing_rules(own: &[Ipv4Addr]) -> String {
    let mut routing_rules = String::from("link set lo up\n");
    for protocol in ["udp", "tcp"] {
        let _ =
            writeln!(routing_rules, "rule add pref 100 to {RESOLVER_ADDRESS} ipproto {protocol} dport 53 lookup main");
    }
    for network in NON_PUBLIC_NETWORKS {
        let _ = writeln!(routing_rules, "rule add pref 200 to {network} unreachable");
    }
    // Services for the local network often listen on all addresses of the machine.
    for address in own.iter().filter(|address| !address.is_loopback()) {
        let _ = writeln!(routing_rules, "rule add pref 300 to {address} unreachable");
    }
    routing_rules
}

/// Returns the addresses of this machine.
fn own_addresses() -> Vec<Ipv4Addr> {
    local_addresses(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default())
}

/// Parses `/proc/net/fib_trie`: an address precedes the line that marks it as local.
fn local_addresses(fib_trie: &str) -> Vec<Ipv4Addr> {
    let (mut addresses, mut last): (_, Option<Ipv4Addr>) = (Vec::new(), None);
    for line in fib_trie.lines().map(str::trim) {
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

fn with_clean_environment(mut command: Command) -> Command {
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C");
    command
}

fn spawn(command: Command, program: &'static str) -> Result<Child, NetworkError> {
    tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => NetworkError::NotInstalled(program),
        _ => NetworkError::Start { program, source },
    })
}

/// Waits until a program writes this text; the error contains its other output.
async fn wait_for_output(
    mut from: PipeReader,
    expected: &'static str,
    step: &'static str,
) -> Result<PipeReader, NetworkError> {
    let read = move || {
        let (mut output, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&output).contains(expected) {
            if from.read(&mut byte).unwrap_or(0) == 0 || output.len() > 4000 {
                return Err(String::from_utf8_lossy(&output).trim().replace('\n', "; "));
            }
            output.push(byte[0]);
        }
        Ok(from)
    };
    tokio::task::spawn_blocking(read).await?.map_err(|output| NetworkError::Program { step, output })
}

async fn read_all(mut from: PipeReader) -> String {
    let read = move || {
        let mut output = Vec::new();
        let _ = from.by_ref().take(4000).read_to_end(&mut output);
        String::from_utf8_lossy(&output).into_owned()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_parsed_and_blocked() {
        let fib_trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 203.0.113.9\n        \
                     /32 host LOCAL\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 203.0.113.9\n        \
                     /32 host LOCAL\n     |-- 203.0.113.255\n        /32 link BROADCAST\n";
        let found = local_addresses(fib_trie);
        assert_eq!(found, [Ipv4Addr::LOCALHOST, Ipv4Addr::new(203, 0, 113, 9)]);
        let rules = routing_rules(&found);
        assert!(rules.contains("to 203.0.113.9 unreachable\n") && !rules.contains("127.0.0.1"), "{rules}");
        assert!(rules.contains("to 10.0.0.0/8 unreachable\n"), "{rules}");
    }
}
