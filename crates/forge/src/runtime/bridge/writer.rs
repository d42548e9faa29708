//! The writer threads: on SQLite writes share a commit in groups, on PostgreSQL each has its own transaction.

use std::{
    thread,
    time::{Duration, Instant},
};

use store::{Conn, ServerState, TransactionId};
use tokio::sync::oneshot;
use tracing::error;

use super::{QueuedWrite, Shared, WriteTx, catch_panic, with_read_tx};
use crate::{
    Caller, Error, Result, commit_outcome::CommitOutcome, disk_space, wakeups::Wakeups, work_queue::WorkReceiver,
};

/// The maximum number of writes that share a commit.
const MAX_GROUP_SIZE: usize = 256;
/// How long writes are added to a group.
const MAX_GROUP_DURATION: Duration = Duration::from_millis(20);
/// The maximum number of runs of a write that conflicts with other transactions.
const MAX_ATTEMPTS: u32 = 8;

/// A write in two steps: it is run, and replied to once its transaction is durable.
pub(super) trait WriteOperation: Send {
    /// Runs the write inside an open transaction or savepoint; an error demands a rollback.
    fn run(&mut self, shared: &Shared, db: &mut Conn) -> std::result::Result<(), Rollback>;
    /// Returns the notifications for other nodes, which are sent with the commit.
    fn notifications(&self, shared: &Shared) -> Vec<String>;
    /// Sends the result to the caller, or an error if the transaction was not committed.
    fn reply(self: Box<Self>, shared: &Shared, outcome: &CommitOutcome);
}

/// What happens to a write after it was rolled back.
pub(super) enum Rollback {
    /// The caller gets the error.
    Reply,
    /// It conflicted with another transaction and is run again.
    Retry,
    /// It is run again on a new connection.
    Reconnect,
    /// The caller gets the error; the database may have rolled back the whole transaction.
    DiskFull,
}

/// A queued write.
pub(super) struct PendingWrite<F, T> {
    pub(super) f: F,
    pub(super) caller: Caller,
    pub(super) result: Option<Result<T>>,
    /// Receives the result and the closure, so that it can run again.
    pub(super) reply: oneshot::Sender<(Result<T>, F)>,
    /// What is woken up after the commit.
    pub(super) wakeups: Wakeups,
}

impl<F, T> WriteOperation for PendingWrite<F, T>
where
    F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, shared: &Shared, db: &mut Conn) -> std::result::Result<(), Rollback> {
        let Self { f, caller, result, reply, wakeups } = self;
        *wakeups = Wakeups::default();
        if reply.is_closed() {
            return Err(Rollback::Reply);
        }
        let run = catch_panic(|| {
            with_read_tx(shared, db, None, caller, |read| {
                let mut tx = WriteTx::new(read);
                let value = f(&mut tx)?;
                *wakeups = tx.wakeups;
                Ok(value)
            })
        });
        let run = run.map_err(|error| shared.detect_full_disk(error));
        let rollback = match &run {
            Ok(_) => Ok(()),
            Err(Error::Store(error)) if error.is_retryable() => Err(Rollback::Retry),
            Err(Error::Store(error)) if error.is_disconnected() => Err(Rollback::Reconnect),
            Err(Error::DiskFull(_)) => Err(Rollback::DiskFull),
            Err(_) => Err(Rollback::Reply),
        };
        *result = Some(run);
        rollback
    }

    fn notifications(&self, shared: &Shared) -> Vec<String> {
        shared.wakeup_sender.notifications(&self.wakeups)
    }

    fn reply(self: Box<Self>, shared: &Shared, outcome: &CommitOutcome) {
        let failed = || match outcome {
            CommitOutcome::DiskFull(text) => Err(Error::DiskFull(text.as_str().into())),
            CommitOutcome::Unavailable(text) | CommitOutcome::Unknown(text) => {
                Err(Error::Unavailable(text.as_str().into()))
            }
            CommitOutcome::Committed | CommitOutcome::RolledBack => {
                Err(Error::Internal("the write could not be committed".into()))
            }
        };
        let result = self.result.filter(|_| outcome.is_committed()).unwrap_or_else(failed);
        // A wake-up without a reason does no harm.
        if !matches!(outcome, CommitOutcome::RolledBack | CommitOutcome::Unavailable(_)) {
            self.wakeups.wake(shared);
        }
        let _ = self.reply.send((result, self.f));
    }
}

