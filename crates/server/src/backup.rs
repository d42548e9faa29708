//! Backups: everything of an instance at one instant, in a file, a stream or a folder, and back.

mod archive;
mod capture;
mod examine;
mod folder;
mod manifest;
pub(crate) mod migrate;
mod progress;
pub(crate) mod restore;
mod rows;
pub(crate) mod schedule;
mod staging;

use std::{
    io::{self, BufWriter, IsTerminal as _},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use git::Repositories;
use indicatif::HumanBytes;
use store::Database;

use crate::{
    Outcome,
    backup::{
        archive::{Archive, Target},
        capture::Ground,
        folder::{Addition, Folder},
        manifest::Seal,
        progress::Progress,
    },
    commands::BackupCommand,
    config::{self, Config},
    data_folder::DataFolder,
    exit::{Ending, Failure, complain},
    serve::say,
};

/// What went wrong, for the operator.
type Sentence = String;

/// Makes a backup, or looks at those that there are.
pub(crate) fn run(command: BackupCommand) -> Ending {
    let BackupCommand { target, folder, keep, list, verify, snapshot, force, quiet, place } = command;
    if list {
        let folder = folder.ok_or_else(|| Failure::Misused("--list needs --folder DIR".into()))?;
        return Ok(show(&Folder::open(&folder)?)?);
    }
    let place_of = target.clone().or_else(|| folder.clone());
    if verify {
        let from = place_of.ok_or_else(|| Failure::Misused("name what to verify: a file, - or a folder".into()))?;
        return Ok(check(&from, snapshot.as_deref(), quiet)?);
    }
    let config = config::load(place.into())?;
    match (target, folder) {
        (None, Some(folder)) => into_folder(&config, &folder, keep, quiet)?,
        (Some(target), None) if target == Path::new("-") => into_stream(&config, quiet)?,
        (Some(target), None) => into_file(&config, &target, force, quiet)?,
        _ => {
            let sentence = "name one place for the backup: a file, - for standard output, or --folder DIR";
            return Err(Failure::Misused(sentence.into()));
        }
    }
    Ok(())
}

fn into_file(config: &Config, path: &Path, force: bool, quiet: bool) -> Outcome {
    let (target, file) = Target::make(path, force)?;
    let ground = ground_of(config)?;
    let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, &file));
    let seal = make(&ground, &mut archive, quiet)?;
    archive.into_inner()?.into_inner().map_err(|error| format!("the backup cannot be written: {error}"))?;
    target.finish(&file)?;
    say(&format!("backed up into {}: {}", path.display(), describe(&seal)));
    refuse_incomplete(&seal)
}

fn into_stream(config: &Config, quiet: bool) -> Outcome {
    if io::stdout().is_terminal() {
        return Err("a backup is no text for a terminal; send standard output somewhere".into());
    }
    let ground = ground_of(config)?;
    let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, io::stdout().lock()));
    let seal = make(&ground, &mut archive, quiet)?;
    refuse_incomplete(&seal)
}

fn into_folder(config: &Config, path: &Path, keep: Option<u32>, quiet: bool) -> Outcome {
    let ground = ground_of(config)?;
    let folder = Folder::make(path)?;
    let mut addition = Addition::new(&folder)?;
    let told = addition.warnings.len();
    warn(&addition.warnings);
    let seal = make(&ground, &mut addition, quiet)?;
    say(&format!(
        "backed up into {}: {}, of which {} are new",
        path.display(),
        describe(&seal),
        HumanBytes(addition.added)
    ));
    // Older backups may have what this one lacks.
    refuse_incomplete(&seal)?;
    let removed = keep.map(|keep| addition.keep(usize::try_from(keep).unwrap_or(usize::MAX))).transpose();
    warn(&addition.warnings[told..]);
    let removed = removed.map_err(|error| format!("the backup is made, but old ones could not be removed: {error}"))?;
    if let Some(removed) = removed {
        say(&format!("removed {removed} old backups"));
    }
    Ok(())
}

fn warn(warnings: &[Sentence]) {
    for warning in warnings {
        complain(format_args!("warning: {warning}"));
    }
}

fn make(ground: &Ground, sink: &mut dyn capture::Sink, quiet: bool) -> Result<Seal, Sentence> {
    capture::copy(ground, sink, &mut Progress::new(quiet), &AtomicBool::new(false))
}

fn describe(seal: &Seal) -> String {
    let rows: u64 = seal.rows.values().sum();
    let lacks = if seal.missing.is_empty() { String::new() } else { format!("; lacks {}", seal.missing.len()) };
    let damaged = if seal.damaged.is_empty() { String::new() } else { format!("; {} damaged", seal.damaged.len()) };
    format!(
        "{rows} rows, {} repositories, {} files, {}{lacks}{damaged}",
        seal.repositories,
        seal.members,
        HumanBytes(seal.bytes)
    )
}

/// A backup that lacks something or holds damage is there, but does not count as a good one.
fn refuse_incomplete(seal: &Seal) -> Outcome {
    what_is_wrong(seal).map_or(Ok(()), |wrong| {
        Err(format!("the backup is made, but {wrong}; gable doctor tells more, and no older backup was removed"))
    })
}

/// What the disk of the instance has lost or damaged, in a sentence.
fn what_is_wrong(seal: &Seal) -> Option<Sentence> {
    let missing = seal.missing.first().map(|first| {
        format!(
            "lacks {} files or repositories that should be there, such as {first} (is every disk mounted?)",
            seal.missing.len()
        )
    });
    let damaged = seal.damaged.first().map(|first| {
        format!(
            "{} files are damaged on the disk of the instance, such as {first} (older backups may have them whole)",
            seal.damaged.len()
        )
    });
    match (missing, damaged) {
        (Some(missing), Some(damaged)) => Some(format!("it {missing}, and {damaged}")),
        (Some(missing), None) => Some(format!("it {missing}")),
        (None, damaged) => damaged,
    }
}

/// Where everything is; nothing is made that is not there.
fn ground_of(config: &Config) -> Result<Ground, Sentence> {
    let folder = DataFolder::open_existing(&config.data)?;
    // Whoever brings the database up to date at this moment is waited for.
    let _turn = folder.take_turn()?;
    Ok(Ground {
        data: folder.path().to_owned(),
        database: folder.existing_database(config.database.as_deref())?,
        repositories: folder.repositories(false)?,
    })
}

/// What a scheduled backup needs to know.
pub(crate) fn ground(data: PathBuf, database: Database, repositories: Repositories) -> Ground {
    Ground { data, database, repositories }
}

fn show(folder: &Folder) -> Outcome {
    let ahead = folder.names_by_time()?.ahead;
    for name in folder.names()? {
        match folder.look(&name) {
            Ok(found) => say(&format!(
                "{}  gable {}, {}: {}{}",
                found.name,
                found.head.gable,
                found.head.engine,
                describe(&found.seal),
                if ahead.contains(&found.name) { "; of the future" } else { "" }
            )),
            Err(problem) => say(&format!("{name}  cannot be used: {problem}")),
        }
    }
    Ok(())
}

fn check(from: &Path, snapshot: Option<&str>, quiet: bool) -> Outcome {
    let mut progress = Progress::new(quiet);
    progress.stage("checked");
    let (head, seal) = restore::read(from, snapshot, None, &mut progress)?;
    drop(progress);
    if let Some(wrong) = what_is_wrong(&seal) {
        return Err(format!("the backup of {} is what was written, but when it was made {wrong}", head.taken_at));
    }
    say(&format!("the backup of {} is whole: {}", head.taken_at, describe(&seal)));
    Ok(())
}
