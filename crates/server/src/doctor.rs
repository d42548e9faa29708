//! `gable doctor`: checks the data folder, the machine and everything that the database refers to.

mod folder;

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use forge::{
    Forge,
    doctor::{DoctorOptions, Finding, Level, Progress},
    nodes,
};
use serde::Serialize;
use store::Database;

use crate::{
    commands::Doctor,
    config::{self, Config},
    data_folder::{DataFolder, LOST_AND_FOUND, RESTORE_FOLDER, require_instance_at},
    exit::{self, print_line, print_stderr},
    forge_options::{ForgeMode, forge_options},
};

/// The remedy for a database that cannot be opened.
const DATABASE_REMEDY: &str =
    "check that the database is running and not newer than this gable; if it is lost or damaged, restore a backup";
/// The remedy for a bucket that cannot be used.
const STORE_REMEDY: &str =
    "check that the store responds, and that `store`, its AWS_ variables and `database` are those of the nodes";

/// Runs the command; the exit code reports whether a problem is left.
pub(crate) fn run(command: Doctor) -> ExitCode {
    let mut findings = Vec::new();
    let options = (command.fix, command.forget_missing, command.quick);
    let examined = config::load(command.settings).and_then(|config| Ok(examine(&config, options, &mut findings)?));
    let blocked = match examined {
        Ok(blocked) => blocked,
        Err(failure) if findings.is_empty() => {
            print_stderr(format_args!("gable: {failure}"));
            return failure.code();
        }
        Err(failure) => {
            let remedy = "fix that, and run gable doctor again";
            findings.push(Finding::problem("doctor", format!("cannot continue: {failure}"), remedy));
            true
        }
    };
    if command.json {
        print_json(&findings);
    } else {
        print_text(&findings);
    }
    let has_problems = blocked || findings.iter().any(|finding| finding.level == Level::Problem && !finding.fixed);
    if has_problems { ExitCode::from(exit::FAILURE) } else { ExitCode::SUCCESS }
}

/// Adds findings; returns whether a problem prevents further checks.
fn examine(
    config: &Config,
    (fix, forget_missing, quick): (bool, bool, bool),
    findings: &mut Vec<Finding>,
) -> Result<bool> {
    let data = &config.location.folder;
    require_instance_at(&config.location)?;
    findings.extend(folder::examine(data, config.min_free_disk, fix));
    findings.push(match git::check_version() {
        Ok(version) => Finding::ok("git", format!("git {version} is installed")),
        Err(error) => Finding::problem("git", error.to_string(), "install git and make sure that it is in PATH"),
    });
    if data.join(RESTORE_FOLDER).exists() {
        let text = "a restore into this folder was interrupted or is still running; the data is incomplete";
        findings.push(Finding::problem("restore", text, "run the restore again unless it is still running"));
        return Ok(true);
    }
    let folder = DataFolder::open_existing(&config.location)?;
    let opening_lock = folder.lock_for_opening()?;
    let database = match folder.database_with_tables(config.location.database.as_deref()) {
        Ok(database) => database,
        Err(error) => {
            findings.push(Finding::problem("database", exit::message(&error), DATABASE_REMEDY));
            return Ok(true);
        }
    };
    if let Err(error) = folder.check_binding(&database) {
        let (check, remedy) =
            if folder.shared().is_some() { ("store", STORE_REMEDY) } else { ("database", DATABASE_REMEDY) };
        findings.push(Finding::problem(check, exit::message(&error), remedy));
        return Ok(true);
    }
    if let Some(shared) = folder.shared() {
        findings.push(Finding::ok("store", format!("{} responds, and belongs to the database", shared.bucket)));
    }
    let lock = folder.lock()?;
    let schema = check_schema(&database);
    let nodes = match folder.shared() {
        // An older schema may have no list of nodes.
        Some(_) if schema.is_ok() => nodes::running(&database)?,
        _ => Vec::new(),
    };
    let server_running = lock.is_none() || !nodes.is_empty();
    findings.push(Finding::ok("server", describe_servers(server_running, &nodes)));
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let lost_and_found = folder.path().join(LOST_AND_FOUND).join(now.to_string());
    findings.push(folder::find_leftovers(data, (fix && !server_running).then_some(&lost_and_found)));
    if let Err(finding) = schema {
        findings.push(finding);
        return Ok(true);
    }
    findings.push(Finding::ok("database", "responds, and its schema is up to date"));
    let remedy = "restore it from a backup; if there is none, run `gable admin instance new-key`, which removes everything \
                  encrypted with it";
    let key = match folder.existing_instance_key("it is damaged") {
        Ok(Some(key)) => key,
        Ok(None) => {
            findings.push(Finding::problem("instance key", "the file with the instance key is missing", remedy));
            return Ok(true);
        }
        Err(error) => {
            findings.push(Finding::problem("instance key", exit::message(&error), remedy));
            return Ok(true);
        }
    };
    let options = forge_options(&folder, database, key, config.default_projects_limit, ForgeMode::Administer)?;
    // Repairs need exclusive use of the folder, and a server that is starting waits; checks alone do not block it.
    let locks = (fix && !server_running).then_some((opening_lock, lock));
    let forge = Forge::start(forge::Options { readers: 1, blocking: 1, ..options })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let options =
        DoctorOptions { deep: !quick, fix, forget_missing, server_running, lost_and_found, progress: progress() };
    findings.extend(runtime.block_on(forge::doctor::run_checks(&forge, &options)));
    clear_progress();
    drop(locks);
    Ok(false)
}

