//! Files of a project as a browser fetches them: `{project}/uploads/{secret}/{name}`.
//!
//! Whoever has the URL still has to see the project, at every download. To everybody else there is nothing here, whatever
//! is wrong.

use std::{ops::Range, sync::Arc};

use axum::{
    body::Body,
    extract::{FromRef as _, FromRequestParts as _, Request},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use forge::{Error, Forge, ProjectRef, uploads};
use model::Upload;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{
    App,
    access_log::Footprint,
    app::wrong_method,
    error::{ApiError, plain_error},
    extract::Credentials,
    inbox,
};

/// What may stand in the extended notation of a header's value as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-').remove(b'+');

/// What the URL of a file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    project: String,
    secret: String,
    name: String,
}

impl Place {
    /// Takes a path apart, if it can be that of a file.
    pub(crate) fn find(path: &str) -> Option<Self> {
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

/// Answers a request for a file.
pub(crate) async fn show(app: App, place: Place, request: Request) -> Response {
    Footprint::leave_page(request.extensions(), "/{project}/uploads/{secret}/{name}");
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return wrong_method(request).await;
    }
    answer(app, place, request).await.unwrap_or_else(|error| error.into_response())
}

async fn answer(app: App, place: Place, request: Request) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    parts.extensions.insert(Arc::new(inbox::read_query(parts.uri.query())?));
    let Credentials(caller) = Credentials::from_request_parts(&mut parts, &app).await?;
    let forge = Forge::from_ref(&app);
    let Place { project, secret, name } = place;
    let project = ProjectRef::Path(project);
    let upload =
        forge.read_inline(caller, move |tx| uploads::open(tx, &project, &secret, &name)).await.map_err(hidden)?;
    let headers = headers(&upload);
    if is_known(&parts.headers, &headers) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let size = upload.size.unwrap_or_default();
    let range = Some(&parts.headers).filter(|asked| parts.method == Method::GET && wants_part(asked, &headers));
    let range = range.and_then(|asked| asked.get(header::RANGE)?.to_str().ok());
    let (status, range, told) = match wanted(range, size) {
        Wanted::Whole => (StatusCode::OK, 0..size, None),
        Wanted::Part(range) => {
            let told = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            (StatusCode::PARTIAL_CONTENT, range, Some(told))
        }
        Wanted::Nothing => {
            let told = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((told, plain_error(StatusCode::RANGE_NOT_SATISFIABLE)).into_response());
        }
    };
    let length = range.end - range.start;
    let body = if parts.method == Method::HEAD || length == 0 {
        Body::empty()
    } else {
        Body::from_stream(uploads::read(&forge, &upload, Some(range)).await.map_err(hidden)?.bytes)
    };
    let mut response = (status, headers, [(header::CONTENT_LENGTH, length)], body).into_response();
    if let Some(told) = told.and_then(|told| HeaderValue::from_str(&told).ok()) {
        response.headers_mut().insert(header::CONTENT_RANGE, told);
    }
    Ok(response)
}

/// The same answer for a project that is hidden, a project that is not there, and a wrong secret or name.
fn hidden(error: Error) -> ApiError {
    match error {
        Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated => ApiError::NoRoute,
        other => ApiError::Forge(other),
    }
}

/// What keeps a file from being more than a file: nothing in it runs, and it stays out of caches that others use.
fn headers(upload: &Upload) -> HeaderMap {
    let (kind, place) = match upload.shown_as() {
        Some(kind) => (kind, "inline"),
        None => ("application/octet-stream", "attachment"),
    };
    let plain: String = upload.name.chars().map(|c| if c.is_ascii() { c } else { '_' }).collect();
    let encoded = utf8_percent_encode(&upload.name, ENCODED);
    let disposition = format!("{place}; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
    let fixed = HeaderValue::from_static;
    let made = |text: String| HeaderValue::try_from(text).expect("a clean name and numbers are fine in a header");
    HeaderMap::from_iter([
        (header::CONTENT_TYPE, fixed(kind)),
        (header::CONTENT_DISPOSITION, made(disposition)),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::CONTENT_SECURITY_POLICY, fixed("default-src 'none'; sandbox")),
        (header::CACHE_CONTROL, fixed("private, no-cache")),
        (header::ETAG, made(format!("\"upload-{}\"", upload.id))),
        (header::ACCEPT_RANGES, fixed("bytes")),
    ])
}

/// Whether the client has it already.
fn is_known(asked: &HeaderMap, told: &HeaderMap) -> bool {
    let tags = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let own = told.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    tags.flat_map(|tags| tags.split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || Some(tag.strip_prefix("W/").unwrap_or(tag)) == own)
}

/// Whether a part that is asked for is a part of this file, and not of one that the client had before.
fn wants_part(asked: &HeaderMap, told: &HeaderMap) -> bool {
    asked.get(header::IF_RANGE).is_none_or(|tag| Some(tag) == told.get(header::ETAG))
}

/// How much of a file is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Whole,
    Part(Range<u64>),
    Nothing,
}

/// Reads the one range that is asked for. What cannot be understood, and several at once, get the whole.
pub(crate) fn wanted(header: Option<&str>, size: u64) -> Wanted {
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let Some((first, last)) = header.and_then(|header| header.strip_prefix("bytes=")?.split_once('-')) else {
        return Wanted::Whole;
    };
    let range = match (number(first), number(last)) {
        (None, Some(length)) if first.is_empty() => size.saturating_sub(length)..size,
        (Some(start), None) if last.is_empty() => start..size,
        (Some(start), Some(last)) if start <= last => start..last.saturating_add(1).min(size),
        _ => return Wanted::Whole,
    };
    if range.is_empty() { Wanted::Nothing } else { Wanted::Part(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_path_is_taken_apart_from_its_end() {
        let check = |path: &str, expected: Option<(&str, &str)>| {
            let path = path.replace("SECRET", SECRET);
            let found = Place::find(&path);
            let found = found.as_ref().map(|place| (place.project.as_str(), place.name.as_str()));
            assert_eq!(found, expected, "{path}");
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
    fn a_range_is_read_or_ignored() {
        let check = |header: &str, expected: Wanted| assert_eq!(wanted(Some(header), 10), expected, "{header}");
        check("bytes=0-3", Wanted::Part(0..4));
        check("bytes=4-", Wanted::Part(4..10));
        check("bytes=-3", Wanted::Part(7..10));
        check("bytes=-30", Wanted::Part(0..10));
        check("bytes=8-99", Wanted::Part(8..10));
        check("bytes=0-18446744073709551615", Wanted::Part(0..10));
        for outside in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            check(outside, Wanted::Nothing);
        }
        for odd in ["bytes=3-1", "bytes=0-1,4-5", "bytes=-", "bytes=a-b", "bytes=+1-2", "lines=1-2", "bytes=", ""] {
            check(odd, Wanted::Whole);
        }
        assert_eq!(wanted(None, 10), Wanted::Whole);
    }
}
