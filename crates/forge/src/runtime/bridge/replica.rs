//! Lists that are read from a standby of PostgreSQL.
//!
//! A list is only read there if the standby has everything that was committed when the request came; otherwise the primary
//! is used. So callers see their own writes, and rights that were taken away are gone, whatever the delay is.

mod standby_connection;
mod state;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use store::{Conn, Database, LogPosition};
use tokio::{sync::oneshot, time::timeout};

use super::{MAX_QUEUE_LENGTH, ReadTx, Shared, is_outage, run_and_reply, spawn};
use crate::{
    Caller, Error, Result,
    repository_cache::PacksNotCached,
    work_queue::{ReceiveError, WorkReceiver, WorkSender, work_queue},
};
use standby_connection::StandbyConnection;
use state::{ReplicaState, StandbyProblem};

/// How long the primary and the standby may each take to say how far they are. Time in a queue counts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// The threads with connections to the standby, and one that asks the primary how far the standby has to be.
pub(super) struct Replica {
    reads: WorkSender<QueuedRead>,
    positions: SyncSender<oneshot::Sender<LogPosition>>,
    state: Arc<ReplicaState>,
}

type QueuedRead = Box<dyn FnOnce(&mut StandbyConnection) + Send>;
/// The result of a closure that was run on the standby, and the closure.
type Answer<T, F> = std::result::Result<(Result<T>, F), StandbyProblem>;

impl Replica {
    /// Starts the threads. The standby need not be reachable.
    pub(super) fn start(primary: &Database, standby: &Database, threads: usize) -> Self {
        let (reads, queue) = work_queue::<QueuedRead>(MAX_QUEUE_LENGTH);
        let state = Arc::<ReplicaState>::default();
        for number in 0..threads {
            let (standby, mut queue, state) = (standby.clone(), queue.clone(), Arc::clone(&state));
            spawn(format!("replica-{number}"), move || read_from(&standby, &mut queue, &state));
        }
        let (positions, requests) = sync_channel(MAX_QUEUE_LENGTH);
        let (primary, asking) = (primary.clone(), Arc::clone(&state));
        spawn("log-position".to_owned(), move || answer_positions(&primary, &requests, &asking));
        Self { reads, positions, state }
    }

    /// Runs a closure in a read transaction on the standby. Returns the closure if the primary has to be used.
    pub(super) async fn read<T, F>(
        &self,
        shared: &Arc<Shared>,
        caller: &Caller,
        f: F,
    ) -> std::result::Result<Result<T>, F>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        let Some(position) = self.position().await else { return Err(f) };
        let waiting = Waiting::new(f);
        let (reply, mut response) = oneshot::channel::<Answer<T, F>>();
        let (shared, caller, state, queued) =
            (Arc::clone(shared), caller.clone(), Arc::clone(&self.state), waiting.clone());
        let read = move |connection: &mut StandbyConnection| {
            run_and_reply(reply, || {
                state.ensure_not_paused()?;
                connection.wait_until_replayed(&position, ANSWER_TIMEOUT)?;
                let mut f = queued.take().ok_or(StandbyProblem::Busy)?;
                Ok((connection.read(&shared, &caller, &mut f), f))
            });
        };
        // A closure that was taken is not returned only if its thread has died.
        let give_up = || waiting.take().map_or_else(|| Ok(Err(Error::Internal("the read was dropped".into()))), Err);
        if self.reads.try_send(Box::new(read)).is_err() {
            return give_up();
        }
        let answer = if let Ok(answer) = timeout(ANSWER_TIMEOUT, &mut response).await {
            answer
        } else if let Some(f) = waiting.take() {
            self.state.record_problem(&StandbyProblem::NoAnswer);
            return Err(f);
        } else {
            // The list is being read.
            response.await
        };
        match answer {
            Ok(Ok((result, f))) => self.accept(result).ok_or(f),
            Ok(Err(problem)) => {
                self.state.record_problem(&problem);
                give_up()
            }
            Err(_) => give_up(),
        }
    }

    /// Returns how far the standby has to be for a request of now; `None` if the primary should be used.
    async fn position(&self) -> Option<LogPosition> {
        if !self.state.is_usable() {
            return None;
        }
        let (reply, position) = oneshot::channel();
        self.positions.try_send(reply).ok()?;
        if let Ok(position) = timeout(ANSWER_TIMEOUT, position).await {
            return position.ok();
        }
        self.state.record_problem(&StandbyProblem::NoPosition("no answer in time".to_owned()));
        None
    }

    /// Returns a result from the standby; `None` if the list has to be read from the primary.
    fn accept<T>(&self, result: Result<T>) -> Option<Result<T>> {
        match &result {
            Err(error) if PacksNotCached::in_error(error).is_some() => None,
            Err(error) if is_outage(error) => {
                self.state.record_problem(&StandbyProblem::Failed(error.to_string()));
                None
            }
            _ => {
                self.state.record_success();
                Some(result)
            }
        }
    }
}

