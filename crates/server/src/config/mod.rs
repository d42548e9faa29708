//! The configuration: [`settings`] declares the settings, [`sources`] collects them from flags, `GABLE_…` variables and
//! the TOML file, and [`load`] checks them.

mod location;
mod settings;
mod sources;

use std::{
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    num::{NonZeroU16, NonZeroU32},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use api::{Dialect, TrustedProxies, parse_proxy};
use model::{DEFAULT_SSH_PORT, SshEndpoint};
use store::Database;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use webhooks::TimeFormat;

use self::settings::{HookTimeFormat, TlsFiles};
pub(crate) use self::{
    location::{Location, SharedStorage},
    settings::{
        DataLocation, DoctorSettings, IsolationKind, JobSettings, LogFilter, LogFormat, NetworkKind, ServerAddress,
        Settings,
    },
    sources::ExplicitSettings,
};
use crate::{exit::Failure, tls::CertificateFiles};

/// The complete and checked configuration.
pub(crate) struct Config {
    /// The configuration file, if any.
    pub(crate) file: Option<PathBuf>,
    pub(crate) location: Location,
    pub(crate) listen: SocketAddr,
    pub(crate) ssh_listen: Option<SocketAddr>,
    pub(crate) dialect: Dialect,
    pub(crate) external_url: Option<String>,
    pub(crate) external_ssh: Option<SshEndpoint>,
    pub(crate) allow_local_network: bool,
    pub(crate) hook_times: TimeFormat,
    pub(crate) max_body_size: usize,
    pub(crate) max_upload_size: u64,
    pub(crate) max_artifact_size: u64,
    pub(crate) max_push_size: Option<u64>,
    pub(crate) cache_size: u64,
    pub(crate) pack_cache_size: u64,
    /// The maximum number of connections to the database; `None` depends on the number of cores.
    pub(crate) database_connections: Option<NonZeroU16>,
    /// Standbys of the database, from which lists are read.
    pub(crate) read_replica: Option<Database>,
    pub(crate) min_free_disk: u64,
    pub(crate) sign_ins_per_minute: Option<NonZeroU32>,
    pub(crate) requests_per_minute: Option<NonZeroU32>,
    pub(crate) anonymous_requests_per_minute: Option<NonZeroU32>,
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) client_timeout: Duration,
    pub(crate) drain_timeout: Duration,
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

/// The configuration of the built-in runner.
pub(crate) struct RunnerConfig {
    /// The maximum number of concurrent jobs.
    pub(crate) concurrency: u16,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) jobs: JobSettings,
}

/// The configuration of scheduled backups.
#[derive(Clone)]
pub(crate) struct Backups {
    pub(crate) folder: PathBuf,
    pub(crate) every: Duration,
    pub(crate) keep: usize,
}

/// Completes the settings of a command with the configuration file and the defaults, and checks them.
pub(crate) fn load<T>(settings: ExplicitSettings<T>) -> Result<Config, Failure> {
    settings.complete().and_then(check).map_err(Failure::Usage)
}

fn check(settings: Settings) -> Result<Config> {
    let dialect = settings.dialect.parse()?;
    let file = settings.location.file.config.clone();
    let location = location::check(settings.location)?;
    let tls = check_tls(settings.tls)?;
    let redirect_listen = settings.redirect_listen.as_deref().map(parse_listen).transpose()?;
    if redirect_listen.is_some() && tls.is_none() {
        bail!("redirect-listen requires tls-certificate and tls-key");
    }
    if settings.read_replica.is_some() && location.database.is_none() {
        bail!("read-replica requires database: the embedded database has no standbys");
    }
    let read_replica = settings.read_replica.as_deref().map(Database::standby).transpose();
    Ok(Config {
        file,
        location,
        read_replica: read_replica.context("read-replica")?,
        listen: parse_listen(&settings.listen.listen)?,
        ssh_listen: settings.ssh_listen.as_deref().map(parse_listen).transpose()?,
        dialect,
        external_url: settings.external_url.map(check_url).transpose()?,
        external_ssh: settings.external_ssh_url.as_deref().map(parse_ssh_url).transpose()?,
        allow_local_network: settings.allow_local_network,
        hook_times: settings.hook_time_format.into(),
        max_body_size: usize::try_from(settings.max_body_size.bytes()).unwrap_or(usize::MAX),
        max_upload_size: settings.max_upload_size.bytes(),
        max_artifact_size: settings.max_artifact_size.bytes(),
        max_push_size: settings.max_push_size.non_zero(),
        cache_size: settings.cache_size.bytes(),
        pack_cache_size: settings.pack_cache_size.bytes(),
        database_connections: NonZeroU16::new(settings.database_connections),
        min_free_disk: settings.disk.min_free_disk.bytes(),
        sign_ins_per_minute: NonZeroU32::new(settings.sign_ins_per_minute),
        requests_per_minute: NonZeroU32::new(settings.requests_per_minute),
        anonymous_requests_per_minute: NonZeroU32::new(settings.anonymous_requests_per_minute),
        connections_per_address: Some(settings.connections_per_address).filter(|count| *count > 0),
        client_timeout: settings.client_timeout_seconds.duration(),
        drain_timeout: settings.drain_timeout.duration(),
        trusted_proxies: parse_proxies(&settings.trusted_proxies)?,
        tls,
        redirect_listen,
        hsts_seconds: u32::try_from(settings.hsts_seconds.seconds()).unwrap_or(u32::MAX),
        default_projects_limit: settings.default_projects_limit,
        runner: (settings.runner > 0).then_some(RunnerConfig {
            concurrency: settings.runner,
            folder: settings.runner_folder,
            jobs: settings.jobs,
        }),
        unheard_job: settings.unheard_job_seconds.duration(),
        backups: settings.backup_folder.map(|folder| Backups {
            folder,
            every: settings.backup_every_hours.duration(),
            keep: usize::try_from(settings.backup_keep.get()).unwrap_or(usize::MAX),
        }),
        log_format: settings.log_format,
        log: check_log_filter(&settings.log)?,
    })
}

