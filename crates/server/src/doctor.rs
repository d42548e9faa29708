//! `gable doctor`: looks at the data folder, what it needs of the machine, and everything that the database knows of.

mod folder;

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use forge::{
    Forge,
    doctor::{Finding, Level, Progress, Wishes},
};
use serde::Serialize;
use store::Database;

use crate::{
    commands::Doctor,
    config::{self, Config, Settings},
    data_folder::{DataFolder, UNFINISHED, require_instance},
    exit::{self, complain},
    serve::{Use, forge_options, say},
};

/// Runs the command; its exit code tells scripts what it found.
pub(crate) fn run(command: Doctor) -> ExitCode {
    let mut findings = Vec::new();
    let settings = Settings::from(command.place).with_min_free_disk(command.min_free_disk);
    let wishes = (command.fix, command.forget_missing, command.quick);
    let looked = config::load(settings).and_then(|config| Ok(examine(&config, wishes, &mut findings)?));
    let blocked = match looked {
        Ok(blocked) => blocked,
        Err(failure) if findings.is_empty() => {
            complain(format_args!("gable: {failure}"));
            return failure.code();
        }
        Err(failure) => {
            let remedy = "put that right, and run this again";
            findings.push(Finding::problem("doctor", format!("cannot look further: {failure}"), remedy));
            true
        }
    };
    if command.json {
        tell_json(&findings);
    } else {
        tell(&findings);
    }
    let left = blocked || findings.iter().any(|finding| finding.level == Level::Problem && !finding.fixed);
    if left { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS }
}

/// Adds what is found, and answers whether something keeps us from looking further.
fn examine(
    config: &Config,
    (fix, forget_missing, quick): (bool, bool, bool),
    findings: &mut Vec<Finding>,
) -> Result<bool, String> {
    let data = &config.data;
    require_instance(data)?;
    findings.extend(folder::examine(data, config.min_free_disk, fix));
    findings.push(match git::check_version() {
        Ok(version) => Finding::fine("git", format!("git {version} is there")),
        Err(sentence) => Finding::problem("git", sentence, "install it, and see that PATH leads to it"),
    });
    if data.join(UNFINISHED).exists() {
        let text = "a restore into this folder was interrupted, or is still at work: what is there is not whole";
        findings.push(Finding::problem("restore", text, "unless it is still at work, run the restore again"));
        return Ok(true);
    }
    let folder = DataFolder::open_existing(data)?;
    let turn = folder.take_turn()?;
    let database = match folder.existing_database(config.database.as_deref()) {
        Ok(database) => database,
        Err(sentence) => {
            let remedy = "see that the database runs and that this gable is not too old for it; if it is lost or damaged, restore a backup";
            findings.push(Finding::problem("database", sentence, remedy));
            return Ok(true);
        }
    };
    let lock = folder.lock()?;
    let beside_server = lock.is_none();
    let server = if beside_server { "a server works on this folder" } else { "no server works on this folder" };
    findings.push(Finding::fine("server", server));
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let lost_and_found = folder.path().join("lost+found").join(now.to_string());
    findings.push(folder::leftovers(data, (fix && !beside_server).then_some(&lost_and_found)));
    if let Err(finding) = check_schema(&database) {
        findings.push(finding);
        return Ok(true);
    }
    findings.push(Finding::fine("database", "it answers, and its tables are those of this version"));
    let remedy = "restore it from a backup; if there is none, \"gable admin instance new-key\" goes on without what was \
                  sealed with it";
    let key = match folder.existing_instance_key("it is damaged") {
        Ok(Some(key)) => key,
        Ok(None) => {
            findings.push(Finding::problem("instance key", "there is no file instance-key", remedy));
            return Ok(true);
        }
        Err(sentence) => {
            findings.push(Finding::problem("instance key", sentence, remedy));
            return Ok(true);
        }
    };
    let options = forge_options(&folder, database, key, config.default_projects_limit, Use::Administer)?;
    // Whoever puts something right has the folder to itself, and a server that is to start waits for it; whoever only looks
    // is in nobody's way.
    let held = (fix && !beside_server).then_some((turn, lock));
    let forge =
        Forge::start(forge::Options { readers: 1, blocking: 1, ..options }).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let wishes = Wishes { deep: !quick, fix, forget_missing, beside_server, lost_and_found, progress: progress() };
    findings.extend(runtime.block_on(forge::doctor::examine(&forge, &wishes)));
    clear_progress();
    drop(held);
    Ok(false)
}

/// Whether the database answers and is of this version; else what is the matter.
fn check_schema(database: &Database) -> Result<(), Finding> {
    let schema = database.schema().map_err(|error| {
        let remedy =
            "see that the database runs and that this gable is not too old for it; if it is damaged, restore a backup";
        Finding::problem("database", error.to_string(), remedy)
    })?;
    if schema.pending.is_empty() {
        return Ok(());
    }
    let at = schema.version.unwrap_or_else(|| "nothing".to_owned());
    let text = format!("the database is older than this gable: it is at {at}, and {} is known", schema.known);
    Err(Finding::problem("database", text, "run `gable migrate`, or start the server"))
}

/// Shows on a terminal how far it has come.
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

fn word(finding: &Finding) -> &'static str {
    match finding.level {
        Level::Fine => "ok",
        _ if finding.fixed => "fixed",
        Level::Warning => "warning",
        Level::Problem => "problem",
    }
}

fn tell(findings: &[Finding]) {
    for finding in findings {
        let remedy = match &finding.remedy {
            Some(remedy) if finding.fixed => format!(" (done: {remedy})"),
            Some(remedy) => format!(" -> {remedy}"),
            None => String::new(),
        };
        say(&format!("{:<8} {}: {}{remedy}", word(finding), finding.check, finding.text));
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level && !finding.fixed).count();
    let fixed = findings.iter().filter(|finding| finding.fixed).count();
    say(&format!("{} problems, {} warnings, {fixed} fixed", count(Level::Problem), count(Level::Warning)));
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
        Self { check, status: word(finding), message: text, remedy: remedy.as_deref() }
    }
}

fn tell_json(findings: &[Finding]) {
    let count = |level| findings.iter().filter(|finding| finding.level == level && !finding.fixed).count();
    let report = Report {
        problems: count(Level::Problem),
        warnings: count(Level::Warning),
        fixed: findings.iter().filter(|finding| finding.fixed).count(),
        checks: findings.iter().map(CheckJson::of).collect(),
    };
    say(&serde_json::to_string_pretty(&report).expect("texts and numbers can be written"));
}
