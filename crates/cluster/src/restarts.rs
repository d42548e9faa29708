//! Runs a command against the load balancer while nodes are restarted one after the other.

use std::{
    convert::Infallible,
    fs,
    process::{Command, ExitStatus},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, anyhow};

use crate::{
    cluster::Cluster,
    nodes::{PASSWORD, Start, TOKEN},
    options::Options,
    request_log::{RequestSummary, Restart},
    rng::Rng,
};

/// The time in which the balancer notices that a node is ready again: longer than the interval of its checks.
const BALANCER_INTERVAL: Duration = Duration::from_millis(2500);
/// The longest time before the start of the command, in milliseconds: about the interval of restarts.
const START_DELAY: usize = 8000;
/// Lines of the logs of nodes to print.
const LOG_LINES: usize = 20;

/// How nodes are restarted while a command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RestartMode {
    /// Not at all.
    None,
    /// With SIGTERM, as for an upgrade.
    #[default]
    Stop,
    /// With SIGKILL.
    Kill,
}

impl RestartMode {
    pub(crate) fn parse(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "stop" => Ok(Self::Stop),
            "kill" => Ok(Self::Kill),
            other => Err(anyhow!("unknown kind of restarts {other}; choose from none, stop, kill")),
        }
    }
}

/// Runs the command; returns whether it succeeded and no request failed except those of a killed node.
pub(crate) async fn run(options: &Options, cluster: &mut Cluster) -> Result<bool> {
    let mut command = command(options, cluster)?;
    let mut restarts = Vec::new();
    // With the same random numbers the start of the command and the first restart would be correlated.
    let mut seeds = Rng::new(options.seed);
    let (command_rng, restart_rng) = (Rng::new(seeds.next_u64()), Rng::new(seeds.next_u64()));
    let (status, start) = tokio::select! {
        outcome = run_command(options, &mut command, command_rng) => outcome?,
        error = restart_nodes(options, cluster, &mut restarts, restart_rng) => match error? {},
    };
    // The balancer logs a request when it has ended.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let log = fs::read_to_string(cluster.folder.join("haproxy.log")).context("cannot read the log of haproxy")?;
    let kills = if options.restarts == RestartMode::Kill { &restarts[..] } else { &[] };
    let summary = RequestSummary::read(&log, kills);
    print_errors(cluster)?;
    for text in &summary.interrupted {
        println!("interrupted: {text}");
    }
    for text in &summary.failed {
        println!("failed request: {text}");
    }
    // `cargo xtask cluster --clients` reads this line.
    println!(
        "restarts: {}; requests: {}; ssh connections: {}; interrupted: {}; failed: {}",
        restarts.iter().filter(|restart| restart.end >= start).count(),
        summary.requests,
        summary.ssh_connections,
        summary.interrupted.len(),
        summary.failed.len()
    );
    Ok(status.success() && summary.failed.is_empty())
}

/// Returns the command with the variables of the tests of clients.
fn command(options: &Options, cluster: &Cluster) -> Result<tokio::process::Command> {
    let (program, arguments) = options.command.split_first().context("no command")?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments);
    command
        .env("GABLE_URL", &cluster.settings.external_url)
        .env("GABLE_SSH_URL", format!("ssh://git@{}", cluster.balancer.ssh))
        .env("GABLE_TOKEN", TOKEN)
        .env("GABLE_ROOT_TOKEN", TOKEN)
        .env("GABLE_ROOT_PASSWORD", PASSWORD);
    Ok(command.into())
}

/// Starts the command at a random moment between two restarts, because some commands take less time than a restart, and
/// waits for it; returns its status and the time of its start.
async fn run_command(
    options: &Options,
    command: &mut tokio::process::Command,
    mut rng: Rng,
) -> Result<(ExitStatus, u64)> {
    if options.restarts != RestartMode::None {
        let delay = rng.below(START_DELAY);
        tokio::time::sleep(Duration::from_millis(u64::try_from(delay).unwrap_or_default())).await;
    }
    let start = now();
    let mut child = command.kill_on_drop(true).spawn().context("cannot start the command")?;
    let status = child.wait().await.context("cannot wait for the command")?;
    Ok((status, start))
}

/// Restarts nodes until it is dropped; fails if a node does not become ready again.
async fn restart_nodes(
    options: &Options,
    cluster: &mut Cluster,
    restarts: &mut Vec<Restart>,
    mut rng: Rng,
) -> Result<Infallible> {
    let Cluster { nodes, network, settings, .. } = cluster;
    let mut random_pause = |limit: usize| Duration::from_millis(u64::try_from(rng.below(limit)).unwrap_or_default());
    if options.restarts == RestartMode::None {
        std::future::pending::<()>().await;
    }
    let mut next_node = 0;
    loop {
        tokio::time::sleep(random_pause(2000)).await;
        for node in nodes.iter_mut() {
            if let Some(status) = node.exit_status() {
                return Err(anyhow!("{} has ended by itself ({status})", node.host.name));
            }
        }
        let node = &mut nodes[next_node];
        let start = now();
        if options.restarts == RestartMode::Kill {
            node.kill();
            restarts.push(Restart { node: node.host.name, start, end: now() });
            tokio::time::sleep(random_pause(2000)).await;
        } else {
            node.stop().await?;
            restarts.push(Restart { node: node.host.name, start, end: now() });
        }
        node.start_until_ready(network, settings, &Start::default()).await?;
        // Two nodes are always available.
        tokio::time::sleep(BALANCER_INTERVAL).await;
        next_node = (next_node + 1) % nodes.len();
    }
}

/// Prints errors that nodes have logged.
fn print_errors(cluster: &Cluster) -> Result<()> {
    for node in &cluster.nodes {
        let log = fs::read_to_string(node.log()).context("cannot read the log of a node")?;
        let is_error = |line: &&str| line.contains("ERROR") || line.contains("panicked");
        for line in log.lines().filter(is_error).take(LOG_LINES) {
            println!("{}: {line}", node.host.name);
        }
    }
    Ok(())
}

fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or_default()
}
