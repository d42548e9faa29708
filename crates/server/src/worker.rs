//! Does the background work.

use std::{sync::Arc, time::Duration};

use forge::{Forge, tasks, tokens};
use tokio::{
    sync::{Semaphore, watch},
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

/// How many jobs are done at the same time, so that a long one does not keep the others waiting.
const AT_ONCE: u32 = 6;

/// How long jobs under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(20);

/// Works until told to stop; jobs under way are finished first.
pub(crate) fn start(forge: Forge, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(AT_ONCE as usize));
        let mut noted = Instant::now();
        let mut recurring: Option<Instant> = None;
        while !*stop.borrow() {
            // Again and again, so that one that was given up does not stay away until the next start.
            if recurring.is_none_or(|last| last.elapsed() >= ENQUEUE_EVERY) {
                match tasks::enqueue_recurring(&forge).await {
                    Ok(()) => recurring = Some(Instant::now()),
                    Err(error) => error!(%error, "cannot write down the recurring jobs"),
                }
            }
            if noted.elapsed() >= NOTE_EVERY {
                noted = Instant::now();
                note_uses(&forge).await;
            }
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place,
                _ = stop.changed() => break,
            };
            let Ok(place) = place else { break };
            match tasks::claim(&forge).await {
                Ok(Some(job)) => {
                    let forge = forge.clone();
                    tokio::spawn(async move {
                        if let Err(error) = tasks::perform(&forge, job).await {
                            error!(%error, "the worker could not note how a job went");
                        }
                        drop(place);
                    });
                    continue;
                }
                Ok(None) => {}
                Err(error) => error!(%error, "the worker could not look for work"),
            }
            drop(place);
            let _ = timeout(PAUSE, stop.changed()).await;
        }
        // What is fetched from elsewhere takes as long as others want; it is begun anew after the next start.
        forge.stop_imports();
        // Whoever has all places has waited for all who had one. What takes longer is done anew after the next start.
        let _ = timeout(GRACE, places.acquire_many(AT_ONCE)).await;
        note_uses(&forge).await;
    })
}

async fn note_uses(forge: &Forge) {
    if let Err(error) = tokens::note_uses(forge).await {
        error!(%error, "cannot write down when tokens were last used");
    }
}
