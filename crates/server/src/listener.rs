//! Takes connections, and lets them finish when it is time to go.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use api::{Door, Reached, TrustedProxies, neighbourhood};
use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
    http::header,
    response::Response,
};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::pace::{PacedBody, PacedStream};

/// How many connections are served at once; further ones wait to be accepted.
const CONNECTIONS: usize = 2048;
/// How long requests under way may take when the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(30);
/// How long the two sides may take to agree on keys.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How much a client may say before its body; more is answered with 431.
const LONGEST_HEAD: usize = 64 << 10;
/// How much of an answer the system takes ahead of the client.
const UNSENT: u32 = 128 << 10;
/// What a client hears that has too many connections open.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 10\r\n\
    X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
    Content-Length: 12\r\nConnection: close\r\n\r\nRetry later\n";

/// How connections are served.
#[derive(Clone)]
pub(crate) struct Options {
    /// How long a client may keep us waiting.
    pub(crate) patience: Duration,
    /// How many connections one address may have; `None` is without limit.
    pub(crate) per_address: Option<usize>,
    /// Whose connections are not counted by address, because they are those of many.
    pub(crate) trusted_proxies: TrustedProxies,
    /// Speaks TLS, if it is to be spoken.
    pub(crate) tls: Option<TlsAcceptor>,
}

/// Who answers requests.
pub(crate) trait Answers: Clone + Send + Sync + 'static {
    /// Answers one.
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;
}

impl Answers for Door {
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send {
        self.answer(request)
    }
}

/// Serves until told to stop; then answers what is under way.
pub(crate) async fn serve(listener: TcpListener, door: impl Answers, options: Options, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let host = Arc::new(Host { http: http(&options), options, door });
    let mut stop = std::pin::pin!(stop);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let guests = Guests::default();
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            listener.accept().await.map(|accepted| (accepted, place))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let ((stream, peer), place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely too many open files; the next moment may be better.
                warn!(%error, "cannot accept a connection; if there are too many open files, raise the limit (LimitNOFILE)");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(guest) = guests.welcome(peer.ip(), &host.options) else {
            metrics::counter!("gable_limited_requests_total", "kind" => "connections").increment(1);
            debug!(%peer, "no further connection for this address");
            if host.options.tls.is_none() {
                // As far as it fits; nobody waits for somebody who takes all places.
                let _ = stream.try_write(TOO_MANY);
            }
            continue;
        };
        let (host, watcher) = (Arc::clone(&host), graceful.watcher());
        tokio::spawn(async move {
            host.attend(stream, peer, watcher).await;
            drop((place, guest));
        });
    }
    drop(listener);
    info!("stopping: answering what is under way");
    if timeout(DRAIN_TIME, graceful.shutdown()).await.is_err() {
        warn!("some requests were still under way after {} seconds", DRAIN_TIME.as_secs());
    }
}

fn http(options: &Options) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // Also for a connection that is kept open: a little longer than proxies keep theirs.
        .header_read_timeout(options.patience + options.patience / 4)
        .max_header_size(LONGEST_HEAD)
        // As much of an answer waits in memory for a client that does not read, and one piece more.
        .max_buf_size(LONGEST_HEAD)
        // Answers are small: one copy into one buffer is cheaper than telling the kernel of two.
        .writev(false);
    http
}

/// What all connections share.
struct Host<D> {
    http: http1::Builder,
    options: Options,
    door: D,
}

impl<D: Answers> Host<D> {
    async fn attend(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        let _ = stream.set_nodelay(true);
        // Whoever takes nothing of an answer for so long does not keep the place for others.
        let stall = self.options.patience + self.options.patience / 2;
        let millis = u32::try_from(stall.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, millis);
        // Without this the system takes megabytes ahead, and a client that reads slowly but steadily seems to take nothing
        // for as long as these last.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        let stream = PacedStream::new(stream, stall);
        match &self.options.tls {
            None => self.talk(stream, peer, false, watcher).await,
            Some(tls) => match timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.talk(stream, peer, true, watcher).await,
                Ok(Err(error)) => debug!(%peer, %error, "no TLS could be agreed on"),
                Err(_) => debug!(%peer, "TLS was not agreed on in time"),
            },
        }
    }

    async fn talk<S>(&self, stream: S, peer: SocketAddr, secure: bool, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let asked = Arc::new(AtomicBool::new(false));
        let (door, patience, heard) = (self.door.clone(), self.options.patience, Arc::clone(&asked));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            heard.store(true, Ordering::Relaxed);
            let door = door.clone();
            let waits = request.headers().get(header::EXPECT).is_some_and(|what| what.as_bytes().starts_with(b"100-"));
            let mut request = request.map(|body| {
                if body.is_end_stream() { Body::empty() } else { Body::new(PacedBody::new(body, patience, waits)) }
            });
            request.extensions_mut().insert(ConnectInfo(peer));
            if secure {
                request.extensions_mut().insert(Reached { secure, host: None });
            }
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(watcher.watch(connection));
        // Whoever has just come wants something, so the first request has less time than later ones.
        let mut first = std::pin::pin!(sleep(patience / 2));
        let ended = poll_fn(|context| {
            if !asked.load(Ordering::Relaxed) && first.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            connection.as_mut().poll(context).map(Some)
        });
        match ended.await {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%peer, %error, "a connection ended early"),
            None => debug!(%peer, "a connection brought no request"),
        }
    }
}

/// Who is connected, by address.
#[derive(Clone, Default)]
struct Guests(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection; forgotten when it is dropped.
struct Guest {
    guests: Guests,
    address: Option<IpAddr>,
}

impl Guests {
    /// Lets another connection in, unless its address has enough of them. This machine itself and proxies of ours are
    /// not counted: they speak for many.
    fn welcome(&self, address: IpAddr, options: &Options) -> Option<Guest> {
        let address = address.to_canonical();
        let most = options.per_address.filter(|_| !address.is_loopback() && !options.trusted_proxies.trusts(address));
        let Some(most) = most else { return Some(Guest { guests: self.clone(), address: None }) };
        let address = neighbourhood(address);
        let mut here = self.here();
        let count = here.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(here);
        Some(Guest { guests: self.clone(), address: Some(address) })
    }

    fn here(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut here = self.guests.here();
        if let Some(count) = here.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                here.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_connections() {
        let proxy = api::parse_proxy("198.51.100.0/24").expect("a network");
        let options = Options {
            patience: Duration::from_secs(1),
            per_address: Some(2),
            trusted_proxies: TrustedProxies::from_iter([proxy]),
            tls: None,
        };
        let guests = Guests::default();
        let welcome = |text: &str| guests.welcome(text.parse().expect("an address"), &options);
        let (one, two) = (welcome("2001:db8::1").expect("free"), welcome("2001:db8::2").expect("free"));
        assert!(welcome("2001:db8::3").is_none());
        let other = welcome("2001:db8:0:1::1").expect("another network");
        let many: Vec<_> = ["127.0.0.1", "198.51.100.7", "::ffff:198.51.100.7"].repeat(5);
        let many: Vec<_> = many.into_iter().map(|address| welcome(address).expect("not counted")).collect();
        drop(one);
        let again = welcome("2001:db8::3").expect("free again");
        drop((two, other, many, again));
        assert!(guests.here().is_empty());
    }
}
