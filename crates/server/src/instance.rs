//! Which data folder and which database belong together.
//!
//! Both hold the id of the instance and a random mark, which changes at every start and stop, and now and then in
//! between. A folder and a database are used together only if their marks are equal, so a database that was lost,
//! replaced by another one or by an older copy of itself is noticed before anything is read from the folder.
//!
//! The database is written first and remembers the mark before: if the folder could not be written any more, its mark
//! is that one.

use std::{fs, io, path::Path, sync::Mutex, time::Duration};

use forge::{
    Forge, InstanceKey,
    clock::{Secrets as _, SystemSecrets},
    doctor::{self, Wishes},
};
use store::{
    Conn, Database,
    instance::{self, Binding, Content},
};
use tokio::{sync::watch, task::JoinHandle};
use tracing::{error, warn};

use crate::{
    Outcome,
    data_folder::{DATABASE, DataFolder, INSTANCE_KEY, no_instance},
    migrate,
    serve::{Use, forge_options, say},
};

/// The file in the data folder.
pub(crate) const FILE: &str = "instance";
/// How often a running server changes the mark.
const ADVANCE_EVERY: Duration = Duration::from_secs(600);

/// What the data folder says about its instance.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    instance_id: String,
    generation: i64,
    mark: String,
}

/// How a data folder and a database that may be used together belong together.
#[derive(Debug)]
pub(crate) enum Fit {
    /// Neither holds an instance yet.
    New,
    /// Both hold an instance that was last used by a version that did not bind them to each other.
    Unbound,
    /// They are bound to each other.
    Bound,
}

/// Why a data folder and a database may not be used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misfit {
    /// The folder holds an instance, and the database none.
    DatabaseEmpty,
    /// The database holds an instance, and the folder none.
    FolderEmpty,
    /// The folder lost its record.
    RecordMissing,
    /// They are of different instances.
    OtherInstance,
    /// The database is an older copy.
    DatabaseOlder,
    /// The folder is an older copy.
    FolderOlder,
    /// They are of different copies of the same instance.
    Diverged,
}

/// What was found on both sides.
struct Sides {
    record: Option<Record>,
    content: Content,
    folder_in_use: bool,
}

impl Record {
    fn read(folder: &Path) -> Result<Option<Self>, String> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let record = || {
            Some(Self {
                instance_id: value("instance")?.to_owned(),
                generation: value("generation")?.parse().ok()?,
                mark: value("mark")?.to_owned(),
            })
        };
        let damaged =
            || format!("the file {} is damaged; remove it, and start again to hear what to do", path.display());
        record().map(Some).ok_or_else(damaged)
    }

    fn text(&self) -> String {
        format!("instance: {}\ngeneration: {}\nmark: {}\n", self.instance_id, self.generation, self.mark)
    }

    fn of(binding: &Binding) -> Self {
        let Binding { instance_id, generation, mark, .. } = binding;
        Self { instance_id: instance_id.clone(), generation: *generation, mark: mark.clone() }
    }

    /// Whether both sides were ever written.
    fn is_finished(&self) -> bool {
        self.generation > 0
    }
}

impl Sides {
    /// Looks at both. The folder first: a server that changes its mark meanwhile writes the database first.
    fn look(folder: &Path, database: &Database) -> Result<Self, String> {
        let record = Record::read(folder)?;
        let content = database.content().map_err(|error| error.to_string())?;
        // An embedded database is part of the folder.
        let folder_in_use = holds_data(folder) || database.is_embedded() && content != Content::Nothing;
        Ok(Self { record, content, folder_in_use })
    }

    fn fit(&self) -> Result<Fit, Misfit> {
        let finished = self.record.as_ref().filter(|record| record.is_finished());
        match (&self.content, &self.record) {
            (Content::Nothing, _) if finished.is_none() && !self.folder_in_use => Ok(Fit::New),
            (Content::Nothing, _) => Err(Misfit::DatabaseEmpty),
            (Content::Unbound, _) if finished.is_some() => Err(Misfit::DatabaseOlder),
            (Content::Unbound, _) if self.folder_in_use => Ok(Fit::Unbound),
            (Content::Bound(_), None) if self.folder_in_use => Err(Misfit::RecordMissing),
            (Content::Unbound, _) | (Content::Bound(_), None) => Err(Misfit::FolderEmpty),
            (Content::Bound(binding), Some(record)) => compare(binding, record),
        }
    }
}

