//! Extractors: who is asking, and which thing is meant.

use axum::{
    extract::{FromRequestParts, RawPathParams, State},
    http::{HeaderMap, header, request::Parts},
};
use forge::{Caller, Error};

use crate::{
    access_log::Footprint,
    error::ApiError,
    params::{Bag, bag_of},
    routes::{ArgDoc, OperationDoc},
    site::Site,
};

/// Who is asking, as far as they show it; the forge finds out whether it is true.
pub(crate) struct Showing(pub(crate) Caller);

impl<S: Send + Sync> FromRequestParts<S> for Showing {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let bag = bag_of(parts);
        let (private, bearer) = (text(&parts.headers, "private-token"), bearer(&parts.headers));
        if bearer.is_some() && bag.mentions("access_token") {
            return Err(ApiError::TwoTokens);
        }
        // The parameter wins over the header, even if it is empty.
        let private = if bag.mentions("private_token") { bag.text("private_token") } else { private };
        let carriers = [private, bag.text("access_token"), bearer, bag.text("bearer_token")];
        let tokens = carriers.into_iter().flatten().filter(|token| !token.is_empty());
        let caller = Caller::with_tokens(tokens).acting_as(sudo(&bag, parts)?);
        Ok(Self(caller.noted_in(Footprint::of(&parts.extensions).who())))
    }
}

/// Who is asking, as far as the headers show it.
pub fn shown_by(headers: &HeaderMap) -> Caller {
    Caller::with_tokens(text(headers, "private-token").into_iter().chain(bearer(headers)))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whom the caller wants to act as. What cannot be understood is refused: a call that was meant to run with the rights of
/// another must not run with those of the administrator.
fn sudo(bag: &Bag, parts: &Parts) -> Result<Option<String>, ApiError> {
    let malformed = || ApiError::Forge(Error::Malformed(vec!["sudo is invalid".to_owned()]));
    if bag.mentions("sudo") {
        let target = bag.text("sudo").filter(|target| !target.is_empty());
        return target.map(|target| Some(target.to_owned())).ok_or_else(malformed);
    }
    let mut headers = parts.headers.get_all("sudo").iter();
    let Some(header) = headers.next() else { return Ok(None) };
    let target = header.to_str().ok().filter(|target| !target.is_empty() && headers.next().is_none());
    target.map(|target| Some(target.to_owned())).ok_or_else(malformed)
}

impl ArgDoc for Showing {
    fn describe(operation: &mut OperationDoc) {
        operation.authenticated = true;
    }
}

/// The numbers in a path, in their order. Anything but digits does not fit the route.
pub(crate) struct Numbers<const N: usize>(pub(crate) [i64; N]);

impl<S: Send + Sync, const N: usize> FromRequestParts<S> for Numbers<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::NoRoute)?;
        let mut numbers = [0; N];
        let mut segments = params.iter();
        for (index, number) in numbers.iter_mut().enumerate() {
            let (_, segment) = segments.next().ok_or(ApiError::NoRoute)?;
            // The suffix belongs to the path, so only its last segment can have it.
            let last = index + 1 == N && parts.uri.path().ends_with(segment);
            let digits = segment.strip_suffix(".json").filter(|_| last).unwrap_or(segment);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(ApiError::NoRoute);
            }
            // A number too large for any id finds nothing.
            *number = digits.parse().unwrap_or(i64::MAX);
        }
        Ok(Self(numbers))
    }
}

impl<const N: usize> ArgDoc for Numbers<N> {
    fn describe(operation: &mut OperationDoc) {
        operation.looks_up = true;
    }
}

impl<T> ArgDoc for State<T> {
    fn describe(_: &mut OperationDoc) {}
}

impl ArgDoc for Site {
    fn describe(_: &mut OperationDoc) {}
}
