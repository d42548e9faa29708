//! Sign-in with a password.

use std::net::IpAddr;

use jiff::SignedDuration;
use model::{User, UserId, tokens::Secret};

use tracing::warn;

use crate::{
    Ability, BlockingContext, Caller, Error, Forge, ReadTx, Result, Unvalidated, WriteTx, caller::PasswordHash, tokens,
};

/// A login and a password, as sent by the client.
#[derive(Clone)]
pub struct PasswordLogin {
    /// A username or an e-mail address.
    pub login: String,
    /// The password.
    pub password: String,
}

/// A sign-in with a verified password.
#[derive(Clone)]
pub struct VerifiedLogin {
    user: UserId,
    hash: PasswordHash,
}

impl VerifiedLogin {
    /// Returns the caller that this sign-in authenticates.
    pub fn caller(&self) -> Caller {
        Caller::with_verified_password(self.user, self.hash.clone())
    }
}

const TOKEN_NAME: &str = "session";
const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The maximum number of session tokens per user, so that a script that signs in on every run does not fill the table.
const MAX_SESSION_TOKENS: i64 = 50;

/// Verifies a password. Unknown users, wrong passwords and blocked users get the same response after the same time.
pub fn verify_password(
    cx: &mut BlockingContext<'_>,
    credentials: &Unvalidated<PasswordLogin>,
) -> Result<VerifiedLogin> {
    let PasswordLogin { login, password } = credentials.validate()?;
    let user_and_hash = cx.read(|tx| Ok(store::users::by_login(tx.db(), login)?))?;
    let is_match = cx.password_hasher().verify(password, user_and_hash.as_ref().map(|(_, hash)| hash.as_str()));
    match user_and_hash {
        Some((user, hash)) if is_match && user.state == model::UserState::Active => {
            Ok(VerifiedLogin { user: user.id, hash: PasswordHash(hash) })
        }
        _ => Err(Error::Unauthenticated),
    }
}

/// Logs a failed sign-in with its transport, the client address and the username, if that user exists. An unknown login is not
/// logged, because it may be a password typed into the wrong field.
pub async fn log_failure(forge: &Forge, transport: &'static str, address: IpAddr, login: &str) {
    metrics::counter!("gable_failed_sign_ins_total", "transport" => transport).increment(1);
    let login = login.to_owned();
    let find_username = move |tx: &mut ReadTx<'_>| {
        tx.authorize(Ability::ManageServer)?;
        Ok(store::users::by_login(tx.db(), &login)?.map(|(user, _)| user.username))
    };
    let address = address.to_canonical();
    match forge.read_inline(Caller::system(), find_username).await {
        Ok(Some(login)) => warn!(%address, transport, login, "sign-in failed"),
        Ok(None) => warn!(%address, transport, "sign-in failed: there is no such user"),
        Err(_) => warn!(%address, transport, "sign-in failed"),
    }
}

/// Creates a session token for a user who has just signed in.
pub fn create(tx: &mut WriteTx<'_>, login: &VerifiedLogin) -> Result<(User, Secret)> {
    let user = record_sign_in(tx, login)?;
    let secret = tx.shared().secrets.token();
    let end = tx.now() + TOKEN_LIFETIME;
    tokens::insert_session(tx, user, TOKEN_NAME, &secret, end)?;
    store::tokens::delete_old_sessions(tx.db(), user, MAX_SESSION_TOKENS)?;
    let user = store::users::by_id(tx.db(), user)?.ok_or(Error::Unauthenticated)?;
    Ok((user, secret))
}

/// Records the sign-in of a user and returns their id; fails if the password has changed since it was verified.
pub(crate) fn record_sign_in(tx: &mut WriteTx<'_>, login: &VerifiedLogin) -> Result<UserId> {
    let user = tx.current_user_id(Ability::ReadOwnAccount)?;
    // The row lock keeps the password from changing, so no session outlives a change of its password.
    store::users::by_id_for_update(tx.db(), user)?.ok_or(Error::Unauthenticated)?;
    if store::users::password_hash(tx.db(), user)?.as_ref() != Some(&login.hash.0) {
        return Err(Error::Unauthenticated);
    }
    let now = tx.now();
    store::users::record_sign_in(tx.db(), user, now)?;
    Ok(user)
}

/// Ends all sessions of a user, over the API and in the web interface, except the one that authenticates this request.
pub(crate) fn end_others(tx: &mut WriteTx<'_>, user: UserId) -> Result<()> {
    let (token, web_session, now) = (tx.read().token(), tx.read().web_session(), tx.now());
    store::tokens::revoke_sessions(tx.db(), user, token, now)?;
    Ok(store::web_sessions::delete_all_except(tx.db(), user, web_session)?)
}

/// Ends all sessions of a user.
pub(crate) fn end_all(tx: &mut WriteTx<'_>, user: UserId) -> Result<()> {
    let now = tx.now();
    store::tokens::revoke_sessions(tx.db(), user, None, now)?;
    Ok(store::web_sessions::delete_all_of(tx.db(), user)?)
}