fn compare(binding: &Binding, record: &Record) -> Result<Fit, Misfit> {
    if binding.instance_id != record.instance_id {
        return Err(Misfit::OtherInstance);
    }
    if binding.mark == record.mark || binding.previous_mark.as_ref() == Some(&record.mark) {
        return Ok(Fit::Bound);
    }
    Err(match binding.generation.cmp(&record.generation) {
        std::cmp::Ordering::Less => Misfit::DatabaseOlder,
        std::cmp::Ordering::Equal => Misfit::Diverged,
        std::cmp::Ordering::Greater => Misfit::FolderOlder,
    })
}

/// Whether a folder holds what only an instance leaves there.
fn holds_data(folder: &Path) -> bool {
    let is_filled = |path: &str| fs::read_dir(folder.join(path)).is_ok_and(|mut entries| entries.next().is_some());
    let is_shelf = |entry: fs::DirEntry| entry.file_name().len() == 2;
    let has_repositories = || {
        let entries = fs::read_dir(folder.join("repositories")).into_iter().flatten().flatten();
        entries.into_iter().any(is_shelf)
    };
    folder.join(INSTANCE_KEY).exists()
        || ["files/uploads", "files/artifacts", "traces"].into_iter().any(is_filled)
        || has_repositories()
}

impl Misfit {
    /// What is the matter and what to do about it.
    fn explain(self, folder: &Path, database: &Database) -> String {
        let path = folder.display();
        let remedy = format!(
            "restore both from one backup with \"gable restore\", or, to go on with these two on purpose, run \
             \"gable admin instance rebind --data {path}\""
        );
        match self {
            Self::DatabaseEmpty if database.is_embedded() => format!(
                "the database {} is missing or empty, but the data folder holds the files of an instance; {remedy}",
                folder.join(DATABASE).display()
            ),
            Self::DatabaseEmpty => format!(
                "the database is empty, but the data folder {path} holds the files of an instance; name its database \
                 with --database, or {remedy}"
            ),
            Self::FolderEmpty => format!(
                "the database holds an instance, but the data folder {path} is not its folder: it is empty; name its \
                 folder with --data, or {remedy}"
            ),
            Self::RecordMissing => format!(
                "the file {} is missing, so nothing shows that the database belongs to this data folder; {remedy}",
                folder.join(FILE).display()
            ),
            Self::OtherInstance => format!(
                "the database holds another instance than the data folder {path}; every instance needs a database and a \
                 data folder of its own: name those that belong together with --database and --data"
            ),
            Self::DatabaseOlder => {
                format!("the database is older than the data folder {path}, as if an old copy was put back; {remedy}")
            }
            Self::FolderOlder => {
                format!("the data folder {path} is older than its database, as if an old copy was put back; {remedy}")
            }
            Self::Diverged => {
                format!("the database and the data folder {path} are from two copies of the same instance; {remedy}")
            }
        }
    }
}

/// Refuses a database that does not belong to the folder. Nothing is changed.
pub(crate) fn check(folder: &Path, database: &Database) -> Result<Fit, String> {
    Sides::look(folder, database)?.fit().map_err(|misfit| misfit.explain(folder, database))
}

/// As [`check`], and both have to hold an instance.
pub(crate) fn check_existing(folder: &Path, database: &Database) -> Outcome {
    match check(folder, database)? {
        Fit::New => Err(no_instance(folder)),
        Fit::Unbound | Fit::Bound => Ok(()),
    }
}

