//! The binding between a data folder and its database.
//!
//! Both contain the id of the instance and a random mark, which changes at every start and stop and periodically in
//! between. They are used together only if their marks are equal, so a database that was lost, replaced by another one or
//! by an older copy is detected before anything is read from the folder.
//!
//! The database is written first and also stores the previous mark, which the folder has if it could not be written.

use std::{fs, io, path::Path, sync::Mutex, time::Duration};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use forge::{
    Forge, InstanceKey,
    clock::{Secrets as _, SystemSecrets},
    doctor::{self, DoctorOptions},
};
use store::{
    Conn, Database,
    instance::{self, Binding, DatabaseContent},
};
use tokio::{sync::watch, task::JoinHandle};
use tracing::{error, warn};

use crate::{
    data_folder::{DATABASE, DataFolder, INSTANCE_KEY, LOST_AND_FOUND, no_instance},
    exit::{message, print_line},
    forge_options::{ForgeMode, forge_options},
    migrate,
};

/// The file in the data folder that contains the binding.
pub(crate) const FILE: &str = "instance";
/// The interval at which a running server changes the mark.
const ADVANCE_INTERVAL: Duration = Duration::from_secs(600);

/// The binding as stored in the data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InstanceRecord {
    instance_id: String,
    generation: i64,
    mark: String,
}

/// The relation of a data folder and a database that may be used together.
#[derive(Debug)]
pub(crate) enum BindingState {
    /// Neither contains an instance.
    New,
    /// Both contain an instance that was last used by a version without bindings.
    Unbound,
    /// They are bound to each other.
    Bound,
}

/// Why a data folder and a database may not be used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mismatch {
    /// The folder contains an instance, the database does not.
    DatabaseEmpty,
    /// The database contains an instance, the folder does not.
    FolderEmpty,
    /// The file with the binding is missing in the folder.
    RecordMissing,
    /// They belong to different instances.
    OtherInstance,
    /// The database is an older copy.
    DatabaseOlder,
    /// The folder is an older copy.
    FolderOlder,
    /// They belong to different copies of the same instance.
    Diverged,
}

/// The bindings found in a data folder and a database.
struct Inspection {
    record: Option<InstanceRecord>,
    content: DatabaseContent,
    folder_in_use: bool,
}

impl InstanceRecord {
    fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => bail!("cannot read {}: {error}", path.display()),
        };
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let record = || {
            Some(Self {
                instance_id: value("instance")?.to_owned(),
                generation: value("generation")?.parse().ok()?,
                mark: value("mark")?.to_owned(),
            })
        };
        record().map(Some).with_context(|| {
            format!(
                "the file {} is damaged, so it is unknown whether the database belongs to this data folder; remove it, \
                 then {}",
                path.display(),
                rebind_remedy(folder)
            )
        })
    }

    fn text(&self) -> String {
        format!("instance: {}\ngeneration: {}\nmark: {}\n", self.instance_id, self.generation, self.mark)
    }

    fn of(binding: &Binding) -> Self {
        let Binding { instance_id, generation, mark, .. } = binding;
        Self { instance_id: instance_id.clone(), generation: *generation, mark: mark.clone() }
    }

    /// Returns whether both the folder and the database were ever written.
    fn was_committed(&self) -> bool {
        self.generation > 0
    }
}

impl Inspection {
    /// Reads both. The folder first, because a server that changes the mark writes the database first.
    fn of(folder: &Path, database: &Database) -> Result<Self> {
        let record = InstanceRecord::read(folder)?;
        let content = database.content()?;
        // An embedded database is part of the folder.
        let folder_in_use =
            contains_instance_data(folder) || database.is_in_data_folder() && content != DatabaseContent::Empty;
        Ok(Self { record, content, folder_in_use })
    }

