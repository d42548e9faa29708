//! The options of a forge, for the server and for commands.

use std::{num::NonZeroU16, sync::Arc, thread::available_parallelism};

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

/// The kinds of threads that have connections to PostgreSQL: those that read, those that write, and those for long work.
const KINDS_OF_THREADS: u16 = 3;
/// The maximum number of connections on a machine with many cores. PostgreSQL accepts 100 by default, from all nodes together.
const MAX_DEFAULT_CONNECTIONS: u16 = 60;

/// The purpose for which a forge is started.
#[derive(Clone, Copy)]
pub(crate) enum ForgeMode {
    /// As a server; this process has exclusive use of the data folder.
    Serve {
        cache_size: u64,
        min_free_disk: u64,
        allow_local_network: bool,
        max_push_size: Option<u64>,
        database_connections: Option<NonZeroU16>,
    },
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
    let (serving, cache_size, min_free_disk, allow_local_network, max_push_size, connections) = match mode {
        ForgeMode::Serve { cache_size, min_free_disk, allow_local_network, max_push_size, database_connections } => {
            (true, cache_size, min_free_disk, allow_local_network, max_push_size, database_connections)
        }
        ForgeMode::Administer => (false, 0, 0, false, None, None),
    };
    let threads = threads_of_each_kind(&database, connections);
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
        readers: threads,
        blocking: threads,
        clock: clock(&database)?,
        database,
        read_replica: None,
        secrets: Arc::new(SystemSecrets),
        password_hasher: PasswordHasher::production(),
        default_projects_limit,
        payload_renderer: Arc::new(JsonPayloadRenderer::new(Site::new("http://localhost", None), TimeFormat::Gitlab)),
    })
}

/// Returns the number of threads that read, and of those that do long work. On PostgreSQL as many threads write, and each
/// thread has its own connection.
fn threads_of_each_kind(database: &Database, connections: Option<NonZeroU16>) -> usize {
    let cores = available_parallelism().map_or(2, usize::from);
    match connections {
        _ if database.is_sqlite() => 2 * cores,
        Some(connections) => usize::from(connections.get() / KINDS_OF_THREADS).max(1),
        None => (2 * cores).min(usize::from(MAX_DEFAULT_CONNECTIONS / KINDS_OF_THREADS)),
    }
}

/// Returns the number of connections to the primary that a server keeps open at most.
pub(crate) fn connections_of(options: &Options) -> usize {
    // With a standby, one more asks for positions of the log.
    usize::from(KINDS_OF_THREADS) * options.readers + usize::from(options.read_replica.is_some())
}

/// Returns the clock of the database, which all nodes share. The embedded database has none.
fn clock(database: &Database) -> Result<Arc<dyn Clock>> {
    Ok(match database.measure_time()? {
        Some(measured) => Arc::new(DatabaseClock::new(&measured)),
        None => Arc::new(SystemClock),
    })
}
