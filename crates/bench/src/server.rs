//! A server process under measurement: its start time, memory and processor time.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::floor;

/// The access token of the administrator.
pub(crate) const TOKEN: &str = "bench-administrator1";
/// The password of the administrator.
pub(crate) const ROOT_PASSWORD: &str = "bench-password-1";

/// A running server, which is killed on drop.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    /// The address for git over SSH, if it is enabled.
    pub(crate) ssh_address: Option<SocketAddr>,
    /// The time from the start of the process until it reported to be ready.
    pub(crate) start_time: Duration,
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts Gable with default settings, logging included.
    pub(crate) fn gable(program: &Path, data: &Path) -> Result<Self> {
        Self::gable_on(program, data, None)
    }

    /// Starts Gable on a PostgreSQL database, if one is given.
    pub(crate) fn gable_on(program: &Path, data: &Path, database: Option<&str>) -> Result<Self> {
        Self::gable_with(Command::new(program), data, database)
    }

    /// Starts Gable with a preloaded library that delays every sync by two milliseconds. The gain of group commits
    /// depends on the cost of a sync, which may be close to zero on this machine.
    pub(crate) fn gable_on_slow_disk(program: &Path, data: &Path) -> Result<Self> {
        let (source, library) = (data.with_extension("c"), data.with_extension("so"));
        fs::write(&source, include_str!("slow_sync.c")).context("cannot write")?;
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let compiled = compile.status().context("cannot run the C compiler")?;
        if !compiled.success() {
            bail!("cannot compile slow_sync.c");
        }
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library);
        Self::gable_with(command, data, None)
    }

    /// Starts Gable with git over SSH.
    pub(crate) fn gable_with_ssh(program: &Path, data: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--ssh-listen", "127.0.0.1:0"]);
        Self::gable_with(command, data, None)
    }

    /// Starts Gable with access to the local network.
    pub(crate) fn gable_with_local_network(program: &Path, data: &Path, database: Option<&str>) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--allow-local-network"]);
        Self::gable_with(command, data, database)
    }

    fn gable_with(mut command: Command, data: &Path, database: Option<&str>) -> Result<Self> {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
            command.env_remove(name);
        }
        let log = data.with_extension("log");
        let log = File::options().create(true).append(true).open(log);
        let log = log.context("cannot write the log")?;
        if command.get_args().len() == 0 {
            command.arg("serve");
        }
        // Rate limits would distort the measurement.
        command.args(unlimited_flags(Path::new(command.get_program())));
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(data).env("GABLE_ROOT_TOKEN", TOKEN);
        command.env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD);
        if let Some(url) = database {
            command.env("GABLE_DATABASE", url);
        }
        Self::start(command.stderr(log), "gable ready on http://")
    }

    /// Starts the floor, which serves the content of a file under a path.
    pub(crate) fn floor(answer: &Path, path: &str) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        Self::start(
            Command::new(program).arg(floor::SUBCOMMAND).arg(answer).arg(path),
            &format!("{}http://", floor::READY),
        )
    }

    fn start(command: &mut Command, ready: &str) -> Result<Self> {
        let start = Instant::now();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.context("cannot start a server")?;
        let mut output = BufReader::new(process.stdout.take().context("server has no standard output")?);
        let ready_line = (&mut output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(ready).map(ToOwned::to_owned));
        let start_time = start.elapsed();
        let addresses = ready_line.context("server exited before it was ready; see its log")?;
        let (address, ssh_address) = match addresses.split_once(" and ssh://git@") {
            Some((address, ssh_address)) => (address, ssh_address.parse().ok()),
            None => (addresses.as_str(), None),
        };
        let address = address.parse().with_context(|| format!("{address} is not an address"))?;
        Ok(Self { process, address, ssh_address, start_time, _output: output })
    }

    /// Returns the resident memory, in megabytes.
    pub(crate) fn memory(&self) -> Result<f64> {
        self.status("VmRSS:")
    }

    /// Returns the peak resident memory, in megabytes.
    pub(crate) fn peak_memory(&self) -> Result<f64> {
        self.status("VmHWM:")
    }

    /// Resets the peak memory counter, if the system supports it.
    pub(crate) fn reset_peak_memory(&self) {
        let _ = fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5");
    }

    /// Returns the processor time used so far.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        ticks(&self.read("stat")?, &[11, 12]).context("cannot read the processor time of a server")
    }

    /// Returns the processor time used so far by the process and its finished children.
    pub(crate) fn process_tree_cpu_time(&self) -> Result<Duration> {
        ticks(&self.read("stat")?, &[11, 12, 13, 14]).context("cannot read the processor time of a server")
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn status(&self, name: &str) -> Result<f64> {
        let text = self.read("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kibibytes.context("cannot read the memory of a server")? * 1024.0 / 1e6)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.process.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

/// Flags that disable rate limits.
const UNLIMITED_FLAGS: [[&str; 2]; 3] =
    [["--sign-ins-per-minute", "0"], ["--requests-per-minute", "0"], ["--anonymous-requests-per-minute", "0"]];

/// Returns the flags that the program supports.
fn unlimited_flags(program: &Path) -> Vec<&'static str> {
    let help = Command::new(program).args(["serve", "--help"]).output();
    let help = help.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    UNLIMITED_FLAGS.iter().filter(|[flag, _]| help.contains(flag)).flatten().copied().collect()
}

/// Returns the resident memory of a process in megabytes, or 0 if it cannot be read.
pub(crate) fn process_memory(id: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let own =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    own.unwrap_or(0.0) * 1024.0 / 1e6
}

/// Returns the sum of fields of `/proc/PID/stat` that count clock ticks.
pub(crate) fn ticks(stat: &str, indices: &[usize]) -> Option<Duration> {
    // Fields are counted after the name, which is in parentheses and may contain spaces. A tick is a hundredth of a
    // second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let sum = indices.iter().map(|index| fields.get(*index)?.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * sum))
}

/// Returns the processor time of the PostgreSQL processes that serve a database. Those that have ended are not counted.
pub(crate) fn database_cpu_time(database: &str) -> Duration {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let times = processes.filter_map(|process| {
        let title = fs::read(process.path().join("cmdline")).ok()?;
        let is_backend = String::from_utf8_lossy(&title).split_whitespace().any(|word| word == database);
        let stat = is_backend.then(|| fs::read_to_string(process.path().join("stat")).ok())??;
        ticks(&stat, &[11, 12])
    });
    times.sum()
}

/// Returns the resident memory of a process and all its descendants, in megabytes.
pub(crate) fn process_tree_memory(id: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let children = threads.flat_map(|thread| {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<u32>>()
    });
    process_memory(id) + children.map(process_tree_memory).sum::<f64>()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
