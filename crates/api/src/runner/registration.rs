//! Joining and leaving.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
};
use forge::{
    Error, Forge, Unvalidated,
    runners::{self, Registration},
};
use model::{runners::RunnerInfo, tokens::Secret};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    error::ApiError,
    params::{FromParams, ParamReader, Params, bag_of},
    reply::{CreatedSecret, Done, NoContent, Reply},
    routes::{ArgDoc, OperationDoc, Routes},
};

pub(super) fn v4() -> Routes {
    Routes::new()
        .post("/runners", "Lets a runner join", register)
        .delete("/runners", "Lets a runner leave", unregister)
        .post("/runners/verify", "Tells a runner whether its token is good", verify)
        .delete("/runners/managers", "Lets one of the machines of a runner leave", leave_as_machine)
}

pub(super) fn ci_v1() -> Routes {
    Routes::new().post("/runners/register", "Lets a runner join", register_as_before).delete(
        "/runners/delete",
        "Lets a runner leave",
        unregister_as_before,
    )
}

/// The token that a runner shows: its own, or one with which it joins. Newer runners also send it in headers, one of which
/// users show their tokens in elsewhere.
pub(super) struct RunnerToken(pub(super) Unvalidated<Secret>);

impl<S: Send + Sync> FromRequestParts<S> for RunnerToken {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let bag = bag_of(parts);
        let in_header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let carriers = [bag.text("token"), in_header("runner-token"), in_header("private-token")];
        let shown = carriers.into_iter().flatten().find(|token| !token.is_empty());
        Ok(Self(Unvalidated::new(match shown {
            Some(token) => Ok(Secret::new(token.to_owned())),
            None if bag.mentions("token") => Err(vec!["token is invalid".to_owned()]),
            None => Err(vec!["token is missing".to_owned()]),
        })))
    }
}

impl ArgDoc for RunnerToken {
    fn describe(_: &mut OperationDoc) {}
}

/// What a runner says about itself, in the words of the protocol.
pub(super) struct Info(pub(super) RunnerInfo);

impl FromParams for Info {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let mut said = |name, description| from.text(name, description).map(|text| in_short(&text));
        Self(RunnerInfo {
            name: said("name", "What it calls itself"),
            version: said("version", "Its version"),
            revision: said("revision", "Its revision"),
            platform: said("platform", "Its operating system"),
            architecture: said("architecture", "Its processor"),
        })
    }
}

/// Whatever a runner says about itself is no reason to turn it away.
fn in_short(text: &str) -> String {
    text.chars().filter(|sign| !sign.is_control()).take(255).collect()
}

struct Register(Registration);

impl FromParams for Register {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let description = from.text("description", "What its owner calls it");
        let tags = from.words("tag_list", "What it has to offer");
        let run_untagged = from.flag("run_untagged", "Whether it takes builds without tags; yes unless said otherwise");
        let locked = from.flag("locked", "Whether it joins no further projects");
        let active = from.flag("active", "Whether it takes builds; yes unless said otherwise");
        let paused = from.flag("paused", "Whether it takes none");
        let maximum_timeout = from.integer("maximum_timeout", "How many seconds a build of it may take at most");
        let info = from.lenient_object::<Info>("info", "What it says about itself");
        // Refused and not ignored: whoever asks for that counts on it.
        if from.text("access_level", "Which branches it builds").as_deref() == Some("ref_protected") {
            from.fault("access_level");
        }
        let mut known = std::collections::HashSet::new();
        let mut tags = tags.unwrap_or_default();
        tags.retain(|tag| known.insert(tag.clone()));
        Self(Registration {
            description: description.unwrap_or_default(),
            active: active.unwrap_or(true) && !paused.unwrap_or(false),
            run_untagged: run_untagged.unwrap_or(true),
            locked: locked.unwrap_or(false),
            tags,
            // Runners that know no limit send zero.
            maximum_timeout: maximum_timeout.filter(|seconds| *seconds != 0),
            info: info.map_or_else(RunnerInfo::default, |info| info.0),
        })
    }
}

async fn register(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(new): Params<Register>,
) -> Reply<CreatedSecret<TokenJson>> {
    let (id, token) = runners::register(&forge, token.get()?, new.map(|new| new.0)).await?;
    Ok(CreatedSecret(TokenJson { id, token: token.reveal().to_owned(), token_expires_at: None }))
}

async fn unregister(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<NoContent> {
    runners::unregister(&forge, token.get()?).await?;
    Ok(NoContent)
}

async fn verify(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<Done<TokenJson>> {
    let token = token.get()?;
    let id = runners::verify(&forge, token).await?;
    Ok(Done(TokenJson { id, token: token.reveal().to_owned(), token_expires_at: None }))
}

/// Machines that share a token are not told apart here, so there is nothing to forget.
async fn leave_as_machine(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<NoContent> {
    runners::verify(&forge, token.get()?).await?;
    Ok(NoContent)
}

async fn register_as_before(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(new): Params<Register>,
) -> Reply<CreatedSecret<OldTokenJson>> {
    let registered = runners::register(&forge, token.get()?, new.map(|new| new.0)).await;
    let (id, token) = registered.map_err(|error| match error {
        // A runner that breaks the rules is simply not there, as in the original.
        Error::Invalid(_) => ApiError::Under(StatusCode::NOT_FOUND, error),
        error => error.into(),
    })?;
    Ok(CreatedSecret(OldTokenJson { id, token: token.reveal().to_owned() }))
}

async fn unregister_as_before(State(forge): State<Forge>, RunnerToken(token): RunnerToken) -> Reply<Done<()>> {
    runners::unregister(&forge, token.get()?).await?;
    Ok(Done(()))
}

/// Who a runner is, and how it shows that.
#[derive(Serialize, JsonSchema)]
struct TokenJson {
    id: i64,
    token: String,
    token_expires_at: Option<String>,
}

/// The same for older runners.
#[derive(Serialize, JsonSchema)]
struct OldTokenJson {
    id: i64,
    token: String,
}
