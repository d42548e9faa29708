//! `cargo xtask cluster`: three nodes with their database, store and load balancer, under load, while parts of them
//! fail.
//!
//! The full form runs in its own network, mount and process namespaces, so that nothing of it remains after it has
//! ended for whatever reason.

#![expect(clippy::print_stdout, reason = "a command-line tool prints to the terminal")]

mod balancer;
mod bench;
mod campaign;
mod checker;
mod cluster;
mod database;
mod fault_proxy;
mod faults;
mod git;
mod http;
mod ledger;
mod load;
mod network;
mod nodes;
mod options;
mod receiver;
mod report;
mod request_log;
mod restarts;
mod results;
mod rng;
mod store;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail};
use options::Options;

/// The first argument of the process that runs in the namespaces.
const INSIDE: &str = "--inside";
/// The first argument of the first process of the process namespace.
const INIT: &str = "--init";
/// The first argument of a process that only validates the other arguments.
const CHECK_FLAGS: &str = "--check-flags";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == CHECK_FLAGS => Options::read(rest).map(|_| true),
        Some((first, rest)) if first == INIT => init(rest),
        Some((first, rest)) if first == INSIDE => in_runtime(async {
            let (folder, flags) = rest.split_first().context("no folder")?;
            run(&Options::read(flags)?, Path::new(folder)).await
        }),
        _ => in_runtime(start(&arguments)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs on this thread only: children are killed when the thread that started them ends.
fn in_runtime(work: impl Future<Output = Result<bool>>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    runtime.block_on(work)
}

/// Starts this program again, in namespaces if the full form is wanted, and removes its files afterwards.
async fn start(flags: &[String]) -> Result<bool> {
    let options = Options::read(flags)?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let folder = create_folder(&options)?;
    let mut command = if options.short {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).arg(INSIDE);
        command
    } else {
        if !rustix::process::geteuid().is_root() {
            bail!("the full form requires root; --short does not");
        }
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command.arg(program).arg(INIT);
        command
    };
    command.arg(&folder).args(flags);
    let mut command: tokio::process::Command = command.into();
    let mut child = command.kill_on_drop(true).spawn().context("cannot start")?;
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let succeeded = tokio::select! {
        status = child.wait() => Some(status.context("cannot wait")?.success()),
        _ = tokio::signal::ctrl_c() => None,
        _ = terminated.recv() => None,
    };
    if succeeded.is_none() {
        let _ = child.kill().await;
    }
    if options.keep || succeeded == Some(false) {
        println!("logs and data are in {}", folder.display());
    } else {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    succeeded.context("interrupted")
}

fn create_folder(options: &Options) -> Result<PathBuf> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    let name = format!("gable-cluster.{time}");
    // PostgreSQL runs as another user, which can reach the temporary folder.
    let folder = options.folder.clone().unwrap_or_else(|| std::env::temp_dir().join(name));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    folder.canonicalize().context("cannot find the folder")
}

/// Runs the campaign as a child, and waits for all processes whose parents have ended.
fn init(arguments: &[String]) -> Result<bool> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let child = Command::new(program).arg(INSIDE).args(arguments).spawn().context("cannot start")?;
    let id = i32::try_from(child.id()).context("a process id")?;
    loop {
        let ended = rustix::process::wait(rustix::process::WaitOptions::empty()).context("cannot wait")?;
        if let Some((pid, status)) = ended
            && pid.as_raw_nonzero().get() == id
        {
            return Ok(status.exit_status() == Some(0));
        }
    }
}

/// Runs everything; returns whether nothing was lost.
async fn run(options: &Options, folder: &Path) -> Result<bool> {
    println!("starting the cluster");
    let mut cluster = cluster::Cluster::start(options, folder).await?;
    println!("the cluster is ready");
    if !options.command.is_empty() {
        return restarts::run(options, &mut cluster).await;
    }
    if options.bench {
        let page = bench::run(&mut cluster).await?;
        println!("\n{page}");
        if let Some(path) = &options.report {
            std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
        return Ok(true);
    }
    let mut results = Vec::new();
    campaign::run(options, &mut cluster, |result| {
        results.push(result.clone());
        println!("\n{}", report::table(&results));
        // Also if a later campaign is interrupted.
        if let Some(path) = &options.results {
            results::append(path, result)?;
        }
        let Some(path) = &options.report else { return Ok(()) };
        let reported = options.results.as_deref().map_or_else(|| Ok(results.clone()), results::read)?;
        let written = std::fs::write(path, report::page(options, &reported));
        written.with_context(|| format!("cannot write {}", path.display()))
    })
    .await?;
    Ok(results.iter().all(campaign::CampaignResult::held))
}
