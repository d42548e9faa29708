//! The built-in runner: requests jobs from a server, runs each in a shell in its own folder, and reports the result.
//!
//! It speaks the protocol of GitLab Runner (`/api/v4`) and knows nothing else about the server.

mod archives;
mod caches;
mod cgroups;
mod checkout;
mod client;
mod folder_handle;
mod globs;
mod isolation;
mod job_execution;
mod network;
mod polling;
mod processes;
mod protocol;
mod registrations;
mod reporter;
mod resource_usage;
mod script;
mod supervisor;
mod trace;
mod variables;

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

pub use isolation::Isolation;
pub use network::Network;
pub use polling::{Runner, prepare};
pub use registrations::{Registration, read_token, register, unregister, verify, write_token};
pub use supervisor::supervise;

/// The server that a runner works for. Contains a token and therefore does not implement `Debug`.
pub struct Connection {
    /// The URL of the server.
    pub url: String,
    /// The token of the runner.
    pub token: String,
    /// Where repositories are cloned from, if not from the URL that the server sends.
    pub clone_source: Option<CloneSource>,
}

/// An alternative base URL from which the repositories of a server are cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSource {
    /// The base URL to clone from.
    pub base_url: String,
    /// The base URL of repositories in the job payload, if it differs.
    pub external_url: Option<String>,
}

/// The options of a runner.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the runner in traces.
    pub name: String,
    /// The maximum number of concurrent jobs.
    pub concurrency: usize,
    /// The folder of jobs, caches and the runner's own files.
    pub folder: PathBuf,
    /// How jobs are isolated from the rest of the machine.
    pub isolation: Isolation,
    /// The user that runs jobs, if not the current user.
    pub run_as: Option<String>,
    /// The network access of jobs.
    pub network: Network,
    /// Whether `image` and `services` of jobs are ignored; otherwise such jobs fail.
    pub ignore_image: bool,
    /// The program that calls [`supervise`], with its first arguments.
    pub supervisor: Vec<OsString>,
    /// Files and folders whose content is hidden from jobs in bubblewrap.
    pub hidden_paths: Vec<PathBuf>,
    /// Whether the server requeues jobs that are interrupted by a shutdown of the runner. They are then not reported as
    /// failed.
    pub requeues_interrupted_jobs: bool,
    /// How long running jobs may continue after the runner is asked to stop.
    pub grace_period: Duration,
    /// The resource limits of a job.
    pub limits: Limits,
    /// Intervals, delays and timeouts.
    pub timing: Timing,
}

impl Options {
    /// Returns options with the defaults.
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
            hidden_paths: Vec::new(),
            requeues_interrupted_jobs: false,
            grace_period: Duration::from_secs(30),
            limits: Limits::default(),
            timing: Timing::default(),
        }
    }
}

/// The resource limits of a job.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum memory of its processes in bytes.
    pub memory: Option<u64>,
    /// The maximum number of processes and threads.
    pub processes: Option<u64>,
    /// The maximum size of its folder on disk in bytes.
    pub disk: Option<u64>,
    /// The maximum size of its output in bytes; the rest is discarded.
    pub output: u64,
    /// The maximum size of an archive of artifacts or of a cache in bytes.
    pub archive: u64,
    /// The maximum number of files in an archive.
    pub entries: u64,
    /// The maximum total size of the files of an archive in bytes.
    pub unpacked: u64,
    /// The maximum total size of all caches in bytes.
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

/// Intervals, delays and timeouts.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two requests for a job, if the server does not support long polling.
    pub poll_interval: Duration,
    /// Between two chunks of a trace.
    pub trace_interval: Duration,
    /// Between two keep-alive updates of a job without output.
    pub keep_alive_interval: Duration,
    /// Before the first retry; the delay doubles with each further one.
    pub retry_delay: Duration,
    /// The maximum delay between two retries.
    pub max_retry_delay: Duration,
    /// The maximum number of attempts to upload or download a file.
    pub max_attempts: u32,
    /// How long the result of a job is sent to an unavailable server.
    pub finish_timeout: Duration,
    /// The same after the runner is asked to stop.
    pub finish_timeout_at_shutdown: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(3),
            trace_interval: Duration::from_secs(1),
            keep_alive_interval: Duration::from_secs(10),
            retry_delay: Duration::from_millis(500),
            max_retry_delay: Duration::from_secs(15),
            max_attempts: 20,
            finish_timeout: Duration::from_secs(30 * 60),
            finish_timeout_at_shutdown: Duration::from_secs(20),
        }
    }
}

/// An error of the runner. The message includes what to do, and the text of its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine is not set up correctly.
    #[error("{0}")]
    Setup(String),
    /// A file or folder of the runner cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was attempted, such as `read`.
        action: &'static str,
        /// The path of the file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// A thread of the runner has panicked.
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
    /// The server rejects this runner.
    #[error("{0}")]
    Refused(String),
    /// The server does not respond.
    #[error("{0}")]
    Unreachable(String),
}
