//! The stylesheet and the icon: embedded, with a hash in the name so that browsers keep them, and compressed once.

use std::sync::LazyLock;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use flate2::Compression as Level;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    response::{Compression, gzip},
};

/// An embedded file.
struct Asset {
    url: String,
    content_type: HeaderValue,
    plain: &'static [u8],
    compressed: Vec<u8>,
}

impl Asset {
    fn new(name: &str, extension: &str, content_type: &'static str, plain: &'static [u8]) -> Self {
        let url = format!("/assets/{name}-{:016x}.{extension}", xxh3_64(plain));
        let compressed = gzip(plain, Level::best());
        Self { url, content_type: HeaderValue::from_static(content_type), plain, compressed }
    }
}

static STYLESHEET: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css; charset=utf-8", include_bytes!("../assets/style.css")));
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_bytes!("../assets/icon.svg")));

pub(crate) fn stylesheet_url() -> &'static str {
    &STYLESHEET.url
}

pub(crate) fn icon_url() -> &'static str {
    &ICON.url
}

/// Handles `GET /assets/{name}`.
pub(crate) fn get(cx: &PageCx) -> PageResult {
    let found = [&*STYLESHEET, &*ICON].into_iter().find(|asset| asset.url == cx.uri.path());
    let asset = found.ok_or(PageError::Status(StatusCode::NOT_FOUND))?;
    let headers = [
        (header::CONTENT_TYPE, asset.content_type.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
        (header::VARY, HeaderValue::from_static("Accept-Encoding")),
    ];
    let response: Response = match Compression::accepted_by(&cx.headers) {
        Compression::Gzip => {
            let encoding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
            (headers, encoding, asset.compressed.as_slice()).into_response()
        }
        Compression::None => (headers, asset.plain).into_response(),
    };
    Ok(response)
}
