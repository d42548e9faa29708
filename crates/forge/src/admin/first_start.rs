//! The first administrator, created at the first start.

use jiff::SignedDuration;
use model::{
    Scope, Time,
    tokens::Secret,
    users::{NewUser, check_password},
};

use crate::{Caller, Error, Forge, Result, tokens, users};

/// Credentials of the first administrator that the operator chose.
#[derive(Clone, Default)]
pub struct FirstAdminOptions {
    /// The password, instead of a random one.
    pub password: Option<Secret>,
    /// The token, instead of a random one.
    pub token: Option<Secret>,
}

/// The first administrator, before it is created.
#[derive(Clone)]
pub struct FirstAdmin {
    /// The username.
    pub username: &'static str,
    /// The password, chosen or generated.
    pub password: Secret,
    /// The token, chosen or generated.
    pub token: Secret,
    /// When a generated token expires; a chosen one does not.
    pub token_expires_at: Option<Time>,
    /// Whether the password was generated.
    pub password_generated: bool,
    /// Whether the token was generated.
    pub token_generated: bool,
}

const USERNAME: &str = "root";
const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Chooses the credentials of the first administrator; returns `None` if there is an administrator.
pub async fn plan(forge: &Forge, options: FirstAdminOptions) -> Result<Option<FirstAdmin>> {
    let exists = forge.read(Caller::system(), |tx| Ok(store::users::has_admin(tx.db())?)).await?;
    if exists {
        return Ok(None);
    }
    check(&options)?;
    let secrets = &forge.shared().secrets;
    let token_generated = options.token.is_none();
    Ok(Some(FirstAdmin {
        username: USERNAME,
        password_generated: options.password.is_none(),
        token_generated,
        token_expires_at: token_generated.then(|| forge.now() + TOKEN_LIFETIME),
        password: options.password.unwrap_or_else(|| secrets.token()),
        token: options.token.unwrap_or_else(|| secrets.token()),
    }))
}

/// Validates the chosen credentials.
fn check(options: &FirstAdminOptions) -> Result<()> {
    let mut violations = model::Violations::new();
    if let Some(password) = &options.password {
        check_password(password.reveal(), &mut violations);
    }
    let token = options.token.as_ref();
    let well_formed = token.is_none_or(|token| model::tokens::is_well_formed(token.reveal()));
    violations.require(well_formed, "token", "must have 20 to 128 letters, digits, '-' or '_'");
    Ok(violations.into_result()?)
}

/// Creates the first administrator; returns `false` if the name was taken meanwhile.
pub async fn create(forge: &Forge, admin: FirstAdmin) -> Result<bool> {
    let request = users::NewUserRequest {
        user: NewUser { admin: true, ..NewUser::new(USERNAME, &format!("{USERNAME}@localhost"), "Administrator") },
        password: admin.password.reveal().to_owned(),
    };
    let request = crate::Unvalidated::valid(request);
    let prepared = forge.run_blocking(Caller::system(), move |cx| users::prepare_create(cx, &request)).await;
    let prepared = match prepared {
        // The credentials were validated, so the username or the email address is taken.
        Err(Error::Taken(_) | Error::Invalid(_)) => return Ok(false),
        prepared => prepared?,
    };
    let created = forge
        .write(Caller::system(), move |tx| {
            let root = users::create(tx, &prepared)?;
            tokens::insert(tx, root.id, "first start", &admin.token, &[Scope::Api], admin.token_expires_at)?;
            Ok(())
        })
        .await;
    match created {
        Err(Error::Taken(_) | Error::Invalid(_)) => Ok(false),
        created => created.map(|()| true),
    }
}
