//! Whether an instance is in order: what the database, the repositories and the files say about each other. Each check tells
//! what it found and what would help; what helps is done only if that is asked for.

mod kept;
mod lost;

use std::path::PathBuf;

use model::{StorageId, projects::Seed};
use store::{
    Conn,
    checks::{self, Kept, ProjectRow},
};

use self::lost::{linked, lost};
use crate::{Caller, Forge, InstanceKey, Result, pushes, tasks, waiting};

/// How many rows are looked at at a time.
const BATCH: i64 = 1000;
/// How many of a kind are named.
const NAMED: usize = 5;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It is as it shall be.
    Fine,
    /// It hurts nobody yet.
    Warning,
    /// Something does not work, or is lost.
    Problem,
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was looked at, in two or three words.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found, in a sentence.
    pub text: String,
    /// What helps: what would be done, or what the operator has to do.
    pub remedy: Option<String>,
    /// Whether that was done.
    pub fixed: bool,
}

/// Hears of what is looked at how far it has come, of how many.
pub type Progress = Box<dyn Fn(&str, usize, usize) + Send + Sync>;

/// How thoroughly it is looked, and what may be done about it.
pub struct Wishes {
    /// Whether everything is looked at that refs lead to.
    pub deep: bool,
    /// Whether to do what helps.
    pub fix: bool,
    /// Whether that includes forgetting files that are missing.
    pub forget_missing: bool,
    /// Whether a server works on the folder: then its files are left alone.
    pub beside_server: bool,
    /// Where to put what belongs to nobody.
    pub lost_and_found: PathBuf,
    /// Hears how far it has come.
    pub progress: Progress,
}

impl Finding {
    /// It is as it shall be.
    pub fn fine(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Fine, text: text.into(), remedy: None, fixed: false }
    }

    /// It hurts nobody yet.
    pub fn warning(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, text: text.into(), remedy: Some(remedy.into()), fixed: false }
    }

    /// Something does not work, or is lost.
    pub fn problem(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::warning(check, text, remedy) }
    }

    /// The same, done with.
    #[must_use]
    pub fn fixed(self) -> Self {
        Self { fixed: true, ..self }
    }
}

/// Looks at everything that the database knows of. What cannot be looked at is told as well, and the rest is looked at.
pub async fn examine(forge: &Forge, wishes: &Wishes) -> Vec<Finding> {
    let mut findings = Vec::new();
    take(&mut findings, "database integrity", integrity(forge).await.map(Some));
    take(&mut findings, "clock", clock(forge).await.map(Some));
    take(&mut findings, "counters", counters(forge, wishes).await);
    match projects(forge).await {
        Ok(projects) => {
            findings.extend(repositories(forge, wishes, &projects).await);
            take(&mut findings, "orphaned repositories", stray_repositories(forge, wishes, &projects).await);
        }
        Err(error) => findings.push(unseen("repositories", &error)),
    }
    take(&mut findings, "unfinished pushes", unfinished_pushes(forge, wishes).await.map(Some));
    for what in [Kept::Uploads, Kept::Artifacts, Kept::Traces] {
        kept::examine(forge, wishes, what, &mut findings).await;
    }
    take(&mut findings, "instance key", instance_key(forge).await.map(Some));
    take(&mut findings, "background jobs", given_up(forge).await.map(Some));
    take(&mut findings, "waiting jobs", waiting_jobs(forge).await);
    findings
}

/// Moves repositories and files that no row names to where the wishes say, for an operator who goes on with a database that
/// does not know them. Answers what was found.
pub async fn set_strays_aside(forge: &Forge, wishes: &Wishes) -> Result<Vec<Finding>> {
    let projects = projects(forge).await?;
    let mut findings = stray_repositories(forge, wishes, &projects).await?;
    for what in [Kept::Uploads, Kept::Artifacts, Kept::Traces] {
        kept::set_strays_aside(forge, wishes, what, &mut findings).await?;
    }
    Ok(findings)
}

fn take<F: IntoIterator<Item = Finding>>(findings: &mut Vec<Finding>, check: &'static str, found: Result<F>) {
    match found {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(unseen(check, &error)),
    }
}

/// It could not be looked at.
fn unseen(check: &'static str, error: &crate::Error) -> Finding {
    Finding::problem(check, format!("cannot be looked at: {error}"), "put that right, and run this again")
}

