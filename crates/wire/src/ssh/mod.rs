//! Git over SSH: public keys only, three commands only.

mod cancellable_stream;
mod channel;
mod command;
mod connection;
mod connection_limits;
mod connection_rate;
mod fetch;
pub mod host_key;
mod proxy_header;
mod request_reader;

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    sync::{Arc, PoisonError},
    time::Duration,
};

use russh::{MethodKind, MethodSet, SshId, compression, server};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::transfers::Transfers;
use cancellable_stream::CancellableStream;
use connection::{Connection, State};
pub use connection_limits::ConnectionLimits;
use connection_limits::{ConnectionCounter, ConnectionPermit};
use connection_rate::ConnectionRateLimiter;
pub use host_key::HostKey;
pub use proxy_header::ProxyFilter;

/// How long a connection stays open after its last channel at shutdown, so that buffered output is sent.
const DRAIN_DELAY: Duration = Duration::from_millis(500);

/// Options of the SSH server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The maximum numbers of concurrent connections.
    pub connection_limits: ConnectionLimits,
    /// How long a client may take to authenticate.
    pub handshake_timeout: Duration,
    /// The maximum number of connections per minute of a client network; `None` is unlimited.
    pub connections_per_minute: Option<NonZeroU32>,
    /// The maximum number of connections per minute of a client network that end without authentication; `None` is unlimited.
    pub failures_per_minute: Option<NonZeroU32>,
    /// The maximum number of keys a client may try.
    pub max_auth_attempts: usize,
    /// The maximum number of open channels of a connection.
    pub max_channels: usize,
    /// How long a connection may stay open without a channel.
    pub idle_timeout: Duration,
    /// How long sessions may continue at shutdown.
    pub shutdown_timeout: Duration,
    /// The proxies that may tell the address of the client with the PROXY protocol.
    pub trusted_proxies: ProxyFilter,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connection_limits: ConnectionLimits { total: 1_000, unauthenticated: 100, unauthenticated_per_address: 20 },
            handshake_timeout: Duration::from_secs(30),
            connections_per_minute: None,
            failures_per_minute: None,
            max_auth_attempts: 6,
            max_channels: 10,
            idle_timeout: Duration::from_secs(5 * 60),
            shutdown_timeout: Duration::from_secs(20),
            trusted_proxies: ProxyFilter::default(),
        }
    }
}

/// State shared by all connections.
struct Shared {
    transfers: Transfers,
    options: Options,
    config: Arc<server::Config>,
    counter: ConnectionCounter,
    connection_rate: ConnectionRateLimiter,
    /// Limits the connections of trusted proxies whose header is being read.
    header_slots: Arc<Semaphore>,
    /// Cancelled when no new connections and channels are accepted.
    stopping: CancellationToken,
    /// Cancelled when all connections are to be closed.
    stopped: CancellationToken,
}

