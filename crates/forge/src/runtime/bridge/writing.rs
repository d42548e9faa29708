//! How writes are made: on SQLite in groups that share a commit, on PostgreSQL each in a transaction of its own.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::Receiver;
use store::Conn;
use tokio::sync::{Notify, oneshot};
use tracing::error;

use super::{Shared, WriteTask, WriteTx, enter, shielded};
use crate::{Caller, Error, Result, commit_outcome::Fate, disk_space, job_notifier::Board};

/// How many writes share a commit at most, and for how long a group is collected.
const GROUP: usize = 256;
const GROUP_TIME: Duration = Duration::from_millis(20);
/// How often a write that lost a race is run again.
const ATTEMPTS: u32 = 8;

/// A write in two steps: run, and answered once its transaction is durable.
pub(super) trait Write: Send {
    /// Runs the write inside an open transaction or savepoint; an error asks to undo it.
    fn run(&mut self, shared: &Shared, db: &mut Conn) -> std::result::Result<(), Undo>;
    /// Tells the caller what came of it, if it stands: what was done is durable, and so is what was seen.
    fn answer(self: Box<Self>, fate: &Fate);
}

/// What is to be done with a write that must not be kept.
pub(super) enum Undo {
    /// The caller hears the error.
    Answer,
    /// It lost a race and is run again.
    Retry,
    /// It needs a new connection.
    Reconnect,
    /// The caller hears that there is no room; the transaction may be gone.
    NoRoom,
}

/// A write on its way.
pub(super) struct Pending<F, T> {
    pub(super) f: F,
    pub(super) caller: Caller,
    pub(super) result: Option<Result<T>>,
    pub(super) reply: oneshot::Sender<Result<T>>,
    /// What to ring when it is durable, if hooks are told something.
    pub(super) post: Option<Arc<Notify>>,
    pub(super) board: Option<Arc<Board>>,
}

impl<F, T> Write for Pending<F, T>
where
    F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, shared: &Shared, db: &mut Conn) -> std::result::Result<(), Undo> {
        let Self { f, caller, result, reply, post, board } = self;
        (*post, *board) = (None, None);
        if reply.is_closed() {
            return Err(Undo::Answer);
        }
        let outcome = shielded(|| {
            enter(shared, db, caller, |reader| {
                let mut writer = WriteTx { reader, has_post: false, has_work: false };
                let answer = f(&mut writer)?;
                *post = writer.has_post.then(|| Arc::clone(&shared.post));
                *board = writer.has_work.then(|| Arc::clone(&shared.board));
                Ok(answer)
            })
        });
        let outcome = outcome.map_err(|error| shared.judge(error));
        let undo = match &outcome {
            Ok(_) => Ok(()),
            Err(Error::Store(error)) if error.is_retry() => Err(Undo::Retry),
            Err(Error::Store(error)) if error.is_disconnected() => Err(Undo::Reconnect),
            Err(Error::NoRoom(_)) => Err(Undo::NoRoom),
            Err(_) => Err(Undo::Answer),
        };
        *result = Some(outcome);
        undo
    }

    fn answer(self: Box<Self>, fate: &Fate) {
        let stands = fate.stands();
        let lost = || match fate {
            Fate::NoRoom(text) => Err(Error::NoRoom(text.clone())),
            Fate::Stands | Fate::Lost => Err(Error::Internal("the write could not be made durable".into())),
        };
        let result = self.result.filter(|_| stands).unwrap_or_else(lost);
        if let Some(post) = self.post.filter(|_| stands) {
            post.notify_one();
        }
        if let Some(board) = self.board.filter(|_| stands) {
            board.call();
        }
        let _ = self.reply.send(result);
    }
}

