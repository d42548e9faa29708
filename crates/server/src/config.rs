//! Configuration: one set of names for flags, `GABLE_…` variables and the TOML file, in this order of precedence.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use api::{Dialect, TrustedProxies, parse_proxy};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use webhooks::TimeFormat;

use crate::{
    byte_size::ByteSize,
    data_folder,
    exit::Failure,
    suggestions::nearest,
    time_span::{Hours, Seconds, TimeSpan},
    tls::CertificateFiles,
};

/// Everything that can be set, as far as it is.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Settings {
    /// A TOML file with the same names as the flags
    #[arg(long, env = "GABLE_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// The folder that holds everything [default: ./gable-data]
    #[arg(long, env = "GABLE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// postgres://… instead of the embedded database; with a password in it, use the variable or the file
    #[arg(long, env = "GABLE_DATABASE", value_name = "URL", hide_env_values = true)]
    database: Option<String>,
    /// Where to listen for HTTP [default: 127.0.0.1:8080]
    #[arg(long, env = "GABLE_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where to listen for SSH; without it there is none
    #[arg(long, env = "GABLE_SSH_LISTEN", value_name = "HOST:PORT")]
    ssh_listen: Option<String>,
    /// Whose word counts where the contract and the original differ: spec or gitlab [default: spec]
    #[arg(long, env = "GABLE_DIALECT", value_name = "DIALECT")]
    dialect: Option<String>,
    /// The URL under which clients reach this server, for links in answers and hooks; else what the request says
    #[arg(long, env = "GABLE_EXTERNAL_URL", value_name = "URL")]
    external_url: Option<String>,
    /// Lets imports and hooks of projects reach loopback and private addresses [default: false]
    #[arg(long, env = "GABLE_ALLOW_LOCAL_NETWORK", value_name = "BOOL",
          num_args = 0..=1, default_missing_value = "true")]
    allow_local_network: Option<bool>,
    /// How hooks tell moments [default: original]
    #[arg(long, env = "GABLE_HOOK_TIME_FORMAT", value_name = "FORMAT")]
    hook_time_format: Option<HookTimeFormat>,
    /// The largest request body that is not an upload [default: 1M]
    #[arg(long, env = "GABLE_MAX_BODY_SIZE", value_name = "SIZE")]
    max_body_size: Option<ByteSize>,
    /// The largest file that may be uploaded [default: 10M]
    #[arg(long, env = "GABLE_MAX_UPLOAD_SIZE", value_name = "SIZE")]
    max_upload_size: Option<ByteSize>,
    /// The largest file that a job may leave behind [default: 100M]
    #[arg(long, env = "GABLE_MAX_ARTIFACT_SIZE", value_name = "SIZE")]
    max_artifact_size: Option<ByteSize>,
    /// The largest pack that a push or an import may bring; 0 is without limit [default: 10G]
    #[arg(long, env = "GABLE_MAX_PUSH_SIZE", value_name = "SIZE")]
    max_push_size: Option<ByteSize>,
    /// How much room the cache of clones and archives may take [default: 2G]
    #[arg(long, env = "GABLE_CACHE_SIZE", value_name = "SIZE")]
    cache_size: Option<ByteSize>,
    /// How much of the disk stays free: below it pushes and files are refused, so that the database goes on; 0 is off
    /// [default: 100M]
    #[arg(long, env = "GABLE_MIN_FREE_DISK", value_name = "SIZE")]
    min_free_disk: Option<ByteSize>,
    /// How often a minute one address may try to sign in; 0 is without limit [default: 10]
    #[arg(long, env = "GABLE_SIGN_INS_PER_MINUTE", value_name = "COUNT")]
    sign_ins_per_minute: Option<u32>,
    /// How many requests a minute one token is good for; 0 is without limit [default: 6000]
    #[arg(long, env = "GABLE_REQUESTS_PER_MINUTE", value_name = "COUNT")]
    requests_per_minute: Option<u32>,
    /// How many requests a minute may come from one address without a token; 0 is without limit [default: 1200]
    #[arg(long, env = "GABLE_ANONYMOUS_REQUESTS_PER_MINUTE", value_name = "COUNT")]
    anonymous_requests_per_minute: Option<u32>,
    /// How many connections one address may have at once; 0 is without limit [default: 512]
    #[arg(long, env = "GABLE_CONNECTIONS_PER_ADDRESS", value_name = "COUNT")]
    connections_per_address: Option<usize>,
    /// How long a client may keep the server waiting [default: 60s]
    #[arg(long, env = "GABLE_CLIENT_TIMEOUT_SECONDS", value_name = "DURATION", value_parser = Seconds::parse_positive)]
    client_timeout_seconds: Option<Seconds>,
    /// Addresses or networks of proxies whose word counts about where a request comes from
    #[arg(long, env = "GABLE_TRUSTED_PROXIES", value_name = "NETWORK", value_delimiter = ',')]
    trusted_proxies: Option<Vec<String>>,
    /// The certificate for TLS and those that vouch for it, as PEM
    #[arg(long, env = "GABLE_TLS_CERTIFICATE", value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// The key of the certificate, as PEM
    #[arg(long, env = "GABLE_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Where to listen for those who come without TLS, to send them to where it is spoken
    #[arg(long, env = "GABLE_REDIRECT_LISTEN", value_name = "HOST:PORT")]
    redirect_listen: Option<String>,
    /// For how long browsers come by TLS only, once they have; 0 is not at all [default: 0]
    #[arg(long, env = "GABLE_HSTS_SECONDS", value_name = "DURATION")]
    hsts_seconds: Option<Seconds>,
    /// How many personal projects a user may have unless told otherwise [default: 100000]
    #[arg(long, env = "GABLE_DEFAULT_PROJECTS_LIMIT", value_name = "COUNT",
          value_parser = clap::value_parser!(i32).range(0..))]
    default_projects_limit: Option<i32>,
    /// How many jobs of CI the server runs itself, at once, on this machine: whoever may push can then run programs here; 0 is
    /// none [default: 0]
    #[arg(long, env = "GABLE_RUNNER", value_name = "COUNT")]
    runner: Option<u16>,
    /// What keeps those jobs from the rest of the machine: auto, bubblewrap, user, or none [default: auto]
    #[arg(long, env = "GABLE_RUNNER_ISOLATION", value_name = "KIND")]
    runner_isolation: Option<IsolationKind>,
    /// The user who runs those jobs, if root starts the server [default: gable-runner if it exists, else nobody]
    #[arg(long, env = "GABLE_RUNNER_USER", value_name = "USER")]
    runner_user: Option<String>,
    /// The folder for those jobs and their caches [default: runner in the data folder]
    #[arg(long, env = "GABLE_RUNNER_FOLDER", value_name = "DIR")]
    runner_folder: Option<PathBuf>,
    /// What those jobs may reach: auto, public, none, or host [default: auto]
    #[arg(long, env = "GABLE_RUNNER_NETWORK", value_name = "KIND")]
    runner_network: Option<NetworkKind>,
    /// The memory that one of those jobs may use; 0 is without limit [default: 4G]
    #[arg(long, env = "GABLE_RUNNER_MEMORY", value_name = "SIZE")]
    runner_memory: Option<ByteSize>,
    /// How many processes and threads one of those jobs may have at once; 0 is without limit [default: 2048]
    #[arg(long, env = "GABLE_RUNNER_PROCESSES", value_name = "COUNT")]
    runner_processes: Option<u64>,
    /// The disk space that the folder of one of those jobs may take; 0 is without limit [default: 10G]
    #[arg(long, env = "GABLE_RUNNER_DISK", value_name = "SIZE")]
    runner_disk: Option<ByteSize>,
    /// Runs jobs that ask for an image or services without them, instead of failing them [default: false]
    #[arg(long, env = "GABLE_RUNNER_IGNORE_IMAGE", value_name = "BOOL",
          num_args = 0..=1, default_missing_value = "true")]
    runner_ignore_image: Option<bool>,
    /// How long a runner that has taken a job may say nothing about it before others may take it [default: 2m]
    #[arg(long, env = "GABLE_UNHEARD_JOB_SECONDS", value_name = "DURATION", value_parser = Seconds::parse_positive)]
    unheard_job_seconds: Option<Seconds>,
    /// A folder into which the server backs itself up; without it, it does not
    #[arg(long, env = "GABLE_BACKUP_FOLDER", value_name = "DIR")]
    backup_folder: Option<PathBuf>,
    /// How much time passes from one backup to the next, in hours unless a unit is given [default: 24h]
    #[arg(long, env = "GABLE_BACKUP_EVERY_HOURS", value_name = "DURATION", value_parser = Hours::parse_positive)]
    backup_every_hours: Option<Hours>,
    /// How many backups stay in the folder [default: 7]
    #[arg(long, env = "GABLE_BACKUP_KEEP", value_name = "COUNT")]
    backup_keep: Option<NonZeroU32>,
    /// How log lines look [default: human]
    #[arg(long, env = "GABLE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, trace or off, or a filter such as info,forge=debug [default: info]
    #[arg(long, env = "GABLE_LOG", value_name = "FILTER")]
    log: Option<String>,
}

