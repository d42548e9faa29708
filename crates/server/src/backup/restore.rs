//! `gable restore`: unpacks and verifies a backup in a staging folder, then moves it into place.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, IsTerminal as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow, bail};
use git::Repositories;
use store::{Database, dump::Loader};

use super::{
    archive,
    folder::BackupFolder,
    manifest::{LAST_FORMAT_WITH_FOLDERS, ManifestHeader, ManifestSummary, corrupted},
    progress::Progress,
    repositories::pack_key,
    restore_bucket, rows,
    staging::{Staging, create_owner_only},
};
use crate::{
    commands::RestoreCommand,
    config::{self, Config},
    data_folder::{self, DATABASE, DataFolder, LOCK, LOST_AND_FOUND, OPENING_LOCK, ServerLock},
    exit::{CommandResult, print_line, print_stderr},
    instance,
};

/// Names that are ignored when an empty folder is required.
const IGNORED_NAMES: [&str; 3] = [LOCK, OPENING_LOCK, LOST_AND_FOUND];

pub(crate) fn run(command: RestoreCommand) -> CommandResult {
    let RestoreCommand { from, snapshot, quiet, location } = command;
    let config = config::load(location)?;
    // Before the folder is created, so that a wrong URL changes nothing.
    let postgres = config.location.database.as_deref().map(data_folder::postgres).transpose()?;
    let mut progress = Progress::new(quiet);
    let (target, (header, summary)) = if let Some(shared) = &config.location.shared {
        let filled = restore_bucket::fill(&config, shared, &from, snapshot.as_deref(), &mut progress)?;
        (shared.bucket.to_string(), filled)
    } else {
        let mut target = RestoreTarget::open(&config.location.folder)?;
        let filled = fill(&config, &mut target, &from, snapshot.as_deref(), postgres, &mut progress)?;
        (config.location.folder.display().to_string(), filled)
    };
    drop(progress);
    if let Some(defects) = super::describe_defects(&summary) {
        print_stderr(format_args!(
            "warning: when the backup of {} was made, {defects}; run `gable doctor` for details",
            header.taken_at
        ));
        for path in &summary.missing {
            print_stderr(format_args!("warning: missing: {path}"));
        }
        for damage in &summary.damaged {
            print_stderr(format_args!("warning: damaged: {damage}"));
        }
    }
    print_line(&format!(
        "restored the backup of {} into {target}: {} rows, {} repositories; start the server with `gable serve`",
        header.taken_at,
        summary.rows.values().sum::<u64>(),
        summary.repositories,
    ));
    Ok(())
}

fn fill(
    config: &Config,
    target: &mut RestoreTarget,
    from: &Path,
    snapshot: Option<&str>,
    postgres: Option<Database>,
    progress: &mut Progress,
) -> Result<(ManifestHeader, ManifestSummary)> {
    progress.stage("unpacked and verified");
    let staging = Staging::create(target.staging_path())?;
    let (header, summary) = read(from, snapshot, Some(&staging), progress)?;
    for path in &summary.left_out {
        staging.remove(path)?;
    }
    if header.format <= LAST_FORMAT_WITH_FOLDERS {
        // The next start of the server converts these repositories.
        let repositories = Repositories::attach(&staging.path().join("repositories"));
        repositories.create_missing_folders().context("cannot create the folders of repositories")?;
    }
    progress.stage_with_steps("loaded into the database", summary.rows.len() as u64);
    let embedded = staging.path().join(DATABASE);
    let database = if let Some(database) = postgres {
        database
    } else {
        create_owner_only(&embedded).with_context(|| format!("cannot write {}", embedded.display()))?;
        Database::sqlite(&embedded)
    };
    load(&staging.path().join("database"), &database, &header, &summary, progress)?;
    staging.remove("database")?;
    if header.has_segments {
        restore_bucket::convert_segments(config, &staging, &database, progress)?;
    }
    instance::bind_restored(staging.path(), &database)?;
    target.move_into_place(staging.path())?;
    Ok((header, summary))
}

