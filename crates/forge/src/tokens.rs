//! Access tokens: made once, shown once, remembered as digests.

use std::{collections::HashMap, sync::Mutex};

use model::{Scope, Time, Token, tokens::Secret};
use store::tokens::NewToken;

use crate::{Ability, Caller, Error, Forge, Reader, Result, Writer, sessions, users};

/// How far the noted last use of a token may lag behind.
const USE_LAG: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

/// Makes a token for a user. The secret is shown this once.
pub fn create(
    it: &mut Writer<'_>,
    username: &str,
    name: &str,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<(Token, Secret)> {
    it.may(Ability::AdministerUsers)?;
    model::tokens::check_name(name)?;
    if name == sessions::TOKEN_NAME {
        // Tokens of this name give way to newer ones.
        return Err(model::Violations::one("name", format!("{name} is a reserved name")).into());
    }
    if expires_at.is_some_and(|end| end <= it.now()) {
        return Err(model::Violations::one("expires_at", "must be in the future").into());
    }
    let user = users::named(it, username)?;
    let secret = it.shared().secrets.token();
    let token = insert(it, user.id, name, &secret, scopes, expires_at)?;
    Ok((token, secret))
}

/// The tokens of a user, newest first.
pub fn list(it: &mut Reader<'_>, username: &str) -> Result<Vec<Token>> {
    it.may(Ability::AdministerUsers)?;
    let user = users::named(it, username)?;
    Ok(store::tokens::list(it.db(), user.id)?)
}

/// Takes a token back.
pub fn revoke(it: &mut Writer<'_>, id: i64) -> Result<()> {
    it.may(Ability::AdministerUsers)?;
    let now = it.now();
    if store::tokens::revoke(it.db(), id, now)? { Ok(()) } else { Err(Error::not_found("Token")) }
}

pub(crate) fn insert(
    it: &mut Writer<'_>,
    user_id: i64,
    name: &str,
    secret: &Secret,
    scopes: &[Scope],
    expires_at: Option<Time>,
) -> Result<Token> {
    let now = it.now();
    let new = NewToken { user_id, name, digest: secret.digest(), scopes, expires_at };
    Ok(store::tokens::insert(it.db(), &new, now)?)
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
        .write(Caller::system(), move |it| {
            for (token, at) in &uses {
                store::tokens::note_use(it.db(), *token, *at)?;
            }
            Ok(())
        })
        .await
}
