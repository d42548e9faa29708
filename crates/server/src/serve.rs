//! `gable serve`: puts everything together and runs it.

use std::{
    io::{ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    os::unix::fs::DirBuilderExt as _,
    sync::Arc,
    thread::available_parallelism,
    time::Duration,
};

use api::{AccessLog, App, AppOptions, CourierDoor, Door, GitDoor, Guards};
use forge::{
    Forge, InstanceKey, Options, artifacts,
    clock::{SystemClock, SystemSecrets},
    disk_space::Room,
    first_start::{self, FirstAdmin, Wishes},
    passwords::PasswordCost,
    pushes, traces, uploads,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use model::{Site, tokens::Secret};
use sd_notify::NotifyState;
use socket2::SockRef;
use store::Database;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};
use tracing::{error, info, warn};
use tracing_subscriber::{EnvFilter, fmt};
use webhooks::{Clerk, Client, TimeFormat, rounds};
use wire::{
    Limits, Transfers,
    http::GitHttp,
    ssh::host_key::{self, HostKey},
};

use crate::{
    Outcome,
    access_lines::access_log,
    backup,
    config::{Backups, Config, LogFormat},
    data_folder::DataFolder,
    instance::{self, Bound},
    listener,
    log_writer::LogWriter,
    migrate, operations, permissions, runner, suggestions,
    tls::{self, Certificate, Redirect},
    worker,
};

/// How many threads wait for the disk at most; each takes 2 MB of the address space.
const BLOCKING_THREADS: usize = 48;

/// How long threads that wait for the disk or for git may take after everything else has ended. What they leave unfinished
/// is what a crash leaves, and the next start deals with it.
const THREADS_GRACE: Duration = Duration::from_secs(2);

/// Runs the service until a signal ends it.
pub(crate) fn run(config: Config) -> Outcome {
    let log = start_logging(&config.log, config.log_format)?;
    for sentence in suggestions::unknown_variables() {
        warn!("{sentence}");
    }
    let outcome = prepare_and_serve(config, &log);
    log.flush();
    outcome
}

fn prepare_and_serve(config: Config, log: &LogWriter) -> Outcome {
    let wishes = read_wishes()?;
    let folder = DataFolder::open(&config.data)?;
    permissions::check(folder.path())?;
    let turn = folder.take_turn()?;
    let Some(_lock) = folder.lock()? else {
        return Err(format!("another gable serves the data folder {}; stop it first", folder.path().display()));
    };
    let database = folder.database(config.database.as_deref())?;
    // Before anything is written to either.
    instance::check(folder.path(), &database)?;
    folder.make_database_file(&database)?;
    migrate::bring_up_to_date(&folder, &database)?;
    git::check_version()?;
    let (bound, key) = instance::bind(&folder, &database)?;
    let use_of = Use::Serve {
        cache_size: config.cache_size,
        min_free_disk: config.min_free_disk,
        allow_local_network: config.allow_local_network,
        max_push_size: config.max_push_size,
    };
    let options = forge_options(&folder, database, key, config.default_projects_limit, use_of)?;
    drop(turn);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let access_log = access_log(log.clone(), config.log_format);
    let outcome = runtime.block_on(serve(config, &folder, (options, bound), wishes, access_log));
    runtime.shutdown_timeout(THREADS_GRACE);
    outcome
}

/// What a forge is put together for.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    /// To serve; the folder belongs to this process alone.
    Serve { cache_size: u64, min_free_disk: u64, allow_local_network: bool, max_push_size: Option<u64> },
    /// To do one thing, perhaps beside a server.
    Administer,
}

/// The threads of a forge that has the machine to itself.
pub(crate) fn forge_options(
    folder: &DataFolder,
    database: Database,
    instance_key: InstanceKey,
    default_projects_limit: i32,
    what_for: Use,
) -> Result<Options, String> {
    let cores = available_parallelism().map_or(2, usize::from);
    let (serving, cache_size, min_free_disk, allow_local_network, max_push_size) = match what_for {
        Use::Serve { cache_size, min_free_disk, allow_local_network, max_push_size } => {
            (true, cache_size, min_free_disk, allow_local_network, max_push_size)
        }
        Use::Administer => (false, 0, 0, false, None),
    };
    let room = Room::around(folder.path(), min_free_disk);
    Ok(Options {
        database,
        files: folder.files()?,
        logs: folder.logs()?,
        repositories: folder.repositories(serving)?,
        spools: folder.spools(serving, cache_size)?.mindful_of(room.clone()),
        room,
        allow_local_network,
        max_push_size,
        instance_key,
        readers: 2 * cores,
        blocking: 2 * cores,
        clock: Arc::new(SystemClock),
        secrets: Arc::new(SystemSecrets),
        password_cost: PasswordCost::real(),
        default_projects_limit,
        payload_renderer: Arc::new(Clerk::new(Site::new("http://localhost", None), TimeFormat::Original)),
    })
}