pub(super) fn write_loop(shared: &Shared, queue: &Receiver<WriteTask>, single_writer: bool) {
    let mut seat: Option<Conn> = None;
    while let Ok(task) = queue.recv() {
        let conn = match seat.take().map_or_else(|| shared.database.connect_writer(), Ok) {
            Ok(conn) => conn,
            Err(error) => {
                error!(%error, "cannot connect for writing");
                task.answer(&shared.fate_of_opening(&error));
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        seat = if single_writer { write_group(shared, conn, queue, task) } else { write_one(shared, conn, task) };
    }
}

/// Runs all waiting writes in one transaction and answers them when it is durable. Gives the connection back unless it
/// is of no more use.
fn write_group(shared: &Shared, mut db: Conn, queue: &Receiver<WriteTask>, first: WriteTask) -> Option<Conn> {
    if let Err(error) = db.begin_writing() {
        error!(%error, "cannot begin to write");
        first.answer(&shared.fate_of(&error));
        return None;
    }
    let start = Instant::now();
    let mut group = Vec::new();
    let mut next = Some(first);
    let mut fate = Fate::Stands;
    while let Some(mut task) = next.take() {
        fate = run_in_savepoint(shared, &mut db, &mut *task);
        group.push(task);
        if fate.stands() && group.len() < GROUP && start.elapsed() < GROUP_TIME {
            next = queue.try_recv().ok();
        }
    }
    if fate.stands() {
        fate = commit(shared, &mut db);
    }
    metrics::histogram!("gable_write_group_size").record(u32::try_from(group.len()).unwrap_or(u32::MAX));
    for task in group {
        task.answer(&fate);
    }
    fate.stands().then_some(db)
}

/// Runs one write so that it can be undone alone; says what becomes of the surrounding transaction.
fn run_in_savepoint(shared: &Shared, db: &mut Conn, task: &mut dyn Write) -> Fate {
    if let Err(error) = db.savepoint() {
        error!(%error, "cannot open a savepoint");
        return shared.fate_of(&error);
    }
    let (kept, full) = match task.run(shared, db) {
        Ok(()) => (db.release(), false),
        Err(undo) => (db.roll_back(), matches!(undo, Undo::NoRoom)),
    };
    match kept {
        Ok(()) => Fate::Stands,
        // A full disk makes SQLite undo the whole transaction at once; then nothing of it counts.
        Err(_) if full => Fate::NoRoom("the database undid a transaction that others had a part in".into()),
        Err(error) => {
            error!(%error, "the transaction was lost");
            shared.fate_of(&error)
        }
    }
}

/// Runs one write in a transaction of its own, again if it loses a race.
fn write_one(shared: &Shared, db: Conn, mut task: WriteTask) -> Option<Conn> {
    let mut seat = Some(db);
    let mut fate = Fate::Lost;
    for attempt in 1..=ATTEMPTS {
        let mut db = match seat.take().map_or_else(|| shared.database.connect_writer(), Ok) {
            Ok(db) => db,
            Err(error) => {
                error!(%error, "cannot connect for writing");
                break;
            }
        };
        match db.begin_writing() {
            Ok(()) => {}
            // Nothing was sent yet, so a new connection may try.
            Err(error) if attempt < ATTEMPTS && error.is_disconnected() => continue,
            Err(error) => {
                error!(%error, "cannot begin to write");
                break;
            }
        }
        match task.run(shared, &mut db) {
            Ok(()) => {
                fate = commit(shared, &mut db);
                seat = fate.stands().then_some(db);
                break;
            }
            Err(undo) => {
                seat = db.roll_back().is_ok().then_some(db);
                match undo {
                    Undo::Answer | Undo::NoRoom => {
                        fate = Fate::Stands;
                        break;
                    }
                    Undo::Reconnect => seat = None,
                    Undo::Retry => thread::sleep(Duration::from_millis(u64::from(attempt))),
                }
            }
        }
    }
    task.answer(&fate);
    seat
}

fn commit(shared: &Shared, db: &mut Conn) -> Fate {
    match db.commit() {
        Ok(()) => {
            if !shared.database.is_embedded() {
                disk_space::forget(&shared.database_full);
            }
            Fate::Stands
        }
        Err(error) => {
            error!(%error, "cannot commit");
            shared.fate_of(&error)
        }
    }
}
