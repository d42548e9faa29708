//! Personal access tokens. Version 3 of the API never had them; the names of fields and parameters are those of version 4.

use forge::{
    Unvalidated,
    tokens::{self, PreparedTokenRequest, TokenRequest},
};
use model::{
    Scope, Time, Token, TokenId, UserId,
    members::utc_date,
    tokens::{Secret, TokenFilter},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::CallerCx,
    error::ApiError,
    extract::IdsInPath,
    limits::sign_in_limit::PasswordAttempts,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{CreatedSecret, DateJson, NoContent, OkJson, Reply, TimestampJson},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::AccessTokens)
        .get(
            "/personal_access_tokens",
            "List the access tokens of the current user, or of all users for administrators",
            list,
        )
        .post(
            "/personal_access_tokens",
            "Create an access token for the current user; its secret is returned only once",
            create,
        )
        .get("/personal_access_tokens/self", "Get the access token that authenticates the request", get_self)
        .delete("/personal_access_tokens/self", "Revoke the access token that authenticates the request", delete_self)
        .get(
            "/personal_access_tokens/{id}",
            "Get an access token of the current user, or of any user for administrators",
            get,
        )
        .delete(
            "/personal_access_tokens/{id}",
            "Revoke an access token of the current user, or of any user for administrators",
            delete,
        )
        .with_statuses(&[400])
        .post(
            "/users/{id}/personal_access_tokens",
            "Create an access token for a user; its secret is returned only once; administrators only",
            create_for,
        )
}

async fn list(cx: CallerCx, Params(params): Params<ListTokens>, paging: Paging) -> Reply<Paged<TokenJson>> {
    let filter = params.map(|params| params.0);
    let reply = cx.read_list(move |tx| {
        let found = tokens::search(tx, &filter, &paging.page)?;
        let now = tx.now();
        Ok(paging.reply(found, |token| TokenJson::new(token, now)))
    });
    Ok(reply.await?)
}

async fn create(
    cx: CallerCx,
    attempts: PasswordAttempts,
    Params(params): Params<CreateToken>,
) -> Reply<CreatedSecret<NewTokenJson>> {
    let prepared = prepare(&cx, &attempts, params).await?;
    let created = cx.write(move |tx| Ok((tokens::create_own(tx, &prepared)?, tx.now()))).await?;
    Ok(CreatedSecret(NewTokenJson::new(created)))
}

async fn create_for(
    cx: CallerCx,
    attempts: PasswordAttempts,
    IdsInPath(user): IdsInPath<UserId>,
    Params(params): Params<CreateToken>,
) -> Reply<CreatedSecret<NewTokenJson>> {
    let prepared = prepare(&cx, &attempts, params).await?;
    let created = cx.write(move |tx| Ok((tokens::create_for(tx, user, &prepared)?, tx.now()))).await?;
    Ok(CreatedSecret(NewTokenJson::new(created)))
}

/// Verifies the password if there is one; attempts count against the sign-in limit.
async fn prepare(
    cx: &CallerCx,
    attempts: &PasswordAttempts,
    params: Unvalidated<CreateToken>,
) -> Result<PreparedTokenRequest, ApiError> {
    let request = params.map(|params| params.0);
    if !request.validate().is_ok_and(|request| request.current_password.is_some()) {
        return Ok(PreparedTokenRequest::without_password(request));
    }
    attempts.count()?;
    Ok(cx.clone().run_blocking(move |cx| tokens::prepare(cx, &request)).await?)
}

async fn get(cx: CallerCx, IdsInPath(id): IdsInPath<TokenId>) -> Reply<OkJson<TokenJson>> {
    let (token, now) = cx.read_inline(move |tx| Ok((tokens::get(tx, id)?, tx.now()))).await?;
    Ok(OkJson(TokenJson::new(token, now)))
}

async fn get_self(cx: CallerCx) -> Reply<OkJson<TokenJson>> {
    let (token, now) = cx.read_inline(|tx| Ok((tokens::current(tx)?, tx.now()))).await?;
    Ok(OkJson(TokenJson::new(token, now)))
}

async fn delete(cx: CallerCx, IdsInPath(id): IdsInPath<TokenId>) -> Reply<NoContent> {
    cx.write(move |tx| tokens::revoke_by_id(tx, id)).await?;
    Ok(NoContent)
}

async fn delete_self(cx: CallerCx) -> Reply<NoContent> {
    cx.write(tokens::revoke_current).await?;
    Ok(NoContent)
}

struct ListTokens(TokenFilter);

impl FromParams for ListTokens {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let states = [("active", true), ("inactive", false)];
        Self(TokenFilter {
            user: from
                .id("user_id", "Only tokens of this user; only administrators may name another user than themselves"),
            revoked: from
                .flag("revoked", "Whether to list only revoked tokens (true) or only others (false); default: both"),
            active: from.choice(
                "state",
                &states,
                "Only tokens in this state: active (neither revoked nor expired) or inactive; default: both",
            ),
        })
    }
}

struct CreateToken(TokenRequest);

impl FromParams for CreateToken {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let name = from.required_text("name", "The name of the token");
        let scopes = from.required_choices(
            "scopes",
            &Scope::ALL.map(|scope| (scope.as_str(), scope)),
            "The scopes of the token, as a list or separated by commas",
        );
        let expires_on = from.date(
            "expires_at",
            "The expiry date, the first day on which the token is no longer valid: at most one year from now, and not \
             after the expiry of the token that authenticates the request; default: the latest possible date",
        );
        let current_password = from
            .text(
                "current_password",
                "The password of the current user; required if a session token authenticates the request",
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
    created_at: TimestampJson,
    description: Option<String>,
    scopes: Vec<&'static str>,
    user_id: i64,
    last_used_at: Option<TimestampJson>,
    active: bool,
    expires_at: Option<DateJson>,
    /// Whether it is a session token, which is revoked when the password changes.
    session: bool,
}

impl TokenJson {
    fn new(token: Token, now: Time) -> Self {
        Self {
            active: token.is_active(now),
            id: token.id.get(),
            name: token.name,
            revoked: token.revoked_at.is_some(),
            created_at: TimestampJson(token.created_at),
            description: None,
            scopes: token.scopes.into_iter().map(Scope::as_str).collect(),
            user_id: token.user_id.get(),
            last_used_at: token.last_used_at.map(TimestampJson),
            expires_at: token.expires_at.map(|end| DateJson(utc_date(end))),
            session: token.session,
        }
    }
}

/// An access token with its secret, in the response to its creation.
#[derive(Serialize, JsonSchema)]
struct NewTokenJson {
    #[serde(flatten)]
    token_fields: TokenJson,
    token: String,
}

impl NewTokenJson {
    fn new(((token, secret), now): ((Token, Secret), Time)) -> Self {
        Self { token_fields: TokenJson::new(token, now), token: secret.reveal().to_owned() }
    }
}
