//! `gable serve`: puts everything together and runs it.

use std::{io::Write as _, net::SocketAddr, sync::Arc, thread::available_parallelism};

use api::{AccessLog, App, AppOptions, Door};
use forge::{
    Forge, Options,
    clock::{SystemClock, SystemSecrets},
    first_start::{self, FirstAdmin, Wishes},
    passwords::PasswordCost,
    uploads,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use model::tokens::Secret;
use store::Database;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::{info, warn};
use tracing_subscriber::{EnvFilter, fmt};

use crate::{
    Outcome,
    access_lines::access_log,
    config::{Config, LogFormat},
    data_folder::DataFolder,
    listener,
    log_writer::LogWriter,
    operations, worker,
};

/// Runs the service until a signal ends it.
pub(crate) fn run(config: Config) -> Outcome {
    let log = start_logging(&config)?;
    let outcome = prepare_and_serve(config, &log);
    log.flush();
    outcome
}

fn prepare_and_serve(config: Config, log: &LogWriter) -> Outcome {
    let wishes = read_wishes()?;
    let folder = DataFolder::open(&config.data)?;
    let turn = folder.take_turn()?;
    let Some(_lock) = folder.lock()? else {
        return Err(format!("another gable serves the data folder {}; stop it first", folder.path().display()));
    };
    let database = folder.database(config.database.as_deref())?;
    database.migrate().map_err(|error| error.to_string())?;
    let options = forge_options(&folder, database, config.default_projects_limit)?;
    drop(turn);
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start: {error}"))?;
    let access_log = access_log(log.clone(), config.log_format);
    runtime.block_on(serve(config, &folder, options, wishes, access_log))
}

/// The threads of a forge that has the machine to itself.
pub(crate) fn forge_options(
    folder: &DataFolder,
    database: Database,
    default_projects_limit: i32,
) -> Result<Options, String> {
    let cores = available_parallelism().map_or(2, usize::from);
    Ok(Options {
        database,
        files: folder.files()?,
        instance_key: folder.instance_key()?,
        readers: 2 * cores,
        heavy: cores,
        clock: Arc::new(SystemClock),
        secrets: Arc::new(SystemSecrets),
        password_cost: PasswordCost::real(),
        default_projects_limit,
    })
}

async fn serve(
    config: Config,
    folder: &DataFolder,
    options: Options,
    wishes: Wishes,
    access_log: AccessLog,
) -> Outcome {
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let metrics = collect_metrics()?;
    let forge = Forge::start(options).map_err(|error| error.to_string())?;
    greet_first_admin(&forge, folder, wishes).await?;
    uploads::sweep_at_start(&forge).await.map_err(|error| format!("cannot remove unfinished uploads: {error}"))?;
    let app = App::new(AppOptions {
        forge: forge.clone(),
        dialect: config.dialect,
        external_url: config.external_url,
        body_limit: config.max_body_size,
        upload_limit: config.max_upload_size,
        sign_ins_per_minute: config.sign_ins_per_minute,
        access_log,
    });
    let door = Door::new(&app, operations::routes(forge.clone(), metrics));
    forge::jobs::take_up(&forge).await.map_err(|error| format!("cannot take up unfinished jobs: {error}"))?;
    let (stop_worker, stopped) = watch::channel(false);
    let worker = worker::start(forge, stopped);
    // Before anybody is told that it is ready: a signal from then on lets requests finish.
    let stop = stop_signal()?;
    info!(
        data = %folder.path().display(),
        dialect = %config.dialect,
        allow_local_network = config.allow_local_network,
        "gable {} is ready", env!("CARGO_PKG_VERSION")
    );
    say(&format!("gable ready on http://{}", reachable(address)));
    listener::serve(listener, door, stop).await;
    let _ = stop_worker.send(true);
    let _ = worker.await;
    info!("stopped");
    Ok(())
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
fn stop_signal() -> Result<impl Future<Output = ()>, String> {
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

fn start_logging(config: &Config) -> Result<LogWriter, String> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|error| format!("the log filter {} cannot be understood: {error}", config.log))?;
    let writer = LogWriter::start();
    let builder = fmt().with_env_filter(filter).with_writer(writer.clone());
    match config.log_format {
        LogFormat::Human => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
    Ok(writer)
}

/// An address that can be typed into a client: a wildcard stands for this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let loopback = if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(loopback, address.port())
}

/// Says something to the operator; a closed standard output is no reason to stop.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
}