/// Tells the operator that everything is ready.
fn announce(config: &Config, folder: &DataFolder, secure: &Secure, address: SocketAddr, ssh: Option<&Ssh>) {
    info!(
        data = %folder.path().display(),
        dialect = %config.dialect,
        allow_local_network = config.allow_local_network,
        listen = secure.listens_on(),
        external_url = config.external_url.as_deref().unwrap_or("as each request says"),
        "gable {} is ready", env!("CARGO_PKG_VERSION")
    );
    if config.external_url.is_none() && address.ip().is_unspecified() {
        warn!(
            "webhooks and other links that belong to no request say {}, which only this machine can reach; set \
             external-url to the URL that clients use",
            secure.url()
        );
    }
    let also = ssh.map(|ssh| format!(" and ssh://git@{}", ssh.listens_on)).unwrap_or_default();
    say(&format!("gable ready on {}{also}", secure.listens_on()));
    // Whoever is not started by systemd has nobody to tell, and that is no error.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

async fn serve(
    mut config: Config,
    folder: &DataFolder,
    (options, bound): (Options, Bound),
    wishes: Wishes,
    access_log: AccessLog,
) -> Outcome {
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|error| cannot_listen("listen", address, &error))?;
    let address = listener.local_addr().map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let metrics = collect_metrics()?;
    let built_in = runner::prepare_inside(&mut config, folder.path()).await?;
    let ssh = match config.ssh_listen {
        Some(address) => Some(listen_for_ssh(address, folder).await?),
        None => None,
    };
    let ssh_port = ssh.as_ref().map(|ssh| ssh.address.port());
    let described = describe_address(&listener, address);
    let secure = Secure::prepare(&config, address, described, built_in.is_some()).await?;
    let root = config.external_url.clone().unwrap_or_else(|| secure.url());
    let options =
        Options { payload_renderer: Arc::new(Clerk::new(Site::new(root, ssh_port), config.hook_times)), ..options };
    let spools = options.spools.clone();
    let ground = backup::ground(folder.path().to_owned(), options.database.clone(), options.repositories.clone());
    let forge = Forge::start(options).map_err(|error| error.to_string())?;
    let limits = Limits { pack: config.max_push_size, ..Limits::default() };
    let transfers = Transfers::new(forge.clone(), spools, limits);
    greet_first_admin(&forge, folder, wishes).await?;
    uploads::sweep_at_start(&forge).await.map_err(|error| format!("cannot remove unfinished uploads: {error}"))?;
    artifacts::sweep_at_start(&forge).await.map_err(|error| format!("cannot remove unfinished artifacts: {error}"))?;
    pushes::settle_all(&forge).await.map_err(|error| format!("cannot settle unfinished pushes: {error}"))?;
    forge::stale_jobs::set_first_word(&forge, config.unheard_job);
    let client = Client::new().map_err(|error| format!("cannot prepare to tell hooks: {error}"))?;
    let app = App::new(AppOptions {
        forge: forge.clone(),
        dialect: config.dialect,
        external_url: config.external_url.clone(),
        body_limit: config.max_body_size,
        upload_limit: config.max_upload_size,
        artifact_limit: config.max_artifact_size,
        sign_ins_per_minute: config.sign_ins_per_minute,
        guards: guards(&config),
        ssh_port,
        git: Some(git_door(GitHttp::new(transfers.clone(), config.sign_ins_per_minute))),
        courier: Some(courier_door(client.clone())),
        access_log,
    });
    let door = Door::new(&app, operations::routes(forge.clone(), metrics));
    forge::tasks::take_up(&forge).await.map_err(|error| format!("cannot take up unfinished jobs: {error}"))?;
    forge::deliveries::take_up(&forge).await.map_err(|error| format!("cannot take up unfinished messages: {error}"))?;
    let (stop_worker, stopped) = watch::channel(false);
    let database = bound.database().clone();
    let courier = tokio::spawn(keep_telling(forge.clone(), client, stopped.clone()));
    let worker = worker::start(forge.clone(), stopped.clone());
    let advancing = bound.keep_advancing(stopped.clone());
    config.backups.as_ref().map_or(Ok(()), make_backup_folder)?;
    let backups = config.backups.clone().map(|backups| backup::schedule::start(backups, ground, stopped.clone()));
    permissions::warn_of_open(folder.path());
    // Before anybody is told that it is ready: a signal from then on lets requests finish.
    let stop = stop_signal()?;
    let hangups = tls::hangups()?;
    announce(&config, folder, &secure, address, ssh.as_ref());
    let (inside, listening) = (secure.inside_address(), secure.options.clone());
    let beside = secure.spawn(&door, hangups, &stopped);
    let ssh = ssh.map(|Ssh { listener, host_key, .. }| {
        let mut stopped = stopped;
        let stop = async move { drop(stopped.wait_for(|stop| *stop).await) };
        tokio::spawn(wire::ssh::serve(listener, host_key, transfers, ssh_options(&config), stop))
    });
    let (stop_runner, runner_stopped) = watch::channel(false);
    let external_url = config.external_url.clone();
    let built_in = built_in.map(|built_in| {
        let (own, name) = (forge.clone(), own_name(folder));
        let own_token = async move {
            let token = forge::runners::own_token(&own, name).await;
            token.map(|token| token.reveal().to_owned()).map_err(|error| error.to_string())
        };
        tokio::spawn(runner::run_inside(built_in, inside, external_url, own_token, runner_stopped))
    });
    let stop = async {
        stop.await;
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        // Jobs of its own still have to tell the server how they end, so it goes on for as long as they may take.
        let _ = stop_runner.send(true);
        if let Some(built_in) = built_in {
            let _ = built_in.await;
        }
        // Whoever follows a trace or waits for a job would keep a connection for long.
        traces::close(&forge);
        forge::assignments::stop_waiting(&forge);
        let _ = stop_worker.send(true);
    };
    listener::serve(listener, door, listening, stop).await;
    for listener in beside {
        let _ = listener.await;
    }
    if let Some(ssh) = ssh {
        let _ = ssh.await;
    }
    let _ = tokio::join!(worker, courier, advancing);
    if let Some(backups) = backups {
        let _ = backups.await;
    }
    // What would be left beside the file of the database belongs to this very file, and would spoil another one.
    if let Err(error) = database.write_back() {
        warn!(%error, "the database is not all in one file");
    }
    info!("stopped");
    Ok(())
}

