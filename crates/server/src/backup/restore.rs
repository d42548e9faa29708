//! `gable restore`: everything is unpacked and checked beside before anything counts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, IsTerminal as _},
    path::{Path, PathBuf},
};

use git::Repositories;
use store::{Database, copies::Loading};

use super::{
    Sentence, archive,
    folder::Folder,
    manifest::{Head, Seal, changed},
    progress::Progress,
    rows,
    staging::{Staging, make_owner_only},
};
use crate::{
    commands::RestoreCommand,
    config,
    data_folder::{self, DataFolder, ServerLock},
    exit::{Ending, complain},
    instance,
    serve::say,
};

/// What a command may leave in a folder in which nothing is.
const LOCKS: [&str; 3] = ["gable.lock", "gable.turn", "lost+found"];
const DATABASE: &str = "gable.sqlite3";

pub(crate) fn run(command: RestoreCommand) -> Ending {
    let RestoreCommand { from, snapshot, quiet, place } = command;
    let config = config::load(place.into())?;
    // Before the folder is made, so that a wrong word changes nothing.
    let postgres = config.database.as_deref().map(data_folder::postgres).transpose()?;
    let mut target = Target::open(&config.data)?;
    let mut progress = Progress::new(quiet);
    let (head, seal) = fill(&mut target, &from, snapshot.as_deref(), postgres, &mut progress)?;
    drop(progress);
    if let Some(wrong) = super::what_is_wrong(&seal) {
        complain(format_args!(
            "warning: when the backup of {} was made {wrong}; gable doctor tells what that means",
            head.taken_at
        ));
        for path in &seal.missing {
            complain(format_args!("warning: missing: {path}"));
        }
        for damage in &seal.damaged {
            complain(format_args!("warning: damaged: {damage}"));
        }
    }
    say(&format!(
        "restored the backup of {} into {}: {} rows, {} repositories; gable serve starts it",
        head.taken_at,
        config.data.display(),
        seal.rows.values().sum::<u64>(),
        seal.repositories,
    ));
    Ok(())
}

fn fill(
    target: &mut Target,
    from: &Path,
    snapshot: Option<&str>,
    postgres: Option<Database>,
    progress: &mut Progress,
) -> Result<(Head, Seal), Sentence> {
    progress.stage("unpacked and checked");
    let staging = Staging::make(target.unfinished())?;
    let (head, seal) = read(from, snapshot, Some(&staging), progress)?;
    for path in &seal.left_out {
        staging.remove(path)?;
    }
    let repositories = Repositories::beside(&staging.path().join("repositories"));
    repositories.make_folders_of_all().map_err(|error| format!("cannot make folders of repositories: {error}"))?;
    progress.stage_of("loaded into the database", seal.rows.len() as u64);
    let embedded = staging.path().join(DATABASE);
    let database = if let Some(database) = postgres {
        database
    } else {
        make_owner_only(&embedded).map_err(|error| format!("cannot write {}: {error}", embedded.display()))?;
        Database::sqlite(&embedded)
    };
    load(&staging.path().join("database"), &database, &head, &seal, progress)?;
    staging.remove("database")?;
    instance::bind_restored(staging.path(), &database)?;
    target.take(staging.path())?;
    Ok((head, seal))
}

/// Reads a backup, wherever it is.
pub(super) fn read(
    from: &Path,
    snapshot: Option<&str>,
    staging: Option<&Staging>,
    progress: &mut Progress,
) -> Result<(Head, Seal), Sentence> {
    if from.is_dir() {
        let folder = Folder::open(from)?;
        let name = folder.choose(snapshot)?;
        if snapshot.is_none() && !folder.names_by_time()?.ahead.is_empty() {
            progress.warn(&format!(
                "some backups in {} are of the future, as --list shows; {name} is taken; --snapshot chooses another one",
                from.display()
            ));
        }
        if snapshot.is_none() && staging.is_some() {
            refuse_unless_complete(&folder, &name)?;
        }
        return match staging {
            Some(staging) => folder.read(&name, staging, progress),
            None => folder.verify(&name, progress),
        };
    }
    if snapshot.is_some() {
        return Err("--snapshot chooses among the backups in a folder, and this is none".into());
    }
    if from == Path::new("-") {
        if io::stdin().is_terminal() {
            return Err("a backup is expected on standard input".into());
        }
        return archive::read(io::stdin().lock(), staging, progress);
    }
    let file = File::open(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
    archive::read(BufReader::with_capacity(1 << 20, file), staging, progress)
}

/// The newest backup may lack what an older one has; which of them is wanted, the operator has to say.
fn refuse_unless_complete(folder: &Folder, newest: &str) -> Result<(), Sentence> {
    let Some(wrong) = super::what_is_wrong(&folder.look(newest)?.seal) else { return Ok(()) };
    let is_complete = |name: &String| folder.look(name).is_ok_and(|found| found.seal.is_complete());
    let complete = folder.names_by_time()?.past.into_iter().rev().find(is_complete);
    let other = complete.map_or_else(
        || "there is no complete one".to_owned(),
        |name| format!("--snapshot {name} restores the newest complete one"),
    );
    Err(format!(
        "when the newest backup {newest} was made {wrong}; --snapshot {newest} restores it all the same, and {other}; \
         nothing was changed"
    ))
}

/// Fills an empty database with the rows of a backup that was checked.
fn load(rows: &Path, database: &Database, head: &Head, seal: &Seal, progress: &mut Progress) -> Result<(), Sentence> {
    let failed = |error: store::OpenError| error.to_string();
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", rows.display());
    let mut loading = Loading::begin(database, &head.migrations).map_err(failed)?;
    let mut counts: BTreeMap<String, u64> = seal.rows.keys().map(|table| (table.clone(), 0)).collect();
    for table in entries(rows).map_err(unreadable)? {
        let name = table.file_name().and_then(|name| name.to_str()).ok_or_else(changed)?.to_owned();
        for bundle in entries(&table).map_err(unreadable)? {
            let file = File::open(&bundle).map_err(unreadable)?;
            let size = file.metadata().map_err(unreadable)?.len();
            let count = rows::read(file, |columns, rows| loading.load(&name, columns, rows).map_err(failed))?;
            *counts.entry(name.clone()).or_default() += count;
            progress.add(size);
        }
        progress.step();
    }
    if counts != seal.rows || loading.counts().map_err(failed)? != seal.rows {
        return Err("the database does not hold as many rows as the backup says; nothing was changed".into());
    }
    let sequences: Vec<(String, i64)> = seal.sequences.clone().into_iter().collect();
    loading.finish(&sequences).map_err(failed)
}

/// What a folder holds, in order; nothing if it is not there.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let found = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    let mut entries: Vec<PathBuf> = found.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort_unstable();
    Ok(entries)
}

