//! What all calls about one job share: its number, the tokens that are shown for it, and answers that tell how it stands.

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use forge::Error;
use model::{Status, tokens::Digest};
use serde_json::{Value, json};

use crate::{
    error::ApiError,
    params::{Bag, bag_of},
    reply,
    routes::{ArgDoc, OperationDoc, ReplyDoc},
};

/// Which of the two protocols is spoken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Today's.
    V4,
    /// The older one.
    CiV1,
}

/// The job that a path means. Older runners ask for number -1 to find out whether they are known.
pub(super) struct JobNumber(pub(super) i64);

impl<S: Send + Sync> FromRequestParts<S> for JobNumber {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::NoRoute)?;
        let segment = params.iter().find(|(name, _)| *name == "id").map(|(_, segment)| segment.to_owned());
        segment.and_then(|segment| segment.parse().ok()).map(Self).ok_or(ApiError::NoRoute)
    }
}

impl ArgDoc for JobNumber {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
    }
}

/// The tokens that a runner shows, by whatever way; those of users open nothing here.
pub(super) struct Tokens(pub(super) Vec<Digest>);

const CARRIERS: [&str; 4] = ["job-token", "build-token", "runner-token", "private-token"];

impl<S: Send + Sync> FromRequestParts<S> for Tokens {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(tokens(&parts.headers, &bag_of(parts))))
    }
}

/// The tokens in headers and parameters.
pub(crate) fn tokens(headers: &HeaderMap, bag: &Bag) -> Vec<Digest> {
    let in_headers = CARRIERS.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    let tokens = in_headers.chain(bag.text("token")).filter(|token| !token.is_empty());
    tokens.map(Digest::of).collect()
}

impl ArgDoc for Tokens {
    fn describe(_: &mut OperationDoc) {}
}

/// An answer that tells how a job stands.
pub(super) struct JobAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Option<Value>,
}

impl JobAnswer {
    /// An answer under a status, without a body.
    pub(super) fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: None }
    }

    /// With this body.
    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Tells how the job stands.
    pub(super) fn standing(mut self, protocol: Protocol, status: Status) -> Self {
        let name = match protocol {
            Protocol::V4 => "job-status",
            Protocol::CiV1 => "build-status",
        };
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(status.word()));
        self
    }

    /// Tells how long the trace is.
    pub(super) fn length(mut self, size: u64) -> Self {
        let range = HeaderValue::try_from(format!("0-{size}")).expect("digits are fine in a header");
        self.headers.insert(header::RANGE, range);
        self
    }

    /// The refusal of whatever is said about a job that does not run.
    pub(super) fn not_running(protocol: Protocol, status: Status) -> Self {
        let told = json!({ "message": "403 Forbidden  - Job is not running" });
        Self::new(StatusCode::FORBIDDEN).body(told).standing(protocol, status)
    }
}

impl IntoResponse for JobAnswer {
    fn into_response(self) -> Response {
        let mut response = match self.body {
            Some(body) => reply::json(self.status, &body),
            None => self.status.into_response(),
        };
        response.headers_mut().extend(self.headers);
        response
    }
}

impl ReplyDoc for JobAnswer {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
    }
}

/// A refusal of the older protocol for a job that does not run.
pub(super) fn gone(erased: bool) -> ApiError {
    let error = if erased { Error::forbidden("Build has been erased!") } else { Error::Absent("404 Not Found".into()) };
    ApiError::Forge(error)
}
