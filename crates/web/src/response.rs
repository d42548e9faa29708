//! Responses with HTML: security headers, compression and redirects.

use std::io::Write as _;

use askama::Template;
use axum::{
    body::{Body, HttpBody as _},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use flate2::{Compression as Level, write::GzEncoder};
use http_body_util::BodyExt as _;

use crate::error::{PageError, PageResult};

/// No inline scripts, no frames, and nothing from other hosts. Files of users cannot be scripts, because they are sent with
/// other types and `nosniff`.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);
/// Responses that are shorter are not compressed.
const MIN_COMPRESSED_LENGTH: u64 = 1000;
/// Most of the benefit at a third of the cost of the default level.
const COMPRESSION_LEVEL: Level = Level::new(4);

/// Returns a page.
pub(crate) fn page(template: &impl Template) -> PageResult {
    page_with_status(StatusCode::OK, template)
}

/// Returns a page with another status.
pub(crate) fn page_with_status(status: StatusCode, template: &impl Template) -> PageResult {
    let html = template.render().map_err(|error| {
        PageError::Forge(forge::Error::Internal(format!("cannot render a template: {error}").into()))
    })?;
    Ok(html_response(status, html))
}

pub(crate) fn html_response(status: StatusCode, html: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
        // With `no-referrer`, browsers would send `Origin: null` with forms.
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (header::VARY, HeaderValue::from_static("Cookie, Accept-Encoding")),
    ];
    (status, headers, html).into_response()
}

/// Returns a redirect that makes the browser send a `GET`.
pub(crate) fn redirect(to: &str) -> Response {
    let location = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

/// Returns a redirect to the place to which a page has moved for good.
pub(crate) fn moved(to: &str) -> Response {
    let location = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, location)]).into_response()
}

/// Whether the client accepts compressed responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    None,
}

impl Compression {
    pub(crate) fn accepted_by(headers: &HeaderMap) -> Self {
        let texts = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let accepts = |item: &str| {
            let (name, quality) = item.split_once(";q=").unwrap_or((item, "1"));
            name.trim() == "gzip" && quality.trim().parse::<f32>().is_ok_and(|quality| quality > 0.0)
        };
        if texts.flat_map(|text| text.split(',')).any(accepts) { Self::Gzip } else { Self::None }
    }

    /// Compresses a page that is in memory as a whole.
    pub(crate) async fn apply(self, response: Response) -> Response {
        let content_type = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_html = content_type.is_some_and(|kind| kind.starts_with(b"text/html"));
        let is_long = response.body().size_hint().exact().is_some_and(|length| length >= MIN_COMPRESSED_LENGTH);
        if self == Self::None || !is_html || !is_long {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let Ok(body) = body.collect().await else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
        parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        parts.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(parts, Body::from(gzip(&body.to_bytes(), COMPRESSION_LEVEL)))
    }
}

/// Compresses bytes.
pub(crate) fn gzip(bytes: &[u8], level: Level) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 3), level);
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("memory can be written to")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_whether_they_accept_compression() {
        let check = |value: &'static str, expected: Compression| {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(Compression::accepted_by(&headers), expected, "{value}");
        };
        check("gzip, deflate, br", Compression::Gzip);
        check("br;q=1.0, gzip;q=0.8", Compression::Gzip);
        check("gzip;q=0", Compression::None);
        check("br", Compression::None);
        assert_eq!(Compression::accepted_by(&HeaderMap::new()), Compression::None);
    }
}
