//! A closed-loop load generator: clients with persistent connections that send the next request after each response.
//!
//! The clients share the processors with the server, so they use as little as possible: raw sockets, one thread, and of
//! a response only the status and the length are parsed.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpStream;

/// Writes the next request into an empty buffer.
pub(crate) type NextRequest = Arc<dyn Fn(&mut Vec<u8>) + Send + Sync>;

/// The load of a run.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) clients: usize,
    pub(crate) next: NextRequest,
    /// The expected status.
    pub(crate) status: u16,
}

/// When clients stop: after a time, after a number of requests each, or whichever comes first.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    Requests(usize),
    RequestsOrElapsed(usize, Duration),
}

impl Until {
    fn is_over(self, elapsed: Duration, requests: usize) -> bool {
        match self {
            Self::Elapsed(time) => elapsed >= time,
            Self::Requests(count) => requests >= count,
            Self::RequestsOrElapsed(count, time) => requests >= count || elapsed >= time,
        }
    }
}

/// The latencies of one or several runs.
#[derive(Clone, Default)]
pub(crate) struct Measurement {
    /// The latency of each response, in microseconds.
    latencies: Vec<u32>,
    elapsed: Duration,
}

impl Measurement {
    /// Adds another run of the same load.
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.elapsed += other.elapsed;
    }

    /// Adds a single latency.
    pub(crate) fn push(&mut self, latency: Duration) {
        self.latencies.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
        self.elapsed += latency;
    }

    /// Returns the number of responses.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 responses")]
    pub(crate) fn response_count(&self) -> f64 {
        self.latencies.len() as f64
    }

    /// Returns the number of responses per second.
    pub(crate) fn rate(&self) -> f64 {
        self.response_count() / self.elapsed.as_secs_f64()
    }

    /// Returns a percentile of the latencies, in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(index).map_or(f64::NAN, |micros| f64::from(*micros) / 1000.0)
    }
}

/// Returns a `GET` request.
pub(crate) fn get(path: &str, token: &str) -> NextRequest {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nPRIVATE-TOKEN: {token}\r\n\r\n");
    Arc::new(move |buffer| buffer.extend_from_slice(request.as_bytes()))
}

/// Returns a `POST` request with a JSON body that is generated each time.
pub(crate) fn post(path: &str, token: &str, body: impl Fn() -> String + Send + Sync + 'static) -> NextRequest {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nPRIVATE-TOKEN: {token}\r\n");
    Arc::new(move |buffer| {
        let body = body();
        let rest = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        buffer.extend_from_slice(head.as_bytes());
        buffer.extend_from_slice(rest.as_bytes());
    })
}

/// Runs the clients; an unexpected status ends the run with an error.
pub(crate) fn run(load: &Load, until: Until) -> Result<Measurement> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..load.clients {
            connections.push(Connection::open(load.address).await.context("cannot connect")?);
        }
        let start = Instant::now();
        let clients: Vec<_> = connections
            .into_iter()
            .map(|connection| tokio::spawn(run_client(connection, load.clone(), until)))
            .collect();
        let mut measured = Measurement::default();
        for client in clients {
            measured.latencies.extend(client.await??);
        }
        measured.elapsed = start.elapsed();
        Ok(measured)
    })
}

/// Sends a single request and returns the body of the response.
pub(crate) fn fetch(address: SocketAddr, next: &NextRequest) -> Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    let context = || format!("cannot send a request to {address}");
    runtime.block_on(async {
        let mut request = Vec::new();
        next(&mut request);
        let mut connection = Connection::open(address).await.with_context(context)?;
        connection.exchange(&request).await.with_context(context)?;
        Ok(connection.body().to_vec())
    })
}

async fn run_client(mut connection: Connection, load: Load, until: Until) -> Result<Vec<u32>> {
    let start = Instant::now();
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut request = Vec::new();
    let mut sent_at = start;
    loop {
        if until.is_over(sent_at.duration_since(start), latencies.len()) {
            return Ok(latencies);
        }
        request.clear();
        (load.next)(&mut request);
        let status = connection.exchange(&request).await.context("connection lost")?;
        if status != load.status {
            let body = String::from_utf8_lossy(connection.body());
            bail!("returned {status} instead of {}: {body}", load.status);
        }
        // The end of one exchange is the start of the next, which saves half of the clock reads.
        let received_at = Instant::now();
        latencies.push(u32::try_from(received_at.duration_since(sent_at).as_micros()).unwrap_or(u32::MAX));
        sent_at = received_at;
    }
}

/// A persistent connection and its last response.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The start and the end of the body of the last response.
    body_range: (usize, usize),
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 1 << 16], body_range: (0, 0) })
    }

    /// Returns the status line and the headers of the last response.
    pub(crate) fn head(&self) -> &[u8] {
        &self.buffer[..self.body_range.0]
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.buffer[self.body_range.0..self.body_range.1]
    }

    /// Sends a request, reads the whole response and returns the status.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        self.send(request).await?;
        let mut filled = 0;
        let head = loop {
            filled += self.receive(filled).await?;
            if let Some(head) = find(&self.buffer[..filled], b"\r\n\r\n") {
                break head + 4;
            }
        };
        let broken = || io::Error::from(ErrorKind::InvalidData);
        let status = parse(self.buffer.get(9..12).unwrap_or_default()).ok_or_else(broken)?;
        // 204 responses have no content length.
        let length = if status == 204 { Some(0) } else { content_length(&self.buffer[..head]) };
        let end = head + length.ok_or_else(broken)?;
        if end > self.buffer.len() {
            self.buffer.resize(end, 0);
        }
        while filled < end {
            filled += self.receive(filled).await?;
        }
        self.body_range = (head, end);
        u16::try_from(status).map_err(|_| broken())
    }

    async fn send(&self, mut request: &[u8]) -> io::Result<()> {
        while !request.is_empty() {
            match self.stream.try_write(request) {
                Ok(sent) => request = &request[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.stream.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn receive(&mut self, filled: usize) -> io::Result<usize> {
        loop {
            self.stream.readable().await?;
            match self.stream.try_read(&mut self.buffer[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the content length; both servers send header names in lower case.
fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\r\ncontent-length: ";
    let digits = &head[find(head, NAME)? + NAME.len()..];
    parse(&digits[..find(digits, b"\r\n")?])
}

fn parse(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let measured = Measurement { latencies: (1..=1000).rev().collect(), elapsed: Duration::from_secs(2) };
        assert!((measured.rate() - 500.0).abs() < 1e-9);
        assert!((measured.percentile(50) - 0.5).abs() < 1e-9);
        assert!((measured.percentile(99) - 0.99).abs() < 1e-9);
        assert!(Measurement::default().percentile(50).is_nan());
    }

    #[test]
    fn the_length_of_a_body_is_read_off_the_head() {
        let check = |head: &str, expected| assert_eq!(content_length(head.as_bytes()), expected, "{head}");
        check("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 612\r\n\r\n", Some(612));
        check("HTTP/1.1 200 OK\r\nx-content-length: 1\r\ncontent-length: 0\r\n\r\n", Some(0));
        check("HTTP/1.1 200 OK\r\n\r\n", None);
    }
}