    fn state(&self) -> Result<BindingState, Mismatch> {
        let committed = self.record.as_ref().filter(|record| record.was_committed());
        match (&self.content, &self.record) {
            (DatabaseContent::Empty, _) if committed.is_none() && !self.folder_in_use => Ok(BindingState::New),
            (DatabaseContent::Empty, _) => Err(Mismatch::DatabaseEmpty),
            (DatabaseContent::Unbound, _) if committed.is_some() => Err(Mismatch::DatabaseOlder),
            (DatabaseContent::Unbound, _) if self.folder_in_use => Ok(BindingState::Unbound),
            (DatabaseContent::Bound(_), None) if self.folder_in_use => Err(Mismatch::RecordMissing),
            (DatabaseContent::Unbound, _) | (DatabaseContent::Bound(_), None) => Err(Mismatch::FolderEmpty),
            (DatabaseContent::Bound(binding), Some(record)) => compare(binding, record),
        }
    }
}

fn compare(binding: &Binding, record: &InstanceRecord) -> Result<BindingState, Mismatch> {
    if binding.instance_id != record.instance_id {
        return Err(Mismatch::OtherInstance);
    }
    if binding.mark == record.mark || binding.previous_mark.as_ref() == Some(&record.mark) {
        return Ok(BindingState::Bound);
    }
    Err(match binding.generation.cmp(&record.generation) {
        std::cmp::Ordering::Less => Mismatch::DatabaseOlder,
        std::cmp::Ordering::Equal => Mismatch::Diverged,
        std::cmp::Ordering::Greater => Mismatch::FolderOlder,
    })
}

/// Returns whether a folder contains files that only an instance creates.
fn contains_instance_data(folder: &Path) -> bool {
    let is_filled = |path: &str| fs::read_dir(folder.join(path)).is_ok_and(|mut entries| entries.next().is_some());
    let is_fan_out_folder = |entry: fs::DirEntry| entry.file_name().len() == 2;
    let has_repositories = || {
        let entries = fs::read_dir(folder.join("repositories")).into_iter().flatten().flatten();
        entries.into_iter().any(is_fan_out_folder)
    };
    folder.join(INSTANCE_KEY).exists()
        || ["files/uploads", "files/avatars", "files/artifacts", "files/traces", "traces"].into_iter().any(is_filled)
        || has_repositories()
}

impl Mismatch {
    /// Returns an error message with instructions.
    fn explain(self, folder: &Path, database: &Database) -> Error {
        let (path, remedy) = (folder.display(), rebind_remedy(folder));
        match self {
            Self::DatabaseEmpty if database.is_in_data_folder() => anyhow!(
                "the database {} is missing or empty, but the data folder contains the files of an instance; {remedy}",
                folder.join(DATABASE).display()
            ),
            Self::DatabaseEmpty => anyhow!(
                "the database is empty, but the data folder {path} contains the files of an instance; specify its database \
                 with --database, or {remedy}"
            ),
            Self::FolderEmpty => anyhow!(
                "the database contains an instance, but the data folder {path} is empty; {}; if the folder is lost, {remedy}",
                folder_remedy()
            ),
            Self::RecordMissing => anyhow!(
                "the file {} is missing, so it is unknown whether the database belongs to this data folder; {remedy}",
                folder.join(FILE).display()
            ),
            Self::OtherInstance => anyhow!(
                "the database contains another instance than the data folder {path}; specify a database and a data folder \
                 that belong together with --database and --data"
            ),
            Self::DatabaseOlder => {
                anyhow!("the database is older than the data folder {path}, as if restored from an old copy; {remedy}")
            }
            Self::FolderOlder => {
                anyhow!("the data folder {path} is older than its database, as if restored from an old copy; {remedy}")
            }
            Self::Diverged => {
                anyhow!("the database and the data folder {path} are from two copies of the same instance; {remedy}")
            }
        }
    }
}

/// Returns what to do if the files of the instance in a database are elsewhere.
pub(crate) fn folder_remedy() -> &'static str {
    "specify its folder with --data, or, if its files are in a store, set `store`, `cache` and `instance-key-file` as its \
     nodes do"
}

