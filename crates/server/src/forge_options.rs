//! The options of a forge, for the server and for commands.

use std::{sync::Arc, thread::available_parallelism};

use anyhow::Result;
use forge::{
    InstanceKey, Options,
    clock::{Clock, DatabaseClock, SystemClock, SystemSecrets},
    disk_space::DiskSpace,
    passwords::PasswordHasher,
};
use model::Site;
use store::Database;
use webhooks::{JsonPayloadRenderer, TimeFormat};

use crate::data_folder::DataFolder;

/// The purpose for which a forge is started.
#[derive(Clone, Copy)]
pub(crate) enum ForgeMode {
    /// As a server; this process has exclusive use of the data folder.
    Serve { cache_size: u64, min_free_disk: u64, allow_local_network: bool, max_push_size: Option<u64> },
    /// For a command, perhaps while a server is running.
    Administer,
}

/// Returns the options of a forge that may use all cores.
pub(crate) fn forge_options(
    folder: &DataFolder,
    database: Database,
    instance_key: InstanceKey,
    default_projects_limit: i32,
    mode: ForgeMode,
) -> Result<Options> {
    let cores = available_parallelism().map_or(2, usize::from);
    let (serving, cache_size, min_free_disk, allow_local_network, max_push_size) = match mode {
        ForgeMode::Serve { cache_size, min_free_disk, allow_local_network, max_push_size } => {
            (true, cache_size, min_free_disk, allow_local_network, max_push_size)
        }
        ForgeMode::Administer => (false, 0, 0, false, None),
    };
    let disk_space = DiskSpace::new(folder.path(), min_free_disk);
    Ok(Options {
        files: folder.files()?,
        logs: folder.logs()?,
        repositories: folder.repositories(serving)?,
        spools: folder.spools(serving, cache_size)?.with_disk_space(disk_space.clone()),
        disk_space,
        allow_local_network,
        max_push_size,
        instance_key,
        readers: 2 * cores,
        blocking: 2 * cores,
        clock: clock(&database)?,
        database,
        secrets: Arc::new(SystemSecrets),
        password_hasher: PasswordHasher::production(),
        default_projects_limit,
        payload_renderer: Arc::new(JsonPayloadRenderer::new(Site::new("http://localhost", None), TimeFormat::Gitlab)),
    })
}

/// Returns the clock of the database, which all nodes share. The embedded database has none.
fn clock(database: &Database) -> Result<Arc<dyn Clock>> {
    Ok(match database.measure_time()? {
        Some(measured) => Arc::new(DatabaseClock::new(&measured)),
        None => Arc::new(SystemClock),
    })
}
