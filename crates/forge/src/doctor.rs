//! Whether an instance is in order: what the database, the repositories and the files say about each other. Each check tells
//! what it found and what would help; what helps is done only if that is asked for.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use model::projects::Seed;
use store::checks::{self, Kept, KeptRow};

use crate::{Caller, Error, Forge, Result, jobs, pushes};

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

/// Looks at everything that the database knows of.
pub async fn examine(forge: &Forge, wishes: &Wishes) -> Result<Vec<Finding>> {
    let mut findings = vec![integrity(forge).await?, clock(forge).await?];
    findings.extend(counters(forge, wishes).await?);
    findings.extend(repositories(forge, wishes).await?);
    findings.push(unfinished_pushes(forge, wishes).await?);
    for what in [Kept::Uploads, Kept::Artifacts, Kept::Traces] {
        findings.extend(kept(forge, wishes, what).await?);
    }
    findings.push(instance_key(forge).await?);
    findings.push(given_up(forge).await?);
    Ok(findings)
}

async fn integrity(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "database integrity";
    let faults = forge
        .read(Caller::system(), |it| {
            checks::take_time(it.db())?;
            Ok(checks::integrity(it.db())?)
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
    let newest = forge.read(Caller::system(), |it| Ok(checks::newest_moment(it.db())?)).await?;
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
    let count = |it: &mut crate::Reader<'_>| {
        checks::take_time(it.db())?;
        Ok(checks::wrong_counters(it.db())?)
    };
    let wrong = forge.read(Caller::system(), count).await?;
    if wrong.is_empty() {
        return Ok(vec![Finding::fine(CHECK, "every counter agrees with what it counts")]);
    }
    if wishes.fix {
        let recount = |it: &mut crate::Writer<'_>| {
            checks::take_time(it.db())?;
            Ok(checks::recount(it.db())?)
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

async fn repositories(forge: &Forge, wishes: &Wishes) -> Result<Vec<Finding>> {
    const CHECK: &str = "repositories";
    let mut projects = Vec::new();
    loop {
        let after = projects.last().map_or(0, |project: &checks::ProjectRow| project.id);
        let some = forge.read(Caller::system(), move |it| Ok(checks::projects(it.db(), after, BATCH)?)).await?;
        if some.is_empty() {
            break;
        }
        projects.extend(some);
    }
    let mut findings = Vec::new();
    let (mut looked_at, total) = (0, projects.len());
    for (at, project) in projects.iter().enumerate().filter(|(_, project)| !project.is_buried()) {
        (wishes.progress)("repositories", at + 1, total);
        let (id, deep, repositories) = (project.id, wishes.deep, forge.shared().repositories.clone());
        let exists = repositories.exists(id);
        let faults = pushes::blocking(move || Ok(repositories.check(id, deep)?)).await;
        let faults = faults.unwrap_or_else(|error| vec![error.to_string()]);
        looked_at += usize::from(exists);
        if !exists && project.default_branch.is_some() {
            let remedy = "restore it from a backup";
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
    let (known, all) = (projects.iter().map(|project| project.id).collect::<Vec<_>>(), forge.shared());
    let repositories = all.repositories.clone();
    let strays = pushes::blocking(move || Ok(repositories.strays(known)?)).await?;
    findings.extend(lost(wishes, "orphaned repositories", "repositories", strays.orphans)?);
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

/// What belongs to nobody, and is moved aside if that is asked for.
fn lost(wishes: &Wishes, check: &'static str, folder: &str, paths: Vec<PathBuf>) -> Result<Vec<Finding>> {
    if paths.is_empty() {
        return Ok(vec![Finding::fine(check, "there are none")]);
    }
    if wishes.beside_server {
        // What is just coming in or on its way out looks the same.
        let text = format!("{} look like it: {}", paths.len(), named(&paths));
        return Ok(vec![Finding::warning(check, text, "stop the server and look again; nothing is moved beside it")]);
    }
    let text = format!("{} belong to nobody: {}", paths.len(), named(&paths));
    let place = wishes.lost_and_found.join(folder);
    let finding = Finding::warning(check, text, format!("move them to {}", place.display()));
    if !wishes.fix {
        return Ok(vec![finding]);
    }
    for path in &paths {
        move_aside(path, &place).map_err(|error| Error::Internal(format!("{}: {error}", path.display())))?;
    }
    Ok(vec![finding.fixed()])
}

fn named(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

/// Moves a file or a folder, under a name that keeps the numbers of the folders above.
fn move_aside(path: &Path, place: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(place)?;
    let parts: Vec<_> = path.iter().rev().take(2).collect();
    let name = parts.iter().rev().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("-");
    fs::rename(path, place.join(name))?;
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

async fn unfinished_pushes(forge: &Forge, wishes: &Wishes) -> Result<Finding> {
    const CHECK: &str = "unfinished pushes";
    let pending = || forge.read(Caller::system(), |it| Ok(store::intents::pending(it.db(), 0, BATCH)?.len()));
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

impl Forge {
    fn place_of(&self, what: Kept) -> PathBuf {
        let shared = self.shared();
        match what {
            Kept::Uploads => shared.files.folder().join("uploads"),
            Kept::Artifacts => shared.files.folder().join("artifacts"),
            Kept::Traces => shared.logs.folder().to_owned(),
        }
    }
}

fn words(what: Kept) -> (&'static str, &'static str) {
    match what {
        Kept::Uploads => ("uploads", "uploads without rows"),
        Kept::Artifacts => ("artifacts", "artifacts without rows"),
        Kept::Traces => ("traces", "traces without builds"),
    }
}

/// Files and the rows that stand for them.
async fn kept(forge: &Forge, wishes: &Wishes, what: Kept) -> Result<Vec<Finding>> {
    let (rows, files) = words(what);
    let missing = missing_files(forge, what).await?;
    let mut findings = vec![if missing.is_empty() {
        Finding::fine(rows, "every row has its file")
    } else {
        let ids: Vec<i64> = missing.iter().map(|row| row.id).collect();
        let some: Vec<String> = ids.iter().take(NAMED).map(ToString::to_string).collect();
        let text = format!("the files of {} are missing or cut short, such as {}", ids.len(), some.join(", "));
        let finding = Finding::problem(rows, text, "restore them from a backup, or forget that there were any");
        if wishes.fix && !wishes.beside_server {
            let forget = move |it: &mut crate::Writer<'_>| Ok(checks::forget(it.db(), what, &ids)?);
            forge.write(Caller::system(), forget).await?;
            finding.fixed()
        } else {
            finding
        }
    }];
    let strays = stray_files(forge, what).await?;
    findings.extend(lost(wishes, files, rows, strays)?);
    Ok(findings)
}

/// Rows whose file is not there or shorter than it was.
async fn missing_files(forge: &Forge, what: Kept) -> Result<Vec<KeptRow>> {
    let (mut missing, mut after) = (Vec::new(), 0);
    let place = forge.place_of(what);
    let lacks = |row: &KeptRow| {
        let path = place.join(row.project.to_string()).join(row.id.to_string());
        fs::metadata(path).map_or(0, |data| data.len() + 1) <= u64::try_from(row.size).unwrap_or(0)
    };
    loop {
        let rows = forge.read(Caller::system(), move |it| Ok(checks::kept(it.db(), what, after, BATCH)?)).await?;
        let Some(last) = rows.last() else { return Ok(missing) };
        after = last.id;
        let suspects: Vec<KeptRow> = rows.into_iter().filter(lacks).collect();
        // Whatever was removed meanwhile is no loss: of a file the row goes last.
        let ids: Vec<i64> = suspects.iter().map(|row| row.id).collect();
        let still = forge.read(Caller::system(), move |it| Ok(checks::known(it.db(), what, &ids)?)).await?;
        missing.extend(suspects.into_iter().filter(|row| still.contains(&row.id)));
    }
}

/// Files that no row stands for.
async fn stray_files(forge: &Forge, what: Kept) -> Result<Vec<PathBuf>> {
    let place = forge.place_of(what);
    let mut strays = Vec::new();
    for folder in entries(&place)? {
        if !folder.is_dir() {
            strays.push(folder);
            continue;
        }
        for some in entries(&folder)?.chunks(usize::try_from(BATCH).unwrap_or(1000)) {
            let ids: Vec<i64> = some.iter().filter_map(|path| number_of(path)).collect();
            let found = forge.read(Caller::system(), move |it| Ok(checks::known(it.db(), what, &ids)?)).await?;
            let found: HashSet<i64> = found.into_iter().collect();
            let is_known = |path: &PathBuf| number_of(path).is_some_and(|id| found.contains(&id));
            strays.extend(some.iter().filter(|path| !is_known(path)).cloned());
        }
    }
    Ok(strays)
}

/// The number in the name of a file: what a write that was never ended leaves, and what is kept beside a trace, have it too.
fn number_of(path: &Path) -> Option<i64> {
    path.file_name()?.to_str()?.split(['.', '#']).next()?.parse().ok()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error: io::Error| Error::Internal(format!("cannot read {}: {error}", folder.display()));
    let mut found: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(unreadable)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(unreadable(error)),
    };
    found.sort();
    Ok(found)
}

/// Whether the key of the instance opens what was sealed, and makes the tokens that were made.
async fn instance_key(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "instance key";
    let (mut opened, mut closed) = (0_usize, Vec::new());
    for (kind, what) in checks::sealed_kinds().enumerate() {
        let (mut after, mut bad) = (0, 0);
        loop {
            let some = forge.read(Caller::system(), move |it| Ok(checks::sealed(it.db(), kind, after, BATCH)?)).await?;
            let Some(last) = some.last() else { break };
            after = last.id;
            let key = &forge.shared().instance_key;
            let opens = some.iter().filter(|row| key.open(row.project, &row.sealed).is_some()).count();
            opened += opens;
            bad += some.len() - opens;
        }
        if bad > 0 {
            closed.push(format!("{bad} {what}"));
        }
    }
    let seeds = forge.read(Caller::system(), |it| Ok(checks::seeds(it.db(), BATCH)?)).await?;
    let key = &forge.shared().instance_key;
    let fits = |row: &checks::SeedRow| key.runner_token(&Seed(row.seed.clone())).digest().as_bytes() == row.digest;
    let strange = seeds.iter().filter(|row| !fits(row)).count();
    if strange > 0 {
        closed.push(format!("the tokens of {strange} runners"));
    }
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

async fn given_up(forge: &Forge) -> Result<Finding> {
    const CHECK: &str = "background jobs";
    let (waiting, dead) = forge.read(Caller::system(), jobs::count).await?;
    Ok(if dead == 0 {
        Finding::fine(CHECK, format!("{waiting} wait, none was given up"))
    } else {
        let text = format!("{dead} were given up");
        Finding::warning(CHECK, text, "`gable admin job list` tells why, `gable admin job retry` tries one again")
    })
}
