//! A client that keeps its connections and never waits for one to become free.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::scene::Ask;

/// After this an answer counts as none.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of a body is kept to be looked at, if it is JSON and if it is not.
const KEPT: (usize, usize) = (4 << 20, 64 << 10);

/// A request as it goes over the wire.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

impl From<&Ask> for Message {
    fn from(ask: &Ask) -> Self {
        let mut headers = vec![("private-token", ask.token.clone())];
        let body = match &ask.body {
            Some((kind, text)) => {
                headers.push(("content-type", (*kind).to_owned()));
                Bytes::from(text.clone())
            }
            None => Bytes::new(),
        };
        Self { method: ask.method, target: format!("/api/v3{}", ask.target), headers, body }
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// When the first byte of it was there.
    pub(crate) first: Instant,
    /// When the first byte of its body was there, and when the last was.
    pub(crate) body: Instant,
    pub(crate) end: Instant,
    /// The beginning of the body.
    pub(crate) start: Vec<u8>,
    pub(crate) last: Option<u8>,
    pub(crate) length: usize,
}

/// A client of one server.
pub(crate) struct Client {
    address: SocketAddr,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn send(&self, message: &Message) -> Result<Answer, String> {
        timeout(PATIENCE, self.exchange(message)).await.unwrap_or_else(|_| Err("no answer within 30 s".into()))
    }

    async fn exchange(&self, message: &Message) -> Result<Answer, String> {
        let (mut sender, response) = loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let was_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match sender.send_request(request(message)?).await {
                Ok(response) => break (sender, response),
                // The server may have closed what was kept; then nothing has been read of the request.
                Err(error) if was_kept && (error.is_closed() || error.is_canceled()) => {}
                Err(error) => return Err(format!("the connection broke: {error}")),
            }
        };
        let first = Instant::now();
        let answer = read(response, first).await?;
        if sender.ready().await.is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        }
        Ok(answer)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let failed = |error: std::io::Error| format!("cannot connect: {error}");
        let stream = TcpStream::connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| format!("cannot connect: {error}"))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn request(message: &Message) -> Result<Request<Full<Bytes>>, String> {
    let mut builder = Request::builder().method(message.method).uri(&message.target).header("host", "localhost");
    for (name, value) in &message.headers {
        builder = builder.header(*name, value);
    }
    let body = Full::new(message.body.clone());
    builder.body(body).map_err(|error| format!("{} is no request: {error}", message.target))
}

async fn read(response: Response<Incoming>, first: Instant) -> Result<Answer, String> {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let (mut start, mut last, mut length, mut begun) = (Vec::new(), None, 0, None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the answer broke off: {error}"))?;
        let Some(piece) = frame.data_ref() else { continue };
        begun = begun.or_else(|| Some(Instant::now()));
        let is_json = matches!(start.first().or(piece.first()), Some(b'[' | b'{'));
        let most = if is_json { KEPT.0 } else { KEPT.1 };
        start.extend_from_slice(&piece[..piece.len().min(most - start.len())]);
        last = piece.last().copied().or(last);
        length += piece.len();
    }
    let end = Instant::now();
    Ok(Answer { status, first, body: begun.unwrap_or(end), end, start, last, length })
}