/// Describes which servers use the instance.
fn describe_servers(server_running: bool, nodes: &[String]) -> String {
    if !nodes.is_empty() {
        return format!("nodes are running: {}", nodes.join(", "));
    }
    if server_running { "the server is running".to_owned() } else { "no server is running".to_owned() }
}

/// Checks that the database responds and that its schema is up to date.
fn check_schema(database: &Database) -> Result<(), Finding> {
    let schema =
        database.schema_status().map_err(|error| Finding::problem("database", error.to_string(), DATABASE_REMEDY))?;
    if schema.pending.is_empty() {
        return Ok(());
    }
    let version = schema.version.unwrap_or_else(|| "nothing".to_owned());
    let text = format!("the database is older than this gable: version {version} instead of {}", schema.latest);
    Err(Finding::problem("database", text, "run `gable migrate`, or start the server"))
}

/// Shows progress on a terminal.
fn progress() -> Progress {
    if !std::io::stderr().is_terminal() {
        return Box::new(|_, _, _| {});
    }
    Box::new(|what, at, total| {
        let _ = write!(std::io::stderr(), "\r\x1b[K{what}: {at} of {total}");
    })
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn status_word(finding: &Finding) -> &'static str {
    match finding.level {
        Level::Ok => "ok",
        _ if finding.fixed => "fixed",
        Level::Warning => "warning",
        Level::Problem => "problem",
    }
}

fn print_text(findings: &[Finding]) {
    for finding in findings {
        let remedy = match &finding.remedy {
            Some(remedy) if finding.fixed => format!(" (done: {remedy})"),
            Some(remedy) => format!(" -> {remedy}"),
            None => String::new(),
        };
        print_line(&format!("{:<8} {}: {}{remedy}", status_word(finding), finding.check, finding.text));
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level && !finding.fixed).count();
    let fixed = findings.iter().filter(|finding| finding.fixed).count();
    print_line(&format!("{} problems, {} warnings, {fixed} fixed", count(Level::Problem), count(Level::Warning)));
}

#[derive(Serialize)]
struct Report<'a> {
    problems: usize,
    warnings: usize,
    fixed: usize,
    checks: Vec<CheckJson<'a>>,
}

#[derive(Serialize)]
struct CheckJson<'a> {
    check: &'a str,
    status: &'a str,
    message: &'a str,
    remedy: Option<&'a str>,
}

impl<'a> CheckJson<'a> {
    fn of(finding: &'a Finding) -> Self {
        let Finding { check, text, remedy, .. } = finding;
        Self { check, status: status_word(finding), message: text, remedy: remedy.as_deref() }
    }
}

fn print_json(findings: &[Finding]) {
    let count = |level| findings.iter().filter(|finding| finding.level == level && !finding.fixed).count();
    let report = Report {
        problems: count(Level::Problem),
        warnings: count(Level::Warning),
        fixed: findings.iter().filter(|finding| finding.fixed).count(),
        checks: findings.iter().map(CheckJson::of).collect(),
    };
    print_line(&serde_json::to_string_pretty(&report).expect("texts and numbers can be written"));
}