/// Returns what to do if a data folder and a database do not match.
fn rebind_remedy(folder: &Path) -> String {
    format!(
        "restore both from one backup with `gable restore`, or, to use these two anyway, run `gable admin instance rebind \
         --data {}`",
        folder.display()
    )
}

/// Returns an error if the database does not belong to the folder. Changes nothing.
pub(crate) fn check(folder: &Path, database: &Database) -> Result<BindingState> {
    Inspection::of(folder, database)?.state().map_err(|mismatch| mismatch.explain(folder, database))
}

/// Like [`check`], but both must contain an instance.
pub(crate) fn check_existing(folder: &Path, database: &Database) -> Result<()> {
    match check(folder, database)? {
        BindingState::New => Err(no_instance(folder)),
        BindingState::Unbound | BindingState::Bound => Ok(()),
    }
}

/// Returns 32 random hexadecimal digits.
pub(crate) fn random_text() -> String {
    let mut bytes = [0; 16];
    SystemSecrets.fill(&mut bytes);
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn binding_error(error: impl std::fmt::Display) -> Error {
    anyhow!("cannot bind the database to the data folder: {error}")
}

/// Changes the mark in the database and the data folder of a running server.
pub(crate) struct BindingUpdater {
    folder: DataFolder,
    database: Database,
    state: Mutex<LastWritten>,
}

/// The mark that was written last.
struct LastWritten {
    /// The mark in the database.
    mark: String,
    /// The content of the file for that mark, if it is not written to the folder yet.
    unwritten: Option<String>,
}

/// Binds a folder and a database at the first start, and changes the mark at every start. The caller has checked both,
/// applied pending migrations and holds the server lock.
pub(crate) fn bind(folder: &DataFolder, database: &Database) -> Result<(BindingUpdater, InstanceKey)> {
    let inspection = Inspection::of(folder.path(), database)?;
    let refuse = |mismatch: Mismatch| mismatch.explain(folder.path(), database);
    let state = inspection.state().map_err(refuse)?;
    let mut db = database.connect_writer()?;
    if !matches!(state, BindingState::Bound) {
        // The folder first: if two folders are started on one database, the database decides which one it belongs to.
        let record = match inspection.record {
            Some(record) => record,
            None => InstanceRecord { instance_id: random_text(), generation: 0, mark: random_text() },
        };
        folder.write_secret(FILE, &record.text())?;
        let InstanceRecord { instance_id, generation, mark } = record;
        let binding = Binding { instance_id, generation, mark, previous_mark: None, key_check: None };
        db.write(|db| instance::insert(db, &binding)).map_err(binding_error)?;
    }
    let binding = instance::find(&mut db).map_err(binding_error)?;
    let Some(binding) = binding else { return Err(binding_error("its row is missing")) };
    if let Some(record) = InstanceRecord::read(folder.path())? {
        compare(&binding, &record).map_err(refuse)?;
    }
    let key = open_key(folder, &mut db)?;
    drop(db);
    let state = LastWritten { mark: binding.mark.clone(), unwritten: None };
    let updater = BindingUpdater { folder: folder.clone(), database: database.clone(), state: Mutex::new(state) };
    match updater.advance() {
        Ok(()) => {}
        // Both are known to match, so the server can start on a full disk.
        Err(error) if binding.generation > 0 => {
            warn!(error = message(&error), "cannot update the binding of the data folder and the database");
        }
        Err(error) => return Err(error),
    }
    Ok((updater, key))
}

impl BindingUpdater {
    /// Changes the mark in the database, then in the folder. The database accepts a folder that is one mark behind, so the
    /// mark is not changed again until the folder has been written.
    pub(crate) fn advance(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.write_record(&mut state)?;
        let mut db = self.database.connect_writer()?;
        let advanced = db.write(|db| instance::advance(db, &state.mark, &random_text())).map_err(binding_error)?;
        let Some(binding) = advanced else {
            bail!("another server is using the database; stop one of them");
        };
        state.mark.clone_from(&binding.mark);
        state.unwritten = Some(InstanceRecord::of(&binding).text());
        self.write_record(&mut state)
    }

    fn write_record(&self, state: &mut LastWritten) -> Result<()> {
        if let Some(record) = &state.unwritten {
            self.folder.write_secret(FILE, record)?;
            state.unwritten = None;
        }
        Ok(())
    }

    /// Changes the mark periodically, and once more when stopped.
    pub(crate) fn advance_until_stopped(self, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
        let updater = std::sync::Arc::new(self);
        tokio::spawn(async move {
            loop {
                let stopped = tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => true,
                    () = tokio::time::sleep(ADVANCE_INTERVAL) => false,
                };
                let updater = std::sync::Arc::clone(&updater);
                // On its own thread, because a PostgreSQL connection has its own runtime.
                let advanced = tokio::task::spawn_blocking(move || {
                    std::thread::scope(|scope| scope.spawn(|| updater.advance()).join())
                        .unwrap_or_else(|_| Err(anyhow!("the thread that updates the binding panicked")))
                });
                if let Ok(Err(error)) = advanced.await {
                    error!(error = message(&error), "cannot update the binding of the data folder and the database");
                }
                if stopped {
                    return;
                }
            }
        })
    }
}