/// How the interface is kept usable for everybody.
fn guards(config: &Config) -> Guards {
    Guards {
        requests_per_minute: config.requests_per_minute,
        anonymous_requests_per_minute: config.anonymous_requests_per_minute,
        trusted_proxies: config.trusted_proxies.clone(),
        hsts_seconds: config.hsts_seconds,
        ..Guards::default()
    }
}

/// How SSH is served.
fn ssh_options(config: &Config) -> wire::ssh::Options {
    wire::ssh::Options {
        connections_per_minute: config.anonymous_requests_per_minute,
        failures_per_minute: config.sign_ins_per_minute.map(|count| count.saturating_mul(SSH_PATIENCE)),
        ..wire::ssh::Options::default()
    }
}

/// How often as many SSH connections as passwords may fail: a client offers several keys before the right one.
const SSH_PATIENCE: NonZeroU32 = NonZeroU32::new(3).expect("not zero");

/// How connections are served, and who else listens beside the main door.
struct Secure {
    /// Where the main door is.
    address: SocketAddr,
    /// The same, as the operator reads it.
    described: String,
    certificate: Option<Arc<Certificate>>,
    options: listener::Options,
    /// For those who come without TLS.
    redirect: Option<(TcpListener, Redirect)>,
    /// For the runner inside this very process, which has no use for a certificate that names others.
    inside: Option<TcpListener>,
}