fn random_text() -> String {
    let mut bytes = [0; 16];
    SystemSecrets.fill(&mut bytes);
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn in_database(error: impl std::fmt::Display) -> String {
    format!("cannot bind the database to the data folder: {error}")
}

/// A server that keeps its folder and its database bound to each other.
pub(crate) struct Bound {
    folder: DataFolder,
    database: Database,
    state: Mutex<State>,
}

/// What was written last.
struct State {
    /// The mark in the database.
    mark: String,
    /// The record of that mark, if the folder does not hold it yet.
    unwritten: Option<String>,
}

/// Binds a folder and a database that were checked and whose tables are up to date. The first start does so once, and every
/// start changes the mark. The server's lock is held.
pub(crate) fn bind(folder: &DataFolder, database: &Database) -> Result<(Bound, InstanceKey), String> {
    let sides = Sides::look(folder.path(), database)?;
    let refuse = |misfit: Misfit| misfit.explain(folder.path(), database);
    let fit = sides.fit().map_err(refuse)?;
    let mut db = database.connect_writer().map_err(|error| error.to_string())?;
    if !matches!(fit, Fit::Bound) {
        // The folder first: of two folders that begin on one database, the database tells which one it belongs to.
        let record = match sides.record {
            Some(record) => record,
            None => Record { instance_id: random_text(), generation: 0, mark: random_text() },
        };
        folder.write_secret(FILE, &record.text())?;
        let Record { instance_id, generation, mark } = record;
        let binding = Binding { instance_id, generation, mark, previous_mark: None, key_check: None };
        db.write(|db| instance::insert(db, &binding)).map_err(in_database)?;
    }
    let binding = instance::find(&mut db).map_err(in_database)?;
    let Some(binding) = binding else { return Err(in_database("its row is gone")) };
    if let Some(record) = Record::read(folder.path())? {
        compare(&binding, &record).map_err(refuse)?;
    }
    let key = open_key(folder, &mut db)?;
    drop(db);
    let state = State { mark: binding.mark.clone(), unwritten: None };
    let bound = Bound { folder: folder.clone(), database: database.clone(), state: Mutex::new(state) };
    match bound.advance() {
        Ok(()) => {}
        // Both sides are known to fit, so a full disk does not keep the server from starting.
        Err(error) if binding.generation > 0 => warn!(error, "cannot note that this instance was started"),
        Err(error) => return Err(error),
    }
    Ok((bound, key))
}

impl Bound {
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Changes the mark: in the database, then in the folder. The database accepts a folder that is one mark behind, so
    /// nothing is changed while the folder could not be written to.
    pub(crate) fn advance(&self) -> Outcome {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.write_record(&mut state)?;
        let mut db = self.database.connect_writer().map_err(|error| error.to_string())?;
        let advanced = db.write(|db| instance::advance(db, &state.mark, &random_text())).map_err(in_database)?;
        let Some(binding) = advanced else {
            return Err("another server has bound the database meanwhile; only one may work on it".into());
        };
        state.mark.clone_from(&binding.mark);
        state.unwritten = Some(Record::of(&binding).text());
        self.write_record(&mut state)
    }

    fn write_record(&self, state: &mut State) -> Outcome {
        if let Some(record) = &state.unwritten {
            self.folder.write_secret(FILE, record)?;
            state.unwritten = None;
        }
        Ok(())
    }

    /// Changes the mark now and then, and once more at the end.
    pub(crate) fn keep_advancing(self, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
        let bound = std::sync::Arc::new(self);
        tokio::spawn(async move {
            loop {
                let stopped = tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => true,
                    () = tokio::time::sleep(ADVANCE_EVERY) => false,
                };
                let now = std::sync::Arc::clone(&bound);
                // On a thread of its own: a connection to PostgreSQL brings a runtime.
                let advanced = tokio::task::spawn_blocking(move || {
                    std::thread::scope(|scope| scope.spawn(|| now.advance()).join())
                        .unwrap_or_else(|_| Err("the thread that binds the database has panicked".into()))
                });
                if let Ok(Err(error)) = advanced.await {
                    error!(error, "cannot note the state of this instance");
                }
                if stopped {
                    return;
                }
            }
        })
    }
}

