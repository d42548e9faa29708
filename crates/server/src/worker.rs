//! Does the background work.

use std::time::Duration;

use forge::{Forge, jobs, tokens};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tracing::error;

/// How often the table is looked at when there was nothing to do.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the last use of tokens is written down.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// Works until told to stop; a job under way is finished first.
pub(crate) fn start(forge: Forge, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = jobs::enqueue_recurring(&forge).await {
            error!(%error, "cannot write down the recurring jobs");
        }
        let mut noted = tokio::time::Instant::now();
        while !*stop.borrow() {
            if noted.elapsed() >= NOTE_EVERY {
                noted = tokio::time::Instant::now();
                note_uses(&forge).await;
            }
            match jobs::work_once(&forge).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => error!(%error, "the worker could not do its work"),
            }
            let _ = timeout(PAUSE, stop.changed()).await;
        }
        note_uses(&forge).await;
    })
}

async fn note_uses(forge: &Forge) {
    if let Err(error) = tokens::note_uses(forge).await {
        error!(%error, "cannot write down when tokens were last used");
    }
}