impl Secure {
    async fn prepare(
        config: &Config,
        address: SocketAddr,
        described: String,
        has_runner: bool,
    ) -> Result<Self, String> {
        let certificate = config.tls.clone().map(Certificate::load).transpose()?;
        let options = listener::Options {
            patience: config.client_timeout,
            per_address: config.connections_per_address,
            trusted_proxies: config.trusted_proxies.clone(),
            tls: certificate.as_ref().map(Certificate::acceptor).transpose()?,
        };
        let listen = async |address: SocketAddr| {
            TcpListener::bind(address).await.map_err(|error| cannot_listen("redirect-listen", address, &error))
        };
        let redirect = match config.redirect_listen {
            None => None,
            Some(from) => {
                let external_url = config.external_url.as_deref().map(Into::into);
                let listener = listen(from).await?;
                if let Ok(from) = listener.local_addr() {
                    let from = describe_address(&listener, from);
                    info!(address = from, "sends those who come without TLS to where it is spoken");
                }
                Some((listener, Redirect { external_url, secure: reachable(address) }))
            }
        };
        let needed = options.tls.is_some() && has_runner;
        let inside = if needed { Some(listen((Ipv4Addr::LOCALHOST, 0).into()).await?) } else { None };
        Ok(Self { address, described, certificate, options, redirect, inside })
    }

    /// Where clients on this machine reach the main door.
    fn url(&self) -> String {
        format!("{}://{}", self.scheme(), reachable(self.address))
    }

    /// Where the server listens, for the operator: all addresses are told as such.
    fn listens_on(&self) -> String {
        format!("{}://{}", self.scheme(), self.described)
    }

    fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https" } else { "http" }
    }

    /// Where the runner inside this process does.
    fn inside_address(&self) -> SocketAddr {
        let inside = self.inside.as_ref().and_then(|inside| inside.local_addr().ok());
        inside.unwrap_or_else(|| reachable(self.address))
    }

    /// Listens beside the main door, and keeps the certificate fresh.
    fn spawn(self, door: &Door, hangups: Signal, stopped: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
        let plain = listener::Options { tls: None, ..self.options };
        let stop = || {
            let mut stopped = stopped.clone();
            async move { drop(stopped.wait_for(|stop| *stop).await) }
        };
        let fresh = match self.certificate {
            Some(certificate) => tokio::spawn(certificate.keep_fresh(hangups, stopped.clone())),
            None => tokio::spawn(tls::ignore_hangups(hangups, stopped.clone())),
        };
        let redirect = self
            .redirect
            .map(|(listener, redirect)| tokio::spawn(listener::serve(listener, redirect, plain.clone(), stop())));
        let inside = self.inside.map(|inside| tokio::spawn(listener::serve(inside, door.clone(), plain, stop())));
        [Some(fresh), redirect, inside].into_iter().flatten().collect()
    }
}

/// Whoever asked for backups shall not find out later that there are none.
fn make_backup_folder(backups: &Backups) -> Outcome {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&backups.folder);
    made.map_err(|error| format!("cannot use the backup folder {}: {error}", backups.folder.display()))
}

/// What tells this server from others on the same database, for as long as it lives here.
fn own_name(folder: &DataFolder) -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    format!("of {} at {}", folder.path().display(), host.trim())
}

/// The second listener, ready to take connections.
struct Ssh {
    listener: TcpListener,
    address: SocketAddr,
    /// The address, as the operator reads it.
    listens_on: String,
    host_key: HostKey,
}

async fn listen_for_ssh(address: SocketAddr, folder: &DataFolder) -> Result<Ssh, String> {
    let failed = |error: std::io::Error| cannot_listen("ssh-listen", address, &error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let path = folder.path().join("ssh-host-key");
    let host_key = host_key::load_or_make(&path)
        .map_err(|error| format!("cannot use the SSH host key {}: {error}", path.display()))?;
    info!(fingerprint = host_key.fingerprint(), "the SSH host key");
    let listens_on = describe_address(&listener, address);
    Ok(Ssh { listener, address, listens_on, host_key })
}

/// Brings messages to hooks until told to stop, whatever happens to whoever does.
async fn keep_telling(forge: Forge, client: Client, stopped: watch::Receiver<bool>) {
    loop {
        let rounds = rounds::run(forge.clone(), client.clone(), rounds::Limits::default(), stopped.clone());
        match tokio::spawn(rounds).await {
            Ok(()) => return,
            Err(error) => error!(%error, "whoever tells hooks has died; another one goes on"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Err(error) = forge::deliveries::take_up(&forge).await {
            error!(%error, "cannot take up unfinished messages; they wait for a minute");
        }
    }
}

/// Who brings what is to be told at once.
fn courier_door(client: Client) -> CourierDoor {
    Arc::new(move |address, letter| {
        let client = client.clone();
        Box::pin(async move { client.send(&address, &letter).await })
    })
}

/// Who answers the requests of git.
fn git_door(git: GitHttp) -> GitDoor {
    let git = Arc::new(git);
    Arc::new(move |request: axum::extract::Request| {
        if !git.serves(request.uri()) {
            return Err(Box::new(request));
        }
        let git = Arc::clone(&git);
        Ok(Box::pin(async move { git.answer(request).await }))
    })
}

fn collect_metrics() -> Result<PrometheusHandle, String> {
    let seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    let writes = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    PrometheusBuilder::new()
        .set_buckets(&seconds)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Full("gable_write_group_size".into()), &writes))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| format!("cannot collect metrics: {error}"))
}

