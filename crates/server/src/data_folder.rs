//! The folder that holds everything, and the lock that keeps a second server out of it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use files::{Files, logs::Logs, spool::Spools};
use forge::{InstanceKey, clock::SystemSecrets};
use git::Repositories;
use store::{Database, OpenError, Schema};

use crate::instance;

/// The file of the embedded database.
pub(crate) const DATABASE: &str = "gable.sqlite3";

/// What its file is called once its rows have moved elsewhere, so that nobody takes it for the database.
pub(crate) const MOVED: &str = "gable.sqlite3.moved";

/// A note beside it, with where they have moved.
const MOVED_TO: &str = "gable.sqlite3.moved-to";

/// The file of the key of the instance.
pub(crate) const INSTANCE_KEY: &str = "instance-key";

/// A folder that is there while a backup is being put back; whatever else is there then is not whole.
pub(crate) const UNFINISHED: &str = ".restoring";

/// The folder, known to be there and writable.
#[derive(Clone)]
pub(crate) struct DataFolder {
    path: PathBuf,
}

/// Held for as long as a server works on the folder.
pub(crate) struct ServerLock {
    _file: File,
}

/// Any of these in a folder shows that it holds an instance, even if parts of it are lost.
const SIGNS_OF_AN_INSTANCE: [&str; 6] = [DATABASE, MOVED, MOVED_TO, INSTANCE_KEY, instance::FILE, UNFINISHED];

/// Refuses a folder that holds no instance. Nothing is created there: only `gable serve` and `gable restore` make an
/// instance.
pub(crate) fn require_instance(path: &Path) -> Result<(), String> {
    match fs::read_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(format!("cannot use the data folder {}: {error}", path.display()));
        }
        _ => {}
    }
    let is_sign = |name: &&str| {
        let found = fs::metadata(path.join(name));
        // SQLite takes an empty file for an empty database.
        found.is_ok_and(|found| *name != DATABASE || found.len() > 0)
    };
    if SIGNS_OF_AN_INSTANCE.iter().any(is_sign) { Ok(()) } else { Err(no_instance(path)) }
}

pub(crate) fn no_instance(path: &Path) -> String {
    let path = path.display();
    format!(
        "no Gable instance in {path}; start one with \"gable serve --data {path}\", or name another folder with --data"
    )
}

