//! Bringing the database up to date, with a way back: what is embedded is copied first.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use forge::disk_space::Room;
use store::{Database, Schema};

use crate::{
    Outcome,
    commands::Migrate,
    config::{self, Config},
    data_folder::{self, DATABASE, DataFolder, UNFINISHED, owner_only},
    exit::Ending,
    instance,
    serve::say,
};

/// How many copies are kept.
const KEPT: usize = 2;
/// What a copy is called: the database, and before which migration it was made.
const BEFORE: &str = "gable.sqlite3.before-";
/// How much more than the database itself shall be free before it is copied.
const MARGIN: u64 = 16 << 20;

/// `gable migrate`.
pub(crate) fn run(command: Migrate) -> Ending {
    let config = config::load(command.place.into())?;
    Ok(bring_or_try(config, command.dry_run)?)
}

fn bring_or_try(config: Config, dry_run: bool) -> Outcome {
    let Config { data, database, .. } = config;
    data_folder::require_instance(&data)?;
    if dry_run {
        return try_out(&data, database.as_deref());
    }
    let folder = DataFolder::open_existing(&data)?;
    let _turn = folder.take_turn()?;
    let database = folder.existing_database(database.as_deref())?;
    let schema = database.schema().map_err(|error| error.to_string())?;
    describe(&schema);
    if schema.pending.is_empty() {
        return Ok(());
    }
    let Some(_alone) = folder.lock()? else {
        return Err(format!("another gable serves the data folder {}; stop it first", folder.path().display()));
    };
    if let Some(copy) = migrate(&folder, &database, &schema)? {
        say(&format!("the database as it was is kept in {}", copy.display()));
    }
    say(&format!("the database is at {} now", schema.known));
    Ok(())
}

fn describe(schema: &Schema) {
    match &schema.version {
        Some(version) => say(&format!("the database is at {version}")),
        None => say("the database has no tables yet"),
    }
    for name in &schema.pending {
        say(&format!("pending: {name}"));
    }
    if schema.pending.is_empty() {
        say("nothing is pending");
    }
}

/// Brings the database up to date if need be. Whoever calls this has the folder to themselves.
pub(crate) fn bring_up_to_date(folder: &DataFolder, database: &Database) -> Outcome {
    let schema = database.schema().map_err(|error| error.to_string())?;
    if let Some(copy) = migrate(folder, database, &schema)? {
        tracing::info!(copy = %copy.display(), "the database as it was before its migration is kept");
    }
    Ok(())
}

/// Copies what is embedded and has data, and migrates. Answers where the copy is.
fn migrate(folder: &DataFolder, database: &Database, schema: &Schema) -> Result<Option<PathBuf>, String> {
    let has_data = database.is_embedded() && schema.version.is_some() && !schema.pending.is_empty();
    let copy = if has_data { Some(keep_copy(folder.path(), database, schema)?) } else { None };
    database.migrate().map_err(|error| error.to_string())?;
    Ok(copy)
}

/// Writes a copy beside the database, durably and for its owner only; older ones go.
fn keep_copy(folder: &Path, database: &Database, schema: &Schema) -> Result<PathBuf, String> {
    let place = folder.join(format!("{BEFORE}{}", schema.known));
    let fresh = place.with_extension(format!("{}.new", extension(&place)));
    copy_to(folder, database, &fresh)?;
    let failed = |error: io::Error| format!("cannot keep a copy of the database in {}: {error}", place.display());
    fs::rename(&fresh, &place).map_err(failed)?;
    sync(folder).map_err(failed)?;
    let mut copies = copies(folder).map_err(failed)?;
    // Numbers of migrations sort by time.
    copies.sort();
    for old in copies.iter().rev().skip(KEPT) {
        fs::remove_file(old).map_err(failed)?;
    }
    Ok(place)
}

fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The copies that are kept.
fn copies(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_copy = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(BEFORE).is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter(is_copy).collect())
}

/// Copies the embedded database to a file that is made anew.
fn copy_to(folder: &Path, database: &Database, file: &Path) -> Outcome {
    let failed = |error: io::Error| format!("cannot copy the database to {}: {error}", file.display());
    require_room(folder)?;
    forget(file).map_err(failed)?;
    // Made here, so that nobody else can read it; what is empty is written to.
    owner_only(OpenOptions::new().write(true).create_new(true)).open(file).map_err(failed)?;
    let copied = database.copy_to(file).map_err(|error| error.to_string());
    let synced = copied.and_then(|()| sync(file).map_err(failed));
    if synced.is_err() {
        // The first trouble is the one to tell.
        let _ = forget(file);
    }
    synced
}

/// Refuses to begin what there is no room for.
fn require_room(folder: &Path) -> Outcome {
    let size = |ending: &str| fs::metadata(folder.join(format!("{DATABASE}{ending}"))).map_or(0, |data| data.len());
    let needed = size("") + size("-wal") + MARGIN;
    let Ok(space) = Room::around(folder, 0).space() else { return Ok(()) };
    if space.free_bytes >= needed {
        return Ok(());
    }
    Err(format!(
        "the database has to be copied before it is migrated, which takes {} MiB, and {} are free; \
         make room on the disk of {}",
        needed.div_ceil(1 << 20),
        space.free_bytes >> 20,
        folder.display()
    ))
}

/// Tries what is pending, and leaves nothing behind: not even the locks of the folder are made.
fn try_out(folder: &Path, url: Option<&str>) -> Outcome {
    if folder.join(UNFINISHED).exists() {
        return Err(format!("a restore into the data folder {} was interrupted; run it again", folder.display()));
    }
    let database = if let Some(url) = url {
        data_folder::postgres(url)?
    } else {
        data_folder::refuse_missing_database(folder)?;
        Database::sqlite(folder.join(DATABASE))
    };
    let schema = database.schema().map_err(|error| error.to_string())?;
    data_folder::refuse_without_tables(folder, &schema)?;
    instance::check_existing(folder, &database)?;
    describe(&schema);
    if schema.pending.is_empty() {
        return Ok(());
    }
    if !database.is_embedded() {
        database.try_migrations().map_err(|error| error.to_string())?;
        say("tried in a transaction that was undone: everything that is pending goes through");
        return Ok(());
    }
    // Two that try at once are not in each other's way.
    let file = folder.join(format!("{DATABASE}.trial-{}.new", std::process::id()));
    let tried = copy_to(folder, &database, &file)
        .and_then(|()| Database::sqlite(&file).migrate().map_err(|error| error.to_string()));
    let gone = forget(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()));
    tried.and(gone)?;
    say("tried on a copy: everything that is pending goes through");
    Ok(())
}

/// Removes a database file and what SQLite puts beside it.
fn forget(file: &Path) -> io::Result<()> {
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
