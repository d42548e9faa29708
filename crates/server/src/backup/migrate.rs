//! `gable migrate-database`: the same rows in another database.

use std::{collections::BTreeMap, fs, path::Path};

use store::{
    Database,
    copies::{Loading, Snapshot},
};

use super::{
    Sentence,
    capture::{Pages, in_database},
    progress::Progress,
    staging::make_owner_only,
};
use crate::{
    Outcome,
    commands::MigrateDatabase,
    config,
    data_folder::{self, DataFolder},
    serve::say,
};

pub(crate) fn run(command: MigrateDatabase) -> Outcome {
    let MigrateDatabase { to, quiet, place } = command;
    let config = config::load(place.into())?;
    if !config.data.is_dir() {
        return Err(format!("there is no data folder {}", config.data.display()));
    }
    let folder = DataFolder::open(&config.data)?;
    let _turn = folder.take_turn()?;
    let Some(_lock) = folder.lock()? else {
        return Err(format!("a gable serves the data folder {}; stop it first", folder.path().display()));
    };
    if to == "sqlite" && config.database.is_none() {
        return Err(
            "the database is the embedded one already; name its URL with --database to move away from it".into()
        );
    }
    let source = folder.database(config.database.as_deref())?;
    let mut progress = Progress::new(quiet);
    let rows = if to == "sqlite" {
        into_embedded(&source, &folder.path().join("gable.sqlite3"), &mut progress)?
    } else {
        copy(&source, &data_folder::postgres(&to)?, &mut progress)?
    };
    drop(progress);
    say(&format!("copied {rows} rows; the database they came from is as it was"));
    say(if to == "sqlite" {
        "from now on leave the setting `database` (GABLE_DATABASE) out, and start the server"
    } else {
        "from now on set `database` (GABLE_DATABASE) to that URL, and start the server; once it runs, keep \
         gable.sqlite3 somewhere else or remove it, because nobody writes to it any more"
    });
    Ok(())
}

fn into_embedded(source: &Database, place: &Path, progress: &mut Progress) -> Result<u64, Sentence> {
    if fs::metadata(place).is_ok_and(|data| data.len() > 0) {
        return Err(format!("{} is there already; move it away first", place.display()));
    }
    let fresh = place.with_extension("sqlite3.new");
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", fresh.display());
    make_owner_only(&fresh).map_err(failed)?;
    let copied = copy(source, &Database::sqlite(&fresh), progress);
    let finish = || {
        fs::File::open(&fresh)?.sync_all()?;
        fs::rename(&fresh, place)?;
        place.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
    };
    let copied = copied.and_then(|rows| finish().map(|()| rows).map_err(failed));
    if copied.is_err() {
        for ending in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{ending}", fresh.display()));
        }
    }
    copied
}

/// Copies all rows into an empty database and makes sure that none is missing; answers how many there are.
fn copy(source: &Database, target: &Database, progress: &mut Progress) -> Result<u64, Sentence> {
    let mut snapshot = Snapshot::prepare(source).map_err(in_database)?;
    snapshot.begin().map_err(in_database)?;
    let migrations = snapshot.migrations().map_err(in_database)?;
    let mut loading = Loading::begin(target, &migrations).map_err(|error| error.to_string())?;
    progress.stage("rows");
    let mut counts = BTreeMap::new();
    for table in snapshot.tables().map_err(in_database)? {
        let mut pages = Pages::new(&table);
        let mut count = 0;
        loop {
            let rows = pages.next(&mut snapshot)?;
            if rows.is_empty() {
                break;
            }
            count += rows.len() as u64;
            loading.load(&table.name, &table.columns, rows).map_err(|error| error.to_string())?;
            progress.add(0);
        }
        counts.insert(table.name, count);
    }
    if loading.counts().map_err(in_database)? != counts {
        return Err("the new database does not hold as many rows as the old one; nothing was changed".into());
    }
    let sequences = snapshot.sequences().map_err(in_database)?;
    loading.finish(&sequences).map_err(|error| error.to_string())?;
    Ok(counts.values().sum())
}
