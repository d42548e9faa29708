//! Errors of git over HTTP and their responses.

use std::{io, time::Duration};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use forge::{Error, error::UNAVAILABLE_RETRY_SECONDS};

use crate::{fetch::FetchError, log_context::LogContext, messages, transfers::Busy};

/// The `Retry-After` of a response that reports a busy server.
const RETRY_AFTER_BUSY: Duration = Duration::from_secs(10);

/// Why a request is refused.
#[derive(Debug)]
pub(super) enum HttpError {
    /// The request needs other credentials.
    Challenge,
    NotFound,
    Forbidden(String),
    /// Too many failed sign-ins; holds the time until the next attempt is allowed.
    RateLimited(Duration),
    Busy,
    /// The database cannot be reached.
    Unavailable,
    /// The client network has its maximum number of transfers.
    ClientBusy,
    /// The request uses the dumb protocol, without a service.
    DumbProtocol,
    /// The endpoint requires this method.
    MethodNotAllowed(&'static str),
    /// The content type or encoding of the body is not supported.
    UnsupportedMediaType,
    TooLarge,
    BadRequest,
    InsufficientStorage,
    Internal,
}

impl HttpError {
    /// Converts the error of a use case. A request without credentials is always challenged, so that it does not reveal whether
    /// a project exists.
    pub(super) fn from_forge(error: &Error, has_credentials: bool, log: &LogContext) -> Self {
        match error {
            Error::Unauthenticated | Error::NotFound(_) | Error::NoSuchRow | Error::Forbidden(_)
                if !has_credentials =>
            {
                Self::Challenge
            }
            Error::Unauthenticated => Self::Challenge,
            Error::NotFound(_) | Error::NoSuchRow => Self::NotFound,
            Error::Forbidden(_) | Error::Refused(_) | Error::RefRejected(_) => {
                Self::Forbidden(messages::describe_error(error, log))
            }
            Error::Busy => Self::Busy,
            Error::Unavailable(_) => {
                log.warn("git request failed: the database is unavailable", error);
                Self::Unavailable
            }
            Error::DiskFull(_) => Self::InsufficientStorage,
            other => {
                log.error("git request failed: internal error", other);
                Self::Internal
            }
        }
    }
}

impl From<Busy> for HttpError {
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Server => Self::Busy,
            Busy::Client => Self::ClientBusy,
        }
    }
}

impl From<FetchError> for HttpError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Busy(busy) => busy.into(),
            FetchError::Request(error) if error.kind() == io::ErrorKind::FileTooLarge => Self::TooLarge,
            FetchError::Request(_) => Self::BadRequest,
            FetchError::Failed => Self::Internal,
        }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let (status, text) = match &self {
            Self::Challenge => (StatusCode::UNAUTHORIZED, "HTTP Basic: Access denied"),
            Self::NotFound => (StatusCode::NOT_FOUND, "Not Found"),
            Self::Forbidden(text) => (StatusCode::FORBIDDEN, text.as_str()),
            Self::RateLimited(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "too many failed sign-ins from your address; try again later")
            }
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, messages::BUSY),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, messages::UNAVAILABLE),
            Self::ClientBusy => (StatusCode::TOO_MANY_REQUESTS, messages::CLIENT_BUSY),
            Self::DumbProtocol => (
                StatusCode::NOT_FOUND,
                "only git's smart HTTP protocol is supported; use ?service=git-upload-pack or ?service=git-receive-pack",
            ),
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
            Self::UnsupportedMediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported content type or encoding"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the request is too large"),
            Self::BadRequest => (StatusCode::BAD_REQUEST, "the request is malformed"),
            Self::InsufficientStorage => (StatusCode::INSUFFICIENT_STORAGE, messages::DISK_FULL_MESSAGE),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, messages::INTERNAL_ERROR),
        };
        let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
        let mut response = (status, plain, text.to_owned()).into_response();
        let extra = match self {
            Self::Challenge => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"Gable\""))),
            Self::RateLimited(wait) => Some((header::RETRY_AFTER, seconds(wait))),
            Self::Unavailable => Some((header::RETRY_AFTER, UNAVAILABLE_RETRY_SECONDS.into())),
            Self::Busy | Self::ClientBusy => Some((header::RETRY_AFTER, seconds(RETRY_AFTER_BUSY))),
            Self::MethodNotAllowed(method) => Some((header::ALLOW, HeaderValue::from_static(method))),
            _ => None,
        };
        response.headers_mut().extend(extra);
        response
    }
}

/// Returns a duration in whole seconds, rounded up.
fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn response_of(error: HttpError) -> (u16, Option<String>, String) {
        let response = error.into_response();
        let headers = response.headers();
        let extra = [header::WWW_AUTHENTICATE, header::RETRY_AFTER, header::ALLOW];
        let extra =
            extra.iter().find_map(|name| headers.get(name)).map(|value| value.to_str().expect("text").to_owned());
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, extra, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_request_without_credentials_is_always_challenged() {
        let log = LogContext::new("http", [192, 0, 2, 1].into(), "group/project");
        let challenge = (401, Some("Basic realm=\"Gable\"".to_owned()), "HTTP Basic: Access denied".to_owned());
        for error in
            [Error::Unauthenticated, Error::not_found("Project"), Error::forbidden("No."), Error::Forbidden(None)]
        {
            assert_eq!(response_of(HttpError::from_forge(&error, false, &log)).await, challenge);
        }
        let of = |error: Error| HttpError::from_forge(&error, true, &log);
        assert_eq!(response_of(of(Error::not_found("Project"))).await, (404, None, "Not Found".to_owned()));
        assert_eq!(response_of(of(Error::forbidden("No."))).await, (403, None, "No.".to_owned()));
        assert_eq!(response_of(of(Error::Unauthenticated)).await, challenge);
    }

    #[tokio::test]
    async fn busy_and_rate_limited_responses_say_when_to_retry() {
        let log = LogContext::new("http", [192, 0, 2, 1].into(), "group/project");
        let unavailable = HttpError::from_forge(&Error::Unavailable("no route to the database".into()), false, &log);
        assert_eq!(response_of(unavailable).await, (503, Some("5".to_owned()), messages::UNAVAILABLE.to_owned()));
        assert_eq!(response_of(HttpError::Busy).await, (503, Some("10".to_owned()), messages::BUSY.to_owned()));
        assert_eq!(
            response_of(HttpError::from(Busy::Client)).await,
            (429, Some("10".to_owned()), messages::CLIENT_BUSY.to_owned())
        );
        let (status, retry, _) = response_of(HttpError::RateLimited(Duration::from_millis(5_001))).await;
        assert_eq!((status, retry.as_deref()), (429, Some("6")));
        assert_eq!(response_of(HttpError::MethodNotAllowed("POST")).await.1.as_deref(), Some("POST"));
    }
}
