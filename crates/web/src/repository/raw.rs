//! Raw files, as plain text, an image or a download, and never as something that a browser executes.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use forge::{
    browse,
    contents::{self, BlobContent},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{context::PageCx, error::PageResult, text};

/// Characters that are not percent-encoded in an extended header value (RFC 8187).
const EXTENDED_VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-').remove(b'+');
/// The type of files that a browser only saves.
pub(crate) const DOWNLOAD: &str = "application/octet-stream";
/// The type of SVG.
const DRAWING: &str = "image/svg+xml";

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, location) = (cx.project(), cx.params.location.clone());
    let (_, file) = cx.read(move |tx| browse::raw(tx, &project, &location)).await?;
    let name = cx.params.location.rsplit('/').next().unwrap_or_default().to_owned();
    let etag = HeaderValue::from_str(&format!("\"{}\"", file.id)).unwrap_or(HeaderValue::from_static("\"\""));
    let content = match &file.content {
        BlobContent::Inline(bytes) => Some(bytes.as_ref()),
        BlobContent::Large(_) => None,
    };
    let content_type = content_type(&name, content);
    let is_known = cx.headers.get(header::IF_NONE_MATCH) == Some(&etag);
    let body = match file.content {
        _ if is_known || cx.method == Method::HEAD => Body::empty(),
        BlobContent::Inline(bytes) => Body::from(bytes),
        BlobContent::Large(blob) => Body::from_stream(contents::read_large_blob(cx.forge(), blob).await?),
    };
    let mut response: Response =
        (if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK }, body).into_response();
    let headers = response.headers_mut();
    add_file_headers(headers, content_type, &name);
    headers.insert(header::ETAG, etag);
    if !is_known {
        headers.insert(header::CONTENT_LENGTH, file.size.into());
    }
    Ok(response)
}

/// Returns the type with which a file of a user is sent; `content` is `None` if it is too large to be examined.
pub(crate) fn content_type(name: &str, content: Option<&[u8]>) -> &'static str {
    match image_type(name) {
        Some(image) => image,
        None if content.is_some_and(|bytes| text::decode(bytes).is_some()) => "text/plain; charset=utf-8",
        None => DOWNLOAD,
    }
}

/// Adds the headers of a file of a user, so that a browser executes nothing in it.
pub(crate) fn add_file_headers(headers: &mut HeaderMap, content_type: &'static str, name: &str) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Revalidated each time, because the permission to read it may have ended.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    let policy = if content_type == DRAWING {
        // Drawings contain their styles.
        "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    } else {
        "default-src 'none'; sandbox"
    };
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if content_type == DOWNLOAD {
        headers.insert(header::CONTENT_DISPOSITION, attachment(name));
    }
}

/// Returns the header that makes browsers download a file under a name.
pub(crate) fn attachment(name: &str) -> HeaderValue {
    let disposition = format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(name, EXTENDED_VALUE));
    HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment"))
}

/// Returns the type of an image. SVG can contain scripts, which browsers do not run in images, nor in the sandbox if the file
/// is opened by itself.
fn image_type(name: &str) -> Option<&'static str> {
    match name.rsplit('.').next()?.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        "avif" => Some("image/avif"),
        "ico" => Some("image/x-icon"),
        "svg" => Some(DRAWING),
        _ => None,
    }
}
