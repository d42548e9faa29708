//! `gable serve`: assembles the server and runs it.

mod first_admin;
mod http_app;
mod listeners;
pub(crate) mod ssh_host_key;
mod task_worker;
mod workers;

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use api::{AccessLog, HttpService};
use forge::{
    Forge, Options, artifacts, avatars,
    first_start::FirstAdminOptions,
    job_queue, node_cache,
    nodes::NodeDescription,
    stale_jobs,
    storage_upgrade::{self, UpgradeReport},
    tasks, traces, uploads,
};
use model::Site;
use sd_notify::NotifyState;
use store::Database;
use tokio::{runtime, sync::watch};
use tracing::{info, warn};
use webhooks::{Client, JsonPayloadRenderer};
use wire::{TransferLimits, Transfers};

pub(crate) use self::listeners::loopback_if_unspecified;
use self::{listeners::Listeners, workers::Workers};
use crate::{
    access_lines::access_log,
    backup::BackupSource,
    config::Config,
    data_folder::{DataFolder, ServerLock},
    exit::print_line,
    forge_options::{ForgeMode, connections_of, forge_options},
    instance::{self, BindingUpdater},
    log_writer::LogWriter,
    logging, migrate, monitoring, permissions,
    runner::{self, BuiltInRunner},
    shared_instance,
    signals::stop_signal,
    suggestions, tls,
};

/// The maximum number of blocking threads; each reserves 2 MB of address space.
const MAX_BLOCKING_THREADS: usize = 48;

/// The time for blocking threads to finish after everything else has stopped. What they leave unfinished is recovered by the
/// next start, as after a crash.
const BLOCKING_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which the progress of converting repositories is logged.
const UPGRADE_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the server until a signal stops it.
pub(crate) fn run(config: Config) -> Result<()> {
    let log = logging::start(&config.log, config.log_format)?;
    for message in suggestions::unknown_variables() {
        warn!("{message}");
    }
    let outcome = open_and_serve(config, &log);
    log.flush();
    outcome
}

fn open_and_serve(config: Config, log: &LogWriter) -> Result<()> {
    let first_admin = first_admin::read_options()?;
    let (instance, _lock) = OpenInstance::open(&config)?;
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build()
        .context("cannot start")?;
    let access_log = access_log(log.clone(), config.log_format);
    let outcome = runtime.block_on(serve(config, instance, first_admin, access_log));
    runtime.shutdown_timeout(BLOCKING_SHUTDOWN_TIMEOUT);
    outcome
}

/// The data folder and the database of an instance, checked and migrated.
struct OpenInstance {
    folder: DataFolder,
    database: Database,
    options: Options,
    /// `None` if the nodes of the instance share a bucket.
    binding_updater: Option<BindingUpdater>,
    /// The mark of the database, which does not change while nodes that share a bucket use it.
    mark: Option<String>,
}

impl OpenInstance {
    /// Opens the instance; the lock keeps other servers from the data folder.
    fn open(config: &Config) -> Result<(Self, ServerLock)> {
        let folder = DataFolder::of(&config.location)?;
        permissions::check(folder.path())?;
        // Released at the end of this function.
        let _opening_lock = folder.lock_for_opening()?;
        let Some(lock) = folder.lock()? else {
            bail!("another gable server is using the data folder {}; stop it first", folder.path().display());
        };
        let database = folder.database(config.location.database.as_deref())?;
        // Before anything is written to the folder or the database.
        if folder.shared().is_some() {
            let files = folder.files()?;
            shared_instance::probe(&files)?;
            shared_instance::check(&files, &database)?;
        } else {
            instance::check(folder.path(), &database)?;
        }
        folder.create_database_file(&database)?;
        migrate::apply_pending(&folder, &database)?;
        git::check_version()?;
        let (binding_updater, mark, key) = if let Some(shared) = folder.shared() {
            let (mark, key) = shared_instance::bind(&folder.files()?, &database, shared)?;
            (None, Some(mark), key)
        } else {
            let (updater, key) = instance::bind(&folder, &database)?;
            (Some(updater), None, key)
        };
        let mode = ForgeMode::Serve {
            cache_size: config.cache_size,
            min_free_disk: config.min_free_disk,
            allow_local_network: config.allow_local_network,
            max_push_size: config.max_push_size,
            database_connections: config.database_connections,
        };
        let mut options = forge_options(&folder, database.clone(), key, config.default_projects_limit, mode)?;
        options.read_replica.clone_from(&config.read_replica);
        warn_about_connections(&database, connections_of(&options));
        Ok((Self { folder, database, options, binding_updater, mark }, lock))
    }
}

