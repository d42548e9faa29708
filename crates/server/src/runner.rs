//! `gable runner …`, and the runner inside the server.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use runner::{
    CloneFrom, Connection, Isolation, Limits, Network, Options, Registration, Runner, read_token, register, unregister,
    verify, write_token,
};
use tokio::sync::watch;
use tracing::{error, warn};

use crate::{
    Outcome,
    byte_size::ByteSize,
    commands::{RegisterRunner, RunRunner, RunnerCommand, RunnerPlace, RunnerWishes},
    config::{Config, IsolationKind, LogFormat, NetworkKind},
    exit::{Ending, Failure},
    serve::{say, start_logging, stop_signal},
    suggestions,
};

/// How long jobs under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(30);
/// Where the token comes from that makes a runner known.
const REGISTRATION_TOKEN: &str = "GABLE_REGISTRATION_TOKEN";
/// Where the token of a runner may come from.
const RUNNER_TOKEN: &str = "GABLE_RUNNER_TOKEN";

/// The first arguments of a process that runs a program of a job with its limits.
pub(crate) const SUPERVISE: [&str; 2] = ["runner", "supervise"];

/// Runs one command.
pub(crate) fn run(command: RunnerCommand) -> Ending {
    let given = match &command {
        RunnerCommand::Register(settings) => settings.token_file.is_some() || variable(REGISTRATION_TOKEN)?.is_some(),
        _ => true,
    };
    if !given {
        return Err(Failure::Misused(format!(
            "give the registration token in the variable {REGISTRATION_TOKEN}, or with --token-file"
        )));
    }
    Ok(obey(command)?)
}

fn obey(command: RunnerCommand) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start: {error}"))?;
    match command {
        RunnerCommand::Run(settings) => {
            let log = start_logging(&settings.log, LogFormat::Human)?;
            for sentence in suggestions::unknown_variables() {
                warn!("{sentence}");
            }
            let outcome = runtime.block_on(run_jobs(settings));
            log.flush();
            outcome
        }
        RunnerCommand::Register(settings) => runtime.block_on(register_runner(settings)),
        RunnerCommand::Verify(place) => runtime.block_on(async {
            let token = known_token(&place)?;
            verify(&place.url, &token).await.map_err(|error| error.to_string())?;
            say(&format!("The server at {} knows this runner.", place.url));
            Ok(())
        }),
        RunnerCommand::Unregister(place) => runtime.block_on(async {
            let token = known_token(&place)?;
            unregister(&place.url, &token).await.map_err(|error| error.to_string())?;
            // A token that opens nothing any more would only be tried in vain.
            let file = token_file(&place);
            if variable(RUNNER_TOKEN)?.is_none() {
                std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
            }
            say(&format!("The server at {} does not know this runner any more.", place.url));
            Ok(())
        }),
    }
}

async fn register_runner(settings: RegisterRunner) -> Outcome {
    let token = match (variable(REGISTRATION_TOKEN)?, &settings.token_file) {
        (Some(token), _) => token,
        (None, Some(file)) => {
            let token = read_token(file).map_err(|error| error.to_string())?;
            token.ok_or_else(|| format!("there is no file {}; write the registration token into it", file.display()))?
        }
        (None, None) => {
            return Err(format!(
                "give the registration token in the variable {REGISTRATION_TOKEN}, or with --token-file"
            ));
        }
    };
    let own = settings.folder.join("token");
    if read_token(&own).map_err(|error| error.to_string())?.is_some() {
        return Err(format!(
            "a runner is registered already in {}; unregister it first, or choose another folder",
            settings.folder.display()
        ));
    }
    let token = register(&settings.url, &token, &wishes(settings.wishes)).await.map_err(|error| error.to_string())?;
    write_token(&own, &token).map_err(|error| error.to_string())?;
    say(&format!("The runner is registered; its token is in {}", own.display()));
    Ok(())
}

async fn run_jobs(settings: RunRunner) -> Outcome {
    let mut options = Options::new(&settings.place.folder, supervisor());
    options.name = std::fs::read_to_string("/etc/hostname").map_or(options.name, |name| name.trim().to_owned());
    options.concurrency = settings.concurrency.into();
    options.isolation = isolation(settings.isolation);
    options.run_as = settings.run_as;
    options.network = network(settings.network);
    options.limits = limits(settings.memory, settings.processes, settings.disk);
    options.limits.output = settings.output_limit.bytes();
    options.ignore_image = settings.ignore_image;
    options.grace = settings.grace.duration();
    options.hidden = vec![token_file(&settings.place)];
    let (place, wanted) = (settings.place, settings.wishes);
    let known = stored_token(&place)?;
    let registration = variable(REGISTRATION_TOKEN)?;
    if known.is_none() && registration.is_none() {
        return Err(unregistered(&place));
    }
    // A runner that cannot keep jobs apart takes none, and does not even join.
    let runner = runner::prepare(options).await.map_err(|error| error.to_string())?;
    let token = if let Some(token) = known {
        token
    } else {
        let registration = registration.unwrap_or_default();
        let token = register(&place.url, &registration, &wishes(wanted)).await.map_err(|error| error.to_string())?;
        write_token(&token_file(&place), &token).map_err(|error| error.to_string())?;
        token
    };
    let signal = stop_signal()?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        signal.await;
        let _ = stop.send(true);
        // Whoever listens to the other end decides when to go.
        stop.closed().await;
    });
    let connection = Connection { url: place.url, token, clone_from: None };
    runner.run(connection, stopped).await.map_err(|error| error.to_string())
}

