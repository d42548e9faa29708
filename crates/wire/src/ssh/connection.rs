//! One connection: who is there, and which channels they open.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use forge::{
    Caller,
    transport::{self, KeyHolder},
};
use russh::{
    Channel, ChannelId, ChannelOpenFailure, Pty,
    keys::{Algorithm, HashAlg, PublicKey},
    server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Shared,
    channel::{self, Visitor},
};

/// The one user name, as with all forges: who somebody is tells their key.
const USER: &str = "git";

/// How much of the name of a user is logged.
const LONGEST_NAME: usize = 32;

/// How a connection stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) proved: bool,
    pub(super) channels: usize,
}

/// One connection.
pub(super) struct Connection {
    shared: Arc<Shared>,
    peer: SocketAddr,
    state: Arc<watch::Sender<State>>,
    leash: CancellationToken,
    visitor: Option<(Caller, Arc<str>)>,
    /// Channels on which nothing has been asked for yet.
    fresh: HashSet<ChannelId>,
    tried: Arc<Mutex<Tried>>,
}

/// What a client has shown to sign in.
#[derive(Default)]
pub(super) struct Tried {
    user: Option<String>,
    keys: usize,
    /// The fingerprint of the last key.
    last_key: Option<String>,
}

impl Tried {
    /// Writes down that nothing of it was right; nothing if the client has not tried to sign in at all.
    pub(super) fn note_failure(&self, peer: SocketAddr) {
        let Some(user) = &self.user else { return };
        metrics::counter!("gable_failed_sign_ins_total", "transport" => "ssh").increment(1);
        // What a client says is quoted and escaped as a text; a name that is longer is none.
        let user: String = user.chars().take(LONGEST_NAME).collect();
        let (address, transport) = (peer.ip().to_canonical(), "ssh");
        let key = self.last_key.as_deref();
        warn!(%address, transport, user = user.as_str(), keys = self.keys, key, "sign-in failed");
    }
}

/// Counts a channel for as long as it is open.
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
        leash: CancellationToken,
    ) -> Self {
        Self { shared, peer, state, leash, visitor: None, fresh: HashSet::new(), tried: Arc::default() }
    }

    /// What the client shows, to be looked at when the connection has ended.
    pub(super) fn tried(&self) -> Arc<Mutex<Tried>> {
        Arc::clone(&self.tried)
    }

    fn note(&self, user: &str, key: Option<&PublicKey>) {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.user = Some(user.to_owned());
        if let Some(key) = key {
            tried.keys += 1;
            tried.last_key = Some(key.fingerprint(HashAlg::Sha256).to_string());
        }
    }

    /// Who holds a key, if somebody does who may come in with it.
    async fn holder(&self, user: &str, key: &PublicKey, algorithm: &Algorithm) -> Option<KeyHolder> {
        // A signature with SHA-1 proves little.
        if user != USER || matches!(algorithm, Algorithm::Rsa { hash: None }) {
            return None;
        }
        let text = key.to_openssh().ok()?;
        // The comment is not part of the key.
        let line: Vec<&str> = text.split(' ').take(2).collect();
        match transport::key_holder(self.shared.transfers.forge(), &line.join(" ")).await {
            Ok(holder) => Some(holder),
            Err(forge::Error::Unauthenticated) => None,
            Err(error) => {
                warn!(address = %self.peer.ip(), key = %key.fingerprint(HashAlg::Sha256), %error, "cannot look up an SSH key");
                None
            }
        }
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    /// Clients ask in this way what they may try.
    async fn auth_none(&mut self, user: &str) -> Result<Auth, russh::Error> {
        self.note(user, None);
        Ok(Auth::reject())
    }

    /// A key is only offered here. That it is known is no proof of anything, so nothing is remembered.
    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        self.note(user, Some(offer.public_key));
        match self.holder(user, offer.public_key, offer.algorithm).await {
            Some(_) => Ok(Auth::Accept),
            None => Ok(Auth::reject()),
        }
    }

    /// The holder of the key has signed with it.
    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let Some(holder) = self.holder(user, key.public_key, key.algorithm).await else {
            return Ok(Auth::reject());
        };
        self.visitor = Some((holder.caller, holder.name.into()));
        Ok(Auth::Accept)
    }

    async fn auth_succeeded(&mut self, _session: &mut Session) -> Result<(), russh::Error> {
        debug!(peer = %self.peer, "signed in over SSH");
        self.state.send_modify(|state| state.proved = true);
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some((caller, name)) = self.visitor.clone() else { return Ok(()) };
        if self.state.borrow().channels >= self.shared.options.channels || self.shared.stopping.is_cancelled() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        self.state.send_modify(|state| state.channels += 1);
        let open = OpenChannel(Arc::clone(&self.state));
        self.fresh.insert(channel.id());
        reply.accept().await;
        let (transfers, address) = (self.shared.transfers.clone(), self.peer.ip());
        let visitor = Visitor { transfers, caller, name, address, leash: self.leash.clone() };
        tokio::spawn(async move {
            visitor.attend(channel).await;
            drop(open);
        });
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), russh::Error> {
        self.fresh.remove(&channel);
        Ok(())
    }

    // Requests are answered here, at once; whoever attends to the channel sees the same requests and acts on them.

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        answer(session, channel, self.fresh.remove(&channel))
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        answer(session, channel, self.fresh.remove(&channel))
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let taken = self.fresh.contains(&channel) && channel::version_of(name, value).is_some();
        answer(session, channel, taken)
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
