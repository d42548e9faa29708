//! Sessions of the web interface: the secret is in a cookie, and its digest is stored.

use std::{collections::HashMap, sync::Mutex};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::SignedDuration;
use model::{
    Time, WebSession, WebSessionId,
    tokens::Secret,
    web_sessions::{IDLE_LIFETIME, MAX_LIFETIME},
};

use crate::{
    Ability, Caller, Error, Forge, ReadTx, Result, WriteTx,
    sessions::{self, VerifiedLogin},
};

/// The name of the cookie with the secret of a session, on connections without TLS.
pub const COOKIE: &str = "gable_session";
/// The name of the cookie on connections with TLS; browsers accept it only for this host and over TLS.
pub const SECURE_COOKIE: &str = "__Host-gable_session";

/// The maximum number of sessions per user.
const MAX_SESSIONS: i64 = 50;
/// How far the stored time of the last request of a session may lag behind.
const LAST_USE_PRECISION: SignedDuration = SignedDuration::from_mins(10);

/// Creates a session for a user who has just signed in, and returns its secret.
pub fn create(tx: &mut WriteTx<'_>, login: &VerifiedLogin) -> Result<Secret> {
    let user = sessions::record_sign_in(tx, login)?;
    let mut bytes = [0; 32];
    tx.shared().secrets.fill(&mut bytes);
    let secret = Secret::new(URL_SAFE_NO_PAD.encode(bytes));
    let now = tx.now();
    store::web_sessions::insert(tx.db(), user, &secret.digest(), now)?;
    store::web_sessions::delete_oldest(tx.db(), user, MAX_SESSIONS)?;
    Ok(secret)
}

/// Ends the caller's session that has this secret.
pub fn end(tx: &mut WriteTx<'_>, secret: &Secret) -> Result<()> {
    let user = tx.current_user_id(Ability::ReadOwnAccount)?;
    Ok(store::web_sessions::delete(tx.db(), user, &secret.digest())?)
}

/// A session in the list of its user.
#[derive(Clone, Debug)]
pub struct ListedWebSession {
    /// The session.
    pub session: WebSession,
    /// Whether it authenticates this request.
    pub is_current: bool,
}

/// Lists the caller's sessions that are valid, newest first.
pub fn list_own(tx: &mut ReadTx<'_>) -> Result<Vec<ListedWebSession>> {
    let me = tx.current_user_id(Ability::ReadOwnAccount)?;
    let (now, current) = (tx.now(), tx.web_session());
    let sessions = store::web_sessions::all_of(tx.db(), me)?.into_iter().filter(|session| session.is_active(now));
    let listed = sessions.map(|session| ListedWebSession { is_current: Some(session.id) == current, session });
    Ok(listed.collect())
}

/// Ends one of the caller's sessions.
pub fn end_by_id(tx: &mut WriteTx<'_>, id: WebSessionId) -> Result<()> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    if store::web_sessions::delete_by_id(tx.db(), me, id)? { Ok(()) } else { Err(Error::NotFound(None)) }
}

/// Ends all sessions of the caller, over the API and in the web interface, except the one that authenticates this request.
pub fn end_others(tx: &mut WriteTx<'_>) -> Result<()> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    sessions::end_others(tx, me)
}

/// Deletes sessions that are no longer valid; returns their number.
pub(crate) fn delete_expired(tx: &mut WriteTx<'_>) -> Result<usize> {
    let now = tx.now();
    Ok(store::web_sessions::delete_expired(tx.db(), now - MAX_LIFETIME, now - IDLE_LIFETIME)?)
}

/// Recent requests of sessions, collected in memory and flushed periodically, because read transactions do not write.
#[derive(Default)]
pub(crate) struct WebSessionUses(Mutex<HashMap<WebSessionId, Time>>);

impl WebSessionUses {
    /// Records a request of a session, unless the stored time is recent enough.
    pub(crate) fn record(&self, session: &WebSession, now: Time) {
        let is_stale = now.duration_since(session.last_used_at) > LAST_USE_PRECISION;
        // A request that finds the lock taken does not wait; the next one is recorded instead.
        if is_stale && let Ok(mut uses) = self.0.try_lock() {
            uses.insert(session.id, now);
        }
    }

    /// Returns the requests ordered by session, so that nodes lock the rows of the same sessions in the same order.
    fn take(&self) -> Vec<(WebSessionId, Time)> {
        let uses = std::mem::take(&mut *self.0.lock().expect("nothing panics while holding this"));
        let mut uses: Vec<(WebSessionId, Time)> = uses.into_iter().collect();
        uses.sort_unstable_by_key(|(id, _)| *id);
        uses
    }
}

/// Writes the recorded requests of sessions to the database.
pub async fn flush_last_uses(forge: &Forge) -> Result<()> {
    let uses = forge.shared().web_session_uses.take();
    if uses.is_empty() {
        return Ok(());
    }
    forge
        .write(Caller::system(), move |tx| {
            for (session, at) in &uses {
                store::web_sessions::set_last_used(tx.db(), *session, *at)?;
            }
            Ok(())
        })
        .await
}
