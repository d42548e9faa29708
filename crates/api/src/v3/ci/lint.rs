//! Validation of CI files.

use axum::extract::State;
use forge::{Forge, lint};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    openapi::Tag,
    params::{FromParams, ParamReader, Params},
    reply::{OkJson, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::CiLint).post("/ci/lint", "Validate a CI file", check)
}

async fn check(State(forge): State<Forge>, Params(params): Params<LintFile>) -> Reply<OkJson<LintJson>> {
    let error = lint::check(&forge, params.map(|params| params.0)).await?;
    let status = if error.is_none() { "valid" } else { "invalid" };
    Ok(OkJson(LintJson { status, errors: error.into_iter().collect() }))
}

struct LintFile(String);

impl FromParams for LintFile {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.content("content", true, "The content of the file").unwrap_or_default())
    }
}

/// The result of validating a CI file.
#[derive(Serialize, JsonSchema)]
struct LintJson {
    #[schemars(with = "VerdictJson")]
    status: &'static str,
    /// The first error, if there is one.
    errors: Vec<String>,
}

/// Whether a file is valid.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the values in the OpenAPI document")]
enum VerdictJson {
    Valid,
    Invalid,
}
