//! A local HTTP server that receives webhooks and responds, correctly or not, as a test demands.

mod certificate;

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

pub use certificate::Certificate;

/// How long a test waits for requests; generous for busy machines.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A receiver for one test. It stops when it is dropped.
pub struct Receiver {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    server_task: JoinHandle<()>,
}

/// A request that a receiver got.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The number of requests before it.
    pub order: usize,
    /// The connection that it came on, counted from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The headers, with names in their original case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A response of a receiver.
#[derive(Clone, Debug)]
pub struct MockResponse {
    delay: Duration,
    status: u16,
    headers: Vec<(String, String)>,
    behavior: Behavior,
}

#[derive(Clone, Debug)]
enum Behavior {
    Full(Vec<u8>),
    DrippingHeaders(Duration),
    DrippingBody(Duration),
    EndlessBody,
    Raw(Vec<u8>),
    Close,
    Hang,
}

struct Shared {
    received: watch::Sender<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    responses: Mutex<Responses>,
}

struct Responses {
    next: VecDeque<MockResponse>,
    default: Arc<dyn Fn(&ReceivedRequest) -> MockResponse + Send + Sync>,
}

impl Receiver {
    /// Starts a receiver on `127.0.0.1` that responds with 200.
    pub async fn start() -> Self {
        Self::serve(&[([127, 0, 0, 1], 0).into()], None).await
    }

    /// Like [`Self::start`], listening on all addresses of this machine.
    pub async fn start_everywhere() -> Self {
        Self::serve(&[(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()], None).await
    }

    /// Starts a receiver with TLS.
    pub async fn start_with(certificate: &Certificate) -> Self {
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certificate.key().to_vec()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .expect("a certificate and its key");
        Self::serve(&[([127, 0, 0, 1], 0).into()], Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    /// Serves on the first of these addresses that is available.
    async fn serve(addresses: &[SocketAddr], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(addresses).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            received: watch::Sender::new(Vec::new()),
            connections: AtomicUsize::new(0),
            responses: Mutex::new(Responses { next: VecDeque::new(), default: Arc::new(|_| MockResponse::ok()) }),
        });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server_task = tokio::spawn(accept(listener, tls, Arc::clone(&shared)));
        Self { address, scheme, shared, server_task }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        self.url_with("127.0.0.1", "/hook")
    }

    /// Returns a URL with another host, which may include credentials, and another path and query.
    pub fn url_with(&self, host: &str, target: &str) -> String {
        format!("{}://{host}:{}{target}", self.scheme, self.port())
    }

    /// Sets the response to all further requests.
    pub fn respond_with(&self, response: MockResponse) {
        self.respond_by(move |_| response.clone());
    }

    /// Sets a function that chooses the response to each further request.
    pub fn respond_by(&self, response: impl Fn(&ReceivedRequest) -> MockResponse + Send + Sync + 'static) {
        self.shared.responses().default = Arc::new(response);
    }

    /// Queues responses to the next requests, each used once.
    pub fn respond_first_with(&self, responses: impl IntoIterator<Item = MockResponse>) {
        self.shared.responses().next.extend(responses);
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.received.borrow().clone()
    }

    /// Waits for a number of requests and returns all of them.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<ReceivedRequest> {
        let mut requests = self.shared.received.subscribe();
        let Ok(enough) = timeout(WAIT_TIMEOUT, requests.wait_for(|received| received.len() >= count)).await else {
            panic!("waited for {count} requests, and these came: {:#?}", self.requests());
        };
        enough.expect("the receiver holds the other end").clone()
    }

    /// Returns the number of connections, including those without requests.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server_task.abort();
    }
}

impl ReceivedRequest {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body that is JSON")
    }
}

impl MockResponse {
    /// Status 200 without a body.
    pub fn ok() -> Self {
        Self::status(200)
    }

    /// A status without a body.
    pub fn status(status: u16) -> Self {
        Self { delay: Duration::ZERO, status, headers: Vec::new(), behavior: Behavior::Full(Vec::new()) }
    }

