//! Positions in the log of PostgreSQL, which tell whether a standby has everything that a request may expect.

use std::time::Duration;

use diesel::{
    QueryResult,
    result::{DatabaseErrorKind, Error as DieselError},
    sql_types::{BigInt, Bool, Text},
};
use diesel_async::{RunQueryDsl as _, async_connection_wrapper::BlockOn as _};

use crate::{Conn, Result, fragment::Fragment, postgres::ThreadRuntime};

/// A position in the write-ahead log of a PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Identifies the server and its standbys.
    system: i64,
    database: String,
    /// Changes when a standby becomes the primary: positions of different timelines are not comparable.
    timeline: i64,
    position: String,
}

/// What a server has of the log of a primary, up to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayState {
    /// It is a standby of the primary, and has replayed everything before the position.
    Replayed,
    /// It is a standby of the primary, and has not replayed everything before the position.
    Behind,
    /// It is a standby whose last checkpoint belongs to another timeline than the position. After a change of the primary this
    /// is so until the first checkpoint of the standby.
    OtherTimeline,
    /// It is no standby: it is the primary, or was promoted.
    NotAStandby,
    /// It belongs to another cluster than the primary.
    OtherCluster,
    /// The connection is to another database of the cluster.
    OtherDatabase,
}

impl Conn {
    /// Returns the end of the write-ahead log that is on disk: it is after every transaction that was acknowledged before. What is
    /// written but not on disk is not sent to standbys yet, which would then seem to be behind. Fails on a standby; `None` on
    /// SQLite, which has no such log.
    ///
    /// If the server does not answer in time, the connection is to be closed.
    pub fn log_position(&mut self, timeout: Duration) -> Result<Option<LogPosition>> {
        let Self::Pg(conn) = self else { return Ok(None) };
        // The name of a file of the log begins with the timeline, in hexadecimal digits.
        let query = Fragment::<(BigInt, Text, BigInt, Text)>::new(
            "SELECT system_identifier, current_database()::text, \
             ('x' || substr(pg_walfile_name(position), 1, 8))::bit(32)::bigint, position::text \
             FROM pg_control_system(), pg_current_wal_flush_lsn() position",
        );
        let (system, database, timeline, position) = answer_within(timeout, query.get_result(&mut **conn))?;
        Ok(Some(LogPosition { system, database, timeline, position }))
    }

    /// Returns whether the server has replayed the log of its primary up to a position.
    ///
    /// If the server does not answer in time, the connection is to be closed.
    pub fn replay_state(&mut self, primary: &LogPosition, timeout: Duration) -> Result<ReplayState> {
        let Self::Pg(conn) = self else { return Ok(ReplayState::NotAStandby) };
        let query = Fragment::<(Bool, Bool, BigInt, BigInt, Text)>::new("SELECT coalesce(pg_last_wal_replay_lsn() >= ")
            .text(&primary.position)
            .sql(
                "::text::pg_lsn, false), pg_is_in_recovery(), checkpoint.timeline_id::bigint, system_identifier, \
                 current_database()::text FROM pg_control_checkpoint() checkpoint, pg_control_system()",
            );
        let answer: (bool, bool, i64, i64, String) = answer_within(timeout, query.get_result(&mut **conn))?;
        let (has_replayed, is_in_recovery, timeline, system, database) = answer;
        Ok(if system != primary.system {
            ReplayState::OtherCluster
        } else if database != primary.database {
            ReplayState::OtherDatabase
        } else if !is_in_recovery {
            ReplayState::NotAStandby
        } else if timeline != primary.timeline {
            ReplayState::OtherTimeline
        } else if has_replayed {
            ReplayState::Replayed
        } else {
            ReplayState::Behind
        })
    }
}

/// Waits for the answer to a query. A server whose disk hangs, or that was suspended, acknowledges the query and does not answer.
fn answer_within<T>(timeout: Duration, query: impl Future<Output = QueryResult<T>>) -> Result<T> {
    let answer = ThreadRuntime.block_on(async { tokio::time::timeout(timeout, query).await });
    let answer = answer.unwrap_or_else(|_| {
        let message = format!("the server has not answered within {} ms", timeout.as_millis());
        Err(DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(message)))
    });
    Ok(answer?)
}