/// Where the data is, as `serve` has it.
#[derive(Args)]
pub(crate) struct Place {
    /// A TOML file with the same names as the flags of `serve`
    #[arg(long, env = "GABLE_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The folder that holds everything [default: ./gable-data]
    #[arg(long, env = "GABLE_DATA", value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// postgres://… instead of the embedded database
    #[arg(long, env = "GABLE_DATABASE", value_name = "URL", hide_env_values = true, global = true)]
    database: Option<String>,
}

impl From<Place> for Settings {
    fn from(Place { config, data, database }: Place) -> Self {
        Self { config, data, database, ..Self::default() }
    }
}

impl Settings {
    /// The same, and how much of the disk stays free if that is told.
    pub(crate) fn with_min_free_disk(self, min_free_disk: Option<ByteSize>) -> Self {
        Self { min_free_disk, ..self }
    }
}

/// Where a server on this machine listens, as `serve` has it.
#[derive(Args)]
pub(crate) struct Address {
    /// A TOML file with the same names as the flags of `serve`
    #[arg(long, env = "GABLE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the server listens for HTTP [default: 127.0.0.1:8080]
    #[arg(long, env = "GABLE_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,
    /// The certificate for TLS, if the server speaks it
    #[arg(long, env = "GABLE_TLS_CERTIFICATE", value_name = "FILE", hide = true)]
    tls_certificate: Option<PathBuf>,
    /// The key of the certificate
    #[arg(long, env = "GABLE_TLS_KEY", value_name = "FILE", hide = true)]
    tls_key: Option<PathBuf>,
}

