//! Looking over a CI file.

use axum::extract::State;
use forge::{Forge, lint};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    params::{FromParams, ParamReader, Params},
    reply::{Done, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new().post("/ci/lint", "Tells whether a CI file is in order", check)
}

async fn check(State(forge): State<Forge>, Params(given): Params<LintFile>) -> Reply<Done<LintJson>> {
    let error = lint::check(&forge, given.map(|given| given.0)).await?;
    let status = if error.is_none() { "valid" } else { "invalid" };
    Ok(Done(LintJson { status, errors: error.into_iter().collect() }))
}

struct LintFile(String);

impl FromParams for LintFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.content("content", true, "The content of the file").unwrap_or_default())
    }
}

/// What there is to say about a CI file.
#[derive(Serialize, JsonSchema)]
struct LintJson {
    #[schemars(with = "VerdictJson")]
    status: &'static str,
    /// The first error, if there is one.
    errors: Vec<String>,
}

/// Whether a file is in order.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the words for the document")]
enum VerdictJson {
    Valid,
    Invalid,
}
