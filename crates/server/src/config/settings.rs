//! The settings of the server. Each is declared here once: flag, variable, default and help text; the name of the flag is
//! also the key in the configuration file.

use std::{num::NonZeroU32, path::PathBuf};

use clap::{ArgAction, Args, ValueEnum};

use crate::{
    byte_size::ByteSize,
    time_span::{Hours, Seconds},
};

/// All settings, as `gable serve` has them.
#[derive(Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    pub(super) location: DataLocation,
    #[command(flatten)]
    pub(super) listen: ListenAddress,
    /// Listen address for SSH; if not set, SSH is disabled
    #[arg(long, env = "GABLE_SSH_LISTEN", value_name = "HOST:PORT")]
    pub(super) ssh_listen: Option<String>,
    /// API compatibility mode: `spec` or `gitlab`
    #[arg(long, env = "GABLE_DIALECT", value_name = "DIALECT", default_value = "spec")]
    pub(super) dialect: String,
    /// Public URL of this server, for links in responses and webhooks; if not set, it is taken from each request
    #[arg(long, env = "GABLE_EXTERNAL_URL", value_name = "URL")]
    pub(super) external_url: Option<String>,
    /// Public URL of SSH (ssh://host or ssh://host:port), for clone URLs in responses and webhooks; if not set, they have the host of
    /// `external-url` and the port of `ssh-listen`
    #[arg(long, env = "GABLE_EXTERNAL_SSH_URL", value_name = "URL")]
    pub(super) external_ssh_url: Option<String>,
    /// Allow imports and project webhooks to reach loopback and private addresses
    #[arg(long, env = "GABLE_ALLOW_LOCAL_NETWORK", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", default_value = "false")]
    pub(super) allow_local_network: bool,
    /// Timestamp format in webhook payloads: `original` or `iso8601`
    #[arg(long, env = "GABLE_HOOK_TIME_FORMAT", value_name = "FORMAT", default_value = "original")]
    pub(super) hook_time_format: HookTimeFormat,
    /// Maximum size of a request body, except uploads
    #[arg(long, env = "GABLE_MAX_BODY_SIZE", value_name = "SIZE", default_value = "1M")]
    pub(super) max_body_size: ByteSize,
    /// Maximum size of an uploaded file
    #[arg(long, env = "GABLE_MAX_UPLOAD_SIZE", value_name = "SIZE", default_value = "10M")]
    pub(super) max_upload_size: ByteSize,
    /// Maximum size of the artifacts archive of a job
    #[arg(long, env = "GABLE_MAX_ARTIFACT_SIZE", value_name = "SIZE", default_value = "100M")]
    pub(super) max_artifact_size: ByteSize,
    /// Maximum size of the pack of a push or an import; 0 disables the limit
    #[arg(long, env = "GABLE_MAX_PUSH_SIZE", value_name = "SIZE", default_value = "10G")]
    pub(super) max_push_size: ByteSize,
    /// Maximum size of the cache of clones and archives
    #[arg(long, env = "GABLE_CACHE_SIZE", value_name = "SIZE", default_value = "2G")]
    pub(super) cache_size: ByteSize,
    /// Maximum size of the local copies of packs if `store` is set; 0 disables the limit
    #[arg(long, env = "GABLE_PACK_CACHE_SIZE", value_name = "SIZE", default_value = "20G")]
    pub(super) pack_cache_size: ByteSize,
    /// Number of connections to PostgreSQL that this server keeps open at most; a few more are opened for moments. 0 means six
    /// per core, at most 60
    #[arg(long, env = "GABLE_DATABASE_CONNECTIONS", value_name = "COUNT", default_value = "0")]
    pub(super) database_connections: u16,
    /// PostgreSQL URL (postgres://…) of standbys of the database, from which lists are read if they have everything that was
    /// committed before; if it contains a password, use the variable or the file instead of the flag
    #[arg(long, env = "GABLE_READ_REPLICA", value_name = "URL", hide_env_values = true)]
    pub(super) read_replica: Option<String>,
    #[command(flatten)]
    pub(super) disk: MinFreeDisk,
    /// Maximum number of sign-in attempts per minute and client address; 0 disables the limit
    #[arg(long, env = "GABLE_SIGN_INS_PER_MINUTE", value_name = "COUNT", default_value = "10")]
    pub(super) sign_ins_per_minute: u32,
    /// Maximum number of requests per minute and token; 0 disables the limit
    #[arg(long, env = "GABLE_REQUESTS_PER_MINUTE", value_name = "COUNT", default_value = "6000")]
    pub(super) requests_per_minute: u32,
    /// Maximum number of requests without a token per minute and client address; 0 disables the limit
    #[arg(long, env = "GABLE_ANONYMOUS_REQUESTS_PER_MINUTE", value_name = "COUNT", default_value = "1200")]
    pub(super) anonymous_requests_per_minute: u32,
    /// Maximum number of concurrent connections per client address; 0 disables the limit
    #[arg(long, env = "GABLE_CONNECTIONS_PER_ADDRESS", value_name = "COUNT", default_value = "512")]
    pub(super) connections_per_address: usize,
    /// Timeout for clients that send or receive nothing, in seconds unless a unit is given
    #[arg(long, env = "GABLE_CLIENT_TIMEOUT_SECONDS", value_name = "DURATION", default_value = "60s",
        value_parser = Seconds::parse_positive)]
    pub(super) client_timeout_seconds: Seconds,
    /// Time between the signal to stop and the end of the listeners, in which `/-/ready` reports that the server drains, so
    /// that a load balancer sends no more requests; in seconds unless a unit is given
    #[arg(long, env = "GABLE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "0s")]
    pub(super) drain_timeout: Seconds,
    /// Proxies whose X-Forwarded-* headers, and PROXY headers over SSH, are trusted: addresses or networks, separated by
    /// commas
    #[arg(long, env = "GABLE_TRUSTED_PROXIES", value_name = "NETWORK", value_delimiter = ',')]
    pub(super) trusted_proxies: Vec<String>,
    #[command(flatten)]
    pub(super) tls: TlsFiles,
    /// Listen address for plain HTTP that redirects to HTTPS; requires `tls-certificate`
    #[arg(long, env = "GABLE_REDIRECT_LISTEN", value_name = "HOST:PORT")]
    pub(super) redirect_listen: Option<String>,
    /// Value of max-age in the Strict-Transport-Security header, in seconds unless a unit is given; 0 disables the header
    #[arg(long, env = "GABLE_HSTS_SECONDS", value_name = "DURATION", default_value = "0")]
    pub(super) hsts_seconds: Seconds,
    /// Maximum number of personal projects of a new user
    #[arg(long, env = "GABLE_DEFAULT_PROJECTS_LIMIT", value_name = "COUNT", default_value = "100000",
        value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) default_projects_limit: i32,
    /// Maximum number of concurrent CI jobs of the built-in runner; 0 disables the runner. If it is enabled, every user
    /// who can push can run programs on this machine
    #[arg(long, env = "GABLE_RUNNER", value_name = "COUNT", default_value = "0")]
    pub(super) runner: u16,
    /// Folder for jobs of the built-in runner and their caches [default: runner in the data folder]
    #[arg(long, env = "GABLE_RUNNER_FOLDER", value_name = "DIR")]
    pub(super) runner_folder: Option<PathBuf>,
    #[command(flatten)]
    pub(super) jobs: JobSettings,
    /// Time for a runner to send the first update of a job before the job is offered to other runners, in seconds unless a
    /// unit is given
    #[arg(long, env = "GABLE_UNHEARD_JOB_SECONDS", value_name = "DURATION", default_value = "2m",
        value_parser = Seconds::parse_positive)]
    pub(super) unheard_job_seconds: Seconds,
    /// Folder for scheduled backups; if not set, none are made
    #[arg(long, env = "GABLE_BACKUP_FOLDER", value_name = "DIR")]
    pub(super) backup_folder: Option<PathBuf>,
    /// Interval between scheduled backups, in hours unless a unit is given
    #[arg(long, env = "GABLE_BACKUP_EVERY_HOURS", value_name = "DURATION", default_value = "24h",
        value_parser = Hours::parse_positive)]
    pub(super) backup_every_hours: Hours,
    /// Number of scheduled backups to keep
    #[arg(long, env = "GABLE_BACKUP_KEEP", value_name = "COUNT", default_value = "7")]
    pub(super) backup_keep: NonZeroU32,
    /// Log format: `human` or `json`
    #[arg(long, env = "GABLE_LOG_FORMAT", value_name = "FORMAT", default_value = "human")]
    pub(super) log_format: LogFormat,
    #[command(flatten)]
    pub(super) log: LogFilter,
}

