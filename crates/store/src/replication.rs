//! Positions in the log of PostgreSQL, which tell whether a standby has everything that a request may expect.

use diesel::{
    RunQueryDsl as _,
    sql_types::{BigInt, Bool, Text},
};

use crate::{Conn, Result, fragment::Fragment};

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

impl Conn {
    /// Returns the current end of the write-ahead log: every transaction that was acknowledged before is in front of it.
    /// Fails on a standby; `None` on SQLite, which has none.
    pub fn log_position(&mut self) -> Result<Option<LogPosition>> {
        let Self::Pg(conn) = self else { return Ok(None) };
        // The name of a file of the log begins with the timeline, in hexadecimal digits.
        let query = Fragment::<(BigInt, Text, BigInt, Text)>::new(
            "SELECT system_identifier, current_database()::text, \
             ('x' || substr(pg_walfile_name(position), 1, 8))::bit(32)::bigint, position::text \
             FROM pg_control_system(), pg_current_wal_lsn() position",
        );
        let (system, database, timeline, position) = query.get_result(conn)?;
        Ok(Some(LogPosition { system, database, timeline, position }))
    }

    /// Returns whether this is a connection to a standby that has executed everything in front of a position of its
    /// primary. A standby of an earlier timeline has not, and after a change of the primary one of its standbys counts as
    /// such until its next checkpoint.
    pub fn has_replayed(&mut self, primary: &LogPosition) -> Result<bool> {
        let Self::Pg(conn) = self else { return Ok(false) };
        let LogPosition { system, database, timeline, position } = primary;
        let query = Fragment::<Bool>::new("SELECT coalesce(pg_last_wal_replay_lsn() >= ")
            .text(position)
            .sql("::text::pg_lsn AND pg_is_in_recovery() AND checkpoint.timeline_id = ")
            .number(*timeline)
            .sql(" AND system_identifier = ")
            .number(*system)
            .sql(" AND current_database() = ")
            .text(database)
            .sql(", false) FROM pg_control_checkpoint() checkpoint, pg_control_system()");
        Ok(query.get_result(conn)?)
    }
}
