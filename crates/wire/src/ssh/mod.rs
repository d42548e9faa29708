//! Git over SSH: public keys only, three commands only.

mod channel;
mod command;
mod connection;
mod gate;
pub mod host_key;
mod leash;
mod places;

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    sync::{Arc, PoisonError},
    time::Duration,
};

use russh::{MethodKind, MethodSet, SshId, compression, server};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::transfers::Transfers;
use connection::{Connection, State};
use gate::Gate;
pub use host_key::HostKey;
use leash::Leashed;
pub use places::Places;
use places::{Counter, Place};

/// How long a connection stays after its last channel when the server stops: its last words are still on their way.
const PARTING: Duration = Duration::from_millis(500);

/// How the SSH server behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many may be connected at once.
    pub places: Places,
    /// How long somebody may take to prove who they are.
    pub handshake: Duration,
    /// How many connections a minute one address may make; `None` is without limit.
    pub connections_per_minute: Option<NonZeroU32>,
    /// How many connections a minute of one address may end without a proof; `None` is without limit.
    pub failures_per_minute: Option<NonZeroU32>,
    /// How many keys somebody may try.
    pub attempts: usize,
    /// How many channels one connection may have open at once.
    pub channels: usize,
    /// How long a connection may stay without any channel.
    pub idle: Duration,
    /// How long sessions may go on once the server is told to stop.
    pub grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            places: Places { connections: 1_000, strangers: 100, strangers_per_address: 20 },
            handshake: Duration::from_secs(30),
            connections_per_minute: None,
            failures_per_minute: None,
            attempts: 6,
            channels: 10,
            idle: Duration::from_secs(5 * 60),
            grace: Duration::from_secs(20),
        }
    }
}

/// What all connections share.
struct Shared {
    transfers: Transfers,
    options: Options,
    config: Arc<server::Config>,
    counter: Counter,
    gate: Gate,
    /// Nothing new is begun.
    stopping: CancellationToken,
    /// Whatever goes on is cut.
    stopped: CancellationToken,
}

/// Serves until it is told to stop; what goes on then gets a moment to end.
pub async fn serve(
    listener: TcpListener,
    host_key: HostKey,
    transfers: Transfers,
    options: Options,
    stop: impl Future<Output = ()>,
) {
    let shared = Arc::new(Shared {
        config: Arc::new(config(host_key, &transfers, &options)),
        counter: Counter::new(options.places),
        gate: Gate::new(&options),
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
                Ok((stream, peer)) => {
                    let place = if shared.gate.admits(peer.ip()) { shared.counter.take(peer.ip()) } else { None };
                    if let Some(place) = place {
                        connections.spawn(attend(Arc::clone(&shared), stream, peer, place));
                    } else {
                        metrics::counter!("gable_limited_requests_total", "kind" => "ssh").increment(1);
                        debug!(%peer, "no place for another SSH connection");
                    }
                }
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
    if timeout(shared.options.grace, ended).await.is_err() {
        shared.stopped.cancel();
        while connections.join_next().await.is_some() {}
    }
}

fn config(host_key: HostKey, transfers: &Transfers, options: &Options) -> server::Config {
    let mut config = server::Config {
        server_id: SshId::Standard("SSH-2.0-Gable".into()),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        // Which keys are known is no secret: whoever has the public half may ask. It only keeps guessing slow.
        auth_rejection_time: Duration::from_millis(100),
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key.0],
        // Clients begin by asking what they may try, which counts, too.
        max_auth_attempts: options.attempts + 1,
        // A pack may be long in the making on either side.
        inactivity_timeout: Some(transfers.limits().quiet + Duration::from_secs(60)),
        keepalive_interval: Some(Duration::from_secs(60)),
        window_size: 1 << 20,
        channel_buffer_size: 64,
        nodelay: true,
        ..server::Config::default()
    };
    // Packs are compressed already.
    config.preferred.compression = vec![compression::NONE].into();
    config
}

/// Attends to one connection until it ends.
async fn attend(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr, mut place: Place) {
    let begun = Instant::now();
    let leash = shared.stopped.child_token();
    let _cut_at_the_end = leash.clone().drop_guard();
    let state = Arc::new(watch::Sender::new(State::default()));
    let mut seen = state.subscribe();
    let connection = Connection::new(Arc::clone(&shared), peer, state, leash.clone());
    let tried = connection.tried();
    let _ = stream.set_nodelay(true);
    let starting = server::run_stream(Arc::clone(&shared.config), Leashed::new(stream, leash.clone()), connection);
    let started = tokio::select! {
        started = timeout(shared.options.handshake, starting) => started,
        () = shared.stopping.cancelled() => return,
    };
    let mut session = match started {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => {
            shared.gate.failed(peer.ip());
            return debug!(%peer, "an SSH connection did not begin: {error}");
        }
        Err(_) => {
            shared.gate.failed(peer.ip());
            return debug!(%peer, "an SSH connection did not begin in time");
        }
    };
    let (mut strange, mut stopping) = (true, false);
    let mut quiet_since = Instant::now();
    loop {
        let State { proved, channels } = *seen.borrow_and_update();
        if proved && strange {
            place.proved();
            strange = false;
        }
        let patience = match (strange, stopping) {
            (_, true) => quiet_since + PARTING,
            (true, false) => begun + shared.options.handshake,
            (false, false) => quiet_since + shared.options.idle,
        };
        tokio::select! {
            ended = &mut session => {
                if let Err(error) = ended {
                    debug!(%peer, "an SSH connection ended: {error}");
                }
                break;
            }
            _ = seen.changed() => quiet_since = Instant::now(),
            () = sleep_until(patience), if channels == 0 => leash.cancel(),
            () = shared.stopping.cancelled(), if !stopping => stopping = true,
            () = leash.cancelled() => {}
        }
        if leash.is_cancelled() {
            // Whatever the library is doing, it notices as soon as it reads or writes.
            let _ = timeout(Duration::from_secs(1), &mut session).await;
            break;
        }
    }
    if strange && !seen.borrow().proved && !shared.stopping.is_cancelled() {
        shared.gate.failed(peer.ip());
        tried.lock().unwrap_or_else(PoisonError::into_inner).note_failure(peer);
    }
    // Channels end with their connection; what they have started is gone when this returns.
    leash.cancel();
    let _ = timeout(Duration::from_secs(5), seen.wait_for(|state| state.channels == 0)).await;
}
