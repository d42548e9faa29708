//! Accepts HTTP connections and shuts down gracefully.

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

use api::{HttpService, PublicEndpoint, TrustedProxies};
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
use model::addresses::client_network;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::slow_clients::{TimeoutBody, TimeoutStream};

/// The maximum number of concurrent connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 2048;
/// The time for running requests to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of request headers; larger ones get status 431.
const MAX_HEADER_SIZE: usize = 64 << 10;
/// The maximum number of unsent bytes that the kernel buffers per connection.
const MAX_UNSENT_BYTES: u32 = 128 << 10;
/// The response to a client with too many open connections.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 10\r\n\
    X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
    Content-Length: 12\r\nConnection: close\r\n\r\nRetry later\n";

/// The options of a listener.
#[derive(Clone)]
pub(crate) struct Options {
    /// The timeout for clients that send or receive nothing.
    pub(crate) client_timeout: Duration,
    /// The maximum number of connections per address; `None` disables the limit.
    pub(crate) max_per_address: Option<usize>,
    /// Proxies, whose connections are not limited because they come from many clients.
    pub(crate) trusted_proxies: TrustedProxies,
    /// Accepts TLS connections; `None` for plain HTTP.
    pub(crate) tls: Option<TlsAcceptor>,
}

/// Handles the requests of a listener.
pub(crate) trait RequestHandler: Clone + Send + Sync + 'static {
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;
}

impl RequestHandler for HttpService {
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send {
        HttpService::handle(self, request)
    }
}

/// Serves connections until `stop` completes, then waits for running requests.
pub(crate) async fn serve(
    listener: TcpListener,
    handler: impl RequestHandler,
    options: Options,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let server = Arc::new(ConnectionServer { http: http(&options), options, handler });
    let mut stop = std::pin::pin!(stop);
    let connection_slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let counts = ConnectionCounts::default();
    loop {
        let accepted = async {
            let slot = Arc::clone(&connection_slots).acquire_owned().await;
            listener.accept().await.map(|accepted| (accepted, slot))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let ((stream, peer), slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually too many open files, which may pass.
                warn!(%error, "cannot accept a connection; if there are too many open files, raise the limit (LimitNOFILE)");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(counted) = counts.try_count(peer.ip(), &server.options) else {
            metrics::counter!("gable_limited_requests_total", "kind" => "connections").increment(1);
            debug!(%peer, "too many connections from this address");
            if server.options.tls.is_none() {
                // Best effort: not worth waiting for.
                let _ = stream.try_write(TOO_MANY_CONNECTIONS);
            }
            continue;
        };
        let (server, watcher) = (Arc::clone(&server), graceful.watcher());
        tokio::spawn(async move {
            server.serve_connection(stream, peer, watcher).await;
            drop((slot, counted));
        });
    }
    drop(listener);
    info!("stopping; waiting for running requests");
    if timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await.is_err() {
        warn!("some requests were still running after {} seconds", SHUTDOWN_TIMEOUT.as_secs());
    }
}

fn http(options: &Options) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // Also applies to idle keep-alive connections: slightly longer than proxies keep theirs.
        .header_read_timeout(options.client_timeout + options.client_timeout / 4)
        .max_header_size(MAX_HEADER_SIZE)
        // The part of a response that is buffered for a client that does not read.
        .max_buf_size(MAX_HEADER_SIZE)
        // Responses are small: one copy is cheaper than a vectored write.
        .writev(false);
    http
}

/// The state that all connections share.
struct ConnectionServer<D> {
    http: http1::Builder,
    options: Options,
    handler: D,
}

impl<D: RequestHandler> ConnectionServer<D> {
    async fn serve_connection(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        let _ = stream.set_nodelay(true);
        // A client that acknowledges nothing for this long is disconnected.
        let write_timeout = self.options.client_timeout + self.options.client_timeout / 2;
        let timeout_ms = u32::try_from(write_timeout.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, timeout_ms);
        // Otherwise the kernel buffers megabytes, and a client that reads slowly but steadily appears to be stalled while
        // they are sent.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES);
        let stream = TimeoutStream::new(stream, write_timeout);
        match &self.options.tls {
            None => self.serve_http(stream, peer, false, watcher).await,
            Some(tls) => match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_http(stream, peer, true, watcher).await,
                Ok(Err(error)) => debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => debug!(%peer, "TLS handshake timed out"),
            },
        }
    }

    async fn serve_http<S>(&self, stream: S, peer: SocketAddr, secure: bool, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let request_received = Arc::new(AtomicBool::new(false));
        let (handler, client_timeout, on_request) =
            (self.handler.clone(), self.options.client_timeout, Arc::clone(&request_received));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            on_request.store(true, Ordering::Relaxed);
            let handler = handler.clone();
            let expects_continue =
                request.headers().get(header::EXPECT).is_some_and(|value| value.as_bytes().starts_with(b"100-"));
            let mut request = request.map(|body| {
                if body.is_end_stream() {
                    Body::empty()
                } else {
                    Body::new(TimeoutBody::new(body, client_timeout, expects_continue))
                }
            });
            request.extensions_mut().insert(ConnectInfo(peer));
            if secure {
                request.extensions_mut().insert(PublicEndpoint { secure, host: None });
            }
            async move { Ok::<_, Infallible>(handler.handle(request).await) }
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(watcher.watch(connection));
        // A new connection should send a request soon, so the first one has a shorter timeout.
        let mut first_request_timeout = std::pin::pin!(sleep(client_timeout / 2));
        let ended = poll_fn(|context| {
            if !request_received.load(Ordering::Relaxed) && first_request_timeout.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            connection.as_mut().poll(context).map(Some)
        });
        match ended.await {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%peer, %error, "connection error"),
            None => debug!(%peer, "no request received in time"),
        }
    }
}