/// Serves connections until `stop` completes; then waits for open sessions up to the shutdown timeout.
pub async fn serve(
    listener: TcpListener,
    host_key: HostKey,
    transfers: Transfers,
    options: Options,
    stop: impl Future<Output = ()>,
) {
    let shared = Arc::new(Shared {
        config: Arc::new(config(host_key, &transfers, &options)),
        counter: ConnectionCounter::new(options.connection_limits),
        connection_rate: ConnectionRateLimiter::new(&options),
        header_slots: Arc::new(Semaphore::new(options.connection_limits.unauthenticated)),
        transfers,
        options,
        stopping: CancellationToken::new(),
        stopped: CancellationToken::new(),
    });
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => begin(&shared, &mut connections, stream, peer),
                Err(error) => {
                    // Most likely there are too many open files: some will be closed.
                    warn!(%error, "cannot accept an SSH connection; if there are too many open files, raise the limit (LimitNOFILE)");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    shared.stopping.cancel();
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(shared.options.shutdown_timeout, ended).await.is_err() {
        shared.stopped.cancel();
        while connections.join_next().await.is_some() {}
    }
}

/// Starts to serve a connection. One of a trusted proxy counts for the client that its header names.
fn begin(shared: &Arc<Shared>, connections: &mut JoinSet<()>, stream: TcpStream, peer: SocketAddr) {
    if shared.options.trusted_proxies.trusts(peer.ip()) {
        match Arc::clone(&shared.header_slots).try_acquire_owned() {
            Ok(slot) => drop(connections.spawn(serve_proxied(Arc::clone(shared), stream, peer, slot))),
            Err(_) => record_refusal(peer),
        }
    } else if let Some(permit) = admit(shared, peer) {
        connections.spawn(serve_connection(Arc::clone(shared), stream, peer, permit));
    }
}

/// Returns a permit for a connection, unless a limit is reached.
fn admit(shared: &Shared, peer: SocketAddr) -> Option<ConnectionPermit> {
    let admitted = shared.connection_rate.admits(peer.ip()).then(|| shared.counter.try_acquire(peer.ip())).flatten();
    if admitted.is_none() {
        record_refusal(peer);
    }
    admitted
}

fn record_refusal(peer: SocketAddr) {
    metrics::counter!("gable_limited_requests_total", "kind" => "ssh").increment(1);
    debug!(%peer, "SSH connection refused: limit reached");
}

/// Reads the header of a trusted proxy, and serves the connection.
async fn serve_proxied(shared: Arc<Shared>, mut stream: TcpStream, proxy: SocketAddr, slot: OwnedSemaphorePermit) {
    let read = tokio::select! {
        read = proxy_header::read(&mut stream) => read,
        () = shared.stopping.cancelled() => return,
    };
    drop(slot);
    let peer = match read {
        Ok(client) => client.unwrap_or(proxy),
        Err(error) => return debug!(%proxy, %error, "SSH connection closed: the PROXY header cannot be used"),
    };
    if let Some(permit) = admit(&shared, peer) {
        serve_connection(shared, stream, peer, permit).await;
    }
}

fn config(host_key: HostKey, transfers: &Transfers, options: &Options) -> server::Config {
    let mut config = server::Config {
        server_id: SshId::Standard("SSH-2.0-Gable".into()),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        // Only slows down guessing: which keys are known is no secret, since any client may offer a public key.
        auth_rejection_time: Duration::from_millis(100),
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key.0],
        // The initial query of the available methods counts as an attempt.
        max_auth_attempts: options.max_auth_attempts + 1,
        // Creating a pack may take long on either side.
        inactivity_timeout: Some(transfers.limits().read_timeout + Duration::from_secs(60)),
        keepalive_interval: Some(Duration::from_secs(60)),
        window_size: 1 << 20,
        channel_buffer_size: 64,
        nodelay: true,
        ..server::Config::default()
    };
    // Packs are already compressed.
    config.preferred.compression = vec![compression::NONE].into();
    config
}

/// Serves one connection until it ends.
async fn serve_connection(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr, mut permit: ConnectionPermit) {
    let started_at = Instant::now();
    let cancel = shared.stopped.child_token();
    let _cancel_on_return = cancel.clone().drop_guard();
    let state = Arc::new(watch::Sender::new(State::default()));
    let mut state_rx = state.subscribe();
    let connection = Connection::new(Arc::clone(&shared), peer, state, cancel.clone());
    let auth_attempts = connection.auth_attempts();
    let _ = stream.set_nodelay(true);
    let starting =
        server::run_stream(Arc::clone(&shared.config), CancellableStream::new(stream, cancel.clone()), connection);
    let started = tokio::select! {
        started = timeout(shared.options.handshake_timeout, starting) => started,
        () = shared.stopping.cancelled() => return,
    };
    let mut session = match started {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => {
            shared.connection_rate.record_failure(peer.ip());
            return debug!(%peer, "SSH handshake failed: {error}");
        }
        Err(_) => {
            shared.connection_rate.record_failure(peer.ip());
            return debug!(%peer, "SSH handshake timed out");
        }
    };
    let (mut is_authenticated, mut stopping) = (false, false);
    let mut idle_since = Instant::now();
    loop {
        let State { authenticated, channels } = *state_rx.borrow_and_update();
        if authenticated && !is_authenticated {
            permit.mark_authenticated();
            is_authenticated = true;
        }
        let deadline = match (is_authenticated, stopping) {
            (_, true) => idle_since + DRAIN_DELAY,
            (false, false) => started_at + shared.options.handshake_timeout,
            (true, false) => idle_since + shared.options.idle_timeout,
        };
        tokio::select! {
            ended = &mut session => {
                if let Err(error) = ended {
                    debug!(%peer, "SSH connection closed: {error}");
                }
                break;
            }
            _ = state_rx.changed() => idle_since = Instant::now(),
            () = sleep_until(deadline), if channels == 0 => cancel.cancel(),
            () = shared.stopping.cancelled(), if !stopping => stopping = true,
            () = cancel.cancelled() => {}
        }
        if cancel.is_cancelled() {
            // The library notices the cancellation when it next reads or writes.
            let _ = timeout(Duration::from_secs(1), &mut session).await;
            break;
        }
    }
    if !is_authenticated && !state_rx.borrow().authenticated && !shared.stopping.is_cancelled() {
        let auth_attempts = auth_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if !auth_attempts.are_undecided() {
            shared.connection_rate.record_failure(peer.ip());
            auth_attempts.log_failure(peer);
        }
    }
    // Channels end with their connection; waits until their processes have been dropped.
    cancel.cancel();
    let _ = timeout(Duration::from_secs(5), state_rx.wait_for(|state| state.channels == 0)).await;
}
