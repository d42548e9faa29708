//! `gable migrate` and the migrations at start; the embedded database is copied first.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use forge::{disk_space::DiskSpace, storage_upgrade};
use git::Repositories;
use store::{Conn, Database, SchemaStatus};

use crate::{
    commands::Migrate,
    config::{self, Config, Location},
    data_folder::{self, DATABASE, DataFolder, RESTORE_FOLDER, owner_only},
    exit::{CommandResult, print_line},
    instance, shared_instance,
};

/// The maximum number of copies to keep.
const MAX_COPIES: usize = 2;
/// The prefix of the names of copies; the version of the migration follows.
const COPY_PREFIX: &str = "gable.sqlite3.before-";
/// The free disk space required in addition to the size of the database.
const FREE_SPACE_MARGIN: u64 = 16 << 20;

/// `gable migrate`.
pub(crate) fn run(command: Migrate) -> CommandResult {
    let config = config::load(command.location)?;
    Ok(migrate_or_dry_run(config, command.dry_run)?)
}

fn migrate_or_dry_run(config: Config, dry_run: bool) -> Result<()> {
    let Location { folder: data, database, .. } = config.location.clone();
    data_folder::require_instance_at(&config.location)?;
    if dry_run {
        return dry_run_pending(&config.location);
    }
    let folder = DataFolder::open_existing(&config.location)?;
    let _opening_lock = folder.lock_for_opening()?;
    let database = folder.existing_database(database.as_deref())?;
    let schema = database.schema_status()?;
    print_schema(&schema);
    if schema.pending.is_empty() {
        return print_storage_upgrade(&data, &mut database.connect_reader()?);
    }
    let Some(_lock) = folder.lock()? else {
        bail!("another gable server is using the data folder {}; stop it first", folder.path().display());
    };
    if let Some(copy) = migrate(&folder, &database, &schema)? {
        print_line(&format!("a copy of the old database is in {}", copy.display()));
    }
    print_line(&format!("migrated the database to version {}", schema.latest));
    print_storage_upgrade(&data, &mut database.connect_reader()?)
}

/// Prints what the next start of the server does with the repositories of an earlier version.
fn print_storage_upgrade(folder: &Path, db: &mut Conn) -> Result<()> {
    for line in describe_storage_upgrade(folder, db)? {
        print_line(&line);
    }
    Ok(())
}

fn describe_storage_upgrade(folder: &Path, db: &mut Conn) -> store::Result<Vec<String>> {
    let repositories = Repositories::attach(&folder.join("repositories"));
    let lines = storage_upgrade::describe(db, &repositories)?;
    Ok(lines.into_iter().map(|line| format!("at the next start: {line}")).collect())
}

fn print_schema(schema: &SchemaStatus) {
    match &schema.version {
        Some(version) => print_line(&format!("the database has version {version}")),
        None => print_line("the database has no tables yet"),
    }
    for name in &schema.pending {
        print_line(&format!("pending: {name}"));
    }
    if schema.pending.is_empty() {
        print_line("no pending migrations");
    }
}

/// Applies pending migrations. The caller holds the server lock.
pub(crate) fn apply_pending(folder: &DataFolder, database: &Database) -> Result<()> {
    let schema = database.schema_status()?;
    if let Some(copy) = migrate(folder, database, &schema)? {
        tracing::info!(copy = %copy.display(), "migrated the database; a copy of the old one was kept");
    }
    Ok(())
}

/// Copies an embedded database with data, then migrates; returns the path of the copy.
fn migrate(folder: &DataFolder, database: &Database, schema: &SchemaStatus) -> Result<Option<PathBuf>> {
    let has_data = database.is_sqlite() && schema.version.is_some() && !schema.pending.is_empty();
    let copy = if has_data { Some(copy_before_migration(folder.path(), database, schema)?) } else { None };
    database.migrate()?;
    Ok(copy)
}

