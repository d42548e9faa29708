//! Access tokens: made once, shown once, remembered as digests.

use std::{collections::HashMap, sync::Mutex};

use jiff::{SignedDuration, civil::Date, tz::TimeZone};
use model::{
    Page, Scope, Slice, Time, Token, Violations,
    tokens::{Secret, TokenFilter, check_name},
};
use store::tokens::NewToken;

use crate::{
    Ability, BlockingContext, Caller, Error, Forge, ReadTx, Result, Unvalidated, WriteTx, caller::PasswordHash, users,
};

const WHAT: &str = "Personal Access Token";
/// How far the noted last use of a token may lag behind.
const USE_LAG: SignedDuration = SignedDuration::from_mins(10);
/// How long a token lasts that a user makes over the API, and how long it may last.
const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How many tokens of a user may be active at the same time, sessions apart.
const MOST_ACTIVE: i64 = 200;
/// How many revoked and expired tokens of a user are kept for the record, sessions apart.
const MOST_INACTIVE: i64 = 200;

/// A token that a user asks for.
#[derive(Clone)]
pub struct TokenRequest {
    /// What it is for.
    pub name: String,
    /// What it opens.
    pub scopes: Vec<Scope>,
    /// The first day on which it opens nothing; if absent, it lasts for as long as it may.
    pub expires_on: Option<Date>,
    /// The password of the caller, without which a session creates no token.
    pub current_password: Option<String>,
}

