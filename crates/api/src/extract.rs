//! Extractors: who is asking, and which thing is meant.

use axum::{
    extract::{FromRequestParts, RawPathParams, State},
    http::{header, request::Parts},
};
use forge::Caller;

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
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = header(header::AUTHORIZATION.as_str()).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        if bearer.is_some() && bag.mentions("access_token") {
            return Err(ApiError::TwoTokens);
        }
        // The parameter wins over the header, even if it is empty.
        let private = if bag.mentions("private_token") { bag.text("private_token") } else { header("private-token") };
        let carriers = [private, bag.text("access_token"), bearer, bag.text("bearer_token")];
        let tokens = carriers.into_iter().flatten().filter(|token| !token.is_empty());
        let caller = Caller::with_tokens(tokens).acting_as(sudo(&bag, header("sudo")));
        Ok(Self(caller.noted_in(Footprint::of(&parts.extensions).user())))
    }
}

fn sudo(bag: &Bag, header: Option<&str>) -> Option<String> {
    bag.text("sudo").or(header).filter(|target| !target.is_empty()).map(ToOwned::to_owned)
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
        for number in &mut numbers {
            let (_, segment) = segments.next().ok_or(ApiError::NoRoute)?;
            let digits = segment.strip_suffix(".json").unwrap_or(segment);
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
