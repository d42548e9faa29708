//! Somebody who is told what happens: a real HTTP server on this machine that answers as a test wants, well or badly.

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

/// How long a test waits for what has to come: longer than the busiest machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A receiver of its own for one test. It stops when it is dropped.
pub struct Receiver {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

/// What a receiver was told.
#[derive(Clone, Debug)]
pub struct Received {
    /// How many requests came before it.
    pub order: usize,
    /// On which connection it came, counted from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The headers as they came, with all their capitals.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What a receiver answers.
#[derive(Clone, Debug)]
pub struct Reply {
    after: Duration,
    status: u16,
    headers: Vec<(String, String)>,
    manner: Manner,
}

#[derive(Clone, Debug)]
enum Manner {
    Whole(Vec<u8>),
    DrippingHeaders(Duration),
    DrippingBody(Duration),
    EndlessBody,
    Raw(Vec<u8>),
    Closing,
    Hanging,
}

struct Shared {
    received: watch::Sender<Vec<Received>>,
    connections: AtomicUsize,
    replies: Mutex<Replies>,
}

struct Replies {
    next: VecDeque<Reply>,
    then: Arc<dyn Fn(&Received) -> Reply + Send + Sync>,
}

impl Receiver {
    /// A receiver at `127.0.0.1` that is glad about everything.
    pub async fn start() -> Self {
        Self::serve(&[([127, 0, 0, 1], 0).into()], None).await
    }

    /// The same at every address of this machine, so that nothing that comes goes unnoticed.
    pub async fn start_everywhere() -> Self {
        Self::serve(&[(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()], None).await
    }

    /// A receiver that shows a certificate.
    pub async fn start_with(certificate: &Certificate) -> Self {
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certificate.key().to_vec()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .expect("a certificate and its key");
        Self::serve(&[([127, 0, 0, 1], 0).into()], Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    /// Serves at the first of these addresses that this machine has.
    async fn serve(addresses: &[SocketAddr], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(addresses).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            received: watch::Sender::new(Vec::new()),
            connections: AtomicUsize::new(0),
            replies: Mutex::new(Replies { next: VecDeque::new(), then: Arc::new(|_| Reply::ok()) }),
        });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let serving = tokio::spawn(accept(listener, tls, Arc::clone(&shared)));
        Self { address, scheme, shared, serving }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Where it is reached.
    pub fn url(&self) -> String {
        self.url_with("127.0.0.1", "/hook")
    }

    /// Where it is reached by another name of the host (which may hold credentials), with another path and query.
    pub fn url_with(&self, host: &str, target: &str) -> String {
        format!("{}://{host}:{}{target}", self.scheme, self.port())
    }

    /// Answers like this from now on.
    pub fn answers(&self, reply: Reply) {
        self.answers_by(move |_| reply.clone());
    }

    /// Answers like this from now on, depending on what it is told.
    pub fn answers_by(&self, reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) {
        self.shared.replies().then = Arc::new(reply);
    }

    /// Gives these answers first, each once.
    pub fn answers_first(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.replies().next.extend(replies);
    }

    /// All that it was told up to now.
    pub fn so_far(&self) -> Vec<Received> {
        self.shared.received.borrow().clone()
    }

    /// Waits until it was told so much, and tells it.
    pub async fn received(&self, count: usize) -> Vec<Received> {
        let mut told = self.shared.received.subscribe();
        let Ok(enough) = timeout(PATIENCE, told.wait_for(|received| received.len() >= count)).await else {
            panic!("waited for {count} requests, and these came: {:#?}", self.so_far());
        };
        enough.expect("the receiver holds the other end").clone()
    }

    /// How many connections were made to it, whether or not something was said on them.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Received {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body, which has to be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body that is JSON")
    }
}

impl Reply {
    /// 200.
    pub fn ok() -> Self {
        Self::status(200)
    }

    /// A status and nothing else.
    pub fn status(status: u16) -> Self {
        Self { after: Duration::ZERO, status, headers: Vec::new(), manner: Manner::Whole(Vec::new()) }
    }