/// Binds what `gable restore` has put in place: the instance is the same, but neither side fits what it was copied from.
pub(crate) fn bind_restored(folder: &Path, database: &Database) -> Outcome {
    let mut db = database.connect_writer().map_err(|error| error.to_string())?;
    // A backup of an older version is bound by its first start.
    let Some(old) = instance::find(&mut db).map_err(in_database)? else { return Ok(()) };
    let binding = Binding { generation: old.generation + 1, mark: random_text(), previous_mark: None, ..old };
    db.write(|db| instance::replace(db, &binding)).map_err(in_database)?;
    write_record(folder, &binding)
}

/// Binds the folder to the database into which its rows were copied, and no longer to the one they came from.
pub(crate) fn bind_copy(folder: &DataFolder, database: &Database) -> Outcome {
    let mut db = database.connect_writer().map_err(|error| error.to_string())?;
    let Some(old) = instance::find(&mut db).map_err(in_database)? else { return Ok(()) };
    drop(db);
    let bound = Bound {
        folder: folder.clone(),
        database: database.clone(),
        state: Mutex::new(State { mark: old.mark, unwritten: None }),
    };
    bound.advance()
}

fn write_record(folder: &Path, binding: &Binding) -> Outcome {
    DataFolder::at(folder).write_secret(FILE, &Record::of(binding).text()).map(drop)
}

/// The key of the instance, if it is the one with which the database was used. One is created where nothing depends on it.
pub(crate) fn open_key(folder: &DataFolder, db: &mut Conn) -> Result<InstanceKey, String> {
    let unreadable = |error: store::Error| format!("cannot check the instance key: {error}");
    let known = instance::find(db).map_err(unreadable)?.map(|binding| binding.key_check);
    let path = folder.path().join(INSTANCE_KEY);
    let remedy = format!(
        "restore the file from a backup, or give up what was sealed with it: \"gable admin instance new-key --data {}\" \
         says what that is",
        folder.path().display()
    );
    match (folder.existing_instance_key(&remedy)?, known.flatten()) {
        (Some(key), Some(check)) if key.check_value() == check => Ok(key),
        (Some(key), None) if key.fits(db).map_err(unreadable)? => {
            db.write(|db| instance::set_key_check(db, &key.check_value())).map_err(unreadable)?;
            Ok(key)
        }
        (Some(_), _) => {
            Err(format!("{} holds another key than the one that the database was used with; {remedy}", path.display()))
        }
        (None, None) if !instance::depends_on_key(db).map_err(unreadable)? => {
            let key = folder.make_instance_key()?;
            db.write(|db| instance::set_key_check(db, &key.check_value())).map_err(unreadable)?;
            Ok(key)
        }
        (None, _) => Err(format!("the instance key {} is missing; {remedy}", path.display())),
    }
}

/// `gable admin instance new-key`: goes on without what was sealed with a key that is lost.
pub(crate) fn replace_key(folder: &DataFolder, database: &Database, confirmed: bool) -> Outcome {
    let failed = |error: store::Error| format!("cannot replace the instance key: {error}");
    check_existing(folder.path(), database)?;
    let mut db = database.connect_writer().map_err(|error| error.to_string())?;
    let known = instance::find(&mut db).map_err(failed)?.and_then(|binding| binding.key_check);
    if let Ok(Some(key)) = folder.existing_instance_key("") {
        let fits = match known {
            Some(check) => key.check_value() == check,
            None => key.fits(&mut db).map_err(failed)?,
        };
        if fits {
            return Err(format!(
                "{} is the key that the database was used with; there is nothing to replace",
                folder.path().join(INSTANCE_KEY).display()
            ));
        }
    }
    let key = InstanceKey::generate(&SystemSecrets);
    db.begin_writing().map_err(failed)?;
    let lost = key.take_over(&mut db).map_err(failed)?;
    for (what, count) in lost.iter().filter(|(_, count)| *count > 0) {
        say(&format!("{}: {count} {what}", if confirmed { "lost" } else { "would be lost" }));
    }
    if !confirmed {
        db.roll_back().map_err(failed)?;
        return Err("nothing was changed; run this again with --yes to create a new instance key".into());
    }
    // The file first: until the database is changed as well it does not fit, and this is run again.
    folder.set_key_aside()?;
    folder.write_instance_key(&key)?;
    db.commit().map_err(failed)?;
    say("created a new instance key; runners have to be registered again, and hooks and variables to be set again");
    Ok(())
}