/// The data folder to be. Until all is in its place it is as it was.
struct Target {
    trace: Trace,
    _turn: File,
    _lock: ServerLock,
}

/// What is taken back unless it was done.
struct Trace {
    path: PathBuf,
    was_there: bool,
    done: bool,
}

impl Target {
    fn open(path: &Path) -> Result<Self, Sentence> {
        refuse_unless_empty(path)?;
        let mut trace = Trace { path: path.to_owned(), was_there: path.exists(), done: false };
        let folder = DataFolder::open(path)?;
        let turn = folder.take_turn()?;
        let Some(lock) = folder.lock()? else {
            // Its locks are somebody else's.
            trace.done = true;
            return Err(format!("another gable serves the data folder {}; stop it first", path.display()));
        };
        // Looked at again now that nobody else can come.
        if let Err(sentence) = refuse_unless_empty(path) {
            trace.done = true;
            return Err(sentence);
        }
        let target = Self { trace, _turn: turn, _lock: lock };
        target.clear_unfinished()?;
        Ok(target)
    }

    fn unfinished(&self) -> PathBuf {
        self.trace.unfinished()
    }

    /// An earlier restore that was interrupted has begun with an empty folder, so all that is here is its.
    fn clear_unfinished(&self) -> Result<(), Sentence> {
        let unusable = |error: io::Error| format!("cannot use the data folder {}: {error}", self.trace.path.display());
        if !self.unfinished().exists() {
            return Ok(());
        }
        for entry in entries(&self.trace.path).map_err(unusable)? {
            let is_lock = LOCKS.iter().any(|lock| entry.ends_with(lock));
            if !is_lock && entry != self.unfinished() {
                if entry.is_dir() { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) }.map_err(unusable)?;
            }
        }
        fs::remove_dir_all(self.unfinished()).map_err(unusable)
    }

    /// Moves everything into its place; the database comes last.
    fn take(&mut self, staging: &Path) -> Result<(), Sentence> {
        let unusable = |error: io::Error| format!("cannot fill the data folder {}: {error}", self.trace.path.display());
        let folder = File::open(staging).map_err(unusable)?;
        rustix::fs::syncfs(&folder).map_err(|error| unusable(error.into()))?;
        let mut fresh = entries(staging).map_err(unusable)?;
        fresh.sort_by_key(|entry| entry.ends_with(DATABASE));
        // From here on what is there counts, and an interruption is noticed by the folder that is left.
        self.trace.done = true;
        for entry in fresh {
            let Some(name) = entry.file_name() else { continue };
            fs::rename(&entry, self.trace.path.join(name)).map_err(unusable)?;
        }
        let here = File::open(&self.trace.path).map_err(unusable)?;
        here.sync_all().and_then(|()| fs::remove_dir(staging)).and_then(|()| here.sync_all()).map_err(unusable)
    }
}

impl Trace {
    fn unfinished(&self) -> PathBuf {
        self.path.join(data_folder::UNFINISHED)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let _ = fs::remove_dir_all(self.unfinished());
        for lock in ["gable.lock", "gable.turn"] {
            let _ = fs::remove_file(self.path.join(lock));
        }
        if !self.was_there {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn refuse_unless_empty(path: &Path) -> Result<(), Sentence> {
    let found = entries(path).map_err(|error| format!("cannot use the data folder {}: {error}", path.display()))?;
    let interrupted = path.join(data_folder::UNFINISHED).exists();
    let is_nothing = |entry: &PathBuf| LOCKS.iter().any(|lock| entry.ends_with(lock));
    if interrupted || found.iter().all(is_nothing) {
        return Ok(());
    }
    Err(format!(
        "the data folder {} is not empty; move it away, or name another one with --data: a restore writes over nothing",
        path.display()
    ))
}