/// Jobs of CI that no runner will take.
async fn waiting_jobs(forge: &Forge) -> Result<Vec<Finding>> {
    const CHECK: &str = "waiting jobs";
    let stuck = forge.read(Caller::system(), waiting::stuck_jobs).await?;
    if stuck.is_empty() {
        return Ok(vec![Finding::fine(CHECK, "every waiting job has a runner that can take it")]);
    }
    let told = stuck.iter().take(NAMED).map(|jobs| {
        let text = format!("{} of {} (project {}) wait: {}", jobs.count, jobs.path, jobs.project, jobs.reason);
        Finding::warning(CHECK, text, "see `gable admin runner list`; docs/runners.md tells how to register one")
    });
    Ok(told.collect())
}

async fn integrity(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "database integrity";
    let faults = forge
        .read(Caller::system(), |tx| {
            checks::take_time(tx.db())?;
            Ok(checks::integrity(tx.db())?)
        })
        .await?;
    Ok(if faults.is_empty() {
        Finding::fine(CHECK, "the database is whole")
    } else {
        Finding::problem(CHECK, faults.join("; "), "restore a backup")
    })
}

async fn clock(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "clock";
    let newest = forge.read(Caller::system(), |tx| Ok(checks::newest_moment(tx.db())?)).await?;
    let now = forge.now();
    // A little is what several machines differ by.
    Ok(match newest.filter(|newest| newest.duration_since(now).as_secs() > 300) {
        Some(newest) => Finding::problem(
            CHECK,
            format!("it is {} here, but the database knows of {}", now.strftime("%F %T"), newest.strftime("%F %T")),
            "set the clock of this machine; a service for the time keeps it right",
        ),
        None => Finding::fine(CHECK, format!("it is {} UTC, later than anything stored", now.strftime("%F %T"))),
    })
}

async fn counters(forge: &Forge, wishes: &Wishes) -> Result<Vec<Finding>> {
    const CHECK: &str = "counters";
    let count = |tx: &mut crate::ReadTx<'_>| {
        checks::take_time(tx.db())?;
        Ok(checks::wrong_counters(tx.db())?)
    };
    let wrong = forge.read(Caller::system(), count).await?;
    if wrong.is_empty() {
        return Ok(vec![Finding::fine(CHECK, "every counter agrees with what it counts")]);
    }
    if wishes.fix {
        let recount = |tx: &mut crate::WriteTx<'_>| {
            checks::take_time(tx.db())?;
            Ok(checks::recount(tx.db())?)
        };
        forge.write(Caller::system(), recount).await?;
    }
    let told = |(what, rows): (&str, i64)| {
        let text = format!("{what}: {rows} {} wrong", if rows == 1 { "row is" } else { "rows are" });
        let finding = Finding::problem(CHECK, text, "count them anew");
        if wishes.fix { finding.fixed() } else { finding }
    };
    Ok(wrong.into_iter().map(told).collect())
}

async fn projects(forge: &Forge) -> Result<Vec<ProjectRow>> {
    let mut projects = Vec::new();
    loop {
        let after = projects.last().map_or(0, |project: &ProjectRow| project.id);
        let some = forge.read(Caller::system(), move |tx| Ok(checks::projects(tx.db(), after, BATCH)?)).await?;
        if some.is_empty() {
            return Ok(projects);
        }
        projects.extend(some);
    }
}

async fn repositories(forge: &Forge, wishes: &Wishes, projects: &[ProjectRow]) -> Vec<Finding> {
    const CHECK: &str = "repositories";
    let mut findings = Vec::new();
    let (mut looked_at, total) = (0, projects.len());
    for (at, project) in projects.iter().enumerate().filter(|(_, project)| !project.is_buried()) {
        (wishes.progress)("repositories", at + 1, total);
        let (id, deep, repositories) = (project.id, wishes.deep, forge.shared().repositories.clone());
        let Some(storage) = StorageId::parse(&project.storage) else { continue };
        let exists = repositories.exists(&storage);
        let faults = pushes::blocking(move || Ok(repositories.check(&storage, deep)?)).await;
        let faults = faults.unwrap_or_else(|error| vec![error.to_string()]);
        looked_at += usize::from(exists);
        if !exists && project.default_branch.is_some() {
            let remedy = "see that the disk of repositories is mounted, or restore it from a backup";
            findings.push(Finding::problem(CHECK, format!("the repository of project {id} is not there"), remedy));
        } else if !faults.is_empty() {
            let text = format!("project {id}: {}", faults.join("; "));
            let remedy = "restore it from a backup, or push what is missing from a clone";
            findings.push(Finding::problem(CHECK, text, remedy));
        }
    }
    if findings.is_empty() {
        let how = if wishes.deep { "are whole" } else { "have what their refs lead to (the rest was not looked at)" };
        findings.push(Finding::fine(CHECK, format!("{looked_at} of {total} projects have one; all of them {how}")));
    }
    findings
}

