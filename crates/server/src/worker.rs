//! Does the background work.

use std::time::Duration;

use forge::{Forge, jobs, tokens};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::error;

/// How often the table is looked at when there was nothing to do.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the recurring jobs are written down, unless they wait already.
const ENQUEUE_EVERY: Duration = Duration::from_secs(3600);
/// How often the last use of tokens is written down.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// Works until told to stop; a job under way is finished first.
pub(crate) fn start(forge: Forge, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut noted = Instant::now();
        let mut recurring: Option<Instant> = None;
        while !*stop.borrow() {
            // Again and again, so that one that was given up does not stay away until the next start.
            if recurring.is_none_or(|last| last.elapsed() >= ENQUEUE_EVERY) {
                match jobs::enqueue_recurring(&forge).await {
                    Ok(()) => recurring = Some(Instant::now()),
                    Err(error) => error!(%error, "cannot write down the recurring jobs"),
                }
            }
            if noted.elapsed() >= NOTE_EVERY {
                noted = Instant::now();
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