    /// A redirect.
    pub fn redirect(status: u16, to: &str) -> Self {
        Self::status(status).header("Location", to)
    }

    /// Bytes that need not be valid HTTP, after which the connection is closed.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { behavior: Behavior::Raw(bytes.into()), ..Self::ok() }
    }

    /// Closes the connection without a response.
    pub fn close() -> Self {
        Self { behavior: Behavior::Close, ..Self::ok() }
    }

    /// Never responds.
    pub fn hang() -> Self {
        Self { behavior: Behavior::Hang, ..Self::ok() }
    }

    /// Sends headers without end, one per interval.
    pub fn drip_headers(interval: Duration) -> Self {
        Self { behavior: Behavior::DrippingHeaders(interval), ..Self::ok() }
    }

    /// Sends a body without end, one byte per interval.
    pub fn drip_body(interval: Duration) -> Self {
        Self { behavior: Behavior::DrippingBody(interval), ..Self::ok() }
    }

    /// Sends a body without end, as fast as the client reads it.
    pub fn endless_body() -> Self {
        Self { behavior: Behavior::EndlessBody, ..Self::ok() }
    }

    /// Replaces the status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Replaces the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.behavior = Behavior::Full(body.into());
        self
    }

    /// Delays the response.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Returns the status line and the headers, without the final empty line.
    fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} Status\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }
}

impl Shared {
    fn responses(&self) -> MutexGuard<'_, Responses> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, mut received: ReceivedRequest) -> MockResponse {
        self.received.send_modify(|all| {
            received.order = all.len();
            all.push(received.clone());
        });
        let mut responses = self.responses();
        let next = responses.next.pop_front();
        let default = Arc::clone(&responses.default);
        drop(responses);
        next.unwrap_or_else(|| default(&received))
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Dropping the set aborts open connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst);
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            // Clients may disconnect at any time; tests check what they expect.
            let Some(tls) = tls else { return serve_connection(stream, number, &shared).await.unwrap_or_default() };
            if let Ok(stream) = tls.accept(stream).await {
                serve_connection(stream, number, &shared).await.unwrap_or_default();
            }
        });
    }
}

/// Serves a connection until the client or a response closes it.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    shared: &Shared,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(received) = read(&mut stream, connection).await? {
        let response = shared.record(received);
        sleep(response.delay).await;
        let head = response.head();
        match response.behavior {
            Behavior::Full(body) => {
                let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), &body].concat()).await?;
                stream.flush().await?;
            }
            Behavior::DrippingHeaders(interval) => {
                stream.write_all(head.as_bytes()).await?;
                loop {
                    stream.write_all(b"X-More: to come\r\n").await?;
                    stream.flush().await?;
                    sleep(interval).await;
                }
            }
            Behavior::DrippingBody(interval) => {
                stream.write_all(format!("{head}\r\n").as_bytes()).await?;
                loop {
                    stream.write_all(b".").await?;
                    stream.flush().await?;
                    sleep(interval).await;
                }
            }
            Behavior::EndlessBody => {
                stream.write_all(format!("{head}\r\n").as_bytes()).await?;
                let chunk = vec![b'.'; 64 << 10];
                loop {
                    stream.write_all(&chunk).await?;
                }
            }
            Behavior::Raw(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Behavior::Close => return Ok(()),
            Behavior::Hang => std::future::pending().await,
        }
    }
    Ok(())
}

/// Reads a request; `None` at the end of the connection.
async fn read(stream: &mut (impl AsyncBufRead + Unpin), connection: usize) -> io::Result<Option<ReceivedRequest>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_until(b'\n', &mut head).await? == 0 {
            return Ok(None);
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.lines().take_while(|line| !line.is_empty());
    let mut words = lines.next().unwrap_or_default().split(' ').map(ToOwned::to_owned);
    let mut received = ReceivedRequest {
        order: 0,
        connection,
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        body: Vec::new(),
    };
    let length = received.header("Content-Length").and_then(|length| length.parse().ok()).unwrap_or(0);
    received.body.resize(length, 0);
    stream.read_exact(&mut received.body).await?;
    Ok(Some(received))
}