/// The configuration file.
#[derive(Args)]
pub(crate) struct ConfigFile {
    /// TOML configuration file; its keys are the names of the flags of `serve`
    #[arg(long, env = "GABLE_CONFIG", value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
}

/// The location of an instance.
#[derive(Args)]
pub(crate) struct DataLocation {
    #[command(flatten)]
    pub(super) file: ConfigFile,
    /// Data folder
    #[arg(long, env = "GABLE_DATA", value_name = "DIR", default_value = "./gable-data", global = true)]
    pub(super) data: PathBuf,
    /// PostgreSQL URL (postgres://…) to use instead of the embedded SQLite database; if it contains a password, use the
    /// variable or the file instead of the flag
    #[arg(long, env = "GABLE_DATABASE", value_name = "URL", hide_env_values = true, global = true)]
    pub(super) database: Option<String>,
    /// S3 bucket (s3://bucket/prefix) for the files of an instance with several nodes; requires `database`, `cache` and
    /// `instance-key-file`. Endpoint, region and credentials are read from the usual AWS_… variables
    #[arg(long, env = "GABLE_STORE", value_name = "URL", global = true)]
    pub(super) store: Option<String>,
    /// File with AWS_… variables, one NAME=value per line; those of the environment have precedence
    #[arg(long, env = "GABLE_STORE_VARIABLES", value_name = "FILE", global = true)]
    pub(super) store_variables: Option<PathBuf>,
    /// Folder for the cache of this node, used instead of the data folder if `store` is set; it may be deleted at any time
    #[arg(long, env = "GABLE_CACHE", value_name = "DIR", global = true)]
    pub(super) cache: Option<PathBuf>,
    /// File with the instance key, the same for all nodes; only with `store`
    #[arg(long, env = "GABLE_INSTANCE_KEY_FILE", value_name = "FILE", global = true)]
    pub(super) instance_key_file: Option<PathBuf>,
}