impl From<HookTimeFormat> for TimeFormat {
    fn from(format: HookTimeFormat) -> Self {
        match format {
            HookTimeFormat::Original => Self::Gitlab,
            HookTimeFormat::Iso8601 => Self::Iso8601,
        }
    }
}

/// Checks a log filter. A word that is not a level is refused: it would be taken for a target, and nothing would be logged.
pub(crate) fn check_log_filter(LogFilter { log }: &LogFilter) -> Result<String> {
    let filter = log.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let has_level = |part: &str| is_level(part.rsplit_once('=').map_or(part, |(_, level)| level));
    if filter.split(',').all(has_level) && EnvFilter::try_new(&filter).is_ok() {
        return Ok(filter);
    }
    Err(anyhow!(
        "invalid log filter {filter}: use error, warn, info, debug, trace or off, or levels per target, such as \
         info,forge=debug"
    ))
}

fn parse_listen(text: &str) -> Result<SocketAddr> {
    text.to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .with_context(|| format!("cannot listen on {text}: expected HOST:PORT, such as 127.0.0.1:8080"))
}

fn parse_proxies(texts: &[String]) -> Result<TrustedProxies> {
    Ok(texts.iter().filter(|text| !text.trim().is_empty()).map(|text| parse_proxy(text)).collect::<Result<_, _>>()?)
}

fn check_tls(TlsFiles { tls_certificate, tls_key }: TlsFiles) -> Result<Option<CertificateFiles>> {
    match (tls_certificate, tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
        (Some(_), None) => Err(anyhow!("tls-certificate requires tls-key")),
        (None, Some(_)) => Err(anyhow!("tls-key requires tls-certificate")),
    }
}

fn check_url(url: String) -> Result<String> {
    const EXPECTED: &str = "expected https://host or https://host/prefix";
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let plain = |host: &str| !host.is_empty() && !host.contains(['?', '#', ' ', '@', '"', '<', '>', ',']);
    if host.is_some_and(plain) {
        return Ok(url);
    }
    if user_and_password(&url).is_some() {
        bail!("external-url must not contain a user or a password; {EXPECTED}");
    }
    Err(invalid_url("external-url", &url, EXPECTED))
}

/// Returns the error for a URL. One with `@` is not repeated, because the error may be logged: [`user_and_password`]
/// does not find a password with a slash that is not encoded.
fn invalid_url(setting: &str, url: &str, expected: &str) -> anyhow::Error {
    if url.contains('@') {
        return anyhow!("invalid {setting}: {expected}");
    }
    anyhow!("invalid {setting} {url}: {expected}")
}

/// Returns what precedes `@` in the authority of a URL; the user may be a token.
fn user_and_password(url: &str) -> Option<&str> {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next()?;
    authority.rsplit_once('@').map(|(user, _)| user)
}

