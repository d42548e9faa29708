//! PostgreSQL connections, with or without TLS.
//!
//! A connection is tokio-postgres behind Diesel, driven by a single-threaded runtime of the calling thread. So no libpq
//! and no OpenSSL are needed to build, and TLS is rustls as everywhere else.

use std::{
    cell::OnceCell,
    io,
    path::PathBuf,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use diesel_async::{
    AsyncPgConnection,
    async_connection_wrapper::{AsyncConnectionWrapper, BlockOn},
};
use rustls::ClientConfig;
use tls::Roots;
use tokio::runtime::Runtime;
use tokio_postgres::{
    Socket,
    config::{Host, SslMode},
    error::SqlState,
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::OpenError;

/// A blocking connection; it stays on the thread that opened it.
pub(crate) type PgConnection = AsyncConnectionWrapper<AsyncPgConnection, ThreadRuntime>;

/// The part of a connection that reads and writes its socket.
pub(crate) type ClientConnection =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The port if the URL names none.
const DEFAULT_PORT: u16 = 5432;

/// Settings for statements that read whole tables and for which no request waits, instead of those of [`Target::connect`].
pub(crate) const WHOLE_TABLE_SETTINGS: &str =
    "SET statement_timeout = 0; SET enable_seqscan = 'on'; SET plan_cache_mode = 'auto'";

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
}

/// The Tokio runtime of the calling thread.
pub struct ThreadRuntime;

impl BlockOn for ThreadRuntime {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        RUNTIME.with(|runtime| {
            runtime
                .get_or_init(|| {
                    tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .expect("a thread can have a runtime of its own")
                })
                .block_on(future)
        })
    }

    fn get_runtime() -> Self {
        Self
    }
}

/// How long a server may take; a URL may set other times.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    /// The time to connect to one host (`connect_timeout`).
    connect: Duration,
    /// The time after which a connection is closed if the server acknowledges nothing (`tcp_user_timeout`).
    acknowledge: Duration,
}

/// The times of the primary.
const PRIMARY_TIMEOUTS: Timeouts = Timeouts { connect: Duration::from_secs(3), acknowledge: Duration::from_secs(6) };
/// The times of a standby, which the primary can replace.
pub(crate) const STANDBY_TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(2), acknowledge: Duration::from_secs(2) };
/// The time without traffic after which the server is probed, and the interval between two probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
/// The default of tokio-postgres, which a URL may change.
const DEFAULT_KEEPALIVE_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
/// How long a failed attempt is taken for the answer to others, so that requests do not wait for attempts one after the
/// other while the server is unreachable.
const FAILURE_PERIOD: Duration = Duration::from_millis(250);

/// The servers and the database of a URL, with its TLS configuration.
#[derive(Clone)]
pub(crate) struct Target {
    config: tokio_postgres::Config,
    tls: Arc<ClientConfig>,
    /// When the last attempt to connect failed, and why.
    last_failure: Arc<Mutex<Option<(Instant, String)>>>,
}

impl Target {
    /// Parses a `postgres://` URL, with `sslmode` and `sslrootcert` as in libpq. It may list several hosts, which are tried
    /// in turn; `target_session_attrs=read-write` skips standbys.
    pub(crate) fn parse(text: &str) -> Result<Self, OpenError> {
        Self::parse_with(text, PRIMARY_TIMEOUTS)
    }

