//! What every answer tells a browser: to take it for what it says it is, and for nothing more.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// How long browsers come by TLS only, once they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct StrictTransport(Option<HeaderValue>);

impl StrictTransport {
    /// For so many seconds; 0 is not at all.
    pub(crate) fn new(seconds: u32) -> Self {
        let value = (seconds > 0).then(|| HeaderValue::try_from(format!("max-age={seconds}")));
        Self(value.and_then(Result::ok))
    }
}

/// Adds what the answer does not say itself.
pub(crate) fn guard(response: &mut Response, secure: bool, strict: &StrictTransport, shared: bool) {
    let headers = response.headers_mut();
    headers.reserve(8);
    or_insert(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    or_insert(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    or_insert(headers, header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    or_insert(
        headers,
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
    or_insert(headers, header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Pictures are shown by pages of others, too.
    if !shared {
        headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    }
    if let (true, Some(value)) = (secure, &strict.0) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
    }
}

fn or_insert(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    headers.entry(name).or_insert(value);
}
