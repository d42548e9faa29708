//! Personal access tokens. Names of fields and parameters are those of version 4, which version 3 never had.

use axum::extract::State;
use forge::{
    Caller, Forge, Unvalidated,
    tokens::{self, ReadyRequest, TokenRequest},
};
use model::{
    Scope, Time, Token,
    members::day_of,
    tokens::{Secret, TokenFilter},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    error::ApiError,
    extract::{Credentials, Numbers},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{CreatedSecret, Day, Done, NoContent, Reply, Stamp},
    routes::Routes,
    sign_in::PasswordAttempts,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/personal_access_tokens", "Lists the caller's access tokens; for administrators those of all users", list)
        .post("/personal_access_tokens", "Creates an access token for the caller and answers it, this once", create)
        .get("/personal_access_tokens/self", "Shows the access token that the request presents", get_self)
        .delete("/personal_access_tokens/self", "Revokes the access token that the request presents", delete_self)
        .get(
            "/personal_access_tokens/{id}",
            "Shows an access token of the caller, or for administrators of anybody",
            get,
        )
        .delete(
            "/personal_access_tokens/{id}",
            "Revokes an access token of the caller, or for administrators of anybody",
            delete,
        )
        .also(&[400])
        .post(
            "/users/{id}/personal_access_tokens",
            "Creates an access token for a user and answers it, this once; administrators only",
            create_for,
        )
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListTokens>,
    paging: Paging,
) -> Reply<Paged<TokenJson>> {
    let (filter, page) = (given.map(|given| given.0), paging.page.clone());
    let (tokens, now) = forge.read(caller, move |tx| Ok((tokens::search(tx, &filter, &page)?, tx.now()))).await?;
    Ok(paging.answer(tokens.map(|token| TokenJson::new(token, now))))
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    attempts: PasswordAttempts,
    Params(given): Params<CreateToken>,
) -> Reply<CreatedSecret<NewTokenJson>> {
    let ready = prepare(&forge, &caller, &attempts, given).await?;
    let made = forge.write(caller, move |tx| Ok((tokens::create_own(tx, &ready)?, tx.now()))).await?;
    Ok(CreatedSecret(NewTokenJson::new(made)))
}

async fn create_for(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    attempts: PasswordAttempts,
    Numbers([user]): Numbers<1>,
    Params(given): Params<CreateToken>,
) -> Reply<CreatedSecret<NewTokenJson>> {
    let ready = prepare(&forge, &caller, &attempts, given).await?;
    let made = forge.write(caller, move |tx| Ok((tokens::create_for(tx, user, &ready)?, tx.now()))).await?;
    Ok(CreatedSecret(NewTokenJson::new(made)))
}

/// Checks the password if there is one; attempts at it count as attempts to sign in.
async fn prepare(
    forge: &Forge,
    caller: &Caller,
    attempts: &PasswordAttempts,
    given: Unvalidated<CreateToken>,
) -> Result<ReadyRequest, ApiError> {
    let request = given.map(|given| given.0);
    if !request.get().is_ok_and(|request| request.current_password.is_some()) {
        return Ok(ReadyRequest::without_password(request));
    }
    attempts.count()?;
    Ok(forge.run_blocking(caller.clone(), move |tx| tokens::prepare(tx, &request)).await?)
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<TokenJson>> {
    let (token, now) = forge.read_inline(caller, move |tx| Ok((tokens::get(tx, id)?, tx.now()))).await?;
    Ok(Done(TokenJson::new(token, now)))
}

async fn get_self(State(forge): State<Forge>, Credentials(caller): Credentials) -> Reply<Done<TokenJson>> {
    let (token, now) = forge.read_inline(caller, |tx| Ok((tokens::current(tx)?, tx.now()))).await?;
    Ok(Done(TokenJson::new(token, now)))
}

async fn delete(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<NoContent> {
    forge.write(caller, move |tx| tokens::revoke_by_id(tx, id)).await?;
    Ok(NoContent)
}

async fn delete_self(State(forge): State<Forge>, Credentials(caller): Credentials) -> Reply<NoContent> {
    forge.write(caller, tokens::revoke_current).await?;
    Ok(NoContent)
}

struct ListTokens(TokenFilter);

impl FromParams for ListTokens {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let states = [("active", true), ("inactive", false)];
        Self(TokenFilter {
            user: from.integer("user_id", "Only tokens of this user; others than oneself for administrators"),
            revoked: from.flag("revoked", "true: only revoked tokens; false: only tokens that are not revoked"),
            active: from.choice("state", &states, "active: neither revoked nor expired; inactive: the others"),
        })
    }
}

struct CreateToken(TokenRequest);

impl FromParams for CreateToken {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("name", "What the token is for");
        let scopes = from.required_choices(
            "scopes",
            &Scope::ALL.map(|scope| (scope.as_str(), scope)),
            "What the token opens, as a list or with commas",
        );
        let expires_on = from.day(
            "expires_at",
            "Expiry date, the first day on which the token is no longer valid, within a year and not after the expiry of the \
             token that the request presents; the latest of these if absent",
        );
        let current_password = from
            .text(
                "current_password",
                "The caller's password; required if the request presents a token of POST /session",
            )
            .filter(|text| !text.is_empty());
        Self(TokenRequest { name, scopes, expires_on, current_password })
    }
}

/// An access token without its secret.
#[derive(Serialize, JsonSchema)]
struct TokenJson {
    id: i64,
    name: String,
    revoked: bool,
    created_at: Stamp,
    description: Option<String>,
    scopes: Vec<&'static str>,
    user_id: i64,
    last_used_at: Option<Stamp>,
    active: bool,
    expires_at: Option<Day>,
    /// Whether `POST /session` issued it; such tokens end when the password changes.
    session: bool,
}

impl TokenJson {
    fn new(token: Token, now: Time) -> Self {
        Self {
            active: token.is_active(now),
            id: token.id,
            name: token.name,
            revoked: token.revoked_at.is_some(),
            created_at: Stamp(token.created_at),
            description: None,
            scopes: token.scopes.into_iter().map(Scope::as_str).collect(),
            user_id: token.user_id,
            last_used_at: token.last_used_at.map(Stamp),
            expires_at: token.expires_at.map(|end| Day(day_of(end))),
            session: token.session,
        }
    }
}

/// An access token with its secret, in the answer that creates it.
#[derive(Serialize, JsonSchema)]
struct NewTokenJson {
    #[serde(flatten)]
    shown: TokenJson,
    token: String,
}

impl NewTokenJson {
    fn new(((token, secret), now): ((Token, Secret), Time)) -> Self {
        Self { shown: TokenJson::new(token, now), token: secret.reveal().to_owned() }
    }
}
