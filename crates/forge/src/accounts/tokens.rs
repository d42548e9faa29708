//! Personal access tokens: the secret is returned once and stored as a digest.

use std::{collections::HashMap, sync::Mutex};

use jiff::{SignedDuration, civil::Date, tz::TimeZone};
use model::{
    Page, Scope, Slice, Time, Token, TokenId, UserId, Violations,
    tokens::{Secret, TokenFilter, check_name},
};
use store::tokens::NewToken;

use crate::{
    Ability, BlockingContext, Caller, Error, Forge, ReadTx, Result, Unvalidated, WriteTx, caller::PasswordHash, users,
};

const RESOURCE: &str = "Personal Access Token";
/// How far the stored time of the last use of a token may lag behind.
const LAST_USE_PRECISION: SignedDuration = SignedDuration::from_mins(10);
/// The default and maximum lifetime of a token created over the API.
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The maximum number of active tokens per user, not counting sessions.
const MAX_ACTIVE: i64 = 200;
/// The maximum number of revoked and expired tokens kept per user, not counting sessions.
const MAX_INACTIVE: i64 = 200;

/// A request to create a token.
#[derive(Clone)]
pub struct TokenRequest {
    /// The name of the token.
    pub name: String,
    /// The scopes it grants.
    pub scopes: Vec<Scope>,
    /// The first day on which it is invalid; the latest possible one if absent.
    pub expires_on: Option<Date>,
    /// The password of the caller; required if a session authenticates the request.
    pub current_password: Option<String>,
}