impl From<Address> for Settings {
    fn from(Address { config, listen, tls_certificate, tls_key }: Address) -> Self {
        Self { config, listen, tls_certificate, tls_key, ..Self::default() }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Human,
    /// For machines
    Json,
}

/// How hooks tell moments.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HookTimeFormat {
    /// 2016-11-22 10:15:30 UTC
    #[default]
    Original,
    /// 2016-11-22T10:15:30Z
    Iso8601,
}

impl From<HookTimeFormat> for TimeFormat {
    fn from(format: HookTimeFormat) -> Self {
        match format {
            HookTimeFormat::Original => Self::Original,
            HookTimeFormat::Iso8601 => Self::Iso8601,
        }
    }
}

/// The configuration with nothing left open.
pub(crate) struct Config {
    /// The file that it was read from, if there is one.
    pub(crate) file: Option<PathBuf>,
    pub(crate) data: PathBuf,
    pub(crate) database: Option<String>,
    pub(crate) listen: SocketAddr,
    pub(crate) ssh_listen: Option<SocketAddr>,
    pub(crate) dialect: Dialect,
    pub(crate) external_url: Option<String>,
    pub(crate) allow_local_network: bool,
    pub(crate) hook_times: TimeFormat,
    pub(crate) max_body_size: usize,
    pub(crate) max_upload_size: u64,
    pub(crate) max_artifact_size: u64,
    pub(crate) max_push_size: Option<u64>,
    pub(crate) cache_size: u64,
    pub(crate) min_free_disk: u64,
    pub(crate) sign_ins_per_minute: Option<NonZeroU32>,
    pub(crate) requests_per_minute: Option<NonZeroU32>,
    pub(crate) anonymous_requests_per_minute: Option<NonZeroU32>,
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) client_timeout: Duration,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) tls: Option<CertificateFiles>,
    pub(crate) redirect_listen: Option<SocketAddr>,
    pub(crate) hsts_seconds: u32,
    pub(crate) default_projects_limit: i32,
    pub(crate) runner: Option<RunnerConfig>,
    pub(crate) unheard_job: Duration,
    pub(crate) backups: Option<Backups>,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
}

