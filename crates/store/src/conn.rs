//! A connection to either database engine, and its transactions.

use diesel::{Connection, SqliteConnection, connection::TransactionManager};

use crate::{Result, postgres::PgConnection};

/// A connection to SQLite or PostgreSQL.
///
/// Functions of this crate write a query once, inside `on!`; the macro compiles it for both connections, so that each
/// engine gets its own SQL without a layer in between.
#[expect(clippy::large_enum_variant, reason = "a thread owns one connection for its whole life")]
pub enum Conn {
    /// A file of the embedded engine.
    Sqlite(SqliteConnection),
    /// A server.
    Pg(PgConnection),
}

/// Runs the same query on the engine of a connection.
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
    /// Begins a read transaction. On SQLite it is a snapshot; on PostgreSQL it does nothing, because its read connections
    /// are read-only sessions in which every statement is its own transaction.
    pub fn begin_reading(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => Ok(Manager::<SqliteConnection>::begin_transaction(conn)?),
            Self::Pg(_) => Ok(()),
        }
    }

    /// Ends the transaction that [`Self::begin_reading`] began.
    pub fn end_reading(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => Ok(Manager::<SqliteConnection>::commit_transaction(conn)?),
            Self::Pg(_) => Ok(()),
        }
    }

    /// Begins a write transaction.
    pub fn begin_writing(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => crate::sqlite::begin_immediate(conn),
            Self::Pg(conn) => Ok(Manager::<PgConnection>::begin_transaction(conn)?),
        }
    }

    /// Runs a closure in a write transaction, which is rolled back if the closure or the commit fails.
    pub fn write<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin_writing()?;
        let result = work(self).and_then(|value| self.commit().map(|()| value));
        if result.is_err() {
            // The first error is more useful than one of the rollback.
            let _ = self.roll_back();
        }
        result
    }

    /// Commits the open transaction, or releases the innermost savepoint.
    pub fn commit(&mut self) -> Result<()> {
        on!(self, conn => Ok(commit_on(conn)?))
    }

    /// Rolls back the open transaction, or the innermost savepoint.
    pub fn roll_back(&mut self) -> Result<()> {
        on!(self, conn => Ok(roll_back_on(conn)?))
    }

    /// Creates a savepoint inside the open transaction.
    pub fn savepoint(&mut self) -> Result<()> {
        on!(self, conn => Ok(savepoint_on(conn)?))
    }

    /// Releases the innermost savepoint and keeps its changes.
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