/// Makes a token for the user of this name, for the operator. The secret is shown this once.
pub fn create(
    tx: &mut WriteTx<'_>,
    username: &str,
    name: &str,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<(Token, Secret)> {
    tx.may(Ability::AdministerUsers)?;
    check_name(name)?;
    if expires_at.is_some_and(|end| end <= tx.now()) {
        return Err(Violations::one("expires_at", "must be in the future").into());
    }
    let user = users::named(tx, username)?;
    insert_limited(tx, user.id, name, scopes, expires_at)
}

/// A request for a token whose password was right, if it needs one.
#[derive(Clone)]
pub struct ReadyRequest {
    request: Unvalidated<TokenRequest>,
    checked: Option<PasswordHash>,
}

/// Checks the password that comes with a request, if it needs one, ahead of the transaction.
pub fn prepare(tx: &mut BlockingContext<'_>, request: &Unvalidated<TokenRequest>) -> Result<ReadyRequest> {
    let session = tx.read(|tx| {
        tx.my_id(Ability::ChangeOwnAccount)?;
        let shown = shown(tx)?.filter(|token| token.session);
        let Some(token) = shown else { return Ok(None) };
        store::users::password_hash(tx.db(), token.user_id)?.map(Some).ok_or(Error::Unauthenticated)
    })?;
    let password = request.get()?.current_password.clone();
    let checked = match (session, password) {
        (Some(hash), Some(password)) => {
            if !tx.password_cost().verify(&password, Some(&hash)) {
                return Err(wrong_password());
            }
            Some(PasswordHash(hash))
        }
        _ => None,
    };
    Ok(ReadyRequest { request: request.clone(), checked })
}

impl ReadyRequest {
    /// A request without a password.
    pub fn without_password(request: Unvalidated<TokenRequest>) -> Self {
        Self { request, checked: None }
    }
}

fn wrong_password() -> Error {
    Violations::one("current_password", "is invalid").into()
}

/// The token that the request presents.
fn shown(tx: &mut ReadTx<'_>) -> Result<Option<Token>> {
    let shown = tx.token();
    Ok(shown.map(|id| store::tokens::by_id(tx.db(), id)).transpose()?.flatten())
}

/// Makes a token for the caller. The secret is shown this once.
pub fn create_own(tx: &mut WriteTx<'_>, ready: &ReadyRequest) -> Result<(Token, Secret)> {
    // Every token opens at most what `api` opens, and without that scope nobody comes here.
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    create_requested(tx, me, ready)
}

/// Makes a token for another user. The secret is shown this once.
pub fn create_for(tx: &mut WriteTx<'_>, user: i64, ready: &ReadyRequest) -> Result<(Token, Secret)> {
    tx.may(Ability::AdministerUsers)?;
    ready.request.get()?;
    let user = users::find(tx, user)?;
    create_requested(tx, user.id, ready)
}

fn create_requested(tx: &mut WriteTx<'_>, user: i64, ready: &ReadyRequest) -> Result<(Token, Secret)> {
    let TokenRequest { name, scopes, expires_on, .. } = ready.request.get()?;
    let (now, longest) = (tx.now(), tx.now() + LONGEST_LIFE);
    let limit = ready.limit(tx)?;
    let mut violations = check_name(name).err().unwrap_or_default();
    violations.unless(!scopes.is_empty(), "scopes", "can't be blank");
    let end = match expires_on {
        None => limit.map_or(longest, |limit| limit.min(longest)),
        Some(day) => {
            // A day that no moment can be found for lies beyond every limit.
            let end = day.to_zoned(TimeZone::UTC).map_or(Time::MAX, |day| day.timestamp());
            violations.unless(end > now, "expires_at", "must be in the future");
            violations.unless(end <= longest, "expires_at", "must be within 365 days from now");
            if let Some(limit) = limit.filter(|limit| *limit < end.min(longest)) {
                let text = format!("must not be later than the expiry of the token that creates it ({limit})");
                violations.add("expires_at", text);
            }
            end
        }
    };
    violations.into_result()?;
    insert_limited(tx, user, name, scopes, Some(end))
}

impl ReadyRequest {
    /// The latest moment at which a new token may end because of the token that creates it. A stolen token must not serve to
    /// stay longer, so a personal token creates none that outlives it, and a session none without the password.
    fn limit(&self, tx: &mut WriteTx<'_>) -> Result<Option<Time>> {
        let Some(token) = shown(tx)? else { return Ok(None) };
        if !token.session {
            return Ok(token.expires_at);
        }
        if self.request.get()?.current_password.is_none() {
            return Err(Violations::one("current_password", "can't be blank").into());
        }
        // The password may have changed since it was checked.
        let now = store::users::password_hash(tx.db(), token.user_id)?;
        if self.checked.as_ref().is_none_or(|checked| now.as_ref() != Some(&checked.0)) {
            return Err(wrong_password());
        }
        Ok(None)
    }
}

/// Adds a token made by hand, unless the user has as many as one may have.
fn insert_limited(
    tx: &mut WriteTx<'_>,
    user: i64,
    name: &str,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<(Token, Secret)> {
    let now = tx.now();
    // The number of tokens is checked while the user is locked and nobody adds another one.
    store::users::by_id_to_change(tx.db(), user)?.ok_or(Error::not_found("User"))?;
    if store::tokens::count_active(tx.db(), user, now)? >= MOST_ACTIVE {
        let full = format!("Maximum number of active tokens ({MOST_ACTIVE}) reached");
        return Err(Violations::one("base", full).into());
    }
    store::tokens::delete_old_inactive(tx.db(), user, MOST_INACTIVE, now)?;
    let secret = tx.shared().secrets.token();
    let token = insert(tx, user, name, &secret, scopes, expires_at)?;
    Ok((token, secret))
}

/// The tokens of a user, newest first.
pub fn list(tx: &mut ReadTx<'_>, username: &str) -> Result<Vec<Token>> {
    tx.may(Ability::AdministerUsers)?;
    let user = users::named(tx, username)?;
    Ok(store::tokens::all_of(tx.db(), user.id)?)
}

/// A page of tokens, newest first: the caller's own, or for administrators those of a user or of everybody.
pub fn search(
    tx: &mut ReadTx<'_>,
    filter: &Unvalidated<TokenFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Token>> {
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    let (mut filter, page, now) = (*filter.get()?, *page.get()?, tx.now());
    match filter.user {
        Some(user) if user == me => {}
        Some(user) => {
            tx.may(Ability::AdministerUsers)?;
            users::find(tx, user)?;
        }
        None if tx.actor().is_admin() => {}
        None => filter.user = Some(me),
    }
    Ok(store::tokens::list(tx.db(), &filter, page, now)?)
}

/// One token: of the caller, or for administrators of anybody.
pub fn get(tx: &mut ReadTx<'_>, id: i64) -> Result<Token> {
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    let admin = tx.actor().is_admin();
    let found = store::tokens::by_id(tx.db(), id)?;
    found.filter(|token| admin || token.user_id == me).ok_or(Error::not_found(WHAT))
}

/// The token that proved who is asking, whatever its scopes.
pub fn current(tx: &mut ReadTx<'_>) -> Result<Token> {
    tx.my_id(Ability::ReadOwnAccount)?;
    let shown = tx.token().ok_or(Error::Unauthenticated)?;
    store::tokens::by_id(tx.db(), shown)?.ok_or(Error::not_found(WHAT))
}

/// Revokes a token: of the caller, or for administrators of anybody.
pub fn revoke_by_id(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    let token = get(tx, id)?;
    revoke_found(tx, &token)
}

/// Revokes the token that proved who is asking, whatever its scopes.
pub fn revoke_current(tx: &mut WriteTx<'_>) -> Result<()> {
    let token = current(tx)?;
    revoke_found(tx, &token)
}

fn revoke_found(tx: &mut WriteTx<'_>, token: &Token) -> Result<()> {
    let now = tx.now();
    if store::tokens::revoke(tx.db(), token.id, now)? {
        Ok(())
    } else {
        Err(Error::Refused("400 Bad request - Token already revoked".into()))
    }
}

/// Revokes a token of anybody, for the operator.
pub fn revoke(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    tx.may(Ability::AdministerUsers)?;
    let now = tx.now();
    if store::tokens::revoke(tx.db(), id, now)? { Ok(()) } else { Err(Error::not_found("Token")) }
}

/// Adds a token made by hand.
pub(crate) fn insert(
    tx: &mut WriteTx<'_>,
    user_id: i64,
    name: &str,
    secret: &Secret,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<Token> {
    let now = tx.now();
    let new = NewToken { user_id, name, digest: secret.digest(), scopes, expires_at, session: false };
    Ok(store::tokens::insert(tx.db(), &new, now)?)
}

/// Adds a token that ends when the password changes.
pub(crate) fn insert_session(
    tx: &mut WriteTx<'_>,
    user_id: i64,
    name: &str,
    secret: &Secret,
    end: Time,
) -> Result<Token> {
    let (now, scopes) = (tx.now(), &[Scope::Api]);
    let new = NewToken { user_id, name, digest: secret.digest(), scopes, expires_at: Some(end), session: true };
    Ok(store::tokens::insert(tx.db(), &new, now)?)
}

/// Which tokens were seen lately; written down now and then, because a read never writes.
#[derive(Default)]
pub(crate) struct Uses(Mutex<HashMap<i64, Time>>);

impl Uses {
    /// Remembers that a token was seen, if what is stored is too old.
    pub(crate) fn note(&self, token: &Token, now: Time) {
        let stale = token.last_used_at.is_none_or(|last| now.duration_since(last) > USE_LAG);
        // Whoever finds the lock taken goes on: the next request of the token will do.
        if stale && let Ok(mut uses) = self.0.try_lock() {
            uses.insert(token.id, now);
        }
    }

    fn take(&self) -> HashMap<i64, Time> {
        std::mem::take(&mut *self.0.lock().expect("nothing panics while holding this"))
    }
}

/// Writes down which tokens were seen lately.
pub async fn note_uses(forge: &Forge) -> Result<()> {
    let uses = forge.shared().uses.take();
    if uses.is_empty() {
        return Ok(());
    }
    forge
        .write(Caller::system(), move |tx| {
            for (token, at) in &uses {
                store::tokens::note_use(tx.db(), *token, *at)?;
            }
            Ok(())
        })
        .await
}