/// The jobs of CI that the server runs itself.
pub(crate) struct RunnerConfig {
    pub(crate) jobs: u16,
    pub(crate) isolation: IsolationKind,
    pub(crate) user: Option<String>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) network: NetworkKind,
    pub(crate) memory: ByteSize,
    pub(crate) processes: u64,
    pub(crate) disk: ByteSize,
    pub(crate) ignore_image: bool,
}

/// What keeps jobs from the rest of the machine.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IsolationKind {
    /// Bubblewrap; another user if one is named and bubblewrap does not work; else nothing runs
    #[default]
    Auto,
    /// Bubblewrap, or nothing runs
    Bubblewrap,
    /// Another user, or nothing runs
    User,
    /// None: jobs can read and change whatever the runner can
    None,
}

/// What jobs may reach.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NetworkKind {
    /// Public addresses if slirp4netns works, else nothing; in other isolations than bubblewrap, whatever the machine can
    #[default]
    Auto,
    /// Public addresses, neither this machine nor private networks
    Public,
    /// Nothing
    None,
    /// Whatever the machine can reach, its own services included
    Host,
}

/// Where the server backs itself up, and how often.
#[derive(Clone)]
pub(crate) struct Backups {
    pub(crate) folder: PathBuf,
    pub(crate) every: Duration,
    pub(crate) keep: usize,
}

/// Lays flags and variables over the file and fills in the defaults.
pub(crate) fn load(settings: Settings) -> Result<Config, Failure> {
    resolve(settings).map_err(Failure::Misused)
}

fn resolve(settings: Settings) -> Result<Config, String> {
    let settings = settings.without_empty();
    let file = settings.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
    let path = settings.config.clone();
    let settings = settings.or(file.without_empty());
    let dialect = settings.dialect.as_deref().unwrap_or("spec").parse()?;
    let tls = check_tls(settings.tls_certificate, settings.tls_key)?;
    let redirect_listen = settings.redirect_listen.as_deref().map(parse_listen).transpose()?;
    let backup_every = positive("backup-every-hours", settings.backup_every_hours, 24 * 3600)?;
    if redirect_listen.is_some() && tls.is_none() {
        return Err("redirect-listen sends to TLS, which takes tls-certificate and tls-key".to_owned());
    }
    Ok(Config {
        file: path,
        data: settings.data.unwrap_or_else(|| "./gable-data".into()),
        database: settings.database.map(check_database).transpose()?,
        listen: parse_listen(settings.listen.as_deref().unwrap_or("127.0.0.1:8080"))?,
        ssh_listen: settings.ssh_listen.as_deref().map(parse_listen).transpose()?,
        dialect,
        external_url: settings.external_url.map(check_url).transpose()?,
        allow_local_network: settings.allow_local_network.unwrap_or(false),
        hook_times: settings.hook_time_format.unwrap_or_default().into(),
        max_body_size: usize::try_from(settings.max_body_size.map_or(1 << 20, ByteSize::bytes)).unwrap_or(usize::MAX),
        max_upload_size: settings.max_upload_size.map_or(10 << 20, ByteSize::bytes),
        max_artifact_size: settings.max_artifact_size.map_or(100 << 20, ByteSize::bytes),
        max_push_size: Some(settings.max_push_size.map_or(10 << 30, ByteSize::bytes)).filter(|size| *size > 0),
        cache_size: settings.cache_size.map_or(2 << 30, ByteSize::bytes),
        min_free_disk: settings.min_free_disk.map_or(100 << 20, ByteSize::bytes),
        sign_ins_per_minute: NonZeroU32::new(settings.sign_ins_per_minute.unwrap_or(10)),
        requests_per_minute: NonZeroU32::new(settings.requests_per_minute.unwrap_or(6000)),
        anonymous_requests_per_minute: NonZeroU32::new(settings.anonymous_requests_per_minute.unwrap_or(1200)),
        connections_per_address: Some(settings.connections_per_address.unwrap_or(512)).filter(|count| *count > 0),
        client_timeout: positive("client-timeout-seconds", settings.client_timeout_seconds, 60)?,
        trusted_proxies: parse_proxies(&settings.trusted_proxies.unwrap_or_default())?,
        tls,
        redirect_listen,
        hsts_seconds: settings.hsts_seconds.map_or(0, |span| u32::try_from(span.seconds()).unwrap_or(u32::MAX)),
        default_projects_limit: check_limit(settings.default_projects_limit.unwrap_or(100_000))?,
        runner: settings.runner.filter(|jobs| *jobs > 0).map(|jobs| RunnerConfig {
            jobs,
            isolation: settings.runner_isolation.unwrap_or_default(),
            user: settings.runner_user,
            folder: settings.runner_folder,
            network: settings.runner_network.unwrap_or_default(),
            memory: settings.runner_memory.unwrap_or(ByteSize(4 << 30)),
            processes: settings.runner_processes.unwrap_or(2048),
            disk: settings.runner_disk.unwrap_or(ByteSize(10 << 30)),
            ignore_image: settings.runner_ignore_image.unwrap_or(false),
        }),
        unheard_job: positive("unheard-job-seconds", settings.unheard_job_seconds, 120)?,
        backups: settings.backup_folder.map(|folder| Backups {
            folder,
            every: backup_every,
            keep: settings.backup_keep.map_or(7, |keep| usize::try_from(keep.get()).unwrap_or(usize::MAX)),
        }),
        log_format: settings.log_format.unwrap_or_default(),
        log: check_log_filter(settings.log.unwrap_or_else(|| "info".into()))?,
    })
}

