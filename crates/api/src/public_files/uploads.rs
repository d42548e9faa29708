//! Uploaded files of a project under their public path: `{project}/uploads/{secret}/{name}`.
//!
//! Every download requires permission to see the project, in addition to the secret. Any failure is the same 404. Pages of
//! the web interface show these files, so the session of a browser counts if the request has no token.

use std::{ops::Range, sync::Arc};

use axum::{
    body::Body,
    extract::{FromRequestParts as _, Request},
    http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use forge::{Caller, Error, ProjectRef, uploads, web_sessions};
use model::Upload;
use percent_encoding::{percent_decode_str, utf8_percent_encode};

use crate::{
    App,
    access_log::AccessLogContext,
    app::method_not_allowed,
    context::CallerCx,
    error::{ApiError, plain_error},
    file_response::EXTENDED_VALUE,
    proxies::PublicEndpoint,
    request_params,
};

/// The parts of the path of an upload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UploadPath {
    project: String,
    secret: String,
    name: String,
}

impl UploadPath {
    /// Parses a path, if it can be that of an upload.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let (path, name) = path.strip_prefix('/')?.rsplit_once('/')?;
        let (path, secret) = path.rsplit_once('/')?;
        let project = path.strip_suffix("/uploads").filter(|project| project.contains('/'))?;
        if !model::uploads::is_secret(secret) {
            return None;
        }
        let decode = |text| percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned);
        let project = decode(project).filter(|project| !model::text::has_control(project))?;
        Some(Self { project, secret: secret.to_owned(), name: decode(name)? })
    }
}

/// Handles a request for an upload.
pub(crate) async fn get(app: App, upload_path: UploadPath, request: Request) -> Response {
    AccessLogContext::record_fixed_route(request.extensions(), "/{project}/uploads/{secret}/{name}");
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return method_not_allowed(request).await;
    }
    respond(app, upload_path, request).await.unwrap_or_else(|error| error.into_response())
}

async fn respond(app: App, upload_path: UploadPath, request: Request) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    let cx = visitor(&app, &mut parts).await?;
    let UploadPath { project, secret, name } = upload_path;
    let project = ProjectRef::Path(project);
    let upload = cx.read_inline(move |tx| uploads::open(tx, &project, &secret, &name)).await.map_err(hide_error)?;
    let headers = headers(&upload);
    if matches_etag(&parts.headers, &headers) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let size = upload.size.unwrap_or_default();
    let range = Some(&parts.headers)
        .filter(|request_headers| parts.method == Method::GET && if_range_matches(request_headers, &headers));
    let range = range.and_then(|request_headers| request_headers.get(header::RANGE)?.to_str().ok());
    let (status, range, content_range) = match parse_range(range, size) {
        ByteRange::Whole => (StatusCode::OK, 0..size, None),
        ByteRange::Part(range) => {
            let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            (StatusCode::PARTIAL_CONTENT, range, Some(content_range))
        }
        ByteRange::Unsatisfiable => {
            let content_range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((content_range, plain_error(StatusCode::RANGE_NOT_SATISFIABLE)).into_response());
        }
    };
    let length = range.end - range.start;
    let body = if parts.method == Method::HEAD || length == 0 {
        Body::empty()
    } else {
        Body::from_stream(uploads::read(app.forge(), &upload, Some(range)).await.map_err(hide_error)?.bytes)
    };
    let mut response = (status, headers, [(header::CONTENT_LENGTH, length)], body).into_response();
    if let Some(content_range) = content_range.and_then(|text| HeaderValue::from_str(&text).ok()) {
        response.headers_mut().insert(header::CONTENT_RANGE, content_range);
    }
    Ok(response)
}

/// Returns the caller with a token, or with the session of a browser if the request has no token.
pub(super) async fn visitor(app: &App, parts: &mut Parts) -> Result<CallerCx, ApiError> {
    parts.extensions.insert(Arc::new(request_params::read_query(parts.uri.query())?));
    let mut cx = CallerCx::from_request_parts(parts, app).await?;
    if !cx.caller.has_credentials()
        && let Some(secret) = session(&parts.headers, &parts.extensions)
    {
        let identity = AccessLogContext::of(&parts.extensions).identity();
        cx.caller = Caller::with_web_session(secret).with_log_identity(identity);
    }
    Ok(cx)
}

/// Returns the secret of the session of a browser.
fn session<'a>(headers: &'a HeaderMap, extensions: &Extensions) -> Option<&'a str> {
    let is_secure = extensions.get::<PublicEndpoint>().is_some_and(|endpoint| endpoint.secure);
    let name = if is_secure { web_sessions::SECURE_COOKIE } else { web_sessions::COOKIE };
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, value)| *found == name && !value.is_empty()).map(|(_, value)| value)
}

/// Returns whether a request comes from a browser, which shows a page if there is no file.
pub(crate) fn is_from_browser(request: &Request) -> bool {
    let accepts_pages = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    session(request.headers(), request.extensions()).is_some()
        || accepts_pages.is_some_and(|accepted| accepted.contains("text/html"))
}

