//! A thread's place at the database, and how reads are made there.

use store::{Conn, Database};
use tracing::warn;

use super::{ReadTx, Shared, enter, shielded};
use crate::{
    Caller, Error, Result,
    caller::{self, Proved},
    memo::{Memo, Question, Remembered},
};

/// A thread's place at the database, with a connection that is made when it is first needed.
pub(super) struct Seat {
    database: Database,
    conn: Option<Conn>,
    memo: Memo,
}

impl Seat {
    pub(super) fn new(database: &Database) -> Self {
        Self { database: database.clone(), conn: None, memo: Memo::default() }
    }

    pub(super) fn read<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.read_once(shared, caller, f) {
            Err(Error::Store(error)) if error.is_disconnected() => {
                warn!(%error, "lost the database connection, making a new one");
                self.conn = None;
                self.read_once(shared, caller, f)
            }
            result => self.leave(result),
        }
    }

    /// After trouble with the database, the next read begins on a new connection: whatever state this one is in, it must
    /// not fail every read from now on.
    fn leave<T>(&mut self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::Store(_) | Error::NoRoom(_))) {
            self.conn = None;
        }
        result
    }

    /// A read of a few rows by key, statement by statement.
    pub(super) fn read_inline<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let db = self.connect()?;
        let result = shielded(|| enter(shared, db, caller, |mut reader| f(&mut reader)));
        self.leave(result)
    }

    /// What is remembered, if it still stands; else what a peek finds.
    pub(super) fn read_cached<T: Clone + 'static>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        question: Question,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let now = shared.clock.now();
        // Asked before anything is read: what is committed meanwhile makes the answer old, never the other way round.
        let version = self.connect()?.version();
        let version = self.leave(version.map_err(Error::from))?;
        if let Some(found) = self.memo.read_cached(&question, version, now)
            && let Some(answer) = found.answer.downcast_ref::<T>()
        {
            if let Some(token) = &found.token {
                shared.uses.note(token, now);
            }
            caller.note(found.user, found.acting_as);
            return Ok(answer.clone());
        }
        let mut shown = None;
        let db = self.connect()?;
        let result = shielded(|| {
            let Proved { actor, token } = caller::prove(db, caller, now)?;
            if let Some(token) = &token {
                shared.uses.note(token, now);
            }
            let number = token.as_ref().map(|token| token.id);
            shown = token;
            f(&mut ReadTx { db, shared, actor, token: number, now, depth: caller.depth() })
        });
        let answer = self.leave(result)?;
        let (user, acting_as) = caller.noted();
        let answer_kept = Box::new(answer.clone());
        let remembered = Remembered { version, at: now, token: shown, user, acting_as, answer: answer_kept };
        self.memo.remember(question, remembered);
        Ok(answer)
    }

    fn connect(&mut self) -> Result<&mut Conn> {
        if self.conn.is_none() {
            let connected = self.database.connect_reader();
            self.conn = Some(connected.map_err(|error| Error::Internal(error.to_string()))?);
            // A new connection counts versions anew.
            self.memo = Memo::default();
        }
        Ok(self.conn.as_mut().expect("just connected"))
    }

    fn read_once<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let db = self.connect()?;
        db.begin_reading()?;
        // Shielded here too, so that a panic leaves no transaction open.
        let result = shielded(|| enter(shared, db, caller, |mut reader| f(&mut reader)));
        db.end_reading()?;
        result
    }
}
