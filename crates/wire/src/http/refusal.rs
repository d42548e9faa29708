//! Why a request of git was refused, and how that is told over HTTP.

use std::{io, time::Duration};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use forge::Error;

use crate::{fetch::Unanswered, origin::Origin, transfers::Busy, words};

/// How long a client waits that came when too much was going on.
const RETRY: Duration = Duration::from_secs(10);

/// Why a request was refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Signing in might help.
    Challenge,
    NotFound,
    Forbidden(String),
    /// Too many wrong passwords; how long to wait.
    Throttled(Duration),
    Busy,
    /// The address has as many transfers as it may have at once.
    Share,
    /// The protocol without a service.
    Dumb,
    /// Another method is needed, this one.
    Method(&'static str),
    /// A body of a kind that is not understood.
    Type,
    TooLarge,
    Unreadable,
    NoRoom,
    Failed,
}

impl Refusal {
    /// What a use case's refusal means here; who has shown nothing is asked to sign in, whether there is something or not.
    pub(super) fn of(error: &Error, shown: bool, origin: &Origin) -> Self {
        match error {
            Error::Unauthenticated | Error::NotFound(_) | Error::NoSuchRow | Error::Forbidden(_) if !shown => {
                Self::Challenge
            }
            Error::Unauthenticated => Self::Challenge,
            Error::NotFound(_) | Error::NoSuchRow => Self::NotFound,
            Error::Forbidden(_) | Error::Refused(_) => Self::Forbidden(words::sentence(error, origin)),
            Error::Busy => Self::Busy,
            Error::NoRoom(_) => Self::NoRoom,
            other => {
                origin.error("git request failed: internal error", other);
                Self::Failed
            }
        }
    }
}

impl From<Busy> for Refusal {
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Everywhere => Self::Busy,
            Busy::Here => Self::Share,
        }
    }
}

impl From<Unanswered> for Refusal {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Busy(busy) => busy.into(),
            Unanswered::Request(error) if error.kind() == io::ErrorKind::FileTooLarge => Self::TooLarge,
            Unanswered::Request(_) => Self::Unreadable,
            Unanswered::Failed => Self::Failed,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match &self {
            Self::Challenge => (StatusCode::UNAUTHORIZED, "HTTP Basic: Access denied"),
            Self::NotFound => (StatusCode::NOT_FOUND, "Not Found"),
            Self::Forbidden(text) => (StatusCode::FORBIDDEN, text.as_str()),
            Self::Throttled(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "Too many wrong passwords came from your address; try again later.")
            }
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, words::BUSY),
            Self::Share => (StatusCode::TOO_MANY_REQUESTS, words::SHARE),
            Self::Dumb => (
                StatusCode::NOT_FOUND,
                "Only the smart protocol of git is spoken here: ask for ?service=git-upload-pack or git-receive-pack.",
            ),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
            Self::Type => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not of the kind that git sends."),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The request is larger than allowed."),
            Self::Unreadable => (StatusCode::BAD_REQUEST, "The request could not be read."),
            Self::NoRoom => (StatusCode::INSUFFICIENT_STORAGE, words::NO_ROOM),
            Self::Failed => (StatusCode::INTERNAL_SERVER_ERROR, words::FAILED),
        };
        let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
        let mut response = (status, plain, text.to_owned()).into_response();
        let extra = match self {
            Self::Challenge => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"Gable\""))),
            Self::Throttled(wait) => Some((header::RETRY_AFTER, seconds(wait))),
            Self::Busy | Self::Share => Some((header::RETRY_AFTER, seconds(RETRY))),
            Self::Method(method) => Some((header::ALLOW, HeaderValue::from_static(method))),
            _ => None,
        };
        response.headers_mut().extend(extra);
        response
    }
}

/// Whole seconds, rounded up so that nobody comes back too early.
fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn told(refusal: Refusal) -> (u16, Option<String>, String) {
        let response = refusal.into_response();
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
    async fn who_has_shown_nothing_learns_nothing() {
        let origin = Origin::new("http", [192, 0, 2, 1].into(), "group/project");
        let challenge = (401, Some("Basic realm=\"Gable\"".to_owned()), "HTTP Basic: Access denied".to_owned());
        for error in
            [Error::Unauthenticated, Error::not_found("Project"), Error::forbidden("No."), Error::Forbidden(None)]
        {
            assert_eq!(told(Refusal::of(&error, false, &origin)).await, challenge);
        }
        let of = |error: Error| Refusal::of(&error, true, &origin);
        assert_eq!(told(of(Error::not_found("Project"))).await, (404, None, "Not Found".to_owned()));
        assert_eq!(told(of(Error::forbidden("No."))).await, (403, None, "No.".to_owned()));
        assert_eq!(told(of(Error::Unauthenticated)).await, challenge);
    }

    #[tokio::test]
    async fn who_came_too_early_hears_when_to_come_back() {
        assert_eq!(told(Refusal::Busy).await, (503, Some("10".to_owned()), words::BUSY.to_owned()));
        assert_eq!(told(Refusal::from(Busy::Here)).await, (429, Some("10".to_owned()), words::SHARE.to_owned()));
        let (status, retry, _) = told(Refusal::Throttled(Duration::from_millis(5_001))).await;
        assert_eq!((status, retry.as_deref()), (429, Some("6")));
        assert_eq!(told(Refusal::Method("POST")).await.1.as_deref(), Some("POST"));
    }
}