/// The number of connections by client network.
#[derive(Clone, Default)]
struct ConnectionCounts(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A counted connection; the count is decremented when it is dropped.
struct CountedConnection {
    counts: ConnectionCounts,
    address: Option<IpAddr>,
}

impl ConnectionCounts {
    /// Counts a connection; returns `None` if its address has reached the limit. Loopback addresses and trusted proxies are
    /// not counted, because they stand for many clients.
    fn try_count(&self, address: IpAddr, options: &Options) -> Option<CountedConnection> {
        let address = address.to_canonical();
        let max =
            options.max_per_address.filter(|_| !address.is_loopback() && !options.trusted_proxies.trusts(address));
        let Some(max) = max else { return Some(CountedConnection { counts: self.clone(), address: None }) };
        let address = client_network(address);
        let mut lock = self.lock();
        let count = lock.entry(address).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        drop(lock);
        Some(CountedConnection { counts: self.clone(), address: Some(address) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut lock = self.counts.lock();
        if let Some(count) = lock.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                lock.remove(&address);
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
            client_timeout: Duration::from_secs(1),
            max_per_address: Some(2),
            trusted_proxies: TrustedProxies::from_iter([proxy]),
            tls: None,
        };
        let counts = ConnectionCounts::default();
        let try_count = |text: &str| counts.try_count(text.parse().expect("an address"), &options);
        let (one, two) = (try_count("2001:db8::1").expect("free"), try_count("2001:db8::2").expect("free"));
        assert!(try_count("2001:db8::3").is_none());
        let other = try_count("2001:db8:0:1::1").expect("another network");
        let many: Vec<_> = ["127.0.0.1", "198.51.100.7", "::ffff:198.51.100.7"].repeat(5);
        let many: Vec<_> = many.into_iter().map(|address| try_count(address).expect("not counted")).collect();
        drop(one);
        let again = try_count("2001:db8::3").expect("free again");
        drop((two, other, many, again));
        assert!(counts.lock().is_empty());
    }
}
