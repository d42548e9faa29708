//! The data folder of an instance, and its locks.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use files::{Files, logs::Logs, spool::Spools};
use forge::{InstanceKey, clock::SystemSecrets, traces::LogStore};
use git::Repositories;
use store::{Conn, Database, OpenError, SchemaStatus, instance::DatabaseContent};

use crate::{
    admin,
    config::{Location, SharedStorage},
    exit::message,
    instance, shared_instance,
};

/// The file of the embedded database.
pub(crate) const DATABASE: &str = "gable.sqlite3";

/// The name of the embedded database after its rows were migrated to PostgreSQL.
pub(crate) const MOVED: &str = "gable.sqlite3.moved";

/// A file that describes where the rows were migrated to.
const MOVED_NOTE: &str = "gable.sqlite3.moved-to";

/// A file that exists if the files of the instance are in a bucket, or being copied from there; describes the instance and the
/// bucket.
pub(crate) const BUCKET_NOTE: &str = "moved-to-bucket";

/// The file of the instance key.
pub(crate) const INSTANCE_KEY: &str = "instance-key";

/// The file of the SSH host key.
pub(crate) const SSH_HOST_KEY: &str = "ssh-host-key";

/// The files of private keys.
pub(crate) const PRIVATE_KEYS: [&str; 2] = [INSTANCE_KEY, SSH_HOST_KEY];

/// The file with the generated credentials of the first administrator.
pub(crate) const ROOT_CREDENTIALS: &str = "root-credentials";

/// The file that a server locks while it uses the folder.
pub(crate) const LOCK: &str = "gable.lock";

/// The file that a process locks while it opens or migrates the database.
pub(crate) const OPENING_LOCK: &str = "gable.turn";

/// The folder for files that the database does not refer to.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// A folder that exists while a backup is being restored; the instance is incomplete then.
pub(crate) const RESTORE_FOLDER: &str = ".restoring";

/// An existing, writable data folder, or the cache folder of a node whose files are in a bucket.
#[derive(Clone)]
pub(crate) struct DataFolder {
    path: PathBuf,
    /// If set, the folder is the cache of a node.
    shared: Option<SharedStorage>,
    /// Opened once: a client of a bucket has threads and connections.
    files: Arc<OnceLock<Files>>,
}

/// The bucket that has the files of the instance of a data folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BucketNote {
    pub(crate) instance_id: String,
    /// Where the bucket is, without secrets.
    pub(crate) bucket: String,
}

/// The lock that a server holds while it uses the folder.
pub(crate) struct ServerLock {
    _file: File,
}

/// Any of these files shows that a folder contains an instance, even if parts of it are lost.
const INSTANCE_MARKERS: [&str; 7] =
    [DATABASE, MOVED, MOVED_NOTE, BUCKET_NOTE, INSTANCE_KEY, instance::FILE, RESTORE_FOLDER];

/// Returns an error if a folder contains no instance. Nothing is created: only `gable serve` and `gable restore` create
/// instances.
pub(crate) fn require_instance(path: &Path) -> Result<()> {
    match fs::read_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            bail!("cannot use the data folder {}: {error}", path.display());
        }
        _ => {}
    }
    let is_marker = |name: &&str| {
        let found = fs::metadata(path.join(name));
        // To SQLite an empty file is an empty database.
        found.is_ok_and(|found| *name != DATABASE || found.len() > 0)
    };
    if INSTANCE_MARKERS.iter().any(is_marker) { Ok(()) } else { Err(no_instance(path)) }
}

/// Like [`require_instance`], but an instance whose files are in a bucket needs no folder.
pub(crate) fn require_instance_at(location: &Location) -> Result<()> {
    if location.shared.is_some() {
        return Ok(());
    }
    let Err(error) = require_instance(&location.folder) else { return Ok(()) };
    let database = location.database.as_deref().and_then(|url| postgres(url).ok());
    // If it cannot be read, the folder is still missing.
    if database.and_then(|database| database.content().ok()).is_none_or(|content| content == DatabaseContent::Empty) {
        return Err(error);
    }
    Err(anyhow!(
        "the database contains an instance, but the data folder {} does not; {}",
        location.folder.display(),
        instance::folder_remedy()
    ))
}

pub(crate) fn no_instance(path: &Path) -> Error {
    let path = path.display();
    anyhow!(
        "no Gable instance in {path}; create one with `gable serve --data {path}`, or choose another folder with --data"
    )
}