/// A connection of a writer.
struct WriteConnection {
    db: Conn,
    /// The state of the server at the start of the connection; `None` on SQLite.
    server: Option<ServerState>,
}

impl WriteConnection {
    fn open(shared: &Shared) -> std::result::Result<Self, CommitOutcome> {
        let connected = shared.database.connect_writer().map_err(|error| {
            error!(%error, "cannot connect for writing");
            shared.outcome_of_open_error(&error)
        });
        let mut db = connected?;
        let prepared = db.limit_idle_transactions().and_then(|()| db.server_state());
        let server = prepared.map_err(|error| {
            error!(%error, "cannot connect for writing");
            shared.outcome_of_error(&error)
        })?;
        Ok(Self { db, server })
    }
}

pub(super) fn write_loop(shared: &Shared, queue: &mut WorkReceiver<QueuedWrite>, single_writer: bool) {
    let mut connection: Option<WriteConnection> = None;
    while let Some(write) = queue.recv() {
        let open = match connection.take().map_or_else(|| WriteConnection::open(shared), Ok) {
            Ok(open) => open,
            Err(outcome) => {
                write.reply(shared, &outcome);
                if single_writer {
                    thread::sleep(Duration::from_millis(100));
                }
                continue;
            }
        };
        connection = if single_writer {
            let db = write_group(shared, open.db, queue, write);
            db.map(|db| WriteConnection { db, server: None })
        } else {
            write_one(shared, open, write)
        };
    }
}

/// Runs all queued writes in one transaction and replies to them once it is durable. Returns the connection if it is
/// still usable.
fn write_group(shared: &Shared, mut db: Conn, queue: &WorkReceiver<QueuedWrite>, first: QueuedWrite) -> Option<Conn> {
    if let Err(error) = db.begin_writing() {
        error!(%error, "cannot begin a write transaction");
        first.reply(shared, &shared.outcome_of_error(&error));
        return None;
    }
    let start = Instant::now();
    let mut group = Vec::new();
    let mut next = Some(first);
    let mut outcome = CommitOutcome::Committed;
    while let Some(mut write) = next.take() {
        outcome = run_in_savepoint(shared, &mut db, &mut *write);
        group.push(write);
        if outcome.is_committed() && group.len() < MAX_GROUP_SIZE && start.elapsed() < MAX_GROUP_DURATION {
            next = queue.try_recv();
        }
    }
    if outcome.is_committed() {
        outcome = commit(shared, &mut db);
    }
    metrics::histogram!("gable_write_group_size").record(u32::try_from(group.len()).unwrap_or(u32::MAX));
    for write in group {
        write.reply(shared, &outcome);
    }
    outcome.is_committed().then_some(db)
}

/// Runs one write in a savepoint, so that it can be rolled back alone; returns `Committed` if the surrounding transaction
/// can still be committed.
fn run_in_savepoint(shared: &Shared, db: &mut Conn, write: &mut dyn WriteOperation) -> CommitOutcome {
    if let Err(error) = db.savepoint() {
        error!(%error, "cannot create a savepoint");
        return shared.outcome_of_error(&error);
    }
    let (ended, disk_full) = match write.run(shared, db) {
        Ok(()) => (db.release(), false),
        Err(rollback) => (db.roll_back(), matches!(rollback, Rollback::DiskFull)),
    };
    match ended {
        Ok(()) => CommitOutcome::Committed,
        // On a full disk SQLite rolls back the whole transaction, including the other writes of the group.
        Err(_) if disk_full => CommitOutcome::DiskFull("the database rolled back a group of writes".into()),
        Err(error) => {
            error!(%error, "the transaction was lost");
            shared.outcome_of_error(&error)
        }
    }
}