/// Maps a hidden project, a missing project, and a wrong secret or name to the same 404.
pub(super) fn hide_error(error: Error) -> ApiError {
    match error {
        Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated => ApiError::RouteNotFound,
        other => ApiError::Forge(other),
    }
}

/// Returns headers that keep browsers from executing the file and shared caches from storing it.
fn headers(upload: &Upload) -> HeaderMap {
    let (content_type, disposition) = match upload.inline_content_type() {
        Some(content_type) => (content_type, "inline"),
        None => ("application/octet-stream", "attachment"),
    };
    let plain: String = upload.name.chars().map(|c| if c.is_ascii() { c } else { '_' }).collect();
    let encoded = utf8_percent_encode(&upload.name, EXTENDED_VALUE);
    let disposition = format!("{disposition}; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
    let fixed = HeaderValue::from_static;
    let header_value =
        |text: String| HeaderValue::try_from(text).expect("sanitized names and numbers are valid in a header");
    HeaderMap::from_iter([
        (header::CONTENT_TYPE, fixed(content_type)),
        (header::CONTENT_DISPOSITION, header_value(disposition)),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::CONTENT_SECURITY_POLICY, fixed("default-src 'none'; sandbox")),
        (header::CACHE_CONTROL, fixed("private, no-cache")),
        (header::ETAG, header_value(format!("\"upload-{}\"", upload.id))),
        (header::ACCEPT_RANGES, fixed("bytes")),
    ])
}

/// Returns whether the client has the file already.
pub(super) fn matches_etag(request_headers: &HeaderMap, response_headers: &HeaderMap) -> bool {
    let tags = request_headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let etag = response_headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    tags.flat_map(|tags| tags.split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || Some(tag.strip_prefix("W/").unwrap_or(tag)) == etag)
}

/// Returns whether a range request refers to this file, and not to an earlier one.
fn if_range_matches(request_headers: &HeaderMap, response_headers: &HeaderMap) -> bool {
    request_headers.get(header::IF_RANGE).is_none_or(|tag| Some(tag) == response_headers.get(header::ETAG))
}

/// The requested part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ByteRange {
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

/// Parses a `Range` header. Invalid ranges and multiple ranges select the whole file.
pub(crate) fn parse_range(header: Option<&str>, size: u64) -> ByteRange {
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let Some((first, last)) = header.and_then(|header| header.strip_prefix("bytes=")?.split_once('-')) else {
        return ByteRange::Whole;
    };
    let range = match (number(first), number(last)) {
        (None, Some(length)) if first.is_empty() => size.saturating_sub(length)..size,
        (Some(start), None) if last.is_empty() => start..size,
        (Some(start), Some(last)) if start <= last => start..last.saturating_add(1).min(size),
        _ => return ByteRange::Whole,
    };
    if range.is_empty() { ByteRange::Unsatisfiable } else { ByteRange::Part(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_path_is_parsed_from_its_end() {
        let check = |path: &str, expected: Option<(&str, &str)>| {
            let path = path.replace("SECRET", SECRET);
            let parsed = UploadPath::parse(&path);
            let parsed = parsed.as_ref().map(|upload_path| (upload_path.project.as_str(), upload_path.name.as_str()));
            assert_eq!(parsed, expected, "{path}");
        };
        check("/ann/x/uploads/SECRET/dk.png", Some(("ann/x", "dk.png")));
        check("/a/b/c/uploads/SECRET/M%C3%A4rz.json", Some(("a/b/c", "März.json")));
        check("/a/uploads/SECRET/x/uploads/SECRET/y", Some((&format!("a/uploads/{SECRET}/x"), "y")));
        check("/ann/x/uploads/SECRET/..%2Fx", Some(("ann/x", "../x")));
        check("/ann/x/uploads/SECRET/%ff", None);
        check("/ann/%00/uploads/SECRET/x", None);
        check("/ann/uploads/SECRET/x", None);
        check("/ann/x/uploads/0123/x", None);
        check("/ann/x/uploads/SECRET", None);
        check("/ann/x/wikis/SECRET/x", None);
        check("/", None);
    }

    #[test]
    fn a_range_is_parsed_or_ignored() {
        let check = |header: &str, expected: ByteRange| assert_eq!(parse_range(Some(header), 10), expected, "{header}");
        check("bytes=0-3", ByteRange::Part(0..4));
        check("bytes=4-", ByteRange::Part(4..10));
        check("bytes=-3", ByteRange::Part(7..10));
        check("bytes=-30", ByteRange::Part(0..10));
        check("bytes=8-99", ByteRange::Part(8..10));
        check("bytes=0-18446744073709551615", ByteRange::Part(0..10));
        for outside in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            check(outside, ByteRange::Unsatisfiable);
        }
        for odd in ["bytes=3-1", "bytes=0-1,4-5", "bytes=-", "bytes=a-b", "bytes=+1-2", "lines=1-2", "bytes=", ""] {
            check(odd, ByteRange::Whole);
        }
        assert_eq!(parse_range(None, 10), ByteRange::Whole);
    }
}
