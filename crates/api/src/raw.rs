//! Replies that are no JSON: files as they are, and archives.

use std::io;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::Stream;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What may stand in the extended notation of a header's value as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-').remove(b'+');

/// The bytes of a file. Whatever they are, they are shown as text and nothing in them runs.
pub(crate) struct RawText {
    headers: HeaderMap,
    body: Body,
}

impl RawText {
    /// A file whose content has this name; without its bytes yet.
    pub(crate) fn new(id: &str, size: u64) -> Self {
        let mut headers = guarded();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(header::CONTENT_LENGTH, size.into());
        headers.insert(header::ETAG, made(format!("\"{id}\"")));
        // Asked for anew each time: the right to see it may have ended.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        Self { headers, body: Body::empty() }
    }

    /// Whether the client has it already.
    pub(crate) fn is_known_to(&self, asked: &HeaderMap) -> bool {
        asked.get(header::IF_NONE_MATCH).is_some_and(|known| self.headers.get(header::ETAG) == Some(known))
    }

    /// With these bytes.
    pub(crate) fn whole(mut self, bytes: Vec<u8>) -> Self {
        self.body = bytes.into();
        self
    }

    /// With what comes.
    pub(crate) fn streamed(mut self, bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        self.body = Body::from_stream(bytes);
        self
    }
}

impl IntoResponse for RawText {
    fn into_response(self) -> Response {
        (self.headers, self.body).into_response()
    }
}

/// Something to be kept as a file.
pub(crate) struct Download {
    headers: HeaderMap,
    body: Body,
}

impl Download {
    /// A file of this name and kind; without its bytes yet.
    pub(crate) fn new(name: &str, kind: &'static str) -> Self {
        let mut headers = guarded();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert("content-transfer-encoding", HeaderValue::from_static("binary"));
        let plain: String = name.chars().map(|c| if c.is_ascii_graphic() && c != '"' { c } else { '_' }).collect();
        let mut disposition = format!("attachment; filename=\"{plain}\"");
        if plain != name {
            disposition = format!("{disposition}; filename*=UTF-8''{}", utf8_percent_encode(name, ENCODED));
        }
        headers.insert(header::CONTENT_DISPOSITION, made(disposition));
        Self { headers, body: Body::empty() }
    }

    /// With what comes; how much that will be is told if it is known.
    pub(crate) fn streamed(
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

/// What keeps a file from being more than a file: nothing in it runs, and it stays out of caches that others use.
pub(crate) fn guarded() -> HeaderMap {
    let fixed = HeaderValue::from_static;
    HeaderMap::from_iter([
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::CONTENT_SECURITY_POLICY, fixed("default-src 'none'; sandbox")),
        (header::CACHE_CONTROL, fixed("private")),
    ])
}

fn made(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("plain characters are fine in a header")
}
