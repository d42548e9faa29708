//! Restores a backup into a bucket and a PostgreSQL database.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};
use files::{Files, logs::Logs};
use forge::{Forge, InstanceKey, clock::SystemSecrets, traces};
use store::{Database, instance::DatabaseContent};
use tokio::runtime::{self, Runtime};

use super::{
    manifest::{LAST_FORMAT_WITH_FOLDERS, ManifestHeader, ManifestSummary},
    progress::Progress,
    restore::{load, read},
    staging::Staging,
};
use crate::{
    config::{Config, SharedStorage},
    data_folder::{self, DataFolder},
    forge_options::{ForgeMode, forge_options},
    instance,
    migrate_store::{copy_files, finish_copy},
    shared_instance::{self, ID_KEY, MIGRATION_KEY},
};

/// The folder in the cache into which a backup is unpacked.
const STAGING: &str = "restoring";
/// The id in the bucket while a backup is being restored.
const RESTORING: &str = "restoring";

/// Restores a backup into an empty bucket and an empty database.
pub(super) fn fill(
    config: &Config,
    shared: &SharedStorage,
    from: &Path,
    snapshot: Option<&str>,
    progress: &mut Progress,
) -> Result<(ManifestHeader, ManifestSummary)> {
    let url = config.location.database.as_deref().context("store requires database")?;
    let database = data_folder::postgres(url)?;
    if database.content()? != DatabaseContent::Empty {
        bail!(
            "the database is not empty; create another one and specify it with --database, or, if nothing in it is needed, \
             remove its tables with `DROP SCHEMA public CASCADE; CREATE SCHEMA public;`"
        );
    }
    let node = DataFolder::of(&config.location)?;
    let opening_lock = node.lock_for_opening()?;
    let Some(_lock) = node.lock()? else {
        bail!(
            "a gable server is using the cache folder {}; stop it, or choose another with --cache",
            node.path().display()
        );
    };
    drop(opening_lock);
    let bucket = node.files()?;
    shared_instance::probe(&bucket)?;
    shared_instance::ensure_empty_or_of(&bucket, RESTORING)?;

    progress.stage("unpacked and verified");
    let path = node.path().join(STAGING);
    remove_staging(&path)?;
    let staging = Staging::create(path.clone())?;
    let restored = restore(config, shared, (&node, &database, &bucket), &staging, (from, snapshot), progress);
    let removed = remove_staging(&path);
    let restored = restored?;
    removed?;
    Ok(restored)
}

fn restore(
    config: &Config,
    shared: &SharedStorage,
    (node, database, bucket): (&DataFolder, &Database, &Files),
    staging: &Staging,
    (from, snapshot): (&Path, Option<&str>),
    progress: &mut Progress,
) -> Result<(ManifestHeader, ManifestSummary)> {
    let (header, summary) = read(from, snapshot, Some(staging), progress)?;
    if header.format <= LAST_FORMAT_WITH_FOLDERS {
        bail!(
            "the backup was made by an earlier version of gable; restore it into a data folder, start the server once, and \
             move the instance with `gable migrate-store`"
        );
    }
    for path in &summary.left_out {
        staging.remove(path)?;
    }
    let unpacked = DataFolder::at(staging.path());
    let key = unpacked.existing_instance_key("the key in the backup is damaged")?;
    match &key {
        Some(key) => shared_instance::install_key(shared, key)?,
        None => bail!("the backup contains no instance key; restore it into a data folder"),
    }
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    shared_instance::write_id(bucket, MIGRATION_KEY, RESTORING)?;
    let source = unpacked.files()?;
    let is_copied = |key: &str| !shared_instance::is_own_object(key);
    copy_files((&source, bucket), &is_copied, &runtime, progress)?;
    finish_copy((&source, bucket), &is_copied, progress)?;

    progress.stage_with_steps("loaded into the database", summary.rows.len() as u64);
    load(&staging.path().join("database"), database, &header, &summary, progress)?;
    if !header.has_segments {
        progress.stage("traces");
        let forge = start_forge(config, node, database, key)?;
        let logs = Logs::open(&staging.path().join("traces"))?;
        // The source may have been about to be migrated to a bucket, which has these.
        runtime.block_on(traces::forget_segments(&forge))?;
        let moved = runtime.block_on(traces::import_from_folder(&forge, &logs, bucket))?;
        for job in &moved.missing {
            progress.warn(&format!("the trace of job {job} is missing or incomplete"));
        }
    }
    let binding = instance::assign_new_id(database)?;
    let binding =
        binding.context("the backup was made by a version that did not know stores; restore it into a data folder")?;
    shared_instance::write_id(bucket, ID_KEY, &binding.instance_id)?;
    bucket.remove_files(&[MIGRATION_KEY.to_owned()])?;
    Ok((header, summary))
}

/// Writes the traces of a backup of an instance with a bucket to files of the data folder in `staging`.
pub(super) fn convert_segments(
    config: &Config,
    staging: &Staging,
    database: &Database,
    progress: &mut Progress,
) -> Result<()> {
    progress.stage("traces");
    let folder = DataFolder::at(staging.path());
    let key = folder.existing_instance_key("the key in the backup is damaged")?;
    let forge = start_forge(config, &folder, database, key)?;
    let runtime: Runtime = runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let logs = Logs::open(&staging.path().join("traces"))?;
    let moved = runtime.block_on(traces::export_to_folder(&forge, &folder.files()?, &logs))?;
    for job in &moved.missing {
        progress.warn(&format!("the trace of job {job} is missing or incomplete"));
    }
    runtime.block_on(traces::forget_segments(&forge))?;
    staging.remove("files/traces")
}

/// Starts a forge on a database that was just loaded.
fn start_forge(config: &Config, folder: &DataFolder, database: &Database, key: Option<InstanceKey>) -> Result<Forge> {
    database.migrate()?;
    // Without a key, the bytes of running jobs that are withheld from readers are lost.
    let key = key.unwrap_or_else(|| InstanceKey::generate(&SystemSecrets));
    let options = forge_options(folder, database.clone(), key, config.default_projects_limit, ForgeMode::Administer)?;
    Ok(Forge::start(forge::Options { readers: 1, blocking: 1, ..options })?)
}

fn remove_staging(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
