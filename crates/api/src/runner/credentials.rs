//! The job ID and the tokens in the requests of runners.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::{HeaderMap, request::Parts},
};
use forge::Unvalidated;
use model::{
    JobId,
    tokens::{Digest, Secret},
};

use crate::{
    error::ApiError,
    params::{RawParams, raw_params},
    routes::{ArgDoc, OperationDoc},
};

/// The token that a runner presents: its own, or a registration token. Newer runners also send it in headers, one of which
/// is used for the tokens of users elsewhere.
pub(super) struct RunnerToken(pub(super) Unvalidated<Secret>);

impl<S: Send + Sync> FromRequestParts<S> for RunnerToken {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let params = raw_params(parts);
        let in_header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let candidates = [params.text("token"), in_header("runner-token"), in_header("private-token")];
        let token = candidates.into_iter().flatten().find(|token| !token.is_empty());
        Ok(Self(Unvalidated::new(match token {
            Some(token) => Ok(Secret::new(token.to_owned())),
            None if params.contains("token") => Err(vec!["token is invalid".to_owned()]),
            None => Err(vec!["token is missing".to_owned()]),
        })))
    }
}

impl ArgDoc for RunnerToken {
    fn describe(_: &mut OperationDoc) {}
}

/// The job ID in a path. Older runners send -1 to check their own token.
pub(super) struct JobIdInPath(pub(super) JobId);

impl<S: Send + Sync> FromRequestParts<S> for JobIdInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::RouteNotFound)?;
        let segment = params.iter().find(|(name, _)| *name == "id").map(|(_, segment)| segment.to_owned());
        segment.and_then(|segment| segment.parse().ok()).map(Self).ok_or(ApiError::RouteNotFound)
    }
}

impl ArgDoc for JobIdInPath {
    fn describe(operation: &mut OperationDoc) {
        operation.may_be_missing = true;
    }
}

/// The tokens that a runner presents, in headers or parameters; those of users are not valid here.
pub(super) struct Tokens(pub(super) Vec<Digest>);

const TOKEN_HEADERS: [&str; 4] = ["job-token", "build-token", "runner-token", "private-token"];

impl<S: Send + Sync> FromRequestParts<S> for Tokens {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(tokens(&parts.headers, &raw_params(parts))))
    }
}

/// Returns the digests of the tokens in headers and parameters.
pub(crate) fn tokens(headers: &HeaderMap, params: &RawParams) -> Vec<Digest> {
    let in_headers = TOKEN_HEADERS.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    let tokens = in_headers.chain(params.text("token")).filter(|token| !token.is_empty());
    tokens.map(Digest::of).collect()
}

impl ArgDoc for Tokens {
    fn describe(_: &mut OperationDoc) {}
}
