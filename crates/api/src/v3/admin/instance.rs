//! What the instance tells about itself.

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use forge::{Ability, Forge};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    extract::Credentials,
    reply::{Done, Reply},
    routes::{OperationDoc, ReplyDoc, Routes},
};

/// The release of the original whose interface this is; stock clients read it.
const SPOKEN: &str = "8.14.0";

pub(crate) fn routes() -> Routes {
    Routes::new().get("/version", "Tells which version of the interface this is", version).get(
        "/openapi.json",
        "Describes this interface",
        openapi,
    )
}

async fn version(State(forge): State<Forge>, Credentials(caller): Credentials) -> Reply<Done<VersionJson>> {
    forge.read_inline(caller, |tx| tx.may(Ability::ReadVersion)).await?;
    Ok(Done(VersionJson { version: SPOKEN, revision: concat!("gable-", env!("CARGO_PKG_VERSION")) }))
}

/// The spoken version and our own.
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