impl Settings {
    /// An empty text counts as not set, as a variable that a service manager left empty.
    fn without_empty(mut self) -> Self {
        let paths =
            [&mut self.config, &mut self.data, &mut self.backup_folder, &mut self.tls_certificate, &mut self.tls_key];
        for path in paths.into_iter().chain([&mut self.runner_folder]) {
            path.take_if(|path| path.as_os_str().is_empty());
        }
        let addresses = [&mut self.database, &mut self.listen, &mut self.ssh_listen, &mut self.external_url];
        let names = [&mut self.dialect, &mut self.log, &mut self.redirect_listen, &mut self.runner_user];
        for text in addresses.into_iter().chain(names) {
            text.take_if(|text| text.is_empty());
        }
        self
    }

    /// These settings, and where they are silent, the others.
    fn or(self, other: Self) -> Self {
        Self {
            config: self.config.or(other.config),
            data: self.data.or(other.data),
            database: self.database.or(other.database),
            listen: self.listen.or(other.listen),
            ssh_listen: self.ssh_listen.or(other.ssh_listen),
            dialect: self.dialect.or(other.dialect),
            external_url: self.external_url.or(other.external_url),
            allow_local_network: self.allow_local_network.or(other.allow_local_network),
            hook_time_format: self.hook_time_format.or(other.hook_time_format),
            max_body_size: self.max_body_size.or(other.max_body_size),
            max_upload_size: self.max_upload_size.or(other.max_upload_size),
            max_artifact_size: self.max_artifact_size.or(other.max_artifact_size),
            max_push_size: self.max_push_size.or(other.max_push_size),
            cache_size: self.cache_size.or(other.cache_size),
            min_free_disk: self.min_free_disk.or(other.min_free_disk),
            sign_ins_per_minute: self.sign_ins_per_minute.or(other.sign_ins_per_minute),
            requests_per_minute: self.requests_per_minute.or(other.requests_per_minute),
            anonymous_requests_per_minute: self.anonymous_requests_per_minute.or(other.anonymous_requests_per_minute),
            connections_per_address: self.connections_per_address.or(other.connections_per_address),
            client_timeout_seconds: self.client_timeout_seconds.or(other.client_timeout_seconds),
            trusted_proxies: self.trusted_proxies.or(other.trusted_proxies),
            tls_certificate: self.tls_certificate.or(other.tls_certificate),
            tls_key: self.tls_key.or(other.tls_key),
            redirect_listen: self.redirect_listen.or(other.redirect_listen),
            hsts_seconds: self.hsts_seconds.or(other.hsts_seconds),
            default_projects_limit: self.default_projects_limit.or(other.default_projects_limit),
            runner: self.runner.or(other.runner),
            runner_isolation: self.runner_isolation.or(other.runner_isolation),
            runner_user: self.runner_user.or(other.runner_user),
            runner_folder: self.runner_folder.or(other.runner_folder),
            runner_network: self.runner_network.or(other.runner_network),
            runner_memory: self.runner_memory.or(other.runner_memory),
            runner_processes: self.runner_processes.or(other.runner_processes),
            runner_disk: self.runner_disk.or(other.runner_disk),
            runner_ignore_image: self.runner_ignore_image.or(other.runner_ignore_image),
            unheard_job_seconds: self.unheard_job_seconds.or(other.unheard_job_seconds),
            backup_folder: self.backup_folder.or(other.backup_folder),
            backup_every_hours: self.backup_every_hours.or(other.backup_every_hours),
            backup_keep: self.backup_keep.or(other.backup_keep),
            log_format: self.log_format.or(other.log_format),
            log: self.log.or(other.log),
        }
    }
}

