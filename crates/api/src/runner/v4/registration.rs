//! Registration of runners.

use axum::extract::State;
use forge::{Forge, runners};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    openapi::Tag,
    params::Params,
    reply::{CreatedSecret, NoContent, OkJson, Reply},
    routes::Routes,
    runner::{credentials::RunnerToken, params::RegisterRunner},
};

pub(super) fn routes() -> Routes {
    Routes::new(Tag::RunnerProtocol)
        .post("/runners", "Register a runner", register)
        .delete("/runners", "Unregister a runner", unregister)
        .post("/runners/verify", "Verify the token of a runner", verify)
        .delete("/runners/managers", "Unregister a machine of a runner", unregister_manager)
}

async fn register(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(new): Params<RegisterRunner>,
) -> Reply<CreatedSecret<TokenJson>> {
    let (id, token) = runners::register(&forge, token.validate()?, new.map(|new| new.0)).await?;
    Ok(CreatedSecret(TokenJson { id: id.get(), token: token.reveal().to_owned(), token_expires_at: None }))
}

async fn unregister(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<NoContent> {
    runners::unregister(&forge, token.validate()?).await?;
    Ok(NoContent)
}

async fn verify(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<OkJson<TokenJson>> {
    let token = token.validate()?;
    let id = runners::verify(&forge, token).await?;
    Ok(OkJson(TokenJson { id: id.get(), token: token.reveal().to_owned(), token_expires_at: None }))
}

/// Machines that share a token are not distinguished, so there is nothing to delete.
async fn unregister_manager(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<NoContent> {
    runners::verify(&forge, token.validate()?).await?;
    Ok(NoContent)
}

/// The ID and the token of a runner.
#[derive(Serialize, JsonSchema)]
struct TokenJson {
    id: i64,
    token: String,
    token_expires_at: Option<String>,
}
