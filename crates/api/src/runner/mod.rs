//! What runners speak: the protocol of today's below `/api/v4`, and that of older ones below `/ci/api/v1`.
//!
//! Runners show tokens of their own, which no user has, in bodies and headers; the ways in which users show who they are
//! do not count here.

pub(crate) mod artifacts;
mod jobs;
mod registration;
mod requests;
mod updates;

use crate::routes::Routes;

pub(crate) use jobs::tokens;

/// Where today's protocol is served.
pub(crate) const V4: &str = "/api/v4";
/// Where the older one is.
pub(crate) const CI_V1: &str = "/ci/api/v1";

/// Every route of today's protocol.
pub(crate) fn v4() -> Routes {
    registration::v4().and(requests::v4()).and(updates::v4()).and(artifacts::v4())
}

/// Every route of the older one.
pub(crate) fn ci_v1() -> Routes {
    registration::ci_v1().and(requests::ci_v1()).and(updates::ci_v1()).and(artifacts::ci_v1())
}
