//! Turns: whoever writes to a repository, or cleans it up, is the only one who does.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// What one may be the only one to do to a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// To move its refs.
    Write,
    /// To pack it anew; pushes go on meanwhile.
    KeepHouse,
}

/// Those who wait for a turn; gone with the last of them.
type Queue = AsyncMutex<()>;

/// The turns of all repositories.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<(i64, Turn), Weak<Queue>>>);

impl Turns {
    /// Waits until it is one's turn; it lasts as long as the answer.
    pub(crate) async fn take(&self, project: i64, turn: Turn) -> OwnedMutexGuard<()> {
        let queue = {
            let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Those of whom nobody waits are forgotten now and then, or the table would grow with every project.
            if queues.len() > 1024 {
                queues.retain(|_, queue| queue.strong_count() > 0);
            }
            let place = queues.entry((project, turn)).or_default();
            place.upgrade().unwrap_or_else(|| {
                let queue = Arc::new(AsyncMutex::new(()));
                *place = Arc::downgrade(&queue);
                queue
            })
        };
        queue.lock_owned().await
    }
}