/// Writes a copy with mode 0600 into the data folder, durably; removes older copies.
fn copy_before_migration(folder: &Path, database: &Database, schema: &SchemaStatus) -> Result<PathBuf> {
    let path = folder.join(format!("{COPY_PREFIX}{}", schema.latest));
    let temporary = path.with_extension(format!("{}.new", extension(&path)));
    copy_to(folder, database, &temporary)?;
    let context = || format!("cannot copy the database to {}", path.display());
    fs::rename(&temporary, &path).with_context(context)?;
    sync(folder).with_context(context)?;
    let mut copies = copies(folder).with_context(context)?;
    // Migration versions sort by time.
    copies.sort();
    for old in copies.iter().rev().skip(MAX_COPIES) {
        fs::remove_file(old).with_context(context)?;
    }
    Ok(path)
}

fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the existing copies.
fn copies(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_copy = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(COPY_PREFIX).is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter(is_copy).collect())
}

/// Copies the embedded database to a new file.
fn copy_to(folder: &Path, database: &Database, file: &Path) -> Result<()> {
    let context = || format!("cannot copy the database to {}", file.display());
    require_disk_space(folder)?;
    remove_database_files(file).with_context(context)?;
    // Created here to set its mode.
    owner_only(OpenOptions::new().write(true).create_new(true)).open(file).with_context(context)?;
    let copied = database.copy_to(file).map_err(Error::from);
    let synced = copied.and_then(|()| sync(file).with_context(context));
    if synced.is_err() {
        // The first error is the one to report.
        let _ = remove_database_files(file);
    }
    synced
}

/// Returns an error if there is not enough disk space for a copy.
fn require_disk_space(folder: &Path) -> Result<()> {
    let size = |ending: &str| fs::metadata(folder.join(format!("{DATABASE}{ending}"))).map_or(0, |data| data.len());
    let needed = size("") + size("-wal") + FREE_SPACE_MARGIN;
    let Ok(space) = DiskSpace::new(folder, 0).usage() else { return Ok(()) };
    if space.free_bytes >= needed {
        return Ok(());
    }
    Err(anyhow!(
        "copying the database before its migration requires {} MiB, but {} MiB are free; free disk space in {}",
        needed.div_ceil(1 << 20),
        space.free_bytes >> 20,
        folder.display()
    ))
}

/// Tests pending migrations and leaves nothing behind, not even the lock files.
fn dry_run_pending(location: &Location) -> Result<()> {
    let (folder, url) = (location.folder.as_path(), location.database.as_deref());
    if folder.join(RESTORE_FOLDER).exists() {
        bail!("a restore into the data folder {} was interrupted; run it again", folder.display());
    }
    let database = if let Some(url) = url {
        data_folder::postgres(url)?
    } else {
        data_folder::ensure_database_exists(folder)?;
        Database::sqlite(folder.join(DATABASE))
    };
    let schema = database.schema_status()?;
    data_folder::ensure_has_tables(folder, &schema)?;
    match &location.shared {
        Some(_) => shared_instance::check_existing(&DataFolder::of(location)?.files()?, &database)?,
        None => instance::check_existing(folder, &database)?,
    }
    print_schema(&schema);
    if schema.pending.is_empty() {
        return print_storage_upgrade(folder, &mut database.connect_reader()?);
    }
    let describe = |db: &mut Conn| describe_storage_upgrade(folder, db);
    if !database.is_sqlite() {
        let lines = database.dry_run_migrations(describe)?;
        print_line("tested in a rolled-back transaction: all pending migrations succeed");
        print_lines(&lines);
        return Ok(());
    }
    // The name is unique, so that concurrent dry runs do not conflict.
    let file = folder.join(format!("{DATABASE}.trial-{}.new", std::process::id()));
    let result =
        copy_to(folder, &database, &file).and_then(|()| Ok(Database::sqlite(&file).dry_run_migrations(describe)?));
    let removed = remove_database_files(&file).with_context(|| format!("cannot remove {}", file.display()));
    let lines = result.and_then(|lines| removed.map(|()| lines))?;
    print_line("tested on a copy: all pending migrations succeed");
    print_lines(&lines);
    Ok(())
}

/// Removes a database file and the other files of SQLite.
fn remove_database_files(file: &Path) -> io::Result<()> {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut path = file.as_os_str().to_owned();
        path.push(ending);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn print_lines(lines: &[String]) {
    for line in lines {
        print_line(line);
    }
}