/// Verifies a backup from a file, standard input or a folder, and unpacks it into `staging`, if given.
pub(super) fn read(
    from: &Path,
    snapshot: Option<&str>,
    staging: Option<&Staging>,
    progress: &mut Progress,
) -> Result<(ManifestHeader, ManifestSummary)> {
    if from.is_dir() {
        let folder = BackupFolder::open(from)?;
        let name = folder.select(snapshot)?;
        if snapshot.is_none() && !folder.classify_names()?.future.is_empty() {
            progress.warn(&format!(
                "some backups in {} are dated in the future (see --list); using {name}; choose another with --snapshot",
                from.display()
            ));
        }
        if snapshot.is_none() && staging.is_some() {
            ensure_newest_is_complete(&folder, &name)?;
        }
        return match staging {
            Some(staging) => folder.read(&name, staging, progress),
            None => folder.verify(&name, progress),
        };
    }
    if snapshot.is_some() {
        bail!("--snapshot requires a backup folder");
    }
    if from == Path::new("-") {
        if io::stdin().is_terminal() {
            bail!("no backup on standard input: it is a terminal");
        }
        return archive::read(io::stdin().lock(), staging, progress);
    }
    let file = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    archive::read(BufReader::with_capacity(1 << 20, file), staging, progress)
}

/// Returns an error if the newest backup is incomplete: an older one may be better, and the operator has to choose.
fn ensure_newest_is_complete(folder: &BackupFolder, newest: &str) -> Result<()> {
    let Some(defects) = super::describe_defects(&folder.read_info(newest)?.summary) else { return Ok(()) };
    let is_complete = |name: &String| folder.read_info(name).is_ok_and(|info| info.summary.is_complete());
    let complete = folder.classify_names()?.past.into_iter().rev().find(is_complete);
    let other = complete.map_or_else(
        || "there is no complete backup".to_owned(),
        |name| format!("the newest complete backup is --snapshot {name}"),
    );
    Err(anyhow!(
        "when the newest backup was made, {defects}; use --snapshot {newest} to restore it anyway; {other}; nothing was \
         changed"
    ))
}

/// Loads the rows of a verified backup into an empty database.
pub(super) fn load(
    rows: &Path,
    database: &Database,
    header: &ManifestHeader,
    summary: &ManifestSummary,
    progress: &mut Progress,
) -> Result<()> {
    let context = || format!("cannot read {}", rows.display());
    let mut loading = Loader::begin(database, &header.migrations)?;
    let mut counts: BTreeMap<String, u64> = summary.rows.keys().map(|table| (table.clone(), 0)).collect();
    for table in entries(rows).with_context(context)? {
        let name = table.file_name().and_then(|name| name.to_str()).ok_or_else(corrupted)?.to_owned();
        for batch in entries(&table).with_context(context)? {
            let file = File::open(&batch).with_context(context)?;
            let size = file.metadata().with_context(context)?.len();
            let count = rows::read(file, |columns, rows| Ok(loading.load(&name, columns, rows)?))?;
            *counts.entry(name.clone()).or_default() += count;
            progress.add(size);
        }
        progress.step();
    }
    if counts != summary.rows || loading.counts()? != summary.rows {
        bail!("the number of loaded rows differs from the backup; nothing was changed");
    }
    let mut removed_packs: Vec<String> =
        summary.left_out.iter().filter_map(|path| pack_key(path)).map(ToOwned::to_owned).collect();
    removed_packs.dedup();
    loading.forget_packs(&removed_packs)?;
    let sequences: Vec<(String, i64)> = summary.sequences.clone().into_iter().collect();
    Ok(loading.finish(&sequences)?)
}

/// Returns the entries of a folder, sorted; none if it does not exist.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let found = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    let mut entries: Vec<PathBuf> = found.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort_unstable();
    Ok(entries)
}

