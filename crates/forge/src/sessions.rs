//! Signing in with a password.

use std::net::IpAddr;

use jiff::SignedDuration;
use model::{Scope, User, tokens::Secret};

use tracing::warn;

use crate::{Ability, Caller, Error, Forge, Given, Heavy, Reader, Result, Writer, tokens};

/// What a client signs in with.
#[derive(Clone)]
pub struct Credentials {
    /// A username or an address.
    pub login: String,
    /// The password.
    pub password: String,
}

/// A sign-in that was right.
#[derive(Clone, Copy)]
pub struct SignedIn(i64);

impl SignedIn {
    /// The caller that this sign-in proves.
    pub fn caller(self) -> Caller {
        Caller::with_checked_password(self.0)
    }
}

pub(crate) const TOKEN_NAME: &str = "session";
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// A script that signs in on every run must not fill the table.
const TOKENS_KEPT: i64 = 50;

/// Checks a password. Unknown users, wrong passwords and blocked users get the same answer after the same time.
pub fn check(it: &mut Heavy<'_>, credentials: &Given<Credentials>) -> Result<SignedIn> {
    let Credentials { login, password } = credentials.get()?;
    let found = it.read(|it| Ok(store::users::by_login(it.db(), login)?))?;
    let right = it.password_cost().verify(password, found.as_ref().map(|(_, hash)| hash.as_str()));
    match found {
        Some((user, _)) if right && user.state == model::UserState::Active => Ok(SignedIn(user.id)),
        _ => Err(Error::Unauthenticated),
    }
}

/// Writes a failed sign-in to the log, one line for each: how, from which address, and as whom if there is such a user. What is
/// nobody's name is not repeated, because it may be a password in the wrong field.
pub async fn note_failure(forge: &Forge, transport: &'static str, address: IpAddr, login: &str) {
    metrics::counter!("gable_failed_sign_ins_total", "transport" => transport).increment(1);
    let login = login.to_owned();
    let look = move |it: &mut Reader<'_>| {
        it.may(Ability::Operate)?;
        Ok(store::users::by_login(it.db(), &login)?.map(|(user, _)| user.username))
    };
    let address = address.to_canonical();
    match forge.peek(Caller::system(), look).await {
        Ok(Some(login)) => warn!(%address, transport, login, "sign-in failed"),
        Ok(None) => warn!(%address, transport, "sign-in failed: there is no such user"),
        Err(_) => warn!(%address, transport, "sign-in failed"),
    }
}

/// Gives a user who has just signed in a token.
pub fn create(it: &mut Writer<'_>) -> Result<(User, Secret)> {
    let user = it.my_id(Ability::ReadOwnAccount)?;
    let now = it.now();
    let secret = it.shared().secrets.token();
    tokens::insert(it, user, TOKEN_NAME, &secret, &[Scope::Api], Some(now + TOKEN_LIFE))?;
    store::tokens::delete_all_but_newest(it.db(), user, TOKEN_NAME, TOKENS_KEPT)?;
    store::users::note_sign_in(it.db(), user, now)?;
    let user = store::users::by_id(it.db(), user)?.ok_or(Error::Unauthenticated)?;
    Ok((user, secret))
}
