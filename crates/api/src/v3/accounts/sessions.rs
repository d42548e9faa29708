//! Sign-in with a password, for clients without a token.

use axum::extract::State;
use forge::{
    Forge,
    sessions::{self, PasswordLogin},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    access_log::AccessLogContext,
    limits::sign_in_limit::SignInAttempt,
    openapi::Tag,
    params::{FromParams, ParamReader, Params},
    reply::{CreatedSecret, Reply},
    routes::Routes,
    site::Site,
    v3::users::FullUserJson,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Sessions)
        .post("/session", "Sign in with a password and create a session token", create)
        .with_statuses(&[401])
}

async fn create(
    State(forge): State<Forge>,
    SignInAttempt(address): SignInAttempt,
    log_context: AccessLogContext,
    site: Site,
    Params(params): Params<CreateSession>,
) -> Reply<CreatedSecret<SessionJson>> {
    let credentials = params.map(|params| PasswordLogin { login: params.login, password: params.password });
    let login = credentials.validate().map(|credentials| credentials.login.clone()).unwrap_or_default();
    let result =
        forge.run_blocking(forge::Caller::anonymous(), move |cx| sessions::verify_password(cx, &credentials)).await;
    if matches!(result, Err(forge::Error::Unauthenticated)) {
        sessions::log_failure(&forge, "session", address, &login).await;
    }
    let verified_login = result?;
    let caller = verified_login.caller().with_log_identity(log_context.identity());
    let (user, token) = forge.write(caller, move |tx| sessions::create(tx, &verified_login)).await?;
    Ok(CreatedSecret(SessionJson { user: FullUserJson::new(user, &site), private_token: token.reveal().to_owned() }))
}

struct CreateSession {
    login: String,
    password: String,
}

impl FromParams for CreateSession {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let login = from.text("login", "The username or the email address");
        let email = from.text("email", "The email address or the username; takes precedence over login");
        let password = from.required_text("password", "The password");
        from.at_least_one(&["login", "email"]);
        Self { login: email.or(login).unwrap_or_default(), password }
    }
}

/// The current user with a new session token.
#[derive(Serialize, JsonSchema)]
struct SessionJson {
    #[serde(flatten)]
    user: FullUserJson,
    private_token: String,
}