/// Binds a restored folder and database. The copy is an instance of its own, so neither is used with the original.
pub(crate) fn bind_restored(folder: &Path, database: &Database) -> Result<()> {
    // A backup of an older version has no binding; the first start creates it.
    let Some(binding) = assign_new_id(database)? else { return Ok(()) };
    write_record(folder, &binding)
}

/// Binds a folder to which all files of an instance were copied to the database of that instance.
pub(crate) fn bind_moved(folder: &Path, database: &Database) -> Result<()> {
    let Some(binding) = replace_binding(database, |id| id)? else { return Ok(()) };
    write_record(folder, &binding)
}

/// Makes a database that was restored from a backup another instance than the original. Returns its binding, if it has one.
pub(crate) fn assign_new_id(database: &Database) -> Result<Option<Binding>> {
    replace_binding(database, |_| random_text())
}

/// Gives the database a new mark, so that no data folder matches it any more, and nodes with a store stop.
pub(crate) fn unbind_folder(database: &Database) -> Result<()> {
    replace_binding(database, |id| id).map(drop)
}

/// Replaces the mark of a database, and its instance id by the result of `id`. Returns the new binding, if it had one.
fn replace_binding(database: &Database, id: impl FnOnce(String) -> String) -> Result<Option<Binding>> {
    let mut db = database.connect_writer()?;
    let Some(old) = instance::find(&mut db).map_err(binding_error)? else { return Ok(None) };
    let binding = Binding {
        instance_id: id(old.instance_id),
        generation: old.generation + 1,
        mark: random_text(),
        previous_mark: None,
        key_check: old.key_check,
    };
    db.write(|db| instance::replace(db, &binding)).map_err(binding_error)?;
    Ok(Some(binding))
}

/// Binds the folder to the database into which its rows were copied instead of the old one.
pub(crate) fn bind_copy(folder: &DataFolder, database: &Database) -> Result<()> {
    let mut db = database.connect_writer()?;
    let Some(old) = instance::find(&mut db).map_err(binding_error)? else { return Ok(()) };
    drop(db);
    let updater = BindingUpdater {
        folder: folder.clone(),
        database: database.clone(),
        state: Mutex::new(LastWritten { mark: old.mark, unwritten: None }),
    };
    updater.advance()
}

fn write_record(folder: &Path, binding: &Binding) -> Result<()> {
    DataFolder::at(folder).write_secret(FILE, &InstanceRecord::of(binding).text()).map(drop)
}

