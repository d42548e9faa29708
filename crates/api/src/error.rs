//! Errors over HTTP: the only file that tells 404 from 409 and `message` from `error`.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use forge::{Error, error::NO_ROOM};
use model::Violations;
use serde_json::{Map, Value, json};

use crate::{access_log::request_id, json_items::MOST_VALUES, params::TooMany, reply};

/// Why a request is not answered as hoped.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// What the forge said.
    Forge(Error),
    /// What the forge said, under another status than usual.
    Under(StatusCode, Error),
    /// What is wrong with a record, in one text that begins with this.
    Spelled(&'static str, Violations),
    /// Why it was refused, as an `error` inside the message: boards of the original tell it so.
    Wrapped(String),
    /// The request does not fit the route.
    NoRoute,
    /// The body is not what its type says.
    BadBody,
    /// More parameters than are read.
    TooMany,
    /// More values in a JSON body than are read.
    TooManyValues,
    /// The body is larger than allowed.
    TooLarge,
    /// The body took too long to arrive.
    TooSlow,
    /// The body is of a type that is not read here.
    UnsupportedType(String),
    /// A token twice, by two ways.
    TwoTokens,
    /// Too many requests or sign-ins; how long to wait.
    Limited(Duration),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::Forge(error)
    }
}

impl From<TooMany> for ApiError {
    fn from(_: TooMany) -> Self {
        Self::TooMany
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::Forge(error) => forge_error(error, None),
            Self::Under(status, error) => forge_error(error, Some(status)),
            Self::Spelled(beginning, violations) => {
                helper(StatusCode::BAD_REQUEST, json!(format!("{beginning} {}", spelled(&violations))))
            }
            Self::Wrapped(text) => helper(StatusCode::BAD_REQUEST, json!({ "error": text })),
            Self::NoRoute => plain_error(StatusCode::NOT_FOUND),
            Self::BadBody => framework(StatusCode::BAD_REQUEST, "message body does not match declared format"),
            Self::TooMany => framework(StatusCode::BAD_REQUEST, "too many parameters"),
            Self::TooManyValues => {
                let error = format!("too many values in the request body; the limit is {MOST_VALUES}");
                framework(StatusCode::BAD_REQUEST, &error)
            }
            Self::TooLarge => helper(StatusCode::PAYLOAD_TOO_LARGE, json!("413 Request Entity Too Large")),
            Self::TooSlow => helper(StatusCode::REQUEST_TIMEOUT, json!("408 Request Timeout")),
            Self::UnsupportedType(kind) => framework(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                &format!("The requested content-type '{kind}' is not supported."),
            ),
            Self::TwoTokens => reply::json(
                StatusCode::BAD_REQUEST,
                &json!({
                    "error": "invalid_request",
                    "error_description": "Both Authorization header and payload includes access token.",
                }),
            ),
            Self::Limited(wait) => retry_later(wait),
        }
    }
}

/// An error of the framework's kind, known by its status alone.
pub fn plain_error(status: StatusCode) -> Response {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => framework(status, "405 Not Allowed"),
        _ => framework(status, &format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())),
    }
}

/// Too much at once, told as the original does.
fn retry_later(wait: Duration) -> Response {
    // Rounded up, so that nobody comes back too early.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let plain = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain")), (header::RETRY_AFTER, seconds.into())];
    (StatusCode::TOO_MANY_REQUESTS, plain, "Retry later\n").into_response()
}

/// A fault of ours.
pub(crate) fn internal() -> Response {
    helper(StatusCode::INTERNAL_SERVER_ERROR, json!("500 Internal Server Error"))
}

fn forge_error(error: Error, status: Option<StatusCode>) -> Response {
    let under = |usual| status.unwrap_or(usual);
    match error {
        Error::Unauthenticated => helper(under(StatusCode::UNAUTHORIZED), json!("401 Unauthorized")),
        Error::Forbidden(None) => helper(under(StatusCode::FORBIDDEN), json!("403 Forbidden")),
        // Two spaces: clients of the original compare the text.
        Error::Forbidden(Some(reason)) => {
            helper(under(StatusCode::FORBIDDEN), json!(format!("403 Forbidden  - {reason}")))
        }
        Error::NotFound(what) => helper(under(StatusCode::NOT_FOUND), json!(format!("404 {what} Not Found"))),
        Error::Absent(text) => helper(under(StatusCode::NOT_FOUND), json!(text)),
        Error::Kept(text) => helper(under(StatusCode::METHOD_NOT_ALLOWED), json!(text)),
        // A small letter here, as in the original.
        Error::NoSuchRow => helper(under(StatusCode::NOT_FOUND), json!("404 Not found")),
        Error::Unchanged => StatusCode::NOT_MODIFIED.into_response(),
        Error::Refused(text) => helper(under(StatusCode::BAD_REQUEST), json!(text)),
        Error::Unprocessable(text) => helper(under(StatusCode::UNPROCESSABLE_ENTITY), json!(text)),
        // A list under `error`: the only place where the original does this.
        Error::LimitReached(text) => reply::json(under(StatusCode::FORBIDDEN), &json!({ "error": [text] })),
        Error::Malformed(faults) => framework(under(StatusCode::BAD_REQUEST), &faults.join(", ")),
        Error::Invalid(violations) => helper(under(StatusCode::BAD_REQUEST), fields(&violations)),
        Error::Conflicting(violations) => helper(under(StatusCode::CONFLICT), fields(&violations)),
        Error::Taken(text) => helper(under(StatusCode::CONFLICT), json!(text)),
        Error::Busy => {
            let mut response = helper(StatusCode::SERVICE_UNAVAILABLE, json!("503 Service Unavailable"));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Error::NoRoom(_) => {
            tracing::warn!(request = request_id(), %error, "there was no room for what a request brought");
            helper(StatusCode::INSUFFICIENT_STORAGE, json!(format!("507 Insufficient Storage - {NO_ROOM}")))
        }
        Error::Store(_) | Error::Internal(_) => {
            tracing::error!(request = request_id(), %error, "a request failed by our fault");
            internal()
        }
    }
}

fn fields(violations: &Violations) -> Value {
    let fields: Map<String, Value> = violations.iter().map(|(field, texts)| (field.to_owned(), json!(texts))).collect();
    Value::Object(fields)
}

/// What is wrong with a record, as the original prints it: clients show this text as it is.
fn spelled(violations: &Violations) -> String {
    let fields: Vec<String> = violations.iter().map(|(field, texts)| format!(":{field}=>{}", json!(texts))).collect();
    format!("{{{}}}", fields.join(", "))
}

/// The envelope of the application's own helpers.
fn helper(status: StatusCode, message: Value) -> Response {
    reply::json(status, &json!({ "message": message }))
}

/// The envelope of the framework: routes, parameters, bodies.
fn framework(status: StatusCode, error: &str) -> Response {
    reply::json(status, &json!({ "error": error }))
}
