//! A server under measurement: how soon it is ready, what it eats.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Outcome, floor};

/// The administrator's token.
pub(crate) const TOKEN: &str = "bench-administrator1";

/// A running server; it ends when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    /// From the start of the process until it said that it is ready.
    pub(crate) start_time: Duration,
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts our own server with default settings; it logs as it would anywhere.
    pub(crate) fn gable(program: &Path, data: &Path) -> Outcome<Self> {
        Self::gable_on(program, data, None)
    }

    /// The same on a database of PostgreSQL, if there is one.
    pub(crate) fn gable_on(program: &Path, data: &Path, database: Option<&str>) -> Outcome<Self> {
        Self::gable_with(Command::new(program), data, database)
    }

    /// The same on a disk whose syncs take two milliseconds longer: what a library that is loaded before others makes of
    /// it. How much writes gain by sharing a sync depends on what a sync costs, and here it may cost next to nothing.
    pub(crate) fn gable_on_slow_disk(program: &Path, data: &Path) -> Outcome<Self> {
        let (source, library) = (data.with_extension("c"), data.with_extension("so"));
        fs::write(&source, include_str!("slow_sync.c")).map_err(|error| format!("cannot write: {error}"))?;
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let compiled = compile.status().map_err(|error| format!("cannot run the C compiler: {error}"))?;
        if !compiled.success() {
            return Err("cannot compile the library that slows syncs down".into());
        }
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library);
        Self::gable_with(command, data, None)
    }

    /// The same, and it may talk to this machine.
    pub(crate) fn gable_with_neighbours(program: &Path, data: &Path, database: Option<&str>) -> Outcome<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--allow-local-network"]);
        Self::gable_with(command, data, database)
    }

    fn gable_with(mut command: Command, data: &Path, database: Option<&str>) -> Outcome<Self> {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
            command.env_remove(name);
        }
        let log = data.with_extension("log");
        let log = File::options().create(true).append(true).open(log);
        let log = log.map_err(|error| format!("cannot write the log: {error}"))?;
        if command.get_args().len() == 0 {
            command.arg("serve");
        }
        // What is measured is how fast it can be, not how fast it lets one caller be.
        command.args(unlimited(Path::new(command.get_program())));
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(data).env("GABLE_ROOT_TOKEN", TOKEN);
        if let Some(url) = database {
            command.env("GABLE_DATABASE", url);
        }
        Self::start(command.stderr(log), "gable ready on http://")
    }

    /// Starts the floor, which answers with the content of a file when it is asked for a path.
    pub(crate) fn floor(answer: &Path, path: &str) -> Outcome<Self> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
        Self::start(Command::new(program).arg(floor::WORD).arg(answer).arg(path), &format!("{}http://", floor::READY))
    }

    fn start(command: &mut Command, ready: &str) -> Outcome<Self> {
        let start = Instant::now();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.map_err(|error| format!("cannot start a server: {error}"))?;
        let mut output = BufReader::new(process.stdout.take().ok_or("a server has no standard output")?);
        let address = (&mut output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(ready).and_then(|address| address.parse().ok()));
        let start_time = start.elapsed();
        let address = address.ok_or("a server ended before it was ready")?;
        Ok(Self { process, address, start_time, _output: output })
    }

    /// The memory it holds now, in megabytes.
    pub(crate) fn memory(&self) -> Outcome<f64> {
        self.status("VmRSS:")
    }

    /// The most memory it ever held, in megabytes.
    pub(crate) fn peak_memory(&self) -> Outcome<f64> {
        self.status("VmHWM:")
    }

    /// Lets the system count the most memory anew, where it can.
    pub(crate) fn forget_peak(&self) {
        let _ = fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5");
    }

    /// The processor time it has used so far.
    pub(crate) fn cpu_time(&self) -> Outcome<Duration> {
        ticks(&self.read("stat")?, &[11, 12]).ok_or_else(|| "cannot read the processor time of a server".into())
    }

    /// The processor time that it and all its children that have ended have used so far.
    pub(crate) fn family_time(&self) -> Outcome<Duration> {
        ticks(&self.read("stat")?, &[11, 12, 13, 14]).ok_or_else(|| "cannot read the processor time of a server".into())
    }

    /// Its number among processes.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn status(&self, name: &str) -> Outcome<f64> {
        let text = self.read("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kibibytes.ok_or("cannot read the memory of a server")? * 1024.0 / 1e6)
    }

    fn read(&self, file: &str) -> Outcome<String> {
        let path = format!("/proc/{}/{file}", self.process.id());
        fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))
    }
}

/// Flags that lift limits, which measure whoever asks and not the service.
const UNLIMITED: [[&str; 2]; 3] =
    [["--sign-ins-per-minute", "0"], ["--requests-per-minute", "0"], ["--anonymous-requests-per-minute", "0"]];

/// Those of the flags that the program knows.
fn unlimited(program: &Path) -> Vec<&'static str> {
    let help = Command::new(program).args(["serve", "--help"]).output();
    let help = help.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    UNLIMITED.iter().filter(|[flag, _]| help.contains(flag)).flatten().copied().collect()
}

/// The memory of one process in megabytes, as far as it can be seen.
pub(crate) fn memory_of(id: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let own =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    own.unwrap_or(0.0) * 1024.0 / 1e6
}

/// The sum of some fields of a process's state that count ticks, as a time.
pub(crate) fn ticks(stat: &str, places: &[usize]) -> Option<Duration> {
    // The name in parentheses may hold anything; what follows it is numbers. Ticks are a hundredth of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let sum = places.iter().map(|place| fields.get(*place)?.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * sum))
}

/// The memory of a process and of all below it, in megabytes, as far as it can be seen.
pub(crate) fn family_memory(id: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let children = threads.flat_map(|thread| {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<u32>>()
    });
    memory_of(id) + children.map(family_memory).sum::<f64>()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
