//! `gable migrate-store`: copies the files of an instance from its data folder to a bucket, or back.
//!
//! Copying can be interrupted and repeated at any time: what has arrived is not copied again. While a server is running,
//! the command only copies. Otherwise it also compares both places and makes the instance use the target; from then on
//! a server with the settings of the source refuses to start.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, anyhow, bail};
use files::{Files, logs::Logs};
use forge::{Forge, InstanceKey, doctor, nodes, storage_upgrade, traces};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::HumanBytes;
use store::{Database, instance as store_instance};
use tokio::runtime::{self, Runtime};

use crate::{
    backup::progress::Progress,
    commands::{MigrateStore, StorePlace},
    config::{self, Config, Location, SharedStorage},
    data_folder::{self, BucketNote, DataFolder, INSTANCE_KEY, ServerLock},
    exit::{CommandResult, Failure, print_line},
    forge_options::{ForgeMode, forge_options},
    instance,
    serve::ssh_host_key,
    shared_instance::{self, FORMER_KEY, ID_KEY, MIGRATION_KEY},
};

/// The maximum number of examples in an error.
const MAX_EXAMPLES: usize = 5;
/// The number of files that are copied at the same time.
const MAX_CONCURRENT_COPIES: usize = 8;

/// Copies the files of an instance.
pub(crate) fn run(command: MigrateStore) -> CommandResult {
    let MigrateStore { to, quiet, location } = command;
    let config = config::load(location)?;
    let Location { data, database, shared, .. } = config.location.clone();
    let (Some(shared), Some(url)) = (shared, database) else {
        return Err(Failure::Usage(anyhow!(
            "set `store` to the bucket, and `database`, `cache` and `instance-key-file` as for the nodes that use it; an \
             embedded database is moved to PostgreSQL first, with `gable migrate-database`"
        )));
    };
    let database = data_folder::postgres(&url)?;
    let migration = Migration::new(&config, &shared, database)?;
    let mut progress = Progress::new(quiet);
    let lines = match to {
        StorePlace::Bucket => migration.to_bucket(&data, &mut progress)?,
        StorePlace::Folder => migration.to_folder(&data, &mut progress)?,
    };
    drop(progress);
    for line in lines {
        print_line(&line);
    }
    Ok(())
}

/// The bucket and the database of an instance.
struct Migration<'a> {
    config: &'a Config,
    shared: &'a SharedStorage,
    database: Database,
    instance_id: String,
    /// The cache folder of a node.
    node: DataFolder,
    bucket: Files,
    runtime: Runtime,
}

/// What a copy has done.
#[derive(Default)]
pub(crate) struct Copied {
    files: u64,
    bytes: u64,
    /// What the source lacks.
    missing_traces: usize,
}

impl<'a> Migration<'a> {
    fn new(config: &'a Config, shared: &'a SharedStorage, database: Database) -> Result<Self> {
        let schema = database.schema_status()?;
        if schema.version.is_none() {
            bail!("the database contains no Gable instance; specify its database with --database");
        }
        if !schema.pending.is_empty() {
            bail!("the database has pending migrations; start the server once, or run `gable migrate`");
        }
        let binding = store_instance::find(&mut database.connect_reader()?)?;
        let binding = binding.context("the database was never used by a server; start it once")?;
        let node = DataFolder::of(&config.location)?;
        let bucket = node.files()?;
        shared_instance::probe(&bucket)?;
        let runtime = runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
        Ok(Self { config, shared, database, instance_id: binding.instance_id, node, bucket, runtime })
    }

