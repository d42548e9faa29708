//! Responses that are not JSON: raw files and downloads.

use std::io;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::Stream;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are not percent-encoded in an extended header value (RFC 8187).
pub(crate) const EXTENDED_VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-').remove(b'+');

/// A raw file, always served as plain text so that browsers do not execute it.
pub(crate) struct RawText {
    headers: HeaderMap,
    body: Body,
}

impl RawText {
    /// Creates a response for the object with this id, without a body yet.
    pub(crate) fn new(id: &str, size: u64) -> Self {
        let mut headers = sandbox_headers();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(header::CONTENT_LENGTH, size.into());
        headers.insert(header::ETAG, header_value(format!("\"{id}\"")));
        // Revalidated each time, because the permission to read it may have ended.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        Self { headers, body: Body::empty() }
    }

    /// Returns whether the client has the file already.
    pub(crate) fn matches_etag(&self, request_headers: &HeaderMap) -> bool {
        request_headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|client_etag| self.headers.get(header::ETAG) == Some(client_etag))
    }

    /// Sets the body.
    pub(crate) fn with_bytes(mut self, bytes: Vec<u8>) -> Self {
        self.body = bytes.into();
        self
    }

    /// Sets the body to a stream.
    pub(crate) fn with_stream(mut self, bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        self.body = Body::from_stream(bytes);
        self
    }
}

impl IntoResponse for RawText {
    fn into_response(self) -> Response {
        (self.headers, self.body).into_response()
    }
}

/// A file to download.
pub(crate) struct Download {
    headers: HeaderMap,
    body: Body,
}

impl Download {
    /// Creates a response for a file of this name and content type, without a body yet.
    pub(crate) fn new(name: &str, content_type: &'static str) -> Self {
        let mut headers = sandbox_headers();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert("content-transfer-encoding", HeaderValue::from_static("binary"));
        let plain: String = name.chars().map(|c| if c.is_ascii_graphic() && c != '"' { c } else { '_' }).collect();
        let mut disposition = format!("attachment; filename=\"{plain}\"");
        if plain != name {
            disposition = format!("{disposition}; filename*=UTF-8''{}", utf8_percent_encode(name, EXTENDED_VALUE));
        }
        headers.insert(header::CONTENT_DISPOSITION, header_value(disposition));
        Self { headers, body: Body::empty() }
    }

    /// Sets the body to a stream, with its length if known.
    pub(crate) fn with_stream(
        mut self,
        length: Option<u64>,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Self {
        if let Some(length) = length {
            self.headers.insert(header::CONTENT_LENGTH, length.into());
        }
        self.body = Body::from_stream(bytes);
        self
    }
}

impl IntoResponse for Download {
    fn into_response(self) -> Response {
        (self.headers, self.body).into_response()
    }
}

/// Returns headers that keep browsers from executing a file and shared caches from storing it.
pub(crate) fn sandbox_headers() -> HeaderMap {
    let fixed = HeaderValue::from_static;
    HeaderMap::from_iter([
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::CONTENT_SECURITY_POLICY, fixed("default-src 'none'; sandbox")),
        (header::CACHE_CONTROL, fixed("private")),
    ])
}

fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("visible ASCII is valid in a header")
}
