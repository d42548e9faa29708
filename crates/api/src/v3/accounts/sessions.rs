//! Signing in with a password, for clients that do not have a token yet.

use axum::extract::State;
use forge::{
    Forge,
    sessions::{self, PasswordLogin},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::users::FullUserJson;
use crate::{
    access_log::Footprint,
    params::{FromParams, ParamReader, Params},
    reply::{CreatedSecret, Reply},
    routes::Routes,
    sign_in::MayTry,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new().post("/session", "Signs in with a password and answers a token", create).also(&[401])
}

async fn create(
    State(forge): State<Forge>,
    MayTry(address): MayTry,
    footprint: Footprint,
    site: Site,
    Params(given): Params<CreateSession>,
) -> Reply<CreatedSecret<SessionJson>> {
    let credentials = given.map(|given| PasswordLogin { login: given.login, password: given.password });
    let login = credentials.get().map(|credentials| credentials.login.clone()).unwrap_or_default();
    let checked = forge.run_blocking(forge::Caller::anonymous(), move |tx| sessions::check(tx, &credentials)).await;
    if matches!(checked, Err(forge::Error::Unauthenticated)) {
        sessions::note_failure(&forge, "session", address, &login).await;
    }
    let signed_in = checked?;
    let caller = signed_in.caller().noted_in(footprint.who());
    let (user, token) = forge.write(caller, move |tx| sessions::create(tx, &signed_in)).await?;
    Ok(CreatedSecret(SessionJson { user: FullUserJson::new(user, &site), private_token: token.reveal().to_owned() }))
}

struct CreateSession {
    login: String,
    password: String,
}

impl FromParams for CreateSession {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let login = from.text("login", "Username or e-mail address");
        let email = from.text("email", "E-mail address or username; wins over login");
        let password = from.required_text("password", "Password");
        from.at_least_one(&["login", "email"]);
        Self { login: email.or(login).unwrap_or_default(), password }
    }
}

/// The current user with a fresh token.
#[derive(Serialize, JsonSchema)]
struct SessionJson {
    #[serde(flatten)]
    user: FullUserJson,
    private_token: String,
}