    /// As [`Self::parse`], with other default timeouts.
    pub(crate) fn parse_with(text: &str, timeouts: Timeouts) -> Result<Self, OpenError> {
        let unreadable =
            || OpenError::new("the database URL is not of the form postgres://user:password@host:port/name");
        if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err(unreadable());
        }
        // Not parsed as a URL, because lists of hosts with ports are none.
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut ssl_mode = "prefer".to_owned();
        let mut root_certificate = None;
        let mut other_parameters = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let decoded = url::form_urlencoded::parse(parameter.as_bytes()).next();
            match decoded.as_ref().map(|(name, value)| (&**name, value)) {
                Some(("sslmode", value)) => ssl_mode = value.to_string(),
                Some(("sslrootcert", value)) => root_certificate = Some(PathBuf::from(&**value)),
                _ => other_parameters.push(parameter),
            }
        }
        let url = if other_parameters.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", other_parameters.join("&"))
        };
        let mut config = tokio_postgres::Config::from_str(&url).map_err(|_| unreadable())?;
        config.application_name("gable");
        // Without these, a thread would wait for a server that silently disappeared.
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(timeouts.acknowledge);
        }
        if config.get_keepalives_idle() == DEFAULT_KEEPALIVE_IDLE {
            config.keepalives_idle(KEEPALIVE_IDLE);
            config.keepalives_interval(KEEPALIVE_INTERVAL);
            config.keepalives_retries(KEEPALIVE_RETRIES);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(timeouts.connect);
        }
        let (mode, verify) = match ssl_mode.as_str() {
            "disable" => (SslMode::Disable, false),
            "allow" | "prefer" => (SslMode::Prefer, root_certificate.is_some()),
            "require" => (SslMode::Require, root_certificate.is_some()),
            "verify-ca" | "verify-full" => (SslMode::Require, true),
            other => {
                return Err(OpenError::new(format!(
                    "sslmode {other} of the database URL is unknown; use disable, prefer, require or verify-full"
                )));
            }
        };
        config.ssl_mode(mode);
        Ok(Self { config, tls: Arc::new(tls(verify, root_certificate)?), last_failure: Arc::default() })
    }

    /// Connects for writing; a commit is on the server's disk before it returns.
    pub(crate) fn connect_writer(&self) -> Result<PgConnection, OpenError> {
        self.connect(
            // The server has to notice soon that a node is cut off: its transactions may hold locks, and those that wait for a
            // lock would hold it next. While one waits, PostgreSQL looks at the connection only if
            // `client_connection_check_interval` is set, which needs version 14 and an operating system that reports
            // closed connections.
            "SET synchronous_commit = 'on'; SET lock_timeout = '30s'; SET statement_timeout = '60s'; \
             SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 2; \
             SET tcp_user_timeout = '4s'; \
             DO $$BEGIN PERFORM set_config('client_connection_check_interval', '1s', false); \
             EXCEPTION WHEN undefined_object OR invalid_parameter_value THEN NULL; END$$",
        )
    }

    /// Connects for reading; the session cannot write.
    pub(crate) fn connect_reader(&self) -> Result<PgConnection, OpenError> {
        self.connect("SET default_transaction_read_only = 'on'; SET statement_timeout = '60s'")
    }

    fn connect(&self, setup: &str) -> Result<PgConnection, OpenError> {
        // Statements are prepared once and run often, and planning costs more than most of them do. They fetch few rows by
        // index, mostly from memory, so random access is cheap and JIT compilation never pays off. A plan stays until the
        // statistics change, so one that reads a whole table because it was empty, or because most rows are those of one
        // project, would be used long after.
        let setup = format!(
            "SET plan_cache_mode = 'force_generic_plan'; SET enable_seqscan = 'off'; SET jit = 'off'; \
             SET random_page_cost = 1.1; {setup}"
        );
        if let Some(reason) = self.recent_failure() {
            return Err(OpenError::new(reason));
        }
        let server = self.description();
        let connection = ThreadRuntime.block_on(async {
            let (client, connection) = self.connect_client().await?;
            let connection = AsyncPgConnection::try_from_client_and_connection(client, connection);
            connection
                .await
                .map_err(|error| OpenError::new(format!("cannot connect to PostgreSQL at {server}: {error}")))
        });
        let mut connection: PgConnection = connection?.into();
        diesel::connection::SimpleConnection::batch_execute(&mut connection, &setup).map_err(|error| {
            OpenError::new(format!("cannot set up the connection to PostgreSQL at {server}: {error}"))
        })?;
        Ok(connection)
    }

    /// Connects without Diesel. The connection has to be polled by the caller.
    pub(crate) async fn connect_client(&self) -> Result<(tokio_postgres::Client, ClientConnection), OpenError> {
        let tls = MakeRustlsConnect::new((*self.tls).clone());
        let hosts = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        let per_host = self.config.get_connect_timeout().copied().unwrap_or(PRIMARY_TIMEOUTS.connect);
        // The timeout of the library does not include the handshake.
        let connected = tokio::time::timeout(per_host.saturating_mul(hosts + 1), self.config.connect(tls)).await;
        let reason = match connected {
            Ok(Ok(connected)) => {
                *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
                return Ok(connected);
            }
            Ok(Err(error)) => {
                let advice = self.advice(&error).map(|advice| format!("; {advice}")).unwrap_or_default();
                format!("{}{advice}", with_causes(&error))
            }
            Err(_) => "the server accepts connections, but does not respond in time".to_owned(),
        };
        let reason = format!("cannot connect to PostgreSQL at {}: {reason}", self.description());
        let failure = Some((Instant::now(), reason.clone()));
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        Err(OpenError::new(reason))
    }

    /// Returns why the last attempt to connect failed, if that was a moment ago.
    fn recent_failure(&self) -> Option<String> {
        let last_failure = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        last_failure.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_PERIOD).map(|(_, reason)| reason.clone())
    }

    /// Returns server, database and user for messages, never the password.
    fn description(&self) -> String {
        let ports = self.config.get_ports();
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(at, host)| {
                // A single port applies to all hosts.
                let port = ports.get(at).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
                match host {
                    Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                    Host::Tcp(name) => format!("{name}:{port}"),
                    Host::Unix(folder) => folder.join(format!(".s.PGSQL.{port}")).display().to_string(),
                }
            })
            .collect();
        let hosts = if hosts.is_empty() { "an unnamed host".to_owned() } else { hosts.join(" or ") };
        format!("{hosts} (database {}, user {})", self.database(), self.user())
    }

    fn user(&self) -> String {
        self.config.get_user().map_or_else(|| "of this process".to_owned(), ToOwned::to_owned)
    }

    /// Returns the name of the database; without one in the URL, the server uses the name of the user.
    fn database(&self) -> String {
        self.config.get_dbname().or(self.config.get_user()).unwrap_or("of the user").to_owned()
    }

    /// Returns what the operator can do about a failed connection.
    fn advice(&self, error: &tokio_postgres::Error) -> Option<String> {
        let (user, database) = (self.user(), self.database());
        if let Some(code) = error.code() {
            let advice = match *code {
                SqlState::INVALID_PASSWORD => format!("check the password of user {user} in the database URL"),
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                    format!("check that the role {user} exists and that pg_hba.conf lets it in from here")
                }
                SqlState::INVALID_CATALOG_NAME => format!("create it with `createdb --owner {user} {database}`"),
                SqlState::INSUFFICIENT_PRIVILEGE => {
                    format!("grant the right with `GRANT CONNECT ON DATABASE {database} TO {user}`")
                }
                SqlState::TOO_MANY_CONNECTIONS => {
                    "raise max_connections of PostgreSQL, or close connections of other clients".to_owned()
                }
                SqlState::CANNOT_CONNECT_NOW => "the server is starting or stopping; try again in a moment".to_owned(),
                _ => return None,
            };
            return Some(advice);
        }
        let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
        let io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind).next();
        let text = with_causes(error);
        let advice = match io {
            _ if text.contains("invalid peer certificate") || text.contains("UnknownIssuer") => {
                "set sslrootcert in the database URL to the certificate of the authority, or use a host name of the certificate"
            }
            _ if text.contains("server does not support TLS") => {
                "turn TLS on in PostgreSQL (ssl = on), or use sslmode=prefer in the database URL"
            }
            _ if text.contains("password missing") => "give a password in the database URL",
            _ if text.contains("failed to lookup address") => "check the name of the host in the database URL",
            Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                "check that the server runs and listens there (listen_addresses, port)"
            }
            Some(io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                "check the host and the port in the database URL, and firewalls in between"
            }
            _ => return None,
        };
        Some(advice.to_owned())
    }
}

