//! The checks of `gable doctor`: the integrity of the database, the repositories and the files. Each check returns
//! findings with a remedy, which is applied only on request.

mod missing_files;
mod orphans;
mod packs;
mod repositories;
mod stored_files;
mod trace_segments;

use std::path::PathBuf;

use model::{ProjectId, projects::TokenSeed};
use store::{
    Conn,
    checks::{self, ProjectRow},
};

use crate::{Caller, Forge, InstanceKey, Result, stuck_jobs, tasks};

pub use missing_files::missing_files;
pub use repositories::verify_repository;

/// The number of rows that are read at a time.
const BATCH: i64 = 1000;
/// The maximum number of examples in a finding.
const MAX_EXAMPLES: usize = 5;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is wrong.
    Ok,
    /// Something should be corrected but does no harm yet.
    Warning,
    /// Something does not work, or is lost.
    Problem,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The name of the check, in two or three words.
    pub check: &'static str,
    /// The severity.
    pub level: Level,
    /// A sentence that describes the finding.
    pub text: String,
    /// What `--fix` does, or what the operator has to do.
    pub remedy: Option<String>,
    /// Whether the remedy was applied.
    pub fixed: bool,
}

/// Called with the name of a check, the current item and the number of items.
pub type Progress = Box<dyn Fn(&str, usize, usize) + Send + Sync>;

/// How thorough the checks are, and whether remedies are applied.
pub struct DoctorOptions {
    /// Whether all objects that refs reach are read.
    pub deep: bool,
    /// Whether to apply remedies.
    pub fix: bool,
    /// Whether remedies include deleting the rows of missing files.
    pub forget_missing: bool,
    /// Whether a server uses the folder or the bucket: then its files are not touched.
    pub server_running: bool,
    /// Where to move orphaned files and repositories.
    pub lost_and_found: PathBuf,
    /// Reports progress.
    pub progress: Progress,
}

impl Finding {
    /// Creates a finding that nothing is wrong.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), remedy: None, fixed: false }
    }

    /// Creates a warning.
    pub fn warning(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, text: text.into(), remedy: Some(remedy.into()), fixed: false }
    }

    /// Creates a problem.
    pub fn problem(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::warning(check, text, remedy) }
    }

    /// Marks the finding as fixed.
    #[must_use]
    pub fn fixed(self) -> Self {
        Self { fixed: true, ..self }
    }
}

/// Runs all checks. A check that fails is reported as a finding, and the others still run.
pub async fn run_checks(forge: &Forge, options: &DoctorOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    add_findings(&mut findings, "database integrity", integrity(forge).await.map(Some));
    add_findings(&mut findings, "clock", clock(forge).await.map(Some));
    add_findings(&mut findings, "counters", counters(forge, options).await);
    match projects(forge).await {
        Ok(projects) => {
            findings.extend(repositories::check(forge, options, &projects).await);
            let orphans = repositories::find_orphans(forge, options, &projects).await;
            add_findings(&mut findings, "orphaned repositories", orphans);
        }
        Err(error) => findings.push(check_failed("repositories", &error)),
    }
    add_findings(&mut findings, "packs", packs::check(forge, options).await);
    for kind in stored_files::kinds(forge) {
        stored_files::check(forge, options, kind, &mut findings).await;
    }
    add_findings(&mut findings, "traces", trace_segments::check(forge, options).await);
    add_findings(&mut findings, "instance key", instance_key(forge).await.map(Some));
    add_findings(&mut findings, "background tasks", dead_tasks(forge).await.map(Some));
    add_findings(&mut findings, "waiting jobs", waiting_jobs(forge).await);
    findings
}

/// Moves repositories and files without a row to the lost-and-found folder, for an operator who continues with a database
/// that does not know them. Returns what was found.
pub async fn move_orphans_aside(forge: &Forge, options: &DoctorOptions) -> Result<Vec<Finding>> {
    let projects = projects(forge).await?;
    let mut findings = repositories::find_orphans(forge, options, &projects).await?;
    findings.extend(packs::move_orphans_aside(forge, options).await?);
    for kind in stored_files::kinds(forge) {
        stored_files::move_orphans_aside(forge, options, kind, &mut findings).await?;
    }
    Ok(findings)
}

fn add_findings<F: IntoIterator<Item = Finding>>(findings: &mut Vec<Finding>, check: &'static str, found: Result<F>) {
    match found {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(check_failed(check, &error)),
    }
}

/// Creates the finding of a check that could not run.
fn check_failed(check: &'static str, error: &crate::Error) -> Finding {
    Finding::problem(check, format!("cannot be checked: {error}"), "correct that, and run this again")
}

/// Checks for CI jobs that no runner can take.
async fn waiting_jobs(forge: &Forge) -> Result<Vec<Finding>> {
    const CHECK: &str = "waiting jobs";
    let stuck = forge.read(Caller::system(), stuck_jobs::list).await?;
    if stuck.is_empty() {
        return Ok(vec![Finding::ok(CHECK, "every waiting job has a runner that can take it")]);
    }
    let report = stuck.iter().take(MAX_EXAMPLES).map(|jobs| {
        let text = format!("{} of {} (project {}) wait: {}", jobs.count, jobs.path, jobs.project, jobs.reason);
        Finding::warning(CHECK, text, "see `gable admin runner list`; docs/runners.md describes how to register one")
    });
    Ok(report.collect())
}