    /// Copies to the bucket; returns what to tell the operator.
    fn to_bucket(&self, data: &Path, progress: &mut Progress) -> Result<Vec<String>> {
        data_folder::require_instance(data)?;
        let folder = DataFolder::open(data)?;
        // `None` if a server is running.
        let lock = lock(&folder)?;
        let note = folder.bucket_note()?;
        shared_instance::ensure_empty_or_of(&self.bucket, &self.instance_id)?;
        if shared_instance::read_id(&self.bucket, ID_KEY)?.is_some() {
            self.finish_bucket(&folder)?;
            return Ok(vec![format!("the files of the instance are in {} already", self.bucket_name())]);
        }
        // If the last run was interrupted after everything was copied, the folder has a note and still matches the database.
        // One whose files were moved before does not: they may be older than those in the other bucket.
        if let Err(error) = instance::check_existing(folder.path(), &self.database) {
            let Some(note) = note else { return Err(error) };
            return Err(error.context(format!(
                "the files of the data folder {} were moved to {} before; if they are still there, run `gable migrate-store \
                 --to folder` with that store and an empty data folder, and then this command with that folder",
                data.display(),
                note.bucket
            )));
        }
        let unconverted = storage_upgrade::describe(
            &mut self.database.connect_reader()?,
            &git::Repositories::attach(&folder.path().join("repositories")),
        )?;
        if let Some(first) = unconverted.first() {
            bail!("start the server with the data folder once before its files are moved: {first}");
        }
        let key = self.copy_key_to_file(&folder)?;
        let forge = self.forge(key)?;
        if shared_instance::read_id(&self.bucket, MIGRATION_KEY)?.is_none() {
            // The bucket was emptied since the last run, or is another one.
            self.runtime.block_on(traces::forget_segments(&forge))?;
        }
        self.runtime.block_on(traces::begin_import(&forge, self.bucket_name()))?;
        shared_instance::write_id(&self.bucket, MIGRATION_KEY, &self.instance_id)?;
        self.runtime.block_on(ssh_host_key::load(&forge, &folder, &self.database))?;

        let source = folder.files()?;
        let mut copied = copy_files((&source, &self.bucket), &is_copied, &self.runtime, progress)?;
        progress.stage("traces");
        let logs = Logs::open(&folder.path().join("traces"))?;
        let moved = self.runtime.block_on(traces::import_from_folder(&forge, &logs, &self.bucket))?;
        copied.add_traces(&moved, progress);
        if lock.is_none() {
            return Ok(vec![
                copied.describe(),
                format!(
                    "not finished: a server is using the data folder {}; stop it and run the command again to copy the rest and \
                     to finish",
                    data.display()
                ),
            ]);
        }
        finish_copy((&source, &self.bucket), &is_copied, progress)?;
        let bucket = self.bucket_name().to_owned();
        folder.write_bucket_note(&BucketNote { instance_id: self.instance_id.clone(), bucket: bucket.clone() })?;
        shared_instance::write_id(&self.bucket, ID_KEY, &self.instance_id)?;
        self.finish_bucket(&folder)?;
        Ok(vec![
            copied.describe(),
            format!(
                "the instance uses {bucket} from now on; start the nodes with `store`, `cache` and the instance key {}, and \
                 remove the data folder {} when they work",
                self.shared.key_file.display(),
                data.display()
            ),
        ])
    }

    /// Makes the data folder unusable after the bucket was made usable.
    fn finish_bucket(&self, folder: &DataFolder) -> Result<()> {
        if folder.bucket_note()?.is_some() && instance::check_existing(folder.path(), &self.database).is_ok() {
            instance::unbind_folder(&self.database)?;
        }
        self.remove_object(FORMER_KEY)?;
        self.remove_object(MIGRATION_KEY)
    }

    /// Copies to the data folder; returns what to tell the operator.
    fn to_folder(&self, data: &Path, progress: &mut Progress) -> Result<Vec<String>> {
        let folder = DataFolder::open(data)?;
        let Some(_lock) = lock(&folder)? else {
            bail!("a gable server is using the data folder {}; stop it first", data.display());
        };
        let key = shared_instance::open_key(self.shared, &mut self.database.connect_writer()?)?;
        let forge = self.forge(key.clone())?;
        self.check_source_bucket(&folder)?;
        if !self.prepare_folder(&folder)? {
            self.finish_folder(&forge)?;
            return Ok(vec![format!("the files of the instance are in {} already", data.display())]);
        }
        folder.write_instance_key(&key)?;
        let mut serving = nodes::running(&self.database)?;
        if serving.is_empty() {
            // From here on no node starts. One that started just before has registered until everything is copied.
            shared_instance::write_id(&self.bucket, MIGRATION_KEY, &self.instance_id)?;
            self.remove_object(ID_KEY)?;
            // A node that is cut off from the database stops when it returns.
            instance::unbind_folder(&self.database)?;
        }
        let target = folder.files()?;
        let mut copied = copy_files((&self.bucket, &target), &is_copied, &self.runtime, progress)?;
        progress.stage("traces");
        let logs = Logs::open(&folder.path().join("traces"))?;
        let moved = self.runtime.block_on(traces::export_to_folder(&forge, &self.bucket, &logs))?;
        copied.add_traces(&moved, progress);
        if serving.is_empty() {
            serving = nodes::running(&self.database)?;
            if !serving.is_empty() {
                shared_instance::write_id(&self.bucket, ID_KEY, &self.instance_id)?;
            }
        }
        if !serving.is_empty() {
            return Ok(vec![
                copied.describe(),
                format!(
                    "not finished: nodes are running: {}; stop them and run the command again to copy the rest and to finish",
                    serving.join(", ")
                ),
            ]);
        }
        finish_copy((&self.bucket, &target), &is_copied, progress)?;
        self.copy_unlisted(&forge, &target, &mut copied)?;
        instance::bind_moved(folder.path(), &self.database)?;
        folder.remove_bucket_note()?;
        self.finish_folder(&forge)?;
        Ok(vec![
            copied.describe(),
            format!(
                "the instance uses the data folder {} from now on; remove the settings `store`, `cache`, `store-variables` and \
                 `instance-key-file`, and start the server; remove the objects of {} when it works",
                data.display(),
                self.bucket_name()
            ),
        ])
    }

