//! The first start: an administrator to begin with.

use jiff::SignedDuration;
use model::{
    Scope, Time,
    tokens::Secret,
    users::{NewUser, check_password},
};

use crate::{Caller, Error, Forge, Result, tokens, users};

/// What the operator fixed for the first administrator.
#[derive(Clone, Default)]
pub struct Wishes {
    /// The password, instead of a random one.
    pub password: Option<Secret>,
    /// The token, instead of a random one.
    pub token: Option<Secret>,
}

/// The first administrator, on the way into being.
#[derive(Clone)]
pub struct FirstAdmin {
    /// The username.
    pub username: &'static str,
    /// The password, chosen or made.
    pub password: Secret,
    /// The token, chosen or made.
    pub token: Secret,
    /// From when on a made token opens nothing; a chosen one lasts.
    pub token_expires_at: Option<Time>,
    /// Whether the password was made here.
    pub made_password: bool,
    /// Whether the token was made here.
    pub made_token: bool,
}

const USERNAME: &str = "root";
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Plans the first administrator if there is none yet.
pub async fn plan(forge: &Forge, wishes: Wishes) -> Result<Option<FirstAdmin>> {
    let there = forge.read(Caller::system(), |tx| Ok(store::users::has_admin(tx.db())?)).await?;
    if there {
        return Ok(None);
    }
    check(&wishes)?;
    let secrets = &forge.shared().secrets;
    let made_token = wishes.token.is_none();
    Ok(Some(FirstAdmin {
        username: USERNAME,
        made_password: wishes.password.is_none(),
        made_token,
        token_expires_at: made_token.then(|| forge.now() + TOKEN_LIFE),
        password: wishes.password.unwrap_or_else(|| secrets.token()),
        token: wishes.token.unwrap_or_else(|| secrets.token()),
    }))
}

/// Refuses what cannot be, before anything is written down.
fn check(wishes: &Wishes) -> Result<()> {
    let mut violations = model::Violations::new();
    if let Some(password) = &wishes.password {
        check_password(password.reveal(), &mut violations);
    }
    let token = wishes.token.as_ref();
    let well_formed = token.is_none_or(|token| model::tokens::is_well_formed(token.reveal()));
    violations.unless(well_formed, "token", "must have 20 to 128 letters, digits, '-' or '_'");
    Ok(violations.into_result()?)
}

/// Creates the planned administrator; `false` if somebody else was faster.
pub async fn create(forge: &Forge, admin: FirstAdmin) -> Result<bool> {
    let registration = users::Registration {
        user: NewUser { admin: true, ..NewUser::new(USERNAME, &format!("{USERNAME}@localhost"), "Administrator") },
        password: admin.password.reveal().to_owned(),
    };
    let given = crate::Unvalidated::good(registration);
    let ready = forge.run_blocking(Caller::system(), move |tx| users::prepare_registration(tx, &given)).await;
    let ready = match ready {
        // The wishes were checked, so it is the name or the address that somebody has, in whatever case.
        Err(Error::Taken(_) | Error::Invalid(_)) => return Ok(false),
        ready => ready?,
    };
    let created = forge
        .write(Caller::system(), move |tx| {
            let root = users::create(tx, &ready)?;
            tokens::insert(tx, root.id, "first start", &admin.token, &[Scope::Api], admin.token_expires_at)?;
            Ok(())
        })
        .await;
    match created {
        Err(Error::Taken(_) | Error::Invalid(_)) => Ok(false),
        created => created.map(|()| true),
    }
}