fn read_file(path: &Path) -> Result<Settings, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the configuration file {}: {error}", path.display()))?;
    // Only what is wrong and where; the line itself may hold a password.
    toml::from_str(&text).map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        let message = match (suggest(&message), key_at(&text, line)) {
            (Some(better), _) => better,
            (None, Some(key)) if !message.contains('`') => format!("{key}: {message}"),
            (None, _) => message,
        };
        format!("line {line} of the configuration file {}: {message}", path.display())
    })
}

/// The complaint about an unknown key with the one that was probably meant, instead of with all that there are.
fn suggest(message: &str) -> Option<String> {
    let (unknown, known) = message.strip_prefix("unknown field `")?.split_once("`, expected one of ")?;
    let like = nearest(unknown, known.split(", ").map(|name| name.trim_matches('`')))?;
    Some(format!("unknown field `{unknown}`; did you mean `{like}`?"))
}

/// The setting that a line of the file gives a value, never the value.
fn key_at(text: &str, line: usize) -> Option<&str> {
    let key = text.lines().nth(line.checked_sub(1)?)?.split_once('=')?.0.trim();
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    (!key.is_empty() && key.chars().all(plain)).then_some(key)
}

fn positive<const PLAIN: u64>(name: &str, given: Option<TimeSpan<PLAIN>>, usual: u64) -> Result<Duration, String> {
    let span = given.unwrap_or(TimeSpan::of_seconds(usual));
    span.positive().map(TimeSpan::duration).map_err(|error| format!("{name}: {error}"))
}

/// Refuses a URL that leads to no database, before anything is done.
fn check_database(url: String) -> Result<String, String> {
    data_folder::postgres(&url)?;
    Ok(url)
}

/// Refuses a filter with a word that is no level: it would be taken for a part of the program, and nothing would be logged.
pub(crate) fn check_log_filter(filter: String) -> Result<String, String> {
    let filter = filter.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let wrong = filter.split(',').find(|part| !is_level(part.rsplit_once('=').map_or(*part, |(_, level)| level)));
    let unreadable = wrong.is_some() || EnvFilter::try_new(&filter).is_err();
    if !unreadable {
        return Ok(filter);
    }
    Err(format!(
        "the log filter {filter} cannot be understood: use error, warn, info, debug, trace or off, or several with parts of \
         the program, such as info,forge=debug"
    ))
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| format!("cannot listen on {text}: it is not of the form HOST:PORT, such as 127.0.0.1:8080"))
}

fn parse_proxies(texts: &[String]) -> Result<TrustedProxies, String> {
    texts.iter().filter(|text| !text.trim().is_empty()).map(|text| parse_proxy(text)).collect()
}

