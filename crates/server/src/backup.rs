//! `gable backup`: writes a consistent copy of an instance to a file, a stream or a folder, and verifies it.

mod archive;
mod capture;
mod folder;
mod manifest;
pub(crate) mod migrate;
mod preflight;
pub(crate) mod progress;
mod repositories;
pub(crate) mod restore;
mod restore_bucket;
mod rows;
pub(crate) mod schedule;
mod source;
mod staging;

use std::{
    io::{self, BufWriter, IntoInnerError, IsTerminal as _},
    path::Path,
    sync::atomic::AtomicBool,
};

pub(crate) use self::source::BackupSource;
use crate::{
    backup::{
        archive::{Archive, PartialFile},
        folder::{BackupFolder, NewSnapshot},
        manifest::ManifestSummary,
        progress::Progress,
    },
    commands::BackupCommand,
    config::{self, Config},
    data_folder::DataFolder,
    exit::{CommandResult, Failure, message, print_line, print_stderr},
};
use anyhow::{Context as _, Result, anyhow, bail};
use indicatif::HumanBytes;

/// Makes, lists or verifies backups.
pub(crate) fn run(command: BackupCommand) -> CommandResult {
    let BackupCommand { target, folder, keep, list, verify, snapshot, force, quiet, location } = command;
    if list {
        let folder = folder.ok_or_else(|| Failure::Usage(anyhow!("--list needs --folder DIR")))?;
        return Ok(list_snapshots(&BackupFolder::open(&folder)?)?);
    }
    let existing = target.clone().or_else(|| folder.clone());
    if verify {
        let from =
            existing.ok_or_else(|| Failure::Usage(anyhow!("specify what to verify: a file, - or --folder DIR")))?;
        return Ok(verify_backup(&from, snapshot.as_deref(), quiet)?);
    }
    let config = config::load(location)?;
    match (target, folder) {
        (None, Some(folder)) => into_folder(&config, &folder, keep, quiet)?,
        (Some(target), None) if target == Path::new("-") => into_stream(&config, quiet)?,
        (Some(target), None) => into_file(&config, &target, force, quiet)?,
        _ => {
            return Err(Failure::Usage(anyhow!(
                "specify exactly one destination: a file, - for standard output, or --folder DIR"
            )));
        }
    }
    Ok(())
}

fn into_file(config: &Config, path: &Path, force: bool, quiet: bool) -> Result<()> {
    let (target, file) = PartialFile::create(path, force)?;
    let source = open_source(config)?;
    let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, &file));
    let summary = make(&source, &mut archive, quiet)?;
    archive.into_inner()?.into_inner().map_err(IntoInnerError::into_error).context("cannot write the backup")?;
    target.finish(&file)?;
    print_line(&format!("backed up into {}: {}", path.display(), describe(&summary)));
    ensure_complete(&summary)
}

fn into_stream(config: &Config, quiet: bool) -> Result<()> {
    if io::stdout().is_terminal() {
        bail!("refusing to write a backup to a terminal; redirect standard output");
    }
    let source = open_source(config)?;
    let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, io::stdout().lock()));
    let summary = make(&source, &mut archive, quiet)?;
    ensure_complete(&summary)
}

fn into_folder(config: &Config, path: &Path, keep: Option<u32>, quiet: bool) -> Result<()> {
    let source = open_source(config)?;
    let folder = BackupFolder::open_or_create(path)?;
    let mut new_snapshot = NewSnapshot::new(&folder)?;
    let printed = new_snapshot.warnings.len();
    warn(&new_snapshot.warnings);
    let summary = make(&source, &mut new_snapshot, quiet)?;
    print_line(&format!(
        "backed up into {}: {}, of which {} are new",
        path.display(),
        describe(&summary),
        HumanBytes(new_snapshot.bytes_added)
    ));
    // Older backups may contain what is missing in this one.
    ensure_complete(&summary)?;
    let removed = keep.map(|keep| new_snapshot.prune(usize::try_from(keep).unwrap_or(usize::MAX))).transpose();
    warn(&new_snapshot.warnings[printed..]);
    let removed = removed.context("the backup was written, but old backups could not be removed")?;
    if let Some(removed) = removed {
        print_line(&format!("removed {removed} old backups"));
    }
    Ok(())
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        print_stderr(format_args!("warning: {warning}"));
    }
}

fn make(source: &BackupSource, sink: &mut dyn capture::Sink, quiet: bool) -> Result<ManifestSummary> {
    capture::copy(source, sink, &mut Progress::new(quiet), &AtomicBool::new(false))
}

fn describe(summary: &ManifestSummary) -> String {
    let rows: u64 = summary.rows.values().sum();
    let missing =
        if summary.missing.is_empty() { String::new() } else { format!("; {} missing", summary.missing.len()) };
    let damaged =
        if summary.damaged.is_empty() { String::new() } else { format!("; {} damaged", summary.damaged.len()) };
    format!(
        "{rows} rows, {} repositories, {} files, {}{missing}{damaged}",
        summary.repositories,
        summary.members,
        HumanBytes(summary.bytes)
    )
}

/// Returns an error if files were missing or damaged when the backup was made.
fn ensure_complete(summary: &ManifestSummary) -> Result<()> {
    describe_defects(summary).map_or(Ok(()), |defects| {
        Err(anyhow!(
            "the backup was written, but {defects}; run `gable doctor` for details; no older backup was removed"
        ))
    })
}

/// Describes which files of the instance were missing or damaged when the backup was made; `None` if none.
fn describe_defects(summary: &ManifestSummary) -> Option<String> {
    let missing = summary
        .missing
        .first()
        .map(|first| format!("{} files were missing, such as {first} (is every disk mounted?)", summary.missing.len()));
    let damaged = summary.damaged.first().map(|first| {
        format!(
            "{} files or repositories were damaged, such as {first} (older backups may contain intact copies)",
            summary.damaged.len()
        )
    });
    match (missing, damaged) {
        (Some(missing), Some(damaged)) => Some(format!("{missing}, and {damaged}")),
        (missing, damaged) => missing.or(damaged),
    }
}

/// Opens an existing instance for a backup.
fn open_source(config: &Config) -> Result<BackupSource> {
    let folder = DataFolder::open_existing(&config.location)?;
    // Waits for a running migration.
    let _opening_lock = folder.lock_for_opening()?;
    let database = folder.existing_database(config.location.database.as_deref())?;
    Ok(BackupSource::new(folder, database))
}

fn list_snapshots(folder: &BackupFolder) -> Result<()> {
    let ahead = folder.classify_names()?.future;
    for name in folder.names()? {
        match folder.read_info(&name) {
            Ok(info) => print_line(&format!(
                "{}  gable {}, {}: {}{}",
                info.name,
                info.header.gable,
                info.header.engine,
                describe(&info.summary),
                if ahead.contains(&info.name) { "; dated in the future" } else { "" }
            )),
            Err(error) => print_line(&format!("{name}  unreadable: {}", message(&error))),
        }
    }
    Ok(())
}

fn verify_backup(from: &Path, snapshot: Option<&str>, quiet: bool) -> Result<()> {
    let mut progress = Progress::new(quiet);
    progress.stage("verified");
    let (header, summary) = restore::read(from, snapshot, None, &mut progress)?;
    drop(progress);
    if let Some(defects) = describe_defects(&summary) {
        bail!("the backup of {} is intact, but when it was made, {defects}", header.taken_at);
    }
    print_line(&format!("the backup of {} is intact: {}", header.taken_at, describe(&summary)));
    Ok(())
}
