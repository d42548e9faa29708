//! The rate limit of sign-in attempts per client network.

use std::{convert::Infallible, net::IpAddr};

use axum::{extract::FromRequestParts, http::request::Parts};

use crate::{
    App,
    client_address::client_address,
    error::ApiError,
    routes::{ArgDoc, OperationDoc},
};

/// A counted sign-in attempt; rejects the request with 429 over the limit.
pub(crate) struct SignInAttempt(
    /// The address of the client.
    pub(crate) IpAddr,
);

impl FromRequestParts<App> for SignInAttempt {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let Ok(attempts) = PasswordAttempts::from_request_parts(parts, app).await;
        attempts.count().map(|()| Self(attempts.address))
    }
}

/// Counts password attempts for requests that may or may not contain a password.
pub(crate) struct PasswordAttempts {
    app: App,
    address: IpAddr,
}

impl PasswordAttempts {
    /// Counts an attempt, or fails with 429.
    pub(crate) fn count(&self) -> Result<(), ApiError> {
        self.app.sign_in_limiter().check(self.address).map_err(|wait| {
            self.app.limits().log_sign_in_rejection(self.address);
            ApiError::RateLimited(wait)
        })
    }
}

impl FromRequestParts<App> for PasswordAttempts {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        Ok(Self { app: app.clone(), address: client_address(&parts.extensions) })
    }
}

impl ArgDoc for PasswordAttempts {
    fn describe(operation: &mut OperationDoc) {
        operation.limits_sign_ins = true;
    }
}

impl ArgDoc for SignInAttempt {
    fn describe(operation: &mut OperationDoc) {
        operation.limits_sign_ins = true;
    }
}