impl DataFolder {
    /// Returns a folder that is known to exist.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), shared: None, files: Arc::default() }
    }

    /// Opens the folder of an existing instance.
    pub(crate) fn open_existing(location: &Location) -> Result<Self> {
        require_instance_at(location)?;
        Self::of(location)
    }

    /// Opens the folder of a location; creates it if it does not exist.
    pub(crate) fn of(location: &Location) -> Result<Self> {
        Ok(Self { shared: location.shared.clone(), ..Self::open(&location.folder)? })
    }

    /// Opens a data folder; creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let context = || format!("cannot use the data folder {}", path.display());
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(path).with_context(context)?;
        let path = path.canonicalize().with_context(context)?;
        // Makes a newly created folder durable.
        if let Some(parent) = path.parent() {
            let _ = File::open(parent).and_then(|parent| parent.sync_all());
        }
        let folder = Self { path, shared: None, files: Arc::default() };
        // Reports a read-only folder early.
        folder.lock_file().with_context(context)?;
        Ok(folder)
    }

    /// Locks the folder for a server; `None` if another one has locked it.
    pub(crate) fn lock(&self) -> Result<Option<ServerLock>> {
        let context = || format!("cannot lock the data folder {}", self.path.display());
        let mut file = self.lock_file().with_context(context)?;
        match file.try_lock() {
            Ok(()) => {
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                Ok(Some(ServerLock { _file: file }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).with_context(context),
        }
    }

    /// Waits until no other process is opening or migrating the database. The server lock is only requested under this lock,
    /// so that a short command is not mistaken for a server.
    pub(crate) fn lock_for_opening(&self) -> Result<File> {
        let context = || format!("cannot lock the data folder {}", self.path.display());
        let path = self.path.join(OPENING_LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).with_context(context)?;
        file.lock().with_context(context)?;
        Ok(file)
    }

    /// Opens the database of an existing instance. One without tables or of another folder is refused; none is created.
    pub(crate) fn existing_database(&self, url: Option<&str>) -> Result<Database> {
        let database = self.database_with_tables(url)?;
        self.check_binding(&database)?;
        Ok(database)
    }

    /// Opens the database of an existing instance, which may belong to another folder or bucket.
    pub(crate) fn database_with_tables(&self, url: Option<&str>) -> Result<Database> {
        self.ensure_usable()?;
        if url.is_none() {
            ensure_database_exists(&self.path)?;
        }
        let database = self.database(url)?;
        let schema = database.schema_status().map_err(|error| match error {
            OpenError::Failed(text) if database.is_in_data_folder() => {
                anyhow!("{text}; if the database is damaged, restore a backup")
            }
            error => error.into(),
        })?;
        ensure_has_tables(&self.path, &schema)?;
        Ok(database)
    }

    /// Returns an error if the database does not belong to this folder or to the bucket.
    pub(crate) fn check_binding(&self, database: &Database) -> Result<()> {
        match self.shared {
            Some(_) => shared_instance::check_existing(&self.files()?, database),
            None => instance::check_existing(&self.path, database),
        }
    }

    /// Returns an error if a restore was interrupted, or if the files of the instance are in a bucket.
    fn ensure_usable(&self) -> Result<()> {
        let path = self.path.display();
        if self.path.join(RESTORE_FOLDER).exists() {
            bail!("a restore into the data folder {path} was interrupted; run it again");
        }
        let Some(note) = self.bucket_note()? else { return Ok(()) };
        Err(anyhow!(
            "the files of the data folder {path} were moved to {}; set `store`, `cache` and `instance-key-file`, or move \
             them back with `gable migrate-store --to folder`; if a move was interrupted, run it again",
            note.bucket
        ))
    }

    /// Returns which bucket has the files of the instance, if they are not in this folder.
    pub(crate) fn bucket_note(&self) -> Result<Option<BucketNote>> {
        let path = self.path.join(BUCKET_NOTE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let value = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned()));
        Ok(Some(BucketNote {
            instance_id: value("instance: ").unwrap_or_default(),
            bucket: value("bucket: ").unwrap_or_else(|| "a bucket".to_owned()),
        }))
    }

    /// Records durably that a bucket has the files of the instance.
    pub(crate) fn write_bucket_note(&self, note: &BucketNote) -> Result<()> {
        let BucketNote { instance_id, bucket } = note;
        self.write_secret(BUCKET_NOTE, &format!("instance: {instance_id}\nbucket: {bucket}\n")).map(drop)
    }

    /// Records durably that this folder has the files of the instance.
    pub(crate) fn remove_bucket_note(&self) -> Result<()> {
        let path = self.path.join(BUCKET_NOTE);
        let removed = fs::remove_file(&path).and_then(|()| File::open(&self.path)?.sync_all());
        removed.with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Returns the database at `url`, or the embedded one, which need not exist (see [`Self::create_database_file`]).
    pub(crate) fn database(&self, url: Option<&str>) -> Result<Database> {
        self.ensure_usable()?;
        match url {
            None => {
                ensure_not_moved(&self.path)?;
                Ok(Database::sqlite(self.path.join(DATABASE)))
            }
            Some(url) => postgres(url),
        }
    }

    /// Creates the file of the embedded database with mode 0600 if it does not exist; SQLite uses the same mode for its other
    /// files.
    pub(crate) fn create_database_file(&self, database: &Database) -> Result<()> {
        if !database.is_in_data_folder() {
            return Ok(());
        }
        let path = self.path.join(DATABASE);
        let context = || format!("cannot open the database {}", path.display());
        if !fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
            // SQLite would apply the log of a lost database to the new one.
            for ending in ["-wal", "-shm"] {
                let (left, aside) = (format!("{DATABASE}{ending}"), format!("{DATABASE}.lost{ending}"));
                match fs::rename(self.path.join(left), self.path.join(aside)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(error).with_context(context);
                    }
                    _ => {}
                }
            }
        }
        owner_only(OpenOptions::new().append(true).create(true)).open(&path).map(drop).with_context(context)
    }

    /// Renames the embedded database after its rows were migrated.
    pub(crate) fn rename_moved_database(&self, moved_to: &str) -> Result<()> {
        let by_hand = |error: &dyn std::fmt::Display| {
            anyhow!(
                "the rows were copied to {moved_to}, but {DATABASE} could not be renamed to {MOVED} ({error}); rename it \
                 manually, because it is no longer used"
            )
        };
        let unusable = |error: io::Error| by_hand(&error);
        self.write_secret(MOVED_NOTE, &format!("{moved_to}\n")).map_err(|error| by_hand(&message(&error)))?;
        // SQLite finds its other files by name; usually there are none, because all connections are closed.
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

    /// Returns what the nodes of the instance share, if it has several.
    pub(crate) fn shared(&self) -> Option<&SharedStorage> {
        self.shared.as_ref()
    }

    /// Returns the store of packs, uploads, avatars and artifacts.
    pub(crate) fn files(&self) -> Result<Files> {
        if let Some(files) = self.files.get() {
            return Ok(files.clone());
        }
        let files = match &self.shared {
            Some(shared) => shared_instance::open_bucket(self, shared)?,
            None => Files::open(&self.path.join("files"))?,
        };
        Ok(self.files.get_or_init(|| files).clone())
    }

    /// Reads the instance key of an existing instance and compares it with the one that the database was used with.
    pub(crate) fn open_key(&self, db: &mut Conn) -> Result<InstanceKey> {
        match &self.shared {
            Some(shared) => shared_instance::open_key(shared, db),
            None => instance::open_key(self, db),
        }
    }

    /// Returns the store of CI traces.
    pub(crate) fn logs(&self) -> Result<LogStore> {
        match self.shared {
            Some(_) => Ok(LogStore::Segments),
            None => Ok(LogStore::Folder(Logs::open(&self.path.join("traces"))?)),
        }
    }

    /// Returns the repositories. Only the server removes what an interrupted operation left.
    pub(crate) fn repositories(&self, serving: bool) -> Result<Repositories> {
        let path = self.path.join("repositories");
        if !serving {
            return Ok(Repositories::attach(&path));
        }
        Repositories::open_folder(&path).with_context(|| format!("cannot use {}", path.display()))
    }

    /// Returns the cache of large responses.
    pub(crate) fn spools(&self, serving: bool, max_bytes: u64) -> Result<Spools> {
        let path = self.path.join("cache");
        if !serving {
            return Ok(Spools::attach(&path, max_bytes));
        }
        Spools::open(&path, max_bytes).with_context(|| format!("cannot use {}", path.display()))
    }

    /// Returns the instance key, if it exists; `remedy` is appended to the error about a damaged one.
    pub(crate) fn existing_instance_key(&self, remedy: &str) -> Result<Option<InstanceKey>> {
        let path = self.instance_key_path();
        match fs::read_to_string(&path) {
            Ok(text) => match InstanceKey::from_text(&text) {
                Some(key) => Ok(Some(key)),
                None => Err(anyhow!("{} is not a complete instance key; {remedy}", path.display())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(anyhow!("cannot read {}: {error}", path.display())),
        }
    }

    /// Returns the file of the instance key.
    pub(crate) fn instance_key_path(&self) -> PathBuf {
        self.shared.as_ref().map_or_else(|| self.path.join(INSTANCE_KEY), |shared| shared.key_file.clone())
    }

    /// Creates the instance key.
    pub(crate) fn create_instance_key(&self) -> Result<InstanceKey> {
        let key = InstanceKey::generate(&SystemSecrets);
        self.write_instance_key(&key)?;
        Ok(key)
    }

    /// Writes the instance key. The file that nodes share must not exist.
    pub(crate) fn write_instance_key(&self, key: &InstanceKey) -> Result<()> {
        match &self.shared {
            Some(shared) => admin::write_key(&shared.key_file, key),
            None => self.write_secret(INSTANCE_KEY, &format!("{}\n", key.to_text().reveal())).map(drop),
        }
    }

    /// Renames a key that does not match instead of removing it.
    pub(crate) fn rename_replaced_key(&self) -> Result<()> {
        let path = self.instance_key_path();
        let mut renamed = path.clone().into_os_string();
        renamed.push(format!(".replaced-{}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ")));
        match fs::rename(&path, renamed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(anyhow!("cannot rename {}: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file with mode 0600, durably and atomically.
    pub(crate) fn write_secret(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        let context = || format!("cannot write {}", path.display());
        let temporary = self.path.join(format!("{name}.new"));
        let mut options = OpenOptions::new();
        let mut file =
            owner_only(options.write(true).create(true).truncate(true)).open(&temporary).with_context(context)?;
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).with_context(context)?;
        file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).with_context(context)?;
        fs::rename(&temporary, &path).with_context(context)?;
        File::open(&self.path).and_then(|folder| folder.sync_all()).with_context(context)?;
        Ok(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn lock_file(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.path.join(LOCK))
    }
}

/// Returns an error if the rows of the embedded database were migrated to PostgreSQL.
pub(crate) fn ensure_not_moved(folder: &Path) -> Result<()> {
    let exists = fs::metadata(folder.join(DATABASE)).is_ok_and(|data| data.len() > 0);
    // The note also counts if the old file was removed.
    if exists || ![MOVED, MOVED_NOTE].iter().any(|name| folder.join(name).exists()) {
        return Ok(());
    }
    let note = fs::read_to_string(folder.join(MOVED_NOTE)).unwrap_or_default();
    let target = note.lines().next().filter(|line| !line.is_empty()).unwrap_or("a database on PostgreSQL");
    Err(anyhow!(
        "the rows of the data folder {} were migrated to {target}; set `database` (GABLE_DATABASE) to its URL, or, to go \
         back, rename {MOVED} to {DATABASE} and run `gable admin instance rebind`",
        folder.display()
    ))
}

/// Returns an error if the embedded database does not exist; opening it would create it.
pub(crate) fn ensure_database_exists(folder: &Path) -> Result<()> {
    ensure_not_moved(folder)?;
    let path = folder.join(DATABASE);
    if fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    Err(anyhow!(
        "the database {} is missing or empty; restore a backup, or specify a PostgreSQL database with --database",
        path.display()
    ))
}

/// Returns an error if the database was never used by a server.
pub(crate) fn ensure_has_tables(folder: &Path, schema: &SchemaStatus) -> Result<()> {
    if schema.version.is_some() {
        return Ok(());
    }
    let folder = folder.display();
    Err(anyhow!(
        "the database contains no Gable instance; specify the one that belongs to the data folder {folder} with \
         --database, or restore a backup"
    ))
}

/// Returns the PostgreSQL database at a URL.
pub(crate) fn postgres(url: &str) -> Result<Database> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Database::postgres(url)?);
    }
    Err(anyhow!("the database URL does not start with postgres://; omit it to use the embedded database"))
}

/// Sets mode 0600 for a file that is created.
pub(crate) fn owner_only(options: &mut OpenOptions) -> &OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