async fn stray_repositories(forge: &Forge, wishes: &Wishes, projects: &[ProjectRow]) -> Result<Vec<Finding>> {
    const CHECK: &str = "orphaned repositories";
    let known: Vec<StorageId> = projects.iter().filter_map(|project| StorageId::parse(&project.storage)).collect();
    let repositories = forge.shared().repositories.clone();
    let strays = pushes::blocking(move || Ok(repositories.strays(known)?)).await?;
    let mut findings: Vec<Finding> = linked(CHECK, &strays.links).into_iter().collect();
    // That there are none is not said beside some.
    if findings.is_empty() || !strays.orphans.is_empty() {
        findings.extend(lost(wishes, CHECK, "repositories", forge.shared().repositories.root(), strays.orphans));
    }
    findings.push(match strays.leftovers.len() {
        0 => Finding::fine("leftovers", "nothing was left unfinished"),
        count if wishes.beside_server => {
            Finding::fine("leftovers", format!("the server is at {count} things in repositories/tmp and trash"))
        }
        count => Finding::warning(
            "leftovers",
            format!("{count} things were left unfinished in repositories/tmp and trash"),
            "the next start of the server removes them",
        ),
    });
    Ok(findings)
}

async fn unfinished_pushes(forge: &Forge, wishes: &Wishes) -> Result<Finding> {
    const CHECK: &str = "unfinished pushes";
    let pending = || forge.read(Caller::system(), |tx| Ok(store::intents::pending(tx.db(), 0, BATCH)?.len()));
    let count = pending().await?;
    if count == 0 {
        return Ok(Finding::fine(CHECK, "there are none"));
    }
    if wishes.beside_server {
        return Ok(Finding::fine(CHECK, format!("{count} are under way; the server settles them by itself")));
    }
    let text = format!("{count} were interrupted");
    let finding = Finding::warning(CHECK, text, "complete or forget them, as the next start of the server does");
    if !wishes.fix {
        return Ok(finding);
    }
    pushes::settle_all(forge).await?;
    let left = pending().await?;
    Ok(if left == 0 {
        finding.fixed()
    } else {
        Finding::problem(CHECK, format!("{left} of {count} cannot be settled"), "the log tells why; see repositories")
    })
}

/// Whether the key of the instance opens what was sealed, and makes the tokens that were made.
async fn instance_key(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "instance key";
    let key = forge.shared().instance_key.clone();
    let (opened, closed) = forge.read(Caller::system(), move |tx| Ok(try_key(tx.db(), &key)?)).await?;
    Ok(if closed.is_empty() {
        Finding::fine(CHECK, format!("it opens all of {opened} things that were sealed"))
    } else {
        Finding::problem(
            CHECK,
            format!("it does not fit: it does not open {}", closed.join(", ")),
            "put the file instance-key back that belongs to this database; without it these have to be set anew",
        )
    })
}

/// Of everything that the key of the instance should open, what it does not open, in words.
pub fn closed_to(db: &mut Conn, key: &InstanceKey) -> store::Result<Vec<String>> {
    Ok(try_key(db, key)?.1)
}

/// How many things a key opens, and what it does not open.
fn try_key(db: &mut Conn, key: &InstanceKey) -> store::Result<(usize, Vec<String>)> {
    let (mut opened, mut closed) = (0_usize, Vec::new());
    for (kind, what) in checks::sealed_kinds().enumerate() {
        let (mut after, mut bad) = (0, 0);
        loop {
            let some = checks::sealed(db, kind, after, BATCH)?;
            let Some(last) = some.last() else { break };
            after = last.id;
            let opens = some.iter().filter(|row| key.open(row.project, &row.sealed).is_some()).count();
            opened += opens;
            bad += some.len() - opens;
        }
        if bad > 0 {
            closed.push(format!("{bad} {what}"));
        }
    }
    let fits = |row: &checks::SeedRow| key.runner_token(&Seed(row.seed.clone())).digest().as_bytes() == row.digest;
    let strange = checks::seeds(db, BATCH)?.iter().filter(|row| !fits(row)).count();
    if strange > 0 {
        closed.push(format!("the tokens of {strange} runners"));
    }
    Ok((opened, closed))
}

async fn given_up(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "background jobs";
    let (waiting, dead) = forge.read(Caller::system(), tasks::count).await?;
    Ok(if dead == 0 {
        Finding::fine(CHECK, format!("{waiting} wait, none was given up"))
    } else {
        let text = format!("{dead} were given up");
        Finding::warning(CHECK, text, "`gable admin job list` tells why, `gable admin job retry` tries one again")
    })
}
