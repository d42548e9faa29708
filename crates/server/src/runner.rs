//! `gable runner …`, and the runner inside the server.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use runner::{Isolation, Options, Registration, read_token, register, unregister, verify, write_token};
use tokio::sync::watch;
use tracing::{error, warn};

use crate::{
    Outcome,
    commands::{IsolationKind, RegisterRunner, RunRunner, RunnerCommand, RunnerPlace, RunnerWishes},
    config::LogFormat,
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
            suggestions::unknown_variables().iter().for_each(|sentence| warn!("{sentence}"));
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
    let RunRunner { place, wishes: wanted, .. } = settings;
    let token = match stored_token(&place)? {
        Some(token) => token,
        None => match variable(REGISTRATION_TOKEN)? {
            Some(token) => {
                let token = register(&place.url, &token, &wishes(wanted)).await.map_err(|error| error.to_string())?;
                write_token(&token_file(&place), &token).map_err(|error| error.to_string())?;
                token
            }
            None => return Err(unregistered(&place)),
        },
    };
    let mut options = Options::new(place.url, token, place.folder);
    options.name = std::fs::read_to_string("/etc/hostname").map_or(options.name, |name| name.trim().to_owned());
    options.concurrency = settings.concurrency.into();
    options.isolation = match settings.isolation {
        IsolationKind::Auto => Isolation::Auto,
        IsolationKind::Bubblewrap => Isolation::Bubblewrap,
        IsolationKind::User => Isolation::User,
        IsolationKind::None => Isolation::None,
    };
    options.run_as = settings.run_as;
    options.limits.output = settings.output_limit.bytes();
    options.grace = settings.grace.duration();
    let signal = stop_signal()?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        signal.await;
        let _ = stop.send(true);
        // Whoever listens to the other end decides when to go.
        stop.closed().await;
    });
    runner::run(options, stopped).await.map_err(|error| error.to_string())
}

/// Where a runner inside the server works.
pub(crate) struct Inside {
    /// Where the server answers.
    pub(crate) address: SocketAddr,
    /// The data folder of the server.
    pub(crate) data: PathBuf,
    /// How many jobs are run at once.
    pub(crate) jobs: u16,
}

/// Runs jobs of the server inside it until told to stop. Without a token, or if jobs cannot be run here, the server
/// goes on without.
pub(crate) async fn run_inside(
    Inside { address, data, jobs }: Inside,
    own_token: impl Future<Output = Result<String, String>>,
    stop: watch::Receiver<bool>,
) {
    warn!(
        jobs,
        "this server runs jobs itself: whoever may push to one of its projects can run programs on this machine"
    );
    let token = match own_token.await {
        Ok(token) => token,
        Err(reason) => {
            error!(reason, "the built-in runner does not run");
            return;
        }
    };
    let url = format!("http://{address}");
    let mut options = Options::new(url.clone(), token, data.join("runner"));
    options.name = "the server itself".to_owned();
    options.concurrency = jobs.into();
    // Others may reach the server under a name that leads nowhere from here.
    options.clone_url = Some(url);
    options.hidden = vec![data];
    // What is interrupted by an upgrade begins anew afterwards, as after a crash.
    options.resumes = true;
    options.grace = GRACE;
    if let Err(error) = runner::run(options, stop).await {
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
