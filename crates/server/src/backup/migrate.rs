//! `gable migrate-database`: copies all rows into another database.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, anyhow, bail};
use store::{
    Database,
    dump::{Loader, Snapshot},
};
use url::Url;

use super::{
    capture::{TablePages, database_error},
    progress::Progress,
    staging::create_owner_only,
};
use crate::{
    commands::MigrateDatabase,
    config,
    data_folder::{self, DataFolder},
    exit::{CommandResult, Failure, print_line},
    instance,
};

pub(crate) fn run(command: MigrateDatabase) -> CommandResult {
    let MigrateDatabase { to, quiet, location } = command;
    let config = config::load(location)?;
    let folder = DataFolder::open_existing(&config.location)?;
    let _opening_lock = folder.lock_for_opening()?;
    let Some(_lock) = folder.lock()? else {
        return Err(
            anyhow!("a gable server is using the data folder {}; stop it first", folder.path().display()).into()
        );
    };
    if to == "sqlite" && config.location.database.is_none() {
        return Err(Failure::Usage(anyhow!(
            "the instance already uses the embedded database; to move from PostgreSQL, give its URL with --database"
        )));
    }
    let source = folder.existing_database(config.location.database.as_deref())?;
    let leaves_embedded = config.location.database.is_none();
    let aside = folder.path().join(data_folder::MOVED);
    if leaves_embedded && aside.exists() {
        return Err(anyhow!("{} is left from an earlier migration; move it away first", aside.display()).into());
    }
    let mut progress = Progress::new(quiet);
    if to == "sqlite" {
        let path = folder.path().join(data_folder::DATABASE);
        let rows = into_embedded(&source, &path, &mut progress)?;
        drop(progress);
        instance::bind_copy(&folder, &Database::sqlite(path))?;
        print_line(&format!("copied {rows} rows; the old database was not changed"));
        print_line("remove the setting `database` (GABLE_DATABASE), then start the server");
        return Ok(());
    }
    let target = data_folder::postgres(&to).map_err(Failure::Usage)?;
    let rows = copy(&source, &target, &mut progress)?;
    drop(progress);
    instance::bind_copy(&folder, &target)?;
    if !leaves_embedded {
        print_line(&format!("copied {rows} rows; the old database was not changed"));
        print_line("set `database` (GABLE_DATABASE) to that URL, then start the server");
        return Ok(());
    }
    // Closing the last writing connection moves the write-ahead log into the database file.
    drop(source.connect_writer());
    let description = describe_database(&to);
    folder.rename_moved_database(&description)?;
    print_line(&format!("copied {rows} rows to {description}"));
    print_line(
        "set `database` (GABLE_DATABASE) to that URL, then start the server; the old database was renamed to \
         gable.sqlite3.moved, so that it is not used by mistake",
    );
    Ok(())
}

/// Describes the database of a URL without user and password.
fn describe_database(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "a PostgreSQL database".into() };
    let named = |wanted: &str| url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned());
    let host = url.host_str().filter(|host| !host.is_empty()).map(ToOwned::to_owned).or_else(|| named("host"));
    let name = Some(url.path().trim_matches('/')).filter(|name| !name.is_empty()).map(ToOwned::to_owned);
    let name = name.or_else(|| named("dbname")).unwrap_or_else(|| url.username().to_owned());
    format!("the PostgreSQL database {name} on {}", host.as_deref().unwrap_or("this machine"))
}

fn into_embedded(source: &Database, path: &Path, progress: &mut Progress) -> Result<u64> {
    if fs::metadata(path).is_ok_and(|data| data.len() > 0) {
        bail!("{} already exists; move it away first", path.display());
    }
    let temporary = path.with_extension("sqlite3.new");
    let context = || format!("cannot write {}", temporary.display());
    create_owner_only(&temporary).with_context(context)?;
    let copied = copy(source, &Database::sqlite(&temporary), progress);
    let finish = || {
        fs::File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
    };
    let copied = copied.and_then(|rows| finish().map(|()| rows).with_context(context));
    if copied.is_err() {
        for ending in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{ending}", temporary.display()));
        }
    }
    copied
}

/// Copies all rows into an empty database and verifies their number; returns it.
fn copy(source: &Database, target: &Database, progress: &mut Progress) -> Result<u64> {
    let mut snapshot = Snapshot::prepare(source).map_err(database_error)?;
    snapshot.begin().map_err(database_error)?;
    let migrations = snapshot.migrations().map_err(database_error)?;
    let mut loading = Loader::begin(target, &migrations)?;
    let tables = snapshot.tables().map_err(database_error)?;
    progress.stage_with_steps("rows", tables.len() as u64);
    let mut counts = BTreeMap::new();
    for table in tables {
        progress.step();
        let mut pages = TablePages::new(&table);
        let mut count = 0;
        loop {
            let rows = pages.next(&mut snapshot)?;
            if rows.is_empty() {
                break;
            }
            count += rows.len() as u64;
            loading.load(&table.name, &table.columns, rows)?;
            progress.add(0);
        }
        counts.insert(table.name, count);
    }
    if loading.counts().map_err(database_error)? != counts {
        bail!("the number of copied rows differs from the source; nothing was changed");
    }
    let sequences = snapshot.sequences().map_err(database_error)?;
    loading.finish(&sequences)?;
    Ok(counts.values().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_described_without_its_password() {
        for (url, description) in [
            ("postgres://ann:s3cret@db:5433/gable?sslmode=require", "the PostgreSQL database gable on db"),
            ("postgres://ann:s3cret@db", "the PostgreSQL database ann on db"),
            ("postgres:///gable?host=/run/pg&password=s3cret", "the PostgreSQL database gable on /run/pg"),
        ] {
            assert_eq!(describe_database(url), description);
        }
    }
}
