//! Configuration: one set of names for flags, `GABLE_…` variables and the TOML file, in this order of precedence.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use api::Dialect;
use clap::{Args, ValueEnum};
use courier::TimeFormat;
use serde::Deserialize;

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
    /// The URL under which clients reach this server, for links in answers
    #[arg(long, env = "GABLE_EXTERNAL_URL", value_name = "URL")]
    external_url: Option<String>,
    /// Lets outgoing requests reach loopback and private addresses
    #[arg(long, env = "GABLE_ALLOW_LOCAL_NETWORK", value_name = "BOOL",
          num_args = 0..=1, default_missing_value = "true")]
    allow_local_network: Option<bool>,
    /// How hooks tell moments [default: original]
    #[arg(long, env = "GABLE_HOOK_TIME_FORMAT", value_name = "FORMAT")]
    hook_time_format: Option<HookTimeFormat>,
    /// The largest request body that is not an upload, in bytes [default: 1048576]
    #[arg(long, env = "GABLE_MAX_BODY_SIZE", value_name = "BYTES")]
    max_body_size: Option<usize>,
    /// The largest file that may be uploaded, in bytes [default: 10485760]
    #[arg(long, env = "GABLE_MAX_UPLOAD_SIZE", value_name = "BYTES")]
    max_upload_size: Option<u64>,
    /// The largest file that a job may leave behind, in bytes [default: 104857600]
    #[arg(long, env = "GABLE_MAX_ARTIFACT_SIZE", value_name = "BYTES")]
    max_artifact_size: Option<u64>,
    /// The largest pack that a push may bring, in bytes; 0 is without limit [default: 10737418240]
    #[arg(long, env = "GABLE_MAX_PUSH_SIZE", value_name = "BYTES")]
    max_push_size: Option<u64>,
    /// How much room the cache of clones and archives may take, in bytes [default: 2147483648]
    #[arg(long, env = "GABLE_CACHE_SIZE", value_name = "BYTES")]
    cache_size: Option<u64>,
    /// How often a minute one address may try to sign in; 0 is without limit [default: 10]
    #[arg(long, env = "GABLE_SIGN_INS_PER_MINUTE", value_name = "COUNT")]
    sign_ins_per_minute: Option<u32>,
    /// How many personal projects a user may have unless told otherwise [default: 10]
    #[arg(long, env = "GABLE_DEFAULT_PROJECTS_LIMIT", value_name = "COUNT",
          value_parser = clap::value_parser!(i32).range(0..))]
    default_projects_limit: Option<i32>,
    /// How many jobs of CI the server runs itself, at once, on this machine; 0 is none [default: 0]
    #[arg(long, env = "GABLE_RUNNER", value_name = "COUNT")]
    runner: Option<u16>,
    /// How long a runner that has taken a job may say nothing about it before others may take it [default: 120]
    #[arg(long, env = "GABLE_UNHEARD_JOB_SECONDS", value_name = "SECONDS")]
    unheard_job_seconds: Option<NonZeroU32>,
    /// How log lines look [default: human]
    #[arg(long, env = "GABLE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, or a filter such as info,api=debug [default: info]
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

/// Where a server on this machine listens, as `serve` has it.
#[derive(Args)]
pub(crate) struct Address {
    /// A TOML file with the same names as the flags of `serve`
    #[arg(long, env = "GABLE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the server listens for HTTP [default: 127.0.0.1:8080]
    #[arg(long, env = "GABLE_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,
}

impl From<Address> for Settings {
    fn from(Address { config, listen }: Address) -> Self {
        Self { config, listen, ..Self::default() }
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
    pub(crate) sign_ins_per_minute: Option<NonZeroU32>,
    pub(crate) default_projects_limit: i32,
    pub(crate) runner: u16,
    pub(crate) unheard_job: Duration,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
}

/// Lays flags and variables over the file and fills in the defaults.
pub(crate) fn load(settings: Settings) -> Result<Config, String> {
    let settings = settings.without_empty();
    let file = settings.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
    let settings = settings.or(file.without_empty());
    let dialect = settings.dialect.as_deref().unwrap_or("spec").parse()?;
    Ok(Config {
        data: settings.data.unwrap_or_else(|| "./gable-data".into()),
        database: settings.database,
        listen: parse_listen(settings.listen.as_deref().unwrap_or("127.0.0.1:8080"))?,
        ssh_listen: settings.ssh_listen.as_deref().map(parse_listen).transpose()?,
        dialect,
        external_url: settings.external_url.map(check_url).transpose()?,
        allow_local_network: settings.allow_local_network.unwrap_or(false),
        hook_times: settings.hook_time_format.unwrap_or_default().into(),
        max_body_size: settings.max_body_size.unwrap_or(1 << 20),
        max_upload_size: settings.max_upload_size.unwrap_or(10 << 20),
        max_artifact_size: settings.max_artifact_size.unwrap_or(100 << 20),
        max_push_size: Some(settings.max_push_size.unwrap_or(10 << 30)).filter(|size| *size > 0),
        cache_size: settings.cache_size.unwrap_or(2 << 30),
        sign_ins_per_minute: NonZeroU32::new(settings.sign_ins_per_minute.unwrap_or(10)),
        default_projects_limit: check_limit(settings.default_projects_limit.unwrap_or(10))?,
        runner: settings.runner.unwrap_or(0),
        unheard_job: Duration::from_secs(settings.unheard_job_seconds.map_or(120, |seconds| seconds.get().into())),
        log_format: settings.log_format.unwrap_or_default(),
        log: settings.log.unwrap_or_else(|| "info".into()),
    })
}

impl Settings {
    /// An empty text counts as not set, as a variable that a service manager left empty.
    fn without_empty(mut self) -> Self {
        for path in [&mut self.config, &mut self.data] {
            path.take_if(|path| path.as_os_str().is_empty());
        }
        let addresses = [&mut self.database, &mut self.listen, &mut self.ssh_listen, &mut self.external_url];
        for text in addresses.into_iter().chain([&mut self.dialect, &mut self.log]) {
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
            sign_ins_per_minute: self.sign_ins_per_minute.or(other.sign_ins_per_minute),
            default_projects_limit: self.default_projects_limit.or(other.default_projects_limit),
            runner: self.runner.or(other.runner),
            unheard_job_seconds: self.unheard_job_seconds.or(other.unheard_job_seconds),
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
        format!("line {line} of the configuration file {}: {message}", path.display())
    })
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| format!("cannot listen on {text}: it is not of the form HOST:PORT, such as 127.0.0.1:8080"))
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
        let config = load(flags.or(file)).expect("loaded");
        assert_eq!(config.listen.to_string(), "127.0.0.1:1");
        assert_eq!(config.data, Path::new("/srv/gable"));
        assert_eq!(config.dialect, Dialect::Gitlab);
        assert_eq!(config.max_body_size, 1_048_576);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = file("data = \"x\"\ndatabse = \"postgres://ann:s3cret@host/db\"\n").expect_err("refused");
        assert!(
            error.starts_with("line 2 of the configuration file FILE: unknown field `databse`, expected one of `data`"),
            "{error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
        let error = file("max-body-size = \"big\"").expect_err("refused");
        assert_eq!(error, "line 1 of the configuration file FILE: invalid type: string \"big\", expected usize");
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
        let config = load(settings).expect("loaded");
        assert_eq!((config.database, config.external_url, config.dialect), (None, None, Dialect::Spec));
        assert_eq!(config.data, Path::new("./gable-data"));
    }

    #[test]
    fn bad_values_are_told_in_a_sentence() {
        let refused = |settings: Settings| load(settings).err().expect("refused");
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
    }
}