/// Creates the first administrator, and tells the operator how to come in.
async fn greet_first_admin(forge: &Forge, folder: &DataFolder, wishes: Wishes) -> Outcome {
    let failed = |error: forge::Error| format!("cannot create the first administrator: {error}");
    let Some(admin) = first_start::plan(forge, wishes).await.map_err(failed)? else { return Ok(()) };
    let lines = describe(&admin);
    // First the file, then the user: a crash in between leaves a file that the next start writes anew.
    let file = if lines.is_empty() {
        None
    } else {
        Some(folder.write_secret("root-credentials", &format!("username: {}\n{lines}", admin.username))?)
    };
    let username = admin.username;
    if !first_start::create(forge, admin).await.map_err(failed)? {
        // Another node was faster; these credentials open nothing.
        if let Some(file) = file {
            std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
        }
        if first_start::plan(forge, Wishes::default()).await.map_err(failed)?.is_some() {
            warn!(
                "there is no administrator, and {username} is somebody else; `gable admin user create --admin` makes one"
            );
        }
        return Ok(());
    }
    if let Some(file) = file {
        say(&format!(
            "The administrator {username} was created. These lines are shown once; they are also in {}",
            file.display()
        ));
        say(lines.trim_end());
    }
    Ok(())
}

/// What was made here and therefore has to be told.
fn describe(admin: &FirstAdmin) -> String {
    let mut lines = String::new();
    if admin.made_password {
        lines += &format!("password: {}\n", admin.password.reveal());
    }
    if admin.made_token {
        lines += &format!("token: {}\n", admin.token.reveal());
        if let Some(end) = admin.token_expires_at {
            lines += &format!("token expires: {}\n", end.strftime("%Y-%m-%d"));
        }
    }
    lines
}

fn read_wishes() -> Result<Wishes, String> {
    let read = |name: &str| match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(Secret::new(value))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not valid UTF-8")),
    };
    Ok(Wishes { password: read("GABLE_ROOT_PASSWORD")?, token: read("GABLE_ROOT_TOKEN")? })
}

/// Ends on SIGTERM or Ctrl-C; a second signal does not wait.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>, String> {
    let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
            std::process::exit(130);
        });
    })
}

/// Lets log lines through that pass the filter.
pub(crate) fn start_logging(filter: &str, format: LogFormat) -> Result<LogWriter, String> {
    let filter =
        EnvFilter::try_new(filter).map_err(|error| format!("the log filter {filter} cannot be understood: {error}"))?;
    let writer = LogWriter::start();
    let builder = fmt().with_env_filter(filter).with_writer(writer.clone());
    match format {
        LogFormat::Human => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
    Ok(writer)
}

/// Why nobody can connect to an address, and what to do about it.
fn cannot_listen(setting: &str, address: SocketAddr, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => format!("; stop what uses it, or choose another with --{setting}"),
        ErrorKind::PermissionDenied => {
            format!("; ports below 1024 take CAP_NET_BIND_SERVICE, or choose another with --{setting}")
        }
        ErrorKind::AddrNotAvailable => format!("; this machine does not have it, choose another with --{setting}"),
        _ => String::new(),
    };
    format!("cannot listen on {address}: {error}{advice}")
}

/// The address of a listener, and what it stands for if it is no address of a machine.
fn describe_address(listener: &TcpListener, address: SocketAddr) -> String {
    if !address.ip().is_unspecified() {
        return address.to_string();
    }
    let which = match (address.is_ipv4(), SockRef::from(listener).only_v6()) {
        (true, _) => "all IPv4 addresses",
        (false, Ok(true)) => "all IPv6 addresses",
        (false, _) => "all addresses",
    };
    format!("{address} ({which})")
}

/// An address that can be typed into a client: a wildcard stands for this machine.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let loopback = if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(loopback, address.port())
}

/// Says something to the operator; a closed standard output is no reason to stop.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
}