/// `gable admin instance rebind`: goes on with a folder and a database that do not fit. Whatever no row names is moved away
/// first, so that no new row ever gets it.
pub(crate) fn rebind(folder: &DataFolder, database: &Database, default_projects_limit: i32) -> Outcome {
    let sides = Sides::look(folder.path(), database)?;
    match sides.fit() {
        Ok(Fit::New) => return Err(no_instance(folder.path())),
        Ok(Fit::Unbound | Fit::Bound) => {
            return Err(format!("the database belongs to the data folder {} already", folder.path().display()));
        }
        Err(Misfit::OtherInstance) => return Err(Misfit::OtherInstance.explain(folder.path(), database)),
        Err(_) => {}
    }
    folder.make_database_file(database)?;
    migrate::bring_up_to_date(folder, database)?;
    let mut db = database.connect_writer().map_err(|error| error.to_string())?;
    let old = instance::find(&mut db).map_err(in_database)?;
    let key = folder.existing_instance_key("restore it from a backup")?;
    refuse_other_key(folder, &mut db, key.as_ref(), old.as_ref())?;
    let moved = set_strays_aside(folder, database, key, default_projects_limit)?;
    let generation = |one: Option<i64>, other: Option<i64>| one.max(other).unwrap_or(0).saturating_add(1);
    let record = sides.record;
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
    db.write(|db| instance::replace(db, &binding)).map_err(in_database)?;
    write_record(folder.path(), &binding)?;
    for line in moved {
        say(&line);
    }
    say(&format!("the data folder {} and the database belong together now", folder.path().display()));
    Ok(())
}

/// A key that does not fit shows that the folder is of another instance, also if its record is lost.
fn refuse_other_key(
    folder: &DataFolder,
    db: &mut Conn,
    key: Option<&InstanceKey>,
    binding: Option<&Binding>,
) -> Outcome {
    let Some(key) = key else { return Ok(()) };
    let fits = match binding.and_then(|binding| binding.key_check.as_ref()) {
        Some(check) => key.check_value() == *check,
        None => key.fits(db).map_err(|error| format!("cannot check the instance key: {error}"))?,
    };
    if fits {
        return Ok(());
    }
    Err(format!(
        "{} is not the key that the database was used with, so the data folder belongs to another instance; name the right \
         one with --data, or restore the key from a backup",
        folder.path().join(INSTANCE_KEY).display()
    ))
}

/// Moves what no row names to `lost+found`; answers what it was.
fn set_strays_aside(
    folder: &DataFolder,
    database: &Database,
    key: Option<InstanceKey>,
    default_projects_limit: i32,
) -> Result<Vec<String>, String> {
    // Nothing is opened with it, so any will do where there is none.
    let key = key.unwrap_or_else(|| InstanceKey::generate(&SystemSecrets));
    let options = forge_options(folder, database.clone(), key, default_projects_limit, Use::Administer)?;
    let forge =
        Forge::start(forge::Options { readers: 1, blocking: 1, ..options }).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let wishes = Wishes {
        deep: false,
        fix: true,
        forget_missing: false,
        beside_server: false,
        lost_and_found: folder.path().join("lost+found").join(now.to_string()),
        progress: Box::new(|_, _, _| {}),
    };
    let findings = runtime.block_on(doctor::set_strays_aside(&forge, &wishes)).map_err(|error| error.to_string())?;
    if let Some(stuck) = findings.iter().find(|finding| finding.level == doctor::Level::Problem) {
        return Err(format!("{}; nothing was bound", stuck.text));
    }
    let moved = findings.iter().filter(|finding| finding.fixed);
    Ok(moved.map(|finding| format!("{}: {} (moved to lost+found)", finding.check, finding.text)).collect())
}
