//! The built-in runner: takes jobs from a server, runs each in a shell in a folder of its own, and tells how it went.
//!
//! It speaks the protocol of the stock runner (`/api/v4`) and knows nothing of the server but that.

mod archives;
mod caches;
mod cgroups;
mod checkout;
mod client;
mod folders;
mod globs;
mod isolation;
mod network;
mod processes;
mod protocol;
mod registrations;
mod reports;
mod rounds;
mod script;
mod supervisor;
mod trace;
mod usage;
mod variables;
mod work;

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

pub use isolation::Isolation;
pub use network::Network;
pub use registrations::{Registration, read_token, register, unregister, verify, write_token};
pub use rounds::{Runner, prepare};
pub use supervisor::supervise;

/// The server that a runner works for. It holds a token, so it does not print.
pub struct Connection {
    /// The address of the server.
    pub url: String,
    /// The runner's own token.
    pub token: String,
    /// Where repositories are fetched from, if not from where the server says.
    pub clone_from: Option<CloneFrom>,
}

/// Another address of a server, from which its repositories are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneFrom {
    /// The address.
    pub root: String,
    /// The address that stands before the paths of repositories where the server names them, if it is not the same.
    pub external_url: Option<String>,
}

/// What a runner is to do, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the runner calls itself in traces.
    pub name: String,
    /// How many jobs are run at once.
    pub concurrency: usize,
    /// Where jobs, caches and the runner's own files lie.
    pub folder: PathBuf,
    /// What keeps jobs from the rest of the machine.
    pub isolation: Isolation,
    /// Who runs jobs, if not whoever runs this.
    pub run_as: Option<String>,
    /// What jobs may reach.
    pub network: Network,
    /// Whether jobs that want an image or services run without them; else they fail.
    pub ignore_image: bool,
    /// The program that calls [`supervise`], with its first arguments.
    pub supervisor: Vec<OsString>,
    /// Files and folders whose content no job in bubblewrap sees.
    pub hidden: Vec<PathBuf>,
    /// Whether somebody gives jobs out again that were interrupted when the runner was stopped; then nobody is told that
    /// they failed.
    pub resumes: bool,
    /// How long jobs under way may take once the runner is told to stop.
    pub grace: Duration,
    /// How much a job may use, say and leave behind.
    pub limits: Limits,
    /// How often things are done, and how long they are tried.
    pub pace: Pace,
}

impl Options {
    /// The usual runner.
    pub fn new(folder: impl Into<PathBuf>, supervisor: Vec<OsString>) -> Self {
        Self {
            name: "this machine".to_owned(),
            concurrency: 1,
            folder: folder.into(),
            isolation: Isolation::Auto,
            run_as: None,
            network: Network::Auto,
            ignore_image: false,
            supervisor,
            hidden: Vec::new(),
            resumes: false,
            grace: Duration::from_secs(30),
            limits: Limits::default(),
            pace: Pace::default(),
        }
    }
}

/// How much a job may use, say and leave behind.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many bytes of memory its processes may use.
    pub memory: Option<u64>,
    /// How many processes and threads it may have at once.
    pub processes: Option<u64>,
    /// How many bytes its folder may take on disk.
    pub disk: Option<u64>,
    /// How many bytes of output are kept.
    pub output: u64,
    /// How large an archive of artifacts or a cache may be.
    pub archive: u64,
    /// How many files an archive may hold.
    pub entries: u64,
    /// How large all files of an archive may be together.
    pub unpacked: u64,
    /// How large all caches may be together.
    pub caches: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: Some(4 << 30),
            processes: Some(2048),
            disk: Some(10 << 30),
            output: 4 << 20,
            archive: 2 << 30,
            entries: 200_000,
            unpacked: 10 << 30,
            caches: 10 << 30,
        }
    }
}

/// How often things are done, and how long they are tried.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two questions for a job, if the server does not hold them.
    pub poll: Duration,
    /// Between two pieces of a trace.
    pub trace: Duration,
    /// Between two signs of life of a job that says nothing.
    pub keep_alive: Duration,
    /// Before the first repetition of what has failed; later ones take longer.
    pub retry: Duration,
    /// Between two repetitions at most.
    pub longest_pause: Duration,
    /// How often a file is sent or fetched until it is given up.
    pub attempts: u32,
    /// How long the end of a job is told to a server that does not listen.
    pub patience: Duration,
    /// The same when the runner stops.
    pub patience_at_stop: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(3),
            trace: Duration::from_secs(1),
            keep_alive: Duration::from_secs(10),
            retry: Duration::from_millis(500),
            longest_pause: Duration::from_secs(15),
            attempts: 20,
            patience: Duration::from_secs(30 * 60),
            patience_at_stop: Duration::from_secs(20),
        }
    }
}

/// Why a runner cannot do what it should: a sentence that tells what to do.
#[derive(Debug)]
pub enum Error {
    /// Something on this machine is not as it should be.
    Setup(String),
    /// The server does not want this runner.
    Refused(String),
    /// The server does not answer.
    Unreachable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(sentence) | Self::Refused(sentence) | Self::Unreachable(sentence) => to.write_str(sentence),
        }
    }
}

impl std::error::Error for Error {}
