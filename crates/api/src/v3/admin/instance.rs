//! The version of the API and its OpenAPI document.

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use forge::Ability;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::CallerCx,
    openapi::Tag,
    reply::{OkJson, Reply},
    routes::{OperationDoc, ReplyDoc, Routes},
};

/// The version of GitLab that the API reports; clients derive from it which features they can use.
const GITLAB_VERSION: &str = "8.14.0";

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Instance).get("/version", "Get the version of the API", version).get(
        "/openapi.json",
        "Get the OpenAPI document of the API",
        openapi,
    )
}

async fn version(cx: CallerCx) -> Reply<OkJson<VersionJson>> {
    cx.read_inline(|tx| tx.authorize(Ability::ReadVersion)).await?;
    Ok(OkJson(VersionJson { version: GITLAB_VERSION, revision: concat!("gable-", env!("CARGO_PKG_VERSION")) }))
}

/// The GitLab version of the API, and the version of Gable.
#[derive(Serialize, JsonSchema)]
struct VersionJson {
    version: &'static str,
    revision: &'static str,
}

async fn openapi(State(app): State<App>) -> Reply<Document> {
    Ok(Document(app.openapi()))
}

/// The OpenAPI document.
struct Document(bytes::Bytes);

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], self.0).into_response()
    }
}

impl ReplyDoc for Document {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.schema = Some(|_| schemars::json_schema!({ "type": "object" }));
    }
}