fn check_tls(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<CertificateFiles>, String> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
        (Some(_), None) => Err("tls-certificate needs tls-key beside it".to_owned()),
        (None, Some(_)) => Err("tls-key needs tls-certificate beside it".to_owned()),
    }
}

fn check_limit(limit: i32) -> Result<i32, String> {
    if limit < 0 { Err(format!("the default projects limit {limit} is below 0")) } else { Ok(limit) }
}

fn check_url(url: String) -> Result<String, String> {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let plain = |host: &str| !host.is_empty() && !host.contains(['?', '#', ' ', '@', '"', '<', '>', ',']);
    if host.is_some_and(plain) {
        return Ok(url);
    }
    Err(format!("the external URL {url} is not of the form https://host or https://host/prefix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gable.toml");
        std::fs::write(&path, text).expect("written");
        read_file(&path).map_err(|error| error.replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let file = file("data = \"/srv/gable\"\nlisten = \"[::1]:9\"\ndialect = \"gitlab\"\n").expect("read");
        let flags = Settings { listen: Some("127.0.0.1:1".into()), ..Settings::default() };
        let config = resolve(flags.or(file)).expect("loaded");
        assert_eq!(config.listen.to_string(), "127.0.0.1:1");
        assert_eq!(config.data, Path::new("/srv/gable"));
        assert_eq!(config.dialect, Dialect::Gitlab);
        assert_eq!(config.max_body_size, 1_048_576);
    }

    #[test]
    fn proxies_are_a_list_in_the_file() {
        let file = file("trusted-proxies = [\"10.0.0.0/8\", \"::1\"]\nrequests-per-minute = 0\n").expect("read");
        let config = resolve(file).expect("loaded");
        assert!(config.trusted_proxies.trusts("10.9.9.9".parse().expect("an address")));
        assert!(!config.trusted_proxies.trusts("127.0.0.1".parse().expect("an address")));
        assert_eq!(config.requests_per_minute, None);
        assert_eq!(config.anonymous_requests_per_minute.map(NonZeroU32::get), Some(1200));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = file("data = \"x\"\ndatabse = \"postgres://ann:s3cret@host/db\"\n").expect_err("refused");
        assert!(
            error == "line 2 of the configuration file FILE: unknown field `databse`; did you mean `database`?",
            "{error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
        let error = file("\ncolour = 1\n").expect_err("refused");
        assert!(error.starts_with("line 2 of the configuration file FILE: unknown field `colour`, expected one of"));
    }

    #[test]
    fn a_bad_value_in_the_file_is_told_with_its_setting_and_what_is_accepted() {
        let refused = |text: &str| file(text).and_then(resolve).err().expect("refused");
        assert_eq!(
            refused("\nmax-push-size = \"big\""),
            "line 2 of the configuration file FILE: max-push-size: big is not a size; write a number of bytes, or one with \
             a unit such as 64K, 10M, 2G or 1T"
        );
        assert_eq!(
            refused("backup-every-hours = \"often\""),
            "line 1 of the configuration file FILE: backup-every-hours: often is not a duration; write a number of hours, \
             or one with a unit such as 30s, 5m, 2h or 7d"
        );
        assert_eq!(refused("client-timeout-seconds = 0"), "client-timeout-seconds: must be greater than 0");
    }

    #[test]
    fn sizes_and_durations_have_units_and_plain_numbers_mean_what_they_meant() {
        let sizes = "max-body-size = \"2M\"\nmax-upload-size = 1048576\nmax-artifact-size = \"1GiB\"\n\
                     max-push-size = \"64KB\"\ncache-size = \"1T\"\nmin-free-disk = 0\n";
        let config = file(sizes).and_then(resolve).expect("loaded");
        assert_eq!((config.max_body_size, config.max_upload_size), (2 << 20, 1 << 20));
        assert_eq!((config.max_artifact_size, config.max_push_size), (1 << 30, Some(64 << 10)));
        assert_eq!((config.cache_size, config.min_free_disk), (1 << 40, 0));
        let durations = "client-timeout-seconds = \"5m\"\nhsts-seconds = \"1w\"\nunheard-job-seconds = 90\n\
                         backup-folder = \"b\"\nbackup-every-hours = \"7d\"\n";
        let config = file(durations).and_then(resolve).expect("loaded");
        assert_eq!((config.client_timeout.as_secs(), config.hsts_seconds), (300, 604_800));
        assert_eq!(config.unheard_job.as_secs(), 90);
        assert_eq!(config.backups.map(|backups| backups.every.as_secs()), Some(604_800));
        let plain = file("backup-folder = \"b\"\nbackup-every-hours = 2\n").and_then(resolve).expect("loaded");
        assert_eq!(plain.backups.map(|backups| backups.every.as_secs()), Some(7200));
    }

    #[test]
    fn a_log_filter_with_a_word_that_is_no_level_is_refused() {
        for fine in ["info", "WARN", "off", "info,forge=debug", "api=debug", "warn,wire::ssh=trace", "0"] {
            assert_eq!(check_log_filter(fine.into()).as_deref(), Ok(fine));
        }
        assert_eq!(check_log_filter("warn, wire::ssh=trace".into()).as_deref(), Ok("warn,wire::ssh=trace"));
        for wrong in ["verbose", "info,verbose", "forge", "forge=loud", "info,", "=", "wire::ssh"] {
            let error = check_log_filter(wrong.into()).expect_err(wrong);
            let expected =
                format!("the log filter {wrong} cannot be understood: use error, warn, info, debug, trace or off");
            assert!(error.starts_with(&expected) && error.ends_with("such as info,forge=debug"), "{error}");
        }
    }

    #[test]
    fn limits_of_jobs_are_sizes_with_units() {
        let text = "runner = 1\nrunner-memory = \"2G\"\nrunner-disk = 1048576\nrunner-isolation = \"none\"\n";
        let runner = load(file(text).expect("read")).expect("loaded").runner.expect("there is one");
        assert_eq!((runner.memory, runner.disk, runner.processes), (ByteSize(2 << 30), ByteSize(1 << 20), 2048));
        assert_eq!((runner.isolation, runner.network), (IsolationKind::None, NetworkKind::Auto));
        assert!(load(Settings::default()).expect("loaded").runner.is_none());
        let error = file("runner-memory = \"2X\"").expect_err("refused");
        assert!(error.contains("line 1") && error.contains("2X is not a size"), "{error}");
    }

    #[test]
    fn an_empty_text_counts_as_not_set() {
        let empty = || Some(String::new());
        let settings = Settings {
            config: Some(PathBuf::new()),
            data: Some(PathBuf::new()),
            database: empty(),
            external_url: empty(),
            dialect: empty(),
            ..Settings::default()
        };
        let config = resolve(settings).expect("loaded");
        assert_eq!((config.database, config.external_url, config.dialect), (None, None, Dialect::Spec));
        assert_eq!(config.data, Path::new("./gable-data"));
    }

    #[test]
    fn bad_values_are_told_in_a_sentence() {
        let refused = |settings: Settings| resolve(settings).err().expect("refused");
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            refused(settings)
        };
        assert_eq!(with(|it| it.dialect = Some("klingon".into())), "the dialect is spec or gitlab, not klingon");
        assert_eq!(
            with(|it| it.listen = Some("nowhere".into())),
            "cannot listen on nowhere: it is not of the form HOST:PORT, such as 127.0.0.1:8080"
        );
        assert_eq!(
            with(|it| it.external_url = Some("ftp://x".into())),
            "the external URL ftp://x is not of the form https://host or https://host/prefix"
        );
        assert_eq!(
            with(|it| it.trusted_proxies = Some(vec!["10.0.0.0/8".into(), "10.0.0.0/99".into()])),
            "the trusted proxy 10.0.0.0/99 is neither an address nor a network such as 10.0.0.0/8 or fd00::/8"
        );
        assert_eq!(with(|it| it.tls_key = Some("key.pem".into())), "tls-key needs tls-certificate beside it");
        assert_eq!(with(|it| it.tls_certificate = Some("c.pem".into())), "tls-certificate needs tls-key beside it");
        assert_eq!(
            with(|it| it.redirect_listen = Some("127.0.0.1:80".into())),
            "redirect-listen sends to TLS, which takes tls-certificate and tls-key"
        );
    }
}