/// Logs a warning if PostgreSQL may refuse connections when all nodes are busy.
fn warn_about_connections(database: &Database, connections: usize) {
    let usage = match database.connection_usage() {
        Ok(Some(usage)) => usage,
        Ok(None) => return,
        Err(error) => {
            warn!(%error, "cannot find out how many connections PostgreSQL accepts");
            return;
        }
    };
    let needed = usize::try_from(usage.other_nodes + 1).unwrap_or(usize::MAX).saturating_mul(connections);
    if needed > usize::try_from(usage.max).unwrap_or(usize::MAX) {
        warn!(
            nodes = usage.other_nodes + 1,
            connections_per_node = connections,
            max_connections = usage.max,
            "PostgreSQL may refuse connections when all nodes are busy; increase max_connections of PostgreSQL, or reduce \
             database-connections"
        );
    }
}

/// Assembles the server, serves until a signal arrives, and shuts down in order: the built-in runner, the listeners, the
/// workers, the database.
async fn serve(
    mut config: Config,
    instance: OpenInstance,
    first_admin: FirstAdminOptions,
    access_log: AccessLog,
) -> Result<()> {
    let OpenInstance { folder, database, options, binding_updater, mark } = instance;
    let metrics = monitoring::install_recorder()?;
    let listeners = Listeners::bind(&config).await?;
    let runner = runner::prepare_built_in(&mut config, folder.path()).await?;

    let backup_source = BackupSource::new(folder.clone(), database.clone());
    let spools = options.spools.clone();
    let forge = start_forge(options, &config, &listeners)?;
    let host_key = match listeners.ssh_port() {
        Some(_) => Some(ssh_host_key::load(&forge, &folder, &database).await?),
        None => None,
    };
    first_admin::create(&forge, &folder, first_admin).await?;
    upgrade_repositories(&forge).await?;
    node_cache::clean_at_start(&forge).await.context("cannot clean the cache")?;
    recover(&forge).await?;
    stale_jobs::set_first_update_timeout(&forge, config.unheard_job);

    let limits = TransferLimits { max_pack_bytes: config.max_push_size, ..TransferLimits::default() };
    let transfers = Transfers::new(forge.clone(), spools, limits);
    let webhook_client = Client::new().context("cannot create the webhook client")?;
    let app = http_app::create(&config, &forge, &transfers, &webhook_client, listeners.ssh_port(), access_log);
    let service = HttpService::new(&app, monitoring::routes(forge.clone(), metrics));

    let (stop_workers, stopped) = watch::channel(false);
    let backups = config.backups.clone().map(|backups| (backups, backup_source));
    let node = describe_node(&listeners, mark);
    let cache_size = config.pack_cache_size;
    let mut workers =
        Workers::start(&forge, node, webhook_client, cache_size, binding_updater, backups, &stopped).await?;
    permissions::warn_about_exposed_paths(folder.path());

    // Before readiness is reported: from then on a signal must lead to a graceful shutdown.
    let (stop_signal, sighup) = (stop_signal()?, tls::sighup_signal()?);
    report_ready(&config, &folder, &listeners);
    let (internal_address, external_url, drain_timeout) =
        (listeners.internal_address(), config.external_url, config.drain_timeout);
    let runner = runner.map(|runner| BuiltInRunner::spawn(runner, &forge, &folder, internal_address, external_url));
    let stop = async {
        stop_signal.await;
        drain(&forge, drain_timeout).await;
        begin_shutdown(&forge, runner).await;
        let _ = stop_workers.send(true);
    };
    tokio::select! {
        () = listeners.serve(service, transfers, host_key, sighup, stopped, stop) => {}
        // Another server may be using the database with other files: requests in progress must not be finished.
        Ok(()) = &mut workers.database_moved => bail!(
            "the database was moved to another store or restored, or its instance key was replaced; start this node again with \
             the settings that the other nodes have now"
        ),
    }
    workers.join().await;
    // A write-ahead log left behind would corrupt another database file put in its place.
    if let Err(error) = database.checkpoint() {
        warn!(%error, "cannot move the write-ahead log into the database file");
    }
    info!("stopped");
    Ok(())
}

