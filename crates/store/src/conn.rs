//! One connection to either engine, and its transactions.

use diesel::{Connection, SqliteConnection, connection::TransactionManager};

use crate::{Result, postgres::PgConnection};

/// A connection to one of the two engines.
///
/// A function of this crate writes its query once, inside `on!`; the macro compiles it for both connections, so that
/// each engine gets its own SQL without a layer in between.
#[expect(clippy::large_enum_variant, reason = "a thread owns one connection for its whole life")]
pub enum Conn {
    /// Embedded.
    Sqlite(SqliteConnection),
    /// Over a socket.
    Pg(PgConnection),
}

/// Runs the same query on whichever engine is behind the connection.
macro_rules! on {
    ($db:expr, $conn:ident => $query:expr) => {
        match $db {
            $crate::conn::Conn::Sqlite($conn) => $query,
            $crate::conn::Conn::Pg($conn) => $query,
        }
    };
}
pub(crate) use on;

type Manager<C> = <C as Connection>::TransactionManager;

impl Conn {
    /// Opens a transaction that will only read: on SQLite a snapshot; PostgreSQL's reading connections are read-only
    /// sessions in which every statement is its own transaction.
    pub fn begin_reading(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => Ok(Manager::<SqliteConnection>::begin_transaction(conn)?),
            Self::Pg(_) => Ok(()),
        }
    }

    /// Ends what [`Self::begin_reading`] opened.
    pub fn end_reading(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => Ok(Manager::<SqliteConnection>::commit_transaction(conn)?),
            Self::Pg(_) => Ok(()),
        }
    }

    /// Opens a transaction that may write.
    pub fn begin_writing(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => crate::sqlite::begin_immediate(conn),
            Self::Pg(conn) => Ok(Manager::<PgConnection>::begin_transaction(conn)?),
        }
    }

    /// Runs something in a transaction of its own that may write, and undoes it if it fails.
    pub fn write<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin_writing()?;
        let worked = work(self).and_then(|value| self.commit().map(|()| value));
        if worked.is_err() {
            // The first error tells more than one about the undoing.
            let _ = self.roll_back();
        }
        worked
    }

    /// Makes the open transaction durable.
    pub fn commit(&mut self) -> Result<()> {
        on!(self, conn => Ok(commit_on(conn)?))
    }

    /// Undoes the open transaction, or the innermost savepoint.
    pub fn roll_back(&mut self) -> Result<()> {
        on!(self, conn => Ok(roll_back_on(conn)?))
    }

    /// Opens a savepoint inside the open transaction.
    pub fn savepoint(&mut self) -> Result<()> {
        on!(self, conn => Ok(savepoint_on(conn)?))
    }

    /// Keeps what happened since the innermost savepoint.
    pub fn release(&mut self) -> Result<()> {
        self.commit()
    }
}

fn commit_on<C: Connection>(conn: &mut C) -> diesel::QueryResult<()> {
    C::TransactionManager::commit_transaction(conn)
}

fn roll_back_on<C: Connection>(conn: &mut C) -> diesel::QueryResult<()> {
    C::TransactionManager::rollback_transaction(conn)
}

fn savepoint_on<C: Connection>(conn: &mut C) -> diesel::QueryResult<()> {
    C::TransactionManager::begin_transaction(conn)
}
