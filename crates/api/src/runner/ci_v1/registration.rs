//! Registration of runners.

use axum::{extract::State, http::StatusCode};
use forge::{Error, Forge, runners};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    error::ApiError,
    openapi::Tag,
    params::Params,
    reply::{CreatedSecret, OkJson, Reply},
    routes::Routes,
    runner::{credentials::RunnerToken, params::RegisterRunner},
};

pub(super) fn routes() -> Routes {
    Routes::new(Tag::RunnerProtocol).post("/runners/register", "Register a runner", register).delete(
        "/runners/delete",
        "Unregister a runner",
        unregister,
    )
}

async fn register(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(new): Params<RegisterRunner>,
) -> Reply<CreatedSecret<TokenJson>> {
    let registered = runners::register(&forge, token.validate()?, new.map(|new| new.0)).await;
    let (id, token) = registered.map_err(|error| match error {
        // GitLab 8.14 answers an invalid registration with 404.
        Error::Invalid(_) => ApiError::OverrideStatus(StatusCode::NOT_FOUND, error),
        error => error.into(),
    })?;
    Ok(CreatedSecret(TokenJson { id: id.get(), token: token.reveal().to_owned() }))
}

async fn unregister(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<OkJson<()>> {
    runners::unregister(&forge, token.validate()?).await?;
    Ok(OkJson(()))
}

/// The ID and the token of a runner.
#[derive(Serialize, JsonSchema)]
struct TokenJson {
    id: i64,
    token: String,
}
