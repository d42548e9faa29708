//! Write transactions on PostgreSQL whose id is known, so that their outcome can be found if the connection is lost during
//! the commit.

use diesel::{
    connection::{TransactionDepthChange, TransactionManager, TransactionManagerStatus},
    sql_types::Text,
};
use diesel_async::{SimpleAsyncConnection as _, async_connection_wrapper::BlockOn as _};
use futures_util::future::join;

use crate::{
    Conn, Error, Result,
    fragment::Fragment,
    postgres::{PgConnection, ThreadRuntime},
};

/// The channel of all notifications.
pub(crate) const CHANNEL: &str = "gable";

/// The id of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionId(String);

impl std::fmt::Display for TransactionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies a server from its start or its recovery to the next one. Afterwards it may assign an id again whose
/// transaction was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState(String);

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// It is durable.
    Committed,
    /// It has changed nothing.
    Aborted,
    /// It may still be committed.
    InProgress,
    /// The server does not know it.
    Unknown,
}

impl Conn {
    /// Begins a write transaction. On PostgreSQL it gets an id at once, which is read in the same round trip; this fails on a
    /// standby.
    pub fn begin_tracked(&mut self) -> Result<Option<TransactionId>> {
        let conn = match self {
            Self::Sqlite(_) => return self.begin_writing().map(|()| None),
            Self::Pg(conn) => conn,
        };
        let query = Fragment::<Text>::new("SELECT pg_current_xact_id()::text");
        let (begun, id) = {
            let (mut first, mut second) = (&**conn, &**conn);
            ThreadRuntime.block_on(async {
                let id = diesel_async::RunQueryDsl::get_result::<String>(query, &mut second);
                join(first.batch_execute("BEGIN"), id).await
            })
        };
        begun?;
        let id = id?;
        change_depth(conn, TransactionDepthChange::IncreaseDepth)?;
        Ok(Some(TransactionId(id)))
    }

    /// Commits the transaction that [`Self::begin_tracked`] began and, on PostgreSQL, sends these notifications with it. After
    /// an error the connection must not be used any more.
    pub fn commit_tracked(&mut self, notifications: &[String]) -> Result<()> {
        let conn = match self {
            Self::Sqlite(_) => return self.commit(),
            Self::Pg(conn) => conn,
        };
        let result = {
            let (mut first, mut second) = (&**conn, &**conn);
            ThreadRuntime.block_on(async {
                if notifications.is_empty() {
                    return first.batch_execute("COMMIT").await;
                }
                // In one round trip. If the first fails, the server rolls back instead of committing.
                let statements = notify_statements(notifications);
                let (notified, committed) =
                    join(first.batch_execute(&statements), second.batch_execute("COMMIT")).await;
                notified.and(committed)
            })
        };
        result?;
        Ok(change_depth(conn, TransactionDepthChange::DecreaseDepth)?)
    }

    /// Makes the server end a transaction of this connection that waits for the next statement for five seconds: a node that is
    /// cut off must not hold locks for which all other nodes wait. Has no effect on SQLite.
    pub fn limit_idle_transactions(&mut self) -> Result<()> {
        let Self::Pg(conn) = self else { return Ok(()) };
        Ok(diesel::connection::SimpleConnection::batch_execute(conn, "SET idle_in_transaction_session_timeout = '5s'")?)
    }

    /// Returns the state of the server, with which ids of transactions are valid; `None` on SQLite.
    pub fn server_state(&mut self) -> Result<Option<ServerState>> {
        let Self::Pg(conn) = self else { return Ok(None) };
        // The timeline changes with a fail-over. The statistics are reset by a recovery, during which the server does not
        // always start anew.
        let query = Fragment::<Text>::new(
            "SELECT concat_ws(' ', left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), \
             extract(epoch FROM pg_postmaster_start_time()), \
             (SELECT extract(epoch FROM stats_reset) FROM pg_stat_bgwriter))",
        );
        Ok(Some(ServerState(diesel::RunQueryDsl::get_result(query, conn)?)))
    }

    /// Returns what became of a transaction that was begun on a server in the same state.
    pub fn transaction_status(&mut self, id: &TransactionId) -> Result<TransactionStatus> {
        let Self::Pg(conn) = self else { return Ok(TransactionStatus::Unknown) };
        let query =
            Fragment::<Text>::new("SELECT coalesce(pg_xact_status((").text(&*id.0).sql("::text)::xid8), 'unknown')");
        match diesel::RunQueryDsl::get_result::<String>(query, conn) {
            Ok(status) => Ok(match &*status {
                "committed" => TransactionStatus::Committed,
                "aborted" => TransactionStatus::Aborted,
                "in progress" => TransactionStatus::InProgress,
                _ => TransactionStatus::Unknown,
            }),
            Err(error) if error.to_string().contains("is in the future") => Ok(TransactionStatus::Unknown),
            Err(error) => Err(Error::from(error)),
        }
    }
}

/// Returns statements that send notifications when the transaction is committed.
fn notify_statements(notifications: &[String]) -> String {
    let quoted = |payload: &String| format!("NOTIFY {CHANNEL}, '{}';", payload.replace('\'', "''"));
    notifications.iter().map(quoted).collect()
}

/// Tells Diesel about a `BEGIN` or `COMMIT` that it did not send itself.
fn change_depth(conn: &mut PgConnection, change: TransactionDepthChange) -> diesel::QueryResult<()> {
    type Manager = <PgConnection as diesel::Connection>::TransactionManager;
    match <Manager as TransactionManager<PgConnection>>::transaction_manager_status_mut(conn) {
        TransactionManagerStatus::Valid(status) => status.change_transaction_depth(change),
        TransactionManagerStatus::InError => Err(diesel::result::Error::BrokenTransactionManager),
    }
}
