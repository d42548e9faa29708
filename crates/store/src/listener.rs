//! The connection of a node that receives notifications of PostgreSQL and measures its clock.

use std::{
    future::poll_fn,
    time::{Duration, Instant},
};

use diesel::sql_types::BigInt;
use model::Time;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};

use crate::{
    Conn, Database, OpenError, Result, fragment::Fragment, postgres::ClientConnection, times::from_micros,
    transactions::CHANNEL,
};

/// How long the server may take to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The microseconds since 1970 by the clock of the server.
const CLOCK_QUERY: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The time of the clock of a database at a moment between two instants.
#[derive(Clone, Copy, Debug)]
pub struct TimeMeasurement {
    /// The time.
    pub time: Time,
    /// The instant before the measurement.
    pub before: Instant,
    /// The instant after the measurement.
    pub after: Instant,
}

/// A connection that listens for notifications. It uses the runtime of the caller.
pub struct Listener {
    client: Client,
    payloads: mpsc::UnboundedReceiver<String>,
}

impl Database {
    /// Opens a connection that listens for notifications; `None` on SQLite, which has none.
    pub async fn listen(&self) -> std::result::Result<Option<Listener>, OpenError> {
        let Self::Postgres(target) = self else { return Ok(None) };
        let (client, connection) = target.connect_client().await?;
        let (sender, payloads) = mpsc::unbounded_channel();
        tokio::spawn(forward_notifications(connection, sender));
        let listener = Listener { client, payloads };
        listener.query(&format!("LISTEN {CHANNEL}")).await?;
        Ok(Some(listener))
    }

    /// Measures the clock of the database; `None` on SQLite, which has none.
    pub fn measure_time(&self) -> std::result::Result<Option<TimeMeasurement>, OpenError> {
        if self.is_sqlite() {
            return Ok(None);
        }
        self.connect_reader()?.measure_time().map_err(OpenError::new)
    }
}

impl Conn {
    fn measure_time(&mut self) -> Result<Option<TimeMeasurement>> {
        let Self::Pg(conn) = self else { return Ok(None) };
        let before = Instant::now();
        let micros: i64 = diesel::RunQueryDsl::get_result(Fragment::<BigInt>::new(CLOCK_QUERY), conn)?;
        Ok(Some(TimeMeasurement { time: from_micros(micros), before, after: Instant::now() }))
    }
}

impl Listener {
    /// Returns the payload of the next notification; `None` if the connection was lost.
    pub async fn next(&mut self) -> Option<String> {
        self.payloads.recv().await
    }

    /// Measures the clock of the database; fails if the connection was lost.
    pub async fn measure_time(&self) -> std::result::Result<TimeMeasurement, OpenError> {
        let before = Instant::now();
        let rows = self.query(CLOCK_QUERY).await?;
        let after = Instant::now();
        let micros = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        let micros = micros.ok_or_else(|| OpenError::new("the database returned no time"))?;
        Ok(TimeMeasurement { time: from_micros(micros), before, after })
    }

    async fn query(&self, sql: &str) -> std::result::Result<Vec<SimpleQueryMessage>, OpenError> {
        match tokio::time::timeout(RESPONSE_TIMEOUT, self.client.simple_query(sql)).await {
            Ok(result) => result.map_err(OpenError::new),
            Err(_) => Err(OpenError::new("the database does not respond")),
        }
    }
}

/// Drives a connection until it ends, and passes the payloads of its notifications on.
async fn forward_notifications(mut connection: ClientConnection, sender: mpsc::UnboundedSender<String>) {
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message
            && sender.send(notification.payload().to_owned()).is_err()
        {
            return;
        }
    }
}
