//! `gable runner …` and the built-in runner of the server.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use forge::{Forge, runners};
use runner::{
    CloneSource, Connection, Isolation, Network, Options, Registration, Runner, read_token, register, unregister,
    verify, write_token,
};
use tokio::{sync::watch, task::JoinHandle};
use tracing::{error, warn};

use crate::{
    commands::{RegisterRunner, RunRunner, RunnerAttributes, RunnerCommand, RunnerIdentity, RunnerLocation},
    config::{Config, IsolationKind, JobSettings, LogFormat, NetworkKind, RunnerConfig, check_log_filter},
    data_folder::DataFolder,
    exit::{CommandResult, Failure, print_line},
    logging,
    secret_variables::{self, REGISTRATION_TOKEN, RUNNER_TOKEN},
    signals::stop_signal,
    suggestions,
};

/// The time for running jobs to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The first arguments of a process that supervises a program of a job.
pub(crate) const SUPERVISE_ARGUMENTS: [&str; 2] = ["runner", "supervise"];

/// Runs a `runner` command.
pub(crate) fn run(command: RunnerCommand) -> CommandResult {
    match command {
        RunnerCommand::Run(settings) => {
            let filter = check_log_filter(&settings.log).map_err(Failure::Usage)?;
            let log = logging::start(&filter, LogFormat::Human)?;
            for message in suggestions::unknown_variables() {
                warn!("{message}");
            }
            let outcome = block_on(run_jobs(settings));
            log.flush();
            Ok(outcome?)
        }
        RunnerCommand::Register(settings) => {
            let token = registration_token(&settings)?;
            let token = token
                .with_context(|| format!("set the registration token in {REGISTRATION_TOKEN} or with --token-file"));
            Ok(block_on(register_runner(settings, token.map_err(Failure::Usage)?))?)
        }
        RunnerCommand::Verify(identity) => Ok(block_on(verify_runner(&identity))?),
        RunnerCommand::Unregister(identity) => Ok(block_on(unregister_runner(&identity))?),
    }
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Runtime::new().context("cannot start")?.block_on(work)
}

/// Returns the registration token, if one is given.
fn registration_token(settings: &RegisterRunner) -> Result<Option<String>> {
    match (read_variable(REGISTRATION_TOKEN)?, &settings.token_file) {
        (None, Some(file)) => {
            let token = read_token(file)?;
            token.map(Some).with_context(|| {
                format!("the file {} does not exist; write the registration token into it", file.display())
            })
        }
        (token, _) => Ok(token),
    }
}

async fn register_runner(settings: RegisterRunner, token: String) -> Result<()> {
    let RunnerLocation { url, folder } = settings.location;
    let own = folder.join("token");
    if read_token(&own)?.is_some() {
        bail!("a runner is already registered in {}; unregister it first, or choose another folder", folder.display());
    }
    let token = register(&url, &token, &to_registration(settings.attributes)).await?;
    write_token(&own, &token)?;
    print_line(&format!("registered the runner; its token is in {}", own.display()));
    Ok(())
}

async fn verify_runner(identity: &RunnerIdentity) -> Result<()> {
    let url = &identity.location.url;
    verify(url, &require_token(identity)?).await?;
    print_line(&format!("the server at {url} accepts the token of this runner"));
    Ok(())
}

async fn unregister_runner(identity: &RunnerIdentity) -> Result<()> {
    let url = &identity.location.url;
    unregister(url, &require_token(identity)?).await?;
    // The token is no longer valid.
    let file = token_file(identity);
    if read_variable(RUNNER_TOKEN)?.is_none() {
        std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    print_line(&format!("unregistered this runner from the server at {url}"));
    Ok(())
}

async fn run_jobs(settings: RunRunner) -> Result<()> {
    let mut options = job_options(&settings.identity.location.folder, settings.jobs);
    options.name = std::fs::read_to_string("/etc/hostname").map_or(options.name, |name| name.trim().to_owned());
    options.concurrency = settings.concurrency.into();
    options.limits.output = settings.output_limit.bytes();
    options.grace_period = settings.grace.duration();
    options.hidden_paths = vec![token_file(&settings.identity)];
    let (identity, attributes) = (settings.identity, settings.attributes);
    let stored = stored_token(&identity)?;
    let registration = read_variable(REGISTRATION_TOKEN)?;
    if stored.is_none() && registration.is_none() {
        return Err(not_registered(&identity));
    }
    // Checked before registration: a runner that cannot isolate jobs must not be registered.
    let runner = runner::prepare(options).await?;
    let token = if let Some(token) = stored {
        token
    } else {
        let registration = registration.unwrap_or_default();
        let token = register(&identity.location.url, &registration, &to_registration(attributes)).await?;
        write_token(&token_file(&identity), &token)?;
        token
    };
    let signal = stop_signal()?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        signal.await;
        let _ = stop.send(true);
        // Dropping the sender early would stop the receiver.
        stop.closed().await;
    });
    let connection = Connection { url: identity.location.url, token, clone_source: None };
    Ok(runner.run(connection, stopped).await?)
}

