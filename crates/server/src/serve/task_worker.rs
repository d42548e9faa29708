//! Runs background tasks.

use std::{sync::Arc, time::Duration};

use forge::{Forge, tasks, tokens, web_sessions};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::error;

/// The interval between polls when no task was due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which recurring tasks are enqueued, unless they are pending.
const RECURRING_INTERVAL: Duration = Duration::from_secs(3600);
/// The interval at which the last use of tokens and sessions is stored.
const TOKEN_USE_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of concurrent tasks, so that a long one does not delay the others.
const MAX_CONCURRENT_TASKS: u32 = 6;

/// The time for running tasks to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts the worker. On `stop` it waits for running tasks.
pub(super) fn start(forge: Forge, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let slots = Arc::new(Semaphore::new(MAX_CONCURRENT_TASKS as usize));
        let mut token_uses_recorded_at = Instant::now();
        let mut recurring_enqueued_at: Option<Instant> = None;
        while !*stop.borrow() {
            // Repeated, so that a failed recurring task comes back without a restart.
            if recurring_enqueued_at.is_none_or(|last| last.elapsed() >= RECURRING_INTERVAL) {
                match tasks::enqueue_recurring(&forge).await {
                    Ok(()) => recurring_enqueued_at = Some(Instant::now()),
                    Err(error) => error!(%error, "cannot enqueue recurring tasks"),
                }
            }
            if token_uses_recorded_at.elapsed() >= TOKEN_USE_INTERVAL {
                token_uses_recorded_at = Instant::now();
                flush_last_uses(&forge).await;
            }
            let slot = tokio::select! {
                slot = Arc::clone(&slots).acquire_owned() => slot,
                _ = stop.changed() => break,
            };
            let Ok(slot) = slot else { break };
            match tasks::claim(&forge).await {
                Ok(Some(task)) => {
                    let forge = forge.clone();
                    tokio::spawn(async move {
                        if let Err(error) = tasks::run_claimed(&forge, task).await {
                            error!(%error, "cannot record the outcome of a background task");
                        }
                        drop(slot);
                    });
                    continue;
                }
                Ok(None) => {}
                Err(error) => error!(%error, "cannot claim a background task"),
            }
            drop(slot);
            let wait = async {
                tokio::select! {
                    () = tasks::wait_for_wakeup(&forge) => {}
                    _ = stop.changed() => {}
                }
            };
            let _ = timeout(POLL_INTERVAL, wait).await;
        }
        // Imports may take arbitrarily long; they are restarted after the next start.
        forge.stop_imports();
        // Acquiring all slots waits for all tasks. Tasks that take longer run again after the next start.
        let _ = timeout(SHUTDOWN_TIMEOUT, slots.acquire_many(MAX_CONCURRENT_TASKS)).await;
        flush_last_uses(&forge).await;
    })
}

async fn flush_last_uses(forge: &Forge) {
    if let Err(error) = tokens::flush_last_uses(forge).await {
        error!(%error, "cannot store the last use of tokens");
    }
    if let Err(error) = web_sessions::flush_last_uses(forge).await {
        error!(%error, "cannot store the last use of sessions");
    }
}
