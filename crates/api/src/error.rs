//! Errors over HTTP: the only file that knows statuses and the shapes of error bodies.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use forge::{
    Error,
    error::{DISK_FULL_MESSAGE, UNAVAILABLE_RETRY_SECONDS},
};
use model::Violations;
use serde_json::{Map, Value, json};

use crate::{access_log::request_id, json_params::MAX_JSON_VALUES, params::TooManyParams, reply};

/// An error response.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// An error of a use case.
    Forge(Error),
    /// An error of a use case with another status than the usual one.
    OverrideStatus(StatusCode, Error),
    /// All violations in one text with this prefix.
    ValidationText(&'static str, Violations),
    /// A refusal as `error` inside `message`, as GitLab 8.14 does for boards.
    NestedError(String),
    /// The path does not match a route.
    RouteNotFound,
    /// The body does not match its content type.
    MalformedBody,
    /// The request has too many parameters.
    TooManyParams,
    /// The JSON body has too many values.
    TooManyJsonValues,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// The body took too long to arrive.
    BodyTimeout,
    /// The content type of the body is not supported.
    UnsupportedContentType(String),
    /// The access token was sent both in the header and as a parameter.
    DuplicateToken,
    /// Another request changed the resource at the same time.
    Conflict,
    /// Too many requests or sign-ins; the client may retry after this time.
    RateLimited(Duration),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::Forge(error)
    }
}

impl From<TooManyParams> for ApiError {
    fn from(_: TooManyParams) -> Self {
        Self::TooManyParams
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::Forge(error) => forge_error(error, None),
            Self::OverrideStatus(status, error) => forge_error(error, Some(status)),
            Self::ValidationText(prefix, violations) => message_response(
                StatusCode::BAD_REQUEST,
                json!(format!("{prefix} {}", inspect_violations(&violations))),
            ),
            Self::NestedError(text) => message_response(StatusCode::BAD_REQUEST, json!({ "error": text })),
            Self::RouteNotFound => plain_error(StatusCode::NOT_FOUND),
            Self::MalformedBody => {
                error_response(StatusCode::BAD_REQUEST, "message body does not match declared format")
            }
            Self::TooManyParams => error_response(StatusCode::BAD_REQUEST, "too many parameters"),
            Self::TooManyJsonValues => {
                let error = format!("too many values in the request body; the limit is {MAX_JSON_VALUES}");
                error_response(StatusCode::BAD_REQUEST, &error)
            }
            Self::BodyTooLarge => {
                message_response(StatusCode::PAYLOAD_TOO_LARGE, json!("413 Request Entity Too Large"))
            }
            Self::BodyTimeout => message_response(StatusCode::REQUEST_TIMEOUT, json!("408 Request Timeout")),
            Self::UnsupportedContentType(kind) => error_response(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                &format!("The requested content-type '{kind}' is not supported."),
            ),
            Self::DuplicateToken => reply::json(
                StatusCode::BAD_REQUEST,
                &json!({
                    "error": "invalid_request",
                    "error_description": "Both Authorization header and payload includes access token.",
                }),
            ),
            Self::Conflict => message_response(StatusCode::CONFLICT, json!("409 Conflict")),
            Self::RateLimited(wait) => retry_later(wait),
        }
    }
}

/// Returns an error response whose text is derived from its status.
pub fn plain_error(status: StatusCode) -> Response {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => error_response(status, "405 Not Allowed"),
        _ => error_response(status, &format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())),
    }
}