/// Returns the command line of the supervisor. `/proc/self/exe` stays the same even if an upgrade replaces the binary.
fn supervisor() -> Vec<OsString> {
    ["/proc/self/exe"].iter().chain(&SUPERVISE_ARGUMENTS).map(OsString::from).collect()
}

fn isolation(kind: IsolationKind) -> Isolation {
    match kind {
        IsolationKind::Auto => Isolation::Auto,
        IsolationKind::Bubblewrap => Isolation::Bubblewrap,
        IsolationKind::User => Isolation::User,
        IsolationKind::None => Isolation::None,
    }
}

fn network(kind: NetworkKind) -> Network {
    match kind {
        NetworkKind::Auto => Network::Auto,
        NetworkKind::Public => Network::Public,
        NetworkKind::None => Network::None,
        NetworkKind::Host => Network::Host,
    }
}

/// Returns the options of a runner with these settings.
fn job_options(folder: &Path, settings: JobSettings) -> Options {
    let mut options = Options::new(folder, supervisor());
    options.isolation = isolation(settings.isolation);
    options.run_as = settings.user;
    options.network = network(settings.network);
    options.limits.memory = settings.memory.non_zero();
    options.limits.processes = Some(settings.processes).filter(|count| *count > 0);
    options.limits.disk = settings.disk.non_zero();
    options.ignore_image = settings.ignore_image;
    options
}

/// Prepares the built-in runner, if configured.
pub(crate) async fn prepare_built_in(config: &mut Config, data: &Path) -> Result<Option<Runner>> {
    let Some(RunnerConfig { concurrency, folder, jobs }) = config.runner.take() else { return Ok(None) };
    let mut options = job_options(&folder.unwrap_or_else(|| data.join("runner")), jobs);
    options.name = "the server itself".to_owned();
    options.concurrency = concurrency.into();
    options.hidden_paths = vec![data.to_owned()];
    options.hidden_paths.extend(config.file.clone());
    options.hidden_paths.extend(config.tls.as_ref().map(|files| files.key.clone()));
    options.hidden_paths.extend(config.backups.as_ref().map(|backups| backups.folder.clone()));
    // Jobs that an upgrade interrupts are restarted, as after a crash.
    options.requeues_interrupted_jobs = true;
    options.grace_period = SHUTDOWN_TIMEOUT;
    let runner = runner::prepare(options).await.context("cannot run jobs")?;
    warn!(
        jobs = concurrency,
        "the built-in runner is enabled: every user who can push to a project can run programs on this machine"
    );
    Ok(Some(runner))
}

/// The built-in runner of a server, while it runs.
pub(crate) struct BuiltInRunner {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl BuiltInRunner {
    /// Starts the runner. If it cannot get a token, the server runs without it.
    pub(crate) fn spawn(
        runner: Runner,
        forge: &Forge,
        folder: &DataFolder,
        address: SocketAddr,
        external_url: Option<String>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (forge, name) = (forge.clone(), server_name(folder));
        let task = tokio::spawn(async move {
            let token = match runners::built_in_runner_token(&forge, name).await {
                Ok(token) => token.reveal().to_owned(),
                Err(error) => {
                    error!(reason = error.to_string(), "the built-in runner failed");
                    return;
                }
            };
            let url = format!("http://{address}");
            // The external URL may not be reachable from this machine.
            let clone_source = Some(CloneSource { base_url: url.clone(), external_url });
            if let Err(error) = runner.run(Connection { url, token, clone_source }, stopped).await {
                error!(%error, "the built-in runner failed");
            }
        });
        Self { task, stop }
    }

    /// Stops the runner and waits until it has reported the outcome of its jobs.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// Returns a name that distinguishes this server from others on the same database.
fn server_name(folder: &DataFolder) -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    format!("of {} at {}", folder.path().display(), host.trim())
}

fn to_registration(RunnerAttributes { description, tags, run_untagged, locked }: RunnerAttributes) -> Registration {
    let tags: Vec<String> = tags.into_iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
    let run_untagged = run_untagged.unwrap_or(tags.is_empty());
    Registration { description, tags, run_untagged, locked }
}

fn token_file(identity: &RunnerIdentity) -> PathBuf {
    identity.token_file.clone().unwrap_or_else(|| identity.location.folder.join("token"))
}

/// Returns the token of the runner, if it is registered.
fn stored_token(identity: &RunnerIdentity) -> Result<Option<String>> {
    match read_variable(RUNNER_TOKEN)? {
        Some(token) => Ok(Some(token)),
        None => Ok(read_token(&token_file(identity))?),
    }
}

fn require_token(identity: &RunnerIdentity) -> Result<String> {
    stored_token(identity)?.ok_or_else(|| not_registered(identity))
}

fn not_registered(identity: &RunnerIdentity) -> anyhow::Error {
    anyhow!(
        "no token in {}; register the runner first, or set a registration token in {REGISTRATION_TOKEN}",
        token_file(identity).display()
    )
}

/// Returns a token from a variable, unless it is blank.
fn read_variable(name: &str) -> Result<Option<String>> {
    let token = secret_variables::read(name)?.map(|token| token.trim().to_owned());
    Ok(token.filter(|token| !token.is_empty()))
}