/// Parses the public URL of SSH. A path is refused because the path of a project follows the host directly.
fn parse_ssh_url(url: &str) -> Result<SshEndpoint> {
    const EXPECTED: &str = "expected ssh://host or ssh://host:port";
    let invalid = || match user_and_password(url) {
        Some(user) if user != "git" => {
            anyhow!("invalid external-ssh-url: the user is always git, without a password; {EXPECTED}")
        }
        _ => invalid_url("external-ssh-url", url, EXPECTED),
    };
    let authority = url.strip_prefix("ssh://").ok_or_else(invalid)?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let address = match authority.rsplit_once('@') {
        None => authority,
        Some(("git", address)) => address,
        Some(_) => return Err(invalid()),
    };
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !address.ends_with(']') => {
            (host, port.parse::<NonZeroU16>().map_err(|_| invalid())?.get())
        }
        _ => (address, DEFAULT_SSH_PORT),
    };
    let is_host = if let Some(address) = host.strip_prefix('[') {
        address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
    } else {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !host.is_empty() && !host.starts_with('-') && host.bytes().all(is_plain)
    };
    if is_host { Ok(SshEndpoint { host: host.into(), port }) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{sources::tests::settings, *};
    use crate::byte_size::ByteSize;

    fn config(flags: &[&str], file: &str) -> Result<Config> {
        settings(flags, file).and_then(check)
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let file = "data = \"/srv/gable\"\nlisten = \"[::1]:9\"\ndialect = \"gitlab\"\n";
        let config = config(&["--listen", "127.0.0.1:1"], file).expect("loaded");
        assert_eq!(config.listen.to_string(), "127.0.0.1:1");
        assert_eq!(config.location.folder, Path::new("/srv/gable"));
        assert_eq!(config.dialect, Dialect::Gitlab);
        assert_eq!(config.max_body_size, 1_048_576);
    }

    #[test]
    fn proxies_are_a_list_in_the_file() {
        let file = "trusted-proxies = [\"10.0.0.0/8\", \"::1\"]\nrequests-per-minute = 0\n";
        let config = config(&[], file).expect("loaded");
        assert!(config.trusted_proxies.trusts("10.9.9.9".parse().expect("an address")));
        assert!(!config.trusted_proxies.trusts("127.0.0.1".parse().expect("an address")));
        assert_eq!(config.requests_per_minute, None);
        assert_eq!(config.anonymous_requests_per_minute.map(NonZeroU32::get), Some(1200));
    }

    #[test]
    fn sizes_and_durations_accept_units_and_plain_numbers() {
        let sizes = "max-body-size = \"2M\"\nmax-upload-size = 1048576\nmax-artifact-size = \"1GiB\"\n\
                     max-push-size = \"64KB\"\ncache-size = \"1T\"\nmin-free-disk = 0\n";
        let of_sizes = config(&[], sizes).expect("loaded");
        assert_eq!((of_sizes.max_body_size, of_sizes.max_upload_size), (2 << 20, 1 << 20));
        assert_eq!((of_sizes.max_artifact_size, of_sizes.max_push_size), (1 << 30, Some(64 << 10)));
        assert_eq!((of_sizes.cache_size, of_sizes.min_free_disk), (1 << 40, 0));
        let durations = "client-timeout-seconds = \"5m\"\nhsts-seconds = \"1w\"\nunheard-job-seconds = 90\n\
                         backup-folder = \"b\"\nbackup-every-hours = \"7d\"\n";
        let of_durations = config(&[], durations).expect("loaded");
        assert_eq!((of_durations.client_timeout.as_secs(), of_durations.hsts_seconds), (300, 604_800));
        assert_eq!(of_durations.unheard_job.as_secs(), 90);
        assert_eq!(of_durations.backups.map(|backups| backups.every.as_secs()), Some(604_800));
        let plain = config(&[], "backup-folder = \"b\"\nbackup-every-hours = 2\n").expect("loaded");
        assert_eq!(plain.backups.map(|backups| backups.every.as_secs()), Some(7200));
    }

    #[test]
    fn the_public_url_of_ssh_is_a_host_and_a_port() {
        let check = |url: &str, expected: (&str, u16)| {
            let SshEndpoint { host, port } = parse_ssh_url(url).expect(url);
            assert_eq!((&*host, port), expected, "{url}");
        };
        check("ssh://git.example.com", ("git.example.com", 22));
        check("ssh://git.example.com/", ("git.example.com", 22));
        check("ssh://git.example.com:2222", ("git.example.com", 2222));
        check("ssh://git@git.example.com:22", ("git.example.com", 22));
        check("ssh://192.0.2.1", ("192.0.2.1", 22));
        check("ssh://[2001:db8::1]", ("[2001:db8::1]", 22));
        check("ssh://git@[2001:db8::1]:2222", ("[2001:db8::1]", 2222));
        for wrong in [
            "git.example.com",
            "https://git.example.com",
            "ssh://",
            "ssh://:22",
            "ssh://host:",
            "ssh://host:0",
            "ssh://host:65536",
            "ssh://host/path",
            "ssh://host?query",
            "ssh://host#fragment",
            "ssh://-oProxyCommand=x",
            "ssh://2001:db8::1",
            "ssh://[host]",
            "ssh://a b",
        ] {
            let error = parse_ssh_url(wrong).expect_err(wrong).to_string();
            assert!(error.starts_with(&format!("invalid external-ssh-url {wrong}: ")), "{error}");
            assert!(error.ends_with("expected ssh://host or ssh://host:port"), "{error}");
        }
        for wrong in ["git@git.example.com:", "ssh://git@host/path"] {
            let error = parse_ssh_url(wrong).expect_err(wrong).to_string();
            assert_eq!(error, "invalid external-ssh-url: expected ssh://host or ssh://host:port");
        }
    }

    #[test]
    fn a_url_that_may_contain_a_secret_is_not_repeated() {
        let check = |url: &str, of_web: &str, of_ssh: &str| {
            let error = check_url(url.to_owned()).expect_err(url).to_string();
            assert_eq!(error, format!("{of_web} expected https://host or https://host/prefix"), "{url}");
            let error = parse_ssh_url(url).expect_err(url).to_string();
            assert_eq!(error, format!("{of_ssh} expected ssh://host or ssh://host:port"), "{url}");
        };
        for scheme in ["", "ssh://", "http://", "https://", "ftp://"] {
            for user in ["git:planted", "planted-token", "git@git"] {
                check(
                    &format!("{scheme}{user}@host"),
                    "external-url must not contain a user or a password;",
                    "invalid external-ssh-url: the user is always git, without a password;",
                );
            }
        }
        for url in ["https://host:8080/@team", "https://ann:plan/ted@host"] {
            check(url, "invalid external-url:", "invalid external-ssh-url:");
        }
    }

    #[test]
    fn a_log_filter_with_a_word_that_is_not_a_level_is_refused() {
        let check = |log: &str| check_log_filter(&LogFilter { log: log.to_owned() });
        for fine in ["info", "WARN", "off", "info,forge=debug", "api=debug", "warn,wire::ssh=trace", "0"] {
            assert_eq!(check(fine).expect(fine), fine);
        }
        assert_eq!(check("warn, wire::ssh=trace").expect("fine"), "warn,wire::ssh=trace");
        for wrong in ["verbose", "info,verbose", "forge", "forge=loud", "info,", "=", "wire::ssh"] {
            let error = check(wrong).expect_err(wrong).to_string();
            let expected = format!("invalid log filter {wrong}: use error, warn, info, debug, trace or off");
            assert!(error.starts_with(&expected) && error.ends_with("such as info,forge=debug"), "{error}");
        }
    }

    #[test]
    fn limits_of_jobs_are_sizes_with_units() {
        let file = "runner = 1\nrunner-memory = \"2G\"\nrunner-disk = 1048576\nrunner-isolation = \"none\"\n";
        let jobs = config(&[], file).expect("loaded").runner.expect("there is one").jobs;
        assert_eq!((jobs.memory, jobs.disk), (ByteSize(2 << 30), ByteSize(1 << 20)));
        assert_eq!((jobs.processes, jobs.isolation), (2048, IsolationKind::None));
        assert!(config(&[], "").expect("loaded").runner.is_none());
    }

    #[test]
    fn invalid_values_are_reported() {
        let check = |flags: &[&str], expected: &str| {
            assert_eq!(config(flags, "").err().expect("refused").to_string(), expected);
        };
        check(&["--dialect", "klingon"], "unknown dialect klingon; choose spec or gitlab");
        check(&["--listen", "nowhere"], "cannot listen on nowhere: expected HOST:PORT, such as 127.0.0.1:8080");
        check(
            &["--external-url", "ftp://x"],
            "invalid external-url ftp://x: expected https://host or https://host/prefix",
        );
        check(
            &["--external-ssh-url", "https://git.example.org"],
            "invalid external-ssh-url https://git.example.org: expected ssh://host or ssh://host:port",
        );
        check(
            &["--trusted-proxies", "10.0.0.0/8,10.0.0.0/99"],
            "the trusted proxy 10.0.0.0/99 is neither an address nor a network such as 10.0.0.0/8 or fd00::/8",
        );
        check(&["--tls-key", "key.pem"], "tls-key requires tls-certificate");
        check(&["--tls-certificate", "c.pem"], "tls-certificate requires tls-key");
        check(&["--redirect-listen", "127.0.0.1:80"], "redirect-listen requires tls-certificate and tls-key");
    }
}