/// Creates a token for a user by name, for the command line.
pub fn create(
    tx: &mut WriteTx<'_>,
    username: &str,
    name: &str,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<(Token, Secret)> {
    tx.authorize(Ability::AdministerUsers)?;
    check_name(name)?;
    if expires_at.is_some_and(|end| end <= tx.now()) {
        return Err(Violations::one("expires_at", "must be in the future").into());
    }
    let user = users::find_by_username(tx.read(), username)?;
    insert_limited(tx, user.id, name, scopes, expires_at)
}

/// A request for a token with a verified password, if it needs one.
#[derive(Clone)]
pub struct PreparedTokenRequest {
    request: Unvalidated<TokenRequest>,
    verified_password: Option<PasswordHash>,
}

/// Verifies the password of a request, if it needs one, before the transaction.
pub fn prepare(cx: &mut BlockingContext<'_>, request: &Unvalidated<TokenRequest>) -> Result<PreparedTokenRequest> {
    let session = cx.read(|tx| {
        tx.current_user_id(Ability::ChangeOwnAccount)?;
        let Some(user) = session_user(tx)? else { return Ok(None) };
        store::users::password_hash(tx.db(), user)?.map(Some).ok_or(Error::Unauthenticated)
    })?;
    let password = request.validate()?.current_password.clone();
    let verified_password = match (session, password) {
        (Some(hash), Some(password)) => {
            if !cx.password_hasher().verify(&password, Some(&hash)) {
                return Err(wrong_password());
            }
            Some(PasswordHash(hash))
        }
        _ => None,
    };
    Ok(PreparedTokenRequest { request: request.clone(), verified_password })
}

impl PreparedTokenRequest {
    /// Wraps a request that comes without a password.
    pub fn without_password(request: Unvalidated<TokenRequest>) -> Self {
        Self { request, verified_password: None }
    }
}

fn wrong_password() -> Error {
    Violations::one("current_password", "is invalid").into()
}

/// Returns the token that authenticates the request.
fn presented_token(tx: &mut ReadTx<'_>) -> Result<Option<Token>> {
    let presented = tx.token();
    Ok(presented.map(|id| store::tokens::by_id(tx.db(), id)).transpose()?.flatten())
}

/// Returns the user of the session, over the API or in the web interface, that authenticates the request.
fn session_user(tx: &mut ReadTx<'_>) -> Result<Option<UserId>> {
    if tx.web_session().is_some() {
        return tx.user_id().map(Some);
    }
    Ok(presented_token(tx)?.filter(|token| token.session).map(|token| token.user_id))
}

/// Creates a token for the caller.
pub fn create_own(tx: &mut WriteTx<'_>, prepared: &PreparedTokenRequest) -> Result<(Token, Secret)> {
    // The ability requires the scope `api`, which includes all others, so the new token cannot grant more than its creator has.
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    insert_requested(tx, me, prepared)
}

/// Creates a token for another user.
pub fn create_for(tx: &mut WriteTx<'_>, user: UserId, prepared: &PreparedTokenRequest) -> Result<(Token, Secret)> {
    tx.authorize(Ability::AdministerUsers)?;
    prepared.request.validate()?;
    let user = users::find(tx.read(), user)?;
    insert_requested(tx, user.id, prepared)
}

fn insert_requested(tx: &mut WriteTx<'_>, user: UserId, prepared: &PreparedTokenRequest) -> Result<(Token, Secret)> {
    let TokenRequest { name, scopes, expires_on, .. } = prepared.request.validate()?;
    let (now, latest) = (tx.now(), tx.now() + MAX_LIFETIME);
    let limit = prepared.expiry_limit(tx)?;
    let mut violations = check_name(name).err().unwrap_or_default();
    violations.require(!scopes.is_empty(), "scopes", "can't be blank");
    let end = match expires_on {
        None => limit.map_or(latest, |limit| limit.min(latest)),
        Some(day) => {
            // A day that is beyond `Time::MAX` is beyond every limit.
            let end = day.to_zoned(TimeZone::UTC).map_or(Time::MAX, |day| day.timestamp());
            violations.require(end > now, "expires_at", "must be in the future");
            violations.require(end <= latest, "expires_at", "must be within 365 days from now");
            if let Some(limit) = limit.filter(|limit| *limit < end.min(latest)) {
                let text = format!("must not be later than the expiry of the token that creates it ({limit})");
                violations.add("expires_at", text);
            }
            end
        }
    };
    violations.into_result()?;
    insert_limited(tx, user, name, scopes, Some(end))
}

impl PreparedTokenRequest {
    /// Returns the latest expiry that the presented token allows for a new one. A stolen token must not extend its own life: a
    /// personal token creates none that outlives it, and a session creates none without the password.
    fn expiry_limit(&self, tx: &mut WriteTx<'_>) -> Result<Option<Time>> {
        let Some(user) = session_user(tx.read())? else {
            return Ok(presented_token(tx.read())?.and_then(|token| token.expires_at));
        };
        if self.request.validate()?.current_password.is_none() {
            return Err(Violations::one("current_password", "can't be blank").into());
        }
        // The password may have changed since it was verified.
        let current = store::users::password_hash(tx.db(), user)?;
        if self.verified_password.as_ref().is_none_or(|verified| current.as_ref() != Some(&verified.0)) {
            return Err(wrong_password());
        }
        Ok(None)
    }
}

/// Inserts a personal token; fails if the user has reached the maximum number.
fn insert_limited(
    tx: &mut WriteTx<'_>,
    user: UserId,
    name: &str,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<(Token, Secret)> {
    let now = tx.now();
    // The row lock keeps concurrent requests from adding tokens between the count and the insert.
    store::users::by_id_for_update(tx.db(), user)?.ok_or(Error::not_found("User"))?;
    if store::tokens::count_active(tx.db(), user, now)? >= MAX_ACTIVE {
        let text = format!("Maximum number of active tokens ({MAX_ACTIVE}) reached");
        return Err(Violations::one("base", text).into());
    }
    store::tokens::delete_old_inactive(tx.db(), user, MAX_INACTIVE, now)?;
    let secret = tx.shared().secrets.token();
    let token = insert(tx, user, name, &secret, scopes, expires_at)?;
    Ok((token, secret))
}

/// Lists the tokens of a user, newest first.
pub fn list(tx: &mut ReadTx<'_>, username: &str) -> Result<Vec<Token>> {
    tx.authorize(Ability::AdministerUsers)?;
    let user = users::find_by_username(tx, username)?;
    Ok(store::tokens::all_of(tx.db(), user.id)?)
}

/// Lists tokens, newest first: the caller's own; for administrators those of a given user or of all users.
pub fn search(
    tx: &mut ReadTx<'_>,
    filter: &Unvalidated<TokenFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Token>> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    let (mut filter, page, now) = (*filter.validate()?, *page.validate()?, tx.now());
    match filter.user {
        Some(user) if user == me => {}
        Some(user) => {
            tx.authorize(Ability::AdministerUsers)?;
            users::find(tx, user)?;
        }
        None if tx.actor().is_admin() => {}
        None => filter.user = Some(me),
    }
    Ok(store::tokens::list(tx.db(), &filter, page, now)?)
}

/// Returns a token of the caller, or for administrators of any user.
pub fn get(tx: &mut ReadTx<'_>, id: TokenId) -> Result<Token> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    let admin = tx.actor().is_admin();
    let found = store::tokens::by_id(tx.db(), id)?;
    found.filter(|token| admin || token.user_id == me).ok_or(Error::not_found(RESOURCE))
}

/// Returns the token that authenticates the request, whatever its scopes.
pub fn current(tx: &mut ReadTx<'_>) -> Result<Token> {
    tx.current_user_id(Ability::ReadOwnAccount)?;
    let presented = tx.token().ok_or(Error::Unauthenticated)?;
    store::tokens::by_id(tx.db(), presented)?.ok_or(Error::not_found(RESOURCE))
}

/// Revokes a token of the caller, or for administrators of any user.
pub fn revoke_by_id(tx: &mut WriteTx<'_>, id: TokenId) -> Result<()> {
    let token = get(tx.read(), id)?;
    revoke_found(tx, &token)
}

/// Revokes a token of the caller.
pub fn revoke_own(tx: &mut WriteTx<'_>, id: TokenId) -> Result<()> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    let found = store::tokens::by_id(tx.db(), id)?.filter(|token| token.user_id == me);
    revoke_found(tx, &found.ok_or(Error::not_found(RESOURCE))?)
}

/// Revokes the token that authenticates the request, whatever its scopes.
pub fn revoke_current(tx: &mut WriteTx<'_>) -> Result<()> {
    let token = current(tx.read())?;
    revoke_found(tx, &token)
}

fn revoke_found(tx: &mut WriteTx<'_>, token: &Token) -> Result<()> {
    let now = tx.now();
    if store::tokens::revoke(tx.db(), token.id, now)? { Ok(()) } else { Err(Error::AlreadyRevoked) }
}

/// Revokes a token of any user, for the command line.
pub fn revoke(tx: &mut WriteTx<'_>, id: TokenId) -> Result<()> {
    tx.authorize(Ability::AdministerUsers)?;
    let now = tx.now();
    if store::tokens::revoke(tx.db(), id, now)? { Ok(()) } else { Err(Error::not_found("Token")) }
}

/// Inserts a personal token.
pub(crate) fn insert(
    tx: &mut WriteTx<'_>,
    user_id: UserId,
    name: &str,
    secret: &Secret,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<Token> {
    let now = tx.now();
    let new = NewToken { user_id, name, digest: secret.digest(), scopes, expires_at, session: false };
    Ok(store::tokens::insert(tx.db(), &new, now)?)
}

/// Inserts a session token, which is revoked when the password changes.
pub(crate) fn insert_session(
    tx: &mut WriteTx<'_>,
    user_id: UserId,
    name: &str,
    secret: &Secret,
    end: Time,
) -> Result<Token> {
    let (now, scopes) = (tx.now(), &[Scope::Api]);
    let new = NewToken { user_id, name, digest: secret.digest(), scopes, expires_at: Some(end), session: true };
    Ok(store::tokens::insert(tx.db(), &new, now)?)
}

/// Recent uses of tokens, collected in memory and flushed periodically, because read transactions do not write.
#[derive(Default)]
pub(crate) struct TokenUses(Mutex<HashMap<TokenId, Time>>);

impl TokenUses {
    /// Records the use of a token, unless the stored time is recent enough.
    pub(crate) fn record(&self, token: &Token, now: Time) {
        let stale = token.last_used_at.is_none_or(|last| now.duration_since(last) > LAST_USE_PRECISION);
        // A request that finds the lock taken does not wait; the next use of the token is recorded instead.
        if stale && let Ok(mut uses) = self.0.try_lock() {
            uses.insert(token.id, now);
        }
    }

    /// Returns the uses ordered by ID, so that nodes that store uses of the same tokens lock the rows in the same order.
    fn take(&self) -> Vec<(TokenId, Time)> {
        let uses = std::mem::take(&mut *self.0.lock().expect("nothing panics while holding this"));
        let mut uses: Vec<(TokenId, Time)> = uses.into_iter().collect();
        uses.sort_unstable_by_key(|(id, _)| *id);
        uses
    }
}

/// Writes the recorded uses of tokens to the database.
pub async fn flush_last_uses(forge: &Forge) -> Result<()> {
    let uses = forge.shared().token_uses.take();
    if uses.is_empty() {
        return Ok(());
    }
    forge.write(Caller::system(), move |tx| Ok(store::tokens::set_last_uses(tx.db(), &uses)?)).await
}