/// A closure that runs on the standby, or, if that takes too long to begin, on the primary.
struct Waiting<F>(Arc<Mutex<Option<F>>>);

impl<F> Waiting<F> {
    fn new(f: F) -> Self {
        Self(Arc::new(Mutex::new(Some(f))))
    }

    /// Returns the closure to the first caller.
    fn take(&self) -> Option<F> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<F> Clone for Waiting<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Connects to the standby, and runs reads there until the queue is closed.
fn read_from(standby: &Database, queue: &mut WorkReceiver<QueuedRead>, state: &ReplicaState) {
    let mut connection = StandbyConnection::new(standby);
    loop {
        if let Err(error) = connection.connect() {
            state.record_refusal(&error);
            if wait_unconnected(&mut connection, queue, state) {
                continue;
            }
            return;
        }
        state.add_connection();
        let is_open = serve(&mut connection, queue);
        state.remove_connection();
        if !is_open {
            return;
        }
    }
}

/// Runs reads until the connection is lost; returns `false` if the queue is closed.
fn serve(connection: &mut StandbyConnection, queue: &mut WorkReceiver<QueuedRead>) -> bool {
    while connection.is_connected() {
        match queue.recv() {
            Some(read) => read(connection),
            None => return false,
        }
    }
    true
}

/// Waits before the next attempt to connect; returns `false` if the queue is closed.
fn wait_unconnected(
    connection: &mut StandbyConnection,
    queue: &mut WorkReceiver<QueuedRead>,
    state: &ReplicaState,
) -> bool {
    if state.has_connections() {
        // The reads are left to the threads that are connected.
        thread::sleep(CONNECT_INTERVAL);
        return true;
    }
    match queue.recv_timeout(CONNECT_INTERVAL) {
        Ok(read) => {
            // It returns at once, and the list is read from the primary.
            read(connection);
            true
        }
        Err(ReceiveError::Timeout) => true,
        Err(ReceiveError::Closed) => false,
    }
}

/// Answers requests for the position of the primary. All that came before a query are answered by it.
fn answer_positions(primary: &Database, requests: &Receiver<oneshot::Sender<LogPosition>>, state: &ReplicaState) {
    let mut conn: Option<Conn> = None;
    for first in requests {
        let waiting: Vec<_> = std::iter::once(first).chain(requests.try_iter()).collect();
        match ask_for_position(primary, &mut conn) {
            Ok(position) => {
                for reply in waiting {
                    let _ = reply.send(position.clone());
                }
            }
            // The requests are dropped and use the primary.
            Err(reason) => {
                conn = None;
                state.record_problem(&StandbyProblem::NoPosition(reason));
            }
        }
    }
}

fn ask_for_position(primary: &Database, conn: &mut Option<Conn>) -> std::result::Result<LogPosition, String> {
    let conn = match conn {
        Some(conn) => conn,
        None => conn.insert(primary.connect_reader().map_err(|error| error.to_string())?),
    };
    let position = conn.log_position(ANSWER_TIMEOUT).map_err(|error| error.to_string())?;
    position.ok_or_else(|| "it has no log".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_standby_are_not_answers() {
        let check = |result: Result<()>, is_answer| {
            let replica = Replica { reads: work_queue(1).0, positions: sync_channel(1).0, state: Arc::default() };
            let text = format!("{result:?}");
            assert_eq!(replica.accept(result).is_some(), is_answer, "{text}");
        };
        check(Ok(()), true);
        check(Err(Error::not_found("Project")), true);
        check(Err(Error::Unavailable("the server is stopping".into())), false);
        check(Err(Error::DiskFull("no space for temporary files".into())), false);
    }
}