    /// Sends the caller elsewhere.
    pub fn redirect(status: u16, to: &str) -> Self {
        Self::status(status).header("Location", to)
    }

    /// Bytes that need not be HTTP; the connection is closed then.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { manner: Manner::Raw(bytes.into()), ..Self::ok() }
    }

    /// Closes the connection without a word.
    pub fn close() -> Self {
        Self { manner: Manner::Closing, ..Self::ok() }
    }

    /// Says nothing, for ever.
    pub fn hang() -> Self {
        Self { manner: Manner::Hanging, ..Self::ok() }
    }

    /// Begins with the headers and comes to no end: one more with each pause.
    pub fn drip_headers(pause: Duration) -> Self {
        Self { manner: Manner::DrippingHeaders(pause), ..Self::ok() }
    }

    /// A status, and a body that comes to no end: one byte with each pause.
    pub fn drip_body(pause: Duration) -> Self {
        Self { manner: Manner::DrippingBody(pause), ..Self::ok() }
    }

    /// A status, and a body that comes to no end, as quickly as it is taken.
    pub fn endless_body() -> Self {
        Self { manner: Manner::EndlessBody, ..Self::ok() }
    }

    /// The same with another status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// With a header more.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With this body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.manner = Manner::Whole(body.into());
        self
    }

    /// Only after a while.
    pub fn after(mut self, pause: Duration) -> Self {
        self.after = pause;
        self
    }

    /// Status line and headers, as yet without the empty line.
    fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} Said\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }
}

impl Shared {
    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, mut received: Received) -> Reply {
        self.received.send_modify(|all| {
            received.order = all.len();
            all.push(received.clone());
        });
        let mut replies = self.replies();
        let next = replies.next.pop_front();
        let then = Arc::clone(&replies.then);
        drop(replies);
        next.unwrap_or_else(|| then(&received))
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Whoever still talks is interrupted when this ends.
    let mut talks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst);
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        talks.spawn(async move {
            // Callers go away whenever they like; that is for the test to judge, not for the receiver.
            let Some(tls) = tls else { return talk(stream, number, &shared).await.unwrap_or_default() };
            if let Ok(stream) = tls.accept(stream).await {
                talk(stream, number, &shared).await.unwrap_or_default();
            }
        });
    }
}

/// Takes requests and answers them until the caller or the answer ends the connection.
async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, connection: usize, shared: &Shared) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(received) = read(&mut stream, connection).await? {
        let reply = shared.note(received);
        sleep(reply.after).await;
        let head = reply.head();
        match reply.manner {
            Manner::Whole(body) => {
                let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), &body].concat()).await?;
                stream.flush().await?;
            }
            Manner::DrippingHeaders(pause) => {
                stream.write_all(head.as_bytes()).await?;
                loop {
                    stream.write_all(b"X-More: to come\r\n").await?;
                    stream.flush().await?;
                    sleep(pause).await;
                }
            }
            Manner::DrippingBody(pause) => {
                stream.write_all(format!("{head}\r\n").as_bytes()).await?;
                loop {
                    stream.write_all(b".").await?;
                    stream.flush().await?;
                    sleep(pause).await;
                }
            }
            Manner::EndlessBody => {
                stream.write_all(format!("{head}\r\n").as_bytes()).await?;
                let much = vec![b'.'; 64 << 10];
                loop {
                    stream.write_all(&much).await?;
                }
            }
            Manner::Raw(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Manner::Closing => return Ok(()),
            Manner::Hanging => std::future::pending().await,
        }
    }
    Ok(())
}

/// Reads one request; `None` if no more come.
async fn read(stream: &mut (impl AsyncBufRead + Unpin), connection: usize) -> io::Result<Option<Received>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_until(b'\n', &mut head).await? == 0 {
            return Ok(None);
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.lines().take_while(|line| !line.is_empty());
    let mut words = lines.next().unwrap_or_default().split(' ').map(ToOwned::to_owned);
    let mut received = Received {
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