/// The data folder that is restored into.
struct RestoreTarget {
    cleanup: Cleanup,
    _opening_lock: File,
    _lock: ServerLock,
}

/// Removes what a failed restore created, unless disarmed.
struct Cleanup {
    path: PathBuf,
    existed: bool,
    disarmed: bool,
}

impl RestoreTarget {
    fn open(path: &Path) -> Result<Self> {
        ensure_empty(path)?;
        let mut cleanup = Cleanup { path: path.to_owned(), existed: path.exists(), disarmed: false };
        let folder = DataFolder::open(path)?;
        let opening_lock = folder.lock_for_opening()?;
        let Some(lock) = folder.lock()? else {
            // The lock files belong to the running server.
            cleanup.disarmed = true;
            bail!("another gable server is using the data folder {}; stop it first", path.display());
        };
        // Checked again under the lock.
        if let Err(error) = ensure_empty(path) {
            cleanup.disarmed = true;
            return Err(error);
        }
        let target = Self { cleanup, _opening_lock: opening_lock, _lock: lock };
        target.remove_interrupted_restore()?;
        Ok(target)
    }

    fn staging_path(&self) -> PathBuf {
        self.cleanup.staging_path()
    }

    /// Removes what an interrupted restore left. It started with an empty folder, so everything in it is from that restore.
    fn remove_interrupted_restore(&self) -> Result<()> {
        let context = || format!("cannot use the data folder {}", self.cleanup.path.display());
        if !self.staging_path().exists() {
            return Ok(());
        }
        for entry in entries(&self.cleanup.path).with_context(context)? {
            let is_lock = IGNORED_NAMES.iter().any(|name| entry.ends_with(name));
            if !is_lock && entry != self.staging_path() {
                if entry.is_dir() { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) }
                    .with_context(context)?;
            }
        }
        fs::remove_dir_all(self.staging_path()).with_context(context)
    }

    /// Moves everything into place, the database last.
    fn move_into_place(&mut self, staging: &Path) -> Result<()> {
        let path = self.cleanup.path.clone();
        let context = || format!("cannot fill the data folder {}", path.display());
        let folder = File::open(staging).with_context(context)?;
        rustix::fs::syncfs(&folder).map_err(io::Error::from).with_context(context)?;
        let mut fresh = entries(staging).with_context(context)?;
        fresh.sort_by_key(|entry| entry.ends_with(DATABASE));
        // From here on nothing is removed; after an interruption the staging folder is left and detected.
        self.cleanup.disarmed = true;
        for entry in fresh {
            let Some(name) = entry.file_name() else { continue };
            fs::rename(&entry, path.join(name)).with_context(context)?;
        }
        let data_folder = File::open(&path).with_context(context)?;
        data_folder
            .sync_all()
            .and_then(|()| fs::remove_dir(staging))
            .and_then(|()| data_folder.sync_all())
            .with_context(context)
    }
}

impl Cleanup {
    fn staging_path(&self) -> PathBuf {
        self.path.join(data_folder::RESTORE_FOLDER)
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if self.disarmed {
            return;
        }
        let _ = fs::remove_dir_all(self.staging_path());
        for lock in [LOCK, OPENING_LOCK] {
            let _ = fs::remove_file(self.path.join(lock));
        }
        if !self.existed {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn ensure_empty(path: &Path) -> Result<()> {
    let found = entries(path).with_context(|| format!("cannot use the data folder {}", path.display()))?;
    let interrupted = path.join(data_folder::RESTORE_FOLDER).exists();
    let is_ignored = |entry: &PathBuf| IGNORED_NAMES.iter().any(|name| entry.ends_with(name));
    if interrupted || found.iter().all(is_ignored) {
        return Ok(());
    }
    Err(anyhow!("the data folder {} is not empty; move it away, or choose another with --data", path.display()))
}