impl DataFolder {
    /// A folder that is known to be there.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Opens the folder of an instance that exists.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, String> {
        require_instance(path)?;
        Self::open(path)
    }

    /// Opens the folder, which is created if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let unusable = |error: io::Error| format!("cannot use the data folder {}: {error}", path.display());
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        // A folder that was just made is on disk before anything in it counts.
        if let Some(parent) = path.parent() {
            let _ = File::open(parent).and_then(|parent| parent.sync_all());
        }
        let folder = Self { path };
        // Writing is tried now, so that a read-only folder is told as such.
        folder.lock_file().map_err(unusable)?;
        Ok(folder)
    }

    /// Takes the folder for a server; `None` if another one has it.
    pub(crate) fn lock(&self) -> Result<Option<ServerLock>, String> {
        let unusable = |error: io::Error| format!("cannot lock the data folder {}: {error}", self.path.display());
        let mut file = self.lock_file().map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                Ok(Some(ServerLock { _file: file }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        }
    }

    /// Waits until nobody else opens the database or brings it up to date. Whoever asks for the server's lock or
    /// migrates holds this, so that a short command is never taken for a server.
    pub(crate) fn take_turn(&self) -> Result<File, String> {
        let unusable = |error: io::Error| format!("cannot lock the data folder {}: {error}", self.path.display());
        let path = self.path.join("gable.turn");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(unusable)?;
        file.lock().map_err(unusable)?;
        Ok(file)
    }

    /// The database of an instance that exists: one without tables, or of another folder, is refused, and none is
    /// created.
    pub(crate) fn existing_database(&self, url: Option<&str>) -> Result<Database, String> {
        self.refuse_unfinished()?;
        if url.is_none() {
            refuse_missing_database(&self.path)?;
        }
        let database = self.database(url)?;
        let schema = database.schema().map_err(|error| match error {
            OpenError::Failed(text) if database.is_embedded() => {
                format!("{text}; if the database is damaged, restore a backup")
            }
            error => error.to_string(),
        });
        refuse_without_tables(&self.path, &schema?)?;
        instance::check_existing(&self.path, &database)?;
        Ok(database)
    }

    fn refuse_unfinished(&self) -> Result<(), String> {
        if !self.path.join(UNFINISHED).exists() {
            return Ok(());
        }
        Err(format!("a restore into the data folder {} was interrupted; run it again", self.path.display()))
    }

    /// The database of the folder, or the one at the URL. An embedded one need not exist, see
    /// [`Self::make_database_file`].
    pub(crate) fn database(&self, url: Option<&str>) -> Result<Database, String> {
        self.refuse_unfinished()?;
        match url {
            None => {
                refuse_moved(&self.path)?;
                Ok(Database::sqlite(self.path.join(DATABASE)))
            }
            Some(url) => postgres(url),
        }
    }

    /// Creates the file of an embedded database that does not exist, so that only its owner can read it; the files that
    /// SQLite puts beside it take over the mode.
    pub(crate) fn make_database_file(&self, database: &Database) -> Result<(), String> {
        if !database.is_embedded() {
            return Ok(());
        }
        let path = self.path.join(DATABASE);
        let failed = |error: io::Error| format!("cannot open the database {}: {error}", path.display());
        if !fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
            // What a lost database left beside itself would be read into the new one.
            for ending in ["-wal", "-shm"] {
                let (left, aside) = (format!("{DATABASE}{ending}"), format!("{DATABASE}.lost{ending}"));
                match fs::rename(self.path.join(left), self.path.join(aside)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                    _ => {}
                }
            }
        }
        owner_only(OpenOptions::new().append(true).create(true)).open(&path).map(drop).map_err(failed)
    }

    /// Gives the embedded database another name, because its rows are elsewhere from now on.
    pub(crate) fn set_database_aside(&self, moved_to: &str) -> Result<(), String> {
        let by_hand = |error: &dyn std::fmt::Display| {
            format!(
                "the rows are copied to {moved_to}, but {DATABASE} could not be renamed to {MOVED} ({error}); do that \
                 by hand, because nobody writes to it any more"
            )
        };
        let unusable = |error: io::Error| by_hand(&error);
        self.write_secret(MOVED_TO, &format!("{moved_to}\n")).map_err(|error| by_hand(&error))?;
        // What SQLite keeps beside it belongs to it by name; mostly there is nothing, because everybody has left.
        for ending in ["", "-wal", "-shm"] {
            let (from, to) = (format!("{DATABASE}{ending}"), format!("{MOVED}{ending}"));
            match fs::rename(self.path.join(from), self.path.join(to)) {
                Err(error) if ending.is_empty() || error.kind() != io::ErrorKind::NotFound => {
                    return Err(unusable(error));
                }
                _ => {}
            }
        }
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(unusable)
    }

    /// The files of the folder, beside the database.
    pub(crate) fn files(&self) -> Result<Files, String> {
        Files::in_folder(&self.path.join("files")).map_err(|error| error.to_string())
    }

    /// The traces of the folder.
    pub(crate) fn logs(&self) -> Result<Logs, String> {
        Logs::in_folder(&self.path.join("traces")).map_err(|error| error.to_string())
    }

    /// The repositories of the folder. Only the server throws away what was left unfinished.
    pub(crate) fn repositories(&self, serving: bool) -> Result<Repositories, String> {
        let path = self.path.join("repositories");
        if !serving {
            return Ok(Repositories::beside(&path));
        }
        Repositories::in_folder(&path).map_err(|error| format!("cannot use {}: {error}", path.display()))
    }

    /// Where large answers are kept while they are made and for a while after.
    pub(crate) fn spools(&self, serving: bool, most_bytes: u64) -> Result<Spools, String> {
        let path = self.path.join("cache");
        if !serving {
            return Ok(Spools::beside(&path, most_bytes));
        }
        Spools::in_folder(&path, most_bytes).map_err(|error| format!("cannot use {}: {error}", path.display()))
    }

    /// The key of the instance, if there is one; what to do about a damaged one is added to the error.
    pub(crate) fn existing_instance_key(&self, remedy: &str) -> Result<Option<InstanceKey>, String> {
        let path = self.path.join(INSTANCE_KEY);
        match fs::read_to_string(&path) {
            Ok(text) => match InstanceKey::from_text(&text) {
                Some(key) => Ok(Some(key)),
                None => Err(format!("{} holds no key, or only a part of one; {remedy}", path.display())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    /// Creates the key of a new instance.
    pub(crate) fn make_instance_key(&self) -> Result<InstanceKey, String> {
        let key = InstanceKey::generate(&SystemSecrets);
        self.write_instance_key(&key)?;
        Ok(key)
    }

    /// Writes the key of the instance.
    pub(crate) fn write_instance_key(&self, key: &InstanceKey) -> Result<(), String> {
        self.write_secret(INSTANCE_KEY, &format!("{}\n", key.to_text().reveal())).map(drop)
    }

    /// Renames a key that does not fit, in case that it is needed after all.
    pub(crate) fn set_key_aside(&self) -> Result<(), String> {
        let path = self.path.join(INSTANCE_KEY);
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        match fs::rename(&path, self.path.join(format!("{INSTANCE_KEY}.replaced-{now}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("cannot rename {}: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file that only its owner can read, durably.
    pub(crate) fn write_secret(&self, name: &str, content: &str) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        let unwritable = |error: io::Error| format!("cannot write {}: {error}", path.display());
        // Beside it first: a crash leaves the old file or the new one, never half of one.
        let fresh = self.path.join(format!("{name}.new"));
        let mut options = OpenOptions::new();
        let mut file = owner_only(options.write(true).create(true).truncate(true)).open(&fresh).map_err(unwritable)?;
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(unwritable)?;
        file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)?;
        fs::rename(&fresh, &path).map_err(unwritable)?;
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(unwritable)?;
        Ok(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn lock_file(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.path.join("gable.lock"))
    }
}

/// Refuses to work on the embedded database of a folder whose rows have moved elsewhere.
pub(crate) fn refuse_moved(folder: &Path) -> Result<(), String> {
    let is_there = fs::metadata(folder.join(DATABASE)).is_ok_and(|data| data.len() > 0);
    // The note stays when somebody removes the old file, and so does what it says.
    if is_there || ![MOVED, MOVED_TO].iter().any(|name| folder.join(name).exists()) {
        return Ok(());
    }
    let note = fs::read_to_string(folder.join(MOVED_TO)).unwrap_or_default();
    let place = note.lines().next().filter(|line| !line.is_empty()).unwrap_or("a database on PostgreSQL");
    Err(format!(
        "the rows of the data folder {} have moved to {place}; set `database` (GABLE_DATABASE) to its URL, or, to go \
         back to how it was before, rename {MOVED} to {DATABASE} and run \"gable admin instance rebind\"",
        folder.display()
    ))
}

/// Refuses a folder without the embedded database, which would be created by opening it.
pub(crate) fn refuse_missing_database(folder: &Path) -> Result<(), String> {
    refuse_moved(folder)?;
    let path = folder.join(DATABASE);
    if fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    Err(format!(
        "the database {} is missing or empty; restore a backup, or name a PostgreSQL database with --database",
        path.display()
    ))
}

/// Refuses a database in which no server has ever worked.
pub(crate) fn refuse_without_tables(folder: &Path, schema: &Schema) -> Result<(), String> {
    if schema.version.is_some() {
        return Ok(());
    }
    let folder = folder.display();
    Err(format!(
        "the database is empty: it holds no Gable instance; name the one that belongs to the data folder {folder} with \
         --database, or restore a backup"
    ))
}

/// The database at a URL.
pub(crate) fn postgres(url: &str) -> Result<Database, String> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Database::postgres(url).map_err(|error| error.to_string());
    }
    Err("the database URL does not begin with postgres://; leave it out for the embedded one".into())
}

/// A file that is made readable by its owner only.
pub(crate) fn owner_only(options: &mut OpenOptions) -> &OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