/// How this program is started again between the runner and each program of a job. What it was started from stays the
/// same, even if an upgrade has put another one in its place.
fn supervisor() -> Vec<OsString> {
    ["/proc/self/exe"].iter().chain(&SUPERVISE).map(OsString::from).collect()
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

/// The limits of a job; 0 is without limit.
fn limits(memory: ByteSize, processes: u64, disk: ByteSize) -> Limits {
    let some = |number: u64| Some(number).filter(|number| *number > 0);
    Limits { memory: some(memory.bytes()), processes: some(processes), disk: some(disk.bytes()), ..Limits::default() }
}

/// Makes the runner inside the server ready, if there is to be one, or says why it must not run jobs.
pub(crate) async fn prepare_inside(config: &mut Config, data: &Path) -> Result<Option<Runner>, String> {
    let mut hidden = vec![data.to_owned()];
    hidden.extend(config.file.clone());
    hidden.extend(config.tls.as_ref().map(|files| files.key.clone()));
    hidden.extend(config.backups.as_ref().map(|backups| backups.folder.clone()));
    let Some(config) = config.runner.take() else { return Ok(None) };
    let folder = config.folder.unwrap_or_else(|| data.join("runner"));
    let mut options = Options::new(folder, supervisor());
    options.name = "the server itself".to_owned();
    options.concurrency = config.jobs.into();
    options.isolation = isolation(config.isolation);
    options.run_as = config.user;
    options.network = network(config.network);
    options.limits = limits(config.memory, config.processes, config.disk);
    options.ignore_image = config.ignore_image;
    options.hidden = hidden;
    // What is interrupted by an upgrade begins anew afterwards, as after a crash.
    options.resumes = true;
    options.grace = GRACE;
    let runner = runner::prepare(options).await.map_err(|error| format!("cannot run jobs: {error}"))?;
    warn!(
        jobs = config.jobs,
        "this server runs jobs itself: whoever may push to one of its projects can run programs on this machine"
    );
    Ok(Some(runner))
}

/// Runs jobs of the server inside it until told to stop. Without a token the server goes on without.
pub(crate) async fn run_inside(
    runner: Runner,
    address: SocketAddr,
    external_url: Option<String>,
    own_token: impl Future<Output = Result<String, String>>,
    stop: watch::Receiver<bool>,
) {
    let token = match own_token.await {
        Ok(token) => token,
        Err(reason) => {
            error!(reason, "the built-in runner does not run");
            return;
        }
    };
    let url = format!("http://{address}");
    // Others may reach the server under a name that leads nowhere from here.
    let clone_from = Some(CloneFrom { root: url.clone(), external_url });
    let connection = Connection { url, token, clone_from };
    if let Err(error) = runner.run(connection, stop).await {
        error!(%error, "the built-in runner does not run");
    }
}

fn wishes(RunnerWishes { description, tags, run_untagged, locked }: RunnerWishes) -> Registration {
    let tags: Vec<String> = tags.into_iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
    let run_untagged = run_untagged.unwrap_or(tags.is_empty());
    Registration { description, tags, run_untagged, locked }
}

fn token_file(place: &RunnerPlace) -> PathBuf {
    place.token_file.clone().unwrap_or_else(|| Path::new(&place.folder).join("token"))
}

/// The token of the runner, if it is registered.
fn stored_token(place: &RunnerPlace) -> Result<Option<String>, String> {
    match variable(RUNNER_TOKEN)? {
        Some(token) => Ok(Some(token)),
        None => read_token(&token_file(place)).map_err(|error| error.to_string()),
    }
}

fn known_token(place: &RunnerPlace) -> Result<String, String> {
    stored_token(place)?.ok_or_else(|| unregistered(place))
}

fn unregistered(place: &RunnerPlace) -> String {
    format!(
        "there is no token in {}; register the runner first, or give a registration token in {REGISTRATION_TOKEN}",
        token_file(place).display()
    )
}

/// A variable of the environment, unless it is empty.
fn variable(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not valid UTF-8")),
    }
}