/// Runs one write in its own transaction, and again if it conflicts with another one or its connection was lost before it was
/// committed. Returns the connection if it is still usable.
fn write_one(shared: &Shared, connection: WriteConnection, mut write: QueuedWrite) -> Option<WriteConnection> {
    let mut connection = Some(connection);
    let mut outcome = CommitOutcome::RolledBack;
    for attempt in 1..=MAX_ATTEMPTS {
        let mut open = match connection.take().map_or_else(|| WriteConnection::open(shared), Ok) {
            Ok(open) => open,
            Err(reason) => {
                outcome = reason;
                break;
            }
        };
        let id = match open.db.begin_tracked() {
            Ok(id) => id,
            Err(error) => {
                outcome = shared.outcome_of_error(&error);
                // Nothing was sent yet, so a new connection may try.
                if error.is_disconnected() {
                    continue;
                }
                error!(%error, "cannot begin a write transaction");
                break;
            }
        };
        match write.run(shared, &mut open.db) {
            Ok(()) => match commit_one(shared, &mut open, id.as_ref(), &*write) {
                Ok(is_usable) => {
                    outcome = CommitOutcome::Committed;
                    connection = is_usable.then_some(open);
                    break;
                }
                Err(Failure { outcome: failed, may_run_again }) => {
                    outcome = failed;
                    if !may_run_again {
                        break;
                    }
                }
            },
            Err(rollback) => {
                connection = open.db.roll_back().is_ok().then_some(open);
                match rollback {
                    // There is nothing to commit; the caller gets the error of the write itself.
                    Rollback::Reply | Rollback::DiskFull => {
                        outcome = CommitOutcome::Committed;
                        break;
                    }
                    Rollback::Reconnect => {
                        connection = None;
                        outcome = CommitOutcome::Unavailable("the database connection was lost repeatedly".to_owned());
                    }
                    Rollback::Retry => {
                        outcome = CommitOutcome::RolledBack;
                        thread::sleep(Duration::from_millis(u64::from(attempt)));
                    }
                }
            }
        }
    }
    write.reply(shared, &outcome);
    connection
}

/// Why a write was not committed.
struct Failure {
    outcome: CommitOutcome,
    /// Whether it has certainly changed nothing, and another attempt may succeed.
    may_run_again: bool,
}

/// Commits one write. If the connection is lost meanwhile, the database is asked for the outcome. Returns whether the
/// connection is still usable.
fn commit_one(
    shared: &Shared,
    open: &mut WriteConnection,
    id: Option<&TransactionId>,
    write: &dyn WriteOperation,
) -> std::result::Result<bool, Failure> {
    let Err(error) = open.db.commit_tracked(&write.notifications(shared)) else {
        disk_space::clear_database_full(&shared.database_full_at);
        return Ok(true);
    };
    let (Some(id), Some(server), true) = (id, &open.server, error.is_disconnected()) else {
        error!(%error, "cannot commit");
        return Err(Failure { outcome: shared.outcome_of_error(&error), may_run_again: error.is_retryable() });
    };
    match shared.resolve_commit(id, server) {
        CommitOutcome::Committed => Ok(false),
        CommitOutcome::RolledBack => {
            Err(Failure { outcome: CommitOutcome::Unavailable(error.to_string()), may_run_again: true })
        }
        outcome => Err(Failure { outcome, may_run_again: false }),
    }
}

fn commit(shared: &Shared, db: &mut Conn) -> CommitOutcome {
    match db.commit() {
        Ok(()) => {
            if !shared.database.is_in_data_folder() {
                disk_space::clear_database_full(&shared.database_full_at);
            }
            CommitOutcome::Committed
        }
        Err(error) => {
            error!(%error, "cannot commit");
            shared.outcome_of_error(&error)
        }
    }
}
