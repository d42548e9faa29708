//! The background work of the server: tasks, webhooks, notifications of other nodes, the binding of folder and database, the
//! release of free memory, and scheduled backups.

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt as _, time::Duration};

use anyhow::{Context as _, Result};
use forge::{
    Forge, deliveries, node_cache,
    nodes::{self, NodeDescription, RegistrationEnd},
    tasks, wakeups,
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tracing::error;
use webhooks::{
    Client,
    dispatcher::{self, DispatcherLimits},
};

use super::task_worker;
use crate::{
    backup::{self, BackupSource},
    config::Backups,
    instance::BindingUpdater,
    memory,
};

/// The delay before a webhook dispatcher that panicked is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Everything that runs beside the listeners.
pub(super) struct Workers {
    workers: Vec<JoinHandle<()>>,
    /// Completes if the database was moved to another store, so that this node must not use it any more.
    pub(super) database_moved: oneshot::Receiver<()>,
}

impl Workers {
    /// Starts all workers; they run until `stopped` becomes true.
    pub(super) async fn start(
        forge: &Forge,
        node: NodeDescription,
        webhook_client: Client,
        pack_cache_size: u64,
        binding_updater: Option<BindingUpdater>,
        backups: Option<(Backups, BackupSource)>,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self> {
        tasks::release_leases_at_start(forge).await.context("cannot recover unfinished background tasks")?;
        deliveries::release_stale_leases(forge).await.context("cannot recover unfinished webhook deliveries")?;
        if let Some((backups, _)) = &backups {
            create_backup_folder(backups)?;
        }
        let (report_move, database_moved) = oneshot::channel();
        let mut workers = vec![
            task_worker::start(forge.clone(), stopped.clone()),
            tokio::spawn(run_webhook_dispatcher(forge.clone(), webhook_client, stopped.clone())),
            memory::release_until_stopped(stopped.clone()),
            tokio::spawn(wakeups::listen_until_stopped(forge.clone(), stopped.clone())),
            tokio::spawn(register(forge.clone(), node, stopped.clone(), report_move)),
            tokio::spawn(node_cache::limit_until_stopped(forge.clone(), pack_cache_size, stopped.clone())),
        ];
        workers.extend(binding_updater.map(|updater| updater.advance_until_stopped(stopped.clone())));
        wakeups::set_has_workers(forge, true);
        workers.extend(backups.map(|(backups, source)| backup::schedule::start(backups, source, stopped.clone())));
        Ok(Self { workers, database_moved })
    }

    /// Waits until all workers have stopped.
    pub(super) async fn join(self) {
        for worker in self.workers {
            let _ = worker.await;
        }
    }
}

/// Registers this node until stopped.
async fn register(
    forge: Forge,
    node: NodeDescription,
    stopped: watch::Receiver<bool>,
    report_move: oneshot::Sender<()>,
) {
    if nodes::register_until_stopped(forge, node, stopped).await == RegistrationEnd::MarkChanged {
        // The server may be stopping already.
        let _ = report_move.send(());
    }
}

/// Creates the backup folder at start, so that a wrong path is noticed at once.
fn create_backup_folder(backups: &Backups) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&backups.folder);
    created.with_context(|| format!("cannot use the backup folder {}", backups.folder.display()))
}

/// Runs the webhook dispatcher until stopped; restarts it if it panics.
async fn run_webhook_dispatcher(forge: Forge, client: Client, stopped: watch::Receiver<bool>) {
    loop {
        let dispatcher = dispatcher::run(forge.clone(), client.clone(), DispatcherLimits::default(), stopped.clone());
        match tokio::spawn(dispatcher).await {
            Ok(()) => return,
            Err(error) => error!(%error, "webhook dispatcher panicked; restarting"),
        }
        tokio::time::sleep(RESTART_DELAY).await;
        if let Err(error) = deliveries::release_stale_leases(&forge).await {
            error!(%error, "cannot recover unfinished webhook deliveries; their leases expire after a minute");
        }
    }
}