/// Returns the error with its causes, which tokio-postgres only exposes as sources.
fn with_causes(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Returns the TLS configuration; as in libpq, `prefer` and `require` accept any certificate.
fn tls(verify: bool, root_certificate: Option<PathBuf>) -> Result<ClientConfig, OpenError> {
    let config = match (verify, root_certificate) {
        (false, _) => tls::unauthenticated_client(),
        (true, Some(path)) => Roots::from_file(&path).and_then(tls::verified_client),
        (true, None) => tls::verified_client(Roots::system().0),
    };
    config.map_err(OpenError::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_described_by_host_database_and_user_and_never_by_its_password() {
        let check = |url: &str, expected: &str| assert_eq!(Target::parse(url).expect(url).description(), expected);
        check("postgres://ann:s3cret@db.example.org/gable", "db.example.org:5432 (database gable, user ann)");
        check("postgres://ann:s3cret@127.0.0.1:1/gable", "127.0.0.1:1 (database gable, user ann)");
        check("postgres://ann:s3cret@[::1]:7/", "[::1]:7 (database ann, user ann)");
        check(
            "postgres:///gable?host=/run/postgresql&port=5433&user=ann",
            "/run/postgresql/.s.PGSQL.5433 (database gable, user ann)",
        );
        check(
            "postgres://ann:s3cret@one:5433,two:5434/gable?target_session_attrs=read-write&sslmode=disable",
            "one:5433 or two:5434 (database gable, user ann)",
        );
        check("postgres://ann@one,two/gable", "one:5432 or two:5432 (database gable, user ann)");
    }

    #[test]
    fn an_invalid_url_is_refused_without_revealing_its_password() {
        for text in ["nonsense", "postgres://ann:s3cret@host:notaport/db"] {
            let error = Target::parse(text).err().expect(text).to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        let error = Target::parse("postgres://ann:s3cret@host/db?sslmode=perhaps").err().expect("refused");
        assert_eq!(
            error.to_string(),
            "sslmode perhaps of the database URL is unknown; use disable, prefer, require or verify-full"
        );
        assert!(Target::parse("postgres:///db?host=/run/postgresql&sslmode=disable").is_ok());
    }
}