/// Returns 429 with the body that GitLab 8.14 sends.
fn retry_later(wait: Duration) -> Response {
    // Rounded up, so that no client retries too early.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let headers =
        [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain")), (header::RETRY_AFTER, seconds.into())];
    (StatusCode::TOO_MANY_REQUESTS, headers, "Retry later\n").into_response()
}

/// Returns 500.
pub(crate) fn internal() -> Response {
    message_response(StatusCode::INTERNAL_SERVER_ERROR, json!("500 Internal Server Error"))
}

fn forge_error(error: Error, status: Option<StatusCode>) -> Response {
    let status_or = |usual| status.unwrap_or(usual);
    match error {
        Error::Unauthenticated => message_response(status_or(StatusCode::UNAUTHORIZED), json!("401 Unauthorized")),
        Error::Forbidden(None) => message_response(status_or(StatusCode::FORBIDDEN), json!("403 Forbidden")),
        // Two spaces: clients of GitLab 8.14 compare the text.
        Error::Forbidden(Some(reason)) => {
            message_response(status_or(StatusCode::FORBIDDEN), json!(format!("403 Forbidden  - {reason}")))
        }
        Error::NotFound(Some(what)) => {
            message_response(status_or(StatusCode::NOT_FOUND), json!(format!("404 {what} Not Found")))
        }
        Error::NotFound(None) => message_response(status_or(StatusCode::NOT_FOUND), json!("404 Not Found")),
        Error::NotFoundMessage(text) => message_response(status_or(StatusCode::NOT_FOUND), json!(text)),
        Error::Protected(text) => message_response(status_or(StatusCode::METHOD_NOT_ALLOWED), json!(text)),
        // A lower-case letter here, as in GitLab 8.14.
        Error::NoSuchRow => message_response(status_or(StatusCode::NOT_FOUND), json!("404 Not found")),
        Error::Unchanged => StatusCode::NOT_MODIFIED.into_response(),
        Error::Refused(text) => message_response(status_or(StatusCode::BAD_REQUEST), json!(text)),
        Error::RefRejected(rejection) => {
            message_response(status_or(StatusCode::BAD_REQUEST), json!(rejection.to_string()))
        }
        Error::AlreadyRevoked => {
            message_response(status_or(StatusCode::BAD_REQUEST), json!("400 Bad request - Token already revoked"))
        }
        Error::Unprocessable(text) => message_response(status_or(StatusCode::UNPROCESSABLE_ENTITY), json!(text)),
        // A list under `error`: the only case in which GitLab 8.14 does this.
        Error::LimitReached(text) => reply::json(status_or(StatusCode::FORBIDDEN), &json!({ "error": [text] })),
        Error::Malformed(faults) => error_response(status_or(StatusCode::BAD_REQUEST), &faults.join(", ")),
        Error::Invalid(violations) => message_response(status_or(StatusCode::BAD_REQUEST), fields(&violations)),
        Error::Conflicting(violations) => message_response(status_or(StatusCode::CONFLICT), fields(&violations)),
        Error::Taken(text) => message_response(status_or(StatusCode::CONFLICT), json!(text)),
        Error::Busy => {
            let mut response = message_response(StatusCode::SERVICE_UNAVAILABLE, json!("503 Service Unavailable"));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Error::Unavailable(_) => {
            tracing::warn!(request = request_id(), %error, "request failed: the database or the store is unavailable");
            let mut response = message_response(StatusCode::SERVICE_UNAVAILABLE, json!("503 Service Unavailable"));
            response.headers_mut().insert(header::RETRY_AFTER, UNAVAILABLE_RETRY_SECONDS.into());
            response
        }
        Error::DiskFull(_) => {
            tracing::warn!(request = request_id(), %error, "request failed: the disk is full");
            message_response(
                StatusCode::INSUFFICIENT_STORAGE,
                json!(format!("507 Insufficient Storage - {DISK_FULL_MESSAGE}")),
            )
        }
        Error::Store(_) | Error::Git(_) | Error::Files(_) | Error::Internal(_) => {
            tracing::error!(request = request_id(), %error, "request failed with an internal error");
            internal()
        }
    }
}

fn fields(violations: &Violations) -> Value {
    let fields: Map<String, Value> = violations.iter().map(|(field, texts)| (field.to_owned(), json!(texts))).collect();
    Value::Object(fields)
}

/// Formats violations as Ruby's `inspect` does in GitLab 8.14: clients display this text as it is.
fn inspect_violations(violations: &Violations) -> String {
    let fields: Vec<String> = violations.iter().map(|(field, texts)| format!(":{field}=>{}", json!(texts))).collect();
    format!("{{{}}}", fields.join(", "))
}

/// Returns an error in the shape of the application: `{"message": …}`.
fn message_response(status: StatusCode, message: Value) -> Response {
    reply::json(status, &json!({ "message": message }))
}

/// Returns an error in the shape of the framework around it (routes, parameters, bodies): `{"error": …}`.
fn error_response(status: StatusCode, error: &str) -> Response {
    reply::json(status, &json!({ "error": error }))
}
