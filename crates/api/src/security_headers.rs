//! Security headers of every response: content sniffing, framing, referrer, CSP, caching and HSTS.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The value of `Strict-Transport-Security`.
#[derive(Clone, Debug, Default)]
pub(crate) struct StrictTransport(Option<HeaderValue>);

impl StrictTransport {
    /// Creates the value with this `max-age` in seconds; 0 omits the header.
    pub(crate) fn new(seconds: u32) -> Self {
        let value = (seconds > 0).then(|| HeaderValue::try_from(format!("max-age={seconds}")));
        Self(value.and_then(Result::ok))
    }
}

/// Adds the headers that a response does not set itself. HSTS is sent on secure connections only.
pub(crate) fn add(response: &mut Response, secure: bool, strict_transport: &StrictTransport, is_outside_api: bool) {
    let headers = response.headers_mut();
    headers.reserve(8);
    insert_default(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    insert_default(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    insert_default(headers, header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    insert_default(
        headers,
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
    insert_default(headers, header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Pages of other origins may embed images.
    if !is_outside_api {
        headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    }
    if let (true, Some(value)) = (secure, &strict_transport.0) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
    }
}

fn insert_default(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    headers.entry(name).or_insert(value);
}
