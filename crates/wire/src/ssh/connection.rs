//! One SSH connection: authentication and channels.

use std::{
    collections::HashSet,
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use forge::{
    Caller,
    transport::{self, KeyHolder},
};
use russh::{
    Channel, ChannelId, ChannelOpenFailure, Disconnect, Pty,
    keys::{Algorithm, HashAlg, PublicKey},
    server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Shared,
    channel::{self, ChannelHandler},
};
use crate::messages;

/// The only username; clients are identified by their key.
const USER: &str = "git";

/// The maximum number of characters of a username in the log.
const MAX_LOGGED_NAME: usize = 32;

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) authenticated: bool,
    pub(super) channels: usize,
}

/// The handler of a connection.
pub(super) struct Connection {
    shared: Arc<Shared>,
    peer: SocketAddr,
    state: Arc<watch::Sender<State>>,
    cancel: CancellationToken,
    user: Option<(Caller, Arc<str>)>,
    /// Channels without a request yet.
    unused_channels: HashSet<ChannelId>,
    auth_attempts: Arc<Mutex<AuthAttempts>>,
}

/// The attempts of a client to authenticate.
#[derive(Default)]
pub(super) struct AuthAttempts {
    user: Option<String>,
    keys: usize,
    /// The fingerprint of the last key.
    last_key: Option<String>,
    /// Whether the last lookup of a key failed.
    lookup_failed: bool,
}

impl AuthAttempts {
    /// Returns whether the server could not find out if the client may sign in. Then it has not failed to.
    pub(super) fn are_undecided(&self) -> bool {
        self.lookup_failed
    }

    /// Logs a failed sign-in, if the client has tried to authenticate at all.
    pub(super) fn log_failure(&self, peer: SocketAddr) {
        let Some(user) = &self.user else { return };
        metrics::counter!("gable_failed_sign_ins_total", "transport" => "ssh").increment(1);
        // The name is text from the client: quoted and escaped in the log, and truncated.
        let user: String = user.chars().take(MAX_LOGGED_NAME).collect();
        let (address, transport) = (peer.ip().to_canonical(), "ssh");
        let key = self.last_key.as_deref();
        warn!(%address, transport, user = user.as_str(), keys = self.keys, key, "sign-in failed");
    }
}

/// Whether a key may be used to sign in.
enum KeyLookup {
    Found(KeyHolder),
    Refused,
    /// It could not be found out, for example because the database cannot be reached.
    Failed,
}

/// Counts an open channel until dropped.
pub(super) struct OpenChannel(Arc<watch::Sender<State>>);

impl Drop for OpenChannel {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.channels -= 1);
    }
}

impl Connection {
    pub(super) fn new(
        shared: Arc<Shared>,
        peer: SocketAddr,
        state: Arc<watch::Sender<State>>,
        cancel: CancellationToken,
    ) -> Self {
        Self { shared, peer, state, cancel, user: None, unused_channels: HashSet::new(), auth_attempts: Arc::default() }
    }

    /// Returns the attempts to authenticate, for when the connection has ended.
    pub(super) fn auth_attempts(&self) -> Arc<Mutex<AuthAttempts>> {
        Arc::clone(&self.auth_attempts)
    }

    fn record_attempt(&self, user: &str, key: Option<&PublicKey>) {
        let mut auth_attempts = self.auth_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        auth_attempts.user = Some(user.to_owned());
        if let Some(key) = key {
            auth_attempts.keys += 1;
            auth_attempts.last_key = Some(key.fingerprint(HashAlg::Sha256).to_string());
        }
    }

