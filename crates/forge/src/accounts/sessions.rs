//! Signing in with a password.

use std::net::IpAddr;

use jiff::SignedDuration;
use model::{User, tokens::Secret};

use tracing::warn;

use crate::{
    Ability, BlockingContext, Caller, Error, Forge, ReadTx, Result, Unvalidated, WriteTx, caller::PasswordHash, tokens,
};

/// What a client signs in with.
#[derive(Clone)]
pub struct PasswordLogin {
    /// A username or an address.
    pub login: String,
    /// The password.
    pub password: String,
}

/// A sign-in that was right.
#[derive(Clone)]
pub struct SignedIn {
    user: i64,
    hash: PasswordHash,
}

impl SignedIn {
    /// The caller that this sign-in proves.
    pub fn caller(&self) -> Caller {
        Caller::with_checked_password(self.user, self.hash.clone())
    }
}

const TOKEN_NAME: &str = "session";
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// A script that signs in on every run must not fill the table.
const TOKENS_KEPT: i64 = 50;

/// Checks a password. Unknown users, wrong passwords and blocked users get the same answer after the same time.
pub fn check(tx: &mut BlockingContext<'_>, credentials: &Unvalidated<PasswordLogin>) -> Result<SignedIn> {
    let PasswordLogin { login, password } = credentials.get()?;
    let found = tx.read(|tx| Ok(store::users::by_login(tx.db(), login)?))?;
    let right = tx.password_cost().verify(password, found.as_ref().map(|(_, hash)| hash.as_str()));
    match found {
        Some((user, hash)) if right && user.state == model::UserState::Active => {
            Ok(SignedIn { user: user.id, hash: PasswordHash(hash) })
        }
        _ => Err(Error::Unauthenticated),
    }
}

/// Writes a failed sign-in to the log, one line for each: how, from which address, and as whom if there is such a user. What is
/// nobody's name is not repeated, because it may be a password in the wrong field.
pub async fn note_failure(forge: &Forge, transport: &'static str, address: IpAddr, login: &str) {
    metrics::counter!("gable_failed_sign_ins_total", "transport" => transport).increment(1);
    let login = login.to_owned();
    let look = move |tx: &mut ReadTx<'_>| {
        tx.may(Ability::Operate)?;
        Ok(store::users::by_login(tx.db(), &login)?.map(|(user, _)| user.username))
    };
    let address = address.to_canonical();
    match forge.read_inline(Caller::system(), look).await {
        Ok(Some(login)) => warn!(%address, transport, login, "sign-in failed"),
        Ok(None) => warn!(%address, transport, "sign-in failed: there is no such user"),
        Err(_) => warn!(%address, transport, "sign-in failed"),
    }
}

/// Gives a user who has just signed in a token.
pub fn create(tx: &mut WriteTx<'_>, signed_in: &SignedIn) -> Result<(User, Secret)> {
    let user = tx.my_id(Ability::ReadOwnAccount)?;
    let now = tx.now();
    let secret = tx.shared().secrets.token();
    // While the user is locked the password cannot change, so no session outlives the change of its password.
    store::users::by_id_to_change(tx.db(), user)?.ok_or(Error::Unauthenticated)?;
    if store::users::password_hash(tx.db(), user)?.as_ref() != Some(&signed_in.hash.0) {
        return Err(Error::Unauthenticated);
    }
    tokens::insert_session(tx, user, TOKEN_NAME, &secret, now + TOKEN_LIFE)?;
    store::tokens::delete_old_sessions(tx.db(), user, TOKENS_KEPT)?;
    store::users::note_sign_in(tx.db(), user, now)?;
    let user = store::users::by_id(tx.db(), user)?.ok_or(Error::Unauthenticated)?;
    Ok((user, secret))
}

/// Ends the sessions of a user. The session that makes this request goes on.
pub(crate) fn end_others(tx: &mut WriteTx<'_>, user: i64) -> Result<()> {
    let (current, now) = (tx.token(), tx.now());
    Ok(store::tokens::revoke_sessions(tx.db(), user, current, now)?)
}