/// Returns the instance key if it belongs to the database. It is created if nothing is encrypted yet.
pub(crate) fn open_key(folder: &DataFolder, db: &mut Conn) -> Result<InstanceKey> {
    let context = "cannot check the instance key";
    let known = instance::find(db).context(context)?.map(|binding| binding.key_check);
    let path = folder.path().join(INSTANCE_KEY);
    let remedy = format!(
        "restore the file from a backup, or replace it: `gable admin instance new-key --data {}` lists what would be lost",
        folder.path().display()
    );
    match (folder.existing_instance_key(&remedy)?, known.flatten()) {
        (Some(key), Some(check)) if key.check_value() == check => Ok(key),
        (Some(key), None) if key.matches_database(db).context(context)? => {
            db.write(|db| instance::set_key_check(db, &key.check_value())).context(context)?;
            Ok(key)
        }
        (Some(_), _) => Err(anyhow!("{} is not the key of this database; {remedy}", path.display())),
        (None, None) if !instance::depends_on_key(db).context(context)? => {
            let key = folder.create_instance_key()?;
            db.write(|db| instance::set_key_check(db, &key.check_value())).context(context)?;
            Ok(key)
        }
        (None, _) => Err(anyhow!("the instance key {} is missing; {remedy}", path.display())),
    }
}

/// `gable admin instance new-key`: creates a new key and removes what was encrypted with the lost one. The caller has checked
/// that the database belongs to the folder or the bucket, and that no server is running.
pub(crate) fn replace_key(folder: &DataFolder, database: &Database, confirmed: bool) -> Result<()> {
    let context = "cannot replace the instance key";
    let mut db = database.connect_writer()?;
    let binding = instance::find(&mut db).context(context)?;
    if let Some(key) = read_damaged_key(&folder.instance_key_path())? {
        let fits = match binding.as_ref().and_then(|binding| binding.key_check.as_ref()) {
            Some(check) => key.check_value() == *check,
            None => key.matches_database(&mut db).context(context)?,
        };
        if fits {
            bail!("{} is the key of this database; there is nothing to replace", folder.instance_key_path().display());
        }
    }
    let key = InstanceKey::generate(&SystemSecrets);
    db.begin_writing().context(context)?;
    let lost = key.replace_lost_key(&mut db).context(context)?;
    if let Some(binding) = binding.filter(|_| folder.shared().is_some()) {
        // Stops nodes that could not be asked, because they were cut off from the database; they have the lost key.
        instance::advance(&mut db, &binding.mark, &random_text()).context(context)?;
    }
    for (what, count) in lost.iter().filter(|(_, count)| *count > 0) {
        print_line(&format!("{}: {count} {what}", if confirmed { "lost" } else { "would be lost" }));
    }
    if !confirmed {
        db.roll_back().context(context)?;
        bail!("nothing was changed; run the command again with --yes to create a new instance key");
    }
    // The file first: until the database is committed the key does not match, and the command can be repeated.
    folder.rename_replaced_key()?;
    folder.write_instance_key(&key)?;
    db.commit().context(context)?;
    print_line("created a new instance key; register runners again, and create webhooks and variables again");
    Ok(())
}

