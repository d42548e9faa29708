//! The folder that holds everything, and the lock that keeps a second server out of it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use files::{Files, logs::Logs, spool::Spools};
use forge::{InstanceKey, clock::SystemSecrets};
use git::Repositories;
use store::Database;

/// The file of the embedded database.
pub(crate) const DATABASE: &str = "gable.sqlite3";

/// What its file is called once its rows have moved elsewhere, so that nobody takes it for the database.
pub(crate) const MOVED: &str = "gable.sqlite3.moved";

/// A note beside it, with where they have moved.
const MOVED_TO: &str = "gable.sqlite3.moved-to";

/// A folder that is there while a backup is being put back; whatever else is there then is not whole.
pub(crate) const UNFINISHED: &str = ".restoring";

/// The folder, known to be there and writable.
pub(crate) struct DataFolder {
    path: PathBuf,
}

/// Held for as long as a server works on the folder.
pub(crate) struct ServerLock {
    _file: File,
}

impl DataFolder {
    /// Makes the folder if need be.
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

    /// The database of the folder, or the one at the URL.
    pub(crate) fn database(&self, url: Option<&str>) -> Result<Database, String> {
        if self.path.join(UNFINISHED).exists() {
            return Err(format!(
                "a restore into the data folder {} was interrupted; run it again",
                self.path.display()
            ));
        }
        match url {
            None => {
                refuse_moved(&self.path)?;
                let path = self.path.join(DATABASE);
                // Made here, so that only its owner can read it; what SQLite puts beside it takes over the mode.
                owner_only(OpenOptions::new().append(true).create(true))
                    .open(&path)
                    .map_err(|error| format!("cannot open the database {}: {error}", path.display()))?;
                Ok(Database::sqlite(path))
            }
            Some(url) => postgres(url),
        }
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

    /// The key of the instance, made when it is first needed; whoever calls this holds the turn or the server's lock.
    pub(crate) fn instance_key(&self) -> Result<InstanceKey, String> {
        const NAME: &str = "instance-key";
        let path = self.path.join(NAME);
        match fs::read_to_string(&path) {
            Ok(text) => InstanceKey::from_text(&text).ok_or_else(|| {
                format!(
                    "{} holds no key; restore it from a backup, or remove it to get new runners' tokens",
                    path.display()
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = InstanceKey::generate(&SystemSecrets);
                self.write_secret(NAME, &format!("{}\n", key.to_text().reveal()))?;
                Ok(key)
            }
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    /// The key of the instance if there is a good one; nothing is made.
    pub(crate) fn existing_instance_key(&self) -> Result<Option<InstanceKey>, String> {
        if self.path.join("instance-key").exists() { self.instance_key().map(Some) } else { Ok(None) }
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
         back to how it was before, rename {MOVED} to {DATABASE}",
        folder.display()
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
