//! The writer threads: on SQLite writes share a commit in groups, on PostgreSQL each has its own transaction.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::Receiver;
use store::Conn;
use tokio::sync::{Notify, oneshot};
use tracing::error;

use super::{QueuedWrite, Shared, WriteTx, catch_panic, with_read_tx};
use crate::{Caller, Error, Result, commit_outcome::CommitOutcome, disk_space, job_notifier::JobNotifier};

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
    /// Sends the result to the caller, or an error if the transaction was not committed.
    fn reply(self: Box<Self>, outcome: &CommitOutcome);
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
    pub(super) reply: oneshot::Sender<Result<T>>,
    /// Set if there are new webhook deliveries; notified after the commit.
    pub(super) dispatcher_notify: Option<Arc<Notify>>,
    /// Set if there may be new jobs for runners; notified after the commit.
    pub(super) job_notifier: Option<Arc<JobNotifier>>,
    /// Set if a task is to be run now; notified after the commit.
    pub(super) task_notify: Option<Arc<Notify>>,
}

impl<F, T> WriteOperation for PendingWrite<F, T>
where
    F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, shared: &Shared, db: &mut Conn) -> std::result::Result<(), Rollback> {
        let Self { f, caller, result, reply, dispatcher_notify, job_notifier, task_notify } = self;
        (*dispatcher_notify, *job_notifier, *task_notify) = (None, None, None);
        if reply.is_closed() {
            return Err(Rollback::Reply);
        }
        let run = catch_panic(|| {
            with_read_tx(shared, db, caller, |read| {
                let mut tx = WriteTx::new(read);
                let value = f(&mut tx)?;
                *dispatcher_notify = tx.has_deliveries.then(|| Arc::clone(&shared.dispatcher_notify));
                *job_notifier = tx.has_pending_jobs.then(|| Arc::clone(&shared.job_notifier));
                *task_notify = tx.has_due_tasks.then(|| Arc::clone(&shared.task_notify));
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

    fn reply(self: Box<Self>, outcome: &CommitOutcome) {
        let committed = outcome.is_committed();
        let failed = || match outcome {
            CommitOutcome::DiskFull(text) => Err(Error::DiskFull(text.as_str().into())),
            CommitOutcome::Committed | CommitOutcome::RolledBack => {
                Err(Error::Internal("the write could not be committed".into()))
            }
        };
        let result = self.result.filter(|_| committed).unwrap_or_else(failed);
        if let Some(dispatcher_notify) = self.dispatcher_notify.filter(|_| committed) {
            dispatcher_notify.notify_one();
        }
        if let Some(job_notifier) = self.job_notifier.filter(|_| committed) {
            job_notifier.notify();
        }
        if let Some(task_notify) = self.task_notify.filter(|_| committed) {
            task_notify.notify_one();
        }
        let _ = self.reply.send(result);
    }
}

pub(super) fn write_loop(shared: &Shared, queue: &Receiver<QueuedWrite>, single_writer: bool) {
    let mut connection: Option<Conn> = None;
    while let Ok(write) = queue.recv() {
        let conn = match connection.take().map_or_else(|| shared.database.connect_writer(), Ok) {
            Ok(conn) => conn,
            Err(error) => {
                error!(%error, "cannot connect for writing");
                write.reply(&shared.outcome_of_open_error(&error));
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        connection =
            if single_writer { write_group(shared, conn, queue, write) } else { write_one(shared, conn, write) };
    }
}

/// Runs all queued writes in one transaction and replies to them once it is durable. Returns the connection if it is
/// still usable.
fn write_group(shared: &Shared, mut db: Conn, queue: &Receiver<QueuedWrite>, first: QueuedWrite) -> Option<Conn> {
    if let Err(error) = db.begin_writing() {
        error!(%error, "cannot begin a write transaction");
        first.reply(&shared.outcome_of_error(&error));
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
            next = queue.try_recv().ok();
        }
    }
    if outcome.is_committed() {
        outcome = commit(shared, &mut db);
    }
    metrics::histogram!("gable_write_group_size").record(u32::try_from(group.len()).unwrap_or(u32::MAX));
    for write in group {
        write.reply(&outcome);
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

/// Runs one write in its own transaction, and again if it conflicts with another one.
fn write_one(shared: &Shared, db: Conn, mut write: QueuedWrite) -> Option<Conn> {
    let mut connection = Some(db);
    let mut outcome = CommitOutcome::RolledBack;
    for attempt in 1..=MAX_ATTEMPTS {
        let mut db = match connection.take().map_or_else(|| shared.database.connect_writer(), Ok) {
            Ok(db) => db,
            Err(error) => {
                error!(%error, "cannot connect for writing");
                break;
            }
        };
        match db.begin_writing() {
            Ok(()) => {}
            // Nothing was sent yet, so a new connection may try.
            Err(error) if attempt < MAX_ATTEMPTS && error.is_disconnected() => continue,
            Err(error) => {
                error!(%error, "cannot begin a write transaction");
                break;
            }
        }
        match write.run(shared, &mut db) {
            Ok(()) => {
                outcome = commit(shared, &mut db);
                connection = outcome.is_committed().then_some(db);
                break;
            }
            Err(rollback) => {
                connection = db.roll_back().is_ok().then_some(db);
                match rollback {
                    // There is nothing to commit; the caller gets the error of the write itself.
                    Rollback::Reply | Rollback::DiskFull => {
                        outcome = CommitOutcome::Committed;
                        break;
                    }
                    Rollback::Reconnect => connection = None,
                    Rollback::Retry => thread::sleep(Duration::from_millis(u64::from(attempt))),
                }
            }
        }
    }
    write.reply(&outcome);
    connection
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