/// Starts the forge. Links in webhooks use the external URL, or else the address of the main listener.
fn start_forge(options: Options, config: &Config, listeners: &Listeners) -> Result<Forge> {
    let url = config.external_url.clone().unwrap_or_else(|| listeners.url());
    let site = Site::new(url, listeners.ssh_port()).with_external_ssh(config.external_ssh.clone());
    let payload_renderer = Arc::new(JsonPayloadRenderer::new(site, config.hook_times));
    Ok(Forge::start(Options { payload_renderer, ..options })?)
}

/// Converts the repositories of an earlier version. Those that cannot be converted do not keep the server from starting.
async fn upgrade_repositories(forge: &Forge) -> Result<()> {
    let (start, last_log) = (Instant::now(), Cell::new(Instant::now()));
    let log_progress = |done: usize, total: usize| {
        if last_log.get().elapsed() > UPGRADE_LOG_INTERVAL {
            info!(done, total, "converting repositories");
            last_log.set(Instant::now());
        }
    };
    let report = storage_upgrade::run(forge, log_progress).await.context("cannot convert the repositories")?;
    if report != UpgradeReport::default() {
        info!(
            repositories = report.converted,
            forks = report.copied_forks,
            completed_pushes = report.completed_pushes,
            discarded_pushes = report.discarded_pushes,
            failed = report.failed.len(),
            seconds = start.elapsed().as_secs(),
            "converted the repositories of an earlier version"
        );
    }
    Ok(())
}

/// Removes or completes what a crash has left unfinished.
async fn recover(forge: &Forge) -> Result<()> {
    uploads::sweep_at_start(forge).await.context("cannot remove unfinished uploads")?;
    avatars::sweep_at_start(forge).await.context("cannot remove unused avatars")?;
    artifacts::sweep_at_start(forge).await.context("cannot remove unfinished artifacts")?;
    traces::sweep_at_start(forge).await.context("cannot remove unused parts of traces")?;
    tasks::empty_trash(forge).await.context("cannot empty the trash of removed repositories")
}

/// Reports to the operator and to systemd that the server is ready.
fn report_ready(config: &Config, folder: &DataFolder, listeners: &Listeners) {
    info!(
        data = %folder.path().display(),
        dialect = %config.dialect,
        allow_local_network = config.allow_local_network,
        listen = listeners.display_url(),
        external_url = config.external_url.as_deref().unwrap_or("from each request"),
        "gable {} is ready", env!("CARGO_PKG_VERSION")
    );
    if config.external_url.is_none() && listeners.is_unspecified() {
        warn!(
            "links in webhooks point to {}, which only this machine can reach; set external-url to the URL that clients use",
            listeners.url()
        );
    }
    if config.external_ssh.is_some() && listeners.ssh_port().is_none() {
        warn!(
            "external-ssh-url is set, but this server does not listen for SSH; set ssh-listen, unless other nodes do"
        );
    }
    let also = listeners.display_ssh_address().map(|ssh| format!(" and ssh://git@{ssh}")).unwrap_or_default();
    print_line(&format!("gable ready on {}{also}", listeners.display_url()));
    // Fails without systemd, which is not an error.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Describes this node for the list of nodes.
fn describe_node(listeners: &Listeners, mark: Option<String>) -> NodeDescription {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let node = NodeDescription { name, version, addresses: listeners.addresses(), mark };
    metrics::gauge!("gable_node_info", "name" => node.name.clone(), "version" => node.version.clone()).set(1.0);
    node
}

/// Reports that this node is not ready, and gives load balancers the time to notice.
async fn drain(forge: &Forge, timeout: Duration) {
    forge.begin_draining();
    if !timeout.is_zero() {
        info!(seconds = timeout.as_secs(), "draining: still serving requests, but not ready for new ones");
        tokio::time::sleep(timeout).await;
    }
}

/// Stops what would delay the end of the listeners.
async fn begin_shutdown(forge: &Forge, runner: Option<BuiltInRunner>) {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    // The built-in runner still has to report the outcome of its jobs, so it is stopped before the server.
    if let Some(runner) = runner {
        runner.stop().await;
    }
    // Clients that follow a trace or wait for a job would keep their connections open.
    traces::close(forge);
    job_queue::stop_waiting(forge);
}