    /// Copies what the database names and the listing of the bucket lacked, because it was out of date.
    fn copy_unlisted(&self, forge: &Forge, target: &Files, copied: &mut Copied) -> Result<()> {
        let mut lost = Vec::new();
        for key in self.runtime.block_on(doctor::missing_files(forge, target))? {
            let size = self.runtime.block_on(self.bucket.copy(&key, target));
            match size.with_context(|| format!("cannot copy {key}"))? {
                Some(size) => {
                    copied.files += 1;
                    copied.bytes += size;
                }
                None => lost.push(key),
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        // Nodes can be started again.
        shared_instance::write_id(&self.bucket, ID_KEY, &self.instance_id)?;
        let examples = lost.iter().take(MAX_EXAMPLES).map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(anyhow!(
            "{} files that the database names are missing in {}, such as {examples}; run the command again, or, if they are \
             lost, restore them from a backup first; nothing has changed for the nodes",
            lost.len(),
            self.bucket_name()
        ))
    }

    /// Removes what refers to the bucket after the data folder was made usable.
    fn finish_folder(&self, forge: &Forge) -> Result<()> {
        self.runtime.block_on(traces::forget_segments(forge))?;
        shared_instance::write_id(&self.bucket, FORMER_KEY, &self.instance_id)?;
        self.remove_object(MIGRATION_KEY)
    }

    /// Returns an error if the bucket does not have the files of the instance: what a folder has beside those of the bucket
    /// is removed.
    fn check_source_bucket(&self, folder: &DataFolder) -> Result<()> {
        let has_id = |key: &str| {
            Ok::<_, anyhow::Error>(shared_instance::read_id(&self.bucket, key)?.as_ref() == Some(&self.instance_id))
        };
        // The last run was interrupted before the folder could be used, or after that.
        let is_resumed = has_id(MIGRATION_KEY)?
            && match folder.bucket_note()? {
                Some(note) => note.bucket == self.bucket_name(),
                None => instance::check_existing(folder.path(), &self.database).is_ok(),
            };
        if has_id(ID_KEY)? || is_resumed || has_id(FORMER_KEY)? && folder.bucket_note()?.is_none() {
            return Ok(());
        }
        Err(anyhow!(
            "the store {} does not contain the files of this instance; specify the one that does",
            self.bucket_name()
        ))
    }

    /// Returns whether files have to be copied to the folder; `false` if the instance uses it already. A folder that
    /// contains anything else is refused.
    fn prepare_folder(&self, folder: &DataFolder) -> Result<bool> {
        let path = folder.path();
        match folder.bucket_note()? {
            Some(note) if note.instance_id == self.instance_id => return Ok(true),
            Some(_) => bail!("the data folder {} belongs to another instance than the database", path.display()),
            None => {}
        }
        let is_lock =
            |name: &std::ffi::OsStr| [data_folder::LOCK, data_folder::OPENING_LOCK].iter().any(|lock| name == *lock);
        let mut entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        if entries.any(|entry| !entry.is_ok_and(|entry| is_lock(&entry.file_name()))) {
            let is_bound =
                data_folder::require_instance(path).is_ok() && instance::check_existing(path, &self.database).is_ok();
            if is_bound && shared_instance::read_id(&self.bucket, ID_KEY)?.is_none() {
                return Ok(false);
            }
            bail!("the data folder {} is not empty; move it away, or choose another with --data", path.display());
        }
        if shared_instance::read_id(&self.bucket, ID_KEY)?.is_none() {
            bail!(
                "the files of the instance are not in {} any more; if a run of `gable migrate-store --to folder` was \
                 interrupted, repeat it with the same --data; otherwise start the server with the folder that has them",
                self.bucket_name()
            );
        }
        // Until the end the folder cannot be used.
        let note = BucketNote { instance_id: self.instance_id.clone(), bucket: self.bucket_name().to_owned() };
        folder.write_bucket_note(&note)?;
        Ok(true)
    }

    /// Copies the instance key of the data folder to the file that nodes use, if that does not exist yet.
    fn copy_key_to_file(&self, folder: &DataFolder) -> Result<InstanceKey> {
        let key = folder.existing_instance_key("restore it from a backup")?;
        let key = key.with_context(|| format!("{} is missing", folder.path().join(INSTANCE_KEY).display()))?;
        shared_instance::install_key(self.shared, &key)?;
        shared_instance::open_key(self.shared, &mut self.database.connect_writer()?)
    }

    /// Starts a forge that uses the bucket.
    fn forge(&self, key: InstanceKey) -> Result<Forge> {
        let limit = self.config.default_projects_limit;
        let options = forge_options(&self.node, self.database.clone(), key, limit, ForgeMode::Administer)?;
        Ok(Forge::start(forge::Options { readers: 1, blocking: 1, ..options })?)
    }

    fn remove_object(&self, key: &str) -> Result<()> {
        Ok(self.bucket.remove_files(&[key.to_owned()])?)
    }

    fn bucket_name(&self) -> &str {
        self.bucket.bucket().map_or("", |bucket| bucket.name())
    }
}

/// Copies what the target lacks.
pub(crate) fn copy_files(
    (source, target): (&Files, &Files),
    is_copied: &dyn Fn(&str) -> bool,
    runtime: &Runtime,
    progress: &mut Progress,
) -> Result<Copied> {
    progress.stage("comparing");
    let missing = source.compare(target, is_copied)?.missing;
    progress.stage_with_steps("files", missing.len() as u64);
    let mut copied = Copied::default();
    runtime.block_on(async {
        let copies = missing.into_iter().map(|(key, _)| async move {
            source.copy(&key, target).await.with_context(|| format!("cannot copy {key}"))
        });
        let mut copies = stream::iter(copies).buffer_unordered(MAX_CONCURRENT_COPIES);
        // A file that was removed meanwhile is not copied.
        while let Some(size) = copies.try_next().await? {
            progress.step();
            if let Some(size) = size {
                progress.add(size);
                copied.files += 1;
                copied.bytes += size;
            }
        }
        Ok(copied)
    })
}

/// Removes what the source no longer has, and checks that nothing is missing. No server is running.
pub(crate) fn finish_copy(
    (source, target): (&Files, &Files),
    is_copied: &dyn Fn(&str) -> bool,
    progress: &mut Progress,
) -> Result<()> {
    progress.stage("comparing");
    let difference = source.compare(target, is_copied)?;
    if let Some((key, _)) = difference.missing.first() {
        bail!("{} files were not copied, such as {key}; run the command again", difference.missing.len());
    }
    target.remove_files(&difference.extra)?;
    Ok(())
}

/// Locks a data folder; `None` if a server is using it.
fn lock(folder: &DataFolder) -> Result<Option<ServerLock>> {
    let _opening_lock = folder.lock_for_opening()?;
    folder.lock()
}

/// Returns whether a file is copied as it is. Traces have another form in a bucket than in a folder.
fn is_copied(key: &str) -> bool {
    !shared_instance::is_own_object(key) && !key.starts_with("traces/")
}

impl Copied {
    fn add_traces(&mut self, moved: &traces::MovedTraces, progress: &Progress) {
        self.files += moved.jobs;
        self.bytes += moved.copied;
        self.missing_traces = moved.missing.len();
        for job in &moved.missing {
            progress.warn(&format!("the trace of job {job} is missing or incomplete"));
        }
    }

    fn describe(&self) -> String {
        let missing = match self.missing_traces {
            0 => String::new(),
            count => format!("; {count} traces are missing or incomplete in the source"),
        };
        format!("copied {} files and traces, {}{missing}", self.files, HumanBytes(self.bytes))
    }
}
