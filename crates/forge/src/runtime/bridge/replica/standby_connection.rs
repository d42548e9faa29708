//! The connection of a thread to a standby.

use std::{
    thread,
    time::{Duration, Instant},
};

use store::{Conn, Database, LogPosition, ReplayState};

use super::state::StandbyProblem;
use crate::{
    Caller, Result,
    bridge::{ReadTx, Shared, read_connection::ReadConnection},
};

/// The times to wait between attempts for a standby that is a moment behind.
const RETRY_DELAYS: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4), Duration::from_millis(8)];
/// How long a standby may be behind before another one is looked for; the URL may name several.
const MAX_BEHIND: Duration = Duration::from_secs(10);

/// A connection to one of the standbys that the URL names.
pub(super) struct StandbyConnection {
    connection: ReadConnection,
    /// Since when the standby has been behind whenever it was asked.
    behind_since: Option<Instant>,
}

impl StandbyConnection {
    pub(super) fn new(standby: &Database) -> Self {
        Self { connection: ReadConnection::new(standby), behind_since: None }
    }

    pub(super) fn connect(&mut self) -> Result<()> {
        self.behind_since = None;
        self.connection.connect().map(drop)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    /// Waits for a moment until the standby has replayed the log up to a position. Never connects, because requests wait
    /// meanwhile. Disconnects from a server that is no use any more, so that the thread looks for another one.
    pub(super) fn wait_until_replayed(
        &mut self,
        position: &LogPosition,
        timeout: Duration,
    ) -> std::result::Result<(), StandbyProblem> {
        let conn = self.connection.open_connection().ok_or(StandbyProblem::NotConnected)?;
        let result = wait_until_replayed(conn, position, timeout);
        let is_useless = match result {
            Ok(()) => {
                self.behind_since = None;
                false
            }
            Err(StandbyProblem::Replay(ReplayState::Behind | ReplayState::OtherTimeline)) => {
                self.behind_since.get_or_insert_with(Instant::now).elapsed() >= MAX_BEHIND
            }
            Err(_) => true,
        };
        if is_useless {
            self.connection.disconnect();
        }
        result
    }

    /// Runs a closure in a read transaction.
    pub(super) fn read<T>(
        &mut self,
        shared: &Shared,
        caller: &Caller,
        f: &mut impl FnMut(&mut ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.connection.read_without_reconnection(shared, caller, f)
    }
}

fn wait_until_replayed(
    conn: &mut Conn,
    position: &LogPosition,
    timeout: Duration,
) -> std::result::Result<(), StandbyProblem> {
    let mut delays = RETRY_DELAYS.iter();
    loop {
        let state = conn.replay_state(position, timeout);
        match state.map_err(|error| StandbyProblem::Failed(error.to_string()))? {
            ReplayState::Replayed => return Ok(()),
            ReplayState::Behind => match delays.next() {
                Some(delay) => thread::sleep(*delay),
                None => return Err(StandbyProblem::Replay(ReplayState::Behind)),
            },
            other => return Err(StandbyProblem::Replay(other)),
        }
    }
}