/// Reads an instance key that may be incomplete; `None` if there is none or it cannot be used. One that cannot be read is not
/// lost, which is an error.
fn read_damaged_key(path: &Path) -> Result<Option<InstanceKey>> {
    match fs::read(path) {
        Ok(content) => Ok(std::str::from_utf8(&content).ok().and_then(InstanceKey::from_text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            bail!("cannot read {}: {error}; make it readable, or move it away if it is damaged", path.display())
        }
    }
}

/// `gable admin instance rebind`: binds a folder and a database that do not match. Unreferenced files are moved away first,
/// so that new rows with the same ids do not refer to them.
pub(crate) fn rebind(folder: &DataFolder, database: &Database, default_projects_limit: i32) -> Result<()> {
    let inspection = Inspection::of(folder.path(), database)?;
    match inspection.state() {
        Ok(BindingState::New) => return Err(no_instance(folder.path())),
        Ok(BindingState::Unbound | BindingState::Bound) => {
            bail!("the database already belongs to the data folder {}", folder.path().display());
        }
        Err(Mismatch::OtherInstance) => return Err(Mismatch::OtherInstance.explain(folder.path(), database)),
        Err(_) => {}
    }
    folder.create_database_file(database)?;
    migrate::apply_pending(folder, database)?;
    let mut db = database.connect_writer()?;
    let old = instance::find(&mut db).map_err(binding_error)?;
    let key = folder.existing_instance_key("restore it from a backup")?;
    ensure_same_key(folder, &mut db, key.as_ref(), old.as_ref())?;
    let moved = move_orphans_aside(folder, database, key, default_projects_limit)?;
    let generation = |one: Option<i64>, other: Option<i64>| one.max(other).unwrap_or(0).saturating_add(1);
    let record = inspection.record;
    let binding = Binding {
        generation: generation(old.as_ref().map(|old| old.generation), record.as_ref().map(|record| record.generation)),
        mark: random_text(),
        previous_mark: None,
        key_check: old.as_ref().and_then(|old| old.key_check.clone()),
        instance_id: old
            .map(|old| old.instance_id)
            .or(record.map(|record| record.instance_id))
            .unwrap_or_else(random_text),
    };
    db.write(|db| instance::replace(db, &binding)).map_err(binding_error)?;
    write_record(folder.path(), &binding)?;
    for line in moved {
        print_line(&line);
    }
    print_line(&format!("bound the data folder {} and the database to each other", folder.path().display()));
    Ok(())
}

/// Returns an error if the key does not match: the folder then belongs to another instance, even if its binding is lost.
fn ensure_same_key(
    folder: &DataFolder,
    db: &mut Conn,
    key: Option<&InstanceKey>,
    binding: Option<&Binding>,
) -> Result<()> {
    let Some(key) = key else { return Ok(()) };
    let fits = match binding.and_then(|binding| binding.key_check.as_ref()) {
        Some(check) => key.check_value() == *check,
        None => key.matches_database(db).context("cannot check the instance key")?,
    };
    if fits {
        return Ok(());
    }
    Err(anyhow!(
        "{} is not the key of this database, so the data folder belongs to another instance; specify the right one with \
         --data, or restore the key from a backup",
        folder.path().join(INSTANCE_KEY).display()
    ))
}

/// Moves unreferenced files to `lost+found`; returns a description of each.
fn move_orphans_aside(
    folder: &DataFolder,
    database: &Database,
    key: Option<InstanceKey>,
    default_projects_limit: i32,
) -> Result<Vec<String>> {
    // Nothing is decrypted, so any key will do.
    let key = key.unwrap_or_else(|| InstanceKey::generate(&SystemSecrets));
    let options = forge_options(folder, database.clone(), key, default_projects_limit, ForgeMode::Administer)?;
    let forge = Forge::start(forge::Options { readers: 1, blocking: 1, ..options })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let options = DoctorOptions {
        deep: false,
        fix: true,
        forget_missing: false,
        server_running: false,
        lost_and_found: folder.path().join(LOST_AND_FOUND).join(now.to_string()),
        progress: Box::new(|_, _, _| {}),
    };
    let findings = runtime.block_on(doctor::move_orphans_aside(&forge, &options))?;
    if let Some(problem) = findings.iter().find(|finding| finding.level == doctor::Level::Problem) {
        bail!("{}; nothing was bound", problem.text);
    }
    let moved = findings.iter().filter(|finding| finding.fixed);
    Ok(moved.map(|finding| format!("{}: {} (moved to lost+found)", finding.check, finding.text)).collect())
}