async fn integrity(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "database integrity";
    let faults = forge
        .read(Caller::system(), |tx| {
            checks::prepare_for_whole_tables(tx.db())?;
            Ok(checks::integrity(tx.db())?)
        })
        .await?;
    Ok(if faults.is_empty() {
        Finding::ok(CHECK, "the database is intact")
    } else {
        Finding::problem(CHECK, faults.join("; "), "restore a backup")
    })
}

async fn clock(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "clock";
    let newest = forge.read(Caller::system(), |tx| Ok(checks::newest_timestamp(tx.db())?)).await?;
    let now = forge.now();
    // The clocks of several machines may differ a little.
    Ok(match newest.filter(|newest| newest.duration_since(now).as_secs() > 300) {
        Some(newest) => Finding::problem(
            CHECK,
            format!(
                "the clock of this machine says {}, but the newest timestamp in the database is {}",
                now.strftime("%F %T"),
                newest.strftime("%F %T")
            ),
            "set the clock of this machine, and run a time service",
        ),
        None => Finding::ok(
            CHECK,
            format!("it is {} UTC, later than all timestamps in the database", now.strftime("%F %T")),
        ),
    })
}

async fn counters(forge: &Forge, options: &DoctorOptions) -> Result<Vec<Finding>> {
    const CHECK: &str = "counters";
    let count = |tx: &mut crate::ReadTx<'_>| {
        checks::prepare_for_whole_tables(tx.db())?;
        Ok(checks::wrong_counters(tx.db())?)
    };
    let wrong = forge.read(Caller::system(), count).await?;
    if wrong.is_empty() {
        return Ok(vec![Finding::ok(CHECK, "all counters are correct")]);
    }
    if options.fix {
        let recount = |tx: &mut crate::WriteTx<'_>| {
            checks::prepare_for_whole_tables(tx.db())?;
            Ok(checks::recount(tx.db())?)
        };
        forge.write(Caller::system(), recount).await?;
    }
    let report = |(what, rows): (&str, i64)| {
        let text = format!("{what}: {rows} {} wrong", if rows == 1 { "row is" } else { "rows are" });
        let finding = Finding::problem(CHECK, text, "recount them");
        if options.fix { finding.fixed() } else { finding }
    };
    Ok(wrong.into_iter().map(report).collect())
}

async fn projects(forge: &Forge) -> Result<Vec<ProjectRow>> {
    let mut projects = Vec::new();
    loop {
        let after = projects.last().map_or(ProjectId::new(0), |project: &ProjectRow| project.id);
        let batch = forge.read(Caller::system(), move |tx| Ok(checks::projects(tx.db(), after, BATCH)?)).await?;
        if batch.is_empty() {
            return Ok(projects);
        }
        projects.extend(batch);
    }
}

/// Checks that the instance key decrypts the encrypted values and derives the stored tokens.
async fn instance_key(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "instance key";
    let key = forge.shared().instance_key.clone();
    let (decrypted, failed) = forge.read(Caller::system(), move |tx| Ok(try_key(tx.db(), &key)?)).await?;
    Ok(if failed.is_empty() {
        Finding::ok(CHECK, format!("it decrypts all encrypted values ({decrypted})"))
    } else {
        Finding::problem(
            CHECK,
            format!("it does not belong to this database: it does not fit {}", failed.join(", ")),
            "restore the file instance-key that belongs to this database; without it these have to be set again",
        )
    })
}

/// Describes the encrypted values and tokens of a database that do not fit the instance key.
pub fn encrypted_with_other_key(db: &mut Conn, key: &InstanceKey) -> store::Result<Vec<String>> {
    Ok(try_key(db, key)?.1)
}

/// Returns the number of encrypted values that a key decrypts, and descriptions of what does not fit it.
fn try_key(db: &mut Conn, key: &InstanceKey) -> store::Result<(usize, Vec<String>)> {
    let (mut decrypted, mut failed) = (0_usize, Vec::new());
    for (kind, what) in checks::encrypted_kinds().enumerate() {
        let (mut after, mut failures) = (0, 0);
        loop {
            let batch = checks::encrypted(db, kind, after, BATCH)?;
            let Some(last) = batch.last() else { break };
            after = last.id;
            let successes = batch.iter().filter(|row| key.decrypt(row.project, &row.encrypted).is_some()).count();
            decrypted += successes;
            failures += batch.len() - successes;
        }
        if failures > 0 {
            failed.push(format!("{failures} {what}"));
        }
    }
    let fits = |row: &checks::SeedRow| key.runner_token(&TokenSeed(row.seed.clone())).digest().as_bytes() == row.digest;
    let failures = checks::seeds(db, BATCH)?.iter().filter(|row| !fits(row)).count();
    if failures > 0 {
        failed.push(format!("the tokens of {failures} runners"));
    }
    Ok((decrypted, failed))
}

async fn dead_tasks(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "background tasks";
    let (pending, dead) = forge.read(Caller::system(), tasks::count).await?;
    Ok(if dead == 0 {
        Finding::ok(CHECK, format!("{pending} are pending, none failed permanently"))
    } else {
        let text = format!("{dead} failed permanently");
        Finding::warning(
            CHECK,
            text,
            "`gable admin task list` shows their errors, `gable admin task retry` retries one",
        )
    })
}
