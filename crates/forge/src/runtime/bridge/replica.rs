//! Lists that are read from a standby of PostgreSQL.
//!
//! A list is only read there if the standby has everything that was committed when the request came; otherwise the primary
//! is used. So callers see their own writes, and rights that were taken away are gone, whatever the delay is.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use store::{Conn, Database, LogPosition};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{MAX_QUEUE_LENGTH, QueuedRead, ReadConnection, read_connection::Purpose, spawn};
use crate::{Error, Result, repository_cache::PacksNotCached};

/// How long the standby is not used after it failed or was too far behind, and how often it is connected to.
const PAUSE: Duration = Duration::from_secs(1);
/// The times to wait between attempts for a standby that is a moment behind.
const RETRY_DELAYS: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4), Duration::from_millis(8)];

/// The threads with connections to the standby, and one that asks the primary how far the standby has to be.
pub(super) struct Replica {
    pub(super) readers: Sender<QueuedRead>,
    positions: Sender<oneshot::Sender<LogPosition>>,
    state: Arc<ReplicaState>,
}

/// Whether the standby can be used.
#[derive(Default)]
struct ReplicaState {
    /// The number of threads that are connected. Requests do not wait for a connection.
    connected: AtomicUsize,
    pause: Mutex<Pause>,
}

#[derive(Default)]
struct Pause {
    /// The standby is not used until then.
    until: Option<Instant>,
    /// Whether the last use was logged as a failure or a success.
    logged: Option<bool>,
}

impl Replica {
    /// Starts the threads. The standby need not be reachable.
    pub(super) fn start(primary: &Database, standby: &Database, threads: usize) -> Self {
        let (readers, queue) = bounded::<QueuedRead>(MAX_QUEUE_LENGTH);
        let state = Arc::<ReplicaState>::default();
        for number in 0..threads {
            let (standby, queue, state) = (standby.clone(), queue.clone(), Arc::clone(&state));
            spawn(format!("replica-{number}"), move || read_from(&standby, &queue, &state));
        }
        let (positions, requests) = bounded(MAX_QUEUE_LENGTH);
        let primary = primary.clone();
        spawn("log-position".to_owned(), move || answer_positions(&primary, &requests));
        Self { readers, positions, state }
    }

    /// Returns how far the standby has to be for a request of now; `None` if the primary should be used.
    pub(super) async fn position(&self) -> Option<LogPosition> {
        if !self.state.is_usable() || self.readers.is_full() {
            return None;
        }
        let (reply, position) = oneshot::channel();
        self.positions.try_send(reply).ok()?;
        position.await.ok()
    }

    /// Returns the result of a read from the standby; `None` if it has to be repeated on the primary.
    pub(super) fn accept<T>(&self, result: Result<T>) -> Option<Result<T>> {
        match &result {
            Err(error) if PacksNotCached::in_error(error).is_some() => None,
            Err(error @ (Error::Unavailable(_) | Error::Store(_))) => {
                self.state.pause(error);
                None
            }
            _ => {
                self.state.resume();
                Some(result)
            }
        }
    }
}

impl ReplicaState {
    fn is_usable(&self) -> bool {
        let pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        self.connected.load(Ordering::Relaxed) > 0 && pause.until.is_none_or(|until| until <= Instant::now())
    }

    fn pause(&self, reason: &Error) {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.until = Some(Instant::now() + PAUSE);
        if pause.logged.replace(false) != Some(false) {
            warn!(%reason, "lists are read from the primary database instead of the standby");
        }
    }

    fn resume(&self) {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.until = None;
        if pause.logged.replace(true) != Some(true) {
            info!("lists are read from the standby of the database");
        }
    }
}

/// Connects to the standby, and runs reads there until the queue is closed.
fn read_from(standby: &Database, queue: &Receiver<QueuedRead>, state: &ReplicaState) {
    let mut connection = ReadConnection::new(standby, Purpose::Lists);
    loop {
        if let Err(error) = connection.connect() {
            state.pause(&error);
            match queue.recv_timeout(PAUSE) {
                // It fails, and is repeated on the primary.
                Ok(read) => read(&mut connection),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            continue;
        }
        state.connected.fetch_add(1, Ordering::Relaxed);
        while connection.is_connected() {
            match queue.recv() {
                Ok(read) => read(&mut connection),
                Err(_) => return,
            }
        }
        state.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers requests for the position of the primary. All that came before a query are answered by it.
fn answer_positions(primary: &Database, requests: &Receiver<oneshot::Sender<LogPosition>>) {
    let mut conn: Option<Conn> = None;
    for first in requests {
        let waiting: Vec<_> = std::iter::once(first).chain(requests.try_iter()).collect();
        if conn.is_none() {
            conn = primary.connect_reader().ok();
        }
        match conn.as_mut().map(Conn::log_position) {
            Some(Ok(Some(position))) => {
                for reply in waiting {
                    let _ = reply.send(position.clone());
                }
            }
            // The requests are dropped and use the primary, which reports what is wrong.
            _ => conn = None,
        }
    }
}

/// Waits for a moment until a standby has replayed the log up to a position.
pub(super) fn wait_until_replayed(conn: &mut Conn, position: &LogPosition) -> Result<()> {
    let mut delays = RETRY_DELAYS.iter();
    while !conn.has_replayed(position)? {
        match delays.next() {
            Some(delay) => thread::sleep(*delay),
            None => return Err(Error::Unavailable("the standby is behind the primary".into())),
        }
    }
    Ok(())
}
