//! Clients that keep their connections and ask again as soon as they are answered.
//!
//! They share the cores with the server, so they are as thrifty as they can be: raw sockets, one thread, and no more of
//! an answer is read than its status and its length.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::net::TcpStream;

use crate::Outcome;

/// Writes the next request into an empty buffer.
pub(crate) type NextRequest = Arc<dyn Fn(&mut Vec<u8>) + Send + Sync>;

/// What clients do.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) clients: usize,
    pub(crate) next: NextRequest,
    /// The status of a good answer.
    pub(crate) status: u16,
}

/// When clients stop: after a time, after a number of requests each, or after whichever comes first.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    Asked(usize),
    AskedWithin(usize, Duration),
}

impl Until {
    fn is_over(self, elapsed: Duration, asked: usize) -> bool {
        match self {
            Self::Elapsed(time) => elapsed >= time,
            Self::Asked(count) => asked >= count,
            Self::AskedWithin(count, time) => asked >= count || elapsed >= time,
        }
    }
}

/// How it went, over one or several runs.
#[derive(Clone, Default)]
pub(crate) struct Measured {
    /// How long each answer took, in microseconds.
    latencies: Vec<u32>,
    elapsed: Duration,
}

impl Measured {
    /// Adds another run of the same load.
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.elapsed += other.elapsed;
    }

    /// Adds one that came alone.
    pub(crate) fn push(&mut self, latency: Duration) {
        self.latencies.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
        self.elapsed += latency;
    }

    /// How many answers there were.
    #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^52 answers")]
    pub(crate) fn answers(&self) -> f64 {
        self.latencies.len() as f64
    }

    /// Answers per second.
    pub(crate) fn rate(&self) -> f64 {
        self.answers() / self.elapsed.as_secs_f64()
    }

    /// The time in milliseconds within which this many percent of the answers came.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(place).map_or(f64::NAN, |micros| f64::from(*micros) / 1000.0)
    }
}

/// A request without a body.
pub(crate) fn get(path: &str, token: &str) -> NextRequest {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nPRIVATE-TOKEN: {token}\r\n\r\n");
    Arc::new(move |buffer| buffer.extend_from_slice(request.as_bytes()))
}

/// A request with a JSON body, each time another one.
pub(crate) fn post(path: &str, token: &str, body: impl Fn() -> String + Send + Sync + 'static) -> NextRequest {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nPRIVATE-TOKEN: {token}\r\n");
    Arc::new(move |buffer| {
        let body = body();
        let rest = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        buffer.extend_from_slice(head.as_bytes());
        buffer.extend_from_slice(rest.as_bytes());
    })
}

/// Lets the clients ask; the first answer that is not a good one ends it.
pub(crate) fn run(load: &Load, until: Until) -> Outcome<Measured> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..load.clients {
            connections.push(Connection::open(load.address).await.map_err(|error| format!("cannot connect: {error}"))?);
        }
        let start = Instant::now();
        let clients: Vec<_> =
            connections.into_iter().map(|connection| tokio::spawn(ask(connection, load.clone(), until))).collect();
        let mut measured = Measured::default();
        for client in clients {
            measured.latencies.extend(client.await.map_err(|error| error.to_string())??);
        }
        measured.elapsed = start.elapsed();
        Ok(measured)
    })
}

/// Gives the body of a single answer.
pub(crate) fn fetch(address: SocketAddr, next: &NextRequest) -> Outcome<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let failed = |error: io::Error| format!("cannot ask {address}: {error}");
    runtime.block_on(async {
        let mut request = Vec::new();
        next(&mut request);
        let mut connection = Connection::open(address).await.map_err(failed)?;
        connection.exchange(&request).await.map_err(failed)?;
        Ok(connection.body().to_vec())
    })
}

async fn ask(mut connection: Connection, load: Load, until: Until) -> Outcome<Vec<u32>> {
    let start = Instant::now();
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut request = Vec::new();
    let mut asked = start;
    loop {
        if until.is_over(asked.duration_since(start), latencies.len()) {
            return Ok(latencies);
        }
        request.clear();
        (load.next)(&mut request);
        let status = connection.exchange(&request).await.map_err(|error| format!("a connection broke: {error}"))?;
        if status != load.status {
            let body = String::from_utf8_lossy(connection.body());
            return Err(format!("answered {status} instead of {}: {body}", load.status));
        }
        // The end of one exchange is the start of the next, which saves half the looks at the clock.
        let answered = Instant::now();
        latencies.push(u32::try_from(answered.duration_since(asked).as_micros()).unwrap_or(u32::MAX));
        asked = answered;
    }
}

/// One kept connection and its last answer.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Where the head of the last answer ends, and where its body does.
    ends: (usize, usize),
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 1 << 16], ends: (0, 0) })
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.buffer[self.ends.0..self.ends.1]
    }

    /// Sends a request and reads its answer to the end; gives the status.
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
        // An answer without content has no length either.
        let length = if status == 204 { Some(0) } else { content_length(&self.buffer[..head]) };
        let end = head + length.ok_or_else(broken)?;
        if end > self.buffer.len() {
            self.buffer.resize(end, 0);
        }
        while filled < end {
            filled += self.receive(filled).await?;
        }
        self.ends = (head, end);
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

/// Our servers write header names in small letters.
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
        let measured = Measured { latencies: (1..=1000).rev().collect(), elapsed: Duration::from_secs(2) };
        assert!((measured.rate() - 500.0).abs() < 1e-9);
        assert!((measured.percentile(50) - 0.5).abs() < 1e-9);
        assert!((measured.percentile(99) - 0.99).abs() < 1e-9);
        assert!(Measured::default().percentile(50).is_nan());
    }

    #[test]
    fn the_length_of_a_body_is_read_off_the_head() {
        let check = |head: &str, expected| assert_eq!(content_length(head.as_bytes()), expected, "{head}");
        check("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 612\r\n\r\n", Some(612));
        check("HTTP/1.1 200 OK\r\nx-content-length: 1\r\ncontent-length: 0\r\n\r\n", Some(0));
        check("HTTP/1.1 200 OK\r\n\r\n", None);
    }
}
