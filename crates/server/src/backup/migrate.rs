//! `gable migrate-database`: the same rows in another database.

use std::{collections::BTreeMap, fs, path::Path};

use store::{
    Database,
    copies::{Loading, Snapshot},
};
use url::Url;

use super::{
    Sentence,
    capture::{Pages, in_database},
    progress::Progress,
    staging::make_owner_only,
};
use crate::{
    commands::MigrateDatabase,
    config,
    data_folder::{self, DataFolder},
    exit::{Ending, Failure},
    instance,
    serve::say,
};

pub(crate) fn run(command: MigrateDatabase) -> Ending {
    let MigrateDatabase { to, quiet, place } = command;
    let config = config::load(place.into())?;
    let folder = DataFolder::open_existing(&config.data)?;
    let _turn = folder.take_turn()?;
    let Some(_lock) = folder.lock()? else {
        return Err(format!("a gable serves the data folder {}; stop it first", folder.path().display()).into());
    };
    if to == "sqlite" && config.database.is_none() {
        let sentence = "the database is the embedded one already; name its URL with --database to move away from it";
        return Err(Failure::Misused(sentence.into()));
    }
    let source = folder.existing_database(config.database.as_deref())?;
    let leaves_embedded = config.database.is_none();
    let aside = folder.path().join(data_folder::MOVED);
    if leaves_embedded && aside.exists() {
        return Err(format!("{} is there from an earlier move; move it away first", aside.display()).into());
    }
    let mut progress = Progress::new(quiet);
    if to == "sqlite" {
        let place = folder.path().join(data_folder::DATABASE);
        let rows = into_embedded(&source, &place, &mut progress)?;
        drop(progress);
        instance::bind_copy(&folder, &Database::sqlite(place))?;
        say(&format!("copied {rows} rows; the database they came from is as it was"));
        say("from now on leave the setting `database` (GABLE_DATABASE) out, and start the server");
        return Ok(());
    }
    let target = data_folder::postgres(&to).map_err(Failure::Misused)?;
    let rows = copy(&source, &target, &mut progress)?;
    drop(progress);
    instance::bind_copy(&folder, &target)?;
    if !leaves_embedded {
        say(&format!("copied {rows} rows; the database they came from is as it was"));
        say("from now on set `database` (GABLE_DATABASE) to that URL, and start the server");
        return Ok(());
    }
    // Whoever opens it to write and leaves as the last one brings everything into the one file.
    drop(source.connect_writer());
    let place = place_of(&to);
    folder.set_database_aside(&place)?;
    say(&format!("copied {rows} rows to {place}"));
    say(
        "from now on set `database` (GABLE_DATABASE) to that URL, and start the server; the old database is as it was, \
         and called gable.sqlite3.moved, so that nobody works on it by mistake",
    );
    Ok(())
}

/// Which database a URL leads to, without who knocks and with what.
fn place_of(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "a PostgreSQL database".into() };
    let named = |wanted: &str| url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned());
    let host = url.host_str().filter(|host| !host.is_empty()).map(ToOwned::to_owned).or_else(|| named("host"));
    let name = Some(url.path().trim_matches('/')).filter(|name| !name.is_empty()).map(ToOwned::to_owned);
    let name = name.or_else(|| named("dbname")).unwrap_or_else(|| url.username().to_owned());
    format!("the PostgreSQL database {name} on {}", host.as_deref().unwrap_or("this machine"))
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
    let tables = snapshot.tables().map_err(in_database)?;
    progress.stage_of("rows", tables.len() as u64);
    let mut counts = BTreeMap::new();
    for table in tables {
        progress.step();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_without_its_password() {
        for (url, place) in [
            ("postgres://ann:s3cret@db:5433/gable?sslmode=require", "the PostgreSQL database gable on db"),
            ("postgres://ann:s3cret@db", "the PostgreSQL database ann on db"),
            ("postgres:///gable?host=/run/pg&password=s3cret", "the PostgreSQL database gable on /run/pg"),
        ] {
            assert_eq!(place_of(url), place);
        }
    }
}