/// The settings that `gable doctor` checks an instance with.
#[derive(Args)]
pub(crate) struct DoctorSettings {
    #[command(flatten)]
    location: DataLocation,
    #[command(flatten)]
    disk: MinFreeDisk,
}

/// The settings that determine the URL of the server on this machine.
#[derive(Args)]
#[command(mut_arg("tls_certificate", |argument| argument.hide(true)), mut_arg("tls_key", |argument| argument.hide(true)))]
pub(crate) struct ServerAddress {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    listen: ListenAddress,
    #[command(flatten)]
    tls: TlsFiles,
}

/// The main listener.
#[derive(Args)]
pub(crate) struct ListenAddress {
    /// Listen address for HTTP
    #[arg(long, env = "GABLE_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(super) listen: String,
}

/// The certificate of the server.
#[derive(Args)]
pub(crate) struct TlsFiles {
    /// TLS certificate chain in PEM format; requires `tls-key`
    #[arg(long, env = "GABLE_TLS_CERTIFICATE", value_name = "FILE")]
    pub(super) tls_certificate: Option<PathBuf>,
    /// Private key of the TLS certificate in PEM format
    #[arg(long, env = "GABLE_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,
}

/// The limit for a disk that is almost full.
#[derive(Args)]
pub(crate) struct MinFreeDisk {
    /// Minimum free disk space; below it pushes and uploads are refused, so that the database can still be written; 0
    /// disables the check
    #[arg(long, env = "GABLE_MIN_FREE_DISK", value_name = "SIZE", default_value = "100M")]
    pub(super) min_free_disk: ByteSize,
}

/// The isolation and the limits of CI jobs. `serve` applies them to jobs of the built-in runner; `runner run` has the same
/// settings without the prefix.
#[derive(Args)]
pub(crate) struct JobSettings {
    /// Isolation of jobs from the machine: `auto`, `bubblewrap`, `user` or `none`
    #[arg(long = "runner-isolation", env = "GABLE_RUNNER_ISOLATION", value_name = "KIND", default_value = "auto")]
    pub(crate) isolation: IsolationKind,
    /// User that runs jobs if the runner is started by root [default: gable-runner if it exists, else nobody]
    #[arg(long = "runner-user", env = "GABLE_RUNNER_USER", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Network access of jobs: `auto`, `public`, `none` or `host`
    #[arg(long = "runner-network", env = "GABLE_RUNNER_NETWORK", value_name = "KIND", default_value = "auto")]
    pub(crate) network: NetworkKind,
    /// Maximum memory per job; 0 disables the limit
    #[arg(long = "runner-memory", env = "GABLE_RUNNER_MEMORY", value_name = "SIZE", default_value = "4G")]
    pub(crate) memory: ByteSize,
    /// Maximum number of processes and threads per job; 0 disables the limit
    #[arg(long = "runner-processes", env = "GABLE_RUNNER_PROCESSES", value_name = "COUNT", default_value = "2048")]
    pub(crate) processes: u64,
    /// Maximum disk space per job; 0 disables the limit
    #[arg(long = "runner-disk", env = "GABLE_RUNNER_DISK", value_name = "SIZE", default_value = "10G")]
    pub(crate) disk: ByteSize,
    /// Run jobs that request an image or services without them instead of failing them
    #[arg(long = "runner-ignore-image", env = "GABLE_RUNNER_IGNORE_IMAGE", value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", default_value = "false")]
    pub(crate) ignore_image: bool,
}

/// The level of the log.
#[derive(Args)]
pub(crate) struct LogFilter {
    /// Log filter: error, warn, info, debug, trace or off, or per target such as info,forge=debug
    #[arg(long, env = "GABLE_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text
    Human,
    /// One JSON object per line
    Json,
}

/// The format of timestamps in webhook payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookTimeFormat {
    /// 2016-11-22 10:15:30 UTC
    Original,
    /// 2016-11-22T10:15:30Z
    Iso8601,
}

/// The isolation of CI jobs from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationKind {
    /// bubblewrap if it works, else another user if one is set, else no jobs run
    Auto,
    /// bubblewrap; if it does not work, no jobs run
    Bubblewrap,
    /// Another user; if that is not possible, no jobs run
    User,
    /// No isolation: jobs can read and change everything that the runner can
    None,
}

/// The network access of CI jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkKind {
    /// `public` if slirp4netns works, else `none`; `host` if the isolation is `none`; refused if the isolation is `user`
    Auto,
    /// Public addresses, but neither this machine nor private networks
    Public,
    /// No network
    None,
    /// Everything that this machine can reach, including its own services
    Host,
}