    /// Looks up the holder of a key.
    async fn look_up(&self, user: &str, key: &PublicKey, algorithm: &Algorithm) -> KeyLookup {
        // SHA-1 signatures are insecure.
        if user != USER || matches!(algorithm, Algorithm::Rsa { hash: None }) {
            return KeyLookup::Refused;
        }
        let Ok(text) = key.to_openssh() else { return KeyLookup::Refused };
        // The comment is not part of the key.
        let line: Vec<&str> = text.split(' ').take(2).collect();
        let found = transport::key_holder(self.shared.transfers.forge(), &line.join(" ")).await;
        let (lookup, error) = match found {
            Ok(holder) => (KeyLookup::Found(holder), None),
            Err(forge::Error::Unauthenticated) => (KeyLookup::Refused, None),
            Err(error) => (KeyLookup::Failed, Some(error)),
        };
        let had_failed = {
            let mut auth_attempts = self.auth_attempts.lock().unwrap_or_else(PoisonError::into_inner);
            mem::replace(&mut auth_attempts.lookup_failed, error.is_some())
        };
        if let Some(error) = error.filter(|_| !had_failed) {
            warn!(address = %self.peer.ip(), key = %key.fingerprint(HashAlg::Sha256), %error, "cannot look up an SSH key");
        }
        lookup
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    /// Clients use this to query the available methods.
    async fn auth_none(&mut self, user: &str) -> Result<Auth, russh::Error> {
        self.record_attempt(user, None);
        Ok(Auth::reject())
    }

    /// The key is only offered and not proven, so the connection is not authenticated yet.
    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        self.record_attempt(user, Some(offer.public_key));
        match self.look_up(user, offer.public_key, offer.algorithm).await {
            // If the lookup has failed, the client goes on to `auth_succeeded`, where it can be told.
            KeyLookup::Found(_) | KeyLookup::Failed => Ok(Auth::Accept),
            KeyLookup::Refused => Ok(Auth::reject()),
        }
    }

    /// The client has proven possession of the key.
    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        match self.look_up(user, key.public_key, key.algorithm).await {
            KeyLookup::Found(holder) => self.user = Some((holder.caller, holder.name.into())),
            // A rejection would be shown as `Permission denied`. Without a user, `auth_succeeded` ends the connection.
            KeyLookup::Failed => {}
            KeyLookup::Refused => return Ok(Auth::reject()),
        }
        Ok(Auth::Accept)
    }

    /// Ends the connection with a reason if the key could not be looked up; no other packet of the client is read then.
    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), russh::Error> {
        if self.user.is_none() {
            return session.disconnect(Disconnect::ServiceNotAvailable, messages::UNAVAILABLE, "");
        }
        debug!(peer = %self.peer, "signed in over SSH");
        self.state.send_modify(|state| state.authenticated = true);
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some((caller, name)) = self.user.clone() else { return Ok(()) };
        if self.state.borrow().channels >= self.shared.options.max_channels || self.shared.stopping.is_cancelled() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        self.state.send_modify(|state| state.channels += 1);
        let open = OpenChannel(Arc::clone(&self.state));
        self.unused_channels.insert(channel.id());
        reply.accept().await;
        let (transfers, address) = (self.shared.transfers.clone(), self.peer.ip());
        let handler = ChannelHandler { transfers, caller, name, address, cancel: self.cancel.clone() };
        tokio::spawn(async move {
            handler.run(channel).await;
            drop(open);
        });
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), russh::Error> {
        self.unused_channels.remove(&channel);
        Ok(())
    }

    // Requests are acknowledged here; the `ChannelHandler` receives the same requests and acts on them.

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        answer(session, channel, self.unused_channels.remove(&channel))
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        answer(session, channel, self.unused_channels.remove(&channel))
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let accepted = self.unused_channels.contains(&channel) && channel::version_from_env(name, value).is_some();
        answer(session, channel, accepted)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        answer(session, channel, false)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        answer(session, channel, false)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single: bool,
        _protocol: &str,
        _cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        answer(session, channel, false)
    }
}

fn answer(session: &mut Session, channel: ChannelId, yes: bool) -> Result<(), russh::Error> {
    if yes { session.channel_success(channel) } else { session.channel_failure(channel) }
}
